//! The page that names every file and shows the statistics.

use std::fmt::Write;

use heedful_runs::markup;
use heedful_runs::markup::markdown_table;

use super::record::{Kind, State};
use super::statistics::{HeadStatistics, Mean, Place};
use super::{Analysis, Listed, named};

/// The names of the statistics of a head, and which they are.
type HeadColumn = (&'static str, fn(&HeadStatistics) -> Mean);
const HEAD_COLUMNS: [HeadColumn; 9] = [
    ("entropy (nats)", |head| head.entropy),
    ("relative", |head| head.relative_entropy),
    ("largest", |head| head.largest),
    ("sum", |head| head.total),
    ("distance", |head| head.distance),
    ("itself", |head| head.itself),
    ("previous", |head| head.previous),
    ("next", |head| head.next),
    ("first", |head| head.first),
];

/// The page as Markdown.
pub(super) fn markdown(analysis: &Analysis, listed: &[Listed]) -> String {
    let state = analysis.shown();
    let mut text =
        format!("# What the attention does: {}\n\n{}\n\n## Files\n\n", markup::markdown(&one_line(&analysis.subject)), observed(analysis));
    for Listed { name, sentence } in listed {
        // The per cent signs of names that were made safe would be taken for those of an address.
        let _ = writeln!(text, "- [`{name}`]({}): {sentence}", name.replace('%', "%25"));
    }
    tables(analysis, state, &mut text);
    absences(analysis, &mut text);
    let pictures: Vec<&Listed> = listed.iter().filter(|file| file.name.ends_with(".svg") && !file.name.contains('/')).collect();
    if !pictures.is_empty() {
        text.push_str("\n## Pictures\n");
        pictures.iter().for_each(|Listed { name, sentence }| {
            let _ = write!(text, "\n![{sentence}]({name})\n");
        });
    }
    text
}

/// Which texts were read, in which states.
fn observed(analysis: &Analysis) -> String {
    let count = |state: State| {
        let mut texts: Vec<usize> = analysis.seen.iter().filter(|(own, ..)| *own == state).map(|(_, text, ..)| *text).collect();
        texts.sort_unstable();
        texts.dedup();
        texts.len()
    };
    let of = |state: State| match count(state) {
        0 => None,
        1 => Some(format!("1 text {state}")),
        texts => Some(format!("{texts} texts {state}")),
    };
    let states: Vec<String> = State::ALL.into_iter().filter_map(of).collect();
    if states.is_empty() { "Nothing was observed.".into() } else { format!("Observed: {}.", states.join(", ")) }
}

fn tables(analysis: &Analysis, state: State, text: &mut String) {
    let statistics = &analysis.statistics;
    let head_table = |title: &str, explanation: &str, header: Vec<&str>, rows: Vec<Vec<String>>, text: &mut String| {
        if !rows.is_empty() {
            let cells: Vec<Vec<String>> = [header.into_iter().map(str::to_owned).collect()].into_iter().chain(rows).collect();
            let _ = write!(text, "\n## {title}, {state}\n\n{explanation}\n\n{}", markdown_table(&cells, "---:"));
        }
    };
    let placed = |place: &Place, cells: Vec<String>| {
        (place.state == state).then(|| [format!("`{}`", named(&place.module)), place.head.to_string()].into_iter().chain(cells).collect())
    };
    let header = ["module", "head"].into_iter().chain(HEAD_COLUMNS.map(|(name, _)| name)).collect();
    let rows = statistics.heads.iter();
    let rows = rows.filter_map(|(place, head)| placed(place, HEAD_COLUMNS.map(|(_, mean)| cell(mean(head).value())).to_vec()));
    let explanation = "Means over queries. Entropy is also given as a part of that of equal weights on the visible keys, `largest` is the largest weight \
        and `sum` the sum of a row. `distance` is between query and key, in tokens. The last columns are shares of single keys in a row: the query's own \
        token, the tokens before and after, the first token.";
    head_table("Heads", explanation, header, rows.collect(), text);

    let rows = statistics.image.iter();
    let rows = rows.filter_map(|(place, of)| placed(place, [of.rows, of.columns].map(|mean| cell(mean.value())).to_vec()));
    let explanation = "Rows and columns between the pixel that is generated and those that are looked at, by weight; the beginning of the image is left out.";
    head_table("Distances in the image", explanation, vec!["module", "head", "rows", "columns"], rows.collect(), text);

    let rows = statistics.divergences();
    let rows = rows.into_iter().filter_map(|(place, divergence)| placed(place, vec![format!("{divergence:.4}")]));
    let explanation = "How far the histogram of a head's weights is from that at initialisation: Jensen-Shannon divergence in nats, from 0 to 0.693, over 50 \
        equal bins from 0 to 1. Keys that a query does not see are left out.";
    head_table("Change of the weights", explanation, vec!["module", "head", "divergence"], rows.collect(), text);

    let rows = statistics
        .spans
        .iter()
        .filter_map(|(place, span)| placed(place, vec![cell(span.mean.value()), cell(Some(span.least)), cell(Some(span.greatest))]));
    head_table(
        "Spans",
        "How far back a query looks, in tokens.",
        vec!["module", "head", "mean", "least", "greatest"],
        rows.collect(),
        text,
    );

    let rows = statistics.buckets.iter().filter_map(|(place, of)| {
        placed(place, [of.used, of.size, of.largest, of.together, of.agreement].map(|mean| cell(mean.value())).to_vec())
    });
    let explanation = "Means over rounds and texts: buckets that hold a position, positions of such a bucket and of the fullest, share of the pairs of \
        positions that are in one bucket. `agreement`: of the pairs that one of two rounds puts into one bucket, the share that both do.";
    let header = vec!["module", "head", "used", "size", "largest", "together", "agreement"];
    head_table("Buckets", explanation, header, rows.collect(), text);

    let rows = statistics.gates.iter().filter(|(place, _)| place.state == state);
    let rows = rows.map(|(place, gate)| vec![format!("`{}`", named(&place.module)), cell(gate.mean().value()), cell(gate.deviation())]);
    let explanation = "Over channels, positions and texts: 0 is shut, 1 is open.";
    head_table("Gates", explanation, vec!["module", "mean", "deviation"], rows.collect(), text);

    let rows = analysis.member_weights().filter(|(own, ..)| *own == state);
    let rows = rows.map(|(_, module, head, member, weight)| {
        let head = head.map_or_else(|| "all".to_owned(), |head| head.to_string());
        vec![format!("`{}`", named(module)), head, member.to_owned(), cell(Some(weight))]
    });
    let explanation = "What each member of a mixture weighs; the weights of a head sum to 1, and are equal at initialisation.";
    head_table("Mixtures", explanation, vec!["module", "head", "member", "weight"], rows.collect(), text);

    let rows = statistics.halting.iter().filter(|(place, _)| place.state == state);
    let rows = rows.map(|(place, steps)| {
        vec![format!("`{}`", named(&place.module)), cell(steps.mean.value()), cell(Some(steps.least)), cell(Some(steps.greatest))]
    });
    head_table("Halting steps", "Over tokens and texts.", vec!["module", "mean", "least", "greatest"], rows.collect(), text);
}

/// A line for each thing that was not observed.
fn absences(analysis: &Analysis, text: &mut String) {
    let statistics = &analysis.statistics;
    let has = |kind: Kind| analysis.seen.iter().any(|(.., own)| *own == kind);
    let has_distances = statistics.heads.iter().any(|(_, head)| head.distance.count() > 0);
    let absent = [
        (has(Kind::Weights), "attention weights over keys"),
        (has_distances, "distances between the tokens of one text"),
        (has(Kind::SlotWeights), "weights of slots"),
        (has(Kind::Spans), "adaptive spans"),
        (has(Kind::Buckets), "hash buckets"),
        (has(Kind::Gate), "gates"),
        (has(Kind::HaltingSteps), "halting steps"),
    ];
    let mut lines: Vec<String> = absent.iter().filter(|(has, _)| !has).map(|(_, name)| format!("{name}: this model has none")).collect();
    lines.extend(State::ALL.into_iter().filter(|state| !analysis.has(*state)).map(|state| format!("the model {state}: not observed")));
    if analysis.maps().next().is_none() && !statistics.heads.is_empty() {
        lines.push("weights of single texts: none were asked for".into());
    }
    if !lines.is_empty() {
        let _ = write!(text, "\n## What there is not\n\n- {}\n", lines.join("\n- "));
    }
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.3}"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
