//! Options of the comparisons. Defaults are the sizes that the results page is made with.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, FromArgMatches};

use crate::training_step::ModelSizes;

/// How everything is measured.
#[derive(Args, Clone, Debug)]
pub struct MeasuringOptions {
    /// Threads of each side
    #[arg(long, global = true, value_name = "N", default_value_t = 2, value_parser = positive())]
    pub threads: usize,

    /// Rounds of a case: each runs every candidate once, in turn
    #[arg(long, global = true, value_name = "N", default_value_t = 11, value_parser = positive())]
    pub rounds: usize,

    /// Seconds after which a case starts no further round, once it has had three
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 60)]
    pub budget: u64,

    /// Skip layers that would take more GiB of memory than this [default: what is available]
    #[arg(long, global = true, value_name = "GIB", value_parser = gibibytes)]
    pub memory: Option<f64>,

    /// Do not measure peak memory
    #[arg(long, global = true)]
    pub without_memory: bool,

    /// Python interpreter with the packages of benches/peers/requirements.txt
    #[arg(long, global = true, value_name = "FILE", default_value = "python3")]
    pub python: PathBuf,

    /// What Python runs
    #[arg(long, global = true, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/peers"), hide = true)]
    pub peers: PathBuf,

    /// Measure only heedful
    #[arg(long, global = true)]
    pub without_python: bool,

    /// Folder for the results: a JSON file for each comparison, and a README.md of all files in the folder
    #[arg(long, global = true, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Sizes of an attention layer.
#[derive(Args, Clone, Copy, Debug)]
pub struct LayerOptions {
    /// Width of the layer
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive())]
    pub d_model: usize,

    /// Heads, a divisor of the width
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = positive())]
    pub heads: usize,
}

/// Sizes of a language model.
#[derive(Args, Clone, Copy, Debug)]
pub struct ModelOptions {
    /// Sizes of its attention layers.
    #[command(flatten)]
    pub layer: LayerOptions,

    /// Layers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = positive())]
    pub layers: usize,

    /// Hidden units of the feed-forward networks
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = positive())]
    pub d_ff: usize,

    /// Number of tokens
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive())]
    pub vocabulary: usize,
}

impl ModelOptions {
    /// The sizes.
    pub fn sizes(&self) -> ModelSizes {
        let Self { layer: LayerOptions { d_model, heads }, layers, d_ff, vocabulary } = *self;
        ModelSizes { vocabulary, layers, d_model, heads, d_ff }
    }
}

/// Dense causal attention beside PyTorch's.
#[derive(Args, Clone, Debug)]
pub struct AttentionOptions {
    /// Lengths of the sequences
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(),
        default_values_t = [128, 256, 512, 1024, 2048, 4096, 8192, 16384])]
    pub lengths: Vec<usize>,

    /// Tokens of a batch, up to the length at which it is one sequence
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = positive())]
    pub tokens: usize,

    /// Skip mechanisms whose matrices of all pairs need more than this many GiB
    #[arg(long, value_name = "GIB", default_value_t = 4.0)]
    pub matrices: f64,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// A whole step of training a language model beside PyTorch's.
#[derive(Args, Clone, Debug)]
pub struct StepOptions {
    /// Rows of the batch
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive())]
    pub batch: usize,

    /// Tokens of a row
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = positive())]
    pub length: usize,

    /// Sizes of the model.
    #[command(flatten)]
    pub model: ModelOptions,
}

/// Sub-quadratic mechanisms beside dense attention and beside the packages that have them.
#[derive(Args, Clone, Debug)]
pub struct MechanismsOptions {
    /// Lengths of the sequences, multiples of 128
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [1024, 2048, 4096, 8192, 16384])]
    pub lengths: Vec<usize>,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// Mechanisms without queries and keys beside dot-product attention, in inference.
#[derive(Args, Clone, Debug)]
pub struct InferenceOptions {
    /// Lengths of the sequences
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [256, 512, 1024, 2048])]
    pub lengths: Vec<usize>,

    /// Tokens of a batch, up to the length at which it is one sequence
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = positive())]
    pub tokens: usize,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// Peak memory of mechanisms.
#[derive(Args, Clone, Debug)]
pub struct MemoryOptions {
    /// Attention mechanisms [default: all that can be causal]
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    pub attention: Vec<String>,

    /// Lengths of the sequences
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [512, 1024, 2048, 4096])]
    pub lengths: Vec<usize>,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// Models of growing depth with activations kept, computed again, or reversible.
#[derive(Args, Clone, Debug)]
pub struct DepthOptions {
    /// Numbers of layers
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [2, 8, 32])]
    pub layers: Vec<usize>,

    /// Tokens of the one row
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = positive())]
    pub length: usize,

    /// Width of the model
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = positive())]
    pub d_model: usize,
}

/// Mechanisms beside what packages on PyTorch have of them.
#[derive(Args, Clone, Debug)]
pub struct PackagesOptions {
    /// Lengths of the sequences, multiples of 128
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [512, 1024, 2048, 4096])]
    pub lengths: Vec<usize>,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// Recurrences beside what packages have of them in plain PyTorch.
#[derive(Args, Clone, Debug)]
pub struct RecurrencesOptions {
    /// Lengths of the sequences, multiples of 64
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [1024, 2048, 4096, 8192])]
    pub lengths: Vec<usize>,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// Convolutions beside the same layers in operations of PyTorch.
#[derive(Args, Clone, Debug)]
pub struct ConvolutionsOptions {
    /// Lengths of the sequences
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [128, 256, 512, 1024, 2048])]
    pub lengths: Vec<usize>,

    /// Tokens of a batch, up to the length at which it is one sequence
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = positive())]
    pub tokens: usize,

    /// Taps of a kernel
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = positive())]
    pub kernel: usize,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// Relative positions, spans and patterns beside dot-product attention.
#[derive(Args, Clone, Debug)]
pub struct PositionsOptions {
    /// Lengths of the sequences
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [512, 1024, 2048, 4096])]
    pub lengths: Vec<usize>,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// Dropout of attention's weights beside PyTorch's.
#[derive(Args, Clone, Debug)]
pub struct DropoutOptions {
    /// Lengths of the sequences
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [2048, 4096, 8192])]
    pub lengths: Vec<usize>,

    /// Probability with which weights are dropped
    #[arg(long, value_name = "P", default_value_t = 0.1, value_parser = dropout)]
    pub dropout: f64,

    /// Skip PyTorch where its matrices of all pairs need more than this many GiB
    #[arg(long, value_name = "GIB", default_value_t = 8.0)]
    pub matrices: f64,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// Random synthesizers beside plain code on PyTorch.
#[derive(Args, Clone, Debug)]
pub struct TablesOptions {
    /// Lengths of the sequences
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [128, 256, 512, 1024, 2048, 4096])]
    pub lengths: Vec<usize>,

    /// Tokens of a batch, up to the length at which it is one sequence
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = positive())]
    pub tokens: usize,

    /// Sizes of the layer.
    #[command(flatten)]
    pub layer: LayerOptions,
}

/// Step-by-step decoding beside recomputing the prefix, and beside PyTorch with a cache.
#[derive(Args, Clone, Debug)]
pub struct DecodeOptions {
    /// Attention mechanisms [default: all that can be causal]
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    pub attention: Vec<String>,

    /// Rows that are decoded at once
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = positive(), default_values_t = [1, 4, 16, 64])]
    pub batch: Vec<usize>,

    /// Tokens to decode for each row
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = positive())]
    pub tokens: usize,

    /// Lengths of the prefix at which recomputing is timed, to be scaled up to all
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive())]
    pub prefixes: usize,

    /// Sizes of the model.
    #[command(flatten)]
    pub model: ModelOptions,
}

/// The options of a command that is given none.
pub fn defaults<T: Args + FromArgMatches>() -> T {
    let matches = T::augment_args(clap::Command::new("defaults")).get_matches_from(["defaults"]);
    T::from_arg_matches(&matches).expect("every option has a default")
}

/// Probabilities of dropping something and keeping something.
fn dropout(text: &str) -> Result<f64, String> {
    let is_one = |probability: &f64| *probability > 0.0 && *probability < 1.0;
    text.parse().ok().filter(is_one).ok_or_else(|| "give a number between 0 and 1".to_owned())
}

/// An amount of memory.
fn gibibytes(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|memory: &f64| memory.is_finite() && *memory > 0.0).ok_or_else(|| "give a number greater than 0".to_owned())
}

/// Numbers from 1 on.
pub(crate) fn positive() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}
