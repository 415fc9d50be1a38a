//! Prediction of a value from its neighbours.

use std::f64::consts::LN_2;

use heedful_data::images::{ImageSet, Images};
use heedful_host::display::grouped;
use heedful_host::interrupt::Interrupt;
use heedful_metrics::baselines::n_gram::{Event, KneserNey, MOST_TOKENS};
use heedful_runs::trivial::TrivialBaseline;

use super::config::row;
use super::task::{BITS, LOWER_HALF};

/// The order of a model that is given two neighbours.
const TRIGRAM: usize = 2;

/// The distribution of a value given the values to its left and above, of the same channel; `None` if the interrupt was raised meanwhile.
pub(super) fn neighbours(images: &Images, interrupt: &Interrupt) -> Option<TrivialBaseline> {
    let all = images.train.len();
    // Images may be sorted by their classes.
    let every = (all * images.size()).div_ceil(MOST_TOKENS).max(1);
    let counted = (0..all).step_by(every);
    let seen = match counted.len() {
        seen if seen < all => format!("{} of {}", grouped(seen as u64), grouped(all as u64)),
        _ => format!("all {}", grouped(all as u64)),
    };
    let model = KneserNey::of_events(counted.flat_map(|number| events(images, images.train.image(number))), images.levels);
    let description = format!(
        "the distribution of a value given the values to its left and above, of the same channel, counted in {seen} training images, with interpolated modified \
         Kneser-Ney smoothing."
    );
    let mut baseline = TrivialBaseline::new("left and upper neighbour", description);
    for (set, is_test) in [(&images.dev, false), (&images.test, true)] {
        let [upper, lower] = halves(&model, images, set, interrupt)?;
        let values = set.len() as f64 * images.size() as f64 * LN_2;
        let share = (images.height - images.height / 2) as f64 / images.height as f64;
        let scores = [(BITS, (upper + lower) / values), (LOWER_HALF, lower / (values * share))].map(|(name, bits)| (name.to_owned(), bits));
        baseline = if is_test { baseline.scores(scores) } else { baseline.devs(scores) };
    }
    Some(baseline)
}

/// The nats of the upper and of the lower halves of images.
fn halves(model: &KneserNey, images: &Images, set: &ImageSet, interrupt: &Interrupt) -> Option<[f64; 2]> {
    let upper = images.height / 2 * row(images);
    let of = |is_upper: bool| {
        let half = move |image| events(images, image).enumerate().filter(move |(place, _)| (*place < upper) == is_upper);
        let events = (0..set.len()).flat_map(move |number| half(set.image(number)));
        Some(model.total_nats(events.map(|(_, event)| event), interrupt)?[TRIGRAM])
    };
    Some([of(true)?, of(false)?])
}

/// Each value, row by row, with those above and to its left before it. Neighbours of different channels are different tokens, and so is what lies outside.
fn events<'i>(images: &Images, image: &'i [u8]) -> impl Iterator<Item = Event> + 'i {
    let (row, channels, levels) = (row(images), images.channels, images.levels as u32);
    (0..image.len()).map(move |place| {
        let neighbour = |is_there: bool, distance: usize| {
            let value = if is_there { u32::from(image[place - distance]) } else { levels };
            (place % channels) as u32 * (levels + 1) + value
        };
        let history = [neighbour(place >= row, row), neighbour(place % row >= channels, channels)];
        Event::new(&history, u32::from(image[place]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::experiment::Experiment;
    use crate::tasks::image::{ImageConfig, ImageModelling};

    /// Images of two rows and two colour pixels, of which the right one is the left one, and the lower row the upper one.
    fn images() -> Images {
        let image = |number: u8| {
            let pixel = [number % 4, (number / 4) % 4, (number + 1) % 4];
            [pixel, pixel, pixel, pixel].concat()
        };
        let set = |numbers: std::ops::Range<u8>| ImageSet { labels: vec![0; numbers.len()], pixels: numbers.flat_map(image).collect() };
        let (train, dev, test) = (set(0..64), set(0..8), set(8..16));
        Images { name: String::new(), height: 2, width: 2, channels: 3, levels: 4, classes: 1, train, dev, test, sha256: String::new() }
    }

    #[test]
    fn neighbours_are_those_of_the_same_channel() {
        let images = images();
        let found: Vec<Event> = events(&images, &[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]).collect();
        // Outside is 4, and each channel has five numbers.
        let expected = [(0, [4, 4], 0), (1, [9, 9], 1), (3, [4, 0], 3), (4, [9, 6], 0), (6, [0, 4], 2), (10, [5, 8], 2)];
        for (place, history, target) in expected {
            assert_eq!(found[place], Event::new(&history, target), "value {place}");
        }
    }

    #[test]
    fn what_repeats_its_neighbours_takes_few_bits_behind_the_first_row() {
        let baseline = neighbours(&images(), &Interrupt::new()).unwrap();
        let [bits, lower] = [BITS, LOWER_HALF].map(|name| baseline.metric(name).unwrap());
        assert!(bits < 1.1 && lower < 0.3 && lower < bits, "{baseline:?}");
        assert!(baseline.dev.contains_key(BITS) && baseline.description.contains("all 64 training images"), "{baseline:?}");
    }

    #[test]
    fn images_that_are_made_here_have_fewer_bits_than_their_values() {
        let mut config = ImageConfig::default();
        config.own.0.data.generated_images = 60;
        let data = ImageModelling::open(&config).unwrap().remove(0);
        let baselines = ImageModelling::trivial_baselines(&config, &data, &Interrupt::new()).unwrap().unwrap();
        let most = (data.images.levels as f64).log2();
        assert!((0.05 * most..0.95 * most).contains(&baselines[0].metric(BITS).unwrap()), "{baselines:?}");
    }
}
