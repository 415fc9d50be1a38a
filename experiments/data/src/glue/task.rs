//! The tasks of the two benchmarks and what must be known to train on them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::DataError;

/// A task of GLUE or SuperGLUE; written and parsed by its official name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GlueTask {
    /// Linguistic acceptability of one sentence.
    #[serde(rename = "CoLA")]
    Cola,
    /// Sentiment of one sentence.
    #[serde(rename = "SST-2")]
    Sst2,
    /// Whether two sentences are paraphrases.
    #[serde(rename = "MRPC")]
    Mrpc,
    /// Whether the first sentence entails the second; a task of both benchmarks.
    #[serde(rename = "RTE")]
    Rte,
    /// Similarity of two sentences from 0 to 5.
    #[serde(rename = "STS-B")]
    StsB,
    /// Whether a sentence with its pronoun replaced follows.
    #[serde(rename = "WNLI")]
    Wnli,
    /// Whether a sentence answers a question.
    #[serde(rename = "QNLI")]
    Qnli,
    /// Whether two questions are duplicates.
    #[serde(rename = "QQP")]
    Qqp,
    /// Entailment, neutral or contradiction between two sentences.
    #[serde(rename = "MNLI")]
    Mnli,
    /// Whether a passage answers a question with yes (SuperGLUE).
    #[serde(rename = "BoolQ")]
    BoolQ,
    /// Whether the writer of a text is committed to a clause in it: entailment, contradiction or neutral (SuperGLUE).
    #[serde(rename = "CB")]
    Cb,
    /// Which of two sentences is the cause or the effect of a third (SuperGLUE).
    #[serde(rename = "COPA")]
    Copa,
    /// Whether a word has the same sense in two sentences (SuperGLUE).
    #[serde(rename = "WiC")]
    Wic,
    /// Which answers to a question about a paragraph are right, any number of them (SuperGLUE).
    #[serde(rename = "MultiRC")]
    MultiRc,
    /// Which entity of a news passage fills the gap in a sentence about it (SuperGLUE).
    #[serde(rename = "ReCoRD")]
    Record,
    /// Whether a pronoun refers to a noun phrase (SuperGLUE).
    #[serde(rename = "WSC")]
    Wsc,
}

/// What a task asks a model to predict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// One of this many classes.
    Classes(usize),
    /// A score between the two bounds, both included.
    Range(f32, f32),
}

impl GlueTask {
    /// All tasks, those of GLUE first.
    pub const ALL: [Self; 16] = [
        Self::Cola,
        Self::Sst2,
        Self::Mrpc,
        Self::Rte,
        Self::StsB,
        Self::Wnli,
        Self::Qnli,
        Self::Qqp,
        Self::Mnli,
        Self::BoolQ,
        Self::Cb,
        Self::Copa,
        Self::Wic,
        Self::MultiRc,
        Self::Record,
        Self::Wsc,
    ];

    /// Official name, which is also the name of the task's folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cola => "CoLA",
            Self::Sst2 => "SST-2",
            Self::Mrpc => "MRPC",
            Self::Rte => "RTE",
            Self::StsB => "STS-B",
            Self::Wnli => "WNLI",
            Self::Qnli => "QNLI",
            Self::Qqp => "QQP",
            Self::Mnli => "MNLI",
            Self::BoolQ => "BoolQ",
            Self::Cb => "CB",
            Self::Copa => "COPA",
            Self::Wic => "WiC",
            Self::MultiRc => "MultiRC",
            Self::Record => "ReCoRD",
            Self::Wsc => "WSC",
        }
    }

    /// The parts of the files that become texts: one name for a task on single texts, two for one on pairs.
    ///
    /// In GLUE they are columns. In SuperGLUE they are keys; where a text is put together from several, this is the main one.
    pub fn sentence_columns(self) -> &'static [&'static str] {
        match self {
            Self::Cola | Self::Sst2 => &["sentence"],
            Self::Mrpc => &["#1 String", "#2 String"],
            Self::Qnli => &["question", "sentence"],
            Self::Qqp => &["question1", "question2"],
            Self::Rte | Self::StsB | Self::Wnli | Self::Mnli | Self::Wic => &["sentence1", "sentence2"],
            Self::BoolQ => &["question", "passage"],
            Self::Cb => &["premise", "hypothesis"],
            Self::Copa => &["premise", "choice"],
            Self::MultiRc => &["passage", "answer"],
            Self::Record => &["passage", "query"],
            Self::Wsc => &["text"],
        }
    }

    /// The column or key with the label; `answers` in ReCoRD, which lists the right ones.
    pub fn label_column(self) -> &'static str {
        match self {
            Self::Mrpc => "Quality",
            Self::StsB => "score",
            Self::Qqp => "is_duplicate",
            Self::Mnli => "gold_label",
            Self::Record => "answers",
            Self::Cola | Self::Sst2 | Self::Rte | Self::Wnli | Self::Qnli => "label",
            Self::BoolQ | Self::Cb | Self::Copa | Self::Wic | Self::MultiRc | Self::Wsc => "label",
        }
    }

    /// The labels as the files write them (ReCoRD's as MultiRC would), in the order of the class numbers; none for a regression task.
    pub fn label_values(self) -> &'static [&'static str] {
        match self {
            Self::Cola | Self::Sst2 | Self::Mrpc | Self::Wnli | Self::Qqp | Self::Copa | Self::MultiRc | Self::Record => &["0", "1"],
            Self::Rte | Self::Qnli => &["entailment", "not_entailment"],
            Self::Mnli => &["entailment", "neutral", "contradiction"],
            Self::Cb => &["entailment", "contradiction", "neutral"],
            Self::BoolQ | Self::Wic | Self::Wsc => &["false", "true"],
            Self::StsB => &[],
        }
    }

    /// What the classes mean, in the order of the class numbers; none for a regression task.
    pub fn label_names(self) -> &'static [&'static str] {
        match self {
            Self::Cola => &["unacceptable", "acceptable"],
            Self::Sst2 => &["negative", "positive"],
            Self::Mrpc => &["not_equivalent", "equivalent"],
            Self::Wnli => &["not_entailment", "entailment"],
            Self::Qqp => &["not_duplicate", "duplicate"],
            Self::BoolQ => &["no", "yes"],
            Self::Wic => &["other_sense", "same_sense"],
            Self::Wsc => &["other_referent", "same_referent"],
            Self::Copa | Self::MultiRc | Self::Record => &["wrong", "right"],
            Self::Rte | Self::Qnli | Self::Mnli | Self::Cb | Self::StsB => self.label_values(),
        }
    }

    /// Number of classes, or the range of scores.
    pub fn target(self) -> Target {
        match self {
            Self::StsB => Target::Range(0.0, 5.0),
            _ => Target::Classes(self.label_values().len()),
        }
    }

    /// The official metrics, the one to select a model by first; the benchmarks report their mean where there are two.
    ///
    /// `macro_f1` is the unweighted mean over the classes. Those of a task that [is grouped](Self::is_grouped) are computed by
    /// `heedful_metrics::grouped`: `accuracy` over questions, `f1a` over all answers, `em` the share of questions answered
    /// exactly, and ReCoRD's `f1` over the words of answers.
    pub fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::Cola => &["matthews"],
            Self::Mrpc | Self::Qqp => &["f1", "accuracy"],
            Self::StsB => &["pearson", "spearman"],
            Self::Cb => &["accuracy", "macro_f1"],
            Self::MultiRc => &["f1a", "em"],
            Self::Record => &["f1", "em"],
            Self::Sst2 | Self::Rte | Self::Wnli | Self::Qnli | Self::Mnli => &["accuracy"],
            Self::BoolQ | Self::Copa | Self::Wic | Self::Wsc => &["accuracy"],
        }
    }

    /// Whether several examples are candidate answers to one question, and are scored together.
    pub fn is_grouped(self) -> bool {
        matches!(self, Self::Copa | Self::MultiRc | Self::Record)
    }

    /// Names of the development sets: in TSV their file names without the extension; in JSON lines `dev` is in `val.jsonl`.
    pub fn dev_sets(self) -> &'static [&'static str] {
        if self == Self::Mnli { &["dev_matched", "dev_mismatched"] } else { &["dev"] }
    }

    /// Files of the labelled test set in the original distribution of the task, relative to its folder, of which any one is read; `None`: there is none.
    pub fn labelled_test(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Mrpc => Some(&["msr_paraphrase_test.txt"]),
            Self::StsB => Some(&["sts-test.tsv", "original/sts-test.tsv"]),
            _ => None,
        }
    }

    /// Names of the test sets, which are their file names without the extension.
    pub fn test_sets(self) -> &'static [&'static str] {
        if self == Self::Mnli { &["test_matched", "test_mismatched"] } else { &["test"] }
    }
}

impl fmt::Display for GlueTask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for GlueTask {
    type Err = DataError;

    /// Parses an official name, in any case.
    fn from_str(name: &str) -> Result<Self, DataError> {
        let task = Self::ALL.into_iter().find(|task| task.name().eq_ignore_ascii_case(name));
        task.ok_or_else(|| DataError::UnknownTask { name: name.to_string() })
    }
}

/// The official names of `tasks`, for a message.
pub(crate) fn names(tasks: &[GlueTask]) -> String {
    tasks.iter().map(|task| task.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::refused;

    #[test]
    fn names_are_parsed_in_any_case_and_written_officially() {
        for task in GlueTask::ALL {
            assert_eq!(task.name().to_lowercase().parse::<GlueTask>().unwrap(), task);
            assert_eq!(serde_json::to_string(&task).unwrap(), format!("\"{task}\""));
            assert_eq!(serde_json::from_str::<GlueTask>(&format!("\"{task}\"")).unwrap(), task);
        }
        refused("SST-3".parse::<GlueTask>(), &["`SST-3`", "SST-2, MRPC", "ReCoRD, WSC"]);
    }

    #[test]
    fn every_task_has_a_name_for_every_class() {
        for task in GlueTask::ALL {
            let classes = if let Target::Classes(classes) = task.target() { classes } else { 0 };
            assert_eq!((task.label_names().len(), task.label_values().len()), (classes, classes), "{task}");
        }
    }
}
