//! Which file names which, as `use` lines and paths say it, and the rooms that they stand in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::Visit;
use syn::{Attribute, Item, UseTree, Visibility};

use crate::{Package, plan, root};

/// The path of a module in its crate.
type Module = Vec<String>;

/// The files of a package, without those of tests and programs.
struct Files {
    modules: BTreeMap<Module, syn::File>,
    /// What `pub use` shows under another path.
    shown: BTreeMap<Module, Module>,
}

/// The paths that a file names, each with whether it is shown to others.
struct Named {
    module: Module,
    paths: Vec<(Module, bool)>,
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().is_ident("cfg") && quote::ToTokens::to_token_stream(attribute).to_string().contains("test"))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl Named {
    /// A path from the root of the crate, if it begins there.
    fn add(&mut self, path: &[String], is_shown: bool) {
        let mut base = match path[0].as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.module.clone(),
            _ => return,
        };
        let rest = path.iter().skip_while(|part| ["crate", "self", "super"].contains(&part.as_str()));
        path.iter().filter(|part| *part == "super").for_each(|_| drop(base.pop()));
        base.extend(rest.cloned());
        self.paths.push((base, is_shown));
    }

    fn add_tree(&mut self, before: &mut Vec<String>, tree: &UseTree, is_shown: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(before, &path.tree, is_shown);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree, is_shown)),
            UseTree::Name(name) if name.ident == "self" => self.add(before, is_shown),
            UseTree::Name(name) => self.add(&[&before[..], &[name.ident.to_string()]].concat(), is_shown),
            UseTree::Rename(name) => self.add(&[&before[..], &[name.ident.to_string()]].concat(), is_shown),
            UseTree::Glob(_) => self.add(before, is_shown),
        }
    }
}

impl<'ast> Visit<'ast> for Named {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            item if is_of_tests(attributes(item)) => {}
            Item::Use(item) => self.add_tree(&mut Vec::new(), &item.tree, !matches!(item.vis, Visibility::Inherited)),
            item => syn::visit::visit_item(self, item),
        }
    }

    /// `pub(super)` names nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add(&path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>(), false);
        syn::visit::visit_path(self, path);
    }
}

impl Files {
    fn read(source: &Path) -> Self {
        let mut files = Self { modules: BTreeMap::new(), shown: BTreeMap::new() };
        files.add(source, &[]);
        files.without_tests();
        let all: Vec<Module> = files.modules.keys().cloned().collect();
        for module in all {
            for (path, is_shown) in files.paths(&module) {
                if let (true, Some(name)) = (is_shown && path.len() > module.len() + 1 && path.starts_with(&module), path.last()) {
                    files.shown.insert([&module[..], std::slice::from_ref(name)].concat(), path.clone());
                }
            }
        }
        files
    }

    /// The files of a folder, which stand in a module.
    fn add(&mut self, folder: &Path, module: &[String]) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let own = if module.is_empty() && name == "lib" { Vec::new() } else { [module, std::slice::from_ref(&name)].concat() };
            if path.is_dir() {
                if !["bin", "tests"].contains(&name.as_str()) {
                    self.add(&path, &own);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") && !["tests", "main"].contains(&name.as_str()) {
                self.modules.insert(own, syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap());
            }
        }
    }

    /// Leaves out the files that only tests have.
    fn without_tests(&mut self) {
        let mut hidden: Vec<Module> = Vec::new();
        for (module, file) in &self.modules {
            for item in &file.items {
                if let Item::Mod(item) = item
                    && is_of_tests(&item.attrs)
                {
                    hidden.push([&module[..], &[item.ident.to_string()]].concat());
                }
            }
        }
        self.modules.retain(|module, _| !hidden.iter().any(|hidden| module.starts_with(hidden)));
    }

    fn paths(&self, module: &Module) -> Vec<(Module, bool)> {
        let mut named = Named { module: module.clone(), paths: Vec::new() };
        named.visit_file(&self.modules[module]);
        named.paths
    }

    /// The file that has what a path names.
    fn file_of(&self, path: &[String]) -> Option<&Module> {
        let mut path = path.to_vec();
        for _ in 0..6 {
            let known = (1..=path.len()).rev().find_map(|length| Some((length, self.shown.get(&path[..length])?)));
            match known {
                Some((length, target)) if !self.modules.contains_key(&path[..length]) => path = [&target[..], &path[length..]].concat(),
                _ => break,
            }
        }
        (1..=path.len()).rev().find_map(|length| Some(self.modules.get_key_value(&path[..length])?.0))
    }

    /// The files that each file names.
    fn arrows(&self) -> BTreeMap<&Module, BTreeSet<&Module>> {
        let of = |module: &Module| {
            self.paths(module).iter().filter_map(|(path, _)| self.file_of(path)).filter(|other| *other != module).collect()
        };
        self.modules.keys().map(|module| (module, of(module))).collect()
    }
}

/// Sets of files that name each other, wider than three.
fn wide_circles<'m>(arrows: &BTreeMap<&'m Module, BTreeSet<&'m Module>>) -> Vec<Vec<&'m Module>> {
    let reached = |start: &'m Module| {
        let (mut open, mut found) = (vec![start], BTreeSet::new());
        while let Some(module) = open.pop() {
            open.extend(arrows[module].iter().filter(|other| found.insert(**other)).copied());
        }
        found
    };
    let all: BTreeMap<&Module, BTreeSet<&Module>> = arrows.keys().map(|module| (*module, reached(module))).collect();
    let mut circles = Vec::new();
    let mut seen = BTreeSet::new();
    for (module, found) in &all {
        let circle: Vec<&Module> = found.iter().filter(|other| all[**other].contains(*module)).copied().collect();
        if circle.len() > 3 && circle.iter().all(|module| !seen.contains(module)) {
            seen.extend(circle.iter().copied());
            circles.push(circle);
        }
    }
    circles
}

/// The arrows from a room to one above it.
fn climbing(package: &Package, files: &Files) -> Vec<String> {
    let place = |module: &Module| package.rooms.iter().position(|[room, _]| Some(room) == module.first());
    let mut found = Vec::new();
    for (module, named) in files.arrows() {
        for other in named {
            if let (Some(from), Some(to)) = (place(module), place(other))
                && to > from
            {
                found.push(format!("{} names {}", module.join("/"), other.join("/")));
            }
        }
    }
    found
}

#[test]
fn rooms_name_those_below_them_alone_and_circles_are_small() {
    for package in plan().package.iter().filter(|package| !package.rooms.is_empty()) {
        let files = Files::read(&root().join(&package.folder).join("src"));
        let rooms: BTreeSet<&String> = package.rooms.iter().map(|[room, _]| room).collect();
        let homeless: Vec<&Module> =
            files.modules.keys().filter(|module| module.first().is_some_and(|room| !rooms.contains(room))).collect();
        // Doctests of the book.
        let homeless: Vec<_> = homeless.into_iter().filter(|module| module[0] != "book").collect();
        assert!(homeless.is_empty(), "{}: no room has {homeless:?}", package.name);
        let climbing = climbing(package, &files);
        assert!(climbing.is_empty(), "{}: {climbing:#?}", package.name);
        let circles = wide_circles(&files.arrows());
        assert_eq!(circles.len(), package.wide_circles, "{}: {circles:#?}", package.name);
    }
}

#[test]
fn an_arrow_that_climbs_and_a_wide_circle_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "pub mod low; pub mod high; pub mod a; pub mod b; pub mod c;");
    write("low.rs", "#[cfg(test)] mod tests { use crate::high::High; }\npub struct Low;");
    write("high.rs", "use crate::low::Low;\npub struct High(pub Low);");
    let house = |rooms: &[&str]| Package {
        name: "house".into(),
        folder: String::new(),
        about: String::new(),
        needs_burn: false,
        wide_circles: 0,
        rooms: rooms.iter().map(|room| [room.to_string(), String::new()]).collect(),
    };
    for name in ["a", "b", "c"] {
        write(&format!("{name}.rs"), "");
    }
    let read = || Files::read(folder.path());
    assert_eq!(climbing(&house(&["low", "high"]), &read()), [""; 0], "tests may name what they like");
    assert_eq!(climbing(&house(&["high", "low"]), &read()), ["high names low"]);
    for (name, other) in [("a", "b"), ("b", "c"), ("c", "low")] {
        write(&format!("{name}.rs"), &format!("pub fn f() {{ crate::{other}::f() }}"));
    }
    assert!(wide_circles(&read().arrows()).is_empty());
    write("low.rs", "pub use self::inner::Inner;\npub fn f() { crate::a::f() }\nmod inner { pub struct Inner; }");
    assert_eq!(wide_circles(&read().arrows()).len(), 1);
}
