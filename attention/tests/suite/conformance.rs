//! Every property, for every mechanism and its options, on every backend.

use heedful_attention::any::AnyAttention;

use crate::backends::{Backend, backends, flex};
use crate::properties::{self, Outcome};
use crate::subject::Subject;
use crate::variants::variants;

/// Checks a property for all variants and reports all that fail.
fn check(backend: &Backend, property: fn(&Subject<AnyAttention>) -> Outcome) {
    let failures: Vec<String> = variants()
        .iter()
        .filter_map(|variant| property(&variant.subject(2, backend)).err().map(|error| format!("{}: {error}", variant.name)))
        .collect();
    assert!(failures.is_empty(), "on {}:\n{}", backend.name, failures.join("\n"));
}

macro_rules! on_every_backend {
    ($($property:ident),* $(,)?) => {
        mod flex {
            $(#[test] fn $property() { super::check(&crate::backends::flex(), crate::properties::$property); })*
        }
        #[cfg(feature = "ndarray")]
        mod ndarray {
            $(#[test] fn $property() { super::check(&crate::backends::ndarray(), crate::properties::$property); })*
        }
        #[cfg(feature = "wgpu")]
        mod wgpu {
            $(#[test] fn $property() { super::check(&crate::backends::wgpu(), crate::properties::$property); })*
        }
    };
}

on_every_backend!(
    the_future_is_not_seen,
    padding_content_does_not_matter,
    a_row_without_a_key_has_weight_zero,
    lengths_up_to_the_maximum_work_and_longer_are_refused,
    batch_rows_are_independent,
    steps_equal_the_full_pass,
    selecting_rows_reorders_a_state,
    left_padding_equals_no_padding,
    dropout_is_a_function_of_its_key,
    weights_are_those_of_the_view,
    a_probe_changes_nothing,
);

#[test]
fn all_backends_agree() {
    for variant in variants() {
        let expected = variant.subject(2, &flex());
        for backend in backends() {
            if let Err(error) = properties::two_devices_agree(&variant.subject(2, &backend), &expected) {
                panic!("{} on {}: {error}", variant.name, backend.name);
            }
        }
    }
}
