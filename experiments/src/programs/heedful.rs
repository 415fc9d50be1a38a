//! The program `heedful`: all experiments, and the tools beside them.

use std::process::ExitCode;

use clap::builder::Resettable;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use clap_complete::Shell;
use heedful_host::threads::among_workers;

use crate::session::error::{Completion, ExperimentError, main_with};
use crate::session::experiment::CommandOption;
use crate::session::logging::LogOptions;
use crate::session::options::{matches_of, print_completions};
use crate::table::{Choice, EXPERIMENTS, Row};

use super::experiment::{command, given};
use super::{analyse, claims, compare, data, measure, parity, status};

const ABOUT: &str = "\
Compare attention mechanisms: train them side by side, and show, compare, analyse and measure the results.

Each experiment trains a model for each attention of --attention and each seed, and prints a table of scores with parameters, speed and memory. The tools \
read the output folders of experiments.";

/// A tool of another package.
#[derive(Clone, Copy)]
pub struct FurtherTool {
    /// Its command.
    pub command: fn() -> Command,
    /// What it does with its options.
    pub run: fn(&ArgMatches) -> ExitCode,
}

/// The tool that logs nothing.
const COMPLETIONS: &str = "completions";

#[derive(Subcommand)]
enum Tool {
    Analyse(analyse::Options),
    Claims(Box<claims::Options>),
    Compare(compare::Options),
    Data(data::Options),
    Measure(measure::Options),
    Parity(Box<parity::Options>),
    Status(status::Options),
    /// Print a shell script that completes options
    Completions {
        shell: Shell,
    },
}

/// The program, with the tools of other packages: reads its options from the command line and runs. The package `heedful` adds those of heedful-benches.
pub fn main(further: &[FurtherTool]) -> ExitCode {
    let matches = matches_of(&mut program(further));
    let (name, matches_of_command) = matches.subcommand().expect("clap asks for a command");
    if EXPERIMENTS.iter().any(|row| row.name == name) {
        return run_experiment(name, matches_of_command);
    }
    let logging = if name == COMPLETIONS {
        LogOptions::default()
    } else {
        LogOptions::from_arg_matches(matches_of_command).unwrap_or_else(|error| error.exit())
    };
    let of_another_package = further.iter().find(|tool| (tool.command)().get_name() == name);
    let begun = if of_another_package.is_some() { logging.start_without_log_records("warn") } else { logging.start("warn") };
    let _logging = match begun {
        Ok(logging) => logging,
        Err(error) => return main_with(|| Err(error)),
    };
    if let Some(tool) = of_another_package {
        return (tool.run)(matches_of_command);
    }
    let tool = Tool::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    main_with(|| match &tool {
        Tool::Analyse(options) => among_workers(|| analyse::run(options)),
        Tool::Claims(options) => claims::run_task(options),
        Tool::Compare(options) => compare::run(options),
        Tool::Data(options) => data::run(options),
        Tool::Measure(options) => among_workers(|| measure::run(options)),
        Tool::Parity(options) => parity::run(options),
        Tool::Status(options) => status::run(options),
        Tool::Completions { shell } => {
            print_completions(*shell, &mut program(further), "heedful")?;
            Ok(Completion::Finished)
        }
    })
}

fn program(further: &[FurtherTool]) -> Command {
    let experiments = EXPERIMENTS.iter().filter(|row| row.choice.is_none()).map(|row| command_of(row.name));
    let program =
        Command::new("heedful").version(env!("CARGO_PKG_VERSION")).about(ABOUT).subcommand_required(true).arg_required_else_help(true);
    let tools = Tool::augment_subcommands(Command::new("tools")).subcommands(further.iter().map(|tool| (tool.command)()));
    let tools = tools.get_subcommands().cloned();
    program.subcommands(experiments).subcommands(tools.map(|tool| if tool.get_name() == COMPLETIONS { tool } else { logged(tool) }))
}

/// A tool with the options of logging, which its own commands have too.
fn logged(tool: Command) -> Command {
    let [about, long_about] =
        [tool.get_about(), tool.get_long_about()].map(|text| text.cloned().map_or(Resettable::Reset, Resettable::Value));
    let tool = LogOptions::augment_args(tool).about(about).long_about(long_about);
    ["log_format", "log", "trace"].into_iter().fold(tool, |tool, option| tool.mut_arg(option, |argument| argument.global(true)))
}

/// The rows that share a command, and the options of each that no row before it has.
fn rows_of(name: &str) -> impl Iterator<Item = (&'static Row, Vec<&'static CommandOption>)> {
    let mut known = Vec::new();
    EXPERIMENTS.iter().filter(move |row| row.command() == name).map(move |row| {
        let own: Vec<_> = row.options.iter().filter(|option| !known.contains(&option.name)).collect();
        known.extend(own.iter().map(|option| option.name));
        (row, own)
    })
}

/// The command of experiments.
fn command_of(name: &'static str) -> Command {
    let rows: Vec<_> = rows_of(name).collect();
    let options = rows.iter().flat_map(|(_, options)| options.iter().copied());
    let first = rows[0].0;
    let has_models = rows.iter().any(|(row, _)| row.has_models);
    let mut command = command(name, &format!("heedful {name}"), first.about, first.examples, has_models, options);
    let choices: Vec<_> = rows.iter().filter_map(|(row, _)| row.choice).collect();
    for choice in &choices {
        let argument = Arg::new(choice.option).long(choice.option).help(choice.help);
        command = command.arg(match choice.values {
            None => {
                let others = choices.iter().map(|other| other.option).filter(|other| *other != choice.option);
                argument.action(ArgAction::SetTrue).conflicts_with_all(others.collect::<Vec<_>>())
            }
            Some(values) => argument.value_name("NAME").value_parser(values).default_value(values[0]),
        });
    }
    command
}

/// Runs the experiment that the options of a command choose.
fn run_experiment(name: &str, matches: &ArgMatches) -> ExitCode {
    let is_chosen = |row: &Row| {
        row.choice.is_some_and(|choice| match choice.values {
            None => matches.get_flag(choice.option),
            Some([_, value]) => matches.get_one::<String>(choice.option).is_some_and(|given| given == value),
        })
    };
    let rows: Vec<_> = rows_of(name).collect();
    let row = rows.iter().map(|(row, _)| *row).find(|row| is_chosen(row)).unwrap_or(rows[0].0);
    let is_own = |option: &CommandOption| row.options.iter().any(|own| own.name == option.name);
    let foreign =
        rows.iter().find_map(|(other, options)| Some((other, options.iter().find(|option| !is_own(option) && option.is_given(matches))?)));
    if let Some((other, option)) = foreign {
        let remedy = match (other.choice, row.choice) {
            (Some(choice), _) => format!("give --{} as well", choice.option),
            (None, Some(Choice { option, values: Some([usual, _]), .. })) => format!("give --{option} {usual}"),
            (None, chosen) => format!("leave --{} out", chosen.map_or("", |choice| choice.option)),
        };
        return main_with(|| Err(ExperimentError::usage(format!("--{}: {remedy}", option.name))));
    }
    let (common, further) = given(matches, row.options);
    (row.run)(&common, further)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_consistent_and_has_every_experiment() {
        let mut program = program(&[]);
        program.build();
        program.clone().debug_assert();
        for row in &EXPERIMENTS {
            let arguments = row.arguments();
            let command = program.find_subcommand(&arguments[0]).unwrap_or_else(|| panic!("{}", row.name));
            let named = |name: &str| command.get_arguments().find(|argument| argument.get_id() == name);
            assert!(row.choice.is_none_or(|choice| named(choice.option).is_some()), "{arguments:?}");
            for option in row.options {
                assert!(named(option.name).is_some(), "{}: {}", row.name, option.name);
            }
            assert!(program.clone().try_get_matches_from([&["heedful".to_owned()][..], &arguments].concat()).is_ok(), "{arguments:?}");
        }
        for tool in program.get_subcommands() {
            assert!(tool.get_about().is_some() || tool.get_name() == "help", "{} says nothing of itself", tool.get_name());
        }
        let nested = program.clone().try_get_matches_from(["heedful", "data", "list", "--log", "a"]).unwrap();
        let (_, data) = nested.subcommand().unwrap();
        assert_eq!(LogOptions::from_arg_matches(data).unwrap().log.as_deref(), Some(std::path::Path::new("a")));
        let names: std::collections::BTreeSet<&str> = EXPERIMENTS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
    }

    #[test]
    fn an_option_of_another_experiment_of_the_command_is_found() {
        let own: Vec<Vec<&str>> = rows_of("classify").map(|(_, options)| options.iter().map(|option| option.name).collect()).collect();
        assert_eq!(own, [vec![], vec!["pretrained"]]);
    }
}
