//! Properties of every attention, generic over the contract: each property is a function that describes a violation.
//!
//! Prerequisites are declared with the names in [`Property`](super::Property); the functions assume them.

use std::any::Any;
use std::ops::Range;

use heedful_random::RandomKey;

use crate::conformance::expected_panic::expected_panic;
use crate::conformance::subject::Subject;
use crate::contract::abilities::Causality;
use crate::contract::decoding_position::DecodingStart;
use crate::contract::engine::{Engine, Executed};
use crate::contract::layer_spec::Role;
use crate::contract::probe::Probe;
use crate::contract::visibility::Visibility;
use crate::contract::{Attention, AttentionInput, Positions};
use crate::description::array::{Array, finite, same};
use crate::description::case::{Case, parameters};
use crate::softmax_attention::logits::Logits;

/// Tolerance between sums in different orders.
const CLOSE: f64 = 1e-5;
/// Tolerance between backends.
const BACKENDS: f64 = 1e-4;

/// A violation, if any.
pub type Outcome = Result<(), String>;

/// A change of one token changes no earlier output.
pub(super) fn the_future_is_not_seen<A: Attention>(subject: &Subject<A>) -> Outcome {
    [2, 5, subject.spec.max_length].into_iter().try_for_each(|length| the_future_is_not_seen_in(subject, length, 1..length))
}

/// A change of any of the given tokens changes no earlier output.
fn the_future_is_not_seen_in<A: Attention>(subject: &Subject<A>, length: usize, changing: impl IntoIterator<Item = usize>) -> Outcome {
    let case = subject.case("causality", 2, length);
    // Attention in a decoder is causal by default.
    let visibility = if subject.spec.role == Role::Decoder { Visibility::all() } else { Visibility::causal() };
    let run = |case: &Case| subject.forward(case.input(&subject.device).visibility(visibility.clone()));
    let before = run(&case);
    for t in changing {
        let mut changed = case.clone();
        (0..2).for_each(|b| changed.query.row_mut(&[b, t]).iter_mut().for_each(|x| *x = 7.0 - 3.0 * *x));
        let after = run(&changed);
        for b in 0..2 {
            let what = format!("length {length}: outputs before {t} when element {t} changes");
            same(&what, after.slice(0..t).row(&[b]), before.slice(0..t).row(&[b]), subject.unmoved)?;
        }
    }
    Ok(())
}

/// The content of padding changes no output of a real token.
pub(super) fn padding_content_does_not_matter<A: Attention>(subject: &Subject<A>) -> Outcome {
    let length = 5;
    let case = subject.case("padding", 3, length);
    let keys = case.keys();
    let lengths = [keys, keys - 2, 1];
    for causal in [false, true] {
        if causal && !subject.is_causal() {
            continue;
        }
        let padding = Visibility::padding(lengths.to_vec());
        let visibility = if causal { padding.and(Visibility::causal()) } else { padding };
        let run = |case: &Case| subject.forward(case.input(&subject.device).visibility(visibility.clone()));
        let before = run(&case);
        let mut changed = case.clone();
        for (b, &real) in lengths.iter().enumerate() {
            (real..keys).for_each(|j| changed.attended().row_mut(&[b, j]).iter_mut().for_each(|x| *x = 50.0 - 30.0 * *x));
        }
        let after = run(&changed);
        for (b, &real) in lengths.iter().enumerate() {
            let outputs = if subject.is_cross() { length } else { real };
            let what = format!("causal {causal}, row {b}: outputs of real elements when padding changes");
            same(&what, after.slice(0..outputs).row(&[b]), before.slice(0..outputs).row(&[b]), subject.unmoved)?;
        }
    }
    Ok(())
}

/// A query without visible keys has weights exactly 0, an output independent of content, and finite gradients.
pub(super) fn a_row_without_a_key_has_weight_zero<A: Attention>(subject: &Subject<A>) -> Outcome {
    let case = subject.case("nothing", 2, 4);
    let keys = case.keys();
    let mut views = vec![("padding", Visibility::padding(vec![0, keys]), vec![0, 1, 2, 3])];
    if subject.is_causal() {
        views.push(("left padding", Visibility::left_padding(vec![2, 0]).and(Visibility::causal()), vec![0, 1]));
    }
    for (name, visibility, blind) in views {
        let run = |case: &Case| subject.observed(case.input(&subject.device).visibility(visibility.clone()));
        let (before, shown) = run(&case);
        finite(&format!("{name}: context"), &before.values)?;
        for &i in &blind {
            for (h, weights) in (0..subject.spec.heads).flat_map(|h| shown.iter().map(move |weights| (h, weights))) {
                same(&format!("{name}: weights of query {i}, head {h}"), weights.row(&[0, h, i]), &vec![0.0; keys], 0.0)?;
            }
        }
        let mut changed = case.clone();
        changed.attended().row_mut(&[0]).iter_mut().for_each(|x| *x = 2.0 - *x);
        let (after, _) = run(&changed);
        for &i in &blind {
            let what = format!("{name}: output of query {i}, which sees nothing, when the content changes");
            same(&what, after.row(&[0, i]), before.row(&[0, i]), subject.unmoved)?;
        }
        let gradients = subject.gradients(&case, |input| input.visibility(visibility.clone()));
        finite(&format!("{name}: gradient of the queries"), &gradients.query.values)?;
        gradients.memory.map_or(Ok(()), |memory| finite(&format!("{name}: gradient of the memory"), &memory.values))?;
        for (path, gradient) in &gradients.parameters {
            finite(&format!("{name}: gradient of {path}"), &gradient.values)?;
        }
    }
    Ok(())
}

/// Whether the requested engine runs: otherwise the comparison would test one engine against itself.
fn engine_runs<A: Attention>(subject: &Subject<A>, case: &Case, visibility: &Visibility, engine: Engine) -> Outcome {
    let executed = subject.executed(case.input(&subject.device).visibility(visibility.clone()).engine(engine));
    let is_another = |executed: &Executed| (*executed == Executed::Reference) != (engine == Engine::Reference);
    match executed.iter().find(|executed| is_another(executed)) {
        Some(other) => Err(format!("{visibility:?}: {engine:?} was asked for, and {other:?} ran")),
        None => Ok(()),
    }
}

/// If requested, the fused engine returns the context and all gradients of the reference engine, for any visibility per head, and both engines run on request.
pub(super) fn engines_agree<A: Attention>(subject: &Subject<A>) -> Outcome {
    let case = subject.case("engines", 2, subject.spec.max_length);
    let padding = Visibility::padding(vec![case.keys() - 1, case.keys()]);
    let mut views = vec![subject.usual(), subject.usual().and(padding)];
    if subject.attention.abilities().causality != Causality::Impossible {
        views.push(subject.usual().and(Visibility::pattern(|h, i, j| (h + i + j) % 2 == 0)));
    }
    for visibility in views {
        engine_runs(subject, &case, &visibility, Engine::Reference)?;
        // For the third view recurrences use only pairs.
        if !visibility.depends_on_head() {
            engine_runs(subject, &case, &visibility, Engine::Fused)?;
        }
        let run = |engine| {
            let prepare = |input: AttentionInput| input.visibility(visibility.clone()).engine(engine);
            let gradients = subject.gradients(&case, prepare);
            let inputs = [("the queries", Some(gradients.query)), ("the memory", gradients.memory)];
            let inputs = inputs.into_iter().filter_map(|(name, gradient)| Some((format!("gradient of {name}"), gradient?)));
            let context = ("context".to_owned(), subject.forward(prepare(case.input(&subject.device))));
            let parameters = gradients.parameters.into_iter().map(|(path, gradient)| (format!("gradient of {path}"), gradient));
            std::iter::once(context).chain(inputs).chain(parameters).collect::<Vec<_>>()
        };
        let (fused, reference) = (run(Engine::Fused), run(Engine::Reference));
        if !fused.iter().map(|(name, _)| name).eq(reference.iter().map(|(name, _)| name)) {
            return Err(format!("{visibility:?}: the engines have gradients of different parameters"));
        }
        for ((name, fused), (_, reference)) in fused.iter().zip(&reference) {
            let largest = reference.values.iter().fold(1.0f64, |largest, number| largest.max(number.abs()));
            same(&format!("{visibility:?}: {name}"), &fused.values, &reference.values, subject.close(CLOSE) * largest)?;
        }
    }
    Ok(())
}

/// Every length from 1 to the maximum works; longer sequences are refused with the limit in the message.
pub(super) fn lengths_up_to_the_maximum_work_and_longer_are_refused<A: Attention>(subject: &Subject<A>) -> Outcome {
    let limit = subject.attention.abilities().max_length;
    for length in 1..=limit.unwrap_or(subject.spec.max_length) {
        let case = subject.case("lengths", 1, length);
        let context = subject.forward(case.input(&subject.device).visibility(subject.usual()));
        if context.shape != [1, length, subject.spec.d_model] {
            return Err(format!("length {length}: context of shape {:?}", context.shape));
        }
        finite(&format!("length {length}: context"), &context.values)?;
    }
    if let Some(limit) = limit {
        let mut case = subject.case("too long", 1, limit + 1);
        // In cross-attention the number of keys exceeds the limit.
        case.memory = case.memory.map(|_| Array::random("too long, memory", &[1, limit + 1, subject.spec.d_model]));
        let attempt = || subject.forward(case.input(&subject.device).visibility(subject.usual()));
        refuses(&format!("length {} with a limit of {limit}", limit + 1), &limit.to_string(), attempt)?;
    }
    if subject.is_causal() && subject.attention.abilities().steps {
        let case = subject.case("capacity", 1, 4);
        let attempt = || {
            let mut state = subject.attention.state(&DecodingStart::self_attention(1, 3));
            decode(subject, &case, &mut state, 0..4, 1)
        };
        refuses("four steps with a capacity of 3", "capacity 3", attempt)?;
    }
    Ok(())
}

fn refuses<T>(what: &str, named: &str, attempt: impl FnOnce() -> T) -> Outcome {
    let Err(panic) = expected_panic(attempt) else { return Err(format!("{what} was accepted")) };
    match message(&*panic) {
        Some(message) if message.contains(named) => Ok(()),
        message => Err(format!("{what}: the message does not say `{named}`: {message:?}")),
    }
}

/// Message of a panic.
pub(super) fn message(panic: &(dyn Any + Send)) -> Option<&str> {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied())
}

/// Batch rows are independent, and equal their results alone.
pub(super) fn batch_rows_are_independent<A: Attention>(subject: &Subject<A>) -> Outcome {
    let case = subject.case("batch", 3, 5);
    let run = |case: &Case| subject.forward(case.input(&subject.device).visibility(subject.usual()));
    let together = run(&case);
    for b in 0..3 {
        same(&format!("row {b} alone"), &run(&case.select(&[b])).values, together.row(&[b]), subject.close(CLOSE))?;
    }
    let mut changed = case.clone();
    changed.query.row_mut(&[1]).iter_mut().for_each(|x| *x = 4.0 - 3.0 * *x);
    changed.attended().row_mut(&[1]).iter_mut().for_each(|x| *x = 1.0 + 2.0 * *x);
    let after = run(&changed);
    for b in [0, 2] {
        same(&format!("row {b} when row 1 changes"), after.row(&[b]), together.row(&[b]), subject.unmoved)?;
    }
    Ok(())
}

/// Decodes the queries of a range in chunks and returns their outputs, `[B, range, C]`.
fn decode<A: Attention>(subject: &Subject<A>, case: &Case, state: &mut A::State, range: Range<usize>, chunk: usize) -> Array {
    let batch = case.batch();
    let mut rows = vec![Vec::new(); batch];
    for start in range.clone().step_by(chunk) {
        let part = case.queries(start..(start + chunk).min(range.end));
        let context = Array::read(subject.attention.step(part.query.tensor(&subject.device), state, &mut Probe::off()).context);
        rows.iter_mut().enumerate().for_each(|(b, row)| row.extend_from_slice(context.row(&[b])));
    }
    Array { shape: vec![batch, range.len(), subject.spec.d_model], values: rows.concat() }
}

fn new_state<A: Attention>(subject: &Subject<A>, case: &Case, left_padding: &[usize]) -> A::State {
    let start = match &case.memory {
        Some(memory) => DecodingStart::cross_attention(memory.tensor(&subject.device), Visibility::all()),
        None => DecodingStart::self_attention(case.batch(), case.length()),
    };
    subject.attention.state(&start.with_left_padding(left_padding))
}

/// Steps of one, of three, and of the whole sequence equal a full pass over the sequence.
pub(super) fn steps_equal_the_full_pass<A: Attention>(subject: &Subject<A>) -> Outcome {
    steps_of(subject, 7, &[1, 3, 7])
}

fn steps_of<A: Attention>(subject: &Subject<A>, length: usize, chunks: &[usize]) -> Outcome {
    let case = subject.case("steps", 2, length);
    let whole = subject.forward(case.input(&subject.device).visibility(subject.usual()));
    for &chunk in chunks {
        let mut state = new_state(subject, &case, &[]);
        let stepped = decode(subject, &case, &mut state, 0..length, chunk);
        same(&format!("length {length}, steps of {chunk}"), &stepped.values, &whole.values, subject.close(CLOSE))?;
    }
    Ok(())
}

/// Around the border, outputs and gradients are finite, the future is hidden, and steps equal the full pass.
pub(super) fn borders_change_nothing<A: Attention>(subject: &Subject<A>) -> Outcome {
    let border = subject.border.expect("a property that presupposes a border is asked where there is one");
    let longest = subject.attention.abilities().max_length.unwrap_or(usize::MAX);
    let mut lengths = vec![1, border.saturating_sub(1), border, border + 1, 2 * border + 1];
    lengths.retain(|length| (1..=longest).contains(length));
    lengths.dedup();
    for length in lengths {
        let case = subject.case("border", 2, length);
        let context = subject.forward(case.input(&subject.device).visibility(subject.usual()));
        finite(&format!("length {length}: context"), &context.values)?;
        let gradients = subject.gradients(&case, |input| input.visibility(subject.usual()));
        finite(&format!("length {length}: gradient of the queries"), &gradients.query.values)?;
        for (path, gradient) in &gradients.parameters {
            finite(&format!("length {length}: gradient of {path}"), &gradient.values)?;
        }
        if subject.is_causal() {
            let near = [border.saturating_sub(1), border, border + 1, length - 1];
            the_future_is_not_seen_in(subject, length, near.into_iter().filter(|t| (1..length).contains(t)))?;
        }
        if subject.decodes() {
            steps_of(subject, length, &[1, border.max(1)])?;
        }
    }
    Ok(())
}

/// After a state's rows are reordered, repeated or dropped, decoding continues as if with these rows from the start.
pub(super) fn selecting_rows_reorders_a_state<A: Attention>(subject: &Subject<A>) -> Outcome {
    let case = subject.case("select", 3, 6);
    let mut state = new_state(subject, &case, &[]);
    decode(subject, &case, &mut state, 0..3, 1);
    let mut case = case;
    for (rows, range) in [(vec![2, 0, 2], 3..4), (vec![1, 0, 2], 4..5), (vec![1], 5..6)] {
        subject.attention.select(&mut state, &rows);
        case = case.select(&rows);
        let whole = subject.forward(case.input(&subject.device).visibility(subject.usual()));
        let stepped = decode(subject, &case, &mut state, range.clone(), 1);
        same(&format!("step {} after selecting {rows:?}", range.start), &stepped.values, &whole.slice(range).values, subject.close(CLOSE))?;
    }
    Ok(())
}

/// A left-padded row equals the same row alone and unpadded, in a full pass and in steps.
pub(super) fn left_padding_equals_no_padding<A: Attention>(subject: &Subject<A>) -> Outcome {
    let length = 6;
    let counts = [0, 2, length - 1];
    let case = subject.case("left padding", 3, length);
    let alone = |b: usize| {
        let real = case.select(&[b]).queries(counts[b]..length);
        subject.forward(real.input(&subject.device).visibility(subject.usual()))
    };
    let check = |what: &str, padded: &Array| {
        (0..3).try_for_each(|b| {
            same(&format!("{what}: row {b}"), padded.slice(counts[b]..length).row(&[b]), &alone(b).values, subject.close(CLOSE))
        })
    };
    let hidden = if subject.is_cross() { Visibility::all() } else { Visibility::left_padding(counts.to_vec()) };
    let positions = Positions::default().with_left_padding(counts);
    let padded = subject.forward(case.input(&subject.device).visibility(subject.usual().and(hidden)).positions(positions));
    check("one pass", &padded)?;
    if subject.decodes() {
        for chunk in [1, 4] {
            let mut state = new_state(subject, &case, &counts);
            check(&format!("steps of {chunk}"), &decode(subject, &case, &mut state, 0..length, chunk))?;
        }
    }
    Ok(())
}

/// Dropout needs a key, repeats with the same key, differs with another key, and keeps the expectation of functions linear in the weights.
pub(super) fn dropout_is_a_function_of_its_key<A: Attention>(subject: &Subject<A>) -> Outcome {
    let case = subject.case("dropout", 2, 5);
    let run = |key: Option<RandomKey>| subject.forward(case.input(&subject.device).visibility(subject.usual()).random(key));
    let plain = run(None);
    same("without a key, a second time", &run(None).values, &plain.values, subject.unmoved)?;
    let root = RandomKey::from_seed(3);
    let draws: Vec<Array> = (0..32).map(|draw| run(Some(root.numbered(draw)))).collect();
    if draws[0] == plain {
        return Err("a key does not turn dropout on".to_owned());
    }
    if draws[0] == draws[1] {
        return Err("two keys drop the same".to_owned());
    }
    same("the same key again", &run(Some(root.numbered(0))).values, &draws[0].values, subject.unmoved)?;
    if !subject.linear {
        return Ok(());
    }
    let count = draws.len() as f64;
    let (mut squares, mut variances) = (0.0, 0.0);
    for (at, expected) in plain.values.iter().enumerate() {
        let mean = draws.iter().map(|draw| draw.values[at]).sum::<f64>() / count;
        variances += draws.iter().map(|draw| (draw.values[at] - mean).powi(2)).sum::<f64>() / (count - 1.0) / count;
        squares += (mean - expected).powi(2);
    }
    // If the mean deviated only by chance, the ratio would be 1.
    if squares.is_nan() || squares > 3.0 * variances {
        return Err(format!(
            "the mean over {count} keys is {:.1} times as far from the output as chance makes it",
            (squares / variances).sqrt()
        ));
    }
    Ok(())
}

/// Weights are reported once, are not negative, are 0 where hidden (head by head), and sum to 1 if a key is visible.
pub(super) fn weights_are_those_of_the_view<A: Attention>(subject: &Subject<A>) -> Outcome {
    let case = subject.case("weights", 2, 6);
    let (heads, keys) = (subject.spec.heads, case.keys());
    let views = [
        ("usual", subject.usual()),
        ("by head", Visibility::pattern(|h, i, j| (h + i + j) % 2 == 0)),
        ("padded", subject.usual().and(Visibility::padding(vec![keys, 2]))),
        ("empty", Visibility::padding(vec![keys, 0])),
    ];
    let logits = subject.mechanism.as_ref().and_then(|known| known.init_logits(&subject.spec, &RandomKey::from_seed(0), &subject.device));
    // Padding or a mask may hide all keys that a pattern shows. The usual view hides none of them: there each row with a visible key sums to 1.
    let pattern = logits.and_then(|logits| logits.visibility());
    for (name, visibility) in views {
        let visibility = visibility.within(&subject.spec.limit());
        let (_, shown) = subject.observed(case.input(&subject.device).visibility(visibility.clone()));
        let [weights] = &shown[..] else { return Err(format!("{name}: weights were shown {} times", shown.len())) };
        if weights.shape[1..] != [heads, 6, keys] || ![1, 2].contains(&weights.shape[0]) {
            return Err(format!("{name}: weights of shape {:?}", weights.shape));
        }
        for (b, h, i) in (0..weights.shape[0]).flat_map(|b| (0..heads).flat_map(move |h| (0..6).map(move |i| (b, h, i)))) {
            let row = weights.row(&[b, h, i]);
            let what = format!("{name}: row {b}, head {h}, query {i}: {row:?}");
            let is_in_pattern = |j: usize| pattern.as_ref().is_none_or(|pattern| pattern.is_visible(b, h, i, j));
            let seen: Vec<bool> = (0..keys).map(|j| visibility.is_visible(b, h, i, j)).collect();
            let has_key = (0..keys).any(|j| seen[j] && (name == "usual" || is_in_pattern(j)));
            if row.iter().zip(&seen).any(|(&weight, &seen)| weight < 0.0 || weight.is_nan() || (!seen && weight != 0.0)) {
                return Err(format!("{what}: a weight is negative, or not 0 where hidden"));
            }
            let sum: f64 = row.iter().sum();
            if subject.normalised && has_key {
                same(&format!("{what}: sum"), &[sum], &[1.0], subject.close(CLOSE))?;
            }
        }
    }
    Ok(())
}

/// A probe does not change outputs, with and without dropout.
pub(super) fn a_probe_changes_nothing<A: Attention>(subject: &Subject<A>) -> Outcome {
    let case = subject.case("probe", 2, 6);
    for key in [None, Some(RandomKey::from_seed(4))] {
        let input = || case.input(&subject.device).visibility(subject.usual()).random(key);
        same(
            &format!("with a probe, dropout {}", key.is_some()),
            &subject.observed(input()).0.values,
            &subject.forward(input()).values,
            subject.close(CLOSE),
        )?;
    }
    Ok(())
}

/// One key creates bit-identical weights, and nearly equal outputs and gradients, on two devices.
///
/// # Errors
/// Description of the difference.
pub fn two_devices_agree<A: Attention>(one: &Subject<A>, other: &Subject<A>) -> Outcome {
    let (weights, expected) = (parameters(&one.attention, None), parameters(&other.attention, None));
    if weights.keys().ne(expected.keys()) {
        return Err(format!("parameters {:?} and {:?}", weights.keys(), expected.keys()));
    }
    for (path, values) in &weights {
        same(path, &values.values, &expected[path].values, 0.0)?;
    }
    let case = one.case("devices", 2, 5);
    let tolerance = one.close(BACKENDS).max(other.close(BACKENDS));
    for key in [None, Some(RandomKey::from_seed(5))] {
        let prepare = |input: AttentionInput| input.visibility(one.usual()).random(key);
        let what = if key.is_some() { "with dropout" } else { "without dropout" };
        let [a, b] = [one, other].map(|subject| subject.forward(prepare(case.input(&subject.device))));
        same(&format!("outputs {what}"), &a.values, &b.values, tolerance)?;
        let [a, b] = [one, other].map(|subject| subject.gradients(&case, prepare));
        same(&format!("gradient of the queries {what}"), &a.query.values, &b.query.values, tolerance)?;
        if let (Some(a), Some(b)) = (&a.memory, &b.memory) {
            same(&format!("gradient of the memory {what}"), &a.values, &b.values, tolerance)?;
        }
        for (path, gradient) in &a.parameters {
            let expected = b.parameters.get(path).ok_or_else(|| format!("{path} has a gradient on one device only"))?;
            same(&format!("gradient of {path} {what}"), &gradient.values, &expected.values, tolerance)?;
        }
    }
    Ok(())
}
