use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::*;
use crate::markup::tests::{HOSTILE, assert_holds};
use crate::published::PublishedNumber;

const PICTURE: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";

fn records() -> Vec<ResultRecord> {
    [("dot-product", 1, 27.0), ("dot-product", 2, 28.0), ("dense", 1, 20.5), ("dense", 2, 20.0)]
        .map(|(attention, seed, bleu)| record(attention, seed, bleu, 9.0 + seed as f64))
        .to_vec()
}

/// A folder with logs of the runs, a configuration, and an analysis.
fn folder(root: &Path, records: &[ResultRecord]) -> RunFolder {
    let folder = RunFolder::at(root);
    for record in records {
        let line = |step: u64| format!("{{\"step\":{step},\"loss\":{},\"seconds\":{step}.5}}\n", record.seed as f64 / step as f64);
        let part = if records.iter().all(|other| other.dataset == record.dataset) {
            folder.clone()
        } else {
            folder.part(&record.dataset).unwrap()
        };
        fs::write(part.run(&record.attention, record.seed).unwrap().log(), [1, 2, 3].map(line).concat()).unwrap();
    }
    fs::write(folder.config(), "[run]\nattention = [\"</code><script>\"]\n").unwrap();
    let analysis = folder.analysis("dot-product", 1);
    fs::create_dir_all(analysis.join("maps")).unwrap();
    for file in ["entropy.svg", "maps/text0-decoder.svg", "maps/text0-decoder.png"] {
        fs::write(analysis.join(file), PICTURE).unwrap();
    }
    folder
}

fn page(records: &[ResultRecord]) -> String {
    let place = tempfile::tempdir().unwrap();
    report(records).html(&folder(place.path(), records)).unwrap()
}

#[test]
fn every_part_stands_in_the_page() {
    let (place, records) = (tempfile::tempdir().unwrap(), records());
    let sections = vec![Section { title: "Data".into(), body: "* small: 7 pairs\nAnd <more>.".into() }];
    let report = Report { sections, published: PublishedNumbers::machine_translation(), ..report(&records) };
    let folder = folder(place.path(), &records);
    let page = report.html(&folder).unwrap();
    assert_holds(
        &page,
        &[
            "<title>Machine translation</title>",
            "mt: invented, backend flex</h2>\n<dl class=\"facts summary\">\n<dt>Best BLEU</dt>\n<dd>dot-product: 27.50 ± 0.71 (mean of 2 seeds)</dd>",
            "<strong>27.50 ± 0.71</strong><span class=\"unseen\"> (best)</span>",
            "data-value=\"1234567\">1,234,567</td>",
            "<th scope=\"col\" class=\"number\" data-first=\"descending\"><button type=\"button\" aria-describedby=\"part-1-metric-0\">BLEU ↑</button></th>",
            "<dd id=\"part-1-metric-0\">corpus BLEU of the test set; higher is better; recorded as <code>bleu</code>; signature <code>nrefs:1|tok:13a</code></dd>",
            "aria-label=\"BLEU of each seed. dot-product: 27.00, 28.00; dense: 20.50, 20.00.\"",
            "aria-label=\"Curves over steps: training loss. Lines are means over seeds.\"",
            "<summary>The same against time</summary>",
            "<h3>Significance: differences from dot-product</h3>",
            "Welch&#x27;s t-test, 2 and 2 seeds",
            "aria-label=\"BLEU against parameters. dot-product: 27.50 for 1234567; dense: 20.25 for 1234567.\"",
            "BLEU against seconds of a run",
            "<p class=\"item\">small: 7 pairs</p>\n<p>And &lt;more&gt;.</p>",
            "<summary>dot-product-seed1</summary>",
            "alt=\"dot-product-seed1: text0-decoder\"",
            "Published numbers (from papers, not measured here)</h2>",
            "<td>synthesizer-random</td>",
            "<dt>Data</dt>\n<dd>invented, SHA-256 feed</dd>",
            "<code>mt --attention &#x27;a b&#x27; --seeds 2</code>",
            "<td>Some CPU, up to 2 threads, linux x86_64</td>",
            "<code>[run]\nattention = [&quot;&lt;&#x2f;code&gt;&lt;script&gt;&quot;]",
        ],
    );
    assert_eq!(page.matches("<svg role=\"img\" aria-label=\"").count(), page.matches("<svg").count(), "each picture has a name");
    assert_eq!(page.matches("<polygon").count(), 4, "two rows with a band, against steps and against seconds");
    assert_eq!(page.matches("<img src=\"data:image/svg+xml;base64,").count(), 2, "pictures for screens of any size alone");
    report.write_page(&folder).unwrap();
    assert_eq!(fs::read_to_string(place.path().join("report.html")).unwrap(), page);
}

#[test]
fn pictures_that_models_made_stand_beside_their_scores() {
    let place = tempfile::tempdir().unwrap();
    let records = records();
    let folder = folder(place.path(), &records);
    for (seed, file) in [(1, "samples.png"), (1, "completions.png"), (2, "samples.png"), (2, "curve.svg")] {
        fs::write(folder.run("dense", seed).unwrap().root().join(file), [1, 2, 3]).unwrap();
    }
    let page = report(&records).html(&folder).unwrap();
    let (before, attention) = page.split_once("<h2 id=\"attention-title\">").unwrap();
    assert_holds(before, &["alt=\"dense-seed1: completions\"", "alt=\"dense-seed1: samples\"", "alt=\"dense-seed2: samples\""]);
    assert_eq!(before.matches("<img src=\"data:image/png;base64,AQID\"").count(), 3);
    assert!(!page.contains("dense-seed2: curve") && !attention.contains("image/png"));
    assert!(!self::page(&records).contains("image/png"));
}

#[test]
fn pages_of_the_same_runs_are_equal_wherever_they_lie() {
    assert_eq!(page(&records()), page(&records()));
    let place = tempfile::tempdir().unwrap();
    assert!(!page(&records()).contains(&*place.path().parent().unwrap().to_string_lossy()), "a path of this machine");
}

#[test]
fn each_data_set_has_a_part_of_its_own() {
    let mut records = records();
    records[1].dataset = "other".into();
    records[3].dataset = "other".into();
    let page = page(&records);
    assert_holds(&page, &["id=\"part-1\"", "mt: invented, backend flex</h2>", "id=\"part-2\"", "mt: other, backend flex</h2>", "#part-2"]);
    assert_eq!(page.matches("<summary>How to read this table</summary>").count(), 2);
    assert_eq!(page.matches("<dd>unknown: tests need two seeds per candidate</dd>").count(), 2);
    assert_eq!(page.matches("<p class=\"note\">No difference was tested.</p>").count(), 2);
    assert_eq!(page.matches("aria-label=\"Curves over steps").count(), 2);
    assert!(!self::page(&[]).contains("id=\"part-1\""));
}

#[test]
fn hostile_names_are_text_in_the_page() {
    let mut hostile = record(HOSTILE, 1, 1.0, 2.0);
    for field in [&mut hostile.dataset, &mut hostile.backend, &mut hostile.machine.cpu, &mut hostile.command, &mut hostile.version] {
        *field = HOSTILE.into();
    }
    (hostile.experiment, hostile.notes) = (HOSTILE.into(), vec![HOSTILE.into()]);
    hostile.signatures.insert("bleu".into(), HOSTILE.into());
    let mut others = [record("dense", 1, 2.0, 1.0), record("\" onload=\"alert(1)", 1, 2.0, 1.0)];
    for other in &mut others {
        (other.dataset, other.backend, other.experiment) = (HOSTILE.into(), HOSTILE.into(), HOSTILE.into());
    }
    let records = [vec![hostile], others.to_vec()].concat();
    let number = PublishedNumber { paper: HOSTILE.into(), model: HOSTILE.into(), ..PublishedNumbers::glue().numbers[0].clone() };
    let report = Report {
        title: HOSTILE.into(),
        metrics: vec![MetricColumn::new("bleu", HOSTILE).defined_as(HOSTILE).higher_is_better()],
        published: PublishedNumbers { note: HOSTILE.into(), numbers: vec![number] },
        sections: vec![Section { title: HOSTILE.into(), body: HOSTILE.into() }],
        ..report(&records)
    };
    let place = tempfile::tempdir().unwrap();
    let folder = folder(place.path(), &records);
    let log = folder.existing_run(HOSTILE, HOSTILE, 1).unwrap().log();
    fs::write(log, format!("{}\n", serde_json::json!({ "step": 1, "dev": { HOSTILE: 1.0 } }))).unwrap();
    let page = report.html(&folder).unwrap();
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (1, 1));
    for part in ["<img src=x", "<script src", "\" onload=\"", "\u{1b}[31m</text>"] {
        assert!(!page.contains(part), "{part:?} in\n{page}");
    }
    assert_eq!(page.matches("<img").count(), 2, "those of the analysis");
}

#[test]
fn the_policy_names_the_script_of_the_page_and_nothing_outside_is_named() {
    let page = page(&records());
    let script = page.split_once("<script>").unwrap().1.split_once("</script>").unwrap().0;
    assert_holds(
        &page,
        &[&format!(
            "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{}'",
            BASE64_STANDARD.encode(Sha256::digest(script))
        )],
    );
    for outside in ["src=\"http", "href=\"http", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_damaged_log_takes_its_curves_and_disturbed_runs_their_times() {
    let (place, mut records) = (tempfile::tempdir().unwrap(), records());
    let folder = folder(place.path(), &records);
    records[0].disturbed = true;
    let page = report(&records).html(&folder).unwrap();
    assert_holds(&page, &["Curves over steps", "shared the cores with other runs or programs"]);
    assert!(!page.contains("Curves over seconds"));
    fs::write(folder.run("dense", 2).unwrap().log(), "no log\n").unwrap();
    let page = report(&records).html(&folder).unwrap();
    assert_holds(&page, &["No learning curve of dot-product, dense", "27.50 ± 0.71"]);
    assert!(!page.contains("Learning curves"));
}

#[test]
fn a_trivial_baseline_is_a_row_that_is_marked_in_every_report_and_its_words_are_text() {
    let records = records();
    let of = |name: &str, bleu: f64| {
        let baseline = TrivialBaseline::new(name, format!("It copies {HOSTILE}.")).score("bleu", bleu);
        TrivialBaseline { experiment: records[0].experiment.clone(), dataset: records[0].dataset.clone(), ..baseline }
    };
    let with = Report { trivial: vec![of("copy", 21.0), of(HOSTILE, 1.0)], ..report(&records) };
    let place = tempfile::tempdir().unwrap();
    let page = with.html(&folder(place.path(), &records)).unwrap();
    assert_eq!(page.matches("<tr class=\"trivial\">").count(), 2);
    assert!(!page.contains("<img src=x") && page.matches("<script").count() == 1, "{page}");
    crate::markup::tests::assert_harmless(&with.markdown());
    let said = "BLEU: not better than copy (trivial) with 21.00: dense (20.25, 95 % interval over seeds 17.07 to 23.43).";
    for text in [page, with.markdown(), with.terminal()] {
        assert_holds(&text, &[said, "copy (trivial)", "The candidate uniform is missing"]);
    }
    let without = report(&records).markdown();
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("| d")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rows(&with.markdown()), rows(&without), "rows of runs are as they were");
}
