//! Pilots: the learning rate of a block, from the validation score of its baseline alone.

use heedful_host::interrupt::Interrupt;
use heedful_runs::record::{LEARNING_RATE, ResultRecord};
use heedful_runs::results::Results;
use heedful_runs::run_folder::RunFolder;
use heedful_runs::settings::MECHANISMS;
use toml::{Table, Value};

use super::block::Block;
use super::error::LedgerError;
use super::running::{RunOptions, configured, is_interrupted, words};
use crate::session::error::{Completion, ExperimentError, print_line};

/// The seed of pilots. Those of tests begin at 1 and never reach it.
const SEED: i64 = 101;

/// The folder of pilots below that of all blocks' runs.
const FOLDER: &str = "pilots";

/// Multiples of the preset's learning rate that are tried.
const FACTORS: [f64; 3] = [0.5, 1.0, 2.0];

/// Trains the baseline of each block with half, once and twice the learning rate of its preset, and says which is best. Blocks of costs have none, and blocks
/// that draw their learning rates need none.
///
/// # Errors
/// A program that is not there or fails, and results that cannot be read.
pub fn pilot(blocks: &[&Block], options: &RunOptions, interrupt: &Interrupt) -> Result<Completion, ExperimentError> {
    let options = RunOptions { out: options.out.join(FOLDER), ..options.clone() };
    for block in blocks {
        let Some((table, preset)) = block.pilot()? else {
            print_line(format!("{}: no pilot, it has no learning rate of its own", block.name))?;
            continue;
        };
        if let (Some(data), None) = (&block.data, &options.data) {
            return Err(ExperimentError::usage(format!("{} reads `{data}`; give --data with the folder that has it", block.name)));
        }
        if interrupt.is_raised() {
            return Ok(Completion::Interrupted);
        }
        let at = options.out.join(&block.name);
        let mut command = configured(block, &block.name, &table, &at, &options)?;
        print_line(format!("{}: {}", block.name, words(&command)))?;
        let status = command
            .status()
            .map_err(|error| ExperimentError::failure(format!("cannot start `{}`: {error}", command.get_program().to_string_lossy())))?;
        if is_interrupted(status) {
            return Ok(Completion::Interrupted);
        }
        if !status.success() {
            return Err(ExperimentError::failure(format!("the pilot of {} failed; why is said above", block.name)));
        }
        for record in Results::read(&RunFolder::at(&at))?.records() {
            print_line(told(block, record, preset))?;
        }
    }
    Ok(Completion::Finished)
}

/// What the pilot of a block says on a data set.
fn told(block: &Block, record: &ResultRecord, preset: f64) -> String {
    let best = record.metric(LEARNING_RATE).flatten();
    let chosen = block.learning_rate();
    let advice = match best {
        None => "no rate trained to the end".to_owned(),
        Some(best) if Some(best) == chosen => format!("the best is {best}, which the block has"),
        Some(best) => format!(
            "the best is {best}; write `training.learning_rate = {best}` and `preset_rate = {preset}` into {}, which has {}",
            block.file(),
            chosen.map_or("none".to_owned(), |rate| rate.to_string())
        ),
    };
    format!("{}, {}: {}; {advice}", block.name, record.dataset, record.notes.join("; "))
}

impl Block {
    /// The learning rate of all its contenders, if it is one.
    fn learning_rate(&self) -> Option<f64> {
        self.config.get("training")?.get("learning_rate")?.as_float()
    }

    /// The configuration of its pilot, which is the first part's with the baseline alone, and the learning rate that it varies.
    ///
    /// # Errors
    /// [`LedgerError::Content`] for a block without contenders.
    pub(super) fn pilot(&self) -> Result<Option<(Table, f64)>, LedgerError> {
        let Some(rate) = self.learning_rate().filter(|_| !self.config.contains_key("search")) else { return Ok(None) };
        let preset = self.preset_rate.unwrap_or(rate);
        let mut table = self.configuration(self.parts.first());
        if let Some(Value::Table(training)) = table.get_mut("training") {
            training.remove("learning_rate");
            training.insert("learning_rates".into(), Value::Array(FACTORS.map(|factor| Value::Float(factor * preset)).to_vec()));
        }
        let Some(Value::Table(run)) = table.get_mut("run") else { return Ok(None) };
        let first = |run: &mut Table, list: &str| -> Option<Value> {
            let values = run.get(list)?.as_array()?;
            values.first().cloned()
        };
        // The baseline is the first of the attentions, or of the models where there are none.
        if let Some(baseline) = first(run, "attention") {
            run.insert("attention".into(), Value::Array(vec![baseline]));
            run.insert("models".into(), Value::Array(Vec::new()));
        } else if let Some(baseline) = first(run, "models") {
            run.insert("models".into(), Value::Array(vec![baseline]));
        } else {
            return Err(LedgerError::content(self.file(), "it has no contenders, so that no pilot can be run".to_owned()));
        }
        run.insert("seed".into(), Value::Integer(SEED));
        run.insert("seeds".into(), Value::Integer(1));
        // Options of mechanisms that the baseline does not have would change nothing, and the program would refuse them.
        if let Some(Value::Table(mechanisms)) = table.remove(MECHANISMS) {
            let runs_with = |name: &String, options: &Value| {
                let mut config = table.clone();
                config.insert(MECHANISMS.into(), Value::Table(Table::from_iter([(name.clone(), options.clone())])));
                Self { config, parts: Vec::new(), ..self.clone() }.runs(None).is_ok()
            };
            let used: Table = mechanisms.into_iter().filter(|(name, options)| runs_with(name, options)).collect();
            table.insert(MECHANISMS.into(), Value::Table(used));
        }
        Ok(Some((table, preset)))
    }
}
