//! LSH attention: Kitaev, Kaiser and Levskaya 2020.

use burn::module::RunningState;
use heedful_attention::conformance::Property;
use heedful_attention::description::PlainAttention;
use heedful_attention::mechanisms::lsh::{BucketCount, Hashing, Lsh, Rotations};
use heedful_attention::mechanisms::shared_qk::{Scale, SharedQk};

use super::*;
use crate::gradients::gradients_agree;

/// Four buckets, chunks of two, three rounds, never full attention.
fn small() -> LshConfig {
    LshConfig::default().with_buckets(BucketCount::One(4)).with_chunk(2).with_rounds(3).with_full_attention_below(0)
}

/// Chunks in which the buckets of 24 positions fit.
fn roomy() -> LshConfig {
    small().with_buckets(BucketCount::One(32)).with_chunk(8)
}

/// Rounds whose ends look at each other.
fn across_rounds() -> LshConfig {
    small().with_bucket_mask(false).with_wrap(true).with_across_rounds(true)
}

/// Heads that are wide enough for buckets of about the same size.
fn wide(role: Role) -> LayerSpec {
    place(role).with_d_model(32)
}

fn place(role: Role) -> LayerSpec {
    spec(role, 2).with_max_length(24).with_dropout(0.0)
}

fn init(config: &LshConfig, place: &LayerSpec) -> AnyAttention {
    super::init(&AnyMechanism::from(config.clone()), place)
}

fn lsh(attention: &mut AnyAttention) -> &mut Lsh {
    attention.get_mut().expect("it is LSH attention")
}

fn subject(config: &LshConfig, role: Role) -> (Subject<AnyAttention>, PlainAttention) {
    let place = place(role).with_max_length(11).with_dropout(0.3);
    let config = AnyMechanism::from(config.clone());
    let subject = Subject::of(&config, place, &flex().device).unnormalised();
    let plain = PlainAttention::read(&config, place, &subject.attention);
    (subject, plain)
}

/// Buckets `[B, H, rounds, K]`, unless no position was hashed.
fn buckets<A: Attention>(attention: &A, input: AttentionInput) -> Option<Array> {
    let mut shown = None;
    let mut listener = |_: &str, observation: Observation| {
        if let Observation::Buckets(buckets) = observation {
            shown = Some(Array::read(buckets.float()));
        }
    };
    attention.forward(input, &mut Probe::listening(&mut listener));
    shown
}

/// Whether no bucket has more than `most` members.
fn fit(buckets: &Array, most: usize) -> bool {
    let lists = buckets.values.chunks(buckets.shape[3]);
    lists.into_iter().all(|list| list.iter().all(|bucket| list.iter().filter(|other| *other == bucket).count() <= most))
}

/// Whether two positions share a bucket in some round.
fn meet(buckets: &Array, b: usize, h: usize, i: usize, j: usize) -> bool {
    (0..buckets.shape[2]).any(|round| buckets.at(&[b, h, round, i]) == buckets.at(&[b, h, round, j]))
}

fn distance(a: &Array, b: &Array) -> f64 {
    a.values.iter().zip(&b.values).fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn chunks_give_the_softmax_over_the_union_of_the_rounds() {
    let of = |config: LshConfig| (config, [Role::Encoder, Role::Decoder]);
    let configs = [
        of(small()),
        of(small().with_chunk(3)),
        of(small().with_rounds(1)),
        of(small().with_buckets(None)),
        of(small().with_buckets(BucketCount::Factorised([2, 4]))),
        of(small().with_bucket_mask(false)),
        of(small().with_bucket_mask(false).with_wrap(true)),
        of(small().with_bucket_mask(false).with_wrap(true).with_chunk(4).with_after(1).with_duplicate_correction(false)),
        of(across_rounds()),
        of(across_rounds().with_before(4).with_after(2)),
        of(across_rounds().with_duplicate_correction(false)),
        of(across_rounds().with_before(0).with_after(1).with_chunk(3).with_duplicate_correction(false)),
        of(small().with_duplicate_correction(false)),
        of(small().with_before(0).with_after(0)),
        of(small().with_before(3).with_after(2).with_scale(Scale::Code)),
        of(small().with_hashing(Hashing::Random)),
    ];
    for (config, roles) in configs {
        for role in roles {
            let (subject, plain) = subject(&config, role);
            for [batch, length] in [[1, 1], [2, 5], [3, 8], [1, 11]] {
                plain.agrees(&subject, batch, length, 1e-5).unwrap_or_else(|error| panic!("{config:?} in {role:?}: {error}"));
            }
        }
    }
}

#[test]
fn gradients_flow_through_chunks_and_not_into_buckets() {
    for config in [small(), small().with_bucket_mask(false).with_duplicate_correction(false), across_rounds()] {
        let (subject, mut plain) = subject(&config, Role::Encoder);
        gradients_agree(&subject, &mut plain, &["rotations"]).unwrap_or_else(|error| panic!("{config:?}: {error}"));
    }
}

#[test]
fn chunks_keep_every_property_that_does_not_need_room() {
    let properties = [
        Property::Padding,
        Property::EmptyRows,
        Property::Batch,
        Property::Dropout,
        Property::Weights,
        Property::Probe,
        Property::Losses,
        Property::Determinism,
        Property::Record,
    ];
    for config in [small(), small().with_bucket_mask(false).with_wrap(true), across_rounds()] {
        for role in [Role::Encoder, Role::Decoder] {
            let (subject, _) = subject(&config, role);
            for property in properties {
                property.check(&subject).unwrap_or_else(|error| panic!("{config:?} in {role:?}: {error}"));
            }
        }
    }
}

#[test]
fn one_chunk_across_buckets_is_full_attention() {
    let x = Array::random("x", &[2, 9, 6]);
    for visibility in [Visibility::all(), Visibility::causal()] {
        for (hashing, wrap) in [(Hashing::Angular, false), (Hashing::Random, true)] {
            let one = small().with_chunk(9).with_before(0).with_bucket_mask(false).with_hashing(hashing).with_wrap(wrap);
            let full = one.clone().with_full_attention_below(9);
            let run = |config| {
                let attention = init(config, &place(Role::Encoder));
                let input = || self_attention(&x).visibility(visibility.clone());
                assert_eq!(buckets(&attention, input()).is_some(), config == &one);
                (context(&attention, input()), weights(&attention, input()))
            };
            let ((found, found_weights), (expected, expected_weights)) = (run(&one), run(&full));
            assert_same("context", &found.values, &expected.values, 1e-5);
            assert_same("weights", &found_weights.values, &expected_weights.values, 1e-5);
        }
    }
}

#[test]
fn rounds_in_which_every_pair_meets_are_full_attention_if_duplicates_are_corrected() {
    let x = Array::random("x", &[1, 6, 6]);
    // Content would keep opposite directions apart for ever.
    let many = small().with_rounds(40).with_chunk(3).with_buckets(BucketCount::One(2)).with_hashing(Hashing::Random);
    let weights_of = |config: &LshConfig| weights(&init(config, &place(Role::Encoder)), self_attention(&x));
    let found = weights_of(&many);
    for (h, i) in (0..2).flat_map(|h| (0..6).map(move |i| (h, i))) {
        let seen = found.row(&[0, h, i]).iter().filter(|&&weight| weight > 0.0).count();
        assert_eq!(seen, 5, "the premise: every other position is met");
    }
    let full = weights_of(&many.clone().with_full_attention_below(6));
    assert_same("with correction", &found.values, &full.values, 1e-5);
    let counted = weights_of(&many.with_duplicate_correction(false));
    assert!(distance(&counted, &full) > 0.01, "pairs that meet more often did not weigh more");
}

#[test]
fn the_same_round_again_changes_nothing() {
    let x = Array::random("x", &[1, 9, 6]);
    for duplicate_correction in [true, false] {
        let config = small().with_rounds(1).with_duplicate_correction(duplicate_correction);
        let mut attention = init(&config, &place(Role::Decoder));
        let once = context(&attention, self_attention(&x).visibility(Visibility::causal()));
        let inner = lsh(&mut attention);
        inner.rotations = RunningState::new(Tensor::cat(vec![inner.rotations.value(); 3], 0));
        let thrice = context(&attention, self_attention(&x).visibility(Visibility::causal()));
        assert_same("three equal rounds", &thrice.values, &once.values, 1e-5);
    }
}

#[test]
fn the_ends_of_rounds_look_at_each_other_in_every_engine() {
    let configs = [
        across_rounds(),
        across_rounds().with_duplicate_correction(false),
        across_rounds().with_before(2).with_after(1),
        across_rounds().with_before(7).with_chunk(3),
        across_rounds().with_before(0).with_after(1).with_rounds(2).with_duplicate_correction(false),
    ];
    for config in configs {
        for role in [Role::Encoder, Role::Decoder] {
            let (subject, _) = subject(&config, role);
            Property::Engines.check(&subject).unwrap_or_else(|error| panic!("{config:?} in {role:?}: {error}"));
        }
    }
}

#[test]
fn the_first_chunk_of_a_round_looks_back_at_the_last_one_of_the_round_before() {
    let x = Array::random("ends", &[1, 12, 6]);
    let seen = |config: &LshConfig, equal_rounds: bool| -> Vec<Vec<bool>> {
        let mut attention = init(config, &place(Role::Encoder));
        if equal_rounds {
            let inner = lsh(&mut attention);
            inner.rotations = RunningState::new(Tensor::cat(vec![inner.rotations.value().narrow(0, 0, 1); 3], 0));
        }
        let weights = weights(&attention, self_attention(&x));
        weights.values.chunks(12).map(|row| row.iter().map(|&weight| weight > 0.0).collect()).collect()
    };
    let across = across_rounds().with_after(0);
    let within = across.clone().with_across_rounds(false);
    assert_eq!(seen(&across, true), seen(&within, true), "of equal rounds the last chunk of the one before is the last of the own");
    assert_ne!(seen(&across, false), seen(&within, false));
    // In one bucket all are in the order of positions: nothing but the first chunk looks at the last.
    let mut attention = init(&across.with_chunk(4).with_duplicate_correction(false), &place(Role::Encoder));
    let inner = lsh(&mut attention);
    inner.rotations = RunningState::new(inner.rotations.value() * 0.0);
    let weights = weights(&attention, self_attention(&x));
    for (i, chunks) in [(1, [0, 2]), (5, [0, 1]), (9, [1, 2])] {
        let expected: Vec<usize> = (0..12).filter(|j| chunks.contains(&(j / 4)) && *j != i).collect();
        assert_eq!((0..12).filter(|&j| weights.at(&[0, 0, i, j]) > 0.0).collect::<Vec<_>>(), expected, "query {i}");
    }
}

/// Shared-QK attention with the weights of LSH attention.
fn unhashed(lsh: &Lsh, config: SharedQkConfig, place: &LayerSpec) -> AnyAttention {
    let mut attention = super::init(&AnyMechanism::from(config), place);
    let target = softmax(&mut attention);
    (target.value, target.output) = (lsh.value.clone(), lsh.output.clone());
    target.logits.get_mut::<SharedQk>().unwrap().query_key = lsh.query_key.clone();
    attention
}

#[test]
fn lsh_attention_that_does_not_hash_is_shared_qk_attention() {
    for role in [Role::Encoder, Role::Decoder] {
        for scale in [Scale::Paper, Scale::Code] {
            let mut full = init(&small().with_full_attention_below(24).with_scale(scale), &place(role));
            let shared = unhashed(lsh(&mut full), SharedQkConfig::default().with_scale(scale), &place(role));
            for factor in [1.0, 10.0] {
                let x = Array::random("x", &[2, 9, 6]);
                let x = Array { values: x.values.iter().map(|x| factor * x).collect(), ..x };
                let input = || self_attention(&x).visibility(Visibility::padding(vec![9, 4]));
                let (found, expected) = (context(&shared, input()), context(&full, input()));
                assert_same(&format!("{role:?}, {scale:?}, {factor}"), &found.values, &expected.values, 1e-5 * factor);
            }
        }
    }
}

#[test]
fn a_query_sees_its_own_position_only_where_it_sees_nothing_else() {
    // Two at a time: the first of each pair sees nothing else.
    let local = parse("local-1d{query_block=2,memory_block=0}").over(parse("shared-qk")).unwrap();
    let attention = super::init(&local, &place(Role::Decoder));
    let x = Array::random("own", &[1, 9, 6]);
    for factor in [1e-3, 1.0, 1e3] {
        let x = Array { shape: x.shape.clone(), values: x.values.iter().map(|x| factor * x).collect() };
        let weights = weights(&attention, self_attention(&x).visibility(Visibility::causal()));
        for (h, i) in (0..2).flat_map(|h| (0..9).map(move |i| (h, i))) {
            let seen = i / 2 * 2;
            let expected: Vec<f64> = (0..9).map(|j| f64::from(j == seen)).collect();
            assert_same(&format!("query {i} of head {h}, {factor}"), weights.row(&[0, h, i]), &expected, 1e-6);
        }
    }
}

/// Attention of one head of width 4 that hashes its input itself.
fn bare(config: &LshConfig) -> AnyAttention {
    let mut attention = init(config, &place(Role::Encoder).with_d_model(4).with_n_heads(1));
    lsh(&mut attention).query_key = linear(&identity(4));
    attention
}

#[test]
fn buckets_depend_on_the_direction_alone_and_opposites_are_half_the_buckets_apart() {
    let x = Array::random("x", &[1, 20, 4]);
    let scaled = |by: f64| Array { shape: x.shape.clone(), values: x.values.iter().map(|x| by * x).collect() };
    for factors in [vec![8], vec![4, 6]] {
        let count = if factors.len() == 1 { BucketCount::One(8) } else { BucketCount::Factorised([4, 6]) };
        let attention = bare(&small().with_buckets(count));
        let of = |x: &Array| buckets(&attention, self_attention(x)).unwrap();
        let plain = of(&x);
        assert_eq!(of(&scaled(0.01)), plain);
        assert_eq!(of(&scaled(50.0)), plain);
        let opposite = of(&scaled(-1.0));
        for (&bucket, &found) in plain.values.iter().zip(&opposite.values) {
            let (mut rest, mut stride, mut expected) = (bucket as usize, 1, 0);
            for factor in &factors {
                expected += stride * ((rest % factor + factor / 2) % factor);
                (rest, stride) = (rest / factor, stride * factor);
            }
            assert_eq!(rest, 0, "bucket {bucket} of {factors:?}");
            assert_eq!(found as usize, expected, "opposite of {bucket}");
        }
        assert!(plain.values.iter().any(|&bucket| bucket != plain.values[0]));
    }
}

#[test]
fn the_probability_of_a_collision_falls_with_the_angle() {
    let config = small().with_rounds(1000).with_buckets(BucketCount::One(8)).with_duplicate_correction(false);
    let angles = [0.0f64, 10.0, 30.0, 60.0, 90.0, 180.0];
    let x = Array::from_fn([1, 6, 4], |[_, i, c]| match c {
        0 => angles[i].to_radians().cos(),
        1 => angles[i].to_radians().sin(),
        _ => 0.0,
    });
    let buckets = buckets(&bare(&config), self_attention(&x)).unwrap();
    let collisions = |i| (0..1000).filter(|&round| buckets.at(&[0, 0, round, 0]) == buckets.at(&[0, 0, round, i])).count();
    let found: Vec<usize> = (0..6).map(collisions).collect();
    assert!(found.windows(2).all(|pair| pair[0] > pair[1] + 20), "collisions in 1000 rounds at {angles:?} degrees: {found:?}");
    assert_eq!((found[0], found[5]), (1000, 0));
}

#[test]
fn no_pair_of_a_bucket_is_lost_where_buckets_fit_their_chunks() {
    let x = Array::random("room", &[2, 24, 32]);
    let seen_pairs = |config: &LshConfig, role, visibility: Visibility| {
        let attention = init(config, &wide(role));
        let input = || self_attention(&x).visibility(visibility.clone());
        let (shown, weights) = (buckets(&attention, input()).unwrap(), weights(&attention, input()));
        assert!(fit(&shown, config.chunk_at(512)), "the premise: buckets fit");
        let (mut seen, mut lost) = (0, 0);
        for (b, h, i) in (0..2).flat_map(|b| (0..2).flat_map(move |h| (0..24).map(move |i| (b, h, i)))) {
            let row = weights.row(&[b, h, i]);
            let others: Vec<usize> = (0..24).filter(|&j| j != i && visibility.is_visible(b, h, i, j) && meet(&shown, b, h, i, j)).collect();
            for j in (0..24).filter(|&j| j != i) {
                assert!(row[j] == 0.0 || others.contains(&j), "query {i} sees {j}, which is in another bucket or hidden");
            }
            seen += others.iter().filter(|&&j| row[j] > 0.0).count();
            lost += others.iter().filter(|&&j| row[j] == 0.0).count();
            // Its own position is for a query that sees nothing else.
            assert_eq!(
                row[i],
                if row.iter().enumerate().any(|(j, &weight)| j != i && weight > 0.0) { 0.0 } else { 1.0 },
                "query {i}: {row:?}"
            );
        }
        assert!(seen > 50, "{seen} pairs");
        lost
    };
    assert_eq!(seen_pairs(&roomy(), Role::Decoder, Visibility::causal()), 0);
    assert_eq!(seen_pairs(&roomy(), Role::Encoder, Visibility::all()), 0);
    let behind = roomy().with_after(0).with_rounds(1);
    assert!(seen_pairs(&behind, Role::Encoder, Visibility::all()) > 0, "half a bucket lies ahead");
}

#[test]
fn an_overfull_bucket_loses_what_lies_farther_back_than_a_chunk() {
    let x = Array::random("x", &[1, 12, 6]);
    let mut attention = init(&small().with_chunk(4).with_rounds(1), &place(Role::Decoder));
    let inner = lsh(&mut attention);
    inner.rotations = RunningState::new(inner.rotations.value() * 0.0);
    let weights = weights(&attention, self_attention(&x).visibility(Visibility::causal()));
    for i in 1..12 {
        let first = (i / 4 * 4usize).saturating_sub(4);
        let seen: Vec<usize> = (0..12).filter(|&j| weights.at(&[0, 0, i, j]) > 0.0).collect();
        assert_eq!(seen, (first..i).collect::<Vec<_>>(), "query {i}");
    }
    assert_eq!(weights.row(&[0, 0, 0])[0], 1.0);
}

#[test]
fn the_future_moves_nothing_where_buckets_fit() {
    for hashing in [Hashing::Angular, Hashing::Random] {
        let attention = init(&roomy().with_hashing(hashing), &wide(Role::Decoder));
        let run = |x: &Array| {
            let input = || self_attention(x).visibility(Visibility::causal());
            assert!(fit(&buckets(&attention, input()).unwrap(), 8), "the premise: buckets fit");
            context(&attention, input())
        };
        let x = Array::random("future", &[1, 24, 32]);
        let before = run(&x);
        for t in [3, 11, 17, 23] {
            let mut changed = x.clone();
            let other = Array::random("another future", &[1, 24, 32]);
            (t..24).for_each(|i| changed.row_mut(&[0, i]).copy_from_slice(other.row(&[0, i])));
            let after = run(&changed);
            assert_same(&format!("before {t}"), &after.slice(0..t).values, &before.slice(0..t).values, 1e-6);
            assert!(distance(&after, &before) > 0.01);
        }
    }
}

#[test]
fn steps_equal_the_full_pass_where_buckets_fit() {
    let x = Array::random("steps", &[2, 24, 32]);
    let others =
        [roomy(), roomy().with_duplicate_correction(false), roomy().with_hashing(Hashing::Random), roomy().with_full_attention_below(24)];
    for config in others {
        let attention = init(&config, &wide(Role::Decoder));
        let input = || self_attention(&x).visibility(Visibility::causal());
        assert!(buckets(&attention, input()).is_none_or(|buckets| fit(&buckets, 8)), "the premise: buckets fit");
        let whole = context(&attention, input());
        for size in [1, 5] {
            let mut state = attention.state(&DecodingStart::self_attention(2, 24));
            for start in (0..24).step_by(size) {
                let part = x.slice(start..(start + size).min(24));
                let found = Array::read(attention.step(part.tensor(&flex().device), &mut state, &mut Probe::off()).context);
                let expected = whole.slice(start..(start + size).min(24));
                assert_same(&format!("{config:?}: steps of {size} from {start}"), &found.values, &expected.values, 1e-5);
            }
        }
    }
}

#[test]
fn a_segment_sees_what_was_carried_over() {
    let x = Array::random("segment", &[2, 24, 32]);
    for config in [roomy(), roomy().with_full_attention_below(24)] {
        let attention = init(&config, &wide(Role::Decoder));
        let whole = context(&attention, self_attention(&x).visibility(Visibility::causal()));
        let device = &flex().device;
        let segment = AttentionInput::segment(x.slice(14..24).tensor(device), x.slice(0..14).tensor(device));
        let input = segment.visibility(Visibility::causal());
        assert!(buckets(&attention, input.clone()).is_none_or(|buckets| fit(&buckets, 8)), "the premise: buckets fit");
        assert_same("second segment", &context(&attention, input).values, &whole.slice(14..24).values, 1e-5);
    }
}

#[test]
fn padding_takes_no_place_in_a_chunk() {
    let x = Array::random("padded", &[1, 13, 6]);
    for hashing in [Hashing::Angular, Hashing::Random] {
        let attention = init(&small().with_hashing(hashing), &place(Role::Encoder));
        let alone = context(&attention, self_attention(&x.slice(4..10)));
        let visibility = Visibility::left_padding(vec![4]).and(Visibility::padding(vec![10]));
        let positions = Positions::default().with_left_padding(vec![4]);
        let padded = context(&attention, self_attention(&x).visibility(visibility).positions(positions));
        assert_same("real positions", &padded.slice(4..10).values, &alone.values, 1e-5);
    }
}

#[test]
fn random_buckets_do_not_depend_on_content_and_others_do() {
    let (x, other) = (Array::random("x", &[1, 12, 6]), Array::random("other", &[1, 12, 6]));
    for (hashing, same) in [(Hashing::Random, true), (Hashing::Angular, false)] {
        let attention = init(&small().with_hashing(hashing), &place(Role::Encoder));
        let of = |x: &Array| buckets(&attention, self_attention(x)).unwrap();
        assert_eq!(of(&x) == of(&other), same);
        let all = of(&x);
        assert!((0..4).all(|bucket| all.values.contains(&f64::from(bucket))), "{all:?}");
    }
}

#[test]
fn rotations_are_saved_and_drawn_anew_only_where_asked() {
    let x = Array::random("x", &[1, 12, 6]);
    let input = |seed: Option<u64>| self_attention(&x).random(seed.map(RandomKey::from_seed));
    let config = small().with_rotations(Rotations::PerCall);
    let mut attention = init(&config, &place(Role::Encoder));
    let per_call = |seed| buckets(&attention, input(seed)).unwrap();
    assert!(attention.abilities().randomness);
    assert_ne!(per_call(Some(1)), per_call(Some(2)));
    assert_eq!(per_call(Some(1)), per_call(Some(1)));
    let fixed = per_call(None);
    assert_eq!(fixed, per_call(None));
    let other = AnyMechanism::from(small()).init(&place(Role::Encoder), &RandomKey::from_seed(2), &flex().device);
    assert!(!other.abilities().randomness);
    assert_eq!(buckets(&other, input(Some(1))), buckets(&other, input(None)));
    assert_ne!(buckets(&other, input(None)).unwrap(), fixed);
    let found = other.load_record(attention.clone().into_record());
    assert_eq!(buckets(&found, input(None)).unwrap(), fixed);
    let inner = lsh(&mut attention);
    inner.rotations = RunningState::new(inner.rotations.value() * -1.0);
    let negated = buckets(&attention, input(None)).unwrap();
    assert!(negated.values.iter().zip(&fixed.values).all(|(found, old)| *found == (old + 2.0) % 4.0), "rotations of one's own are used");
}

#[test]
fn the_scale_of_the_code_is_larger_by_the_root_of_the_width() {
    let x = Array::random("x", &[1, 5, 6]);
    let logarithms = |scale| {
        let config = small().with_scale(scale).with_full_attention_below(5);
        let weights = weights(&init(&config, &place(Role::Encoder)), self_attention(&x));
        (2..5)
            .map(|j| (weights.at(&[0, 0, 0, j]) / weights.at(&[0, 0, 0, 1])).ln() * 3f64.sqrt().powi(i32::from(scale == Scale::Paper)))
            .collect::<Vec<_>>()
    };
    assert_same("differences of logits", &logarithms(Scale::Paper), &logarithms(Scale::Code), 1e-5);
}

#[test]
fn defaults_are_a_chunk_of_twice_the_average_bucket_and_full_attention_for_short_sequences() {
    for (max_length, columns, full) in [(512, 8, 128), (513, 9, 128), (100, 4, 50), (10, 5, 4)] {
        let place = place(Role::Decoder).with_max_length(max_length);
        let mut attention = init(&LshConfig::default(), &place);
        assert_eq!(lsh(&mut attention).rotations.value().dims(), [4, 2, 3, columns], "maximal length {max_length}");
        for (length, hashed) in [(full, false), (full + 1, true)] {
            let x = Array::random("long", &[1, length, 6]);
            let input = self_attention(&x).visibility(Visibility::causal());
            assert_eq!(buckets(&attention, input).is_some(), hashed, "length {length}");
        }
    }
}

#[test]
fn the_same_weights_attend_with_other_numbers_of_rounds() {
    let x = Array::random("x", &[1, 12, 6]);
    let mut attention = init(&small(), &place(Role::Decoder));
    let input = || self_attention(&x).visibility(Visibility::causal());
    let own = lsh(&mut attention).clone();
    let key = RandomKey::from_seed(3);
    let with = |rounds| own.clone().with_rounds(rounds, &key);
    assert_eq!(context(&with(3), input()), context(&attention, input()));
    let shown = |attention: &Lsh| buckets(attention, input()).unwrap();
    let (all, fewer, more) = (shown(&own), shown(&with(1)), shown(&with(5)));
    assert_eq!([fewer.shape[2], all.shape[2], more.shape[2]], [1, 3, 5]);
    for head in 0..2 {
        for position in 0..12 {
            let at = |found: &Array, round| found.at(&[0, head, round, position]);
            assert_eq!(at(&fewer, 0), at(&all, 0));
            assert!((0..3).all(|round| at(&more, round) == at(&all, round)), "rounds that were there stay");
        }
    }
    assert_ne!(context(&with(1), input()), context(&attention, input()));
    let full = small().with_full_attention_below(12);
    let full = init(&full, &place(Role::Decoder));
    assert_eq!(context(&own.clone().with_full_attention_below(usize::MAX), input()), context(&full, input()));
    let hashing = own.with_full_attention_below(usize::MAX).with_full_attention_below(0);
    assert_eq!(context(&hashing, input()), context(&attention, input()));
}
