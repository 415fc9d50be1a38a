//! Writes the book's page of every mechanism: `cargo run --release --example mechanism_pages`.
//!
//! A page is what the mechanism's file says: its documentation, the options of its configuration, its card, and its abilities; beside it the picture, the
//! measured times of `benches/results/cost-long` and the folders with results.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use heedful_attention::contract::Attention;
use heedful_attention::placement::{Placement, Role};
use heedful_attention::random::RandomKey;
use heedful_attention::registry::{AnyMechanism, Kind, tensors_of};

const BEGIN: &str = "<!-- generated: mechanisms -->\n";
const END: &str = "<!-- end of generated: mechanisms -->\n";

/// The top of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository").to_owned()
}

/// A file of the book, by its path in `docs/book/src`, and what it is to hold.
pub type Page = (String, String);

/// Every page, and the two lists of them.
pub fn pages() -> Result<Vec<Page>, Box<dyn Error>> {
    let mechanisms: Vec<_> = AnyMechanism::families().iter().filter_map(|family| AnyMechanism::of_family(family)).collect();
    let mut pages = Vec::new();
    let (mut summary, mut table) = (String::new(), "| mechanism | what it does | source |\n| --- | --- | --- |\n".to_owned());
    for mechanism in mechanisms {
        let (family, card) = (mechanism.family(), mechanism.card());
        pages.push((format!("mechanisms/{family}.md"), page(&mechanism)?));
        writeln!(summary, "  - [{family}](mechanisms/{family}.md)")?;
        writeln!(table, "| [{family}](mechanisms/{family}.md) | {} | {} |", card.description, card.source)?;
    }
    for (name, list) in [("SUMMARY.md", summary), ("mechanisms.md", table)] {
        let text = fs::read_to_string(root().join("docs/book/src").join(name))?;
        let (before, rest) = text.split_once(BEGIN).ok_or(format!("{name} has no line {BEGIN}"))?;
        let (_, after) = rest.split_once(END).ok_or(format!("{name} has no line {END}"))?;
        pages.push((name.to_owned(), format!("{before}{BEGIN}{list}{END}{after}")));
    }
    Ok(pages)
}

fn page(mechanism: &AnyMechanism) -> Result<String, Box<dyn Error>> {
    let family = mechanism.family();
    let module = family.replace('-', "_");
    let source = fs::read_to_string(root().join(format!("attention/src/mechanisms/{module}.rs")))?;
    let Documentation { title, text, picture } = documentation(&source);
    let mut page = format!("# {family}\n\n{title}\n\n{text}\n");
    if let Some((file, caption)) = picture {
        write!(page, "\n## Picture\n\n{caption}\n\n<p>\n{{{{#include ../../../../attention/pictures/{file}}}}}\n</p>\n")?;
    }
    abilities(mechanism, &mut page)?;
    let configuration = fs::read_to_string(root().join(format!("attention/src/mechanisms/{module}/config.rs"))).unwrap_or(source);
    let options = options(&configuration);
    if !options.is_empty() {
        write!(page, "\n## Options\n\n| option | meaning |\n| --- | --- |\n")?;
        for (name, meaning) in options {
            writeln!(page, "| `{name}` | {} |", meaning.replace('|', "\\|"))?;
        }
    }
    let tensors = tensors_of(family);
    if !tensors.is_empty() {
        write!(
            page,
            "\n## Parameters\n\nBesides the projections that mechanisms share, by the end of their paths in files:\n\n| parameter | meaning |\n| --- | --- |\n"
        )?;
        for (path, meaning) in tensors {
            writeln!(page, "| `{path}` | {meaning} |")?;
        }
    }
    example(mechanism, &mut page)?;
    cost(family, &mut page)?;
    results(family, &mut page)?;
    Ok(page)
}

/// What a module's documentation says.
struct Documentation {
    title: String,
    text: String,
    /// Its file and what it shows.
    picture: Option<(String, String)>,
}

fn documentation(source: &str) -> Documentation {
    let lines: Vec<&str> = source.lines().take_while(|line| line.starts_with("//!") || line.starts_with("#![doc")).collect();
    let file = lines.iter().find_map(|line| line.strip_prefix("#![doc = include_str!(\"../../pictures/")?.split('"').next());
    let text: Vec<&str> =
        lines.iter().filter_map(|line| line.strip_prefix("//!")).map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let mut paragraphs =
        text.split(|line| line.is_empty()).filter(|paragraph| !paragraph.is_empty()).map(|paragraph| plain(&paragraph.join("\n")));
    let title = paragraphs.next().unwrap_or_default();
    let (captions, text): (Vec<String>, Vec<String>) = paragraphs.partition(|paragraph| paragraph.contains("of an untrained layer"));
    let picture = file.zip(captions.into_iter().next()).map(|(file, caption)| (file.to_owned(), caption));
    Documentation { title, text: text.join("\n\n"), picture }
}

/// The text without the targets of links to code.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find("[`") {
        let Some(end) = rest[begin..].find("`]").map(|end| begin + end) else { break };
        plain.push_str(&rest[..begin]);
        plain.push_str(&rest[begin + 1..=end]);
        rest = &rest[end + 2..];
        if rest.starts_with('(') {
            rest = rest.find(')').map_or(rest, |end| &rest[end + 1..]);
        }
    }
    plain + rest
}

/// Fields of the configuration with their documentation.
fn options(source: &str) -> Vec<(String, String)> {
    let Some((_, body)) = source.split_once("Config {\n") else { return Vec::new() };
    let mut options = Vec::new();
    let mut meaning: Vec<&str> = Vec::new();
    for line in body.lines().take_while(|line| *line != "}").map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            meaning.push(text);
        } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|field| field.split_once(':')) {
            options.push((name.to_owned(), plain(&std::mem::take(&mut meaning).join(" "))));
        }
    }
    options
}

/// What it can do at the places where it can stand.
fn abilities(mechanism: &AnyMechanism, page: &mut String) -> Result<(), Box<dyn Error>> {
    let card = mechanism.card();
    write!(page, "\n## Abilities\n\n")?;
    // A mixture's are those of its members.
    let shown = if card.kind == Kind::Mixture { "synthesizer-random+dot-product".parse()? } else { mechanism.clone() };
    let role = if shown.can_be_causal() { Role::Decoder } else { Role::Encoder };
    let place = Placement::new(role, 64, 4).with_max_length(64);
    let abilities = shown.init(&place, &RandomKey::from_seed(0), &Device::flex()).abilities();
    let yes = |able: bool| if able { "yes" } else { "no" };
    let length = if abilities.max_length.is_some() { "`max_length`" } else { "any" };
    let combines = match card.kind {
        Kind::Scores => "mixtures (`a+b`), patterns (`a@pattern`), spans",
        Kind::Mixture => "patterns, spans; its members are mechanisms that score keys",
        Kind::SoftSpan => "nothing; it limits the scores of another mechanism, option `logits`",
        Kind::Pattern => "patterns; it restricts the scores of another mechanism (`a@pattern`)",
        Kind::Normaliser => "patterns; it turns the scores of another mechanism into weights (`a@normaliser`)",
        Kind::Whole => "nothing",
    };
    let parameters = shown.parameter_formula().map_or_else(|| "unknown".to_owned(), |formula| formula.to_string());
    for (fact, value) in [
        ("paper", card.source.to_owned()),
        ("causal", abilities.causality.to_string()),
        ("attends to another sequence", yes(card.cross).to_owned()),
        ("decodes step by step", yes(abilities.steps).to_owned()),
        ("longest sequence", length.to_owned()),
        ("time", abilities.time.to_owned()),
        ("state of decoding", abilities.state.to_owned()),
        ("parameters", parameters),
        ("combines with", combines.to_owned()),
    ] {
        writeln!(page, "* {fact}: {value}")?;
    }
    Ok(())
}

fn example(mechanism: &AnyMechanism, page: &mut String) -> Result<(), Box<dyn Error>> {
    let name = if mechanism.card().kind == Kind::Mixture { "synthesizer-random+dot-product" } else { mechanism.family() };
    let causal = if mechanism.can_be_causal() { ".with_causal(true)" } else { "" };
    // Blocks of the default size are longer than the sequence, and a picture has rows.
    let length = if mechanism.family() == "local-2d" { 64 } else { 40 };
    write!(
        page,
        "\n## Example\n\n```rust\nuse burn::tensor::{{Device, Tensor}};\nuse heedful_attention::prelude::*;\n\nlet device = Device::flex();\n\
         let attention = AttentionConfig::new(\"{name}\", 64, 4){causal}.init(&device)?;\n\
         let x = Tensor::<3>::ones([2, {length}, 64], &device);\n\
         let y = attention.forward(x, &Mask::padding(&[{length}, 25], {length}));\nassert_eq!(y.dims(), [2, {length}, 64]);\n\
         # Ok::<(), ConfigError>(())\n```\n"
    )?;
    let own = AnyMechanism::names();
    let twins: Vec<&str> =
        own.iter().copied().filter(|twin| twin.parse::<AnyMechanism>().is_ok_and(|other| other.family() == mechanism.family())).collect();
    if twins.len() > 1 {
        write!(page, "\nNames on the command line: `{}`.\n", twins.join("`, `"))?;
    }
    Ok(())
}

/// Medians of `benches/results/cost-long`.
fn cost(family: &str, page: &mut String) -> Result<(), Box<dyn Error>> {
    let measured = fs::read_to_string(root().join("benches/results/cost-long/cost.csv"))?;
    let of = |name: &str| -> Vec<(String, f64)> {
        let rows = measured.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let own = rows.filter(|row| row.len() > 4 && row[0] == "flex" && row[1] == name && row[2] == "training");
        own.filter_map(|row| Some((row[3].to_owned(), row[4].parse().ok()?))).collect()
    };
    let own = of(family);
    if own.is_empty() {
        return Ok(());
    }
    let dense = of("dot-product");
    write!(
        page,
        "\n## Cost\n\nForward and backward pass of a causal layer of width 128 with 4 heads, on flex and two cores \
         ([measurement](https://github.com/heedful/heedful/tree/main/benches/results/cost-long)).\n\n| length | ms | of dot-product's time |\n| ---: | ---: | ---: |\n"
    )?;
    for (length, ms) in own {
        let ratio = dense.iter().find(|(other, _)| *other == length).map_or("–".to_owned(), |(_, dense)| format!("{:.2}", ms / dense));
        writeln!(page, "| {length} | {ms:.1} | {ratio} |")?;
    }
    Ok(())
}

/// Folders with runs of the mechanism.
fn results(family: &str, page: &mut String) -> Result<(), Box<dyn Error>> {
    let mut folders = Vec::new();
    for folder in fs::read_dir(root().join("experiments/results"))? {
        let folder = folder?;
        let Ok(records) = fs::read_to_string(folder.path().join("results.json")) else { continue };
        let records: serde_json::Value = serde_json::from_str(&records)?;
        let has =
            |record: &serde_json::Value| record["attention"].as_str().is_some_and(|name| name.split(['+', '@']).any(|part| part == family));
        if records.as_array().is_some_and(|records| records.iter().any(has)) {
            folders.push(folder.file_name().to_string_lossy().into_owned());
        }
    }
    folders.sort();
    if !folders.is_empty() {
        let links = folders.iter().map(|name| format!("[{name}](https://github.com/heedful/heedful/tree/main/experiments/results/{name})"));
        write!(page, "\n## Results here\n\n{}\n", links.collect::<Vec<_>>().join(", "))?;
    }
    Ok(())
}

/// Writes what changed.
pub fn main() -> Result<(), Box<dyn Error>> {
    for (path, text) in pages()? {
        let path = root().join("docs/book/src").join(path);
        fs::create_dir_all(path.parent().expect("a page lies in a folder"))?;
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            fs::write(&path, text)?;
            println!("{}", path.display());
        }
    }
    Ok(())
}
