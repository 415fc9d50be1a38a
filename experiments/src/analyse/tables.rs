//! Everything as tables of comma-separated values, for other programs. An empty cell is a value that does not exist.

use std::io::{self, BufWriter, Write};

use heedful_host::whole_files::FileError;

use super::histogram::Histogram;
use super::record::{Kind, Observed, State};
use super::statistics::{Mean, Place};
use super::{Analysis, Files, named};

/// Writes the tables of what was observed.
pub(super) fn write(analysis: &Analysis, files: &mut Files<'_>) -> Result<(), FileError> {
    let statistics = &analysis.statistics;
    if !statistics.heads.is_empty() {
        let sentence = "Entropy, distance and shares of each head, as means over all queries of all texts.";
        let header = "state,module,head,of,queries,hidden,sum,entropy,relative_entropy,largest,distance,itself,previous,next,first";
        let rows = statistics.heads.iter().map(|(place, head)| {
            let means = [
                head.total,
                head.entropy,
                head.relative_entropy,
                head.largest,
                head.distance,
                head.itself,
                head.previous,
                head.next,
                head.first,
            ];
            let counts = [of(place).to_string(), head.total.count().to_string(), head.hidden.to_string()];
            placed(place).into_iter().chain(counts).chain(means.map(value)).collect()
        });
        write_rows(files, "statistics.csv", sentence, header, rows)?;
    }
    let divergences = statistics.divergences();
    if !divergences.is_empty() {
        let sentence = "How far the histogram of each head's weights after training is from that at initialisation: Jensen-Shannon divergence, in nats.";
        let rows = divergences
            .into_iter()
            .map(|(place, divergence)| vec![named(&place.module).into(), place.head.to_string(), of(place).into(), divergence.to_string()]);
        write_rows(files, "divergence.csv", sentence, "module,head,of,divergence", rows)?;
    }
    if !statistics.heads.is_empty() || !statistics.gates.is_empty() {
        let sentence = "Counts of weights that are not 0, of their decimal logarithms, and of gate openings, in bins of equal width.";
        let heads = statistics.heads.iter().flat_map(|(place, head)| {
            [("weight", &head.weights), ("log10 weight", &head.logarithms)].map(|(scale, histogram)| (place, scale, histogram))
        });
        let gates = statistics.gates.iter().map(|(place, gate)| (place, "opening", &gate.openings));
        let rows = heads.chain(gates).flat_map(|(place, scale, histogram)| bins(place, scale, histogram));
        write_rows(files, "histogram.csv", sentence, "state,module,head,scale,from,to,count", rows)?;
    }
    if !statistics.spans.is_empty() {
        let rows = statistics.spans.iter().map(|(place, extent)| {
            placed(place).into_iter().chain([value(extent.mean), extent.least.to_string(), extent.greatest.to_string()]).collect()
        });
        write_rows(files, "spans.csv", "The span of each head, in tokens.", "state,module,head,mean,least,greatest", rows)?;
    }
    if !statistics.buckets.is_empty() {
        let sentence = "How the hash of each head sorts positions into buckets, as means over rounds and texts.";
        let rows = statistics.buckets.iter().map(|(place, buckets)| {
            let means = [buckets.used, buckets.size, buckets.largest, buckets.together, buckets.agreement];
            placed(place).into_iter().chain(means.map(value)).collect()
        });
        write_rows(files, "buckets.csv", sentence, "state,module,head,used,size,largest,together,agreement", rows)?;
    }
    if !statistics.gates.is_empty() {
        let rows = statistics.gates.iter().map(|(place, gate)| {
            let deviation = gate.deviation().map(|deviation| deviation.to_string()).unwrap_or_default();
            vec![place.state.name().into(), named(&place.module).into(), gate.mean().count().to_string(), value(gate.mean()), deviation]
        });
        write_rows(files, "gates.csv", "How far each gate is open, from 0 to 1.", "state,module,openings,mean,deviation", rows)?;
    }
    if !statistics.halting.is_empty() {
        let rows = State::ALL.into_iter().flat_map(|state| analysis.halting(state)).flat_map(steps);
        write_rows(files, "halting.csv", "The steps after which each token halted.", "state,text,module,position,token,steps", rows)?;
    }
    if !statistics.image.is_empty() {
        let sentence =
            "Rows and columns between the pixel that is generated and those that a head looks at, as means over all pixels of all images.";
        let rows = statistics.image.iter().map(|(place, distances)| {
            let count = distances.rows.count().to_string();
            placed(place).into_iter().chain([count, value(distances.rows), value(distances.columns)]).collect()
        });
        write_rows(files, "image-distance.csv", sentence, "state,module,head,queries,rows,columns", rows)?;
    }
    if !analysis.mixtures.is_empty() {
        let sentence = "What each member of a mixture weighs in each head; where all heads have one weight, the head is empty.";
        let rows = analysis.member_weights().map(|(state, module, head, member, weight)| {
            let head = head.map(|head| head.to_string()).unwrap_or_default();
            vec![state.name().into(), named(module).into(), head, member.into(), weight.to_string()]
        });
        write_rows(files, "mixtures.csv", sentence, "state,module,head,member,weight", rows)?;
    }
    if analysis.maps().next().is_some() {
        let sentence = format!("Every weight of the texts shown, {}.", analysis.shown());
        let header = "text,module,head,query,key,weight,query_token,key_token";
        write_rows(files, "weights.csv", &sentence, header, analysis.maps().flat_map(weights))?;
    }
    Ok(())
}

/// What weights are over.
fn of(place: &Place) -> &'static str {
    if place.kind == Kind::Weights { "keys" } else { "slots" }
}

fn placed(place: &Place) -> Vec<String> {
    vec![place.state.name().into(), named(&place.module).into(), place.head.to_string()]
}

fn value(mean: Mean) -> String {
    mean.value().map(|value| value.to_string()).unwrap_or_default()
}

fn bins(place: &Place, scale: &'static str, histogram: &Histogram) -> impl Iterator<Item = Vec<String>> {
    let end = |end: Option<f64>| end.map(|end| end.to_string()).unwrap_or_default();
    histogram
        .bins()
        .map(move |(from, to, count)| placed(place).into_iter().chain([scale.into(), end(from), end(to), count.to_string()]).collect())
}

fn steps(observed: &Observed) -> impl Iterator<Item = Vec<String>> {
    let text = [observed.state.name().to_string(), observed.text.to_string(), named(&observed.module).to_string()];
    observed.queries.iter().zip(&observed.values).enumerate().map(move |(position, (token, steps))| {
        text.iter().cloned().chain([position.to_string(), token.clone(), steps.to_string()]).collect()
    })
}

fn weights(observed: &Observed) -> impl Iterator<Item = Vec<String>> {
    let columns = observed.columns();
    observed.values.iter().enumerate().map(move |(at, weight)| {
        let (key, query) = (at % columns.len(), at / columns.len() % observed.queries.len());
        let head = at / columns.len() / observed.queries.len();
        let place = [observed.text.to_string(), named(&observed.module).to_string()];
        let numbers = [head.to_string(), query.to_string(), key.to_string(), weight.to_string()];
        place.into_iter().chain(numbers).chain([observed.queries[query].clone(), columns[key].clone()]).collect()
    })
}

fn write_rows(
    files: &mut Files<'_>,
    name: &str,
    sentence: &str,
    header: &str,
    mut rows: impl Iterator<Item = Vec<String>>,
) -> Result<(), FileError> {
    files.write(name, sentence, |file| {
        let mut writer = csv::Writer::from_writer(BufWriter::new(file));
        writer.write_record(header.split(','))?;
        rows.try_for_each(|row| writer.write_record(row))?;
        writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?.flush()
    })
}
