//! What is known of a mechanism stands in its file: nowhere else is its name, and the book's page is made of it.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use heedful_attention::description::Kind;
use heedful_attention::prelude::{AnyMechanism, AttentionConfig, Mask};
use heedful_attention::registry::{letters, names_and_aliases};

// The test writes with the functions of the example that writes the pages; the example's `main` is not called here.
#[path = "../../examples/mechanism_pages.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod example;

#[test]
fn every_mechanism_has_its_page_in_the_book_and_its_line_in_the_list() {
    let pages = example::pages().unwrap();
    for (path, text) in &pages {
        let kept = fs::read_to_string(example::root().join(path)).unwrap_or_default();
        assert!(kept == *text, "{path} is not what the mechanisms say; run the example `mechanism_pages`");
    }
    let text = |end: &str| &pages.iter().find(|(path, _)| path.ends_with(end)).unwrap().1;
    for family in example::mechanisms().iter().map(AnyMechanism::family) {
        let page = text(&format!("/mechanisms/{family}.md"));
        for part in [
            "## Abilities",
            "## Example",
            "## Cost",
            "* time: `",
            "* state of decoding: `",
            "* parameters: `",
            "* floating-point operations",
            "* paper: ",
        ] {
            assert!(page.contains(part), "{family} has no {part}");
        }
        for (heading, next) in [("## Differences from released code", "## Results here"), ("## Results here", "")] {
            let (_, rest) = page.split_once(heading).unwrap_or_else(|| panic!("{family} has no {heading}"));
            assert!(
                rest.trim_start_matches('\n').len() > next.len() && !rest.trim_start().starts_with('#'),
                "{family}: nothing below {heading}"
            );
        }
        assert!(!page.contains("unknown"), "{page}");
        let (code, plain) = (format!("[`{family}`]("), format!("[{family}]("));
        for (list, link) in [("/mechanisms.md", &code), ("/gallery.md", &code), ("/SUMMARY.md", &plain)] {
            assert!(text(list).contains(link), "{list} does not name {family}");
        }
    }
}

#[test]
fn no_page_says_unused_of_a_mechanism_in_a_recorded_configuration() {
    let results = example::root().join("experiments/results");
    let (pages, mut families) = (example::pages().unwrap(), AnyMechanism::families().to_vec());
    // It leaves attention out, and has no page.
    families.retain(|family| *family != "none");
    let page = |family: &str| &pages.iter().find(|(path, _)| path.ends_with(&format!("/mechanisms/{family}.md"))).unwrap().1;
    let mut used = std::collections::BTreeSet::new();
    for folder in example::folders(&results).unwrap() {
        let config = fs::read_to_string(results.join(&folder).join("config.toml")).unwrap();
        for line in config.lines().filter(|line| line.starts_with("attention = ")) {
            let words = line.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '-');
            used.extend(words.filter_map(|word| families.iter().find(|family| **family == word)));
        }
    }
    assert!(used.len() > 25, "{used:?}");
    for family in used {
        assert!(!page(family).contains(example::UNUSED), "{family}");
    }
    for (family, folder, row) in [
        ("base-conv", "recall-128-8", "base-conv-32"),
        ("mamba-2", "recall-64-4", "mamba-2-64"),
        ("sliding-window", "recall-128-8", "window-16-32"),
        ("rotary", "baselines-shakespeare", "hybrid"),
        ("gaussian", "claims/M1", "hc-sa"),
        ("uniform", "mnist-super-resolution", "{decoder=local-1d,cross=uniform}"),
        ("sparse-strided", "claims/I1", "strided-merged"),
        ("relative", "claims/V3/side-2", "gtrxl"),
    ] {
        let page = page(family);
        let link = page.split_once(&format!("/experiments/results/{folder}) (")).unwrap_or_else(|| panic!("{family}: no {folder}")).1;
        assert!(link.split_once(')').unwrap().0.contains(&format!("`{row}`")), "{family}: {folder} without {row}");
    }
    assert!(!page("dot-product").contains("`lstm`"), "an LSTM has no attention");
}

#[test]
fn formulas_have_one_alphabet() {
    let letters = letters();
    for (place, (letter, _)) in letters.iter().enumerate() {
        assert!(letters[..place].iter().all(|(other, _)| other != letter), "`{letter}` means more than one thing");
    }
    for mechanism in example::mechanisms() {
        let used = example::letters_of(&mechanism);
        for letter in &used {
            assert!(letters.iter().any(|(known, _)| known == letter), "{mechanism}: nothing says what `{letter}` is");
        }
        for (own, meaning) in mechanism.card().letters {
            assert!(used.iter().any(|letter| letter == own), "{mechanism}: no formula has the letter `{own}`");
            for letter in example::letters_of_meaning(meaning) {
                assert!(used.contains(&letter), "{mechanism}: its page does not say what `{letter}` is in the meaning of `{own}`");
            }
        }
    }
    for (mechanism, letter) in [("dynamic-conv", "L"), ("sparse-fixed", "L"), ("adaptive-span", "S")] {
        let used = example::letters_of(&mechanism.parse().unwrap());
        assert!(used.iter().any(|used| used == letter), "{mechanism}: {used:?}");
    }
}

#[test]
fn every_name_of_a_list_has_a_sentence_of_its_own() {
    let mut seen = std::collections::BTreeMap::new();
    for mechanism in AnyMechanism::all().into_iter().filter(|mechanism| mechanism.card().kind != Kind::Mixture) {
        if let Some(other) = seen.insert(mechanism.description(), mechanism.name()) {
            panic!("{mechanism} and {other}: {}", mechanism.description());
        }
    }
    for (name, said) in [("adaptive-span-fixed", "not learned"), ("synthesizer-random-fixed", "not trained")] {
        let mechanism: AnyMechanism = name.parse().unwrap();
        assert!(mechanism.description().contains(said), "{name}: {}", mechanism.description());
    }
}

#[test]
fn cards_are_in_plain_sentences() {
    for mechanism in AnyMechanism::all() {
        let card = mechanism.card();
        for sentence in card.differences.iter().chain([&card.description, &mechanism.description()]) {
            assert!(
                sentence.ends_with('.') && sentence.starts_with(char::is_uppercase) | sentence.starts_with('`'),
                "{mechanism}: {sentence}"
            );
        }
    }
}

#[test]
fn every_paper_has_a_link() {
    for mechanism in AnyMechanism::all() {
        let card = mechanism.card();
        let papers = card.links.iter().take_while(|link| !link.starts_with(example::CODE)).count();
        let is_year = |word: &str| word.len() >= 4 && word.as_bytes()[..4].iter().all(u8::is_ascii_digit);
        let named = card.source.split("; ").filter(|paper| paper.split(' ').any(is_year)).count();
        assert_eq!(papers, named, "{mechanism}: {} has the links {:?}", card.source, card.links);
        for (place, link) in card.links.iter().enumerate() {
            let number = link.strip_prefix("https://arxiv.org/abs/");
            // An arXiv number without a version leads to the newest one.
            let is_number = |number: &str| number.len() == 10 && number.chars().all(|sign| sign.is_ascii_digit() || sign == '.');
            assert!(link.starts_with("https://") && number.is_none_or(is_number), "{mechanism}: {link}");
            assert_eq!(link.starts_with(example::CODE), place >= papers, "{mechanism}: {link} is not among its kind");
            assert!(!card.links[..place].contains(link), "{mechanism}: {link} occurs twice");
        }
    }
}

#[test]
fn the_example_of_every_page_runs() {
    let device = Device::flex();
    for mechanism in AnyMechanism::all() {
        // A page says `with_causal(true)` where it can.
        let attention = AttentionConfig::new(mechanism.name(), 64, 4).with_causal(mechanism.can_be_causal()).init(&device).unwrap();
        let y = attention.forward(Tensor::ones([2, 40, 64], &device), &Mask::padding(&[40, 25], 40));
        assert_eq!(y.dims(), [2, 40, 64], "{mechanism}");
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Lines of code with `text` in them, without comments and unit tests.
fn lines_with<'a>(source: &'a str, text: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = source.lines().collect();
    let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].contains("mod tests"));
    let code = &lines[..tests.unwrap_or(lines.len())];
    code.iter().copied().filter(|line| !line.trim_start().starts_with("//") && line.contains(text)).collect()
}

#[test]
fn the_name_of_a_mechanism_stands_in_its_own_file_alone() {
    let mut files = Vec::new();
    for package in ["attention", "models", "experiments/data", "experiments/metrics", "experiments/runs", "experiments", "benches"] {
        sources(&example::root().join(package).join("src"), &mut files);
    }
    // What experiments and benchmarks compare unless they are told something else, and the models that they know by name.
    let comparing = [
        ("experiments", &["config.rs", "models.rs", "compare/candidates.rs"][..]),
        (
            "benches",
            &[
                "plan/layers.rs",
                "plan/models.rs",
                "plan/packages.rs",
                "peers/target.rs",
                "src/backends.rs",
                "cost/crossover.rs",
                "roofline/kernels.rs",
                "roofline/operators.rs",
            ],
        ),
    ];
    let says_what_is_compared = |path: &Path| {
        comparing
            .iter()
            .any(|(package, names)| path.starts_with(example::root().join(package)) && names.iter().any(|name| path.ends_with(name)))
    };
    files.retain(|path| !says_what_is_compared(path));
    assert!(files.len() > 200, "{} files", files.len());
    // The ablation has a word for its name that says in many places that there is nothing of a kind.
    for name in names_and_aliases().into_iter().filter(|name| *name != "none") {
        let family = name.parse::<AnyMechanism>().unwrap().family();
        let own = format!("mechanisms/{}", family.replace('-', "_"));
        let others = files.iter().filter(|path| {
            !path.to_string_lossy().contains(&own) && !path.ends_with("tests.rs") && !path.iter().any(|part| part == "tests")
        });
        for path in others {
            let source = fs::read_to_string(path).unwrap();
            let mut lines = lines_with(&source, &format!("\"{name}\""));
            // The name of a measure of `analyse`, and those of functions.
            lines.retain(|line| !["relative_entropy", "Activation::"].iter().any(|other| line.contains(other)));
            assert!(lines.is_empty(), "{} names {name}: {lines:?}", path.display());
        }
    }
    assert_eq!(
        lines_with("// \"a\"\nlet x = \"a\";\n#[cfg(test)]\nmod tests { \"a\" }", "\"a\""),
        ["let x = \"a\";"],
        "the search finds code"
    );
}
