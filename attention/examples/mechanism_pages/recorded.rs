//! Recorded runs: their scores, and the mechanisms that their configurations name.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;

use heedful_attention::description::AnyMechanism;

use super::root;

/// A score of a recorded run: what it measures and the values for all seeds.
pub type Score = (String, Vec<f64>);

/// Recorded runs, from the top of the repository.
pub const RESULTS: &str = "experiments/results";
/// In it, runs that test published claims.
pub const CLAIMS: &str = "claims/";
/// Names of layouts of encoder and decoder, from the top of the repository.
const LAYOUTS: &str = "models/src/block/layout/layouts.toml";

/// A folder of recorded runs.
pub struct Recorded {
    /// Its path in that of all.
    pub folder: String,
    /// By data and attention.
    pub scores: BTreeMap<(String, String), Score>,
    /// By the name of a run: the families of its attentions, of members too.
    pub uses: BTreeMap<String, BTreeSet<&'static str>>,
}

/// The folders of recorded runs, those of claims after the others.
pub fn recorded() -> Result<Vec<Recorded>, Box<dyn Error>> {
    let results = root().join(RESULTS);
    let layouts = toml::from_str(&fs::read_to_string(root().join(LAYOUTS))?)?;
    let mut folders = folders(&results)?;
    folders.sort_by_key(|folder| (folder.starts_with(CLAIMS), folder.clone()));
    let read = |folder: String| {
        let path = results.join(&folder);
        let records: serde_json::Value = serde_json::from_str(&fs::read_to_string(path.join("results.json"))?)?;
        let config: toml::Value = toml::from_str(&fs::read_to_string(path.join("config.toml"))?)?;
        let uses = uses(&config, &records, &layouts).map_err(|error| format!("{folder}: {error}"))?;
        Ok(Recorded { scores: scores(&records), uses, folder })
    };
    folders.into_iter().map(read).collect()
}

/// Folders with records, by their paths in `results`.
pub fn folders(results: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let (mut found, mut open) = (Vec::new(), vec![results.to_owned()]);
    while let Some(folder) = open.pop() {
        if folder.join("results.json").is_file() {
            found.push(folder.strip_prefix(results)?.to_string_lossy().replace('\\', "/"));
            continue;
        }
        for entry in fs::read_dir(folder)? {
            open.extend(Some(entry?.path()).filter(|path| path.is_dir()));
        }
    }
    Ok(found)
}

/// By the name of a run that there is a record of: the families of the attentions that its configuration names.
fn uses(
    config: &toml::Value,
    records: &serde_json::Value,
    layouts: &toml::Value,
) -> Result<BTreeMap<String, BTreeSet<&'static str>>, Box<dyn Error>> {
    let names: BTreeSet<&str> = records.as_array().into_iter().flatten().filter_map(|record| record["attention"].as_str()).collect();
    let list = |key: &str| config.get("run").and_then(|run| run.get(key)).and_then(toml::Value::as_array).into_iter().flatten();
    let plain = list("attention").filter_map(toml::Value::as_str).map(|name| (name, name, None));
    let models =
        list("models").filter_map(|model| Some((model.get("name")?.as_str()?, model.get("attention")?.as_str()?, model.get("set"))));
    let mut uses = BTreeMap::<String, BTreeSet<&'static str>>::new();
    for (name, attention, set) in plain.chain(models).filter(|(name, _, _)| names.contains(name)) {
        let option = |key: &str| set.and_then(|set| set.get(key)).or(config.get(key));
        // Another core than a transformer has no attention.
        if option("core").is_some_and(|core| core.as_str() != Some("transformer")) {
            continue;
        }
        let logits = |family: &str| {
            let of = |options: &toml::Value| {
                let logits = options.get("mechanisms")?.get(family)?.get("logits")?;
                logits.as_str().or(logits.get("name")?.as_str()).map(str::to_owned)
            };
            set.and_then(of).or_else(|| of(config)).and_then(|name| name.parse().ok())
        };
        let found = uses.entry(name.to_owned()).or_default();
        for mechanism in attentions(attention, layouts)? {
            add_families(&mechanism, &logits, found);
        }
    }
    Ok(uses)
}

/// The mechanisms that the name of an attention names, which may be a list of layers or a layout of encoder and decoder.
fn attentions(name: &str, layouts: &toml::Value) -> Result<Vec<AnyMechanism>, Box<dyn Error>> {
    const PARTS: [&str; 3] = ["encoder", "decoder", "cross"];
    // That of a pretrained BERT or RoBERTa: dot-product attention.
    if name == "unchanged" {
        return Ok(vec![AnyMechanism::default()]);
    }
    if let Some(layout) = layouts.get(name) {
        let part = |part: &str| match layout.get(part) {
            Some(attention) => {
                Ok(attention.as_str().or(attention.get("attention").and_then(toml::Value::as_str)).unwrap_or_default().parse()?)
            }
            None => Ok(AnyMechanism::default()),
        };
        return PARTS.into_iter().map(part).collect();
    }
    let words: Vec<&str> = name.split(['{', '}', '[', ']', ',', '=', '*', ' ']).collect();
    let mut found: Vec<AnyMechanism> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if found.is_empty() {
        return Err(format!("`{name}` names no mechanism").into());
    }
    if name.starts_with('{') && PARTS.iter().any(|part| !words.contains(part)) {
        found.push(AnyMechanism::default());
    }
    Ok(found)
}

/// Adds the family of a mechanism and those of what it is over; `logits` says which the configuration names for a family.
fn add_families(mechanism: &AnyMechanism, logits: &dyn Fn(&str) -> Option<AnyMechanism>, found: &mut BTreeSet<&'static str>) {
    let family = mechanism.family();
    found.insert(family);
    let is_default = family.parse::<AnyMechanism>().is_ok_and(|default| default == *mechanism);
    match logits(family).filter(|logits| is_default && logits.family() != family) {
        Some(logits) => add_families(&logits, &|_| None, found),
        None => mechanism.members().into_iter().for_each(|member| add_families(member, logits, found)),
    }
}

/// The main score of each run, by data and attention: the first column of its report that was measured and not counted.
fn scores(records: &serde_json::Value) -> BTreeMap<(String, String), Score> {
    let mut scores = BTreeMap::<(String, String), Score>::new();
    for record in records.as_array().into_iter().flatten() {
        let (Some(data), Some(name)) = (record["dataset"].as_str(), record["attention"].as_str()) else { continue };
        let is_measured = |metric: &str| record["signatures"][metric].as_str().is_some_and(|how| !how.starts_with("counted"));
        let columns = record["columns"].as_array().into_iter().flatten().filter_map(|column| column["name"].as_str());
        // Older records do not hold the columns of their report.
        let by_name = record["signatures"].as_object().into_iter().flatten().map(|(metric, _)| metric.as_str());
        let Some(metric) = columns.chain(by_name).find(|metric| is_measured(metric)) else { continue };
        let Some(value) = record["metrics"][metric].as_f64() else { continue };
        scores.entry((data.to_owned(), name.to_owned())).or_insert_with(|| (metric.to_owned(), Vec::new())).1.push(value);
    }
    scores
}
