//! Configuration of adaptive input vectors and the adaptive softmax.

use burn::tensor::Device;
use derive_setters::Setters;
use heedful_attention::contract::init;
use heedful_attention::prelude::*;
use serde::{Deserialize, Serialize};

use super::embedding::{AdaptiveEmbedding, Tail};
use super::softmax::{AdaptiveSoftmax, AdaptiveTables};

/// Configuration of [`AdaptiveEmbedding`] and [`AdaptiveSoftmax`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
pub struct AdaptiveConfig {
    /// First token of each tail: at least one, greater than 0, ascending, and below the number of tokens. Required.
    #[setters(skip)]
    pub cutoffs: Vec<usize>,
    /// Divisor of the vector width from cluster to cluster, at least 1 (default 4, as in Baevski and Auli 2019 and in PyTorch). The vectors of the last tail
    /// must have a width of at least 1.
    pub div: f64,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self { cutoffs: Vec::new(), div: 4.0 }
    }
}

/// Sizes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// Number of its tokens.
    pub(crate) tokens: usize,
    /// Width of its vectors.
    pub(crate) width: usize,
}

impl AdaptiveConfig {
    /// Configuration with tails that start at these tokens, ascending and greater than 0.
    pub fn new(cutoffs: impl Into<Vec<usize>>) -> Self {
        Self { cutoffs: cutoffs.into(), ..Self::default() }
    }

    /// Checks the configuration for a vocabulary and a width of the model.
    pub(crate) fn validate(&self, check: &Check, vocabulary: usize, d_model: usize) -> Result<(), ConfigError> {
        let cutoffs = || format!("{:?}", self.cutoffs);
        if self.cutoffs.is_empty() {
            return Err(check.refuse("adaptive.cutoffs", cutoffs(), "give the first token of each tail, at least one"));
        }
        if self.cutoffs[0] == 0 || self.cutoffs.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(check.refuse("adaptive.cutoffs", cutoffs(), "give tokens greater than 0 in ascending order, none twice"));
        }
        if self.cutoffs[self.cutoffs.len() - 1] >= vocabulary {
            let remedy = format!("give tokens below the size of the vocabulary, {vocabulary}: the last tail would have none");
            return Err(check.refuse("adaptive.cutoffs", cutoffs(), remedy));
        }
        if !(self.div >= 1.0 && self.div.is_finite()) {
            return Err(check.refuse("adaptive.div", self.div, "give a number of at least 1"));
        }
        let last = self.cutoffs.len();
        if self.width(last, d_model) == 0 {
            let remedy =
                format!("the vectors of tail {last} would have no width in a model of width {d_model}: give less, or fewer cutoffs");
            return Err(check.refuse("adaptive.div", self.div, remedy));
        }
        Ok(())
    }

    /// Number of tokens in the head.
    pub(crate) fn head(&self, vocabulary: usize) -> usize {
        self.cutoffs.first().map_or(vocabulary, |&first| first.min(vocabulary))
    }

    /// The clusters, the head first.
    pub(crate) fn clusters(&self, vocabulary: usize, d_model: usize) -> impl Iterator<Item = Cluster> {
        let ends = self.cutoffs.iter().copied().chain([vocabulary]);
        let starts = std::iter::once(0).chain(self.cutoffs.iter().copied());
        let clusters = starts.zip(ends).enumerate();
        clusters.map(move |(cluster, (start, end))| Cluster { tokens: end.saturating_sub(start), width: self.width(cluster, d_model) })
    }

    fn width(&self, cluster: usize, d_model: usize) -> usize {
        (d_model as f64 / self.div.powi(cluster as i32)).floor() as usize
    }

    fn tails(&self, vocabulary: usize, d_model: usize, key: &RandomKey, device: &Device) -> Vec<Tail> {
        let tail = |(index, Cluster { tokens, width }): (usize, Cluster)| {
            let key = key.named("tails").numbered(index as u64);
            Tail {
                tokens: init::embedding(tokens, width, &key.named("tokens"), device),
                projection: init::linear(width, d_model, false, &key.named("projection"), device),
            }
        };
        self.clusters(vocabulary, d_model).skip(1).enumerate().map(tail).collect()
    }

    /// Initialises the input vectors except those of the head.
    pub(crate) fn init_embedding(&self, vocabulary: usize, d_model: usize, key: &RandomKey, device: &Device) -> AdaptiveEmbedding {
        AdaptiveEmbedding {
            projection: init::linear(d_model, d_model, false, &key.named("projection"), device),
            tails: self.tails(vocabulary, d_model, key, device),
        }
    }

    /// Initialises the softmax, without its own vectors if tied.
    pub(crate) fn init_softmax(&self, vocabulary: usize, d_model: usize, tied: bool, key: &RandomKey, device: &Device) -> AdaptiveSoftmax {
        let own = || AdaptiveTables {
            head: init::embedding(self.head(vocabulary), d_model, &key.named("head"), device),
            tails: self.tails(vocabulary, d_model, key, device),
        };
        AdaptiveSoftmax {
            clusters: init::linear(d_model, self.cutoffs.len(), false, &key.named("clusters"), device),
            own: (!tied).then(own),
        }
    }
}
