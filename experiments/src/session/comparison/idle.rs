//! Mechanisms without an effect on the training data: a window as long as every sequence hides no key, so that a comparison with full attention compares a
//! model with itself.
//!
//! Hidden pairs are counted at the lengths of the training sequences, whatever the maximal length of the model. [`AnyMechanism::idle`] reports the other
//! effects that a mechanism lacks on short sequences. Default sizes without an effect are refused; sizes that someone has chosen are reported.

mod masked_pairs;

use std::cell::RefCell;
use std::collections::BTreeMap;

use burn::tensor::Device;
use heedful_attention::prelude::*;
use serde_json::{Map, Value, json};

use self::masked_pairs::Hidden;
use crate::session::error::ExperimentError;
use crate::session::experiment::TrainingLengths;
use crate::session::experiment::definition::{Candidate, Experiment, Setup};

/// A pattern that hides a smaller share of the pairs is told of.
const LITTLE: f64 = 0.01;
const ROLES: [Role; 3] = [Role::Encoder, Role::Decoder, Role::Cross];

/// What reports say of a candidate on a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) candidate: String,
    pub(super) dataset: String,
    pub(super) sentence: String,
}

/// An option, and a value for it.
type Given = (&'static str, Value);

/// What a mechanism does not do on the training data.
struct Vacuity {
    /// Whether it does nothing of what it is for.
    is_idle: bool,
    /// In words that follow the mechanism's name.
    what: String,
    /// The sizes that it comes from.
    sizes: &'static [&'static str],
}

/// What is wrong with a mechanism of a candidate.
struct Finding {
    is_idle: bool,
    /// In words that follow the mechanism's name.
    what: String,
    family: &'static str,
    sizes: Vec<Given>,
    lengths: String,
    /// Where nobody has chosen the sizes: smaller ones with which it does something, if there are such.
    of_default: Option<Option<Vec<Given>>>,
}

impl Finding {
    fn sentence(&self, candidate: &str, dataset: &str) -> String {
        let Self { family, what, lengths, .. } = self;
        let shown = |(option, value): &Given| if value.is_null() { (*option).to_owned() } else { format!("{option} = {value}") };
        let sizes: Vec<_> = self.sizes.iter().map(shown).collect();
        format!("`{candidate}`: on the training data of {dataset}, sequences of {lengths}, {family} {what} with {}", sizes.join(", "))
    }

    /// What to do where sizes that nobody has chosen do nothing.
    fn refusal(&self, candidate: &str, smaller: Option<&[Given]>) -> String {
        let family = self.family;
        let remedy = match smaller {
            Some(smaller) => {
                let options: Vec<_> = smaller.iter().map(|(option, value)| format!("--set mechanisms.{family}.{option}={value}")).collect();
                format!("give smaller sizes, such as {}", options.join(" "))
            }
            None => "the sequences are too short for any; give longer ones".to_owned(),
        };
        format!("these sizes are defaults, and the rows would not test {family}; {remedy}, or leave `{candidate}` out")
    }
}

/// Refuses candidates of which a mechanism does nothing by default, and says what does nothing because someone wants it so.
///
/// # Errors
/// A usage error that names the candidate, the sizes, the lengths and the remedy.
pub(super) fn check<E: Experiment>(candidates: &[Candidate<E>], datasets: &[E::Data]) -> Result<Vec<Remark>, ExperimentError> {
    let found = found::<E>(candidates, datasets);
    for (candidate, dataset, finding) in &found {
        if let Some(smaller) = finding.of_default.as_ref().filter(|_| finding.is_idle) {
            let refusal = finding.refusal(candidate, smaller.as_deref());
            return Err(ExperimentError::usage(format!("{}; {refusal}", finding.sentence(candidate, dataset))));
        }
    }
    Ok(found.into_iter().map(remark).collect())
}

/// The same of what was accepted before, of which nothing is refused.
pub(super) fn remarks<E: Experiment>(candidates: &[Candidate<E>], datasets: &[E::Data]) -> Vec<Remark> {
    found::<E>(candidates, datasets).into_iter().map(remark).collect()
}

fn remark((candidate, dataset, finding): (String, String, Finding)) -> Remark {
    let sentence = match finding.is_idle {
        true => format!("{}; its rows say nothing of what {} is for", finding.sentence(&candidate, &dataset), finding.family),
        false => finding.sentence(&candidate, &dataset),
    };
    Remark { candidate, dataset, sentence }
}

fn found<E: Experiment>(candidates: &[Candidate<E>], datasets: &[E::Data]) -> Vec<(String, String, Finding)> {
    let mut found = Vec::new();
    for dataset in datasets {
        let name = E::card(dataset).name;
        for Candidate { attention, config, .. } in candidates.iter().filter(|candidate| candidate.weights_of.is_none()) {
            let places = Places::of::<E>(Setup { config, data: dataset, attention });
            found.extend(places.findings(&attention.name).into_iter().map(|finding| (attention.name.clone(), name.clone(), finding)));
        }
    }
    found
}

/// A layer, its mechanism as it is built, and as it was chosen.
type Place<'a> = (LayerSpec, &'a AnyMechanism, &'a AnyMechanism);

/// The attentions of a model on a data set.
pub(super) struct Places {
    lengths: TrainingLengths,
    /// As the configuration has them.
    chosen: TrainingLengths,
    heads: usize,
    layers: usize,
    roles: Vec<Role>,
    /// What the patterns hide that were looked at, by role and pattern: layers that have the same one hide the same.
    looked_at: RefCell<BTreeMap<String, Hidden>>,
}

impl Places {
    pub(super) fn of<E: Experiment>(setup: Setup<'_, E>) -> Self {
        let lengths = E::lengths(setup);
        let chosen = TrainingLengths::new(&setup.attention.layout, lengths.max_length);
        let has_stacks = E::STACKS > 1;
        let is_there = |role: &Role| !lengths.of(*role).is_empty() && (*role != Role::Cross || has_stacks);
        let has_attention = !E::attentions(setup.attention).is_empty();
        let roles = ROLES.into_iter().filter(|role| has_attention && is_there(role)).collect();
        let sizes = E::sizes(setup.config);
        Self { lengths, chosen, heads: sizes.heads.max(1), layers: sizes.layers, roles, looked_at: RefCell::default() }
    }

    /// Each place, with the mechanism that a model has there and the one that the configuration has.
    fn all(&self) -> impl Iterator<Item = Place<'_>> {
        let places = self.roles.iter().flat_map(|role| (0..self.layers).map(move |layer| (*role, layer)));
        places.filter_map(|(role, layer)| {
            let mut place = LayerSpec::new(role, 2 * self.heads, self.heads).with_max_length(self.lengths.max_length);
            (place.layer, place.layers) = (layer, self.layers);
            let is_there = role != Role::Cross || self.lengths.layout.cross.at(layer, self.layers).is_some();
            is_there.then(|| (place, self.lengths.layout.at(&place), self.chosen.layout.at(&place)))
        })
    }

    /// One finding for each mechanism that does nothing, or hides hardly anything, in all of its places.
    fn findings(&self, candidate: &str) -> Vec<Finding> {
        // Factors that layers have in turn are looked at together.
        let mut places: Vec<(String, Vec<LayerSpec>, &AnyMechanism, &AnyMechanism)> = Vec::new();
        for (place, built, chosen) in self.all() {
            for (built, chosen) in with_members(built).into_iter().zip(with_members(chosen)) {
                let key = format!("{:?} {built:?}", place.role);
                match places.iter_mut().find(|(other, ..)| *other == key) {
                    Some((_, own, ..)) => own.push(place),
                    None => places.push((key, vec![place], built, chosen)),
                }
            }
        }
        places.into_iter().filter_map(|(_, own, built, chosen)| self.finding(candidate, &own, built, chosen)).collect()
    }

    /// Of a mechanism in its places, as it is built and as it was chosen.
    fn finding(&self, candidate: &str, places: &[LayerSpec], built: &AnyMechanism, chosen: &AnyMechanism) -> Option<Finding> {
        let counts = self.lengths.of(places.first()?.role);
        let (shortest, longest) = (counts.keys().next()?, counts.keys().next_back()?);
        if let Some(share) = self.hidden(built, places) {
            tracing::info!("{candidate}: {} hides {:.1} % of the pairs of queries and keys", built.family(), 100.0 * share);
        }
        let Vacuity { is_idle, what, sizes } = self.vacuity(built, places)?;
        let (set, of_family) = (options(chosen), options(&AnyMechanism::of_family(chosen.family())?));
        let is_set = |option: &str| set.get(option).is_some_and(|value| !value.is_null() && Some(value) != of_family.get(option));
        let (first, others) = sizes.split_first()?;
        // Whoever sets another size than the first has chosen what no value of the first would change.
        let of_default = (is_idle && !is_set(first))
            .then(|| self.smaller(built, places, &is_set))
            .filter(|smaller| smaller.is_some() || !others.iter().any(|option| is_set(option)));
        let options = options(&built.resolved(self.lengths.max_length));
        let sizes = sizes.iter().map(|option| (*option, options.get(*option).cloned().unwrap_or_default())).collect();
        let lengths = if shortest == longest { format!("{longest} positions") } else { format!("{shortest} to {longest} positions") };
        Some(Finding { is_idle, what, family: built.family(), sizes, lengths, of_default })
    }

    /// What a mechanism does not do in these places, if there is anything.
    fn vacuity(&self, mechanism: &AnyMechanism, places: &[LayerSpec]) -> Option<Vacuity> {
        match self.hidden(mechanism, places) {
            Some(share) if share >= LITTLE => None,
            Some(share) => {
                let little = format!("hides {:.2} % of the pairs of queries and keys", 100.0 * share);
                let what = if share > 0.0 { little } else { "hides no key that is seen without it".to_owned() };
                Some(Vacuity { is_idle: share == 0.0, what, sizes: mechanism.sizes() })
            }
            None => {
                let place = places.first()?;
                let idle = mechanism.idle(place, *self.lengths.of(place.role).keys().next_back()?)?;
                Some(Vacuity { is_idle: true, what: idle.what.to_owned(), sizes: idle.sizes })
            }
        }
    }

    /// Smaller sizes than those that nobody has set, with which a mechanism that is idle does something.
    fn smaller(&self, mechanism: &AnyMechanism, places: &[LayerSpec], is_set: &dyn Fn(&str) -> bool) -> Option<Vec<Given>> {
        let (first, others) = self.vacuity(mechanism, places)?.sizes.split_first()?;
        let place = places.first()?;
        let resolved = options(&mechanism.resolved(place.max_length));
        let is_pair = |option: &str| resolved.get(option).is_some_and(Value::is_array);
        let quarter = (self.lengths.of(place.role).keys().next_back()? / 4).max(2);
        let halved = std::iter::successors(Some(quarter), |size| (*size > 2).then(|| (size / 2).max(2)));
        let sizes: Vec<Value> = if is_pair(first) { vec![json!([1, 2]), json!([1, 1])] } else { halved.map(|size| json!(size)).collect() };
        let least = |option: &'static str| (option, if is_pair(option) { json!([1, 1]) } else { json!(1) });
        let others: Vec<Given> = others.iter().filter(|option| !is_set(option)).map(|option| least(option)).collect();
        // Sizes that follow the first, and then the least.
        let tried = sizes.iter().flat_map(|size| [&[][..], &others].map(|others| [&[(*first, size.clone())], others].concat()));
        for given in tried {
            let mut options = options(mechanism);
            options.extend(given.iter().map(|(option, value)| ((*option).to_owned(), value.clone())));
            let Ok(smaller) = serde_json::from_value::<AnyMechanism>(Value::Object(options)) else { continue };
            if places.iter().any(|place| smaller.validate(place).is_err()) {
                continue;
            }
            match self.vacuity(&smaller, places) {
                None => return Some(given),
                // Something else makes it idle now, which someone has chosen or which has a remedy of its own.
                Some(next) if next.is_idle && next.sizes.first() != Some(first) => match next.sizes.first() {
                    Some(next) if is_set(next) => return Some(given),
                    _ => {
                        let further = self.smaller(&smaller, places, &|option| option == *first || is_set(option));
                        if let Some(further) = further {
                            return Some([given, further].concat());
                        }
                    }
                },
                Some(_) => {}
            }
        }
        None
    }

    /// The share of the pairs of queries and keys that a pattern hides in these places; none of what is no pattern.
    fn hidden(&self, mechanism: &AnyMechanism, places: &[LayerSpec]) -> Option<f64> {
        let (mut hidden, mut all) = (0.0, 0.0);
        for place in places {
            let logits = alone(mechanism, place)?;
            let of_place = self.hidden_by(&logits, place.role)?;
            hidden += of_place.hidden;
            all += of_place.all;
        }
        (all > 0.0).then(|| hidden / all)
    }

    /// What the pattern of logits hides.
    fn hidden_by(&self, logits: &AnyLogits, role: Role) -> Option<Hidden> {
        let pattern = logits.pattern()?;
        let look = || Hidden::by(pattern, role, self.heads, self.lengths.of(role), self.lengths.first_query(role));
        Some(self.looked_at.borrow_mut().entry(format!("{role:?} {pattern:?}")).or_insert_with(look).clone())
    }

    /// What the mechanisms compute on these lengths: the same for two models where only options differ that change nothing there.
    pub(super) fn computed(&self) -> Vec<Value> {
        self.all().map(|(place, mechanism, _)| json!([format!("{:?}", place.role), self.computed_by(mechanism, &place)])).collect()
    }

    fn computed_by(&self, mechanism: &AnyMechanism, place: &LayerSpec) -> Value {
        let logits = mechanism.members().first().copied();
        if let (Some(over), Some(scores)) = (alone(mechanism, place), logits)
            && let Some(hidden) = self.hidden_by(&over, place.role)
        {
            let inner = self.computed_by(scores, place);
            // Where positions are those inside a cache, scores of what is seen differ as well.
            let cache = over.cache().filter(|_| *scores != AnyMechanism::default()).map(|_| mechanism.family());
            let hides = hidden.hidden > 0.0;
            return if hides { json!({ "pattern": hidden.digests, "cache": cache, "logits": inner }) } else { inner };
        }
        let idle = self.lengths.of(place.role).keys().next_back().and_then(|longest| mechanism.idle(place, *longest));
        let mut options = options(&mechanism.resolved(place.max_length));
        idle.iter().flat_map(|idle| idle.options).for_each(|option| drop(options.remove(*option)));
        Value::Object(options.into_iter().map(|(option, value)| (option, self.computed_within(value, place))).collect())
    }

    /// The same of the mechanisms within the value of an option.
    fn computed_within(&self, value: Value, place: &LayerSpec) -> Value {
        match value {
            Value::Array(values) => values.into_iter().map(|value| self.computed_within(value, place)).collect(),
            Value::Object(_) => match serde_json::from_value::<AnyMechanism>(value.clone()) {
                Ok(mechanism) => self.computed_by(&mechanism, place),
                Err(_) => value,
            },
            other => other,
        }
    }
}

/// A mechanism, and those that its options hold, at any depth.
fn with_members(mechanism: &AnyMechanism) -> Vec<&AnyMechanism> {
    let mut all = vec![mechanism];
    mechanism.members().into_iter().for_each(|member| all.extend(with_members(member)));
    all
}

/// The logits of a pattern over dot-product attention in a small model; none of what is no pattern.
fn alone(mechanism: &AnyMechanism, place: &LayerSpec) -> Option<AnyLogits> {
    let is_pattern = mechanism.card().kind == Kind::Pattern && place.role != Role::Cross;
    let over = is_pattern.then(|| mechanism.over(AnyMechanism::default())).flatten()?;
    over.init_logits(place, &RandomKey::from_seed(0), &Device::flex())
}

fn options(mechanism: &AnyMechanism) -> Map<String, Value> {
    match serde_json::to_value(mechanism) {
        Ok(Value::Object(options)) => options,
        _ => unreachable!("the options of a mechanism are a table"),
    }
}

#[cfg(test)]
mod tests {
    mod equal_candidates;

    use super::*;
    use crate::session::comparison::candidate::{self, twins};
    use crate::tasks::language::Language;
    use crate::tasks::translation::Translation;

    fn of<E: Experiment>(names: &[&str], options: &[&str]) -> (Vec<Candidate<E>>, Vec<E::Data>) {
        let (settings, candidates) = candidate::tests::of::<E>(names, options);
        (candidates, E::open(&settings.value).unwrap())
    }

    fn checked<E: Experiment>(name: &str, options: &[&str]) -> Result<Vec<String>, String> {
        let (candidates, datasets) = of::<E>(&[name], options);
        let remarks = check::<E>(&candidates, &datasets).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })?;
        Ok(remarks.into_iter().map(|remark| remark.sentence).collect())
    }

    const SHORT: [&str; 2] = ["data.context=8", "data.stride=8"];

    #[test]
    fn what_does_nothing_by_default_is_refused_and_told_where_someone_wants_it() {
        for (name, own, parts) in [
            ("sliding-window", "sliding-window{window=20}", ["window = ", "hides no key", "--set mechanisms.sliding-window.window=2"]),
            ("local-1d", "local-1d{query_block=9}", ["query_block = ", "hides no key", "--set mechanisms.local-1d.query_block=2"]),
            ("lsh", "lsh{chunk=32}", ["chunk = ", "hashes nothing", "--set mechanisms.lsh.chunk=2"]),
        ] {
            // Models may have 64 positions, and the text comes in eights.
            let refused = checked::<Language>(name, &SHORT).unwrap_err();
            let named = refused.starts_with(&format!("`{name}`: on the training data of built-in, sequences of 8 positions"));
            assert!(named && parts.iter().all(|part| refused.contains(part)), "{refused}");
            let [told] = &checked::<Language>(own, &SHORT).unwrap()[..] else { panic!("{own} is not told") };
            assert!(told.starts_with(&format!("`{own}`")) && told.contains(parts[1]), "{told}");
        }
        // What is hashed into one chunk is not said to be hashed not at all.
        let one_chunk = checked::<Language>("lsh{chunk=32,bucket_mask=false,full_attention_below=1}", &SHORT).unwrap();
        assert!(one_chunk[0].contains("one chunk holds all positions") && !one_chunk[0].contains("hashes nothing"), "{one_chunk:?}");
        // An option of the command is a choice as well, and so is the same mechanism over other scores.
        let set = [&SHORT[..], &["mechanisms.sliding-window.window=30"]].concat();
        assert!(checked::<Language>("relative@sliding-window", &set).unwrap()[0].contains("window = 30"));
    }

    #[test]
    fn every_remedy_of_a_refusal_is_accepted_without_a_word() {
        let is_pattern_or_sized = |mechanism: &AnyMechanism| !mechanism.sizes().is_empty();
        let mut refused = Vec::new();
        for length in [2, 3, 4, 7, 8, 11] {
            let lengths = [format!("data.context={length}"), format!("data.stride={length}"), "model.max_length=256".to_owned()];
            let lengths: Vec<&str> = lengths.iter().map(String::as_str).collect();
            for mechanism in AnyMechanism::all().iter().filter(|mechanism| is_pattern_or_sized(mechanism)) {
                let (name, sizes) = (mechanism.name(), mechanism.sizes());
                if mechanism.validate(&LayerSpec::new(Role::Decoder, 8, 2)).is_err() {
                    continue;
                }
                let Err(refusal) = checked::<Language>(&name, &lengths) else { continue };
                let remedies: Vec<&str> = refusal.split("--set ").skip(1).map(|part| part.split([' ', ';']).next().unwrap()).collect();
                let remedies: Vec<&str> = remedies.into_iter().map(|remedy| remedy.trim_end_matches(',')).collect();
                if remedies.is_empty() {
                    // Two positions are too short for any size, and three for a stride of two.
                    assert!(length <= 3 && refusal.contains("too short"), "{name}, {length}: {refusal}");
                    continue;
                }
                assert!(remedies.len() <= sizes.len(), "{refusal}");
                let options = [&lengths[..], &remedies].concat();
                assert_eq!(checked::<Language>(&name, &options), Ok(Vec::new()), "{name}, {length}: {refusal}");
                refused.push(name);
            }
        }
        for name in [
            "sliding-window",
            "streaming-llm",
            "local-1d",
            "local-2d",
            "sparse-strided",
            "sparse-fixed",
            "lsh",
            "lsh-random",
            "aft",
            "aft-local",
        ] {
            assert!(refused.iter().any(|refused| refused == name), "{name} is never refused");
        }
    }

    #[test]
    fn a_default_that_does_nothing_is_refused_beside_other_sizes_that_someone_has_set() {
        for (name, remedy) in [
            ("streaming-llm{sinks=2}", "mechanisms.streaming-llm.window=2"),
            ("local-1d{memory_block=3}", "mechanisms.local-1d.query_block=2"),
            ("sparse-fixed{summary=1}", "mechanisms.sparse-fixed.stride=2"),
            ("aft-local{window=2}", "mechanisms.aft.rank=2"),
        ] {
            let refused = checked::<Language>(name, &[&SHORT[..], &["model.max_length=256"]].concat()).unwrap_err();
            assert!(refused.contains(&format!("--set {remedy}, or leave `{name}` out")), "{refused}");
        }
        // Sizes that do nothing whatever the first is are a choice.
        for name in ["streaming-llm{sinks=8}", "local-1d{memory_block=8}", "lsh{full_attention_below=64}", "adaptive-span-fixed{initial=1}"]
        {
            assert_eq!(checked::<Language>(name, &SHORT).map(|told| told.len()), Ok(1), "{name}");
        }
    }

    #[test]
    fn layers_with_the_same_pattern_are_looked_at_once() {
        for (name, patterns) in [("sparse-strided{stride=2}", 1), ("sparse-strided{stride=2,integration=interleaved}", 2)] {
            let (candidates, datasets) = of::<Language>(&[name], &["model.layers=6"]);
            let Candidate { attention, config, .. } = &candidates[0];
            let places = Places::of::<Language>(Setup { config, data: &datasets[0], attention });
            assert_eq!((places.findings(name).len(), places.computed().len()), (0, 6));
            assert_eq!(places.looked_at.borrow().len(), patterns, "{name}");
        }
    }

    #[test]
    fn what_hides_something_is_accepted_and_what_hides_little_is_told() {
        for name in ["dot-product", "sliding-window{window=4}", "local-1d{query_block=2}", "sparse-strided{stride=2}", "lsh{chunk=2}"] {
            assert_eq!(checked::<Language>(name, &SHORT), Ok(Vec::new()), "{name}");
        }
        let little = checked::<Language>("sliding-window{window=63}", &[]).unwrap();
        assert!(little[0].contains("hides 0.05 % of the pairs of queries and keys with window = 63"), "{little:?}");
        // Factors that layers have in turn: one of them alone hides keys.
        let in_turn = "sparse-strided{stride=7,integration=interleaved}";
        assert_eq!(checked::<Language>(in_turn, &SHORT), Ok(Vec::new()));
        // A memory lengthens what is looked over.
        let with_memory = [&SHORT[..], &["data.memory=8", "model.positions=none"]].concat();
        assert_eq!(checked::<Language>("relative@sliding-window{window=9}", &with_memory), Ok(Vec::new()));
        assert_eq!(checked::<Language>("relative@sliding-window{window=16}", &with_memory).unwrap().len(), 1);
    }

    #[test]
    fn lengths_are_those_of_the_data_and_not_the_greatest_of_the_model() {
        let options = ["model.max_length=512", "data.generated_pairs=50"];
        let refused = checked::<Translation>("{encoder=linformer,decoder=dot-product,cross=dot-product}", &options);
        let [told] = &checked::<Translation>("{encoder=linformer{rank=128},decoder=dot-product,cross=dot-product}", &options).unwrap()[..]
        else {
            panic!("rank 128 is not told")
        };
        assert!(told.contains("rank = 128") && told.contains("as many slots"), "{told}");
        // A default that the length of the model has made.
        let refused = refused.err().unwrap_or_else(|| "accepted".to_owned());
        assert!(refused.contains("rank") && refused.contains("--set mechanisms.linformer.rank="), "{refused}");
    }

    #[test]
    fn candidates_that_compute_the_same_on_the_data_are_named() {
        let names = [
            "dot-product",
            "sliding-window{window=20}",
            "sliding-window{window=3}",
            "local-1d{query_block=9}",
            "lsh",
            "lsh-random",
            "lsh{chunk=32}",
            "relative",
            "relative@sliding-window{window=3}",
            "sliding-window{window=3,execution=masked}",
        ];
        let (candidates, datasets) = of::<Language>(&names, &SHORT);
        let found = twins::<Language>(&candidates, &datasets).unwrap();
        let begins = |text: &str| found.iter().filter(|sentence| sentence.starts_with(text)).count();
        assert_eq!(begins("dot-product, sliding-window{window=20} and local-1d{query_block=9} compute the same"), 1, "{found:?}");
        assert_eq!(begins("lsh, lsh-random and lsh{chunk=32} compute the same"), 1, "{found:?}");
        assert_eq!(begins("sliding-window{window=3} and sliding-window{window=3,execution=masked} compute the same"), 1, "{found:?}");
        assert_eq!(found.len(), 3, "{found:?}");
        // They differ on longer sequences.
        let (candidates, datasets) = of::<Language>(&names[..4], &[]);
        assert_eq!(twins::<Language>(&candidates, &datasets).unwrap(), [""; 0]);
        // Blocks and windows of the same size see the same from the last position of a block alone.
        for (length, size) in [(1024, 2), (4096, 8)] {
            let long = [format!("data.context={length}"), format!("data.stride={length}"), format!("model.max_length={length}")];
            let names = [format!("local-1d{{query_block={size},memory_block=0}}"), format!("sliding-window{{window={size}}}")];
            let (names, long): (Vec<&str>, Vec<&str>) =
                (names.iter().map(String::as_str).collect(), long.iter().map(String::as_str).collect());
            let (candidates, datasets) = of::<Language>(&names, &long);
            assert_eq!(twins::<Language>(&candidates, &datasets).unwrap(), [""; 0]);
        }
    }
}
