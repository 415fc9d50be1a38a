//! What counts of n-grams reach on the same tokens.

use heedful_host::display::grouped;
use heedful_host::interrupt::Interrupt;
use heedful_metrics::baselines::n_gram::{KneserNey, MOST_TOKENS, events};
use heedful_metrics::{LikelihoodTotal, TextUnit};
use heedful_runs::trivial::TrivialBaseline;

use super::{BITS_PER_BYTE, LanguageDataset};

/// The n-gram of the order that is best on the validation text; `None` if the interrupt was raised meanwhile.
pub(super) fn n_gram(data: &LanguageDataset, unit: TextUnit, interrupt: &Interrupt) -> Option<TrivialBaseline> {
    let model = KneserNey::train(&data.train, data.vocabulary);
    let valid = model.total_nats(events(&data.valid), interrupt)?;
    let test = model.total_nats(events(&data.test), interrupt)?;
    let best = (0..valid.len()).min_by(|&one, &other| valid[one].total_cmp(&valid[other]))?;
    let total = |nats: f64, tokens: &[u32]| LikelihoodTotal { nats, units: tokens.len() as u64 - 1, unit };
    let (valid, test) = (total(valid[best], &data.valid), total(test[best], &data.test));
    let seen = match data.train.len() - 1 {
        all if all > MOST_TOKENS => format!("the first {} of {} training tokens", grouped(MOST_TOKENS as u64), grouped(all as u64)),
        all => format!("all {} training tokens", grouped(all as u64)),
    };
    let description = format!(
        "the interpolated modified Kneser-Ney model of orders 1 to 5 that is best on the validation text, which counts {seen}; a token may follow those of the \
         line before."
    );
    let perplexity = |total: &LikelihoodTotal| total.perplexity().unwrap_or(f64::NAN);
    let baseline = TrivialBaseline::new(&format!("{}-gram", best + 1), description)
        .score("perplexity", perplexity(&test))
        .score("bits per unit", test.bits_per_unit().unwrap_or(f64::NAN))
        .score("valid perplexity", perplexity(&valid))
        .dev("perplexity", perplexity(&valid));
    Some(match unit {
        TextUnit::Character => {
            let of_bytes = test.counted_per(TextUnit::Byte, data.corpus.test_bytes() as u64);
            baseline.score(BITS_PER_BYTE, of_bytes.bits_per_unit().unwrap_or(f64::NAN))
        }
        _ => baseline,
    })
}
