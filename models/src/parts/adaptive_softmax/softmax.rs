//! The adaptive softmax.

use burn::module::Module;
use burn::nn::{Embedding, Linear};
use burn::tensor::activation::log_softmax;
use burn::tensor::module::linear;
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;

use super::embedding::Tail;
use crate::parts::embedding::TokenEmbedding;
use crate::parts::loss::{CrossEntropy, projected_cross_entropy};

/// Softmax over a large vocabulary (Grave et al. 2017); see [the module](crate::parts::adaptive_softmax) for the formula.
///
/// Should be created with [`AdaptiveConfig`](crate::parts::adaptive_softmax::AdaptiveConfig), as the output of a language model.
#[derive(Module, Debug)]
pub struct AdaptiveSoftmax {
    /// Class vectors `K` of the tails in the head, side by side, `[C, tails]`.
    pub clusters: Linear,
    /// Its own vectors; absent if tied to the input.
    pub own: Option<AdaptiveTables>,
}

/// Vectors of the tokens of all clusters.
#[derive(Module, Debug)]
pub struct AdaptiveTables {
    /// The matrix `E_0` `[V_0, C]`.
    pub head: Embedding,
    /// The tails, from frequent tokens to rare ones.
    pub tails: Vec<Tail>,
}

impl AdaptiveSoftmax {
    /// Log probabilities of all tokens, `[.., V]` in 32 bits, after hidden states `[.., C]` of the model with this embedding.
    ///
    /// # Panics
    /// If neither the softmax nor the embedding has adaptive vectors.
    pub fn log_probabilities<const D: usize>(&self, hidden: Tensor<D>, embedding: &TokenEmbedding) -> Tensor<D> {
        let (head, tails) = self.tables(embedding);
        let size = head.weight.dims()[0];
        let classes = linear(hidden.clone(), self.classes(head).transpose(), None);
        let classes = log_softmax(classes.cast(FloatDType::F32), D - 1);
        let of_tail = |(index, tail): (usize, &Tail)| {
            let logits = linear(tail.narrowed(hidden.clone()), tail.tokens.weight.val().transpose(), None);
            log_softmax(logits.cast(FloatDType::F32), D - 1) + classes.clone().narrow(D - 1, size + index, 1)
        };
        let of_head = classes.clone().narrow(D - 1, 0, size);
        Tensor::cat(std::iter::once(of_head).chain(tails.iter().enumerate().map(of_tail)).collect(), D - 1)
    }

    /// Cross-entropy of hidden states `[N, C]` of the model with this embedding against the following tokens `[N]`, summed over the targets other than
    /// `padding`. Each tail computes only the rows whose target it contains.
    ///
    /// # Panics
    /// If the number of targets differs, a target is not in the vocabulary, or neither the softmax nor the embedding has adaptive vectors.
    pub fn cross_entropy(
        &self,
        hidden: Tensor<2>,
        embedding: &TokenEmbedding,
        targets: Tensor<1, Int>,
        padding: Option<u32>,
    ) -> CrossEntropy {
        let rows = hidden.dims()[0];
        assert_eq!(targets.dims(), [rows], "targets for {rows} rows of hidden states");
        let (head, tails) = self.tables(embedding);
        let tables: Vec<Tensor<2>> = tails.iter().map(|tail| tail.tokens.weight.val()).collect();
        let sizes: Vec<usize> = tables.iter().map(|table| table.dims()[0]).collect();
        let size = head.weight.dims()[0];
        let (mut of_head, mut of_tails) = (Rows::default(), vec![Rows::default(); tails.len()]);
        for (row, token) in read(targets).iter::<i64>().enumerate() {
            if padding.is_some_and(|padding| i64::from(padding) == token) {
                continue;
            }
            let token = usize::try_from(token).expect("targets are tokens");
            let class = match token.checked_sub(size) {
                None => token,
                Some(rest) => {
                    let (tail, own) = within(rest, &sizes);
                    of_tails[tail].push(row, own);
                    size + tail
                }
            };
            of_head.push(row, class);
        }
        let tails = of_tails.iter().zip(tails).zip(tables).filter(|((part, _), _)| !part.rows.is_empty());
        let parts = tails.map(|((part, tail), table)| part.cross_entropy(tail.narrowed(part.of(&hidden)), table));
        let head = (!of_head.rows.is_empty()).then(|| of_head.cross_entropy(of_head.of(&hidden), self.classes(head)));
        let sum = |a: CrossEntropy, b: CrossEntropy| CrossEntropy {
            loss: a.loss + b.loss,
            negative_log_likelihood: a.negative_log_likelihood + b.negative_log_likelihood,
        };
        head.into_iter().chain(parts).reduce(sum).unwrap_or_else(|| {
            let loss = hidden.cast(FloatDType::F32).sum() * 0.0;
            CrossEntropy { negative_log_likelihood: loss.clone().inner(), loss }
        })
    }

    /// The vectors of the tokens.
    fn tables<'a>(&'a self, embedding: &'a TokenEmbedding) -> (&'a Embedding, &'a [Tail]) {
        match (&self.own, &embedding.adaptive) {
            (Some(own), _) => (&own.head, &own.tails),
            (None, Some(tied)) => (&embedding.tokens, &tied.tails),
            (None, None) => panic!("an adaptive softmax without vectors of its own has those of adaptive input vectors"),
        }
    }

    /// Vectors `[E_0; K]` of the head's classes, tokens and tails, `[V_0 + tails, C]`.
    fn classes(&self, head: &Embedding) -> Tensor<2> {
        Tensor::cat(vec![head.weight.val(), self.clusters.weight.val().transpose()], 0)
    }
}

impl Tail {
    /// Projects hidden states `[.., C]` to the width of the tail's vectors.
    fn narrowed<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        linear(hidden, self.projection.weight.val().transpose(), None)
    }
}

/// Tail of a token and its index there, from its number behind the head.
fn within(token: usize, sizes: &[usize]) -> (usize, usize) {
    let mut rest = token;
    for (tail, &size) in sizes.iter().enumerate() {
        if rest < size {
            return (tail, rest);
        }
        rest -= size;
    }
    panic!("target {token} behind the head is beyond the last of its tails");
}

/// Rows for the loss of one softmax.
#[derive(Clone, Debug, Default)]
struct Rows {
    /// Indices of the hidden states.
    rows: Vec<i32>,
    /// Their targets among the classes of the softmax.
    targets: Vec<i32>,
}

impl Rows {
    fn push(&mut self, row: usize, target: usize) {
        self.rows.push(row as i32);
        self.targets.push(target as i32);
    }

    /// Hidden states of these rows.
    fn of(&self, hidden: &Tensor<2>) -> Tensor<2> {
        if self.rows.len() == hidden.dims()[0] {
            return hidden.clone();
        }
        hidden.clone().select(0, indices(&self.rows, hidden))
    }

    /// Loss of these rows' `states` with a matrix of class vectors.
    fn cross_entropy(&self, states: Tensor<2>, classes: Tensor<2>) -> CrossEntropy {
        let targets = indices(&self.targets, &states);
        projected_cross_entropy(states, classes, targets, None, 0.0)
    }
}

/// Index tensor on the device of `beside`.
fn indices(values: &[i32], beside: &Tensor<2>) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), &beside.device())
}
