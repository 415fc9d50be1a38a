//! Configuration and card of the mechanism.

use super::Aft;
use crate::description::formula::softmax;
use crate::mechanisms::prelude::*;

/// Names of the forms other than the default.
const LOCAL: &str = "aft-local";
const SIMPLE: &str = "aft-simple";
/// Default smallest distance without a bias.
const WINDOW: usize = 32;
/// Width of the factors in the paper.
const RANK: usize = 128;

/// Pairs of positions that have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AftForm {
    /// All.
    #[default]
    Full,
    /// Positions less than the window apart.
    Local,
    /// None.
    Simple,
}

/// Configuration of [`Aft`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Setters)]
#[serde(default, deny_unknown_fields)]
#[setters(prefix = "with_", into)]
#[non_exhaustive]
pub struct AftConfig {
    /// Pairs of positions that have biases (default: `full`).
    pub form: AftForm,
    /// Smallest distance without a bias, at least 1; only for `form = "local"` (default: 32, or a quarter of the maximal length if that is less).
    pub window: Option<usize>,
    /// Whether biases are a product of factors, as in the paper (default: yes); otherwise the form `full` has a table of all pairs.
    pub factorised: bool,
    /// Width of the factors, at least 1 (default: 128, or a quarter of the maximal length if that is less).
    pub rank: Option<usize>,
    /// Standard deviation of the initial biases, at least 0 (default: 0.1). The factors are scaled so that their product has this deviation.
    pub init_std: f64,
}

impl Default for AftConfig {
    fn default() -> Self {
        Self { form: AftForm::Full, window: None, factorised: true, rank: None, init_std: 0.1 }
    }
}

impl AftConfig {
    /// Width of the factors for a maximal length.
    fn rank_at(&self, max_length: usize) -> usize {
        self.rank.unwrap_or_else(|| quarter(max_length, RANK))
    }

    /// Smallest distance without a bias, for the form `local`.
    fn window_at(&self, max_length: usize) -> Option<usize> {
        (self.form == AftForm::Local).then(|| self.window.unwrap_or_else(|| quarter(max_length, WINDOW)))
    }

    fn has_factors(&self) -> bool {
        self.factorised && self.form != AftForm::Simple
    }

    /// The bias of a pair, in the formula.
    fn bias(&self, query: &Query, key: usize) -> f64 {
        let (i, j) = (query.position(), query.position_of(key));
        match self.form {
            AftForm::Simple => 0.0,
            AftForm::Local if self.window_at(query.spec().max_length).is_some_and(|window| query.distance(key) >= window) => 0.0,
            AftForm::Full if !self.factorised => query.parameter("position_table").at(&[i, j]),
            AftForm::Full | AftForm::Local => dot(query.parameter("query_position").row(&[i]), query.parameter("key_position").row(&[j])),
        }
    }
}

impl Mechanism for AftConfig {
    type Module = AttentionOf<Aft>;
    const NAME: &'static str = "aft";
    const CARD: Card = Card {
        variant: "Aft",
        description: "Averages values per channel, weighted by keys and position biases, and gates the mean by the query.",
        source: "Zhai et al. 2021, section 3",
        links: &["https://arxiv.org/abs/2105.14103"],
        kind: Kind::Whole,
        time: "n^2 d",
        state: "2 n d",
        letters: &[("k", "the option `rank`, by default at most `L / 4`")],
        differences: &[
            "The paper's formula ends with the gate; an output projection follows here, as in other attentions and in code by others (aft-pytorch).",
            "Position biases start normal with the deviation `init_std`; aft-pytorch draws them Xavier-uniform. The authors published no code.",
            "The largest score is subtracted before the exponential; aft-pytorch overflows on large keys.",
            "`local` has the paper's parameters but the time of `full`; the paper saves time by sums over all positions with corrections near the query.",
            "The paper's `conv` form, with one key per head, is not implemented.",
            "Dropout acts before the output projection, since weights are not materialised.",
        ],
        sizes: &["window", "rank"],
        tensors: &[
            ("query_position", "factor u of the biases [query position, rank]"),
            ("key_position", "factor v of the biases [key position, rank]"),
            ("position_table", "biases [query position, key position]"),
        ],
        without_decay: &[r"Aft\.(query_position|key_position|position_table)$"],
        ..Card::DEFAULT
    };

    fn named() -> Vec<(&'static str, Self)> {
        let of = |form| Self { form, ..Self::default() };
        vec![(Self::NAME, Self::default()), (LOCAL, of(AftForm::Local)), (SIMPLE, of(AftForm::Simple))]
    }

    fn drawn(self) -> Self {
        let window = self.window.or((self.form == AftForm::Local).then_some(4));
        // Biases as large as keys, so that they have a visible effect.
        Self { window, init_std: 2.0, ..self }
    }

    fn description(&self) -> &'static str {
        match self.form {
            AftForm::Full => Self::CARD.description,
            AftForm::Local => "As `aft`, with position biases only within a window.",
            AftForm::Simple => "As `aft`, without position biases.",
        }
    }

    fn name(&self) -> String {
        match self.form {
            AftForm::Full => Self::NAME,
            AftForm::Local => LOCAL,
            AftForm::Simple => SIMPLE,
        }
        .to_owned()
    }

    fn resolved(self, max_length: usize) -> Self {
        let rank = self.has_factors().then(|| self.rank_at(max_length));
        Self { window: self.window_at(max_length).or(self.window), rank: rank.or(self.rank), ..self }
    }

    /// # Errors
    /// If a number is out of range, or belongs to another form.
    fn validate(&self, spec: &LayerSpec) -> Result<(), ConfigError> {
        let check = spec.check(Self::NAME);
        check.at_least_one_if_given("window", self.window)?;
        check.at_least_one_if_given("rank", self.rank)?;
        check.non_negative("init_std", self.init_std)?;
        if let Some(window) = self.window.filter(|_| self.form != AftForm::Local) {
            return Err(check.refuse("window", window, "leave it out, or set form to local"));
        }
        if !self.factorised && self.form != AftForm::Full {
            return Err(check.refuse("factorised", false, "leave it out, or set form to full: no other has a table"));
        }
        match self.rank.filter(|_| !self.has_factors()) {
            Some(rank) => Err(check.refuse("rank", rank, "leave it out: there are no factors")),
            None => Ok(()),
        }
    }

    fn idle(&self, spec: &LayerSpec, length: usize) -> Option<Idle> {
        if self.window_at(spec.max_length).is_some_and(|window| window >= length) {
            return Some(Idle { what: "has a window that covers all", sizes: &["window"], options: &["window"] });
        }
        (self.has_factors() && self.rank_at(spec.max_length) >= length).then_some(Idle {
            what: "has factors of full rank",
            sizes: &["rank"],
            options: &[],
        })
    }

    fn init(&self, spec: &LayerSpec, key: &RandomKey, device: &Device) -> Aft {
        let LayerSpec { d_model, heads, max_length, .. } = *spec;
        let linear = |name| init::linear(d_model, d_model, false, &key.named(name), device);
        let rank = self.rank_at(max_length);
        // A sum of k products of two normal numbers with deviation s has deviation sqrt(k) s^2.
        let factor = Init::Normal((self.init_std / (rank as f64).sqrt()).sqrt() as f32);
        let factor = |name| self.has_factors().then(|| factor.parameter([max_length, rank], &key.named(name), device));
        let table = || Init::Normal(self.init_std as f32).parameter([max_length, max_length], &key.named("position_table"), device);
        Aft {
            query: linear("query"),
            key: linear("key"),
            value: linear("value"),
            output: linear("output"),
            query_position: factor("query_position"),
            key_position: factor("key_position"),
            position_table: (self.form == AftForm::Full && !self.factorised).then(table),
            window: self.window_at(max_length),
            max_length: (self.form != AftForm::Simple).then_some(max_length),
            heads,
            dropout: spec.dropout,
            limit: spec.limit(),
        }
    }

    /// Zhai et al. 2021, equations 2 to 4, channel by channel.
    fn formula(&self) -> Option<Formula<'_>> {
        Some(Formula::default().head(|query| {
            let gates = query.projected("query", query.element());
            let of_seen = |map: &str| -> Vec<_> {
                (0..query.keys()).map(|key| query.sees(key).then(|| query.projected(map, query.attended(key)))).collect()
            };
            let (keys, values) = (of_seen("key"), of_seen("value"));
            let biases: Vec<_> = (0..query.keys()).map(|key| self.bias(query, key)).collect();
            let channel = |(channel, gate): (usize, &f64)| {
                let scores: Vec<_> = keys.iter().zip(&biases).map(|(key, bias)| Some(key.as_ref()?[channel] + bias)).collect();
                let weights = softmax(&scores);
                let mean: f64 = weights.iter().zip(&values).filter_map(|(weight, value)| Some(weight * value.as_ref()?[channel])).sum();
                formula::sigmoid(*gate) * mean
            };
            gates.iter().enumerate().map(channel).collect()
        }))
    }

    fn parameters(&self) -> Option<ParameterFormula> {
        let maps = ParameterFormula::trained(&[(4, "d^2")]);
        Some(match self.form {
            AftForm::Simple => maps,
            AftForm::Full if !self.factorised => maps.plus(ParameterFormula::trained(&[(1, "L^2")])),
            AftForm::Full | AftForm::Local => maps.plus(ParameterFormula::trained(&[(2, "k L")])),
        })
    }

    fn letters(&self, max_length: usize) -> Vec<(&'static str, usize)> {
        vec![("k", self.rank_at(max_length))]
    }

    fn without_effect(&self, option: &str, _role: Role) -> Option<&'static str> {
        let is_without_biases = self.form == AftForm::Simple;
        (is_without_biases && option == "init_std").then_some("its form is simple, which has no biases")
    }
}
