//! Lists, fetches and checks public data sets.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::session::error::{Completion, ExperimentError, print_line};
use clap::{Args, Subcommand};
use heedful_data::catalogue::check::{State, check};
use heedful_data::catalogue::download::Patience;
use heedful_data::catalogue::fetch::{Fetch, FetchError, FetchSettings, Fetched};
use heedful_data::catalogue::{Catalogue, DataSet, SourceFile};
use heedful_host::exit::visible;
use heedful_host::interrupt::Interrupt;
use heedful_host::names::unknown;

/// The folder of all data sets unless another one is given.
const FETCHED: &str = "data";

const EXAMPLES: &str = "\
Examples:
  heedful data list
  heedful data fetch ptb multi30k/raw glue/CoLA --out data
  heedful data fetch wikitext-2 --url https://mirror.example/wikitext-2-v1.zip
  heedful data check data
  heedful data check ptb

A proxy (http or https) is taken from HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, exceptions from NO_PROXY.

Exit codes: 0 done, 1 something could not be fetched or is broken, 2 the command was refused, 130 stopped by Ctrl-C or SIGTERM (repeat the command to continue).";

/// List, fetch and check public data sets.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the data sets that can be fetched, with size, licence and page
    List {
        /// Print all known facts as JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        source: Source,
    },
    /// Download data sets into the layout that the experiments read
    Fetch(FetchOptions),
    /// Read a folder and report which experiments can use it
    Check {
        /// Folder of one or several data sets, or the name of a data set of `fetch`, which stands for its folder in `data` if no folder has this name
        dir: PathBuf,

        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct Source {
    /// Use another catalogue of data sets, in the format of the built-in one
    #[arg(long, value_name = "FILE.toml")]
    catalogue: Option<PathBuf>,
}

#[derive(Args)]
struct FetchOptions {
    /// Data sets, or parts of them such as glue/CoLA
    #[arg(required = true, value_name = "NAME[/PART]")]
    names: Vec<String>,

    /// Folder for all data sets; each gets a subfolder of its name
    #[arg(long, value_name = "DIR", default_value = FETCHED)]
    out: PathBuf,

    /// Fetch from this address: that of the only file, or a folder (ending in /) that has the files under their names
    #[arg(long, value_name = "ADDRESS")]
    url: Option<String>,

    /// Keep archives packed
    #[arg(long)]
    no_unpack: bool,

    /// Fetch existing files again, and replace them
    #[arg(long)]
    force: bool,

    /// Longest silence of a connection
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    timeout: f64,

    /// Retries in a row without new data
    #[arg(long, value_name = "N", default_value_t = 5)]
    retries: u32,

    /// Pause before the first retry; it doubles with each
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pause: f64,

    #[command(flatten)]
    source: Source,
}

pub(super) fn run(options: &Options) -> Result<Completion, ExperimentError> {
    match &options.command {
        Command::List { json, source } => list(&source.read()?, *json),
        Command::Fetch(options) => fetch(options),
        Command::Check { dir, json } => look(dir, *json),
    }
}

impl Source {
    fn read(&self) -> Result<Catalogue, ExperimentError> {
        let Some(path) = &self.catalogue else { return Ok(Catalogue::built_in()) };
        let text = fs::read_to_string(path)
            .map_err(|cause| ExperimentError::usage(format!("the catalogue `{}` cannot be read: {cause}", path.display())))?;
        Catalogue::parse(&path.display().to_string(), &text).map_err(ExperimentError::usage)
    }
}

fn list(catalogue: &Catalogue, json: bool) -> Result<Completion, ExperimentError> {
    if json {
        print_line(serde_json::to_string_pretty(catalogue).map_err(ExperimentError::failure)?)?;
        return Ok(Completion::Finished);
    }
    for set in &catalogue.sets {
        let size = set.bytes().map_or_else(|| "not published".to_string(), size);
        print_line(format!("{:<16} {}", set.name, set.about))?;
        let parts = set.parts().join(", ");
        let others = if set.files.len() > 1 { format!(" and {} more", set.files.len() - 1) } else { String::new() };
        let address = format!("{}{others}", set.files[0].addresses[0]);
        let rows = [
            ("size", size.as_str()),
            ("parts", &parts),
            ("for", &set.used_by),
            ("licence", &set.licence),
            ("page", &set.home),
            ("address", &address),
        ];
        for (label, text) in rows.into_iter().chain(set.note.as_deref().map(|note| ("note", note))).filter(|(_, text)| !text.is_empty()) {
            print_line(format!("{:<16} {label:<8} {text}", ""))?;
        }
    }
    Ok(Completion::Finished)
}

fn fetch(options: &FetchOptions) -> Result<Completion, ExperimentError> {
    let catalogue = options.source.read()?;
    let wanted = options.names.iter().map(|name| files(&catalogue, name)).collect::<Result<Vec<_>, _>>()?;
    let count: usize = wanted.iter().map(|(_, files)| files.len()).sum();
    if let Some(url) = &options.url {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(ExperimentError::usage(format!("--url `{url}` is not an http or https address")));
        }
        if wanted.len() > 1 || (count > 1 && !url.ends_with('/')) {
            return Err(ExperimentError::usage(format!(
                "--url is for one data set, and names a folder (ending in /) for one of several files; here are {} data sets with {count} files",
                wanted.len()
            )));
        }
    }
    let settings = FetchSettings {
        out: options.out.clone(),
        unpack: !options.no_unpack,
        force: options.force,
        url: options.url.clone(),
        patience: Patience {
            timeout: Duration::from_secs_f64(options.timeout),
            retries: options.retries,
            pause: Duration::from_secs_f64(options.pause),
        },
    };
    let interrupt = Interrupt::on_signal().map_err(ExperimentError::failure)?;
    for (set, files) in wanted {
        match fetch_set(set, &files, &settings, &interrupt) {
            Err(Ended::Fetch(error)) if error.is_interrupted() => {
                tracing::warn!("{error}");
                return Ok(Completion::Interrupted);
            }
            Err(Ended::Fetch(error)) => return Err(ExperimentError::failure(error)),
            Err(Ended::Output(error)) => return Err(error),
            Ok(()) => {}
        }
    }
    Ok(Completion::Finished)
}

/// What ended fetching a data set early.
enum Ended {
    Fetch(FetchError),
    Output(ExperimentError),
}

impl From<FetchError> for Ended {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}

impl From<ExperimentError> for Ended {
    fn from(error: ExperimentError) -> Self {
        Self::Output(error)
    }
}

fn fetch_set(set: &DataSet, files: &[&SourceFile], settings: &FetchSettings, interrupt: &Interrupt) -> Result<(), Ended> {
    print_line(format!("{}: {}; licence: {} (said by: {})", set.name, set.about, set.licence, set.licence_evidence))?;
    let mut fetch = Fetch::begin(set, settings, interrupt)?;
    for file in files {
        if file.unverified {
            print_line(format!("{}/{}: the address is not verified", set.name, file.path().display()))?;
        }
        let fetched = fetch.file(file)?;
        print_line(format!("{}/{}", set.name, told(&fetched)))?;
    }
    for path in fetch.finish()? {
        print_line(format!("{}/{}: made", set.name, path.display()))?;
    }
    Ok(())
}

fn told(fetched: &Fetched) -> String {
    let verified = if fetched.verified { "verified" } else { "recorded, not verified" };
    let there = if fetched.was_there { ", was there" } else { "" };
    let unpacked = if fetched.unpacked.is_empty() { String::new() } else { format!(", {} files unpacked", fetched.unpacked.len()) };
    format!("{}: {} bytes, SHA-256 {} {verified}{there}{unpacked}", fetched.path.display(), fetched.bytes, fetched.sha256)
}

/// A data set and the files of it that a name asks for.
fn files<'a>(catalogue: &'a Catalogue, name: &str) -> Result<(&'a DataSet, Vec<&'a SourceFile>), ExperimentError> {
    let (set_name, part) = name.split_once('/').map_or((name, None), |(set, part)| (set, Some(part)));
    let known: Vec<&str> = catalogue.sets.iter().map(|set| set.name.as_str()).collect();
    let set = catalogue.set(set_name).ok_or_else(|| unknown("data set", set_name, &known, "data list shows all"))?;
    let fits = |file: &&SourceFile| part.is_none_or(|part| file.part.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(part)));
    let files: Vec<&SourceFile> = set.files.iter().filter(fits).collect();
    if files.is_empty() {
        let parts = set.parts();
        return Err(
            unknown(&format!("part of {set_name}"), part.unwrap_or_default(), &parts, &format!("it has: {}", parts.join(", "))).into()
        );
    }
    Ok((set, files))
}

/// The folder that is meant: one of that name or, where there is none, that of a data set (or of a part of it) where `fetch` puts it.
fn place(dir: &Path) -> Result<PathBuf, ExperimentError> {
    let name = dir.to_str().filter(|_| !dir.exists()).unwrap_or_default().trim_end_matches('/');
    let Some(set) = name.split('/').next().and_then(|set| Catalogue::built_in().set(set).map(|set| set.name.clone())) else {
        return Ok(dir.into());
    };
    let fetched = Path::new(FETCHED).join(name);
    if fetched.exists() {
        return Ok(fetched);
    }
    Err(ExperimentError::failure(format!(
        "neither `{name}` nor `{}` exists; fetch it with `heedful data fetch {set}`, or give the folder that it is in",
        fetched.display()
    )))
}

fn look(dir: &Path, json: bool) -> Result<Completion, ExperimentError> {
    let report = check(&place(dir)?).map_err(ExperimentError::failure)?;
    if json {
        print_line(serde_json::to_string_pretty(&report).map_err(ExperimentError::failure)?)?;
    } else {
        for finding in &report.findings {
            let (folder, holds, detail) = (finding.folder.display(), &finding.holds, &finding.detail);
            let line = match finding.state {
                State::Usable => format!("{folder}: {holds}: {detail}; for {}", finding.used_by),
                State::Incomplete => format!("{folder}: {holds}: incomplete: {detail}"),
                State::Broken => format!("{folder}: {holds}: broken: {detail}"),
            };
            print_line(visible(&line))?;
        }
        for folder in &report.unread {
            print_line(visible(&format!("{}: nothing that an experiment reads", folder.display())))?;
        }
    }
    match report.findings.iter().filter(|finding| finding.state == State::Broken).count() {
        0 => Ok(Completion::Finished),
        broken => Err(ExperimentError::failure(format!("{broken} of {} data sets are broken", report.findings.len()))),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0.001 to 86400".to_string()),
    }
}

/// Bytes in the unit that fits, with one decimal; indicatif gives two, more than a list of downloads needs.
fn size(bytes: u64) -> String {
    let steps = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = steps.into_iter().find(|(unit, _)| bytes as f64 >= *unit);
    unit.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{:.1} {name}", bytes as f64 / unit))
}
