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

/// Probabilities of the tokens of a large vocabulary (Grave et al. 2017): [the module](crate::parts::adaptive_softmax) has the formula.
///
/// Should be created with [`AdaptiveConfig`](crate::parts::adaptive_softmax::AdaptiveConfig), as the output of a language model.
#[derive(Module, Debug)]
pub struct AdaptiveSoftmax {
    /// The vectors `K` of the tails as classes of the head, side by side, `[C, tails]`.
    pub clusters: Linear,
    /// Vectors of its own; where there are none, those of the input.
    pub own: Option<AdaptiveTables>,
}

/// The vectors of the tokens of all clusters.
#[derive(Module, Debug)]
pub struct AdaptiveTables {
    /// The matrix `E_0` `[V_0, C]`.
    pub head: Embedding,
    /// The tails, from frequent tokens to rare ones.
    pub tails: Vec<Tail>,
}

impl AdaptiveSoftmax {
    /// Logarithms of the probabilities of all tokens, `[.., V]` in 32 bits, after hidden states `[.., C]` of the model with this embedding.
    ///
    /// # Panics
    /// If there are no vectors of its own, nor adaptive ones in the embedding.
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

    /// Cross-entropy of hidden states `[N, C]` of the model with this embedding against the tokens `[N]` that follow, summed over the targets that are not
    /// `padding`. Of a tail, only rows whose target lies in it are computed.
    ///
    /// # Panics
    /// If there are not as many targets, one is not in the vocabulary, or there are no vectors of its own, nor adaptive ones in the embedding.
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

    /// The vectors `[E_0; K]` of the tokens and tails that the head decides between, `[V_0 + tails, C]`.
    fn classes(&self, head: &Embedding) -> Tensor<2> {
        Tensor::cat(vec![head.weight.val(), self.clusters.weight.val().transpose()], 0)
    }
}

impl Tail {
    /// Hidden states `[.., C]` in the width of the tail's vectors.
    fn narrowed<const D: usize>(&self, hidden: Tensor<D>) -> Tensor<D> {
        linear(hidden, self.projection.weight.val().transpose(), None)
    }
}

/// Which tail holds the token of this number behind the head, and its number there.
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

/// Rows whose loss a softmax computes.
#[derive(Clone, Debug, Default)]
struct Rows {
    /// Which of the hidden states.
    rows: Vec<i32>,
    /// Their targets among the classes of the softmax.
    targets: Vec<i32>,
}

impl Rows {
    fn push(&mut self, row: usize, target: usize) {
        self.rows.push(row as i32);
        self.targets.push(target as i32);
    }

    /// The hidden states of these rows.
    fn of(&self, hidden: &Tensor<2>) -> Tensor<2> {
        if self.rows.len() == hidden.dims()[0] {
            return hidden.clone();
        }
        hidden.clone().select(0, indices(&self.rows, hidden))
    }

    /// The loss of these rows' `states` with a matrix of the vectors of the classes.
    fn cross_entropy(&self, states: Tensor<2>, classes: Tensor<2>) -> CrossEntropy {
        let targets = indices(&self.targets, &states);
        projected_cross_entropy(states, classes, targets, None, 0.0)
    }
}

/// Numbers where `beside` is.
fn indices(values: &[i32], beside: &Tensor<2>) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), &beside.device())
}
