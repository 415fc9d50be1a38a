//! Compares attention mechanisms on the generation of texts.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::comparison;
use crate::options::{CommonOptions, PathInConfiguration, examples, parse};
use crate::pretrained::assignment;
use crate::text_generation::{GenerationTask, TextGeneration};
use clap::Parser;
use heedful_runs::settings::Assignment;

/// Compare attention mechanisms, or whole models, on summaries and on replies in dialogues.
///
/// Trains an encoder-decoder for each task, each attention or model of --model, and each seed, and prints a table: ROUGE and METEOR for summaries, BLEU-1 to BLEU-4, ROUGE-L, METEOR, CIDEr
/// and, with word vectors, their similarity for replies. --data takes a folder of documents and summaries (train.source, train.target and so on) or of
/// PersonaChat; without it texts are generated. With --pretrained it begins with the weights of a pretrained T5 and scores them before and after training.
#[derive(Parser)]
#[command(name = "textgen", version, after_help = examples("textgen"))]
struct Options {
    /// Whole models to train and compare instead of attention mechanisms, or beside those of --attention, separated by commas:
    /// those of the configuration file, or others (--list shows them)
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    model: Vec<String>,

    /// Folder of a pretrained T5 of Hugging Face with its tokenizer.json: score it, and fine-tune it. --set prefix='summarize: ' says what stands before each
    /// source [default: that with --task summary, otherwise nothing]
    #[arg(long, value_name = "DIR", value_parser = PathInConfiguration, conflicts_with = "model")]
    pretrained: Option<PathBuf>,

    #[command(flatten)]
    common: CommonOptions,

    /// Tasks, comma separated: summary, dialogue
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',', value_parser = GenerationTask::NAMES)]
    task: Vec<String>,
}

/// The program `textgen`: reads its options from the command line and runs.
pub fn main() -> ExitCode {
    let Options { model, pretrained, common, task } = parse::<Options>();
    let tasks = (!task.is_empty()).then(|| Assignment::option("--task", "data.tasks", task));
    let models = comparison::model_assignments(&model, &common);
    comparison::with_options::<TextGeneration>(&common, models.into_iter().chain(assignment(pretrained)).chain(tasks).collect())
}
