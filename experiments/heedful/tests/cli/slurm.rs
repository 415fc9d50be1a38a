//! The runs of a folder as an array job of Slurm, and what is seen of them. `.ci/slurm` does the same with a real Slurm.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::command::{Run, TINY, binary, final_weights, places, records, refused, stderr, stdout, succeeded, text_folder};

/// Language models of two attentions and two seeds.
fn train(data: &Path, out: &Path, further: &[&str]) -> Command {
    let mut command = binary("lm");
    command.args(TINY).args(["--set", "data={context = 16, stride = 8, batch = 4}"]);
    command.args(["--attention", "dot-product,gaussian", "--seeds", "2"]).arg("--data").arg(data).arg("--out").arg(out).args(further);
    command
}

/// Runs and their scores, sorted; speeds apart.
fn scores(out: &Path) -> Vec<String> {
    let mut scores: Vec<_> = records(out)
        .into_iter()
        .map(|mut record| {
            record["metrics"].as_object_mut().unwrap().remove("steps per second").unwrap();
            let fields = ["attention", "seed", "metrics", "steps", "configuration", "data_sha256"];
            fields.map(|name| record[name].to_string()).join(" ")
        })
        .collect();
    scores.sort();
    scores
}

fn status(out: &Path) -> String {
    let output = binary("status").arg(out).succeeds();
    stdout(&output)
}

/// Programs of Slurm that write down how they are called, in a folder for `PATH`.
struct FakeSlurm(tempfile::TempDir);

impl FakeSlurm {
    fn new(programs: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in programs {
            let path = folder.path().join(name);
            let called = folder.path().join("called");
            fs::write(&path, format!("#!/bin/bash\necho \"{name} $*\" >>'{}'\n{text}\n", called.display())).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    fn run(&self, command: &mut Command) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        command.env("PATH", path).output().unwrap()
    }

    fn called(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join("called")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// One task of the array as Slurm runs it, in the folder that the script names.
fn task(slurm: &FakeSlurm, script: &Path, number: &str, folder: &Path) -> Output {
    let mut command = Command::new("bash");
    command.arg(script).current_dir(folder).env_remove("RUST_LOG").env_remove("RAYON_NUM_THREADS");
    command.env("SLURM_ARRAY_JOB_ID", "9").env("SLURM_ARRAY_TASK_ID", number).env("SLURM_CPUS_PER_TASK", "1");
    slurm.run(&mut command)
}

#[test]
fn the_scripts_do_the_runs_and_merge_them() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let (alone, here) = (folder.path().join("alone"), folder.path().join("it's a $place"));
    train(data.path(), &alone, &[]).succeeds();
    // The path of the output folder is relative, and that of its parent has what a shell would take for its own.
    fs::create_dir(&here).unwrap();
    let out = here.join("my runs");
    let further = ["--slurm", "--set", "slurm={cpus = 1, at_once = 3, prologue = ['echo \"on $(uname)\"']}"];
    let written = train(data.path(), Path::new("my runs"), &further).current_dir(&here).succeeds();
    let shown = stdout(&written);
    for part in
        ["4 of 4 runs are in 4 tasks", "--parsable 'my runs/slurm/array.sh'", "'my runs/slurm/merge.sh'", "heedful status 'my runs'"]
    {
        assert!(shown.contains(part), "no {part} in: {shown}");
    }
    assert!(out.join("slurm/logs").is_dir() && out.join("config.toml").exists() && !out.join("results.json").exists());
    let array = fs::read_to_string(out.join("slurm/array.sh")).unwrap();
    let place = here.canonicalize().unwrap();
    for line in ["--array=1-4%3", "--signal=B:TERM@120", "--requeue", "--cpus-per-task=1", &format!("--chdir=\"{}\"", place.display())] {
        assert!(array.lines().any(|found| found == format!("#SBATCH {line}")), "no {line} in: {array}");
    }
    assert!(array.contains(&format!("--output=\"{}/my runs/slurm/logs/%A_%a.txt\"", place.display())), "{array}");

    let slurm = FakeSlurm::new(&[("squeue", "echo RUNNING"), ("scontrol", ":")]);
    let (array, merge) = (out.join("slurm/array.sh"), out.join("slurm/merge.sh"));
    for number in ["3", "1", "4"] {
        let output = task(&slurm, &array, number, &here);
        succeeded(&output);
        assert!(stdout(&output).contains("on "), "{}", stdout(&output));
    }
    assert!(status(&out).ends_with("4 runs: 3 finished, 1 waiting\n"), "{}", status(&out));
    // What is missing is named, and what is there is shown.
    let output = task(&slurm, &merge, "", &here);
    refused(&output, 1, &["1 of the 4 runs are missing", "gaussian, seed 1 (waiting)", "--resume", "--slurm"]);
    assert!(stdout(&output).contains("dot-product") && records(&out).len() == 3);
    // What is left is all that is asked for.
    let again = train(data.path(), Path::new("my runs"), &further).current_dir(&here).output().unwrap();
    assert!(stdout(&again).contains("1 of 4 runs are in 1 tasks"), "{}", stdout(&again));
    assert!(fs::read_to_string(&array).unwrap().contains("--array=2%3\n"));
    succeeded(&task(&slurm, &array, "2", &here));
    let output = task(&slurm, &merge, "", &here);
    succeeded(&output);
    assert!(stdout(&output).contains("Report: my runs/report.md"), "{}", stdout(&output));
    assert_eq!(scores(&out), scores(&alone));
    for run in ["dot-product-seed1", "gaussian-seed1", "dot-product-seed2", "gaussian-seed2"] {
        assert_eq!(final_weights(&out.join(run)), final_weights(&alone.join(run)), "{run}");
    }
    let done = train(data.path(), Path::new("my runs"), &further).current_dir(&here).output().unwrap();
    assert!(stdout(&done).contains("All 4 runs are finished"), "{}", stdout(&done));
    assert!(slurm.called().iter().all(|call| !call.starts_with("scontrol")), "{:?}", slurm.called());
}

#[test]
fn a_model_has_to_fit_into_the_memory_of_a_task_and_not_of_the_machine_that_writes_the_scripts() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    // No machine holds it.
    let asked = |name: &str, memory: &[&str]| {
        let model = ["--slurm", "--set", "model.d_model=10000000"];
        train(data.path(), &folder.path().join(name), &[&model[..], memory].concat()).output().unwrap()
    };
    let output = asked("small", &["--set", "slurm.memory='4G'"]);
    refused(&output, 2, &["`--set model.d_model=10000000`", "4.0 GiB are available", "ask for more with slurm.memory"]);
    assert!(!folder.path().join("small").exists());
    for (name, memory) in [("unknown", &[][..]), ("large", &["--set", "slurm.memory='9000000T'"])] {
        succeeded(&asked(name, memory));
        assert!(folder.path().join(name).join("slurm/array.sh").exists());
    }
}

#[test]
fn a_task_that_is_stopped_goes_on_where_it_was() {
    let (data, (folder, [whole, out])) = (text_folder(), places(["whole", "stopped"]));
    let long = |out: &Path, further: &[&str]| train(data.path(), out, &[&["--steps", "400", "--shard", "1/4"], further].concat());
    long(&whole, &[]).succeeds();
    train(data.path(), &out, &["--steps", "400", "--slurm"]).succeeds();
    let slurm = FakeSlurm::new(&[("squeue", "echo RUNNING"), ("scontrol", ":")]);
    let script = out.join("slurm/array.sh");
    let output = std::thread::scope(|scope| {
        let task = scope.spawn(|| task(&slurm, &script, "1", folder.path()));
        while !out.join("dot-product-seed1/checkpoint/latest").exists() {
            assert!(!task.is_finished(), "the task ended before its first checkpoint");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        // As `scancel --batch` does, to the script alone: the parent of who works on the run.
        let lock: Value = serde_json::from_str(&fs::read_to_string(out.join("dot-product-seed1/lock.json")).unwrap()).unwrap();
        assert_eq!(lock["slurm"], json!({"cluster": "", "job": "9", "task": "1", "restart": 0}));
        let stat = fs::read_to_string(format!("/proc/{}/stat", lock["id"])).unwrap();
        let parent = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().to_owned();
        Command::new("kill").args(["-TERM", &parent]).succeeds();
        task.join().unwrap()
    });
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(slurm.called(), ["squeue --noheader --jobs=9_1 --format=%T", "scontrol requeue 9_1"]);
    assert!(status(&out).contains("interrupted"), "{}", status(&out));
    succeeded(&task(&slurm, &script, "1", folder.path()));
    assert_eq!(scores(&out), scores(&whole));
    assert_eq!(final_weights(&out.join("dot-product-seed1")), final_weights(&whole.join("dot-product-seed1")));
}

#[test]
fn a_later_attempt_takes_over_the_lock_of_an_earlier_one_on_another_machine() {
    let (data, (_folder, [out])) = (text_folder(), places(["out"]));
    train(data.path(), &out, &["--shard", "9/9"]).succeeds();
    let lock = out.join("dot-product-seed1/lock.json");
    fs::create_dir(lock.parent().unwrap()).unwrap();
    let attempt = json!({"cluster": "c", "job": "7", "task": "1", "restart": 0});
    fs::write(&lock, json!({"host": "node7", "machine": "0", "id": 7, "started": "1", "slurm": attempt}).to_string()).unwrap();
    let mut command = train(data.path(), &out, &["--shard", "1/4", "--resume"]);
    command.env("SLURM_CLUSTER_NAME", "c").env("SLURM_ARRAY_JOB_ID", "7").env("SLURM_ARRAY_TASK_ID", "1");
    command.refuses(1, &["process 7 on node7", "lock.json"]);
    assert!(status(&out).contains("process 7 on node7") && status(&out).contains("(not checked)"), "{}", status(&out));
    command.env("SLURM_RESTART_COUNT", "1").succeeds();
    assert!(!lock.exists() && records(&out).len() == 1);
}

#[test]
fn jobs_are_submitted_with_the_merge_behind_the_array() {
    let (data, (folder, [out])) = (text_folder(), places(["out"]));
    let submit = |slurm: &FakeSlurm| slurm.run(&mut train(data.path(), &out, &["--slurm", "--submit"]));
    let [array, merge] = ["array", "merge"].map(|name| out.join(format!("slurm/{name}.sh")).display().to_string());
    let slurm = FakeSlurm::new(&[("sbatch", "case $* in *array.sh) echo '41;c';; *) echo 42;; esac")]);
    let output = submit(&slurm);
    succeeded(&output);
    assert!(stdout(&output).contains("4 tasks of job 41") && stdout(&output).contains("is job 42."), "{}", stdout(&output));
    assert_eq!(slurm.called(), [format!("sbatch --parsable {array}"), format!("sbatch --parsable --dependency=afterany:41 {merge}")]);

    let full = FakeSlurm::new(&[("sbatch", "echo 'sbatch: error: Invalid job array\nspecification' >&2; exit 3")]);
    refused(&submit(&full), 1, &["array.sh", "Invalid job array specification", "slurm.tasks", "nothing was submitted"]);
    let half = FakeSlurm::new(&[("sbatch", "case $* in *array.sh) echo 41;; *) echo no >&2; exit 1;; esac")]);
    refused(&submit(&half), 1, &["merge.sh", "the array is job 41", "sbatch --dependency=afterany:41", "scancel 41"]);
    refused(&submit(&FakeSlurm::new(&[("sbatch", "echo Submitted")])), 1, &["no number of a job", "Submitted"]);
    let mut nowhere = train(data.path(), &out, &["--slurm", "--submit"]);
    nowhere.env("PATH", folder.path()).refuses(1, &["no `sbatch`", "--submit"]);
}

#[test]
fn what_the_options_cannot_mean_is_refused() {
    let (data, (folder, [out])) = (text_folder(), places(["out"]));
    let refuse = |further: &[&str], parts: &[&str]| {
        train(data.path(), &out, further).refuses(2, parts);
        assert!(!out.exists(), "{further:?}");
    };
    // The rest of this message stands in further lines.
    refuse(&["--submit"], &["required"]);
    for other in [&["--shard", "1/2"][..], &["--dry-run"], &["--print-config"], &["--list"], &["--merge"]] {
        refuse(&[&["--slurm"], other].concat(), &["--slurm", other[0]]);
    }
    refuse(&["--merge", "--shard", "1/2"], &["--merge", "--shard"]);
    refuse(&["--merge"], &["holds no runs", "--out"]);
    refuse(&["--slurm", "--set", "slurm.partitoin=gpu"], &["partitoin", "partition"]);
    refuse(&["--set", "slurm.signal=7200"], &["--set slurm.signal=7200", "slurm.time"]);
    // Without --attention, beside which models come from --model alone.
    let models = "run.models=[{name='a', attention='gaussian', set={slurm={cpus=1}}}]";
    let output = binary("lm").args(["--set", models, "--out"]).arg(&out).output().unwrap();
    refused(&output, 2, &["slurm", "leave it out"]);
    let broken = folder.path().join("a\"b");
    train(data.path(), &broken, &["--slurm"]).refuses(2, &["a quote", "choose another folder"]);
}

#[test]
fn where_runs_are_done_is_no_part_of_what_they_are() {
    let (data, (_folder, [out])) = (text_folder(), places(["out"]));
    train(data.path(), &out, &["--shard", "1/2"]).succeeds();
    let config = || fs::read_to_string(out.join("config.toml")).unwrap();
    // A folder of a version without the table.
    let earlier = config().split("\n[").filter(|table| !table.starts_with("slurm]")).collect::<Vec<_>>().join("\n[");
    assert!(earlier.len() + 200 < config().len());
    fs::write(out.join("config.toml"), &earlier).unwrap();
    train(data.path(), &out, &["--resume", "--shard", "1/2"]).succeeds();
    assert_eq!(config(), earlier);
    let output = train(data.path(), &out, &["--resume", "--set", "slurm.partition=long"]).succeeds();
    assert!(stderr(&output).contains("2 runs in") && config().contains("partition = \"long\""), "{}", stderr(&output));
    let digests: Vec<_> = records(&out).iter().map(|record| record["configuration"].clone()).collect();
    assert!(digests.len() == 4 && digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

#[test]
fn a_run_that_fails_says_why_until_it_is_begun_again() {
    let (data, (folder, [out])) = (text_folder(), places(["out"]));
    train(data.path(), &out, &["--shard", "9/9"]).succeeds();
    // No file can be written in the place of a folder.
    let log: PathBuf = out.join("gaussian-seed1/log.jsonl");
    fs::create_dir_all(&log).unwrap();
    train(data.path(), &out, &[]).refuses(1, &["log.jsonl"]);
    let error = fs::read_to_string(out.join("gaussian-seed1/error.txt")).unwrap();
    assert!(error.contains("log.jsonl") && error.ends_with('\n'), "{error}");
    assert!(status(&out).contains("4 runs: 1 finished, 1 failed, 2 waiting"), "{}", status(&out));
    let output = binary("status").arg(&out).arg("--json").output().unwrap();
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let run = &shown["runs"][1];
    assert_eq!((&run["run"], &run["state"], &run["steps"]), (&json!("gaussian-seed1"), &json!("failed"), &json!(8)));
    assert!(run["error"].as_str().unwrap().contains("log.jsonl"), "{run}");
    assert_eq!((&shown["runs"][0]["step"], &shown["runs"][0]["selected"]["metric"]), (&json!(8), &json!("perplexity")));
    train(data.path(), &out, &["--merge"]).refuses(1, &["3 of the 4 runs", "gaussian, seed 1 (failed: ", "log.jsonl"]);
    fs::remove_dir(&log).unwrap();
    train(data.path(), &out, &["--resume"]).succeeds();
    assert!(!out.join("gaussian-seed1/error.txt").exists());
    assert!(status(&out).ends_with("4 runs: 4 finished\n"), "{}", status(&out));
    binary("status").arg(folder.path()).refuses(2, &["no config.toml", "--out"]);
}
