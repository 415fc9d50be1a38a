//! Every property, for every mechanism and its options, on every backend.

use heedful_attention::conformance::{Property, two_devices_agree};
use heedful_attention::prelude::*;

use crate::array::Array;
use crate::backends::{Backend, backends, flex};
use crate::variants::{Variant, variants};

/// A share of the variants for each property where all take long, on an accelerator: every variant is checked for about a third of the properties.
/// `HEEDFUL_ALL_VARIANTS` asks for all.
const SHARE: usize = 3;

/// The variants that a property is checked for.
fn chosen(backend: &Backend, property: Property) -> Vec<Variant> {
    let place = Property::ALL.iter().position(|&other| other == property).expect("all properties are listed");
    let takes_all = backend.name != "wgpu" || std::env::var_os("HEEDFUL_ALL_VARIANTS").is_some();
    let is_chosen = |index: usize| takes_all || (index + place).is_multiple_of(SHARE);
    variants().into_iter().enumerate().filter(|(index, _)| is_chosen(*index)).map(|(_, variant)| variant).collect()
}

/// Checks a property for variants and reports all that fail.
fn check(backend: &Backend, property: Property) {
    let failures: Vec<String> = chosen(backend, property)
        .iter()
        .filter_map(|variant| property.check(&variant.subject(2, backend)).err().map(|error| format!("{}: {error}", variant.name)))
        .collect();
    assert!(failures.is_empty(), "on {}:\n{}", backend.name, failures.join("\n"));
}

macro_rules! properties {
    (on every backend { $($test:ident: $property:ident,)* } on one { $($single_test:ident: $single:ident,)* }) => {
        mod flex {
            $(#[test] fn $test() { super::check(&crate::backends::flex(), super::Property::$property); })*
            $(#[test] fn $single_test() { super::check(&crate::backends::flex(), super::Property::$single); })*
        }
        #[cfg(feature = "ndarray")]
        mod ndarray {
            $(#[test] fn $test() { super::check(&crate::backends::ndarray(), super::Property::$property); })*
        }
        #[cfg(feature = "wgpu")]
        mod wgpu {
            $(#[test] fn $test() { super::check(&crate::backends::wgpu(), super::Property::$property); })*
        }

        #[test]
        fn every_property_is_asked() {
            let asked = [$(Property::$property,)* $(Property::$single,)*];
            assert!(Property::ALL.iter().all(|property| asked.contains(property)));
        }
    };
}

properties! {
    on every backend {
        contexts_and_weights_are_those_of_the_formula: Formula,
        the_future_is_not_seen: Causality,
        padding_content_does_not_matter: Padding,
        a_row_without_a_key_has_weight_zero: EmptyRows,
        lengths_up_to_the_maximum_work_and_longer_are_refused: Lengths,
        borders_change_nothing: Borders,
        batch_rows_are_independent: Batch,
        steps_equal_the_full_pass: Steps,
        selecting_rows_reorders_a_state: Selection,
        left_padding_equals_no_padding: LeftPadding,
        dropout_is_a_function_of_its_key: Dropout,
        weights_are_those_of_the_view: Weights,
        a_probe_changes_nothing: Probe,
        engines_agree: Engines,
        auxiliary_losses_are_those_claimed: Losses,
        one_key_builds_one_attention: Determinism,
        a_record_restores_the_attention: Record,
    }
    // Of the mechanism rather than of the backend, and costly: gradients of the backends are compared with each other.
    on one {
        one_head_is_enough: FewestHeads,
        gradients_are_slopes: Gradients,
    }
}

#[test]
fn a_backend_with_a_share_of_the_variants_has_each_of_them_for_some_properties() {
    let all = variants();
    for backend in backends() {
        let mut counts = vec![0; all.len()];
        for property in Property::ALL {
            let chosen = chosen(&backend, *property);
            let places = all.iter().enumerate().filter(|(_, variant)| chosen.iter().any(|other| other.name == variant.name));
            places.for_each(|(place, _)| counts[place] += 1);
        }
        assert!(counts.iter().all(|&count| count >= Property::ALL.len() / SHARE), "{}: {counts:?}", backend.name);
    }
}

/// A member of a bucket that lies in another chunk than the first one of it, in the order of buckets and positions.
fn crosses_a_border(buckets: &[f64], chunk: usize) -> bool {
    let mut order: Vec<usize> = (0..buckets.len()).collect();
    order.sort_by(|&a, &b| buckets[a].total_cmp(&buckets[b]).then(a.cmp(&b)));
    let places: Vec<(f64, usize)> = order.iter().enumerate().map(|(place, &position)| (buckets[position], place / chunk)).collect();
    places.windows(2).any(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1)
}

#[test]
fn chunked_lsh_has_several_chunks_and_buckets_that_lie_across_their_borders() {
    for variant in variants().iter().filter(|variant| variant.name.starts_with("lsh, several chunks")) {
        let chunk = variant.config.get::<LshConfig>().expect("it is LSH attention").chunk_at(8);
        let subject = variant.subject(2, &flex());
        let mut is_crossed = false;
        for length in [5, 7, 8] {
            assert!(length > chunk && !length.is_multiple_of(chunk), "{length} is a multiple of a chunk");
            let mut rows = Vec::new();
            let mut shown = |_: &str, observation: Observation| {
                if let Observation::Buckets(buckets) = observation {
                    rows.extend(Array::read(buckets.float()).values.chunks(length).map(<[f64]>::to_vec));
                }
            };
            let input = subject.case("buckets", 3, length).input(&subject.device).visibility(subject.usual());
            subject.attention.forward(input, &mut Probe::listening(&mut shown));
            let differ = |row: &&Vec<f64>| row.iter().any(|bucket| *bucket != row[0]);
            assert!(rows.iter().all(|row| differ(&row)), "{}, length {length}: {rows:?}", variant.name);
            is_crossed |= rows.iter().any(|row| crosses_a_border(row, chunk));
        }
        assert!(is_crossed, "{}: no bucket lies across a border", variant.name);
    }
}

#[test]
fn attentions_with_engines_say_which_ran() {
    let mut silent = Vec::new();
    for variant in variants().iter().filter(|variant| variant.config.has_engines()) {
        let subject = variant.subject(2, &flex());
        let case = subject.case("engines", 2, subject.spec.max_length);
        let input = || case.input(&subject.device).visibility(subject.usual());
        for engine in [Engine::Auto, Engine::Fused, Engine::Reference] {
            if subject.executed(input().engine(engine)).is_empty() {
                silent.push(format!("{}: {engine:?}", variant.name));
            }
        }
        if !subject.decodes() {
            continue;
        }
        let start = match &case.memory {
            Some(memory) => DecodingStart::cross_attention(memory.tensor(&subject.device), Visibility::all()),
            None => DecodingStart::self_attention(case.batch(), case.length()),
        };
        let (mut steps, mut count) = (subject.attention.state(&start), 0);
        let mut listener = |_: &str, observation: Observation| count += usize::from(matches!(observation, Observation::Executed(_)));
        subject.attention.step(case.query.slice(0..1).tensor(&subject.device), &mut steps, &mut Probe::listening(&mut listener));
        if count == 0 {
            silent.push(format!("{}: a step", variant.name));
        }
    }
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn all_backends_agree() {
    for variant in variants() {
        let expected = variant.subject(2, &flex());
        for backend in backends() {
            if let Err(error) = two_devices_agree(&variant.subject(2, &backend), &expected) {
                panic!("{} on {}: {error}", variant.name, backend.name);
            }
        }
    }
}
