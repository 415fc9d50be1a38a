//! No attention: the ablation of the sublayer.

use heedful_attention::conformance::Subject;

use super::*;
use crate::backends::backends;

fn none() -> AnyMechanism {
    "none".parse().unwrap()
}

/// Without dropout, of which zeros show nothing.
fn spec(role: Role) -> LayerSpec {
    LayerSpec::new(role, 6, 2).with_max_length(8)
}

#[test]
fn a_layer_without_attention_keeps_the_contract() {
    for backend in backends() {
        for role in [Role::Encoder, Role::Decoder] {
            let report = Subject::of(&none(), spec(role), &backend.device).check().unwrap();
            assert!(report.to_string().contains("none"), "{report}");
        }
    }
}

#[test]
fn a_layer_without_attention_gives_zeros_and_has_no_parameters() {
    let place = spec(Role::Encoder).with_dropout(0.3);
    let found = context(&init(&none(), &place), self_attention(&Array::random("x", &[2, 7, 6])));
    assert_eq!((found.shape, found.values), (vec![2, 7, 6], vec![0.0; 84]));
    assert_eq!(none().parameters_at(&place).unwrap().trained, 0);
}

#[test]
fn what_is_no_mechanism_is_known_by_name_and_in_no_list_of_all() {
    assert!(AnyMechanism::names().contains(&"none"));
    assert!(AnyMechanism::all().iter().all(|mechanism| mechanism.family() != "none"));
    let error = none().validate(&spec(Role::Cross)).unwrap_err().to_string();
    assert!(error.contains("none"), "{error}");
    let mixed = "none+dot-product".parse::<AnyMechanism>().unwrap().validate(&spec(Role::Encoder)).unwrap_err();
    assert!(mixed.to_string().contains("have logits"), "{mixed}");
}
