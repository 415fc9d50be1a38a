//! Attention with a kernel that slides along the sequence: shared code of lightweight and dynamic convolutions (Wu et al. 2019).
//!
//! `x' = GLU(x W_I)`, `o_i = concat_h( sum_j softmax(kernel_h)[j] · x'_{i - before + j, h} ) W_O`: the heads are contiguous groups of channels, each with one
//! kernel of `t` taps. The taps are centred in encoders (`before = floor(t / 2)`) and end at the query in decoders (`before = t - 1`); a visibility can hide
//! further keys. Positions outside the sequence and hidden positions have weight 0, so rows at borders sum to less than 1 unless renormalised. The kernel is
//! not flipped.
//!
//! Two executions compute the same sum. `unfolded` adds the keys under the taps (`n t d`), by one operator on CPUs and elsewhere by one shifted copy of the
//! sequence per tap. `expanded` multiplies by the band matrix of `n x n` weights (`n^2 d`). The decoding state stores the last `before` projected inputs, for
//! any length.

use burn::module::ModuleDisplay;
use burn::tensor::activation::softmax;

use crate::contract::visibility::{DenseMask, Shown, hidden_logit, least_visible_logit};
use crate::engine::dropout::dropout;
use crate::engine::glu::glu;
use crate::engine::position_kernels::Sliding;
use crate::engine::{AttentionProgram, Dropout, Weighting, reference};
use crate::mechanisms::prelude::*;
use crate::softmax_attention::kv_cache::KeyValueState;
use crate::tensors::main_memory;

/// Difference of lightweight and dynamic convolutions from the released code.
pub(super) const EVEN_KERNELS: &str =
    "A kernel of even size is centred as in the paper's formula; in fairseq it lies one tap farther to the right.";

/// Number of taps of each layer's kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "give a number of taps, or a list of such numbers, one for each layer")]
pub enum KernelSizes {
    /// The same in all layers.
    All(usize),
    /// One number per layer; the last number also applies to all higher layers.
    Each(Vec<usize>),
}

impl KernelSizes {
    /// Sizes for a model with this maximal length: 3, 7, 15, and 31 from the fourth layer on, as in the paper's encoder and decoder. All are odd, and those
    /// above 3 are at most a quarter of the maximal length.
    pub fn of_length(max_length: usize) -> Self {
        Self::Each([3, 7, 15, 31].map(|of_paper| ((quarter(max_length, of_paper) - 1) | 1).max(3)).to_vec())
    }

    /// The size in a layer, if defined.
    pub fn at(&self, layer: usize) -> Option<usize> {
        match self {
            Self::All(size) => Some(*size),
            Self::Each(sizes) => sizes.get(layer).or(sizes.last()).copied(),
        }
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// If a size is 0 or the list is empty.
    pub fn validate(&self, attention: &str, spec: &LayerSpec) -> Result<(), ConfigError> {
        let sizes = match self {
            Self::All(size) => std::slice::from_ref(size),
            Self::Each(sizes) => sizes,
        };
        if !sizes.is_empty() && !sizes.contains(&0) {
            return Ok(());
        }
        let remedy = "give a number of at least 1, or a list of such numbers, one for each layer";
        Err(spec.check(attention).refuse("kernel", format!("{sizes:?}"), remedy))
    }
}

/// Parameters of the projections around a convolution, including biases.
pub(crate) fn projections(glu: bool) -> ParameterFormula {
    let inputs = if glu { 2 } else { 1 };
    ParameterFormula::trained(&[(inputs + 1, "d^2"), (inputs + 1, "d")])
}

/// How the weighted sum is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConvolutionExecution {
    /// Sum over the taps.
    #[default]
    Unfolded,
    /// Product with the band matrix of all weights: faster for sequences not much longer than the kernel.
    Expanded,
}

/// Source of the tap weights of a [`ConvolutionAttention`].
pub trait Kernel: Module + ModuleDisplay + 'static {
    /// Logits of the taps, `[B | 1, H, Q | 1, k]`, for projected queries `[B, Q, C]`.
    fn logits(&self, query: &Tensor<3>) -> Tensor<4>;
}

/// Options that do not depend on the source of the weights.
#[derive(Clone, Copy, Debug)]
pub struct KernelOptions {
    /// Number of taps `k`, at least 1.
    pub taps: usize,
    /// Whether the input projection is a gated linear unit.
    pub glu: bool,
    /// Whether the softmax of a row covers only the visible taps.
    pub renormalise: bool,
    /// How the sum is computed.
    pub execution: ConvolutionExecution,
}

/// Convolved input `[C]` of a token, in the formula.
pub(super) fn convolved(glu: bool, query: &Query, index: usize) -> Vec<f64> {
    let projected = query.mapped("input", query.attended(index));
    if !glu {
        return projected;
    }
    let (values, gates) = projected.split_at(projected.len() / 2);
    values.iter().zip(gates).map(|(value, gate)| value * formula::sigmoid(*gate)).collect()
}

/// Wu et al. 2019: `o_i = sum_j softmax(kernel)_j x'_{i + j - ceil((k + 1) / 2)}`, `j` from 1 to `k`; causal: the last `k` positions up to `i`. `taps` returns
/// the kernel logits of the head.
pub(super) fn formula<'a>(glu: bool, renormalise: bool, taps: impl Fn(&Query) -> Vec<f64> + 'a) -> Formula<'a> {
    let weights = move |query: &Query| {
        let logits = taps(query);
        let count = logits.len();
        let back = if query.spec().role == Role::Decoder { count } else { (count + 2) / 2 };
        let seen = |j: usize| (query.index + j).checked_sub(back).filter(|&key| key < query.keys() && query.sees(key));
        // Renormalised, it is the softmax over the visible taps.
        let kernel: Vec<_> = (1..=count).zip(logits).map(|(j, logit)| (!renormalise || seen(j).is_some()).then_some(logit)).collect();
        let mut weights = vec![0.0; query.keys()];
        for (j, weight) in (1..=count).zip(formula::softmax(&kernel)) {
            seen(j).into_iter().for_each(|key| weights[key] = weight);
        }
        weights
    };
    let value = move |query: &Query, key| {
        let width = query.spec().d_head();
        convolved(glu, query, key)[query.head * width..(query.head + 1) * width].to_vec()
    };
    Formula::default().weights(weights).value(value)
}

/// Attention with a sliding kernel.
#[derive(Module, Debug)]
pub struct ConvolutionAttention<K: Kernel> {
    /// The logits of the taps.
    pub kernel: K,
    /// Input projection `[C, 2 C]`, whose second half of outputs are gates; `[C, C]` without gates.
    pub input: Linear,
    /// Output projection `[C, C]`.
    pub output: Linear,
    #[module(skip)]
    options: KernelOptions,
    #[module(skip)]
    limit: Visibility,
    before: usize,
    heads: usize,
    dropout: f64,
}

impl<K: Kernel> ConvolutionAttention<K> {
    /// Adds the projections, with biases, around `kernel`.
    pub fn new(kernel: K, options: KernelOptions, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Self {
        let d_model = spec.d_model;
        let projected = if options.glu { 2 * d_model } else { d_model };
        Self {
            kernel,
            input: init::linear(d_model, projected, true, &key.named("input"), device),
            output: init::linear(d_model, d_model, true, &key.named("output"), device),
            options,
            limit: spec.limit(),
            before: if spec.role == Role::Decoder { options.taps - 1 } else { options.taps / 2 },
            heads: spec.heads,
            dropout: spec.dropout,
        }
    }

    fn project(&self, x: Tensor<3>) -> Tensor<3> {
        let x = linear(x, &self.input);
        if self.options.glu { glu(x) } else { x }
    }

    /// `query` is projected; `values` are the projected inputs from the first position in reach on.
    fn attend(&self, query: &Tensor<3>, values: Tensor<4>, input: Call, probe: &mut Probe) -> AttentionOutput {
        let span = input.span;
        let logits = self.kernel.logits(query);
        let program = |values: Tensor<4>, logits: Tensor<4>, random: Option<RandomKey>| {
            let mask = input.visibility.mask(span, self.heads, values.dtype(), &values.device());
            AttentionProgram {
                weighting: Weighting::Density { weights: self.band_weights(logits, span, mask.as_ref()), renormalise: false },
                mask,
                soft_span: None,
                values,
                dropout: random.map(|key| Dropout { probability: self.dropout, key: key.named("weights") }),
            }
        };
        let context = match self.options.execution {
            ConvolutionExecution::Expanded => {
                let program = program(values, logits, input.random);
                probe.with_keys_before(span.key_start, |probe| reference::attend(program, probe))
            }
            ConvolutionExecution::Unfolded => {
                // Only a probe reads the weight matrix; the output is computed without it.
                if probe.is_listening() {
                    let shown = program(values.clone(), logits.clone(), None);
                    probe.with_keys_before(span.key_start, |probe| reference::attend(shown, probe));
                }
                let weights = self.seen_weights(logits, values.dims()[0], &input);
                let first = span.query_start as isize - self.before as isize - span.key_start as isize;
                Sliding { x: values, weights, outputs: span.queries, first }.execute()
            }
        };
        AttentionOutput::new(linear(merge_heads(context), &self.output))
    }

    /// Whether hidden keys change the weights of other taps. A single tap has weight 1 or is hidden.
    fn renormalises(&self) -> bool {
        self.options.renormalise && self.options.taps > 1
    }

    /// The softmax of taps from their logits, `[B | 1, H, Q | 1, k]`.
    fn weights(&self, logits: Tensor<4>) -> Tensor<4> {
        match self.options.taps {
            // The softmax of one number is 1. With fusion, Burn 0.22.1 generates a kernel that does not compile for a reduction over one element.
            1 => logits * 0.0 + 1.0,
            // With positions before heads a predicted kernel is contiguous, so that the softmax and its gradient copy nothing.
            _ if main_memory::has_kernels(&logits.device()) => softmax(logits.swap_dims(1, 2), 3).swap_dims(1, 2),
            _ => softmax(logits, 3),
        }
    }

    /// Weights `[B | 1, H, Q, K]` of keys from the tap logits, before masking.
    fn band_weights(&self, logits: Tensor<4>, span: Span, mask: Option<&DenseMask>) -> Tensor<4> {
        if !self.renormalises() {
            return self.band(self.weights(logits), span, 0.0);
        }
        // Hidden keys are masked before the softmax: with a later division, large logits of hidden taps would underflow the weights.
        let dtype = logits.dtype();
        let logits = self.band(logits, span, hidden_logit(dtype));
        let logits = match mask {
            Some(mask) => logits + mask.bias.clone(),
            None => logits,
        };
        let seen = logits.clone().greater_elem(least_visible_logit(dtype)).float().cast(dtype);
        softmax(logits, 3) * seen
    }

    /// Spreads numbers of taps to keys, `[B | 1, H, Q, K]`; keys beyond the kernel get `beyond`.
    fn band(&self, kernel: Tensor<4>, span: Span, beyond: f32) -> Tensor<4> {
        let [rows, heads, queries, taps] = kernel.dims();
        let (device, dtype) = (kernel.device(), kernel.dtype());
        let indices = (span.query_start..span.query_start + span.queries).flat_map(|i| {
            // One extra tap stands for all keys beyond the kernel.
            let tap = move |j: usize| (j + self.before).checked_sub(i).filter(|&tap| tap < taps).unwrap_or(taps) as i32;
            (span.key_start..span.key_start + span.keys).map(tap)
        });
        let indices = Tensor::<4, Int>::from_data(TensorData::new(indices.collect(), [1, 1, span.queries, span.keys]), &device);
        let kernel = Tensor::cat(vec![kernel, Tensor::full([rows, heads, queries, 1], beyond, (&device, dtype))], 3);
        kernel.expand([rows, heads, span.queries, taps + 1]).gather(3, indices.expand([rows, heads, span.queries, span.keys]))
    }

    /// Final tap weights `[B | 1, H, Q | 1, k]` of the sum, from the tap logits.
    fn seen_weights(&self, logits: Tensor<4>, batch: usize, input: &Call) -> Tensor<4> {
        let Call { span, visibility, random } = input;
        let (taps, dtype) = (self.options.taps, logits.dtype());
        let weights = match self.seen_taps(*span, visibility, &logits.device()).map(|seen| seen.cast(dtype)) {
            Some(seen) if self.renormalises() => {
                let hidden = (seen.clone() - 1.0) * -hidden_logit(dtype);
                self.weights(logits + hidden) * seen
            }
            Some(seen) => self.weights(logits) * seen,
            None => self.weights(logits),
        };
        match random {
            Some(key) if self.dropout > 0.0 => {
                let each = weights.expand([batch, self.heads, span.queries, taps]);
                dropout(each, self.dropout, Some(&key.named("weights")))
            }
            _ => weights,
        }
    }

    /// 1 where a tap falls on a visible key of the span, otherwise 0, `[rows, H | 1, Q, k]`. In main memory, `None` if only the borders of the sequence hide
    /// keys and no renormalisation is requested.
    fn seen_taps(&self, span: Span, visibility: &Visibility, device: &Device) -> Option<Tensor<4>> {
        let (rows, taps) = (visibility.rows(), self.options.taps);
        let queries = span.query_start..span.query_start + span.queries;
        let keys = span.key_start..span.key_start + span.keys;
        let shown = |row: usize, i: usize| {
            let reached = i.saturating_sub(self.before).max(keys.start)..(i + taps).saturating_sub(self.before).min(keys.end);
            visibility.shown(row, i..i + 1, reached)
        };
        let is_shown = |row: usize| queries.clone().all(|i| shown(row, i) == Shown::Everything);
        // Elsewhere weights are always multiplied here, which copies them to a new tensor: with fusion, Burn 0.22.1 multiplies some views wrongly.
        if main_memory::has_kernels(device) && !self.options.renormalise && (0..rows).all(is_shown) {
            return None;
        }
        let heads = if visibility.depends_on_head() { self.heads } else { 1 };
        let mut seen = Vec::with_capacity(rows * heads * span.queries * taps);
        for (row, head) in (0..rows).flat_map(|row| (0..heads).map(move |head| (row, head))) {
            for i in queries.clone() {
                let shown = shown(row, i);
                let key = |tap: usize| (i + tap).checked_sub(self.before).filter(|j| keys.contains(j));
                let is_visible = |j: usize| match shown {
                    Shown::Everything => true,
                    Shown::Nothing => false,
                    Shown::Some => visibility.is_visible(row, head, i, j),
                };
                seen.extend((0..taps).map(|tap| if key(tap).is_some_and(is_visible) { 1.0f32 } else { 0.0 }));
            }
        }
        Some(Tensor::from_data(TensorData::new(seen, [rows, heads, span.queries, taps]), device))
    }
}

/// One attention call: visibility and randomness.
struct Call {
    span: Span,
    visibility: Visibility,
    random: Option<RandomKey>,
}

impl<K: Kernel> Attention for ConvolutionAttention<K> {
    type State = KeyValueState;

    fn abilities(&self) -> Abilities {
        Abilities { weights: true, ..Abilities::new(Causality::Masked) }
    }

    /// # Panics
    /// If the memory does not end with the queries.
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, .. } = input;
        let visibility = visibility.within(&self.limit);
        let queries = query.dims()[1];
        let query = self.project(query);
        let mut values = query.clone();
        if let Some(memory) = memory {
            let (length, start) = (memory.dims()[1], positions.start);
            assert_eq!(
                length,
                start + queries,
                "a convolution attends to what precedes its sequence and to nothing else: {length} positions"
            );
            let reached = start.min(self.before);
            if reached > 0 {
                values = Tensor::cat(vec![self.project(memory.narrow(1, start - reached, reached)), values], 1);
            }
        }
        let keys = values.dims()[1];
        let span = Span { query_start: positions.start, queries, key_start: positions.start + queries - keys, keys };
        self.attend(&query, split_heads(values, self.heads), Call { span, visibility, random }, probe)
    }

    /// # Panics
    /// If a memory is given: a kernel slides along one sequence.
    fn state(&self, start: &DecodingStart) -> KeyValueState {
        assert!(start.memory().is_none(), "a convolution does not attend to another sequence");
        KeyValueState::growing(start).reaching(Some(self.before))
    }

    fn step(&self, query: Tensor<3>, state: &mut KeyValueState, probe: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, visibility, positions, random, .. } = state.advance(query);
        let queries = query.dims()[1];
        let query = self.project(query);
        state.push(None, split_heads(query.clone(), self.heads));
        let values = state.values();
        let span = Span { query_start: positions.start, queries, key_start: state.start(), keys: values.dims()[2] };
        self.attend(&query, values, Call { span, visibility, random }, probe)
    }

    fn select(&self, state: &mut KeyValueState, rows: &[usize]) {
        state.select(rows);
    }

    fn state_bytes(&self, state: &KeyValueState) -> Option<usize> {
        Some(state.held_bytes())
    }

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        (pairs.queries.len() * self.options.taps * pairs.heads * pairs.d_head) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::lightweight_conv::{LightweightConv, LightweightConvConfig};

    const LENGTH: usize = 9;

    fn light(role: Role, renormalise: bool) -> ConvolutionAttention<LightweightConv> {
        let config = LightweightConvConfig::default().with_kernel(KernelSizes::All(5)).with_renormalise_padding(renormalise);
        config.init(&LayerSpec::new(role, 6, 2), &RandomKey::from_seed(1), &Device::flex())
    }

    fn seen(attention: &ConvolutionAttention<LightweightConv>, visibility: &Visibility) -> Option<Vec<f32>> {
        let seen = attention.seen_taps(Span::whole(LENGTH, LENGTH), visibility, &Device::flex());
        seen.map(|seen| seen.into_data().try_to_vec().unwrap())
    }

    #[test]
    fn nothing_is_multiplied_where_only_borders_hide_keys() {
        let decoder = light(Role::Decoder, false);
        let wide = [
            Visibility::all(),
            Visibility::causal(),
            Visibility::window(4, 0),
            Visibility::padding(vec![LENGTH; 2]).and(Visibility::causal()),
            Visibility::left_padding(vec![0, 0]),
        ];
        for visibility in wide {
            assert_eq!(seen(&decoder, &visibility), None, "{visibility:?}");
        }
        assert!(seen(&light(Role::Encoder, false), &Visibility::all()).is_none());
        assert!(seen(&light(Role::Decoder, true), &Visibility::causal()).is_some(), "a sum needs to know the borders");
    }

    #[test]
    fn taps_on_hidden_keys_and_beyond_the_borders_are_not_seen() {
        let (encoder, decoder) = (light(Role::Encoder, false), light(Role::Decoder, false));
        let narrow = [
            (&decoder, Visibility::window(3, 0)),
            (&decoder, Visibility::causal().and(Visibility::padding(vec![LENGTH, LENGTH - 1]))),
            (&decoder, Visibility::left_padding(vec![0, 2]).and(Visibility::causal())),
            (&decoder, Visibility::causal().shifted(vec![0, 2].into())),
            (&encoder, Visibility::causal()),
            (&encoder, Visibility::pattern(|h, i, j| !(h + i + j).is_multiple_of(3))),
        ];
        for (attention, visibility) in narrow {
            let heads = if visibility.depends_on_head() { 2 } else { 1 };
            let places = (0..visibility.rows()).flat_map(|row| (0..heads).map(move |head| (row, head)));
            let expected = places.flat_map(|(row, head)| (0..LENGTH * 5).map(move |index| (row, head, index / 5, index % 5)));
            let expected = expected.map(|(row, head, i, tap)| {
                let key = (i + tap).checked_sub(attention.before).filter(|&j| j < LENGTH);
                if key.is_some_and(|j| visibility.is_visible(row, head, i, j)) { 1.0 } else { 0.0 }
            });
            assert_eq!(seen(attention, &visibility), Some(expected.collect()), "{visibility:?}");
        }
    }
}
