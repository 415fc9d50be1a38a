//! The ledger of the program, and verdicts of small ledgers with records that are written as runs write them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use heedful_metrics::{Combination, ItemScore, ItemTable};
use heedful_models::prelude::*;
use heedful_runs::record::ResultRecord;
use heedful_runs::results::write_result;
use heedful_runs::run_folder::RunFolder;
use tempfile::TempDir;

use super::*;
use crate::model::ModelSettings;

const AGENTS: &str = r#"
title = "agents"
experiment = "memory-rl"
seeds = 8
minutes = 1
order = 1

[config.run]
models = [{ name = "gtrxl" }, { name = "lstm" }]
"#;

const TEXTS: &str = r#"
title = "texts"
experiment = "classify"
seeds = 3
minutes = 1
order = 2

[config.run]
attention = ["dot-product", "uniform"]
"#;

const COSTS: &str = r#"
title = "costs"
experiment = "cost"
seeds = 0
minutes = 1
order = 3

[[part]]
name = "short"
arguments = ["--attention", "gaussian,dot-product"]
"#;

const HEAD: &str = "sentence = \"s\"\nsource = \"p\"\ndeviations = \"d\"\nbeware = \"b\"\npublished = []\n";

const GATES: &str = r#"
[[test]]
kind = "difference"
name = "gates"
least = 0.2

[test.of]
block = "A"
metric = "memory gain"
unit = "memory gain"
plus = ["gtrxl"]
minus = ["lstm"]
"#;

const LOCKS: &str = r#"
[[test]]
kind = "difference"
name = "attention"
least = 5

[test.of]
block = "T"
metric = "accuracy"
unit = "points"
scale = 100
plus = ["dot-product"]
minus = ["uniform"]
"#;

/// A ledger in a folder, and a folder for runs.
struct Case {
    folder: TempDir,
}

impl Case {
    fn new(claims: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("ledger");
        fs::create_dir_all(at.join("blocks")).unwrap();
        fs::write(at.join("features.toml"), "F1 = \"something\"\n").unwrap();
        for (name, text) in [("A", AGENTS), ("T", TEXTS), ("K", COSTS)] {
            fs::write(at.join(format!("blocks/{name}.toml")), text).unwrap();
        }
        for (name, text) in claims {
            fs::write(at.join(format!("{name}.toml")), format!("{HEAD}{text}")).unwrap();
        }
        Self { folder }
    }

    fn ledger(&self) -> Ledger {
        Ledger::read(&self.folder.path().join("ledger")).unwrap()
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("runs")
    }

    fn verdicts(&self) -> Verdicts {
        let ledger = self.ledger();
        ledger.check().unwrap();
        Verdicts::compute(&ledger, &self.root()).unwrap()
    }

    fn decision(&self, claim: &str) -> Decision {
        self.verdicts().of(claim).unwrap().tests[0].decision.clone()
    }

    fn run_folder(&self, block: &str) -> RunFolder {
        let root = self.root().join(block);
        if !root.exists() {
            fs::create_dir_all(&root).unwrap();
            let table = self.ledger().block(block).unwrap().configuration(None);
            fs::write(root.join("config.toml"), toml::to_string(&table).unwrap()).unwrap();
        }
        RunFolder::at(&root)
    }

    /// The gain of an agent with a seed; `None` for a run that diverged.
    fn gain(&self, agent: &str, seed: u64, gain: Option<f64>) {
        let mut record = ResultRecord {
            experiment: "memory-rl".into(),
            dataset: "t-maze".into(),
            attention: agent.into(),
            backend: "flex".into(),
            seed,
            parameters: 1000,
            is_model: true,
            ..ResultRecord::default()
        };
        record.score("diverged", f64::from(u8::from(gain.is_none())));
        if let Some(gain) = gain {
            record.score("memory gain", gain);
        }
        write_result(&self.run_folder("A").run(agent, seed).unwrap(), &record).unwrap();
    }

    /// Gains around these means.
    fn gains(&self, gtrxl: f64, lstm: f64) {
        for seed in 1..=8 {
            let noise = 0.01 * ((seed * 37 % 11) as f64 - 5.0);
            self.gain("gtrxl", seed, Some(gtrxl + noise));
            self.gain("lstm", seed, Some(lstm + 0.5 * noise + 0.003 * (seed % 3) as f64));
        }
    }

    /// The answers of an attention with a seed: of 200 texts, this share is right, and which they are differs between attentions and seeds.
    fn answers(&self, attention: &str, seed: u64, percent: usize) {
        let run = self.run_folder("T").run(attention, seed).unwrap();
        let mut table = ItemTable::new("test", &["right"]);
        let mut right = 0;
        for text in 0..200_usize {
            let is_right = (text * 61 + 7 * seed as usize + 13 * attention.len()) % 100 < percent;
            right += usize::from(is_right);
            table.push(&text.to_le_bytes(), &[f64::from(u8::from(is_right))]);
        }
        run.write_items(&table).unwrap();
        let mut record = ResultRecord {
            experiment: "classify".into(),
            dataset: "built-in".into(),
            attention: attention.into(),
            backend: "flex".into(),
            seed,
            parameters: 500,
            ..ResultRecord::default()
        };
        record.score("accuracy", right as f64 / 200.0);
        record.items.insert("accuracy".into(), ItemScore::new("test", "texts", Combination::Mean, &["right"]));
        write_result(&run, &record).unwrap();
    }

    fn all_answers(&self, dot_product: [usize; 3], uniform: [usize; 3]) {
        for seed in 1..=3 {
            self.answers("dot-product", seed, dot_product[seed as usize - 1]);
            self.answers("uniform", seed, uniform[seed as usize - 1]);
        }
    }

    fn change(&self, path: &Path, change: impl Fn(&mut ResultRecord)) {
        let mut record: ResultRecord = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        change(&mut record);
        fs::write(path, serde_json::to_string(&record).unwrap()).unwrap();
    }
}

fn reason(decision: &Decision) -> &str {
    decision.reason().unwrap_or_else(|| panic!("{decision:?} has no reason"))
}

#[test]
fn every_file_of_the_ledger_is_in_the_program_and_fits_the_others() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("claims");
    let ledger = Ledger::built_in().unwrap();
    ledger.check().unwrap();
    assert!(Ledger::read(&folder).unwrap() == ledger, "a file is not in the list of the program");
    assert_eq!((ledger.claims.len(), ledger.blocks.len(), ledger.adjusted_tests()), (36, 29, 46));
    let names: Vec<String> = (1..=36).map(|number| format!("C{number:02}")).collect();
    assert_eq!(ledger.claims.iter().map(|claim| claim.name.clone()).collect::<Vec<_>>(), names);
    let used: BTreeSet<&str> = ledger.claims.iter().flat_map(Claim::blocks).collect();
    let unused: Vec<&str> = ledger.blocks.iter().map(|block| block.name.as_str()).filter(|name| !used.contains(name)).collect();
    assert_eq!(unused, [""; 0], "blocks that no claim uses");
    let waited_for: BTreeSet<&str> = ledger.claims.iter().flat_map(Claim::missing).collect();
    assert_eq!(ledger.features.keys().map(String::as_str).collect::<BTreeSet<_>>(), waited_for, "features that no test waits for");
}

#[test]
fn blocks_of_trained_baselines_are_runs_of_this_version() {
    let ledger = Ledger::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("baselines")).unwrap();
    ledger.check().unwrap();
    assert!(ledger.claims.is_empty() && !ledger.blocks.is_empty());
}

#[test]
fn claims_that_have_runs_say_what_voids_them_and_recalled_numbers_are_apart() {
    let ledger = Ledger::built_in().unwrap();
    for claim in &ledger.claims {
        let is_runnable = claim.tests.iter().any(|test| test.missing().is_empty() && matches!(test, Test::Difference(_) | Test::NoLoss(_)));
        assert!(!is_runnable || !claim.pitfalls.is_empty(), "{} names nothing that voids it", claim.name);
        assert!(!claim.published.is_empty() && !claim.deviations.is_empty() && !claim.beware.is_empty(), "{}", claim.name);
        for published in &claim.published {
            assert!(published.verified.len() + published.recalled.len() > 0 || !published.note.is_empty(), "{}", published.r#where);
        }
    }
}

#[test]
fn eight_seeds_decide_by_a_paired_test_and_one_changed_record_changes_the_verdict() {
    let case = Case::new(&[("C1", GATES)]);
    case.gains(0.9, 0.5);
    let verdicts = case.verdicts();
    let test = &verdicts.of("C1").unwrap().tests[0];
    assert_eq!(test.decision, Decision::Reproduced, "{test:?}");
    assert!(!verdicts.are_provisional && test.evidence.as_ref().unwrap().method.contains("paired t-test over 8 seeds"));
    assert_eq!(test.adjusted, test.evidence.as_ref().unwrap().p, "one test is adjusted for itself alone");
    let path = case.run_folder("A").existing_run("t-maze", "gtrxl", 3).unwrap().result();
    case.change(&path, |record| record.score("memory gain", -2.0));
    assert_eq!(case.decision("C1"), Decision::Inconclusive);
    case.gains(0.55, 0.5);
    assert_eq!(case.decision("C1"), Decision::Contradicted, "the effect is there and too small to matter");
    case.gains(0.5, 0.9);
    assert_eq!(case.decision("C1"), Decision::Contradicted);
}

#[test]
fn a_baseline_at_chance_voids_and_so_does_one_at_the_ceiling() {
    let void = |bound: &str| {
        let of = "[void.of]\nblock = \"A\"\nmetric = \"memory gain\"\nunit = \"memory gain\"\nplus = [\"lstm\"]\n";
        format!("{GATES}\n[[void]]\nkind = \"score\"\n{bound}\nwhy = \"that is chance\"\n\n{of}")
    };
    let (above, below) = (void("above = 0.3"), void("below = 0.97"));
    let case = Case::new(&[("C1", &above), ("C2", &below)]);
    case.gains(0.9, 0.5);
    assert_eq!([case.decision("C1"), case.decision("C2")], [Decision::Reproduced, Decision::Reproduced]);
    case.gains(0.9, 0.25);
    let decision = case.decision("C1");
    assert!(reason(&decision).contains("lstm") && reason(&decision).contains("that is chance"), "{decision:?}");
    assert!(matches!(decision, Decision::Void(_)) && case.decision("C2") == Decision::Reproduced);
    case.gains(1.5, 0.98);
    assert!(matches!(case.decision("C2"), Decision::Void(_)) && case.decision("C1") == Decision::Reproduced);
}

#[test]
fn the_scores_of_a_ratio_have_the_unit_of_the_metric_and_not_that_of_the_ratio() {
    let ratio = GATES.replace("unit = \"memory gain\"", "unit = \"of the lost gain\"") + "by_plus = [\"gtrxl\"]\nby_minus = [\"lstm\"]\n";
    let case = Case::new(&[("C01", &ratio), ("C02", GATES)]);
    case.gains(0.9, 0.1);
    let verdicts = case.verdicts();
    let evidence = |claim: &str| verdicts.of(claim).unwrap().tests[0].evidence.clone().unwrap();
    let of_ratio = evidence("C01");
    assert_eq!(of_ratio.unit, "of the lost gain");
    assert!(of_ratio.contenders.iter().all(|contender| contender.unit.as_deref() == Some("memory gain")), "{of_ratio:?}");
    assert!(evidence("C02").contenders.iter().all(|contender| contender.unit.is_none()));
}

#[test]
fn few_seeds_need_items_and_the_same_sign_in_every_seed() {
    let case = Case::new(&[("C1", LOCKS)]);
    case.all_answers([80, 82, 81], [60, 61, 59]);
    let verdicts = case.verdicts();
    let test = &verdicts.of("C1").unwrap().tests[0];
    assert_eq!(test.decision, Decision::Reproduced, "{test:?}");
    let evidence = test.evidence.as_ref().unwrap();
    assert!(evidence.method.contains("200 texts") && evidence.every_seed == Some(true), "{}", evidence.method);
    assert!((evidence.value - 21.0).abs() < 1e-9, "{}", evidence.value);
    case.all_answers([95, 95, 58], [60, 61, 59]);
    let verdicts = case.verdicts();
    let test = &verdicts.of("C1").unwrap().tests[0];
    let evidence = test.evidence.as_ref().unwrap();
    assert!(evidence.p.unwrap() < 0.001 && evidence.value > 20.0, "the items alone would decide: {evidence:?}");
    assert_eq!((&test.decision, evidence.every_seed), (&Decision::Inconclusive, Some(false)));
    let items = case.run_folder("T").existing_run("built-in", "uniform", 2).unwrap().items("test");
    fs::remove_file(items).unwrap();
    assert!(reason(&case.decision("C1")).contains("uniform hold none"));
}

#[test]
fn a_score_that_its_items_do_not_give_decides_nothing() {
    let case = Case::new(&[("C1", LOCKS)]);
    case.all_answers([80, 82, 81], [60, 61, 59]);
    let path = case.run_folder("T").existing_run("built-in", "uniform", 2).unwrap().result();
    case.change(&path, |record| record.score("accuracy", 0.1));
    let decision = case.decision("C1");
    assert!(reason(&decision).contains("0.1000 was recorded"), "{decision:?}");
}

#[test]
fn no_loss_is_decided_by_the_margin_on_the_side_that_is_claimed() {
    let test = |margin: usize, further: &str| {
        LOCKS.replace("\"difference\"", "\"no-loss\"").replace("least = 5", &format!("margin = {margin}\n{further}"))
    };
    let (one_sided, both, narrow) = (test(10, ""), test(10, "both_sides = true"), test(2, ""));
    let case = Case::new(&[("C1", &one_sided), ("C2", &both), ("C3", &narrow)]);
    case.all_answers([80, 81, 80], [80, 80, 80]);
    assert_eq!([case.decision("C1"), case.decision("C2")], [Decision::Reproduced, Decision::Reproduced]);
    assert_eq!(case.decision("C3"), Decision::Inconclusive, "200 texts cannot show so little");
    case.all_answers([98, 98, 98], [60, 60, 60]);
    assert_eq!([case.decision("C1"), case.decision("C2")], [Decision::Reproduced, Decision::Contradicted], "a gain is no loss");
    case.all_answers([50, 51, 50], [90, 90, 90]);
    assert_eq!([case.decision("C1"), case.decision("C2"), case.decision("C3")], [const { Decision::Contradicted }; 3]);
}

#[test]
fn missing_runs_and_other_configurations_are_named_and_decide_nothing() {
    let waiting = GATES.replace("least = 0.2", "least = 0.2\nmissing = [\"F1\"]");
    let case = Case::new(&[("C1", GATES), ("C2", &waiting)]);
    assert!(reason(&case.decision("C1")).contains("A has not been run"));
    assert_eq!(reason(&case.decision("C2")), "waits for F1 (something)");
    case.gains(0.9, 0.5);
    assert!(matches!(case.decision("C2"), Decision::NotRun(_)));
    let run = case.run_folder("A").existing_run("t-maze", "lstm", 8).unwrap();
    fs::remove_file(run.result()).unwrap();
    assert!(reason(&case.decision("C1")).contains("7 of 8 seeds of lstm"));
    case.gain("lstm", 8, None);
    assert!(reason(&case.decision("C1")).contains("seed 8 of lstm has no memory gain"));
    case.gains(0.9, 0.5);
    let config = case.root().join("A/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}\n[training]\nsteps = 7\n")).unwrap();
    let decision = case.decision("C1");
    assert!(reason(&decision).contains("training.steps"), "{decision:?}");
}

#[test]
fn verdicts_are_provisional_and_strict_until_all_tests_have_run() {
    let case = Case::new(&[("C1", GATES), ("C2", LOCKS)]);
    case.gains(0.9, 0.5);
    let verdicts = case.verdicts();
    let first = &verdicts.of("C1").unwrap().tests[0];
    let p = first.evidence.as_ref().unwrap().p.unwrap();
    assert!(verdicts.are_provisional);
    assert_eq!(first.adjusted, Some(2.0 * p));
    case.all_answers([80, 82, 81], [78, 79, 82]);
    let verdicts = case.verdicts();
    let adjusted = |claim: &str| verdicts.of(claim).unwrap().tests[0].adjusted.unwrap();
    let of_second = verdicts.of("C2").unwrap().tests[0].evidence.as_ref().unwrap().p.unwrap();
    assert!(!verdicts.are_provisional && of_second > p);
    assert_eq!((adjusted("C1"), adjusted("C2")), (2.0 * p, of_second), "Holm's second step is not adjusted");
}

#[test]
fn failed_runs_are_counted_over_equal_draws() {
    let failures = GATES
        .replace("\"difference\"", "\"failures\"")
        .replace("least = 0.2", "least = 20\nbelow = 0.1")
        .replace("plus = [\"gtrxl\"]\nminus = [\"lstm\"]", "plus = [\"lstm\"]\nminus = [\"gtrxl\"]");
    let case = Case::new(&[("C1", &failures)]);
    case.gains(0.9, 0.0);
    case.gain("lstm", 1, None);
    let verdicts = case.verdicts();
    let test = &verdicts.of("C1").unwrap().tests[0];
    let evidence = test.evidence.as_ref().unwrap();
    let p = evidence.p.unwrap();
    assert!(evidence.value == 100.0 && (p - 2.0 / 256.0).abs() < 1e-12, "8 of 8 coins fall alike, a run without a score among them: {p}");
    assert_eq!(test.decision, Decision::Reproduced);
    case.gains(0.9, 0.5);
    assert_eq!(case.decision("C1"), Decision::Contradicted, "none failed");
}

#[test]
fn costs_are_decided_by_the_side_of_the_ratio_and_void_on_a_busy_machine() {
    let cost = |ratio: f64, claimed: &str| {
        let timing = |attention: &str| {
            format!("{{ block = \"K\", part = \"short\", attention = \"{attention}\", pass = \"training\", length = 128 }}")
        };
        let sides = format!("numerator = {}\ndenominator = {}", timing("gaussian"), timing("dot-product"));
        format!("[[test]]\nkind = \"cost\"\nname = \"time\"\nratio = {ratio}\nclaimed = \"{claimed}\"\n{sides}\n")
    };
    let (less, more) = (cost(0.8, "at-most"), cost(0.6, "at-least"));
    let close = cost(0.5, "at-most");
    let case = Case::new(&[("C1", &less), ("C2", &more), ("C3", &close)]);
    let measure = |load: f64| {
        let point = |attention: &str, factor: f64| {
            let seconds: Vec<f64> =
                (0..11).map(|round| factor * (1.0 + (round * 5 % 7) as f64 / 10.0 + 0.02 * factor * f64::from(round % 3))).collect();
            serde_json::json!({"backend": "flex", "attention": attention, "pass": "training", "length": 128, "missing": null, "seconds": seconds})
        };
        let json = serde_json::json!({"load": load, "points": [point("gaussian", 0.5), point("dot-product", 1.0)]});
        fs::create_dir_all(case.root().join("K/short")).unwrap();
        fs::write(case.root().join("K/short/cost.json"), json.to_string()).unwrap();
    };
    assert!(reason(&case.decision("C1")).contains("has not been measured"));
    measure(0.1);
    assert_eq!([case.decision("C1"), case.decision("C2")], [Decision::Reproduced, Decision::Contradicted]);
    assert_eq!(case.decision("C3"), Decision::Reproduced, "0.5 less what rounds add");
    measure(1.5);
    let decision = case.decision("C1");
    assert!(matches!(decision, Decision::Void(_)) && reason(&decision).contains("other programs"), "{decision:?}");
    assert_eq!(case.verdicts().adjusted_tests, 0, "ratios of costs have no p-value");
}

#[test]
fn series_of_rounds_are_compared_as_layers_are() {
    let side = |series: &str| format!("{{ block = \"K\", part = \"short\", series = \"{series}\", unit = \"bytes\" }}");
    let sides = |denominator: &str| format!("numerator = {}\ndenominator = {}", side("deep"), side(denominator));
    let test = |denominator: &str| {
        format!("[[test]]\nkind = \"cost\"\nname = \"memory\"\nratio = 1.5\nclaimed = \"at-most\"\n{}\n", sides(denominator))
    };
    let case = Case::new(&[("C1", &test("shallow")), ("C2", &test("other"))]);
    let measure = |load: f64, deep: f64| {
        let series = |name: &str, factor: f64| heedful_host::rounds::Series {
            name: name.into(),
            unit: "bytes".into(),
            values: (0..7).map(|round| factor * (1000.0 + f64::from(round * 3 % 5))).collect(),
        };
        let series = vec![series("deep", deep), series("shallow", 1.0)];
        let rounds = heedful_host::rounds::Rounds { load: Some(load), series, ..Default::default() };
        rounds.write(&case.root().join("K/short")).unwrap();
    };
    assert!(reason(&case.decision("C1")).contains("has not been measured"));
    measure(0.1, 1.2);
    let verdicts = case.verdicts();
    let test = &verdicts.of("C1").unwrap().tests[0];
    let evidence = test.evidence.as_ref().unwrap();
    assert_eq!((&test.decision, evidence.unit.as_str()), (&Decision::Reproduced, "ratio of bytes"));
    assert!((evidence.value - 1.2).abs() < 1e-9 && evidence.contenders[0].unit.as_deref() == Some("bytes"), "{evidence:?}");
    assert!(reason(&case.decision("C2")).contains("other was not measured in bytes"));
    measure(0.1, 2.0);
    assert_eq!(case.decision("C1"), Decision::Contradicted);
    measure(3.0, 1.2);
    assert!(matches!(case.decision("C1"), Decision::Void(_)), "a busy machine");
}

#[test]
fn blocks_of_costs_measure_what_their_claims_read() {
    let ledger = Ledger::built_in().unwrap();
    for claim in &ledger.claims {
        for measured in claim.tests.iter().flat_map(Test::measured) {
            let block = ledger.block(measured.block()).unwrap();
            let part = block.parts.iter().find(|part| Some(part.name.as_str()) == measured.part()).unwrap();
            let value = |option: &str| {
                let at = part.arguments.iter().position(|argument| argument == option);
                at.map_or("", |at| part.arguments[at + 1].as_str())
            };
            let has = |option: &str, wanted: &str| heedful_host::names::listed(value(option)).contains(&wanted);
            let (named, subcommand) = (format!("{}: {measured:?}", claim.name), part.arguments[0].as_str());
            match measured {
                Measured::Layer(Timing { attention, pass, length, .. }) => {
                    let within = |(from, to): (&str, &str)| (from.parse::<usize>().unwrap()..=to.parse().unwrap()).contains(length);
                    let has_length = has("--lengths", &length.to_string()) || value("--lengths").split_once("..").is_some_and(within);
                    assert!(has("--attention", attention) && has("--pass", pass) && has_length, "{named}");
                }
                Measured::Series(NamedSeries { series, unit, .. }) => {
                    let (name, rest) = series.split_once(", ").unwrap_or((series, ""));
                    let number = rest.split(' ').find(|word| word.parse::<usize>().is_ok()).unwrap_or_default();
                    let is_measured = match (subcommand, unit.as_str()) {
                        ("depth", "bytes") => has("--activations", name) && has("--layers", number),
                        ("scoring", "seconds") if rest.starts_with("stride") => has("--attention", name) && has("--stride", number),
                        ("scoring", "seconds") => {
                            let trained = ledger.block("X1").unwrap().runs(None).unwrap();
                            let memory = trained.contender(name).and_then(|table| table["data"]["memory"].as_integer());
                            has("--attention", name) && memory.map(|memory| memory.to_string()).as_deref() == Some(number)
                        }
                        ("batch", "tokens") => has("--attention", name),
                        _ => false,
                    };
                    assert!(is_measured, "{named}");
                }
            }
        }
    }
    // The models of blocks that are measured are those that a claim's blocks train.
    let names = |claim: &str| ledger.blocks_for(&[claim.to_owned()]).unwrap().iter().map(|block| block.name.as_str()).collect::<Vec<_>>();
    assert_eq!((names("C17"), names("C19")), (vec!["M1", "K3"], vec!["X1", "K2"]));
    assert_eq!(names("K3"), ["K3"], "a block alone is what is asked for");
    assert_eq!(ledger.block("K3").unwrap().arguments(), ["measure"]);
}

#[test]
fn a_claim_that_requires_another_waits_for_it() {
    let second = format!("{}\n[[void]]\nkind = \"requires\"\nclaim = \"C1\"\n", LOCKS);
    let case = Case::new(&[("C1", GATES), ("C2", &second)]);
    case.all_answers([80, 82, 81], [60, 61, 59]);
    assert!(reason(&case.decision("C2")).contains("waits for the verdict of C1"));
    case.gains(0.5, 0.9);
    assert_eq!(case.decision("C2"), Decision::Void("C1 is contradicted".into()));
    case.gains(0.9, 0.5);
    assert_eq!(case.decision("C2"), Decision::Reproduced);
}

#[test]
fn tests_of_one_claim_that_differ_make_it_mixed_or_partly_run() {
    let both = format!("{GATES}{LOCKS}");
    let case = Case::new(&[("C1", &both)]);
    let verdict = || case.verdicts().of("C1").unwrap().verdict.name();
    case.gains(0.9, 0.5);
    assert_eq!(verdict(), "partly run: 1 reproduced, 1 not run");
    case.all_answers([60, 61, 59], [80, 82, 81]);
    assert_eq!(verdict(), "mixed: 1 reproduced, 1 contradicted");
}

#[test]
fn patterns_that_hide_nothing_and_unequal_sizes_void() {
    let hides = |length: usize| {
        let pitfall = "[[void]]\nkind = \"hides-nothing\"\nblock = \"A\"\ncontender = \"gtrxl\"\noption = \"data.memory\"";
        format!("{GATES}\n{pitfall}\nlength = {length}\n")
    };
    let of = "[void.of]\nblock = \"A\"\nmetric = \"memory gain\"\nunit = \"\"\nplus = [\"gtrxl\", \"lstm\"]\n";
    let sizes = format!("{GATES}\n[[void]]\nkind = \"parameters\"\nwithin = 0.1\n\n{of}");
    let case = Case::new(&[("C1", &hides(65)), ("C2", &hides(64)), ("C3", &sizes)]);
    case.gains(0.9, 0.5);
    assert_eq!([case.decision("C1"), case.decision("C3")], [Decision::Reproduced, Decision::Reproduced]);
    let decision = case.decision("C2");
    assert!(reason(&decision).contains("data.memory of gtrxl is 64"), "{decision:?}");
    let path = case.run_folder("A").existing_run("t-maze", "lstm", 5).unwrap().result();
    case.change(&path, |record| record.parameters = 1101);
    assert!(reason(&case.decision("C3")).contains("1000 and 1101"));
}

#[test]
fn ledgers_that_do_not_fit_are_refused_with_the_file_and_a_suggestion() {
    let refused = |claim: &str, from: &str, to: &str| {
        let case = Case::new(&[("C1", &claim.replace(from, to))]);
        let ledger = Ledger::read(&case.folder.path().join("ledger"));
        ledger.and_then(|ledger| ledger.check()).unwrap_err().to_string()
    };
    for (from, to, parts) in [
        ("block = \"A\"", "block = \"B\"", ["C1.toml", "no block `B`"]),
        ("[\"gtrxl\"]", "[\"gtrx\"]", ["C1.toml", "did you mean `gtrxl`?"]),
        ("metric = \"memory gain\"", "metric = \"gain\"", ["C1.toml", "no score `gain`"]),
        ("least = 0.2", "leest = 0.2", ["C1.toml:", "leest"]),
        ("least = 0.2", "least = 0.2\nmissing = [\"F9\"]", ["C1.toml", "`F9`"]),
    ] {
        let message = refused(GATES, from, to);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    let case = Case::new(&[("C1", GATES)]);
    let block = case.folder.path().join("ledger/blocks/A.toml");
    let wrong = |from: &str, to: &str| {
        fs::write(&block, AGENTS.replace(from, to)).unwrap();
        case.ledger().check().unwrap_err().to_string()
    };
    let message = wrong("{ name = \"lstm\" }", "{ name = \"lstn\" }");
    assert!(message.contains("blocks/A.toml") && message.contains("did you mean `lstm`?"), "{message}");
    let message = wrong("[config.run]", "[config.training]\nstep = 3\n\n[config.run]");
    assert!(message.contains("training") && message.contains("step"), "{message}");
    assert!(wrong("[config.run]", "[config.mechanisms.gaussian]\nwindow = 3\n\n[config.run]").contains("gaussian"));
    assert!(wrong("[config.run]", "[config.run]\nseeds = 3").contains("run.seeds"));
    assert!(wrong("seeds = 8", "seeds = 2").contains("at least 3"));
    fs::write(&block, AGENTS).unwrap();
    let of_costs = case.folder.path().join("ledger/blocks/K.toml");
    for (name, part) in [("Z", "no block `Z` to measure"), ("T", "`T` comes after it")] {
        let measure =
            COSTS.replace("\"cost\"", "\"measure\"").replace("--attention", &format!("{{{name}}}")).replace("order = 3", "order = 1");
        fs::write(&of_costs, measure).unwrap();
        let message = Ledger::read(&case.folder.path().join("ledger")).unwrap_err().to_string();
        assert!(message.contains("blocks/K.toml") && message.contains(part), "{message}");
    }
    fs::write(&of_costs, COSTS).unwrap();
    let message = wrong("\"memory-rl\"", "\"memory\"");
    assert!(message.contains("no experiment `memory`"), "{message}");
    // All programs that compare attentions or models.
    for known in ["mt", "lm", "mlm-spans", "image-super-resolution", "recall", "track", "ponder", "swap", "measure"] {
        assert!(message.split([' ', ',']).any(|word| word == known), "{known} is missing: {message}");
    }
}

#[test]
fn the_smoke_subset_fits_the_programs_and_takes_twenty_minutes() {
    let smoke = Smoke::built_in().unwrap();
    smoke.check().unwrap();
    assert_eq!(smoke.runs.len(), 10);
    let minutes: f64 = smoke.runs.iter().map(|run| run.minutes).sum();
    assert!(minutes <= 20.0, "{minutes}");
}

#[test]
fn the_plan_counts_runs_and_takes_the_time_of_those_that_are_finished() {
    let case = Case::new(&[("C1", GATES), ("C2", LOCKS)]);
    let ledger = case.ledger();
    let plan = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let planned = ledger.plan(&ledger.blocks_for(&names).unwrap(), &case.root()).unwrap();
        planned
            .iter()
            .map(|planned| (planned.block.name.clone(), planned.runs, planned.finished, planned.minutes_left()))
            .collect::<Vec<_>>()
    };
    assert_eq!(plan(&["C1"]), [("A".to_owned(), 16, 0, 16.0)]);
    assert_eq!(plan(&[]).len(), 3);
    for seed in 1..=4 {
        case.gain("gtrxl", seed, Some(0.9));
        let path = case.run_folder("A").existing_run("t-maze", "gtrxl", seed).unwrap().result();
        case.change(&path, |record| record.wall_seconds = 30.0);
    }
    assert_eq!(plan(&["T", "C1"]), [("A".to_owned(), 16, 4, 6.0), ("T".to_owned(), 6, 0, 6.0)]);
    assert!(ledger.blocks_for(&["C9".to_owned()]).unwrap_err().to_string().contains("no claim `C9`"));
    let of_numpads = Ledger::built_in().unwrap();
    let planned = of_numpads.plan(&[of_numpads.block("V3").unwrap(), of_numpads.block("T1").unwrap()], &case.root()).unwrap();
    assert_eq!(planned.iter().map(|planned| planned.runs).collect::<Vec<_>>(), [48, 80], "parts and tasks count");
}

/// The table without fields that are not set.
fn set(value: toml::Value) -> toml::Value {
    match value {
        toml::Value::Table(table) => {
            let is_set = |(_, value): &(String, toml::Value)| value.as_str() != Some("unset");
            toml::Value::Table(table.into_iter().filter(is_set).map(|(name, value)| (name, set(value))).collect())
        }
        other => other,
    }
}

#[test]
fn the_two_models_of_x5_do_the_same_number_of_multiplications() {
    let ledger = Ledger::built_in().unwrap();
    let list = ledger.block("X5").unwrap().runs(None).unwrap();
    let of_run = |name: &str| {
        let config = list.contender(name).unwrap();
        let settings: ModelSettings = set(config["model"].clone()).try_into().unwrap();
        // The text has 65 characters.
        let model = settings.language_model(65, &LayerAttention::default()).with_tied(false);
        let of_sequence = model.multiplications(&model.init(&RandomKey::from_seed(0), &Device::flex()), 128).training();
        of_sequence * config["training"]["steps"].as_integer().unwrap() as f64
    };
    let ratio = of_run("universal") / of_run("stacked");
    assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
}

#[test]
fn a_pilot_tries_three_rates_with_the_baseline_of_a_block_alone() {
    let ledger = Ledger::built_in().unwrap();
    let block = ledger.block("M3").unwrap();
    let (table, preset) = block.pilot().unwrap().unwrap();
    let run = table["run"].as_table().unwrap();
    assert_eq!((run["seed"].as_integer(), run["seeds"].as_integer()), (Some(101), Some(1)));
    assert_eq!(run["models"].as_array().unwrap().len() + run["attention"].as_array().unwrap().len(), 1);
    let training = table["training"].as_table().unwrap();
    let rates: Vec<f64> = training["learning_rates"].as_array().unwrap().iter().map(|rate| rate.as_float().unwrap()).collect();
    assert_eq!((rates, training.contains_key("learning_rate")), (vec![0.5 * preset, preset, 2.0 * preset], false));
    // Every pilot is one that the program runs.
    for block in ledger.blocks.iter().filter(|block| !block.is_of_costs()) {
        let Some((table, _)) = block.pilot().unwrap() else { continue };
        let pilot = Block { config: table, parts: Vec::new(), seeds: 1, ..block.clone() };
        assert_eq!(pilot.runs(None).unwrap().contenders.len(), 1, "{}", block.name);
    }
    // One that was chosen does not move the rates that are tried.
    let moved = Block { preset_rate: Some(1e-3), ..block.clone() };
    assert_eq!(moved.pilot().unwrap().unwrap().1, 1e-3);
    assert!(ledger.block("V2").unwrap().pilot().unwrap().is_none());
}
