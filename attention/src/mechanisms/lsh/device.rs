//! Hashing, sorting and chunked attention on an accelerator, without reading data back.
//!
//! Each round sorts positions by bucket and cuts the keys into chunks. Queries form groups of the chunk size, and each group meets the chunks that its queries
//! look at. Kernels compute the places of queries and keys, the *arrangement*, which stays on the device. Logits, normalisation and products with values are
//! tensor operations.

#[cfg(feature = "cube")]
mod gpu;
mod main_memory;
mod operator;
mod sort_layout;
#[cfg(all(test, feature = "wgpu"))]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, DType, Int, IntDType, Tensor, TensorData};

use self::main_memory::Plane;
use self::operator::ArrangementOperator;
use self::sort_layout::{Form, Rows, Rules};
use super::Call;
use super::chunks::Chunking;
use crate::contract::engine::Engine;
use crate::contract::probe::{Observation, Probe};
use crate::contract::visibility::{RowKeys, least_visible_logit};
use crate::engine::Dropout;
use crate::engine::dropout::dropout;
use crate::tensors::read::read;

/// Whether this module executes a call: on an accelerator, except with the [reference](Engine::Reference) engine.
pub(super) fn can_attend(call: &Call) -> bool {
    call.engine != Engine::Reference && !crate::tensors::main_memory::has_kernels(&call.values.device())
}

/// Visibility of a call in device-readable form.
struct Seen {
    /// 1 for keys visible to some query and 0 for others, `[B|1, H|1, 1, K]`; `None` if all keys are.
    live: Option<Tensor<4, Int>>,
    is_causal: bool,
    /// Remaining visibility, pair by pair: 0 where visible, otherwise a large negative number, `[B|1, H|1, Q, K]`.
    pairs: Option<Tensor<4>>,
}

impl Seen {
    fn of(call: &Call, heads: usize) -> Self {
        let Call { span, visibility, values, .. } = call;
        let (device, dtype) = (values.device(), values.dtype());
        if let Some(RowKeys { is_causal, rows, live }) = visibility.row_keys(*span) {
            let upload = |live: Vec<bool>| {
                let live: Vec<i32> = live.into_iter().map(i32::from).collect();
                Tensor::from_data(TensorData::new(live, [rows, 1, 1, span.keys]), (&device, DType::I32))
            };
            return Self { live: live.map(upload), is_causal, pairs: None };
        }
        let pairs = visibility.mask(*span, heads, dtype, &device).map(|mask| mask.bias.detach());
        let live = pairs.clone().map(|pairs| {
            let is_seen: Tensor<4, Bool> = pairs.max_dim(2).greater_elem(least_visible_logit(dtype));
            is_seen.int().cast(IntDType::I32)
        });
        Self { live, is_causal: false, pairs }
    }
}

/// The arrangement of a call.
struct Arrangement {
    form: Form,
    numbers: Tensor<4, Int>,
}

impl Arrangement {
    fn taken<const D: usize>(&self, x: Tensor<D>, rows: Rows) -> Tensor<5> {
        let numbers = self.numbers.clone().into_dispatch();
        Tensor::from_dispatch(<Dispatch as ArrangementOperator>::taken(x.into_dispatch(), numbers, rows, self.form))
    }
}

/// Context `[B, H, Q, D]` of a call, with buckets `[B, H, rounds, K]`.
pub(super) fn attend(call: Call, buckets: Tensor<4, Int>, chunking: &Chunking, drop: Option<Dropout>, probe: &mut Probe) -> Tensor<4> {
    let [batch, heads, rounds, length] = buckets.dims();
    let Seen { live, is_causal, pairs } = Seen::of(&call, heads);
    let Call { queries, keys, values, span, .. } = call;
    let (device, dtype) = (values.device(), values.dtype());
    // A chunk is at most as long as the sequence.
    let size = chunking.size.min(length);
    let chunks = length.div_ceil(size);
    let rules = Rules {
        wraps: chunking.wrap,
        within_buckets: chunking.bucket_mask,
        counts_once: chunking.duplicate_correction && rounds > 1,
        is_causal,
        has_holes: live.is_some(),
        has_pairs: pairs.is_some(),
    };
    let form = Form {
        batch,
        heads,
        rounds,
        length,
        size,
        before: chunking.before.min(chunks),
        after: chunking.after.min(chunks),
        query_start: span.query_start,
        queries: span.queries,
        rules,
    };
    let buckets = buckets.cast(IntDType::I32);
    let live = match live {
        Some(live) => live.expand([batch, heads, 1, length]).reshape([batch, heads, length]),
        None => Tensor::zeros([1, 1, 1], (&device, DType::I32)),
    };
    let pairs = pairs.unwrap_or_else(|| Tensor::zeros([1; 4], (&device, dtype)));
    let numbers = <Dispatch as ArrangementOperator>::arranged(buckets.clone().into_dispatch(), live.into_dispatch(), form);
    let arrangement = Arrangement { form, numbers: Tensor::from_dispatch(numbers) };
    let numbers = arrangement.numbers.clone().into_dispatch();
    let bias: Tensor<3> =
        Tensor::from_dispatch(<Dispatch as ArrangementOperator>::bias(buckets.into_dispatch(), numbers, pairs.into_dispatch(), form));

    let count = bias.dims()[0];
    let in_groups = |x: Tensor<4>, rows: Rows| {
        let width = x.dims()[3];
        arrangement.taken(x, rows).reshape([count as i64, -1, width as i64])
    };
    let queries = in_groups(with_all_positions(queries, span.query_start, length), Rows::Queries);
    let logits: Tensor<3> = queries.matmul(in_groups(keys, Rows::Keys).swap_dims(1, 2)) + bias;
    // The gradient of the largest logit cancels.
    let top = logits.clone().detach().max_dim(2);
    let exponentials = (logits - top.clone()).exp();
    let sums = exponentials.clone().sum_dim(2);
    let in_order = |x: Tensor<3>| {
        let width = x.dims()[2];
        arrangement.taken(x.reshape([batch, heads, rounds, form.places(), width]), Rows::Contexts)
    };
    // A round in which a query sees nothing has a log-partition of about the hidden logit, and so no share.
    let partitions = in_order(sums.clone().log() + top);
    let has_key = partitions.clone().detach().max_dim(2).greater_elem(least_visible_logit(dtype)).float().cast(dtype);
    let shares = softmax(partitions, 2);
    probe.observe(|| {
        let weights = exponentials.clone() / sums.clone();
        Observation::Weights(dense(&arrangement, weights, shares.clone(), has_key.clone(), [span.query_start, span.queries]))
    });
    let exponentials = match drop {
        Some(drop) => dropout(exponentials, drop.probability, Some(&drop.key)),
        None => exponentials,
    };
    let contexts = in_order(exponentials.matmul(in_groups(values, Rows::Keys)) / sums);
    // A single round has the whole share. On CUDA, a product with it and a sum over one round returned wrong contexts for heads of width 3.
    let context = if rounds == 1 { contexts } else { (contexts * shares).sum_dim(2) };
    let width = context.dims()[4];
    (context * has_key).reshape([batch, heads, length, width]).narrow(2, span.query_start, span.queries)
}

/// Queries `[B, H, Q, D]` at the positions from `start` on, and 0 at all others.
fn with_all_positions(queries: Tensor<4>, start: usize, length: usize) -> Tensor<4> {
    let [batch, heads, count, width] = queries.dims();
    if count == length {
        return queries;
    }
    let zeros = |count: usize| (count > 0).then(|| Tensor::zeros([batch, heads, count, width], (&queries.device(), queries.dtype())));
    let (before, after) = (zeros(start), zeros(length - start - count));
    Tensor::cat([before, Some(queries), after].into_iter().flatten().collect(), 2)
}

/// Weights `[B, H, Q, K]` from the group weights `[P N, m, T]`, the shares of the rounds `[B, H, rounds, K, 1]`, and 1 for queries with a visible key.
fn dense(arrangement: &Arrangement, weights: Tensor<3>, shares: Tensor<5>, has_key: Tensor<5>, [start, queries]: [usize; 2]) -> Tensor<4> {
    let Arrangement { form, numbers } = arrangement;
    let Form { batch, heads, rounds, length, size, .. } = *form;
    let (device, dtype) = (weights.device(), weights.dtype());
    let columns = form.columns();
    let numbers: Vec<i32> = read(numbers.clone()).iter::<i32>().collect();
    let [weights, shares, has_key] = [read(weights), read(shares), read(has_key)].map(|data| data.iter::<f32>().collect::<Vec<_>>());
    let mut dense = vec![0.0; batch * heads * queries * length];
    for (index, plane) in Plane::all(form, &numbers).iter().enumerate() {
        let head = index / rounds;
        for i in start..start + queries {
            let place = plane.query_place(i);
            let share = shares[index * length + i] * has_key[head * length + i];
            let row = &mut dense[(head * queries + i - start) * length..][..length];
            let own = &weights[(index * form.places() + place) * columns..][..columns];
            for (column, weight) in own.iter().enumerate() {
                if let Some(j) = plane.met_key(place / size, column) {
                    row[j] += share * weight;
                }
            }
        }
    }
    Tensor::from_data(TensorData::new(dense, [batch, heads, queries, length]), (&device, dtype))
}
