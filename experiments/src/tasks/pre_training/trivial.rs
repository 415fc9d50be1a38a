//! Predictions from counts of tokens, of neighbours and of n-grams.

use std::collections::HashSet;

use heedful_host::display::grouped;
use heedful_metrics::baselines::n_gram::{Event, KneserNey, events};

use super::masked::{HiddenToken, hidden_tokens};
use super::{LOG_PERPLEXITY, PreTrainingDataset, PreTrainingOptions};
use crate::tasks::prelude::*;
use crate::tasks::text_to_text::{OWN_FRAME, TokenPair};

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

/// The n-gram of what fills gaps, sentinels and end included, of the order that is best on the validation sequences; `None` if the interrupt was raised
/// meanwhile. It sees nothing of the text around a gap.
pub(super) fn n_gram_of_targets(
    train: impl Iterator<Item = TokenPair>,
    [valid, test]: [&[TokenPair]; 2],
    vocabulary: usize,
    interrupt: &Interrupt,
) -> Option<TrivialBaseline> {
    let framed = |pair: &TokenPair| -> Vec<u32> {
        let frame = OWN_FRAME.special;
        std::iter::once(frame.begin).chain(pair.target.iter().copied()).chain([frame.end]).collect()
    };
    let model = KneserNey::of_events(train.flat_map(|pair| events(&framed(&pair)).collect::<Vec<_>>()), vocabulary);
    let log_perplexity = |pairs: &[TokenPair]| {
        let targets: Vec<Event> = pairs.iter().flat_map(|pair| events(&framed(pair)).collect::<Vec<_>>()).collect();
        let count = targets.len() as f64;
        Some(model.total_nats(targets.into_iter(), interrupt)?.map(|nats| nats / count))
    };
    let (valid, test) = (log_perplexity(valid)?, log_perplexity(test)?);
    let best = (0..valid.len()).min_by(|&one, &other| valid[one].total_cmp(&valid[other]))?;
    let description = format!(
        "the interpolated modified Kneser-Ney model of orders 1 to 5 that is best on the validation sequences; it counts {} target tokens of training \
         sequences and reads no source.",
        grouped(model.tokens() as u64)
    );
    let name = format!("{}-gram of targets", best + 1);
    Some(TrivialBaseline::new(&name, description).score(LOG_PERPLEXITY, test[best]).dev(LOG_PERPLEXITY, valid[best]))
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

    #[test]
    fn targets_that_alternate_are_told_by_their_neighbours_and_their_end_counts() {
        let pair = |target: &[u32]| TokenPair { source: vec![4], target: target.to_vec() };
        let train = || (0..40).map(|item| pair(if item % 2 == 0 { &[10, 5, 6, 5, 6] } else { &[10, 6, 5, 6, 5] }));
        let of =
            |text: &TokenPair| n_gram_of_targets(train(), [&[pair(&[10, 5, 6, 5, 6])], std::slice::from_ref(text)], 12, &Interrupt::new());
        let learned = of(&pair(&[10, 6, 5, 6, 5])).unwrap().metric(LOG_PERPLEXITY).unwrap();
        // Six tokens with the end, of which one has two continuations, and the end follows either token.
        assert!((0.1..0.7).contains(&learned), "{learned}");
        assert!(of(&pair(&[10, 5, 5, 5, 5])).unwrap().metric(LOG_PERPLEXITY).unwrap() > 2.0 * learned);
        let interrupt = Interrupt::new();
        interrupt.raise();
        assert_eq!(n_gram_of_targets(train(), [&[pair(&[5])], &[pair(&[5])]], 12, &interrupt), None);
    }
}
