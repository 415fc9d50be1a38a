use heedful_runs::settings::Assignment;

use super::*;

fn settings(options: &[&str]) -> Settings<SwapConfig> {
    Settings::read(None, options.iter().map(|text| Assignment::parse(text).unwrap()).collect()).unwrap()
}

fn families(config: &SwapConfig, name: &str) -> (String, Vec<&'static str>) {
    let Attention { name, layout } = Swap::attention_named(config, name).unwrap().unwrap();
    (name, layout.decoder.mechanisms().iter().map(|mechanism| mechanism.family()).collect())
}

#[test]
fn a_contender_is_a_mechanism_in_its_layers() {
    let config = settings(&["model.layers=4", "start.attention='[dot-product,alibi]'"]).value;
    let own = ["dot-product", "alibi", "dot-product", "alibi"];
    for (name, canonical, expected) in [
        ("unchanged", "unchanged", own),
        ("uniform", "uniform", ["uniform"; 4]),
        ("layers.*.attention=uniform", "uniform", ["uniform"; 4]),
        ("layers.0,3=uniform", "layers.0,3=uniform", ["uniform", "alibi", "dot-product", "uniform"]),
        (
            "layers.1-2.attention=random",
            "layers.1-2=synthesizer-random",
            ["dot-product", "synthesizer-random", "synthesizer-random", "alibi"],
        ),
        ("layers.*.attention=sliding-window{window=4}", "sliding-window{window=4}", ["sliding-window"; 4]),
        (
            "layers.1-2=[uniform, sliding-window{window=4}]",
            "layers.1-2=[uniform,sliding-window{window=4}]",
            ["dot-product", "sliding-window", "uniform", "alibi"],
        ),
        ("layers.0-2=[uniform, relative]", "layers.0-2=[uniform,relative]", ["uniform", "relative", "uniform", "alibi"]),
    ] {
        assert_eq!(families(&config, name), (canonical.to_owned(), expected.to_vec()), "{name}");
        // The name of a run means the same, for the configuration and for the swap of its weights.
        assert_eq!(canonical.parse::<super::contender::Contender>().unwrap().to_string(), canonical);
        assert_eq!(families(&config, canonical), (canonical.to_owned(), expected.to_vec()));
    }
}

#[test]
fn contenders_that_cannot_be_meant_are_refused_with_the_remedy() {
    let config = settings(&["model.layers=2"]).value;
    for (name, parts) in [
        ("layers.2=uniform", ["no layer 2", "0 to 1"]),
        ("layer.*=uniform", ["`layer.*`", "layers.0,2"]),
        ("layers.*=unifrom", ["unknown attention `unifrom`", "did you mean `uniform`?"]),
        ("layers.*=", ["unknown attention ``", "--list"]),
        ("layers.*=[uniform,relative,alibi]", ["a list of 3", "2 layers"]),
    ] {
        let error = Swap::attention_named(&config, name).unwrap().unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{name}: {error}");
    }
}

#[test]
fn a_contender_need_not_be_able_to_have_the_biases_and_heads_of_the_start() {
    let settings = |attention: &str| {
        let own = format!("start.attention={attention}");
        settings(&["model.qkv_bias=true", "model.attention_output_bias=true", "model.kv_heads=2", &own])
    };
    let dot_product = settings("dot-product");
    for name in ["linear-attention", "layers.0=linear-attention", "layers.1=uniform"] {
        let contender = Swap::attention_named(&dot_product.value, name).unwrap().unwrap();
        assert!(Swap::check(&dot_product, &[contender]).is_ok(), "{name}");
    }
    let error = Swap::check(&settings("linear-attention"), &[]).unwrap_err().to_string();
    assert!(error.contains("linear-attention") && error.contains("kv_heads"), "{error}");
}

#[test]
fn fields_of_a_start_without_effect_are_refused() {
    for (options, part) in [
        (&["start.model=alibi"][..], "--run"),
        (&["start.seed=2"], "--run"),
        (&["start.pretrained=gpt2"], "--run"),
        (&["tokeniser={kind='pretrained'}"], "`lm --pretrained`"),
        (&["start.steps=0"], "at least 1"),
        (&["start.run=runs/lm", "start.steps=5"], "leave it out"),
        (&["data.context=65"], "model.max_length"),
        (&["start.attention=linformer"], "linformer"),
    ] {
        let settings = settings(options);
        let error = Swap::check(&settings, &[]).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(part), "{options:?}: {error}");
    }
    assert!(Swap::check(&settings(&[]), &[]).is_ok());
}
