//! Sizes that options do not give: they follow the maximal length, so that no mechanism is dot-product attention by another name.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use heedful_attention::description::PlainAttention;
use heedful_attention::description::multiplications::multiplications;
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::read;

use crate::backends::flex;
use crate::subject::Subject;
use crate::variants::parse;

const LENGTHS: [usize; 6] = [16, 40, 64, 128, 512, 4096];

/// What hides pairs of positions with its default options.
const HIDING: [&str; 11] = [
    "sliding-window",
    "streaming-llm",
    "local-1d",
    "local-2d",
    "sparse-strided",
    "sparse-fixed",
    "lightweight-conv",
    "dynamic-conv",
    "adaptive-span",
    "adaptive-span-fixed",
    "alibi@sparse-strided",
];

fn place(role: Role, max_length: usize) -> LayerSpec {
    LayerSpec::new(role, 8, 2).with_max_length(max_length)
}

fn layer(mechanism: &AnyMechanism, place: &LayerSpec) -> AttentionLayer {
    mechanism.validate(place).unwrap_or_else(|error| panic!("{error}"));
    let key = RandomKey::from_seed(1);
    AttentionLayer::from_attention(mechanism.init(place, &key, &flex().device), place, &key)
}

fn elements(length: usize) -> Tensor<3> {
    let device = flex().device;
    let numbers = Tensor::arange(0..(length * 8) as i64, &device).float();
    (numbers * 0.7).sin().reshape([1, length, 8])
}

/// Every mechanism, and the roles of sequences that attend to themselves in which it can stand.
fn everywhere() -> Vec<(AnyMechanism, Role)> {
    let more = ["relative+dot-product@local-1d", "alibi@soft-cap@sliding-window", "dot-product@sparse-fixed@output-gate"].map(parse);
    let all = AnyMechanism::all().into_iter().chain(more);
    let places = all.flat_map(|mechanism| [Role::Decoder, Role::Encoder].map(|role| (mechanism.clone(), role)));
    places.filter(|(mechanism, role)| mechanism.validate(&place(*role, 64)).is_ok()).collect()
}

#[test]
fn no_default_shows_every_pair() {
    for (name, length) in HIDING.iter().flat_map(|name| LENGTHS.map(|length| (name, length))) {
        for role in [Role::Decoder, Role::Encoder] {
            // Kernels of higher layers are longer.
            let place = place(role, length).at_layer(5, 6);
            if parse(name).validate(&place).is_err() {
                continue;
            }
            let layer = layer(&parse(name), &place);
            let pairs = |attention: &AnyAttention| multiplications(attention, &place, 0..length, length).pairs;
            let dense = AnyMechanism::default().init(&place, &RandomKey::from_seed(1), &flex().device);
            assert!(pairs(&layer.attention) < pairs(&dense), "{name} multiplies like dot-product attention at {length}");
            if length <= 512 {
                let weights = layer.forward_with_weights(elements(length), &Mask::none()).1;
                let shown = weights.greater_elem(0.0).int().sum().into_scalar::<i64>() as usize;
                let all = if role == Role::Decoder { length * (length + 1) } else { 2 * length * length };
                assert!(shown < all, "{name} as {role:?} hides nothing at {length}");
            }
        }
    }
}

#[test]
fn windows_blocks_and_chunks_are_at_least_four_and_those_of_the_papers_in_long_models() {
    macro_rules! resolved {
        ($config:ty, $length:expr) => {
            <$config>::default().resolved($length)
        };
    }
    let sizes = |length: usize| -> Vec<(&str, usize)> {
        let block = resolved!(LocalTwoDConfig, length).query_block.unwrap();
        vec![
            ("window", resolved!(SlidingWindowConfig, length).window.unwrap()),
            ("window of a cache", resolved!(StreamingLlmConfig, length).window.unwrap()),
            ("block", resolved!(LocalOneDConfig, length).query_block.unwrap()),
            ("block of rows and columns", block[0] * block[1]),
            ("stride", resolved!(SparseStridedConfig, length).stride.unwrap()),
            ("block with a summary", resolved!(SparseFixedConfig, length).stride.unwrap()),
            ("chunk", resolved!(LshConfig, length).chunk.unwrap()),
            ("rank", resolved!(LinformerConfig, length).rank.unwrap()),
            ("rank of a table", resolved!(SynthesizerFactorizedRandomConfig, length).rank.unwrap()),
            ("rank of biases", resolved!(AftConfig, length).rank.unwrap()),
            ("ramp", resolved!(AdaptiveSpanConfig, length).ramp.unwrap() as usize),
            ("kernel", LightweightConvConfig::default().kernel_at(length).at(3).unwrap()),
            ("predicted kernel", DynamicConvConfig::default().kernel_at(length).at(3).unwrap()),
        ]
    };
    for length in LENGTHS {
        for (what, size) in sizes(length) {
            assert!(size >= 2 && 4 * size <= length, "{what}: {size} of {length}");
        }
    }
    let of_papers: Vec<usize> = sizes(4096).into_iter().map(|(_, size)| size).collect();
    assert_eq!(of_papers, [256, 256, 256, 8 * 32, 128, 128, 64, 64, 8, 128, 32, 31, 31]);
    let LocalTwoDConfig { width, memory, .. } = resolved!(LocalTwoDConfig, 32 * 96);
    assert_eq!((width, memory), (Some(96), Some([8, 16])));
    let fixed = |length| resolved!(SparseFixedConfig, length).summary;
    assert_eq!((fixed(64), fixed(512)), (Some(2), Some(8)));
}

#[test]
fn what_options_give_stays() {
    for text in [
        "sliding-window{window=256}",
        "streaming-llm{window=1020}",
        "local-1d{query_block=256,memory_block=3}",
        "local-2d{width=96,query_block=[8,32],memory=[8,16]}",
        "sparse-strided{stride=128}",
        "sparse-fixed{stride=128,summary=8}",
        "lsh{chunk=64,buckets=[4,4],full_attention_below=0}",
        "linformer{rank=40}",
        "synthesizer-factorized-random{rank=40}",
        "aft-local{window=32,rank=40}",
        "lightweight-conv{kernel=[3,31]}",
        "dynamic-conv{kernel=31}",
        "adaptive-span{max_span=40,ramp=32}",
    ] {
        let given = parse(text);
        assert_eq!(given.resolved(40), given, "{text}");
        let table = serde_json::to_string(&given).unwrap();
        assert_eq!(serde_json::from_str::<AnyMechanism>(&table).unwrap(), given, "{table}");
    }
}

#[test]
fn blocks_follow_a_width_that_is_given_and_a_width_blocks_that_are() {
    for length in (1..200).chain([3072, 4000]) {
        for width in [1, 7, 12, 28, 96] {
            let config = LocalTwoDConfig::default().with_width(width);
            assert_eq!(AnyMechanism::from(config).validate(&place(Role::Decoder, length)), Ok(()), "{width} of {length}");
        }
        for block in [[1, 1], [2, 5], [8, 32]] {
            let config = LocalTwoDConfig::default().with_query_block(block);
            assert_eq!(AnyMechanism::from(config).validate(&place(Role::Decoder, length)), Ok(()), "{block:?} of {length}");
        }
    }
}

#[test]
fn more_factors_have_shorter_strides() {
    for (factors, stride) in [(2, 22), (3, 7), (9, 2)] {
        let config = SparseStridedConfig::default().with_factors(factors);
        assert_eq!(config.stride_at(511), stride, "{factors} factors");
        assert_eq!(SparseFixedConfig::default().with_factors(factors).stride_at(511), stride, "{factors} factors");
    }
}

#[test]
fn hashing_has_at_least_four_chunks() {
    for (name, length) in ["lsh", "lsh-random"].iter().flat_map(|name| [16usize, 40, 64, 128, 512].map(|length| (name, length))) {
        let mechanism = parse(name);
        let config = mechanism.get::<LshConfig>().unwrap();
        assert!(length.div_ceil(config.chunk_at(length)) >= 4 && config.longest_full_attention(length) < length, "{name} at {length}");
        let mut hashed = 0;
        let mut listener = |_: &str, observation: Observation| hashed += usize::from(matches!(observation, Observation::Buckets(_)));
        let input = AttentionInput::self_attention(elements(length)).visibility(Visibility::causal());
        layer(&mechanism, &place(Role::Decoder, length)).forward_with(input, &mut Probe::listening(&mut listener));
        assert!(hashed > 0, "{name} at {length}");
    }
    // A chunk that is given counts as in the released code. Comparisons say where it hashes nothing.
    assert_eq!(LshConfig::default().with_chunk(32).longest_full_attention(64), 64);
    assert_eq!(LshConfig::default().with_chunk(8).longest_full_attention(64), 16);
}

#[test]
fn a_mechanism_with_its_sizes_written_out_is_the_same() {
    for (mechanism, role) in everywhere() {
        for length in [1, 2, 3, 5, 8, 16, 40, 130] {
            let place = place(role, length);
            let resolved = mechanism.resolved(length);
            assert_eq!(resolved.resolved(2 * length), resolved, "{mechanism}: sizes that are given stay");
            let outputs = [&mechanism, &resolved].map(|mechanism| {
                let layer = layer(mechanism, &place);
                (layer.num_params(), read(layer.forward(elements(length), &Mask::none())))
            });
            assert_eq!(outputs[0], outputs[1], "{mechanism} as {role:?} at {length}");
        }
    }
}

#[test]
fn default_sizes_are_those_of_the_formula() {
    for name in HIDING.iter().copied().chain(["lsh", "lsh-random", "aft", "aft-local", "linformer", "sparse-strided{factors=3}"]) {
        for role in [Role::Decoder, Role::Encoder] {
            let (mechanism, place) = (parse(name), place(role, 24).at_layer(3, 4));
            if mechanism.validate(&place).is_ok() {
                let subject = Subject::of(&mechanism, place, &flex().device);
                let plain = PlainAttention::read(&mechanism, place, &subject.attention);
                plain.agrees(&subject, 2, 24, 1e-5).unwrap_or_else(|error| panic!("{name} as {role:?}: {error}"));
            }
        }
    }
}

#[test]
fn steps_and_a_forward_pass_agree_with_default_sizes() {
    for (mechanism, _) in everywhere().into_iter().filter(|(_, role)| *role == Role::Decoder) {
        for length in [16, 40] {
            let layer = layer(&mechanism, &place(Role::Decoder, length));
            // A step of LSH attention sees its buckets whole; in a forward pass later elements shift the borders of chunks.
            if !layer.attention.abilities().steps || mechanism.get::<LshConfig>().is_some() {
                continue;
            }
            let x = elements(length);
            let whole = layer.forward(x.clone(), &Mask::none());
            let mut cache = layer.cache(1, length);
            let steps = (0..length).map(|at| layer.step(x.clone().narrow(1, at, 1), &mut cache)).collect();
            let difference = (Tensor::cat(steps, 1) - whole).abs().max().into_scalar::<f32>();
            assert!(difference < 1e-5, "{mechanism} at {length}: {difference}");
        }
    }
}

#[test]
fn the_length_of_a_batch_moves_no_size() {
    for name in HIDING.iter().filter(|name| parse(name).can_be_causal()) {
        let layer = layer(&parse(name), &place(Role::Decoder, 64));
        let (short, long) = (layer.forward(elements(20), &Mask::none()), layer.forward(elements(64), &Mask::none()));
        let difference = (long.narrow(1, 0, 20) - short).abs().max().into_scalar::<f32>();
        assert!(difference < 1e-6, "{name}: {difference}");
    }
}

#[test]
fn a_stored_layer_has_the_same_sizes_again() {
    let device = Device::flex();
    for name in HIDING.iter().copied().chain(["lsh", "aft", "aft-local"]) {
        let config = AttentionConfig::new(name, 8, 2).with_causal(true).with_max_length(48).with_seed(3);
        let layer = config.init(&device).unwrap();
        let path = std::env::temp_dir().join(format!("heedful-default-sizes-{}-{}.bpk", name.replace('@', "-"), std::process::id()));
        layer.clone().save_file(&path).unwrap();
        let stored: AttentionConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
        let again = stored.with_seed(4).init(&device).unwrap().load_file(&path);
        let [before, after] = [&layer, &again].map(|layer| read(layer.forward(elements(48), &Mask::none())));
        std::fs::remove_file(path).unwrap();
        // LSH draws its rotations, which are stored too.
        assert_eq!(before, after, "{name}");
    }
}
