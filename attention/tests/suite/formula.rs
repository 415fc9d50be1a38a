//! Every mechanism against the formula of its paper, in more shapes than the suite asks for.

use heedful_attention::description::PlainAttention;

use crate::backends::flex;
use crate::variants::variants;

#[test]
fn every_mechanism_computes_the_formula_of_its_paper() {
    for variant in variants() {
        for [batch, heads, length] in [[1, 1, 1], [2, 2, 1], [1, 3, 2], [3, 4, 5], [2, 2, 5], [2, 3, 8], [1, 2, 8], [3, 1, 8]] {
            let subject = variant.subject(heads, &flex());
            let plain = PlainAttention::read(&variant.config, subject.spec, &subject.attention);
            plain.agrees(&subject, batch, length, 1e-5).unwrap_or_else(|error| panic!("{}: {error}", variant.name));
        }
    }
}
