//! Options and card of the mechanism.

use super::Mla;
use crate::description::formula::softmax;
use crate::mechanisms::prelude::*;
use crate::mechanisms::qk_norm::QkNorm;
use crate::mechanisms::rotary::tables::Tables;
use crate::mechanisms::rotary::{RotaryScaling, formula};

/// Epsilon that the released code adds to mean squares.
const EPSILON: f64 = 1e-6;

/// Configuration of [`Mla`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct MlaConfig {
    /// Width of the latent for keys and values, at least 1 (default: 4 times the head width, as in the paper).
    pub latent: Option<usize>,
    /// Width of a query latent, at least 1 (default: none, queries are projected from tokens; the paper uses 12 times the head width).
    pub query_latent: Option<usize>,
    /// Rotated channels of each query and of the shared key, an even number; 0 disables positions (default: half the head width, as in the paper, rounded up to
    /// an even number).
    pub rotary_width: Option<usize>,
    /// Base of the angles, greater than 1 (default: 10000).
    pub base: f64,
    /// Whether latents are divided by their root mean square (default: yes).
    pub latent_norm: bool,
    /// Angle scaling for sequences longer than the training length: as in the mechanism `rotary`, except `dynamic` (default: none). With `mscale_all_dim` of
    /// `yarn`, all scores are multiplied by `(0.1 mscale_all_dim ln(factor) + 1)^2`, as in DeepSeek's models.
    // Skipped at its default, so that configurations of earlier runs do not change.
    #[serde(skip_serializing_if = "RotaryScaling::is_none")]
    pub scaling: RotaryScaling,
}

impl Default for MlaConfig {
    fn default() -> Self {
        Self { latent: None, query_latent: None, rotary_width: None, base: 10_000.0, latent_norm: true, scaling: RotaryScaling::None }
    }
}

impl MlaConfig {
    fn latent_at(&self, spec: &LayerSpec) -> usize {
        self.latent.unwrap_or(spec.d_head().saturating_mul(4))
    }

    fn rotary_at(&self, spec: &LayerSpec) -> usize {
        self.rotary_width.unwrap_or((spec.d_head() / 2).max(1).next_multiple_of(2))
    }

    fn norm(&self) -> QkNorm {
        if self.latent_norm { QkNorm::Rms } else { QkNorm::None }
    }

    /// `x` rotated by its position, in pairs of neighbours.
    fn turned(&self, mut x: Vec<f64>, position: usize) -> Vec<f64> {
        let (pairs, length) = (x.len() / 2, formula::magnitude(&self.scaling));
        for (pair, channels) in x.chunks_mut(2).enumerate() {
            let angle = position as f64 * formula::theta(self.base, &self.scaling, [pair, pairs], 0);
            let (even, odd) = (length * channels[0], length * channels[1]);
            channels[0] = even * angle.cos() - odd * angle.sin();
            channels[1] = even * angle.sin() + odd * angle.cos();
        }
        x
    }
}

impl Mechanism for MlaConfig {
    type Module = AttentionOf<Mla>;
    const NAME: &'static str = "mla";
    const CARD: Card = Card {
        variant: "Mla",
        description: "Compresses keys and values of all heads into one latent vector per token, which decoding caches instead.",
        source: "DeepSeek-AI 2024, section 2.1",
        links: &["https://arxiv.org/abs/2405.04434", "https://github.com/deepseek-ai/DeepSeek-V3"],
        kind: Kind::Whole,
        time: "n^2 (d + H d_r)",
        state: "n (d_c + d_r)",
        letters: &[
            ("d_c", "width of the latent of keys and values, option `latent`"),
            ("d_r", "rotated channels of a head, option `rotary_width`"),
        ],
        differences: &[
            "Released code fuses the projections to latent and rotated key, and those to keys and values, into one matrix each; here all projections are separate.",
            "Released models except the smallest use a query latent; here queries are projected from tokens unless `query_latent` is given.",
        ],
        tensors: &[
            ("query_latent.weight", "projection to the query latent [d_in, d_out]"),
            ("query_latent_norm.gamma", "gain of the norm of the query latent"),
            ("latent.weight", "projection to the latent of keys and values [d_in, d_out]"),
            ("latent_norm.gamma", "gain of the norm of the latent of keys and values"),
            ("rotary_key.weight", "projection to the rotated key that all heads share [d_in, d_out]"),
        ],
        ..Card::DEFAULT
    };

    /// # Errors
    /// If a width is 0 or odd where it must be even, or the base is not greater than 1 or has no effect.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one_if_given("latent", self.latent)?;
        check.at_least_one_if_given("query_latent", self.query_latent)?;
        if let Some(width) = self.rotary_width.filter(|width| !width.is_multiple_of(2)) {
            return Err(check.refuse("rotary_width", width, "give an even number"));
        }
        if !(self.base.is_finite() && self.base > 1.0) {
            return Err(check.refuse("base", self.base, "give a number greater than 1"));
        }
        if self.scaling.is_dynamic() {
            return Err(check.refuse("scaling.kind", "dynamic", "remembered keys stay as they were turned; give another kind"));
        }
        if !self.scaling.is_none() && self.rotary_at(spec) == 0 {
            return Err(check.refuse("rotary_width", 0, "give the channels that are rotated, or leave scaling out"));
        }
        self.scaling.validate(&check, self.rotary_at(spec), true)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Mla {
        let LayerSpec { d_model, heads, dropout, .. } = *spec;
        let (latent, rotary) = (self.latent_at(spec), self.rotary_at(spec));
        let linear = |name, inputs, outputs| init::linear(inputs, outputs, false, &key.named(name), device);
        let norm = |width| self.norm().init(Some(EPSILON), &spec.with_head_width(Some(width)), key, device);
        Mla {
            query_latent: self.query_latent.map(|width| linear("query_latent", d_model, width)),
            query_latent_norm: self.query_latent.and_then(norm),
            query: linear("query", self.query_latent.unwrap_or(d_model), d_model + heads * rotary),
            latent: linear("latent", d_model, latent),
            latent_norm: norm(latent),
            rotary_key: (rotary > 0).then(|| linear("rotary_key", d_model, rotary)),
            key: linear("key", latent, d_model),
            value: linear("value", latent, d_model),
            output: linear("output", d_model, d_model),
            tables: Tables::shared(self.scaling.frequencies(self.base, rotary / 2), self.scaling.magnitude()),
            score_factor: self.scaling.score_factor(),
            heads,
            dropout,
            limit: spec.limit(),
        }
    }

    /// DeepSeek-AI 2024, equations 9 to 19.
    fn formula(&self) -> Option<Formula<'_>> {
        let latent = |query: &Query, key: usize| {
            self.norm().formula(Some(EPSILON), query, "latent_norm", query.mapped("latent", query.attended(key)))
        };
        let factor = match self.scaling {
            RotaryScaling::Yarn { factor, mscale_all_dim: Some(of_all), .. } => (1.0 + of_all * factor.ln() / 10.0).powi(2),
            _ => 1.0,
        };
        let weights = move |query: &Query| {
            let (width, rotary) = (query.spec().d_head(), self.rotary_at(query.spec()));
            let asking = match self.query_latent {
                Some(_) => {
                    let latent = query.mapped("query_latent", query.element());
                    query.mapped("query", &self.norm().formula(Some(EPSILON), query, "query_latent_norm", latent))
                }
                None => query.mapped("query", query.element()),
            };
            let asking = &asking[query.head * (width + rotary)..][..width + rotary];
            let turned = self.turned(asking[width..].to_vec(), query.position());
            let score = |key: usize| {
                let content = dot(&asking[..width], &query.projected("key", &latent(query, key)));
                let positions = if rotary > 0 {
                    dot(&turned, &self.turned(query.mapped("rotary_key", query.attended(key)), query.position_of(key)))
                } else {
                    0.0
                };
                (content + positions) / ((width + rotary) as f64).sqrt() * factor
            };
            softmax(&(0..query.keys()).map(|key| query.sees(key).then(|| score(key))).collect::<Vec<_>>())
        };
        Some(Formula::default().weights(weights).value(move |query, key| query.projected("value", &latent(query, key))))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        // `d_q` is the width of the query latent.
        let mut terms = vec![(1, "d^2"), (3, "d d_c"), (1, "d d_r")];
        match self.query_latent {
            Some(_) => terms.extend([(2, "d d_q"), (1, "H d_q d_r")]),
            None => terms.extend([(1, "d^2"), (1, "H d d_r")]),
        }
        if self.latent_norm {
            terms.push((1, "d_c"));
            terms.extend(self.query_latent.map(|_| (1, "d_q")));
        }
        Some(terms.into_iter().map(|term| ParameterFormula::trained(&[term])).fold(ParameterFormula::none(), ParameterFormula::plus))
    }

    fn letters_at(&self, spec: &LayerSpec) -> Vec<(&'static str, usize)> {
        vec![("d_c", self.latent_at(spec)), ("d_r", self.rotary_at(spec)), ("d_q", self.query_latent.unwrap_or(0))]
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        match (option, self.rotary_width) {
            ("base" | "scaling", Some(0)) => Some("none of its channels is rotated"),
            ("base", Some(2)) => Some("its one pair of rotated channels turns by the position, whatever the base is"),
            _ => None,
        }
    }
}
