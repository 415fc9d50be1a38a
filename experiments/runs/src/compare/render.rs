//! The comparison as text: for the terminal, as Markdown, as LaTeX, as comma-separated values.

use std::fmt::Write;

use heedful_metrics::Spread;

use crate::markup::{self, aligned, code, latex as latex_text, markdown_table};

use super::group::mean;
use super::significance::TestOutcome;
use super::table::{Cell, Comparison};

/// What the rows are.
const SUBJECT: &str = "attention";

/// The main table as aligned text; `subject` is what its rows are.
pub(crate) fn aligned_table(comparison: &Comparison<'_>, subject: &str) -> String {
    aligned(&marked(&comparison.table(subject), |cell| format!("{cell} *"), |cell| format!("{cell}  ")))
}

/// The main table as Markdown; `subject` is what its rows are.
pub(crate) fn markdown_of(comparison: &Comparison<'_>, subject: &str) -> String {
    let table = marked(&comparison.table(subject), |cell| format!("**{}**", markup::markdown(&cell)), |cell| markup::markdown(&cell));
    markdown_table(&table, "---:")
}

/// Aligned text.
pub fn terminal(comparisons: &[Comparison<'_>]) -> String {
    let blocks = comparisons.iter().map(|comparison| {
        let mut text = format!("{}\n\n{}", markup::one_line(&comparison.group.title()), aligned_table(comparison, SUBJECT));
        if let Some(differences) = differences(comparison) {
            let _ = write!(text, "\n{}\n\n{}", markup::one_line(&differences.title), aligned(&differences.table));
        }
        let warnings = comparison.warnings.iter().map(|warning| format!("Warning: {warning}"));
        let notes: Vec<String> = comparison.legend("`*`").into_iter().chain(warnings).map(|note| markup::one_line(&note)).collect();
        format!("{text}\n{}", notes.join("\n"))
    });
    blocks.collect::<Vec<_>>().join("\n\n")
}

/// Markdown; `figures` are the files with the learning curves of each comparison.
pub fn markdown(comparisons: &[Comparison<'_>], sources: &[(String, String)], command: &str, figures: &[Vec<String>]) -> String {
    let mut text = "# Comparison\n".to_owned();
    for (index, comparison) in comparisons.iter().enumerate() {
        let title = markup::markdown(&comparison.group.title());
        let _ = write!(text, "\n## {title}\n\n{}", markdown_of(comparison, SUBJECT));
        if let Some(differences) = differences(comparison) {
            let table: Vec<Vec<String>> =
                differences.table.iter().map(|row| row.iter().map(|cell| markup::markdown(cell)).collect()).collect();
            let _ = write!(text, "\n### {}\n\n{}", markup::markdown(&differences.title), markdown_table(&table, "---:"));
        }
        let legend: Vec<String> = comparison.legend("bold").iter().map(|sentence| markup::markdown(sentence)).collect();
        let _ = write!(text, "\n{}\n", legend.join("\n"));
        for warning in &comparison.warnings {
            let _ = write!(text, "\n**Warning:** {}\n", markup::markdown(warning));
        }
        for figure in figures.get(index).into_iter().flatten() {
            let _ = write!(text, "\n![Learning curves of {title}]({figure})\n");
        }
    }
    text.push_str("\n## Runs\n\n");
    for (label, path) in sources {
        let _ = writeln!(text, "- {}: {}", markup::markdown(label), code(path));
    }
    let _ = writeln!(text, "- Command: {}", code(command));
    text
}

/// LaTeX for the package booktabs.
pub fn latex(comparisons: &[Comparison<'_>]) -> String {
    let mut text = "% \\usepackage{booktabs}\n".to_owned();
    for comparison in comparisons {
        let table = marked(&comparison.table(SUBJECT), |cell| format!("\\textbf{{{}}}", latex_text(&cell)), |cell| latex_text(&cell));
        let caption = comparison.legend("bold").join(" ");
        float(&mut text, &table, &format!("{}. {caption}", comparison.group.title()), 'r');
        if let Some(differences) = differences(comparison) {
            let table: Vec<Vec<String>> = differences.table.iter().map(|row| row.iter().map(|cell| latex_text(cell)).collect()).collect();
            float(&mut text, &table, &format!("{}: {}", comparison.group.title(), differences.title), 'l');
        }
        for warning in &comparison.warnings {
            let _ = writeln!(text, "\\emph{{Warning:}} {}\n", latex_text(warning));
        }
    }
    text.trim_end().to_owned() + "\n"
}

fn float(text: &mut String, table: &[Vec<String>], caption: &str, alignment: char) {
    let line = |row: &Vec<String>| format!("    {} \\\\\n", row.join(" & "));
    let columns = alignment.to_string().repeat(table[0].len() - 1);
    let rows: String = table[1..].iter().map(line).collect();
    let _ = write!(
        text,
        "\\begin{{table}}\n  \\centering\n  \\caption{{{}}}\n  \\begin{{tabular}}{{l{columns}}}\n    \\toprule\n{}    \\midrule\n{rows}    \
         \\bottomrule\n  \\end{{tabular}}\n\\end{{table}}\n\n",
        latex_text(caption),
        line(&table[0])
    );
}

/// Comma-separated values: one line for each row and metric, in the units of results.json.
///
/// # Errors
/// Those of the writer.
pub fn csv(comparisons: &[Comparison<'_>]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "experiment",
        "dataset",
        "run",
        "attention",
        "backend",
        "configuration",
        "seeds",
        "metric",
        "mean",
        "deviation",
        "defined",
        "baseline",
        "difference",
        "low",
        "high",
        "p",
        "test",
        "parameters",
        "tokens_per_second",
        "peak_memory_bytes",
        "wall_seconds",
    ])?;
    for comparison in comparisons {
        for (index, row) in comparison.group.rows.iter().enumerate() {
            for (metric, outcomes) in comparison.metrics.iter().zip(&comparison.outcomes) {
                let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
                let own_unit = |value: f64| value / metric.factor;
                let values: Vec<f64> = row.values(metric).into_iter().map(own_unit).collect();
                let spread = Spread::of(&values);
                let (difference, test) = match outcomes.get(index) {
                    Some(TestOutcome::Tested { difference, test, .. }) => (Some(difference), test.clone()),
                    Some(TestOutcome::Untested(reason)) => (None, format!("{reason}: no test")),
                    Some(TestOutcome::Baseline) | None => (None, String::new()),
                };
                let interval = difference.and_then(|difference| difference.interval);
                let first = row.records[0];
                let records = || row.records.iter();
                writer.write_record([
                    first.experiment.clone(),
                    first.dataset.clone(),
                    row.source.label.clone(),
                    first.attention.clone(),
                    first.backend.clone(),
                    first.configuration.clone(),
                    row.records.len().to_string(),
                    metric.name.clone(),
                    number(spread.map(|spread| spread.mean)),
                    number(spread.and_then(|spread| spread.deviation)),
                    values.len().to_string(),
                    comparison.baseline_name().unwrap_or_default().to_owned(),
                    number(difference.map(|difference| own_unit(difference.value))),
                    number(interval.map(|[low, _]| own_unit(low))),
                    number(interval.map(|[_, high]| own_unit(high))),
                    number(difference.map(|difference| difference.p)),
                    test,
                    records().map(|record| record.parameters).max().unwrap_or_default().to_string(),
                    number(mean(records().filter_map(|record| record.speed()))),
                    records().filter_map(|record| record.peak_memory_bytes).max().map(|bytes| bytes.to_string()).unwrap_or_default(),
                    number(mean(records().filter_map(|record| record.seconds()))),
                ])?;
            }
        }
        for (name, baseline) in &comparison.group.trivial {
            for metric in &comparison.metrics {
                let Some(value) = baseline.metrics.get(&metric.name) else { continue };
                let mean = value.map(|value| value.to_string()).unwrap_or_default();
                let defined = usize::from(value.is_some()).to_string();
                let seconds = baseline.seconds.to_string();
                // Nothing is trained, and nothing tested.
                let mut line =
                    [baseline.experiment.as_str(), &baseline.dataset, "", name, "", "", "0", &metric.name, &mean, "", &defined].to_vec();
                line.resize(20, "");
                line.push(&seconds);
                writer.write_record(line)?;
            }
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The second table of a comparison.
struct Differences {
    title: String,
    table: Vec<Vec<String>>,
}

fn differences(comparison: &Comparison<'_>) -> Option<Differences> {
    let table = comparison.differences();
    let baseline = comparison.baseline_name()?;
    (!table.is_empty()).then(|| Differences { title: format!("Differences from {baseline}"), table })
}

fn marked(table: &[Vec<Cell>], best: impl Fn(String) -> String, other: impl Fn(String) -> String) -> Vec<Vec<String>> {
    // A mark only stands in columns that have one, so that the others are not wider than they need be.
    let has_best: Vec<bool> = (0..table[0].len()).map(|column| table.iter().any(|row| row[column].best)).collect();
    let cell = |(column, cell): (usize, &Cell)| match (cell.best, has_best[column]) {
        (true, _) => best(cell.text.clone()),
        (false, true) => other(cell.text.clone()),
        (false, false) => other(cell.text.clone()).trim_end().to_owned(),
    };
    table.iter().map(|row| row.iter().enumerate().map(cell).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::{record, source};
    use super::super::table::tests::{comparison, runs};
    use super::*;
    use crate::markup::tests::{HOSTILE, assert_harmless, assert_holds};

    #[test]
    fn the_terminal_table_is_aligned_and_followed_by_how_to_read_it() {
        let sources = runs();
        let text = terminal(&[comparison(&sources, &[])]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "mt: invented");
        let widths: Vec<usize> = lines[2..7].iter().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
        assert_holds(
            &text,
            &["30.00 *", "0.008 †", "one seed: no test", "Differences from dot-product", "† marks p < 0.05", "Not shown: news/BLEU"],
        );
    }

    #[test]
    fn markdown_shows_tables_warnings_figures_and_the_command() {
        let sources = runs();
        let comparisons = [comparison(&sources, &["--metric", "BLEU,news/BLEU"])];
        let runs = [("a".to_owned(), "runs/a".to_owned())];
        let text = markdown(&comparisons, &runs, "compare runs/a", &[vec!["curves.svg".to_owned()]]);
        for part in [
            "## mt: invented\n\n| attention | seeds | BLEU ↑ | p | news/BLEU ↑ | p |",
            "| gaussian | 1 | **30.00** | one seed: no test | – | no score: no test |",
            "### Differences from dot-product\n\n| attention | metric |",
            "**Warning:** The sets of metrics differ: no news/BLEU of gaussian.",
            "![Learning curves of mt: invented](curves.svg)",
            "- a: `runs/a`\n- Command: `compare runs/a`\n",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn latex_escapes_what_it_would_take_for_commands() {
        assert_eq!(
            latex_text("a_b & 50 % {x} \\ ~ ^ # $"),
            "a\\_b \\& 50 \\% \\{x\\} \\textbackslash{} \\textasciitilde{} \\textasciicircum{} \\# \\$"
        );
        assert_eq!(latex_text("1 ± 2 <0.001 † ↑ –"), "1 $\\pm$ 2 $<$0.001 \\dag{} $\\uparrow$ --");
        let sources = runs();
        let text = latex(&[comparison(&sources, &[])]);
        assert_holds(
            &text,
            &["\\begin{tabular}{lrrrrrrrrrr}", "accuracy (\\%) $\\uparrow$", "\\textbf{30.00}", "0.008 \\dag{}", "\\bottomrule"],
        );
        assert_eq!(text.matches("\\begin{table}").count(), text.matches("\\end{table}").count());
        let body = text.split("\\midrule").nth(1).unwrap().split("\\bottomrule").next().unwrap();
        assert!(body.trim().lines().all(|line| line.matches(" & ").count() == 10 && line.ends_with("\\\\")), "{body}");
    }

    #[test]
    fn values_stand_in_the_units_of_the_records() {
        let sources = runs();
        let text = csv(&[comparison(&sources, &["--metric", "accuracy"])]).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let heading = reader.headers().unwrap().clone();
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        let cell = |row: usize, name: &str| rows[row][heading.iter().position(|column| column == name).unwrap()].to_owned();
        assert_eq!(rows.len(), 3);
        assert_eq!([cell(1, "attention"), cell(1, "metric"), cell(1, "seeds")], ["dense", "accuracy", "3"].map(str::to_owned));
        assert!((cell(1, "mean").parse::<f64>().unwrap() - 0.2625).abs() < 1e-12);
        assert!((cell(1, "difference").parse::<f64>().unwrap() + 0.01).abs() < 1e-12);
        assert!((cell(1, "low").parse::<f64>().unwrap() + 0.01567).abs() < 1e-4);
        assert_eq!([cell(0, "p"), cell(0, "test")], [String::new(), String::new()], "the baseline");
        assert_eq!([cell(2, "p"), cell(2, "test"), cell(2, "deviation")], ["", "one seed: no test", ""].map(str::to_owned));
    }

    #[test]
    fn hostile_names_are_text_in_every_output() {
        let mut records = [record(HOSTILE, 1, &[("BLEU", 1.0), (HOSTILE, 2.0)]), record("dense", 1, &[("BLEU", 2.0)])];
        for record in &mut records {
            (record.dataset, record.experiment) = (HOSTILE.to_owned(), "mt\r\n\r\n<script>".to_owned());
        }
        records[0].machine.cpu = HOSTILE.to_owned();
        let sources = [source("../a|b", &records)];
        let comparisons = [comparison(&sources, &["--metric", "BLEU"])];
        let places = [("a|</script>".to_owned(), "runs/`x`\n# y".to_owned())];
        let text = markdown(&comparisons, &places, "compare `a`\n# b", &[vec!["curves.svg".to_owned()]]);
        assert_harmless(&text);
        assert!(!text.contains("\n# y") && !text.contains("\n# b") && !text.contains('\r'), "{text}");
        let rows: Vec<&str> =
            text.lines().skip_while(|line| !line.starts_with("| attention")).take_while(|line| line.starts_with('|')).collect();
        assert!(rows.len() > 3 && rows.iter().all(|row| row.matches('|').count() == rows[0].matches('|').count()), "{text}");
        let text = latex(&comparisons);
        assert!(!text.contains("\\input") && !text.contains("$1$") && !text.contains("\n# g"), "{text}");
        assert!(text.contains("\\textbackslash{}input\\{a\\}"), "{text}");
        assert!(!terminal(&comparisons).contains('\u{1b}'));
    }
}
