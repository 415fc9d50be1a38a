//! A complete configuration from layers: built-in defaults, then the TOML file of `--config`, then each `--set key=value`, then the dedicated options.
//!
//! A later layer replaces single fields of an earlier one; tables are merged field by field, arrays are replaced whole. A table that chooses one of
//! several variants by its field `kind` (a schedule, an optimiser) is replaced whole when the later layer names another kind, because the fields of
//! the earlier kind mean nothing there. In `[mechanisms.NAME]` a `kind` is an option like any other. An optional field without a value is written
//! `"unset"`, so that a complete configuration shows every field and a default can be taken back (`--set training.patience=unset`).
//!
//! Every error names the file and line, or the option, that set the value, and the nearest known name.

mod complete;
mod reading;
mod schema;

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heedful_host::exit::ProgramError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

pub use self::complete::table_text;
pub use self::complete::{changes, complete, complete_text, digest, first_difference, table_digest};
pub use self::reading::{Problem, Setting};
pub use self::schema::schema;

/// The text that stands for an optional field without a value.
pub const UNSET: &str = "unset";
/// The field that chooses between the variants of a table.
const KIND: &str = "kind";
/// The table of the options of mechanisms in every configuration.
pub const MECHANISMS: &str = "mechanisms";

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration `{}`: {source}; give --config an existing TOML file", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The configuration file is not TOML.
    #[error("{}:{line}: not valid TOML: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What the parser met.
        message: String,
    },
    /// A `--set` that is not `key=value`.
    #[error("`--set {text}`: {problem}; write --set table.field=value")]
    Assignment {
        /// The text after `--set`.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A field that is unknown, missing, of the wrong type or out of its range.
    #[error("{place}: {problem}")]
    Field {
        /// `file:line`, or the option that gave the value.
        place: String,
        /// What is wrong, with the field's name and the remedy.
        problem: String,
    },
    /// A configuration that TOML cannot express (an integer above 2^63 - 1).
    #[error("the configuration cannot be written as TOML: {0}")]
    Inexpressible(String),
}

impl SettingsError {
    /// Whether the remedy is another command or configuration file (exit code 2).
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Inexpressible(_))
    }
}

impl From<SettingsError> for ProgramError {
    fn from(error: SettingsError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::failure(error) }
    }
}

/// One field given on the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    path: Vec<String>,
    value: Value,
    origin: String,
}

impl Assignment {
    /// Reads the text of `--set`: a dotted path, `=`, and a TOML value; a value that is no TOML (a bare word, a path) is a string.
    ///
    /// # Errors
    /// [`SettingsError::Assignment`] for a text without `=`, a bad path, an empty value, or a bracket or quote that is not closed.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let refuse = |problem: &str| SettingsError::Assignment { text: text.into(), problem: problem.into() };
        let (key, value) = text.split_once('=').ok_or_else(|| refuse("there is no `=`"))?;
        let path = key_path(key.trim()).ok_or_else(|| refuse("the part before `=` is not a dotted path of field names"))?;
        let value = match value.trim() {
            "" => return Err(refuse("there is no value (an empty string is '\"\"')")),
            value => parse_value(value).ok_or_else(|| refuse("a bracket or quote of the value is not closed"))?,
        };
        Ok(Self { path, value, origin: format!("--set {text}") })
    }

    /// A field given by an option of its own: `Assignment::option("--steps", "training.steps", 100)`.
    pub fn option(option: &str, path: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let shown = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Self { path: path.split('.').map(String::from).collect(), value, origin: format!("{option} {shown}") }
    }

    /// Whether it is of the field of a dotted path, or of one within it.
    pub fn is_within(&self, path: &str) -> bool {
        let mut own = self.path.iter().map(String::as_str);
        path.split('.').all(|name| own.next() == Some(name))
    }

    /// The fields of a table that is given as a whole, each by itself; any other value is one field.
    fn fields(self) -> Vec<Self> {
        let Self { path, value, origin } = self;
        match value {
            Value::Table(table) if !table.is_empty() => table
                .into_iter()
                .flat_map(|(name, value)| Self { path: [&path[..], &[name]].concat(), value, origin: origin.clone() }.fields())
                .collect(),
            value => vec![Self { path, value, origin }],
        }
    }
}

/// `a.b."c d"` as its parts, by the rules of TOML keys.
fn key_path(key: &str) -> Option<Vec<String>> {
    if key.contains(['\n', '\r', '#', '[', '=']) {
        return None;
    }
    let mut table = format!("{key} = 0").parse::<Table>().ok()?;
    let mut path = Vec::new();
    loop {
        let (name, value) = table.into_iter().next()?;
        path.push(name);
        match value {
            Value::Table(inner) => table = inner,
            _ => return Some(path),
        }
    }
}

fn parse_value(text: &str) -> Option<Value> {
    let parsed =
        format!("value = {text}").parse::<Table>().ok().filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    match parsed {
        Some(Value::Datetime(_)) => Some(Value::String(text.into())),
        Some(value) => Some(value),
        None if text.starts_with(['[', '{', '"', '\'']) => None,
        // TOML wants digits on both sides of the point; .5 and 5. are numbers to everybody else.
        None => Some(match text.parse::<f64>() {
            Ok(number) if text.contains('.') => Value::Float(number),
            _ => Value::String(text.into()),
        }),
    }
}

/// What can be read from tables: whatever serde can read, and the configuration of an experiment.
pub trait Configuration: Default + Serialize {
    /// Reads a table that has all fields.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "what is wrong with a field becomes a SettingsError")]
    fn from_table(table: Table) -> Result<Self, Problem>;
}

impl<T: Default + Serialize + DeserializeOwned> Configuration for T {
    #[allow(private_interfaces, reason = "as above")]
    fn from_table(table: Table) -> Result<Self, Problem> {
        T::deserialize(Setting(Value::Table(table)))
    }
}

/// A configuration and where its fields came from.
#[derive(Clone, Debug)]
pub struct Settings<T> {
    /// The configuration.
    pub value: T,
    /// What lies between the defaults of `T` and the file.
    base: Table,
    file: Option<(PathBuf, String)>,
    assignments: Vec<Assignment>,
}

impl<T: Configuration> Settings<T> {
    /// Lays `file` and then `assignments`, in their order, over the defaults of `T`.
    ///
    /// `T` should refuse unknown fields (`#[serde(default, deny_unknown_fields)]`), or misspelt ones pass unnoticed.
    ///
    /// # Errors
    /// [`SettingsError`] when the file cannot be read, or a field is unknown or has the wrong type.
    pub fn read(file: Option<&Path>, assignments: Vec<Assignment>) -> Result<Self, SettingsError> {
        let file = file.map(|path| match fs::read_to_string(path) {
            Ok(text) => Ok((path.to_path_buf(), text)),
            Err(source) => Err(SettingsError::Read { path: path.into(), source }),
        });
        Self::laid(Table::new(), file.transpose()?, assignments)
    }

    /// The same with the text of a file; messages call the file `name`.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn of_text(name: PathBuf, text: String, assignments: Vec<Assignment>) -> Result<Self, SettingsError> {
        Self::laid(Table::new(), Some((name, text)), assignments)
    }

    /// Without a file, with these texts of `--set`.
    ///
    /// # Errors
    /// [`SettingsError`] for a text that is no assignment, and as for [`read`](Self::read).
    pub fn set(texts: &[&str]) -> Result<Self, SettingsError> {
        Self::read(None, texts.iter().map(|text| Assignment::parse(text)).collect::<Result<_, _>>()?)
    }

    /// The same file and assignments over defaults that `base`, in TOML, changes, besides what changed them before.
    ///
    /// # Errors
    /// As for [`read`](Self::read), if the file and the assignments mean something impossible over this base.
    ///
    /// # Panics
    /// If `base` is not TOML.
    pub fn over(&self, base: &str) -> Result<Self, SettingsError> {
        self.over_table(base.parse().unwrap_or_else(|error| panic!("{error} in:\n{base}")))
    }

    /// The same file and assignments over defaults that `base` changes.
    ///
    /// # Errors
    /// As for [`over`](Self::over).
    pub fn over_table(&self, base: Table) -> Result<Self, SettingsError> {
        Self::laid(overlaid(self.base.clone(), base), self.file.clone(), self.assignments.clone())
    }

    /// The same file and the other assignments, without those that set the field `path`.
    ///
    /// # Errors
    /// As for [`read`](Self::read), if the rest means something impossible by itself.
    pub fn without(&self, path: &[&str]) -> Result<Self, SettingsError> {
        let rest = self.assignments.iter().cloned().flat_map(Assignment::fields).filter(|assignment| assignment.path != path);
        Self::laid(self.base.clone(), self.file.clone(), rest.collect())
    }

    /// Settings of a value that neither a file nor an option has set.
    pub fn of(value: T) -> Self {
        Self { value, base: Table::new(), file: None, assignments: Vec::new() }
    }

    /// These settings with the fields of `table`, which stands at `path` in them, in place of their own.
    ///
    /// # Errors
    /// [`SettingsError::Field`] if a field is unknown or has the wrong type.
    pub fn with(&self, table: &Table, path: &str) -> Result<Self, SettingsError> {
        let mut merged = complete(&self.value)?;
        merge(&mut merged, table.clone());
        match T::from_table(merged) {
            Ok(value) => Ok(Self { value, base: self.base.clone(), file: self.file.clone(), assignments: self.assignments.clone() }),
            Err(problem) => {
                let within: Vec<String> = problem.path.iter().rev().cloned().collect();
                let path: Vec<String> = path.split('.').map(String::from).chain(within).collect();
                Err(SettingsError::Field { place: self.place(&path, problem.field.as_deref()), problem: problem.describe(&path) })
            }
        }
    }

    fn laid(base: Table, file: Option<(PathBuf, String)>, assignments: Vec<Assignment>) -> Result<Self, SettingsError> {
        let mut merged = complete(&T::default())?;
        merge(&mut merged, base.clone());
        if let Some((path, text)) = &file {
            merge(&mut merged, parse(path, text)?);
        }
        // All assignments form one layer, so that the order of `a.kind=...` and `a.other=...` does not matter.
        let mut layer = Table::new();
        for assignment in &assignments {
            insert("", &mut layer, &assignment.path, assignment.value.clone());
        }
        merge(&mut merged, layer);
        match T::from_table(merged) {
            Ok(value) => Ok(Self { value, base, file, assignments }),
            Err(problem) => {
                let path: Vec<String> = problem.path.iter().rev().cloned().collect();
                let place = Settings { value: (), base, file, assignments }.place(&path, problem.field.as_deref());
                Err(SettingsError::Field { place, problem: problem.describe(&path) })
            }
        }
    }
}

impl<T> Settings<T> {
    /// The error for a field with an invalid value of the right type; names the line or option that set it.
    ///
    /// `path` is the dotted path of the field, `problem` says what is wrong and the remedy.
    pub fn refuse(&self, path: &str, problem: impl Display) -> SettingsError {
        let parts: Vec<String> = path.split('.').map(String::from).collect();
        SettingsError::Field { place: self.place(&parts, None), problem: format!("`{path}`: {problem}") }
    }

    /// Refuses a field unless the condition holds; `remedy` says what to give.
    ///
    /// # Errors
    /// [`refuse`](Self::refuse) with the remedy.
    pub fn require(&self, path: &str, condition: bool, remedy: impl Display) -> Result<(), SettingsError> {
        if condition { Ok(()) } else { Err(self.refuse(path, remedy)) }
    }

    /// The paths of the fields that options of the command set, by themselves or within a table.
    pub fn assigned(&self) -> impl Iterator<Item = Vec<String>> {
        self.assignments.iter().cloned().flat_map(Assignment::fields).map(|assignment| assignment.path)
    }

    /// The paths of the fields that options of the command set, and of those that the file sets to another value than that of `default`. The file with the
    /// complete configuration of a run counts as setting none.
    ///
    /// # Errors
    /// [`SettingsError::Inexpressible`], and [`SettingsError::Syntax`] of the file.
    pub fn given(&self, default: &T) -> Result<Vec<Vec<String>>, SettingsError>
    where
        T: Serialize,
    {
        let mut given: Vec<Vec<String>> = self.assigned().collect();
        // A run writes down all fields, also those that have no effect on it, with the defaults of its version.
        if let Some((path, text)) = self.file.as_ref().filter(|(_, text)| !complete::is_of_run(text)) {
            let changed = changes(default, &self.value, &[])?;
            let of_file = Assignment { path: Vec::new(), value: Value::Table(parse(path, text)?), origin: String::new() }.fields();
            given.extend(of_file.into_iter().map(|field| field.path).filter(|path| holds(&changed, path)));
        }
        Ok(given)
    }

    fn place(&self, table: &[String], field: Option<&str>) -> String {
        let mut path = table.to_vec();
        path.extend(field.map(String::from));
        let given = |fits: &dyn Fn(&Assignment) -> bool| self.assignments.iter().rev().find(|a| fits(a)).map(|a| format!("`{}`", a.origin));
        let line = |least: usize| {
            let (file, text) = self.file.as_ref()?;
            line_of(text, &path).filter(|(depth, _)| *depth >= least).map(|(_, line)| format!("{}:{line}", file.display()))
        };
        given(&|a| path.starts_with(&a.path))
            .or_else(|| line(path.len()))
            .or_else(|| given(&|a| a.path.starts_with(&path)))
            .or_else(|| line(1))
            .or_else(|| self.file.as_ref().map(|(file, _)| file.display().to_string()))
            .unwrap_or_else(|| "configuration".into())
    }
}

/// Whether a table has a field at this path, or something else than a table above it.
fn holds(table: &Table, path: &[String]) -> bool {
    match path {
        [] => true,
        [name, rest @ ..] => match table.get(name) {
            Some(Value::Table(inner)) => holds(inner, rest),
            Some(_) => true,
            None => false,
        },
    }
}

/// How much of `path` the TOML text holds, and the line (from 1) of the last part found.
fn line_of(text: &str, path: &[String]) -> Option<(usize, usize)> {
    let root = DeTable::parse(text).ok()?;
    let mut value = &DeValue::Table(root.into_inner());
    let mut found = None;
    for (depth, part) in path.iter().enumerate() {
        let (span, next) = match value {
            DeValue::Table(table) => match table.iter().find(|(key, _)| key.get_ref() == part) {
                Some((key, next)) => (key.span(), next),
                None => break,
            },
            DeValue::Array(array) => match part.parse::<usize>().ok().and_then(|index| array.get(index)) {
                Some(next) => (next.span(), next),
                None => break,
            },
            _ => break,
        };
        found = Some((depth + 1, line_at(text, span.start)));
        value = next.get_ref();
    }
    found
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Reads TOML text; `path` is for the error message only.
///
/// # Errors
/// [`SettingsError::Syntax`] with the line.
pub fn parse(path: &Path, text: &str) -> Result<Table, SettingsError> {
    text.parse::<Table>().map_err(|error| SettingsError::Syntax {
        path: path.into(),
        line: error.span().map_or(1, |span| line_at(text, span.start)),
        message: error.message().replace('\n', "; "),
    })
}

/// `layer` over `base`: its fields replace those of the same path.
pub fn overlaid(mut base: Table, layer: Table) -> Table {
    merge(&mut base, layer);
    base
}

/// A configuration as a table in which the fields that `table` lacks have the values of `T`'s default; `None` if `T` knows no such configuration.
pub fn completed<T: Configuration>(table: &Table) -> Option<Table> {
    let value = T::from_table(overlaid(complete(&T::default()).ok()?, table.clone())).ok()?;
    complete(&value).ok()
}

fn merge(base: &mut Table, layer: Table) {
    merge_within("", base, layer);
}

/// Lays `layer` over `base`, which both stand at the field `name`.
fn merge_within(name: &str, base: &mut Table, layer: Table) {
    for (key, value) in layer {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) if same_variant(name, below, &above) => merge_within(&key, below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Whether two tables at a field of the table `within` are one variant. A mechanism may have an option `kind` beside others, which all of its kinds have.
fn same_variant(within: &str, below: &Table, above: &Table) -> bool {
    match (below.get(KIND), above.get(KIND)) {
        (Some(below), Some(above)) => within == MECHANISMS || below == above,
        _ => true,
    }
}

/// Sets the field at a path within the table that stands at the field `within`.
fn insert(within: &str, table: &mut Table, path: &[String], value: Value) {
    match path {
        [] => {}
        [field] => merge_within(within, table, Table::from_iter([(field.clone(), value)])),
        [name, rest @ ..] => {
            let inner = table.entry(name.clone()).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            if let Value::Table(inner) = inner {
                insert(name, inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Experiment {
        name: String,
        training: Training,
        layers: Vec<Layer>,
        limits: BTreeMap<String, f32>,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Training {
        schedule: Schedule,
        steps: usize,
        learning_rate: f64,
        patience: Option<usize>,
        max_gradient_norm: Option<f64>,
        shuffle: bool,
        smoothing: Smoothing,
    }

    impl Default for Training {
        fn default() -> Self {
            Self {
                schedule: Schedule::Linear { warmup: 10, end: Some(0.5) },
                steps: 100,
                learning_rate: 1e-3,
                patience: None,
                max_gradient_norm: Some(1.0),
                shuffle: true,
                smoothing: Smoothing::None,
            }
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Smoothing {
        None,
        AddK,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
    enum Schedule {
        Constant,
        Linear { warmup: usize, end: Option<f64> },
        Noam { warmup: usize, factor: f64 },
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Layer {
        heads: usize,
    }

    fn assignments(texts: &[&str]) -> Vec<Assignment> {
        texts.iter().map(|text| Assignment::parse(text).unwrap()).collect()
    }

    fn set(texts: &[&str]) -> Experiment {
        Settings::set(texts).unwrap().value
    }

    fn set_error(texts: &[&str]) -> String {
        let error = Settings::<Experiment>::set(texts).unwrap_err();
        assert!(error.is_usage());
        error.to_string()
    }

    fn with_file<R>(text: &str, body: impl FnOnce(&Path) -> R) -> R {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mt.toml");
        fs::write(&path, text).unwrap();
        body(&path)
    }

    fn file_error(text: &str) -> String {
        with_file(text, |path| Settings::<Experiment>::read(Some(path), Vec::new()).unwrap_err().to_string())
    }

    #[test]
    fn later_layers_replace_single_fields_of_earlier_ones() {
        with_file("name = \"from file\"\n[training]\nsteps = 200\nlearning_rate = 0.01\n", |path| {
            let mut layers = assignments(&["training.learning_rate=0.5", "training.learning_rate=2"]);
            layers.push(Assignment::option("--steps", "training.steps", 7));
            let experiment = Settings::<Experiment>::read(Some(path), layers).unwrap().value;
            assert_eq!(experiment.name, "from file");
            assert_eq!(experiment.training, Training { steps: 7, learning_rate: 2.0, ..Training::default() });
        });
    }

    #[test]
    fn a_table_of_another_kind_replaces_the_earlier_one_whole_in_any_order_of_assignment() {
        let noam = Schedule::Noam { warmup: 40, factor: 2.0 };
        let kind = "training.schedule.kind=noam";
        assert_eq!(set(&[kind, "training.schedule.warmup=40", "training.schedule.factor=2"]).training.schedule, noam);
        assert_eq!(set(&["training.schedule.factor=2.0", "training.schedule.warmup=40", kind]).training.schedule, noam);
        assert_eq!(set(&["training.schedule.kind=constant"]).training.schedule, Schedule::Constant);
        assert_eq!(set(&["training.schedule.warmup=3"]).training.schedule, Schedule::Linear { warmup: 3, end: Some(0.5) });
    }

    #[test]
    fn tables_that_are_given_as_a_whole_count_field_by_field() {
        let texts = ["training={steps=7}", "training={learning_rate=2, schedule={kind='constant'}}"];
        let settings = Settings::<Experiment>::set(&texts).unwrap();
        let Training { steps, learning_rate, schedule, .. } = &settings.value.training;
        assert_eq!((*steps, *learning_rate, schedule), (7, 2.0, &Schedule::Constant));
        let paths: Vec<_> = settings.assigned().map(|path| path.join(".")).collect();
        assert_eq!(paths, ["training.steps", "training.learning_rate", "training.schedule.kind"]);
        let rest = settings.without(&["training", "steps"]).unwrap().value.training;
        assert_eq!((rest.steps, rest.learning_rate), (Training::default().steps, 2.0));
    }

    #[test]
    fn a_field_of_a_kind_chosen_in_the_file_may_be_set_on_the_command_line() {
        with_file("[training.schedule]\nkind = \"noam\"\nwarmup = 40\nfactor = 1.0\n", |path| {
            let read = Settings::<Experiment>::read(Some(path), assignments(&["training.schedule.factor=3"])).unwrap();
            assert_eq!(read.value.training.schedule, Schedule::Noam { warmup: 40, factor: 3.0 });
        });
    }

    #[test]
    fn optional_fields_are_taken_back_by_unset_also_inside_a_kind() {
        let training = set(&["training.max_gradient_norm=unset", "training.patience=3", "training.schedule.end=unset"]).training;
        assert_eq!((training.max_gradient_norm, training.patience), (None, Some(3)));
        assert_eq!(training.schedule, Schedule::Linear { warmup: 10, end: None });
    }

    #[test]
    fn set_reads_toml_values_and_takes_other_words_as_text() {
        let value = |text: &str| Assignment::parse(&format!("a.b={text}")).unwrap().value;
        assert_eq!(value("3"), Value::Integer(3));
        assert_eq!(value("1e-4"), Value::Float(1e-4));
        assert_eq!(value(".5"), Value::Float(0.5));
        assert_eq!(value("true"), Value::Boolean(true));
        assert_eq!(value("[1, 2]"), Value::Array(vec![Value::Integer(1), Value::Integer(2)]));
        assert_eq!(value("\"3\""), Value::String("3".into()));
        for word in ["synthesizer-random", "data/multi30k", "a=b", "2026-01-01", "C:\\x", "two words"] {
            assert_eq!(value(word), Value::String(word.into()));
        }
        assert_eq!(value("{ heads = 2 }").as_table().unwrap()["heads"], Value::Integer(2));
    }

    #[test]
    fn a_set_that_cannot_be_read_is_refused_with_its_form() {
        for text in ["training.steps", "=3", "a..b=3", "a.b=", "a=[1,", "a=\"x", "a b=1", "[a]=1", "a#b=1", "a\nb=1"] {
            let message = Assignment::parse(text).unwrap_err().to_string();
            assert!(message.contains("write --set table.field=value"), "{text}: {message}");
        }
    }

    #[test]
    fn a_value_cannot_smuggle_in_further_fields() {
        let assignment = Assignment::parse("name=x\nlayers = 3").unwrap();
        assert_eq!((assignment.path, assignment.value), (vec!["name".to_string()], Value::String("x\nlayers = 3".into())));
    }

    #[test]
    fn the_complete_configuration_fed_back_gives_the_equal_value() {
        let mut odd = set(&[
            "name=\"a \\\"b\\\" = [c]\"",
            "training.patience=5",
            "training.max_gradient_norm=unset",
            "layers=[{heads = 2}, {heads = 4}]",
        ]);
        odd.limits.insert("a.b c".into(), 0.1);
        odd.training.smoothing = Smoothing::AddK;
        odd.training.schedule = Schedule::Linear { warmup: 1, end: None };
        let folder = tempfile::tempdir().unwrap();
        for (index, experiment) in [Experiment::default(), odd].into_iter().enumerate() {
            let path = folder.path().join(format!("{index}.toml"));
            fs::write(&path, complete_text(&experiment).unwrap()).unwrap();
            assert_eq!(Settings::<Experiment>::read(Some(&path), Vec::new()).unwrap().value, experiment);
            assert!(fs::read_to_string(&path).unwrap().contains("\"unset\""));
        }
    }

    #[test]
    fn an_unknown_field_of_a_file_is_named_with_line_table_and_nearest_field() {
        let message = file_error("name = \"x\"\n\n[training]\nsteps = 3\nlerning_rate = 0.1\n");
        assert!(message.contains("mt.toml:5: unknown field `lerning_rate` in `training`; did you mean `learning_rate`?"), "{message}");
        let message = file_error("[trainig]\nsteps = 3\n");
        assert!(
            message.contains("mt.toml:1: unknown field `trainig`; did you mean `training`? (known: name, training, layers, limits)"),
            "{message}"
        );
        let message = file_error("training.schedule.kind = \"noam\"\ntraining.schedule.factor = 1\ntraining.schedule.warmpu = 3\n");
        assert!(message.contains("mt.toml:3: unknown field `warmpu` in `training.schedule`; did you mean `warmup`?"), "{message}");
        let message = file_error("layers = [\n  { heads = 2 },\n  { haeds = 2 },\n]\n");
        assert!(message.contains("mt.toml:3: unknown field `haeds` in `layers.1`; did you mean `heads`?"), "{message}");
    }

    #[test]
    fn an_unknown_field_or_value_of_set_is_named_with_the_option() {
        let message = set_error(&["training.stpes=3"]);
        assert!(message.starts_with("`--set training.stpes=3`: unknown field `stpes` in `training`; did you mean `steps`?"), "{message}");
        let message = set_error(&["training.schedule.kind=noan"]);
        assert!(message.starts_with("`--set training.schedule.kind=noan`:"), "{message}");
        assert!(message.contains("unknown value `noan`; did you mean `noam`? (known: constant, linear, noam)"), "{message}");
        let message = set_error(&["training.smoothing=add-j"]);
        assert!(message.contains("`training.smoothing`: unknown value `add-j`; did you mean `add-k`?"), "{message}");
    }

    #[test]
    fn a_value_of_the_wrong_type_is_named_with_its_line_or_option_and_what_is_wanted() {
        let message = file_error("[training]\nshuffle = true\nsteps = \"ten\"\n");
        assert!(message.contains("mt.toml:3: `training.steps`: string \"ten\" is not a whole number of at least 0"), "{message}");
        let message = set_error(&["training.steps=-1"]);
        assert!(
            message.contains("`--set training.steps=-1`: `training.steps`: integer `-1` is not a whole number of at least 0"),
            "{message}"
        );
        let message = set_error(&["training=3"]);
        assert!(message.starts_with("`--set training=3`: `training`: integer `3` is not"), "{message}");
        let message = set_error(&["training.schedule.warmup=soon"]);
        assert!(message.starts_with("`--set training.schedule.warmup=soon`: `training.schedule`: string \"soon\" is not"), "{message}");
    }

    #[test]
    fn the_layer_that_had_the_last_word_is_the_one_that_is_named() {
        with_file("[training]\nsteps = \"ten\"\n", |path| {
            let fine = Settings::<Experiment>::read(Some(path), assignments(&["training.steps=3"])).unwrap();
            assert_eq!(fine.value.training.steps, 3);
            let message = Settings::<Experiment>::read(Some(path), assignments(&["training.steps=x"])).unwrap_err().to_string();
            assert!(message.starts_with("`--set training.steps=x`"), "{message}");
        });
    }

    #[test]
    fn a_missing_field_of_a_kind_is_named() {
        let message = file_error("[training.schedule]\nkind = \"noam\"\nwarmup = 3\n");
        assert!(message.contains("mt.toml:1: missing field `factor` in `training.schedule`"), "{message}");
    }

    #[test]
    fn a_refused_range_names_the_line_that_gave_the_value() {
        with_file("[training]\nsteps = 5\n", |path| {
            let read = Settings::<Experiment>::read(Some(path), Vec::new()).unwrap();
            let message = read.refuse("training.steps", "must be at least 10").to_string();
            assert!(message.ends_with("mt.toml:2: `training.steps`: must be at least 10"), "{message}");
            assert!(read.refuse("training.patience", "x").to_string().contains("mt.toml:1:"));
        });
    }

    #[test]
    fn broken_toml_and_a_missing_file_are_named_with_line_and_remedy() {
        let message = file_error("name = \"x\"\n[training\nsteps = 3\n");
        assert!(message.contains("mt.toml:2: not valid TOML"), "{message}");
        let message = file_error("name = \"x\"\nname = \"y\"\n");
        assert!(message.contains("mt.toml:2: not valid TOML"), "{message}");
        let error = Settings::<Experiment>::read(Some(Path::new("no/such.toml")), Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no/such.toml") && error.to_string().contains("--config"), "{error}");
    }

    #[test]
    fn the_digest_depends_on_values_and_not_on_the_order_of_fields() {
        #[derive(Serialize)]
        struct Forwards {
            a: f64,
            b: Option<u32>,
            c: bool,
            run: u32,
        }
        #[derive(Serialize)]
        struct Backwards {
            run: u32,
            c: bool,
            b: Option<u32>,
            a: f64,
        }
        let forwards = |a, b, run| digest(&Forwards { a, b, c: true, run }, &["run"]).unwrap();
        assert_eq!(forwards(1.0, None, 1), digest(&Backwards { run: 1, c: true, b: None, a: 1.0 }, &["run"]).unwrap());
        assert_eq!(forwards(1.0, None, 1), forwards(1.0, None, 2));
        assert_ne!(forwards(1.0, None, 1), forwards(1.0, Some(0), 1));
        assert_ne!(forwards(1.0, None, 1), forwards(1.0 + f64::EPSILON, None, 1));
        assert_eq!(forwards(1.0, None, 1).len(), 64);
    }

    #[test]
    fn an_integer_beyond_toml_is_an_error_and_not_a_wrong_number() {
        assert!(matches!(complete(&BTreeMap::from([("seed", u64::MAX)])), Err(SettingsError::Inexpressible(_))));
    }

    #[test]
    fn the_first_difference_of_two_configurations_is_named_by_its_path() {
        let (there, here) = (complete(&set(&[])).unwrap(), complete(&set(&["training.steps=5"])).unwrap());
        assert_eq!(first_difference(&there, &here).unwrap(), "`training.steps`: 100 there, 5 here");
        assert_eq!(first_difference(&there, &there), None);
        let more = complete(&BTreeMap::from([("x", 1)])).unwrap();
        assert_eq!(first_difference(&Table::new(), &more).unwrap(), "`x`: absent there, 1 here");
    }
}
