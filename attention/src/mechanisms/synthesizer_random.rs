//! Random Synthesizer (Tay et al. 2021, section 3.2).
//!
//! `logits_h = R_h[0..q, 0..k]`: one matrix of logits per head, the same for every input, trained or frozen at its random initial value. There are no queries
//! and keys. The softmax does not depend on the batch.
//!
//! The paper does not state the initialisation of `R`; here it is normal with standard deviation `init_std`.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/synthesizer-random.svg")]

use burn::module::RunningState;

use crate::engine::columns_from;
use crate::mechanisms::prelude::*;
use crate::softmax_attention::logits::{rows_at, starts};

/// Name of the frozen random synthesizer.
const FIXED: &str = "synthesizer-random-fixed";

/// Tables that replace query-key products: their entries are logits, not weights of a linear map. All synthesizers share this expression, which recorded
/// configurations contain.
pub(super) const TABLES_WITHOUT_DECAY: &str = r"(?i)synthesizer[a-z]*\.(table|query_factor|key_factor|position)$";

/// Configuration of [`SynthesizerRandom`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct SynthesizerRandomConfig {
    /// Whether the matrix is trained (default) or frozen at its initial value ("fixed random" in the paper). A frozen matrix is saved with the model.
    pub trainable: bool,
    /// Standard deviation of the initial logits, at least 0 (default 1).
    pub init_std: f64,
}

impl Default for SynthesizerRandomConfig {
    fn default() -> Self {
        Self { trainable: true, init_std: 1.0 }
    }
}

/// Logits of the Random Synthesizer.
///
/// Should be created with [`SynthesizerRandomConfig`].
#[derive(Module, Debug)]
pub struct SynthesizerRandom {
    /// Trained logits `[H, L, L]`.
    pub table: Option<Param<Tensor<3>>>,
    /// Frozen logits `[H, L, L]`.
    pub frozen_table: Option<RunningState<Tensor<3>>>,
    max_length: usize,
}

impl Mechanism for SynthesizerRandomConfig {
    type Module = LogitsOf<SynthesizerRandom>;
    const NAME: &'static str = "synthesizer-random";
    const CARD: Card = Card {
        variant: "SynthesizerRandom",
        description: "Uses one matrix of logits per head, trained or fixed, for every input.",
        source: "Tay et al. 2021, section 3.2",
        links: &[
            "https://arxiv.org/abs/2005.00743",
            "https://github.com/tensorflow/mesh/blob/master/mesh_tensorflow/transformer/attention.py",
        ],
        state: "n d",
        differences: &["Logits start normal with deviation 1; the released code draws them Glorot-uniform."],
        aliases: &[("random", "synthesizer-random"), ("random-fixed", "synthesizer-random-fixed")],
        tensors: &[
            ("table", "logits [heads, query position, key position]"),
            ("frozen_table", "logits at their initial values [heads, query position, key position]"),
        ],
        without_decay: &[TABLES_WITHOUT_DECAY],
        free_heads: true,
        ..Card::DEFAULT
    };

    fn named() -> Vec<(&'static str, Self)> {
        vec![(Self::NAME, Self::default()), (FIXED, Self { trainable: false, ..Self::default() })]
    }

    fn description(&self) -> &'static str {
        match self.trainable {
            true => "Uses one trained matrix of logits per head, for every input.",
            false => "Uses one random matrix of logits per head, which is not trained, for every input.",
        }
    }

    fn name(&self) -> String {
        if self.trainable { Self::NAME } else { FIXED }.to_owned()
    }

    /// # Errors
    /// If `init_std` is negative or not finite.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        spec.check(Self::NAME).non_negative("init_std", self.init_std)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> SynthesizerRandom {
        let max_length = spec.max_length;
        let shape = [spec.heads, max_length, max_length];
        let table = Init::Normal(self.init_std as f32).tensor(shape, &key.named("table"), device);
        let (table, frozen_table) =
            if self.trainable { (Some(Param::from_tensor(table)), None) } else { (None, Some(RunningState::new(table))) };
        SynthesizerRandom { table, frozen_table, max_length }
    }

    /// Tay et al. 2021, section 3.2: an element of `R`.
    fn formula(&self) -> Option<Formula<'_>> {
        let name = if self.trainable { "table" } else { "frozen_table" };
        Some(Formula::default().logit(move |query, key| query.parameter(name).at(&[query.head, query.position(), query.position_of(key)])))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let table = [(1, "H L^2")];
        Some(if self.trainable { ParameterFormula::trained(&table) } else { ParameterFormula::fixed(&table) })
    }
}

impl Logits for SynthesizerRandom {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: false, max_length: Some(self.max_length), remembers_keys: false, auxiliary_losses: false }
    }

    fn terms(&self, query: Tensor<3>, _keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let table = match (&self.table, &self.frozen_table) {
            (Some(table), _) => table.val(),
            (None, Some(table)) => table.value().cast(query.dtype()),
            (None, None) => unreachable!("a random synthesizer has one of its two tables"),
        };
        let rows = rows_at(table.unsqueeze_dim(0), span.query_start, span.queries, positions);
        LogitTerms::bias(columns_from(rows, &starts(span, positions), span.keys))
    }

    fn multiplications(&self, _d_head: f64) -> f64 {
        0.0
    }
}
