//! Multi-head latent attention: DeepSeek-AI 2024.

use heedful_attention::contract::engine::Executed;
use heedful_attention::mechanisms::mla::Mla;

use super::*;

#[test]
fn a_latent_that_is_the_element_makes_dot_product_attention() {
    for role in [Role::Encoder, Role::Decoder] {
        let place = spec(role, 2);
        let config = MlaConfig::default().with_latent(6).with_rotary_width(0).with_latent_norm(false);
        let mut latent = init(&config.into(), &place);
        let mut plain = init(&parse("dot-product"), &place);
        let [query, key, value, output] = ["query", "key", "value", "output"].map(|name| Array::random(name, &[6, 6]));
        let own = latent.get_mut::<Mla>().unwrap();
        own.latent = linear(&identity(6));
        (own.query, own.key, own.value, own.output) = (linear(&query), linear(&key), linear(&value), linear(&output));
        let inner = plain.logits_mut::<DotProduct>().unwrap();
        (inner.query, inner.key) = (linear(&query), linear(&key));
        let outer = softmax(&mut plain);
        (outer.value, outer.output) = (linear(&value), linear(&output));
        let x = Array::random("x", &[2, 7, 6]);
        let [found, expected] = [&latent, &plain].map(|attention| context(attention, self_attention(&x)));
        assert_same(&format!("{role:?}"), &found.values, &expected.values, 1e-5);
    }
}

#[test]
fn scores_depend_on_distances() {
    let attention = init(&MlaConfig::default().into(), &LayerSpec::new(Role::Encoder, 8, 2).with_max_length(8));
    let row = Array::random("row", &[8]);
    let mut shown = Vec::new();
    let mut listener = |_: &str, observation: Observation| {
        if let Observation::Weights(weights) = observation {
            shown.push(Array::read(weights));
        }
    };
    let equal = Array::from_fn([1, 8, 8], |[_, _, c]| row.at(&[c]));
    attention.forward(self_attention(&equal), &mut Probe::listening(&mut listener));
    let ratio = |i: usize, j: usize| shown[0].at(&[0, 1, i, j]) / shown[0].at(&[0, 1, i, i]);
    for (i, j) in (0..7).flat_map(|i| (0..7).map(move |j| (i, j))) {
        assert_same(&format!("query {i}, key {j}"), &[ratio(i + 1, j + 1)], &[ratio(i, j)], 1e-5);
    }
    assert!((ratio(0, 3) - ratio(0, 1)).abs() > 1e-3, "positions do not matter");
}

#[test]
fn decoding_remembers_a_latent_and_a_rotated_key_for_all_heads() {
    for (heads, width) in [(2, 8), (4, 8)] {
        let config = MlaConfig::default().with_latent(5).with_rotary_width(2);
        let attention = init(&config.into(), &LayerSpec::new(Role::Decoder, heads * width, heads).with_max_length(8));
        let mut state = attention.state(&DecodingStart::self_attention(3, 8));
        let x = Array::random("x", &[3, 6, heads * width]);
        attention.step(x.tensor(&flex().device), &mut state, &mut Probe::off());
        assert_eq!(attention.state_bytes(&state), Some(3 * 6 * (5 + 2) * 4), "{heads} heads");
    }
}

#[test]
fn weights_of_steps_are_those_of_the_whole_sequence() {
    let attention = init(&MlaConfig::default().into(), &spec(Role::Decoder, 2));
    let x = Array::random("x", &[2, 5, 6]);
    let shown = |run: &mut dyn FnMut(&mut Probe)| {
        let mut shown = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Weights(weights) = observation {
                shown.push(Array::read(weights));
            }
        };
        run(&mut Probe::listening(&mut listener));
        shown.remove(0)
    };
    let whole = shown(&mut |probe| {
        attention.forward(self_attention(&x), probe);
    });
    let stepped = shown(&mut |probe| {
        let mut state = attention.state(&DecodingStart::self_attention(2, 5));
        attention.step(x.tensor(&flex().device), &mut state, probe);
    });
    assert_eq!(stepped.shape, [2, 2, 5, 5]);
    assert_same("weights", &stepped.values, &whole.values, 1e-5);
}

#[test]
fn numbers_that_a_mask_adds_are_added_to_scores() {
    let (attention, x) =
        (init(&MlaConfig::default().into(), &LayerSpec::new(Role::Encoder, 8, 2).with_max_length(8)), Array::random("x", &[2, 7, 8]));
    let bias =
        Array::from_fn([2, 1, 7, 7], |[b, _, i, j]| if j == (i + b) % 7 { f64::NEG_INFINITY } else { ((3 * i + 2 * j) % 5) as f64 - 2.0 });
    let plain = super::weights(&attention, self_attention(&x));
    let expected = Array::from_fn([2, 2, 7, 7], |[b, h, i, j]| {
        let weight = |j: usize| plain.at(&[b, h, i, j]) * bias.at(&[b, 0, i, j]).exp();
        weight(j) / (0..7).map(weight).sum::<f64>()
    });
    let added = Visibility::additive(bias.tensor(&flex().device));
    for engine in [Engine::Fused, Engine::Reference] {
        let input = self_attention(&x).visibility(added.clone()).engine(engine);
        assert_same(&format!("{engine:?}"), &super::weights(&attention, input).values, &expected.values, 1e-5);
    }
    let by = |engine| context(&attention, self_attention(&x).visibility(added.clone()).engine(engine)).values;
    assert_same("engines", &by(Engine::Fused), &by(Engine::Reference), 1e-5);
}

#[test]
fn a_long_prompt_is_read_by_the_engine_that_is_asked_for() {
    let attention = init(&MlaConfig::default().into(), &LayerSpec::new(Role::Decoder, 8, 2).with_max_length(40));
    let x = Array::random("x", &[2, 40, 8]);
    let whole = context(&attention, self_attention(&x).visibility(Visibility::causal())).values;
    for (engine, expected) in [(Engine::Auto, Executed::Fused), (Engine::Fused, Executed::Fused), (Engine::Reference, Executed::Reference)]
    {
        let mut state = attention.state(&DecodingStart::self_attention(2, 40).with_engine(engine));
        let mut executed = Vec::new();
        let mut listener = |_: &str, observation: Observation| {
            if let Observation::Executed(found) = observation {
                executed.push(found);
            }
        };
        let found = attention.step(x.tensor(&flex().device), &mut state, &mut Probe::listening(&mut listener)).context;
        assert_same(&format!("{engine:?}"), &Array::read(found).values, &whole, 1e-5);
        assert_eq!(executed, [expected], "{engine:?}");
    }
}
