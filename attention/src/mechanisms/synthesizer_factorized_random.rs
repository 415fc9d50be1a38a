//! Factorized Random Synthesizer (Tay et al. 2021, section 3.2.1).
//!
//! `logits_h = R1_h R2_h^T` with `R1, R2` of shape `L x k`: a random synthesizer of rank `k`, with `2 L k` instead of `L^2` parameters per head.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/synthesizer-factorized-random.svg")]

use crate::mechanisms::prelude::*;
use crate::mechanisms::synthesizer_random::TABLES_WITHOUT_DECAY;
use crate::softmax_attention::logits::rows_at;

/// Configuration of [`SynthesizerFactorizedRandom`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct SynthesizerFactorizedRandomConfig {
    /// Rank `k`, at least 1 (default: 8, as in the paper, or a quarter of the maximal length if that is less; 16 in the released code).
    pub rank: Option<usize>,
    /// Standard deviation of the initial logits, at least 0 (default 1). The factors are scaled so that their product has this deviation.
    pub init_std: f64,
}

impl Default for SynthesizerFactorizedRandomConfig {
    fn default() -> Self {
        Self { rank: None, init_std: 1.0 }
    }
}

/// Logits of the Factorized Random Synthesizer.
///
/// Should be created with [`SynthesizerFactorizedRandomConfig`].
#[derive(Module, Debug)]
pub struct SynthesizerFactorizedRandom {
    /// `R1`, `[H, L, k]`.
    pub query_factor: Param<Tensor<3>>,
    /// `R2`, `[H, L, k]`.
    pub key_factor: Param<Tensor<3>>,
    max_length: usize,
}

impl SynthesizerFactorizedRandomConfig {
    /// Rank in a model with this maximal length.
    pub fn rank_at(&self, max_length: usize) -> usize {
        self.rank.unwrap_or_else(|| quarter(max_length, 8))
    }
}

impl Mechanism for SynthesizerFactorizedRandomConfig {
    type Module = LogitsOf<SynthesizerFactorizedRandom>;
    const NAME: &'static str = "synthesizer-factorized-random";
    const CARD: Card = Card {
        variant: "SynthesizerFactorizedRandom",
        description: "Uses a trained low-rank matrix of logits per head, for every input.",
        source: "Tay et al. 2021, section 3.2.1",
        links: &[
            "https://arxiv.org/abs/2005.00743",
            "https://github.com/tensorflow/mesh/blob/master/mesh_tensorflow/transformer/attention.py",
        ],
        time: "n^2 (d + H k)",
        state: "n d",
        differences: &["The product of the factors starts with deviation 1; the released code draws each factor Glorot-uniform."],
        letters: &[("k", "the option `rank`, by default at most `L / 4`")],
        aliases: &[("factorized-random", "synthesizer-factorized-random")],
        sizes: &["rank"],
        tensors: &[
            ("query_factor", "factor of the logits [heads, query position, rank]"),
            ("key_factor", "factor of the logits [heads, key position, rank]"),
        ],
        without_decay: &[TABLES_WITHOUT_DECAY],
        free_heads: true,
        ..Card::DEFAULT
    };

    fn resolved(self, max_length: usize) -> Self {
        Self { rank: Some(self.rank_at(max_length)), ..self }
    }

    /// # Errors
    /// If the rank is 0, or `init_std` is negative or not finite.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one_if_given("rank", self.rank)?;
        check.non_negative("init_std", self.init_std)
    }

    fn idle(&self, spec: &LayerSpec, length: usize) -> Option<Idle> {
        let idle = Idle { what: "has factors of full rank", sizes: Self::CARD.sizes, options: &[] };
        (self.rank_at(spec.max_length) >= length).then_some(idle)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> SynthesizerFactorizedRandom {
        let max_length = spec.max_length;
        let rank = self.rank_at(max_length);
        let shape = [spec.heads, max_length, rank];
        // A sum of k products of two normal numbers with deviation s has deviation sqrt(k) s^2.
        let factor = Init::Normal((self.init_std / (rank as f64).sqrt()).sqrt() as f32);
        SynthesizerFactorizedRandom {
            query_factor: factor.parameter(shape, &key.named("query_factor"), device),
            key_factor: factor.parameter(shape, &key.named("key_factor"), device),
            max_length,
        }
    }

    /// Tay et al. 2021, section 3.2.1: an element of `R1 R2^T`.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().logit(|query, key| {
            let row = |factor, position| query.parameter(factor).row(&[query.head, position]);
            dot(row("query_factor", query.position()), row("key_factor", query.position_of(key)))
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(2, "H L k")]))
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        vec![("k", self.rank_at(max_length))]
    }
}

impl Logits for SynthesizerFactorizedRandom {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: false, max_length: Some(self.max_length), remembers_keys: false, auxiliary_losses: false }
    }

    fn terms(&self, _query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let queries = rows_at(self.query_factor.val().unsqueeze_dim(0), span.query_start, span.queries, positions);
        let keys = rows_at(self.key_factor.val().unsqueeze_dim(0), span.key_start, span.keys, positions);
        LogitTerms::content(queries, keys)
    }

    fn multiplications(&self, _d_head: f64) -> f64 {
        self.query_factor.dims()[2] as f64
    }
}
