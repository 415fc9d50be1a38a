//! Training: the text is normalised and cut into words by a fixed pipeline per kind, the crate's trainers count the words and build the
//! vocabulary.
//!
//! The crate counts in hash maps with random seeds and in parallel. Sums and the merge queue, which is ordered by count and then by ids, do
//! not depend on that; ids that are handed out while a map is walked do. The byte alphabet is sorted by the crate; the `##x` symbols of
//! WordPiece are not and are therefore listed here, sorted, at the head of the vocabulary.

use std::collections::BTreeSet;

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::wordpiece::WordPiece as WordPieceDecoder;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::wordlevel::{WordLevel, WordLevelTrainer};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::normalizers::{BertNormalizer, Lowercase};
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::fixed_length::FixedLength;
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{
    AddedToken, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, ProgressFormat, Tokenizer,
    Trainer,
};

use super::{SPECIAL_TOKENS, Tokeniser, TokeniserConfig, TokeniserError, UNK};

/// What WordPiece writes before a symbol that continues a word.
const CONTINUATION: &str = "##";

/// A pair that the text holds once is no regularity; merging it would store the word it is in.
pub(super) fn frequency_of_a_merge() -> u64 {
    2
}

/// All words of the training text.
pub(super) fn frequency_of_a_word() -> u64 {
    1
}

/// Trains the tokenizer that `config` describes and gives it the special tokens.
pub(super) fn train(config: &TokeniserConfig, lines: &[&str]) -> Result<Tokenizer, TokeniserError> {
    let kind = config.kind();
    if matches!(config, TokeniserConfig::Pretrained {}) {
        return Err(TokeniserError::NotTrained);
    }
    if lines.iter().all(|line| line.trim().is_empty()) {
        return Err(TokeniserError::EmptyText { kind });
    }
    let failed = |error: tokenizers::Error| TokeniserError::Training { kind, reason: error.to_string() };
    let mut tokenizer = pipeline(config).map_err(failed)?;
    let (mut trainer, size) = trainer(config, &tokenizer, lines)?;
    let mut model = tokenizer.get_model().clone();
    trainer.feed(lines.iter(), |line| words(&tokenizer, line)).map_err(failed)?;
    trainer.train(&mut model).map_err(failed)?;
    tokenizer.with_model(model);
    // Not the list that the trainer returns: for WordPiece it names the symbols too.
    tokenizer.add_special_tokens(Tokeniser::special_tokens()).map_err(failed)?;
    let reached = tokenizer.get_vocab_size(true);
    match size {
        Some((requested, min_frequency)) if reached < requested => {
            Err(TokeniserError::VocabularyTooLarge { kind, requested, reached, min_frequency })
        }
        _ => Ok(tokenizer),
    }
}

/// The tokenizer with all its steps and an empty vocabulary.
fn pipeline(config: &TokeniserConfig) -> tokenizers::Result<Tokenizer> {
    let unknown = SPECIAL_TOKENS[UNK as usize].to_owned();
    Ok(match config {
        TokeniserConfig::Bpe { lowercase, .. } => {
            let mut tokenizer = Tokenizer::new(BPE::default());
            // A space in front of every text would make the sentence's first word the same token as elsewhere, but not come off again
            // exactly.
            let bytes = ByteLevel::default().add_prefix_space(false);
            tokenizer.with_normalizer(lowercase.then_some(Lowercase))?;
            tokenizer.with_pre_tokenizer(Some(bytes)).with_decoder(Some(bytes));
            tokenizer
        }
        TokeniserConfig::WordPiece { lowercase, .. } => {
            let mut tokenizer = Tokenizer::new(WordPiece::builder().unk_token(unknown).build()?);
            tokenizer.with_normalizer(Some(BertNormalizer::new(true, true, Some(false), *lowercase)))?;
            tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
            tokenizer.with_decoder(Some(WordPieceDecoder::new(CONTINUATION.to_owned(), false)));
            tokenizer
        }
        TokeniserConfig::Word { .. } => {
            let mut tokenizer = Tokenizer::new(WordLevel::builder().unk_token(unknown).build()?);
            tokenizer.with_pre_tokenizer(Some(WhitespaceSplit));
            tokenizer
        }
        TokeniserConfig::Character {} => {
            let mut tokenizer = Tokenizer::new(WordLevel::builder().unk_token(unknown).build()?);
            tokenizer.with_pre_tokenizer(Some(FixedLength::new(1))).with_decoder(Some(Fuse::new()));
            tokenizer
        }
        TokeniserConfig::Pretrained {} => return Err(TokeniserError::NotTrained.into()),
    })
}

/// The trainer, and the exact size with the minimum frequency where a size is asked for.
fn trainer(
    config: &TokeniserConfig,
    tokenizer: &Tokenizer,
    lines: &[&str],
) -> Result<(TrainerWrapper, Option<(usize, u64)>), TokeniserError> {
    let kind = config.kind();
    let special_tokens: Vec<AddedToken> = Tokeniser::special_tokens().collect();
    let check = |requested: usize, needed: usize| {
        if requested < needed { Err(TokeniserError::VocabularyTooSmall { kind, requested, needed }) } else { Ok(()) }
    };
    let word_level = |vocabulary: Option<usize>, min_frequency: u64| {
        let mut trainer = WordLevelTrainer::default();
        trainer.min_frequency = min_frequency;
        trainer.vocab_size = vocabulary.unwrap_or(usize::MAX);
        trainer.show_progress = false;
        trainer.special_tokens = Tokeniser::special_tokens().collect();
        TrainerWrapper::from(trainer)
    };
    Ok(match *config {
        TokeniserConfig::Bpe { vocabulary, min_frequency, .. } => {
            let alphabet = ByteLevel::alphabet();
            check(vocabulary, SPECIAL_TOKENS.len() + alphabet.len())?;
            let trainer = BpeTrainer::builder()
                .vocab_size(vocabulary)
                .min_frequency(min_frequency)
                .initial_alphabet(alphabet.into_iter().collect())
                .special_tokens(special_tokens)
                .show_progress(false)
                .progress_format(ProgressFormat::Silent)
                .build();
            (trainer.into(), Some((vocabulary, min_frequency)))
        }
        TokeniserConfig::WordPiece { vocabulary, .. } => {
            let symbols = symbols(tokenizer, lines).map_err(|error| TokeniserError::Training { kind, reason: error.to_string() })?;
            check(vocabulary, SPECIAL_TOKENS.len() + symbols.len())?;
            let symbols = symbols.into_iter().map(|symbol| AddedToken::from(symbol, false));
            let trainer = WordPieceTrainer::builder()
                .vocab_size(vocabulary)
                .min_frequency(frequency_of_a_merge())
                .special_tokens(special_tokens.into_iter().chain(symbols).collect())
                .continuing_subword_prefix(CONTINUATION.to_owned())
                .show_progress(false)
                .build();
            (trainer.into(), Some((vocabulary, frequency_of_a_merge())))
        }
        TokeniserConfig::Word { vocabulary, min_frequency } => {
            vocabulary.map_or(Ok(()), |requested| check(requested, SPECIAL_TOKENS.len() + 1))?;
            (word_level(vocabulary, min_frequency), vocabulary.map(|requested| (requested, min_frequency)))
        }
        TokeniserConfig::Character {} => (word_level(None, 1), None),
        TokeniserConfig::Pretrained {} => return Err(TokeniserError::NotTrained),
    })
}

/// Every character of the words, bare and, where it occurs after the first place, as a continuation; each form sorted.
fn symbols(tokenizer: &Tokenizer, lines: &[&str]) -> tokenizers::Result<Vec<String>> {
    // The trainer adds the bare form of every character, wherever it stands.
    let (mut bare, mut continuing) = (BTreeSet::new(), BTreeSet::new());
    for line in lines {
        for word in words(tokenizer, line)? {
            bare.extend(word.chars());
            continuing.extend(word.chars().skip(1));
        }
    }
    let continuing = continuing.into_iter().map(|character| format!("{CONTINUATION}{character}"));
    Ok(bare.into_iter().map(String::from).chain(continuing).collect())
}

/// The words of a line as the trainer counts them.
fn words(tokenizer: &Tokenizer, line: &str) -> tokenizers::Result<Vec<String>> {
    let mut normalised = NormalizedString::from(line);
    if let Some(normaliser) = tokenizer.get_normalizer() {
        normaliser.normalize(&mut normalised)?;
    }
    let mut pieces = PreTokenizedString::from(normalised);
    if let Some(cutter) = tokenizer.get_pre_tokenizer() {
        cutter.pre_tokenize(&mut pieces)?;
    }
    let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::None);
    // A special token's spelling in the text must not give it a second id.
    Ok(splits.into_iter().map(|(word, _, _)| word.to_owned()).filter(|word| !SPECIAL_TOKENS.contains(&word.as_str())).collect())
}
