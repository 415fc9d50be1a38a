//! Forgetting attention of the Forgetting Transformer, FoX (Lin et al. 2025, section 3).
//!
//! `logits_h[i, j] = (x_i W_Q^h) · (x_j W_K^h) / sqrt(D) + sum_{l = j+1..i} ln f_h[l]` with forget gates `f_h[l] = σ(x_l · w_h + b_h)`: dot-product attention
//! with an additive log-decay bias. Each position after a key, up to the query, lowers the key's score by its log gate. The model needs no other positions.
//!
//! Input-independent gates are learned or fixed biases of the heads. With fixed gates the mechanism equals ALiBi with slopes `-ln f`.
//!
//! With running sums `c_i = sum_{l <= i} ln f[l]` the bias is `c_i - c_j`: two more columns of the thin factors of queries and keys, so no matrix of all pairs
//! is materialised. Decoding caches the log gate with each key and recomputes the sums over the cached past.
//!
//! An encoder also hides the future: gates accumulate forgetting since a key and are undefined for later keys.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
//!
#![doc = include_str!("../../pictures/forgetting.svg")]

use burn::tensor::activation::log_sigmoid;
use burn::tensor::{DType, FloatDType};

use crate::engine::heads::repeat_heads;
use crate::engine::transposed;
use crate::mechanisms::prelude::*;

/// Input of the forget gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForgetGate {
    /// The token at their position (the paper's data-dependent gate).
    #[default]
    Full,
    /// A learned bias of their head (data-independent).
    BiasOnly,
    /// A bias of their head that is not trained.
    Fixed,
}

/// Configuration of [`Forgetting`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct ForgettingConfig {
    /// Input of the gates (default: the token, `full`).
    pub gate: ForgetGate,
    /// Decay times `T_min` and `T_max` in positions, for gates `bias-only` and `fixed`. Initial gates of the heads are `exp(-1/T)`, with `T` geometrically
    /// spaced between the two times (default: all gates start at 1/2). Fixed gates require them.
    pub decay_times: Option<[f64; 2]>,
}

/// Logits with forget gates.
///
/// Should be created with [`ForgettingConfig`].
#[derive(Module, Debug)]
pub struct Forgetting {
    /// Query projection `[C, H D]`, split into heads.
    pub query: Linear,
    /// Key projection `[C, G D]`, split into key heads.
    pub key: Linear,
    /// Predictor of the gate logits, `[C, H]` with bias, for token-dependent gates.
    pub forget: Option<Linear>,
    /// Gate logits `[H]`, for one learned gate per head.
    pub forget_bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    fixed: Vec<f32>,
    #[module(skip)]
    hidden: Option<Visibility>,
    heads: usize,
    kv_heads: usize,
}

impl ForgettingConfig {
    /// Initial gate logits of the heads, for input-independent gates: `ln σ(b) = -1/T`.
    fn biases(&self, heads: usize) -> Vec<f32> {
        let Some([shortest, longest]) = self.decay_times else { return vec![0.0; heads] };
        let step = (longest / shortest).ln() / heads.saturating_sub(1).max(1) as f64;
        (0..heads).map(|head| -(shortest * (step * head as f64).exp()).recip().exp_m1().ln() as f32).collect()
    }
}

impl Mechanism for ForgettingConfig {
    type Module = LogitsOf<Forgetting>;
    const NAME: &'static str = "forgetting";
    const QUERY_KEY: bool = true;
    const CARD: Card = Card {
        variant: "Forgetting",
        description: "Adds the summed log forget gates between key and query to the scores (Forgetting Transformer).",
        source: "Lin et al. 2025, section 3",
        links: &["https://arxiv.org/abs/2503.02130", "https://github.com/zhixuan-lin/forgetting-transformer"],
        state: "2 n d + n H",
        differences: &[
            "The released code does not support shared key heads; here heads can share keys, with separate gates.",
            "The Pro block's QK norm, key and value shifts and normalised, gated output are not included; `output-gate` supplies the gate.",
            "Adaptive computation pruning is not implemented.",
        ],
        tensors: &[
            ("forget.weight", "predictor of forget gates [d_in, heads]"),
            ("forget.bias", "bias of the predictor of forget gates [heads]"),
            ("forget_bias", "forget gates before their sigmoid [heads]"),
        ],
        ..Card::DEFAULT
    };

    /// # Errors
    /// If fixed gates lack decay times, times are not positive or in the wrong order, or token-dependent gates are given decay times.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        match self.decay_times {
            Some(times) if self.gate == ForgetGate::Full => {
                Err(check.refuse("decay_times", format!("{times:?}"), "leave it out, or give gate = \"bias-only\" or \"fixed\""))
            }
            Some(times) if !(times[0] > 0.0 && times[0] <= times[1] && times[1].is_finite()) => {
                Err(check.refuse("decay_times", format!("{times:?}"), "give two numbers greater than 0, the smaller one first"))
            }
            None if self.gate == ForgetGate::Fixed => Err(check.refuse(
                "decay_times",
                "absent",
                "give the shortest and the longest, such as [2.0, 128.0]: fixed gates stay as they begin",
            )),
            _ => Ok(()),
        }
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Forgetting {
        let linear = |name, width, bias| init::linear(spec.d_model, width, bias, &key.named(name), device);
        let heads = spec.heads;
        let biases = self.biases(heads);
        let learned = || Param::from_tensor(Tensor::from_data(TensorData::new(biases.clone(), [heads]), device));
        Forgetting {
            query: linear("query", spec.query_width(), spec.qkv_bias),
            key: linear("key", spec.key_width(), spec.qkv_bias),
            forget: (self.gate == ForgetGate::Full).then(|| linear("forget", heads, true)),
            forget_bias: (self.gate == ForgetGate::BiasOnly).then(learned),
            fixed: biases,
            hidden: (spec.role != Role::Decoder).then(Visibility::causal),
            heads,
            kv_heads: spec.n_kv_heads(),
        }
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        (option == "decay_times" && self.gate == ForgetGate::Full).then_some("decay_times are for gate = \"bias-only\" or \"fixed\"")
    }

    /// Lin et al. 2025, section 3: sum of the log gates after the key.
    fn formula(&self) -> Option<Formula<'_>> {
        let logit = |query: &Query, key: usize| {
            let (q, k) = (query.projected("query", query.element()), query.projected("key", query.attended(key)));
            let log_gate = |position: usize| match (self.gate, self.decay_times) {
                (ForgetGate::Full, _) => formula::log_sigmoid(query.mapped("forget", query.attended(position))[query.head]),
                (ForgetGate::BiasOnly, _) => formula::log_sigmoid(query.parameter("forget_bias").at(&[query.head])),
                (ForgetGate::Fixed, Some([shortest, longest])) => {
                    let heads = query.spec().heads;
                    let share = if heads == 1 { 0.0 } else { query.head as f64 / (heads - 1) as f64 };
                    -1.0 / (shortest.powf(1.0 - share) * longest.powf(share))
                }
                (ForgetGate::Fixed, None) => unreachable!("validated: fixed gates have decay times"),
            };
            dot(&q, &k) / (q.len() as f64).sqrt() + (key + 1..=query.index).map(log_gate).sum::<f64>()
        };
        Some(Formula::default().logit(logit).shows(|query, key| query.position_of(key) <= query.position()))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let projections = ParameterFormula::query_key();
        Some(match self.gate {
            ForgetGate::Full => projections.plus(ParameterFormula::trained(&[(1, "d H"), (1, "H")])),
            ForgetGate::BiasOnly => projections.plus(ParameterFormula::trained(&[(1, "H")])),
            ForgetGate::Fixed => projections,
        })
    }
}

impl Forgetting {
    /// Log gates of all heads, `[B, K, H]`. Padding before a row forgets nothing: sums begin with the row.
    fn log_gates(&self, memory: Tensor<3>, positions: &Positions) -> Tensor<3> {
        let [batch, length, _] = memory.dims();
        let (device, dtype) = (memory.device(), memory.dtype());
        let gates = match (&self.forget, &self.forget_bias) {
            (Some(forget), _) => linear(memory, forget),
            (None, Some(bias)) => bias.val().reshape([1, 1, self.heads]).expand([batch, length, self.heads]),
            (None, None) => {
                let fixed = TensorData::new(self.fixed.clone(), [1, 1, self.heads]);
                Tensor::<3>::from_data(fixed, (&device, dtype)).expand([batch, length, self.heads])
            }
        };
        let gates = log_sigmoid(gates);
        let Some(counts) = &positions.left_padding else { return gates };
        let is_real = |&count: &usize| (positions.start..positions.start + length).map(move |index| f32::from(index >= count));
        let is_real = TensorData::new(counts.iter().flat_map(is_real).collect(), [counts.len(), length, 1]);
        gates * Tensor::<3>::from_data(is_real, (&device, dtype))
    }

    /// Query heads per key head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Gates of each head `[B, H, K, 1]`, from gates by group `[B, G, K, H / G]`.
    fn own(&self, gates: Tensor<4>) -> Tensor<4> {
        let [batch, _, length, group] = gates.dims();
        if group == 1 { gates } else { gates.swap_dims(2, 3).reshape([batch, self.heads, length, 1]) }
    }
}

/// Splits 32-bit numbers into columns that sum to them: one column, or several in 16 bits.
fn columns(numbers: Tensor<4>, dtype: DType) -> Vec<Tensor<4>> {
    if dtype == DType::F32 {
        return vec![numbers];
    }
    let (mut rest, mut columns) = (numbers, Vec::new());
    // Three 8-bit parts hold the 24-bit mantissa of a 32-bit number.
    for _ in 0..3 {
        let column = rest.clone().cast(FloatDType::from(dtype));
        rest = rest - column.clone().cast(FloatDType::F32);
        columns.push(column);
    }
    columns
}

impl Logits for Forgetting {
    fn abilities(&self) -> LogitAbilities {
        LogitAbilities { cross_attention: false, max_length: None, remembers_keys: true, auxiliary_losses: false }
    }

    /// Keys, followed by the log gates of the heads that share them.
    fn keys(&self, memory: Tensor<3>, positions: &Positions) -> Option<Tensor<4>> {
        let gates = split_heads(self.log_gates(memory.clone(), positions), self.kv_heads);
        Some(Tensor::cat(vec![split_heads(linear_at(memory, &self.key, positions), self.kv_heads), gates], 3))
    }

    fn key_width(&self, d_head: usize) -> usize {
        d_head + self.group()
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let keys = keys.expect("the logits are given the keys that they asked for");
        let (width, dtype) = (keys.dims()[3] - self.group(), keys.dtype());
        let queries = split_heads(linear_at(query, &self.query, positions) * (width as f64).powf(-0.5), self.heads);
        let gates = self.own(keys.clone().narrow(3, width, self.group()));
        let sums = gates.cast(FloatDType::F32).cumsum(2);
        // Only differences count. Sums relative to the first query are small near it and depend only on visible keys.
        let first = span.query_start - span.key_start;
        let sums = sums.clone() - sums.narrow(2, first, 1);
        if span.queries == 1 && dtype == DType::F32 {
            // Appending two numbers would copy all keys, and in 16 bits one number would have too few digits.
            let content = LogitTerms::content(queries, repeat_heads(keys.narrow(3, 0, width), self.heads));
            return content.plus(LogitTerms::bias(transposed(sums.neg())));
        }
        let of_queries = columns(sums.clone().narrow(2, first, span.queries), dtype);
        let of_keys = columns(sums.neg(), dtype);
        let ones = |of: &[Tensor<4>]| of.iter().map(Tensor::ones_like).collect::<Vec<_>>();
        let (beside_queries, beside_keys) = (ones(&of_queries), ones(&of_keys));
        let joined = |parts: [Vec<Tensor<4>>; 3]| Tensor::cat(parts.concat(), 3);
        LogitTerms::content(
            joined([vec![queries], of_queries, beside_queries]),
            // With separate gates, the gates are part of the factors of each head.
            joined([vec![repeat_heads(keys.narrow(3, 0, width), self.heads)], beside_keys, of_keys]),
        )
    }

    fn visibility(&self) -> Option<Visibility> {
        self.hidden.clone()
    }

    fn multiplications(&self, d_head: f64) -> f64 {
        d_head + 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::read::read;

    fn numbers(x: Tensor<4>) -> Vec<f32> {
        read(x.cast(FloatDType::F32)).try_to_vec().unwrap()
    }

    #[test]
    fn decay_times_are_those_of_the_gates() {
        let biases = ForgettingConfig::default().with_decay_times([2.0, 128.0]).biases(4);
        for (bias, time) in biases.into_iter().zip([2.0, 8.0, 32.0, 128.0]) {
            let log_gate = -(-f64::from(bias)).exp().ln_1p();
            assert!((log_gate + 1.0 / time).abs() < 1e-6, "{log_gate} is not -1/{time}");
        }
        assert_eq!(ForgettingConfig::default().biases(2), [0.0; 2]);
    }

    #[test]
    fn without_content_weights_decay_with_the_gates_after_the_key() {
        let (place, device) = (LayerSpec::new(Role::Decoder, 4, 2).with_max_length(8), Device::flex());
        let mut attention = AnyMechanism::from(ForgettingConfig::default()).init(&place, &RandomKey::from_seed(1), &device);
        let logits = attention.logits_mut::<Forgetting>().unwrap();
        logits.query.weight = Param::from_tensor(Tensor::zeros([4, 4], &device));
        let gate = |x: f32| 1.0 / (1.0 + (-x).exp());
        // The gate of the first head is that of the first channel; the gate of the second is 1/2.
        logits.forget.as_mut().unwrap().weight = Param::from_data([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]], &device);
        let x = [0.5f32, -1.0, 2.0, 0.25, -0.75];
        let mut shown = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Weights(weights) = observation {
                shown = numbers(weights.slice([0..1, 0..2, 4..5, 0..5]));
            }
        };
        let elements = x.iter().flat_map(|&first| [first, 0.1, 0.2, 0.3]).collect();
        let sequence = Tensor::from_data(TensorData::new(elements, [1, 5, 4]), &device);
        attention.forward(AttentionInput::self_attention(sequence), &mut Probe::listening(&mut listener));
        for (head, of_gate) in [(0, &gate as &dyn Fn(f32) -> f32), (1, &|_| 0.5)] {
            let kept: Vec<f32> = (0..5).map(|key| x[key + 1..].iter().map(|&x| of_gate(x)).product()).collect();
            let sum: f32 = kept.iter().sum();
            for (key, kept) in kept.into_iter().enumerate() {
                assert!((shown[head * 5 + key] - kept / sum).abs() < 1e-6, "head {head}, key {key}: {shown:?}");
            }
        }
    }

    #[test]
    fn columns_of_16_bits_sum_to_numbers_of_32() {
        let values = [-3337.123, -0.001, 0.0, -12.7];
        let x = Tensor::<4>::from_data(TensorData::new(values.to_vec(), [1, 1, 4, 1]), &Device::flex());
        for dtype in [DType::F16, DType::BF16] {
            let columns: Vec<_> = columns(x.clone(), dtype).into_iter().map(numbers).collect();
            for (at, value) in values.into_iter().enumerate() {
                let sum: f32 = columns.iter().map(|column| column[at]).sum();
                assert!((sum - value).abs() <= 1e-6 * value.abs().max(1.0), "{dtype:?}: {sum} instead of {value}");
            }
        }
    }

    #[test]
    fn wrong_decay_times_are_refused() {
        let place = LayerSpec::new(Role::Decoder, 4, 2);
        let refused = |config: ForgettingConfig| AnyMechanism::from(config).validate(&place).unwrap_err().to_string();
        let of = |gate| ForgettingConfig::default().with_gate(gate);
        assert!(refused(of(ForgetGate::Fixed)).contains("`decay_times` is absent"));
        assert!(refused(of(ForgetGate::Full).with_decay_times([2.0, 8.0])).contains("leave it out"));
        for times in [[0.0, 2.0], [3.0, 2.0], [1.0, f64::INFINITY], [f64::NAN, 1.0]] {
            assert!(refused(of(ForgetGate::BiasOnly).with_decay_times(times)).contains("the smaller one first"), "{times:?}");
        }
    }
}
