//! Options and their validation.

use burn::module::RunningState;

use super::buckets::{Directions, Hash, Hashing};
use super::chunks::Chunking;
use super::{Lsh, formula};
use crate::mechanisms::prelude::*;
use crate::mechanisms::shared_qk::Scale;

/// Number of buckets of a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "give an even number of buckets, or two even numbers in a list")]
pub enum BucketCount {
    /// One hash with this even number of values.
    One(usize),
    /// Two independent hashes with these even numbers of values; the number of buckets is their product.
    Factorised([usize; 2]),
}

/// Source of the random rotations of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rotations {
    /// Drawn once, and saved with the model.
    #[default]
    Fixed,
    /// Drawn anew for each call with a random key that is not a decoding step; otherwise the saved rotations.
    PerCall,
}

/// Default maximum of directions per hash. Projecting to `b / 2` directions takes `b / 2` multiplications per query channel; attention takes twice `chunk`.
const MOST_DIRECTIONS: usize = 64;

/// Options without effect if nothing is hashed.
const OF_HASHING: &[&str] = &[
    "buckets",
    "chunk",
    "rounds",
    "before",
    "after",
    "bucket_mask",
    "duplicate_correction",
    "wrap",
    "across_rounds",
    "full_attention_below",
    "hashing",
    "rotations",
];

/// Name of the null variant, whose buckets do not depend on content.
const RANDOM: &str = "lsh-random";

/// Configuration of [`Lsh`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct LshConfig {
    /// Buckets per round: an even number, or two for two factors (default: twice the maximal length over `chunk`, rounded up to even). Above 128 the default
    /// uses about as many buckets in two factors, since hashing would take longer than attention.
    #[setters(into)]
    pub buckets: Option<BucketCount>,
    /// Positions of a chunk, `m`, at least 1 (default: 64, or a quarter of the maximal length if that is less).
    #[setters(into)]
    pub chunk: Option<usize>,
    /// Rounds of hashing, at least 1 (default 4).
    pub rounds: usize,
    /// Number of chunks that a query looks back (default 1).
    pub before: usize,
    /// Number of chunks that a query looks ahead (default: 1 in encoders; 0 in decoders, where the rest of a bucket is the future).
    #[setters(into)]
    pub after: Option<usize>,
    /// Whether a query sees only its own bucket (default), or all chunks that it looks at.
    pub bucket_mask: bool,
    /// Whether a pair that meets in several rounds counts once (default).
    pub duplicate_correction: bool,
    /// Scale of the logits (default: as in the paper).
    pub scale: Scale,
    /// Whether the first and last chunks of a round are neighbours (default: no).
    pub wrap: bool,
    /// Whether the chunks of all rounds form one circle, as in public code (default: no). The first chunk of a round then looks back at the last chunk of the
    /// previous round. Requires `wrap`, no `bucket_mask`, and at least two rounds.
    pub across_rounds: bool,
    /// Maximum length for full attention instead of hashing (default: twice `chunk`; if neither is given, at most half the maximal length). A decoding step
    /// counts the capacity of its state.
    #[setters(into)]
    pub full_attention_below: Option<usize>,
    /// Criterion for the bucket of a position (default: angular).
    pub hashing: Hashing,
    /// Source of the rotations (default: fixed).
    pub rotations: Rotations,
}

impl Default for LshConfig {
    fn default() -> Self {
        Self {
            buckets: None,
            chunk: None,
            rounds: 4,
            before: 1,
            after: None,
            bucket_mask: true,
            duplicate_correction: true,
            scale: Scale::Paper,
            wrap: false,
            across_rounds: false,
            full_attention_below: None,
            hashing: Hashing::Angular,
            rotations: Rotations::Fixed,
        }
    }
}

impl LshConfig {
    /// Remedy if `across_rounds` would change nothing.
    fn idle_across_rounds(&self) -> Option<&'static str> {
        match self {
            Self { wrap: false, .. } => Some("set wrap to true"),
            Self { bucket_mask: true, .. } => Some("set bucket_mask to false: other rounds have other buckets"),
            Self { rounds: 0 | 1, .. } => Some("give at least 2 rounds"),
            _ => None,
        }
    }

    /// Chunk size in a model with this maximal length.
    pub fn chunk_at(&self, max_length: usize) -> usize {
        self.chunk.unwrap_or_else(|| quarter(max_length, 64))
    }

    /// Longest unhashed sequence in a model with this maximal length.
    pub fn longest_full_attention(&self, max_length: usize) -> usize {
        self.full_attention_below.unwrap_or_else(|| {
            let chunks = self.chunk_at(max_length).saturating_mul(2);
            // An explicit chunk size counts as in the released code, even if it then disables hashing.
            if self.chunk.is_some() { chunks } else { chunks.min(max_length / 2) }
        })
    }

    /// Number of chunks after its own that a query sees.
    pub(crate) fn chunks_after(&self, role: Role) -> usize {
        self.after.unwrap_or(usize::from(role == Role::Encoder))
    }

    /// Number of values of each hash factor.
    pub(crate) fn factors(&self, max_length: usize) -> Vec<usize> {
        match self.buckets {
            None => {
                let halves = max_length.div_ceil(self.chunk_at(max_length).max(1)).max(1);
                if halves <= MOST_DIRECTIONS {
                    return vec![2 * halves];
                }
                let first = halves.saturating_mul(2).isqrt().next_multiple_of(2);
                vec![first, halves.div_ceil(first / 2).next_multiple_of(2)]
            }
            Some(BucketCount::One(count)) => vec![count],
            Some(BucketCount::Factorised(counts)) => counts.to_vec(),
        }
    }
}

impl Mechanism for LshConfig {
    type Module = AttentionOf<Lsh>;
    const NAME: &'static str = "lsh";
    const CARD: Card = Card {
        variant: "Lsh",
        description: "Restricts queries to the keys of their hash bucket (Reformer) or of a random bucket.",
        source: "Kitaev, Kaiser and Levskaya 2020, section 2",
        links: &["https://arxiv.org/abs/2001.04451", "https://github.com/google/trax/tree/master/trax/models/reformer"],
        kind: Kind::Whole,
        time: "r n (c + 2 m) d",
        state: "2 n d + r n H",
        letters: &[
            ("r", "rounds of hashing, option `rounds`"),
            ("c", "half the buckets of a round"),
            ("m", "positions of a chunk, option `chunk`, by default 64, at most `L / 4`"),
        ],
        differences: &[
            "Public code (trax, transformers, reformer-pytorch) does not restrict a query to its bucket (`bucket_mask = false`).",
            "In public code the first chunk looks at the last chunk of all rounds (`wrap = true` and `across_rounds = true`).",
            "Public code does not correct for duplicates (`duplicate_correction = false`).",
            "Two of the three public implementations do not divide by `sqrt(D)` (`scale = \"code\"`).",
        ],
        sizes: &["chunk", "full_attention_below"],
        tensors: &[
            ("query_key.weight", "shared projection of queries and keys [d_in, d_out]; heads lie side by side in d_out"),
            ("rotations", "random rotations of the hash [rounds, heads, d_head, half the buckets]; those of two factors side by side"),
        ],
        ..Card::DEFAULT
    };

    fn drawn(self) -> Self {
        Self { chunk: Some(8), buckets: Some(BucketCount::One(8)), rounds: 2, full_attention_below: Some(0), ..self }
    }

    fn named() -> Vec<(&'static str, Self)> {
        vec![(Self::NAME, Self::default()), (RANDOM, Self { hashing: Hashing::Random, ..Self::default() })]
    }

    fn description(&self) -> &'static str {
        match self.hashing {
            Hashing::Random => "Restricts queries to the keys of a random bucket, independent of content.",
            _ => "Restricts queries to the keys of their hash bucket (Reformer).",
        }
    }

    fn name(&self) -> String {
        if self.hashing == Hashing::Random { RANDOM } else { Self::NAME }.to_owned()
    }

    fn resolved(self, max_length: usize) -> Self {
        let buckets = match self.factors(max_length)[..] {
            [first, second] => BucketCount::Factorised([first, second]),
            ref factors => BucketCount::One(factors[0]),
        };
        let full_attention_below = Some(self.longest_full_attention(max_length));
        Self { chunk: Some(self.chunk_at(max_length)), buckets: Some(buckets), full_attention_below, ..self }
    }

    /// # Errors
    /// If a number of buckets is odd or 0, `chunk` or `rounds` is 0, or `across_rounds` has no effect.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one_if_given("chunk", self.chunk)?;
        check.at_least_one("rounds", self.rounds)?;
        let factors = self.factors(spec.max_length);
        if factors.iter().any(|&factor| factor == 0 || factor % 2 == 1) {
            return Err(check.refuse("buckets", format!("{factors:?}"), "a hash has an even number of values, of at least 2"));
        }
        if factors.iter().try_fold(1, |product: i32, &factor| product.checked_mul(factor.try_into().ok()?)).is_none() {
            return Err(check.refuse("buckets", format!("{factors:?}"), "give fewer than 2^31 in all"));
        }
        match self.idle_across_rounds() {
            Some(remedy) if self.across_rounds => Err(check.refuse("across_rounds", true, format!("leave it out, or {remedy}"))),
            _ => Ok(()),
        }
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        let is_idle = option == "across_rounds" && self.idle_across_rounds().is_some();
        is_idle.then_some("across_rounds is for wrap = true, bucket_mask = false and at least two rounds")
    }

    fn idle(&self, spec: &LayerSpec, length: usize) -> Option<Idle> {
        let max_length = spec.max_length;
        let idle = |what| Some(Idle { what, sizes: Self::CARD.sizes, options: OF_HASHING });
        if length <= self.longest_full_attention(max_length) {
            return idle("hashes nothing and hides nothing");
        }
        let is_one_chunk = length <= self.chunk_at(max_length) && !self.bucket_mask;
        if is_one_chunk { idle("hides nothing, since one chunk holds all positions,") } else { None }
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Lsh {
        let LayerSpec { role, d_model, heads, max_length, dropout, .. } = *spec;
        let linear = |name| init::linear(d_model, d_model, false, &key.named(name), device);
        let factors = self.factors(max_length);
        let shape = [self.rounds, heads, spec.d_head(), factors.iter().sum::<usize>() / 2];
        Lsh {
            query_key: linear("query_key"),
            value: linear("value"),
            output: linear("output"),
            rotations: RunningState::new(Init::Normal(1.0).tensor(shape, &key.named("rotations"), device)),
            hash: Hash { factors, hashing: self.hashing, directions: Directions::default() },
            chunking: Chunking {
                size: self.chunk_at(max_length),
                before: self.before,
                after: self.chunks_after(role),
                wrap: self.wrap,
                across_rounds: self.across_rounds,
                bucket_mask: self.bucket_mask,
                duplicate_correction: self.duplicate_correction,
            },
            scale: self.scale,
            limit: spec.limit(),
            full_attention_below: self.longest_full_attention(max_length),
            draws_per_call: self.rotations == Rotations::PerCall,
            heads,
            dropout,
        }
    }

    fn formula(&self) -> Option<Formula<'_>> {
        Some(formula::of(self))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        Some(ParameterFormula::trained(&[(3, "d^2")]).plus(ParameterFormula::fixed(&[(1, "r d c")])))
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        let values = self.factors(max_length).into_iter().fold(0, usize::saturating_add);
        vec![("r", self.rounds), ("c", values / 2)]
    }
}
