//! Blocked execution: each block of queries meets only its visible keys.
//!
//! Queries, keys and values are gathered into blocks, which one batched product scores. `Q x K` numbers exist only if the program contains them (a bias, a soft
//! span). The assignment of queries to blocks is data, per distinct batch row and head: a pattern computes it on the host, hashing could compute it on the
//! device.

use burn::tensor::{Int, Tensor};

use super::heads::{group_of, repeat_heads};
use super::normaliser::SINKS;
use super::program::for_each_row;
use super::reference::dense_bias;
use super::{AttentionProgram, Dropout, LogitTerms, Normaliser, Weighting, greatest_log_ratio, least_sum};
use crate::contract::visibility::{hidden_logit, least_visible_logit};
use crate::engine::dropout::dropout;

/// Blocks of queries, and the keys of each block.
///
/// Dimension letters: `N` blocks, `S` queries of a block, `T` keys of a block. Dimensions written `B|1` and `H|1` are 1 if all batch rows or heads share the
/// blocks.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Indices of the queries of each block, `[B|1, H|1, N, S]`. Unused places contain any index.
    pub queries: Tensor<4, Int>,
    /// Indices of the keys of each block, `[B|1, H|1, N, T]`. Unused places contain any index and are masked.
    pub keys: Tensor<4, Int>,
    /// 0 where the query of a block sees the key, otherwise a large negative number, `[B|1, H|1, N, S, T]`.
    pub mask: Tensor<5>,
    /// Unique place of each query among all `N S`, `[B|1, H|1, Q]`.
    pub places: Tensor<3, Int>,
}

/// Output of the blocks, in query order.
#[derive(Clone, Debug)]
pub struct BlockedOutput {
    /// `[B, H, Q, D]`; 0 for a query without visible keys.
    pub context: Tensor<4>,
    /// Log-sum-exp of the visible logits of a query (for a density and normalisers other than a softmax: of the weights), `[B|1, H, Q, 1]`, for joining
    /// contexts over different keys. A large negative number for a query without visible keys.
    pub log_sum_exp: Tensor<4>,
}

/// Executes a program block by block. The result equals that of [`reference::attend`](super::reference::attend) if a block contains every visible key of its
/// queries.
///
/// # Panics
/// If the program has a mask: the blocks define the visibility.
pub fn attend_blocks(program: AttentionProgram, blocks: &Blocks) -> BlockedOutput {
    attend_parts(program, std::slice::from_ref(blocks))
}

/// Output of one set of blocks, in query order.
struct Run {
    output: BlockedOutput,
    /// `[B|1, H, Q, 1]`, the remaining divisor of the context if the log-sum-exp of all sets was given.
    sum: Tensor<4>,
}

/// Executes a program block by block. For a softmax with an addend in its sum it computes a plain one, which [`attend_parts`] corrects. `whole` is the
/// [log-sum-exp of all sets of blocks](log_sum_of_spans) that include this one.
fn run(program: AttentionProgram, heads: usize, blocks: &Blocks, whole: Option<Tensor<4>>) -> Run {
    let AttentionProgram { weighting, mask, soft_span, values, dropout: drop } = program;
    assert!(mask.is_none(), "what a blocked program hides is said by its blocks");
    let _span = tracing::trace_span!("blocked attention", values = ?values.dims(), mask = ?blocks.mask.dims()).entered();
    let [batch, _, keys, width] = values.dims();
    let [_, _, count, size] = blocks.queries.dims();
    let candidates = blocks.keys.dims()[3];
    let pairs = |x: Tensor<4>| blocks.at_pairs(x, keys);
    let values_dtype = values.dtype();
    let hidden = hidden_logit(values_dtype);

    let soft_span = soft_span.map(|span| pairs(span.factors(weighting.queries(), keys)));
    let is_part = whole.is_some();

    // Weights up to a factor per row, the logarithm of that factor, and whether rows are divided by their sum.
    let (weights, shift, divided) = match weighting.dense(&values) {
        Weighting::Scores(terms, normaliser) => {
            let logits = blocks.logits(terms, heads, keys);
            assert!(soft_span.is_none() || normaliser == Normaliser::Softmax, "soft spans are those of a softmax");
            match normaliser.per_key() {
                Some(each) => (each.weights(logits), None, false),
                None => {
                    // The gradient of the largest logit cancels.
                    let (logits, largest) = match &soft_span {
                        Some(span) => within_span(logits, span.clone().detach(), whole.map(|whole| blocks.at_queries(whole))),
                        None => (logits.clone(), logits.detach().max_dim(4)),
                    };
                    ((logits - largest.clone()).exp(), Some(largest), !is_part)
                }
            }
        }
        // exp(0) = 1 where visible, exp(-large) = 0 where not.
        Weighting::Density { weights, renormalise } => (pairs(weights) * blocks.mask.clone().exp(), None, renormalise),
        Weighting::Gaussian(_) => unreachable!("they have become a tensor"),
    };
    let is_limited = soft_span.is_some();
    let weights = match soft_span {
        Some(span) => weights * span,
        None => weights,
    };
    let rows = weights.dims()[0];
    let sum_of_all = weights.clone().sum_dim(4);
    let least = least_sum(sum_of_all.dtype());
    let sum = sum_of_all.clone().clamp_min(least).expand([rows, heads, count, size, 1]);
    let thin = |x: Tensor<5>| {
        let rows = x.dims()[0];
        x.expand([rows, heads, count, size, 1]).reshape([rows, heads, count * size, 1])
    };
    let places = |x: Tensor<4>| rows_at(x, blocks.places.clone());
    // A row whose factors are all 0 has no weight, for any logits.
    let blind = sum.clone().detach().lower_equal_elem(least).float().cast(sum.dtype()) * hidden;
    let log_sum = sum.clone().log() + blind;
    let log_sum_exp = match &shift {
        Some(shift) => log_sum + shift.clone(),
        None => log_sum,
    };

    let weights = weights.expand([rows, heads, count, size, candidates]).reshape([rows, heads * count, size, candidates]);
    let weights = for_each_row(weights, batch);
    let weights = match drop {
        Some(drop) => dropout(weights, drop.probability, Some(&drop.key)),
        None => weights,
    };
    let context = product(weights, for_each_row(gathered(values, &blocks.keys), batch), count).reshape([batch, heads, count * size, width]);
    let context = if divided { context / thin(sum.clone()) } else { context };
    // Keys at the ends of ramps have gradients but no weight: a row without other keys would be divided by `least`, so its context and gradients become 0.
    let context = match is_limited && divided {
        true => context * thin(sum.detach().greater_elem(least).float().cast(values_dtype)),
        false => context,
    };
    let context = match shift {
        Some(shift) => {
            let dtype = shift.dtype();
            context * thin(shift.greater_elem(hidden / 2.0).float().cast(dtype))
        }
        None => context,
    };
    let output = BlockedOutput { context: places(context), log_sum_exp: places(thin(log_sum_exp)) };
    Run { output, sum: places(thin(sum_of_all)) }
}

/// Logits of pairs and the amount to subtract, for span factors: the largest within the span, or the log-sum-exp of the whole. A logit outside must not be the
/// maximum, which would underflow all others. It counts only in the gradient of the span, where it is bounded.
fn within_span(logits: Tensor<5>, factors: Tensor<5>, whole: Option<Tensor<5>>) -> (Tensor<5>, Tensor<5>) {
    let dtype = logits.dtype();
    let is_outside = factors.clone().equal_elem(0.0).float().cast(dtype);
    let all = logits.clone().detach();
    let [shift, log_sum] = match whole {
        Some(whole) => [whole.clone(), whole.zeros_like()],
        None => largest_within_span(all.clone(), factors),
    };
    let bound = log_sum + greatest_log_ratio(dtype);
    let excess = (all - shift.clone() - bound).clamp_min(0.0) * is_outside;
    (logits - excess, shift)
}

/// Largest logit within the span, and the log-sum-exp relative to it; 0 without weights.
fn largest_within_span(logits: Tensor<5>, factors: Tensor<5>) -> [Tensor<5>; 2] {
    let dtype = logits.dtype();
    let within = logits + factors.clone().equal_elem(0.0).float().cast(dtype) * hidden_logit(dtype);
    let largest = within.clone().max_dim(4);
    let sum = ((within - largest.clone()).exp() * factors).sum_dim(4);
    let is_empty = sum.clone().lower_equal_elem(0.0).float().cast(dtype);
    [largest, (sum + is_empty).log()]
}

/// Log-sum-exp within the span over all sets of blocks, without gradient, `[B|1, H, Q, 1]`. A set may contain only the end of a query's ramp, whose slope
/// depends on the keys of the other sets.
fn log_sum_of_spans(program: &AttentionProgram, heads: usize, parts: &[Blocks]) -> Option<Tensor<4>> {
    let (Weighting::Scores(terms, Normaliser::Softmax), Some(span)) = (&program.weighting, &program.soft_span) else { return None };
    let keys = program.values.dims()[2];
    let factors = span.factors(program.weighting.queries(), keys).detach();
    let sums: Vec<Tensor<4>> = parts
        .iter()
        .map(|blocks| {
            let logits = blocks.logits(terms.clone(), heads, keys).detach();
            let [largest, log_sum] = largest_within_span(logits, blocks.at_pairs(factors.clone(), keys));
            let sum = largest + log_sum;
            let ([rows, _, _, _, _], [_, _, count, size]) = (sum.dims(), blocks.queries.dims());
            rows_at(sum.expand([rows, heads, count, size, 1]).reshape([rows, heads, count * size, 1]), blocks.places.clone())
        })
        .collect();
    let largest = sums.iter().cloned().reduce(Tensor::max_pair).expect("a program has at least one part");
    let sum = sums.into_iter().map(|sum| (sum - largest.clone()).exp()).reduce(|a, b| a + b).expect("a program has at least one part");
    // Relative to this bound the exponentials of hidden keys are 0.
    Some((sum.log() + largest).clamp_min(least_visible_logit(program.values.dtype())))
}

/// Executes a program over several disjoint sets of blocks with one common normalisation: contexts are weighted by their share of the total sum of
/// exponentials.
///
/// # Panics
/// If there are no blocks, or the program has a mask.
pub fn attend_parts(program: AttentionProgram, parts: &[Blocks]) -> BlockedOutput {
    let (normaliser, sink) = match &program.weighting {
        Weighting::Scores(terms, normaliser) => (*normaliser, terms.sink.clone()),
        Weighting::Density { .. } | Weighting::Gaussian(_) => (Normaliser::Softmax, None),
    };
    assert!(sink.is_none() || program.soft_span.is_none(), "soft spans have no sink");
    if normaliser.needs_rows() {
        assert!(sink.is_none(), "{SINKS}");
        return attend_rows(program, parts);
    }
    let BlockedOutput { context, log_sum_exp } = joined_parts(program, parts);
    let (context, log_sum_exp) = normaliser.corrected(context, log_sum_exp, sink);
    BlockedOutput { context, log_sum_exp }
}

fn joined_parts(program: AttentionProgram, parts: &[Blocks]) -> BlockedOutput {
    let heads = heads_of(&program, parts);
    let program = AttentionProgram { weighting: program.weighting.dense(&program.values), ..program };
    let divided = !matches!(program.weighting, Weighting::Density { renormalise: false, .. }) && program.weighting.per_key().is_none();
    let whole = (parts.len() > 1).then(|| log_sum_of_spans(&program, heads, parts)).flatten();
    let run_part = |(index, blocks): (usize, &Blocks)| {
        let dropout = program.dropout.map(|drop| Dropout { key: drop.key.numbered(index as u64), ..drop });
        run(AttentionProgram { dropout, ..program.clone() }, heads, blocks, whole.clone())
    };
    if let [blocks] = parts {
        return run(program, heads, blocks, None).output;
    }
    let runs: Vec<Run> = parts.iter().enumerate().map(run_part).collect();
    let sum = |tensors: Vec<Tensor<4>>| tensors.into_iter().reduce(|a, b| a + b).expect("a program has at least one part");
    if let Some(whole) = &whole {
        let (contexts, sums) = runs.into_iter().map(|Run { output, sum }| (output.context, sum)).unzip();
        let (context, total) = (sum(contexts), sum(sums));
        let is_empty = total.clone().detach().lower_equal_elem(0.0).float().cast(total.dtype());
        let total = total + is_empty.clone();
        let blind = is_empty * hidden_logit(total.dtype());
        return BlockedOutput { context: context / total.clone(), log_sum_exp: total.log() + whole.clone() + blind };
    }
    let outputs: Vec<BlockedOutput> = runs.into_iter().map(|run| run.output).collect();
    let largest = outputs.iter().map(|output| output.log_sum_exp.clone().detach()).reduce(Tensor::max_pair);
    let largest = largest.expect("a program has at least one part");
    let shares: Vec<_> = outputs.iter().map(|output| (output.log_sum_exp.clone() - largest.clone()).exp()).collect();
    let total = sum(shares.clone());
    let contexts = outputs.into_iter().zip(shares).map(|(output, share)| match divided {
        true => output.context * (share / total.clone()),
        false => output.context,
    });
    BlockedOutput { context: sum(contexts.collect()), log_sum_exp: total.log() + largest }
}

/// Executes a program that needs all logits of a query at once: logits of all parts are collected in query order, and their weights are returned to the blocks.
fn attend_rows(program: AttentionProgram, parts: &[Blocks]) -> BlockedOutput {
    let heads = heads_of(&program, parts);
    let AttentionProgram { weighting: Weighting::Scores(terms, normaliser), mask: None, soft_span: None, values, dropout: drop } = program
    else {
        panic!("a normaliser has scores and no soft spans, and blocks say what is hidden")
    };
    let [batch, _, keys, width] = values.dims();
    let in_order: Vec<Tensor<4>> = parts
        .iter()
        .map(|blocks| {
            let logits = blocks.logits(terms.clone(), heads, keys);
            let [rows, _, count, size, candidates] = logits.dims();
            let logits = logits.expand([rows, heads, count, size, candidates]).reshape([rows, heads, count * size, candidates]);
            rows_at(logits, blocks.places.clone())
        })
        .collect();
    let rows = in_order.iter().map(|logits| logits.dims()[0]).max().expect("a program has at least one part");
    let in_order = in_order.into_iter().map(|logits| for_each_row(logits, rows)).collect();
    let weights = normaliser.weights(Tensor::cat(in_order, 3), None, None);
    let mut first = 0;
    let mut of_part = |(index, blocks): (usize, &Blocks)| {
        let [own_rows, own_heads, count, size] = blocks.queries.dims();
        let candidates = blocks.keys.dims()[3];
        let own = weights.clone().narrow(3, first, candidates);
        first += candidates;
        let own = rows_at(own, blocks.queries.clone().reshape([own_rows, own_heads, count * size]));
        let rows = own.dims()[0];
        let own = for_each_row(own.reshape([rows, heads * count, size, candidates]), batch);
        let own = match drop {
            Some(Dropout { probability, key }) if parts.len() > 1 => dropout(own, probability, Some(&key.numbered(index as u64))),
            Some(Dropout { probability, key }) => dropout(own, probability, Some(&key)),
            None => own,
        };
        let context = product(own, for_each_row(gathered(values.clone(), &blocks.keys), batch), count);
        rows_at(context.reshape([batch, heads, count * size, width]), blocks.places.clone())
    };
    let context = parts.iter().enumerate().map(&mut of_part).reduce(|a, b| a + b).expect("a program has at least one part");
    let sum = weights.sum_dim(3);
    let least = least_sum(sum.dtype());
    let blind = sum.clone().detach().lower_equal_elem(least).float().cast(sum.dtype()) * hidden_logit(sum.dtype());
    BlockedOutput { context, log_sum_exp: sum.clamp_min(least).log() + blind }
}

/// Number of heads: that of the program, or of blocks that distinguish more.
fn heads_of(program: &AttentionProgram, parts: &[Blocks]) -> usize {
    let of_blocks = parts.iter().flat_map(|blocks| [blocks.queries.dims()[1], blocks.keys.dims()[1]]);
    of_blocks.fold(program.heads(), usize::max)
}

/// Products of `a` `[B, H N, S, T]` and `b` `[B, G N, T, W]` in `count` blocks per head, `[B, H N, S, W]`.
fn product(a: Tensor<4>, b: Tensor<4>, count: usize) -> Tensor<4> {
    let ([rows, of_heads, size, inner], [_, of_shared, _, width]) = (a.dims(), b.dims());
    if of_heads == of_shared {
        return a.matmul(b);
    }
    // The rows of the heads that share a block are stacked.
    let (shared, group) = (of_shared / count, group_of(of_heads, of_shared));
    let a = a.reshape([rows, shared, group, count, size * inner]).swap_dims(2, 3).reshape([rows, of_shared, group * size, inner]);
    a.matmul(b).reshape([rows, shared, count, group, size * width]).swap_dims(2, 3).reshape([rows, of_heads, size, width])
}

impl Blocks {
    /// Gathers numbers of pairs `[B|1, H|1, Q, K]` into blocks, `[B|1, H|1, N, S, T]`.
    fn at_pairs(&self, x: Tensor<4>, keys: usize) -> Tensor<5> {
        let [rows, heads, queries, _] = x.dims();
        let x = rows_at(x.reshape([rows, heads, queries * keys, 1]), self.pairs(keys));
        let [rows, heads, _, _] = x.dims();
        let ([_, _, count, size], candidates) = (self.queries.dims(), self.keys.dims()[3]);
        x.reshape([rows, heads, count, size, candidates])
    }

    /// Gathers numbers of queries `[B|1, H|1, Q, 1]` into blocks, `[B|1, H|1, N, S, 1]`.
    fn at_queries(&self, x: Tensor<4>) -> Tensor<5> {
        let [rows, heads, count, size] = self.queries.dims();
        let x = rows_at(x, self.queries.clone().reshape([rows, heads, count * size]));
        let [rows, heads, _, _] = x.dims();
        x.reshape([rows, heads, count, size, 1])
    }

    /// Logits of the pairs of the blocks, `[B|1, H|1, N, S, T]`; large negative numbers where hidden.
    fn logits(&self, terms: LogitTerms, heads: usize, keys: usize) -> Tensor<5> {
        let ([_, _, count, size], candidates) = (self.queries.dims(), self.keys.dims()[3]);
        let pairs = |x: Tensor<4>| self.at_pairs(x, keys);
        let content = terms.content.clone().map(|c| {
            let (queries, keys) = (gathered(c.queries, &self.queries), gathered(c.keys, &self.keys));
            let rows = queries.dims()[0].max(keys.dims()[0]);
            let product = product(for_each_row(queries, rows), for_each_row(keys, rows).swap_dims(2, 3), count);
            product.reshape([rows, heads, count, size, candidates])
        });
        let cap = terms.cap.clone();
        let bias = dense_bias(terms, keys);
        let logits = match (content, bias.map(pairs)) {
            (Some(content), Some(bias)) => content + bias,
            (Some(logits), None) | (None, Some(logits)) => logits,
            (None, None) => panic!("logits without a term"),
        };
        let logits = match cap {
            Some(cap) => {
                let capped = cap.of(logits);
                match cap.added {
                    Some(added) => capped + pairs(added.product()),
                    None => capped,
                }
            }
            None => logits,
        };
        logits + self.mask.clone()
    }

    /// Index of each pair in a matrix with `keys` columns, `[B|1, H|1, N S T]`.
    fn pairs(&self, keys: usize) -> Tensor<3, Int> {
        let pairs: Tensor<5, Int> = self.queries.clone().unsqueeze_dim::<5>(4) * keys as i32 + self.keys.clone().unsqueeze_dim::<5>(3);
        let [rows, heads, count, size, candidates] = pairs.dims();
        pairs.reshape([rows, heads, count * size * candidates])
    }
}

/// Gathers the rows of `x` `[B|1, G, L, W]` into blocks, `[B|1, G N, S, W]`, or `[B|1, H N, S, W]` if heads have their own blocks.
fn gathered(x: Tensor<4>, indices: &Tensor<4, Int>) -> Tensor<4> {
    let [rows, heads, count, size] = indices.dims();
    let x = rows_at(x, indices.clone().reshape([rows, heads, count * size]));
    let [rows, heads, _, width] = x.dims();
    x.reshape([rows, heads * count, size, width])
}

/// Rows of `x` `[B|1, G, L, W]` at `indices` `[B|1, H|1, M]`, `[B|1, H|G, M, W]`, without copying shared heads.
fn rows_at(x: Tensor<4>, indices: Tensor<3, Int>) -> Tensor<4> {
    let [rows, heads, count] = indices.dims();
    if rows == 1 && heads == 1 {
        return x.select(2, indices.reshape([count]));
    }
    let [own_rows, own_heads, _, width] = x.dims();
    let (rows, heads) = (rows.max(own_rows), heads.max(own_heads));
    let x = for_each_row(x, rows);
    let indices = indices.expand([rows, heads, count]);
    if width == 1 {
        // As a four-dimensional tensor, the log-sum-exp of blocks was gathered wrongly on wgpu with fusion in Burn 0.22.1.
        return repeat_heads(x, heads).squeeze_dim::<3>(3).gather(2, indices).unsqueeze_dim(3);
    }
    let asked = group_of(heads, own_heads) * count;
    let found = x.gather(2, indices.reshape([rows, own_heads, asked]).unsqueeze_dim::<4>(3).expand([rows, own_heads, asked, width]));
    found.reshape([rows, heads, count, width])
}
