//! Scoring that experiments share: batch by batch, and by the tokens that a model predicts correctly.

use burn::tensor::{Device, Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;
use heedful_host::interrupt::Interrupt;
use heedful_metrics::{Combination, ItemScore, ItemTable};

use crate::session::comparison::scoring_bar;
use crate::train::Scores;

/// Scores batches one after another beside a bar of length `total`, which moves by what `score` returns; `None` if the interrupt was raised.
pub(crate) fn score_batches<B>(
    (label, total): (&'static str, usize),
    batches: impl IntoIterator<Item = B>,
    interrupt: &Interrupt,
    mut score: impl FnMut(B) -> usize,
) -> Option<()> {
    let bar = scoring_bar(label, total);
    for batch in batches {
        if interrupt.is_raised() {
            return None;
        }
        bar.inc(score(batch) as u64);
    }
    bar.finish_and_clear();
    Some(())
}

/// A tensor of integers, given row by row.
pub(crate) fn integers<const D: usize>(values: Vec<i32>, shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Whether the greatest of the `logits` `[N, V]` is that of the target `[N]`.
pub(crate) fn are_right(logits: Tensor<2>, targets: Tensor<1, Int>) -> Vec<bool> {
    read(logits.argmax(1).squeeze_dim::<1>(1).equal(targets)).iter::<bool>().collect()
}

/// Splits answers into items by the count of each, and counts those of each item: `[all, right]`.
pub(crate) fn of_items<'a>(mut right: &'a [bool], counts: &'a [usize]) -> impl Iterator<Item = [usize; 2]> + 'a {
    counts.iter().map(move |&count| {
        let own = right.split_off(..count).expect("there is an answer to each question");
        [count, own.iter().filter(|&&right| right).count()]
    })
}

/// The index of the greatest value; of equal values, the first.
pub(crate) fn first_greatest<T: PartialOrd>(values: &[T]) -> usize {
    (1..values.len()).fold(0, |best, place| if values[place] > values[best] { place } else { best })
}

/// The counts of each item: the tokens asked for, and those of them that the model predicted correctly.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally(pub(crate) Vec<[usize; 2]>);

impl Tally {
    /// The share of all tokens that are right.
    pub(crate) fn token_accuracy(&self) -> f64 {
        let sum = |index: usize| self.0.iter().map(|counts| counts[index]).sum::<usize>();
        sum(1) as f64 / sum(0) as f64
    }

    /// The share of the items whose tokens are all right.
    fn sequence_accuracy(&self) -> f64 {
        self.0.iter().filter(|[asked, right]| asked == right).count() as f64 / self.0.len() as f64
    }

    /// Adds both accuracies, whose names begin with `prefix`.
    pub(crate) fn score(&self, scores: &mut Scores, prefix: &str, [of_tokens, of_items]: [String; 2]) {
        scores.push(&format!("{prefix}token accuracy"), self.token_accuracy(), of_tokens);
        scores.push(&format!("{prefix}sequence accuracy"), self.sequence_accuracy(), of_items);
    }

    /// Adds the items from which both accuracies are computed; an item of the set is `called` this.
    pub(crate) fn score_items(
        &self,
        scores: &mut Scores,
        prefix: &str,
        (set, called): (&str, &str),
        identities: impl Iterator<Item = Vec<i64>>,
    ) {
        scores.push_items(&format!("{prefix}token accuracy"), Self::of_tokens(set, called));
        let of_items = ItemScore::new(set, called, Combination::Mean, &["right"]);
        scores.push_items(&format!("{prefix}sequence accuracy"), of_items);
        scores.items.push(self.items(set, identities));
    }

    /// The table of what each item contributes to both accuracies.
    pub(crate) fn items(&self, set: &str, identities: impl Iterator<Item = Vec<i64>>) -> ItemTable {
        let mut table = ItemTable::new(set, &["right", "right tokens", "tokens"]);
        for (identity, &[asked, right]) in identities.zip(&self.0) {
            table.push_tokens(identity, &[f64::from(u8::from(right == asked)), right as f64, asked as f64]);
        }
        table
    }

    /// How the items of a set combine into the accuracy of tokens.
    pub(crate) fn of_tokens(set: &str, called: &str) -> ItemScore {
        ItemScore::new(set, called, Combination::Ratio, &["right tokens", "tokens"])
    }
}
