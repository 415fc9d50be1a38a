//! Reading and writing of layouts: a name, a table, or a list of these.

use std::fmt;
use std::marker::PhantomData;

use heedful_attention::description::AnyMechanism;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{DeserializeSeed, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{AttentionLayout, CrossAttention, CrossLayout, LayerAttention};

/// A value with several serialised forms.
trait Shapes: Sized {
    const EXPECTED: &'static str;

    fn from_name<E: Error>(name: &str) -> Result<Self, E>;

    /// Keys that start [`from_parts`](Self::from_parts); any other key starts the table of a mechanism.
    const PART_KEYS: &'static [&'static str] = &[];

    fn from_attention(attention: AnyMechanism) -> Self;

    fn from_parts<'de, M: MapAccess<'de>>(map: M) -> Result<Self, M::Error> {
        AnyMechanism::deserialize(MapAccessDeserializer::new(map)).map(Self::from_attention)
    }

    fn from_list<'de, S: SeqAccess<'de>>(_list: S) -> Result<Self, S::Error> {
        Err(S::Error::custom(format!("a list in the place of {}", Self::EXPECTED)))
    }
}

struct ShapesVisitor<T>(PhantomData<T>);

impl<'de, T: Shapes> Visitor<'de> for ShapesVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
        T::from_name(name)
    }

    fn visit_seq<S: SeqAccess<'de>>(self, list: S) -> Result<T, S::Error> {
        T::from_list(list)
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<T, M::Error> {
        let first = map.next_key::<String>()?;
        let parts = first.as_deref().is_some_and(|key| T::PART_KEYS.contains(&key));
        let map = Replayed { first, rest: map };
        if parts { T::from_parts(map) } else { AnyMechanism::deserialize(MapAccessDeserializer::new(map)).map(T::from_attention) }
    }
}

/// A map with a peeked first key.
struct Replayed<M> {
    first: Option<String>,
    rest: M,
}

impl<'de, M: MapAccess<'de>> MapAccess<'de> for Replayed<M> {
    type Error = M::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, M::Error> {
        match self.first.take() {
            Some(key) => seed.deserialize(key.into_deserializer()).map(Some),
            None => self.rest.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, M::Error> {
        self.rest.next_value_seed(seed)
    }
}

fn read<'de, T: Shapes, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(ShapesVisitor(PhantomData))
}

fn attention_named<E: Error>(name: &str) -> Result<AnyMechanism, E> {
    name.parse().map_err(E::custom)
}

/// An attention by name or table.
struct Named(AnyMechanism);

impl Shapes for Named {
    const EXPECTED: &'static str = "the name of an attention or a table with the key `name`";

    fn from_name<E: Error>(name: &str) -> Result<Self, E> {
        attention_named(name).map(Self)
    }

    fn from_attention(attention: AnyMechanism) -> Self {
        Self(attention)
    }
}

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer)
    }
}

impl Shapes for LayerAttention {
    const EXPECTED: &'static str = "the name of an attention, a table with the key `name`, or a list of these";

    fn from_name<E: Error>(name: &str) -> Result<Self, E> {
        attention_named(name).map(Self::All)
    }

    fn from_attention(attention: AnyMechanism) -> Self {
        Self::All(attention)
    }

    fn from_list<'de, S: SeqAccess<'de>>(list: S) -> Result<Self, S::Error> {
        let list = Vec::<Named>::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(Self::Each(list.into_iter().map(|Named(attention)| attention).collect()))
    }
}

impl<'de> Deserialize<'de> for LayerAttention {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer)
    }
}

#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Layers {
    #[default]
    All,
    Last,
}

/// A cross-attention and its layers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CrossParts {
    attention: Option<Named>,
    heads: Option<usize>,
    layers: Option<Layers>,
}

impl CrossParts {
    fn cross(self) -> CrossAttention {
        CrossAttention { attention: self.attention.map_or_else(AnyMechanism::default, |Named(attention)| attention), heads: self.heads }
    }
}

/// Cross-attention of one layer in a list.
struct CrossItem(Option<CrossAttention>);

impl Shapes for CrossItem {
    const EXPECTED: &'static str = "`none`, the name of an attention, or a table with the key `name` or the keys `attention` and `heads`";
    const PART_KEYS: &'static [&'static str] = &["attention", "heads", "layers"];

    fn from_name<E: Error>(name: &str) -> Result<Self, E> {
        if name == "none" { Ok(Self(None)) } else { attention_named(name).map(Self::from_attention) }
    }

    fn from_attention(attention: AnyMechanism) -> Self {
        Self(Some(attention.into()))
    }

    fn from_parts<'de, M: MapAccess<'de>>(map: M) -> Result<Self, M::Error> {
        let parts = CrossParts::deserialize(MapAccessDeserializer::new(map))?;
        if parts.layers.is_some() {
            return Err(M::Error::custom("`layers` is not for the items of a list: the list says which layers have cross-attention"));
        }
        Ok(Self(Some(parts.cross())))
    }
}

impl<'de> Deserialize<'de> for CrossItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer)
    }
}

impl Shapes for CrossLayout {
    const EXPECTED: &'static str = "`none`, the name of an attention, a table with the key `name` or the keys `attention`, `heads` and `layers`, or a list for each layer";
    const PART_KEYS: &'static [&'static str] = CrossItem::PART_KEYS;

    fn from_name<E: Error>(name: &str) -> Result<Self, E> {
        let CrossItem(cross) = CrossItem::from_name(name)?;
        Ok(cross.map_or_else(|| Self::Each(vec![None]), Self::All))
    }

    fn from_attention(attention: AnyMechanism) -> Self {
        Self::All(attention.into())
    }

    fn from_parts<'de, M: MapAccess<'de>>(map: M) -> Result<Self, M::Error> {
        let parts = CrossParts::deserialize(MapAccessDeserializer::new(map))?;
        Ok(match parts.layers.unwrap_or_default() {
            Layers::All => Self::All(parts.cross()),
            Layers::Last => Self::Last(parts.cross()),
        })
    }

    fn from_list<'de, S: SeqAccess<'de>>(list: S) -> Result<Self, S::Error> {
        let list = Vec::<CrossItem>::deserialize(SeqAccessDeserializer::new(list))?;
        Ok(Self::Each(list.into_iter().map(|CrossItem(cross)| cross).collect()))
    }
}

impl<'de> Deserialize<'de> for CrossLayout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer)
    }
}

fn write_cross<S: Serializer>(cross: &CrossAttention, layers: Layers, serializer: S) -> Result<S::Ok, S::Error> {
    if cross.heads.is_none() && layers == Layers::All {
        return cross.attention.serialize(serializer);
    }
    let mut table = serializer.serialize_struct("CrossAttention", 3)?;
    table.serialize_field("attention", &cross.attention)?;
    if let Some(heads) = cross.heads {
        table.serialize_field("heads", &heads)?;
    }
    if layers == Layers::Last {
        table.serialize_field("layers", &layers)?;
    }
    table.end()
}

impl Serialize for CrossItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(cross) => write_cross(cross, Layers::All, serializer),
            None => serializer.serialize_str("none"),
        }
    }
}

impl Serialize for CrossLayout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All(cross) => write_cross(cross, Layers::All, serializer),
            Self::Last(cross) => write_cross(cross, Layers::Last, serializer),
            Self::Each(list) => serializer.collect_seq(list.iter().cloned().map(CrossItem)),
        }
    }
}

/// The explicit parts of a layout.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LayoutParts {
    encoder: LayerAttention,
    decoder: LayerAttention,
    cross: CrossLayout,
}

impl Shapes for AttentionLayout {
    const EXPECTED: &'static str = "the name of a layout or an attention, a table with the key `name` or the keys `encoder`, `decoder` and `cross`, or a list for the layers";
    const PART_KEYS: &'static [&'static str] = &["encoder", "decoder", "cross"];

    fn from_name<E: Error>(name: &str) -> Result<Self, E> {
        if let Some(layout) = Self::named(name) {
            return Ok(layout);
        }
        let attention =
            name.parse().map_err(|error| E::custom(format!("{error}; layouts are {}", Self::names().collect::<Vec<_>>().join(", "))))?;
        Ok(Self::for_attention(attention))
    }

    fn from_attention(attention: AnyMechanism) -> Self {
        Self::for_attention(attention)
    }

    fn from_parts<'de, M: MapAccess<'de>>(map: M) -> Result<Self, M::Error> {
        let LayoutParts { encoder, decoder, cross } = LayoutParts::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Self { encoder, decoder, cross })
    }

    fn from_list<'de, S: SeqAccess<'de>>(list: S) -> Result<Self, S::Error> {
        let layers = LayerAttention::from_list(list)?;
        Ok(Self { encoder: layers.clone(), decoder: layers, cross: CrossLayout::default() })
    }
}

impl<'de> Deserialize<'de> for AttentionLayout {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read(deserializer)
    }
}
