//! Every mechanism from the formula of its paper, in plain loops over double-precision numbers, one query and key at a time.
//!
//! Nothing here uses the engine, the visibility or a tensor operation of the crate; only the values of the parameters are read from the module.

mod adaptive_span;
mod convolution;
mod linformer;
mod lsh;
mod patterns;
mod relative;

use std::collections::BTreeMap;
use std::f64::consts::PI;

use burn::module::Module;
use heedful_attention::abilities::Causality;
use heedful_attention::contract::{Attention, AttentionInput, Positions};
use heedful_attention::mechanisms::adaptive_span::AdaptiveSpanConfig;
use heedful_attention::mechanisms::alibi::AlibiConfig;
use heedful_attention::mechanisms::dot_product::DotProductConfig;
use heedful_attention::mechanisms::dynamic_conv::DynamicConvConfig;
use heedful_attention::mechanisms::gaussian::{Execution, GaussianConfig, Normalisation};
use heedful_attention::mechanisms::learned_relative::LearnedRelativeConfig;
use heedful_attention::mechanisms::lightweight_conv::LightweightConvConfig;
use heedful_attention::mechanisms::linformer::LinformerConfig;
use heedful_attention::mechanisms::lsh::LshConfig;
use heedful_attention::mechanisms::mixture::{MixtureConfig, MixtureWeights};
use heedful_attention::mechanisms::relative::RelativeConfig;
use heedful_attention::mechanisms::sigmoid::SigmoidConfig;
use heedful_attention::mechanisms::softmax_plus_one::SoftmaxPlusOneConfig;
use heedful_attention::mechanisms::synthesizer_dense::SynthesizerDenseConfig;
use heedful_attention::mechanisms::synthesizer_factorized_dense::SynthesizerFactorizedDenseConfig;
use heedful_attention::mechanisms::synthesizer_factorized_random::SynthesizerFactorizedRandomConfig;
use heedful_attention::mechanisms::synthesizer_random::SynthesizerRandomConfig;
use heedful_attention::mechanisms::uniform::UniformConfig;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::registry::AnyMechanism;
use heedful_attention::visibility::Visibility;

use crate::array::{Array, same};
use crate::backends::{Backend, backends, flex};
use crate::subject::{Case, Subject, parameters};
use crate::variants::{Variant, variants};
use convolution::Convolution;

/// A mechanism together with the values of its parameters.
pub struct Naive {
    config: AnyMechanism,
    placement: Placement,
    /// By the path in the module.
    pub parameters: BTreeMap<String, Array>,
    root: String,
}

/// Whether (batch row, head, query, key) is visible.
type Visible = dyn Fn(usize, usize, usize, usize) -> bool;

/// What is seen, said once as the crate's value and once as a plain function.
pub struct View {
    pub name: &'static str,
    pub visibility: Visibility,
    pub visible: Box<Visible>,
    /// Padding elements before the first query of each batch row.
    pub left: Vec<usize>,
}

impl View {
    fn new(name: &'static str, visibility: Visibility, visible: impl Fn(usize, usize, usize, usize) -> bool + 'static) -> Self {
        Self { name, visibility, visible: Box::new(visible), left: Vec::new() }
    }

    pub fn apply(&self, input: AttentionInput) -> AttentionInput {
        input.visibility(self.visibility.clone()).positions(Positions::default().with_left_padding(self.left.clone()))
    }

    /// Whether an attention is defined for this view: one without a causal form is where all queries see the same keys.
    pub fn suits<A: Attention>(&self, attention: &A, case: &Case, heads: usize) -> bool {
        let seen = |b, h, i| (0..case.keys()).map(|j| (self.visible)(b, h, i, j)).collect::<Vec<_>>();
        attention.abilities().causality != Causality::Impossible
            || (0..case.batch()).all(|b| (0..heads).all(|h| (0..case.length()).all(|i| seen(b, h, i) == seen(b, 0, 0))))
    }
}

/// Views of a batch: everything, causal, padded, with rows that see nothing, different for each head, padded on the left. In a decoder no query sees what
/// comes after it, although only some of the crate's values say so.
pub fn views(case: &Case, role: Role) -> Vec<View> {
    let (batch, queries, keys) = (case.batch(), case.length(), case.keys());
    let lengths: Vec<usize> = (0..batch).map(|b| keys.saturating_sub(2 * b)).collect();
    let counts: Vec<usize> = (0..batch).map(|b| (2 * b).min(queries - 1)).collect();
    let padding = Visibility::padding(lengths.clone());
    let seen = lengths.clone();
    let mut views = vec![
        View::new("all", Visibility::all(), |_, _, _, _| true),
        View::new("causal", Visibility::causal(), |_, _, i, j| j <= i),
        View::new("padding", padding.clone(), move |b, _, _, j| j < seen[b]),
        View::new("causal and padding", Visibility::causal().and(padding), move |b, _, i, j| j <= i && j < lengths[b]),
        View::new("by head", Visibility::pattern(|h, i, j| (h + i + 2 * j) % 3 != 0), |_, h, i, j| (h + i + 2 * j) % 3 != 0),
        View::new("strictly before", Visibility::pattern(|_, i, j| j < i), |_, _, i, j| j < i),
    ];
    let hidden = counts.clone();
    if case.memory.is_none() {
        let real = counts.clone();
        let whole = View::new("left padding, whole", Visibility::all().shifted(counts.clone().into()), move |b, _, i, j| {
            i >= real[b] && j >= real[b]
        });
        views.push(View { left: counts.clone(), ..whole });
    }
    let left = if case.memory.is_some() {
        View::new("left padding of queries", Visibility::all(), |_, _, _, _| true)
    } else {
        let visibility = Visibility::causal().and(Visibility::left_padding(counts.clone()));
        View::new("left padding", visibility, move |b, _, i, j| j <= i && j >= hidden[b])
    };
    views.push(View { left: counts, ..left });
    let in_decoder = |view: View| View { visible: Box::new(move |b, h, i, j| j <= i && (view.visible)(b, h, i, j)), ..view };
    if role == Role::Decoder { views.into_iter().map(in_decoder).collect() } else { views }
}

impl Naive {
    /// Reads the parameters of a module.
    pub fn read<M: Module>(config: &AnyMechanism, placement: Placement, module: &M) -> Self {
        let parameters = parameters(module, None);
        let suffixes = ["value.weight", "input.weight"];
        let root = suffixes.iter().find_map(|suffix| parameters.keys().find_map(|path| path.strip_suffix(suffix)));
        let root = root.expect("every mechanism projects values").to_owned();
        Self { config: config.clone(), placement, parameters, root }
    }

    fn parameter(&self, path: &str) -> &Array {
        let path = format!("{}{path}", self.root);
        self.parameters.get(&path).unwrap_or_else(|| panic!("no parameter {path} among {:?}", self.parameters.keys()))
    }

    /// Context `[B, Q, C]` and weights `[B, H, Q, K]`.
    pub fn forward(&self, case: &Case, view: &View) -> (Array, Array) {
        by_type!(&self.config;
            config in LinformerConfig => return self.linformer(config, case, view),
            config in LightweightConvConfig => {
                return self.convolution(&Convolution { glu: config.glu, renormalise: config.renormalise_padding }, case, view)
            },
            config in DynamicConvConfig => {
                return self.convolution(&Convolution { glu: config.glu, renormalise: config.renormalise_padding }, case, view)
            };
            else => ()
        );
        let heads = self.placement.heads;
        let (batch, queries, keys) = (case.batch(), case.length(), case.keys());
        let memory = case.memory.as_ref().unwrap_or(&case.query);
        let mut weights = Array { shape: vec![batch, heads, queries, keys], values: vec![0.0; batch * heads * queries * keys] };
        let context = self.for_each_output(case, |b, i| {
            let mut concatenated = Vec::new();
            for h in 0..heads {
                let row = self.weights(case, view, b, h, i);
                let mut sum = vec![0.0; self.placement.d_head()];
                for (j, weight) in row.iter().enumerate() {
                    let value = self.projected("value", memory.row(&[b, j]), h);
                    sum.iter_mut().zip(value).for_each(|(sum, value)| *sum += weight * value);
                }
                weights.row_mut(&[b, h, i]).copy_from_slice(&row);
                concatenated.extend(sum);
            }
            concatenated
        });
        (context, weights)
    }

    /// The context `[B, Q, C]`: the output projection of what `heads` gives for each batch row and query, its heads one after the other.
    fn for_each_output(&self, case: &Case, mut heads: impl FnMut(usize, usize) -> Vec<f64>) -> Array {
        let (batch, queries, d_model) = (case.batch(), case.length(), self.placement.d_model);
        let mut context = Array { shape: vec![batch, queries, d_model], values: vec![0.0; batch * queries * d_model] };
        let output = self.parameter("output.weight");
        let bias = self.parameters.get(&format!("{}output.bias", self.root));
        for (b, i) in (0..batch).flat_map(|b| (0..queries).map(move |i| (b, i))) {
            let concatenated = heads(b, i);
            for (c, out) in context.row_mut(&[b, i]).iter_mut().enumerate() {
                *out = concatenated.iter().enumerate().map(|(r, z)| z * output.at(&[r, c])).sum();
                *out += bias.map_or(0.0, |bias| bias.at(&[c]));
            }
        }
        context
    }

    /// The part of `x W`, or `x W + b`, that belongs to a head of queries, which several may share.
    fn projected(&self, map: &str, x: &[f64], head: usize) -> Vec<f64> {
        let width = self.placement.d_head();
        let weight = self.parameter(&format!("{map}.weight"));
        let bias = self.parameters.get(&format!("{}{map}.bias", self.root));
        let column = |column| {
            let product: f64 = x.iter().enumerate().map(|(row, x)| x * weight.at(&[row, column])).sum();
            product + bias.map_or(0.0, |bias| bias.at(&[column]))
        };
        let head = head * (weight.shape[1] / width) / self.placement.heads;
        (head * width..(head + 1) * width).map(column).collect()
    }

    fn weights(&self, case: &Case, view: &View, b: usize, h: usize, i: usize) -> Vec<f64> {
        if let Some(config) = self.config.get::<LshConfig>() {
            return self.lsh_weights(config, case, view, b, h, i);
        }
        let start = view.left.get(b).copied().unwrap_or(0);
        let shown = |j: usize| patterns::shows(&self.config, &self.placement, h, i.saturating_sub(start), j.saturating_sub(start));
        let visible: Vec<bool> =
            (0..case.keys()).map(|j| (view.visible)(b, h, i, j) && shown(j) && self.shows(&self.config, i, j)).collect();
        let mut weights: Vec<f64> = match self.config.get::<GaussianConfig>() {
            Some(config) => {
                let shift = if self.placement.role == Role::Cross { view.left.get(b).copied().unwrap_or(0) } else { 0 };
                (0..case.keys()).map(|j| self.density(config, h, i.saturating_sub(shift), j)).collect()
            }
            None => {
                let config = &self.config;
                let logits: Vec<f64> =
                    (0..case.keys()).map(|j| if visible[j] { self.logit(config, "logits", case, view, b, h, i, j) } else { 0.0 }).collect();
                match normaliser(&self.config, self.placement.max_length) {
                    Normaliser::Softmax => {
                        let seen = logits.iter().zip(&visible).filter(|(_, seen)| **seen);
                        let largest = seen.fold(f64::NEG_INFINITY, |m, (&s, _)| m.max(s));
                        logits.iter().map(|s| (s - largest).exp()).collect()
                    }
                    Normaliser::PlusOne => {
                        let seen = logits.iter().zip(&visible).filter(|(_, seen)| **seen);
                        let sum = 1.0 + seen.map(|(s, _)| s.exp()).sum::<f64>();
                        logits.iter().map(|s| s.exp() / sum).collect()
                    }
                    Normaliser::Sigmoid(bias) => logits.iter().map(|s| 1.0 / (1.0 + (-s - bias).exp())).collect(),
                }
            }
        };
        weights.iter_mut().enumerate().for_each(|(j, weight)| *weight *= self.soft_span(case, b, h, i, j));
        weights.iter_mut().zip(&visible).filter(|(_, seen)| !**seen).for_each(|(weight, _)| *weight = 0.0);
        let divides = match self.config.get::<GaussianConfig>() {
            Some(config) => config.normalisation == Normalisation::Renormalise,
            None => matches!(normaliser(&self.config, self.placement.max_length), Normaliser::Softmax),
        };
        let sum: f64 = weights.iter().sum();
        if divides && sum > 0.0 {
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        weights
    }

    /// You et al. 2020: `N(j; γ i + o, σ²)`. Lists of one number, or as many as heads, or a divisor of it.
    fn density(&self, config: &GaussianConfig, h: usize, i: usize, j: usize) -> f64 {
        let offsets = config.offsets.clone().unwrap_or_else(|| match self.placement.role {
            Role::Decoder => vec![-1.0, 0.0],
            _ => vec![-1.0, 1.0],
        });
        let (offset, deviation) = (offsets[h % offsets.len()], config.deviations[h % config.deviations.len()]);
        let ratio = if self.placement.role == Role::Cross { config.length_ratio } else { 1.0 };
        let centre = ratio * i as f64 + offset;
        let density = (-(j as f64 - centre).powi(2) / (2.0 * deviation * deviation)).exp() / (deviation * (2.0 * PI).sqrt());
        let steps = (j as f64 - centre.round()).abs();
        match config.execution {
            Execution::Dense => density,
            Execution::Banded if steps <= config.window as f64 => density,
            Execution::Index if steps == 0.0 => 1.0,
            _ => 0.0,
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn logit(&self, config: &AnyMechanism, path: &str, case: &Case, view: &View, b: usize, h: usize, i: usize, j: usize) -> f64 {
        let shift = view.left.get(b).copied().unwrap_or(0);
        let (row, column) = (i.saturating_sub(shift), j.saturating_sub(shift));
        let x = case.query.row(&[b, i]);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let relu = |values: Vec<f64>| values.into_iter().map(|value| value.max(0.0)).collect::<Vec<_>>();
        by_type!(config;
            _ in DotProductConfig => {
                let key = case.memory.as_ref().unwrap_or(&case.query).row(&[b, j]);
                let (q, k) =
                    (self.projected(&format!("{path}.DotProduct.query"), x, h), self.projected(&format!("{path}.DotProduct.key"), key, h));
                dot(&q, &k) / (q.len() as f64).sqrt()
            },
            config in SynthesizerDenseConfig => {
                let path = format!("{path}.SynthesizerDense");
                let hidden = relu(self.projected(&format!("{path}.hidden"), x, h));
                let head = if config.per_head_output { h } else { 0 };
                dot(&hidden, self.parameter(&format!("{path}.position")).row(&[head, column]))
            },
            config in SynthesizerRandomConfig => {
                let name = if config.trainable { "table" } else { "frozen_table" };
                self.parameter(&format!("{path}.SynthesizerRandom.{name}")).at(&[h, row, column])
            },
            _ in SynthesizerFactorizedDenseConfig => {
                let path = format!("{path}.SynthesizerFactorizedDense");
                let hidden = relu(self.projected(&format!("{path}.hidden"), x, h));
                let (block, tile) = (self.parameter(&format!("{path}.block")), self.parameter(&format!("{path}.tile")));
                let output = |layer: &Array, at: usize| (0..hidden.len()).map(|d| hidden[d] * layer.at(&[h, d, at])).sum::<f64>();
                let b = tile.shape[2];
                output(block, column / b) * output(tile, column % b)
            },
            _ in SynthesizerFactorizedRandomConfig => {
                let path = format!("{path}.SynthesizerFactorizedRandom");
                let (r1, r2) = (self.parameter(&format!("{path}.query_factor")), self.parameter(&format!("{path}.key_factor")));
                dot(r1.row(&[h, row]), r2.row(&[h, column]))
            },
            MixtureConfig { members, weights, .. } in MixtureConfig => {
                let path = format!("{path}.Mixture");
                let share = |m: usize| match weights {
                    MixtureWeights::Sum => 1.0,
                    MixtureWeights::Softmax => {
                        let a = self.parameter(&format!("{path}.head_weights"));
                        a.at(&[m, h]).exp() / (0..members.len()).map(|m| a.at(&[m, h]).exp()).sum::<f64>()
                    }
                    MixtureWeights::Sigmoid => {
                        let second = 1.0 / (1.0 + (-self.parameter(&format!("{path}.layer_weight")).at(&[0])).exp());
                        if m == 0 { 1.0 - second } else { second }
                    }
                };
                let member = |m: usize| self.logit(&members[m], &format!("{path}.members.{m}"), case, view, b, h, i, j);
                (0..members.len()).map(|m| share(m) * member(m)).sum()
            },
            config in AlibiConfig => self.alibi(config, path, case, [b, h, i, j]),
            config in RelativeConfig => self.relative(config, path, case, [b, h, i, j]),
            _ in LearnedRelativeConfig => self.learned_relative(path, case, [b, h, i, j]),
            config in AdaptiveSpanConfig => {
                self.logit(&self.under_span(config), &format!("{path}.AdaptiveSpan.logits.0"), case, view, b, h, i, j)
            },
            _ in UniformConfig => 0.0,
            config in GaussianConfig => {
                let shift = if self.placement.role == Role::Cross { shift } else { 0 };
                self.density(config, h, i.saturating_sub(shift), j).ln()
            };
            else => {
                let inner = config.inner().unwrap_or_else(|| panic!("{config} has no logits"));
                self.logit(inner, &patterns::inner_path(config, path), case, view, b, h, i, j)
            }
        )
    }
}

/// How scores become weights.
enum Normaliser {
    Softmax,
    /// Miller 2023.
    PlusOne,
    /// Ramapuram et al. 2025, with what is added to the scores.
    Sigmoid(f64),
}

fn normaliser(config: &AnyMechanism, max_length: usize) -> Normaliser {
    by_type!(config;
        config in SigmoidConfig => Normaliser::Sigmoid(config.bias.unwrap_or_else(|| (1.0 / max_length as f64).ln())),
        _ in SoftmaxPlusOneConfig => Normaliser::PlusOne;
        else => config.inner().map_or(Normaliser::Softmax, |inner| normaliser(inner, max_length))
    )
}

/// Whether contexts and weights are those of the formula, under every view.
pub fn agrees<A: Attention>(subject: &Subject<A>, naive: &Naive, batch: usize, length: usize, tolerance: f64) -> Result<(), String> {
    let case = subject.case("formula", batch, length);
    let heads = subject.placement.heads;
    for view in views(&case, subject.placement.role).into_iter().filter(|view| view.suits(&subject.attention, &case, heads)) {
        let (context, shown) = subject.observed(view.apply(case.input(&subject.device)));
        let (expected, expected_weights) = naive.forward(&case, &view);
        let what = format!("batch {batch}, {} heads, length {length}, {}", subject.placement.heads, view.name);
        let times = usize::from(subject.attention.abilities().weights);
        if shown.len() != times {
            return Err(format!("{what}: weights were shown {} times instead of {times}", shown.len()));
        }
        for b in 0..batch {
            // What falls on padding at the left is nobody's output.
            for i in view.left.get(b).copied().unwrap_or(0)..length {
                same(&format!("{what}: context of row {b}, query {i}"), context.row(&[b, i]), expected.row(&[b, i]), tolerance)?;
                for (weights, h) in shown.iter().flat_map(|weights| (0..heads).map(move |h| (weights, h))) {
                    let shared = if weights.shape[0] == 1 { 0 } else { b };
                    let what = format!("{what}: weights of row {b}, head {h}, query {i}");
                    same(&what, weights.row(&[shared, h, i]), expected_weights.row(&[b, h, i]), tolerance)?;
                }
            }
        }
    }
    Ok(())
}

fn check(variant: &Variant, backend: &Backend, [batch, heads, length]: [usize; 3], tolerance: f64) {
    let subject = variant.subject(heads, backend);
    let naive = Naive::read(&variant.config, subject.placement, &subject.attention);
    if let Err(error) = agrees(&subject, &naive, batch, length, tolerance) {
        panic!("{} on {}: {error}", variant.name, backend.name);
    }
}

#[test]
fn every_mechanism_computes_the_formula_of_its_paper() {
    for variant in variants() {
        for shape in [[1, 1, 1], [2, 2, 1], [1, 3, 2], [3, 4, 5], [2, 2, 5], [2, 3, 8], [1, 2, 8], [3, 1, 8]] {
            check(&variant, &flex(), shape, 1e-5);
        }
    }
}

#[test]
fn every_backend_computes_the_formula_of_the_paper() {
    for backend in backends() {
        for variant in variants() {
            check(&variant, &backend, [2, 2, 5], backend.rounding * 1e-5);
        }
    }
}
