//! Which property is asked of which variant: pinned in `claims.txt`, so that a mechanism that claims an ability less is not asked less unnoticed.

use heedful_attention::conformance::Property;
use heedful_attention::contract::Attention;

use crate::backends::flex;
use crate::variants::{Variant, variants};

/// The properties with what they presuppose, and for each variant what it is not asked and what else decides how much is asked.
fn table() -> String {
    let properties = Property::ALL.iter().map(|property| format!("{property:?} presupposes {}\n", property.presupposes()));
    properties.chain(["\n".to_owned()]).chain(variants().iter().map(claims)).collect()
}

fn claims(variant: &Variant) -> String {
    let subject = variant.subject(2, &flex());
    let abilities = subject.attention.abilities();
    let missing: Vec<String> =
        Property::ALL.iter().filter(|property| !property.is_asked_of(&subject)).map(|property| format!("{property:?}")).collect();
    let mut words = vec![format!("all but {}", missing.join(" ")).trim_end_matches(" but ").to_owned()];
    words.extend(abilities.max_length.map(|length| format!("up to {length}")));
    words.extend(abilities.auxiliary_losses.then(|| "losses".to_owned()));
    words.extend(abilities.randomness.then(|| "randomness".to_owned()));
    words.extend(abilities.cross_attention.then(|| "other sequences".to_owned()));
    words.extend(subject.normalised.then(|| "rows sum to 1".to_owned()));
    words.extend(subject.border.map(|border| format!("border {border}")));
    format!("{}: {}\n", variant.name, words.join(", "))
}

#[test]
fn each_variant_is_asked_the_properties_that_are_pinned() {
    let (found, pinned) = (table(), include_str!("claims.txt"));
    let only = |of: &str, other: &str, sign: char| -> String {
        of.lines().filter(|line| !other.lines().any(|known| known == *line)).map(|line| format!("{sign} {line}\n")).collect()
    };
    let (missing, unasked) = (only(&found, pinned, '+'), only(pinned, &found, '-'));
    assert!(missing.is_empty() && unasked.is_empty(), "claims.txt (-) is not what is asked (+):\n{unasked}{missing}");
}
