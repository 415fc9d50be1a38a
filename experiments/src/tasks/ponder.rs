//! Recurrent networks with an adaptive number of steps per element: the experiment `ponder`.
//!
//! Adaptive computation time in its original setting (Graves 2016): a recurrent network of one layer reads sequences of vectors
//! ([`vectors`](heedful_data::generate::vectors)), whose elements need different amounts of computation, and each step has a small cost. The networks have no
//! attention; the experiment compares whole models.

mod config;
mod task;

use heedful_attention::contract::layer_spec::Role;
use heedful_attention::description::AnyMechanism;
use heedful_data::generate::vectors::{VectorSequence, VectorTask};
use heedful_host::checksum::sha256_hex;
use heedful_models::architectures::recurrent::RecurrentNetwork;
use heedful_models::parts::position::PositionConfig;

use crate::tasks::prelude::*;

pub use config::{NetworkSettings, Ponder, PonderConfig, PonderData};
pub use task::{VectorBatch, VectorLearning};

/// Training sequences that the checksum of a data set is of, beside all others.
const CHECKED: usize = 64;

/// The sequences of a task. Those of training are drawn when they are needed.
#[derive(Debug)]
pub struct VectorSet {
    task: VectorTask,
    /// What sequences of training are drawn from.
    key: RandomKey,
    train: usize,
    valid: Vec<VectorSequence>,
    test: Vec<VectorSequence>,
    sha256: String,
    description: String,
}

impl VectorSet {
    fn new(data: &PonderData) -> Result<Self, ExperimentError> {
        let PonderData { task, train, valid, test, .. } = *data;
        let key = RandomKey::from_seed(0).named("vectors").named(task.name());
        let drawn = |split: &str, count: usize| -> Vec<VectorSequence> {
            let key = key.named(split);
            (0..count).map(|index| task.draw(&key.numbered(index as u64))).collect()
        };
        let written = serde_json::to_string(&task).map_err(ExperimentError::failure)?;
        let [groups, classes] = task.outputs();
        let description = format!(
            "the task {written}: at most {} vectors of {} numbers, {groups} times one of {classes} classes asked; {train} training, {valid} validation \
             and {test} test sequences",
            task.longest(),
            task.inputs(),
        );
        let set = Self {
            task,
            key: key.named("train"),
            train,
            valid: drawn("valid", valid),
            test: drawn("test", test),
            sha256: String::new(),
            description,
        };
        let first: Vec<VectorSequence> = (0..CHECKED.min(train)).map(|index| set.training(index)).collect();
        let sha256 = sha256_hex(format!("{} {first:?} {:?} {:?}", set.description, set.valid, set.test).as_bytes());
        Ok(Self { sha256, ..set })
    }

    /// The training sequence of this number.
    fn training(&self, index: usize) -> VectorSequence {
        self.task.draw(&self.key.numbered(index as u64))
    }
}

impl Experiment for Ponder {
    const NAME: &'static str = "ponder";
    const TITLE: &'static str = "Steps that recurrent networks take";
    const ABOUT: &'static str = "\
        Compare recurrent networks that take one step for each element of a sequence with networks that choose the number of steps for each \
        element.\n\nTrains a network of one layer for each model of --model and each seed on one of the tasks of Graves 2016, and prints a table of \
        accuracies, for elements and for whole sequences, and of steps per element.";
    const EXAMPLES: &'static [&'static str] = &[
        "--list",
        "--model act",
        "--model one-step,act --seeds 3 --out runs/comparison",
        "--model act --set training.learning_rate=3e-4 --steps 500",
        "--config runs/comparison/config.toml --out runs/again",
    ];
    const OPTIONS: &'static [CommandOption] = &[CommandOption::new(
        "task",
        "data.task.kind",
        OptionValue::Word("NAME", &VectorTask::NAMES),
        "Task; its options are set with --set data.task.NAME=VALUE",
    )];
    const MODELS: &'static [NamedModel] = config::MODELS;
    const DATA: &'static [&'static str] = &["data.task", "data.train", "data.valid", "data.test"];
    const BATCH: &'static str = "data.batch";
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = VectorSet;
    type Model = RecurrentNetwork;
    type Task<'a> = VectorLearning<'a>;

    fn defaults(config: &mut Config<Self>) {
        config.compare("", "one-step,act");
        let schedule = ScheduleConfig::Linear { warmup: 100, end: 1e-4 };
        config.training = TrainingConfig { steps: 3000, learning_rate: 1e-3, schedule, ..TrainingConfig::every(500) };
    }

    fn rules() -> Vec<Rule<Self>> {
        vec![
            Rule::counts(&["data.batch", "data.train", "data.valid", "data.test", "network.units"]),
            Rule::within(&["network.limit"], 1.0, 1e6),
            Rule::used(
                &["network.halting.freeze"],
                |_| false,
                "the states of the steps are blended, and those after the last have no weight; leave it out",
            ),
            Rule::used(
                &["network.limit", "network.halting"],
                |candidate| candidate.config.own.network.adaptive,
                "each element has one step; leave it out, or give network.adaptive=true",
            ),
        ]
    }

    fn check(settings: &Settings<PonderConfig>, _attentions: &[Attention]) -> Result<(), ExperimentError> {
        let config = &settings.value;
        let PonderData { task, .. } = &config.own.data;
        let has_attention = !config.run.attention.is_empty();
        settings.require("run.attention", !has_attention, "recurrent networks have no attention; give --model (--list shows all)")?;
        let is_default = config.model == Config::<Self>::default().model;
        settings.require(
            "model",
            is_default,
            "it applies to Transformers; leave it out: the fields of a recurrent network are under `network`",
        )?;
        task.validate().map_err(|error| settings.refuse(&format!("data.task.{}", error.field), error.reason))?;
        config.network().validate().map_err(ExperimentError::usage)
    }

    fn open(config: &PonderConfig) -> Result<Vec<VectorSet>, ExperimentError> {
        Ok(vec![VectorSet::new(&config.own.data)?])
    }

    fn card(data: &VectorSet) -> Card<'_> {
        Card::new(data.task.name(), &data.sha256, data.description.clone())
    }

    /// There are none.
    fn attentions(_attention: &Attention) -> Vec<(Role, AnyMechanism)> {
        Vec::new()
    }

    fn sizes(config: &PonderConfig) -> ModelSettings {
        let settings = ModelSettings { layers: 1, d_model: 1, heads: 1, d_ff: 1, max_length: 1, dropout: 0.0, ..config.model.clone() };
        ModelSettings { positions: PositionConfig::None, ..settings }
    }

    fn task(setup: Setup<'_, Self>) -> VectorLearning<'_> {
        VectorLearning { set: setup.data, batch: setup.config.own.data.batch }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<RecurrentNetwork, ExperimentError> {
        Ok(setup.config.network().init(key, device))
    }

    fn columns() -> Vec<MetricColumn> {
        task::columns()
    }

    fn trivial_baselines(config: &PonderConfig, data: &VectorSet, _interrupt: &Interrupt) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(Some(vec![VectorLearning { set: data, batch: config.own.data.batch }.trivial_baseline()]))
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use heedful_models::architectures::recurrent::CellKind;

    use super::*;
    use crate::tasks::testing::Case;

    fn config(kind: &str) -> PonderConfig {
        let mut config = PonderConfig::default();
        let task = toml::from_str(&format!("kind = \"{kind}\"")).unwrap();
        config.own.data = PonderData { task, batch: 5, train: 20, valid: 6, test: 12 };
        config.own.network.units = 8;
        config
    }

    #[test]
    fn every_task_can_be_learnt_and_says_what_was_pondered() {
        for kind in VectorTask::NAMES {
            let case = Case::new(config(kind), "dot-product");
            let (network, task) = (case.model(1, &Device::flex().autodiff()), Ponder::task(case.setup()));
            let key = RandomKey::from_seed(2);
            let batch = task.batch(&task.epoch(1, &key)[0], 1, &key);
            let pass = Pass { key, epoch_key: key, step: 1, steps: 1, carried: &mut () };
            let loss = task.loss(&network, &batch, pass, &mut Probe::off()).total();
            let mean = loss.clone().into_scalar::<f32>() / task.units(&batch) as f32;
            let [groups, classes] = case.data.task.outputs();
            let chance = groups as f32 * (classes as f32).ln();
            assert!((0.3 * chance..3.0 * chance).contains(&mean), "{kind}: {mean}, chance {chance}");
            let gradients = burn::optim::GradientsParams::from_grads(loss.backward(), &network);
            // Two biased maps, one without biases, and the halting unit.
            assert_eq!(gradients.len(), 2 + 1 + 2 + 2, "{kind}");
            let scores = task.evaluate(&network.valid(), Split::Test, &Interrupt::default()).unwrap();
            let value = |name: &str| scores.metrics.iter().find(|(metric, _)| metric == name).unwrap().1;
            assert!(["sequence accuracy", "element accuracy"].iter().all(|name| (0.0..=1.0).contains(&value(name))), "{kind}");
            let (steps, cost) = (value("ponder steps"), value("ponder cost"));
            assert!((1.0..=20.0).contains(&steps) && cost > steps && cost <= steps + 1.0 + 1e-3, "{kind}: {steps}, {cost}");
        }
    }

    #[test]
    fn the_most_frequent_answer_is_counted_over_elements_and_sequences() {
        let sequence = |answers: &[u32]| {
            let targets = answers.iter().enumerate().map(|(at, &answer)| (at, vec![answer])).collect();
            VectorSequence { inputs: vec![0.0], targets }
        };
        let mut set = VectorSet::new(&config("parity").own.data).unwrap();
        // One of two sequences, two of three elements; the validation set asks for 1 more often than for 0.
        (set.valid, set.test) = (vec![sequence(&[1, 1, 0])], vec![sequence(&[1]), sequence(&[0, 1])]);
        let baseline = VectorLearning { set: &set, batch: 5 }.trivial_baseline();
        assert_eq!([baseline.metric("sequence accuracy"), baseline.metric("element accuracy")], [Some(0.5), Some(2.0 / 3.0)]);
        assert_eq!([baseline.dev["sequence accuracy"], baseline.dev["element accuracy"]], [0.0, 2.0 / 3.0]);
    }

    #[test]
    fn the_network_is_that_of_the_paper_unless_told_otherwise() {
        let of = |kind: &str| config(kind).network();
        assert_eq!((of("parity").cell, of("parity").inputs, of("parity").outputs), (CellKind::Tanh, 16, 1));
        assert_eq!((of("logic").cell, of("logic").inputs, of("logic").outputs), (CellKind::Lstm, 42, 1));
        assert_eq!((of("addition").inputs, of("addition").outputs), (30, 4 * 11));
        assert_eq!((of("sort").inputs, of("sort").outputs), (2, 6));
        let mut other = config("parity");
        other.own.network.cell = Some(CellKind::Lstm);
        assert_eq!((other.network().cell, other.network().limit), (CellKind::Lstm, 20));
        other.own.network.adaptive = false;
        assert_eq!(other.network().limit, 1);
    }

    #[test]
    fn one_output_tells_two_classes_by_its_logistic_function() {
        let case = Case::new(config("parity"), "dot-product");
        let mut network = case.model(1, &Device::flex());
        // Only the bias speaks: `ln(1 + e)` for each even parity, `ln(1 + e^-1)` for each odd one.
        network.output.weight = burn::module::Param::from_tensor(network.output.weight.val().zeros_like());
        network.output.bias = Some(burn::module::Param::from_tensor(burn::tensor::Tensor::ones([1], &Device::flex())));
        network.halting = heedful_models::block::halting::HaltingConfig { ponder_weight: 0.0, ..Default::default() }.init(
            8,
            &RandomKey::from_seed(1),
            &Device::flex(),
        );
        let (task, key) = (Ponder::task(case.setup()), RandomKey::from_seed(2));
        let items: Vec<usize> = (0..20).collect();
        let pass = Pass { key, epoch_key: key, step: 1, steps: 1, carried: &mut () };
        let loss = task.loss(&network, &task.batch(&items, 1, &key), pass, &mut Probe::off()).total().into_scalar::<f32>();
        let odd = items.iter().filter(|&&item| case.data.training(item).targets[0].1[0] == 1).count() as f32;
        let wanted = odd * (1.0 + (-1.0f32).exp()).ln() + (20.0 - odd) * (1.0 + 1.0f32.exp()).ln();
        assert!((loss - wanted).abs() < 1e-3, "{loss}, {wanted}");
    }
}
