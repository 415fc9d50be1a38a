//! Tokenised examples, and what is asked of a model about them.

use std::borrow::Cow;
use std::sync::Arc;

use heedful_data::glue::{Entity, Example, GlueTask, Label, Target};
use heedful_data::tokenise::{CLASSIFY, SEPARATE, Tokeniser, TokeniserError};

/// The tokens that stand around texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Before the first text.
    pub(crate) classify: u32,
    /// After each text.
    pub(crate) separate: u32,
    /// Whether a pair has two of them between its texts, and all tokens are of one segment (Liu et al. 2019).
    pub(crate) doubled: bool,
}

impl Frame {
    /// Those of tokenisers that are trained here.
    pub(crate) const OWN: Self = Self { classify: CLASSIFY, separate: SEPARATE, doubled: false };
}

/// `<cls> first <sep>` or `<cls> first <sep> second <sep>` (Devlin et al. 2019), and which of the two sentences each token belongs to.
#[derive(Clone, Debug)]
pub(crate) struct TokenExample {
    pub(super) tokens: Vec<u32>,
    /// Length of the part that belongs to the first sentence.
    pub(super) first: usize,
    /// Separators at the end of that part.
    pub(super) separators: usize,
    /// The words of each text, as far as models read it, by their checksums.
    pub(super) words: [Vec<u32>; 2],
    pub(super) label: Label,
    /// Question to which it is a candidate answer.
    pub(super) group: Option<usize>,
    pub(super) entity: Option<Entity>,
}

impl TokenExample {
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The tokens of the first and of the second text, if there is one.
    pub(crate) fn texts(&self) -> [&[u32]; 2] {
        let (first, second) = self.tokens.split_at(self.first);
        [&first[1..first.len() - self.separators], &second[..second.len().saturating_sub(1)]]
    }

    /// The words of the first and of the second text, as [`words`] gives them.
    pub(super) fn words(&self) -> [&[u32]; 2] {
        [&self.words[0], &self.words[1]]
    }

    /// Where the tokens of the second segment begin: with the second sentence, or nowhere where pairs have two separators.
    pub(super) fn second_segment(&self) -> usize {
        if self.separators > 1 { self.tokens.len() } else { self.first }
    }
}

/// What a model is asked, and how its answers are scored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Question {
    /// What is to be predicted.
    pub(crate) target: Target,
    /// Names of the metrics, the one to select a model by first.
    pub(crate) metrics: &'static [&'static str],
    /// Whether several examples are candidate answers to one question.
    pub(crate) is_grouped: bool,
}

impl Question {
    /// How many numbers a model gives for it.
    pub(crate) fn outputs(&self) -> usize {
        match self.target {
            Target::Classes(classes) => classes,
            Target::Range(..) => 1,
        }
    }
}

impl From<GlueTask> for Question {
    fn from(task: GlueTask) -> Self {
        Self { target: task.target(), metrics: task.metrics(), is_grouped: task.is_grouped() }
    }
}

/// The examples of one task.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Name of the task, before the names of its metrics where there are several.
    pub(crate) name: String,
    pub(crate) question: Question,
    /// The first of its outputs among those of the model.
    pub(crate) first_output: usize,
    pub(crate) train: Vec<TokenExample>,
    /// Sets by name. The first selects the best model.
    pub(crate) sets: Vec<(String, Vec<TokenExample>)>,
    /// The first of the sets that the trained model is scored on.
    pub(crate) scored_from: usize,
}

/// Encodes examples, and counts those that had to be cut.
pub(crate) struct Encoder<'t> {
    pub(crate) tokeniser: &'t Tokeniser,
    pub(crate) frame: Frame,
    pub(crate) max_length: usize,
    pub(crate) truncated: usize,
}

impl Encoder<'_> {
    /// # Errors
    /// If the tokeniser of a pretrained model lacks what a text has.
    pub(crate) fn encode(&mut self, examples: &[Example]) -> Result<Vec<TokenExample>, TokeniserError> {
        // Candidate answers to a question share its text, which may be long.
        let mut last: Option<(Arc<str>, Vec<u32>)> = None;
        let mut encoded = Vec::with_capacity(examples.len());
        for Example { first, second, label, group, entity } in examples {
            let first_text = &**first;
            let first = match &last {
                Some((text, tokens)) if Arc::ptr_eq(text, first) => tokens.clone(),
                _ => {
                    let tokens = self.tokeniser.try_encode(first)?;
                    last = group.is_some().then(|| (first.clone(), tokens.clone()));
                    tokens
                }
            };
            let second_tokens = second.as_deref().map(|second| self.tokeniser.try_encode(second)).transpose()?;
            let lengths = [first.len(), second_tokens.as_ref().map_or(0, Vec::len)];
            let separators = if second.is_some() && self.frame.doubled { 2 } else { 1 };
            let Composed { tokens, first, was_cut } = compose(first, second_tokens, self.frame, self.max_length);
            self.truncated += usize::from(was_cut);
            let mut example =
                TokenExample { tokens, first, separators, words: Default::default(), label: *label, group: *group, entity: entity.clone() };
            let texts = [first_text, second.as_deref().unwrap_or_default()];
            example.words = std::array::from_fn(|index| words(&self.read(texts[index], lengths[index], example.texts()[index])));
            encoded.push(example);
        }
        Ok(encoded)
    }
}

impl Encoder<'_> {
    /// The part of a text of so many tokens that is read where these are kept.
    fn read<'t>(&self, text: &'t str, tokens: usize, kept: &[u32]) -> Cow<'t, str> {
        if kept.len() == tokens {
            return Cow::Borrowed(text);
        }
        // Decoded words would lack those that are not in the vocabulary.
        if text.split_whitespace().count() == tokens {
            return Cow::Owned(text.split_whitespace().take(kept.len()).collect::<Vec<_>>().join(" "));
        }
        Cow::Owned(self.tokeniser.decode(kept))
    }
}

/// Checksums of the words of a text: its letters and digits between other characters, in lower case. Of a million different words a hundred have that of
/// another one.
fn words(text: &str) -> Vec<u32> {
    let text = text.to_lowercase();
    let words = text.split(|character: char| !character.is_alphanumeric() && character != '_');
    words.filter(|word| !word.is_empty()).map(|word| crc32c::crc32c(word.as_bytes())).collect()
}

/// The token sequence of an example.
#[derive(Debug, PartialEq, Eq)]
struct Composed {
    tokens: Vec<u32>,
    /// Length of the part that belongs to the first sentence.
    first: usize,
    was_cut: bool,
}

/// The token sequence of an example, cut to `max_length`: the longer sentence loses its last tokens first.
fn compose(mut first: Vec<u32>, second: Option<Vec<u32>>, frame: Frame, max_length: usize) -> Composed {
    let mut second = second;
    let separators = if second.is_some() && frame.doubled { 2 } else { 1 };
    let special = if second.is_some() { 2 + separators } else { 2 };
    let mut was_cut = false;
    while first.len() + second.as_ref().map_or(0, Vec::len) + special > max_length {
        match &mut second {
            Some(second) if second.len() > first.len() => second.pop(),
            _ => first.pop(),
        };
        was_cut = true;
    }
    let mut tokens = vec![frame.classify];
    tokens.append(&mut first);
    tokens.extend(vec![frame.separate; separators]);
    let first = tokens.len();
    if let Some(mut second) = second {
        tokens.append(&mut second);
        tokens.push(frame.separate);
    }
    Composed { tokens, first, was_cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_framed_by_class_token_and_separators() {
        let whole = |tokens: &[u32], first: usize| Composed { tokens: tokens.to_vec(), first, was_cut: false };
        assert_eq!(compose(vec![10, 11], None, Frame::OWN, 8), whole(&[CLASSIFY, 10, 11, SEPARATE], 4));
        assert_eq!(compose(vec![10], Some(vec![20]), Frame::OWN, 8), whole(&[CLASSIFY, 10, SEPARATE, 20, SEPARATE], 3));
        // A text of a pretrained model may spell a special token.
        let frame = Frame { classify: 2, separate: 3, doubled: false };
        assert_eq!(compose(vec![3, 10], Some(vec![20]), frame, 8), whole(&[2, 3, 10, 3, 20, 3], 4));
    }

    #[test]
    fn a_pair_of_roberta_has_two_separators_and_one_segment() {
        let frame = Frame { classify: 0, separate: 2, doubled: true };
        let composed =
            |first: &[u32], second: Option<&[u32]>, most: usize| compose(first.to_vec(), second.map(<[u32]>::to_vec), frame, most);
        assert_eq!(composed(&[10, 11], None, 8).tokens, [0, 10, 11, 2]);
        let Composed { tokens, first, was_cut } = composed(&[10, 11], Some(&[20, 21]), 7);
        assert_eq!((&tokens[..], first, was_cut), (&[0, 10, 2, 2, 20, 21, 2][..], 4, true));
        let example =
            TokenExample { tokens, first, separators: 2, words: Default::default(), label: Label::Class(0), group: None, entity: None };
        assert_eq!((example.texts(), example.second_segment()), ([&[10][..], &[20, 21]], 7));
    }

    #[test]
    fn words_are_those_of_the_part_that_is_read_also_where_the_vocabulary_lacks_them() {
        let config = heedful_data::tokenise::TokeniserConfig::Word { vocabulary: None, min_frequency: 2 };
        let tokeniser = Tokeniser::train(&config, ["good film good film"].into_iter()).unwrap();
        let mut encoder = Encoder { tokeniser: &tokeniser, frame: Frame::OWN, max_length: 5, truncated: 0 };
        let example = |first: &str| Example::new(first, None, Label::Class(0));
        let encoded = encoder.encode(&[example("Superb, good film of all"), example("GOOD film")]).unwrap();
        assert_eq!(encoded[0].words(), [&words("superb good film")[..], &[]]);
        assert_eq!(encoded[1].words()[0], words("good film"));
        assert_eq!(words("It's_a 2nd -- test."), ["it", "s_a", "2nd", "test"].map(|word| words(word)[0]));
    }

    #[test]
    fn the_longer_sentence_is_cut_first() {
        let Composed { tokens, first, was_cut } = compose(vec![10, 11], Some(vec![20, 21, 22, 23]), Frame::OWN, 7);
        assert_eq!(tokens, [CLASSIFY, 10, 11, SEPARATE, 20, 21, SEPARATE]);
        assert!(first == 4 && was_cut);
    }
}
