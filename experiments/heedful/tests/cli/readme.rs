//! The commands of the README and of the book, as they stand there, on little data and for two steps. Other tests run those of `parity`, of the examples, and
//! of the benchmarks. The option parser of the program reads the commands of all documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::command::{Run, binary, example, parallel_folder, succeeded, text_folder};
use crate::documents::{arguments_of_heedful, book, commands, documents, root, words};

/// The experiments and tools.
const COMMANDS: [&str; 22] = [
    "algorithmic",
    "analyse",
    "backends",
    "claims",
    "classify",
    "compare",
    "cost",
    "data",
    "glue",
    "image",
    "lm",
    "measure",
    "memory-rl",
    "mlm",
    "mt",
    "parity",
    "ponder",
    "recall",
    "status",
    "swap",
    "textgen",
    "track",
];
/// Those that other tests run.
const ELSEWHERE: [&str; 3] = ["backends", "cost", "parity"];

/// What makes training short.
const BRIEF_TRAINING: [&str; 7] = ["--quiet", "--steps", "2", "--set", "training.evaluate_every=2", "--set", "training.checkpoint_every=2"];

/// What makes a command of a binary short, after the arguments of the README.
fn brief(name: &str, arguments: &[&str]) -> Vec<&'static str> {
    if ["--list", "--list-presets", "--print-schema"].iter().any(|option| arguments.contains(option)) {
        return Vec::new();
    }
    let makes_data = !arguments.contains(&"--data");
    let further: &[&str] = match name {
        "mt" if makes_data => &["--set", "data.generated_pairs=60", "--set", "decoding={beam = 1, extra_length = 0}"],
        "mt" => &["--set", "decoding={beam = 1, extra_length = 0}"],
        "textgen" => &["--set", "decoding={beam = 1, extra_length = 0}"],
        "lm" => &["--set", "data={context = 16, stride = 8, batch = 2}"],
        "mlm" => &["--set", "data={context = 16, batch = 2}"],
        "glue" | "classify" => &[],
        "algorithmic" => &["--set", "data={generated_examples = 40, generated_test = 8}"],
        "image" => &["--set", "data={generated_images = 20, valid = 4, test = 4, batch = 4, samples = 1}"],
        "memory-rl" => &["--set", "data={copies = 4, unroll = 16, memory = 16, evaluation_episodes = 4, test_episodes = 4}"],
        "ponder" => &["--set", "data.train=64", "--set", "data.valid=4", "--set", "data.test=4"],
        "recall" | "track" => &["--set", "data.train=64", "--set", "data.valid=4", "--set", "data.test=4"],
        // The texts that the model reads here are short.
        "swap" if arguments.contains(&"--run") => &["--set", "mechanisms.sliding-window.window=4"],
        "swap" => &["--set", "start.steps=2", "--set", "data={context = 32, stride = 32, batch = 32}"],
        "analyse" | "backends" | "claims" | "compare" | "completions" | "cost" | "data" | "measure" | "parity" | "status" => {
            return Vec::new();
        }
        other => panic!("the README has `{other}`, which this test does not shorten"),
    };
    // The presets' numbers of tokens are more than a little text has.
    let tokens: &[&str] = if arguments.contains(&"--preset") { &["--set", "tokeniser={kind = \"word\"}"] } else { &[] };
    [&BRIEF_TRAINING[..], further, tokens].concat()
}

fn copied(from: &Path, to: &Path, name: impl Fn(&str) -> String) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(name(&path.file_name().unwrap().to_string_lossy()))).unwrap();
    }
}

/// Data in the folders that the README names.
fn little_data(folder: &Path) {
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    copied(parallel_folder().path(), &folder.join("multi30k/raw"), str::to_owned);
    copied(text_folder().path(), &folder.join("ptb"), |name| name.replace("small", "ptb"));
    write("tinyshakespeare/input.txt", "All:\nSpeak, speak. You are all resolved?\n\n".repeat(60));
    let cola = "gj04\t1\t\tThey left .\ngj04\t0\t*\tLeft they a .\n";
    let rte = "index\tsentence1\tsentence2\tlabel\n0\tIt rains .\tIt is wet .\tentailment\n1\tIt snows .\tIt is hot .\tnot_entailment\n";
    let mrpc = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\tIt rains .\tThere is rain .\n0\t3\t4\tIt snows .\tIt is hot .\n";
    for (task, text) in [("CoLA", cola.repeat(4)), ("RTE", rte.to_owned()), ("MRPC", mrpc.to_owned())] {
        write(&format!("glue/{task}/train.tsv"), text.clone());
        write(&format!("glue/{task}/dev.tsv"), text);
    }
    let dialogue = "1 your persona: i have two dogs.\n2 hi !\thello .\n3 what do you have ?\ttwo dogs .\n";
    write("personachat/valid_self_original_no_cands.txt", dialogue.repeat(20));
    let news = (0..12)
        .map(|n| format!("\"{}\",\"Title {n}\",\"{}\"\n", n % 4 + 1, format!("Some news of kind {n} . ").repeat(5).trim_end()))
        .collect::<String>();
    write("ag_news/train.csv", news.clone());
    write("ag_news/test.csv", news);
    write("ag_news/classes.txt", "World\nSports\nBusiness\nSci/Tech\n".to_owned());
}

#[cfg(unix)]
#[test]
fn the_commands_of_the_readme_and_the_book_run() {
    let folder = tempfile::tempdir().unwrap();
    little_data(folder.path());
    std::os::unix::fs::symlink(root().join("experiments"), folder.path().join("experiments")).unwrap();
    std::os::unix::fs::symlink(folder.path(), folder.path().join("data")).unwrap();
    let mut run = BTreeSet::new();
    let mut done = BTreeSet::new();
    // In the order in which a person reads them: later chapters compare the runs of the quick start.
    let chapters = fs::read_to_string(book().join("SUMMARY.md")).unwrap();
    let chapters = chapters.lines().filter_map(|line| Some(book().join(line.rsplit_once("](")?.1.strip_suffix(')')?)));
    for document in std::iter::once(root().join("README.md")).chain(chapters) {
        for command in commands(&document) {
            if let ["cargo", "run", "--release", "--example", name @ ("brackets" | "sort" | "series"), "--", arguments @ ..] =
                &words(&command).iter().map(String::as_str).collect::<Vec<_>>()[..]
            {
                let further: &[&str] = if arguments.contains(&"analyse") { &["--texts", "2"] } else { &BRIEF_TRAINING };
                eprintln!("{command}");
                example(name).args(arguments.iter()).args(further).current_dir(folder.path()).succeeds();
                continue;
            }
            let Some(arguments) = arguments_of_heedful(&words(&command)) else { continue };
            let Some((name, arguments)) = arguments.split_first() else { continue };
            if ELSEWHERE.contains(&name.as_str()) || !done.insert(command.clone()) {
                continue;
            }
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            if ["--out", "--list", "--list-presets", "--dry-run", "--print-schema"].iter().all(|option| !arguments.contains(option)) {
                // A person would give it another folder.
                let _ = fs::remove_dir_all(folder.path().join("runs").join(name));
            }
            let output = binary(name).args(&arguments).args(brief(name, &arguments)).current_dir(folder.path()).output().unwrap();
            eprintln!("{command}");
            if arguments.contains(&"--exactly") {
                assert_eq!(output.status.code(), Some(1), "two steps do not give the recorded digits");
            } else {
                succeeded(&output);
            }
            run.insert(name.clone());
        }
    }
    for name in COMMANDS {
        assert!(ELSEWHERE.contains(&name) || run.contains(name), "neither the README nor the book has a command for {name}");
    }
}

#[test]
fn the_commands_of_all_documents_are_understood() {
    let mut count = 0;
    for document in documents() {
        for command in commands(&document) {
            let words = words(&command);
            let problem = match arguments_of_heedful(&words) {
                Some(arguments) => refusal("heedful", &arguments),
                None => misnamed(&words),
            };
            assert_eq!(problem, None, "{}: {command}", document.display());
            count += 1;
        }
    }
    assert!(count > 80, "{count} commands");
}

#[test]
fn a_command_that_is_wrong_is_not_understood() {
    let wrong = |arguments: &[&str]| arguments.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    assert!(refusal("lm", &wrong(&["--attentoin", "gaussian"])).is_some());
    assert!(refusal("lm", &wrong(&["--seeds", "many"])).is_some());
    assert!(refusal("heedful", &wrong(&["data", "chekc", "multi30k"])).is_some());
    for command in [
        "cargo run --release --example nothing",
        "cargo build --release --features heedful-experiments/nothing",
        "cargo build --release --bin nothing",
        "cargo run --release --manifest-path examples/nothing/Cargo.toml",
        "benches/gpu/nothing kit",
        "nothing --at-all",
        "mpirun -n 2 target/release/heedful lm --data-paralel",
    ] {
        assert!(misnamed(&words(command)).is_some(), "{command}");
    }
}

/// What the option parser of a program says against arguments. It reads all of them before it comes to `--help`.
fn refusal(name: &str, arguments: &[String]) -> Option<String> {
    let output = binary(name).args(arguments).arg("--help").output().unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// What a command names that is not there, if it runs none of our programs.
fn misnamed(words: &[String]) -> Option<String> {
    let option = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    let exists = |path: &str| root().join(path).exists();
    let program = words[0].as_str();
    if program.contains('/') {
        return (!exists(program)).then(|| format!("there is no {program}"));
    }
    if let "mpirun" | "srun" = program {
        let at = words.iter().position(|word| word.starts_with("target/release/")).expect("it starts a program of ours");
        return refusal(&words[at]["target/release/".len()..], &words[at + 1..]);
    }
    if program != "cargo" {
        return (!["apt-get", "git", "pip", "python"].contains(&program)).then(|| format!("{program} is no program of ours"));
    }
    if let Some(example) = option("--example") {
        let packages = ["attention", "experiments", "models"];
        return (!packages.iter().any(|package| exists(&format!("{package}/examples/{example}.rs"))))
            .then(|| format!("no example {example}"));
    }
    if let Some(manifest) = option("--manifest-path") {
        return (!exists(manifest)).then(|| format!("there is no {manifest}"));
    }
    if let Some(bin) = option("--bin") {
        let beside = Path::new(env!("CARGO_BIN_EXE_heedful")).with_file_name(bin);
        let understood = |output: std::process::Output| output.status.success();
        let arguments = words.iter().skip_while(|word| *word != "--").skip(1);
        let is_there = std::process::Command::new(beside).args(arguments).arg("--help").output().is_ok_and(understood);
        return (!is_there).then(|| format!("no binary {bin}, or none that understands this"));
    }
    option("--features")?.split(',').find_map(|feature| {
        let (package, feature) = feature.split_once('/')?;
        let folder = package.strip_prefix("heedful-").unwrap_or("experiments/heedful");
        let manifest = root().join(folder).join("Cargo.toml");
        let has_feature = fs::read_to_string(manifest).unwrap().lines().any(|line| line.starts_with(&format!("{feature} = ")));
        (!has_feature).then(|| format!("{package} has no feature {feature}"))
    })
}
