//! gMLP: Liu et al. 2021.

use heedful_attention::conformance::Property;
use heedful_attention::mechanisms::gmlp::Gmlp;

use super::*;

fn gmlp(role: Role) -> AnyAttention {
    init(&GmlpConfig::default().with_init_scale(8.0).into(), &spec(role, 2))
}

fn inner(attention: &mut AnyAttention) -> &mut Gmlp {
    attention.get_mut().expect("it is a spatial gating unit")
}

#[test]
fn at_first_it_is_a_map_of_each_position_by_itself() {
    let attention = init(&GmlpConfig::default().into(), &spec(Role::Encoder, 2));
    let x = Array::random("x", &[1, 8, 6]);
    let before = context(&attention, self_attention(&x));
    let mut changed = x;
    changed.row_mut(&[0, 3]).iter_mut().for_each(|x| *x = 2.0 - 3.0 * *x);
    let after = context(&attention, self_attention(&changed));
    for i in 0..8 {
        let moved = before.row(&[0, i]).iter().zip(after.row(&[0, i])).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        // Weights are at most 0.001 / 8.
        assert!(if i == 3 { moved > 0.1 } else { moved > 0.0 && moved < 1e-3 }, "position {i} moves by {moved}");
    }
}

#[test]
fn weights_are_those_of_the_matrix_below_the_diagonal() {
    let mut attention = gmlp(Role::Decoder);
    let matrix = Array::random("matrix", &[8, 8]);
    inner(&mut attention).position_weight = parameter(&matrix);
    let mut shown = Vec::new();
    let mut listener = |_: &str, observation: Observation| match observation {
        Observation::SignedWeights(weights) => shown.push(Array::read(weights)),
        other => panic!("{other:?}"),
    };
    attention.forward(self_attention(&Array::random("x", &[1, 6, 6])), &mut Probe::listening(&mut listener));
    let [weights] = &shown[..] else { panic!("weights were shown {} times", shown.len()) };
    let expected = Array::from_fn([1, 2, 6, 6], |[_, _, i, j]| if j <= i { matrix.at(&[i, j]) } else { 0.0 });
    assert_same("weights", &weights.values, &expected.values, 0.0);
}

#[test]
fn a_matrix_that_shifts_gates_the_neighbour() {
    let mut attention = gmlp(Role::Encoder);
    let own = inner(&mut attention);
    own.position_bias = parameter(&Array::from_fn([8], |_| 0.0));
    // The first three channels make the half that gates, the others the half that is mixed.
    let weight = |row: usize, column: usize| 0.4 * ((3 * row + 5 * column) % 7) as f64 - 1.0;
    own.expansion.weight =
        parameter(&Array::from_fn([6, 12], |[row, column]| if (row < 3) == (column < 6) { weight(row, column) } else { 0.0 }));
    let mut x = Array::random("x", &[1, 8, 6]);
    // The same gates everywhere.
    (0..8).for_each(|i| x.row_mut(&[0, i])[..3].copy_from_slice(&[0.5, -1.0, 0.75]));
    let with = |attention: &mut AnyAttention, shift: usize| {
        inner(attention).position_weight = parameter(&Array::from_fn([8, 8], |[i, j]| f64::from(j + shift == i)));
        context(attention, self_attention(&x))
    };
    let (own, shifted) = (with(&mut attention, 0), with(&mut attention, 1));
    assert_same("outputs", &shifted.slice(1..8).values, &own.slice(0..7).values, 1e-5);
    assert!(own.values.iter().any(|y| y.abs() > 0.1));
}

#[test]
fn biases_and_shifts_are_those_of_the_formula() {
    let config = AnyMechanism::from(GmlpConfig::default().with_init_scale(8.0));
    let built = config.clone();
    let build = move |spec: &_, key: &_, device: &_| {
        let mut attention = built.init(spec, key, device);
        let inner = inner(&mut attention);
        inner.expansion.bias = Some(parameter(&Array::random("expansion", &[12])));
        inner.output.bias = Some(parameter(&Array::random("output", &[6])));
        inner.position_bias = parameter(&Array::random("positions", &[8]));
        let norm = inner.mixed_norm.as_mut().unwrap();
        (norm.gamma, norm.beta) = (parameter(&Array::random("gamma", &[6])), Some(parameter(&Array::random("beta", &[6]))));
        attention
    };
    let subject = Subject::new(spec(Role::Decoder, 2), build, &flex().device).computing(&config);
    Property::Formula.check(&subject).unwrap();
}
