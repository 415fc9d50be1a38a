//! Options of the sweep.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use heedful_attention::prelude::*;
use heedful_backends::Backend;
use heedful_host::exit::ProgramError;
use heedful_host::names::listed;
use heedful_models::kernels::precision::Precision;

use super::baseline::Unit;
use super::point::Pass;
use crate::backends::precision;
use crate::peers::options::{LayerOptions, positive};
use crate::workload::Sizes;

/// What is measured, and how.
#[derive(Args, Clone, Debug)]
pub struct CostOptions {
    /// Backends: flex, ndarray, wgpu, and others that are compiled in (vulkan, metal, webgpu, cuda, rocm)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',', default_value = "flex")]
    pub backend: Vec<Backend>,

    /// Attention mechanisms, with options in braces such as linformer{rank=64}, or `all`
    #[arg(long, value_name = "NAME[,NAME...]", default_value = "all")]
    pub attention: Vec<String>,

    /// Lengths: numbers, or A..B for A, 2A, 4A to B
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', default_value = "128..4096")]
    pub lengths: Vec<Lengths>,

    /// Passes to time [default: all; with --bidirectional forward,training]
    #[arg(long = "pass", value_name = "NAME[,NAME...]", value_enum, value_delimiter = ',')]
    pub passes: Vec<Pass>,

    /// Let every position attend to those after it too, as in an encoder; otherwise layers are causal where mechanisms can be
    #[arg(long, conflicts_with = "peers")]
    pub bidirectional: bool,

    /// Type of weights and activations: f32, f16 or bf16, if the backend supports it
    #[arg(long, value_name = "f32|f16|bf16", default_value = "f32", conflicts_with = "peers", value_parser = precision)]
    pub precision: Precision,

    /// Width of the layer
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = positive())]
    pub d_model: usize,

    /// Heads, a divisor of the width
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = positive())]
    pub heads: usize,

    /// Heads of keys and values, a divisor of the heads [default: as many as heads]
    #[arg(long, value_name = "N", conflicts_with = "peers", value_parser = positive())]
    pub kv_heads: Option<usize>,

    /// Sequences at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive())]
    pub batch: usize,

    /// Tokens in a batch: the batch is this number divided by the length, and at least 1
    #[arg(long, value_name = "N", conflicts_with_all = ["batch", "peers"], value_parser = positive())]
    pub tokens: Option<usize>,

    /// Rounds; in each, every mechanism runs once at a length, in turn
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = positive())]
    pub rounds: usize,

    /// Skip longer sequences once a run takes more than this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub seconds: f64,

    /// Skip longer sequences once a run needs more than this many GiB
    #[arg(long, value_name = "GIB", default_value_t = 4.0)]
    pub memory: f64,

    /// Greatest length of the comparison with the reference engine, which holds matrices of all pairs; longer sequences are compared at this length
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = positive())]
    pub check: usize,

    /// Folder for cost.json, cost.csv, cost.md and the plots
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Compare with this cost.json of an earlier run; exit with 1 if something became slower and is slower again in a second measurement
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// Unit of the compared times: the product of two matrices, for a baseline of this machine, or dot-product attention, for one of any machine
    #[arg(long, value_name = "yardstick|dot-product", value_enum, default_value = "yardstick", requires = "baseline")]
    pub unit: Unit,

    /// Ratio of times, in these units, that counts as slower than the baseline
    #[arg(long, value_name = "RATIO", default_value_t = 1.3)]
    pub threshold: f64,

    /// Also time PyTorch packages, in turn with ours on the same cores (needs `pip install -r benches/peers/requirements.txt`)
    #[arg(long)]
    pub peers: bool,

    /// Python interpreter for --peers
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub python: PathBuf,
}

/// A mechanism under the name that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Its name, with its options.
    pub name: String,
    /// The mechanism.
    pub mechanism: AnyMechanism,
}

impl FromStr for Contender {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mechanism: AnyMechanism = text.parse()?;
        let options = AnyMechanism::split_options(text).1.unwrap_or_default();
        Ok(Self { name: format!("{}{options}", mechanism.name()), mechanism })
    }
}

/// One length, or several by doubling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths(Vec<usize>);

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(number) if number >= 1 => Ok(number),
            _ => Err(format!("`{text}` is not a length of at least 1")),
        };
        let Some((first, last)) = text.split_once("..") else { return Ok(Self(vec![number(text)?])) };
        let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
        if first > last {
            return Err(format!("{first} is more than {last}"));
        }
        Ok(Self(std::iter::successors(Some(first), |length| length.checked_mul(2)).take_while(|&length| length <= last).collect()))
    }
}

impl CostOptions {
    /// The lengths, ascending.
    pub fn lengths(&self) -> Vec<usize> {
        let mut lengths: Vec<usize> = self.lengths.iter().flat_map(|lengths| lengths.0.iter().copied()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// The given passes, or all passes of such a layer.
    pub fn passes(&self) -> Vec<Pass> {
        match (&self.passes[..], self.bidirectional) {
            ([], false) => Pass::value_variants().to_vec(),
            ([], true) => vec![Pass::Forward, Pass::Training],
            (given, _) => given.to_vec(),
        }
    }

    /// The mechanisms.
    ///
    /// # Errors
    /// A usage error for one that does not exist, or is named twice.
    pub fn attentions(&self) -> Result<Vec<Contender>, ProgramError> {
        let names: Vec<&str> = self.attention.iter().flat_map(|text| listed(text)).collect();
        if names.contains(&"all") {
            return Ok(AnyMechanism::all().into_iter().map(|mechanism| Contender { name: mechanism.name(), mechanism }).collect());
        }
        let contenders: Vec<Contender> = names.iter().map(|name| name.parse().map_err(ProgramError::usage)).collect::<Result<_, _>>()?;
        match contenders.iter().enumerate().find(|(index, one)| contenders[..*index].iter().any(|other| other.name == one.name)) {
            Some((_, twice)) => Err(ProgramError::usage(format!("--attention: `{}` is named twice", twice.name))),
            None => Ok(contenders),
        }
    }

    /// Sizes of the layer, for sequences of this length.
    ///
    /// # Errors
    /// A usage error if the heads do not divide the width, or those of keys and values the heads.
    pub fn sizes(&self, length: usize) -> Result<Sizes, ProgramError> {
        let Self { d_model, heads, kv_heads, batch, .. } = *self;
        if let Some(shared) = kv_heads.filter(|&shared| !heads.is_multiple_of(shared)) {
            return Err(ProgramError::usage(format!("--kv-heads {shared} does not divide --heads {heads}; give a divisor")));
        }
        Ok(Sizes { kv_heads, ..LayerOptions { d_model, heads }.sizes(batch, length)? })
    }

    /// Checks what clap does not.
    ///
    /// # Errors
    /// A usage error that names the option.
    pub fn validate(&self) -> Result<(), ProgramError> {
        for (option, value) in [("--seconds", self.seconds), ("--memory", self.memory), ("--threshold", self.threshold)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(ProgramError::usage(format!("{option} {value}: give a number greater than 0")));
            }
        }
        if self.bidirectional && self.passes.contains(&Pass::Decode) {
            return Err(ProgramError::usage("--bidirectional: a step of decoding has nothing after it; leave out --pass decode"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CostCommand {
        #[command(flatten)]
        cost: CostOptions,
    }

    #[test]
    fn variants_of_a_mechanism_stand_side_by_side() {
        let options = |attention: &str| {
            let given = CostCommand::parse_from(["cost", "--attention", attention]);
            given.cost.attentions().map(|all| all.into_iter().map(|one| one.name).collect::<Vec<_>>())
        };
        assert_eq!(
            options("random, linformer{rank=16, sharing=none},linformer").unwrap(),
            ["synthesizer-random", "linformer{rank=16,sharing=none}", "linformer"]
        );
        assert_eq!(options("all").unwrap().len(), AnyMechanism::all().len());
        assert!(options("linformer{rank=16},linformer{rank = 16}").unwrap_err().to_string().contains("named twice"));
    }

    #[test]
    fn bidirectional_layers_have_no_steps_of_decoding() {
        let passes = |arguments: &[&str]| {
            let CostCommand { cost } = CostCommand::parse_from([&["cost"], arguments].concat());
            cost.validate().map(|()| cost.passes()).map_err(|error| (error.exit_code(), error.to_string()))
        };
        assert_eq!(passes(&[]), Ok(vec![Pass::Forward, Pass::Training, Pass::Decode]));
        assert_eq!(passes(&["--bidirectional"]), Ok(vec![Pass::Forward, Pass::Training]));
        assert_eq!(passes(&["--bidirectional", "--pass", "training"]), Ok(vec![Pass::Training]));
        let (code, problem) = passes(&["--bidirectional", "--pass", "forward,decode"]).unwrap_err();
        assert!(code == 2 && problem.contains("leave out --pass decode"), "{problem}");
        assert!(CostCommand::try_parse_from(["cost", "--bidirectional", "--peers"]).is_err());
    }

    #[test]
    fn units_are_those_of_a_comparison() {
        let unit = |arguments: &[&str]| CostCommand::try_parse_from([&["cost"], arguments].concat()).map(|given| given.cost.unit).ok();
        assert_eq!(unit(&[]), Some(Unit::Yardstick));
        assert_eq!(unit(&["--baseline", "cost.json", "--unit", "dot-product"]), Some(Unit::DotProduct));
        assert_eq!(unit(&["--unit", "dot-product"]), None, "nothing is compared");
    }

    #[test]
    fn ranges_double() {
        let of = |text: &str| text.parse::<Lengths>().map(|lengths| lengths.0);
        assert_eq!(of("128..1024"), Ok(vec![128, 256, 512, 1024]));
        assert_eq!(of("100..399"), Ok(vec![100, 200]));
        assert_eq!(of("96"), Ok(vec![96]));
        for wrong in ["0", "x", "8..4", "..8", "8.."] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
