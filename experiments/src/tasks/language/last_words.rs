//! How well the last word of a passage is predicted from the rest of it (LAMBADA, Paperno et al. 2016).
//!
//! Each passage is read by itself, after the token that texts begin with. A passage longer than the context loses its beginning, and there is no memory. A word
//! may be several tokens. It is right if each of them is the most probable one after the right ones before it; its probability is their product. The perplexity
//! is per word, whatever the tokens. A word outside the vocabulary is wrong and has the probability of the unknown word, so that perplexities compare only with
//! the same vocabulary. The end of a passage is not part of the word.

use burn::tensor::activation::log_softmax;
use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use heedful_attention::tensors::read::read;
use heedful_data::tokenise::UNK;
use heedful_models::architectures::language_model::LanguageModel;

use crate::tasks::prelude::*;
use crate::tasks::scoring::score_batches;

use super::{LanguageData, LanguageDataset};

const ACCURACY: &str = "last-word accuracy";
const PERPLEXITY: &str = "last-word perplexity";
/// The passages of the test text.
const SET: &str = "last words";

/// A passage: what the model reads and the tokens that follow each of it, of which the last `word` are the word.
#[derive(Debug, PartialEq)]
struct Passage {
    inputs: Vec<u32>,
    targets: Vec<u32>,
    word: usize,
}

impl Passage {
    fn of(line: &str, dataset: &LanguageDataset, context: usize) -> Result<Self, ExperimentError> {
        let line = line.trim_end();
        let before = line.rsplit_once(char::is_whitespace).map_or("", |(before, _)| before);
        let encode = |text| dataset.tokeniser.try_encode(text).map_err(ExperimentError::usage);
        let tokens: Vec<u32> = std::iter::once(dataset.start).chain(encode(line)?).collect();
        let shared = tokens[1..].iter().zip(encode(before)?).take_while(|(token, before)| *token == before).count();
        let first = tokens.len() - 1 - (tokens.len() - 1).min(context);
        let (inputs, targets) = (tokens[first..tokens.len() - 1].to_vec(), tokens[first + 1..].to_vec());
        let word = (tokens.len() - 1 - shared).clamp(1, targets.len());
        Ok(Self { inputs, targets, word })
    }

    fn word(&self) -> &[u32] {
        &self.targets[self.targets.len() - self.word..]
    }
}

/// Adds the scores of the test passages; `false` if the interrupt was raised meanwhile.
///
/// # Errors
/// If the tokeniser of a pretrained model lacks what a passage has.
pub(super) fn add(
    scores: &mut Scores,
    dataset: &LanguageDataset,
    data: &LanguageData,
    model: &LanguageModel,
    interrupt: &Interrupt,
) -> Result<bool, ExperimentError> {
    let passages = dataset.corpus.test.iter().map(|line| Passage::of(line, dataset, data.context));
    let passages: Vec<Passage> = passages.collect::<Result<_, _>>()?;
    // Passages of one length are read at once, without padding.
    let mut order: Vec<usize> = (0..passages.len()).collect();
    order.sort_by_key(|&index| passages[index].inputs.len());
    let mut found = vec![(false, 0.0); passages.len()];
    let same = order.chunk_by(|&a, &b| passages[a].inputs.len() == passages[b].inputs.len());
    let batches = same.flat_map(|same| same.chunks(data.batch));
    let scored = score_batches(("last words", passages.len()), batches, interrupt, |indices| {
        let batch: Vec<&Passage> = indices.iter().map(|&index| &passages[index]).collect();
        for (&index, (is_right, nats)) in indices.iter().zip(predicted(model, &batch)) {
            let is_unknown = dataset.pretrained.is_none() && passages[index].word().contains(&UNK);
            found[index] = (is_right && !is_unknown, nats);
        }
        indices.len()
    });
    if scored.is_none() {
        return Ok(false);
    }
    let mut table = ItemTable::new(SET, &["right", "nats", "words"]);
    for (passage, &(is_right, nats)) in passages.iter().zip(&found) {
        table.push_tokens(
            passage.inputs.iter().chain(passage.word()).map(|&token| i64::from(token)),
            &[f64::from(u8::from(is_right)), nats, 1.0],
        );
    }
    scores.items.push(table);
    let count = passages.len() as f64;
    let right = found.iter().filter(|(is_right, _)| *is_right).count() as f64;
    let nats = found.iter().map(|(_, nats)| nats).sum::<f64>();
    let signature = format!("passages:{count}|context:{}|memory:0|unknown words:wrong", data.context);
    scores.push(ACCURACY, right / count, signature.clone());
    scores.push_items(ACCURACY, ItemScore::new(SET, "passages", Combination::Mean, &["right"]));
    scores.push(PERPLEXITY, (nats / count).exp(), signature);
    scores.push_items(PERPLEXITY, ItemScore::new(SET, "passages", Combination::ExpRatio, &["nats", "words"]));
    Ok(true)
}

/// Whether the word of each passage is predicted, and its negative log-likelihood in nats. All are of one length.
fn predicted(model: &LanguageModel, passages: &[&Passage]) -> Vec<(bool, f64)> {
    let device = model.embedding.tokens.weight.device();
    let (rows, width) = (passages.len(), passages[0].inputs.len());
    let integers = |tokens: &mut dyn Iterator<Item = u32>| tokens.map(|token| token as i32).collect::<Vec<_>>();
    let inputs = integers(&mut passages.iter().flat_map(|passage| passage.inputs.iter().copied()));
    let states =
        model.hidden(Tensor::<2, Int>::from_data(TensorData::new(inputs, [rows, width]), &device), &[], None, &mut Probe::off()).states;
    let [_, _, d_model] = states.dims();
    let places =
        passages.iter().enumerate().flat_map(|(row, passage)| (width - passage.word..width).map(move |column| row * width + column));
    let places: Vec<i32> = places.map(|place| place as i32).collect();
    let targets = integers(&mut passages.iter().flat_map(|passage| passage.word().iter().copied()));
    let count = targets.len();
    let states = states.reshape([rows * width, d_model]).select(0, Tensor::<1, Int>::from_data(TensorData::new(places, [count]), &device));
    let logits = model.project(states).cast(FloatDType::F32);
    let targets = Tensor::<2, Int>::from_data(TensorData::new(targets, [count, 1]), &device);
    let right = read(logits.clone().argmax(1).equal(targets.clone()));
    let nats = read(log_softmax(logits, 1).gather(1, targets).neg());
    let mut tokens = right.iter::<bool>().zip(nats.iter::<f32>());
    let word = |passage: &&Passage| {
        tokens.by_ref().take(passage.word).fold((true, 0.0), |(all, sum), (is_right, nats)| (all && is_right, sum + f64::from(nats)))
    };
    passages.iter().map(word).collect()
}

/// The columns of the scores.
pub(super) fn columns() -> [MetricColumn; 2] {
    let definition = "of the last words of the test passages, each predicted from the rest of its passage";
    [
        MetricColumn::new(ACCURACY, "last words (%)").percent().higher_is_better().defined_as(definition),
        MetricColumn::new(PERPLEXITY, "last-word ppl").lower_is_better().defined_as(definition),
    ]
}

#[cfg(test)]
mod tests {
    use heedful_data::tokenise::{END, TokeniserConfig};

    use super::super::{Language, LanguageConfig};
    use super::*;
    use crate::tasks::testing::Case;

    fn config(dir: &std::path::Path, tokeniser: TokeniserConfig) -> LanguageConfig {
        let mut config = LanguageConfig {
            model: ModelSettings { d_model: 16, heads: 2, d_ff: 32, max_length: 12, ..ModelSettings::default() },
            own: Language { tokeniser, ..Language::default() },
            ..LanguageConfig::default()
        };
        (config.own.data.context, config.own.data.batch) = (6, 3);
        config.run.data = Some(dir.to_owned());
        config
    }

    /// LAMBADA with 60 passages of the words a to d, of different lengths, and one whose last word is in no novel.
    fn lambada() -> tempfile::TempDir {
        let word = |n: usize| ["a", "b", "c", "d"][n * n % 7 % 4];
        let passage = |n: usize| (0..3 + n % 6).map(|place| word(n + 3 * place)).collect::<Vec<_>>().join(" ");
        let passages: String = (0..60).map(|n| passage(n) + "\n").collect::<String>() + "a b unheard\n";
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("train-novels/A")).unwrap();
        for (name, text) in [
            ("train-novels/A/a.txt", "a b c d\n"),
            ("lambada_development_plain_text.txt", "a b\n"),
            ("lambada_test_plain_text.txt", &passages),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn scores_are_those_of_passages_that_are_read_alone() {
        let dir = lambada();
        let config = config(dir.path(), TokeniserConfig::Word { vocabulary: None, min_frequency: 1 });
        let case = Case::<Language>::new(config, "dot-product");
        let (config, dataset) = (&case.config, &case.data);
        let mut right_in_all = 0;
        for seed in 1..=4 {
            let model = case.model(seed, &Device::flex());
            let mut scores = Scores::default();
            add(&mut scores, dataset, &config.own.data, &model, &Interrupt::new()).unwrap();
            let found: Vec<(bool, f64)> = dataset.corpus.test.iter().map(|line| predicted_alone(&model, dataset, line)).collect();
            let right = found.iter().filter(|(is_right, _)| *is_right).count();
            let nats = found.iter().map(|(_, nats)| nats).sum::<f64>();
            let metric = |name: &str| scores.metrics.iter().find(|(metric, _)| metric == name).unwrap().1;
            assert_eq!(metric(ACCURACY), right as f64 / 61.0);
            assert!((metric(PERPLEXITY) / (nats / 61.0).exp() - 1.0).abs() < 1e-4, "{} of {nats}", metric(PERPLEXITY));
            for (name, combination, statistics) in
                [(ACCURACY, Combination::Mean, &["right"][..]), (PERPLEXITY, Combination::ExpRatio, &["nats", "words"])]
            {
                let score = ItemScore::new(SET, "passages", combination, statistics);
                let total = score.combination.score(&scores.items[0].terms(&score).unwrap().total());
                assert!((total - metric(name)).abs() <= 1e-9 * metric(name), "{name}: {total}");
            }
            right_in_all += right;
        }
        assert!(right_in_all > 0 && right_in_all < 4 * 61, "{right_in_all} of 244 are right");
    }

    /// What [`predicted`] says of the last token of a line, read by itself with at most 6 tokens before it.
    fn predicted_alone(model: &LanguageModel, dataset: &LanguageDataset, line: &str) -> (bool, f64) {
        let tokens: Vec<u32> = std::iter::once(END).chain(dataset.tokeniser.encode(line)).collect();
        let (&target, before) = tokens.split_last().unwrap();
        let before: Vec<i32> = before[before.len().saturating_sub(6)..].iter().map(|&token| token as i32).collect();
        let inputs = Tensor::<2, Int>::from_data(TensorData::new(before.clone(), [1, before.len()]), &Device::flex());
        let states = model.hidden(inputs, &[], None, &mut Probe::off()).states.squeeze_dim::<2>(0).narrow(0, before.len() - 1, 1);
        let logits: Vec<f64> = read(model.project(states)).iter::<f32>().map(f64::from).collect();
        let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let own = logits[target as usize];
        let normaliser = logits.iter().map(|logit| (logit - greatest).exp()).sum::<f64>().ln() + greatest;
        (own == greatest && target != UNK, normaliser - own)
    }

    #[test]
    fn a_word_of_several_tokens_is_right_if_all_of_them_are() {
        let dir = lambada();
        let dataset = Language::open(&config(dir.path(), TokeniserConfig::Character {})).unwrap().remove(0);
        let passage = Passage::of("a b cd ", &dataset, 6).unwrap();
        let tokens = dataset.tokeniser.encode("a b cd");
        assert_eq!((&passage.inputs[..], &passage.targets[..]), (&[&[END][..], &tokens[..5]].concat()[..], &tokens[..]));
        assert_eq!(passage.word(), dataset.tokeniser.encode(" cd"));
        let cut = Passage::of("a b cd", &dataset, 4).unwrap();
        assert_eq!((cut.inputs.len(), cut.word), (4, 3));
        assert_eq!(Passage::of("a bcdabcd", &dataset, 4).unwrap().word, 4, "of a longer word the last tokens");
    }

    #[test]
    fn other_texts_have_no_last_words() {
        let mut config = LanguageConfig::default();
        config.own.data.generated_words = 300;
        assert!(!Language::open(&config).unwrap()[0].corpus.last_words);
    }
}
