//! The plan of the house (docs/plan.toml): which package and which room may name which.

mod arrows;
mod packages;

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The plan.
#[derive(Deserialize)]
struct Plan {
    package: Vec<Package>,
}

/// A package.
#[derive(Deserialize)]
struct Package {
    name: String,
    folder: String,
    about: String,
    #[serde(default)]
    needs_burn: bool,
    /// Circles wider than three files that there may be at most.
    #[serde(default)]
    wide_circles: usize,
    /// Rooms from the ground up, each with what it holds.
    #[serde(default)]
    rooms: Vec<[String; 2]>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn plan() -> Plan {
    toml::from_str(&std::fs::read_to_string(root().join("docs/plan.toml")).unwrap()).unwrap()
}

/// The plan as the book shows it.
fn tables(plan: &Plan) -> String {
    let mut text = "| package, from the ground up | holds |\n| --- | --- |\n".to_owned();
    for package in &plan.package {
        text.push_str(&format!(
            "| [{}](https://github.com/heedful/heedful/tree/main/{}) | {} |\n",
            package.name, package.folder, package.about
        ));
    }
    for package in plan.package.iter().filter(|package| !package.rooms.is_empty()) {
        text.push_str(&format!("\n| rooms of {}, from the ground up | hold |\n| --- | --- |\n", package.name));
        package.rooms.iter().for_each(|[room, about]| text.push_str(&format!("| `{room}` | {about} |\n")));
    }
    text
}

#[test]
fn the_book_shows_the_plan() {
    let page = std::fs::read_to_string(root().join("docs/book/src/architecture.md")).unwrap();
    let (_, rest) = page.split_once("<!-- generated: plan -->\n").expect("the page has a place for the plan");
    let (shown, _) = rest.split_once("<!-- end -->").expect("the place for the plan ends");
    assert_eq!(shown, tables(&plan()), "write this into docs/book/src/architecture.md:\n{}", tables(&plan()));
}
