//! Properties of construction: from a key, from a record, with fewer heads.

use burn::store::ModuleRecord;
use heedful_random::RandomKey;

use crate::conformance::Property;
use crate::conformance::properties::Outcome;
use crate::conformance::subject::Subject;
use crate::contract::Attention;
use crate::contract::probe::Probe;
use crate::description::array::{Array, same};
use crate::description::case::{Case, parameters};

/// Whether `other` has bit-identical parameters, and equal outputs with and without dropout.
fn is_the_same<A: Attention>(subject: &Subject<A>, other: &A) -> Outcome {
    let (expected, found) = (parameters(&subject.attention, None), parameters(other, None));
    if found.keys().ne(expected.keys()) {
        return Err(format!("parameters {:?} and {:?}", found.keys(), expected.keys()));
    }
    for (path, values) in &found {
        same(path, &values.values, &expected[path].values, 0.0)?;
    }
    let case = subject.case("the same", 2, 5);
    for key in [None, Some(RandomKey::from_seed(6))] {
        let input = || case.input(&subject.device).visibility(subject.usual()).random(key);
        let found = Array::read(other.forward(input(), &mut Probe::off()).context);
        same(&format!("outputs, dropout {}", key.is_some()), &found.values, &subject.forward(input()).values, subject.unmoved)?;
    }
    Ok(())
}

/// A key determines the attention, and computation leaves no trace in it.
pub(super) fn one_key_builds_one_attention<A: Attention>(subject: &Subject<A>) -> Outcome {
    is_the_same(subject, &subject.rebuilt(&RandomKey::from_seed(1))).map_err(|error| format!("built twice from one key: {error}"))?;
    let (case, between) = (subject.case("trace", 2, 5), subject.case("trace, between", 3, 4));
    let run = |case: &Case| subject.forward(case.input(&subject.device).visibility(subject.usual()));
    let before = run(&case);
    run(&between);
    same("outputs after another input", &run(&case).values, &before.values, subject.unmoved)
}

/// A record loaded into an attention from another key restores the recorded one.
pub(super) fn a_record_restores_the_attention<A: Attention>(subject: &Subject<A>) -> Outcome {
    let said = |error: burn::store::RecordError| format!("the record: {error}");
    let bytes = subject.attention.clone().into_record().into_bytes().map_err(said)?;
    let record = ModuleRecord::from_bytes(bytes).map_err(said)?;
    let restored = subject.rebuilt(&RandomKey::from_seed(2)).try_load_record(record).map_err(said)?;
    is_the_same(subject, &restored).map_err(|error| format!("loaded into an attention from another key: {error}"))
}

/// The properties also hold with the minimum number of heads.
pub(super) fn one_head_is_enough<A: Attention>(subject: &Subject<A>) -> Outcome {
    let few = subject.with_heads(subject.fewest_heads);
    for property in [Property::Causality, Property::Batch, Property::Steps, Property::Weights] {
        property.check(&few).map_err(|error| format!("{} heads, {property:?}: {error}", subject.fewest_heads))?;
    }
    Ok(())
}
