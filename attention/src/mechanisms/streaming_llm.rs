//! StreamingLLM: attention sinks and a sliding window (Xiao, Tian, Chen, Han and Lewis 2023, section 3.2).
//!
//! Query `i` sees the first `f` keys, the attention sinks, and the last `W` keys `i - W + 1 ..= i`, its own position included. Trained models assign weight to
//! the first keys regardless of content, so a plain window fails once they leave it. Decoding caches `f + W` keys and values, for any sequence length.
//!
//! Positions are those inside this cache, `0 .. f + W`. Keys are cached without positions and receive their current positions at each step; the query stands at
//! `min(i, f + W - 1)`. So distances to window keys equal those in the sequence, and the distance to sink `j` is `min(i, f + W - 1) - j`, at most the cache
//! length. The positions of `rotary` and `alibi` support such moves, and `dot-product` has none. Other scores are refused unless `positions` is `sequence`.
//! Positions that a model adds to its embeddings remain those of the sequence.
//!
//! The paper uses this decoding for models trained on all keys. A full forward pass returns the same results as decoding steps and supports gradients,
//! so models can also be trained this way. The scores of sinks are a product of thin factors, beside those of the window. Decoding caches all keys if a mask hides
//! other keys than left padding, or if another pattern is above or below this one. With a memory of earlier segments, the sinks are the first keys of the
//! memory. In an encoder the window is two-sided, `|i - j| < W`.
//!
//! Attention weights of an untrained layer on 32 random tokens, one square per head: rows are queries, columns are keys.
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
    /// Number of attention sinks, `f`, at least 1 (default 4, as in the paper).
    pub sinks: usize,
    /// Window size `W`, the query's own position included, at least 1 (default: 256, or a quarter of the maximal length if that is less; 1020 in table 1 of the
    /// paper).
    #[setters(into)]
    pub window: Option<usize>,
    /// Positions of queries and keys: `cache` (default), those inside the cache of sinks and window, or `sequence`, those in the sequence. With `sequence`,
    /// decoding caches all keys.
    pub positions: StreamingPositions,
    /// Execution (default: blocked).
    pub execution: PatternExecution,
    /// Mechanism that scores the keys (default: dot-product attention).
    #[setters(into)]
    pub logits: AnyMechanism,
}

/// Positions of queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamingPositions {
    /// Positions inside the cache.
    #[default]
    Cache,
    /// Positions in the sequence.
    Sequence,
}

impl Default for StreamingLlmConfig {
    fn default() -> Self {
        let (positions, execution) = (StreamingPositions::default(), PatternExecution::default());
        Self { sinks: 4, window: None, positions, execution, logits: AnyMechanism::default() }
    }
}

/// Pattern of StreamingLLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinksAndWindow {
    /// Number of attention sinks.
    pub sinks: usize,
    /// Window size, the query's own position included, at least 1.
    pub window: usize,
}

impl StreamingLlmConfig {
    /// Window size in a model with this maximal length.
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
        description: "Restricts queries to attention sinks and a sliding window, with positions inside the cache, over supported logits.",
        source: "Xiao, Tian, Chen, Han and Lewis 2023, section 3.2",
        links: &["https://arxiv.org/abs/2309.17453", "https://github.com/mit-han-lab/streaming-llm"],
        time: "n (f + W) d",
        state: "2 (f + W) d",
        letters: &[
            ("f", "first keys that a query sees, option `sinks`"),
            ("W", "keys that a query sees, option `window`, by default 256, at most `L / 4`"),
        ],
        differences: &[
            "The released `recent_size` counts the keys kept between steps and equals `window - 1` here.",
            "The released code evicts keys between steps, and before a prompt as many as prompt and answer may need. So positions of a long step see caches of different lengths; here each position sees its own full cache, as in single steps.",
        ],
        sizes: &["window", "sinks"],
        // This pattern runs in no cache but its own.
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
    /// If `sinks` or the window is 0, or the restricted attention has no logits, has positions that cannot move inside a cache, or is itself invalid.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        if self.sinks == 0 {
            return Err(check.refuse("sinks", 0, "give at least 1, or use the mechanism sliding-window, which has none"));
        }
        check.at_least_one_if_given("window", self.window)?;
        // Only a valid mechanism has positions to query.
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
