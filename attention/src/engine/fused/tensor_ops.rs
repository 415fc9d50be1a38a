//! The operator as tensor operations: a chunk of queries meets all keys at a time, so that memory, apart from cached masks, grows only with the number of keys.

mod masks;
mod tensors;
mod terms;
#[cfg(all(test, feature = "wgpu"))]
mod tests;
mod weights;

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Shape};

use self::tensors::{is_between_0_and_1, is_positive, part, shifted, summed, transposed, unshifted};
use self::terms::Terms;
use self::weights::BackwardInputs;
use super::operands::{Operand, Operands};
use super::plan::Plan;
use crate::contract::visibility::TILE;
use crate::engine::dropout::{Draws, DropoutOperator};
use crate::engine::greatest_log_ratio;

/// Queries per chunk.
const CHUNK: usize = 2 * TILE;

pub(super) fn forward<B: DropoutOperator>(operands: Operands<B>, plan: &Plan) -> (FloatTensor<B>, FloatTensor<B>) {
    let attention = Attention::new(operands, plan);
    let (contexts, log_sums) = attention.chunks().map(|chunk| attention.attend(&chunk)).unzip();
    (B::float_cat(contexts, 2), B::float_cat(log_sums, 2))
}

pub(super) fn backward<B: DropoutOperator>(
    operands: Operands<B>,
    context: FloatTensor<B>,
    log_sum_exp: FloatTensor<B>,
    gradient: FloatTensor<B>,
    plan: &Plan,
) -> Operands<B> {
    let attention = Attention::new(operands, plan);
    let dots = B::float_sum_dim(B::float_mul(context, gradient.clone()), 3);
    let mut sums = Sums::default();
    for chunk in attention.chunks() {
        let [gradient, dots, log_sum_exp] = [&gradient, &dots, &log_sum_exp].map(|tensor| part::<B>(tensor, 2, chunk.clone()));
        let given = BackwardInputs { dots, log_sum_exp };
        let Logits { sum: logits, cap_slopes } = attention.logits(&chunk);
        let weights = attention.weights(logits.clone(), &given);
        // Closed-form weights depend on nothing with a gradient.
        if plan.gaussians.is_none() {
            let slopes = attention.product(gradient.clone(), transposed::<B>(attention.operands.values.clone()));
            let slopes = attention.dropped(slopes, &chunk);
            let slopes = attention.differentiated(logits, weights.clone(), slopes, given, &chunk, &mut sums);
            attention.differentiate(slopes, cap_slopes, &chunk, &mut sums);
        }
        let weights = attention.dropped(weights, &chunk);
        Sums::<B>::add(&mut sums.values, attention.product_of_keys(weights, gradient));
    }
    let joined = |chunks: Vec<FloatTensor<B>>| (!chunks.is_empty()).then(|| B::float_cat(chunks, 2)).into();
    let spans = match attention.operands.spans.as_ref() {
        Some(spans) if spans.shape()[2] == 1 => sums.spans.into_iter().reduce(B::float_add).into(),
        _ => joined(sums.spans),
    };
    Operands {
        values: sums.values.expect("there is a query"),
        queries: joined(sums.queries),
        keys: sums.keys.into(),
        bias: joined(sums.bias),
        bias_scale: sums.bias_scale.into(),
        relative_queries: joined(sums.relative_queries),
        relative_keys: sums.relative_keys.into(),
        left: joined(sums.left),
        right: joined(sums.right),
        spans,
        sink: Operand::Absent,
    }
}

/// Accumulated gradients: per chunk for queries, sums for the rest.
struct Sums<B: Backend> {
    values: Option<FloatTensor<B>>,
    queries: Vec<FloatTensor<B>>,
    keys: Option<FloatTensor<B>>,
    bias: Vec<FloatTensor<B>>,
    bias_scale: Option<FloatTensor<B>>,
    relative_queries: Vec<FloatTensor<B>>,
    relative_keys: Option<FloatTensor<B>>,
    left: Vec<FloatTensor<B>>,
    right: Vec<FloatTensor<B>>,
    spans: Vec<FloatTensor<B>>,
}

impl<B: Backend> Default for Sums<B> {
    fn default() -> Self {
        Self {
            values: None,
            queries: Vec::new(),
            keys: None,
            bias: Vec::new(),
            bias_scale: None,
            relative_queries: Vec::new(),
            relative_keys: None,
            left: Vec::new(),
            right: Vec::new(),
            spans: Vec::new(),
        }
    }
}

impl<B: Backend> Sums<B> {
    fn add(sum: &mut Option<FloatTensor<B>>, addend: FloatTensor<B>) {
        *sum = Some(match sum.take() {
            Some(sum) => B::float_add(sum, addend),
            None => addend,
        });
    }
}

/// Logits of the queries of a chunk.
struct Logits<B: Backend> {
    /// Logits for all keys; large negative numbers where hidden.
    sum: FloatTensor<B>,
    /// Derivatives of the soft cap, if any.
    cap_slopes: Option<FloatTensor<B>>,
}

struct Attention<'a, B: Backend> {
    operands: Operands<B>,
    plan: &'a Plan,
    queries: usize,
    keys: usize,
    terms: Terms<B>,
}

impl<'a, B: DropoutOperator> Attention<'a, B> {
    fn new(operands: Operands<B>, plan: &'a Plan) -> Self {
        let (queries, keys) = (operands.queries(plan), operands.values.shape()[2]);
        Self { terms: Terms::new(keys, operands.values.device(), operands.values.dtype()), queries, keys, operands, plan }
    }

    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<B> {
        let length = self.queries;
        (0..length).step_by(CHUNK).map(move |start| start..(start + CHUNK).min(length))
    }

    /// Batch rows and heads.
    fn planes(&self) -> [usize; 2] {
        [self.operands.values.shape()[0], self.plan.heads]
    }

    /// Stacks the rows of the heads that share keys and values: `[B|1, H|1, N, W]` to `[B|1, G, H / G N, W]`.
    fn by_shared_head(&self, x: FloatTensor<B>) -> FloatTensor<B> {
        let (heads, shared) = (self.plan.heads, self.operands.values.shape()[1]);
        if heads == shared {
            return x;
        }
        let [rows, own_heads, length, width] = x.shape().dims();
        let x = if own_heads == heads { x } else { B::float_expand(x, Shape::new([rows, heads, length, width])) };
        B::float_reshape(x, Shape::new([rows, shared, heads / shared * length, width]))
    }

    /// Product of `a` `[B|1, H, N, M]` and shared heads, `[B, G, M, W]`: `[B, H, N, W]`.
    fn product(&self, a: FloatTensor<B>, shared: FloatTensor<B>) -> FloatTensor<B> {
        let length = a.shape()[2];
        let product = B::float_matmul(self.by_shared_head(a), shared);
        let [rows, heads, _, width] = product.shape().dims();
        if heads == self.plan.heads { product } else { B::float_reshape(product, Shape::new([rows, self.plan.heads, length, width])) }
    }

    /// Product of the transpose of `a` `[B|1, H, N, M]` and `b` `[B, H, N, W]`, summed over the heads that share keys and values: `[B, G, M, W]`.
    fn product_of_keys(&self, a: FloatTensor<B>, b: FloatTensor<B>) -> FloatTensor<B> {
        B::float_matmul(transposed::<B>(self.by_shared_head(a)), self.by_shared_head(b))
    }

    fn dtype(&self) -> DType {
        self.operands.values.dtype()
    }

    fn hidden(&self) -> f32 {
        self.terms.hidden()
    }

    fn logits(&self, chunk: &Range<usize>) -> Logits<B> {
        let scores = self.scores(chunk);
        let Some(spans) = self.operands.spans.as_ref() else { return scores };
        let factors = B::float_clamp(self.heights(spans, chunk), 0.0.into(), 1.0.into());
        let outside = B::float_sub_scalar(is_positive::<B>(factors.clone()), 1.0.into());
        let outside = B::float_mul_scalar(outside, (-self.hidden()).into());
        let limits = B::float_add(B::float_log(B::float_clamp_min(factors, f32::MIN_POSITIVE.into())), outside);
        Logits { sum: B::float_add(scores.sum, limits), ..scores }
    }

    /// The same with infinite spans.
    fn scores(&self, chunk: &Range<usize>) -> Logits<B> {
        let Operands { queries, keys, bias, bias_scale, relative_queries, relative_keys, left, right, .. } = &self.operands;
        let content = queries.as_ref().zip(keys.as_ref());
        let content = content.map(|(queries, keys)| self.product(part::<B>(queries, 2, chunk.clone()), transposed::<B>(keys.clone())));
        let bias = bias.as_ref().map(|bias| part::<B>(bias, 2, chunk.clone()));
        let bias = bias.map(|bias| match bias_scale.as_ref() {
            Some(scale) => B::float_mul(bias, scale.clone()),
            None => bias,
        });
        let relative = relative_queries.as_ref().zip(relative_keys.as_ref()).map(|(queries, table)| {
            let table = part::<B>(table, 2, self.distances(chunk));
            shifted::<B>(B::float_matmul(part::<B>(queries, 2, chunk.clone()), transposed::<B>(table)), self.keys)
        });
        let kronecker = left.as_ref().zip(right.as_ref()).map(|(left, right)| {
            let [left, right] = factors::<B>([left, right], chunk);
            self.pairs_at_keys(B::float_mul(left, right))
        });
        let gaussians = self.plan.gaussians.as_ref().map(|gaussians| self.terms.gaussians(gaussians, self.plan.heads, chunk));
        let mask = self.terms.mask(&self.plan.parts, chunk);
        let sum = |terms: Vec<Option<FloatTensor<B>>>| terms.into_iter().flatten().reduce(B::float_add);
        let Some(cap) = self.plan.cap else {
            let sum = sum(vec![content, bias, relative, kronecker, gaussians, Some(mask)]).expect("there is a mask");
            return Logits { sum, cap_slopes: None };
        };
        let (bias, added) = if cap.is_before_bias { (None, bias) } else { (bias, None) };
        let bounded = sum(vec![content, bias, relative, kronecker, gaussians]).expect("a soft cap bounds a term");
        let share = B::float_tanh(B::float_mul_scalar(bounded, cap.limit.recip().into()));
        let slopes = B::float_add_scalar(B::float_neg(B::float_mul(share.clone(), share.clone())), 1.0.into());
        let sum = sum(vec![Some(B::float_mul_scalar(share, cap.limit.into())), added, Some(mask)]).expect("there is a mask");
        Logits { sum, cap_slopes: Some(slopes) }
    }

    /// Adds the gradients of spans, from the weight gradients `slopes` less their mean. A key exactly at the end of a ramp has no weight; its hypothetical
    /// weight at factor 1 is the slope by that factor.
    fn differentiate_spans(&self, slopes: &FloatTensor<B>, log_sum_exp: FloatTensor<B>, chunk: &Range<usize>, sums: &mut Sums<B>) {
        let (Some(spans), Some(ramp)) = (self.operands.spans.as_ref(), self.plan.ramp) else { return };
        let ratios = B::float_sub(self.scores(chunk).sum, log_sum_exp);
        let ratios = B::float_exp(B::float_clamp_max(ratios, greatest_log_ratio(self.dtype()).into()));
        let slopes = B::float_mul(B::float_mul(ratios, slopes.clone()), is_between_0_and_1::<B>(self.heights(spans, chunk)));
        let slopes = B::float_div_scalar(B::float_sum_dim(slopes, 3), ramp.width.into());
        let [rows, heads, queries, _] = spans.shape().dims();
        let slopes = summed::<B>(slopes, &[rows, heads]);
        sums.spans.push(if queries == 1 { B::float_sum_dim(slopes, 2) } else { slopes });
    }

    /// Adds the gradients of the score inputs of a chunk, from the score gradients `slopes`.
    fn differentiate(&self, slopes: FloatTensor<B>, cap_slopes: Option<FloatTensor<B>>, chunk: &Range<usize>, sums: &mut Sums<B>) {
        let (slopes, of_added) = match cap_slopes {
            Some(cap_slopes) => (B::float_mul(slopes.clone(), cap_slopes), self.plan.cap_before_bias().map(|_| slopes)),
            None => (slopes, None),
        };
        let Operands { queries, keys, bias, bias_scale, relative_queries, relative_keys, left, right, .. } = &self.operands;
        if let (Some(queries), Some(keys)) = (queries.as_ref(), keys.as_ref()) {
            sums.queries.push(self.product(slopes.clone(), keys.clone()));
            Sums::<B>::add(&mut sums.keys, self.product_of_keys(slopes.clone(), part::<B>(queries, 2, chunk.clone())));
        }
        if let Some(bias) = bias.as_ref() {
            let own = summed::<B>(of_added.unwrap_or_else(|| slopes.clone()), &bias.shape().dims::<4>()[..2]);
            sums.bias.push(match bias_scale.as_ref() {
                Some(scale) => {
                    let products = B::float_mul(own.clone(), part::<B>(bias, 2, chunk.clone()));
                    let products = summed::<B>(products, &scale.shape().dims::<4>());
                    Sums::<B>::add(&mut sums.bias_scale, products);
                    B::float_mul(own, scale.clone())
                }
                None => own,
            });
        }
        if let (Some(queries), Some(table)) = (relative_queries.as_ref(), relative_keys.as_ref()) {
            let distances = self.distances(chunk);
            let products = unshifted::<B>(slopes.clone());
            sums.relative_queries.push(B::float_matmul(products.clone(), part::<B>(table, 2, distances.clone())));
            let own = B::float_matmul(transposed::<B>(products), part::<B>(queries, 2, chunk.clone()));
            let [rows, heads, length, width] = table.shape().dims();
            let own = summed::<B>(own, &[rows, heads]);
            let zeros = |count| self.terms.zeros([rows, heads, count, width]);
            let sides = [(distances.start > 0, distances.start), (distances.end < length, length - distances.end)];
            let [before, after] = sides.map(|(is_there, count)| is_there.then(|| zeros(count)));
            let all = [before, Some(own), after].into_iter().flatten().collect();
            Sums::<B>::add(&mut sums.relative_keys, B::float_cat(all, 2));
        }
        if let (Some(left), Some(right)) = (left.as_ref(), right.as_ref()) {
            let widths = [left, right].map(|factor| factor.shape()[3]);
            let [batch, heads, queries, _] = slopes.shape().dims();
            let products = self.at_pairs(slopes.clone(), widths);
            let [left, right] = factors::<B>([left, right], chunk);
            let sum = |factors, dim, width| {
                let sums = B::float_sum_dim(B::float_mul(products.clone(), factors), dim);
                B::float_reshape(sums, Shape::new([batch, heads, queries, width]))
            };
            sums.left.push(sum(right, 4, widths[0]));
            sums.right.push(sum(left, 3, widths[1]));
        }
    }

    /// Rows of the distance table for the queries of a chunk.
    fn distances(&self, chunk: &Range<usize>) -> Range<usize> {
        self.queries - chunk.end..self.queries - chunk.start - 1 + self.keys
    }

    /// For each distinct batch row: its index, the keys before the first pair, and the pairs of the keys after them.
    fn keys_of_pairs(&self, batch: usize) -> impl Iterator<Item = (Range<usize>, usize, Range<usize>)> {
        let distinct = self.plan.first_pairs.as_ref().expect("logits have a Kronecker product").len();
        (0..distinct).map(move |row| {
            let first = self.plan.first_pair(row);
            let before = (-first).clamp(0, self.keys as isize) as usize;
            let start = first.max(0) as usize;
            (if distinct == 1 { 0..batch } else { row..row + 1 }, before, start..start + self.keys - before)
        })
    }

    /// Numbers of pairs `[B, H, queries, a, b]` at their keys, `[B, H, queries, keys]`; 0 at keys before the first pair.
    fn pairs_at_keys(&self, numbers: FloatTensor<B>) -> FloatTensor<B> {
        let [batch, heads, queries, a, b] = numbers.shape().dims();
        let numbers = B::float_reshape(numbers, Shape::new([batch, heads, queries, a * b]));
        let rows = self.keys_of_pairs(batch).map(|(rows, before, pairs)| {
            let zeros = (before > 0).then(|| self.terms.zeros([rows.len(), heads, queries, before]));
            let own = part::<B>(&part::<B>(&numbers, 0, rows), 3, pairs);
            B::float_cat(zeros.into_iter().chain([own]).collect(), 3)
        });
        B::float_cat(rows.collect(), 0)
    }

    /// The transpose of [`pairs_at_keys`](Self::pairs_at_keys), for `[a, b]`.
    fn at_pairs(&self, numbers: FloatTensor<B>, [a, b]: [usize; 2]) -> FloatTensor<B> {
        let [batch, heads, queries, _] = numbers.shape().dims();
        let rows = self.keys_of_pairs(batch).map(|(rows, before, pairs)| {
            let zeros = |count| self.terms.zeros([rows.len(), heads, queries, count]);
            let own = part::<B>(&part::<B>(&numbers, 0, rows.clone()), 3, before..self.keys);
            let [first, last] = [pairs.start, a * b - pairs.end].map(|count| (count > 0).then(|| zeros(count)));
            B::float_cat([first, Some(own), last].into_iter().flatten().collect(), 3)
        });
        B::float_reshape(B::float_cat(rows.collect(), 0), Shape::new([batch, heads, queries, a, b]))
    }

    /// Factors of soft spans before clamping to `[0, 1]`.
    fn heights(&self, spans: &FloatTensor<B>, chunk: &Range<usize>) -> FloatTensor<B> {
        let ramp = self.plan.ramp.expect("spans have ramps");
        let spans = if spans.shape()[2] == 1 { spans.clone() } else { part::<B>(spans, 2, chunk.clone()) };
        let [levels, is_there] = self.terms.levels(&ramp, chunk);
        let heights = B::float_add_scalar(B::float_div_scalar(B::float_add(spans, levels), ramp.width.into()), 1.0.into());
        // Keys outside the query's range have lower values.
        B::float_add(B::float_mul(heights, is_there.clone()), B::float_sub_scalar(is_there, 1.0.into()))
    }

    /// `weights` of the queries of a chunk after dropout, per batch row and head.
    fn dropped(&self, weights: FloatTensor<B>, chunk: &Range<usize>) -> FloatTensor<B> {
        let Some(dropout) = &self.plan.dropout else { return weights };
        let [batch, heads] = self.planes();
        let [rows, own_heads, queries, keys] = weights.shape().dims();
        let weights =
            if [rows, own_heads] == [batch, heads] { weights } else { B::float_expand(weights, Shape::new([batch, heads, queries, keys])) };
        B::dropped(weights, Draws::Weights { dropout: *dropout, first_query: chunk.start })
    }
}

/// Left and right factors of the queries of a chunk, `[B, H, queries, a, 1]` and `[B, H, queries, 1, b]`.
fn factors<B: Backend>([left, right]: [&FloatTensor<B>; 2], chunk: &Range<usize>) -> [FloatTensor<B>; 2] {
    let [batch, heads, _, a] = left.shape().dims();
    let b = right.shape()[3];
    [(left, [a, 1]), (right, [1, b])]
        .map(|(factor, [a, b])| B::float_reshape(part::<B>(factor, 2, chunk.clone()), Shape::new([batch, heads, chunk.len(), a, b])))
}
