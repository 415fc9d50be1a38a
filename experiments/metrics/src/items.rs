//! What the items of a test set contribute to a score, so that significance tests can draw other items.
//!
//! The idea: a score of items (sentences, examples, questions) is a function of sums over them. A run leaves the terms of these sums in a file
//! ([`ItemTable`]), and its record says how they make the score ([`ItemScore`]): whoever compares runs needs to know no metric.
//!
//! Not covered: Spearman's correlation, since ranks change with the items that are drawn, and means over several test sets.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::significance::ItemStatistics;
use super::{Bleu, BleuStatistics, ChrF, ChrFStatistics, ConfusionMatrix, DialogueBleu, NgramOverlap, TextMetric};

/// How a score is made of items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemScore {
    /// The test set, by which the files of items or of texts are named.
    pub set: String,
    /// What an item is, in the plural, such as `examples`.
    pub unit: String,
    /// The statistics of the items that the score is made of, by their names in [`ItemTable`]; none for scores of texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statistics: Vec<String>,
    /// What makes the score of them.
    pub combination: Combination,
}

impl ItemScore {
    /// A score of some statistics of the items in `set`, which are called `unit`.
    pub fn new(set: &str, unit: &str, combination: Combination, statistics: &[&str]) -> Self {
        let statistics = statistics.iter().map(|&name| name.to_owned()).collect();
        Self { set: set.to_owned(), unit: unit.to_owned(), statistics, combination }
    }

    /// A score of the texts that were generated for `set` and of their references, which stand in files of their own.
    pub fn of_texts(set: &str, metric: CorpusMetric) -> Self {
        Self::new(set, "sentences", Combination::Texts(metric), &[])
    }

    /// Whether it is a score of generated texts.
    pub fn is_of_texts(&self) -> bool {
        matches!(self.combination, Combination::Texts(_))
    }
}

/// What makes a score of the statistics of items.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Combination {
    /// The mean of a value: accuracy, ROUGE, CIDEr, METEOR.
    Mean,
    /// The sum of a part by the sum of a whole, zero without a whole: bits per unit, F1 over the answers to questions.
    Ratio,
    /// The exponential of [`Ratio`](Self::Ratio): perplexity, of nats and units.
    ExpRatio,
    /// A score of the classes that items have and of those that were predicted.
    Confusion {
        /// How many classes there are.
        classes: usize,
        /// The score.
        score: ConfusionScore,
    },
    /// Pearson's correlation of two values.
    Pearson,
    /// A score of generated texts and references.
    Texts(CorpusMetric),
}

/// A score of a [`ConfusionMatrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfusionScore {
    /// F1 of class 1.
    F1,
    /// The mean of the classes' F1.
    MacroF1,
    /// Matthews' correlation.
    Matthews,
}

impl Combination {
    /// The terms of the sums that [`score`](Self::score) takes; `None` without items and for statistics that are not those of the combination.
    pub fn terms(&self, rows: &[Vec<f64>]) -> Option<ItemStatistics> {
        if rows.is_empty() {
            return None;
        }
        // Shifted values have the same correlation, and squares that lose fewer digits.
        let mean = |column: usize| rows.iter().map(|row| row[column]).sum::<f64>() / rows.len() as f64;
        let width = match self {
            Self::Mean => 1,
            Self::Ratio | Self::ExpRatio | Self::Confusion { .. } | Self::Pearson => 2,
            Self::Texts(_) => return None,
        };
        // Each item has a count for each pair of classes.
        const MOST_CLASSES: usize = 100;
        let too_many = matches!(self, Self::Confusion { classes, .. } if !(1..=MOST_CLASSES).contains(classes));
        if too_many || rows.iter().any(|row| row.len() != width) {
            return None;
        }
        let centre = if *self == Self::Pearson { [mean(0), mean(1)] } else { [0.0; 2] };
        let terms = |row: &Vec<f64>| match (self, &row[..]) {
            (Self::Mean, &[value]) => Some(vec![value, 1.0]),
            (Self::Confusion { classes, .. }, &[actual, predicted]) => {
                let is_class = |value: f64| value >= 0.0 && value < *classes as f64 && value.fract() == 0.0;
                let mut counts = vec![0.0; classes * classes];
                (is_class(actual) && is_class(predicted)).then(|| counts[actual as usize * classes + predicted as usize] = 1.0)?;
                Some(counts)
            }
            (Self::Pearson, &[x, y]) => {
                let (x, y) = (x - centre[0], y - centre[1]);
                Some(vec![1.0, x, y, x * x, y * y, x * y])
            }
            _ => Some(row.clone()),
        };
        Some(ItemStatistics::new(rows.iter().map(terms).collect::<Option<Vec<_>>>()?))
    }

    /// The score that summed terms amount to; not a number where it is undefined.
    ///
    /// # Panics
    /// If the terms are those of another combination.
    pub fn score(&self, sum: &[f64]) -> f64 {
        match self {
            Self::Mean => sum[0] / sum[1],
            Self::Ratio if sum[1] == 0.0 => 0.0,
            Self::Ratio => sum[0] / sum[1],
            Self::ExpRatio => (sum[0] / sum[1]).exp(),
            Self::Confusion { classes, score } => {
                let matrix = ConfusionMatrix::from_counts(*classes, whole(sum));
                match score {
                    ConfusionScore::F1 => matrix.binary_scores(1).f1,
                    ConfusionScore::MacroF1 => matrix.macro_f1().unwrap_or(f64::NAN),
                    ConfusionScore::Matthews => matrix.matthews_correlation().value,
                }
            }
            Self::Pearson => {
                let [count, x, y, xx, yy, xy] = *sum else { panic!("a correlation is made of six sums, not of {}", sum.len()) };
                (count * xy - x * y) / ((count * xx - x * x).sqrt() * (count * yy - y * y).sqrt())
            }
            Self::Texts(metric) => metric.score(sum),
        }
    }
}

/// Counts, which are far below what a float holds exactly.
fn whole(sum: &[f64]) -> Vec<u64> {
    sum.iter().map(|&count| count as u64).collect()
}

/// A corpus score of hypotheses and references.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CorpusMetric {
    /// BLEU.
    Bleu(Bleu),
    /// chrF.
    ChrF(ChrF),
    /// BLEU-N of dialogues, 0 to 1.
    DialogueBleu {
        /// The options.
        bleu: DialogueBleu,
        /// N, 1 to 4.
        order: usize,
    },
}

impl CorpusMetric {
    /// What the score is computed from, by sentence, with one reference each.
    ///
    /// # Panics
    /// If there are no hypotheses or not as many references.
    pub fn statistics<H: AsRef<str>, R: AsRef<str>>(&self, hypotheses: &[H], references: &[R]) -> ItemStatistics {
        let references: Vec<[&str; 1]> = references.iter().map(|reference| [reference.as_ref()]).collect();
        let row = |counts: &mut dyn Iterator<Item = u64>| counts.map(|count| count as f64).collect();
        let of_bleu =
            |BleuStatistics { sys_len, ref_len, counts, totals }| row(&mut [sys_len, ref_len].into_iter().chain(counts).chain(totals));
        match self {
            Self::Bleu(bleu) => ItemStatistics::new(bleu.corpus_statistics(hypotheses, &references).into_iter().map(of_bleu)),
            Self::DialogueBleu { bleu, .. } => {
                ItemStatistics::new(bleu.corpus_statistics(hypotheses, &references).into_iter().map(of_bleu))
            }
            Self::ChrF(chrf) => ItemStatistics::new(chrf.corpus_statistics(hypotheses, &references).into_iter().map(|statistics| {
                row(&mut statistics.orders.into_iter().flat_map(|order| [order.hypothesis, order.reference, order.matches]))
            })),
        }
    }

    /// The score that summed statistics amount to, 0 to 100 or, of dialogues, 0 to 1.
    ///
    /// # Panics
    /// If the statistics are those of another metric.
    pub fn score(&self, sum: &[f64]) -> f64 {
        let counts = whole(sum);
        let of_bleu = || {
            let order = |first: usize| std::array::from_fn(|order| counts[first + order]);
            BleuStatistics { sys_len: counts[0], ref_len: counts[1], counts: order(2), totals: order(2 + super::bleu::MAX_ORDER) }
        };
        match self {
            Self::Bleu(bleu) => bleu.score(&of_bleu()).score,
            Self::DialogueBleu { bleu, order } => bleu.score(&of_bleu()).bleu.get(order.wrapping_sub(1)).copied().unwrap_or(f64::NAN),
            Self::ChrF(chrf) => {
                let overlap = |order: &[u64]| NgramOverlap { hypothesis: order[0], reference: order[1], matches: order[2] };
                chrf.score(&ChrFStatistics { orders: counts.chunks_exact(3).map(overlap).collect() }).score
            }
        }
    }
}

/// The statistics of the items of a test set, in the order of the set.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemTable {
    set: String,
    statistics: Vec<String>,
    identity: String,
    rows: Vec<Vec<f64>>,
}

/// A table in its file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemFile {
    items: String,
    statistics: Vec<String>,
    rows: Vec<Vec<f64>>,
}

impl ItemTable {
    /// A table without items for the test set `set`, with these statistics of each item.
    pub fn new(set: &str, statistics: &[&str]) -> Self {
        let statistics = statistics.iter().map(|&name| name.to_owned()).collect();
        Self { set: set.to_owned(), statistics, identity: String::new(), rows: Vec::new() }
    }

    /// Adds an item: what tells it from other items (its text, its right answer), and its statistics.
    ///
    /// # Panics
    /// If there are not as many values as the table has statistics.
    pub fn push(&mut self, item: &[u8], values: &[f64]) {
        assert_eq!(values.len(), self.statistics.len(), "an item has a value for each of {:?}", self.statistics);
        self.identity = hex::encode(Sha256::new().chain_update(&self.identity).chain_update(item).finalize());
        self.rows.push(values.to_vec());
    }

    /// [`push`](Self::push) for an item that is told from others by tokens or other numbers.
    pub fn push_tokens(&mut self, tokens: impl IntoIterator<Item = i64>, values: &[f64]) {
        self.push(&tokens.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>(), values);
    }

    /// The test set.
    pub fn set(&self) -> &str {
        &self.set
    }

    /// A checksum of what the items are, whatever was said of them.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether all values are finite, and so can be written.
    pub fn is_finite(&self) -> bool {
        self.rows.iter().flatten().all(|value| value.is_finite())
    }

    /// The terms of a score; `None` if the table has other statistics.
    pub fn terms(&self, score: &ItemScore) -> Option<ItemStatistics> {
        let place = |name: &String| self.statistics.iter().position(|other| other == name);
        let places = score.statistics.iter().map(place).collect::<Option<Vec<_>>>()?;
        let rows: Vec<Vec<f64>> = self.rows.iter().map(|row| places.iter().map(|&place| row[place]).collect()).collect();
        score.combination.terms(&rows)
    }

    /// JSON, with a line for each item.
    pub fn to_json(&self) -> String {
        let statistics = serde_json::to_string(&self.statistics).expect("strings are JSON");
        let mut text = format!("{{\"items\": \"{}\", \"statistics\": {statistics}, \"rows\": [", self.identity);
        for (index, row) in self.rows.iter().enumerate() {
            let values: Vec<String> = row.iter().map(f64::to_string).collect();
            let _ = write!(text, "{}\n[{}]", if index > 0 { "," } else { "" }, values.join(","));
        }
        text.push_str("\n]}\n");
        text
    }

    /// What [`to_json`](Self::to_json) wrote for the test set `set`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn from_json(set: &str, text: &str) -> Result<Self, String> {
        let ItemFile { items, statistics, rows } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if let Some(item) = rows.iter().position(|row| row.len() != statistics.len()) {
            return Err(format!("item {} has {} values for {} statistics", item + 1, rows[item].len(), statistics.len()));
        }
        Ok(Self { set: set.to_owned(), statistics, identity: items, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LikelihoodTotal, TextUnit, pearson};
    use super::*;

    fn scored(combination: Combination, rows: &[Vec<f64>]) -> f64 {
        combination.score(&combination.terms(rows).unwrap().total())
    }

    #[test]
    fn items_make_the_scores_that_the_metrics_have() {
        let (actual, predicted) = ([0, 1, 2, 1, 1, 0, 2, 1], [0, 1, 1, 1, 0, 0, 2, 2]);
        let matrix = ConfusionMatrix::from_labels(3, &actual, &predicted);
        let rows: Vec<Vec<f64>> = actual.iter().zip(predicted).map(|(&actual, predicted)| vec![actual as f64, predicted as f64]).collect();
        let of = |score| scored(Combination::Confusion { classes: 3, score }, &rows);
        assert_eq!(of(ConfusionScore::F1), matrix.binary_scores(1).f1);
        assert_eq!(of(ConfusionScore::MacroF1), matrix.macro_f1().unwrap());
        assert_eq!(of(ConfusionScore::Matthews), matrix.matthews_correlation().value);

        let mut total = LikelihoodTotal::new(TextUnit::Word);
        total.record(70.0, 30);
        total.record(10.0, 5);
        let blocks = [vec![70.0, 30.0], vec![10.0, 5.0]];
        assert_eq!(scored(Combination::ExpRatio, &blocks), total.perplexity().unwrap());
        assert_eq!(scored(Combination::Ratio, &blocks), total.nats_per_unit().unwrap());
        assert_eq!(scored(Combination::Ratio, &[vec![0.0, 0.0]]), 0.0);
        assert_eq!(scored(Combination::Mean, &[vec![1.0], vec![0.0], vec![1.0], vec![1.0]]), 0.75);
    }

    #[test]
    fn a_correlation_keeps_its_digits_far_from_zero() {
        let x: Vec<f64> = (0..50).map(|n| 1e6 + f64::from(n * 37 % 101) * 1e-3).collect();
        let y: Vec<f64> = (0..50).map(|n| f64::from(n * 53 % 97)).collect();
        let rows: Vec<Vec<f64>> = x.iter().zip(&y).map(|(&x, &y)| vec![x, y]).collect();
        let (found, expected) = (scored(Combination::Pearson, &rows), pearson(&x, &y).unwrap());
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
        assert!(scored(Combination::Pearson, &[vec![1.0, 2.0], vec![1.0, 3.0]]).is_nan(), "no direction");
    }

    #[test]
    fn a_table_comes_back_from_its_file() {
        let mut table = ItemTable::new("test", &["nats", "tokens"]);
        table.push_tokens([3, -1], &[0.1 + 0.2, 3.0]);
        table.push(b"second", &[1e-12, 0.0]);
        let text = table.to_json();
        assert_eq!(text.lines().count(), 4);
        assert!(text.contains("\n[0.30000000000000004,3],\n[0.000000000001,0]\n]}\n"), "{text}");
        let again = ItemTable::from_json("test", &text).unwrap();
        assert_eq!((again.identity(), again.set()), (table.identity(), "test"));
        let score = ItemScore::new("test", "blocks", Combination::Ratio, &["nats", "tokens"]);
        assert_eq!(again.terms(&score), table.terms(&score));
        assert_eq!(again.terms(&ItemScore::new("test", "blocks", Combination::Mean, &["right"])), None);
    }

    #[test]
    fn what_is_no_table_is_refused_with_its_place() {
        let refused = |text: &str| ItemTable::from_json("test", text).unwrap_err();
        assert!(refused(r#"{"items": "", "statistics": ["right"], "rows": [[1], [1, 2]]}"#).contains("item 2 has 2 values for 1"));
        assert!(refused("{\"items\": \"\",\n\"rows\"").contains("line 2"));
        let labels = Combination::Confusion { classes: 2, score: ConfusionScore::F1 };
        assert_eq!(labels.terms(&[]), None);
        let many = Combination::Confusion { classes: usize::MAX, score: ConfusionScore::F1 };
        assert_eq!(many.terms(&[vec![1.0, 1.0]]), None);
        for row in [[2.0, 0.0], [-1.0, 0.0], [0.5, 0.0], [f64::NAN, 0.0]] {
            assert_eq!(labels.terms(&[row.to_vec()]), None, "{row:?}");
        }
    }

    #[test]
    fn the_checksum_is_of_the_items_and_their_order_alone() {
        let table = |items: [&str; 2], values: [f64; 2]| {
            let mut table = ItemTable::new("test", &["right"]);
            items.iter().zip(values).for_each(|(item, value)| table.push(item.as_bytes(), &[value]));
            table.identity().to_owned()
        };
        assert_eq!(table(["a", "b"], [0.0, 1.0]), table(["a", "b"], [1.0, 1.0]));
        assert_ne!(table(["a", "b"], [0.0, 1.0]), table(["b", "a"], [0.0, 1.0]));
        assert_ne!(table(["ab", ""], [0.0, 1.0]), table(["a", "b"], [0.0, 1.0]));
    }

    #[test]
    fn a_record_says_how_a_score_is_made() {
        let bleu = ItemScore::of_texts("news", CorpusMetric::DialogueBleu { bleu: DialogueBleu::default(), order: 2 });
        let labels = ItemScore::new("dev", "examples", Combination::Confusion { classes: 2, score: ConfusionScore::Matthews }, &["a", "b"]);
        for score in [bleu, labels] {
            let text = serde_json::to_string(&score).unwrap();
            assert_eq!(serde_json::from_str::<ItemScore>(&text).unwrap(), score, "{text}");
        }
    }
}
