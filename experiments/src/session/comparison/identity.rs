//! What the runs of one folder share: the recipe, the data and the backend.

use heedful_host::checksum::sha256_hex;
use heedful_runs::results::Results;
use heedful_runs::run_folder::{RUN_TABLES, RunFolder};
use heedful_runs::settings::{self, Settings};
use toml::Table;

use crate::session::error::ExperimentError;
use crate::session::experiment::definition::{Config, Experiment};

/// Refuses a folder whose runs have another backend or other data: its `config.toml` and its tokeniser could stand for one of them only.
///
/// The same data may lie elsewhere than they did. That they are the same is known from the checksum of a finished run.
pub(super) fn check_folder<E: Experiment>(
    (folder, results): (&RunFolder, &Results),
    config: &Config<E>,
    datasets: &[E::Data],
) -> Result<(), ExperimentError> {
    let there = Settings::<Config<E>>::read(Some(&folder.config()), Vec::new())?.value;
    let (there, here) = (&there.run, &config.run);
    let refuse = |problem: String| Err(ExperimentError::usage(format!("`{}` {problem}; choose another --out", folder.root().display())));
    if there.backend != here.backend {
        return refuse(format!("holds runs on the backend {}, and the command asks for {}", there.backend, here.backend));
    }
    let mut is_known = false;
    for record in results.records() {
        let Some(card) = datasets.iter().map(E::card).find(|card| card.name == record.dataset) else { continue };
        if card.sha256 != record.data_sha256 {
            return refuse(other_data(&record.dataset, &record.data_sha256, card.sha256));
        }
        is_known = true;
    }
    if there.data != here.data && !is_known {
        let shown =
            |data: &Option<std::path::PathBuf>| data.as_ref().map_or("built-in data".to_owned(), |data| format!("`{}`", data.display()));
        return refuse(format!("holds runs on {}, and the command reads {}", shown(&there.data), shown(&here.data)));
    }
    Ok(())
}

/// What a folder's results and its data disagree in.
pub(super) fn other_data(dataset: &str, there: &str, here: &str) -> String {
    format!("has results on other data: the SHA-256 of `{dataset}` was {there} and is {here} now")
}

/// Digest of what a candidate is trained with, the choice of runs left out, and of its data.
///
/// The folder's own configuration `there` is taken, with what the candidate changes in `config`: fields that are newer than the folder stay out of it, so that
/// runs keep their identity when the program is replaced by a newer one.
pub(super) fn recipe<E: Experiment>(
    there: &Table,
    config: &Config<E>,
    candidate: &Config<E>,
    dataset: &E::Data,
) -> Result<String, ExperimentError> {
    let table = settings::overlaid(there.clone(), settings::changes(config, candidate, &RUN_TABLES)?);
    // Other data are another recipe, although the folder they lie in is not part of the configuration.
    Ok(sha256_hex(format!("{} {}", settings::table_digest(table, &RUN_TABLES), E::card(dataset).sha256).as_bytes()))
}
