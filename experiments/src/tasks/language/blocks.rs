//! The items of a scored text: blocks of successive tokens.
//!
//! Blocks depend only on the text and not on how it is read. Models with and without a memory, and with other contexts and strides, are therefore scored on the
//! same items.

use std::f64::consts::LN_2;

use heedful_metrics::ItemTable;

/// Tokens of a block of a long text.
const TOKENS: usize = 1000;

/// Blocks that a shorter text has at least, if it has so many tokens.
const BLOCKS: usize = 50;

/// Negative log-likelihoods of a text, summed by blocks.
#[derive(Debug)]
pub(super) struct TextBlocks {
    table: ItemTable,
    size: usize,
    /// The block that is not complete yet.
    tokens: Vec<i32>,
    nats: f64,
}

impl TextBlocks {
    /// Of a test text of which so many tokens are scored.
    pub(super) fn new(tokens: usize) -> Self {
        let size = TOKENS.min(tokens / BLOCKS).max(1);
        Self { table: ItemTable::new("test", &["nats", "bits", "units"]), size, tokens: Vec::new(), nats: 0.0 }
    }

    /// How the next `count` tokens fall into blocks: numbers of tokens, none of them 0.
    pub(super) fn parts(&self, count: usize) -> Vec<usize> {
        let first = count.min(self.size - self.tokens.len());
        let others = (first..count).step_by(self.size).map(|begun| self.size.min(count - begun));
        std::iter::once(first).chain(others).filter(|&part| part > 0).collect()
    }

    /// Adds tokens of one block, the next of the text.
    ///
    /// # Panics
    /// If they are of several.
    pub(super) fn add(&mut self, tokens: &[i32], nats: f64) {
        self.tokens.extend(tokens);
        self.nats += nats;
        assert!(self.tokens.len() <= self.size, "{} tokens in a block of {}", self.tokens.len(), self.size);
        if self.tokens.len() == self.size {
            self.end();
        }
    }

    /// The items.
    pub(super) fn table(mut self) -> ItemTable {
        if !self.tokens.is_empty() {
            self.end();
        }
        self.table
    }

    fn end(&mut self) {
        let nats = std::mem::take(&mut self.nats);
        let tokens = std::mem::take(&mut self.tokens);
        let row = [nats, nats / LN_2, tokens.len() as f64];
        self.table.push_tokens(tokens.into_iter().map(i64::from), &row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The items of a text that is scored by pieces of these lengths, a nat for each token.
    fn of(pieces: &[usize]) -> ItemTable {
        let text: Vec<i32> = (0..pieces.iter().sum::<usize>() as i32).collect();
        let mut blocks = TextBlocks::new(text.len());
        let mut rest = &text[..];
        for &piece in pieces {
            for part in blocks.parts(piece) {
                let tokens = rest.split_off(..part).unwrap();
                blocks.add(tokens, part as f64);
            }
        }
        blocks.table()
    }

    #[test]
    fn blocks_are_of_the_text_and_not_of_how_it_is_read() {
        let whole = of(&[125_500]);
        for pieces in [&[128; 980][..], &[248, 125_252], &[999, 1, 1, 124_499]] {
            let pieces = [pieces, &[125_500 - pieces.iter().sum::<usize>()]].concat();
            assert_eq!((whole.identity(), whole.to_json()), (of(&pieces).identity(), of(&pieces).to_json()), "{pieces:?}");
        }
        assert_ne!(whole.identity(), of(&[125_501]).identity());
    }

    #[test]
    fn a_block_has_a_thousand_tokens_or_a_fiftieth_of_the_text() {
        for (tokens, size) in [(125_500, 1000), (50_000, 1000), (5000, 100), (99, 1), (3, 1)] {
            assert_eq!(TextBlocks::new(tokens).size, size, "{tokens}");
        }
    }
}
