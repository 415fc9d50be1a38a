use heedful_models::parts::position::PositionConfig;

use super::*;
use crate::tasks::testing::Case;

fn config<F: Family>(kind: &str) -> Config<Sequences<F>> {
    let task = toml::from_str(&format!("kind = \"{kind}\"")).unwrap();
    let mut config = Config::<Sequences<F>>::default();
    config.own.data = SequenceData { task, batch: 3, train: 20, valid: 2, test: 2 };
    config.model = ModelSettings { d_model: 8, d_ff: 8, positions: PositionConfig::Learned, ..config.model };
    config
}

/// Every task is learnt and scored: the loss has gradients everywhere, and all scores are numbers.
fn can_be_learnt<F: Family>(kind: &str) {
    let case = Case::new(config::<F>(kind), "dot-product");
    let (set, model, task) = (&case.data, case.model(1, &Device::flex().autodiff()), Sequences::<F>::task(case.setup()));
    let key = RandomKey::from_seed(2);
    let batch = task.batch(&task.epoch(1, &key)[0], 1, &key);
    let pass = Pass { key, epoch_key: key, step: 1, steps: 1, carried: &mut () };
    let loss = task.loss(&model, &batch, pass, &mut Probe::off()).total();
    let mean = loss.clone().into_scalar::<f32>() / task.units(&batch) as f32;
    let chance = (set.task.vocabulary() as f32).ln();
    assert!((0.2 * chance..5.0 * chance).contains(&mean), "{kind}: {mean}, chance {chance}");
    let gradients = burn::optim::GradientsParams::from_grads(loss.backward(), &model);
    assert!(gradients.get::<2>(model.language.embedding.tokens.weight.id).is_some(), "{kind}");
    let scores = task.evaluate(&burn::module::Module::valid(&model), Split::Test, &Interrupt::default()).unwrap();
    assert!(scores.metrics.iter().all(|(_, value)| (0.0..=1.0).contains(value)), "{kind}: {:?}", scores.metrics);
    assert_eq!(set.test.iter().any(|level| level.1), scores.items.len() == 2, "{kind}");
}

#[test]
fn every_task_can_be_learnt() {
    SequenceTask::RECALL.into_iter().for_each(can_be_learnt::<RecallFamily>);
    SequenceTask::TRACK.into_iter().for_each(can_be_learnt::<TrackFamily>);
}

#[test]
fn what_guessing_scores_is_said() {
    let mut config = config::<TrackFamily>("parity");
    config.own.data.test = 500;
    let set = Track::open(&config).unwrap().remove(0);
    assert!((0.5..0.53).contains(&set.most_frequent()), "{}", set.most_frequent());
    assert!(Track::card(&set).description.contains(&format!("right {:.1} % of the time", 100.0 * set.most_frequent())));
}

#[test]
fn batches_are_of_one_level_and_an_epoch_has_each_sequence_once() {
    let case = Case::new(config::<RecallFamily>("mqar"), "dot-product");
    let (set, task) = (&case.data, Recall::task(case.setup()));
    let batches = task.epoch(1, &RandomKey::from_seed(3));
    for batch in &batches {
        let asked: Vec<usize> = batch.iter().map(|&index| set.training(index).targets.len()).collect();
        assert!(asked.iter().all(|&count| count == asked[0]), "{asked:?}");
    }
    let mut all: Vec<usize> = batches.concat();
    all.sort_unstable();
    assert_eq!(all, (0..20).collect::<Vec<_>>());
    assert_ne!(batches, task.epoch(2, &RandomKey::from_seed(4)));
}

#[test]
fn checksums_tell_tasks_and_sizes_apart_and_nothing_else() {
    let sha256 = |config: &Config<Recall>| Recall::open(config).unwrap()[0].sha256.clone();
    let first = config::<RecallFamily>("mqar");
    assert_eq!(sha256(&first), sha256(&first));
    let mut batches = first.clone();
    batches.own.data.batch = 7;
    assert_eq!(sha256(&first), sha256(&batches));
    let mut more = first.clone();
    more.own.data.train = 21;
    assert_ne!(sha256(&first), sha256(&more));
    assert_ne!(sha256(&first), sha256(&config("induction")));
}

#[test]
fn the_first_layer_of_all_models_is_the_same() {
    let layers = |config: &Config<Recall>, attention: &str| {
        let model = config.language_model(&Attention::new(attention.parse().unwrap()));
        (0..2).map(|layer| model.attention.at(layer).to_string()).collect::<Vec<_>>()
    };
    let mut config = Config::<Recall>::default();
    assert_eq!(layers(&config, "gla"), ["base-conv", "gla"]);
    config.own.first_layer = None;
    assert_eq!(layers(&config, "gla"), ["gla", "gla"]);
    assert_eq!(Config::<Track>::default().own.first_layer, None);
}

#[test]
fn chance_is_the_most_frequent_token_and_where_values_are_recalled_any_of_them() {
    let of = |kind: &str| {
        let mut config = config::<RecallFamily>(kind);
        (config.own.data.valid, config.own.data.test) = (50, 50);
        let set = Recall::open(&config).unwrap().remove(0);
        Recall::trivial_baselines(&config, &set, &Interrupt::new()).unwrap().unwrap()
    };
    let baselines = of("mqar");
    let [chance, any] = &baselines[..] else { panic!("{baselines:?}") };
    let of = |baseline: &heedful_runs::trivial::TrivialBaseline, metric: &str| baseline.metric(metric).unwrap();
    // A level with n pairs is right 1 time in n.
    let level = any.metrics.keys().find(|name| name.ends_with("n=4")).expect("there is a level with four pairs");
    assert!((0.15..0.35).contains(&of(any, level)), "{any:?}");
    assert!(of(chance, "token accuracy") < 0.1 && of(chance, "token accuracy") < of(any, "token accuracy"), "{chance:?}");
    assert!(chance.dev.contains_key("token accuracy"));
}
