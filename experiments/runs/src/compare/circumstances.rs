//! What runs were made with, in words.

use heedful_host::display::{distinct, short};

use crate::record::ResultRecord;

/// What the runs were made with: names, and all that differs between runs. `text` and `code` make it part of a document.
pub(crate) fn circumstances<'r, R: Iterator<Item = &'r ResultRecord>>(
    records: impl Fn() -> R,
    text: fn(&str) -> String,
    code: fn(&str) -> String,
) -> [(&'static str, String); 10] {
    let each = |show: &dyn Fn(&ResultRecord) -> String| distinct(records().map(show)).join("; ");
    let data = |record: &ResultRecord| match record.data_sha256.as_str() {
        "" => text(&record.dataset),
        checksum => format!("{}, SHA-256 {}", text(&record.dataset), code(checksum)),
    };
    [
        ("Data", each(&data)),
        ("Backend", each(&|record| text(&record.backend))),
        ("Machine", each(&|record| text(&record.machine_in_words()))),
        ("Processor features", each(&|record| text(&provenance_in_words(record)[1]))),
        ("Version", each(&|record| text(&record.version))),
        ("Commit", each(&|record| text(&record.code()))),
        ("Build", each(&|record| text(&provenance_in_words(record)[0]))),
        ("Configuration", each(&|record| format!("{} (config.toml)", code(short(&record.configuration))))),
        ("Seeds", each(&|record| record.seed.to_string())),
        ("Budget of a run", each(&|record| record.budget.in_words("minutes of training", "not limited"))),
    ]
}

/// Compiler with cargo features, and processor features.
pub(super) fn provenance_in_words(record: &ResultRecord) -> [String; 2] {
    let unknown = || ["unknown", "unknown"].map(str::to_owned);
    record.provenance.as_ref().map_or_else(unknown, |provenance| {
        [format!("{}, features {}", provenance.compiler, listed(&provenance.features)), listed(&provenance.cpu_features)]
    })
}

/// Names with commas between; `none` if there are none.
fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
