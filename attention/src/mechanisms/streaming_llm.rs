//! StreamingLLM, attention sinks and a window (Xiao, Tian, Chen, Han and Lewis 2023, section 3.2).
//!
//! Query `i` sees the first `f` keys, the attention sinks, and the last `W` keys `i - W + 1 ..= i`, its own position included. In trained models the first keys
//! have weight whatever they hold, and a window without them fails as soon as they leave it. Decoding remembers `f + W` keys and values, however long the
//! sequence is.
//!
//! Positions are those inside this cache, `0 .. f + W`. Keys are remembered without positions and get those that they have at each step, and the query stands
//! at `min(i, f + W - 1)`. So the distance to a key of the window is that in the sequence, and the distance to sink `j` is `min(i, f + W - 1) - j`, which is
//! never longer than the cache. The positions of `rotary` and `alibi` can move in this way, and `dot-product` has none. Other scores are refused unless
//! `positions` is `sequence`. Positions that a model adds to its elements stay those of the sequence.
//!
//! The paper decodes in this way with models that were trained on all keys. A whole sequence gives what its steps give, and has gradients, so that models can
//! be trained in this way too: the scores of sinks are a product of thin factors beside those of the window. Decoding remembers all keys where a mask hides
//! others than padding at the left, and where another pattern is over or under this one. With a memory of earlier segments, the first keys are those of the
//! memory. In an encoder, which sees ahead, the window is on either side, `|i - j| < W`.
//!
//! Weights of an untrained layer on 32 random elements: rows are queries, columns are keys, one square for each head.
//!
#![doc = include_str!("../../pictures/streaming-llm.svg")]

use std::ops::Range;

use crate::mechanisms::prelude::*;

/// Configuration of StreamingLLM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct StreamingLlmConfig {
    /// How many of the first keys a query sees, `f`, at least 1 (default 4, as in the paper).
    pub sinks: usize,
    /// How many of the last keys a query sees, `W`, its own position included, at least 1 (default: 256, or a quarter of the maximal length if that is less;
    /// table 1 of the paper has 1020).
    #[setters(into)]
    pub window: Option<usize>,
    /// Which positions queries and keys have: `cache` (default), those inside the cache of sinks and window, or `sequence`, those in the sequence, with which
    /// decoding remembers all keys.
    pub positions: StreamingPositions,
    /// How it is computed (default: blocked).
    pub execution: PatternExecution,
    /// What scores the keys (default: dot-product attention).
    #[setters(into)]
    pub logits: AnyMechanism,
}

/// Which positions queries and keys have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamingPositions {
    /// Those inside the cache.
    #[default]
    Cache,
    /// Those in the sequence.
    Sequence,
}

impl Default for StreamingLlmConfig {
    fn default() -> Self {
        let (positions, execution) = (StreamingPositions::default(), PatternExecution::default());
        Self { sinks: 4, window: None, positions, execution, logits: AnyMechanism::default() }
    }
}

/// The pattern of StreamingLLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinksAndWindow {
    /// How many of the first keys a query sees.
    pub sinks: usize,
    /// How many of the last keys a query sees, its own position included, at least 1.
    pub window: usize,
}

impl StreamingLlmConfig {
    /// How many of the last keys a query sees in a model of this maximal length.
    pub fn window_at(&self, max_length: usize) -> usize {
        self.window.unwrap_or_else(|| quarter(max_length, 256))
    }
}

impl Mechanism for StreamingLlmConfig {
    type Module = LogitsOf<Restricted>;
    const NAME: &'static str = "streaming-llm";
    const OVER: Option<Over<Self>> = Some(Over { logits: |own| &own.logits, with: |own, logits| Self { logits, ..own } });
    const CARD: Card = Card {
        variant: "StreamingLlm",
        description: "Restricts queries to attention sinks and the last positions, counted inside the cache, over logits that allow it.",
        source: "Xiao, Tian, Chen, Han and Lewis 2023, section 3.2",
        links: &["https://arxiv.org/abs/2309.17453", "https://github.com/mit-han-lab/streaming-llm"],
        time: "n (f + W) d",
        state: "2 (f + W) d",
        letters: &[
            ("f", "first keys that a query sees, option `sinks`"),
            ("W", "keys that a query sees, option `window`, by default 256, at most `L / 4`"),
        ],
        differences: &[
            "The released code counts the keys that it keeps between steps: its `recent_size` is `window - 1` here.",
            "The released code forgets keys between steps, before a prompt as many as prompt and answer may need, so that positions of a long step see caches of different lengths; here each sees its own full cache, as if it came alone.",
        ],
        sizes: &["window", "sinks"],
        // It stands in no other cache than its own.
        positioning: Some(Positioning::Sequence),
        ..Card::PATTERN
    };

    fn drawn(self) -> Self {
        Self { sinks: 2, window: Some(8), ..self }
    }

    fn resolved(self, max_length: usize) -> Self {
        Self { window: Some(self.window_at(max_length)), logits: self.logits.resolved(max_length), ..self }
    }

    /// # Errors
    /// If there are no sinks or the window is empty, or what is restricted has no logits, has positions that cannot be those inside a cache, or is wrong itself.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        if self.sinks == 0 {
            return Err(check.refuse("sinks", 0, "give at least 1, or use the mechanism sliding-window, which has none"));
        }
        check.at_least_one_if_given("window", self.window)?;
        // Only what is right itself has positions to ask for.
        self.validate_inner(spec)?;
        if self.logits.positioning() == Positioning::Length {
            let remedy =
                "the cache forgets keys, and its logits need all of them, turned for the length so far; give another scaling than dynamic";
            return Err(check.refuse("logits", self.logits.name(), remedy));
        }
        if self.positions == StreamingPositions::Cache && self.logits.positioning() == Positioning::Sequence {
            let able = AnyMechanism::families_that(|able| able.can_be_restricted() && able.positioning() < Positioning::Sequence);
            let remedy = format!(
                "restrict an attention that has logits without positions, or with such as can be those inside a cache: {able}; or set positions to sequence"
            );
            return Err(check.refuse("logits", self.logits.name(), remedy));
        }
        Ok(())
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        let is_idle = option == "positions" && self.logits.positioning() == Positioning::None;
        is_idle.then_some("positions is for logits that have positions, such as rotary@streaming-llm")
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Restricted {
        let (sinks, window) = (self.sinks, self.window_at(spec.max_length));
        let is_cached = self.logits.positioning() == Positioning::None || self.positions == StreamingPositions::Cache;
        let cache = is_cached.then_some(SinkCache { sinks, window });
        let pattern = SinksAndWindow { sinks, window };
        Restricted::over(&self.logits, pattern, self.execution, &spec.in_cache(cache), key, device).keeping(cache)
    }

    /// Xiao et al. 2023, section 3.2: the first and the last keys, with positions inside the cache.
    fn formula(&self) -> Option<Formula<'_>> {
        let is_sink = |position: usize| position < self.sinks;
        let shown = Formula::default()
            .shows(move |query, key| is_sink(query.position_of(key)) || query.distance(key) < self.window_at(query.spec().max_length));
        Some(shown.logit(move |query, key| {
            let full = self.sinks + self.window_at(query.spec().max_length) - 1;
            if self.positions == StreamingPositions::Cache && is_sink(query.position_of(key)) && query.position() > full {
                return query.standing_at(full).logit(&self.logits, "logits.0", key);
            }
            query.logit(&self.logits, "logits.0", key)
        }))
    }
}

impl Pattern for SinksAndWindow {
    fn sees(&self, _head: usize, i: usize, j: usize) -> bool {
        j < self.sinks || i.abs_diff(j) < self.window
    }

    fn block(&self, _head: usize, i: usize) -> usize {
        i / self.window
    }

    fn candidates(&self, _head: usize, queries: &[usize], keys: Range<usize>) -> Vec<usize> {
        let first = queries.iter().min().map_or(0, |&first| first.saturating_sub(self.window - 1));
        let end = queries.iter().max().map_or(0, |&last| last.saturating_add(self.window));
        let sinks = keys.start..keys.end.min(self.sinks);
        sinks.chain(first.max(keys.start).max(self.sinks)..end.min(keys.end)).collect()
    }

    fn depends_on_head(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_hold_every_key_that_is_seen_once_and_in_order() {
        for (sinks, window) in [(1, 1), (4, 3), (2, 40)] {
            let pattern = SinksAndWindow { sinks, window };
            for (queries, keys) in [(0..3, 0..20), (5..9, 0..20), (18..20, 1..20), (18..20, 6..20)] {
                let queries: Vec<usize> = queries.collect();
                let candidates = pattern.candidates(0, &queries, keys.clone());
                assert!(candidates.is_sorted_by(|a, b| a < b) && candidates.iter().all(|key| keys.contains(key)), "{candidates:?}");
                let seen = keys.filter(|&j| queries.iter().any(|&i| pattern.sees(0, i, j)));
                assert!(seen.into_iter().all(|key| candidates.contains(&key)), "{pattern:?}, {queries:?}: {candidates:?}");
            }
        }
    }

    #[test]
    fn what_cannot_move_inside_a_cache_is_refused_by_its_name() {
        let place = LayerSpec::new(Role::Decoder, 8, 2).with_max_length(8);
        let validate = |name: &str| name.parse::<AnyMechanism>().unwrap().validate(&place).map_err(|error| error.to_string());
        for logits in ["relative", "dot-product+synthesizer-random", "t5-bias", "streaming-llm"] {
            let error = validate(&format!("{logits}@streaming-llm")).unwrap_err();
            let name = logits.parse::<AnyMechanism>().unwrap().name();
            assert!(
                error.contains(&format!("`logits` is {name}: ")) && error.contains("rotary") && error.contains("set positions to sequence"),
                "{error}"
            );
            assert_eq!(validate(&format!("{logits}@streaming-llm{{positions=sequence}}")), Ok(()));
        }
        for logits in
            ["rotary", "alibi", "uniform", "alibi+dot-product", "rotary@soft-cap", "rotary@sigmoid", "alibi@output-gate", "rotary@local-1d"]
        {
            assert_eq!(validate(&format!("{logits}@streaming-llm")), Ok(()), "{logits}");
        }
        assert!(validate("streaming-llm{sinks=0}").unwrap_err().contains("use the mechanism sliding-window"));
        assert!(validate("streaming-llm{window=0}").unwrap_err().contains("`window` is 0"));
    }

    #[test]
    fn positions_of_scores_without_any_have_no_effect() {
        let reason = |name: &str| name.parse::<AnyMechanism>().unwrap().without_effect("positions", Role::Decoder);
        assert!(reason("streaming-llm").is_some() && reason("uniform@streaming-llm").is_some());
        assert!(reason("rotary@streaming-llm").is_none() && reason("relative@streaming-llm").is_none());
    }
}
