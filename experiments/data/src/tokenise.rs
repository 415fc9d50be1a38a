//! Text to token ids and back.
//!
//! One type, [`Tokeniser`], covers the four ways a text is cut in the experiments: byte-level byte-pair encoding, WordPiece, words and
//! characters. The algorithms are those of the `tokenizers` crate and a trained tokeniser is stored in its `tokenizer.json` format; this
//! module fixes what the crate leaves open: the special tokens have the same ids in every vocabulary, text can never turn into a control
//! token, and two trainings on the same text give the same file.
//!
//! A byte-level vocabulary holds all 256 bytes, so no text is unknown to it and decoding restores the text exactly (up to case, where
//! `lowercase` is set). The other kinds lose something: WordPiece and words lose the white space, and what is not in the vocabulary becomes
//! [`UNK`].

use std::fs;
use std::path::{Path, PathBuf};

use heedful_host::whole_files::write_atomically;
use serde::{Deserialize, Serialize};
use tokenizers::{AddedToken, Tokenizer};

mod train;

/// Fills the rows of a batch up to a common width.
pub const PAD: u32 = 0;
/// Stands for a piece of text that the vocabulary lacks.
pub const UNK: u32 = 1;
/// Begins a sequence.
pub const BEGIN: u32 = 2;
/// Ends a sequence.
pub const END: u32 = 3;
/// Begins a sequence that is to be classified.
pub const CLASSIFY: u32 = 4;
/// Stands between and after the sentences of a pair.
pub const SEPARATE: u32 = 5;
/// Replaces a token that is to be predicted (Devlin et al. 2019, section 3.1).
pub const MASK: u32 = 6;

/// The special tokens as written in every vocabulary; the index is the id.
pub const SPECIAL_TOKENS: [&str; 7] = ["<pad>", "<unk>", "<s>", "</s>", "<cls>", "<sep>", "<mask>"];

/// More tokens than the tokeniser of any model has: ids beyond would take gigabytes.
const LARGEST_VOCABULARY: usize = 1 << 24;

/// How to cut a text, and how many different tokens to allow.
///
/// `vocabulary` always counts every token, the seven [`SPECIAL_TOKENS`] included, and is exact: training fails where the text cannot give
/// that many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum TokeniserConfig {
    /// Byte-pair encoding (Sennrich, Haddow, Birch 2016) over bytes (Radford et al. 2019, section 2.2), with GPT-2's division into words.
    Bpe {
        /// Number of tokens, at least 263: the special tokens and the 256 bytes.
        vocabulary: usize,
        /// A pair of tokens is merged only if the text holds it at least this often.
        #[serde(default = "train::frequency_of_a_merge")]
        min_frequency: u64,
        /// Whether the text is lower-cased first.
        #[serde(default)]
        lowercase: bool,
    },
    /// WordPiece as in BERT: longest match first, continuations written `##x`, punctuation and Chinese characters on their own. Accents are
    /// kept, and pieces are merged as in byte-pair encoding, if the text holds the pair at least twice.
    WordPiece {
        /// Number of tokens; at least the special tokens and each character in each position (first in a word, later in a word) it occurs
        /// in.
        vocabulary: usize,
        /// Whether the text is lower-cased first.
        #[serde(default)]
        lowercase: bool,
    },
    /// The words between white space.
    Word {
        /// Number of tokens, the most frequent words; all words that are frequent enough if absent.
        #[serde(default)]
        vocabulary: Option<usize>,
        /// A word enters the vocabulary only if the text holds it at least this often.
        #[serde(default = "train::frequency_of_a_word")]
        min_frequency: u64,
    },
    /// Each Unicode scalar value of the text, white space too.
    Character {},
    /// The tokeniser of a pretrained model, with its special tokens: programs with `--pretrained` read it from the folder of the model.
    Pretrained {},
}

impl TokeniserConfig {
    /// The name of the kind, as in the configuration.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bpe { .. } => "bpe",
            Self::WordPiece { .. } => "word-piece",
            Self::Word { .. } => "word",
            Self::Character {} => "character",
            Self::Pretrained {} => "pretrained",
        }
    }

    /// Whether the ids behind those of the [`SPECIAL_TOKENS`] are in the order of the tokens' frequencies in the training text, the most frequent first.
    pub fn is_ordered_by_frequency(&self) -> bool {
        match self {
            Self::Word { .. } | Self::Character {} => true,
            Self::Bpe { .. } | Self::WordPiece { .. } | Self::Pretrained {} => false,
        }
    }
}

/// Why a tokeniser could not be trained, read or written.
#[derive(Debug, thiserror::Error)]
pub enum TokeniserError {
    /// The text has no character but white space.
    #[error("cannot train a {kind} tokeniser: the training text is empty; check the training file")]
    EmptyText {
        /// The kind of tokeniser.
        kind: &'static str,
    },
    /// The vocabulary has no room for the tokens it must have.
    #[error(
        "tokeniser.vocabulary = {requested} is too small for a {kind} tokeniser on this text: set it to at least {needed}, \
         which the special tokens and single symbols take"
    )]
    VocabularyTooSmall {
        /// The kind of tokeniser.
        kind: &'static str,
        /// The size asked for.
        requested: usize,
        /// The smallest size that works.
        needed: usize,
    },
    /// The text does not hold that many different tokens.
    #[error(
        "tokeniser.vocabulary = {requested} is too large for a {kind} tokeniser: tokens that occur at least {min_frequency} times \
         end at {reached}; set it to {reached} or less, lower the minimum frequency if it can be set, or train on more text"
    )]
    VocabularyTooLarge {
        /// The kind of tokeniser.
        kind: &'static str,
        /// The size asked for.
        requested: usize,
        /// The largest size that works.
        reached: usize,
        /// The minimum frequency that was in force.
        min_frequency: u64,
    },
    /// A kind that is read and not trained.
    #[error(
        "tokeniser.kind = \"pretrained\" is that of a pretrained model, which lm --pretrained DIR and glue --pretrained DIR read; give another kind"
    )]
    NotTrained,
    /// The `tokenizers` crate refused the text or the settings.
    #[error("training the {kind} tokeniser failed: {reason}")]
    Training {
        /// The kind of tokeniser.
        kind: &'static str,
        /// The message of the crate.
        reason: String,
    },
    /// The file could not be read.
    #[error("cannot read the tokeniser {}: {source}; check the path, or train the tokeniser again", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file could not be written.
    #[error("cannot write the tokeniser {}: {source}; check that its folder exists and has room", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is not a tokeniser.
    #[error("{} is not a tokeniser: {reason}; write it with save_pretrained of a fast tokeniser", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A text contains a piece without a token, and the file has no unknown token.
    #[error("{} has no token for {piece:?} and none for what is unknown ({reason}); add one of them, or take the file of another tokeniser", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// A word of the text, or the beginning of the text where no word fails by itself.
        piece: String,
        /// The message of the `tokenizers` crate.
        reason: String,
    },
    /// The file is not a tokeniser of this module.
    #[error("{} is not a tokeniser of this program: {reason}; train the tokeniser again", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// The bytes of a file without a byte order mark.
fn contents(path: &Path) -> Result<Vec<u8>, TokeniserError> {
    let mut bytes = fs::read(path).map_err(|source| TokeniserError::Read { path: path.to_owned(), source })?;
    if bytes.starts_with("\u{feff}".as_bytes()) {
        bytes.drain(.."\u{feff}".len());
    }
    Ok(bytes)
}

/// A trained tokeniser: text to ids and back.
#[derive(Clone, Debug)]
pub struct Tokeniser {
    tokenizer: Tokenizer,
    /// By id; the crate itself hands out only copies.
    tokens: Vec<String>,
    /// The file of a pretrained model; none if it was trained here, with the [`SPECIAL_TOKENS`].
    foreign: Option<PathBuf>,
}

impl Tokeniser {
    /// Trains a tokeniser on the lines of a text.
    ///
    /// The result depends on the configuration and the text only. A line end is part of the text only where a line contains it.
    ///
    /// # Errors
    /// An empty text, or a vocabulary size that is too small or too large for it.
    pub fn train<'a>(config: &TokeniserConfig, lines: impl Iterator<Item = &'a str>) -> Result<Self, TokeniserError> {
        let tokenizer = train::train(config, &lines.collect::<Vec<_>>())?;
        Self::from_tokenizer(tokenizer).map_err(|reason| TokeniserError::Training { kind: config.kind(), reason })
    }

    /// The ids of a text, without [`BEGIN`], [`END`] or any other control token: those are the caller's to add.
    ///
    /// No text yields a special id but [`UNK`]. Words kept as such that are spelt like a special token become [`UNK`], which is what
    /// `<unk>` in the Penn Treebank and WikiText means; the other kinds cut such a spelling into pieces as they cut any text. The
    /// tokeniser of a [pretrained](Self::pretrained) model gives whatever ids it has, also those of special tokens that a text spells.
    ///
    /// # Panics
    /// If it is that of a pretrained model and [`try_encode`](Self::try_encode) fails.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.try_encode(text).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The ids of a text, as [`encode`](Self::encode) gives them.
    ///
    /// # Errors
    /// If this is the tokeniser of a pretrained model, and the text contains a piece without a token while there is no unknown token.
    pub fn try_encode(&self, text: &str) -> Result<Vec<u32>, TokeniserError> {
        let encoding = self.tokenizer.encode_fast(text, false).map_err(|error| self.unknown(text, error.to_string()))?;
        let special = if self.foreign.is_none() { SPECIAL_TOKENS.len() } else { 0 };
        Ok(encoding.get_ids().iter().map(|&id| if (id as usize) < special { UNK } else { id }).collect())
    }

    /// The error of a text that cannot be encoded, with the first of its words that cannot.
    fn unknown(&self, text: &str, reason: String) -> TokeniserError {
        let piece = text.split_whitespace().find(|word| self.tokenizer.encode_fast(*word, false).is_err());
        let piece = piece.map_or_else(|| text.chars().take(40).collect(), str::to_owned);
        TokeniserError::Unknown { path: self.foreign.clone().unwrap_or_default(), piece, reason }
    }

    /// The tokens as they are written in the vocabulary.
    pub fn words(&self, tokens: &[u32]) -> Vec<String> {
        tokens.iter().map(|&token| self.token(token).to_owned()).collect()
    }

    /// The text of the ids. Special tokens are skipped, [`UNK`] included; bytes that are not UTF-8 (a model may generate them) become
    /// U+FFFD. Models of the [pretrained](Self::pretrained) may have more vectors than their tokeniser has tokens: those are skipped too.
    ///
    /// # Panics
    /// If an id is outside the vocabulary of a tokeniser that was trained here.
    pub fn decode(&self, ids: &[u32]) -> String {
        let outside = ids.iter().find(|&&id| id as usize >= self.tokens.len());
        if let (Some(id), None) = (outside, &self.foreign) {
            panic!("token id {id} is outside the vocabulary of {} tokens", self.tokens.len());
        }
        // A decoder of the file can fail on tokens that it was not made for.
        self.tokenizer.decode(ids, true).unwrap_or_else(|_| self.words(ids).join(" "))
    }

    /// The number of different ids, special tokens included: ids are `0..vocabulary_size()`.
    pub fn vocabulary_size(&self) -> usize {
        self.tokens.len()
    }

    /// The token with the given id as the vocabulary spells it: bytes as GPT-2 writes them (`Ġ` for a space), continuations of WordPiece
    /// with `##`. It is empty where a [pretrained](Self::pretrained) tokeniser has no token with this id, as for vectors that fill a model's table.
    ///
    /// # Panics
    /// If the id is outside the vocabulary of a tokeniser that was trained here.
    pub fn token(&self, id: u32) -> &str {
        match self.tokens.get(id as usize) {
            None if self.foreign.is_some() => "",
            _ => &self.tokens[id as usize],
        }
    }

    /// The id of the token that the vocabulary spells so, if it has one.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// Writes the tokeniser as a Hugging Face `tokenizer.json`. The file appears under its name only when it is complete.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), TokeniserError> {
        let json = self.tokenizer.to_string(true).expect("a tokeniser is always representable as JSON");
        let written = write_atomically(path, json.as_bytes());
        written.map_err(|error| TokeniserError::Write { path: path.to_owned(), source: error.into_source() })
    }

    /// Reads a tokeniser that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// The file cannot be read, is not a `tokenizer.json`, or has other special tokens than [`SPECIAL_TOKENS`].
    pub fn load(path: &Path) -> Result<Self, TokeniserError> {
        let bytes = contents(path)?;
        let format = |reason| TokeniserError::Format { path: path.to_owned(), reason };
        let tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| format(error.to_string()))?;
        Self::from_tokenizer(tokenizer).map_err(format)
    }

    /// Reads the `tokenizer.json` of a pretrained model, with special tokens of its own, which a text can spell.
    ///
    /// # Errors
    /// The file cannot be read, or is not a `tokenizer.json`.
    pub fn pretrained(path: &Path) -> Result<Self, TokeniserError> {
        let bytes = contents(path)?;
        let foreign = |reason: String| TokeniserError::Foreign { path: path.to_owned(), reason };
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| foreign(error.to_string()))?;
        // They are for batches of one program.
        tokenizer.with_padding(None).with_truncation(None).map_err(|error| foreign(error.to_string()))?;
        let vocabulary = tokenizer.get_vocab(true);
        let Some((last, &id)) = vocabulary.iter().max_by_key(|(_, id)| **id) else {
            return Err(foreign("it has no tokens".to_owned()));
        };
        let size = id as usize + 1;
        if size > LARGEST_VOCABULARY {
            return Err(foreign(format!("its token {last:?} has the id {id}, and ids end at {}", LARGEST_VOCABULARY - 1)));
        }
        let mut tokens = vec![String::new(); size];
        for (token, id) in vocabulary {
            tokens[id as usize] = token;
        }
        Ok(Self { tokenizer, tokens, foreign: Some(path.to_owned()) })
    }

    /// Checks what the methods rely on and sets what the file format does not store.
    fn from_tokenizer(mut tokenizer: Tokenizer) -> Result<Self, String> {
        let size = tokenizer.get_vocab_size(true);
        let tokens = (0..size as u32)
            .map(|id| tokenizer.id_to_token(id).ok_or_else(|| format!("its vocabulary of {size} tokens has none with the id {id}")))
            .collect::<Result<Vec<_>, _>>()?;
        for (id, special) in SPECIAL_TOKENS.into_iter().enumerate() {
            if tokens.get(id).is_none_or(|token| token != special) || !tokenizer.get_added_vocabulary().is_special_token(special) {
                return Err(format!("the token with the id {id} is not the special token {special}"));
            }
        }
        if tokenizer.get_truncation().is_some() || tokenizer.get_padding().is_some() {
            return Err("it truncates or pads texts".to_owned());
        }
        // The name misleads: `true` makes the crate treat the spelling of a special token in a text as ordinary text.
        tokenizer.set_encode_special_tokens(true);
        Ok(Self { tokenizer, tokens, foreign: None })
    }

    /// The special tokens as the crate wants them.
    fn special_tokens() -> impl Iterator<Item = AddedToken> {
        SPECIAL_TOKENS.into_iter().map(|token| AddedToken::from(token, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Two young men are talking to each other outside .\n\
    The young woman talks to the men , who are young .\n\
        An old man 's dog is running after the other dogs !\n\
        Die Männer reden draußen über ihre Hunde (1.234 €) – naïve déjà-vu.\n\
        the dog <unk> the other dog </s> <pad> the men <s>\n\
        aaaaaaa aaaa aaa aaaaa banana bananas ana anana\n";

    #[test]
    fn a_byte_order_mark_before_a_file_does_not_matter() {
        let (folder, tokeniser) = (tempfile::tempdir().unwrap(), trained(&bpe(300)));
        let path = folder.path().join("tokenizer.json");
        tokeniser.save(&path).unwrap();
        fs::write(&path, format!("\u{feff}{}", fs::read_to_string(&path).unwrap())).unwrap();
        for read in [Tokeniser::load(&path).unwrap(), Tokeniser::pretrained(&path).unwrap()] {
            assert_eq!(read.encode("the young men"), tokeniser.encode("the young men"));
        }
    }

    fn lines() -> impl Iterator<Item = &'static str> {
        TEXT.lines()
    }

    fn trained(config: &TokeniserConfig) -> Tokeniser {
        Tokeniser::train(config, lines()).unwrap()
    }

    fn bpe(vocabulary: usize) -> TokeniserConfig {
        TokeniserConfig::Bpe { vocabulary, min_frequency: 2, lowercase: false }
    }

    fn every_kind() -> [TokeniserConfig; 4] {
        [
            bpe(300),
            TokeniserConfig::WordPiece { vocabulary: 110, lowercase: true },
            TokeniserConfig::Word { vocabulary: None, min_frequency: 1 },
            TokeniserConfig::Character {},
        ]
    }

    /// A text of pseudo-words with the skewed frequencies of language and many ties, on which an order that is left open shows.
    fn pseudo_text() -> Vec<String> {
        let mut state = 12345u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let word = |mut n: u64| {
            let mut word = String::new();
            for _ in 0..2 + n % 4 {
                word.push_str(["ba", "ke", "ti", "no", "su", "ra", "mö", "aa", "pe", "lu"][(n % 10) as usize]);
                n = n / 10 + 7 * (n % 10);
            }
            word
        };
        (0..2000)
            .map(|_| {
                (0..12)
                    .map(|_| {
                        let limit = 1 + below(1500);
                        word(below(limit))
                    })
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    #[test]
    fn byte_pairs_restore_the_text_exactly() {
        let tokeniser = trained(&bpe(300));
        for text in lines().chain([
            "",
            " ",
            " leading and trailing ",
            "two  spaces\tand\ttabs\r\n\n",
            "日本語 🙂 unseen",
            "don't won't it's",
            "<pad> </s>",
            "a\u{301}\u{0}",
        ]) {
            assert_eq!(tokeniser.decode(&tokeniser.encode(text)), text);
        }
    }

    #[test]
    fn byte_pairs_learn_the_frequent_words() {
        let tokeniser = trained(&bpe(300));
        assert_eq!(tokeniser.vocabulary_size(), 300);
        assert_eq!(tokeniser.encode("a young").len(), 2);
        assert_eq!(tokeniser.token(tokeniser.encode("a young")[1]), "Ġyoung");
    }

    #[test]
    fn lower_casing_loses_the_case_only() {
        let tokeniser = trained(&TokeniserConfig::Bpe { vocabulary: 290, min_frequency: 1, lowercase: true });
        assert_eq!(tokeniser.decode(&tokeniser.encode("Die Männer, ÜBER alles!")), "die männer, über alles!");
    }

    #[test]
    fn characters_restore_the_text_they_know() {
        let tokeniser = trained(&TokeniserConfig::Character {});
        for text in lines() {
            assert_eq!(tokeniser.encode(text).len(), text.chars().count());
            assert_eq!(tokeniser.decode(&tokeniser.encode(text)), text);
        }
        assert_eq!(tokeniser.encode("日a"), vec![UNK, tokeniser.encode("a")[0]]);
    }

    #[test]
    fn words_restore_single_spaced_text() {
        let tokeniser = trained(&TokeniserConfig::Word { vocabulary: None, min_frequency: 1 });
        let text = "Two young men are talking to each other outside .";
        assert_eq!(tokeniser.decode(&tokeniser.encode(text)), text);
        assert_eq!(tokeniser.encode("  young \t men  "), tokeniser.encode("young men"));
    }

    #[test]
    fn words_are_numbered_by_frequency() {
        let tokeniser =
            Tokeniser::train(&TokeniserConfig::Word { vocabulary: Some(9), min_frequency: 1 }, ["b a c c", "c b a"].into_iter()).unwrap();
        assert_eq!([7, 8].map(|id| tokeniser.token(id)), ["c", "a"]);
        assert_eq!(tokeniser.encode("a b c"), vec![8, UNK, 7]);
        let frequent =
            Tokeniser::train(&TokeniserConfig::Word { vocabulary: None, min_frequency: 3 }, ["b a c c", "c b a"].into_iter()).unwrap();
        assert_eq!(frequent.vocabulary_size(), 8);
    }

    #[test]
    fn kinds_that_say_so_are_ordered_by_frequency() {
        for config in every_kind() {
            let tokeniser = trained(&config);
            let mut counts = vec![0; tokeniser.vocabulary_size()];
            lines().flat_map(|line| tokeniser.encode(line)).for_each(|id| counts[id as usize] += 1);
            let is_ordered = counts[SPECIAL_TOKENS.len()..].is_sorted_by(|a, b| a >= b);
            assert_eq!(is_ordered, config.is_ordered_by_frequency(), "{config:?}: {counts:?}");
        }
    }

    #[test]
    fn word_pieces_cut_words_and_separate_punctuation() {
        let tokeniser = trained(&TokeniserConfig::WordPiece { vocabulary: 110, lowercase: true });
        assert_eq!(tokeniser.vocabulary_size(), 110);
        assert_eq!(tokeniser.decode(&tokeniser.encode("The young DOGS, who talk!")), "the young dogs , who talk !");
        assert_eq!(tokeniser.decode(&tokeniser.encode("Männer")), "männer");
        assert_eq!(tokeniser.encode("日"), vec![UNK]);
    }

    #[test]
    fn special_tokens_have_the_same_ids_in_every_vocabulary() {
        for config in every_kind() {
            let tokeniser = trained(&config);
            for (id, token) in SPECIAL_TOKENS.into_iter().enumerate() {
                assert_eq!(tokeniser.token(id as u32), token, "{config:?}");
            }
            let mut seen: Vec<_> = (0..tokeniser.vocabulary_size() as u32).map(|id| tokeniser.token(id)).collect();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), tokeniser.vocabulary_size(), "{config:?}: a token has two ids");
        }
        assert_eq!([PAD, UNK, BEGIN, END, CLASSIFY, SEPARATE, MASK], [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn text_never_yields_a_control_token() {
        for config in every_kind() {
            let tokeniser = trained(&config);
            for text in ["<pad>", "</s>", "a <s> b</s>", "<cls><sep>", " <mask> ", "<PAD> </S>", "<unk>"] {
                let ids = tokeniser.encode(text);
                assert!(!ids.is_empty());
                assert!(ids.iter().all(|&id| id == UNK || id > MASK), "{config:?}: {text} gives {ids:?}");
            }
        }
    }

    #[test]
    fn the_unknown_word_of_a_corpus_is_the_unknown_token() {
        let tokeniser = trained(&TokeniserConfig::Word { vocabulary: None, min_frequency: 1 });
        let the = tokeniser.encode("the")[0];
        assert_eq!(tokeniser.encode("the <unk> the never-seen"), vec![the, UNK, the, UNK]);
        let pieces = trained(&bpe(300));
        assert!(!pieces.encode("<unk>").contains(&UNK));
        assert_eq!(pieces.decode(&pieces.encode("the <unk> dog")), "the <unk> dog");
    }

    #[test]
    fn decoding_skips_special_tokens() {
        for config in every_kind() {
            let tokeniser = trained(&config);
            let ids = tokeniser.encode("the dog");
            let mut framed = vec![CLASSIFY, BEGIN];
            framed.extend(&ids);
            framed.extend([UNK, MASK, SEPARATE, END, PAD, PAD]);
            assert_eq!(tokeniser.decode(&framed), "the dog", "{config:?}");
        }
    }

    #[test]
    #[should_panic(expected = "outside the vocabulary")]
    fn decoding_an_id_outside_the_vocabulary_panics() {
        trained(&TokeniserConfig::Character {}).decode(&[100_000]);
    }

    #[test]
    fn training_twice_gives_the_same_file() {
        let text = pseudo_text();
        for config in [
            bpe(500),
            TokeniserConfig::WordPiece { vocabulary: 300, lowercase: false },
            TokeniserConfig::Word { vocabulary: Some(300), min_frequency: 2 },
            TokeniserConfig::Character {},
        ] {
            let file = || Tokeniser::train(&config, text.iter().map(String::as_str)).unwrap().tokenizer.to_string(true).unwrap();
            let first = file();
            for _ in 0..5 {
                assert!(file() == first, "{config:?} depends on more than the text");
            }
        }
    }

    #[test]
    fn training_does_not_depend_on_the_order_of_the_lines() {
        let text = pseudo_text();
        let forwards = Tokeniser::train(&bpe(500), text.iter().map(String::as_str)).unwrap();
        let backwards = Tokeniser::train(&bpe(500), text.iter().rev().map(String::as_str)).unwrap();
        assert_eq!(forwards.tokens, backwards.tokens);
    }

    #[test]
    fn a_saved_tokeniser_loads_as_the_same() {
        let folder = tempfile::tempdir().unwrap();
        for config in every_kind() {
            let path = folder.path().join("tokenizer.json");
            let tokeniser = trained(&config);
            tokeniser.save(&path).unwrap();
            let loaded = Tokeniser::load(&path).unwrap();
            assert_eq!(loaded.tokens, tokeniser.tokens);
            for text in lines().chain(["unseen Wörter </s> <pad> <unk>", ""]) {
                assert_eq!(loaded.encode(text), tokeniser.encode(text), "{config:?}");
                assert_eq!(loaded.decode(&loaded.encode(text)), tokeniser.decode(&tokeniser.encode(text)), "{config:?}");
            }
            let again = folder.path().join("again.json");
            loaded.save(&again).unwrap();
            assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "a temporary file is left");
    }

    #[test]
    fn a_missing_folder_or_file_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent").join("tokenizer.json");
        let error = trained(&TokeniserConfig::Character {}).save(&path).unwrap_err();
        assert!(matches!(error, TokeniserError::Write { .. }) && error.to_string().contains("absent"), "{error}");
        let error = Tokeniser::load(&path).unwrap_err();
        assert!(matches!(error, TokeniserError::Read { .. }) && error.to_string().contains("absent"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_tokeniser_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        trained(&TokeniserConfig::Character {}).save(&path).unwrap();
        let json = fs::read_to_string(&path).unwrap();
        let reason_of = |content: &str| {
            fs::write(&path, content).unwrap();
            let error = Tokeniser::load(&path).unwrap_err();
            assert!(matches!(error, TokeniserError::Format { .. }) && error.to_string().contains("tokenizer.json"), "{error}");
            error.to_string()
        };
        reason_of("{");
        reason_of(&json[..json.len() / 2]);
        assert!(reason_of(&json.replace("<cls>", "[CLS]")).contains("<cls>"));
        assert!(reason_of(&json.replacen("\"special\": true", "\"special\": false", 1)).contains("<pad>"));
    }

    /// The tokeniser of a pretrained model, of white space and this model.
    fn foreign(model: &str) -> Result<Tokeniser, TokeniserError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        let whole = format!(r#"{{"version": "1.0", "added_tokens": [], "pre_tokenizer": {{"type": "Whitespace"}}, "model": {model}}}"#);
        fs::write(&path, whole).unwrap();
        Tokeniser::pretrained(&path)
    }

    #[test]
    fn what_a_pretrained_tokeniser_lacks_is_an_error_that_names_the_word() {
        for (model, missing) in [
            (r#"{"type": "WordLevel", "vocab": {"the": 0}, "unk_token": "<unk>"}"#, "dog"),
            (
                r###"{"type": "WordPiece", "vocab": {"the": 0, "##s": 1}, "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9}"###,
                "dog",
            ),
            (
                r###"{"type": "WordPiece", "vocab": {"the": 0}, "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9}"###,
                "thethethethe",
            ),
            (r#"{"type": "BPE", "vocab": {"t": 0, "h": 1, "e": 2}, "merges": [], "unk_token": "<unk>"}"#, "dog"),
            (
                r#"{"type": "Unigram", "vocab": [["the", -1.0], ["t", -3.0], ["h", -3.0], ["e", -3.0]], "unk_id": null, "byte_fallback": false}"#,
                "dog",
            ),
        ] {
            let tokeniser = foreign(model).unwrap();
            assert!(!tokeniser.try_encode("the the").unwrap().is_empty(), "{model}");
            let error = tokeniser.try_encode(&format!("the {missing} the")).unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, TokeniserError::Unknown { .. }), "{message}");
            let parts = ["tokenizer.json", &format!("no token for {missing:?}"), "add one of them"];
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }

    #[test]
    fn ids_that_a_pretrained_tokeniser_lacks_have_no_text() {
        let tokeniser = foreign(r#"{"type": "WordLevel", "vocab": {"the": 0, "dog": 3}, "unk_token": "<unk>"}"#).unwrap();
        assert_eq!((tokeniser.vocabulary_size(), tokeniser.decode(&[0, 2, 900, 3])), (4, "the dog".to_owned()));
        assert_eq!(tokeniser.words(&[0, 2, 900, 3]), ["the", "", "", "dog"]);
        let far = foreign(r#"{"type": "WordLevel", "vocab": {"the": 0, "dog": 4294967295}, "unk_token": "<unk>"}"#).unwrap_err();
        assert!(far.to_string().contains("\"dog\" has the id 4294967295"), "{far}");
    }

    #[test]
    fn a_vocabulary_that_is_too_small_names_the_least_that_works() {
        for config in [
            bpe(100),
            TokeniserConfig::WordPiece { vocabulary: 20, lowercase: true },
            TokeniserConfig::Word { vocabulary: Some(7), min_frequency: 1 },
        ] {
            let error = Tokeniser::train(&config, lines()).unwrap_err();
            let TokeniserError::VocabularyTooSmall { needed, .. } = error else { panic!("{error}") };
            assert!(error.to_string().contains(&needed.to_string()));
            let with = |size: usize| match config.clone() {
                TokeniserConfig::Bpe { min_frequency, lowercase, .. } => {
                    TokeniserConfig::Bpe { vocabulary: size, min_frequency, lowercase }
                }
                TokeniserConfig::WordPiece { lowercase, .. } => TokeniserConfig::WordPiece { vocabulary: size, lowercase },
                TokeniserConfig::Word { min_frequency, .. } => TokeniserConfig::Word { vocabulary: Some(size), min_frequency },
                TokeniserConfig::Character {} | TokeniserConfig::Pretrained {} => unreachable!(),
            };
            assert_eq!(trained(&with(needed)).vocabulary_size(), needed);
            assert!(matches!(Tokeniser::train(&with(needed - 1), lines()), Err(TokeniserError::VocabularyTooSmall { .. })));
        }
    }

    #[test]
    fn a_vocabulary_that_is_too_large_names_the_most_that_works() {
        let error = Tokeniser::train(&bpe(5000), lines()).unwrap_err();
        let TokeniserError::VocabularyTooLarge { reached, .. } = error else { panic!("{error}") };
        assert!(error.to_string().contains(&format!("set it to {reached} or less")));
        assert_eq!(trained(&bpe(reached)).vocabulary_size(), reached);
        for config in [
            TokeniserConfig::WordPiece { vocabulary: 5000, lowercase: true },
            TokeniserConfig::Word { vocabulary: Some(5000), min_frequency: 1 },
        ] {
            assert!(matches!(Tokeniser::train(&config, lines()), Err(TokeniserError::VocabularyTooLarge { .. })), "{config:?}");
        }
    }

    #[test]
    fn an_empty_text_is_an_error() {
        for config in every_kind() {
            assert!(matches!(Tokeniser::train(&config, ["", "  "].into_iter()), Err(TokeniserError::EmptyText { .. })), "{config:?}");
        }
    }

    #[test]
    fn configurations_are_read_by_kind_and_reject_unknown_fields() {
        let read = serde_json::from_str::<TokeniserConfig>;
        assert_eq!(read(r#"{"kind":"bpe","vocabulary":8000,"min-frequency":2}"#).unwrap(), bpe(8000));
        assert_eq!(read(r#"{"kind":"bpe","vocabulary":8000}"#).unwrap(), bpe(8000));
        assert_eq!(
            read(r#"{"kind":"word-piece","vocabulary":500,"lowercase":true}"#).unwrap(),
            TokeniserConfig::WordPiece { vocabulary: 500, lowercase: true }
        );
        assert_eq!(read(r#"{"kind":"word"}"#).unwrap(), TokeniserConfig::Word { vocabulary: None, min_frequency: 1 });
        assert_eq!(read(r#"{"kind":"character"}"#).unwrap(), TokeniserConfig::Character {});
        for wrong in
            [r#"{"kind":"bpe"}"#, r#"{"kind":"character","vocabulary":3}"#, r#"{"kind":"word","lowercase":true}"#, r#"{"kind":"Word"}"#]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        for config in every_kind() {
            let json = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<TokeniserConfig>(&json).unwrap(), config);
        }
    }
}
