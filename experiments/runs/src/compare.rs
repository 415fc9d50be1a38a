//! The comparison of finished runs of several commands: what `heedful compare` does.
//!
//! An experiment reports on its own runs ([`crate::report`]); here the run folders of several commands stand beside each other, of one version or of
//! several, of the same mechanisms or of others. [`runs`] reads the folders, [`group`] sorts what may stand in one table, [`significance`] tests differences
//! from a baseline over seeds or over the [`items`] of a test set, [`warnings`] says what makes rows less comparable than they look, [`table`] and
//! [`render`] show it, [`curve`] and [`figure`] draw what the runs learned when. [`exact`] tells
//! whether runs were repeated to the same scores. Published numbers are not shown: they are in the experiments' reports.

pub mod candidates;
pub mod circumstances;
pub mod curve;
pub mod error;
pub mod exact;
pub mod figure;
pub mod group;
pub mod items;
pub mod options;
pub mod page;
pub mod render;
pub mod runs;
pub mod significance;
mod summary;
pub mod table;
mod trivial;
pub mod warnings;

use std::path::Path;

use heedful_host::command::command_line;
use heedful_host::exit::{Completion, ProgramError, print_line};
use heedful_host::names::unknown;
use heedful_host::provenance::Provenance;
use heedful_host::whole_files::{make_folder, write_atomically};

use crate::published::PublishedNumbers;

use self::figure::{Against, Curves};
use self::group::{Group, groups};
pub use self::options::CompareOptions;
use self::options::Format;
use self::page::Content;
use self::runs::RunSource;
use self::table::Comparison;

/// Compares the run folders of `options`, for a program of the code `own`.
///
/// # Errors
/// A usage error for a metric or baseline that no run has, a failure for a folder or file that cannot be used or written.
pub fn run(options: &CompareOptions, own: &Provenance) -> Result<Completion, ProgramError> {
    let sources = runs::read(&options.runs).map_err(ProgramError::failure)?;
    if options.exactly {
        let [earlier, repeated] = &sources[..] else {
            return Err(ProgramError::usage(format!("--exactly takes two folders, not {}", sources.len())));
        };
        return exact::run(earlier, repeated);
    }
    let groups = groups(&sources);
    check_names(&groups, options)?;
    let mut comparisons: Vec<Comparison<'_>> = groups.into_iter().map(|group| Comparison::of(own, group, options)).collect();
    if let Some(out) = &options.out {
        write(out, &sources, &mut comparisons)?;
    }
    let text = match options.format {
        Format::Terminal => render::terminal(&comparisons),
        Format::Markdown => render::markdown(&comparisons, &places(&sources), &command_line(), &[]),
        Format::Latex => render::latex(&comparisons),
        Format::Csv => render::csv(&comparisons).map_err(ProgramError::failure)?,
    };
    print_line(text.trim_end())?;
    if options.format == Format::Csv {
        comparisons.iter().flat_map(|comparison| &comparison.warnings).for_each(|warning| tracing::warn!("{warning}"));
    }
    if let (Format::Terminal, Some(out)) = (options.format, &options.out) {
        print_line(format!("\nWritten to {}", out.display()))?;
    }
    Ok(Completion::Finished)
}

/// Refuses names that no group has; what only some have is no mistake.
fn check_names(groups: &[Group<'_>], options: &CompareOptions) -> Result<(), ProgramError> {
    let metrics: Vec<String> = groups.iter().flat_map(Group::metrics).collect();
    let known: Vec<&str> = metrics.iter().map(String::as_str).collect();
    for name in &options.metric {
        if !known.contains(&name.as_str()) {
            return Err(unknown("metric", name, &known, &format!("the runs have {}", listed(&known))));
        }
    }
    if let Some(name) = &options.baseline
        && groups.iter().all(|group| group.baseline(Some(name)).is_none())
    {
        let rows = || groups.iter().flat_map(|group| &group.rows);
        let known: Vec<&str> = rows().map(|row| row.name.as_str()).chain(rows().map(|row| row.attention())).collect();
        return Err(unknown("baseline", name, &known, &format!("the rows are {}", listed(&known))));
    }
    Ok(())
}

fn listed(names: &[&str]) -> String {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn places(sources: &[RunSource]) -> Vec<(String, String)> {
    sources.iter().map(|source| (source.label.clone(), source.path.display().to_string())).collect()
}

fn write(out: &Path, sources: &[RunSource], comparisons: &mut [Comparison<'_>]) -> Result<(), ProgramError> {
    make_folder(out)?;
    let mut figures: Vec<Vec<String>> = Vec::new();
    let logs = comparisons.iter().map(|comparison| curve::logs(&comparison.group)).collect::<Result<Vec<_>, _>>();
    let logs = logs.map_err(ProgramError::failure)?;
    for (comparison, logs) in comparisons.iter_mut().zip(&logs) {
        let curves = Curves::of(&comparison.group, logs);
        let mut drawn = Vec::new();
        // What disturbed runs took says nothing.
        let is_disturbed = comparison.group.records().any(|record| record.disturbed);
        for against in Against::ALL.into_iter().filter(|against| !is_disturbed || *against != Against::Seconds) {
            let Some(picture) = curves.draw(against).map_err(|error| ProgramError::failure(error.to_string()))? else { continue };
            let name = figure_name(&comparison.group, against, figures.iter().flatten());
            write_atomically(&out.join(&name), picture.as_bytes())?;
            drawn.push(name);
        }
        comparison.warnings.extend(curves.warning());
        figures.push(drawn);
    }
    let markdown = render::markdown(comparisons, &places(sources), &command_line(), &figures);
    write_atomically(&out.join("compare.md"), markdown.as_bytes())?;
    let (title, published) = ("Comparison", &PublishedNumbers::default());
    let page = Content { title, subject: "attention", comparisons, sections: &[], published }.html()?;
    write_atomically(&out.join("compare.html"), page.as_bytes())?;
    write_atomically(&out.join("compare.tex"), render::latex(comparisons).as_bytes())?;
    let values = render::csv(comparisons).map_err(ProgramError::failure)?;
    write_atomically(&out.join("compare.csv"), values.as_bytes())?;
    let groups = comparisons.iter().map(|comparison| &comparison.group).zip(logs.iter().map(Vec::as_slice));
    let steps = curve::csv(groups).map_err(ProgramError::failure)?;
    write_atomically(&out.join("steps.csv"), steps.as_bytes())?;
    Ok(())
}

/// A name without anything that links or shells take for something else, other than those that are taken.
fn figure_name<'n>(group: &Group<'_>, against: Against, taken: impl Iterator<Item = &'n String> + Clone) -> String {
    let plain = |text: &str| {
        let letters = text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' });
        let mut name = letters.collect::<String>().split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
        // File systems take names of 255 bytes.
        name.truncate(80);
        name
    };
    let start = format!("curves-{}-{}", plain(group.experiment), plain(group.dataset));
    let end = against.name();
    let mut names = std::iter::once(format!("{start}-{end}.svg")).chain((2..).map(|number| format!("{start}-{number}-{end}.svg")));
    names.find(|name| !taken.clone().any(|other| other == name)).expect("numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::group::tests::{record, source};
    use super::options::tests::options;
    use super::*;
    use crate::markup::tests::HOSTILE;

    #[test]
    fn names_of_figures_are_plain_and_differ() {
        let mut one = record("dense", 1, &[]);
        one.dataset = "multi30k/raw  (en-de)".into();
        let sources = [source("a", &[one])];
        let groups = groups(&sources);
        let first = figure_name(&groups[0], Against::Steps, [].iter());
        assert_eq!(first, "curves-mt-multi30k-raw-en-de-steps.svg");
        assert_eq!(figure_name(&groups[0], Against::Steps, [first].iter()), "curves-mt-multi30k-raw-en-de-2-steps.svg");
        let mut hostile = record("dense", 1, &[]);
        (hostile.experiment, hostile.dataset) = ("../../x".into(), HOSTILE.repeat(9));
        let sources = [source("a", &[hostile])];
        let name = figure_name(&super::groups(&sources)[0], Against::Steps, [].iter());
        assert!(name.starts_with("curves-x-script-img-src-x-x-input") && name.len() < 200 && !name.contains('/'), "{name}");
    }

    #[test]
    fn names_that_no_run_has_are_refused_with_the_nearest() {
        let sources = [source("a", &[record("dense", 1, &[("BLEU", 1.0)])])];
        let refused = |arguments: &[&str]| {
            let error = check_names(&groups(&sources), &options(arguments)).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        let message = refused(&["a", "--metric", "BLUE"]);
        assert!(message.contains("unknown metric `BLUE`; did you mean `BLEU`?"), "{message}");
        let message = refused(&["a", "--baseline", "dnese"]);
        assert!(message.contains("unknown baseline `dnese`; did you mean `dense`? (the rows are dense)"), "{message}");
    }
}
