//! Compares attention mechanisms on GLUE and SuperGLUE tasks.

use std::path::PathBuf;
use std::process::ExitCode;

use super::swap::assignment;
use crate::classification::Classification;
use crate::comparison;
use crate::options::{CommonOptions, PathInConfiguration, examples, parse};
use crate::pretrained;
use clap::Parser;
use heedful_data::glue::GlueTask;
use heedful_runs::settings::Assignment;

/// Compare attention mechanisms on GLUE and SuperGLUE tasks, from scratch, after a pre-training or in a pretrained encoder.
///
/// Trains an encoder for each task, attention and seed, and prints a table of each task's metrics on its development set with parameters, speed and
/// memory. With --mixture one model learns all tasks; with --init it starts from the weights of `mlm`, with --pretrained from those of a BERT, of a RoBERTa or of a decoder. Without --data it
/// uses built-in tasks of the same kinds.
#[derive(Parser)]
#[command(name = "glue", version, after_help = examples("glue"))]
struct Options {
    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas:
    /// those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',', conflicts_with_all = ["pretrained", "swap"])]
    model: Vec<String>,

    #[command(flatten)]
    common: CommonOptions,

    /// Tasks, comma separated: CoLA, SST-2, MRPC, RTE, STS-B, WNLI, QNLI, QQP, MNLI; BoolQ, CB, COPA, WiC, MultiRC, ReCoRD, WSC.
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    task: Vec<GlueTask>,

    /// Train one model on all tasks in turn
    #[arg(long)]
    mixture: bool,

    /// Output folder of `mlm`: start from its weights and vocabulary
    #[arg(long, value_name = "RUN", value_parser = PathInConfiguration)]
    init: Option<PathBuf>,

    /// Seed of the pre-training for all seeds [default: each seed starts from the run of the same seed]
    #[arg(long, value_name = "S", requires = "init", value_parser = clap::value_parser!(u64).range(0..=i64::MAX as u64))]
    init_seed: Option<u64>,

    /// Folder of a pretrained model of Hugging Face (BERT, Gemma-2, GPT-2, Llama, Mistral, Qwen-3, RoBERTa) with its tokenizer.json: fine-tune it. --attention
    /// then says what replaces the attention of its layers before: uniform, layers.1-3=uniform [default: unchanged]
    #[arg(long, value_name = "DIR", value_parser = PathInConfiguration, conflicts_with_all = ["init", "init_seed"])]
    pretrained: Option<PathBuf>,

    /// What stays as the runs begin with it: encoder, so that pooler and output alone are trained
    #[arg(long, value_name = "PART", conflicts_with = "swap")]
    freeze: Option<String>,

    /// Give attentions that replace those of the pretrained model initial weights in all projections, even where they could keep the model's
    #[arg(long, requires = "pretrained")]
    reinitialise: bool,

    /// Fine-tune the pretrained model first, then replace the attention of layers, and train for as many steps again:
    /// 'layers.*.attention=uniform,sliding-window', layers.0,2=uniform, layers.1-3=uniform; names alone are for all layers. May be repeated; the unchanged
    /// model is compared with them
    #[arg(long, value_name = "LAYERS=NAME[,NAME...]", conflicts_with_all = ["attention", "slurm"])]
    swap: Vec<String>,
}

/// The program `glue`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { model, common, task, mixture, init, init_seed, pretrained, freeze, reinitialise, swap } = parse::<Options>();
    let tasks: Vec<_> = task.iter().map(|task| task.name().to_owned()).collect();
    let tasks = (!tasks.is_empty()).then(|| Assignment::option("--task", "data.tasks", tasks));
    let mixture = mixture.then(|| Assignment::option("--mixture", "data.mixture", true));
    let init = init.map(|run| Assignment::option("--init", "init", run.to_string_lossy().into_owned()));
    let init_seed = init_seed.map(|seed| Assignment::option("--init-seed", "init_seed", seed as i64));
    let freeze = freeze.map(|part| Assignment::option("--freeze", "freeze", part));
    let reinitialise = reinitialise.then(|| Assignment::option("--reinitialise", "reinitialise", true));
    let swapped = (!swap.is_empty()).then(|| Assignment::option("--swap", "swap", true));
    let models = comparison::model_assignments(&model, &common);
    let own = [tasks, mixture, init, init_seed, pretrained::assignment(pretrained), freeze, reinitialise, swapped, assignment(&swap)];
    comparison::with_options::<Classification>(&common, models.into_iter().chain(own.into_iter().flatten()).collect())
}
