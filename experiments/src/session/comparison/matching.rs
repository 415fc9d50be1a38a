//! Candidates of equal size: the width of feed-forward networks compensates for the parameters in which attentions differ.

use burn::tensor::Device;
use heedful_models::prelude::*;
use heedful_runs::settings::Settings;

use crate::session::error::ExperimentError;
use crate::session::experiment::definition::{Candidate, Config, Experiment, Setup};
use crate::train::{ParameterCount, Task};

/// The field that asks for it.
const FIELD: &str = "run.match_parameters";

/// Sets the feed-forward width of all candidates but the first so that each has as nearly the parameters of the first as widths of a multiple of
/// `run.match_parameters` allow. Does nothing where that is not given.
///
/// # Errors
/// A usage error for candidates that have no feed-forward network, whose sizes are those of another model, or that no width makes as small.
pub(super) fn match_parameters<E: Experiment>(
    settings: &Settings<Config<E>>,
    candidates: &mut [Candidate<E>],
    datasets: &[E::Data],
) -> Result<(), ExperimentError> {
    let Some(multiple) = settings.value.run.match_parameters else { return Ok(()) };
    let refuse = |problem: String| Err(settings.refuse(FIELD, problem).into());
    if E::beneath(&settings.value)?.is_some() {
        return refuse("the sizes are those of a model that is there already; leave it out".to_owned());
    }
    let (Some(dataset), Some((first, others))) = (datasets.first(), candidates.split_first_mut()) else { return Ok(()) };
    if others.is_empty() {
        return refuse("there is nothing to match; compare several attentions, or leave it out".to_owned());
    }
    let target = parameters(first, dataset, first.config.model.d_ff)?;
    let mut widths = vec![(first.attention.name.clone(), first.config.model.d_ff)];
    for candidate in others.iter_mut().filter(|candidate| candidate.weights_of.is_none()) {
        let (name, own) = (&candidate.attention.name, candidate.config.model.d_ff);
        let has_none = candidate.config.model.feed_forward_in == FeedForwardIn::None;
        let before = parameters(candidate, dataset, own)?;
        let of_multiple = if has_none { 0.0 } else { parameters(candidate, dataset, own + multiple)? - before };
        if of_multiple <= 0.0 {
            return refuse(format!("`{name}` has no feed-forward network whose width could change its size; leave it out"));
        }
        let exact = own as f64 + (target - before) / of_multiple * multiple as f64;
        let width = (exact / multiple as f64).round() * multiple as f64;
        if width < 1.0 {
            let least = before - of_multiple / multiple as f64 * own as f64;
            let first = &first.attention.name;
            return refuse(format!(
                "`{name}` has {least} parameters without its feed-forward networks, and `{first}` {target} with them; give a larger model.d_ff, or leave it out"
            ));
        }
        candidate.config.model.d_ff = width as usize;
        widths.push((name.clone(), width as usize));
    }
    for candidate in candidates {
        if let Some(source) = &candidate.weights_of
            && let Some((_, width)) = widths.iter().find(|(name, _)| name == source)
        {
            candidate.config.model.d_ff = *width;
        }
    }
    Ok(())
}

/// The trained parameters of a candidate with a feed-forward width.
fn parameters<E: Experiment>(candidate: &Candidate<E>, dataset: &E::Data, d_ff: usize) -> Result<f64, ExperimentError> {
    let Candidate { attention, config, .. } = candidate;
    let mut config = E::of_seed(config, config.run.seed);
    config.model.d_ff = d_ff;
    let setup = Setup { config: &config, data: dataset, attention };
    let model = E::model(setup, &RandomKey::from_seed(0), &Device::flex().autodiff())?;
    Ok(ParameterCount::of(&E::task(setup).without_training_parts(model)).trainable as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::comparison::candidates;
    use crate::session::footprint::Memory;
    use crate::tasks::language::Language;

    fn matched(options: &[&str]) -> Result<Vec<(usize, f64)>, ExperimentError> {
        let sizes = [
            "model.d_model=16",
            "model.heads=2",
            "model.layers=2",
            "model.d_ff=64",
            "model.max_length=16",
            "data.context=8",
            "data.stride=8",
        ];
        let mut settings = Settings::<Config<Language>>::set(&[&sizes, options].concat()).unwrap();
        let mut candidates = candidates::<Language>(&mut settings, Memory::here()).unwrap();
        let datasets = Language::open(&settings.value).unwrap();
        match_parameters(&settings, &mut candidates, &datasets)?;
        let width = |candidate: &Candidate<Language>| candidate.config.model.d_ff;
        candidates.iter().map(|candidate| Ok((width(candidate), parameters(candidate, &datasets[0], width(candidate))?))).collect()
    }

    #[test]
    fn widths_make_candidates_as_large_as_the_first() {
        let attentions = "run.attention=['dot-product','uniform','synthesizer-random','none']";
        let found = matched(&[attentions, "run.match_parameters=1"]).unwrap();
        let [(first, target), others @ ..] = &found[..] else { panic!("{found:?}") };
        assert_eq!(*first, 64);
        // A hidden unit has 16 weights on either side and a bias, in each of 2 layers.
        assert!(others.iter().all(|(_, count)| (count - target).abs() <= 33.0), "{found:?}");
        assert!(found[1].0 > 64 && found[3].0 > found[1].0, "{found:?}");
        let rounded = matched(&[attentions, "run.match_parameters=8"]).unwrap();
        assert!(rounded.iter().all(|(width, _)| width % 8 == 0), "{rounded:?}");
        let plain = matched(&[attentions]).unwrap();
        assert!(plain.iter().all(|(width, _)| *width == 64), "{plain:?}");
    }

    #[test]
    fn what_cannot_be_matched_is_refused() {
        let refused = |options: &[&str]| {
            let error = matched(options).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        let alone = refused(&["run.attention=['uniform']", "run.match_parameters=8"]);
        assert!(alone.contains("nothing to match"), "{alone}");
        let two = "run.attention=['none','dot-product']";
        let without = refused(&[two, "run.match_parameters=8", "model.feed_forward_in='none'"]);
        assert!(without.contains("no feed-forward network"), "{without}");
        let too_large = refused(&[two, "run.match_parameters=8", "model.d_ff=8"]);
        assert!(too_large.contains("larger model.d_ff"), "{too_large}");
    }
}
