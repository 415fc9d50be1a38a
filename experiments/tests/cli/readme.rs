//! The commands of the README, as they stand there, on little data and for two steps.

use std::fs;
use std::path::Path;

use crate::command::{binary, parallel_folder, succeeded, text_folder};

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
const CARGO: &str = "cargo run --release --bin ";
/// Of another package, which tests it.
const ELSEWHERE: [&str; 1] = ["cost"];

/// What makes a command of a binary short, after the arguments of the README.
fn brief(name: &str, arguments: &[&str]) -> Vec<&'static str> {
    if arguments.contains(&"--list") {
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
        "compare" | "analyse" | "data" => return Vec::new(),
        other => panic!("the README has `{other}`, of which this test knows nothing"),
    };
    // The presets' numbers of tokens are more than a little text has.
    let tokens: &[&str] = if arguments.contains(&"--config") { &["--set", "tokeniser={kind = \"word\"}"] } else { &[] };
    let training = ["--quiet", "--steps", "2", "--set", "training.evaluate_every=2", "--set", "training.checkpoint_every=2"];
    [&training[..], further, tokens].concat()
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
    let news = (0..12).map(|n| format!("\"{}\",\"Title {n}\",\"Some news of kind {n} .\"\n", n % 4 + 1)).collect::<String>();
    write("ag_news/train.csv", news.clone());
    write("ag_news/test.csv", news);
    write("ag_news/classes.txt", "World\nSports\nBusiness\nSci/Tech\n".to_owned());
}

#[cfg(unix)]
#[test]
fn the_commands_of_the_readme_run() {
    let folder = tempfile::tempdir().unwrap();
    little_data(folder.path());
    std::os::unix::fs::symlink(env!("CARGO_MANIFEST_DIR"), folder.path().join("experiments")).unwrap();
    let readme = fs::read_to_string(README).unwrap();
    let mut run = Vec::new();
    for command in readme.lines().filter_map(|line| line.strip_prefix(CARGO)) {
        let mut words = command.split(' ').filter(|&word| word != "--");
        let name = words.next().unwrap();
        let arguments: Vec<&str> = words.collect();
        if ELSEWHERE.contains(&name) {
            continue;
        }
        // A person would give it another folder.
        let _ = fs::remove_dir_all(folder.path().join("runs").join(name));
        let output = binary(name).args(&arguments).args(brief(name, &arguments)).current_dir(folder.path()).output().unwrap();
        eprintln!("{command}");
        succeeded(&output);
        run.push(name);
    }
    for name in ["mt", "lm", "glue", "algorithmic", "mlm", "textgen", "classify", "image", "memory-rl", "data", "compare", "analyse"] {
        assert!(run.contains(&name), "the README has no command for {name}");
    }
}
