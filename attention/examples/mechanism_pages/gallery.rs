//! The gallery of all mechanisms, copies of their pictures for the book, and lists of the mechanisms that meet a need.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;

use burn::tensor::Device;
use heedful_attention::contract::Attention;
use heedful_attention::contract::abilities::{Abilities, Causality};
use heedful_attention::contract::random::RandomKey;
use heedful_attention::description::AnyMechanism;

use super::{BOOK, Page, REPOSITORY, documentation, letters_in, papers, place, root, source_of};

/// Pictures of mechanisms, from the top of the repository.
const PICTURES: &str = "attention/pictures";
/// Pictures in a row of the gallery.
const ROW: usize = 3;

/// Groups of mechanisms, with what their members have in common.
const GROUPS: [(&str, &str, &[&str]); 8] = [
    (
        "Content and positions",
        "Scores are dot products of queries and keys, most with terms for positions.",
        &["dot-product", "relative", "learned-relative", "alibi", "rotary", "t5-bias", "forgetting", "shaw", "shared-qk", "mixture"],
    ),
    (
        "Scores without comparing content",
        "Scores follow from positions, or from the query alone.",
        &[
            "synthesizer-dense",
            "synthesizer-random",
            "synthesizer-factorized-dense",
            "synthesizer-factorized-random",
            "uniform",
            "gaussian",
        ],
    ),
    (
        "Patterns and spans",
        "A query sees a part of the keys. All but `lsh` restrict the scores of another mechanism.",
        &["adaptive-span", "sliding-window", "streaming-llm", "local-1d", "local-2d", "sparse-strided", "sparse-fixed", "lsh"],
    ),
    (
        "Normalisers, caps and gates",
        "They change how scores become weights, or what becomes of the heads' outputs.",
        &["soft-cap", "sigmoid", "softmax-plus-one", "learned-sink", "softpick", "entmax", "relu", "output-gate"],
    ),
    ("Heads", "They change how heads are formed from scores, keys and values.", &["differential", "talking-heads", "mla"]),
    (
        "Low rank and feature maps",
        "Keys are projected to fewer positions or features, so that time is linear in the length.",
        &["linformer", "linear-attention", "performer", "cosformer"],
    ),
    (
        "Recurrent state",
        "Each position updates a state of fixed size and reads from it. Decoders only.",
        &["retnet", "gla", "simple-gla", "mamba-2", "delta-net", "gated-delta-net"],
    ),
    (
        "Convolutions and mixers",
        "Neighbours or all positions are mixed without scores of pairs from content.",
        &["lightweight-conv", "dynamic-conv", "base-conv", "aft", "fnet", "gmlp", "mlp-mixer"],
    ),
];

/// Copies of the pictures: mdBook shows files of the book's folder alone.
pub fn pictures() -> Result<Vec<Page>, Box<dyn Error>> {
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(root().join(PICTURES))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    let read = |name: String| Ok((format!("{BOOK}/pictures/{name}"), fs::read_to_string(root().join(PICTURES).join(name))?));
    names.into_iter().map(read).collect()
}

/// The pictures and facts of all mechanisms, by groups.
pub fn gallery(mechanisms: &[AnyMechanism]) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for mechanism in mechanisms {
        let family = mechanism.family();
        let groups = GROUPS.iter().filter(|(_, _, members)| members.contains(&family)).count();
        if groups != 1 {
            return Err(format!("{family} stands in {groups} groups of the gallery instead of one").into());
        }
    }
    for (title, meaning, members) in GROUPS {
        let group: Vec<&AnyMechanism> = mechanisms.iter().filter(|mechanism| members.contains(&mechanism.family())).collect();
        write!(text, "## {title}\n\n{meaning}\n\n{}\n", thumbnails(&group)?)?;
        writeln!(
            text,
            "| mechanism | time | state | causal | cross | decodes | code | paper |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
        )?;
        for mechanism in group {
            let (family, card, abilities) = (mechanism.family(), mechanism.card(), abilities(mechanism));
            let yes = |able: bool| if able { "yes" } else { "no" };
            let (path, _) = source_of(family)?;
            writeln!(
                text,
                "| [`{family}`](mechanisms/{family}.md) | `{}` | `{}` | {} | {} | {} | [file]({REPOSITORY}/{path}) | {} |",
                card.time,
                card.state,
                abilities.causality,
                yes(card.cross),
                yes(abilities.steps),
                papers(&card)
            )?;
        }
        text.push('\n');
    }
    Ok(text)
}

/// A table of pictures, each of which leads to the page of its mechanism.
fn thumbnails(group: &[&AnyMechanism]) -> Result<String, Box<dyn Error>> {
    let mut cells = Vec::new();
    for mechanism in group {
        let family = mechanism.family();
        if let Some((file, _)) = documentation(&source_of(family)?.1).picture {
            cells.push(format!("[![picture of {family}](pictures/{file})](mechanisms/{family}.md)<br>{family}"));
        }
    }
    let columns = ROW.min(cells.len());
    let mut table = format!("|{}\n|{}\n", " |".repeat(columns), " :---: |".repeat(columns));
    for row in cells.chunks(columns) {
        writeln!(table, "| {} |{}", row.join(" | "), " |".repeat(columns - row.len()))?;
    }
    Ok(table)
}

/// What a mechanism can do where it can stand.
fn abilities(mechanism: &AnyMechanism) -> Abilities {
    mechanism.init(&place(mechanism, 64, 64), &RandomKey::from_seed(0), &Device::flex()).abilities()
}

/// A table of needs with the mechanisms that meet them.
pub fn needs(mechanisms: &[AnyMechanism]) -> Result<String, Box<dyn Error>> {
    let mut table = "| need | mechanisms |\n| --- | --- |\n".to_owned();
    let mut row = |need: &str, meets: &dyn Fn(&AnyMechanism) -> bool| {
        let found = mechanisms.iter().filter(|mechanism| meets(mechanism));
        let links: Vec<String> = found.map(|found| format!("[`{0}`](mechanisms/{0}.md)", found.family())).collect();
        writeln!(table, "| {need} | {} |", links.join(", "))
    };
    let causality = |mechanism: &AnyMechanism| abilities(mechanism).causality;
    row("decoders only", &|mechanism| causality(mechanism) == Causality::ByConstruction)?;
    row("encoders only", &|mechanism| causality(mechanism) == Causality::Impossible)?;
    row("attends to another sequence", &|mechanism| mechanism.card().cross)?;
    row("no step-by-step decoding", &|mechanism| !abilities(mechanism).steps)?;
    row("decoding state without `n` in its formula", &|mechanism| {
        abilities(mechanism).steps && !letters_in(mechanism.card().state).contains(&"n".to_owned())
    })?;
    row("time without `n^2` in its formula", &|mechanism| !mechanism.card().time.contains("n^2"))?;
    row("no sequence longer than `max_length`", &|mechanism| abilities(mechanism).max_length.is_some())?;
    row("heads may share keys and values, and have any width", &AnyMechanism::has_free_heads)?;
    Ok(table)
}
