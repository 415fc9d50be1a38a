//! Hard-coded Gaussian attention (You, Sun and Iyyer 2020).
//!
//! Head `h` weights key `j` by the density `N(j; γ i + o_h, σ_h²)` for query `i`, independent of content. There are no query or key projections; only the value
//! and output projections are trained (both without bias). There is **no softmax** and, by default, no renormalisation: at borders, under the causal mask and
//! beside padding a row sums to less than 1, as in the authors' code.
//!
//! Three executions compute the same mechanism. `dense` uses all `Q x K` weights (`n^2 d`); backends in main memory skip tiles whose weights underflow 32-bit
//! floats. `banded` sums the keys within `window` of the centre (`n w d`; a half-width of 6 is exact to float precision for σ = 1). `index` is the limit σ → 0,
//! in which each query reads only the value at its centre (`n d`), with weight 1.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/gaussian.svg")]

mod formula;
mod kernel;

use std::sync::Arc;

pub use self::kernel::GaussianLogits;
use self::kernel::Kernel;
use crate::engine::dropout::dropout;
use crate::engine::fused::Part;
use crate::engine::{AttentionProgram, Dropout, GaussianShape, Weighting, fused, least_sum, reference};
use crate::mechanisms::prelude::*;
use crate::softmax_attention::kv_cache::KeyValueState;
use crate::tensors::main_memory;

/// Whether the weights of a row are divided by their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalisation {
    /// The raw density (the paper).
    #[default]
    None,
    /// Divided by the sum over the visible keys, which changes the model at borders, in causal rows and beside padding.
    Renormalise,
}

/// Execution of the weighted sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GaussianExecution {
    /// Product with the matrix of all weights.
    #[default]
    Dense,
    /// Sum over keys near the centre.
    Banded,
    /// The value at the rounded centre, with weight 1: the limit σ → 0.
    Index,
}

/// Configuration of [`Gaussian`].
///
/// `offsets` and `deviations` follow the authors' code, in this order: one number for all heads; a full table of `heads x layers` numbers, layer by layer; one
/// number per head; one number per layer. Any other list whose length divides the number of heads is repeated over the heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct GaussianConfig {
    /// Centre relative to the query (default: `[-1, 1]` in encoders and in cross-attention, `[-1, 0]` in decoders).
    #[setters(into)]
    pub offsets: Option<Vec<f64>>,
    /// Standard deviations σ, greater than 0 (default 1).
    pub deviations: Vec<f64>,
    /// Source length divided by target length, γ, for cross-attention (default 1). Self-attention ignores it.
    pub length_ratio: f64,
    /// Whether rows are divided by their sum (default: no).
    pub normalisation: Normalisation,
    /// Execution (default: dense).
    pub execution: GaussianExecution,
    /// Half-width of the band around the rounded centre, for the banded execution (default 6).
    pub window: usize,
}

impl Default for GaussianConfig {
    fn default() -> Self {
        Self {
            offsets: None,
            deviations: vec![1.0],
            length_ratio: 1.0,
            normalisation: Normalisation::None,
            execution: GaussianExecution::Dense,
            window: 6,
        }
    }
}

/// Hard-coded Gaussian attention.
///
/// Should be created with [`GaussianConfig`].
#[derive(Module, Debug)]
pub struct Gaussian {
    /// Value projection `[C, C]`, split into heads.
    pub value: Linear,
    /// Output projection `[C, C]`.
    pub output: Linear,
    #[module(skip)]
    kernel: Kernel,
    #[module(skip)]
    limit: Visibility,
    heads: usize,
    dropout: f64,
}

impl GaussianConfig {
    fn offsets_for(&self, spec: &LayerSpec) -> Vec<f64> {
        let default: &[f64] = match spec.role {
            Role::Encoder | Role::Cross => &[-1.0, 1.0],
            Role::Decoder => &[-1.0, 0.0],
        };
        // The default is per head, even where two numbers could be read as one per layer of two.
        self.offsets.clone().unwrap_or_else(|| default.iter().copied().cycle().take(spec.heads).collect())
    }

    /// Log density only, for use in a mixture or under a pattern. Normalisation and execution are then those of the softmax.
    ///
    /// # Panics
    /// If the configuration is not valid.
    pub fn init_logits(&self, spec: &LayerSpec) -> GaussianLogits {
        GaussianLogits { kernel: self.kernel(spec), heads: spec.heads }
    }

    fn kernel(&self, spec: &LayerSpec) -> Kernel {
        let per_head = |list: &[f64]| spread(list, spec).expect("validated: the list fits heads and layers");
        Kernel {
            offsets: per_head(&self.offsets_for(spec)),
            deviations: per_head(&self.deviations),
            ratio: if spec.role == Role::Cross { self.length_ratio } else { 1.0 },
            cross: spec.role == Role::Cross,
            normalisation: self.normalisation,
            execution: self.execution,
            window: self.window,
        }
    }
}

impl Mechanism for GaussianConfig {
    type Module = AttentionOf<Gaussian>;
    const NAME: &'static str = "gaussian";
    const CARD: Card = Card {
        variant: "Gaussian",
        description: "Weights keys by a fixed Gaussian of their relative position, independent of content.",
        source: "You, Sun and Iyyer 2020",
        links: &["https://arxiv.org/abs/2005.00742", "https://github.com/fallcat/stupidNMT"],
        cross: true,
        state: "n d",
        ..Card::DEFAULT
    };

    /// # Errors
    /// If a list cannot be spread over heads and layers, or a number is out of range.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        let list = "give one number, or as many as heads, layers or heads x layers, or a divisor of the number of heads";
        let offsets = self.offsets_for(spec);
        if offsets.iter().any(|o| !o.is_finite()) || spread(&offsets, spec).is_none() {
            return Err(check.refuse("offsets", format!("{offsets:?}"), list));
        }
        if spread(&self.deviations, spec).is_none() {
            return Err(check.refuse("deviations", format!("{:?}", self.deviations), list));
        }
        if self.deviations.iter().any(|&d| !(d.is_finite() && d > 0.0)) {
            return Err(check.refuse("deviations", format!("{:?}", self.deviations), "deviations must be greater than 0"));
        }
        if !(self.length_ratio.is_finite() && self.length_ratio > 0.0) {
            return Err(check.refuse("length_ratio", self.length_ratio, "give a number greater than 0"));
        }
        Ok(())
    }

    /// The exponents are log densities up to a constant per head.
    fn has_whole_scores(&self) -> bool {
        false
    }

    fn logits(&self, spec: &LayerSpec, _key: &RandomKey, _device: &Device) -> Option<AnyLogits> {
        Some(AnyLogits::new(self.init_logits(spec)))
    }

    fn without_effect(&self, option: &str, role: Role) -> Option<&'static str> {
        match option {
            "length_ratio" if role != Role::Cross => Some("length_ratio is for Gaussian cross-attention"),
            "window" if self.execution != GaussianExecution::Banded => Some("window is for execution = \"banded\""),
            "deviations" if self.execution == GaussianExecution::Index => Some("deviations are not for execution = \"index\""),
            _ => None,
        }
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Gaussian {
        let d_model = spec.d_model;
        Gaussian {
            value: init::linear(d_model, d_model, false, &key.named("value"), device),
            output: init::linear(d_model, d_model, false, &key.named("output"), device),
            kernel: self.kernel(spec),
            limit: spec.limit(),
            heads: spec.heads,
            dropout: spec.dropout,
        }
    }

    fn formula(&self) -> Option<Formula<'_>> {
        Some(formula::of(self))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::none())
    }
}

/// Numbers for the heads of one layer, by the rules of [`GaussianConfig`]; `None` if the list fits no rule.
fn spread(list: &[f64], spec: &LayerSpec) -> Option<Vec<f64>> {
    let LayerSpec { heads, layers, layer, .. } = *spec;
    match list.len() {
        0 => None,
        1 => Some(vec![list[0]; heads]),
        count if count == heads * layers => Some(list[layer * heads..(layer + 1) * heads].to_vec()),
        count if count == heads => Some(list.to_vec()),
        count if count == layers => Some(vec![list[layer]; heads]),
        count if heads % count == 0 => Some(list.iter().copied().cycle().take(heads).collect()),
        _ => None,
    }
}

impl Gaussian {
    fn attend(&self, input: AttentionInput, values: Tensor<4>, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, random, engine, .. } = input;
        let span = Span { query_start: positions.start, queries: query.dims()[1], key_start: 0, keys: values.dims()[2] };
        let program = AttentionProgram {
            weighting: Weighting::Gaussian(Arc::new(self.kernel.gaussians(self.heads, span, &positions))),
            mask: None,
            soft_span: None,
            values,
            dropout: random.map(|key| Dropout { probability: self.dropout, key: key.named("weights") }),
        };
        let masked = |program: AttentionProgram| {
            let mask = visibility.mask(span, self.heads, program.values.dtype(), &program.values.device());
            AttentionProgram { mask, ..program }
        };
        let is_dense = self.kernel.execution == GaussianExecution::Dense;
        // Without kernels that skip distant tiles, fused execution computes all weights.
        let is_fused = fused::can_attend(&program, engine) && (is_dense || main_memory::has_kernels(&program.values.device()));
        if probe.is_listening() && (is_fused || !is_dense) {
            // Only a probe reads the weight matrix; the output is computed without it.
            reference::attend(AttentionProgram { dropout: None, ..masked(program.clone()) }, probe);
        }
        probe.executed(match (is_fused, is_dense) {
            (true, _) => Executed::Fused,
            // With the reference engine, this option means sums near the centre.
            (false, true) => Executed::Reference,
            (false, false) if engine == Engine::Reference => Executed::Reference,
            (false, false) => Executed::Blocked,
        });
        let context = if is_fused {
            fused::attend(program, Arc::new([Part::in_order(visibility.tiles_of(span, self.heads, &positions))]))
        } else if is_dense {
            reference::attend(masked(program), probe)
        } else {
            self.attend_near(span, program.values, &visibility, &positions, random)
        };
        AttentionOutput::new(linear(merge_heads(context), &self.output))
    }

    /// Sums only the keys near the centre.
    fn attend_near(
        &self,
        span: Span,
        values: Tensor<4>,
        visibility: &Visibility,
        positions: &Positions,
        random: Option<RandomKey>,
    ) -> Tensor<4> {
        let [batch, heads, _, width] = values.dims();
        let device = values.device();
        let shifts = self.kernel.query_shifts(positions);
        let rows = visibility.rows().max(shifts.len());
        let half_width = self.kernel.half_width() as i64;
        let gaussians: Vec<GaussianShape> = (0..heads).map(|head| self.kernel.gaussian(head)).collect();
        let mut context: Option<Tensor<4>> = None;
        let mut sum: Option<Tensor<4>> = None;
        for step in -half_width..=half_width {
            let mut weights = Vec::with_capacity(rows * heads * span.queries);
            let mut indices = Vec::with_capacity(rows * heads * span.queries);
            for row in 0..rows {
                let shift = shifts[if shifts.len() == 1 { 0 } else { row }];
                for (head, gaussian) in gaussians.iter().enumerate() {
                    for i in span.query_start..span.query_start + span.queries {
                        let centre = self.kernel.centre(head, i.saturating_sub(shift));
                        let j = centre.round() as i64 + step;
                        let seen = (0..span.keys as i64).contains(&j)
                            && visibility.is_visible(if visibility.rows() == 1 { 0 } else { row }, head, i, j as usize);
                        weights.push(if seen { gaussian.weight(centre, j as f64) as f32 } else { 0.0 });
                        indices.push(if seen { j as i32 } else { 0 });
                    }
                }
            }
            let shape = [rows, heads, span.queries, 1];
            let weights = Tensor::<4>::from_data(TensorData::new(weights, shape), (&device, values.dtype()));
            let indices = Tensor::<4, Int>::from_data(TensorData::new(indices, shape), &device);
            if self.kernel.normalisation == Normalisation::Renormalise {
                sum = Some(sum.map_or_else(|| weights.clone(), |sum| sum + weights.clone()));
            }
            let key = random.map(|key| key.named("weights").numbered((step + half_width) as u64));
            let weights = dropout(weights.expand([batch, heads, span.queries, 1]), self.dropout, key.as_ref());
            let near = values.clone().gather(2, indices.expand([batch, heads, span.queries, width])) * weights;
            context = Some(context.map_or_else(|| near.clone(), |context| context + near.clone()));
        }
        let context = context.expect("a band holds at least its centre");
        match sum {
            Some(sum) => context / sum.clone().clamp_min(least_sum(sum.dtype())),
            None => context,
        }
    }
}

impl Attention for Gaussian {
    type State = KeyValueState;

    fn abilities(&self) -> Abilities {
        Abilities {
            cross_attention: true,
            causality: Causality::Masked,
            steps: true,
            weights: true,
            max_length: None,
            auxiliary_losses: false,
            randomness: false,
        }
    }

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let input = AttentionInput { visibility: input.visibility.within(&self.limit), ..input };
        let memory = input.memory.as_ref().unwrap_or(&input.query).clone();
        let values = split_heads(linear(memory, &self.value), self.heads);
        self.attend(input, values, probe)
    }

    fn state(&self, start: &DecodingStart) -> KeyValueState {
        match start.memory() {
            Some(memory) => KeyValueState::fixed(start, None, split_heads(linear(memory.clone(), &self.value), self.heads)),
            None => KeyValueState::growing(start),
        }
    }

    fn step(&self, query: Tensor<3>, state: &mut KeyValueState, probe: &mut Probe) -> AttentionOutput {
        let input = state.advance(query);
        if !state.is_fixed() {
            state.push(None, split_heads(linear(input.query.clone(), &self.value), self.heads));
        }
        self.attend(input, state.values(), probe)
    }

    fn select(&self, state: &mut KeyValueState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &KeyValueState) -> Option<usize> {
        Some(state.held_bytes())
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        pairs.dense() * (pairs.d_head() + 1.0)
    }
}
