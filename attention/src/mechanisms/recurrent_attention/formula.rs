//! Recurrences in double precision, pair by pair.

use crate::description::formula::{Query, dot};

/// Which elements are real, if each element of the row sees the real ones up to itself in all heads; otherwise all are taken to be.
pub(in crate::mechanisms) fn real(query: &Query) -> Vec<bool> {
    let (keys, heads) = (query.keys(), query.spec().heads);
    let in_head = |head: usize, index: usize| {
        let mut other = query.at(index);
        other.head = head;
        other
    };
    let real: Vec<bool> = (0..keys).map(|index| in_head(0, index).sees(index)).collect();
    let is_prefix = (0..heads).all(|head| {
        (0..keys).all(|index| {
            let query = in_head(head, index);
            (0..keys).all(|key| query.sees(key) == (key <= index && real[key]))
        })
    });
    if is_prefix { real } else { vec![true; keys] }
}

/// What one head writes and keeps, element by element.
pub(in crate::mechanisms) struct PlainRecurrence {
    /// What the query reads with, `[R]`.
    pub query: Vec<f64>,
    /// `[N, R]`.
    pub keys: Vec<Vec<f64>>,
    /// `[N, V]`.
    pub values: Vec<Vec<f64>>,
    /// Logarithms of decays `[N, R]`.
    pub log_decay: Vec<Vec<f64>>,
    /// How strongly elements write by the delta rule, `[N]`, if they do.
    pub strengths: Option<Vec<f64>>,
    /// Which elements let the state decay, `[N]`.
    pub real: Vec<bool>,
}

impl PlainRecurrence {
    /// `sum_(j <= i) sum_r q_r k_jr exp(g_(j + 1)r + .. + g_ir) u_j` over the elements that the query `i` sees, `[V]`. What is written is the value, `u_j = v_j`;
    /// by the delta rule it is the value without what was read with the key before, `b_j (v_j - sum_(l < j) sum_r k_jr k_lr exp(g_(l + 1)r + .. + g_jr) u_l)`.
    pub(in crate::mechanisms) fn read(&self, query: &Query) -> Vec<f64> {
        let mut written: Vec<Vec<f64>> = Vec::new();
        for index in 0..=query.index {
            let value = self.values[index].clone();
            written.push(match &self.strengths {
                None => value,
                Some(strengths) => {
                    let own = query.at(index);
                    let before = self.sum(&own, &self.keys[index], &written);
                    value.iter().zip(before).map(|(value, before)| strengths[index] * (value - before)).collect()
                }
            });
        }
        self.sum(query, &self.query, &written)
    }

    /// What `x` reads at the query of what was written so far.
    fn sum(&self, query: &Query, x: &[f64], written: &[Vec<f64>]) -> Vec<f64> {
        let mut sum = vec![0.0; self.values[0].len()];
        for (key, written) in written.iter().enumerate().filter(|(key, _)| query.sees(*key)) {
            let weight = self.similarity(x, query.index, key);
            sum.iter_mut().zip(written).for_each(|(sum, written)| *sum += weight * written);
        }
        sum
    }

    /// The product of `x`, which stands at `index`, and an earlier key, as far as it has decayed until then.
    fn similarity(&self, x: &[f64], index: usize, key: usize) -> f64 {
        let passed = |channel: usize| {
            let decays = (key + 1..=index).filter(|&at| self.real[at]).map(|at| self.log_decay[at][channel]);
            decays.sum::<f64>().exp()
        };
        let decayed: Vec<f64> = self.keys[key].iter().enumerate().map(|(channel, key)| key * passed(channel)).collect();
        dot(x, &decayed)
    }
}
