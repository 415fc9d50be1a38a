//! What voids a test.

use heedful_metrics::Spread;

use super::claim::Pitfall;
use super::ledger::integer;
use super::runs::{Contender, Reason, Runs};
use super::sum::Sum;

/// Why a pitfall voids tests, or that it cannot be looked at; `None` if it does not. What another claim says is not looked at here.
pub(super) fn reason(runs: &Runs<'_>, pitfall: &Pitfall) -> Option<Reason> {
    found(runs, pitfall).unwrap_or_else(Some)
}

fn found(runs: &Runs<'_>, pitfall: &Pitfall) -> Result<Option<Reason>, Reason> {
    let void = |sentence: String| Ok(Some(Reason::Void(sentence)));
    match pitfall {
        Pitfall::Score { of, above, below, why, .. } => {
            let (who, score) = score(runs, of)?;
            let is_too_low = above.is_some_and(|bound| score <= bound || score.is_nan());
            let is_too_high = below.is_some_and(|bound| score >= bound || score.is_nan());
            let bound = if is_too_low { above } else { below };
            match is_too_low || is_too_high {
                true => void(format!(
                    "{who} has {score:.3} {}, {} {}: {why}",
                    of.unit,
                    if is_too_low { "not more than" } else { "not less than" },
                    bound.unwrap_or_default()
                )),
                false => Ok(None),
            }
        }
        Pitfall::HidesNothing { block, part, contender, option, length, .. } => {
            let table = runs.configuration(block, part.as_deref(), contender)?;
            match integer(table, option) {
                Some(size) if size < *length => Ok(None),
                Some(size) => void(format!("{option} of {contender} is {size}, and texts have {length} elements: it hides nothing")),
                None => void(format!("{contender} does not say its {option}")),
            }
        }
        Pitfall::Parameters { of, within, .. } => {
            let contenders = runs.contenders(of, true)?;
            let parameters = || contenders.iter().map(|contender| contender.parameters);
            let (least, most) = (parameters().min().unwrap_or_default(), parameters().max().unwrap_or_default());
            match most as f64 <= least as f64 * (1.0 + within) {
                true => Ok(None),
                false => void(format!("contenders that must be of one size have {least} and {most} parameters")),
            }
        }
        Pitfall::Requires { .. } => Ok(None),
    }
}

/// The weighted sum of the mean scores, and whose they are.
fn score(runs: &Runs<'_>, sum: &Sum) -> Result<(String, f64), Reason> {
    let contenders = runs.contenders(sum, false)?;
    let mean = |contender: &Contender| {
        let values: Vec<f64> = contender.values.iter().copied().flatten().collect();
        contender.weight * Spread::of(&values).map_or(f64::NAN, |spread| spread.mean)
    };
    let score = contenders.iter().map(mean).sum();
    let names: Vec<&str> = contenders.iter().map(|contender| contender.label.as_str()).collect();
    Ok((names.join(" and "), score))
}
