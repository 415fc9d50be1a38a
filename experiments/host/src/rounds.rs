//! Costs that were measured round by round: the files `rounds.json` and `rounds.md` of a folder.
//!
//! In each round everything is measured once, in turn, so that ratios of one round are of the same machine in the same minute.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::provenance::Provenance;
use crate::whole_files::{FileError, make_folder, write_atomically};

/// The name of the file of results.
pub const FILE: &str = "rounds.json";

/// What was measured in rounds: the file `rounds.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rounds {
    /// The command.
    pub command: String,
    /// What a reader must know of the sizes, in sentences.
    pub about: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Processes that ran or waited before the first round, on average of a minute; `None` where the system does not report it.
    pub load: Option<f64>,
    /// Version of heedful.
    pub version: String,
    /// Provenance of the measurement.
    pub provenance: Option<Provenance>,
    /// Everything that was measured.
    pub series: Vec<Series>,
}

/// One cost of one contender, round by round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Whose cost it is.
    pub name: String,
    /// What is counted, such as `seconds`.
    pub unit: String,
    /// The value of each round.
    pub values: Vec<f64>,
}

/// Why a file of rounds cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoundsError {
    /// It cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{}:{}: not a measurement in rounds: {source}", path.display(), source.line())]
    Format {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: serde_json::Error,
    },
}

impl Series {
    /// The median; `None` without rounds.
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        Some(if sorted.len().is_multiple_of(2) { 0.5 * (sorted[middle - 1] + upper) } else { upper })
    }
}

impl Rounds {
    /// Reads the file in a folder; `None` if there is none.
    ///
    /// # Errors
    /// [`RoundsError`].
    pub fn read(folder: &Path) -> Result<Option<Self>, RoundsError> {
        let path = folder.join(FILE);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RoundsError::Read { path, source }),
            Ok(text) => serde_json::from_str(&text).map(Some).map_err(|source| RoundsError::Format { path, source }),
        }
    }

    /// Writes `rounds.json` and, for readers, `rounds.md` into a folder, which is made if it is not there.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn write(&self, folder: &Path) -> Result<(), FileError> {
        make_folder(folder)?;
        let json = serde_json::to_string_pretty(self).expect("texts and numbers are JSON");
        write_atomically(&folder.join(FILE), format!("{json}\n").as_bytes())?;
        write_atomically(&folder.join("rounds.md"), format!("# Measured in rounds\n\n{}", self.table()).as_bytes())
    }

    /// What was measured, in words and as a table of Markdown.
    pub fn table(&self) -> String {
        let load = self.load.map_or_else(String::new, |load| format!(", load {load:.1} before"));
        let code = self.provenance.as_ref().map_or_else(|| "unknown".to_owned(), Provenance::code);
        let Machine { cpu, cores, os } = &self.machine;
        let mut text = format!(
            "heedful {}, commit {code}, {cpu}, {cores} threads, {os}{load}. {}\n\n    {}\n\n| what | unit | median | least | most | rounds |\n| --- | --- | ---: | ---: | ---: | ---: |\n",
            self.version, self.about, self.command
        );
        for series in &self.series {
            let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), digits);
            let [least, most] = [f64::min, f64::max].map(|of| series.values.iter().copied().reduce(of));
            let Series { name, unit, values } = series;
            let cells =
                [name.replace('|', "/"), unit.clone(), number(series.median()), number(least), number(most), values.len().to_string()];
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }
}

/// Four digits that count.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        1.0.. => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

/// Measures every candidate once a round, every second round in reverse order, so that none always follows the same other. Returns the values of each
/// candidate by round. `measure` is given the number of the round and that of the candidate; `None` of it ends the measurement, which then has no result.
///
/// # Errors
/// That of `measure`.
pub fn in_turn<E>(
    rounds: usize,
    candidates: usize,
    mut measure: impl FnMut(usize, usize) -> Result<Option<f64>, E>,
) -> Result<Option<Vec<Vec<f64>>>, E> {
    let mut values = vec![Vec::with_capacity(rounds); candidates];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..candidates).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for candidate in order {
            let Some(value) = measure(round, candidate)? else { return Ok(None) };
            values[candidate].push(value);
        }
    }
    Ok(Some(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds() -> Rounds {
        let series = |name: &str, values: &[f64]| Series { name: name.into(), unit: "seconds".into(), values: values.into() };
        let series = vec![series("a", &[3.0, 1.0, 2.5]), series("b|c", &[0.5, 0.25]), series("none", &[])];
        Rounds { command: "cost depth".into(), about: "Small.".into(), load: Some(0.2), series, ..Rounds::default() }
    }

    #[test]
    fn files_are_read_as_they_were_written_and_a_table_shows_medians() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("new/one");
        assert_eq!(Rounds::read(&place).unwrap(), None);
        rounds().write(&place).unwrap();
        assert_eq!(Rounds::read(&place).unwrap(), Some(rounds()));
        let page = fs::read_to_string(place.join("rounds.md")).unwrap();
        for part in
            ["| a | seconds | 2.500 | 1.000 | 3.000 | 3 |", "| b/c | seconds | 0.3750 |", "| none | seconds | – | – | – | 0 |", "load 0.2"]
        {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        fs::write(place.join(FILE), "{\n\"series\": 3}").unwrap();
        let problem = Rounds::read(&place).unwrap_err().to_string();
        assert!(problem.contains("rounds.json:2: not a measurement in rounds"), "{problem}");
    }

    #[test]
    fn every_second_round_goes_backwards_and_an_end_leaves_nothing() {
        let mut order = Vec::new();
        let values = in_turn::<()>(3, 2, |round, candidate| {
            order.push(candidate);
            Ok(Some((10 * round + candidate) as f64))
        });
        assert_eq!(order, [0, 1, 1, 0, 0, 1]);
        assert_eq!(values, Ok(Some(vec![vec![0.0, 10.0, 20.0], vec![1.0, 11.0, 21.0]])));
        assert_eq!(in_turn::<()>(3, 2, |round, _| Ok((round == 0).then_some(1.0))), Ok(None));
        assert_eq!(in_turn(1, 1, |_, _| Err("no")), Err("no"));
    }
}
