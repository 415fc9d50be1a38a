//! Attention arguments in code: names, configurations, and lists of them.

use burn::tensor::Device;
use heedful_attention::layer::Choice;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::{AttentionLayout, LayerAttention};

/// Values accepted as the self-attention of a stack's layers.
///
/// | given | means |
/// |---|---|
/// | a name such as `"relative"` or `"local-1d@relative"` | the same in all layers |
/// | a configuration such as [`RelativeConfig`](heedful_attention::mechanisms::relative::RelativeConfig), of a user's own type too | the same in all layers |
/// | an [`AnyMechanism`], or a [`Choice`] | the same in all layers |
/// | an array or a `Vec` of these | one for each layer, or repeated over the layers |
/// | a [`LayerAttention`] | itself |
///
/// An unknown name is an error of the model's `validate` and `build`.
///
/// `Form` distinguishes the argument kinds; the compiler infers it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no attention",
    note = "give a name, a configuration that implements `Mechanism`, an `AnyMechanism`, a `LayerAttention`, or an array or `Vec` of one of the first three"
)]
pub trait IntoLayers<Form> {
    /// Self-attention of each layer.
    fn into_layers(self) -> LayerAttention;
}

/// Values accepted as the attentions of an encoder-decoder model: the name of a layout ([`AttentionLayout::names`]), an [`AttentionLayout`], and every value
/// that [`IntoLayers`] accepts. The latter is the self-attention of both stacks, with dot-product cross-attention.
///
/// `Form` distinguishes the argument kinds; the compiler infers it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no attention",
    note = "give a name, a configuration that implements `Mechanism`, an `AnyMechanism`, an `AttentionLayout`, or an array or `Vec` of one of the first three"
)]
pub trait IntoLayout<Form> {
    /// Attention of each layer.
    fn into_layout(self) -> AttentionLayout;
}

/// Form of an argument for all layers.
#[derive(Debug)]
pub enum One {}

/// Form of a list.
#[derive(Debug)]
pub enum Each {}

/// Form of the model's own type.
#[derive(Debug)]
pub enum Whole {}

impl<C: Into<Choice>> IntoLayers<One> for C {
    fn into_layers(self) -> LayerAttention {
        LayerAttention::All(resolved(self))
    }
}

impl<C: Into<Choice>, const N: usize> IntoLayers<Each> for [C; N] {
    fn into_layers(self) -> LayerAttention {
        LayerAttention::Each(self.map(resolved).into())
    }
}

impl<C: Into<Choice>> IntoLayers<Each> for Vec<C> {
    fn into_layers(self) -> LayerAttention {
        LayerAttention::Each(self.into_iter().map(resolved).collect())
    }
}

impl IntoLayers<Whole> for LayerAttention {
    fn into_layers(self) -> LayerAttention {
        self
    }
}

impl<C: Into<Choice>> IntoLayout<One> for C {
    fn into_layout(self) -> AttentionLayout {
        let choice = self.into();
        let layout = if let Choice::Named(name) = &choice { AttentionLayout::named(name) } else { None };
        layout.unwrap_or_else(|| AttentionLayout::for_attention(resolved(choice)))
    }
}

impl<C: Into<Choice>, const N: usize> IntoLayout<Each> for [C; N] {
    fn into_layout(self) -> AttentionLayout {
        of_both(self.into_layers())
    }
}

impl<C: Into<Choice>> IntoLayout<Each> for Vec<C> {
    fn into_layout(self) -> AttentionLayout {
        of_both(self.into_layers())
    }
}

impl IntoLayout<Whole> for LayerAttention {
    fn into_layout(self) -> AttentionLayout {
        of_both(self)
    }
}

impl IntoLayout<Whole> for AttentionLayout {
    fn into_layout(self) -> AttentionLayout {
        self
    }
}

fn of_both(layers: LayerAttention) -> AttentionLayout {
    AttentionLayout { encoder: layers.clone(), decoder: layers, ..AttentionLayout::default() }
}

/// The mechanism. An unknown one keeps its name for the error of `validate`.
pub(crate) fn resolved(choice: impl Into<Choice>) -> AnyMechanism {
    match choice.into() {
        Choice::Configured(mechanism) => mechanism,
        Choice::Named(name) => name.parse().unwrap_or_else(|_| Unknown { mechanism: name }.into()),
        other => unreachable!("an attention is chosen by its name or its configuration: {other:?}"),
    }
}

/// A name that was unknown when given. It is looked up again whenever the mechanism is needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Unknown {
    mechanism: String,
}

impl Mechanism for Unknown {
    type Module = AnyAttention;
    const NAME: &'static str = "unknown";
    const CARD: Card = Card {
        variant: "Unknown",
        description: "Unknown mechanism name.",
        source: "",
        kind: Kind::Whole,
        cross: true,
        time: "",
        state: "",
        ..Card::DEFAULT
    };

    fn name(&self) -> String {
        self.mechanism.clone()
    }

    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        self.mechanism.parse::<AnyMechanism>()?.validate(spec)
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> AnyAttention {
        match self.mechanism.parse::<AnyMechanism>() {
            Ok(mechanism) => mechanism.init(spec, key, device),
            Err(error) => panic!("{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers<F>(attention: impl IntoLayers<F>) -> LayerAttention {
        attention.into_layers()
    }

    fn layout<F>(attention: impl IntoLayout<F>) -> AttentionLayout {
        attention.into_layout()
    }

    fn mechanism(name: &str) -> AnyMechanism {
        name.parse().unwrap()
    }

    #[test]
    fn an_attention_is_a_name_a_configuration_or_a_list_of_these() {
        let relative = LayerAttention::All(mechanism("relative"));
        assert_eq!(layers("relative"), relative);
        assert_eq!(layers("relative".to_owned()), relative);
        assert_eq!(layers(RelativeConfig::default()), relative);
        assert_eq!(layers(mechanism("relative")), relative);
        assert_eq!(layers(Choice::from("relative")), relative);
        assert_eq!(layers(relative.clone()), relative);
        let list = LayerAttention::Each(vec![mechanism("relative"), mechanism("dot-product")]);
        assert_eq!(layers(["relative", "dot-product"]), list);
        assert_eq!(layers(vec!["relative", "dot-product"]), list);
        assert_eq!(layers([Choice::from("relative"), DotProductConfig::default().into()]), list);
        assert_eq!(layers([RelativeConfig::default().into(), AnyMechanism::default()]), list);
    }

    #[test]
    fn a_layout_is_its_name_itself_or_what_both_stacks_have() {
        assert_eq!(layout("sh-x"), AttentionLayout::named("sh-x").unwrap());
        assert_eq!(layout(AttentionLayout::named("sh-x").unwrap()), AttentionLayout::named("sh-x").unwrap());
        assert_eq!(layout("gaussian"), AttentionLayout::named("hc-sa").unwrap());
        let relative = AttentionLayout::for_attention(mechanism("relative"));
        assert_eq!(layout(RelativeConfig::default()), relative);
        assert_eq!(layout([RelativeConfig::default()]).decoder, LayerAttention::Each(vec![mechanism("relative")]));
        assert_eq!(layout(["relative"]), layout(vec![RelativeConfig::default()]));
        assert_eq!(layout(LayerAttention::default()), AttentionLayout::default());
    }

    #[test]
    fn a_name_that_nobody_has_is_an_error_where_it_is_validated() {
        let unknown = layers(["dot-product", "dot-produkt"]);
        let place = LayerSpec::new(Role::Decoder, 4, 2);
        assert_eq!(unknown.at(0).validate(&place), Ok(()));
        let error = unknown.at(1).validate(&place).unwrap_err().to_string();
        assert!(error.contains("dot-produkt") && error.contains("dot-product"), "{error}");
    }
}
