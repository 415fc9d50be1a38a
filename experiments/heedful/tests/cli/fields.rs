//! The book's tables of the configuration that all experiments share.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::command::{Run, binary};
use crate::documents::book;
use crate::output::stdout;

#[test]
fn the_book_lists_the_fields_of_the_tables_that_all_experiments_share() {
    let schema: Value = serde_json::from_str(&stdout(&binary("mt").arg("--print-schema").succeeds())).unwrap();
    let page = fs::read_to_string(book().join("fields.md")).unwrap();
    for table in ["run", "model", "training", "slurm"] {
        let fields: BTreeSet<&str> = schema["properties"][table]["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let (_, section) = page.split_once(&format!("\n## `{table}`\n")).unwrap_or_else(|| panic!("no table {table}"));
        let rows = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
        let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
        assert_eq!(names.collect::<BTreeSet<_>>(), fields, "{table}");
    }
}
