//! Mechanisms that do nothing on the training data: a window as long as every sequence hides no key, and its comparison with attention to all keys is one of a
//! thing with itself.
//!
//! What patterns hide is counted on the lengths of the training sequences, whatever the greatest length of the model is; what else a mechanism does not do on
//! short sequences it says itself ([`AnyMechanism::idle`]). Sizes that nobody has chosen are refused if they do nothing, and those that someone has are told.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use burn::tensor::Device;
use heedful_attention::logits::Logits;
use heedful_attention::pattern::Pattern;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::random::RandomKey;
use heedful_attention::registry::{AnyMechanism, Kind};
use serde_json::{Map, Value, json};

use crate::error::ExperimentError;
use crate::experiment::TrainingLengths;
use crate::experiment::definition::{Candidate, Experiment, Setup};

/// Most positions of a sequence whose pairs are looked at.
const SAMPLED: usize = 512;
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

/// What is wrong with a mechanism of a candidate.
struct Finding {
    /// Whether someone has chosen the sizes.
    is_chosen: bool,
    is_idle: bool,
    /// In words that follow the mechanism's name.
    what: String,
    family: &'static str,
    sizes: Vec<(&'static str, Value)>,
    lengths: String,
    longest: usize,
}

impl Finding {
    fn sizes(&self) -> String {
        let shown = |(option, value): &(&str, Value)| if value.is_null() { (*option).to_owned() } else { format!("{option} = {value}") };
        self.sizes.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    fn sentence(&self, candidate: &str, dataset: &str) -> String {
        let Self { family, what, lengths, .. } = self;
        format!("`{candidate}`: on the training data of {dataset}, sequences of {lengths}, {family} {what} with {}", self.sizes())
    }

    fn remedy(&self) -> String {
        let Self { family, sizes, longest, .. } = self;
        let (option, value) = &sizes[0];
        let example = match value {
            Value::Array(_) => "[1,2]".to_owned(),
            _ => (longest / 4).max(1).to_string(),
        };
        format!(
            "nobody has set these sizes, and its comparison with attention to all positions would be one of a thing with itself; give a smaller one, such as \
             --set mechanisms.{family}.{option}={example}, or leave it out"
        )
    }
}

/// Refuses candidates of which a mechanism does nothing by default, and says what does nothing because someone wants it so.
///
/// # Errors
/// A usage error that names the candidate, the sizes, the lengths and the remedy.
pub(super) fn check<E: Experiment>(candidates: &[Candidate<E>], datasets: &[E::Data]) -> Result<Vec<Remark>, ExperimentError> {
    let found = found::<E>(candidates, datasets);
    for (candidate, dataset, finding) in &found {
        if finding.is_idle && !finding.is_chosen {
            return Err(ExperimentError::usage(format!("{}; {}", finding.sentence(candidate, dataset), finding.remedy())));
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
type Place<'a> = (Placement, &'a AnyMechanism, &'a AnyMechanism);

/// The attentions of a model on a data set.
pub(super) struct Places {
    lengths: TrainingLengths,
    /// As the configuration has them.
    chosen: TrainingLengths,
    heads: usize,
    layers: usize,
    roles: Vec<Role>,
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
        Self { lengths, chosen, heads: sizes.heads.max(1), layers: sizes.layers, roles }
    }

    /// Each place, with the mechanism that a model has there and the one that the configuration has.
    fn all(&self) -> impl Iterator<Item = Place<'_>> {
        let places = self.roles.iter().flat_map(|role| (0..self.layers).map(move |layer| (*role, layer)));
        places.filter_map(|(role, layer)| {
            let mut place = Placement::new(role, 2 * self.heads, self.heads).with_max_length(self.lengths.max_length);
            (place.layer, place.layers) = (layer, self.layers);
            let is_there = role != Role::Cross || self.lengths.layout.cross.at(layer, self.layers).is_some();
            is_there.then(|| (place, self.lengths.layout.at(&place), self.chosen.layout.at(&place)))
        })
    }

    /// One finding for each mechanism that does nothing, or hides hardly anything, in all of its places.
    fn findings(&self, candidate: &str) -> Vec<Finding> {
        // Factors that layers have in turn are looked at together.
        let mut places: Vec<(String, Vec<Place>)> = Vec::new();
        for (place, built, chosen) in self.all() {
            for (built, chosen) in with_members(built).into_iter().zip(with_members(chosen)) {
                let key = format!("{:?} {built:?}", place.role);
                match places.iter_mut().find(|(other, _)| *other == key) {
                    Some((_, own)) => own.push((place, built, chosen)),
                    None => places.push((key, vec![(place, built, chosen)])),
                }
            }
        }
        places.into_iter().filter_map(|(_, own)| self.finding(candidate, &own)).collect()
    }

    fn finding(&self, candidate: &str, places: &[Place]) -> Option<Finding> {
        let (place, built, chosen) = places.first()?;
        let counts = self.lengths.of(place.role);
        let (&shortest, &longest) = (counts.keys().next()?, counts.keys().next_back()?);
        let (is_idle, what) = match self.hidden(places) {
            Some(share) => {
                tracing::info!("{candidate}: {} hides {:.1} % of the pairs of queries and keys", built.family(), 100.0 * share);
                match share {
                    0.0 => (true, "hides no key that is seen without it".to_owned()),
                    share if share < LITTLE => (false, format!("hides {:.2} % of the pairs of queries and keys", 100.0 * share)),
                    _ => return None,
                }
            }
            None => (true, built.idle(place, longest)?.what.to_owned()),
        };
        let (options, set) = (options(&built.resolved(self.lengths.max_length)), self::options(chosen));
        let of_family = self::options(&AnyMechanism::of_family(chosen.family())?);
        let is_chosen = |option: &&str| set.get(*option).is_some_and(|value| !value.is_null() && Some(value) != of_family.get(*option));
        let sizes: Vec<_> = built.sizes().iter().map(|option| (*option, options.get(*option).cloned().unwrap_or_default())).collect();
        if sizes.is_empty() {
            return None;
        }
        let lengths = if shortest == longest { format!("{longest} positions") } else { format!("{shortest} to {longest} positions") };
        let (family, is_chosen) = (built.family(), built.sizes().iter().any(is_chosen));
        Some(Finding { is_chosen, is_idle, what, family, sizes, lengths, longest })
    }

    /// The share of the pairs of queries and keys that a pattern hides in these places; none of what is no pattern.
    fn hidden(&self, places: &[Place]) -> Option<f64> {
        let (mut hidden, mut all) = (0.0, 0.0);
        for (place, mechanism, _) in places {
            let logits = alone(mechanism, place)?;
            let pattern = logits.pattern()?;
            let heads = if pattern.depends_on_head() { self.heads } else { 1 };
            visit(pattern, place.role, heads, self.lengths.of(place.role), self.lengths.first_query(place.role), |weight, is_seen, _| {
                all += weight;
                hidden += if is_seen { 0.0 } else { weight };
            });
        }
        (all > 0.0).then(|| hidden / all)
    }

    /// What the mechanisms compute on these lengths: the same for two models where only options differ that change nothing there.
    pub(super) fn computed(&self) -> Vec<Value> {
        self.all().map(|(place, mechanism, _)| json!([format!("{:?}", place.role), self.computed_by(mechanism, &place)])).collect()
    }

    fn computed_by(&self, mechanism: &AnyMechanism, place: &Placement) -> Value {
        let logits = mechanism.members().first().copied();
        if let (Some(over), Some(scores)) = (alone(mechanism, place), logits)
            && let Some(pattern) = over.pattern()
        {
            let inner = self.computed_by(scores, place);
            let (mut hash, mut hides) = (DefaultHasher::new(), false);
            visit(
                pattern,
                place.role,
                self.heads,
                self.lengths.of(place.role),
                self.lengths.first_query(place.role),
                |_, is_seen, pair| {
                    if !is_seen {
                        hides = true;
                        pair.hash(&mut hash);
                    }
                },
            );
            // Where positions are those inside a cache, scores of what is seen differ as well.
            let cache = over.cache().filter(|_| *scores != AnyMechanism::default()).map(|_| mechanism.family());
            return if hides { json!({ "pattern": hash.finish(), "cache": cache, "logits": inner }) } else { inner };
        }
        let idle = self.lengths.of(place.role).keys().next_back().and_then(|longest| mechanism.idle(place, *longest));
        let mut options = options(&mechanism.resolved(place.max_length));
        idle.iter().flat_map(|idle| idle.options).for_each(|option| drop(options.remove(*option)));
        Value::Object(options.into_iter().map(|(option, value)| (option, self.computed_within(value, place))).collect())
    }

    /// The same of the mechanisms within the value of an option.
    fn computed_within(&self, value: Value, place: &Placement) -> Value {
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
fn alone(mechanism: &AnyMechanism, place: &Placement) -> Option<heedful_attention::registry::AnyLogits> {
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

/// Shows `take` pairs of a query and a key that causality does not hide: how many training sequences have it, whether the pattern shows it, and head and positions.
/// Positions of long sequences are looked at in steps.
fn visit(
    pattern: &dyn Pattern,
    role: Role,
    heads: usize,
    lengths: &BTreeMap<usize, usize>,
    first_query: usize,
    mut take: impl FnMut(f64, bool, (usize, usize, usize)),
) {
    let longest = lengths.keys().next_back().copied().unwrap_or_default();
    let step = longest.saturating_sub(first_query).div_ceil(SAMPLED).max(1);
    // The pairs whose later position is `last` are those that a sequence has more than one of `last` positions.
    for last in (first_query..longest).rev().step_by(step) {
        let weight = lengths.range(last + 1..).map(|(_, count)| *count).sum::<usize>() as f64;
        for head in 0..heads {
            for other in 0..=last {
                take(weight, pattern.sees(head, last, other), (head, last, other));
                if role == Role::Encoder && other < last {
                    take(weight, pattern.sees(head, other, last), (head, other, last));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    mod equal_candidates;

    use super::*;
    use crate::comparison::candidate::{candidates, twins};
    use crate::footprint::Memory;
    use crate::language::Language;
    use crate::settings::{Assignment, Settings};
    use crate::translation::Translation;

    fn of<E: Experiment>(names: &[&str], options: &[&str]) -> (Vec<Candidate<E>>, Vec<E::Data>) {
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        let attention = format!("run.attention=[{}]", names.join(", "));
        let assignments = options.iter().chain([&attention.as_str()]).map(|text| Assignment::parse(text).unwrap()).collect();
        let mut settings = Settings::read(None, assignments).unwrap();
        let candidates = candidates::<E>(&mut settings, Memory::here()).unwrap();
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
        // An option of the command is a choice as well, and so is the same mechanism over other scores.
        let set = [&SHORT[..], &["mechanisms.sliding-window.window=30"]].concat();
        assert!(checked::<Language>("relative@sliding-window", &set).unwrap()[0].contains("window = 30"));
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
    }
}
