//! A claim, as its file says it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::sum::Sum;

/// A published claim and how it is tested again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name, such as `C01`: that of its file.
    #[serde(skip)]
    pub name: String,
    /// What is claimed, in one sentence.
    pub sentence: String,
    /// Who claims it.
    pub source: String,
    /// What was published.
    pub published: Vec<Published>,
    /// How the runs differ from the paper's.
    pub deviations: String,
    /// What must be kept in mind beside the pitfalls that are computed.
    pub beware: String,
    /// Primary tests, which decide.
    #[serde(rename = "test")]
    pub tests: Vec<Test>,
    /// Secondary contrasts, which are shown and decide nothing.
    #[serde(default)]
    pub described: Vec<Described>,
    /// What voids a test.
    #[serde(default, rename = "void")]
    pub pitfalls: Vec<Pitfall>,
}

/// Numbers of one table or passage of a paper.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Paper, table and measure.
    pub r#where: String,
    /// Numbers that were found in the paper or in an independent account.
    #[serde(default)]
    pub verified: BTreeMap<String, f64>,
    /// Numbers from memory. They may set the direction of a test, never its size.
    #[serde(default)]
    pub recalled: BTreeMap<String, f64>,
    /// Facts beside the numbers.
    #[serde(default)]
    pub note: String,
}

/// A primary test.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Test {
    /// A difference in the claimed direction.
    Difference(Difference),
    /// No loss beyond a margin.
    NoLoss(NoLoss),
    /// One contender fails more often than another, over equal draws.
    Failures(Failures),
    /// A ratio of costs.
    Cost(Cost),
}

/// The claim that a contrast is at least so large.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// What is compared.
    pub name: String,
    /// The smallest value that matters, in the unit of the contrast.
    pub least: f64,
    /// The contrast, positive in the claimed direction.
    pub of: Sum,
    /// Features that the test waits for.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// The claim that a contrast is no less than minus a margin, or lies within it on both sides.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoLoss {
    /// What is compared.
    pub name: String,
    /// The margin, in the unit of the contrast.
    pub margin: f64,
    /// Whether a gain beyond the margin counts against the claim as well.
    #[serde(default)]
    pub both_sides: bool,
    /// The contrast, negative for a loss.
    pub of: Sum,
    /// Features that the test waits for.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// The claim that the contender that is added fails more often than the one that is subtracted.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failures {
    /// What is compared.
    pub name: String,
    /// The smallest difference in the share of failed runs that matters, in percentage points.
    pub least: f64,
    /// A run has failed if its score is undefined, or below this.
    pub below: f64,
    /// The two contenders and their score.
    pub of: Sum,
    /// Features that the test waits for.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// The claim that a ratio of costs lies on one side of a number.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// What is compared.
    pub name: String,
    /// The number.
    pub ratio: f64,
    /// On which side of it.
    pub claimed: Side,
    /// What is divided; none where the feature that measures it is missing.
    #[serde(default)]
    pub numerator: Option<Measured>,
    /// The divisor.
    #[serde(default)]
    pub denominator: Option<Measured>,
    /// Features that the test waits for.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// A side of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// More than it, or equal.
    AtLeast,
    /// Less than it, or equal.
    AtMost,
}

/// A cost that was measured in rounds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Measured {
    /// Seconds of a layer.
    Layer(Timing),
    /// Anything else.
    Series(NamedSeries),
}

/// The seconds of one pass of a mechanism, in the rounds of `cost`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// The block.
    pub block: String,
    /// Its part.
    #[serde(default)]
    pub part: Option<String>,
    /// The mechanism.
    pub attention: String,
    /// What was run: `forward`, `training` or `decode`.
    pub pass: String,
    /// Elements of a sequence.
    pub length: usize,
}

/// A cost that a `rounds.json` has under a name, such as those of `cost depth`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedSeries {
    /// The block.
    pub block: String,
    /// Its part.
    #[serde(default)]
    pub part: Option<String>,
    /// Whose cost it is.
    pub series: String,
    /// What is counted.
    pub unit: String,
}

/// A secondary contrast.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// What is compared.
    pub name: String,
    /// The contrast.
    pub of: Sum,
}

/// What voids tests.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pitfall {
    /// The mean score of a contender is at chance, at the majority class, at the floor or at the ceiling.
    Score {
        /// The contender and its score, a sum of one term.
        of: Sum,
        /// The score must be greater than this.
        #[serde(default)]
        above: Option<f64>,
        /// The score must be less than this.
        #[serde(default)]
        below: Option<f64>,
        /// The meaning of the bound.
        why: String,
        /// The test that it voids, by its name; by default all.
        #[serde(default)]
        test: Option<String>,
    },
    /// A pattern or a compression hides nothing, since texts are no longer than it.
    HidesNothing {
        /// The block.
        block: String,
        /// Its part.
        #[serde(default)]
        part: Option<String>,
        /// The contender.
        contender: String,
        /// The option of its configuration that says how large window, chunk or rank is.
        option: String,
        /// Elements of a text, which must be more.
        length: i64,
        /// The test that it voids, by its name; by default all.
        #[serde(default)]
        test: Option<String>,
    },
    /// Contenders that must be of one size have unequal numbers of parameters.
    Parameters {
        /// The contenders: a sum of terms.
        of: Sum,
        /// By how much the largest may exceed the smallest, as a share of it.
        within: f64,
        /// The test that it voids, by its name; by default all.
        #[serde(default)]
        test: Option<String>,
    },
    /// The test means something only if another claim is reproduced.
    Requires {
        /// The other claim.
        claim: String,
    },
}

impl Test {
    /// What is compared.
    pub fn name(&self) -> &str {
        match self {
            Self::Difference(test) => &test.name,
            Self::NoLoss(test) => &test.name,
            Self::Failures(test) => &test.name,
            Self::Cost(test) => &test.name,
        }
    }

    /// Features that it waits for.
    pub fn missing(&self) -> &[String] {
        match self {
            Self::Difference(test) => &test.missing,
            Self::NoLoss(test) => &test.missing,
            Self::Failures(test) => &test.missing,
            Self::Cost(test) => &test.missing,
        }
    }

    /// The contrast; `None` of costs.
    pub fn sum(&self) -> Option<&Sum> {
        match self {
            Self::Difference(test) => Some(&test.of),
            Self::NoLoss(test) => Some(&test.of),
            Self::Failures(test) => Some(&test.of),
            Self::Cost(_) => None,
        }
    }

    /// What must be measured; none of scores.
    pub fn measured(&self) -> impl Iterator<Item = &Measured> {
        let sides = match self {
            Self::Cost(Cost { numerator, denominator, .. }) => [numerator.as_ref(), denominator.as_ref()],
            _ => [None, None],
        };
        sides.into_iter().flatten()
    }

    /// Whether its p-value is adjusted for that of others. Ratios of costs have many cheap rounds and no p-value.
    pub fn is_adjusted(&self) -> bool {
        !matches!(self, Self::Cost(_))
    }
}

impl Measured {
    /// The block.
    pub fn block(&self) -> &str {
        match self {
            Self::Layer(timing) => &timing.block,
            Self::Series(series) => &series.block,
        }
    }

    /// Its part.
    pub fn part(&self) -> Option<&str> {
        match self {
            Self::Layer(timing) => timing.part.as_deref(),
            Self::Series(series) => series.part.as_deref(),
        }
    }
}

impl Pitfall {
    /// The test that it voids; `None` for all.
    pub fn test(&self) -> Option<&str> {
        match self {
            Self::Score { test, .. } | Self::HidesNothing { test, .. } | Self::Parameters { test, .. } => test.as_deref(),
            Self::Requires { .. } => None,
        }
    }

    /// The sum that it looks at.
    pub fn sum(&self) -> Option<&Sum> {
        match self {
            Self::Score { of, .. } | Self::Parameters { of, .. } => Some(of),
            _ => None,
        }
    }
}

impl Claim {
    /// The blocks that it needs, each once, in the order of its tests.
    pub fn blocks(&self) -> Vec<&str> {
        let mut blocks: Vec<&str> = Vec::new();
        let mut add = |block| {
            if !blocks.contains(&block) {
                blocks.push(block);
            }
        };
        for test in &self.tests {
            if let Some(sum) = test.sum() {
                sum.terms().for_each(|(term, _)| add(term.block().unwrap_or(&sum.block)));
            }
            test.measured().for_each(|measured| add(measured.block()));
        }
        for Described { of, .. } in &self.described {
            of.terms().for_each(|(term, _)| add(term.block().unwrap_or(&of.block)));
        }
        blocks
    }

    /// Features that its tests wait for, each once.
    pub fn missing(&self) -> Vec<&str> {
        let mut missing: Vec<&str> = self.tests.iter().flat_map(|test| test.missing()).map(String::as_str).collect();
        missing.sort_by_key(|feature| (feature.len(), feature.to_string()));
        missing.dedup();
        missing
    }
}
