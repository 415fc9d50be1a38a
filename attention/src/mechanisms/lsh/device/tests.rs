use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::tensor::{Device, Shape};
use burn_cubecl::CubeBackend;
use heedful_random::RandomKey;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::conformance::{cube_test_device, test_device};
use crate::contract::layer_spec::{LayerSpec, Role};
use crate::contract::mask::Mask;
use crate::contract::visibility::{Span, Visibility, hidden_logit};
use crate::contract::{Attention, AttentionInput};
use crate::description::Mechanism;
use crate::mechanisms::lsh::buckets::Buckets;
use crate::mechanisms::lsh::{BucketCount, Lsh, LshConfig, unit};

const BATCH: usize = 2;
const HEADS: usize = 2;
const WIDTH: usize = 3;

fn drawn(seed: u64, count: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn drawn_below(seed: u64, count: usize, end: i32) -> Vec<i32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(0..end)).collect()
}

fn chunking(size: usize, [before, after]: [usize; 2]) -> Chunking {
    Chunking { size, before, after, wrap: false, across_rounds: false, bucket_mask: true, duplicate_correction: true }
}

/// The arrangement, the biases, and for each kind of rows the gathered and the scattered rows.
fn results<B: ArrangementOperator>(form: Form, device: &B::Device) -> (Vec<i32>, Vec<Vec<f32>>) {
    let integers = |numbers: Vec<i32>, shape: Shape| B::int_from_data(TensorData::new(numbers, shape), device);
    let float = |numbers: Vec<f32>, shape: Shape| B::float_from_data(TensorData::new(numbers, shape), device);
    let read =
        |x| burn::tensor::try_read_sync(B::float_into_data(x)).expect("the device answers").expect("it has computed").iter().collect();
    let buckets = drawn_below(1, form.planes() * form.length, 5);
    let buckets = integers(buckets, Shape::new([BATCH, HEADS, form.rounds, form.length]));
    let live = drawn_below(2, BATCH * HEADS * form.length, 3).into_iter().map(|number| number.min(1)).collect();
    let live = integers(live, Shape::new([BATCH, HEADS, form.length]));
    let pairs = drawn(3, HEADS * form.queries * form.length);
    let pairs = pairs.into_iter().map(|number| if number < 0.3 { 0.0 } else { hidden_logit(DType::F32) }).collect();
    let pairs = float(pairs, Shape::new([1, HEADS, form.queries, form.length]));
    let arrangement = B::arranged(buckets.clone(), live, form);
    let mut floats = vec![read(B::bias(buckets, arrangement.clone(), pairs, form))];
    for rows in [Rows::Queries, Rows::Keys, Rows::Contexts] {
        let source = form.source_shape(rows, WIDTH);
        floats.push(read(B::taken(float(drawn(4, source.num_elements()), source), arrangement.clone(), rows, form)));
        let taken = form.taken_shape(rows, WIDTH);
        floats.push(read(B::returned(float(drawn(5, taken.num_elements()), taken), arrangement.clone(), rows, form)));
    }
    let arrangement = burn::tensor::try_read_sync(B::int_into_data(arrangement)).expect("the device answers").expect("it has computed");
    (arrangement.iter().collect(), floats)
}

#[test]
fn kernels_give_what_main_memory_gives() {
    let plain = Rules { wraps: false, within_buckets: true, counts_once: true, is_causal: false, has_holes: false, has_pairs: false };
    let all_rules = [
        plain,
        Rules { is_causal: true, has_holes: true, ..plain },
        Rules { has_holes: true, has_pairs: true, ..plain },
        Rules { wraps: true, within_buckets: false, ..plain },
        Rules { wraps: true, has_holes: true, counts_once: false, ..plain },
    ];
    for (rounds, length, size, [before, after]) in
        [(3, 29, 4, [1, 0]), (1, 24, 4, [1, 1]), (2, 7, 8, [0, 0]), (2, 40, 3, [2, 1]), (2, 11, 1, [1, 0]), (2, 12, 4, [3, 3])]
    {
        for rules in all_rules {
            let [query_start, queries] = [length / 3, length / 2];
            let form = Form { batch: BATCH, heads: HEADS, rounds, length, size, before, after, query_start, queries, rules };
            let (found, found_floats) = results::<CubeBackend>(form, &cube_test_device());
            let (wanted, wanted_floats) = results::<Flex>(form, &FlexDevice);
            assert_eq!(found, wanted, "{form:?}");
            for (index, (found, wanted)) in found_floats.iter().zip(&wanted_floats).enumerate() {
                assert_eq!(found.len(), wanted.len());
                let near = |(found, wanted): (&f32, &f32)| (found - wanted).abs() <= 1e-5 * (1.0 + wanted.abs());
                let wrong = found.iter().zip(wanted).filter(|&pair| !near(pair)).count();
                assert_eq!(wrong, 0, "{form:?}: result {index}");
                assert!(
                    wanted.iter().any(|number| number.abs() < 10.0 && *number != 0.0) || index == 0,
                    "{form:?}: result {index} is nothing"
                );
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    chunking: Chunking,
    rounds: usize,
    random: Option<RandomKey>,
}

impl Case {
    fn new(chunking: Chunking, rounds: usize) -> Self {
        Self { chunking, rounds, random: None }
    }
}

/// Context, weights, and the gradients of the shared vectors of queries and keys and of values.
fn outputs(on_device: bool, case: Case, visibility: &Visibility, span: Span, device: &Device) -> Vec<Vec<f32>> {
    let Case { chunking, rounds, random } = case;
    let device = device.clone().autodiff();
    let length = span.keys;
    let shape = [BATCH, HEADS, length, WIDTH];
    let tensor = |seed, shape: [usize; 4]| Tensor::<4>::from_data(TensorData::new(drawn(seed, shape.iter().product()), shape), &device);
    let (shared, values) = (tensor(1, shape).require_grad(), tensor(2, shape).require_grad());
    let count = (length / 4).max(2) as i32;
    let buckets = TensorData::new(drawn_below(3, BATCH * HEADS * rounds * length, count), [BATCH, HEADS, rounds, length]);
    let buckets = Tensor::<4, Int>::from_data(buckets, &device);
    let place = LayerSpec::new(Role::Encoder, HEADS * WIDTH, HEADS).with_dropout(0.3);
    let mut lsh = LshConfig::default().init(&place, &RandomKey::from_seed(1), &device);
    lsh.chunking = chunking;
    let call = Call {
        queries: shared.clone().narrow(2, span.query_start, span.queries) * 2.0,
        keys: unit(shared.clone()),
        values: values.clone(),
        span,
        visibility: visibility.clone(),
        random,
        engine: Engine::Reference,
    };
    let mut weights = Vec::new();
    let mut listener = |_: &str, observation: Observation| {
        if let Observation::Weights(shown) = observation {
            weights = read(shown).iter::<f32>().collect();
        }
    };
    let mut probe = Probe::listening(&mut listener);
    let context = if on_device {
        attend(call, buckets, &lsh.chunking, lsh.dropout(random), &mut probe)
    } else {
        lsh.attend_in_chunks(call, &Buckets::read(buckets), &mut probe)
    };
    let gradients = (context.clone() * tensor(4, [BATCH, HEADS, span.queries, WIDTH])).sum().backward();
    let gradient = |x: Tensor<4>| read(x.grad(&gradients).expect("it has a gradient")).iter::<f32>().collect();
    vec![read(context).iter::<f32>().collect(), weights, gradient(shared), gradient(values)]
}

fn assert_agree(case: Case, visibility: &Visibility, span: Span, device: &Device) {
    let found = outputs(true, case, visibility, span, device);
    let wanted = outputs(false, case, visibility, span, &Device::flex());
    for (what, (found, wanted)) in
        ["context", "weights", "gradient of queries and keys", "gradient of values"].iter().zip(found.iter().zip(&wanted))
    {
        assert_eq!(found.len(), wanted.len());
        let difference = found.iter().zip(wanted).map(|(found, wanted)| (found - wanted).abs()).fold(0.0, f32::max);
        assert!(difference < 2e-5, "{what} differs by {difference}: {case:?}, {visibility:?}, {span:?}");
    }
    assert!(wanted[0].iter().any(|number| number.abs() > 1e-2));
}

fn visibilities(length: usize) -> Vec<Visibility> {
    let padding = || Visibility::padding(vec![length, length.div_ceil(2)]);
    vec![
        Visibility::all(),
        Visibility::causal(),
        padding(),
        padding().and(Visibility::causal()),
        Visibility::padding(vec![length, 0]),
        Visibility::left_padding(vec![0, length / 3]).and(Visibility::causal()),
        Visibility::left_padding(vec![length / 2, 1]),
        Visibility::window(5, 2).and(padding()),
        Visibility::pattern(|head, i, j| (i + j) % 3 != head),
    ]
}

#[test]
fn arranged_calls_give_what_chunks_of_the_host_give() {
    let device = Device::flex();
    for length in [1, 7, 24, 29] {
        for visibility in visibilities(length) {
            for (size, reach) in [(4, [1, 0]), (4, [1, 1]), (3, [0, 0]), (1, [2, 1]), (8, [usize::MAX, 1])] {
                for (wrap, bucket_mask, duplicate_correction, rounds) in
                    [(false, true, true, 3), (false, true, false, 2), (true, false, true, 2), (true, true, true, 1)]
                {
                    let chunking = Chunking { wrap, bucket_mask, duplicate_correction, ..chunking(size, reach) };
                    assert_agree(Case::new(chunking, rounds), &visibility, Span::whole(length, length), &device);
                }
            }
        }
    }
}

#[test]
fn queries_of_a_segment_stand_among_the_positions_of_its_memory() {
    let span = Span { query_start: 13, queries: 9, key_start: 0, keys: 22 };
    for visibility in [Visibility::causal(), Visibility::all(), Visibility::window(6, 0), Visibility::padding(vec![22, 15])] {
        assert_agree(Case::new(chunking(4, [1, 0]), 2), &visibility, span, &Device::flex());
    }
    let inner = Span { queries: 5, ..span };
    assert_agree(Case::new(chunking(4, [1, 1]), 2), &Visibility::causal(), inner, &Device::flex());
}

#[test]
fn an_accelerator_gives_what_chunks_of_the_host_give() {
    let device = test_device();
    for (length, size, reach, rounds) in [(29, 4, [1, 0], 3), (48, 8, [1, 1], 2), (21, 5, [0, 0], 1)] {
        for visibility in visibilities(length) {
            assert_agree(Case::new(chunking(size, reach), rounds), &visibility, Span::whole(length, length), &device);
        }
        let wrapped = Chunking { wrap: true, bucket_mask: false, ..chunking(size, reach) };
        let padding = Visibility::padding(vec![length, length.div_ceil(2)]);
        assert_agree(Case::new(wrapped, rounds), &padding, Span::whole(length, length), &device);
    }
    let span = Span { query_start: 13, queries: 9, key_start: 0, keys: 22 };
    assert_agree(Case::new(chunking(4, [1, 0]), 2), &Visibility::causal(), span, &device);
}

#[test]
fn dropout_drops_what_it_drops_in_chunks_of_the_host() {
    let case = |chunking, rounds| Case { random: Some(RandomKey::from_seed(9)), ..Case::new(chunking, rounds) };
    let wrapped = |size, reach| Chunking { wrap: true, bucket_mask: false, ..chunking(size, reach) };
    for device in [Device::flex(), test_device()] {
        for (length, chunking, rounds) in
            [(5, chunking(8, [1, 1]), 1), (5, chunking(3, [1, 0]), 2), (29, chunking(4, [1, 0]), 3), (23, wrapped(4, [1, 1]), 2)]
        {
            for visibility in [Visibility::all(), Visibility::causal()] {
                assert_agree(case(chunking, rounds), &visibility, Span::whole(length, length), &device);
            }
        }
    }
}

#[test]
fn a_mask_of_a_tensor_stays_on_an_accelerator() {
    let config = LshConfig::default().with_chunk(4).with_buckets(BucketCount::One(4)).with_full_attention_below(0);
    let spec = LayerSpec::new(Role::Encoder, 6, 2).with_max_length(16);
    let contexts = |engine, device: &Device| {
        let attention: Lsh = config.init(&spec, &RandomKey::from_seed(1), device);
        let x = Tensor::<3>::from_data(TensorData::new(drawn(6, 2 * 16 * 6), [2, 16, 6]), device);
        let hidden =
            Tensor::<2, Bool>::from_data(TensorData::new((0..32).map(|at| at % 16 > 10 + at / 16).collect::<Vec<bool>>(), [2, 16]), device);
        let mask = Mask::hidden_keys(hidden);
        let input = AttentionInput { engine, ..AttentionInput::self_attention(x) }.visibility(mask.visibility().clone());
        let context = attention.forward(input, &mut Probe::off()).context;
        let is_read = mask.visibility().is_read();
        (read(context).iter::<f32>().collect::<Vec<_>>(), is_read)
    };
    let (found, is_read) = contexts(Engine::Auto, &test_device());
    let (wanted, of_host) = contexts(Engine::Reference, &test_device());
    assert_eq!((is_read, of_host), (false, true));
    assert!(found.iter().zip(&wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-5));
}
