//! Mechanisms that do nothing on the data of a comparison.

use std::fs;
use std::process::Output;

use crate::command::{TINY, binary, places, records, refused, stderr, stdout, succeeded, text_folder};

/// A comparison on windows of four tokens, of a model for 32.
fn compared(data: &std::path::Path, out: &std::path::Path, attention: &str, further: &[&str]) -> Output {
    let mut command = binary("lm");
    command.args(TINY).args(["--set", "data={context = 4, stride = 4, batch = 4}", "--attention", attention]);
    command.arg("--data").arg(data).arg("--out").arg(out).args(further).output().unwrap()
}

#[test]
fn a_comparison_of_an_attention_with_itself_is_refused_before_training() {
    let (data, (_folder, [out])) = (text_folder(), places(["out"]));
    for further in [&[][..], &["--dry-run"]] {
        let output = compared(data.path(), &out, "dot-product,sliding-window", further);
        refused(&output, 2, &["`sliding-window`", "4 positions", "window = ", "--set mechanisms.sliding-window.window=2"]);
        assert!(!out.exists());
    }
}

#[test]
fn a_size_that_someone_has_set_is_warned_of_once_and_stands_in_reports_and_records() {
    let (data, (_folder, [out])) = (text_folder(), places(["out"]));
    let output = compared(data.path(), &out, "dot-product,sliding-window{window=9}", &[]);
    succeeded(&output);
    let told = "`sliding-window{window=9}`: on the training data of";
    let same = "dot-product and sliding-window{window=9} compute the same on the training data";
    for sentence in [told, same] {
        assert_eq!(stderr(&output).matches(sentence).count(), 1, "{}", stderr(&output));
    }
    assert!(stdout(&output).contains(same), "{}", stdout(&output));
    for file in ["report.md", "report.html"] {
        let text = fs::read_to_string(out.join(file)).unwrap();
        for part in ["Mechanisms that do nothing here", "The same model twice", "hides no key that is seen without it with window = 9"] {
            assert!(text.contains(part), "{file} does not say: {part}");
        }
    }
    let records = records(&out);
    let notes: Vec<bool> = records.iter().map(|record| record["notes"].to_string().contains("hides no key")).collect();
    assert_eq!(notes, [false, true], "{records:?}");
    // A command that goes on says so again, and one that adds what hides something does not refuse what is there.
    succeeded(&compared(data.path(), &out, "dot-product,sliding-window{window=9},sliding-window{window=2}", &["--resume"]));
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(!report.contains("`sliding-window{window=2}`: on"), "{report}");
}
