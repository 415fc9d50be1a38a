//! Going on from a pretrained model of Hugging Face: what experiments with `--pretrained` share.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use burn::module::Module;
use heedful_data::text::TextCorpus;
use heedful_data::tokenise::{END, Tokeniser, TokeniserConfig};
use heedful_host::checksum::{sha256_hex, sha256_of_file};
use heedful_models::block::layout::{AttentionLayout, LayerAttention};
use heedful_models::parts::position::PositionConfig;
use heedful_models::pretrained::{Architecture, Pretrained};
use heedful_runs::settings::{self, MECHANISMS};

use crate::session::experiment::paper_model::add_options;
use crate::tasks::prelude::*;

/// Fields of the table `model` that decide which parameters a model has, or how its heads divide them.
const SIZES: [&str; 15] = [
    "layers",
    "decoder_layers",
    "d_model",
    "heads",
    "kv_heads",
    "head_width",
    "qkv_bias",
    "attention_output_bias",
    "feed_forward_in",
    "d_ff",
    "gated_feed_forward",
    "feed_forward_bias",
    "positions",
    "embedding_norm",
    "depth",
];
const CONFIG: &str = "config.json";
const TOKENISER: &str = "tokenizer.json";

/// A training that changes what was learnt but little, at the least rates that papers fine-tune at.
pub(crate) fn training(steps: u64, evaluate_every: u64, learning_rate: f64) -> String {
    let warmup = steps / 10;
    format!(
        "steps = {steps}
        learning_rate = {learning_rate:e}
        schedule = {{ kind = \"linear\", warmup = {warmup}, end = 0.0 }}
        evaluate_every = {evaluate_every}
        checkpoint_every = {evaluate_every}"
    )
}

/// The error for a folder that cannot be used.
pub(crate) fn refused(error: impl Display) -> ExperimentError {
    ExperimentError::usage(format!("--pretrained: {error}"))
}

/// The folder, with the headers of its files read.
pub(crate) fn opened(folder: &Path) -> Result<Pretrained, ExperimentError> {
    Pretrained::open(folder).map_err(refused)
}

/// The model with the weights of a folder, if there is one.
pub(crate) fn read_into<M: Module>(folder: Option<&Path>, model: M) -> Result<M, ExperimentError> {
    match folder {
        Some(folder) => opened(folder)?.read_into(model).map_err(refused),
        None => Ok(model),
    }
}

/// What a folder says of the configuration of any experiment: its tokeniser, the fields of the table `model`, the options of its attention, and what is
/// compared, `attention`. `training`, in TOML, is a training that changes what was learnt but little; `further` are fields of the experiment.
pub(crate) fn configuration<'a>(
    (attention, of_layers): (String, &LayerAttention),
    model: &ModelSettings,
    training: &str,
    further: impl IntoIterator<Item = (&'a str, Value)>,
) -> Result<Table, ExperimentError> {
    let mut mechanisms = Table::new();
    of_layers.mechanisms().iter().try_for_each(|mechanism| add_options(mechanism, &mut mechanisms))?;
    let table = |name: &str, value: Value| Value::Table(Table::from_iter([(name.to_owned(), value)]));
    let fields = [
        ("tokeniser", table("kind", Value::String(TokeniserConfig::Pretrained {}.kind().to_owned()))),
        ("run", table("attention", Value::Array(vec![Value::String(attention)]))),
        ("model", Value::Table(settings::complete(model)?)),
        (MECHANISMS, Value::Table(mechanisms)),
        ("training", Value::Table(training.parse().expect("this is TOML"))),
    ];
    Ok(fields.into_iter().chain(further).map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Checks that the tokeniser is that of the pretrained model where there is one, and another one where there is none.
pub(crate) fn check_tokeniser<E: Experiment>(
    settings: &Settings<Config<E>>,
    tokeniser: &TokeniserConfig,
    is_pretrained: bool,
) -> Result<(), ExperimentError> {
    let remedy = if is_pretrained {
        "a pretrained model reads only its own tokens; leave it out"
    } else {
        "this kind needs a pretrained model; give --pretrained DIR, or another kind"
    };
    Ok(settings.require("tokeniser.kind", is_pretrained == (*tokeniser == TokeniserConfig::Pretrained {}), remedy)?)
}

/// Checks that the table `model` describes the parameters of the model in a folder.
pub(crate) fn check_model<E: Experiment>(
    settings: &Settings<Config<E>>,
    folder: &Path,
    of_folder: &ModelSettings,
) -> Result<(), ExperimentError> {
    let (there, here) = (settings::complete(of_folder)?, settings::complete(&settings.value.model)?);
    // The table of learned positions has as many as it has.
    let length = (of_folder.positions == PositionConfig::Learned).then_some("max_length");
    for field in SIZES.into_iter().chain(length) {
        if let Some(value) = there.get(field).filter(|value| here.get(field) != Some(value)) {
            let problem = format!("the weights of `{}` are for {value}; leave it out", folder.display());
            return Err(settings.refuse(&format!("model.{field}"), problem).into());
        }
    }
    Ok(())
}

/// Refuses attentions that the weights of a folder, which are for `own`, cannot have.
pub(crate) fn check_attentions<E: Experiment>(
    settings: &Settings<Config<E>>,
    folder: &Path,
    own: &str,
    attentions: &[Attention],
    is_own: impl Fn(&AttentionLayout) -> bool,
) -> Result<(), ExperimentError> {
    let remedy = format!("the weights of `{}` are for {own}; leave --attention out", folder.display());
    Ok(settings.require("run.attention", attentions.iter().all(|attention| is_own(&attention.layout)), remedy)?)
}

/// The tokens of training, validation and test text. For a pretrained model, whose tokeniser may have tokens for them, ends of lines are characters of the text.
pub(crate) fn tokens_of_texts(corpus: &TextCorpus, tokeniser: &Tokeniser, is_pretrained: bool) -> Result<[Vec<u32>; 3], ExperimentError> {
    if !is_pretrained {
        return Ok(corpus.tokens(END, |line| tokeniser.encode(line)));
    }
    let [train, valid, test] = corpus.texts().map(|text| tokeniser.try_encode(&text).map_err(refused));
    Ok([train?, valid?, test?])
}

/// Adds to the scores of a run that began with the weights of a folder what these score, `metric` under the name `before`. `false` if the interrupt was raised
/// meanwhile.
pub(crate) fn score_before<E: Experiment>(
    setup: Setup<'_, E>,
    task: &E::Task<'_>,
    (checksums, metric, before): (&Checksums, &str, &str),
    (scores, device): (&mut Scores, &Device),
    interrupt: &Interrupt,
) -> Result<bool, ExperimentError> {
    scores.notes.push(checksums.to_string());
    let model = E::model(setup, &RandomKey::from_seed(0), device)?;
    let Some(found) = task.evaluate(&model, Split::Test, interrupt) else { return Ok(false) };
    let value = found.metrics.iter().find(|(name, _)| name == metric).map_or(f64::NAN, |(_, value)| *value);
    scores.push(before, value, found.signatures.get(metric).cloned().unwrap_or_default());
    Ok(true)
}

/// The tokeniser of a folder whose model has vectors for `vocabulary` tokens.
pub(crate) fn tokeniser(folder: &Path, vocabulary: usize) -> Result<Tokeniser, ExperimentError> {
    let path = folder.join(TOKENISER);
    if !path.is_file() {
        let problem = format!("`{}` is missing; write it with save_pretrained of a fast tokeniser", path.display());
        return Err(refused(problem));
    }
    let tokeniser = Tokeniser::pretrained(&path).map_err(refused)?;
    if tokeniser.vocabulary_size() > vocabulary {
        let problem = format!("`{}` has {} tokens, and the model {vocabulary}", path.display(), tokeniser.vocabulary_size());
        return Err(refused(problem + "; take both from the same folder"));
    }
    Ok(tokeniser)
}

/// How the tokens of class, separator and mask of an encoder are written.
pub(crate) fn special_tokens(folder: &Pretrained) -> [&'static str; 3] {
    if folder.architecture() == Architecture::Roberta { ["<s>", "</s>", "<mask>"] } else { ["[CLS]", "[SEP]", "[MASK]"] }
}

/// The id of a token that the tokeniser of a folder must have.
pub(crate) fn special_token(folder: &Path, tokeniser: &Tokeniser, token: &str) -> Result<u32, ExperimentError> {
    tokeniser.id(token).ok_or_else(|| {
        let path = folder.join(TOKENISER);
        refused(format!("`{}` has no token {token}; take the tokeniser of the encoder", path.display()))
    })
}

/// The SHA-256 of the files of a folder that a model is read from.
#[derive(Clone, Debug)]
pub(crate) struct Checksums {
    folder: PathBuf,
    /// By the names of the files: configuration and tokeniser, or preprocessor, and then the weights.
    files: Vec<(String, String)>,
}

impl Checksums {
    /// Those of a folder with a tokeniser.
    pub(crate) fn of(folder: &Path) -> Result<Self, ExperimentError> {
        Self::with_file(folder, TOKENISER)
    }

    /// Those of a folder where this file says what the model is given of an input.
    pub(crate) fn with_file(folder: &Path, file: &str) -> Result<Self, ExperimentError> {
        let opened = opened(folder)?;
        let others = [CONFIG, file].map(|name| folder.join(name));
        let paths = others.iter().map(|path| path.as_path()).chain(opened.weight_files());
        let checksum = |path: &Path| {
            let sha256 = sha256_of_file(path).map_err(|error| refused(format!("cannot read `{}`: {error}", path.display())))?;
            Ok((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), sha256))
        };
        let files = paths.map(checksum).collect::<Result<_, ExperimentError>>()?;
        Ok(Self { folder: folder.to_owned(), files })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The checksum of data and model together: another model to begin with is another task.
    pub(crate) fn with_data(&self, sha256: &str) -> String {
        let files: Vec<&str> = self.files.iter().map(|(_, sha256)| sha256.as_str()).collect();
        sha256_hex(format!("{sha256} {}", files.join(" ")).as_bytes())
    }
}

impl Display for Checksums {
    /// In a sentence for a record: the folder, and the checksum of each file of weights.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weights: Vec<String> = self.files[2..].iter().map(|(name, sha256)| format!("{name} has the SHA-256 {sha256}")).collect();
        write!(f, "began with the weights of `{}`: {}", self.folder.display(), weights.join(", "))
    }
}
