//! The runs of a whole output folder, without the experiment: its configuration names the wanted runs, and its folders show the existing ones.

use std::fs;
use std::path::Path;

use heedful_host::display::duration;
use heedful_host::exit::ProgramError;
use heedful_host::whole_files::{file_name, plain_name};
use serde::Serialize;
use toml::{Table, Value};

use super::{RunStatus, State};
use crate::markup::columns;
use crate::results::Results;
use crate::run_folder::{RunFolder, run_name};

/// How far a run of a folder is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// Its folder in the output folder.
    pub run: String,
    /// Steps that it is to do at most.
    pub steps: Option<u64>,
    /// How far it is.
    #[serde(flatten)]
    pub status: RunStatus,
}

impl Place {
    /// Seconds until the last step at the pace of the last lines of the log; `None` unless it is running.
    pub fn seconds_left(&self) -> Option<f64> {
        let is_running = matches!(self.status.state, State::Running { .. });
        let left = self.steps?.checked_sub(self.status.step?)?;
        Some(left as f64 * self.status.seconds_per_step?).filter(|_| is_running)
    }
}

/// Characters of the name of a run that a narrow table shows at least.
const LEAST_NAME: usize = 12;
/// The width of a table with all columns, in characters.
pub const WIDE: usize = 120;

/// How far the runs of an output folder are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FolderStatus {
    /// The runs that its configuration wants, then other existing ones.
    pub runs: Vec<Place>,
}

impl FolderStatus {
    /// Looks at an output folder.
    ///
    /// # Errors
    /// A usage error for a folder that is none, a failure if it cannot be read.
    pub fn read(root: &Path) -> Result<Self, ProgramError> {
        let folder = RunFolder::at(root);
        if !folder.config().exists() {
            let problem =
                format!("`{}` holds no config.toml, so it is not the output of a run; give the --out of an experiment", root.display());
            return Err(ProgramError::usage(problem));
        }
        let table = folder.table()?;
        let results = Results::read(&folder)?;
        let wanted = wanted(&table);
        let mut places = Vec::new();
        for part in parts(root)? {
            let at = if part.is_empty() { folder.clone() } else { RunFolder::at(&root.join(&part)) };
            let name = |run: &str| if part.is_empty() { run.to_owned() } else { format!("{part}/{run}") };
            let mut seen = Vec::new();
            for (attention, seed, steps) in &wanted {
                let run = at.run_at(attention, *seed);
                let mut status = RunStatus::read(&run);
                // Folders of earlier versions, and results that were kept without their runs.
                let is_own = |dataset: &str| part.is_empty() || file_name(dataset) == part;
                let kept = |record: &&_| is_record(record, attention, *seed, &is_own);
                if let (State::Waiting | State::Interrupted, Some(record)) = (&status.state, results.records().iter().find(kept)) {
                    (status.state, status.step) = (State::Finished, Some(record.steps));
                }
                let folder = run_name(attention, *seed);
                places.push(Place { run: name(&folder), steps: *steps, status });
                seen.push(folder);
            }
            let mut others = folders(at.root())?;
            others.retain(|folder| is_run(folder) && !seen.contains(folder));
            let steps = steps(&table);
            places.extend(others.iter().map(|folder| Place { run: name(folder), steps, status: RunStatus::read(&at.run_named(folder)) }));
        }
        Ok(Self { runs: places })
    }

    /// A table of the runs, and how many are in which state. In less than [`WIDE`] characters it leaves out when a run was written and its process; errors of
    /// failed runs stand below it.
    pub fn in_words(&self, width: usize) -> String {
        let is_wide = width >= WIDE;
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let rows = self.runs.iter().map(|place| {
            let Place { run, steps, status } = place;
            let of = steps.map_or_else(String::new, |steps| format!("/{steps}"));
            let mut row = vec![
                plain_name(run),
                status.state.name().to_owned(),
                shown(status.step.map(|step| format!("{step}{of}"))),
                shown(status.loss.map(|loss| format!("{loss:.4}"))),
                shown(status.selected.as_ref().map(|selected| format!("{} {:.4}", selected.metric, selected.value))),
                shown(place.seconds_left().map(duration)),
            ];
            row.extend(is_wide.then(|| shown(status.age_seconds.map(|seconds| duration(seconds as f64)))));
            row.push(if is_wide { status.state.detail() } else { String::new() });
            row
        });
        let mut rows: Vec<Vec<String>> = rows.collect();
        let head = ["run", "state", "step", "loss", "best on dev", "ETA", "last written", ""];
        let head = if is_wide { head.to_vec() } else { [&head[..6], &[""]].concat() };
        if !is_wide {
            let longest =
                |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default().max(head[column].len()) + 2;
            let room = width.saturating_sub((1..6).map(longest).sum::<usize>() + 2).max(LEAST_NAME);
            rows.iter_mut().for_each(|row| row[0] = elided(&row[0], room));
        }
        let table = columns(width, &head, rows);
        let table: Vec<String> = table.lines().map(|line| line.chars().take(width).collect()).collect();
        let failed = self.runs.iter().filter(|place| !is_wide && matches!(place.status.state, State::Failed { .. }));
        let errors =
            failed.map(|place| format!("{}: {}", plain_name(&place.run), place.status.state.detail()).chars().take(width).collect());
        format!("{}\n{}", table.into_iter().chain(errors).collect::<Vec<String>>().join("\n"), self.summary())
    }

    /// Whether each run is finished or has failed.
    pub fn has_ended(&self) -> bool {
        self.runs.iter().all(|place| matches!(place.status.state, State::Finished | State::Failed { .. }))
    }

    /// How many runs are in which state.
    fn summary(&self) -> String {
        let names = ["finished", "running", "failed", "interrupted", "waiting"];
        let counts = names.map(|name| (self.runs.iter().filter(|place| place.status.state.name() == name).count(), name));
        let counts: Vec<_> = counts.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
        format!("{} runs: {}", self.runs.len(), if counts.is_empty() { "none".to_owned() } else { counts.join(", ") })
    }
}

/// A name in at most so many characters: its beginning and its end, which tells the seed.
fn elided(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    let end = (most / 2).min(7);
    name.chars().take(most - end - 1).chain(['…']).chain(name.chars().skip(count - end)).collect()
}

fn is_record(record: &crate::record::ResultRecord, attention: &str, seed: u64, is_own: &dyn Fn(&str) -> bool) -> bool {
    record.attention == attention && record.seed == seed && is_own(&record.dataset)
}

/// Attention or model, seed and steps of the runs that a configuration wants for each data set, in their order.
fn wanted(table: &Table) -> Vec<(String, u64, Option<u64>)> {
    let Some(run) = table.get("run").and_then(Value::as_table) else { return Vec::new() };
    let list = |name: &str| run.get(name).and_then(Value::as_array).into_iter().flatten();
    let number = |name: &str| run.get(name).and_then(Value::as_integer).and_then(|number| u64::try_from(number).ok()).unwrap_or(1);
    let attentions = list("attention").filter_map(|name| Some((name.as_str()?.to_owned(), steps(table))));
    let models = list("models").filter_map(|model| {
        let model = model.as_table()?;
        let own = model.get("set").and_then(Value::as_table).and_then(steps);
        Some((model.get("name")?.as_str()?.to_owned(), own.or_else(|| steps(table))))
    });
    let candidates: Vec<_> = attentions.chain(models).collect();
    let first = number("seed");
    let seeds = first..first.saturating_add(number("seeds"));
    seeds.flat_map(|seed| candidates.iter().map(move |(name, steps)| (name.clone(), seed, *steps))).collect()
}

fn steps(table: &Table) -> Option<u64> {
    u64::try_from(table.get("training")?.get("steps")?.as_integer()?).ok()
}

/// The folders of the data sets where there are several, and an empty name for the output folder itself where it has runs or no other folder has.
fn parts(root: &Path) -> Result<Vec<String>, ProgramError> {
    let (mut parts, mut has_runs) = (Vec::new(), false);
    for folder in folders(root)? {
        let path = root.join(&folder);
        let is_part = || path.join("tokenizer.json").exists() || folders(&path).is_ok_and(|within| within.iter().any(|name| is_run(name)));
        if is_run(&folder) {
            has_runs = true;
        } else if path != RunFolder::at(root).analyses() && !RunFolder::at(&path).config().exists() && is_part() {
            parts.push(folder);
        }
    }
    if has_runs || parts.is_empty() {
        parts.insert(0, String::new());
    }
    Ok(parts)
}

/// Names of the folders in a folder, sorted; none where there is no folder.
fn folders(root: &Path) -> Result<Vec<String>, ProgramError> {
    let failed = |error| ProgramError::failure(format!("cannot read `{}`: {error}", root.display()));
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.path().is_dir() {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    names.sort();
    Ok(names)
}

/// Whether a folder has the name of a run.
fn is_run(folder: &str) -> bool {
    folder.rsplit_once("-seed").is_some_and(|(_, seed)| !seed.is_empty() && seed.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ResultRecord;
    use crate::results::write_result;
    use crate::run_lock::RunLock;

    fn folder(config: &str) -> (tempfile::TempDir, RunFolder) {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("config.toml"), config).unwrap();
        let folder = RunFolder::at(place.path());
        (place, folder)
    }

    fn states(root: &Path) -> Vec<(String, &'static str, Option<u64>)> {
        let status = FolderStatus::read(root).unwrap();
        status.runs.into_iter().map(|place| (place.run, place.status.state.name(), place.steps)).collect()
    }

    const CONFIG: &str = "[run]\nattention = ['a', 'b@c']\nseed = 3\nseeds = 2\nmodels = [{ name = 'm', attention = 'a', set = { training = { steps = 7 } } }]\n\
                          [training]\nsteps = 40\n";

    #[test]
    fn wanted_runs_stand_in_their_order_and_others_behind() {
        let (place, folder) = folder(CONFIG);
        write_result(&folder.run("m", 3).unwrap(), &ResultRecord::default()).unwrap();
        folder.run("z", 1).unwrap();
        fs::create_dir_all(folder.slurm().join("logs")).unwrap();
        fs::create_dir_all(folder.analysis("m", 3)).unwrap();
        let expected = [
            ("a-seed3", "waiting", 40),
            ("b%40c-seed3", "waiting", 40),
            ("m-seed3", "finished", 7),
            ("a-seed4", "waiting", 40),
            ("b%40c-seed4", "waiting", 40),
            ("m-seed4", "waiting", 7),
            ("z-seed1", "waiting", 40),
        ];
        assert_eq!(states(place.path()), expected.map(|(run, state, steps)| (run.to_owned(), state, Some(steps))));
        let words = FolderStatus::read(place.path()).unwrap().in_words(80);
        assert!(words.contains("\nb@c-seed4 ") && words.ends_with("\n7 runs: 1 finished, 6 waiting"), "{words}");
    }

    #[test]
    fn several_data_sets_have_the_runs_each() {
        let (place, folder) = folder("[run]\nattention = ['a']\n");
        let [one, other] = ["CoLA", "built-in copy"].map(|name| folder.part(name).unwrap());
        one.run("a", 1).unwrap();
        fs::write(other.root().join("tokenizer.json"), "{}").unwrap();
        fs::write(folder.results(), r#"[{"dataset": "built-in copy", "attention": "a", "seed": 1, "steps": 5}]"#).unwrap();
        let expected = [("CoLA/a-seed1", "waiting"), ("built-in%20copy/a-seed1", "finished")];
        assert_eq!(states(place.path()), expected.map(|(run, state)| (run.to_owned(), state, None)));
    }

    #[test]
    fn results_that_were_kept_without_their_runs_are_finished() {
        let (place, folder) = folder("[run]\nattention = ['a']\nseeds = 2\n");
        fs::write(folder.results(), r#"[{"dataset": "d", "attention": "a", "seed": 2, "steps": 5}]"#).unwrap();
        assert_eq!(states(place.path()).iter().map(|(_, state, _)| *state).collect::<Vec<_>>(), ["waiting", "finished"]);
    }

    #[test]
    fn a_narrow_table_leaves_columns_out_and_no_line_exceeds_the_width() {
        let (place, folder) = folder("[run]\nattention = ['synthesizer-random+dot-product', 'b']\n[training]\nsteps = 40\n");
        let run = folder.run("b", 1).unwrap();
        let lock = RunLock::take(run.root()).unwrap().unwrap();
        fs::write(run.log(), "{\"step\":10,\"loss\":2.5,\"seconds\":3}\n{\"step\":20,\"loss\":1.25,\"seconds\":8}\n").unwrap();
        let status = FolderStatus::read(place.path()).unwrap();
        assert_eq!((status.runs[1].seconds_left(), status.runs[0].seconds_left(), status.has_ended()), (Some(10.0), None, false));
        let [narrow, wide] = [80, WIDE].map(|width| (width, status.in_words(width)));
        for (width, table) in [&narrow, &wide] {
            assert!(table.lines().all(|line| (1..=*width).contains(&line.chars().count())), "{table}");
            assert!(table.contains("-seed1") && table.contains("20/40") && table.contains("10.0 s") && table.contains("ETA"), "{table}");
        }
        assert!(wide.1.contains("last written") && wide.1.contains("process ") && !narrow.1.contains("last written"));
        drop(lock);
        fs::write(run.error(), "the disk is full\n").unwrap();
        let failed = FolderStatus::read(place.path()).unwrap();
        assert!([80, WIDE].iter().all(|&width| failed.in_words(width).contains("the disk is full")), "{}", failed.in_words(80));
        fs::remove_file(run.error()).unwrap();
        for run in ["synthesizer-random+dot-product", "b"] {
            write_result(&folder.run(run, 1).unwrap(), &ResultRecord::default()).unwrap();
        }
        assert!(FolderStatus::read(place.path()).unwrap().has_ended());
    }

    #[test]
    fn what_is_no_output_folder_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let error = FolderStatus::read(place.path()).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("--out"), "{error}");
    }
}
