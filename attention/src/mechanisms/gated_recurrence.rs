//! Shared code of gated recurrences: head projections, a normalisation and a gate, around a [rule](Rule) of the mechanism.
//!
//! `o_t = norm(read_t) swish(x_t W_G)`: queries, keys and values are projections of the token, followed by short convolutions and a SiLU in some mechanisms.
//! The rule determines how the state is written, decayed and read.

use burn::module::{Content, Devices, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor};

use crate::engine::recurrence::Recurrence;
use crate::mechanisms::gated_norm::{GatedNorm, HeadNorm};
use crate::mechanisms::prelude::*;
use crate::mechanisms::recurrent_attention::{Mixed, Mixer, PlainRecurrence, RecurrentAttention, Stretch, Widths, real};
use crate::mechanisms::short_convolution::ShortConvolution;
use crate::mechanisms::{gated_norm, short_convolution};

/// Epsilon that released code adds to mean squares and variances by default.
pub(super) const EPSILON: f64 = 1e-5;

/// Description of the convolution weights.
pub(super) const CONVOLUTION: (&str, &str) =
    ("convolution.weight", "weights of the short convolutions of queries, keys and values, earliest token first [taps, channels]");

/// Description of the normalisation gain.
pub(super) const GAIN: (&str, &str) = ("norm.gamma", "gain of each channel of a head's values [d_value]");

/// Description of the gate weights.
pub(super) const GATE: (&str, &str) = ("norm.gate.weight", "projection to the gate [d_in, d_out]; heads lie side by side in d_out");

/// Letter of the key width.
pub(super) const KEYS: (&str, &str) = ("K", "width of the keys of all heads");

/// Letter of the value width.
pub(super) const VALUES: (&str, &str) = ("v", "width of the values of a head");

/// Letter of the convolution taps.
pub(super) const TAPS: (&str, &str) = ("w", "taps of short convolutions, option `taps`");

/// Difference of dropout from released code.
pub(super) const DROPOUT: &str = "Dropout acts on the head outputs; the released code applies none there.";

/// Sizes and options of heads.
#[derive(Clone, Copy, Debug)]
pub struct HeadOptions {
    /// Heads of queries and keys, a divisor of the value heads: neighbouring value heads share one.
    pub key_heads: usize,
    /// Width of a head's queries and keys.
    pub key_width: usize,
    /// Width of a head's values.
    pub value_width: usize,
    /// Taps of the short convolutions, at least 1, if there are convolutions.
    pub taps: Option<usize>,
    /// Normalisation of the head outputs.
    pub norm: HeadNorm,
    /// Epsilon that the head norm adds to mean squares or variances.
    pub epsilon: f64,
    /// Whether a gate precedes the output projection.
    pub gate: bool,
}

/// Rule by which a state is written, decayed and read.
pub trait Rule: Module + ModuleDisplay + 'static {
    /// Whether each key channel has its own decay.
    const CHANNELS_DECAY: bool = false;

    /// Whether writes use the delta rule.
    const DELTA: bool = false;

    /// Recurrence of the heads `[queries, keys, values]`, shaped `[B, G, N, K]`, `[B, G, N, K]` and `[B, H, N, V]`, over inputs `[B, N, C]` from position
    /// `start` on.
    fn recurrence(&self, heads: [Tensor<4>; 3], x: &Tensor<3>, start: usize) -> Recurrence;
}

/// Projections to heads.
#[derive(Module, Debug)]
pub struct HeadMaps {
    /// Query projection `[C, G K]` to `G` key heads.
    pub query: Linear,
    /// Key projection `[C, G K]`.
    pub key: Linear,
    /// Value projection `[C, H V]`.
    pub value: Linear,
    /// Convolutions of queries, keys and values, side by side, if any.
    pub convolution: Option<ShortConvolution>,
    heads: usize,
    key_heads: usize,
}

/// A rule with projections before it, and normalisation and gate after it. Parameter paths of projections and rule are siblings.
#[derive(Clone, Debug)]
pub struct GatedRecurrence<R: Rule> {
    /// Projections to heads.
    pub maps: HeadMaps,
    /// Rule by which the state is written, decayed and read.
    pub rule: R,
    /// Normalisation of heads, and the gate.
    pub norm: GatedNorm,
}

/// A linear map without bias, Xavier-uniform with gain `1 / sqrt(shrink)`.
pub(super) fn shrunk(inputs: usize, outputs: usize, shrink: usize, key: &RandomKey, device: &Device) -> Linear {
    let weight = Init::XavierUniform { fan_in: shrink * inputs, fan_out: shrink * outputs };
    Linear { weight: weight.parameter([inputs, outputs], &key.named("weight"), device), bias: None }
}

impl HeadOptions {
    /// Heads with these key and value widths, without convolutions. The norm adds [`EPSILON`] unless a number is given.
    pub(super) fn new(key_heads: usize, widths: [usize; 2], (norm, epsilon): (HeadNorm, Option<f64>), gate: bool) -> Self {
        let [key_width, value_width] = widths;
        Self { key_heads, key_width, value_width, taps: None, norm, epsilon: epsilon.unwrap_or(EPSILON), gate }
    }

    /// Adds projections without biases, convolutions, normalisation and gate around a rule.
    pub fn around<R: Rule>(&self, rule: R, spec: &LayerSpec, key: &RandomKey, device: &Device) -> RecurrentAttention<GatedRecurrence<R>> {
        self.around_with_gain(1, rule, spec, key, device)
    }

    /// The same, with head and gate projections that start with gain `1 / sqrt(shrink)`.
    pub fn around_with_gain<R: Rule>(
        &self,
        shrink: usize,
        rule: R,
        spec: &LayerSpec,
        key: &RandomKey,
        device: &Device,
    ) -> RecurrentAttention<GatedRecurrence<R>> {
        let Self { key_heads, key_width, value_width, taps, norm, epsilon, gate } = *self;
        let (heads, keys, values) = (spec.heads, key_heads * key_width, spec.heads * value_width);
        let map = |name, outputs| shrunk(spec.d_model, outputs, shrink, &key.named(name), device);
        let convolution = |taps| ShortConvolution::new(taps, 2 * keys + values, &key.named("convolution"), device);
        let maps = HeadMaps {
            query: map("query", keys),
            key: map("key", keys),
            value: map("value", values),
            convolution: taps.map(convolution),
            heads,
            key_heads,
        };
        let norm = GatedNorm::new(norm, value_width, gate.then(|| map("gate", values)), epsilon, &key.named("norm"), device);
        RecurrentAttention::new(GatedRecurrence { maps, rule, norm }, spec, key, device)
    }

    /// Values of the letters `K`, `v` and, with convolutions, `w`.
    pub(super) fn letters(&self) -> Vec<(&'static str, usize)> {
        let keys = ("K", self.key_heads.max(1).saturating_mul(self.key_width));
        [keys, ("v", self.value_width)].into_iter().chain(self.taps.map(|taps| ("w", taps))).collect()
    }
}

/// Parameters of projections, output, normalisation and gate, with `others` before the gain: `K` is the key width of all heads, `v` the value width of one
/// head.
pub(super) fn parameters(norm: HeadNorm, gate: bool, others: &[(usize, &'static str)]) -> ParameterFormula {
    let of_values = if gate { 3 } else { 2 };
    let maps = ParameterFormula::trained(&[(2, "d K"), (of_values, "d H v")]);
    maps.plus(ParameterFormula::trained(others)).plus(norm.parameters(1, "v"))
}

/// Output of heads under a rule, pair by pair, normalised and gated. The rule receives the projected heads, without decay and strengths.
pub(super) fn formula<'a>(
    options: impl Fn(&LayerSpec) -> HeadOptions + 'a,
    rule: impl Fn(&Query, PlainRecurrence) -> PlainRecurrence + 'a,
) -> Formula<'a> {
    Formula::default().head(move |query: &Query| {
        let HeadOptions { key_heads, key_width, value_width, taps, norm, epsilon, gate } = options(query.spec());
        // Neighbouring heads share a key.
        let key_head = query.head / (query.spec().heads / key_heads);
        let (real, all_keys) = (real(query), key_heads * key_width);
        let heads = |map: &str, head: usize, width: usize, first: usize| {
            let own = head * width..(head + 1) * width;
            match taps {
                Some(_) => short_convolution::projection(query, map, own, false, first, &real),
                None => short_convolution::inputs(query, map, own),
            }
        };
        let keys = heads("key", key_head, key_width, all_keys);
        let recurrence = PlainRecurrence {
            query: heads("query", key_head, key_width, 0).swap_remove(query.index),
            log_decay: vec![vec![0.0; key_width]; keys.len()],
            keys,
            values: heads("value", query.head, value_width, 2 * all_keys),
            strengths: None,
            real: real.clone(),
        };
        gated_norm::formula(query, "mixer.norm", norm, gate, epsilon, rule(query, recurrence).read(query))
    })
}

impl<R: Rule> Mixer for GatedRecurrence<R> {
    fn recurrence(&self, x: &Tensor<3>, stretch: Stretch<'_>) -> Mixed {
        let HeadMaps { query, key, value, convolution, heads, key_heads } = &self.maps;
        let (maps, start) = ([(query, *key_heads), (key, *key_heads), (value, *heads)], stretch.start);
        let projected = match convolution {
            Some(convolution) => convolution.projections(x, maps, stretch),
            None => maps.map(|(map, heads)| split_heads(linear(x.clone(), map), heads)),
        };
        self.rule.recurrence(projected, x, start).into()
    }

    fn output(&self, context: Tensor<4>, x: &Tensor<3>) -> Tensor<3> {
        self.norm.forward(context, x)
    }

    fn widths(&self) -> Widths {
        let of = |map: &Linear, heads: usize| map.weight.shape()[1] / heads;
        let HeadMaps { key, value, heads, key_heads, .. } = &self.maps;
        Widths { key: of(key, *key_heads), value: of(value, *heads), channels_decay: R::CHANNELS_DECAY, delta: R::DELTA }
    }
}

// Implemented by hand, since a derived module would prefix parameter paths of projections and rule with field names.
impl<R: Rule> Module for GatedRecurrence<R> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.norm.collect_devices(self.rule.collect_devices(self.maps.collect_devices(devices)))
    }

    fn fork(self, device: &Device) -> Self {
        Self { maps: self.maps.fork(device), rule: self.rule.fork(device), norm: self.norm.fork(device) }
    }

    fn to_device(self, device: &Device) -> Self {
        Self { maps: self.maps.to_device(device), rule: self.rule.to_device(device), norm: self.norm.to_device(device) }
    }

    fn train(self) -> Self {
        Self { maps: self.maps.train(), rule: self.rule.train(), norm: self.norm.train() }
    }

    fn valid(&self) -> Self {
        Self { maps: self.maps.valid(), rule: self.rule.valid(), norm: self.norm.valid() }
    }

    fn materialize(self) -> Self {
        Self { maps: self.maps.materialize(), rule: self.rule.materialize(), norm: self.norm.materialize() }
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.maps.visit(visitor);
        self.rule.visit(visitor);
        visitor.enter_module("norm", "Struct:GatedRecurrence");
        self.norm.visit(visitor);
        visitor.exit_module("norm", "Struct:GatedRecurrence");
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        let (maps, rule) = (self.maps.map(mapper), self.rule.map(mapper));
        mapper.enter_module("norm", "Struct:GatedRecurrence");
        let norm = self.norm.map(mapper);
        mapper.exit_module("norm", "Struct:GatedRecurrence");
        Self { maps, rule, norm }
    }
}

impl<R: Rule> ModuleDisplayDefault for GatedRecurrence<R> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add("maps", &self.maps).add("rule", &self.rule).add("norm", &self.norm).set_top_level_type("GatedRecurrence").optional()
    }
}

impl<R: Rule> ModuleDisplay for GatedRecurrence<R> {}
