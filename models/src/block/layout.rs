//! Attention of each part and layer of a model.
//!
//! In a configuration file an attention is a name, a table with options, or a list of these over the layers (a shorter list repeats):
//!
//! ```toml
//! attention = "synthesizer-random"                                  # every self-attention
//! attention = { name = "synthesizer-random", trainable = false }
//! attention = ["gaussian", "dot-product"]                           # layers 1, 3, 5, .. and 2, 4, 6, ..
//! ```
//!
//! In an encoder-decoder model a list applies to both stacks. Such a model also accepts a layout: by name (`base`, `hc-sa`, `hc-all`, `sh-x`: You, Sun and
//! Iyyer 2020), or with explicit parts. Cross-attention may have its own number of heads, and be limited to the last layer:
//!
//! ```toml
//! [attention]
//! encoder = "gaussian"
//! decoder = "gaussian"
//! cross = { attention = "dot-product", heads = 1, layers = "last" }
//! ```
//!
//! In code, `with_attention` of a model's configuration takes the same values: see [`IntoLayers`] and [`IntoLayout`].

mod choice;
mod reading;

use std::sync::LazyLock;

use heedful_attention::prelude::*;
use serde::Serialize;

pub(crate) use self::choice::resolved;
pub use self::choice::{IntoLayers, IntoLayout};
use crate::block::BlockConfig;

/// Named layouts, in file order.
static LAYOUTS: LazyLock<Vec<(String, AttentionLayout)>> = LazyLock::new(|| {
    let file: toml::Table = toml::from_str(include_str!("layout/layouts.toml")).expect("the file is TOML");
    let layout = |(name, table): (String, toml::Value)| {
        let layout = table.try_into().unwrap_or_else(|error| panic!("layout {name}: {error}"));
        (name, layout)
    };
    file.into_iter().map(layout).collect()
});

/// Self-attention of each layer of a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LayerAttention {
    /// The same in all layers.
    All(AnyMechanism),
    /// A list over the layers; a shorter list repeats.
    Each(Vec<AnyMechanism>),
}

impl Default for LayerAttention {
    fn default() -> Self {
        Self::All(AnyMechanism::default())
    }
}

impl From<AnyMechanism> for LayerAttention {
    fn from(attention: AnyMechanism) -> Self {
        Self::All(attention)
    }
}

impl LayerAttention {
    /// Attention of a layer.
    ///
    /// # Panics
    /// If a list is empty.
    pub fn at(&self, layer: usize) -> &AnyMechanism {
        match self {
            Self::All(attention) => attention,
            Self::Each(list) => &list[layer % list.len()],
        }
    }

    /// Layers whose mechanism lacks an ability that another layer's mechanism has. Empty if none has it; a model that requests the ability is then refused.
    pub(crate) fn without(&self, layers: usize, ability: fn(&AnyMechanism) -> bool) -> Vec<usize> {
        let able: Vec<bool> = self.mechanisms().iter().map(ability).collect();
        if able.contains(&true) { (0..layers).filter(|layer| !able[layer % able.len()]).collect() } else { Vec::new() }
    }

    /// `block` without the options that no layer's mechanism supports: attention biases, shared key and value heads, and head width.
    pub(crate) fn fitted(&self, block: BlockConfig) -> BlockConfig {
        let any = |ability: fn(&AnyMechanism) -> bool| self.mechanisms().iter().any(ability);
        let (biases, free_heads) = (any(AnyMechanism::has_biases_on_demand), any(AnyMechanism::has_free_heads));
        BlockConfig {
            qkv_bias: block.qkv_bias && biases,
            attention_output_bias: block.attention_output_bias && biases,
            kv_heads: block.kv_heads.filter(|_| free_heads),
            head_width: block.head_width.filter(|_| free_heads),
            ..block
        }
    }

    /// The mechanisms: one for all layers, or a list over the layers, repeated.
    pub fn mechanisms(&self) -> &[AnyMechanism] {
        match self {
            Self::All(attention) => std::slice::from_ref(attention),
            Self::Each(list) => list,
        }
    }

    /// Replaces each mechanism.
    pub fn map(self, change: impl Fn(AnyMechanism) -> AnyMechanism) -> Self {
        match self {
            Self::All(attention) => Self::All(change(attention)),
            Self::Each(list) => Self::Each(list.into_iter().map(change).collect()),
        }
    }

    pub(crate) fn validate_length(&self, check: &Check, option: &'static str, layers: usize) -> Result<(), ConfigError> {
        match self {
            Self::All(_) => Ok(()),
            Self::Each(list) => fits(check, option, list.len(), layers),
        }
    }
}

fn fits(check: &Check, option: &'static str, length: usize, layers: usize) -> Result<(), ConfigError> {
    if length > 0 && layers.is_multiple_of(length) {
        return Ok(());
    }
    let remedy = format!("give one attention for each of the {layers} layers, or a number of them that divides {layers}");
    Err(check.refuse(option, format!("a list of {length}"), remedy))
}

/// Cross-attention of a layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CrossAttention {
    /// The mechanism (default: dot-product).
    pub attention: AnyMechanism,
    /// Number of heads (default: that of self-attention).
    pub heads: Option<usize>,
}

impl From<AnyMechanism> for CrossAttention {
    fn from(attention: AnyMechanism) -> Self {
        Self { attention, heads: None }
    }
}

/// Cross-attention of each decoder layer. A layer without it omits the sublayer.
#[derive(Clone, Debug, PartialEq)]
pub enum CrossLayout {
    /// The same in all layers.
    All(CrossAttention),
    /// Only in the last layer.
    Last(CrossAttention),
    /// A list over the layers; a shorter list repeats.
    Each(Vec<Option<CrossAttention>>),
}

impl Default for CrossLayout {
    fn default() -> Self {
        Self::All(CrossAttention::default())
    }
}

impl CrossLayout {
    /// Cross-attention of layer `layer` of `layers`.
    ///
    /// # Panics
    /// If a list is empty.
    pub fn at(&self, layer: usize, layers: usize) -> Option<&CrossAttention> {
        match self {
            Self::All(cross) => Some(cross),
            Self::Last(cross) => (layer + 1 == layers).then_some(cross),
            Self::Each(list) => list[layer % list.len()].as_ref(),
        }
    }
}

/// Attention of encoder, decoder and cross-attention.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AttentionLayout {
    /// Self-attention of the encoder (default: dot-product).
    pub encoder: LayerAttention,
    /// Self-attention of the decoder (default: dot-product).
    pub decoder: LayerAttention,
    /// Cross-attention of the decoder (default: dot-product).
    pub cross: CrossLayout,
}

impl AttentionLayout {
    /// Uses the mechanism in all self-attentions; cross-attention stays dot-product, as in the Synthesizer paper and in HC-SA.
    pub fn for_attention(attention: AnyMechanism) -> Self {
        Self { encoder: attention.clone().into(), decoder: attention.into(), cross: CrossLayout::default() }
    }

    /// Names of layouts: `base`, `hc-sa`, `hc-all` and `sh-x` of You, Sun and Iyyer 2020.
    pub fn names() -> impl Iterator<Item = &'static str> {
        LAYOUTS.iter().map(|(name, _)| name.as_str())
    }

    /// Layout by name. The Gaussians of `hc-all` assume source and target of equal length.
    pub fn named(name: &str) -> Option<Self> {
        LAYOUTS.iter().find(|(known, _)| known == name).map(|(_, layout)| layout.clone())
    }

    /// Replaces each mechanism of the layout.
    pub fn map(self, change: impl Fn(AnyMechanism) -> AnyMechanism) -> Self {
        let crossing = |cross: CrossAttention| CrossAttention { attention: change(cross.attention), ..cross };
        Self {
            encoder: self.encoder.map(&change),
            decoder: self.decoder.map(&change),
            cross: match self.cross {
                CrossLayout::All(cross) => CrossLayout::All(crossing(cross)),
                CrossLayout::Last(cross) => CrossLayout::Last(crossing(cross)),
                CrossLayout::Each(list) => CrossLayout::Each(list.into_iter().map(|cross| cross.map(crossing)).collect()),
            },
        }
    }

    /// Mechanisms by role, in the order encoder, decoder, cross-attention.
    pub fn mechanisms(&self) -> Vec<(Role, AnyMechanism)> {
        let own = [(Role::Encoder, &self.encoder), (Role::Decoder, &self.decoder)];
        let own = own.into_iter().flat_map(|(role, layers)| layers.mechanisms().iter().map(move |mechanism| (role, mechanism.clone())));
        let crossing = match &self.cross {
            // All layers have it, not only the last.
            CrossLayout::All(cross) => vec![cross, cross],
            CrossLayout::Last(cross) => vec![cross],
            CrossLayout::Each(list) => list.iter().flatten().collect(),
        };
        own.chain(crossing.into_iter().map(|cross| (Role::Cross, cross.attention.clone()))).collect()
    }

    /// The mechanism at a place.
    ///
    /// # Panics
    /// If the place is a cross-attention and has none.
    pub fn at(&self, spec: &LayerSpec) -> &AnyMechanism {
        match spec.role {
            Role::Encoder => self.encoder.at(spec.layer),
            Role::Decoder => self.decoder.at(spec.layer),
            Role::Cross => {
                let cross = self.cross.at(spec.layer, spec.layers);
                &cross.expect("the layer has a cross-attention").attention
            }
        }
    }

    /// Cross-attention heads per decoder layer.
    pub fn cross_heads(&self, layers: usize, heads: usize) -> Vec<Option<usize>> {
        (0..layers).map(|layer| self.cross.at(layer, layers).map(|cross| cross.heads.unwrap_or(heads))).collect()
    }

    pub(crate) fn validate_lengths(&self, check: &Check, encoder_layers: usize, decoder_layers: usize) -> Result<(), ConfigError> {
        self.encoder.validate_length(check, "attention.encoder", encoder_layers)?;
        self.decoder.validate_length(check, "attention.decoder", decoder_layers)?;
        match &self.cross {
            CrossLayout::Each(list) => fits(check, "attention.cross", list.len(), decoder_layers),
            CrossLayout::All(_) | CrossLayout::Last(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Layers {
        attention: LayerAttention,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Layout {
        attention: AttentionLayout,
    }

    fn attention(name: &str) -> AnyMechanism {
        name.parse().unwrap()
    }

    fn named(name: &str) -> AttentionLayout {
        AttentionLayout::named(name).unwrap()
    }

    #[test]
    fn the_layouts_of_the_file_are_those_of_the_paper() {
        assert_eq!(AttentionLayout::names().collect::<Vec<_>>(), ["base", "hc-sa", "hc-all", "sh-x"]);
        assert_eq!(named("base"), AttentionLayout::default());
        let hard_coded = AttentionLayout::for_attention(attention("gaussian"));
        assert_eq!(named("hc-sa"), hard_coded);
        assert_eq!(named("hc-all"), AttentionLayout { cross: CrossLayout::All(attention("gaussian").into()), ..hard_coded.clone() });
        let single = CrossAttention { heads: Some(1), ..CrossAttention::default() };
        assert_eq!(named("sh-x"), AttentionLayout { cross: CrossLayout::Last(single), ..hard_coded });
    }

    fn layers(text: &str) -> LayerAttention {
        toml::from_str::<Layers>(text).unwrap().attention
    }

    fn layout(text: &str) -> AttentionLayout {
        toml::from_str::<Layout>(text).unwrap().attention
    }

    #[test]
    fn an_attention_is_a_name_a_table_or_a_list_of_these() {
        assert_eq!(layers("attention = 'gaussian'"), attention("gaussian").into());
        let fixed = layers("attention = { name = 'synthesizer-random', trainable = false }");
        assert_ne!(fixed, attention("synthesizer-random").into());
        assert_eq!(fixed.at(0).family(), "synthesizer-random");
        let list = layers("attention = ['gaussian', { name = 'dot-product' }, 'synthesizer-random+dot-product']");
        let names: Vec<_> = (0..4).map(|layer| list.at(layer).name()).collect();
        assert_eq!(names, ["gaussian", "dot-product", "synthesizer-random+dot-product", "gaussian"]);
    }

    #[test]
    fn a_layout_is_a_layout_name_an_attention_or_a_table_of_parts() {
        assert_eq!(layout("attention = 'sh-x'"), named("sh-x"));
        assert_eq!(layout("attention = 'gaussian'"), named("hc-sa"));
        assert_eq!(layout("attention = { name = 'gaussian' }"), named("hc-sa"));
        let parts = "[attention]\nencoder = ['gaussian', 'dot-product']\ncross = { attention = 'dot-product', heads = 1, layers = 'last' }";
        let found = layout(parts);
        assert_eq!(found.encoder, LayerAttention::Each(vec![attention("gaussian"), attention("dot-product")]));
        assert_eq!(found.decoder, LayerAttention::default());
        assert_eq!(found.cross, named("sh-x").cross);
    }

    #[test]
    fn cross_attention_has_the_same_forms_and_none() {
        let cross = |text: &str| layout(&format!("[attention]\ncross = {text}")).cross;
        assert_eq!(cross("'gaussian'"), CrossLayout::All(attention("gaussian").into()));
        assert_eq!(
            cross("{ name = 'gaussian', length_ratio = 1.5 }"),
            CrossLayout::All(AnyMechanism::from(GaussianConfig::default().with_length_ratio(1.5)).into())
        );
        let single = CrossAttention { heads: Some(1), ..CrossAttention::default() };
        assert_eq!(cross("{ heads = 1 }"), CrossLayout::All(single.clone()));
        assert_eq!(
            cross("['none', 'gaussian', { heads = 1 }]"),
            CrossLayout::Each(vec![None, Some(attention("gaussian").into()), Some(single)])
        );
        assert_eq!(cross("'none'"), CrossLayout::Each(vec![None]));
    }

    #[test]
    fn layouts_survive_writing_and_reading() {
        let list = CrossLayout::Each(vec![
            None,
            Some(attention("gaussian").into()),
            Some(CrossAttention { heads: Some(2), ..Default::default() }),
        ]);
        let mixed = AttentionLayout {
            encoder: LayerAttention::Each(AnyMechanism::all()),
            decoder: attention("synthesizer-dense").into(),
            cross: list,
        };
        for layout in AttentionLayout::names().map(named).chain([mixed]) {
            let written = Layout { attention: layout };
            let text = toml::to_string(&written).unwrap();
            assert_eq!(toml::from_str::<Layout>(&text).unwrap(), written, "{text}");
            let text = serde_json::to_string(&written).unwrap();
            assert_eq!(serde_json::from_str::<Layout>(&text).unwrap(), written, "{text}");
        }
    }

    #[test]
    fn names_and_fields_that_nobody_knows_are_refused() {
        let error = |text: &str| toml::from_str::<Layout>(text).unwrap_err().to_string();
        let unknown = error("attention = 'hcsa'");
        assert!(unknown.contains("hcsa") && unknown.contains("dot-product") && unknown.contains("hc-sa"), "{unknown}");
        assert!(error("attention = { encodr = 'gaussian' }").contains("encodr"));
        assert!(error("attention = { encoder = 'gaussian', name = 'gaussian' }").contains("name"));
        assert!(error("attention = { name = 'gaussian', sigma = 2 }").contains("sigma"));
        assert!(error("attention = { cross = { head = 1 } }").contains("head"));
        assert!(error("attention = { cross = { heads = 1, layers = 'first' } }").contains("last"));
        assert!(error("attention = { cross = [{ heads = 1, layers = 'last' }] }").contains("layers"));
        assert!(error("attention = 3").contains("integer"));
    }

    #[test]
    fn every_mechanism_of_a_layout_is_changed_and_listed_in_its_place() {
        let learned = AnyMechanism::default();
        let gaussian = AnyMechanism::from(GaussianConfig::default().with_deviations(vec![0.5]));
        let change = |mechanism: AnyMechanism| if mechanism == learned { mechanism } else { gaussian.clone() };
        for (name, own, cross) in
            [("base", &learned, &learned), ("hc-sa", &gaussian, &learned), ("hc-all", &gaussian, &gaussian), ("sh-x", &gaussian, &learned)]
        {
            let layout = AttentionLayout::named(name).unwrap().map(change);
            assert_eq!((layout.encoder.at(0), layout.decoder.at(1)), (own, own), "{name}");
            assert_eq!(&layout.cross.at(1, 2).unwrap().attention, cross, "{name}");
            assert_eq!(layout.cross_heads(2, 8), AttentionLayout::named(name).unwrap().cross_heads(2, 8), "{name}");
            let mechanisms = layout.mechanisms();
            assert_eq!(mechanisms[..2], [(Role::Encoder, own.clone()), (Role::Decoder, own.clone())], "{name}");
            assert_eq!(mechanisms.len(), if name == "sh-x" { 3 } else { 4 }, "{name}");
        }
        let both = layout("attention = ['gaussian', 'dot-product']");
        assert_eq!((both.encoder.mechanisms().len(), &both.decoder, &both.cross), (2, &both.encoder, &CrossLayout::default()));
        let lists = layout("[attention]\nencoder = ['gaussian', 'dot-product']\ncross = ['none', 'gaussian']").map(change);
        assert_eq!(lists.encoder.mechanisms(), [gaussian.clone(), learned.clone()]);
        assert_eq!(lists.cross, CrossLayout::Each(vec![None, Some(gaussian.into())]));
    }

    #[test]
    fn sh_x_has_one_head_in_the_last_layer_and_none_before() {
        assert_eq!(named("sh-x").cross_heads(4, 8), [None, None, None, Some(1)]);
        assert_eq!(named("hc-sa").cross_heads(2, 8), [Some(8), Some(8)]);
    }

    #[test]
    fn lists_must_divide_the_number_of_layers() {
        let check = Check::of("test");
        let two = LayerAttention::Each(vec![AnyMechanism::default(); 2]);
        assert!(two.validate_length(&check, "attention", 6).is_ok());
        let error = two.validate_length(&check, "attention", 5).unwrap_err().to_string();
        assert!(error.contains("list of 2") && error.contains("divides 5"), "{error}");
        assert!(LayerAttention::Each(vec![]).validate_length(&check, "attention", 5).is_err());
        let layout = AttentionLayout { cross: CrossLayout::Each(vec![None; 4]), ..AttentionLayout::default() };
        assert!(layout.validate_lengths(&check, 6, 6).unwrap_err().to_string().contains("attention.cross"));
    }
}
