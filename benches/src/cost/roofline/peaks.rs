//! The peaks of the machine: the best times of some works.

use std::hint::black_box;

use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use heedful_attention::contract::init::{self, Init};
use heedful_attention::engine::linear::linear;
use heedful_random::RandomKey;
use rayon::prelude::*;

use crate::workload::wait;

/// The product of rows with a square matrix, by what multiplies in linear maps.
pub(super) struct Product {
    rows: Tensor<2>,
    map: Linear,
}

impl Product {
    /// Of two square matrices.
    pub(super) fn new(width: usize, device: &Device) -> Self {
        Self::of_rows(width, width, device)
    }

    pub(super) fn of_rows(rows: usize, width: usize, device: &Device) -> Self {
        let key = RandomKey::from_seed(0);
        Self { rows: Init::Normal(1.0).tensor([rows, width], &key, device), map: init::linear(width, width, false, &key, device) }
    }

    pub(super) fn run(&self) {
        let product = linear(self.rows.clone(), &self.map);
        wait(&product);
        black_box(product);
    }
}

/// `a = b + 3 c` of arrays that no cache holds (McCalpin 1995, STREAM).
pub(super) struct Triad {
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Triad {
    /// Arrays of so many numbers, each part of which is first written by a thread that computes here.
    pub(super) fn new(numbers: usize) -> Self {
        let array = |number: f32| (0..numbers).into_par_iter().map(|_| number).collect::<Vec<_>>();
        Self { a: array(0.0), b: array(1.0), c: array(2.0) }
    }

    /// One contiguous part for each thread of the pool that it is called from.
    pub(super) fn run(&mut self) {
        let part = self.a.len().div_ceil(rayon::current_num_threads()).max(1);
        let parts = self.a.par_chunks_mut(part).zip(self.b.par_chunks(part)).zip(self.c.par_chunks(part));
        parts.for_each(|((a, b), c)| a.iter_mut().zip(b).zip(c).for_each(|((a, b), c)| *a = b + 3.0 * c));
        black_box(&self.a);
    }
}

/// Bytes of the largest cache among descriptions such as `L3 Unified 32768K`; 0 if none is known.
pub(super) fn largest_cache(caches: &[String]) -> usize {
    let size = |cache: &String| -> Option<usize> {
        let amount = cache.split_whitespace().last()?;
        let (digits, unit) = amount.split_at(amount.trim_end_matches(char::is_alphabetic).len());
        let unit = match unit {
            "K" => 1 << 10,
            "M" => 1 << 20,
            _ => 1,
        };
        digits.parse::<usize>().ok()?.checked_mul(unit)
    };
    caches.iter().filter_map(size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_triad_writes_every_number_on_any_number_of_threads() {
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let triad = pool.install(|| {
                let mut triad = Triad::new(1000);
                triad.run();
                triad
            });
            assert_eq!(triad.a, [7.0; 1000], "{threads} threads");
        }
    }

    #[test]
    fn the_largest_cache_is_found() {
        let caches = |names: &[&str]| largest_cache(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(caches(&["L1 Data 32K", "L3 Unified 32768K", "L2 Unified 1024K"]), 32 << 20);
        assert_eq!(caches(&["L2 Unified 2M", "L1 Data 32K"]), 2 << 20);
        assert_eq!(caches(&[]), 0);
        assert_eq!(caches(&["L1 Data unknown"]), 0);
    }
}
