//! What counts of tokens and of neighbours find.

use std::collections::HashSet;

use heedful_host::display::grouped;
use heedful_metrics::baselines::n_gram::{Event, KneserNey};

use super::masked::{HiddenToken, hidden_tokens};
use super::{LOG_PERPLEXITY, PreTrainingDataset, PreTrainingOptions};
use crate::tasks::prelude::*;

/// Log-perplexity and accuracy.
type Found = [(String, f64); 2];

/// The unigram, and the bigram of the left neighbour; `None` if the interrupt was raised meanwhile.
pub(super) fn baselines(options: &PreTrainingOptions, data: &PreTrainingDataset, interrupt: &Interrupt) -> Option<Vec<TrivialBaseline>> {
    let model = KneserNey::train(&data.train, data.vocabulary);
    let seen = format!("the first {} training tokens", grouped(model.tokens() as u64));
    let new = |name: &str, what: &str| TrivialBaseline::new(name, format!("{what}, counted in {seen}."));
    let mut unigram = new("unigram", "how often each token occurs");
    let mut bigram = new(
        "left bigram",
        "the token after the left neighbour, with interpolated modified Kneser-Ney smoothing; where that is hidden too, the unigram",
    );
    for split in [Split::Valid, Split::Test] {
        let tokens: Vec<HiddenToken> = hidden_tokens(options, data, split).collect();
        let [of_unigram, of_bigram] = scores(&model, &tokens, interrupt)?;
        (unigram, bigram) = match split {
            Split::Valid => (unigram.devs(of_unigram), bigram.devs(of_bigram)),
            Split::Test => (unigram.scores(of_unigram), bigram.scores(of_bigram)),
        };
    }
    Some(vec![unigram, bigram])
}

/// What the unigram and the bigram find.
fn scores(model: &KneserNey, tokens: &[HiddenToken], interrupt: &Interrupt) -> Option<[Found; 2]> {
    let events: Vec<Event> = tokens.iter().map(|hidden| Event::new(hidden.left.as_slice(), hidden.token)).collect();
    let nats = model.nats(&events, interrupt)?;
    let (most, followers) = model.most_frequent(&tokens.iter().filter_map(|hidden| hidden.left).collect::<HashSet<_>>());
    let count = tokens.len() as f64;
    let found = |nats: f64, is_right: &dyn Fn(&HiddenToken) -> bool| {
        let right = tokens.iter().filter(|hidden| is_right(hidden)).count() as f64;
        [(LOG_PERPLEXITY.to_owned(), nats / count), ("accuracy".to_owned(), right / count)]
    };
    let of_unigram: f64 = nats.iter().map(|of_order| of_order[0]).sum();
    let of_bigram: f64 = nats.iter().zip(tokens).map(|(of_order, hidden)| of_order[usize::from(hidden.left.is_some())]).sum();
    let follower = |hidden: &HiddenToken| hidden.left.and_then(|left| followers.get(&left).copied()).or(most);
    Some([found(of_unigram, &|hidden| most == Some(hidden.token)), found(of_bigram, &|hidden| follower(hidden) == Some(hidden.token))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_left_neighbour_leaves_the_unigram() {
        // After 1 always 2, after 2 always 3.
        let text = [&[1, 2, 3].repeat(30)[..], &[3]].concat();
        let model = KneserNey::train(&text, 5);
        let hidden = |left: Option<u32>, token: u32| HiddenToken { left, token };
        let of = |tokens: &[HiddenToken]| scores(&model, tokens, &Interrupt::new()).unwrap().map(|found| found.map(|(_, value)| value));
        let [unigram, bigram] = of(&[hidden(None, 3), hidden(None, 1)]);
        assert_eq!(unigram, bigram);
        assert_eq!(unigram[1], 0.5, "3 is the most frequent");
        let [unigram, bigram] = of(&[hidden(Some(1), 2), hidden(Some(2), 3)]);
        assert!(bigram[0] < 0.8 * unigram[0] && bigram[1] == 1.0 && unigram[1] == 0.5, "{unigram:?} {bigram:?}");
        let by_hand =
            -model.nats(&[Event::new(&[1], 2), Event::new(&[2], 3)], &Interrupt::new()).unwrap().iter().map(|nats| -nats[1]).sum::<f64>();
        assert!((bigram[0] - by_hand / 2.0).abs() < 1e-12);
    }
}
