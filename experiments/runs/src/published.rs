//! Published numbers of the experiments, as reports show them beside measured ones and never mixed with them.
//!
//! The tables are in `published/*.json`, one file per experiment. A row names paper and table; a value that was not found in the paper, in a later
//! paper that quotes it, in the authors' repository or in another public account is marked unconfirmed and is no target to the last digit.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// One value of a published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedNumber {
    /// Short title with the arXiv number.
    pub paper: String,
    /// Number or name of the table.
    pub table: String,
    /// Data set and direction or split.
    pub dataset: String,
    /// The model as the paper names it.
    pub model: String,
    /// Our name of the attention mechanism, where the model is nothing but that mechanism in a Transformer.
    pub attention: Option<String>,
    /// The metric with its unit, as the paper names it.
    pub metric: String,
    /// The value as printed.
    pub value: f64,
    /// Direction of the metric.
    pub higher_is_better: bool,
    /// Whether the value was checked; see the head of this module.
    pub verified: bool,
    /// Size of the model in millions of parameters, where the paper gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_millions: Option<f64>,
}

impl PublishedNumber {
    /// `"verified"` or `"unconfirmed"`.
    pub fn evidence(&self) -> &'static str {
        if self.verified { "verified" } else { "unconfirmed" }
    }
}

/// The published numbers that belong to one experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedNumbers {
    /// What to keep in mind when comparing them with ours.
    pub note: String,
    /// The values, in the order of papers and tables.
    pub numbers: Vec<PublishedNumber>,
}

impl PublishedNumbers {
    /// Machine translation: Synthesizer, hard-coded Gaussian attention, Transformer, lightweight and dynamic convolutions, and a replication.
    pub fn machine_translation() -> Self {
        embedded(include_str!("../published/machine-translation.json"))
    }

    /// Word-level language modelling: Synthesizer, Transformer-XL, dynamic convolutions.
    pub fn language_modelling() -> Self {
        embedded(include_str!("../published/language-modelling.json"))
    }

    /// GLUE and SuperGLUE development sets: Synthesizer.
    pub fn glue() -> Self {
        embedded(include_str!("../published/glue.json"))
    }

    /// Algorithmic tasks, the duplication task and bAbI: Universal Transformer, Reformer.
    pub fn algorithmic() -> Self {
        embedded(include_str!("../published/algorithmic.json"))
    }

    /// Pre-training on C4: Synthesizer, and a replication.
    pub fn pre_training() -> Self {
        embedded(include_str!("../published/pre-training.json"))
    }

    /// Summarisation and dialogue: Synthesizer, lightweight and dynamic convolutions, and a replication.
    pub fn text_generation() -> Self {
        embedded(include_str!("../published/text-generation.json"))
    }

    /// Classification of texts by encoders: Synthesizer, Linformer.
    pub fn text_classification() -> Self {
        embedded(include_str!("../published/text-classification.json"))
    }

    /// Autoregressive models of images: Image Transformer, Sparse Transformer, Reformer as a later paper has it.
    pub fn images() -> Self {
        embedded(include_str!("../published/images.json"))
    }

    /// Reinforcement learning with a memory: GTrXL.
    pub fn memory() -> Self {
        embedded(include_str!("../published/memory.json"))
    }

    /// Recall: MQAR, and the tasks of MAD.
    pub fn recall() -> Self {
        embedded(include_str!("../published/recall.json"))
    }

    /// Tracking of states: parity and modular arithmetic.
    pub fn state_tracking() -> Self {
        embedded(include_str!("../published/state-tracking.json"))
    }

    /// The rows of the compared mechanisms, if there are any. The note then says how many other rows there are.
    pub fn of(self, compared: &BTreeSet<&str>) -> Self {
        let all = self.numbers.len();
        let is_compared = |row: &PublishedNumber| row.attention.as_deref().is_some_and(|name| compared.contains(name));
        if !self.numbers.iter().any(is_compared) {
            return self;
        }
        let mut own = self.retain(is_compared);
        if own.numbers.len() < all {
            let _ = write!(own.note, " {} values of other models are left out.", all - own.numbers.len());
        }
        own
    }

    /// Keeps the rows for which `wanted` holds, in the same order (one task of GLUE, the compared mechanisms).
    pub fn retain(mut self, wanted: impl FnMut(&PublishedNumber) -> bool) -> Self {
        self.numbers.retain(wanted);
        self
    }
}

fn embedded(json: &str) -> PublishedNumbers {
    serde_json::from_str(json).expect("the embedded tables of published numbers are valid (tested)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(numbers: &PublishedNumbers, paper: &str, dataset: &str, model: &str) -> (f64, bool) {
        let rows: Vec<_> =
            numbers.numbers.iter().filter(|row| row.paper.starts_with(paper) && row.dataset == dataset && row.model == model).collect();
        assert_eq!(rows.len(), 1, "{paper} {dataset} {model}");
        (rows[0].value, rows[0].verified)
    }

    #[test]
    fn a_report_has_the_rows_of_what_it_compares() {
        let of = |compared: &[&str]| PublishedNumbers::machine_translation().of(&compared.iter().copied().collect());
        let own = of(&["uniform", "dynamic-conv"]);
        assert!(!own.numbers.is_empty() && own.numbers.iter().all(|row| row.attention.as_deref() == Some("dynamic-conv")), "{own:?}");
        let all = PublishedNumbers::machine_translation();
        assert!(
            own.note.ends_with(&format!(" {} values of other models are left out.", all.numbers.len() - own.numbers.len())),
            "{}",
            own.note
        );
        assert_eq!(of(&["uniform"]), all, "where papers have none of them, their tables are shown whole");
    }

    #[test]
    fn the_machine_translation_tables_hold_the_papers_values_and_their_evidence() {
        let numbers = PublishedNumbers::machine_translation();
        assert_eq!(value(&numbers, "Synthesizer", "WMT14 En-De", "Random"), (27.27, true));
        assert_eq!(value(&numbers, "Synthesizer", "WMT14 En-De", "Fixed Random"), (23.89, true));
        assert_eq!(value(&numbers, "Hard-coded", "IWSLT16 En-De", "HC-SA"), (30.3, false));
        assert_eq!(value(&numbers, "Transformer (", "WMT14 En-De", "base"), (27.3, true));
    }

    #[test]
    fn the_language_modelling_and_glue_tables_hold_the_papers_values() {
        let numbers = PublishedNumbers::language_modelling();
        assert_eq!(value(&numbers, "Synthesizer", "LM1B", "Random"), (40.6, true));
        assert_eq!(value(&numbers, "Transformer-XL", "WikiText-103", "Standard"), (24.0, true));
        assert_eq!(value(&PublishedNumbers::glue(), "Synthesizer", "CoLA dev", "Dense").0, 18.9);
        assert_eq!(value(&PublishedNumbers::images(), "Image", "CIFAR-10", "1D local, 12L, categorical"), (2.9, true));
        let numbers = PublishedNumbers::algorithmic();
        assert_eq!(value(&numbers, "Reformer", "0w0w length 1024", "train LSH-4 / eval LSH-1"), (91.9, false));
        assert_eq!(value(&numbers, "Universal", "bAbI 10K single", "UT + ACT"), (0.21, true));
    }

    #[test]
    fn no_value_stands_twice_and_every_row_is_filled_in() {
        let all = [
            PublishedNumbers::machine_translation(),
            PublishedNumbers::language_modelling(),
            PublishedNumbers::glue(),
            PublishedNumbers::algorithmic(),
            PublishedNumbers::pre_training(),
            PublishedNumbers::text_generation(),
            PublishedNumbers::text_classification(),
            PublishedNumbers::images(),
            PublishedNumbers::memory(),
            PublishedNumbers::recall(),
            PublishedNumbers::state_tracking(),
        ];
        for numbers in all {
            assert!(!numbers.note.is_empty() && !numbers.numbers.is_empty());
            for row in &numbers.numbers {
                assert!(row.value.is_finite() && row.value >= 0.0);
                for text in [&row.paper, &row.table, &row.dataset, &row.model, &row.metric] {
                    assert!(!text.is_empty(), "{row:?}");
                }
                let lower = ["perplexity", "error", "bits", "TFLOPS", "diverged"].iter().any(|word| row.metric.contains(word));
                assert_eq!(row.higher_is_better, !lower, "{row:?}");
            }
            let rows: BTreeSet<String> = numbers.numbers.iter().map(|row| format!("{row:?}")).collect();
            assert_eq!(rows.len(), numbers.numbers.len());
        }
    }

    #[test]
    fn unverified_rows_are_called_unconfirmed() {
        let numbers = PublishedNumbers::glue().retain(|row| row.dataset == "RTE dev");
        assert_eq!(numbers.numbers.len(), 6);
        assert!(numbers.numbers.iter().all(|row| row.evidence() == "unconfirmed"));
    }
}
