//! All claims and blocks, from the program itself or from a folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use heedful_host::names::suggestion;
use serde::de::DeserializeOwned;

use super::block::Block;
use super::claim::{Claim, Pitfall, Test};
use super::error::LedgerError;
use super::sum::Sum;
use crate::session::comparison::RunList;

/// The file of the smoke test, which no ledger reads.
pub(super) const SMOKE: &str = "smoke.toml";

/// Files of the ledger that the program has, by their names below its folder.
macro_rules! files {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../../../claims/", $name)))),*] };
}

const BUILT_IN: &[(&str, &str)] = files!(
    "C01.toml"
    "C02.toml"
    "C03.toml"
    "C04.toml"
    "C05.toml"
    "C06.toml"
    "C07.toml"
    "C08.toml"
    "C09.toml"
    "C10.toml"
    "C11.toml"
    "C12.toml"
    "C13.toml"
    "C14.toml"
    "C15.toml"
    "C16.toml"
    "C17.toml"
    "C18.toml"
    "C19.toml"
    "C20.toml"
    "C21.toml"
    "C22.toml"
    "C23.toml"
    "C24.toml"
    "C25.toml"
    "C26.toml"
    "C27.toml"
    "C28.toml"
    "C29.toml"
    "C30.toml"
    "C31.toml"
    "C32.toml"
    "C33.toml"
    "C34.toml"
    "C35.toml"
    "C36.toml"
    "features.toml"
    "blocks/G1.toml"
    "blocks/G2.toml"
    "blocks/I1.toml"
    "blocks/I2.toml"
    "blocks/K1.toml"
    "blocks/K2.toml"
    "blocks/K3.toml"
    "blocks/M1.toml"
    "blocks/M2.toml"
    "blocks/M3.toml"
    "blocks/N1.toml"
    "blocks/N2.toml"
    "blocks/P1.toml"
    "blocks/R1.toml"
    "blocks/T1.toml"
    "blocks/T2.toml"
    "blocks/U1.toml"
    "blocks/U2.toml"
    "blocks/V1.toml"
    "blocks/V2.toml"
    "blocks/V3.toml"
    "blocks/W1.toml"
    "blocks/W2.toml"
    "blocks/X1.toml"
    "blocks/X2.toml"
    "blocks/X3.toml"
    "blocks/X4.toml"
    "blocks/X5.toml"
    "blocks/X6.toml"
);

/// Claims, the blocks of runs that they share, and the features that some of them wait for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Claims by name.
    pub claims: Vec<Claim>,
    /// Blocks in the order in which they are best run.
    pub blocks: Vec<Block>,
    /// What each feature is, by its name.
    pub features: BTreeMap<String, String>,
}

impl Ledger {
    /// The ledger of this program.
    ///
    /// # Errors
    /// [`LedgerError`]; tests ensure that there is none.
    pub fn built_in() -> Result<Self, LedgerError> {
        Self::of(BUILT_IN.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
    }

    /// The ledger in a folder: `*.toml` are its claims, `blocks/*.toml` its blocks, `features.toml` its features. Other files are left alone.
    ///
    /// # Errors
    /// [`LedgerError`] that names the file, and the line as far as there is one.
    pub fn read(folder: &Path) -> Result<Self, LedgerError> {
        let mut files = Vec::new();
        for (within, prefix) in [(folder.to_owned(), ""), (folder.join("blocks"), "blocks/")] {
            let unreadable = |path: &Path, source: io::Error| LedgerError::Read { path: path.to_owned(), source };
            for entry in fs::read_dir(&within).map_err(|source| unreadable(&within, source))? {
                let path = entry.map_err(|source| unreadable(&within, source))?.path();
                let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(".toml")) else { continue };
                files.push((format!("{prefix}{name}"), fs::read_to_string(&path).map_err(|source| unreadable(&path, source))?));
            }
        }
        Self::of(files)
    }

    fn of(files: Vec<(String, String)>) -> Result<Self, LedgerError> {
        let mut ledger = Self::default();
        for (file, text) in files {
            if file == "features.toml" {
                ledger.features = read(&file, &text)?;
            } else if file == SMOKE {
                continue;
            } else if let Some(block) = file.strip_prefix("blocks/") {
                ledger.blocks.push(Block { name: stem(block), ..read(&file, &text)? });
            } else {
                ledger.claims.push(Claim { name: stem(&file), ..read(&file, &text)? });
            }
        }
        ledger.claims.sort_by(|one, other| one.name.cmp(&other.name));
        ledger.blocks.sort_by(|one, other| (one.order, &one.name).cmp(&(other.order, &other.name)));
        ledger.check_names()?;
        Ok(ledger)
    }

    /// The claim of this name.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`].
    pub fn claim(&self, name: &str) -> Result<&Claim, LedgerError> {
        self.claims.iter().find(|claim| claim.name == name).ok_or_else(|| LedgerError::Unknown { what: "claim", name: name.to_owned() })
    }

    /// The block of this name.
    ///
    /// # Errors
    /// [`LedgerError::Unknown`].
    pub fn block(&self, name: &str) -> Result<&Block, LedgerError> {
        self.blocks.iter().find(|block| block.name == name).ok_or_else(|| LedgerError::Unknown { what: "block", name: name.to_owned() })
    }

    /// Primary tests whose p-values are adjusted for each other.
    pub fn adjusted_tests(&self) -> usize {
        self.claims.iter().flat_map(|claim| &claim.tests).filter(|test| test.is_adjusted()).count()
    }

    /// Names that files refer to.
    fn check_names(&self) -> Result<(), LedgerError> {
        for block in &self.blocks {
            self.check_features(&block.file(), &block.missing)?;
            for name in block.measured() {
                let refuse = |problem: String| Err(LedgerError::content(block.file(), problem));
                match self.block(name) {
                    Err(_) => return refuse(format!("there is no block `{name}` to measure")),
                    Ok(other) if other.order >= block.order => return refuse(format!("`{name}` comes after it; give it a higher `order`")),
                    Ok(_) => {}
                }
            }
        }
        for claim in &self.claims {
            let file = format!("{}.toml", claim.name);
            let refuse = |problem: String| Err(LedgerError::content(&file, problem));
            if claim.tests.is_empty() {
                return refuse("there is no `test`".to_owned());
            }
            for test in &claim.tests {
                self.check_features(&file, test.missing())?;
            }
            if let Some(unknown) = claim.blocks().into_iter().find(|name| self.block(name).is_err()) {
                return refuse(format!(
                    "there is no block `{unknown}`{}",
                    suggestion(unknown, self.blocks.iter().map(|block| &*block.name))
                ));
            }
            let names: Vec<&str> = claim.tests.iter().map(Test::name).collect();
            if let Some((_, twice)) = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)) {
                return refuse(format!("two tests are called `{twice}`"));
            }
            for pitfall in &claim.pitfalls {
                if let Some(unknown) = pitfall.test().filter(|name| !names.contains(name)) {
                    return refuse(format!("a pitfall voids `{unknown}`, which is no test{}", suggestion(unknown, names.iter().copied())));
                }
                if let Pitfall::Requires { claim: other } = pitfall
                    && (self.claim(other).is_err() || other == &claim.name)
                {
                    return refuse(format!("it requires `{other}`, which is no other claim"));
                }
            }
        }
        Ok(())
    }

    fn check_features(&self, file: &str, missing: &[String]) -> Result<(), LedgerError> {
        match missing.iter().find(|feature| !self.features.contains_key(*feature)) {
            Some(unknown) => Err(LedgerError::content(file, format!("`missing` names `{unknown}`, which features.toml does not have"))),
            None => Ok(()),
        }
    }

    /// Checks blocks as their programs would, and that claims ask for contenders and scores that there will be. Reads no data.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), LedgerError> {
        self.blocks.iter().try_for_each(Block::check)?;
        for claim in &self.claims {
            let file = format!("{}.toml", claim.name);
            for block in claim.blocks() {
                let block = self.block(block)?;
                // Three seeds are the least that the two locks are for.
                if block.seeds < 3 && !block.is_of_costs() {
                    return Err(LedgerError::content(
                        block.file(),
                        format!("`seeds` must be at least 3, since {} tests by it", claim.name),
                    ));
                }
            }
            // What a feature will bring need not be there yet.
            let sums = claim
                .tests
                .iter()
                .filter(|test| test.missing().is_empty())
                .filter_map(Test::sum)
                .chain(claim.described.iter().map(|described| &described.of));
            for sum in sums.chain(claim.pitfalls.iter().filter_map(Pitfall::sum)) {
                self.check_sum(&file, sum)?;
            }
            for measured in claim.tests.iter().flat_map(Test::measured) {
                let block = self.block(measured.block())?;
                if !block.is_of_costs() || block.part_named(measured.part()).is_none() {
                    return Err(LedgerError::content(&file, format!("`{}` has no such part with costs", block.name)));
                }
            }
            for pitfall in &claim.pitfalls {
                if let Pitfall::HidesNothing { block, part, contender, option, .. } = pitfall {
                    let list = self.runs(&file, block, part.as_deref())?;
                    let value = list.contender(contender).and_then(|table| integer(table, option));
                    if value.is_none() {
                        return Err(LedgerError::content(&file, format!("`{contender}` in {block} has no number `{option}`")));
                    }
                }
            }
        }
        Ok(())
    }

    fn check_sum(&self, file: &str, sum: &Sum) -> Result<(), LedgerError> {
        if sum.plus.is_empty() || sum.by_plus.is_empty() && !sum.by_minus.is_empty() {
            return Err(LedgerError::content(file, "a sum adds something"));
        }
        for (term, weight) in sum.terms() {
            let block = term.block().unwrap_or(&sum.block);
            let list = self.runs(file, block, term.part())?;
            let names = || list.contenders.iter().map(|(name, _)| name.as_str());
            let contender = term.contender();
            if list.contender(contender).is_none() {
                let problem = format!("{block} runs no `{contender}`{}", suggestion(contender, names()));
                return Err(LedgerError::content(file, problem));
            }
            let metric = term.metric().unwrap_or(&sum.metric);
            if !list.metrics.iter().any(|known| known.name == metric) {
                return Err(LedgerError::content(file, format!("`{}` has no score `{metric}`", list.experiment)));
            }
            if !(weight.abs() > 0.0 && weight.is_finite()) {
                return Err(LedgerError::content(file, format!("the weight of `{contender}` must be more than 0")));
            }
        }
        Ok(())
    }

    /// The runs of a part of a block.
    pub(super) fn runs(&self, file: &str, block: &str, part: Option<&str>) -> Result<RunList, LedgerError> {
        let block = self.block(block)?;
        let Some(found) = block.part_named(part) else {
            let problem = match part {
                Some(part) => format!("{} has no part `{part}`", block.name),
                None => format!("{} has several parts; say which", block.name),
            };
            return Err(LedgerError::content(file, problem));
        };
        block.runs(found)
    }
}

/// The integer at a dotted path.
pub(super) fn integer(table: &toml::Table, path: &str) -> Option<i64> {
    match path.split_once('.') {
        None => table.get(path)?.as_integer(),
        Some((name, rest)) => integer(table.get(name)?.as_table()?, rest),
    }
}

fn stem(file: &str) -> String {
    file.trim_end_matches(".toml").to_owned()
}

/// Reads a file of the ledger.
pub(super) fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, LedgerError> {
    toml::from_str(text).map_err(|error| LedgerError::Format {
        file: file.to_owned(),
        line: error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
        problem: error.message().replace('\n', "; "),
    })
}
