//! How far back the heads of a trained model look, where they learn it.

use burn::tensor::{Int, Tensor, TensorData};
use heedful_attention::contract::probe::{Observation, Probe};
use heedful_attention::description::multiplications::Multiplications;
use heedful_attention::mechanisms::adaptive_span::AdaptiveSpanConfig;
use heedful_attention::tensors::read::read;
use heedful_metrics::{Combination, ItemScore, ItemTable, MetricColumn};
use heedful_models::architectures::language_model::LanguageModel;

use super::Language;
use crate::session::experiment::{Scores, Setup};
use crate::train::batch::evaluation_windows;

/// Windows of the test text on which spans that depend on the text are observed.
const WINDOWS: usize = 16;

/// Mean of all heads.
const MEAN: &str = "mean span";

/// Means of the heads in the lower half of the layers and in the upper half; a layer in the middle counts to neither.
const HALVES: [(&str, &str); 2] = [("mean span, lower layers", "heads, lower layers"), ("mean span, upper layers", "heads, upper layers")];

/// Multiplications per token as a share of those with the longest spans.
const MULTIPLICATIONS: &str = "relative multiplications";

/// Adds the mean span of all heads, and those of the lower and the upper half of the layers with heads as their items, if the model has adaptive spans.
pub(super) fn add(scores: &mut Scores, model: &LanguageModel, tokens: &[u32], context: usize) {
    let layers = of_layers(model, tokens, context);
    if layers.is_empty() {
        return;
    }
    let mean = |layers: &[Vec<f64>]| layers.iter().flatten().sum::<f64>() / layers.iter().flatten().count() as f64;
    let half = layers.len() / 2;
    let signature = format!("positions, {WINDOWS} windows of {context} tokens at most");
    scores.push(MEAN, mean(&layers), signature.clone());
    if half > 0 {
        for ((name, set), layers) in HALVES.into_iter().zip([&layers[..half], &layers[layers.len() - half..]]) {
            scores.push(name, mean(layers), signature.clone());
            scores.push_items(name, ItemScore::new(set, "heads", Combination::Mean, &["span"]));
            let mut table = ItemTable::new(set, &["span"]);
            for (head, span) in layers.iter().flatten().enumerate() {
                table.push_tokens([head as i64], &[*span]);
            }
            scores.items.push(table);
        }
    }
    let told = |(layer, spans): (usize, &Vec<f64>)| {
        format!("layer {}: {}", layer + 1, spans.iter().map(|span| format!("{span:.1}")).collect::<Vec<_>>().join(", "))
    };
    scores.notes.push(format!("spans of the heads in positions, {}", layers.iter().enumerate().map(told).collect::<Vec<_>>().join("; ")));
}

/// Adds what the spans save, as Sukhbaatar et al. 2019 compare FLOPs: the multiplications per token of the model beside those of the same model with the longest
/// spans, if all layers have the same adaptive spans. A head counts with the keys in its span and in the ramp behind it, far from the beginning of a text.
pub(super) fn add_multiplications(scores: &mut Scores, setup: Setup<'_, Language>, model: &LanguageModel) {
    let Setup { config, data, attention } = setup;
    let mechanisms = attention.layout.decoder.mechanisms();
    let Some(own) = mechanisms[0].get::<AdaptiveSpanConfig>().filter(|own| mechanisms.iter().all(|other| other.get() == Some(*own))) else {
        return;
    };
    let context = config.own.data.context;
    let spans = of_layers(model, &data.test, context).concat();
    if spans.is_empty() {
        return;
    }
    let config = config.model(data.vocabulary, attention);
    let (longest, ramp) = (own.longest_at(config.block.max_length) as f64, own.ramp_at(config.block.max_length));
    let keys = spans.iter().map(|span| (span + ramp).min(longest)).sum::<f64>() / spans.len() as f64;
    // A single token is a single pair in each head.
    let Multiplications { maps, pairs } = config.multiplications(model, 1);
    let signature = format!("of a token far from the beginning, {WINDOWS} windows of {context} tokens at most");
    scores.push(MULTIPLICATIONS, (maps + pairs * keys) / (maps + pairs * longest), signature);
}

/// The mean span of each head of each layer; none of models without spans.
fn of_layers(model: &LanguageModel, tokens: &[u32], context: usize) -> Vec<Vec<f64>> {
    let windows = evaluation_windows(tokens.len(), context, context);
    let device = model.embedding.tokens.weight.device();
    let mut sums: Vec<Vec<(f64, usize)>> = Vec::new();
    for window in windows.iter().filter(|window| window.end - window.start == context).take(WINDOWS) {
        let inputs: Vec<i32> = window.inputs(tokens).iter().map(|&id| id as i32).collect();
        let inputs = Tensor::<2, Int>::from_data(TensorData::new(inputs, [1, context]), &device);
        let mut layer = 0;
        let mut listener = |_: &str, observation: Observation| {
            let Observation::Spans(spans) = observation else { return };
            let [batch, heads, queries] = spans.dims();
            let values: Vec<f32> = read(spans).iter::<f32>().collect();
            sums.resize((layer + 1).max(sums.len()), vec![(0.0, 0); heads]);
            for (index, value) in values.into_iter().enumerate() {
                let (sum, count) = &mut sums[layer][index / queries % heads];
                *sum += f64::from(value);
                *count += 1;
            }
            debug_assert_eq!(batch, 1, "windows are read one by one");
            layer += 1;
        };
        model.hidden(inputs, &[], None, &mut Probe::listening(&mut listener));
    }
    sums.into_iter().map(|heads| heads.into_iter().map(|(sum, count)| sum / count as f64).collect()).collect()
}

/// The columns of these scores.
pub(super) fn columns() -> [MetricColumn; 4] {
    let column = |name: &str, label| MetricColumn::new(name, label).digits(1);
    [
        column(MEAN, "span").defined_as("mean over heads and layers, in positions"),
        column(HALVES[0].0, "span below").defined_as("the same of the lower half of the layers"),
        column(HALVES[1].0, "span above").defined_as("the same of the upper half of the layers"),
        column(MULTIPLICATIONS, "mult. %").percent().defined_as("per token, of those of the same model with the longest spans"),
    ]
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use heedful_attention::description::AnyMechanism;
    use heedful_random::RandomKey;

    use super::*;
    use crate::model::ModelSettings;
    use crate::session::experiment::{Attention, Experiment};
    use crate::tasks::language::{LanguageConfig, LanguageData};

    fn scores(attention: AnyMechanism) -> Scores {
        let settings = ModelSettings { layers: 3, d_model: 16, heads: 2, d_ff: 16, max_length: 16, ..ModelSettings::default() };
        let model = settings.language_model(8, &attention.into()).init(&RandomKey::from_seed(1), &Device::flex());
        let tokens: Vec<u32> = (0..40).map(|index| index % 8).collect();
        let mut scores = Scores::default();
        add(&mut scores, &model, &tokens, 16);
        scores
    }

    #[test]
    fn spans_are_those_of_the_configuration_before_training() {
        let with = AdaptiveSpanConfig::default().with_max_span(12).with_initial(0.5);
        let Scores { metrics, items, notes, .. } = scores(with.into());
        assert_eq!(metrics.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), [MEAN, HALVES[0].0, HALVES[1].0]);
        let values: Vec<f64> = metrics.iter().map(|metric| metric.1).collect();
        assert!(values.iter().all(|value| *value == values[0] && *value >= 6.0 && *value <= 12.0), "{values:?}");
        // Three layers: the one in the middle is in neither half.
        assert_eq!(items.len(), 2);
        assert_eq!(items[0].identity(), items[1].identity());
        assert!(notes[0].contains("layer 3: "), "{notes:?}");
    }

    /// The score of a model with two layers of width 16 with two heads, and the size of its vocabulary.
    fn relative(attention: AnyMechanism) -> (Option<f64>, f64) {
        let data = LanguageData { context: 16, stride: 16, generated_words: 300, ..LanguageData::default() };
        let config = LanguageConfig {
            model: ModelSettings { layers: 2, d_model: 16, heads: 2, d_ff: 16, max_length: 16, ..ModelSettings::default() },
            own: Language { data, ..Language::default() },
            ..LanguageConfig::default()
        };
        let (data, attention) = (Language::open(&config).unwrap().remove(0), Attention::new(attention));
        let setup = Setup { config: &config, data: &data, attention: &attention };
        let model = Language::model(setup, &RandomKey::from_seed(1), &Device::flex()).unwrap();
        let mut scores = Scores::default();
        add_multiplications(&mut scores, setup, &model);
        (scores.metrics.first().map(|(_, value)| *value), data.vocabulary as f64)
    }

    #[test]
    fn spans_save_multiplications_of_pairs_alone() {
        let config = AdaptiveSpanConfig::default().with_max_span(12).with_ramp(2.0).with_initial(0.5);
        let (found, vocabulary) = relative(config.clone().into());
        // Four maps of the attention and two of the feed-forward network. The score of a pair is two scalar products and the ramp's factor; its value is the third.
        let maps = 2.0 * (4.0 + 2.0) * 256.0 + 16.0 * vocabulary;
        let pairs = 2.0 * 2.0 * (3.0 * 8.0 + 1.0);
        let expected = (maps + pairs * (6.0 + 2.0)) / (maps + pairs * 12.0);
        assert!((found.unwrap() - expected).abs() < 1e-6, "{found:?} instead of {expected}");
        assert_eq!(relative(config.with_initial(1.0).into()).0, Some(1.0));
        assert_eq!(relative(AnyMechanism::default()).0, None);
    }

    #[test]
    fn models_without_spans_have_no_such_score() {
        assert_eq!(scores(AnyMechanism::default()), Scores::default());
    }
}
