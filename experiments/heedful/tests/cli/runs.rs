//! What a run leaves behind.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::{
    Run, TINY, binary, example, parallel_folder, places, records, refused, stderr, stdout, succeeded, text_folder, translate,
};

#[test]
fn a_run_leaves_configuration_results_report_log_and_hypotheses() {
    let (data, (_folder, [out])) = (parallel_folder(), places(["run"]));
    let output = translate(data.path(), &out, &[]).succeeds();
    assert!(stdout(&output).contains("BLEU"), "the table is on standard output");

    let results = records(&out);
    assert_eq!(results.len(), 1);
    let record = &results[0];
    assert_eq!((record["experiment"].as_str(), record["attention"].as_str()), (Some("mt"), Some("dot-product")));
    assert_eq!(record["steps"], 8);
    for metric in ["BLEU", "chrF2", "valid perplexity"] {
        assert!(record["metrics"][metric].is_number(), "{metric}");
    }
    assert!(record["signatures"]["BLEU"].as_str().unwrap().starts_with("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"));
    assert!(record["metrics"]["METEOR"].is_null(), "it is for English");
    let run = out.join("dot-product-seed1");
    assert_eq!(fs::read_to_string(run.join("hypotheses/test_numbers.txt")).unwrap().lines().count(), 6);
    let log = fs::read_to_string(run.join("log.jsonl")).unwrap();
    assert!(log.lines().all(|line| serde_json::from_str::<Value>(line).unwrap()["step"].is_u64()));
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("dot-product") && report.contains("Published") && report.contains("WMT14"), "{report}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    for part in ["dot-product</span>", "Published numbers", "Curves over steps: perplexity, training loss", "[model]\nlayers = "] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
}

#[test]
fn translations_into_english_have_a_meteor_with_the_stages_that_were_used() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let synonyms = folder.path().join("synonyms.txt");
    fs::write(&synonyms, "one single\nfour quartet\n").unwrap();
    let option = format!("data.synonyms='{}'", synonyms.display());
    let english = ["--source", "de", "--target", "en"];
    for (name, further, stages) in [
        ("two", &english[..], "|tok:13a|stages:exact+stem|"),
        ("three", &[&english[..], &["--set", &option]].concat()[..], "|stages:exact+stem+synonyms|synonyms:synonyms.txt|"),
    ] {
        let out = folder.path().join(name);
        translate(data.path(), &out, further).succeeds();
        let results = records(&out);
        let score = results[0]["metrics"]["METEOR"].as_f64().unwrap();
        assert!(results[0]["signatures"]["METEOR"].as_str().unwrap().contains(stages), "{}", results[0]);
        let items: Value =
            serde_json::from_str(&fs::read_to_string(out.join("dot-product-seed1/items/test_numbers.json")).unwrap()).unwrap();
        let values: Vec<f64> = items["rows"].as_array().unwrap().iter().map(|row| row[0].as_f64().unwrap()).collect();
        assert_eq!((values.len(), &items["statistics"][0]), (6, &Value::from("METEOR")));
        assert!((values.iter().sum::<f64>() / 6.0 - score).abs() < 1e-12, "{score} of {values:?}");
    }
    fs::write(&synonyms, "one single\nfour\n").unwrap();
    let refuse = |further: &[&str], code, parts: &[&str]| {
        translate(data.path(), &folder.path().join("refused"), &[further, &["--set", &option]].concat()).refuses(code, parts);
    };
    refuse(&english, 1, &["synonyms.txt", "line 2", "`four`"]);
    refuse(&[], 2, &["data.synonyms", "--target en"]);
}

#[test]
fn the_written_configuration_repeats_the_run() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    translate(data.path(), &first, &[]).succeeds();
    binary("mt").arg("--config").arg(first.join("config.toml")).arg("--out").arg(&second).succeeds();
    let weights = |out: &std::path::Path| crate::command::final_weights(&out.join("dot-product-seed1"));
    assert_eq!(weights(&first), weights(&second));
    assert_eq!(fs::read_to_string(first.join("config.toml")).unwrap(), fs::read_to_string(second.join("config.toml")).unwrap());
}

#[test]
fn pairs_with_an_empty_side_are_skipped_and_counted_in_one_warning() {
    let (data, out) = (parallel_folder(), tempfile::tempdir().unwrap());
    let path = data.path().join("train.de");
    let lines: Vec<_> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    let text: String = lines.iter().enumerate().map(|(n, line)| if n % 20 == 3 { "\n".to_owned() } else { format!("{line}\n") }).collect();
    fs::write(&path, text).unwrap();
    let output = translate(data.path(), &out.path().join("run"), &[]).succeeds();
    let errors = stderr(&output);
    let warnings: Vec<_> = errors.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "{errors}");
    assert!(warnings[0].contains('3') && warnings[0].contains("train.de"), "{}", warnings[0]);
}

#[test]
fn every_mechanism_and_layout_trains_and_translates() {
    let (data, out) = (parallel_folder(), tempfile::tempdir().unwrap());
    let names = "synthesizer-dense,synthesizer-random,synthesizer-random-fixed,synthesizer-factorized-dense,\
                 synthesizer-factorized-random,random+dot-product,dense+random,gaussian,hc-all,sh-x";
    // Of full rank on sentences as short as these, it would be refused.
    let rank = "mechanisms.synthesizer-factorized-random.rank=1";
    let further = ["--attention", names, "--steps", "2", "--quiet", "--set", rank];
    let output = translate(data.path(), &out.path().join("run"), &further).succeeds();
    for name in ["synthesizer-random+dot-product", "synthesizer-random-fixed", "hc-all", "sh-x"] {
        assert!(stdout(&output).contains(name), "{name} is missing in {}", stdout(&output));
    }
    assert!(stderr(&output).is_empty(), "--quiet prints nothing but the table: {}", stderr(&output));
}

#[test]
fn a_configuration_says_which_mechanism_stands_where() {
    let (data, folder) = (parallel_folder(), tempfile::tempdir().unwrap());
    for (setting, name) in [
        ("model.attention.layers=[\"local-1d\", \"dot-product\"]", "[local-1d,dot-product]"),
        (
            "model.attention={encoder = 'gaussian', cross = 'uniform', decoder = ['dot-product', 'local-1d']}",
            "{encoder=gaussian,decoder=[dot-product,local-1d],cross=uniform}",
        ),
    ] {
        let block = "mechanisms.local-1d={query_block=1, memory_block=1}";
        let data = data.path().to_str().unwrap();
        let settings = ["--set", setting, "--set", "model.layers=2", "--set", block, "--set", "training.steps=2", "--data", data];
        let out = folder.path().join("out");
        binary("mt").args(settings).arg("--out").arg(&out).succeeds();
        let config = fs::read_to_string(out.join("config.toml")).unwrap();
        assert!(config.contains(&format!("attention = [\"{name}\"]")), "{config}");
        // What is written down repeats the run, without a second place for the same.
        binary("mt").arg("--config").arg(out.join("config.toml")).arg("--out").arg(&out).succeeds();
        fs::remove_dir_all(out).unwrap();
    }
    for (settings, parts) in [
        (vec!["--attention", "gaussian", "--set", "model.attention.encoder=gaussian"], ["model.attention", "one of the two"]),
        (
            vec!["--set", "model.attention={encoder = 'gaussian', layers = ['gaussian']}"],
            ["model.attention", "`layers` holds for all stacks"],
        ),
        (vec!["--set", "model.attention.encodr=gaussian"], ["encodr", "did you mean `encoder`"]),
        (
            vec!["--set", "run.models=[{name = 'own', attention = 'gaussian', set = {model = {attention = {encoder = 'uniform'}}}}]"],
            ["run.models.0.set.model.attention", "leave this out"],
        ),
    ] {
        binary("mt").args(settings).arg("--out").arg(folder.path().join("refused")).refuses(2, &parts);
    }
}

#[test]
fn models_are_put_together_from_their_parts() {
    let data = parallel_folder();
    let parts: [&[&str]; 9] = [
        &["model.depth.kind=shared", "model.layers=3"],
        &["model.depth={kind = 'shared', step_signal = 'learned', halting = {bias = -1.0}}", "model.layers=3"],
        &["model.depth.kind=reversible", "model.layers=3"],
        &["model.gate.kind=gru", "model.relu_before_residual=true", "model.final_norm=false"],
        &["model.checkpoint=true", "model.gated_feed_forward=true", "model.activation=silu", "model.feed_forward_chunk=7"],
        &["model.unpadded=true", "model.depth.kind=reversible"],
        &["model.positions={grid = {rows = 8, columns = 4}}", "model.initialisation={kind = 'normal', deviation = 0.02}"],
        &[
            "model.norm.kind=rms",
            "model.norm_order=sandwich",
            "model.feed_forward_bias=false",
            "model.embedding_scale=none",
            "model.initialisation={kind = 'normal-tables', deviation = 0.02}",
        ],
        &["model.parallel=shared-norm", "model.norm.epsilon=1e-5", "model.qkv_bias=true", "model.attention_output_bias=true"],
    ];
    for part in parts {
        let out = tempfile::tempdir().unwrap();
        let settings: Vec<&str> = part.iter().flat_map(|setting| ["--set", setting]).collect();
        let output = translate(data.path(), &out.path().join("run"), &settings).succeeds();
        assert!(stdout(&output).contains("dot-product"), "{part:?}: {}", stdout(&output));
    }
    for (setting, parts) in [
        ("model.depth.kind=revertible", ["model.depth.kind", "reversible"]),
        ("model.depth={kind = 'reversible'}", ["norm_order", "pre"]),
        ("model.depth={kind = 'shared', halting = {epsilon = 1.0}}", ["epsilon", "less than 1"]),
        ("model.gate={kind = 'input', bias = 1.0}", ["gate.bias", "leave it out"]),
        ("model.positions={grid = {rows = 2, columns = 4}}", ["positions.rows", "max_length"]),
        ("model.initialisation.kind=scaled", ["initialisation", "tying = \"none\""]),
        ("model.norm={kind = 'rms', bias = true}", ["norm.bias", "leave it out"]),
        ("model.norm.epsilon=0.0", ["norm.epsilon", "greater than 0"]),
        ("model.embedding_scale=root", ["model.embedding_scale", "sqrt"]),
        ("model={unpadded = true, separable_feed_forward = true}", ["`unpadded`", "separable network"]),
    ] {
        let out = tempfile::tempdir().unwrap();
        let settings = ["--set", setting, "--set", "model.norm_order=post"];
        let settings = if setting.contains("reversible'") { &settings[..] } else { &settings[..2] };
        translate(data.path(), &out.path().join("run"), settings).refuses(2, &parts);
    }
}

#[test]
fn language_models_are_scored_per_word_and_per_character() {
    for (kind, unit) in [("word", "unit:word"), ("character", "unit:character")] {
        let (data, (_folder, [out])) = (text_folder(), places(["run"]));
        let mut command = binary("lm");
        command.args(crate::command::TINY).args(["--set", "data={context = 16, batch = 4, stride = 8}"]);
        command.arg("--set").arg(format!("tokeniser.kind={kind}")).arg("--data").arg(data.path()).arg("--out").arg(&out);
        command.succeeds();
        let results = records(&out);
        let signature = results[0]["signatures"]["perplexity"].as_str().unwrap();
        assert!(signature.contains(unit) && signature.contains("context:16"), "{signature}");
    }
}

#[test]
fn the_perplexity_does_not_depend_on_the_evaluation_batch() {
    let data = text_folder();
    let perplexity = |batch: usize| {
        let out = tempfile::tempdir().unwrap();
        let mut command = binary("lm");
        // No step moves the weights noticeably, so both runs score the same model.
        command.args(crate::command::TINY).args(["--steps", "1", "--set", "training.learning_rate=1e-30"]);
        command.arg("--set").arg(format!("data={{context = 16, batch = {batch}, stride = 8}}"));
        command.arg("--data").arg(data.path()).arg("--out").arg(out.path().join("run"));
        command.succeeds();
        let results = fs::read_to_string(out.path().join("run/results.json")).unwrap();
        serde_json::from_str::<Vec<Value>>(&results).unwrap()[0]["metrics"]["perplexity"].as_f64().unwrap()
    };
    let (one, many) = (perplexity(1), perplexity(7));
    assert!((one / many - 1.0).abs() < 1e-6, "{one} and {many}");
}

#[test]
fn glue_tasks_are_compared_in_tables_of_their_own() {
    let out = tempfile::tempdir().unwrap();
    let mut command = binary("glue");
    command.args(crate::command::TINY).args(["--task", "CoLA,STS-B", "--set", "data.generated_examples=100"]);
    let output = command.arg("--out").arg(out.path().join("run")).succeeds();
    for part in ["built-in CoLA", "built-in STS-B", "matthews", "spearman"] {
        assert!(stdout(&output).contains(part), "{part} is missing in {}", stdout(&output));
    }
}

#[test]
fn the_list_shows_abilities_and_the_help_shows_examples() {
    for name in ["mt", "lm", "glue", "algorithmic"] {
        let output = binary(name).arg("--list").succeeds();
        assert!(stdout(&output).contains("synthesizer-factorized-dense") && stdout(&output).contains("step by step"));
        let output = binary(name).arg("--help").succeeds();
        assert!(stdout(&output).contains("Examples:"));
    }
}

#[test]
fn another_configuration_does_not_overwrite_a_folder() {
    let (data, (_folder, [out])) = (parallel_folder(), places(["run"]));
    translate(data.path(), &out, &[]).succeeds();
    let before = fs::read(out.join("results.json")).unwrap();
    translate(data.path(), &out, &["--steps", "9"]).refuses(2, &["training.steps", "--out"]);
    assert_eq!(fs::read(out.join("results.json")).unwrap(), before);
}

/// The refusal of a configuration file by the experiment of a binary; `None` if it can be read.
fn refusal(binary: &str, path: &Path) -> Option<String> {
    use heedful_experiments::session::experiment::Config;
    use heedful_experiments::tasks::algorithmic::AlgorithmicConfig;
    use heedful_experiments::tasks::classification::ClassificationConfig;
    use heedful_experiments::tasks::image::{ImageClassification, ImageConfig, ImageMixtures, SuperResolution};
    use heedful_experiments::tasks::language::LanguageConfig;
    use heedful_experiments::tasks::memory_rl::MemoryConfig;
    use heedful_experiments::tasks::pre_training::PreTrainingConfig;
    use heedful_experiments::tasks::recall::{Recall, Track};
    use heedful_experiments::tasks::swap::SwapConfig;
    use heedful_experiments::tasks::text_classification::TextClassificationConfig;
    use heedful_experiments::tasks::text_generation::GenerationConfig;
    use heedful_experiments::tasks::translation::TranslationConfig;
    use heedful_runs::settings::Settings;

    let read = match binary {
        "mt" => Settings::<TranslationConfig>::read(Some(path), Vec::new()).map(|_| ()),
        "lm" => Settings::<LanguageConfig>::read(Some(path), Vec::new()).map(|_| ()),
        "glue" => Settings::<ClassificationConfig>::read(Some(path), Vec::new()).map(|_| ()),
        "algorithmic" => Settings::<AlgorithmicConfig>::read(Some(path), Vec::new()).map(|_| ()),
        "mlm" => Settings::<PreTrainingConfig>::read(Some(path), Vec::new()).map(|_| ()),
        "textgen" => Settings::<GenerationConfig>::read(Some(path), Vec::new()).map(|_| ()),
        "classify" => Settings::<TextClassificationConfig>::read(Some(path), Vec::new()).map(|_| ()),
        "image" => Settings::<ImageConfig>::read(Some(path), Vec::new()).map(|_| ()),
        "classify-images" => Settings::<Config<ImageClassification>>::read(Some(path), Vec::new()).map(|_| ()),
        "image-logistic-mixture" => Settings::<Config<ImageMixtures>>::read(Some(path), Vec::new()).map(|_| ()),
        "image-super-resolution" => Settings::<Config<SuperResolution>>::read(Some(path), Vec::new()).map(|_| ()),
        "recall" => Settings::<Config<Recall>>::read(Some(path), Vec::new()).map(|_| ()),
        "swap" => Settings::<SwapConfig>::read(Some(path), Vec::new()).map(|_| ()),
        "track" => Settings::<Config<Track>>::read(Some(path), Vec::new()).map(|_| ()),
        "memory-rl" => Settings::<MemoryConfig>::read(Some(path), Vec::new()).map(|_| ()),
        other => panic!("{path:?} is for {other}"),
    };
    read.err().map(|error| error.to_string())
}

#[test]
fn every_preset_can_be_read() {
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../presets")).unwrap() {
        let path = entry.unwrap().path();
        // The command in its head says whose preset it is.
        let text = fs::read_to_string(&path).unwrap();
        let command =
            text.lines().filter_map(|line| line.strip_prefix("#   ")).next().unwrap_or_else(|| panic!("{path:?} names no command"));
        assert_eq!(refusal(command.split(' ').nth(1).unwrap(), &path), None);
    }
}

#[test]
fn presets_are_listed_and_give_the_configuration_of_their_files() {
    let listed = stdout(&binary("mt").arg("--list-presets").succeeds());
    assert!(listed.contains("multi30k: Machine translation") && listed.contains("heedful mt --preset multi30k --data"), "{listed}");
    assert!(!listed.contains("heedful lm"), "{listed}");
    let printed = |arguments: &[&str]| stdout(&binary("lm").args(arguments).args(["--steps", "3", "--print-config"]).succeeds());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../presets/ptb.toml");
    assert_eq!(printed(&["--preset", "ptb"]), printed(&["--config", file]));
    assert_ne!(printed(&["--preset", "ptb"]), printed(&["--preset", "shakespeare"]));
    refused(&binary("lm").args(["--preset", "multi30k"]).output().unwrap(), 2, &["multi30k", "--preset"]);
    refused(&binary("lm").args(["--preset", "ptb", "--config", file]).output().unwrap(), 2, &["--preset", "--config"]);
    let wrong = binary("lm").args(["--preset", "ptb", "--set", "model.heads=3"]).output().unwrap();
    refused(&wrong, 2, &["heads"]);
}

#[test]
fn candidates_that_are_the_same_model_are_named_on_the_terminal_and_in_the_report() {
    let (data, (folder, [out])) = (parallel_folder(), places(["run"]));
    let output = translate(data.path(), &out, &["--attention", "gaussian,hc-sa", "--steps", "2"]).succeeds();
    let sentence = "gaussian and hc-sa are the same model";
    assert!(stdout(&output).contains(sentence) && stderr(&output).contains(sentence), "{}", stdout(&output));
    assert!(fs::read_to_string(out.join("report.md")).unwrap().contains(sentence));
    let weights = |name: &str| crate::command::final_weights(&out.join(name));
    assert_eq!(weights("gaussian-seed1"), weights("hc-sa-seed1"));

    // Also if one of them was trained by an earlier command.
    let later = folder.path().join("later");
    translate(data.path(), &later, &["--attention", "gaussian"]).succeeds();
    let output = translate(data.path(), &later, &["--attention", "hc-sa", "--resume"]).succeeds();
    assert!(stderr(&output).contains("hc-sa and gaussian are the same model"), "{}", stderr(&output));
}

#[cfg(target_os = "linux")]
#[test]
fn a_model_that_no_machine_holds_is_refused_before_anything_is_built() {
    let (data, (_folder, [out])) = (parallel_folder(), places(["run"]));
    for option in ["model.layers=1000000000", "model.d_ff=9000000000000000000"] {
        let output = translate(data.path(), &out, &["--set", option]).output().unwrap();
        refused(&output, 2, &[&format!("`--set {option}`"), "needs at least", "are available", "smaller"]);
        assert!(!out.exists());
    }
}

#[test]
fn every_configuration_of_the_results_can_be_read() {
    let folders = crate::recorded::folders();
    assert!(folders.len() > 60, "{folders:?}");
    for folder in folders {
        let results = fs::read_to_string(folder.join("results.json")).unwrap();
        let records: Vec<Value> = serde_json::from_str(&results).unwrap();
        assert_eq!(refusal(records[0]["experiment"].as_str().unwrap(), &folder.join("config.toml")), None, "{}", folder.display());
    }
}

#[test]
fn a_trivial_baseline_is_computed_once_for_a_folder_and_left_out_on_demand() {
    let (data, (_folder, [out])) = (text_folder(), places(["run"]));
    let run = |further: &[&str]| {
        let mut command = binary("lm");
        command.args(TINY).args(["--set", "data={context = 16, stride = 8, batch = 4}", "--steps", "2", "--attention", "dot-product"]);
        command.arg("--data").arg(data.path()).arg("--out").arg(&out).args(further).output().unwrap()
    };
    succeeded(&run(&[]));
    let read = || fs::read_to_string(out.join("trivial.json")).unwrap();
    let first = read();
    let trivial: Vec<Value> = serde_json::from_str(&first).unwrap();
    assert_eq!((trivial.len(), trivial[0]["experiment"].as_str()), (1, Some("lm")));
    let name = format!("{} (trivial)", trivial[0]["name"].as_str().unwrap());
    assert!(trivial[0]["metrics"]["perplexity"].as_f64().unwrap() > 1.0);
    let records = records(&out);
    assert_eq!(records.len(), 1, "it is no run");
    let output = run(&["--resume"]);
    succeeded(&output);
    assert!(stdout(&output).contains(&name), "{}", stdout(&output));
    assert_eq!(read(), first);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.matches(&name).count() >= 3, "a row, a sentence and a line of the curves");
    let lines = fs::read_dir(out.join("trivial").join(trivial[0]["name"].as_str().unwrap())).unwrap();
    let names: Vec<_> = lines.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.len() == 1 && names[0].starts_with("events.out.tfevents."), "a line for TensorBoard: {names:?}");
    // A folder of an earlier version has none; nothing is trained again.
    fs::remove_file(out.join("trivial.json")).unwrap();
    succeeded(&run(&["--resume", "--no-trivial-baseline"]));
    assert!(!out.join("trivial.json").exists());
    assert!(!fs::read_to_string(out.join("report.md")).unwrap().contains("(trivial)"));
    succeeded(&run(&["--merge"]));
    assert!(fs::read_to_string(out.join("report.md")).unwrap().contains(&name));
}

#[test]
fn learning_rates_are_tuned_once_for_all_seeds_and_sizes_are_matched() {
    let out = tempfile::tempdir().unwrap();
    let lm = |further: &[&str]| {
        let mut command = binary("lm");
        command.args(TINY).args(["--attention", "dot-product,none", "--tune", "--match", "parameters"]);
        command.args(["--set", "data={context = 16, stride = 8, batch = 4, generated_words = 400}"]);
        command.args(["--set", "training.tune={rates = 3, further = 1}", "--set", "training.learning_rate=1e-3"]);
        command.args(["--out"]).arg(out.path().join("run")).args(further).env("RAYON_NUM_THREADS", "1").output().unwrap()
    };
    succeeded(&lm(&["--seeds", "2"]));
    let folder = out.path().join("run");
    let results = records(&folder);
    assert_eq!(results.len(), 4);
    for record in &results {
        let name = record["attention"].as_str().unwrap();
        let tuned: Value =
            serde_json::from_str(&fs::read_to_string(folder.join("tuning").join(name).join("tuning.json")).unwrap()).unwrap();
        let trials = tuned["trials"].as_array().unwrap();
        assert!((3..=4).contains(&trials.len()) && tuned["steps"] == 3, "{tuned}");
        assert_eq!((&record["metrics"]["learning rate"], &tuned["best"]), (&tuned["best"], &record["metrics"]["learning rate"]));
        let notes = record["notes"].to_string();
        assert!(notes.contains("learning rates were tried for 3 steps with seed 1"), "{notes}");
    }
    let of = |field: &str| results.iter().map(|record| record[field].as_f64().unwrap()).collect::<Vec<_>>();
    let parameters = of("parameters");
    // A hidden unit of 16 + 1 + 16 numbers, in eights.
    assert!(parameters.iter().all(|count| (count - parameters[0]).abs() <= 4.0 * 33.0), "{parameters:?}");
    assert!(results.iter().any(|record| record["metrics"]["feed-forward width"].as_f64() > Some(32.0)), "{results:?}");
    // A further seed has the rates that were found.
    let tuned = folder.join("tuning/none/tuning.json");
    let before = fs::metadata(&tuned).unwrap().modified().unwrap();
    succeeded(&lm(&["--seeds", "3", "--resume"]));
    assert_eq!(fs::metadata(&tuned).unwrap().modified().unwrap(), before);
    let sweeping = lm(&["--set", "training.learning_rates=[1e-3]"]);
    refused(&sweeping, 2, &["training.tune", "leave --tune out"]);
}

#[test]
fn an_experiment_without_a_trivial_baseline_refuses_to_leave_it_out() {
    let out = tempfile::tempdir().unwrap();
    let mut command = example("sort");
    command.arg("--no-trivial-baseline").arg("--out").arg(out.path().join("run"));
    command.refuses(2, &["--no-trivial-baseline", "no trivial baseline", "leave it out"]);
}
