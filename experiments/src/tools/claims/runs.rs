//! Finished runs of the ledger's blocks, and what contenders gave in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use heedful_host::display::distinct;
use heedful_host::whole_files::file_name;
use heedful_metrics::Combination;
use heedful_metrics::significance::ItemStatistics;
use heedful_runs::compare::group::Row;
use heedful_runs::compare::items::{ItemOutputs, Missing};
use heedful_runs::compare::runs::RunSource;
use heedful_runs::record::ResultRecord;
use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;

use super::block::Block;
use super::ledger::Ledger;
use super::sum::{Sum, Term};
use crate::session::comparison::RunList;
use crate::session::error::ExperimentError;

/// Seeds from which on tests are of seeds alone.
pub(super) const SEED_TEST: usize = 8;

/// Why a test has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Runs are missing, or features that they need.
    NotRun(String),
    /// Its result would say nothing.
    Void(String),
}

/// The folder of a part's runs below that of all blocks.
pub(super) fn folder(root: &Path, block: &Block, part: Option<&str>) -> PathBuf {
    let of_block = root.join(&block.name);
    part.map_or(of_block.clone(), |part| of_block.join(file_name(part)))
}

/// The runs of all blocks that have any.
pub(super) struct Runs<'l> {
    ledger: &'l Ledger,
    parts: BTreeMap<(&'l str, Option<&'l str>), Part>,
}

/// The runs of a part.
struct Part {
    source: RunSource,
    list: RunList,
}

/// What a contender gave, seed by seed.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    /// Its name, with block, part and data set as far as the claim says them.
    pub(super) label: String,
    /// What its score counts.
    pub(super) weight: f64,
    /// By seed, in the unit of the claim; `None` where it is undefined.
    pub(super) values: Vec<Option<f64>>,
    /// The largest number of trained values.
    pub(super) parameters: u64,
    /// What its items gave, if its runs hold that.
    pub(super) items: Option<Items>,
}

/// The items of a contender's test set.
#[derive(Clone, Debug)]
pub(super) struct Items {
    /// A checksum of what they are.
    pub(super) identity: String,
    /// What they are called, in the plural.
    pub(super) unit: String,
    /// By what scores are multiplied.
    pub(super) scale: f64,
    /// What makes the score of them.
    pub(super) combination: Combination,
    /// By seed.
    pub(super) statistics: Vec<ItemStatistics>,
}

impl<'l> Runs<'l> {
    /// Reads the runs below `root`.
    ///
    /// # Errors
    /// Records that are damaged, and blocks that no program would run.
    pub(super) fn read(ledger: &'l Ledger, root: &Path) -> Result<Self, ExperimentError> {
        let mut parts = BTreeMap::new();
        for block in ledger.blocks.iter().filter(|block| !block.is_of_costs()) {
            for name in block.part_names() {
                let path = folder(root, block, name);
                if !path.join("config.toml").exists() {
                    continue;
                }
                let folder = RunFolder::at(&path);
                let records = Results::read(&folder)?.records().to_vec();
                let list = block.runs(block.part_named(name).flatten())?;
                let source = RunSource { label: block.name.clone(), path, folder, records, trivial: Vec::new() };
                parts.insert((block.name.as_str(), name), Part { source, list });
            }
        }
        Ok(Self { ledger, parts })
    }

    /// What the contenders of a sum gave; `may_fail` where a run without a score is a result.
    pub(super) fn contenders(&self, sum: &Sum, may_fail: bool) -> Result<Vec<Contender>, Reason> {
        sum.terms().map(|(term, weight)| self.contender(sum, term, weight, may_fail)).collect()
    }

    fn contender(&self, sum: &Sum, term: &Term, weight: f64, may_fail: bool) -> Result<Contender, Reason> {
        let name = term.contender();
        let place = term.block().unwrap_or(&sum.block);
        let (block, part) = self.part(place, term.part())?;
        let not_run = |problem: String| Reason::NotRun(format!("{place}: {problem}"));
        if let Some(difference) = part.list.difference(&part.source.folder, name).map_err(|error| not_run(error.to_string()))? {
            return Err(not_run(format!("the runs of {name} are not those of the ledger: {difference}")));
        }
        let is_meant = |record: &&ResultRecord| {
            record.attention == name && record.experiment == part.list.experiment && term.data().is_none_or(|data| record.dataset == data)
        };
        let records: Vec<&ResultRecord> = part.source.records.iter().filter(is_meant).collect();
        let datasets = distinct(records.iter().map(|record| record.dataset.clone()));
        if datasets.len() > 1 {
            return Err(not_run(format!("the claim names no data set, and {name} has {}", datasets.join(", "))));
        }
        let records: Vec<&ResultRecord> =
            (1..=block.seeds).filter_map(|seed| records.iter().copied().find(|record| record.seed == seed)).collect();
        if (records.len() as u64) < block.seeds {
            return Err(not_run(format!("{} of {} seeds of {name} are there", records.len(), block.seeds)));
        }
        let metric = term.metric().unwrap_or(&sum.metric);
        let values: Vec<Option<f64>> =
            records.iter().map(|record| Some(sum.scale * record.metric(metric).flatten().filter(|value| value.is_finite())?)).collect();
        if let Some(seed) = values.iter().position(Option::is_none).filter(|_| !may_fail) {
            return Err(not_run(format!("seed {} of {name} has no {metric}", seed + 1)));
        }
        let more = [(place != sum.block).then_some(place), term.part(), term.data(), term.metric()];
        let more: Vec<&str> = more.into_iter().flatten().collect();
        let label = if more.is_empty() { name.to_owned() } else { format!("{name} ({})", more.join(", ")) };
        let parameters = records.iter().map(|record| record.parameters).max().unwrap_or_default();
        let row = Row { source: &part.source, name: label.clone(), records };
        let items = match ItemOutputs::read(&row, metric) {
            Ok(ItemOutputs { score, identity, statistics, .. }) => {
                Some(Items { identity, unit: score.unit, scale: sum.scale, combination: score.combination, statistics })
            }
            // A file that contradicts its record must not be passed over.
            Err(Missing::Damaged(problem)) => return Err(not_run(problem)),
            Err(_) => None,
        };
        Ok(Contender { label, weight, values, parameters, items })
    }

    fn part(&self, block: &str, part: Option<&str>) -> Result<(&'l Block, &Part), Reason> {
        let block = self.ledger.block(block).map_err(|error| Reason::NotRun(error.to_string()))?;
        if !block.missing.is_empty() {
            return Err(Reason::NotRun(waits_for(self.ledger, &block.missing)));
        }
        match self.parts.iter().find(|((name, own), _)| *name == block.name && *own == part) {
            Some((_, found)) => Ok((block, found)),
            None => Err(Reason::NotRun(format!(
                "{} has not been run",
                part.map_or(block.name.clone(), |part| format!("{}, {part},", block.name))
            ))),
        }
    }

    /// The configuration with which a contender of a part was run.
    pub(super) fn configuration(&self, block: &str, part: Option<&str>, contender: &str) -> Result<&toml::Table, Reason> {
        let (block, part) = self.part(block, part)?;
        part.list.contender(contender).ok_or_else(|| Reason::NotRun(format!("{} runs no {contender}", block.name)))
    }
}

/// What is said of a test whose features are missing.
pub(super) fn waits_for(ledger: &Ledger, missing: &[String]) -> String {
    let named = |feature: &String| match ledger.features.get(feature) {
        Some(what) => format!("{feature} ({what})"),
        None => feature.clone(),
    };
    format!("waits for {}", missing.iter().map(named).collect::<Vec<_>>().join(" and "))
}
