//! Wu et al. 2019: `o_i = sum_j softmax(kernel)_j x'_{i + j - ceil((k + 1) / 2)}`, `j` from 1 to `k`; causal: the last `k` positions up to `i`.

use heedful_attention::placement::Role;

use super::{Naive, View};
use crate::array::Array;
use crate::subject::Case;

/// What is the same in both mechanisms.
pub(super) struct Convolution {
    pub glu: bool,
    pub renormalise: bool,
}

impl Naive {
    /// Context `[B, Q, C]` and weights `[B, H, Q, K]`.
    pub(super) fn convolution(&self, options: &Convolution, case: &Case, view: &View) -> (Array, Array) {
        let (heads, width) = (self.placement.heads, self.placement.d_head());
        let (batch, length) = (case.batch(), case.length());
        let inputs: Vec<Vec<Vec<f64>>> =
            (0..batch).map(|b| (0..length).map(|j| self.convolved(options, case.query.row(&[b, j]))).collect()).collect();
        let mut weights = Array { shape: vec![batch, heads, length, length], values: vec![0.0; batch * heads * length * length] };
        for (b, h, i) in (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..length).map(move |i| (b, h, i)))) {
            let logits = self.taps(&inputs[b][i], h);
            let taps = logits.len();
            let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
            let row = weights.row_mut(&[b, h, i]);
            for (j, logit) in (1..=taps).zip(&logits) {
                let back = if self.placement.role == Role::Decoder { taps } else { (taps + 2) / 2 };
                let seen = (i + j).checked_sub(back).filter(|&key| key < length && (view.visible)(b, h, i, key));
                if let Some(key) = seen {
                    row[key] = logit.exp() / sum;
                }
            }
            let total: f64 = row.iter().sum();
            if options.renormalise && total > 0.0 {
                row.iter_mut().for_each(|weight| *weight /= total);
            }
        }
        let context = self.for_each_output(case, |b, i| {
            let channel = |c: usize| (0..length).map(|j| weights.at(&[b, c / width, i, j]) * inputs[b][j][c]).sum();
            (0..heads * width).map(channel).collect()
        });
        (context, weights)
    }

    fn affine(&self, map: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.parameter(&format!("{map}.weight"));
        let bias = self.parameters.get(&format!("{}{map}.bias", self.root));
        let sum = |column| x.iter().enumerate().map(|(row, x)| x * weight.at(&[row, column])).sum::<f64>();
        (0..weight.shape[1]).map(|column| sum(column) + bias.map_or(0.0, |bias| bias.at(&[column]))).collect()
    }

    fn convolved(&self, options: &Convolution, x: &[f64]) -> Vec<f64> {
        let projected = self.affine("input", x);
        if !options.glu {
            return projected;
        }
        let (values, gates) = projected.split_at(projected.len() / 2);
        values.iter().zip(gates).map(|(value, gate)| value / (1.0 + (-gate).exp())).collect()
    }

    /// Logits of a head's taps, for the input at the query.
    fn taps(&self, input: &[f64], head: usize) -> Vec<f64> {
        match self.parameters.get(&format!("{}kernel.weight", self.root)) {
            Some(kernel) => kernel.row(&[head]).to_vec(),
            None => {
                let predicted = self.affine("kernel.predictor", input);
                let taps = predicted.len() / self.placement.heads;
                predicted[head * taps..(head + 1) * taps].to_vec()
            }
        }
    }
}
