//! What is known of a mechanism stands in its file: nowhere else is its name, and the book's page is made of it.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{Device, Tensor};
use heedful_attention::prelude::{AnyMechanism, AttentionConfig, Mask};

// The test writes with the functions of the example that writes the pages; the example's `main` is not called here.
#[path = "../../examples/mechanism_pages.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod example;

#[test]
fn every_mechanism_has_its_page_in_the_book() {
    let pages = example::pages().unwrap();
    for (path, text) in &pages {
        let kept = fs::read_to_string(example::root().join("docs/book/src").join(path)).unwrap_or_default();
        assert!(kept == *text, "{path} is not what the mechanisms say; run the example `mechanism_pages`");
    }
    for family in AnyMechanism::families() {
        let (_, page) = pages.iter().find(|(path, _)| *path == format!("mechanisms/{family}.md")).unwrap();
        for part in ["## Abilities", "## Example", "* parameters: ", "* paper: "] {
            assert!(page.contains(part), "{family} has no {part}");
        }
        assert!(!page.contains("unknown"), "{page}");
    }
}

#[test]
fn the_example_of_every_page_runs() {
    let device = Device::flex();
    for mechanism in AnyMechanism::all() {
        // A page says `with_causal(true)` where it can, and has a whole number of rows of an image.
        let length = if mechanism.family() == "local-2d" { 64 } else { 40 };
        let attention = AttentionConfig::new(mechanism.name(), 64, 4).with_causal(mechanism.can_be_causal()).init(&device).unwrap();
        let y = attention.forward(Tensor::ones([2, length, 64], &device), &Mask::padding(&[length, 25], length));
        assert_eq!(y.dims(), [2, length, 64], "{mechanism}");
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
    for package in ["attention", "models", "experiments"] {
        sources(&example::root().join(package).join("src"), &mut files);
    }
    // What experiments compare unless they are told something else, and the models that they know by name.
    let says_what_is_compared = |path: &Path| {
        path.starts_with(example::root().join("experiments")) && ["config.rs", "models.rs"].iter().any(|name| path.ends_with(name))
    };
    files.retain(|path| !says_what_is_compared(path));
    assert!(files.len() > 200, "{} files", files.len());
    for name in AnyMechanism::names() {
        let family = name.parse::<AnyMechanism>().unwrap().family();
        let own = format!("mechanisms/{}", family.replace('-', "_"));
        let others = files.iter().filter(|path| !path.to_string_lossy().contains(&own) && !path.ends_with("tests.rs"));
        for path in others {
            let source = fs::read_to_string(path).unwrap();
            let mut lines = lines_with(&source, &format!("\"{name}\""));
            // The name of a measure of `analyse`.
            lines.retain(|line| !line.contains("relative_entropy"));
            assert!(lines.is_empty(), "{} names {name}: {lines:?}", path.display());
        }
    }
    assert_eq!(
        lines_with("// \"a\"\nlet x = \"a\";\n#[cfg(test)]\nmod tests { \"a\" }", "\"a\""),
        ["let x = \"a\";"],
        "the search finds code"
    );
}
