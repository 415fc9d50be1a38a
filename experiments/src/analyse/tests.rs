//! The files of an analysis.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use heedful_runs::run_folder::RunFolder;

use super::record::tests::{observed, tokens};
use super::*;

/// A model with everything, two layers, two heads and two texts, at initialisation and after training.
fn everything() -> Vec<Observed> {
    let mut observations = Vec::new();
    for (state, text) in State::ALL.into_iter().flat_map(|state| [0, 1].map(|text| (state, text))) {
        let words = ["<s> R&D \"x\"", "a b"][text];
        let length = tokens(words).len();
        let mut add = |kind: Kind, module: &str, shape: &[usize], value: f32| {
            let values = vec![value; shape.iter().product()];
            observations.push(Observed { state, text, module: module.into(), ..observed(kind, words, shape, &values) });
        };
        for layer in 0..2 {
            let module = |name: &str| format!("decoder.layers.{layer}.{name}");
            add(Kind::Weights, &module("self_attention"), &[2, length, length], 1.0 / length as f32);
            add(Kind::SlotWeights, &module("cross_attention"), &[2, length, 4], 0.25);
            add(Kind::Spans, &module("self_attention"), &[2, 1], if state == State::Trained { 5.0 } else { 7.0 });
            add(Kind::Buckets, &module("self_attention"), &[2, 2, length], 1.0);
            add(Kind::Gate, &module("self_attention.gate"), &[length, 3], 0.5);
        }
        add(Kind::HaltingSteps, "decoder", &[length], 3.0);
    }
    observations
}

fn analysis(observations: &[Observed], pictured: &[usize]) -> Analysis {
    let mut analysis = Analysis::new("lm, all of\nit", pictured.iter().copied());
    observations.iter().for_each(|observed| analysis.add(observed.clone()).unwrap());
    analysis
}

fn written(analysis: &Analysis) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    analysis.write(folder.path()).unwrap();
    folder
}

fn names(folder: &Path) -> BTreeSet<String> {
    let of = |folder: &Path, before: &str| -> Vec<String> {
        let entries: Vec<fs::DirEntry> =
            fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap()).collect()).unwrap_or_default();
        let files = entries.iter().filter(|entry| entry.path().is_file());
        files.map(|entry| format!("{before}{}", entry.file_name().into_string().unwrap())).collect()
    };
    of(folder, "").into_iter().chain(of(&folder.join("maps"), "maps/")).collect()
}

fn rows(folder: &Path, name: &str) -> Vec<csv::StringRecord> {
    csv::Reader::from_path(folder.join(name)).unwrap().records().map(|record| record.unwrap()).collect()
}

#[test]
fn every_file_is_named_on_the_page_and_every_name_is_a_file() {
    let folder = written(&analysis(&everything(), &[0, 1]));
    let page = fs::read_to_string(folder.path().join("analyse.md")).unwrap();
    let mut names = names(folder.path());
    assert!(names.remove("analyse.md"));
    assert_eq!(names.len(), 8 + 5 + 2 + 2 * 2 * 2 * 2);
    for name in &names {
        assert!(page.contains(&format!("- [`{name}`]({name}): ")), "{name} is missing in\n{page}");
    }
    let listed = page.lines().filter(|line| line.starts_with("- [`")).count();
    assert_eq!(listed, names.len(), "{page}");
    assert!(page.starts_with("# What the attention does: lm, all of it\n"), "{page}");
    assert!(!page.contains("What there is not"), "{page}");
}

#[test]
fn tables_have_a_row_for_each_thing() {
    let folder = written(&analysis(&everything(), &[0]));
    let count = |name: &str| rows(folder.path(), name).len();
    // Two states, two layers and two heads of keys and of slots.
    assert_eq!(count("statistics.csv"), 2 * 2 * 2 * 2);
    assert_eq!(count("histogram.csv"), 16 * (50 + 2 + 40 + 2) + 2 * 2 * (20 + 2));
    // After training, beside the beginning.
    assert_eq!(count("divergence.csv"), 2 * 2 * 2);
    assert_eq!([count("spans.csv"), count("buckets.csv"), count("gates.csv")], [8, 8, 4]);
    assert_eq!(count("halting.csv"), 2 * (3 + 2));
    // Of one text, after training.
    assert_eq!(count("weights.csv"), 2 * 2 * (3 * 3 + 3 * 4));
}

#[test]
fn rows_of_weights_tell_their_place() {
    let weights = observed(Kind::Weights, "a b", &[2, 2, 2], &[0.0, 1.0, 0.25, 0.75, 0.5, 0.5, 1.0, 0.0]);
    let folder = written(&analysis(&[weights], &[0]));
    let rows = rows(folder.path(), "weights.csv");
    let module = "encoder.layers.0.self_attention";
    assert_eq!(rows[3], vec!["0", module, "0", "1", "1", "0.75", "b", "b"]);
    assert_eq!(rows[6], vec!["0", module, "1", "1", "0", "1", "b", "a"]);
}

#[test]
fn the_page_shows_statistics_of_each_head() {
    let folder = written(&analysis(&everything(), &[]));
    let page = fs::read_to_string(folder.path().join("analyse.md")).unwrap();
    for part in [
        "Observed: 2 texts at initialisation, 2 texts after training.",
        "## Heads, after training",
        "## Change of the weights, after training",
        "| `decoder.layers.1.cross_attention` | 1 | 0.0000 |",
        "| `decoder.layers.1.cross_attention` | 1 | 1.386 | 1.000 | 0.250 | 1.000 | – | – | – | – | 0.250 |",
        "| `decoder.layers.0.self_attention` | 0 | 5.000 | 5.000 | 5.000 |",
        "| `decoder.layers.0.self_attention` | 1 | 1.000 | 2.500 | 2.500 | 1.000 | 1.000 |",
        "| `decoder.layers.0.self_attention.gate` | 0.500 | 0.000 |",
        "| `decoder` | 3.000 | 3.000 | 3.000 |",
        "- weights of single texts: none were asked for\n",
    ] {
        assert!(page.contains(part), "{part} is missing in\n{page}");
    }
}

#[test]
fn images_have_distances_and_the_weights_of_a_pixel() {
    use super::image::tests::{image, looking};

    let written_with = |choice: PixelChoice| {
        let mut analysis = Analysis::new("an image", [0]).with_pixel(choice);
        analysis.add_image(0, image());
        for layer in 0..2 {
            // The second layer looks at the pixel above.
            let at = if layer == 0 { [0, 1, 2, 3, 4, 5] } else { [0, 0, 0, 1, 2, 3] };
            analysis.add(Observed { module: format!("decoder.layers.{layer}.self_attention"), ..looking(at) }).unwrap();
        }
        written(&analysis)
    };
    let folder = written_with(PixelChoice::default());
    let found = rows(folder.path(), "image-distance.csv");
    assert_eq!(found[1], vec!["trained", "decoder.layers.1.self_attention", "0", "3", "1", "0"]);
    let all = names(folder.path());
    for name in ["row-distance.svg", "column-distance.svg", "maps/text0-decoder.layers.0.self_attention-pixel.svg"] {
        assert!(all.contains(name), "{name} is missing among {all:?}");
    }
    let page = fs::read_to_string(folder.path().join("analyse.md")).unwrap();
    assert!(page.contains("## Distances in the image, after training"), "{page}");
    assert!(page.contains("| `decoder.layers.1.self_attention` | 0 | 1.000 | 0.000 |"), "{page}");
    let overlays = |folder: &Path| names(folder).into_iter().filter(|name| name.ends_with("-pixel.svg")).collect::<Vec<_>>();
    assert_eq!(overlays(folder.path()).len(), 2);
    let folder = written_with(PixelChoice { pixel: Some([0, 2]), layers: vec![1] });
    let [name] = &overlays(folder.path())[..] else { panic!("one layer was chosen") };
    let svg = fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(name.contains("layers.1.") && svg.contains("Row 0, column 2"), "{name}: {svg}");
}

#[test]
fn weights_of_members_of_mixtures_have_a_table_and_a_section() {
    let mut analysis = analysis(&everything(), &[]);
    let of = |weights: [f64; 2]| MixtureShares {
        module: "decoder.layers.0.self_attention".into(),
        members: vec![("synthesizer-random".into(), weights.to_vec()), ("dot-product".into(), weights.map(|weight| 1.0 - weight).to_vec())],
    };
    analysis.add_mixtures(State::Initial, [of([0.5, 0.5])]);
    let one = MixtureShares { module: "decoder.layers.1.self_attention".into(), members: vec![("alibi".into(), vec![0.25])] };
    analysis.add_mixtures(State::Trained, [of([0.125, 0.75]), one]);
    let folder = written(&analysis);
    let page = fs::read_to_string(folder.path().join("analyse.md")).unwrap();
    for part in [
        "- [`mixtures.csv`](mixtures.csv): ",
        "## Mixtures, after training",
        "| `decoder.layers.0.self_attention` | 0 | synthesizer-random | 0.125 |",
        "| `decoder.layers.0.self_attention` | 1 | dot-product | 0.250 |",
        "| `decoder.layers.1.self_attention` | all | alibi | 0.250 |",
    ] {
        assert!(page.contains(part), "{part} is missing in\n{page}");
    }
    let rows = rows(folder.path(), "mixtures.csv");
    assert_eq!(rows.len(), 4 + 4 + 1);
    assert_eq!(rows[4], vec!["trained", "decoder.layers.0.self_attention", "0", "synthesizer-random", "0.125"]);
    assert_eq!(&rows[8][2], "");
}

#[test]
fn what_a_model_does_not_have_is_said_and_has_no_file() {
    let mut cross = observed(Kind::Weights, "a b", &[1, 2, 2], &[0.5; 4]);
    cross.query_start = None;
    let folder = written(&analysis(&[cross], &[0]));
    let page = fs::read_to_string(folder.path().join("analyse.md")).unwrap();
    for part in [
        "- distances between the tokens of one text: this model has none\n",
        "- weights of slots: this model has none\n",
        "- adaptive spans: this model has none\n",
        "- hash buckets: this model has none\n",
        "- gates: this model has none\n",
        "- halting steps: this model has none\n",
        "- the model at initialisation: not observed\n",
    ] {
        assert!(page.contains(part), "{part} is missing in\n{page}");
    }
    assert!(!page.contains("- attention weights"), "{page}");
    let expected = [
        "analyse.md",
        "entropy.svg",
        "histogram.csv",
        "histogram.svg",
        "maps/text0-encoder.layers.0.self_attention.png",
        "maps/text0-encoder.layers.0.self_attention.svg",
        "statistics.csv",
        "weights.csv",
    ];
    assert_eq!(names(folder.path()), expected.map(str::to_owned).into());
}

#[test]
fn without_observations_the_page_says_so() {
    let folder = written(&Analysis::new("nothing", []));
    assert_eq!(names(folder.path()), ["analyse.md".to_owned()].into());
    let page = fs::read_to_string(folder.path().join("analyse.md")).unwrap();
    assert!(page.contains("Nothing was observed.") && page.contains("- attention weights over keys: this model has none"), "{page}");
}

#[test]
fn single_texts_are_shown_at_initialisation_if_nothing_else_was_observed() {
    let mut observations = everything();
    observations.retain(|observed| observed.state == State::Initial);
    let folder = written(&analysis(&observations, &[1]));
    assert_eq!(rows(folder.path(), "weights.csv").len(), 2 * 2 * (2 * 2 + 2 * 4));
    let svg = fs::read_to_string(folder.path().join("halting-text1.svg")).unwrap();
    assert!(svg.contains("Halting steps of text 1, at initialisation"), "{svg}");
}

#[test]
fn the_same_shown_twice_is_refused_and_not_added() {
    let weights = observed(Kind::Weights, "a", &[1, 1, 1], &[1.0]);
    let mut analysis = analysis(std::slice::from_ref(&weights), &[]);
    let message = analysis.add(weights.clone()).unwrap_err().to_string();
    assert!(message.contains("self_attention`: weights after training were shown twice"), "{message}");
    let wrong = Observed { text: 1, values: vec![f32::NAN], ..weights.clone() };
    assert!(analysis.add(wrong).is_err());
    analysis.add(Observed { text: 1, ..weights }).unwrap();
    assert_eq!(analysis.statistics().heads.iter().next().unwrap().1.total.count(), 2);
}

#[test]
fn a_module_without_a_name_is_the_model() {
    let steps = Observed { module: String::new(), ..observed(Kind::HaltingSteps, "a", &[1], &[2.0]) };
    let weights = Observed { module: String::new(), ..observed(Kind::Weights, "a", &[1, 1, 1], &[1.0]) };
    let folder = written(&analysis(&[steps, weights], &[0]));
    assert!(names(folder.path()).contains("maps/text0-model.png"));
    assert_eq!(&rows(folder.path(), "halting.csv")[0][2], "model");
}

#[test]
fn hostile_names_are_text_on_the_page_and_stay_inside_the_folder() {
    let folder = written(&Analysis::new("</script><img src=x>|../x**c**[e](f)\n# g", []));
    let text = fs::read_to_string(folder.path().join("analyse.md")).unwrap();
    for part in ["</script", "<img", "|../x", "**c**", "[e](f)", "\n# g"] {
        assert!(!text.contains(part), "{part:?} in\n{text}");
    }
    let place = RunFolder::at(Path::new("runs/mt")).analysis("../../x", 1);
    assert_eq!(place, Path::new("runs/mt/analysis/%2E.%2F..%2Fx-seed1"));
}
