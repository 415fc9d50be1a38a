//! The options every experiment shares, the fields of the configuration they set, and suggestions for misspelt names.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;
use heedful_data::Columns;
use heedful_host::exit::{ProgramError, end_with, of_output, print_bytes};
use heedful_host::names::{listed, unknown};
use heedful_runs::settings::{Assignment, Settings, SettingsError};
use serde::{Deserialize, Serialize};

use crate::session::error::ExperimentError;
use crate::session::jobs::{Jobs, Shard};
use crate::session::logging::{LogOptions, Logging};

/// The common options; a binary adds them to its own by `#[command(flatten)]` and describes itself in its own doc comment.
///
/// # Example
/// ```
/// use clap::Parser;
/// use heedful_experiments::session::options::CommonOptions;
///
/// /// Machine translation with interchangeable attention mechanisms.
/// #[derive(Parser)]
/// #[command(name = "mt", version)]
/// struct Options {
///     #[command(flatten)]
///     common: CommonOptions,
/// }
///
/// let options = Options::parse_from(["mt", "--attention", "dot-product,synthesizer-random", "--seeds", "3"]);
/// assert_eq!(options.common.attentions(), ["dot-product", "synthesizer-random"]);
/// ```
// Otherwise these sentences would stand in the help of a program that has none of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(about = None, long_about = None)]
pub struct CommonOptions {
    /// Attention mechanisms to train and compare, separated by commas: a name, with options such as linformer{rank=16}; a list with one mechanism per layer,
    /// such as [dot-product,relative], where 3*gla stands for gla,gla,gla; or, in models with encoder and decoder, one mechanism per part:
    /// {encoder=linformer,decoder=dot-product,cross=uniform}
    #[arg(long, value_name = "NAME[,NAME...]")]
    pub attention: Vec<String>,

    /// Configuration in TOML, which overrides the built-in defaults (the config.toml of an earlier run repeats it)
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,

    /// Configuration of a data set that is part of the program (--list-presets shows all), which overrides the built-in defaults
    #[arg(long, value_name = "NAME", conflicts_with = "config")]
    pub preset: Option<String>,

    /// Set one field of the configuration by its dotted path, such as training.learning_rate=3e-4; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub assignments: Vec<String>,

    /// Backend: flex or ndarray (CPU), wgpu (GPU), or another GPU backend that is compiled in
    #[arg(long, value_name = "flex|ndarray|wgpu|vulkan|metal|webgpu|cuda|rocm")]
    pub backend: Option<String>,

    /// Folder of the data set [default: built-in generated data]
    #[arg(long, value_name = "DIR", value_parser = PathInConfiguration)]
    pub data: Option<PathBuf>,

    /// Column names of a data set in JSON lines or Parquet, where they differ from the usual ones, such as text=body,label=topic
    #[arg(long, value_name = "ROLE=NAME[,...]", value_parser = str::parse::<Columns>)]
    pub columns: Option<Columns>,

    /// Number of seeds for each mechanism; reports show mean and sample standard deviation
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: Option<u64>,

    /// First seed; the seeds are S, S+1, ..., S+N-1
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(0..=LARGEST_SEED))]
    pub seed: Option<u64>,

    /// Optimiser steps of training
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=i64::MAX as u64))]
    pub steps: Option<u64>,

    /// Tune the learning rate of each mechanism or model: all try the same five rates for a third of the steps, and further ones if the best lies at an end.
    /// The table training.tune sets the details
    #[arg(long)]
    pub tune: bool,

    /// Match the parameter count of all candidates to the first one, by the widths of their feed-forward networks
    #[arg(long = "match", value_name = "parameters")]
    pub matched: Option<Matched>,

    /// Output folder [default: runs/ and the name of the experiment]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Continue in the output folder, also with other attentions or seeds: keep finished runs, and resume interrupted ones from their checkpoints. A command
    /// with the configuration of the folder continues without this option too, and says so
    #[arg(long)]
    pub resume: bool,

    /// Leave out the trivial baseline, a score without attention or without learning, which reports otherwise show as a row of its own
    #[arg(long)]
    pub no_trivial_baseline: bool,

    /// Number of parallel runs, which share the threads; auto: as many as runs, threads and memory allow. Scores are the same; parallel runs report no speeds
    #[arg(long, value_name = "N|auto")]
    pub jobs: Option<Jobs>,

    /// Do only every N-th run, from the K-th on: several commands, on one machine or on many, share the runs of one --out
    #[arg(long, value_name = "K/N")]
    pub shard: Option<Shard>,

    /// Write Slurm scripts into the output folder, and show how to submit them: an array job with one task per run, and a job that merges their results. The
    /// table slurm of the configuration sets their resources
    #[arg(long, conflicts_with_all = ["shard", "dry_run", "print_config", "list", "log", "trace"])]
    pub slurm: bool,

    /// With --slurm: submit the scripts as well
    #[arg(long, requires = "slurm")]
    pub submit: bool,

    /// Train nothing: derive results and report from the finished runs of the output folder, and fail if some are missing
    #[arg(long, conflicts_with_all = ["slurm", "shard", "dry_run", "print_config", "list"])]
    pub merge: bool,

    /// Train each model with all processes that MPI has started, which divide the micro-batches of training.accumulate; scores equal those of one process
    #[arg(long, conflicts_with_all = ["jobs", "slurm", "merge", "dry_run", "print_config", "list"])]
    pub data_parallel: bool,

    /// Show what would run, with parameters and estimates of memory and time, then exit; nothing is written
    #[arg(long)]
    pub dry_run: bool,

    /// Print the complete configuration in TOML, then exit
    #[arg(long, conflicts_with_all = ["dry_run", "list"])]
    pub print_config: bool,

    /// Print the JSON Schema of the configuration, which editors use to complete TOML files, then exit
    #[arg(long, exclusive = true)]
    pub print_schema: bool,

    /// Print a shell script that completes options, then exit
    #[arg(long, value_name = "SHELL", exclusive = true)]
    pub completions: Option<Shell>,

    /// List the attention mechanisms and what each can do, then exit
    #[arg(long)]
    pub list: bool,

    /// List the values of --preset, what each trains and by which command, then exit
    #[arg(long, exclusive = true)]
    pub list_presets: bool,

    /// Show errors only, no progress
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,

    /// Show more log lines
    #[arg(long, short)]
    pub verbose: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "a comment would stand in the help")]
    pub logging: LogOptions,
}

/// The quantity in which all candidates can be matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Matched {
    /// Trained parameters.
    Parameters,
}

/// Of what widths are a multiple that match parameters, unless it is told otherwise.
const MULTIPLE: i64 = 8;

/// The largest first seed, which leaves room for the seeds after it within TOML's integers.
const LARGEST_SEED: u64 = i64::MAX as u64 - 1_000_000;

/// What the command line says. Help, the version, `--completions` and refusals end the process: with exit code 1 where a text could not be written, unless the
/// reader is gone.
pub(crate) fn matches_of(command: &mut Command) -> ArgMatches {
    let matches = read_arguments(command);
    let of_command = matches.subcommand().map_or(&matches, |(_, matches)| matches);
    if let Ok(Some(shell)) = of_command.try_get_one::<Shell>("completions") {
        let name = command.get_name().to_owned();
        end_with(print_completions(*shell, command, &name));
    }
    matches
}

fn read_arguments(command: &mut Command) -> ArgMatches {
    match command.try_get_matches_from_mut(std::env::args_os()) {
        Ok(matches) => matches,
        Err(error) if error.use_stderr() => error.exit(),
        // Clap itself says nothing of a text that could not be written.
        Err(text) => end_with(of_output(text.print().and_then(|()| io::stdout().flush()))),
    }
}

/// Prints the script with which a shell completes the options of `command`, a program called `name`.
///
/// # Errors
/// If standard output cannot be written.
pub(crate) fn print_completions(shell: Shell, command: &mut Command, name: &str) -> Result<(), ProgramError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, name, &mut script);
    print_bytes(&script)
}

impl CommonOptions {
    /// The attentions of `--attention`, which may be given more than once: its text is cut at commas that stand in no list and no table.
    pub fn attentions(&self) -> Vec<String> {
        self.attention.iter().flat_map(|text| listed(text)).map(str::to_owned).collect()
    }

    /// The given options as fields of the configuration, `--set` first: the table `run` as [`RunSettings`], and `training.steps`.
    ///
    /// # Errors
    /// [`SettingsError::Assignment`] for a `--set` that is not `key=value`.
    pub fn assignments(&self) -> Result<Vec<Assignment>, SettingsError> {
        let mut given = self.assignments.iter().map(|text| Assignment::parse(text)).collect::<Result<Vec<_>, _>>()?;
        if !self.attention.is_empty() {
            let names = self.attentions().into_iter().map(toml::Value::String).collect::<Vec<_>>();
            given.push(Assignment::option("--attention", "run.attention", names));
        }
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        given.extend(self.backend.as_ref().map(|name| Assignment::option("--backend", "run.backend", name.clone())));
        given.extend(self.data.as_ref().map(|path| Assignment::option("--data", "run.data", text(path))));
        given.extend(self.columns.as_ref().map(|columns| Assignment::option("--columns", "run.columns", columns.table())));
        given.extend(self.seeds.map(|count| Assignment::option("--seeds", "run.seeds", count as i64)));
        given.extend(self.seed.map(|seed| Assignment::option("--seed", "run.seed", seed as i64)));
        given.extend(self.no_trivial_baseline.then(|| Assignment::option("--no-trivial-baseline", "run.trivial_baseline", false)));
        given.extend(self.steps.map(|steps| Assignment::option("--steps", "training.steps", steps as i64)));
        // Its options may be given beside it.
        if self.tune && !given.iter().any(|assignment| assignment.is_within("training.tune")) {
            given.push(Assignment::option("--tune", "training.tune", toml::Table::new()));
        }
        if self.matched.is_some() && !given.iter().any(|assignment| assignment.is_within("run.match_parameters")) {
            given.push(Assignment::option("--match", "run.match_parameters", MULTIPLE));
        }
        Ok(given)
    }

    /// The output folder: `--out`, or `runs/<experiment>`.
    pub fn output(&self, experiment: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(experiment))
    }

    /// Starts logging to standard error: warnings, with `-v` also what is done, with `--quiet` errors only; see [`LogOptions::start`].
    ///
    /// # Errors
    /// Those of [`LogOptions::start`].
    pub fn start_logging(&self) -> Result<Logging, ExperimentError> {
        self.logging.start(self.log_level())
    }

    fn log_level(&self) -> &'static str {
        match (self.quiet, self.verbose) {
            (true, _) => "error",
            (false, false) => "warn",
            // The graphics libraries log much at this level that says nothing about the experiment.
            (false, true) => "info,wgpu_core=warn,wgpu_hal=warn,naga=warn,cubecl_runtime=warn",
        }
    }
}

/// Reads a path that becomes a field of the configuration, whose text is UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct PathInConfiguration;

impl TypedValueParser for PathInConfiguration {
    type Value = PathBuf;

    fn parse_ref(&self, command: &Command, option: Option<&Arg>, value: &OsStr) -> Result<PathBuf, clap::Error> {
        if value.to_str().is_some() {
            return PathBufValueParser::new().parse_ref(command, option, value);
        }
        let option = option.map(|option| format!("{option}: ")).unwrap_or_default();
        Err(clap::Error::raw(ErrorKind::InvalidUtf8, format!("{option}{}\n", not_utf8(value))).with_cmd(command))
    }
}

/// What is wrong with a path that no configuration can have, and what to do.
pub(crate) fn not_utf8(path: &OsStr) -> String {
    format!("{path:?} is not UTF-8, as configurations are; rename it, or give a symbolic link of another name")
}

/// The selected runs: the table `run` of every experiment's configuration. The other tables configure a single run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// Attention mechanisms by name.
    pub attention: Vec<String>,
    /// Whole models.
    pub models: Vec<ModelRun>,
    /// Backend by name.
    pub backend: String,
    /// Folder of the data set; none for the built-in generated data.
    pub data: Option<PathBuf>,
    /// Column names of a data set of JSON lines or Parquet by their roles, where they differ from the usual ones.
    pub columns: Option<Columns>,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// If given, all candidates match the parameter count of the first: the width of their feed-forward networks becomes the multiple of this number that comes
    /// closest to it.
    pub match_parameters: Option<usize>,
    /// Whether the report shows trivial baselines, where the experiment provides them.
    pub trivial_baseline: bool,
}

/// A whole model that is compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelRun {
    /// Its name, for folders and tables.
    pub name: String,
    /// Its attention. A model that the experiment defines has a default.
    pub attention: Option<String>,
    /// The fields in which it differs from the rest of the configuration; they override everything else. A model that the experiment defines has fields of its
    /// own, which the rest of the configuration and the command can change. Without an `attention`, `set` is added to these fields.
    #[serde(deserialize_with = "layer")]
    pub set: Option<toml::Table>,
    /// Another model of the list, or an attention, whose weights this model takes. It is not trained, but scored with its own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_of: Option<String>,
}

/// A table to be laid over the configuration, in which `unset` is still to be read; the configuration's reader knows this type by its name.
#[derive(Deserialize)]
struct Layer(toml::Table);

fn layer<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<toml::Table>, D::Error> {
    Ok(Option::<Layer>::deserialize(deserializer)?.map(|Layer(table)| table))
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            attention: Vec::new(),
            models: Vec::new(),
            backend: "flex".into(),
            data: None,
            columns: None,
            seed: 1,
            seeds: 1,
            match_parameters: None,
            trivial_baseline: true,
        }
    }
}

impl RunSettings {
    /// The names of columns, the usual ones if none are given.
    pub(crate) fn column_names(&self) -> Columns {
        self.columns.clone().unwrap_or_default()
    }

    /// The seeds in the order they are run.
    pub fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        self.seed..self.seed.saturating_add(self.seeds)
    }

    /// Refuses what cannot be run: nothing to compare or the same twice, an unknown backend, no seed. `names` are the resolved names of mechanisms and models.
    ///
    /// `settings` is the configuration this table was read with, for the line or option in the message.
    ///
    /// # Errors
    /// A usage error with the nearest known name.
    pub fn check<T>(&self, settings: &Settings<T>, names: &[&str], backends: &[&str]) -> Result<(), ExperimentError> {
        if names.is_empty() {
            return Err(settings.refuse("run.attention", "no mechanism is named; give --attention NAME (--list shows all)").into());
        }
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(settings
                    .refuse("run.attention", format!("`{name}` is named twice; name it once and use --seeds to repeat it"))
                    .into());
            }
        }
        if !backends.contains(&self.backend.as_str()) {
            return Err(unknown("backend", &self.backend, backends, &format!("known: {}", backends.join(", "))).into());
        }
        if self.seeds == 0 {
            return Err(settings.refuse("run.seeds", "at least one seed is needed").into());
        }
        if self.seed.saturating_add(self.seeds) > i64::MAX as u64 {
            return Err(settings.refuse("run.seed", "the seeds leave the range up to 2^63 - 1; choose a smaller one").into());
        }
        Ok(())
    }
}

/// The meaning of the exit codes of an experiment's command, for the end of `--help`.
pub const EXIT_CODES: &str = "Exit codes: 0 done, 1 the run failed, 2 the command or configuration was refused, 130 stopped by Ctrl-C or SIGTERM (continue with --resume).";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    const MECHANISMS: [&str; 5] = ["dot-product", "synthesizer-dense", "synthesizer-random", "synthesizer-factorized-random", "gaussian"];

    /// Translates.
    #[derive(Parser, Debug)]
    #[command(name = "mt")]
    struct Options {
        #[command(flatten)]
        common: CommonOptions,
    }

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Configuration {
        run: RunSettings,
        training: Training,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Training {
        steps: u64,
    }

    impl Default for Training {
        fn default() -> Self {
            Self { steps: 100 }
        }
    }

    fn options(arguments: &[&str]) -> CommonOptions {
        Options::try_parse_from([&["mt"], arguments].concat()).unwrap().common
    }

    fn settings(arguments: &[&str]) -> Settings<Configuration> {
        Settings::read(None, options(arguments).assignments().unwrap()).unwrap()
    }

    fn refusal(arguments: &[&str]) -> String {
        let settings = settings(arguments);
        let names: Vec<_> = settings.value.run.attention.iter().map(String::as_str).collect();
        let error = settings.value.run.check(&settings, &names, &["flex", "ndarray", "wgpu"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_no_configuration_can_hold_is_refused_by_its_option() {
        use std::os::unix::ffi::OsStrExt;

        let path = OsStr::from_bytes(b"caf\xe9");
        let error = Options::try_parse_from([OsStr::new("mt"), OsStr::new("--data"), path]).unwrap_err();
        let message = error.to_string();
        assert_eq!(error.exit_code(), 2);
        assert!(["--data", "caf\\xE9", "not UTF-8", "symbolic link"].iter().all(|part| message.contains(part)), "{message}");
        assert!(Options::try_parse_from(["mt", "--data", "café"]).is_ok());
    }

    #[test]
    fn attentions_are_cut_at_commas_outside_of_lists_and_tables() {
        let given = ["dot-product, [a,b]", "{encoder=[a,b],decoder=c},d"].map(str::to_owned).to_vec();
        let options = CommonOptions { attention: given, ..CommonOptions::default() };
        assert_eq!(options.attentions(), ["dot-product", "[a,b]", "{encoder=[a,b],decoder=c}", "d"]);
    }

    #[test]
    fn the_command_line_definition_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn an_unknown_option_and_a_seed_count_of_zero_are_usage_errors_of_clap() {
        for arguments in [&["mt", "--atention", "x"][..], &["mt", "--seeds", "0"], &["mt", "--steps", "0"], &["mt", "-q", "-v"]] {
            assert_eq!(Options::try_parse_from(arguments).unwrap_err().exit_code(), 2, "{arguments:?}");
        }
    }

    #[test]
    fn every_option_is_explained_in_the_help_text() {
        let help = Options::command().render_long_help().to_string();
        for option in [
            "--attention",
            "--config",
            "--set",
            "--backend",
            "--data",
            "--seeds",
            "--seed",
            "--steps",
            "--out",
            "--resume",
            "--no-trivial-baseline",
            "--list",
            "--quiet",
            "--verbose",
        ] {
            assert!(help.contains(option), "{option} is missing");
        }
        assert!(help.starts_with("Translates\n\nUsage:"), "the binary's own description is lost: {help}");
    }

    #[test]
    fn help_of_a_program_without_a_description_has_no_sentence_of_the_library() {
        #[derive(Parser)]
        struct Bare {
            #[command(flatten)]
            common: CommonOptions,
        }
        for help in [Bare::command().render_long_help(), Bare::command().about("Sorting letters").render_long_help()] {
            let help = help.to_string();
            assert!(!help.contains("a binary adds") && !help.contains("# Example") && help.contains("--attention"), "{help}");
        }
        assert!(Bare::command().about("Sorting letters").render_long_help().to_string().starts_with("Sorting letters\n\nUsage:"));
    }

    #[test]
    fn options_become_fields_of_the_configuration_and_win_over_set() {
        let settings = settings(&[
            "--set",
            "run.seeds=9",
            "--seeds",
            "3",
            "--seed",
            "5",
            "--steps",
            "7",
            "--attention",
            "dot-product,synthesizer-dense",
            "--data",
            "some/dir",
        ]);
        let Configuration { run, training } = &settings.value;
        assert_eq!(run.seeds().collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(training.steps, 7);
        assert_eq!(run.attention, ["dot-product", "synthesizer-dense"]);
        assert_eq!(run.data.as_deref(), Some(std::path::Path::new("some/dir")));
        assert_eq!(run.backend, "flex");
    }

    #[test]
    fn without_options_there_is_one_seed_and_the_default_output_folder() {
        let none = options(&[]);
        assert_eq!(settings(&[]).value.run.seeds().collect::<Vec<_>>(), [1]);
        assert_eq!(none.output("mt"), PathBuf::from("runs/mt"));
        assert_eq!(options(&["--out", "x"]).output("mt"), PathBuf::from("x"));
    }

    #[test]
    fn a_misspelt_name_is_refused_with_the_nearest_one() {
        let error = unknown("attention", "sythesizer-random", &MECHANISMS, "--list shows all");
        assert_eq!(error.exit_code(), 2);
        assert_eq!(error.to_string(), "unknown attention `sythesizer-random`; did you mean `synthesizer-random`? (--list shows all)");
    }

    #[test]
    fn fields_that_a_model_leaves_unset_come_back_from_the_written_configuration() {
        let given =
            "run.models=[{name = 'own', attention = 'dot-product', set = {training = {steps = 'unset'}, b = {c = 'unset', d = 1}}}]";
        let first = settings(&["--set", given]).value;
        let set = first.run.models[0].set.as_ref().unwrap();
        assert_eq!(set["b"]["c"].as_str(), Some("unset"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, heedful_runs::settings::complete_text(&first).unwrap()).unwrap();
        assert_eq!(Settings::<Configuration>::read(Some(&path), Vec::new()).unwrap().value, first);
    }

    #[test]
    fn missing_repeated_and_unknown_choices_are_refused_with_the_remedy() {
        assert!(refusal(&[]).contains("--list shows all"));
        assert!(refusal(&["--attention", "dot-product,dot-product"]).contains("named twice"));
        let message = refusal(&["--attention", "dot-product", "--backend", "cuda"]);
        assert_eq!(message, "unknown backend `cuda` (known: flex, ndarray, wgpu)");
    }

    #[test]
    fn a_good_choice_is_accepted() {
        let settings = settings(&["--attention", "dot-product, gaussian", "--backend", "wgpu"]);
        settings.value.run.check(&settings, &["dot-product", "gaussian"], &["flex", "wgpu"]).unwrap();
    }

    #[test]
    fn quiet_and_verbose_change_the_log_level() {
        let level = |arguments: &[&str]| options(arguments).log_level();
        assert_eq!((level(&[]), level(&["--quiet"])), ("warn", "error"));
        assert!(level(&["-v"]).contains("info"));
    }
}
