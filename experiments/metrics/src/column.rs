//! What is known of a metric beside its values.

use serde::{Deserialize, Serialize};

/// How one metric is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricColumn {
    /// Name in the records.
    pub name: String,
    /// Heading in tables.
    pub label: String,
    /// Number of decimals.
    pub digits: usize,
    /// Which values are better; none if the metric does not judge.
    pub higher_is_better: Option<bool>,
    /// What the table multiplies the values of records by.
    pub factor: f64,
    /// What the metric is: its unit, its test set, how it is computed.
    pub definition: String,
    /// A file in the folder of a run that shows what the value is made of.
    pub file: Option<String>,
}

impl MetricColumn {
    /// The metric `name` of the records, under the heading `label`, with two decimals and no direction.
    pub fn new(name: &str, label: &str) -> Self {
        let (name, label) = (name.into(), label.into());
        Self { name, label, digits: 2, higher_is_better: None, factor: 1.0, definition: String::new(), file: None }
    }

    /// Larger values are better.
    pub fn higher_is_better(self) -> Self {
        Self { higher_is_better: Some(true), ..self }
    }

    /// Smaller values are better.
    pub fn lower_is_better(self) -> Self {
        Self { higher_is_better: Some(false), ..self }
    }

    /// Number of decimals.
    pub fn digits(self, digits: usize) -> Self {
        Self { digits, ..self }
    }

    /// The records hold fractions from 0 to 1, the table shows percent.
    pub fn percent(self) -> Self {
        Self { factor: 100.0, ..self }
    }

    /// What the metric is: its unit, its test set, how it is computed.
    pub fn defined_as(self, definition: &str) -> Self {
        Self { definition: definition.into(), ..self }
    }

    /// A file of this name in the folder of a run shows what the value is made of. A report points to it where a run has it.
    pub fn shown_in(self, file: &str) -> Self {
        Self { file: Some(file.into()), ..self }
    }

    /// The label with an arrow towards better values.
    pub fn heading(&self) -> String {
        let arrow = match self.higher_is_better {
            Some(true) => " ↑",
            Some(false) => " ↓",
            None => "",
        };
        format!("{}{arrow}", self.label)
    }
}
