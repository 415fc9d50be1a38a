//! Log lines and spans of a command: where they go and in which form.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use heedful_host::progress::BesideBars;
use tracing_chrome::{ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::fmt::{FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::error::ExperimentError;

/// What `--log` keeps unless `RUST_LOG` says otherwise.
const FILE_FILTER: &str = "info,heedful=debug";
/// What `--trace` keeps. Names of targets are compared by their beginnings, so that this is all packages of heedful.
const TRACE_FILTER: &str = "heedful=trace";

/// Under what the help lists the options.
const HEADING: &str = "Logging";

type AnyLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line each, with the spans before the message.
    #[default]
    Full,
    /// One line each, with the spans' fields behind the message.
    Compact,
    /// Several lines each, with the place in the code.
    Pretty,
    /// One JSON object each.
    Json,
}

/// The options of logging, which every command has.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(about = None, long_about = None)]
pub struct LogOptions {
    /// Form of log lines. The variable RUST_LOG chooses levels by package, such as RUST_LOG=heedful_attention=debug,warn
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "full|compact|pretty|json", help_heading = HEADING)]
    pub log_format: LogFormat,

    /// Also append log lines to this file, with times: debug lines of heedful's packages, info lines of others
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub log: Option<PathBuf>,

    /// Write the spans of the command, including those of each training step, to this new file, as a Chrome trace for ui.perfetto.dev; a few steps are enough
    #[arg(long, value_name = "FILE.json", help_heading = HEADING)]
    pub trace: Option<PathBuf>,
}

/// Logging in progress. The trace is complete when this is dropped.
#[must_use = "the trace ends when this is dropped"]
pub struct Logging {
    _trace: Option<FlushGuard>,
}

impl LogOptions {
    /// Starts logging to standard error from `level` on, and to the files that the options name. The variable `RUST_LOG` overrides the levels of lines.
    ///
    /// Lines are written between the progress bars of [`progress`](heedful_host::progress::progress), never into them. A second call changes nothing.
    ///
    /// # Errors
    /// A usage error when `RUST_LOG` is not a filter; a failure when a file cannot be written.
    pub fn start(&self, level: &str) -> Result<Logging, ExperimentError> {
        let (layers, trace) = self.layers(level)?;
        // Fails only when logging was started before.
        let is_first = tracing_subscriber::registry().with(layers).try_init().is_ok();
        Ok(Logging { _trace: trace.filter(|_| is_first) })
    }

    /// The same without the records of the crate `log`, for tools that listen to these themselves.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub(crate) fn start_without_log_records(&self, level: &str) -> Result<Logging, ExperimentError> {
        let (layers, trace) = self.layers(level)?;
        let is_first = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layers)).is_ok();
        Ok(Logging { _trace: trace.filter(|_| is_first) })
    }

    fn layers(&self, level: &str) -> Result<(Vec<AnyLayer>, Option<FlushGuard>), ExperimentError> {
        let variable = std::env::var("RUST_LOG").ok();
        let lines = self.lines(|| BesideBars, io::stderr().is_terminal(), false);
        let mut layers = vec![lines.with_filter(filter(level, variable.as_deref())?).boxed()];
        if let Some(path) = &self.log {
            let file = opened(path, OpenOptions::new().create(true).append(true), "--log")?;
            layers.push(self.lines(Mutex::new(file), false, true).with_filter(filter(FILE_FILTER, variable.as_deref())?).boxed());
        }
        let mut guard = None;
        if let Some(path) = &self.trace {
            // Nothing that is there is written over: it may be a configuration or results.
            let file = opened(path, OpenOptions::new().create_new(true).write(true), "--trace")?;
            let (layer, flushed_by) = ChromeLayerBuilder::new().writer(file).include_args(true).build();
            layers.push(layer.with_filter(EnvFilter::new(TRACE_FILTER)).boxed());
            guard = Some(flushed_by);
        }
        Ok((layers, guard))
    }

    fn lines<W>(&self, writer: W, has_colours: bool, has_times: bool) -> AnyLayer
    where
        W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
    {
        let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(has_colours).with_target(has_times);
        match (self.log_format, has_times) {
            (LogFormat::Full, true) => layer.fmt_fields(PlainFields::default()).boxed(),
            (LogFormat::Full, false) => layer.without_time().boxed(),
            (LogFormat::Compact, true) => layer.compact().fmt_fields(PlainFields::default()).boxed(),
            (LogFormat::Compact, false) => layer.compact().without_time().boxed(),
            (LogFormat::Pretty, true) => layer.pretty().fmt_fields(PlainFields::default()).boxed(),
            (LogFormat::Pretty, false) => layer.pretty().without_time().boxed(),
            (LogFormat::Json, _) => layer.json().boxed(),
        }
    }
}

/// The fields of spans in a file. Fields are kept by the type of what formats them: with one of its own, a file has none of the terminal's colours.
#[derive(Default)]
struct PlainFields(DefaultFields);

impl<'w> FormatFields<'w> for PlainFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        self.0.format_fields(writer, fields)
    }
}

/// The directives of `RUST_LOG`, or `otherwise` where it says nothing.
fn filter(otherwise: &str, variable: Option<&str>) -> Result<EnvFilter, ExperimentError> {
    match variable {
        Some(directives) if !directives.trim().is_empty() => EnvFilter::try_new(directives)
            .map_err(|error| ExperimentError::usage(format!("RUST_LOG=`{directives}` is not a log filter: {error}; write RUST_LOG=info"))),
        _ => Ok(EnvFilter::new(otherwise)),
    }
}

fn opened(path: &Path, options: &OpenOptions, option: &str) -> Result<File, ExperimentError> {
    let problem = |error| ExperimentError::failure(format!("{option} `{}` cannot be written: {error}; give another file", path.display()));
    options.open(path).map_err(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_overrides_the_level() {
        let text = |otherwise, variable| filter(otherwise, variable).unwrap().to_string();
        assert_eq!(text("warn", None), "warn");
        assert_eq!(text("error", Some(" ")), "error");
        assert_eq!(text("error", Some("debug")), "debug");
        let error = filter("warn", Some("a=b=c")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("RUST_LOG"), "{error}");
    }

    #[test]
    fn a_trace_writes_over_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "[training]\n").unwrap();
        let Err(error) = (LogOptions { trace: Some(path.clone()), ..LogOptions::default() }).start("warn") else { panic!("it was opened") };
        assert!(error.to_string().contains("give another file"), "{error}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "[training]\n");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_with_its_option() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/log.txt");
        for (options, option) in [
            (LogOptions { log: Some(path.clone()), ..LogOptions::default() }, "--log"),
            (LogOptions { trace: Some(path.clone()), ..LogOptions::default() }, "--trace"),
        ] {
            let Err(error) = options.start("warn") else { panic!("{option} was opened") };
            assert!(error.exit_code() == 1 && error.to_string().starts_with(option) && error.to_string().contains("log.txt"), "{error}");
        }
    }
}
