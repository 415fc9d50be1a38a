//! Recurrences in double precision, pair by pair.

use crate::description::formula::{Query, dot};

/// Flags of real tokens if each token of the row sees exactly the real tokens up to itself in all heads; otherwise all are treated as real.
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

/// Writes and decays of one head, token by token.
pub(in crate::mechanisms) struct PlainRecurrence {
    /// Query vector of the read, `[R]`.
    pub query: Vec<f64>,
    /// `[N, R]`.
    pub keys: Vec<Vec<f64>>,
    /// `[N, V]`.
    pub values: Vec<Vec<f64>>,
    /// Log decays `[N, R]`.
    pub log_decay: Vec<Vec<f64>>,
    /// Write strengths of the delta rule, `[N]`, if used.
    pub strengths: Option<Vec<f64>>,
    /// Tokens that decay the state, `[N]`.
    pub real: Vec<bool>,
}

impl PlainRecurrence {
    /// `sum_(j <= i) sum_r q_r k_jr exp(g_(j + 1)r + .. + g_ir) u_j` over the tokens visible to query `i`, `[V]`. Plain recurrences write the value,
    /// `u_j = v_j`. The delta rule writes the value minus the previous read with the key,
    /// `b_j (v_j - sum_(l < j) sum_r k_jr k_lr exp(g_(l + 1)r + .. + g_jr) u_l)`.
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

    /// Read with `x` at the query, from the values written so far.
    fn sum(&self, query: &Query, x: &[f64], written: &[Vec<f64>]) -> Vec<f64> {
        let mut sum = vec![0.0; self.values[0].len()];
        for (key, written) in written.iter().enumerate().filter(|(key, _)| query.sees(*key)) {
            let weight = self.similarity(x, query.index, key);
            sum.iter_mut().zip(written).for_each(|(sum, written)| *sum += weight * written);
        }
        sum
    }

    /// Product of `x` at `index` and an earlier key, decayed until then.
    fn similarity(&self, x: &[f64], index: usize, key: usize) -> f64 {
        let passed = |channel: usize| {
            let decays = (key + 1..=index).filter(|&at| self.real[at]).map(|at| self.log_decay[at][channel]);
            decays.sum::<f64>().exp()
        };
        let decayed: Vec<f64> = self.keys[key].iter().enumerate().map(|(channel, key)| key * passed(channel)).collect();
        dot(x, &decayed)
    }
}
