//! Terms added to the products of queries and keys.

use cubecl::prelude::*;

use super::distances::add_scores_by_distance;
use super::inputs::Inputs;
use super::kronecker::add_kronecker;
use super::launch::KernelConfig;
use super::products::{COLUMNS, SharedMemory};
use super::terms::{Pair, at_most, key_of, query_of, scale_of};

/// Adds all terms but the product of queries and keys to logits `[rows, COLUMNS]`, whose rows are queries, or keys with `by_key`.
#[cube]
pub(super) fn add_terms<F: Float, N: Size>(
    logits: &mut Array<f32>,
    room: &mut SharedMemory,
    inputs: &Inputs<F, N>,
    pair: &Pair,
    #[comptime] by_key: bool,
    #[comptime] form: KernelConfig,
) {
    add_bias(logits, inputs, pair, by_key, form);
    add_scores_by_distance(logits, room, inputs, pair, by_key, form);
    add_kronecker(logits, inputs, pair, by_key, form);
}

/// Adds the bias, times its scale. Reads past the ends of queries and keys are hidden.
#[cube]
fn add_bias<F: Float, N: Size>(
    logits: &mut Array<f32>,
    inputs: &Inputs<F, N>,
    pair: &Pair,
    #[comptime] by_key: bool,
    #[comptime] form: KernelConfig,
) {
    if comptime!(form.made.bias) {
        let bias = inputs.bias.as_ref().unwrap();
        let factor = scale_of(inputs, pair.head, form);
        let start = pair.row % bias.shape(0) * bias.stride(0) + pair.head % bias.shape(1) * bias.stride(1);
        #[unroll]
        for i in 0..comptime!(form.rows) {
            #[unroll]
            for j in 0..COLUMNS {
                let query = at_most(query_of(pair, i, j, by_key, comptime!(form.rows)), bias.shape(2) - 1);
                let key = at_most(key_of(pair, i, j, by_key, comptime!(form.rows)), bias.shape(3) - 1);
                logits[i * COLUMNS + j] += f32::cast_from(bias[start + query * bias.stride(2) + key]) * factor;
            }
        }
    }
}
