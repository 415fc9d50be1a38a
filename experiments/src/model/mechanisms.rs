//! The attentions that an experiment compares, their options, and their abilities.

use std::fmt;

use burn::module::{ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use heedful_attention::mechanisms::mixture::MixtureWeights;
use heedful_attention::prelude::*;
use heedful_attention::registry;
use heedful_host::display::grouped;
use heedful_runs::markup::columns;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

/// The field of an attention's table that says which it is.
const NAME: &str = "name";
/// The family whose members are in the name of an attention and not among its options.
const MIXTURE: &str = MixtureConfig::NAME;

/// Options of the mechanisms, one table for each family. They apply wherever the mechanism stands, also as a member of a mixture or as the logits within
/// another mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct MechanismOptions(Vec<AnyMechanism>);

/// Options of mixtures; the members are in the name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MixtureOptions {
    /// How the members are weighted: `softmax` (default), `sum` or `sigmoid`.
    weights: MixtureWeights,
}

impl From<MixtureOptions> for AnyMechanism {
    fn from(options: MixtureOptions) -> Self {
        MixtureConfig::default().with_members(Vec::new()).with_weights(options.weights).into()
    }
}

impl Default for MechanismOptions {
    fn default() -> Self {
        Self(AnyMechanism::families().iter().map(|family| AnyMechanism::of_family(family).expect("it is a family")).collect())
    }
}

impl MechanismOptions {
    /// The options of a family; a mixture is without its members.
    ///
    /// # Panics
    /// If there is no such family.
    pub fn of(&self, family: &str) -> &AnyMechanism {
        self.0.iter().find(|options| options.family() == family).expect("there are options for each family")
    }

    /// Replaces every size that follows the maximal length by a number.
    pub fn resolved(&self, max_length: usize) -> Self {
        Self(self.0.iter().map(|options| options.resolved(max_length)).collect())
    }

    /// Replaces the options of a family.
    pub fn set(&mut self, options: AnyMechanism) {
        for own in &mut self.0 {
            if own.family() == options.family() {
                *own = options.clone();
            }
        }
    }

    /// The configuration of the attention called `name`, with these options. Options within the name (`-fixed`) override them.
    ///
    /// # Errors
    /// If no mechanism has this name.
    pub fn attention(&self, name: &str) -> Result<AnyMechanism, ConfigError> {
        Ok(self.within_mechanism(&name.parse()?))
    }

    /// A mechanism whose default options are replaced by these options.
    pub fn within_mechanism(&self, mechanism: &AnyMechanism) -> AnyMechanism {
        let config = AnyMechanism::deserialize(Value::Table(self.with_options(table(mechanism))));
        config.expect("a table whose fields come from configurations of its family is one")
    }

    /// The table of an attention, in which whatever has its default is as these options say.
    fn with_options(&self, named: Table) -> Table {
        let Some(family) = family(&named) else { return named };
        let (defaults, options) = (table(&AnyMechanism::of_family(family).expect("it is a family")), table(self.of(family)));
        let further = options.keys().filter(|key| !named.contains_key(*key));
        // An option without a value is not in a table, so that the lookups compare it as well.
        let field = |key: &String| if named.get(key) == defaults.get(key) { options.get(key) } else { named.get(key) };
        let fields = named.keys().chain(further).filter_map(|key| Some((key.clone(), self.within(field(key)?.clone()))));
        fields.collect()
    }

    fn within(&self, value: Value) -> Value {
        match value {
            Value::Table(table) => Value::Table(self.with_options(table)),
            Value::Array(values) => Value::Array(values.into_iter().map(|value| self.within(value)).collect()),
            other => other,
        }
    }
}

/// Whether an option of a family, or any of its options, changes a mechanism at a place.
///
/// # Errors
/// Why it does not.
pub(crate) fn use_of((role, attention): &(Role, AnyMechanism), family: &str, option: Option<&str>) -> Result<(), &'static str> {
    if !holds_family(&Value::Table(table(attention)), family) {
        return Err("none of its attentions is of this mechanism");
    }
    match option.and_then(|option| attention.without_effect(option, *role)) {
        Some(reason) => Err(reason),
        None => Ok(()),
    }
}

/// Whether an attention of this family stands anywhere in the table of an attention.
fn holds_family(value: &Value, family: &str) -> bool {
    match value {
        Value::Table(table) => self::family(table) == Some(family) || table.values().any(|value| holds_family(value, family)),
        Value::Array(values) => values.iter().any(|value| holds_family(value, family)),
        _ => false,
    }
}

fn table(config: &AnyMechanism) -> Table {
    Table::try_from(config).expect("options hold no integer beyond those of TOML")
}

/// The family that a table of an attention names, if it is one.
fn family(table: &Table) -> Option<&'static str> {
    known_family(table.get(NAME)?.as_str()?, |_, _| ()).ok()
}

impl Serialize for MechanismOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Options<'a>(&'a AnyMechanism);
        impl Serialize for Options<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self.0.get::<MixtureConfig>() {
                    Some(mixture) => MixtureOptions { weights: mixture.weights }.serialize(serializer),
                    None => self.0.serialize_options(serializer),
                }
            }
        }
        let mut families = serializer.serialize_map(Some(self.0.len()))?;
        for options in &self.0 {
            families.serialize_entry(options.family(), &Options(options))?;
        }
        families.end()
    }
}

impl<'de> Deserialize<'de> for MechanismOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Families;
        impl<'de> Visitor<'de> for Families {
            type Value = MechanismOptions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of options for each mechanism")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<MechanismOptions, M::Error> {
                let mut read = MechanismOptions::default();
                while let Some(Family(family)) = map.next_key()? {
                    read.set(map.next_value_seed(OptionsOf(family))?);
                }
                Ok(read)
            }
        }
        deserializer.deserialize_map(Families)
    }
}

fn known_family<E>(name: &str, refuse: impl Fn(&str, &'static [&'static str]) -> E) -> Result<&'static str, E> {
    let known = AnyMechanism::families();
    known.iter().copied().find(|family| *family == name).ok_or_else(|| refuse(name, known))
}

/// The name of a family where one is a field.
struct Family(&'static str);

impl<'de> Deserialize<'de> for Family {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        known_family(&String::deserialize(deserializer)?, de::Error::unknown_field).map(Self)
    }
}

/// Reads the options of a family.
struct OptionsOf(&'static str);

impl<'de> DeserializeSeed<'de> for OptionsOf {
    type Value = AnyMechanism;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<AnyMechanism, D::Error> {
        match self.0 {
            MIXTURE => MixtureOptions::deserialize(deserializer).map(AnyMechanism::from),
            family => AnyMechanism::deserialize_options(family, deserializer),
        }
    }
}

/// Reads an attention that is a field of a configuration: a table whose first field is `name`, or a name alone. Unlike the configuration's own
/// deserialisation, an error knows the path of its option.
///
/// # Errors
/// An unknown name or option, or a value of the wrong type.
pub fn deserialize_attention<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AnyMechanism, D::Error> {
    struct OneAttention;
    impl<'de> Visitor<'de> for OneAttention {
        type Value = AnyMechanism;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an attention: its name, or a table such as { name = \"gaussian\", window = 3 }")
        }

        fn visit_str<E: de::Error>(self, name: &str) -> Result<AnyMechanism, E> {
            name.parse().map_err(E::custom)
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<AnyMechanism, M::Error> {
            match map.next_key::<String>()?.as_deref() {
                Some(NAME) => {}
                _ => return Err(de::Error::missing_field(NAME)),
            }
            let FamilyName(family) = map.next_value()?;
            AnyMechanism::deserialize_options(family, MapAccessDeserializer::new(map))
        }
    }
    deserializer.deserialize_any(OneAttention)
}

/// The name of a family where one is a value.
struct FamilyName(&'static str);

impl<'de> Deserialize<'de> for FamilyName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        known_family(&String::deserialize(deserializer)?, de::Error::unknown_variant).map(Self)
    }
}

/// Sizes of the attentions whose parameters are counted in [`list`].
const COUNTED: LayerSpec = LayerSpec::new(Role::Encoder, 256, 4).with_max_length(256);
/// Columns of a terminal that every line of [`list`] fits in.
const COLUMNS: usize = 80;

/// Tables of all mechanisms, and how experiments set their options.
pub fn list() -> String {
    format!(
        "{}\n\
         Options: --set mechanisms.NAME.OPTION=VALUE,\n\
         e.g. --set mechanisms.synthesizer-random.trainable=false",
        tables()
    )
}

/// Tables of all mechanisms: what each does, what it can do, and what it costs.
pub fn tables() -> String {
    let device = Device::flex().autodiff();
    let (mut about, mut able, mut cost) = (Vec::new(), Vec::new(), Vec::new());
    for config in AnyMechanism::all() {
        let attention = config.init(&COUNTED, &RandomKey::from_seed(0), &device);
        let card = config.card();
        about.push(vec![config.name(), config.description().to_owned()]);
        let Abilities { cross_attention, causality, steps, max_length, .. } = attention.abilities();
        let yes = |able: bool| if able { "yes" } else { "no" }.to_owned();
        let limit = max_length.map_or_else(|| "any", |_| "L");
        let parameters = grouped(trained_parameters(&attention) as u64);
        able.push(vec![config.name(), causality.to_string(), yes(cross_attention), yes(steps), limit.to_owned(), parameters]);
        let formula = config.parameter_formula().map_or_else(|| "unknown".to_owned(), |formula| formula.to_string());
        cost.push(vec![config.name(), format!("{}; {}; {formula}", card.time, card.state)]);
    }
    let about = columns(COLUMNS, &["attention", "what it does"], about);
    let able = columns(COLUMNS, &["attention", "causal", "cross", "steps", "length", "parameters"], able);
    let cost = columns(COLUMNS, &["attention", "time; state; parameters"], cost);
    let letters = registry::letters().into_iter().map(|(letter, meaning)| vec![letter.to_owned(), meaning.to_owned()]).collect();
    let letters = columns(COLUMNS, &["letter", "meaning"], letters);
    let LayerSpec { d_model, heads, max_length, .. } = COUNTED;
    format!(
        "{about}\n\n\
         {able}\n\
         causal: how the future is hidden; cross: attends to another sequence;\n\
         steps: decodes step by step; length: longest sequence, L = model.max_length;\n\
         parameters: trained, per layer, with d = {d_model}, H = {heads}, L = {max_length}\n\n\
         {cost}\n\
         time: order for a layer and a sequence, without projections, n d^2;\n\
         state: numbers that decoding stores for a layer and a sequence\n\n\
         {letters}\n\n\
         Names joined by + are mixtures of logits, e.g. synthesizer-random+dot-product;\n\
         LOGITS@PATTERN restricts them, e.g. synthesizer-random@sparse-strided;\n\
         LOGITS@soft-cap bounds scores softly, e.g. alibi@soft-cap;\n\
         LOGITS@NORMALISER replaces the softmax, e.g. synthesizer-dense@sigmoid;\n\
         LOGITS@GATE gates the head outputs, e.g. alibi@output-gate;\n\
         LOGITS@HEADS changes how heads are built, e.g. alibi@differential."
    )
}

fn trained_parameters<A: Attention>(attention: &A) -> usize {
    struct Count(usize);
    impl ModuleVisitor for Count {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 += if param.is_require_grad() { param.shape().num_elements() } else { 0 };
        }
    }
    let mut count = Count(0);
    attention.visit(&mut count);
    count.0
}

#[cfg(test)]
mod tests {

    use super::*;

    fn random(trainable: bool, init_std: f64) -> AnyMechanism {
        AnyMechanism::from(SynthesizerRandomConfig::default().with_trainable(trainable).with_init_std(init_std))
    }

    #[test]
    fn candidates_that_comparisons_know_are_those_mechanisms() {
        use heedful_attention::mechanisms::uniform::UniformConfig;
        assert_eq!(AnyMechanism::default().name(), heedful_runs::compare::candidates::BASELINE);
        assert_eq!(UniformConfig::NAME, heedful_runs::compare::candidates::AVERAGING);
    }

    #[test]
    fn options_reach_a_mechanism_alone_and_inside_a_mixture() {
        let mut options = MechanismOptions::default();
        options.set(random(false, 1.0));
        options.set(MixtureOptions { weights: MixtureWeights::Sum }.into());
        assert_eq!(options.attention("synthesizer-random").unwrap(), random(false, 1.0));
        let mixed = options.attention("random+dot-product").unwrap();
        let mixture = mixed.get::<MixtureConfig>().expect("a name with + is a mixture");
        assert_eq!(mixture.weights, MixtureWeights::Sum);
        assert_eq!(mixture.members, [random(false, 1.0), AnyMechanism::default()]);
    }

    #[test]
    fn what_a_name_says_wins_over_the_options() {
        let mut options = MechanismOptions::default();
        options.set(random(true, 0.5));
        assert_eq!(options.attention("synthesizer-random-fixed").unwrap(), random(false, 0.5));
        assert_eq!(options.attention("synthesizer-random").unwrap(), random(true, 0.5));
    }

    #[test]
    fn options_without_a_value_take_one_and_numbers_that_are_none_are_kept_for_validation() {
        let mut options = MechanismOptions::default();
        let offsets = GaussianConfig::default().with_offsets(vec![-2.0, 2.0]);
        options.set(AnyMechanism::from(offsets.clone()));
        assert_eq!(options.attention("gaussian").unwrap(), AnyMechanism::from(offsets));
        options.set(random(true, f64::NAN));
        let named = options.attention("synthesizer-random").unwrap();
        assert!(named.validate(&COUNTED).unwrap_err().to_string().contains("init_std"));
    }

    #[test]
    fn without_options_every_name_is_what_it_says() {
        let options = MechanismOptions::default();
        for config in AnyMechanism::all() {
            assert_eq!(options.attention(&config.name()).unwrap(), config);
        }
        assert!(matches!(options.attention("linear"), Err(ConfigError::UnknownAttention { .. })));
    }

    #[test]
    fn every_family_is_written_with_all_of_its_options_and_read_again() {
        let mut options = MechanismOptions::default();
        options.set(random(false, 0.25));
        options.set(MixtureOptions { weights: MixtureWeights::Sigmoid }.into());
        let text = toml::to_string(&options).unwrap();
        for family in AnyMechanism::families() {
            // A table of nothing but a table has no line of its own.
            let begins = [format!("[{family}]"), format!("[{family}.")];
            assert!(begins.iter().any(|line| text.contains(line)), "{family} is missing in\n{text}");
        }
        assert!(text.contains("init_std = 0.25") && text.contains("weights = \"sigmoid\"") && !text.contains("members"), "{text}");
        assert_eq!(toml::from_str::<MechanismOptions>(&text).unwrap(), options);
        assert_eq!(toml::from_str::<MechanismOptions>("").unwrap(), MechanismOptions::default());
    }

    #[test]
    fn unknown_families_and_options_are_refused() {
        let refused = |text: &str| toml::from_str::<MechanismOptions>(text).unwrap_err().to_string();
        assert!(refused("[gausian]\nwindow = 3").contains("gausian"));
        assert!(refused("[gaussian]\nwidow = 3").contains("widow"));
        assert!(refused("[mixture]\nmembers = []").contains("members"));
    }

    #[test]
    fn the_list_names_every_mechanism_and_fits_a_terminal() {
        let list = list();
        for config in AnyMechanism::all() {
            assert!(list.contains(&config.name()), "{} is missing", config.name());
        }
        assert!(!list.contains("unknown"), "{list}");
        for line in list.lines() {
            assert!(line.len() <= COLUMNS, "too wide: {line}");
        }
    }

    #[test]
    fn the_last_column_is_broken_where_a_line_is_full() {
        let long = "word ".repeat(20);
        let table = columns(COLUMNS, &["a", "b"], vec![vec!["name".to_owned(), long.trim_end().to_owned()]]);
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines[0], "a     b");
        assert!(lines[1].starts_with("name  word") && lines[2].starts_with("      word"), "{table}");
        assert_eq!(table.matches("word").count(), 20);
    }
}
