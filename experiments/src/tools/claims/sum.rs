//! Weighted sums of scores, which tests look at.

use serde::Deserialize;

/// A weighted sum of scores, or the ratio of two.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// The block that contenders are of, unless they name another.
    pub block: String,
    /// The score, by its name in the records.
    pub metric: String,
    /// Its name. The scores of a ratio have the name of the metric.
    pub unit: String,
    /// Factor of the recorded scores, such as 100 for percentage points.
    #[serde(default = "one")]
    pub scale: f64,
    /// Contenders that are added.
    pub plus: Vec<Term>,
    /// Contenders that are subtracted.
    #[serde(default)]
    pub minus: Vec<Term>,
    /// Contenders that are added in the divisor; none for a plain sum.
    #[serde(default)]
    pub by_plus: Vec<Term>,
    /// Contenders that are subtracted in the divisor.
    #[serde(default)]
    pub by_minus: Vec<Term>,
}

impl Sum {
    /// Whether it is the ratio of two sums.
    pub fn is_ratio(&self) -> bool {
        !self.by_plus.is_empty()
    }

    /// All contenders, each with what its score counts.
    pub fn terms(&self) -> impl Iterator<Item = (&Term, f64)> {
        let sides = [(&self.plus, 1.0), (&self.minus, -1.0), (&self.by_plus, 1.0), (&self.by_minus, -1.0)];
        sides.into_iter().flat_map(|(terms, sign)| terms.iter().map(move |term| (term, sign * term.weight())))
    }
}

fn one() -> f64 {
    1.0
}

/// A contender in a sum: its name alone, or with where it is found.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Term {
    /// An attention or model of the sum's block.
    Name(String),
    /// A name with further facts.
    Placed(Placed),
}

/// A contender and where it is found.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// Attention or model by name.
    pub contender: String,
    /// Its block, where it is not that of the sum.
    #[serde(default)]
    pub block: Option<String>,
    /// The part of the block, where it has several.
    #[serde(default)]
    pub part: Option<String>,
    /// The data set, where the part has several.
    #[serde(default)]
    pub data: Option<String>,
    /// The score, where it is not that of the sum.
    #[serde(default)]
    pub metric: Option<String>,
    /// Its weight, greater than 0.
    #[serde(default = "one")]
    pub weight: f64,
}

impl Term {
    /// The name of the attention or model.
    pub fn contender(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Placed(placed) => &placed.contender,
        }
    }

    /// Its weight, without a sign.
    pub fn weight(&self) -> f64 {
        match self {
            Self::Name(_) => 1.0,
            Self::Placed(placed) => placed.weight,
        }
    }

    /// The block, where it is not that of the sum.
    pub fn block(&self) -> Option<&str> {
        self.placed().and_then(|placed| placed.block.as_deref())
    }

    /// The part of the block, where it has several.
    pub fn part(&self) -> Option<&str> {
        self.placed().and_then(|placed| placed.part.as_deref())
    }

    /// The data set, where the part has several.
    pub fn data(&self) -> Option<&str> {
        self.placed().and_then(|placed| placed.data.as_deref())
    }

    /// The score, where it is not that of the sum.
    pub fn metric(&self) -> Option<&str> {
        self.placed().and_then(|placed| placed.metric.as_deref())
    }

    fn placed(&self) -> Option<&Placed> {
        match self {
            Self::Name(_) => None,
            Self::Placed(placed) => Some(placed),
        }
    }
}
