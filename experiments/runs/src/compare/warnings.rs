//! Warnings about rows that are less comparable than they look.

use heedful_host::display::short;
use heedful_host::provenance::Provenance;
use heedful_metrics::MetricColumn;

use crate::record::ResultRecord;

use super::group::{Group, Row};

/// One sentence for each thing that should be the same in all rows and is not, and for other code than the program's `own`, if that is known.
pub fn warnings(own: &Provenance, group: &Group<'_>, metrics: &[MetricColumn]) -> Vec<String> {
    let differ = |what: &str, show: &dyn Fn(&ResultRecord) -> String| differences(group, show).map(|values| format!("{what}: {values}."));
    let all = [
        differ("The data differ, although their name is the same, by their SHA-256", &|record| short(&record.data_sha256).to_owned()),
        differ("The versions of heedful differ", &|record| record.version.clone()),
        other_code(group, own),
        differ("The backends differ", &|record| record.backend.clone()),
        differ("The budgets of training differ", &|record| record.budget.in_words("minutes", "no limit")),
        differ("The machines differ, so that speed, memory and time do not compare", &ResultRecord::machine_in_words),
    ];
    let mut warnings: Vec<String> = all.into_iter().flatten().collect();
    let disturbed: Vec<&str> =
        group.rows.iter().filter(|row| row.records.iter().any(|record| record.disturbed)).map(|row| row.name.as_str()).collect();
    if !disturbed.is_empty() {
        warnings.push(format!("{} shared the cores with other runs or programs: no speeds and times of these runs.", some(&disturbed)));
    }
    for metric in metrics {
        let signature = |record: &ResultRecord| record.signatures.get(&metric.name).cloned().unwrap_or_default();
        let scored: Vec<&Row<'_>> = group.rows.iter().filter(|row| row.is_scored(metric)).collect();
        if scored.len() < group.rows.len() {
            let lacking: Vec<&str> = group.rows.iter().filter(|row| !row.is_scored(metric)).map(|row| row.name.as_str()).collect();
            warnings.push(format!("The sets of metrics differ: no {} of {}.", metric.name, some(&lacking)));
        }
        let of_scored = Group { rows: scored.into_iter().cloned().collect(), ..group.clone() };
        warnings
            .extend(differences(&of_scored, &signature).map(|values| format!("{} is computed in different ways: {values}.", metric.name)));
    }
    warnings
}

/// What was computed by other code than this program's, with the commits and rows; none where this program does not know its own.
fn other_code(group: &Group<'_>, own: &Provenance) -> Option<String> {
    own.is_clean?;
    let is_other = |record: &ResultRecord| {
        record.code() != own.code() || record.provenance.as_ref().is_some_and(|there| there.is_clean == Some(false))
    };
    let others: Vec<Row<'_>> = group.rows.iter().filter(|row| row.records.iter().any(|record| is_other(record))).cloned().collect();
    let others = Group { rows: others, ..group.clone() };
    let commits = listing(&others, &ResultRecord::code);
    (!others.rows.is_empty()).then(|| format!("Not known to be computed by the code of this program, {}: {commits}.", own.code()))
}

/// The values with the rows that have them; none if all runs have the same.
fn differences(group: &Group<'_>, show: &dyn Fn(&ResultRecord) -> String) -> Option<String> {
    let mut values = group.records().map(show);
    let first = values.next()?;
    values.any(|value| value != first).then(|| listing(group, show))
}

/// Each value with the rows that have it.
fn listing(group: &Group<'_>, show: &dyn Fn(&ResultRecord) -> String) -> String {
    let mut values: Vec<(String, Vec<&str>)> = Vec::new();
    for (row, record) in group.runs() {
        let value = show(record);
        let index = values.iter().position(|(other, _)| *other == value).unwrap_or_else(|| {
            values.push((value, Vec::new()));
            values.len() - 1
        });
        if values[index].1.last() != Some(&row.name.as_str()) {
            values[index].1.push(&row.name);
        }
    }
    let list = |(value, rows): &(String, Vec<&str>)| {
        let value = if value.is_empty() { "unknown" } else { value };
        format!("{value} ({})", some(rows))
    };
    values.iter().map(list).collect::<Vec<_>>().join("; ")
}

/// The first names of a list and how many more there are.
pub fn some<N: AsRef<str>>(names: &[N]) -> String {
    const MOST: usize = 4;
    let shown = if names.len() > MOST { MOST - 1 } else { names.len() };
    let mut text = names[..shown].iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    if shown < names.len() {
        text.push_str(&format!(" and {} others", names.len() - shown));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::source;
    use super::super::group::{self, groups};
    use super::*;

    fn of(records: &[ResultRecord]) -> Vec<String> {
        let sources = [source("a", records)];
        warnings(&committed(), &groups(&sources)[0], &[MetricColumn::new("BLEU", "BLEU")])
    }

    /// Committed code.
    fn committed() -> Provenance {
        Provenance { commit: "aaaaaaaaaaaaaaaa".into(), is_clean: Some(true), ..Provenance::default() }
    }

    /// A record that it has computed.
    fn record(attention: &str, seed: u64, scores: &[(&str, f64)]) -> ResultRecord {
        ResultRecord { provenance: Some(committed()), ..group::tests::record(attention, seed, scores) }
    }

    #[test]
    fn runs_of_one_recipe_give_no_warning() {
        let warnings = of(&[record("dense", 1, &[("BLEU", 1.0)]), record("gaussian", 1, &[("BLEU", 2.0)])]);
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn each_thing_that_differs_is_said_with_the_rows() {
        let mut records =
            [record("dense", 1, &[("BLEU", 1.0)]), record("dense", 2, &[("BLEU", 1.0)]), record("gaussian", 1, &[("BLEU", 2.0)])];
        records[2].data_sha256 = "f00d".into();
        records[2].version = "0.2.0".into();
        records[2].budget.steps = Some(1500);
        records[2].machine.cores = 2;
        records[2].signatures.insert("BLEU".into(), "tok:none".into());
        let warnings = of(&records);
        for part in [
            "SHA-256: feed (dense); f00d (gaussian).",
            "versions of heedful differ: 0.1.0 (dense); 0.2.0 (gaussian).",
            "budgets of training differ: no limit (dense); 1,500 steps (gaussian).",
            "machines differ, so that speed, memory and time do not compare: ",
            "BLEU is computed in different ways: unknown (dense); tok:none (gaussian).",
        ] {
            assert!(warnings.iter().any(|warning| warning.contains(part)), "{part} is missing in {warnings:?}");
        }
        assert_eq!(warnings.len(), 5, "{warnings:?}");
    }

    #[test]
    fn what_other_code_computed_is_shown_with_its_commit() {
        let own = committed();
        let by = |attention: &str, provenance: Option<Provenance>| ResultRecord { provenance, ..record(attention, 1, &[]) };
        let other = Provenance { commit: "bbbbbbbbbbbbbbbb".into(), ..own.clone() };
        let changed = Provenance { is_clean: Some(false), ..own.clone() };
        let records = [by("dense", Some(own.clone())), by("gaussian", Some(other)), by("lsh", None), by("uniform", Some(changed))];
        let sources = [source("a", &records)];
        let sentence = |own: &Provenance| other_code(&groups(&sources)[0], own);
        assert_eq!(
            sentence(&own).unwrap(),
            "Not known to be computed by the code of this program, aaaaaaaaaaaa: bbbbbbbbbbbb (gaussian); unknown (lsh); aaaaaaaaaaaa with changes (uniform)."
        );
        assert_eq!(sentence(&Provenance::default()), None, "who does not know the own commit cannot compare");
        let sources = [source("a", &records[..1])];
        assert_eq!(other_code(&groups(&sources)[0], &own), None);
    }

    #[test]
    fn a_metric_that_some_rows_lack_is_named_with_them() {
        let warnings = of(&[record("dense", 1, &[("BLEU", 1.0)]), record("gaussian", 1, &[])]);
        assert_eq!(warnings, ["The sets of metrics differ: no BLEU of gaussian."]);
    }

    #[test]
    fn long_lists_of_rows_are_cut_short() {
        assert_eq!(some(&["a", "b", "c", "d"]), "a, b, c, d");
        assert_eq!(some(&["a", "b", "c", "d", "e"]), "a, b, c and 2 others");
    }
}
