//! The order of packages, with the dependencies of their tests.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::{plan, root};

/// What Cargo knows of the workspace.
fn metadata() -> Value {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = cargo.args(["metadata", "--format-version", "1", "--locked", "--offline"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// The packages of the workspace that a package depends on, itself not.
fn own_dependencies(metadata: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    let members: BTreeSet<&str> = list(&metadata["workspace_members"]).iter().map(text).collect();
    let packages: Vec<&Value> = list(&metadata["packages"]).iter().filter(|package| members.contains(text(&package["id"]))).collect();
    let names: BTreeSet<&str> = packages.iter().map(|package| text(&package["name"])).collect();
    let mut found = BTreeMap::new();
    for package in packages {
        let name = text(&package["name"]);
        let named = list(&package["dependencies"]).iter().map(|dependency| text(&dependency["name"]));
        found.insert(name, named.filter(|other| *other != name && names.contains(other)).collect());
    }
    found
}

#[test]
fn a_package_depends_on_those_before_it_alone() {
    let (metadata, plan) = (metadata(), plan());
    let order: Vec<&str> = plan.package.iter().map(|package| package.name.as_str()).collect();
    // What only names features of dependencies.
    let features = ["heedful-features", "heedful-plain-features"];
    let mut seen = 0;
    for (name, dependencies) in own_dependencies(&metadata) {
        if features.contains(&name) {
            continue;
        }
        let place = order.iter().position(|other| *other == name).unwrap_or_else(|| panic!("docs/plan.toml has no package {name}"));
        for other in dependencies.into_iter().filter(|other| !features.contains(other)) {
            assert!(order[..place].contains(&other), "{name} depends on {other}, which the plan has above it");
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen} dependencies");
}

/// The names of all packages that a package is built with, its tests included.
fn built_with<'m>(metadata: &'m Value, package: &str) -> BTreeSet<&'m str> {
    let name_of = |id: &str| {
        list(&metadata["packages"]).iter().find(|package| text(&package["id"]) == id).map(|package| text(&package["name"])).unwrap()
    };
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"]["nodes"]).iter().map(|node| (text(&node["id"]), node)).collect();
    let start = *nodes.keys().find(|id| name_of(id) == package).unwrap();
    let (mut open, mut found) = (vec![start], BTreeSet::new());
    while let Some(id) = open.pop() {
        for dependency in list(&nodes[id]["deps"]) {
            let is_of_tests = list(&dependency["dep_kinds"]).iter().all(|kind| kind["kind"] == "dev");
            let next = text(&dependency["pkg"]);
            if (id == start || !is_of_tests) && found.insert(next) {
                open.push(next);
            }
        }
    }
    found.into_iter().map(name_of).collect()
}

#[test]
fn packages_without_burn_build_and_test_without_it() {
    let metadata = metadata();
    for package in plan().package {
        let names = built_with(&metadata, &package.name);
        let burn: Vec<&&str> = names.iter().filter(|name| name.starts_with("burn") || name.starts_with("cubecl")).collect();
        assert_eq!(!burn.is_empty(), package.needs_burn, "{}: {burn:?}", package.name);
    }
}
