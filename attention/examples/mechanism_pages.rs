//! Writes the book's page of every mechanism, the gallery and the tables of them: `cargo run --release --example mechanism_pages`.
//!
//! A page is what the mechanism's file says: its documentation, the options of its configuration, its card, and its abilities; beside it the picture, the
//! measured times of `benches/results`, the scores of recorded runs, and the folders of others whose configuration names it.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use heedful_attention::contract::Attention;
use heedful_attention::contract::layer_spec::{LayerSpec, Role};
use heedful_attention::contract::random::RandomKey;
use heedful_attention::description::multiplications::multiplications;
use heedful_attention::description::{AnyMechanism, Card, Kind};
use heedful_attention::registry::{letters, tensors_of};

#[path = "mechanism_pages/gallery.rs"]
mod gallery;
#[path = "mechanism_pages/recorded.rs"]
mod recorded;

pub use self::recorded::folders;
use self::recorded::{CLAIMS, RESULTS, Recorded, recorded};

const BEGIN: &str = "<!-- generated: mechanisms -->\n";
const END: &str = "<!-- end of generated: mechanisms -->\n";

/// The top of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository").to_owned()
}

/// The book, from the top of the repository.
const BOOK: &str = "docs/book/src";
/// Where the repository can be read.
const REPOSITORY: &str = "https://github.com/heedful/heedful/tree/main";

/// How addresses of released code begin; all others are those of papers.
pub const CODE: &str = "https://github.com/";

/// A file, by its path from the top of the repository, and what it is to hold.
pub type Page = (String, String);

/// The first of the mechanisms of each family, in the order of lists.
pub fn mechanisms() -> Vec<AnyMechanism> {
    let all = AnyMechanism::all();
    let of_family = |family: &&str| all.iter().find(|mechanism| mechanism.family() == *family).cloned();
    AnyMechanism::families().iter().filter_map(of_family).collect()
}

/// Every page, and the lists of mechanisms in other files.
pub fn pages() -> Result<Vec<Page>, Box<dyn Error>> {
    let (mechanisms, recorded) = (mechanisms(), recorded()?);
    let mut pages = gallery::pictures()?;
    let mut summary = String::new();
    for mechanism in &mechanisms {
        let family = mechanism.family();
        pages.push((format!("{BOOK}/mechanisms/{family}.md"), page(mechanism, &recorded)?));
        writeln!(summary, "  - [{family}](mechanisms/{family}.md)")?;
    }
    let lists = [
        ("SUMMARY.md", summary),
        ("mechanisms.md", table(&mechanisms)?),
        ("gallery.md", gallery::gallery(&mechanisms)?),
        ("choose.md", gallery::needs(&mechanisms)?),
    ];
    for (page, list) in lists {
        let path = format!("{BOOK}/{page}");
        let text = fs::read_to_string(root().join(&path))?;
        let (before, rest) = text.split_once(BEGIN).ok_or(format!("{path} has no line {BEGIN}"))?;
        let (_, after) = rest.split_once(END).ok_or(format!("{path} has no line {END}"))?;
        let text = format!("{before}{BEGIN}{list}{END}{after}");
        pages.push((path, text));
    }
    Ok(pages)
}

/// One line for each mechanism, with a link to its page.
fn table(mechanisms: &[AnyMechanism]) -> Result<String, Box<dyn Error>> {
    let mut table = "| mechanism | what it does | source |\n| --- | --- | --- |\n".to_owned();
    for mechanism in mechanisms {
        let (family, source) = (mechanism.family(), papers(&mechanism.card()));
        writeln!(table, "| [`{family}`](mechanisms/{family}.md) | {} | {source} |", mechanism.description())?;
        for other in of_family(mechanism).filter(|other| other.name() != family) {
            writeln!(table, "| `{}` | {} | {source} |", other.name(), other.description())?;
        }
    }
    Ok(table)
}

/// The papers of a mechanism, with links to them and to released code.
fn papers(card: &Card) -> String {
    let (code, papers): (Vec<&str>, Vec<&str>) = card.links.iter().copied().partition(|link| link.starts_with(CODE));
    let all = [links("paper", &papers), links("code", &code)].concat();
    if all.is_empty() { card.source.to_owned() } else { format!("{} ({})", card.source, all.join(", ")) }
}

/// Links that read as what they lead to, numbered where there are several.
fn links(what: &str, addresses: &[&str]) -> Vec<String> {
    match addresses {
        [address] => vec![format!("[{what}]({address})")],
        _ => (1..).zip(addresses).map(|(number, address)| format!("[{what} {number}]({address})")).collect(),
    }
}

/// The names of the family's mechanisms.
fn names(mechanism: &AnyMechanism) -> Vec<String> {
    of_family(mechanism).map(|other| other.name()).collect()
}

/// The family's mechanisms.
fn of_family(mechanism: &AnyMechanism) -> impl Iterator<Item = AnyMechanism> {
    AnyMechanism::all().into_iter().filter(move |other| other.family() == mechanism.family())
}

fn page(mechanism: &AnyMechanism, recorded: &[Recorded]) -> Result<String, Box<dyn Error>> {
    let family = mechanism.family();
    let (path, source) = source_of(family)?;
    let Documentation { title, text, picture } = documentation(&source);
    let mut page = format!("# {family}\n\n{title}\n\n{text}\n");
    if let Some((file, caption)) = picture {
        write!(page, "\n## Picture\n\n{caption}\n\n![picture of {family}](../pictures/{file})\n")?;
    }
    abilities(mechanism, &mut page)?;
    let configuration = fs::read_to_string(root().join(path.replace(".rs", "/config.rs"))).unwrap_or(source);
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
    cost(mechanism, &mut page)?;
    differences(mechanism, &mut page)?;
    results(mechanism, recorded, &mut page)?;
    Ok(page)
}

/// The path of a family's file from the top of the repository, and its text.
fn source_of(family: &str) -> Result<(String, String), Box<dyn Error>> {
    let path = format!("attention/src/mechanisms/{}.rs", family.replace('-', "_"));
    let text = fs::read_to_string(root().join(&path))?;
    Ok((path, text))
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

/// Where the mechanism stands: in a decoder if it can.
fn place(mechanism: &AnyMechanism, d_model: usize, length: usize) -> LayerSpec {
    let role = if mechanism.can_be_causal() { Role::Decoder } else { Role::Encoder };
    LayerSpec::new(role, d_model, HEADS).with_max_length(length)
}

/// What it can do at the places where it can stand.
fn abilities(mechanism: &AnyMechanism, page: &mut String) -> Result<(), Box<dyn Error>> {
    let card = mechanism.card();
    write!(page, "\n## Abilities\n\n")?;
    let abilities = mechanism.init(&place(mechanism, 64, 64), &RandomKey::from_seed(0), &Device::flex()).abilities();
    let yes = |able: bool| if able { "yes" } else { "no" };
    let length = if abilities.max_length.is_some() { "`max_length`" } else { "any" };
    let combines = match card.kind {
        Kind::Scores => "mixtures (`a+b`), patterns (`a@pattern`), spans",
        Kind::Mixture => "patterns, spans; its members are mechanisms that score keys",
        Kind::SoftSpan => "nothing; it limits the scores of another mechanism, option `logits`",
        Kind::Pattern => "patterns; it restricts the scores of another mechanism (`a@pattern`)",
        Kind::ScoreMap => "patterns and normalisers; it changes the scores of another mechanism (`a@map`)",
        Kind::Normaliser => "patterns; it turns the scores of another mechanism into weights (`a@normaliser`)",
        Kind::Gate => "patterns, normalisers; it gates what the heads of another mechanism give (`a@gate`)",
        Kind::Heads => "nothing over it; it makes heads of the scores of another mechanism (`a@heads`)",
        Kind::Whole => "nothing",
    };
    for (fact, value) in [
        ("paper", papers(&card)),
        ("causal", abilities.causality.to_string()),
        ("attends to another sequence", yes(card.cross).to_owned()),
        ("decodes step by step", yes(abilities.steps).to_owned()),
        ("longest sequence", length.to_owned()),
        ("combines with", combines.to_owned()),
    ] {
        writeln!(page, "* {fact}: {value}")?;
    }
    Ok(())
}

fn example(mechanism: &AnyMechanism, page: &mut String) -> Result<(), Box<dyn Error>> {
    let name = mechanism.name();
    let causal = if mechanism.can_be_causal() { ".with_causal(true)" } else { "" };
    write!(
        page,
        "\n## Example\n\n```rust\nuse burn::tensor::{{Device, Tensor}};\nuse heedful_attention::prelude::*;\n\nlet device = Device::flex();\n\
         let attention = AttentionConfig::new(\"{name}\", 64, 4){causal}.with_max_length(64).init(&device)?;\n\
         let x = Tensor::<3>::ones([2, 40, 64], &device);\n\
         let y = attention.forward(x, &Mask::padding(&[40, 25], 40));\nassert_eq!(y.dims(), [2, 40, 64]);\n\
         Ok::<(), ConfigError>(())\n```\n"
    )?;
    let names = names(mechanism);
    if names.len() > 1 {
        write!(page, "\nNames on the command line: `{}`.\n", names.join("`, `"))?;
    }
    Ok(())
}

/// Heads of the layer that is counted and measured.
const HEADS: usize = 4;
/// Width of the layer that is counted and measured.
const WIDTH: usize = 128;
/// Lengths at which operations are counted.
const COUNTED: [usize; 2] = [1024, 2048];
/// Folders with measured times; the first that has a mechanism is shown.
const MEASURED: [&str; 2] = ["benches/results/cost-long", "benches/results/cost-flex"];

/// Formulas of time, state and parameters, counted operations, and measured times.
fn cost(mechanism: &AnyMechanism, page: &mut String) -> Result<(), Box<dyn Error>> {
    let card = mechanism.card();
    let parameters = mechanism.parameter_formula().ok_or(format!("{mechanism} does not say how many parameters it has"))?;
    write!(page, "\n## Cost\n\n* time: `{}`\n* state of decoding: `{}` numbers\n* parameters: `{parameters}`\n", card.time, card.state)?;
    let seen = if card.causal { "Causal" } else { "Bidirectional" };
    writeln!(page, "* floating-point operations of a forward pass:")?;
    for length in COUNTED {
        let place = place(mechanism, WIDTH, length);
        let (own, dense) = (operations(mechanism, &place), operations(&AnyMechanism::default(), &place));
        writeln!(page, "  * at length {length}: {:.0} million, {:.2} of dot-product's", own / 1e6, own / dense)?;
    }
    let meaning = |letter: &String| letters().into_iter().find(|known| known.0 == letter).map(|known| known.1);
    let used = letters_of(mechanism);
    let legend: Vec<String> = used.iter().filter_map(|letter| Some(format!("`{letter}`: {}", meaning(letter)?))).collect();
    write!(
        page,
        "\n{}. Time and state are those of one layer and one sequence, time without the projections, which take `n d^2`. {seen} self-attention of width {WIDTH} with \
         {HEADS} heads is counted and measured, projections included.\n\n",
        legend.join("; ")
    )?;
    let (folder, own, dense) = measured(mechanism)?;
    if own.is_empty() {
        writeln!(page, "No recorded measurement has it.")?;
        return Ok(());
    }
    write!(
        page,
        "Forward and backward pass on flex and two cores ([measurement]({REPOSITORY}/{folder})):\n\n\
         | length | ms | of dot-product's time |\n| ---: | ---: | ---: |\n"
    )?;
    for (length, ms) in own {
        let ratio = dense.get(&length).map_or("–".to_owned(), |dense| format!("{:.2}", ms / dense));
        writeln!(page, "| {length} | {ms:.1} | {ratio} |")?;
    }
    Ok(())
}

/// Letters in the formulas of a mechanism and in what these letters mean, in the order of the alphabet.
pub fn letters_of(mechanism: &AnyMechanism) -> Vec<String> {
    let card = mechanism.card();
    let parameters = mechanism.parameter_formula().unwrap_or_default();
    let formulas = [card.time.to_owned(), card.state.to_owned(), parameters.trained.to_string(), parameters.fixed.to_string()].join(" ");
    let known = letters();
    let place = |letter: &String| known.iter().position(|known| known.0 == letter);
    let mut found = letters_in(&formulas);
    let mut at = 0;
    while at < found.len() {
        let new: Vec<String> = place(&found[at]).map(|place| letters_of_meaning(known[place].1)).unwrap_or_default();
        found.extend(new);
        let mut seen = BTreeSet::new();
        found.retain(|letter| seen.insert(letter.clone()));
        at += 1;
    }
    found.sort_by_key(|letter| (place(letter), letter.clone()));
    found
}

/// Letters in a formula.
fn letters_in(formula: &str) -> Vec<String> {
    let words = formula.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
    words.filter(|word| word.starts_with(char::is_alphabetic)).map(str::to_owned).collect()
}

/// Letters in the formulas of what a letter means. All that is in code there is one, but for names of options.
pub fn letters_of_meaning(meaning: &str) -> Vec<String> {
    let parts: Vec<&str> = meaning.split('`').collect();
    let formulas = (1..parts.len()).step_by(2).filter(|&at| !parts[at - 1].ends_with("option ")).map(|at| parts[at]);
    formulas.flat_map(letters_in).collect()
}

/// Floating-point operations of a forward pass: a multiplication comes with an addition.
fn operations(mechanism: &AnyMechanism, place: &LayerSpec) -> f64 {
    let attention = mechanism.init(place, &RandomKey::from_seed(0), &Device::flex());
    let length = place.max_length;
    2.0 * multiplications(&attention, place, 0..length, length).forward()
}

/// Milliseconds by length.
type Medians = BTreeMap<usize, f64>;

/// Medians of training steps on flex of the mechanism and of the default one, and the folder that they are from.
fn measured(mechanism: &AnyMechanism) -> Result<(&'static str, Medians, Medians), Box<dyn Error>> {
    for folder in MEASURED {
        let measured = fs::read_to_string(root().join(folder).join("cost.csv"))?;
        let of = |name: &str| -> Medians {
            let rows = measured.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let own = rows.filter(|row| row.len() > 4 && row[0] == "flex" && row[1] == name && row[2] == "training");
            own.filter_map(|row| Some((row[3].parse().ok()?, row[4].parse().ok()?))).collect()
        };
        let own = of(&mechanism.name());
        if !own.is_empty() {
            return Ok((folder, own, of(&AnyMechanism::default().name())));
        }
    }
    Ok((MEASURED[0], Medians::new(), Medians::new()))
}

fn differences(mechanism: &AnyMechanism, page: &mut String) -> Result<(), Box<dyn Error>> {
    write!(page, "\n## Differences from released code\n\n")?;
    let differences = mechanism.card().differences;
    if differences.is_empty() {
        writeln!(page, "None is known.")?;
    }
    for difference in differences {
        writeln!(page, "* {difference}")?;
    }
    Ok(())
}

/// Scores in the folders with runs of the mechanism, beside those of the default one, and the other folders that use it.
fn results(mechanism: &AnyMechanism, recorded: &[Recorded], page: &mut String) -> Result<(), Box<dyn Error>> {
    write!(page, "\n## Results here\n\n")?;
    let (mut rows, mut others) = (String::new(), Vec::new());
    let family = mechanism.family();
    for Recorded { folder, scores, uses } in recorded {
        let link = format!("[{folder}]({REPOSITORY}/{RESULTS}/{folder})");
        let own = scores.iter().filter(|((_, name), _)| name.parse::<AnyMechanism>().is_ok_and(|run| run.family() == family));
        let own: Vec<_> = own.filter(|_| is_comparison(folder)).collect();
        for ((data, name), (metric, values)) in &own {
            let dense = scores.get(&(data.clone(), AnyMechanism::default().name())).map_or("–".to_owned(), |(_, values)| mean(values));
            writeln!(rows, "| {link} | {data} | `{name}` | {metric} | {} | {dense} |", mean(values))?;
        }
        let names: Vec<&str> = uses.iter().filter(|(_, families)| families.contains(family)).map(|(name, _)| name.as_str()).collect();
        if own.is_empty() && !names.is_empty() {
            others.push(format!("{link} (`{}`)", names.join("`, `")));
        }
    }
    if !rows.is_empty() {
        write!(
            page,
            "Scores of recorded runs, means where there are several seeds. The folders say how they were made and how far they scatter; folders of \
             `claims` hold the runs that test [published claims](../claims.md).\n\n"
        )?;
        write!(page, "| run | data | attention | metric | score | dot-product |\n| --- | --- | --- | --- | ---: | ---: |\n{rows}")?;
    }
    let (gap, uses) = match rows.is_empty() {
        true => ("", "Recorded runs use it under names of their own"),
        false => ("\n", "Other recorded runs use it too, some beside or within another attention"),
    };
    let list: String = others.iter().map(|other| format!("* {other}\n")).collect();
    match others.len() {
        0 if rows.is_empty() => writeln!(page, "{UNUSED}")?,
        0 => {}
        1..=8 => write!(page, "{gap}{uses}:\n\n{list}")?,
        folders => write!(page, "{gap}<details>\n<summary>{uses}: {folders} folders</summary>\n\n{list}\n</details>\n")?,
    }
    Ok(())
}

/// Whether a folder compares mechanisms, and so has rows of its own: pilots choose recipes, and second looks ask about single claims.
fn is_comparison(folder: &str) -> bool {
    match folder.strip_prefix("baselines/") {
        Some(block) => !block.contains("-pilot"),
        None => !folder.strip_prefix(CLAIMS).unwrap_or(folder).contains('/'),
    }
}

/// What a page says of a mechanism that stands in no recorded configuration.
pub const UNUSED: &str = "No recorded run uses it.";
/// The mean with four significant digits.
fn mean(values: &[f64]) -> String {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let before_point = mean.abs().max(1.0).log10() as usize + 1;
    format!("{mean:.*}", 4usize.saturating_sub(before_point))
}

/// Writes what changed.
pub fn main() -> Result<(), Box<dyn Error>> {
    for (path, text) in pages()? {
        let path = root().join(path);
        fs::create_dir_all(path.parent().expect("a page lies in a folder"))?;
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            fs::write(&path, text)?;
            println!("{}", path.display());
        }
    }
    Ok(())
}
