//! The scores of the most frequent class and of a linear model of pixels.

use heedful_data::images::{ImageSet, Images};
use heedful_host::display::grouped;
use heedful_host::interrupt::Interrupt;
use heedful_metrics::baselines::linear::{Linear, SparseRows, Targets};
use heedful_runs::trivial::TrivialBaseline;

use super::task::ACCURACY;
use crate::tasks::scoring::first_greatest;

/// Values of training images that are read, at most.
const MOST_VALUES: usize = 50_000_000;
/// The weight of the loss, scikit-learn's default of `C`.
const WEIGHT_OF_LOSS: f64 = 1.0;

/// The most frequent class, and logistic regression on pixels; `None` if the interrupt was raised meanwhile.
pub(super) fn baselines(images: &Images, interrupt: &Interrupt) -> Option<Vec<TrivialBaseline>> {
    let every = (images.train.len() * images.size()).div_ceil(MOST_VALUES).max(1);
    let labels: Vec<usize> = images.train.labels.iter().step_by(every).map(|&label| usize::from(label)).collect();
    let model = Linear::fit(&rows(images, &images.train, every), Targets::Classes(&labels, images.classes), WEIGHT_OF_LOSS, interrupt)?;
    let mut counts = vec![0; images.classes];
    images.train.labels.iter().for_each(|&label| counts[usize::from(label)] += 1);
    let most = first_greatest(&counts);
    let seen = match labels.len() {
        seen if seen < images.train.len() => format!("{} of {}", grouped(seen as u64), grouped(images.train.len() as u64)),
        seen => format!("all {}", grouped(seen as u64)),
    };
    let majority = TrivialBaseline::new("majority class", "always the most frequent class of the training set.");
    let description = format!("logistic regression on the values of pixels, from 0 to 1, with C = 1, of {seen} training images.");
    let linear = TrivialBaseline::new("logistic regression", description);
    let told = |set: &ImageSet| model.outputs(&rows(images, set, 1)).iter().map(|outputs| first_greatest(outputs)).collect::<Vec<_>>();
    let scored = |baseline: TrivialBaseline, told: &dyn Fn(&ImageSet) -> Vec<usize>| {
        let of = |set: &ImageSet| accuracy(set, &told(set));
        baseline.score(ACCURACY, of(&images.test)).dev(ACCURACY, of(&images.dev))
    };
    Some(vec![scored(majority, &|set| vec![most; set.len()]), scored(linear, &told)])
}

/// The values of every so many images, from 0 to 1.
fn rows(images: &Images, set: &ImageSet, every: usize) -> SparseRows {
    let mut rows = SparseRows::new(images.size());
    for number in (0..set.len()).step_by(every) {
        let values = set.image(number).iter().zip(0..).filter(|(value, _)| **value > 0);
        rows.push(&values.map(|(&value, place)| (place, f64::from(value) / (images.levels - 1) as f64)).collect::<Vec<_>>());
    }
    rows
}

fn accuracy(set: &ImageSet, told: &[usize]) -> f64 {
    let right = set.labels.iter().zip(told).filter(|(label, told)| usize::from(**label) == **told).count();
    right as f64 / set.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Images of four values, of which the brightest is that of the class. Every other one is of class 1.
    fn images() -> Images {
        let class = |number: u8| if number.is_multiple_of(2) { 1 } else { number % 4 };
        let image = |number: u8| (0..4).map(move |place| if place == class(number) { 3 } else { number % 2 });
        let set = |numbers: std::ops::Range<u8>| ImageSet {
            labels: numbers.clone().map(class).collect(),
            pixels: numbers.flat_map(image).collect(),
        };
        let (train, dev, test) = (set(0..80), set(0..8), set(0..16));
        Images { name: String::new(), height: 2, width: 2, channels: 1, levels: 4, classes: 4, train, dev, test, sha256: String::new() }
    }

    #[test]
    fn a_linear_model_tells_the_brightest_pixel_and_the_most_frequent_class_its_share() {
        let baselines = baselines(&images(), &Interrupt::new()).unwrap();
        let accuracy = |number: usize| (baselines[number].metric(ACCURACY).unwrap(), baselines[number].dev[ACCURACY]);
        assert_eq!((accuracy(0), accuracy(1)), ((0.75, 0.75), (1.0, 1.0)), "{baselines:?}");
        assert!(baselines[1].description.contains("all 80 training images"), "{baselines:?}");
    }

    #[test]
    fn an_interrupt_ends_the_fit() {
        let interrupt = Interrupt::new();
        interrupt.raise();
        assert_eq!(baselines(&images(), &interrupt), None);
    }
}
