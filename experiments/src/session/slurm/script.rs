//! The scripts of an array job and of the merge of its results.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use heedful_host::command::quoted;
use heedful_host::whole_files::{FileError, make_folder, write_atomically};
use heedful_runs::run_folder::RunFolder;

use super::SlurmSettings;
use crate::session::error::{ExperimentError, INTERRUPTED_EXIT};

/// Options of the command that the scripts give themselves.
const OWN: [&str; 5] = ["--slurm", "--submit", "--resume", "--quiet", "-q"];

/// What the scripts of a command are made of.
#[derive(Debug)]
pub(crate) struct Scripts<'a> {
    pub(crate) settings: &'a SlurmSettings,
    /// Name of the experiment, for those who look at the queue.
    pub(crate) name: &'a str,
    /// The program, by an absolute path.
    pub(crate) program: PathBuf,
    /// The arguments of the command that writes the scripts.
    pub(crate) arguments: Vec<String>,
    /// The folder to which relative paths in the arguments refer.
    pub(crate) working_folder: PathBuf,
    /// Number of tasks among which all runs are dealt, and those of them that have runs left, ascending from 1.
    pub(crate) tasks: (usize, Vec<usize>),
}

/// Where the scripts were written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) array: PathBuf,
    pub(crate) merge: PathBuf,
}

impl Scripts<'_> {
    /// Writes both scripts into the folder, and makes that of their logs.
    ///
    /// # Errors
    /// A usage error for paths that Slurm cannot read, a failure where the folder cannot be written.
    pub(crate) fn write(&self, folder: &RunFolder) -> Result<Written, ExperimentError> {
        let scripts = folder.slurm();
        let logs = scripts.join("logs");
        make_folder(&logs)?;
        let logs = logs.canonicalize().map_err(|source| FileError::read(logs, source))?;
        let written = Written { array: scripts.join("array.sh"), merge: scripts.join("merge.sh") };
        write_atomically(&written.array, self.array(&logs)?.as_bytes())?;
        write_atomically(&written.merge, self.merge(&logs)?.as_bytes())?;
        Ok(written)
    }

    fn array(&self, logs: &Path) -> Result<String, ExperimentError> {
        let SlurmSettings { gpus, signal, at_once, requeues, .. } = self.settings;
        let (tasks, left) = &self.tasks;
        let at_once = at_once.map_or_else(String::new, |most| format!("%{most}"));
        let mut text = self.head("", &logs.join("%A_%a.txt"))?;
        let option = |text: &mut String, option: String| writeln!(text, "#SBATCH {option}").expect("a String takes all");
        option(&mut text, format!("--array={}{at_once}", ranges(left)));
        option(&mut text, format!("--signal=B:TERM@{signal}"));
        if let Some(gpus) = gpus {
            option(&mut text, format!("--gpus={gpus}"));
        }
        text.push_str(&self.start());
        // A signal ends `wait`, and the program is to be waited for again. One that comes before the program listens ends it with 143, and nothing is lost.
        write!(
            text,
            r#"program= stopped=
trap 'stopped=yes; [ -z "$program" ] || kill -TERM "$program"' TERM
{command} --shard "$SLURM_ARRAY_TASK_ID/{tasks}" --resume{quiet} &
program=$!
[ -z "$stopped" ] || kill -TERM "$program"
stopped=yes
while [ "$stopped" ]; do
    stopped=
    wait "$program"
    code=$?
done
trap '' TERM

# A run that was stopped has saved a checkpoint. One that was cancelled is no longer running for Slurm, and stays away. SLURM_JOB_ID is no name of the task: for
# one of them it is that of the whole array.
task=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
state=$(squeue --noheader --jobs="$task" --format=%T)
if [[ "$code" = {INTERRUPTED_EXIT} || "$code" = 143 ]] && [ "$state" = RUNNING ]; then
    if [ "${{SLURM_RESTART_COUNT:-0}}" -lt {requeues} ]; then
        echo "stopped after saving a checkpoint; the task is queued again"
        scontrol requeue "$task"
    else
        echo "stopped after saving a checkpoint; the task was queued again {requeues} times (slurm.requeues), and is not any more" >&2
    fi
fi
exit "$code"
"#,
            command = self.command(),
            quiet = self.quiet(),
        )
        .expect("a String takes all");
        Ok(text)
    }

    fn merge(&self, logs: &Path) -> Result<String, ExperimentError> {
        let mut text = self.head("-merge", &logs.join("merge_%j.txt"))?;
        text.push_str(&self.start());
        writeln!(text, "exec {} --merge{}", self.command(), self.quiet()).expect("a String takes all");
        Ok(text)
    }

    /// What both scripts ask Slurm for.
    fn head(&self, suffix: &str, log: &Path) -> Result<String, ExperimentError> {
        let SlurmSettings { partition, account, qos, constraint, nodelist, exclude, time, cpus, memory, extra, .. } = self.settings;
        let cpus = cpus.as_ref().map(ToString::to_string);
        let asked = [
            ("partition", partition.as_ref()),
            ("account", account.as_ref()),
            ("qos", qos.as_ref()),
            ("constraint", constraint.as_ref()),
            ("nodelist", nodelist.as_ref()),
            ("exclude", exclude.as_ref()),
            ("cpus-per-task", cpus.as_ref()),
            ("mem", memory.as_ref()),
        ];
        let mut options = vec![
            format!("--job-name=heedful-{}{suffix}", self.name),
            format!("--chdir={}", path(&self.working_folder, false)?),
            format!("--output={}", path(log, true)?),
            "--open-mode=append".to_owned(),
            "--requeue".to_owned(),
            format!("--time={time}"),
        ];
        options.extend(asked.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?))));
        options.extend(extra.iter().cloned());
        let lines: String = options.iter().map(|option| format!("#SBATCH {option}\n")).collect();
        Ok(format!("#!/bin/bash\n# Written by --slurm, which writes it anew.\n{lines}"))
    }

    /// The lines of both scripts before the program is called.
    fn start(&self) -> String {
        let prologue: String = self.settings.prologue.iter().map(|line| format!("{line}\n")).collect();
        let threads = match self.settings.cpus {
            Some(_) => "export RAYON_NUM_THREADS=\"$SLURM_CPUS_PER_TASK\"\n",
            None => "",
        };
        format!("\n{prologue}{threads}")
    }

    fn command(&self) -> String {
        let given = self.arguments.iter().filter(|argument| !OWN.contains(&argument.as_str()));
        quoted(std::iter::once(self.program.to_string_lossy().into_owned()).chain(given.cloned()))
    }

    /// A log that several attempts append to is no place for progress, unless it was asked for.
    fn quiet(&self) -> &'static str {
        if self.arguments.iter().any(|argument| ["--verbose", "-v"].contains(&argument.as_str())) { "" } else { " --quiet" }
    }
}

/// A path as the lines `#SBATCH` have it: within double quotes. In names of logs `%` begins what Slurm fills in.
fn path(path: &Path, is_log: bool) -> Result<String, ExperimentError> {
    let refuse = |problem: &str| ExperimentError::usage(format!("--slurm: the path `{}` {problem}; choose another folder", path.display()));
    let text = path.to_str().ok_or_else(|| refuse("is not UTF-8, which Slurm's scripts have to be"))?;
    if text.contains(|letter: char| letter.is_control() || "\"\\".contains(letter)) {
        return Err(refuse("has a quote, a backslash or a line break, which Slurm does not read as such"));
    }
    let Some((folder, name)) = text.rsplit_once('/').filter(|_| is_log) else { return Ok(format!("\"{text}\"")) };
    Ok(format!("\"{}/{name}\"", folder.replace('%', "%%")))
}

/// Numbers as Slurm lists the tasks of an array: `1-3,7`.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn scripts<'a>(settings: &'a SlurmSettings, arguments: &[&str]) -> Scripts<'a> {
        Scripts {
            settings,
            name: "mt",
            program: "/programs/my mt".into(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            working_folder: "/home/a b/50% #1".into(),
            tasks: (12, vec![1, 2, 3, 7]),
        }
    }

    #[test]
    fn tasks_are_listed_by_ranges() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), "1-3,7,9-10");
        assert_eq!(ranges(&[4]), "4");
    }

    #[test]
    fn the_head_asks_for_what_the_table_says() {
        let settings: SlurmSettings = toml::from_str(
            "partition = 'gpu'\ncpus = 4\nmemory = '8G'\ngpus = 1\nat_once = 2\nsignal = 60\nextra = ['--mail-type=FAIL']\nprologue = ['module load cuda']",
        )
        .unwrap();
        let scripts = scripts(&settings, &["--data", "it's here", "--slurm", "--submit", "-q", "--resume", "--seeds", "3"]);
        let array = scripts.array(Path::new("/runs/50%/logs")).unwrap();
        let merge = scripts.merge(Path::new("/runs/50%/logs")).unwrap();
        for script in [&array, &merge] {
            for line in [
                "#SBATCH --chdir=\"/home/a b/50% #1\"",
                "#SBATCH --open-mode=append",
                "#SBATCH --requeue",
                "#SBATCH --time=1:00:00",
                "#SBATCH --partition=gpu",
                "#SBATCH --cpus-per-task=4",
                "#SBATCH --mem=8G",
                "#SBATCH --mail-type=FAIL",
                "module load cuda",
                "export RAYON_NUM_THREADS=\"$SLURM_CPUS_PER_TASK\"",
            ] {
                assert!(script.lines().any(|found| found == line), "no `{line}` in:\n{script}");
            }
            assert!(script.contains("'/programs/my mt' --data 'it'\\''s here' --seeds 3 --"), "{script}");
            assert!(["--slurm --", "--submit", "-q ", "--account"].iter().all(|part| !script.contains(part)), "{script}");
            assert_eq!(script.matches("--quiet").count(), 1);
        }
        for part in
            ["--array=1-3,7%2\n", "--signal=B:TERM@60\n", "--gpus=1\n", "=\"/runs/50%%/logs/%A_%a.txt\"\n", "_ID/12\" --resume --quiet &"]
        {
            assert!(array.contains(part) && !merge.contains(part), "no `{part}` in:\n{array}");
        }
        assert!(
            merge.contains("=\"/runs/50%%/logs/merge_%j.txt\"\n") && merge.contains("exec ") && merge.contains("--merge --quiet"),
            "{merge}"
        );
    }

    #[test]
    fn progress_that_was_asked_for_is_logged() {
        let settings = SlurmSettings::default();
        let array = scripts(&settings, &["-v"]).array(Path::new("/logs")).unwrap();
        assert!(array.contains(" -v --shard") && !array.contains("--quiet"), "{array}");
    }

    #[test]
    fn paths_that_slurm_cannot_read_are_refused() {
        for wrong in ["/a\"b", "/a\\b", "/a\nb"] {
            let message = path(Path::new(wrong), false).unwrap_err().to_string();
            assert!(message.contains("choose another folder"), "{message}");
        }
    }

    /// The script with programs of Slurm that write down how they are called; the program is a script as well. Returns the exit code and what was written.
    #[cfg(unix)]
    fn run(program: &str, state: &str, restarts: &str, send: bool) -> (i32, String) {
        use std::os::unix::fs::PermissionsExt;
        use std::process::Command;

        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let executable = |name: &str, text: &str| {
            fs::write(place(name), format!("#!/bin/bash\n{text}\n")).unwrap();
            fs::set_permissions(place(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        let called = place("called").display().to_string();
        executable("squeue", &format!("echo {state}"));
        executable("scontrol", &format!("echo \"scontrol $*\" >>'{called}'"));
        // It is known to be called once it listens to signals, where it does.
        let (listens, works) = program.rsplit_once('\n').unwrap_or(("", program));
        executable("program", &format!("{listens}\necho \"program $*\" >>'{called}'\n{works}"));
        let settings = SlurmSettings { requeues: 2, ..Default::default() };
        let scripts = Scripts { program: place("program"), ..scripts(&settings, &["--seeds", "3"]) };
        fs::write(place("array.sh"), scripts.array(Path::new("/logs")).unwrap()).unwrap();
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.arg(place("array.sh")).env("PATH", path).env("SLURM_ARRAY_TASK_ID", "3").env("SLURM_ARRAY_JOB_ID", "9");
        command.env("SLURM_RESTART_COUNT", restarts).stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        if send {
            while !place("called").exists() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        }
        let code = child.wait().unwrap().code().unwrap();
        (code, fs::read_to_string(place("called")).unwrap())
    }

    #[cfg(unix)]
    #[test]
    fn a_task_that_is_told_to_stop_waits_for_its_program_and_is_queued_again() {
        let stops = "trap 'sleep 0.3; exit 130' TERM\nwhile :; do sleep 0.05; done";
        let called = "program --seeds 3 --shard 3/12 --resume --quiet\n";
        let (code, written) = run(stops, "RUNNING", "1", true);
        assert_eq!((code, written), (130, format!("{called}scontrol requeue 9_3\n")));
        let (code, written) = run("while :; do sleep 0.05; done", "RUNNING", "0", true);
        assert_eq!((code, written), (143, format!("{called}scontrol requeue 9_3\n")), "it did not listen yet");
        // Often enough, cancelled, finished and failed.
        assert_eq!(run(stops, "RUNNING", "2", true), (130, called.to_owned()));
        assert_eq!(run(stops, "COMPLETING", "0", true), (130, called.to_owned()));
        assert_eq!(run("exit 0", "RUNNING", "0", false), (0, called.to_owned()));
        assert_eq!(run("exit 1", "RUNNING", "0", false), (1, called.to_owned()));
    }
}
