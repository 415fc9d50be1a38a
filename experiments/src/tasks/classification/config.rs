//! Configuration of the experiment.

use std::path::PathBuf;

use heedful_data::generate::Sizes;
use heedful_data::glue::GlueTask;
use heedful_data::tokenise::TokeniserConfig;
use heedful_models::architectures::classifier::{ClassifierConfig, Pooling};
use heedful_models::pretrained::swap::Swappable;
use serde::{Deserialize, Serialize};

use crate::session::experiment::definition::UNCHANGED;
use crate::session::options::RunSettings;
use crate::tasks::prelude::*;

/// Complete configuration of `glue`.
pub type ClassificationConfig = Config<Classification>;

/// The comparison of attentions on the tasks of GLUE and SuperGLUE: the options that only it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Classification {
    /// Output folder of an `mlm` pre-training whose weights and vocabulary the models start from; by default none. A pre-training that started from a
    /// pretrained model sets the fields that `pretrained` sets, and `run.attention` names mechanisms.
    pub init: Option<PathBuf>,
    /// Seed of the pre-training run that all seeds start from; by default each seed starts from the run of the same seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_seed: Option<u64>,
    /// Folder of a pretrained model of Hugging Face (BERT, GPT-2, Llama, Mistral, Qwen-3, Gemma-2) that is fine-tuned; by default none. It sets `tokeniser`,
    /// `pooling`, `pooler`, `causal` and the fields of the table `model`. `run.attention` then names contenders as in `swap`: what replaces the attention of which
    /// layers, or `unchanged`.
    pub pretrained: Option<PathBuf>,
    /// Whether the pretrained model is fine-tuned first. Contenders then start from the result and are trained for as many steps again.
    pub swap: bool,
    /// Whether attentions that replace those of the pretrained model start with initial weights in all projections; by default they keep the weights that they
    /// can.
    pub reinitialise: bool,
    /// Part of the model that is not trained: `encoder`, embeddings and layers alike, so that only pooler and output are trained. By default everything is
    /// trained.
    pub freeze: Option<Frozen>,
    /// Which tasks.
    pub data: ClassificationData,
    /// How sentences are cut into tokens; the vocabulary is that of the training sets, or of the pre-training. `pretrained` is the tokeniser of the pretrained
    /// model.
    pub tokeniser: TokeniserConfig,
    /// How hidden states become one vector: `class-token`, `mean` or `last-token`. `mean-embeddings` skips the layers and takes the mean of their inputs.
    pub pooling: Pooling,
    /// Whether that vector passes a linear map and a hyperbolic tangent before the output, as in BERT.
    pub pooler: bool,
    /// Whether tokens attend only to those before them, as in a decoder. Outputs then have no biases.
    pub causal: bool,
    /// Where the model is that was fine-tuned first; unknown where no command has an output folder yet.
    #[serde(skip)]
    pub(super) place: Option<PathBuf>,
}

/// The tasks of a classification experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassificationData {
    /// Tasks by their names in GLUE and SuperGLUE; each is a data set of its own.
    pub tasks: Vec<GlueTask>,
    /// Whether the tasks form a single data set, for one model with outputs for each task.
    pub mixture: bool,
    /// The share of each task's training examples that is held out, drawn alike for all seeds: it chooses the checkpoint, and the development set only scores.
    /// 0 (default): the development set does both.
    pub held_out: f64,
    /// Whether models are also scored on the labelled test sets in the original distributions of MRPC (`msr_paraphrase_test.txt`) and STS-B (`sts-test.tsv`)
    /// (default: no). GLUE does not publish the labels of its own test sets.
    pub labelled_tests: bool,
    /// Tokens in a batch, padding included.
    pub batch_tokens: usize,
    /// Training examples of each built-in task.
    pub generated_examples: usize,
}

/// The part of a model that is not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frozen {
    /// Embeddings and layers, with the attention.
    Encoder,
}

impl Default for Classification {
    fn default() -> Self {
        Self {
            init: None,
            init_seed: None,
            pretrained: None,
            swap: false,
            reinitialise: false,
            freeze: None,
            data: ClassificationData::default(),
            tokeniser: TokeniserConfig::Word { vocabulary: None, min_frequency: 1 },
            pooling: Pooling::Mean,
            pooler: false,
            causal: false,
            place: None,
        }
    }
}

impl Default for ClassificationData {
    fn default() -> Self {
        Self {
            tasks: vec![GlueTask::Cola, GlueTask::Sst2, GlueTask::Mrpc, GlueTask::Rte],
            mixture: false,
            held_out: 0.0,
            labelled_tests: false,
            batch_tokens: 1000,
            generated_examples: Sizes::GLUE.train,
        }
    }
}

impl ClassificationConfig {
    /// The seed of the pre-training that the runs of a seed begin with.
    pub(super) fn seed_of_init(&self, seed: u64) -> u64 {
        self.own.init_seed.unwrap_or(seed)
    }

    /// The same without a pretrained model, in which names of attentions are those of mechanisms.
    pub(super) fn plain(&self) -> Self {
        let mut plain = self.clone();
        (plain.own.pretrained, plain.own.swap) = (None, false);
        plain
    }

    /// The runs that fine-tune what all contenders begin with.
    pub(super) fn first(&self) -> Self {
        let mut first = self.clone();
        first.run = RunSettings { attention: vec![UNCHANGED.to_owned()], models: Vec::new(), ..first.run };
        first.own.swap = false;
        first
    }

    pub(crate) fn model(&self, vocabulary: usize, outputs: usize, segments: bool, attention: &Attention) -> ClassifierConfig {
        let Classification { pooler, causal, pooling, .. } = self.own;
        let config = ClassifierConfig {
            segments,
            pooling,
            pooler,
            causal,
            output_bias: !causal,
            ..self.model.classifier(vocabulary, outputs, &attention.layout.encoder)
        };
        if self.own.pretrained.is_none() {
            return config;
        }
        // The attention that replaces that of a pretrained model may not be able to have its biases or heads.
        config.fitted_to_attention()
    }
}
