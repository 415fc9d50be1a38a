//! Configurations: files, names, and what is refused.

use heedful_attention::mechanisms::aft::AftForm;
use heedful_attention::mechanisms::convolution_attention::KernelSizes;
use heedful_attention::mechanisms::gaussian::{GaussianExecution, Normalisation};
use heedful_attention::mechanisms::lsh::{BucketCount, Rotations};
use heedful_attention::mechanisms::mixture::MixtureWeights;
use heedful_attention::prelude::*;

use crate::array::{Array, finite};
use crate::backends::flex;
use crate::variants::{local_1d, local_2d, mixture, parse, spec, variants};

#[test]
fn configurations_survive_json_and_toml() {
    let full = AnyMechanism::from(
        GaussianConfig::default()
            .with_offsets(vec![-1.0, 0.5])
            .with_deviations(vec![0.5, 2.0])
            .with_length_ratio(1.25)
            .with_normalisation(Normalisation::Renormalise)
            .with_execution(GaussianExecution::Index)
            .with_window(3),
    );
    for config in variants().into_iter().map(|variant| variant.config).chain([full]) {
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<AnyMechanism>(&json).unwrap(), config, "{json}");
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<AnyMechanism>(&text).unwrap(), config, "{text}");
    }
}

#[test]
fn a_name_alone_is_a_configuration_with_default_options() {
    for name in AnyMechanism::names() {
        // In files the fixed table and the random buckets are options of their families.
        let text = match name.strip_suffix("-fixed").filter(|family| AnyMechanism::names().contains(family)) {
            Some("adaptive-span") => "name = \"adaptive-span\"\nkind = \"fixed\"".to_owned(),
            _ if name == "lsh-random" => "name = \"lsh\"\nhashing = \"random\"".to_owned(),
            _ if name.starts_with("aft-") => format!("name = \"aft\"\nform = \"{}\"", name.trim_start_matches("aft-")),
            _ if name == "relu-squared" => "name = \"relu\"\npower = 2".to_owned(),
            _ if name == "sparsemax" => "name = \"entmax\"\nalpha = 2.0".to_owned(),
            Some(family) => format!("name = \"{family}\"\ntrainable = false"),
            None => format!("name = \"{name}\""),
        };
        let read: AnyMechanism = toml::from_str(&text).unwrap();
        assert_eq!(read, parse(name));
        assert_eq!(read.name(), name);
    }
    let read: AnyMechanism =
        toml::from_str("name = \"mixture\"\nmembers = [{ name = \"synthesizer-random\" }, { name = \"dot-product\" }]").unwrap();
    assert_eq!(read, parse("random+dot-product"));
    assert_eq!(read.to_string(), "synthesizer-random+dot-product");
}

#[test]
fn unknown_fields_are_refused_in_every_mechanism() {
    for config in AnyMechanism::all() {
        let mut table = serde_json::to_value(&config).unwrap();
        table.as_object_mut().unwrap().insert("trainabel".to_owned(), true.into());
        let error = serde_json::from_value::<AnyMechanism>(table).unwrap_err().to_string();
        assert!(error.contains("trainabel"), "{config}: {error}");
        let text = format!("trainabel = true\n{}", toml::to_string(&config).unwrap());
        let error = toml::from_str::<AnyMechanism>(&text).unwrap_err().to_string();
        assert!(error.contains("trainabel"), "{config}: {error}");
    }
}

#[test]
fn unknown_fields_of_members_of_a_mixture_are_refused() {
    let text = "name = \"mixture\"\nmembers = [{ name = \"synthesizer-random\", rank = 3 }, { name = \"dot-product\" }]";
    let error = toml::from_str::<AnyMechanism>(text).unwrap_err().to_string();
    assert!(error.contains("rank"), "{error}");
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let error = "linear".parse::<AnyMechanism>().unwrap_err();
    assert_eq!(error, ConfigError::UnknownAttention { name: "linear".to_owned(), known: AnyMechanism::names().join(", ") });
    assert!(error.to_string().contains("`linear`") && error.to_string().contains("dot-product"), "{error}");
    assert!("dot-product+linear".parse::<AnyMechanism>().is_err());
    assert!("dot-product+".parse::<AnyMechanism>().is_err());
    let error = serde_json::from_str::<AnyMechanism>("{\"name\": \"linear\"}").unwrap_err().to_string();
    assert!(error.contains("linear") && error.contains("dot-product"), "{error}");
    assert!(serde_json::from_str::<AnyMechanism>("{}").unwrap_err().to_string().contains("name"));
    let wrong = "{\"name\": \"gaussian\", \"execution\": \"sparse\"}";
    let error = serde_json::from_str::<AnyMechanism>(wrong).unwrap_err().to_string();
    assert!(error.contains("sparse") && error.contains("banded"), "{error}");
}

/// What the message of a refused configuration has to say.
fn refused(config: &AnyMechanism, spec: &LayerSpec, says: &[&str]) {
    let error = config.validate(spec).expect_err(&format!("{config:?} was accepted")).to_string();
    for part in says {
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn impossible_options_are_refused_with_place_option_and_remedy() {
    let own = spec(Role::Decoder, 4).at_layer(2, 6);
    let place = "decoder layer 3 of 6, self-attention";
    refused(&parse("dot-product"), &own.with_n_heads(5), &[place, "dot-product", "`heads` is 5", "divisor of d_model = 12"]);
    refused(&parse("dot-product"), &own.with_n_heads(0), &[place, "`heads` is 0"]);
    for dropout in [1.0, -0.1, f64::NAN] {
        refused(&parse("dot-product"), &own.with_dropout(dropout), &[place, "`dropout`", "at least 0 and less than 1"]);
    }
    for init_std in [-1.0, f64::NAN, f64::INFINITY] {
        let config = AnyMechanism::from(SynthesizerRandomConfig::default().with_trainable(true).with_init_std(init_std));
        refused(&config, &own, &[place, "synthesizer-random", "`init_std`", "at least 0"]);
        let config = AnyMechanism::from(SynthesizerFactorizedRandomConfig::default().with_rank(2).with_init_std(init_std));
        refused(&config, &own, &[place, "synthesizer-factorized-random", "`init_std`"]);
    }
    let config = AnyMechanism::from(SynthesizerFactorizedRandomConfig::default().with_rank(0).with_init_std(1.0));
    refused(&config, &own, &[place, "`rank` is 0", "at least 1"]);
    let config = |factors| AnyMechanism::from(SynthesizerFactorizedDenseConfig::default().with_factors(factors));
    refused(&config([2, 3]), &own, &[place, "`factors` is [2, 3]", "at least the maximal length 8"]);
    refused(&config([0, 9]), &own, &[place, "`factors` is [0, 9]"]);
    assert_eq!(config([2, 4]).validate(&own), Ok(()));
}

#[test]
fn impossible_gaussians_are_refused() {
    let own = spec(Role::Decoder, 4).at_layer(1, 3);
    let default = GaussianConfig::default();
    let check = |config: GaussianConfig, says: &[&str]| {
        let place = "decoder layer 2 of 3, self-attention";
        refused(&AnyMechanism::from(config), &own, &[&[place, "gaussian"], says].concat());
    };
    check(default.clone().with_offsets(vec![0.0; 5]), &["`offsets`", "as many as heads"]);
    check(default.clone().with_offsets(vec![]), &["`offsets`"]);
    check(default.clone().with_offsets(vec![f64::NAN]), &["`offsets`"]);
    check(default.clone().with_deviations(vec![1.0; 7]), &["`deviations`"]);
    check(default.clone().with_deviations(vec![0.0]), &["`deviations`", "greater than 0"]);
    check(default.clone().with_deviations(vec![-1.0]), &["`deviations`", "greater than 0"]);
    check(default.clone().with_length_ratio(0.0), &["`length_ratio` is 0", "greater than 0"]);
    assert_eq!(AnyMechanism::from(default).validate(&own), Ok(()));
}

#[test]
fn impossible_mixtures_are_refused() {
    let own = spec(Role::Encoder, 2);
    let place = "encoder layer 1 of 1, self-attention";
    let one = AnyMechanism::from(MixtureConfig::default().with_members(vec![parse("random")]).with_weights(MixtureWeights::Softmax));
    refused(&one, &own, &[place, "`members` is a list of 1", "at least two"]);
    refused(&mixture("random+dense+dot-product", MixtureWeights::Sigmoid), &own, &[place, "`weights` is sigmoid", "two members"]);
    assert_eq!(parse("gaussian+dot-product").validate(&own), Ok(()));
    refused(&parse("adaptive-span+dot-product"), &own, &[place, "`members` is adaptive-span", "have logits"]);
    let nested = AnyMechanism::from(
        MixtureConfig::default().with_members(vec![parse("random+dense"), parse("dot-product")]).with_weights(MixtureWeights::Sum),
    );
    refused(&nested, &own, &[place, "synthesizer-random+synthesizer-dense", "have logits"]);
    let member = AnyMechanism::from(SynthesizerFactorizedRandomConfig::default().with_rank(0).with_init_std(1.0));
    let config =
        AnyMechanism::from(MixtureConfig::default().with_members(vec![parse("dot-product"), member]).with_weights(MixtureWeights::Softmax));
    refused(&config, &own, &[place, "synthesizer-factorized-random", "`rank` is 0"]);
}

#[test]
fn impossible_lsh_attentions_are_refused() {
    let own = spec(Role::Encoder, 2);
    let check = |config: LshConfig, says: &[&str]| {
        let place = "encoder layer 1 of 1, self-attention";
        refused(&AnyMechanism::from(config), &own, &[&[place, "lsh"], says].concat());
    };
    let default = LshConfig::default();
    check(default.clone().with_chunk(0), &["`chunk` is 0", "at least 1"]);
    check(default.clone().with_rounds(0), &["`rounds` is 0", "at least 1"]);
    for count in [BucketCount::One(0), BucketCount::One(5), BucketCount::Factorised([4, 3]), BucketCount::Factorised([0, 2])] {
        check(default.clone().with_buckets(count), &["`buckets`", "even number"]);
    }
    let count = BucketCount::Factorised([1 << 16, 1 << 16]);
    check(default.clone().with_buckets(count), &["`buckets`", "fewer than 2^31"]);
    let across = default.clone().with_across_rounds(true);
    check(across.clone(), &["`across_rounds` is true", "set wrap to true"]);
    let across = across.with_wrap(true);
    check(across.clone(), &["`across_rounds` is true", "set bucket_mask to false"]);
    let across = across.with_bucket_mask(false);
    check(across.clone().with_rounds(1), &["`across_rounds` is true", "at least 2 rounds"]);
    assert_eq!(AnyMechanism::from(across.clone()).validate(&own), Ok(()));
    assert_eq!(AnyMechanism::from(across).without_effect("across_rounds", Role::Decoder), None);
    assert!(AnyMechanism::from(default.clone()).without_effect("across_rounds", Role::Decoder).is_some());
    assert_eq!(AnyMechanism::from(default).validate(&own), Ok(()));
    let read: AnyMechanism = toml::from_str("name = \"lsh\"\nbuckets = [4, 6]\nrotations = \"per-call\"").unwrap();
    let factorised = LshConfig::default().with_buckets(BucketCount::Factorised([4, 6])).with_rotations(Rotations::PerCall);
    assert_eq!(read, AnyMechanism::from(factorised));
}

#[test]
fn only_attentions_that_score_other_sequences_can_be_cross_attention() {
    let cross = spec(Role::Cross, 2).with_d_model(8);
    for config in AnyMechanism::all() {
        let able = [
            "dot-product",
            "uniform",
            "gaussian",
            "linformer",
            "linear-attention",
            "performer",
            "cosformer",
            "soft-cap",
            "output-gate",
            "differential",
            "talking-heads",
        ];
        if able.contains(&config.family()) || config.card().kind == Kind::Normaliser {
            assert_eq!(config.validate(&cross), Ok(()), "{config}");
        } else {
            refused(&config, &cross, &["decoder layer 1 of 1, cross-attention", "used as cross-attention", "use dot-product"]);
        }
    }
    assert_eq!(parse("dot-product+dot-product").validate(&cross), Ok(()));
}

#[test]
fn impossible_sizes_of_heads_are_refused() {
    let own = spec(Role::Encoder, 4).with_d_model(16);
    let place = "encoder layer 1 of 1, self-attention";
    for shared in [0, 3, 8] {
        let wrong = format!("`kv_heads` is {shared}");
        refused(&parse("dot-product"), &own.with_kv_heads(Some(shared)), &[place, &wrong, "divisor of heads = 4"]);
    }
    refused(&parse("dot-product"), &own.with_head_width(Some(0)), &[place, "`head_width` is 0"]);
    assert_eq!(parse("dot-product").validate(&own.with_d_model(10).with_head_width(Some(7))), Ok(()));
    for config in AnyMechanism::all() {
        for sizes in [own.with_kv_heads(Some(2)), own.with_head_width(Some(6))] {
            if config.has_free_heads() {
                assert_eq!(config.validate(&sizes), Ok(()), "{config}");
            } else {
                let says = ["`heads` is 4 with", "leave kv_heads and head_width out, or use dot-product"];
                refused(&config, &sizes, &says);
            }
        }
        assert_eq!(
            config.validate(&own.with_kv_heads(Some(4)).with_head_width(Some(4))),
            config.validate(&own),
            "{config}: the usual sizes"
        );
    }
    assert!(!parse("lsh").has_free_heads() && !parse("gaussian+dot-product").has_free_heads() && parse("random+dense").has_free_heads());
}

#[test]
fn biases_are_refused_where_no_projection_would_have_them() {
    let own = spec(Role::Encoder, 4);
    for config in AnyMechanism::all() {
        for (asked, option) in [(own.with_qkv_bias(true), "`qkv_bias` is true"), (own.with_output_bias(true), "`output_bias` is true")] {
            if config.has_biases_on_demand() {
                assert_eq!(config.validate(&asked), config.validate(&own), "{config}");
            } else {
                refused(&config, &asked, &[option, "leave it out, or use dot-product"]);
            }
        }
    }
    assert!(parse("alibi@sliding-window").has_biases_on_demand() && !parse("dot-product+gaussian").has_biases_on_demand());
}

#[test]
fn impossible_linformers_and_convolutions_are_refused() {
    let (own, encoder) = (spec(Role::Decoder, 2), spec(Role::Encoder, 2));
    refused(&parse("linformer"), &own, &["decoder layer 1 of 1, self-attention", "linformer cannot be causal", "encoders"]);
    for rank in [0, 9] {
        let config = AnyMechanism::from(LinformerConfig::default().with_rank(rank));
        refused(&config, &encoder, &["encoder layer 1 of 1", "linformer", &format!("`rank` is {rank}"), "from 1 to the maximal length 8"]);
    }
    for (options, says) in [
        ("projection=mean-pooling,sharing=layerwise", "`sharing` is Layerwise"),
        ("projection=max-pooling,trainable=false", "`trainable` is false"),
        ("projection=mean-pooling,init=normal", "`init` is Normal"),
        ("projection=convolution,init=normal", "`init` is Normal"),
    ] {
        refused(&parse(&format!("linformer{{rank=4,{options}}}")), &encoder, &["linformer", says, "set projection to linear"]);
    }
    for kind in ["mean-pooling", "max-pooling"] {
        let pooling = parse(&format!("linformer{{rank=4,projection={kind}}}"));
        assert_eq!(pooling.validate(&encoder), Ok(()));
        assert!(["sharing", "trainable", "init"].iter().all(|option| pooling.without_effect(option, Role::Encoder).is_some()));
    }
    let convolution = parse("linformer{rank=4,projection=convolution,sharing=none,trainable=false}");
    assert_eq!(convolution.validate(&encoder), Ok(()));
    assert_eq!(convolution.without_effect("sharing", Role::Encoder), None);
    assert_eq!(parse("linformer").without_effect("init", Role::Encoder), None);
    for kernel in [KernelSizes::All(0), KernelSizes::Each(vec![3, 0]), KernelSizes::Each(Vec::new())] {
        let light = LightweightConvConfig::default().with_kernel(kernel.clone());
        refused(&AnyMechanism::from(light), &own, &["lightweight-conv", "`kernel` is [", "at least 1"]);
        let dynamic = DynamicConvConfig::default().with_kernel(kernel);
        refused(&AnyMechanism::from(dynamic), &own, &["dynamic-conv", "`kernel` is [", "at least 1"]);
    }
    for name in ["linformer", "lightweight-conv", "dynamic-conv"] {
        refused(&parse(&format!("{name}+dot-product")), &encoder, &[&format!("`members` is {name}"), "have logits"]);
    }
}

#[test]
fn impossible_mixers_of_positions_are_refused() {
    let (own, encoder) = (spec(Role::Decoder, 2), spec(Role::Encoder, 2));
    for name in ["fnet", "mlp-mixer"] {
        let says = ["decoder layer 1 of 1, self-attention", &format!("{name} cannot be causal"), "encoders"];
        refused(&parse(name), &own, &says);
    }
    let aft = AftConfig::default();
    let check = |config: AftConfig, says: &[&str]| refused(&config.into(), &own, &[&["decoder layer 1 of 1", "aft"], says].concat());
    check(aft.clone().with_window(3), &["`window` is 3", "set form to local"]);
    check(aft.clone().with_form(AftForm::Local).with_window(0), &["`window` is 0", "at least 1"]);
    check(aft.clone().with_rank(0), &["`rank` is 0", "at least 1"]);
    check(aft.clone().with_form(AftForm::Simple).with_rank(4), &["`rank` is 4", "there are no factors"]);
    check(aft.clone().with_factorised(false).with_rank(4), &["`rank` is 4", "there are no factors"]);
    for form in [AftForm::Local, AftForm::Simple] {
        check(aft.clone().with_form(form).with_factorised(false), &["`factorised` is false", "set form to full"]);
    }
    refused(&BaseConvConfig::default().with_taps(0).into(), &own, &["base-conv", "`taps` is 0", "at least 1"]);
    check(aft.with_init_std(f64::NAN), &["`init_std`", "at least 0"]);
    refused(&GmlpConfig::default().with_expansion(0).into(), &own, &["gmlp", "`expansion` is 0", "at least 1"]);
    refused(&GmlpConfig::default().with_init_scale(-1.0).into(), &own, &["gmlp", "`init_scale` is -1", "at least 0"]);
    refused(&MlpMixerConfig::default().with_hidden(0).into(), &encoder, &["mlp-mixer", "`hidden` is 0", "at least 1"]);
}

#[test]
fn impossible_latents_are_refused() {
    let own = spec(Role::Decoder, 2);
    let check = |config: MlaConfig, says: &[&str]| refused(&config.into(), &own, &[&["decoder layer 1 of 1", "mla"], says].concat());
    let mla = MlaConfig::default();
    check(mla.clone().with_latent(0), &["`latent` is 0", "at least 1"]);
    check(mla.clone().with_query_latent(0), &["`query_latent` is 0", "at least 1"]);
    check(mla.clone().with_rotary_width(3), &["`rotary_width` is 3", "even number"]);
    for base in [1.0, f64::NAN, f64::INFINITY] {
        check(mla.clone().with_base(base), &["`base`", "greater than 1"]);
    }
}

#[test]
fn kernel_sizes_are_one_number_or_one_for_each_layer() {
    let read = |text: &str| toml::from_str::<AnyMechanism>(&format!("name = 'lightweight-conv'\nkernel = {text}")).unwrap();
    let sizes = |text| {
        let config = read(text);
        let kernel = config.get::<LightweightConvConfig>().unwrap().kernel_at(512);
        (0..5).map(|layer| kernel.at(layer).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(sizes("5"), [5; 5]);
    assert_eq!(sizes("[3, 9]"), [3, 9, 9, 9, 9]);
    let of_length = |length| (0..7).map(|layer| KernelSizes::of_length(length).at(layer).unwrap()).collect::<Vec<_>>();
    assert_eq!(of_length(124), [3, 7, 15, 31, 31, 31, 31]);
    assert_eq!((of_length(64), of_length(8)), (vec![3, 7, 15, 15, 15, 15, 15], vec![3; 7]));
}

#[test]
fn impossible_patterns_are_refused() {
    let own = spec(Role::Decoder, 2);
    let place = "decoder layer 1 of 1, self-attention";
    refused(&AnyMechanism::from(local_1d(0, None)), &own, &[place, "local-1d", "`query_block` is 0", "at least 1"]);
    for block in [[0, 2], [2, 0]] {
        refused(&AnyMechanism::from(local_2d(4, block, [1, 1])), &own, &[place, "local-2d", "`query_block`", "at least one row"]);
    }
    for width in [0, 10] {
        let says = [place, &format!("`width` is {width}"), "multiple of the 4 columns"];
        refused(&AnyMechanism::from(local_2d(width, [2, 4], [1, 1])), &own, &says);
    }
    let strided = SparseStridedConfig::default().with_stride(0);
    refused(&AnyMechanism::from(strided), &own, &[place, "sparse-strided", "`stride` is 0", "at least 1"]);
    let fixed = |stride, summary| AnyMechanism::from(SparseFixedConfig::default().with_stride(stride).with_summary(summary));
    refused(&fixed(0, 0), &own, &[place, "sparse-fixed", "`stride` is 0", "at least 1"]);
    refused(&fixed(4, 0), &own, &[place, "`summary` is 0", "from 1 to the stride 4"]);
    refused(&fixed(4, 5), &own, &[place, "`summary` is 5", "from 1 to the stride 4"]);
    assert_eq!(fixed(4, 4).validate(&own), Ok(()));
    for name in ["sparse-strided", "sparse-fixed"] {
        let with = |options: &str| parse(&format!("{name}{{{options}}}"));
        for count in [0, 1, 17] {
            refused(&with(&format!("factors={count}")), &own, &[place, name, &format!("`factors` is {count}"), "from 2 to 16"]);
        }
        refused(&with("ratio=[3,1]"), &own, &[place, name, "`ratio` is [3, 1]", "set integration to interleaved"]);
        for ratio in ["[3]", "[3, 0]", "[1, 1, 1]"] {
            let says = [place, name, &format!("`ratio` is {ratio}"), "at least 1, for each of the 2 factors"];
            refused(&with(&format!("integration=interleaved,ratio={ratio}")), &own, &says);
        }
        assert_eq!(with("integration=interleaved,factors=3,ratio=[1,3,1]").validate(&own), Ok(()));
        assert_eq!(with("factors=16").validate(&own), Ok(()));
        assert!(parse(name).without_effect("ratio", Role::Decoder).is_some());
        assert_eq!(with("integration=interleaved").without_effect("ratio", Role::Decoder), None);
    }
    // What is restricted is checked too, at any depth.
    let thin = AnyMechanism::from(SynthesizerFactorizedRandomConfig::default().with_rank(0).with_init_std(1.0));
    for pattern in ["local-1d", "local-2d", "sparse-strided", "sparse-fixed", "local-1d@sparse-fixed"] {
        let config = parse(pattern).over(parse("local-1d").over(thin.clone()).unwrap()).unwrap();
        refused(&config, &own, &[place, "synthesizer-factorized-random", "`rank` is 0"]);
    }
    let member = "dot-product+local-1d".parse::<AnyMechanism>().unwrap();
    refused(&member, &own, &[place, "`members` is local-1d", "have logits"]);
    for cap in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-60] {
        let says = [place, "soft-cap", &format!("`cap` is {cap}"), "greater than 0"];
        refused(&SoftCapConfig::default().with_cap(cap).into(), &own, &says);
    }
    let sink = AnyMechanism::from(LearnedSinkConfig::default().with_init_std(-0.1));
    refused(&sink, &own, &[place, "learned-sink", "`init_std` is -0.1", "at least 0"]);
    for epsilon in [0.0, -1e-6, 1.0, f64::NAN] {
        let says = [place, "softpick", &format!("`epsilon` is {epsilon}"), "greater than 0"];
        refused(&SoftpickConfig::default().with_epsilon(epsilon).into(), &own, &says);
    }
    for alpha in [1.0, 0.5, 1.7, 1.497, 2.01, 3.0, f64::NAN, f64::INFINITY] {
        refused(&EntmaxConfig::default().with_alpha(alpha).into(), &own, &[place, "entmax", &format!("`alpha` is {alpha}"), "1 + 1 / p"]);
    }
    for power in [0, 9] {
        refused(&ReluConfig::default().with_power(power).into(), &own, &[place, "relu", &format!("`power` is {power}"), "from 1 to 8"]);
    }
    refused(&ReluConfig::default().with_length(0).into(), &own, &[place, "relu", "`length` is 0", "at least 1"]);
    let twice = parse("soft-cap@local-1d@soft-cap");
    refused(&twice, &own, &[place, "`logits` is soft-cap@local-1d", "take an attention that has scores"]);
}

#[test]
fn scores_that_are_known_up_to_a_number_have_a_softmax_and_nothing_else() {
    let own = spec(Role::Encoder, 4);
    refused(&parse("gaussian@soft-cap"), &own, &["soft-cap", "`logits` is gaussian", "take an attention that has scores"]);
    for normaliser in ["sigmoid", "softmax-plus-one", "learned-sink", "softpick", "entmax", "relu"] {
        for logits in ["gaussian", "dot-product+gaussian", "gaussian@sparse-fixed"] {
            let says = [normaliser, &format!("`logits` is {logits}"), "normalise an attention that has scores"];
            refused(&parse(normaliser).over(parse(logits)).unwrap(), &own, &says);
        }
    }
    assert_eq!(parse("gaussian@local-1d").validate(&own), Ok(()));
    assert_eq!(parse("dot-product+random@sigmoid").validate(&own), Ok(()));
}

#[test]
fn a_pattern_stands_behind_the_logits_that_it_restricts() {
    let restricted = parse("random+dot-product@sparse-strided");
    assert_eq!(restricted.inner(), Some(&parse("random+dot-product")));
    assert_eq!(restricted.family(), "sparse-strided");
    for (name, full) in [
        ("dense@local-1d", "synthesizer-dense@local-1d"),
        ("random-fixed@local-2d", "synthesizer-random-fixed@local-2d"),
        ("dot-product+gaussian@sparse-fixed", "dot-product+gaussian@sparse-fixed"),
        ("dot-product@local-1d", "local-1d"),
        ("random@local-1d@sparse-strided", "synthesizer-random@local-1d@sparse-strided"),
        ("local-1d@sparse-strided", "local-1d@sparse-strided"),
        ("dot-product@sigmoid", "sigmoid"),
        ("dense+random@softmax1", "synthesizer-dense+synthesizer-random@softmax-plus-one"),
        ("random@local-1d@sigmoid", "synthesizer-random@local-1d@sigmoid"),
        ("sigmoid@local-1d", "sigmoid@local-1d"),
        ("dot-product@output-gate", "output-gate"),
        ("random@sigmoid@output-gate", "synthesizer-random@sigmoid@output-gate"),
        ("dot-product@soft-cap@sliding-window", "soft-cap@sliding-window"),
        ("alibi@soft-cap@sigmoid", "alibi@soft-cap@sigmoid"),
        ("dot-product@relu-squared", "relu-squared"),
        ("random@sparsemax@local-1d", "synthesizer-random@sparsemax@local-1d"),
        ("random@relu-squared@local-1d", "synthesizer-random@relu-squared@local-1d"),
    ] {
        assert_eq!(parse(name).name(), full);
        assert_eq!(parse(full), parse(name));
    }
    let read: AnyMechanism = toml::from_str("name = 'sparse-fixed'\nstride = 16\nlogits = { name = 'synthesizer-random' }").unwrap();
    assert_eq!(read.name(), "synthesizer-random@sparse-fixed");
    for (name, says) in [
        (
            "random@dot-product",
            "`@dot-product`; known are @soft-cap, @sigmoid, @softmax-plus-one, @learned-sink, @softpick, @entmax, @sparsemax, @relu, @relu-squared, @sliding-window",
        ),
        ("dense@local-1d+random", "`@local-1d+random`"),
        ("dense@", "unknown attention ``"),
        ("@local-1d", "unknown attention ``"),
        ("dense@local-3d", "unknown attention `local-3d`"),
    ] {
        let error = name.parse::<AnyMechanism>().unwrap_err().to_string();
        assert!(error.contains(says), "{name}: {error}");
    }
    assert_eq!(AnyMechanism::from(local_1d(2, None)).over(parse("local-1d")).unwrap().name(), "local-1d@local-1d");
    assert_eq!(parse("dot-product").over(parse("random")), None);
}

#[test]
fn names_and_aliases_are_understood() {
    assert_eq!(parse("random"), parse("synthesizer-random"));
    assert_eq!(parse("factorized-dense+dot-product"), parse("synthesizer-factorized-dense+dot-product"));
    assert_eq!(AnyMechanism::default().name(), "dot-product");
    for config in AnyMechanism::all() {
        assert_eq!(parse(&config.name()), config);
    }
}

/// Builds an attention and runs it once.
fn run(config: &AnyMechanism, spec: &LayerSpec) {
    let device = flex().device;
    let attention = config.init(spec, &RandomKey::from_seed(1), &device);
    let sequence = |name| Array::random(name, &[2, 5, spec.d_model]).tensor(&device);
    let input = match spec.role {
        Role::Cross => AttentionInput::cross_attention(sequence("queries"), sequence("memory")),
        _ => AttentionInput::self_attention(sequence("sequence")),
    };
    let visibility = if spec.role == Role::Decoder { Visibility::causal() } else { Visibility::all() };
    let context = Array::read(attention.forward(input.visibility(visibility), &mut Probe::off()).context);
    finite(&config.name(), &context.values).unwrap();
}

#[test]
fn every_combination_of_two_families_runs_or_is_refused_with_the_reason() {
    let families = AnyMechanism::all();
    let (mut built, mut refused) = (0, 0);
    for role in [Role::Encoder, Role::Decoder, Role::Cross] {
        let spec = spec(role, 2).with_d_model(8);
        let mut check = |config: AnyMechanism, option: &str, [part, other]: [&AnyMechanism; 2]| match config.validate(&spec) {
            Ok(()) => {
                run(&config, &spec);
                built += 1;
            }
            Err(error) => {
                let error = error.to_string();
                let names = |part: &AnyMechanism| error.contains(&format!("`{option}` is {}: ", part.name()));
                let advises = [
                    "mix attentions that have logits",
                    "name an attention that has logits",
                    "restrict an attention that has logits",
                    "normalise an attention that has scores",
                    "gate an attention that has scores",
                    "take an attention that has scores",
                    "give an attention that has scores",
                ];
                let is_unfit = (names(part) || names(other)) && advises.iter().any(|advice| error.contains(advice));
                let is_misplaced = ["used as cross-attention: use", "cannot be causal: ", "cannot be bidirectional: "]
                    .iter()
                    .any(|refusal| error.contains(refusal));
                assert!(is_unfit || is_misplaced, "{config} as {role:?}: {error}");
                refused += 1;
            }
        };
        for (a, b) in families.iter().flat_map(|a| families.iter().map(move |b| (a, b))) {
            let mixture = MixtureConfig::default().with_members(vec![a.clone(), b.clone()]).with_weights(MixtureWeights::Softmax);
            check(AnyMechanism::from(mixture), "members", [a, b]);
            match b.clone().over(a.clone()) {
                Some(restricted) => check(restricted, "logits", [a, b]),
                None => {
                    let error = format!("{a}@{b}").parse::<AnyMechanism>().unwrap_err().to_string();
                    assert!(error.contains("known are @soft-cap, @sigmoid, @softmax-plus-one, @learned-sink"), "{a}@{b}: {error}");
                }
            }
        }
        for a in &families {
            let span = AdaptiveSpanConfig::default().with_logits(a.clone());
            check(AnyMechanism::from(span), "logits", [a, a]);
        }
    }
    assert!(built > 100 && refused > 100, "{built} were built and {refused} refused");
}
