//! A block of runs that claims share, as its file says it, and the lists of runs that programs make of it.

use heedful_runs::settings::overlaid;
use serde::Deserialize;
use toml::{Table, Value};

use super::error::LedgerError;
use crate::session::comparison::RunList;
use crate::table::{EXPERIMENTS, Row};

/// The experiment of blocks that measure costs, which has no runs with seeds.
pub(super) const COST: &str = "cost";
/// That of blocks that measure costs of models which other blocks have trained.
const MEASURE: &str = "measure";

/// Runs that one or several claims are tested by.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// Its name, such as `M1`: that of its file.
    #[serde(skip)]
    pub name: String,
    /// What is run, in a few words.
    pub title: String,
    /// The experiment, as records name it: `mt`, `lm`, `mlm-spans`; `cost` for measurements of costs, and `measure` for those of trained models.
    pub experiment: String,
    /// The data set, a folder below that of `--data`; by default the program's generated data.
    #[serde(default)]
    pub data: Option<String>,
    /// Folder of a pretrained model that its runs start from, below that of `--data`; by default none.
    #[serde(default)]
    pub pretrained: Option<String>,
    /// The number of seeds, from 1 on; of costs, 0.
    pub seeds: u64,
    /// About how long a run takes on one thread, in minutes; of costs, how long each part takes.
    pub minutes: f64,
    /// Its place in the order of blocks. Those that tell more per hour of computing have lower numbers.
    pub order: u64,
    /// The learning rate that its pilot halves and doubles; by default that of its configuration, which the pilot chose.
    #[serde(default)]
    pub preset_rate: Option<f64>,
    /// Features that its runs wait for.
    #[serde(default)]
    pub missing: Vec<String>,
    /// The configuration that all parts share.
    #[serde(default)]
    pub config: Table,
    /// Parts that differ in their data, each a command of its own; by default the block is one.
    #[serde(default, rename = "part")]
    pub parts: Vec<Part>,
}

/// A part of a block.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name, that of its folder.
    pub name: String,
    /// What it changes of the configuration.
    #[serde(default)]
    pub config: Table,
    /// Options of `cost`, or of `heedful measure`, where the name of a block in braces is the folder of its runs.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// The block that an argument names in braces.
pub(super) fn block_in_braces(argument: &str) -> Option<&str> {
    argument.strip_prefix('{')?.strip_suffix('}')
}

impl Block {
    /// The name of its file, for messages.
    pub(super) fn file(&self) -> String {
        format!("blocks/{}.toml", self.name)
    }

    /// The names of its parts; one without a name if it has none.
    pub fn part_names(&self) -> Vec<Option<&str>> {
        if self.parts.is_empty() { vec![None] } else { self.parts.iter().map(|part| Some(part.name.as_str())).collect() }
    }

    /// The part of this name, or the only one; `None` if there is none.
    pub(super) fn part_named(&self, name: Option<&str>) -> Option<Option<&Part>> {
        match name {
            Some(name) => self.parts.iter().find(|part| part.name == name).map(Some),
            None => self.parts.is_empty().then_some(None),
        }
    }

    /// Whether it measures costs.
    pub fn is_of_costs(&self) -> bool {
        [COST, MEASURE].contains(&&*self.experiment)
    }

    /// The blocks whose trained models it measures.
    pub fn measured(&self) -> impl Iterator<Item = &str> {
        let arguments = self.parts.iter().flat_map(|part| &part.arguments);
        arguments.filter(|_| self.experiment == MEASURE).filter_map(|argument| block_in_braces(argument))
    }

    /// The arguments of the program that run it without its configuration.
    pub fn arguments(&self) -> Vec<String> {
        Row::named(&self.experiment).map_or_else(|| vec![self.experiment.clone()], Row::arguments)
    }

    /// The configuration of a part, as its program is given it: with seeds and contenders, without data.
    pub fn configuration(&self, part: Option<&Part>) -> Table {
        let own = part.map(|part| part.config.clone()).unwrap_or_default();
        let mut table = overlaid(self.config.clone(), own);
        if let Value::Table(run) = table.entry("run").or_insert_with(|| Value::Table(Table::new())) {
            run.insert("seed".into(), Value::Integer(1));
            run.insert("seeds".into(), Value::Integer(self.seeds as i64));
        }
        table
    }

    /// The runs of a part, checked as its program would, without data.
    ///
    /// # Errors
    /// A configuration that the program refuses, or an experiment that there is none of.
    pub(crate) fn runs(&self, part: Option<&Part>) -> Result<RunList, LedgerError> {
        let row = Row::named(&self.experiment).ok_or_else(|| {
            let known: Vec<&str> = EXPERIMENTS.iter().map(|row| row.name).chain([COST, MEASURE]).collect();
            LedgerError::content(self.file(), format!("there is no experiment `{}`; known are {}", self.experiment, known.join(", ")))
        })?;
        let read = if self.pretrained.is_some() { row.run_list_of_pretrained } else { row.run_list };
        read(&self.configuration(part)).map_err(|error| LedgerError::content(self.file(), error.to_string()))
    }

    /// Checks what can be checked without data.
    ///
    /// # Errors
    /// [`LedgerError::Content`].
    pub(super) fn check(&self) -> Result<(), LedgerError> {
        let refuse = |problem: &str| Err(LedgerError::content(self.file(), problem));
        let names: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        if names.iter().enumerate().any(|(index, name)| names[..index].contains(name)) {
            return refuse("two parts have the same name");
        }
        if !(self.minutes > 0.0 && self.minutes.is_finite()) {
            return refuse("`minutes` must be more than 0");
        }
        if self.is_of_costs() {
            let is_without_runs = self.config.is_empty() && self.seeds == 0 && self.data.is_none() && self.pretrained.is_none();
            if !is_without_runs || self.parts.iter().any(|part| !part.config.is_empty() || part.arguments.is_empty()) {
                return refuse("a block of costs has parts with arguments, 0 seeds, no data and no configuration");
            }
            return Ok(());
        }
        if self.parts.iter().any(|part| !part.arguments.is_empty()) {
            return refuse("only blocks of costs have arguments; write the configuration");
        }
        if self.seeds == 0 {
            return refuse("`seeds` must be at least 1");
        }
        if self.pretrained.is_some() && self.data.is_none() {
            return refuse("`pretrained` is a folder beside `data`; name that too");
        }
        let configurations = || std::iter::once(&self.config).chain(self.parts.iter().map(|part| &part.config));
        if configurations().any(|config| config.contains_key("pretrained")) {
            return refuse("`pretrained` of the configuration follows from the block; write `pretrained` above it");
        }
        let own = ["seed", "seeds", "data"];
        for run in configurations().filter_map(|config| config.get("run")?.as_table()) {
            if let Some(field) = own.iter().find(|field| run.contains_key(**field)) {
                return refuse(&format!("`run.{field}` follows from the block; leave it out"));
            }
        }
        match self.parts.is_empty() {
            true => self.runs(None).map(drop),
            false => self.parts.iter().try_for_each(|part| self.runs(Some(part)).map(drop)),
        }
    }
}
