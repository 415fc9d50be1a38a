//! Which blocks are to be run, in which order, and how long that takes.

use std::path::Path;

use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;
use toml::Value;

use super::block::Block;
use super::claim::Claim;
use super::cost;
use super::error::LedgerError;
use super::ledger::Ledger;
use super::runs::folder;
use crate::session::error::ExperimentError;

/// A block with what is left of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedBlock<'l> {
    /// The block.
    pub block: &'l Block,
    /// The claims that use it.
    pub claims: Vec<&'l str>,
    /// Runs of all its parts; of costs, parts.
    pub runs: usize,
    /// Those that are finished.
    pub finished: usize,
    /// Minutes of a run: the mean of those that are finished, or else what its file says.
    pub minutes: f64,
    /// Whether `minutes` was measured by finished runs.
    pub is_measured: bool,
    /// Whether there is a folder of its runs.
    pub is_begun: bool,
}

impl PlannedBlock<'_> {
    /// Minutes that its other runs take, one after another.
    pub fn minutes_left(&self) -> f64 {
        (self.runs - self.finished.min(self.runs)) as f64 * self.minutes
    }

    /// How far it is: `finished`, `begun`, `waiting`, or what it waits for.
    pub fn state(&self) -> String {
        match self.block.missing.join(" ") {
            _ if self.finished >= self.runs => "finished".to_owned(),
            missing if !missing.is_empty() => format!("waits for {missing}"),
            _ if self.is_begun => "begun".to_owned(),
            _ => "waiting".to_owned(),
        }
    }
}

impl Ledger {
    /// The blocks that claims and blocks of these names need, in the order of the ledger; all if there is no name.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`] for what is neither.
    pub fn blocks_for(&self, names: &[String]) -> Result<Vec<&Block>, LedgerError> {
        let mut wanted: Vec<&str> = Vec::new();
        for name in names {
            match self.blocks.iter().find(|block| block.name == *name) {
                Some(block) => wanted.push(&block.name),
                None => {
                    for block in self.claim(name)?.blocks() {
                        wanted.push(block);
                        // The models that it measures are trained before.
                        wanted.extend(self.block(block)?.measured());
                    }
                }
            }
        }
        Ok(self.blocks.iter().filter(|block| names.is_empty() || wanted.contains(&block.name.as_str())).collect())
    }

    /// What is left of blocks whose runs lie below `root`.
    ///
    /// # Errors
    /// Results that cannot be read, and blocks that no program would run.
    pub fn plan<'l>(&'l self, blocks: &[&'l Block], root: &Path) -> Result<Vec<PlannedBlock<'l>>, ExperimentError> {
        blocks.iter().map(|block| self.planned(block, root)).collect()
    }

    fn planned<'l>(&'l self, block: &'l Block, root: &Path) -> Result<PlannedBlock<'l>, ExperimentError> {
        let uses = |claim: &&Claim| claim.blocks().contains(&block.name.as_str());
        let claims = self.claims.iter().filter(uses).map(|claim| claim.name.as_str()).collect();
        let (mut runs, mut seconds, mut is_begun) = (0, Vec::new(), false);
        for name in block.part_names() {
            let path = folder(root, block, name);
            is_begun |= path.is_dir();
            if block.is_of_costs() {
                runs += 1;
                if cost::is_measured(&path) {
                    seconds.push(60.0 * block.minutes);
                }
                continue;
            }
            let part = block.part_named(name).flatten();
            runs += block.runs(part)?.contenders.len() * block.seeds as usize * datasets(&block.configuration(part));
            if path.join("config.toml").exists() {
                let results = Results::read(&RunFolder::at(&path))?;
                seconds.extend(results.records().iter().filter(|record| record.seed <= block.seeds).map(|record| record.wall_seconds));
            }
        }
        let finished = seconds.len();
        let is_measured = finished > 0 && !block.is_of_costs();
        let minutes = if is_measured { seconds.iter().sum::<f64>() / finished as f64 / 60.0 } else { block.minutes };
        Ok(PlannedBlock { block, claims, runs, finished, minutes, is_measured, is_begun })
    }
}

/// The number of data sets of a configuration: its tasks, each of which is one.
fn datasets(table: &toml::Table) -> usize {
    let tasks = table.get("data").and_then(|data| data.get("tasks")).and_then(Value::as_array);
    tasks.map_or(1, |tasks| tasks.len().max(1))
}
