//! Fourier token mixing (Lee-Thorp et al. 2021, section 3).
//!
//! `Y = Re(F_n X F_d)`, with elements `F_n[i, j] = exp(-2πi ij / n)` of the discrete Fourier transform: the real part of a transform over channels and a
//! transform over positions. Every output depends on every input by fixed weights. The layer has no parameters, not even value and output projections. The real
//! form is `C_n X C_d - S_n X S_d`, with the cosines and sines of the same angles. The layer computes it by matrix products with `n^2 d + n d^2`
//! multiplications, twice each. The fast transform of Burn 0.22.1 supports only lengths that are powers of two. The paper also multiplies matrices on TPUs, up
//! to 4,096 positions.
//!
//! The paper uses no mask, so padding enters its transforms. Here the transform covers only the `n` visible tokens, and hidden tokens count as 0: padding
//! changes nothing. All queries must see the same tokens. A causal form and decoding are impossible. The number of heads has no effect.
//!
//! Sensitivity of each output (rows) of an untrained layer to each input position (columns), for one sequence of 32 tokens.
//!
#![doc = include_str!("../../pictures/fnet.svg")]

use std::f64::consts::TAU;

use crate::engine::dropout::dropout;
use crate::mechanisms::prelude::*;

/// Configuration of [`Fnet`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct FnetConfig {
    /// Whether outputs are divided by `sqrt(n d)`, so that they have the magnitude of the inputs (default: no, as in the paper).
    pub orthonormal: bool,
}

/// Fourier transforms over positions and channels.
///
/// Should be created with [`FnetConfig`].
#[derive(Module, Debug)]
pub struct Fnet {
    /// Cosines of the transform over channels, `[C, C]`.
    cosines: Tensor<2>,
    /// Sines of the transform over channels, `[C, C]`.
    sines: Tensor<2>,
    orthonormal: bool,
    heads: usize,
    dropout: f64,
}

/// Cosines or sines of `2π i j / n`, row by row, for outputs at the transform indices `places` and all inputs `j`. `n` inputs are visible; hidden inputs get 0.
fn transform(seen: &[bool], places: &[usize], orthonormal: bool, of: fn(f64) -> f64) -> Vec<f32> {
    let count = seen.iter().filter(|&&seen| seen).count();
    let scale = if orthonormal { (count as f64).powf(-0.5) } else { 1.0 };
    // Angles repeat with period `n`.
    let numbers: Vec<f32> = (0..count).map(|step| (scale * of(TAU * step as f64 / count as f64)) as f32).collect();
    let mut table = Vec::with_capacity(places.len() * seen.len());
    for place in places {
        let mut index = 0;
        for &seen in seen {
            table.push(if seen { numbers[place * index % count] } else { 0.0 });
            index += usize::from(seen);
        }
    }
    table
}

/// Number of visible tokens before each token: its index in the transform.
fn places(seen: &[bool]) -> Vec<usize> {
    seen.iter()
        .scan(0, |before, &seen| {
            let place = *before;
            *before += usize::from(seen);
            Some(place)
        })
        .collect()
}

impl Mechanism for FnetConfig {
    type Module = AttentionOf<Fnet>;
    const NAME: &'static str = "fnet";
    const CARD: Card = Card {
        variant: "Fnet",
        description: "Mixes positions and channels by Fourier transforms without parameters, in encoders.",
        source: "Lee-Thorp et al. 2021, section 3",
        links: &["https://arxiv.org/abs/2105.03824", "https://github.com/google-research/google-research/tree/master/f_net"],
        kind: Kind::Whole,
        causal: false,
        time: "n^2 d + n d^2",
        state: "0",
        differences: &[
            "In the paper and its code padding enters and lengthens the transforms; here the transform excludes padding.",
            "Transforms are matrix products; the authors' code uses them for short sequences on TPUs and fast transforms otherwise.",
            "Dropout acts on the outputs; the authors' code applies none there.",
        ],
        has_engines: false,
        ..Card::DEFAULT
    };

    fn init(&self, spec: &LayerSpec, _key: &RandomKey, device: &Device) -> Fnet {
        let width = spec.d_model;
        let whole: Vec<_> = (0..width).collect();
        let table = |of: fn(f64) -> f64| {
            let numbers = transform(&vec![true; width], &whole, self.orthonormal, of);
            Tensor::from_data(TensorData::new(numbers, [width, width]), device)
        };
        Fnet { cosines: table(f64::cos), sines: table(f64::sin), orthonormal: self.orthonormal, heads: spec.heads, dropout: spec.dropout }
    }

    /// Lee-Thorp et al. 2021, equations 1 to 3: the real part of a complex sum.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(|query: &Query| {
            let seen: Vec<usize> = (0..query.keys()).filter(|&key| query.sees(key)).collect();
            let (count, width, own) = (seen.len() as f64, query.element().len(), query.spec().d_head());
            let place = seen.iter().filter(|&&key| key < query.index).count() as f64;
            let scale = if self.orthonormal { (count.max(1.0) * width as f64).powf(-0.5) } else { 1.0 };
            let output = |channel: usize| {
                let mut real = 0.0;
                for (index, &key) in seen.iter().enumerate() {
                    for (other, x) in query.attended(key).iter().enumerate() {
                        let turns = place * index as f64 / count + (channel * other) as f64 / width as f64;
                        real += x * (TAU * turns).cos();
                    }
                }
                scale * real
            };
            (query.head * own..(query.head + 1) * own).map(output).collect()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::none())
    }
}

impl Fnet {
    /// Cosines and sines over the positions, `[R, Q, K]`, for the visibility `[R, K]` of each of `R` rows and the last `queries` positions.
    fn over_positions(&self, seen: &[bool], queries: usize, x: &Tensor<3>) -> [Tensor<3>; 2] {
        let length = x.dims()[1];
        let rows: Vec<_> = seen.chunks(length).map(|seen| (seen, places(seen).split_off(length - queries))).collect();
        [f64::cos as fn(f64) -> f64, f64::sin].map(|of| {
            let table = rows.iter().flat_map(|(seen, places)| transform(seen, places, self.orthonormal, of)).collect();
            Tensor::from_data(TensorData::new(table, [rows.len(), queries, length]), (&x.device(), x.dtype()))
        })
    }
}

impl Attention for Fnet {
    /// Decoding steps are not supported.
    type State = ();

    fn abilities(&self) -> Abilities {
        // A probe observes no weights: they are complex.
        Abilities { steps: false, ..Abilities::new(Causality::Impossible) }
    }

    /// # Panics
    /// If queries do not all see the same tokens, or the memory does not end with the queries.
    fn forward(&self, input: AttentionInput, _: &mut Probe) -> AttentionOutput {
        let AttentionInput { query, memory, visibility, positions, random, .. } = input;
        let queries = query.dims()[1];
        let x = memory.unwrap_or(query);
        let [batch, length, width] = x.dims();
        assert_eq!(
            length,
            positions.start + queries,
            "a Fourier transform is of what precedes its sequence and of nothing else: {length} positions"
        );
        let span = Span { query_start: positions.start, queries, key_start: 0, keys: length };
        let seen = visibility.common_keys(span, self.heads).unwrap_or_else(|| {
            panic!("fnet transforms whole sequences: every query must see the same elements, and causal attention is impossible ({visibility:?})")
        });
        let over_channels = |table: &Tensor<2>| x.clone().reshape([batch * length, width]).matmul(table.clone().cast(x.dtype()));
        let over_channels = |table| over_channels(table).reshape([batch, length, width]);
        let [cosines, sines] = self.over_positions(&seen, queries, &x).map(|table| {
            let rows = table.dims()[0];
            if rows == batch { table } else { table.expand([batch, queries, length]) }
        });
        let mixed = cosines.matmul(over_channels(&self.cosines)) - sines.matmul(over_channels(&self.sines));
        let key = random.map(|key| key.named("output"));
        AttentionOutput::new(dropout(mixed, self.dropout, key.as_ref()))
    }

    /// # Panics
    /// Always: decoding steps are not supported.
    fn state(&self, _start: &DecodingStart) {
        panic!("fnet takes no steps: an output depends on all elements of its sequence");
    }

    /// # Panics
    /// Always: decoding steps are not supported.
    fn step(&self, _query: Tensor<3>, _state: &mut (), _probe: &mut Probe) -> AttentionOutput {
        panic!("fnet takes no steps: an output depends on all elements of its sequence");
    }

    fn select(&self, _state: &mut (), _rows: &[usize]) {}

    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64 {
        let (queries, keys, width) = (pairs.queries.len() as f64, pairs.keys as f64, (pairs.heads * pairs.d_head) as f64);
        2.0 * keys * width * width + 2.0 * queries * keys * width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_an_element_is_among_those_that_are_seen() {
        assert_eq!(places(&[false, true, true, false, true]), [0, 0, 1, 2, 2]);
        assert_eq!(transform(&[false, true, true], &[0, 1], false, f64::cos), [0.0, 1.0, 1.0, 0.0, 1.0, -1.0]);
        assert_eq!(transform(&[false, false], &[0, 0], false, f64::cos), [0.0; 4]);
    }
}
