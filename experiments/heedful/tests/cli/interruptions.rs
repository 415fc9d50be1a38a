//! Every experiment, killed at any moment or interrupted, and continued.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use heedful_random::RandomKey;
use rand::RngExt;
use serde_json::{Map, Value};

use crate::command::{
    Run, binary, final_weights, parallel_folder, places, records, small_model, stderr, succeeded, text_folder, wait_until,
};

const KILLS: usize = 20;

/// All of a run that does not depend on how long it took.
#[derive(PartialEq)]
struct Outcome {
    weights: Vec<u8>,
    scores: Map<String, Value>,
    losses: Vec<(u64, f64)>,
}

/// An experiment with settings of which a run takes some seconds.
struct Experiment {
    name: &'static str,
    /// Folder of its only run.
    run: &'static str,
    steps: usize,
    further: Vec<String>,
}

impl Experiment {
    fn new(name: &'static str, run: &'static str, steps: usize, further: &[&str]) -> Self {
        Self { name, run, steps, further: further.iter().map(|&argument| argument.to_owned()).collect() }
    }

    fn command(&self, out: &Path) -> Command {
        let mut command = binary(self.name);
        let Self { steps, .. } = self;
        let training = format!("training={{steps = {steps}, evaluate_every = {}, checkpoint_every = 5, log_every = 10}}", steps / 4);
        command.args(["--set", small_model(self.name), "--set", &training]).args(&self.further).arg("--resume").arg("--out").arg(out);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn finish(&self, out: &Path) {
        self.command(out).succeeds();
    }

    fn outcome(&self, out: &Path) -> Outcome {
        let records = records(out);
        assert_eq!(records.len(), 1);
        let mut scores = records[0]["metrics"].as_object().unwrap().clone();
        scores.retain(|name, _| name != "steps per second");
        assert!(!scores.is_empty());
        let log = fs::read_to_string(out.join(self.run).join("log.jsonl")).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let losses: Vec<_> = lines.filter_map(|line| Some((line["step"].as_u64()?, line["loss"].as_f64()?))).collect();
        assert!(losses.len() >= self.steps / 10, "{losses:?}");
        Outcome { weights: final_weights(&out.join(self.run)), scores, losses }
    }

    /// Kills it at random moments, and continues it, which must not make a difference.
    fn survives_kills(&self) {
        let (_folder, [whole, killed]) = places(["whole", "killed"]);
        let begun = Instant::now();
        self.finish(&whole);
        let longest = begun.elapsed() / 2;
        let expected = self.outcome(&whole);
        let mut moments = RandomKey::from_seed(0).named(self.name).rng();
        let mut kills = 0;
        while kills < KILLS {
            let mut child = self.command(&killed).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(longest.mul_f64(moments.random()));
            let ended = child.try_wait().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            if let Some(status) = ended {
                assert!(status.success(), "{} ended by itself with {status} after {kills} kills", self.name);
                assert!(self.outcome(&killed) == expected, "{}: another outcome after {kills} kills", self.name);
                fs::remove_dir_all(&killed).unwrap();
            } else {
                kills += 1;
            }
        }
        self.finish(&killed);
        assert!(self.outcome(&killed) == expected, "{}: another outcome after {kills} kills", self.name);
    }

    /// Sends signals after its first checkpoint, and continues it.
    #[cfg(unix)]
    fn can_be_interrupted(&self, signals: &[&str]) {
        let (_folder, [whole, stopped]) = places(["whole", "stopped"]);
        self.finish(&whole);
        let latest = stopped.join(self.run).join("checkpoint/latest");
        let signalled = |_| {
            if stopped.exists() {
                fs::remove_dir_all(&stopped).unwrap();
            }
            let mut child = with_hangups(self.command(&stopped)).spawn().unwrap();
            wait_until(&mut child, || latest.exists());
            signals.iter().for_each(|signal| send(signal, &child));
            child.wait_with_output().unwrap()
        };
        // On a busy machine a run may be finished before the signal arrives.
        let output = (0..5).map(signalled).find(|output| !output.status.success()).expect("a signal arrives before the end");
        assert_eq!(output.status.code(), Some(130), "{}: {}", self.name, stderr(&output));
        assert!(stderr(&output).contains("--resume"), "{}: {}", self.name, stderr(&output));
        assert!(latest.exists() && !stopped.join("results.json").exists(), "{}", self.name);
        self.finish(&stopped);
        assert!(self.outcome(&stopped) == self.outcome(&whole), "{}", self.name);
    }

    fn survives_all(&self) {
        self.survives_kills();
        #[cfg(unix)]
        self.can_be_interrupted(&["INT"]);
    }
}

/// The command with what SIGHUP does by default. It would otherwise ignore it where the tests do, as under `nohup`.
#[cfg(unix)]
fn with_hangups(mut command: Command) -> Command {
    #[allow(unsafe_code, reason = "what a signal does has to be set between fork and exec")]
    // SAFETY: `signal` may be called there, and SIG_DFL runs no code of ours.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        });
    }
    command
}

#[cfg(unix)]
fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

const DOT_PRODUCT: [&str; 2] = ["--attention", "dot-product"];

#[test]
fn translation() {
    let data = parallel_folder();
    let further = ["--data", data.path().to_str().unwrap(), "--set", "decoding.extra_length=2"];
    Experiment::new("mt", "dot-product-seed1", 240, &[&DOT_PRODUCT[..], &further].concat()).survives_all();
}

#[test]
fn language_modelling() {
    let data = text_folder();
    let further = ["--data", data.path().to_str().unwrap(), "--set", "data={context = 16, stride = 8, batch = 4}"];
    Experiment::new("lm", "dot-product-seed1", 240, &[&DOT_PRODUCT[..], &further].concat()).survives_all();
}

#[test]
fn pre_training() {
    let data = text_folder();
    let further = ["--data", data.path().to_str().unwrap(), "--set", "data={context = 16, batch = 4}"];
    let masked = [&DOT_PRODUCT[..], &further].concat();
    Experiment::new("mlm", "dot-product-seed1", 240, &masked).survives_all();
    let spans = [&masked[..], &["--objective", "spans"]].concat();
    Experiment::new("mlm", "dot-product-seed1", 160, &spans).survives_all();
}

/// A language model that trains for some seconds, which any of the experiments stands for.
#[cfg(unix)]
fn signalled(data: &Path) -> Experiment {
    let further = ["--data", data.to_str().unwrap(), "--set", "data={context = 16, batch = 4}"];
    Experiment::new("mlm", "dot-product-seed1", 1000, &[&DOT_PRODUCT[..], &further].concat())
}

#[cfg(unix)]
#[test]
fn what_schedulers_send_saves_a_checkpoint_as_ctrl_c_does() {
    let data = text_folder();
    // `timeout` and schedulers send a signal to the process and once more to its group.
    signalled(data.path()).can_be_interrupted(&["TERM", "TERM"]);
    signalled(data.path()).can_be_interrupted(&["HUP"]);
}

/// Begins a command, waits for its first checkpoint, and hands it on.
#[cfg(unix)]
fn with_checkpoint(experiment: &Experiment, out: &Path) -> Child {
    let mut child = experiment.command(out).spawn().unwrap();
    wait_until(&mut child, || out.join(experiment.run).join("checkpoint/latest").exists());
    child
}

#[cfg(unix)]
#[test]
fn a_folder_that_disappears_ends_the_run_and_does_not_come_back() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let experiment = signalled(data.path());
    let [out, moved] = ["gone", "moved"].map(|name| folder.path().join(name));
    let child = with_checkpoint(&experiment, &out);
    // As when a file system is unmounted: all of it at once.
    fs::rename(&out, &moved).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("error: ") && message.contains("gone") && !message.contains("panicked"), "{message}");
    assert!(!out.exists(), "it was made again");
    // Where it is there again, the run goes on; its lock is that of a process that ended.
    fs::rename(&moved, &out).unwrap();
    experiment.finish(&out);
    let whole = folder.path().join("whole");
    experiment.finish(&whole);
    assert!(experiment.outcome(&out) == experiment.outcome(&whole));
}

#[cfg(unix)]
#[test]
fn a_disk_that_fills_up_in_the_middle_loses_nothing() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let mut experiment = signalled(data.path());
    experiment.further.extend(["--set", "training.log_every=1"].map(str::to_owned));
    let [whole, limited, disk] = ["whole", "limited", "disk"].map(|name| folder.path().join(name));
    experiment.finish(&whole);
    let expected = experiment.outcome(&whole);
    let shell = |script: &str, out: &Path| {
        let command = experiment.command(out);
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).arg(command.get_program()).args(command.get_args());
        let output = shell.output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let is_full = |(code, message): (Option<i32>, String)| {
        assert_eq!(code, Some(1), "{message}");
        assert!(message.contains("free space") && !message.contains("panicked"), "{message}");
    };
    // The log is the file that grows: a limit on the size of files below its own is met in the middle of the run.
    let largest = fs::metadata(whole.join(experiment.run).join("log.jsonl")).unwrap().len() / 2 / 1024;
    let weights = expected.weights.len() as u64 / 1024;
    assert!(largest > weights, "the log has {largest} KiB, the weights {weights}");
    is_full(shell(&format!("trap '' XFSZ; ulimit -f {largest}; exec \"$0\" \"$@\""), &limited));
    assert!(limited.join(experiment.run).join("checkpoint/latest").exists());
    experiment.finish(&limited);
    assert!(experiment.outcome(&limited) == expected);

    // A file system that is full until a file is deleted, where one may be made.
    fs::create_dir(&disk).unwrap();
    let mount = format!("mount -t tmpfs -o size=20m none '{0}' && head -c 20280k /dev/zero >'{0}/ballast'", disk.display());
    let may_mount = Command::new("unshare").args(["-rm", "sh", "-c", &mount]).output().is_ok_and(|output| output.status.success());
    if !may_mount {
        eprintln!("no file system may be mounted here, and none is filled");
        return;
    }
    let kept = folder.path().join("kept");
    let script = format!(
        "{mount} && {{ \"$0\" \"$@\"; code=$?; rm '{disk}/ballast' && \"$0\" \"$@\" >&2 && cp -r '{disk}/out' '{}' && exit $code; }}",
        kept.display(),
        disk = disk.display()
    );
    let mut alone = Command::new("unshare");
    let command = experiment.command(&disk.join("out"));
    alone.args(["-rm", "bash", "-c", &script]).arg(command.get_program()).args(command.get_args());
    let output = alone.output().unwrap();
    is_full((output.status.code(), stderr(&output)));
    assert!(experiment.outcome(&kept) == expected);
}

#[cfg(unix)]
#[test]
fn clocks_of_other_machines_make_no_difference() {
    use std::time::SystemTime;

    /// Lets all files of a folder be of another time.
    fn set_times(folder: &Path, time: SystemTime) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                set_times(&path, time);
            } else {
                fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            }
        }
    }

    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let experiment = signalled(data.path());
    let whole = folder.path().join("whole");
    experiment.finish(&whole);
    let expected = experiment.outcome(&whole);
    let years = Duration::from_secs(10 * 365 * 86_400);
    for (name, time) in [("ahead", SystemTime::now() + years), ("behind", SystemTime::now() - years)] {
        let out = folder.path().join(name);
        // Killed, so that its lock is of that time as well.
        let mut child = with_checkpoint(&experiment, &out);
        child.kill().unwrap();
        child.wait().unwrap();
        set_times(&out, time);
        let output = binary("status").arg(&out).succeeds();
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 interrupted"), "{output:?}");
        experiment.finish(&out);
        assert!(experiment.outcome(&out) == expected, "{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    let (data, (_folder, [whole, out])) = (text_folder(), places(["whole", "ignoring"]));
    let experiment = signalled(data.path());
    experiment.finish(&whole);
    let command = experiment.command(&out);
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    let mut child = ignoring.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(&mut child, || out.join(experiment.run).join("checkpoint/latest").exists());
    send("HUP", &child);
    succeeded(&child.wait_with_output().unwrap());
    assert!(experiment.outcome(&out) == experiment.outcome(&whole));
}

#[test]
fn another_outcome_is_told_apart() {
    let (data, folder) = (text_folder(), tempfile::tempdir().unwrap());
    let further = ["--data", data.path().to_str().unwrap(), "--set", "data={context = 16, batch = 4}"];
    let [one, other] = [("one", "1e-3"), ("other", "1.001e-3")].map(|(name, rate)| {
        let rate = format!("training.learning_rate={rate}");
        let further = [&DOT_PRODUCT[..], &further, &["--set", &rate]].concat();
        let (experiment, out) = (Experiment::new("mlm", "dot-product-seed1", 40, &further), folder.path().join(name));
        experiment.finish(&out);
        experiment.outcome(&out)
    });
    assert!(one.weights != other.weights && one.scores != other.scores && one.losses != other.losses);
}

#[test]
fn understanding() {
    let further = ["--task", "MRPC", "--set", "data.generated_examples=60"];
    Experiment::new("glue", "dot-product-seed1", 160, &[&DOT_PRODUCT[..], &further].concat()).survives_all();
}

#[test]
fn fine_tuning_of_a_pretrained_encoder() {
    let folder = crate::fine_tuning::bert();
    // The sizes of the encoder in place of those that all others have here.
    let sizes = "model={layers = 2, d_model = 16, heads = 4, d_ff = 24, max_length = 12}";
    let further =
        ["--pretrained", folder.path().to_str().unwrap(), "--task", "SST-2", "--set", "data.generated_examples=60", "--set", sizes];
    Experiment::new("glue", "unchanged-seed1", 240, &further).survives_all();
}

#[test]
fn classification_with_projections() {
    let further = ["--attention", "linformer", "--set", "data.generated_texts=60"];
    Experiment::new("classify", "linformer-seed1", 120, &further).survives_all();
}

#[test]
fn text_generation() {
    let further =
        ["--task", "dialogue", "--set", "data={generated_pairs = 60, test = 8}", "--set", "decoding={beam = 1, extra_length = 2}"];
    Experiment::new("textgen", "dot-product-seed1", 120, &[&DOT_PRODUCT[..], &further].concat()).survives_all();
}

#[test]
fn images() {
    let further = ["--attention", "lsh", "--set", "data={generated_images = 20, valid = 4, test = 4, batch = 4, samples = 1}"];
    Experiment::new("image", "lsh-seed1", 60, &further).survives_all();
}

#[test]
fn exercises() {
    let further = [
        "--model",
        "transformer",
        "--task",
        "copy",
        "--set",
        "data={length = 5, longer = 6, batch_tokens = 100, generated_examples = 60, generated_test = 8}",
    ];
    Experiment::new("algorithmic", "transformer-seed1", 120, &further).survives_all();
}

/// Few sequences, which are learnt several times.
const SEQUENCES: [&str; 6] =
    ["--attention", "dot-product", "--set", "model.layers=2", "--set", "data={batch = 4, train = 40, valid = 4, test = 4}"];

#[test]
fn sequences() {
    Experiment::new(
        "recall",
        "dot-product-seed1",
        120,
        &[&SEQUENCES[..], &["--task", "induction", "--set", "training.learning_rates=[]"]].concat(),
    )
    .survives_all();
}

#[test]
fn sequences_with_several_learning_rates() {
    Experiment::new("recall", "dot-product-seed1", 80, &[&SEQUENCES[..], &["--set", "training.learning_rates=[1e-4,1e-2]"]].concat())
        .survives_kills();
}

#[test]
fn a_swap_after_a_training_of_its_own() {
    let data = text_folder();
    let further = [
        "--data",
        data.path().to_str().unwrap(),
        "--attention",
        "synthesizer-random",
        "--set",
        "data={context = 16, stride = 8, batch = 4}",
        "--set",
        "start.steps=40",
    ];
    Experiment::new("swap", "synthesizer-random-seed1", 160, &further).survives_all();
}

#[test]
fn agents_with_a_memory() {
    let further = [
        "--model",
        "gtrxl",
        "--environment",
        "repeat-previous",
        "--set",
        "data={copies = 4, unroll = 16, memory = 16, evaluation_episodes = 4, test_episodes = 4}",
        "--set",
        "ppo.parts=2",
    ];
    Experiment::new("memory-rl", "gtrxl-seed1", 240, &further).survives_all();
}
