//! The command of an experiment.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use heedful_host::threads::among_workers;
use heedful_runs::settings::Assignment;

use crate::analyse::{self, AnalyseOptions};
use crate::session::comparison::{model_assignments, with_options};
use crate::session::error::{Completion, main_with};
use crate::session::experiment::CommandOption;
use crate::session::experiment::definition::Experiment;
use crate::session::options::{CommonOptions, EXIT_CODES, matches_of};
use crate::session::preset_files::PresetFile;

/// The tool of the command of an experiment that no other program knows.
const ANALYSE: &str = "analyse";

/// The body of the program of an experiment of one's own: reads its options from the command line and runs. With `analyse RUN` it shows the attention of a trained
/// model.
pub fn main<E: Experiment>() -> ExitCode {
    let about = "Show what the attention of a trained model does";
    let analyse = AnalyseOptions::augment_args(Command::new(ANALYSE).about(about));
    let command = command(E::NAME, E::NAME, E::ABOUT, E::EXAMPLES, !E::MODELS.is_empty(), E::OPTIONS);
    let matches = matches_of(&mut command.version(env!("CARGO_PKG_VERSION")).subcommand(analyse).args_conflicts_with_subcommands(true));
    match matches.subcommand() {
        Some((_, matches)) => main_with(|| {
            let _logging = CommonOptions::default().start_logging()?;
            let options = AnalyseOptions::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
            among_workers(|| analyse::run::<E>(&options))?;
            Ok(Completion::Finished)
        }),
        None => {
            let (common, further) = given(&matches, E::OPTIONS);
            with_options::<E>(&common, further)
        }
    }
}

/// The command `name` of experiments with these options; `shown` is what a person types.
pub(super) fn command<'o>(
    name: &'static str,
    shown: &str,
    about: &'static str,
    examples: &[&str],
    has_models: bool,
    options: impl IntoIterator<Item = &'o CommandOption>,
) -> Command {
    let model =
        Arg::new("model").long("model").value_name("NAME[,NAME...]").value_delimiter(',').action(ArgAction::Append).hide(!has_models);
    let model = model.help(
        "Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas: those of the configuration \
         file, or others (--list shows them)",
    );
    let first = about.split_once("\n\n").map_or(about, |(first, _)| first.trim_end_matches('.'));
    let lines: String = examples.iter().map(|arguments| format!("  {shown} {arguments}\n")).collect();
    // The common options take what the command says of itself away.
    let command = CommonOptions::augment_args(Command::new(name).arg(model).args(options.into_iter().map(CommandOption::argument)));
    let presets: Vec<&str> = PresetFile::of(name).map(|preset| preset.name).collect();
    let has_none = presets.is_empty();
    let command = command.mut_arg("preset", |arg| arg.value_parser(presets).hide(has_none).hide_possible_values(true));
    let command = command.mut_arg("list_presets", |arg| arg.hide(has_none));
    command.about(first).long_about(about).after_help(format!("Examples:\n{lines}\n{EXIT_CODES}"))
}

/// What a command line says: the common options, and the fields that these options and `--model` set.
pub(super) fn given<'o>(matches: &ArgMatches, options: impl IntoIterator<Item = &'o CommandOption>) -> (CommonOptions, Vec<Assignment>) {
    let common = CommonOptions::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    let models: Vec<String> = matches.get_many::<String>("model").into_iter().flatten().cloned().collect();
    let mut further = model_assignments(&models, &common);
    further.extend(options.into_iter().flat_map(|option| option.assignments(matches)));
    (common, further)
}
