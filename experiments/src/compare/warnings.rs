//! What makes the rows of a table less comparable than they look.

use crate::record::ResultRecord;
use crate::report::{MetricColumn, grouped, short};

use super::group::{Group, Row};

/// One sentence for each thing that should be the same in all rows and is not.
pub fn warnings(group: &Group<'_>, metrics: &[MetricColumn]) -> Vec<String> {
    let machine = |record: &ResultRecord| format!("{}, {} threads, {}", record.machine.cpu, record.machine.cores, record.machine.os);
    let budget = |record: &ResultRecord| {
        let steps = record.budget.steps.map(|steps| format!("{} steps", grouped(steps)));
        let minutes = record.budget.minutes.map(|minutes| format!("{minutes} minutes"));
        let limits: Vec<String> = steps.into_iter().chain(minutes).collect();
        if limits.is_empty() { "no limit".to_owned() } else { limits.join(", at most ") }
    };
    let mut warnings = Vec::new();
    let mut differ = |what: &str, show: &dyn Fn(&ResultRecord) -> String| {
        warnings.extend(differences(group, show).map(|values| format!("{what}: {values}.")));
    };
    differ("The data differ, although their name is the same, by their SHA-256", &|record| short(&record.data_sha256).to_owned());
    differ("The versions of heedful differ", &|record| record.version.clone());
    differ("The backends differ", &|record| record.backend.clone());
    differ("The budgets of training differ", &budget);
    differ("The machines differ, so that speed, memory and time do not compare", &machine);
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

/// The values with the rows that have them; none if all runs have the same.
fn differences(group: &Group<'_>, show: &dyn Fn(&ResultRecord) -> String) -> Option<String> {
    let mut values: Vec<(String, Vec<&str>)> = Vec::new();
    for (row, record) in group.rows.iter().flat_map(|row| row.records.iter().map(move |record| (row, record))) {
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
    (values.len() > 1).then(|| values.iter().map(list).collect::<Vec<_>>().join("; "))
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
    use super::super::group::groups;
    use super::super::group::tests::{record, source};
    use super::*;

    fn of(records: &[ResultRecord]) -> Vec<String> {
        let sources = [source("a", records)];
        warnings(&groups(&sources)[0], &[MetricColumn::new("BLEU", "BLEU")])
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
