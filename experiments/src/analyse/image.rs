//! Attention on images, as the paper of the Sparse Transformer shows it (Child et al. 2019, figure 2): where a head looks while the model generates a pixel,
//! and how many rows and columns away that is.
//!
//! A position of the decoder predicts an element of the image, a value or a pixel. Its keys are the elements before that one. Weights are therefore those of a
//! generated pixel on the pixels before it. The weight of the token that begins an image belongs to no pixel and is left out of distances.

use super::record::{Kind, Observed};
use super::statistics::Mean;
use crate::session::experiment::seen_image::SeenImage;

/// How far a head looks in images.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ImageDistances {
    /// Rows between the generated pixel and the attended pixels: the mean over these by weight, and over all generated pixels.
    pub rows: Mean,
    /// The same of columns.
    pub columns: Mean,
}

/// Which weights are laid over an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PixelChoice {
    /// Row and column of the pixel, from 0; by default those of the middle.
    pub pixel: Option<[usize; 2]>,
    /// The layers, from 0; none: all.
    pub layers: Vec<usize>,
}

impl PixelChoice {
    /// Row and column in an image.
    pub(super) fn pixel_of(&self, image: &SeenImage) -> [usize; 2] {
        self.pixel.unwrap_or([image.height / 2, image.width / 2])
    }

    /// Whether the attention of this path is chosen.
    pub(super) fn has(&self, module: &str) -> bool {
        self.layers.is_empty() || layer(module).is_some_and(|layer| self.layers.contains(&layer))
    }
}

/// The layer that a path names.
pub(super) fn layer(module: &str) -> Option<usize> {
    let mut parts = module.split('.').skip_while(|part| *part != "layers").skip(1);
    parts.next()?.parse().ok()
}

impl SeenImage {
    /// Row and column of a pixel.
    fn place(&self, pixel: usize) -> [usize; 2] {
        [pixel / self.width, pixel % self.width]
    }

    /// Whether an observation is of weights between the elements of this image.
    pub(super) fn is_seen_in(&self, observed: &Observed) -> bool {
        let is_of_decoder = !observed.module.starts_with("encoder") && observed.query_start == Some(0);
        observed.kind == Kind::Weights && is_of_decoder && observed.queries.len() == self.pixels.len()
    }

    /// The position at which the first value of a pixel is generated.
    pub(super) fn position(&self, [row, column]: [usize; 2]) -> Option<usize> {
        self.pixels.iter().position(|&pixel| self.place(pixel) == [row, column])
    }

    /// The weights of pixels in a row of weights, `None` for those that were not there yet at this position.
    pub(super) fn over_pixels(&self, weights: &[f32], position: usize) -> Vec<Option<f64>> {
        let mut over = vec![None; self.height * self.width];
        // A key shows the element before it in the order of generation.
        for (&pixel, &weight) in self.pixels[..position].iter().zip(&weights[1..]) {
            *over[pixel].get_or_insert(0.0) += f64::from(weight);
        }
        over
    }

    /// Rows and columns between the pixel of a position and those that it looks at; `None` where it looks at none.
    fn distances(&self, weights: &[f32], position: usize) -> Option<[f64; 2]> {
        let [row, column] = self.place(self.pixels[position]);
        let (mut sum, mut rows, mut columns) = (0.0, 0.0, 0.0);
        for (&pixel, &weight) in self.pixels[..position].iter().zip(&weights[1..]) {
            let ([other_row, other_column], weight) = (self.place(pixel), f64::from(weight));
            sum += weight;
            rows += weight * row.abs_diff(other_row) as f64;
            columns += weight * column.abs_diff(other_column) as f64;
        }
        (sum > 0.0).then(|| [rows / sum, columns / sum])
    }

    /// Adds the distances of a head with these weights `[queries, keys]`.
    pub(super) fn add_distances(&self, weights: &[f32], distances: &mut ImageDistances) {
        for (position, row) in weights.chunks_exact(self.pixels.len()).enumerate() {
            if let Some([rows, columns]) = self.distances(row, position) {
                distances.rows.add(rows);
                distances.columns.add(columns);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::analyse::record::State;

    /// Two rows of three grey pixels, read row by row.
    pub(crate) fn image() -> SeenImage {
        SeenImage { height: 2, width: 3, channels: 1, levels: 4, values: vec![0, 1, 2, 3, 0, 1], pixels: (0..6).collect() }
    }

    /// Weights of one head with one key for each query.
    pub(crate) fn looking(at: [usize; 6]) -> Observed {
        let tokens: Vec<String> = (0..6).map(|at| at.to_string()).collect();
        let mut values = vec![0.0; 36];
        at.iter().enumerate().for_each(|(query, key)| values[6 * query + key] = 1.0);
        Observed {
            state: State::Trained,
            text: 0,
            module: "decoder.layers.1.self_attention".into(),
            queries: tokens.clone(),
            keys: tokens,
            query_start: Some(0),
            kind: Kind::Weights,
            shape: vec![1, 6, 6],
            values,
        }
    }

    #[test]
    fn a_head_that_looks_at_the_pixel_above_has_one_row_and_no_column() {
        // The second row looks up; key 1 is the first pixel.
        let observed = looking([0, 0, 0, 1, 2, 3]);
        let mut distances = ImageDistances::default();
        image().add_distances(&observed.values, &mut distances);
        assert_eq!((distances.rows.value(), distances.columns.value(), distances.rows.count()), (Some(1.0), Some(0.0), 3));
    }

    #[test]
    fn a_head_that_looks_at_the_pixel_before_goes_back_to_the_end_of_the_row_above() {
        let observed = looking([0, 1, 2, 3, 4, 5]);
        let mut distances = ImageDistances::default();
        image().add_distances(&observed.values, &mut distances);
        // Four times a column to the left, once a row up and two columns to the right.
        assert_eq!((distances.rows.value(), distances.columns.value()), (Some(1.0 / 5.0), Some(6.0 / 5.0)));
    }

    #[test]
    fn values_of_a_pixel_are_added_and_what_is_to_come_has_no_weight() {
        let coloured = SeenImage { channels: 3, width: 1, pixels: vec![0, 0, 0, 1, 1, 1], values: vec![0; 6], ..image() };
        let mut weights = vec![0.5, 0.125, 0.25, 0.0, 0.125, 0.0];
        assert_eq!(coloured.position([1, 0]), Some(3));
        assert_eq!(coloured.over_pixels(&weights, 3), [Some(0.375), None]);
        // The second value of the lower pixel sees the first one.
        assert_eq!(coloured.over_pixels(&weights, 4), [Some(0.375), Some(0.125)]);
        weights[1] = 0.0;
        assert_eq!(coloured.over_pixels(&weights, 0), [None, None]);
    }

    #[test]
    fn layers_are_chosen_by_number() {
        let choice = PixelChoice { layers: vec![1, 12], ..PixelChoice::default() };
        assert!(choice.has("decoder.layers.12.self_attention") && !choice.has("decoder.layers.2.self_attention"));
        assert!(!choice.has("model") && PixelChoice::default().has("model"));
        assert_eq!(PixelChoice::default().pixel_of(&image()), [1, 1]);
    }

    #[test]
    fn only_weights_between_elements_of_the_image_are_of_it() {
        let observed = looking([0; 6]);
        assert!(image().is_seen_in(&observed));
        assert!(!image().is_seen_in(&Observed { module: "encoder.layers.0.self_attention".into(), ..observed.clone() }));
        assert!(!image().is_seen_in(&Observed { query_start: None, ..observed.clone() }));
        assert!(!image().is_seen_in(&Observed { kind: Kind::SlotWeights, ..observed }));
    }
}
