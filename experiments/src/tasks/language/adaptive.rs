//! Adaptive input vectors and the adaptive softmax: the tokenisers that they suit.

use heedful_data::tokenise::TokeniserConfig;
use heedful_runs::settings::Settings;

use super::LanguageConfig;
use crate::session::error::ExperimentError;

/// Refuses them for tokens that are not ordered by frequency.
pub(super) fn check(settings: &Settings<LanguageConfig>) -> Result<(), ExperimentError> {
    let tokeniser = &settings.value.own.tokeniser;
    let remedy = match tokeniser {
        TokeniserConfig::Pretrained {} => "a pretrained model has vectors and an output of its own; leave it out".to_owned(),
        _ => format!(
            "rare tokens follow frequent ones in it, and those of tokeniser.kind = \"{}\" are not ordered by frequency; leave it out, or give \
             --set tokeniser.kind=word or character",
            tokeniser.kind()
        ),
    };
    Ok(settings.require("adaptive", settings.value.own.adaptive.is_none() || tokeniser.is_ordered_by_frequency(), remedy)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::language::Language;
    use crate::tasks::language::positions::PositionLosses;
    use crate::tasks::prelude::*;
    use crate::tasks::testing::{self, Case};

    const SMALL: [&str; 4] = [
        "model={d_model=16, heads=2, d_ff=16, max_length=16, dropout=0.0}",
        "data={context=16, stride=8, batch=2, generated_words=300}",
        "adaptive={cutoffs=[12, 30], div=2.0}",
        "training.steps=1",
    ];

    fn settings(further: &[&str]) -> Settings<LanguageConfig> {
        testing::settings::<Language>(None, &[&SMALL[..], further].concat())
    }

    fn attention(name: &str) -> Attention {
        Attention::new(name.parse().unwrap())
    }

    #[test]
    fn tokens_that_are_not_ordered_by_frequency_are_refused() {
        let refused = |further: &[&str]| {
            let error = Language::check(&settings(further), &[attention("dot-product")]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        for kind in ["bpe", "word-piece"] {
            let problem = refused(&[&format!("tokeniser={{kind='{kind}', vocabulary=300}}")]);
            assert!(problem.contains("`adaptive`") && problem.contains(kind) && problem.contains("ordered by frequency"), "{problem}");
        }
        let problem = check(&settings(&["tokeniser={kind='pretrained'}"])).unwrap_err().to_string();
        assert!(problem.contains("`adaptive`") && problem.contains("a pretrained model has vectors"), "{problem}");
        let problem = refused(&["output_bias=true"]);
        assert!(problem.contains("`output_bias`") && problem.contains("adaptive"), "{problem}");
        let problem = refused(&["adaptive={cutoffs=[30, 12]}"]);
        assert!(problem.contains("`adaptive.cutoffs`"), "{problem}");
        for kind in ["word", "character"] {
            assert!(Language::check(&settings(&[&format!("tokeniser.kind={kind}")]), &[attention("dot-product")]).is_ok(), "{kind}");
        }
        // What attentions show does not depend on the output.
        assert!(Language::check(&settings(&["histogram_texts=3"]), &[attention("dot-product")]).is_ok());
    }

    #[test]
    fn cutoffs_beyond_the_vocabulary_of_the_text_are_refused() {
        let fits = |further: &[&str]| Language::fits(Case::<Language>::new(settings(further).value, "dot-product").setup());
        assert!(fits(&[]).is_ok());
        let error = fits(&["adaptive={cutoffs=[12, 100000]}"]).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("`adaptive.cutoffs`"), "{error}");
    }

    #[test]
    fn a_model_is_scored_by_all_paths_alike() {
        for tied in ["tied=true", "tied=false"] {
            let mut case = Case::<Language>::new(settings(&[tied]).value, "dot-product");
            case.data.test.truncate(90);
            case.data.valid.truncate(90);
            let model = case.model(1, &Device::flex());
            assert!(model.output.is_none() && model.embedding.tokens.weight.dims() == [12, 16]);
            let mut positions = PositionLosses::new(16);
            let task = Language::task(case.setup());
            let scores = task.scores(&model, Split::Test, Some(&mut positions), &Interrupt::new()).unwrap();
            let perplexity = scores.metrics.iter().find(|(name, _)| name == "perplexity").unwrap().1;
            // These are of the logarithms of all probabilities, and the perplexity is of the loss.
            let (nats, tokens) =
                positions.means().fold((0.0, 0), |(nats, tokens), (_, own, mean)| (nats + own as f64 * mean, tokens + own));
            let expected = (nats / tokens as f64).exp();
            assert!((perplexity / expected - 1.0).abs() < 1e-4, "{perplexity} and {expected}");
        }
    }
}
