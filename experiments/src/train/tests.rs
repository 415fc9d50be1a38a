//! The training loop end to end, on a small classifier.

mod ranks;
#[cfg(feature = "wgpu")]
mod read_backs;
mod shared;
mod unread;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use burn::module::{Module, Param};
use burn::nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::store::burn_pack::{Bytes, Reader};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use heedful_attention::mechanisms::adaptive_span::AdaptiveSpan;
use heedful_attention::prelude::*;
use heedful_backends::Backend;
use heedful_backends::device_failure::guarded;
use heedful_host::interrupt::Interrupt;
use rand::RngExt;
use rand::seq::SliceRandom;
use sha2::{Digest, Sha256};

use super::checkpoint::CheckpointFolder;
use super::disk::faulty::{Fault, FaultyDisk};
use super::parameter::tensors_by_path;
use super::*;
use crate::session::error::ProgramError;

const EXAMPLES: usize = 24;
const WIDTH: usize = 4;
const CLASSES: usize = 3;
const DIGEST: &str = "0123abcd";

#[derive(Module, Debug)]
struct Classifier {
    hidden: Linear,
    norm: LayerNorm,
    output: Linear,
}

impl Classifier {
    fn new(seed: u64) -> Self {
        let device = Device::flex().autodiff();
        let mut rng = RandomKey::from_seed(seed).rng();
        let mut param = |rows: usize, columns: usize| {
            let values: Vec<f32> = (0..rows * columns).map(|_| rng.random_range(-0.5..0.5)).collect();
            Param::from_data(TensorData::new(values, [rows, columns]), &device)
        };
        let mut hidden = LinearConfig::new(WIDTH, 5).init(&device);
        let mut output = LinearConfig::new(5, CLASSES).init(&device);
        hidden.weight = param(WIDTH, 5);
        output.weight = param(5, CLASSES);
        hidden.bias = Some(Param::from_data(TensorData::zeros::<f32, _>([5]), &device));
        output.bias = Some(Param::from_data(TensorData::zeros::<f32, _>([CLASSES]), &device));
        Self { hidden, norm: LayerNormConfig::new(5).init(&device), output }
    }

    fn logits(&self, inputs: Tensor<2>) -> Tensor<2> {
        self.output.forward(self.norm.forward(self.hidden.forward(inputs)).tanh())
    }
}

struct Batch {
    inputs: Tensor<2>,
    targets: Tensor<2, Int>,
    /// How many units each example stands for.
    weights: Tensor<2>,
    units: usize,
}

/// Classification of points; examples stand for 1 to 3 units each. What a test wants to go wrong is a field.
struct Points {
    inputs: Vec<[f32; WIDTH]>,
    targets: Vec<usize>,
    batch_size: usize,
    is_shuffled: bool,
    dropout: f64,
    /// Whether a running trace of the inputs is carried, and added to the next batch: state that matters.
    has_trace: bool,
    interrupt: Interrupt,
    /// The interrupt is raised after this many optimiser steps of the process.
    stop_after: Option<u64>,
    steps: Mutex<u64>,
    /// The interrupt is raised during this evaluation of the process, counted from 1.
    stop_in_evaluation: Option<u64>,
    evaluations: Mutex<u64>,
    spoil_loss_at: Option<u64>,
    spoil_gradient: bool,
    /// Penalties that change no gradient are added up to this step.
    penalised_steps: u64,
    /// The device is lost in this forward pass of the process, counted from 1.
    lose_device_in: Option<u64>,
    passes: AtomicU64,
    scripted: Option<Mutex<Vec<f64>>>,
}

impl Points {
    fn new() -> Self {
        let mut rng = RandomKey::from_seed(3).named("data").rng();
        let inputs: Vec<[f32; WIDTH]> = (0..EXAMPLES).map(|_| std::array::from_fn(|_| rng.random_range(-1.0..1.0))).collect();
        let targets = inputs.iter().map(|x| usize::from(x[0] + x[1] > 0.0) + usize::from(x[2] > 0.3)).collect();
        Self {
            inputs,
            targets,
            batch_size: 4,
            is_shuffled: true,
            dropout: 0.2,
            has_trace: true,
            interrupt: Interrupt::new(),
            stop_after: None,
            steps: Mutex::new(0),
            stop_in_evaluation: None,
            evaluations: Mutex::new(0),
            spoil_loss_at: None,
            spoil_gradient: false,
            penalised_steps: 0,
            lose_device_in: None,
            passes: AtomicU64::new(0),
            scripted: None,
        }
    }

    fn plain(batch_size: usize) -> Self {
        Self { batch_size, is_shuffled: false, dropout: 0.0, has_trace: false, ..Self::new() }
    }

    fn stopping_after(steps: u64) -> Self {
        Self { stop_after: Some(steps), ..Self::new() }
    }

    fn loss_of(&self, model: &Classifier) -> f64 {
        self.evaluate(model, Split::Valid, &self.interrupt).expect("it is not interrupted").metrics[0].1
    }

    fn units_of(item: usize) -> usize {
        1 + item % 3
    }
}

impl Task for Points {
    type Model = Classifier;
    type Batch = Batch;
    type Carried = f32;

    fn epoch(&self, _epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.inputs.len()).collect();
        if self.is_shuffled {
            order.shuffle(&mut key.rng());
        }
        order.chunks(self.batch_size.max(1)).map(<[usize]>::to_vec).collect()
    }

    fn batch(&self, items: &[usize], _epoch: u64, _key: &RandomKey) -> Batch {
        let device = Device::flex().autodiff();
        let count = items.len();
        let inputs: Vec<f32> = items.iter().flat_map(|&item| self.inputs[item]).collect();
        let targets: Vec<i32> = items.iter().map(|&item| self.targets[item] as i32).collect();
        let weights: Vec<f32> = items.iter().map(|&item| Self::units_of(item) as f32).collect();
        Batch {
            inputs: Tensor::from_data(TensorData::new(inputs, [count, WIDTH]), &device),
            targets: Tensor::from_data(TensorData::new(targets, [count, 1]), &device),
            weights: Tensor::from_data(TensorData::new(weights, [count, 1]), &device),
            units: items.iter().map(|&item| Self::units_of(item)).sum(),
        }
    }

    fn units(&self, batch: &Batch) -> usize {
        batch.units
    }

    fn loss(&self, model: &Classifier, batch: &Batch, pass: Pass<'_, f32>, probe: &mut Probe) -> TrainingLoss {
        let is_spoilt = self.spoil_loss_at == Some(pass.step);
        if probe.is_listening() {
            // The model is without autodiff here, the batch is not; the layers are made up.
            let values = if is_spoilt { [1.0, f32::NAN, f32::NAN] } else { [1.0; 3] };
            for (layer, value) in (6..).zip(values) {
                let output = || Observation::Activation(Tensor::full([1, 1, 1], value, &Device::flex()));
                probe.within("layer", Some(layer), |probe| probe.observe(output));
            }
            return batch.weights.clone().inner().sum().into();
        }
        if self.lose_device_in == Some(self.passes.fetch_add(1, Ordering::SeqCst) + 1) {
            // As drivers do: the thread that waits for the device learns no more than that there is no answer.
            let _ = std::thread::spawn(|| panic!("the device is lost")).join();
            panic!("no answer");
        }
        let count = batch.inputs.dims()[0];
        let mut inputs = batch.inputs.clone();
        if self.has_trace {
            let trace = *pass.carried;
            let mean = inputs.clone().mean().into_scalar::<f32>();
            inputs = inputs.add_scalar(trace);
            *pass.carried = 0.5 * trace + mean;
        }
        if self.dropout > 0.0 {
            let mut rng = pass.key.rng();
            let mask: Vec<f32> = (0..count * WIDTH).map(|_| f32::from(u8::from(!rng.random_bool(self.dropout)))).collect();
            inputs = inputs.clone() * Tensor::from_data(TensorData::new(mask, [count, WIDTH]), &inputs.device());
        }
        let inputs = inputs.cast(FloatDType::from(model.hidden.weight.val().dtype()));
        let logits = model.logits(inputs).cast(FloatDType::F32);
        let loss = (log_softmax(logits, 1).gather(1, batch.targets.clone()) * batch.weights.clone()).sum().neg();
        let loss = if self.spoil_gradient { loss + model.norm.gamma.val().mul_scalar(0.0).sqrt().sum() } else { loss };
        let loss = if is_spoilt { loss.mul_scalar(f64::NAN) } else { loss };
        let mut added = Losses::default();
        if pass.step <= self.penalised_steps {
            added.push("span", Tensor::full([1], 2.0, &Device::flex().autodiff()));
            added.push("ponder", Tensor::full([1], 0.5, &Device::flex().autodiff()));
            added.push("span", Tensor::full([1], 1.0, &Device::flex().autodiff()));
        }
        TrainingLoss::new(loss, &added, batch.units)
    }

    fn evaluate(&self, model: &Classifier, _split: Split, interrupt: &Interrupt) -> Option<Scores> {
        let mut evaluations = self.evaluations.lock().unwrap();
        *evaluations += 1;
        if self.stop_in_evaluation == Some(*evaluations) {
            self.interrupt.raise();
        }
        // One that no test wants to stop is too short to look.
        if self.stop_in_evaluation.is_some() && interrupt.is_raised() {
            return None;
        }
        if let Some(scripted) = &self.scripted {
            return Some(Scores::of("loss", scripted.lock().unwrap().remove(0), ""));
        }
        assert!(!model.devices()[0].is_autodiff(), "evaluation must not build a graph");
        let items: Vec<usize> = (0..self.inputs.len()).collect();
        let batch = self.batch(&items, 0, &RandomKey::from_seed(0));
        let chosen = log_softmax(model.logits(batch.inputs.inner()), 1).gather(1, batch.targets.inner());
        Some(Scores::of("loss", -f64::from(chosen.mean().into_scalar::<f32>()), ""))
    }

    fn selection(&self) -> Selection {
        Selection::lowest("loss")
    }

    fn after_step(&self, model: Classifier) -> Classifier {
        let mut steps = self.steps.lock().unwrap();
        *steps += 1;
        if self.stop_after.is_some_and(|after| steps.is_multiple_of(after)) {
            self.interrupt.raise();
        }
        model
    }

    fn carries(&self) -> Option<&'static str> {
        self.has_trace.then_some("a trace of the inputs; give no trace")
    }

    fn start_epoch(&self, carried: &mut f32) {
        *carried = 0.0;
    }

    fn save(&self, carried: &f32) -> Vec<(String, TensorData)> {
        if self.has_trace { vec![("trace".to_string(), TensorData::from([*carried]))] } else { Vec::new() }
    }

    fn restore(&self, saved: Vec<(String, TensorData)>) -> f32 {
        assert!(self.has_trace);
        assert_eq!(saved[0].0, "trace");
        saved[0].1.as_slice::<f32>().unwrap()[0]
    }
}

fn config() -> TrainingConfig {
    TrainingConfig {
        steps: 9,
        learning_rate: 0.05,
        schedule: ScheduleConfig::Cosine { warmup: 3, end: 0.001 },
        max_gradient_norm: Some(0.5),
        accumulate: 2,
        evaluate_every: 2,
        checkpoint_every: 3,
        log_every: 2,
        ..TrainingConfig::default()
    }
}

fn trainer<'a>(task: &'a Points, config: &'a TrainingConfig, folder: &Path) -> Trainer<'a, Points> {
    let key = RandomKey::from_seed(11);
    Trainer::new(task, config, folder, DIGEST, key).watcher(Watcher::Nobody).interrupt(task.interrupt.clone())
}

fn finished(outcome: Result<Outcome<Classifier>, TrainingError>) -> TrainedModel<Classifier> {
    match outcome.unwrap() {
        Outcome::Finished(result) => result,
        Outcome::Interrupted { step, .. } => panic!("interrupted after step {step}"),
    }
}

fn run(task: &Points, config: &TrainingConfig, folder: &Path) -> TrainedModel<Classifier> {
    finished(trainer(task, config, folder).run(Classifier::new(1)))
}

fn log_lines(folder: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(folder.join("log.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whether the test of this name was run here in a process of its own, where it succeeded. False in that process.
fn runs_alone(name: &str) -> bool {
    const ALONE: &str = "HEEDFUL_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let output = alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    true
}

/// All that a run leaves behind, except times.
#[derive(Debug, PartialEq)]
struct Traces {
    weights: String,
    optimiser: String,
    carried: String,
    result: Vec<(String, TensorData)>,
    step: u64,
    metrics: Vec<Metric>,
    log: Vec<serde_json::Value>,
    checkpoints: Vec<String>,
}

fn traces(folder: &Path, result: TrainedModel<Classifier>) -> Traces {
    let last = CheckpointFolder::new(folder, DIGEST).path(result.steps);
    let mut log = log_lines(folder);
    for line in &mut log {
        line.as_object_mut().unwrap().remove("seconds").expect("every line has a time");
    }
    let digest = |name: &str| format!("{:x?}", Sha256::digest(fs::read(last.join(name)).unwrap()));
    let has_carried = last.join("carried.bpk").exists();
    Traces {
        weights: digest("model.safetensors"),
        optimiser: digest("optimiser.bpk"),
        carried: if has_carried { digest("carried.bpk") } else { String::new() },
        result: tensors_by_path(&result.model).into_iter().collect(),
        step: result.step,
        metrics: result.metrics,
        log,
        checkpoints: names(&folder.join("checkpoint")),
    }
}

/// What a run leaves behind that nothing disturbs.
fn undisturbed(config: &TrainingConfig) -> Traces {
    let folder = tempfile::tempdir().unwrap();
    traces(folder.path(), run(&Points::new(), config, folder.path()))
}

/// What a run leaves behind that goes on with a model of other initial weights and a fresh task, as in a new process.
fn resumed(config: &TrainingConfig, folder: &Path) -> Traces {
    traces(folder, finished(trainer(&Points::new(), config, folder).resume(true).run(Classifier::new(2))))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn training_lowers_the_loss() {
    let folder = tempfile::tempdir().unwrap();
    let task = Points::plain(8);
    let config = TrainingConfig { steps: 60, max_gradient_norm: None, accumulate: 1, evaluate_every: 20, ..config() };
    let before = task.loss_of(&Classifier::new(1).valid());
    let result = run(&task, &config, folder.path());
    assert!(result.metrics[0].value < 0.5 * before, "{} is not far below {before}", result.metrics[0].value);
    assert_eq!(task.loss_of(&result.model), result.metrics[0].value, "the model returned is not the one that was measured");
    assert_eq!((result.steps, result.averaged), (60, 1));
    assert!(result.tokens_per_second > 0.0 && result.wall_seconds >= result.training_seconds);
}

#[test]
fn two_runs_leave_the_same_bits() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = config();
    let first = traces(a.path(), run(&Points::new(), &config, a.path()));
    assert_eq!(first, traces(b.path(), run(&Points::new(), &config, b.path())));
    let c = tempfile::tempdir().unwrap();
    let other = finished(trainer(&Points { dropout: 0.3, ..Points::new() }, &config, c.path()).run(Classifier::new(1)));
    assert_ne!(first.weights, traces(c.path(), other).weights, "dropout does not reach the weights, so its streams are not tested");
}

#[test]
fn a_run_interrupted_after_any_step_resumes_to_the_same_bits() {
    for average in [1, 3] {
        let config = TrainingConfig { average, ..config() };
        let expected = undisturbed(&config);
        for stop in 1..config.steps {
            let folder = tempfile::tempdir().unwrap();
            let task = Points::stopping_after(stop);
            match trainer(&task, &config, folder.path()).run(Classifier::new(1)).unwrap() {
                Outcome::Interrupted { step, checkpoint } => assert_eq!((step, checkpoint.exists()), (stop, true)),
                Outcome::Finished(_) => panic!("the run did not stop after step {stop}"),
            }
            assert_eq!(resumed(&config, folder.path()), expected, "interrupted after step {stop}");
        }
    }
}

#[test]
fn a_run_interrupted_after_every_step_resumes_to_the_same_bits() {
    let config = config();
    let expected = undisturbed(&config);
    let folder = tempfile::tempdir().unwrap();
    for stop in 1..=config.steps {
        let task = Points::stopping_after(1);
        let outcome = trainer(&task, &config, folder.path()).resume(true).run(Classifier::new(stop)).unwrap();
        match outcome {
            Outcome::Interrupted { step, .. } => assert_eq!(step, stop),
            Outcome::Finished(result) => {
                assert_eq!(stop, config.steps);
                assert_eq!(traces(folder.path(), result), expected);
                return;
            }
        }
    }
    panic!("the run never finished");
}

#[test]
fn a_run_with_any_optimiser_resumes_to_the_same_bits() {
    let default = OptimiserConfig::default;
    let with_momentum = OptimiserConfig { kind: OptimiserKind::Sgd, momentum: Some(0.9), nesterov: Some(true), ..default() };
    let others = [OptimiserKind::AdamW, OptimiserKind::Adagrad, OptimiserKind::Sgd, OptimiserKind::Adafactor];
    let mut weights = Vec::new();
    for optimiser in others.map(|kind| OptimiserConfig { kind, weight_decay: 0.1, ..default() }).into_iter().chain([with_momentum]) {
        let config = TrainingConfig { optimiser, ..config() };
        let expected = undisturbed(&config);
        let folder = tempfile::tempdir().unwrap();
        let outcome = trainer(&Points::stopping_after(4), &config, folder.path()).run(Classifier::new(1)).unwrap();
        assert!(matches!(outcome, Outcome::Interrupted { step: 4, .. }));
        assert_eq!(resumed(&config, folder.path()), expected, "{:?}", config.optimiser);
        assert!(!weights.contains(&expected.weights), "{:?} trains as another one", config.optimiser);
        weights.push(expected.weights);
    }
}

/// The step of a run, begun or resumed, when the interrupt is raised in evaluation `number` of this process.
fn interrupted_in_evaluation(number: u64, config: &TrainingConfig, folder: &Path) -> u64 {
    let task = Points { stop_in_evaluation: Some(number), ..Points::new() };
    match trainer(&task, config, folder).resume(true).run(Classifier::new(1)).unwrap() {
        Outcome::Interrupted { step, checkpoint } => {
            assert!(checkpoint.join("state.json").exists());
            step
        }
        Outcome::Finished(_) => panic!("the run did not stop in evaluation {number}"),
    }
}

#[test]
fn a_run_interrupted_in_any_evaluation_resumes_to_the_same_bits() {
    for (average, is_interrupted_again) in [(1, false), (1, true), (3, false)] {
        let config = TrainingConfig { average, ..config() };
        let expected = undisturbed(&config);
        for (number, step) in (1..).zip([2, 4, 6, 8, 9]) {
            let folder = tempfile::tempdir().unwrap();
            assert_eq!(interrupted_in_evaluation(number, &config, folder.path()), step);
            if is_interrupted_again {
                assert_eq!(interrupted_in_evaluation(1, &config, folder.path()), step, "the interrupted evaluation does not come first");
            }
            assert_eq!(resumed(&config, folder.path()), expected, "interrupted in evaluation {number}");
        }
    }
}

#[test]
fn a_run_interrupted_while_the_mean_is_evaluated_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let config = TrainingConfig { average: 2, ..config() };
    let expected = undisturbed(&config);
    // The first five evaluations are those after steps; a resumed process makes none of them.
    for number in [6, 1] {
        assert_eq!(interrupted_in_evaluation(number, &config, folder.path()), config.steps);
    }
    let task = Points::new();
    let result = finished(trainer(&task, &config, folder.path()).resume(true).run(Classifier::new(2)));
    assert_eq!((*task.steps.lock().unwrap(), result.averaged), (0, 2));
    assert_eq!(traces(folder.path(), result), expected);
}

#[test]
fn a_run_killed_during_any_file_operation_resumes_to_the_same_bits() {
    let config = TrainingConfig { keep: 2, ..config() };
    let expected = undisturbed(&config);
    let mut kills = 0;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultyDisk::new(Fault::Kill, kills));
        let checkpoints = CheckpointFolder::on(folder.path(), DIGEST, Box::new(disk.clone()));
        let outcome = trainer(&Points::new(), &config, folder.path()).checkpoints(checkpoints).run(Classifier::new(1));
        if !disk.has_failed() {
            finished(outcome);
            break;
        }
        // Once there is a checkpoint, the initial weights of the new process must not matter.
        let is_fresh = CheckpointFolder::new(folder.path(), DIGEST).latest().unwrap().is_none();
        let model = Classifier::new(if is_fresh { 1 } else { 2 });
        let result = finished(trainer(&Points::new(), &config, folder.path()).resume(true).run(model));
        assert_eq!(traces(folder.path(), result), expected, "killed in file operation {kills}");
        kills += 1;
    }
    assert!(kills > 30, "only {kills} operations were tried");
}

#[test]
fn a_full_disk_ends_the_run_with_the_checkpoint_before_intact() {
    let config = TrainingConfig { checkpoint_every: 2, ..config() };
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultyDisk::new(Fault::Full, 7));
    let checkpoints = CheckpointFolder::on(folder.path(), DIGEST, Box::new(disk));
    let error = trainer(&Points::new(), &config, folder.path()).checkpoints(checkpoints).run(Classifier::new(1)).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("step-000000004") && message.contains("free space") && message.contains("--resume"), "{message}");
    assert_eq!(names(&folder.path().join("checkpoint")), ["latest", "step-000000002"]);
    assert_eq!(resumed(&config, folder.path()), undisturbed(&config));
}

#[test]
fn a_run_whose_device_is_lost_in_any_pass_resumes_to_the_same_bits() {
    // Panics of other tests would be taken for those of the device.
    if runs_alone("train::tests::a_run_whose_device_is_lost_in_any_pass_resumes_to_the_same_bits") {
        return;
    }
    let config = config();
    let folder = tempfile::tempdir().unwrap();
    let whole = traces(folder.path(), run(&Points::new(), &config, folder.path()));
    for pass in 1..=config.steps * config.accumulate as u64 {
        let folder = tempfile::tempdir().unwrap();
        let task = Points { lose_device_in: Some(pass), ..Points::new() };
        let training = || trainer(&task, &config, folder.path()).run(Classifier::new(1)).map_err(ProgramError::failure);
        let error = guarded(Backend::Wgpu, "go on with --resume", training).err().unwrap();
        let message = error.to_string();
        assert_eq!(error.exit_code(), 1);
        assert!(message.starts_with("the device of the backend wgpu failed: the device is lost ("), "{message}");
        assert!(message.ends_with("; go on with --resume"), "{message}");
        let resumed = finished(trainer(&Points::new(), &config, folder.path()).resume(true).run(Classifier::new(1)));
        assert_eq!(traces(folder.path(), resumed), whole, "lost in pass {pass}");
    }
}

#[test]
fn a_finished_run_resumes_to_its_result_without_training() {
    let folder = tempfile::tempdir().unwrap();
    let config = config();
    let expected = traces(folder.path(), run(&Points::new(), &config, folder.path()));
    let task = Points::new();
    let result = finished(trainer(&task, &config, folder.path()).resume(true).run(Classifier::new(2)));
    assert_eq!(*task.steps.lock().unwrap(), 0);
    assert_eq!(traces(folder.path(), result), expected);
}

#[test]
fn a_checkpoint_remembers_whether_the_run_was_disturbed() {
    let folder = tempfile::tempdir().unwrap();
    let config = config();
    run(&Points::new(), &config, folder.path());
    let path = folder.path().join("checkpoint/step-000000009/state.json");
    // Tests beside this one may have disturbed it.
    let text = fs::read_to_string(&path).unwrap().replace("\"disturbed\": true", "\"disturbed\": false");
    for disturbed in [false, true] {
        fs::write(&path, text.replace("\"disturbed\": false", &format!("\"disturbed\": {disturbed}"))).unwrap();
        assert_eq!(finished(trainer(&Points::new(), &config, folder.path()).resume(true).run(Classifier::new(1))).disturbed, disturbed);
    }
}

#[test]
fn without_resume_a_run_starts_afresh() {
    let folder = tempfile::tempdir().unwrap();
    let long = TrainingConfig { keep: 9, ..config() };
    run(&Points::new(), &long, folder.path());
    let short = TrainingConfig { steps: 3, ..config() };
    run(&Points::new(), &short, folder.path());
    assert_eq!(names(&folder.path().join("checkpoint")), ["latest", "step-000000003"]);
    assert!(log_lines(folder.path()).iter().all(|line| line["step"].as_u64().unwrap() <= 3));
}

#[test]
fn accumulated_micro_batches_equal_one_large_batch() {
    let steps = |batch_size: usize, accumulate: usize| {
        let folder = tempfile::tempdir().unwrap();
        let config = TrainingConfig { steps: 4, accumulate, log_every: 1, max_gradient_norm: None, ..config() };
        let result = run(&Points::plain(batch_size), &config, folder.path());
        let log = log_lines(folder.path());
        let column = |name: &str| log.iter().filter_map(|line| line[name].as_f64()).collect::<Vec<_>>();
        (column("gradient_norm"), column("loss"), tensors_by_path(&result.model), result.tokens)
    };
    let (large, small) = (steps(12, 1), steps(4, 3));
    assert_eq!(large.3, small.3);
    assert_eq!(large.0.len(), 4);
    for (large, small) in large.0.iter().chain(&large.1).zip(small.0.iter().chain(&small.1)) {
        assert!((large - small).abs() < 1e-5 * large, "{large} against {small}");
    }
    for (path, tensor) in &large.2 {
        for (large, small) in tensor.iter::<f64>().zip(small.2[path].iter::<f64>()) {
            assert!((large - small).abs() < 1e-5, "{path}: {large} against {small}");
        }
    }
    // Units differ between micro-batches, so a mean of means would be seen here.
    assert!((large.0[0] - steps(4, 1).0[0]).abs() > 1e-3 * large.0[0]);
}

#[test]
fn the_optimiser_receives_the_mean_gradient_clipped_to_the_bound() {
    for bound in [None, Some(0.25), Some(1e6)] {
        let folder = tempfile::tempdir().unwrap();
        let config = TrainingConfig { steps: 1, max_gradient_norm: bound, log_every: 1, ..config() };
        run(&Points::new(), &config, folder.path());
        let norm = log_lines(folder.path())[0]["gradient_norm"].as_f64().unwrap();
        // After one step the first moment is the gradient times 1 - beta_1.
        let bytes = fs::read(folder.path().join("checkpoint/step-000000001/optimiser.bpk")).unwrap();
        let tensors = Reader::from_bytes(Bytes::from_bytes_vec(bytes)).unwrap().into_tensors().unwrap();
        let moments = tensors.into_iter().filter(|tensor| tensor.name.ends_with("moment_1")).map(|tensor| {
            let (_, dtype, shape, _, bytes) = tensor.into_parts().unwrap();
            TensorData::from_bytes(bytes, shape, dtype)
        });
        let squares: f64 = moments.flat_map(|tensor| tensor.iter::<f64>().map(|value| value * value).collect::<Vec<_>>()).sum();
        let received = squares.sqrt() / (1.0 - config.optimiser.betas.0);
        let expected = bound.map_or(norm, |bound| norm.min(bound));
        assert!((received - expected).abs() < 1e-5 * expected, "bound {bound:?}: {received} instead of {expected}");
        assert!(norm > 0.3, "the smaller bound would not bind");
    }
}

#[test]
fn the_optimiser_receives_the_rate_of_the_schedule() {
    let folder = tempfile::tempdir().unwrap();
    let config = TrainingConfig { steps: 1, ..config() };
    let updated = tensors_by_path(&run(&Points::new(), &config, folder.path()).model);
    let change = |(path, before): (&String, &TensorData)| {
        let pairs = before.iter::<f64>().zip(updated[path].iter::<f64>());
        pairs.map(|(before, after)| (before - after).abs()).fold(0.0, f64::max)
    };
    // Adam's first step changes every weight by the learning rate, whatever its gradient.
    let largest = tensors_by_path(&Classifier::new(1)).iter().map(change).fold(0.0, f64::max);
    let rate = config.schedule.rate(1, 1, config.learning_rate);
    assert_eq!(rate, config.learning_rate / 3.0);
    assert!((largest - rate).abs() < 1e-4 * rate, "{largest} instead of {rate}");
}

#[test]
fn weights_that_are_not_finite_are_never_saved() {
    let folder = tempfile::tempdir().unwrap();
    // Finite as the configuration reads it, infinite in the 32-bit arithmetic of the update.
    let config = TrainingConfig { learning_rate: 1e39, schedule: ScheduleConfig::Constant, steps: 1, ..config() };
    let error = trainer(&Points::new(), &config, folder.path()).run(Classifier::new(1)).unwrap_err();
    let TrainingError::NonFinite { step: 1, quantity: "weight", place, checkpoint: None, .. } = error else { panic!("{error}") };
    assert!(place.starts_with("the parameter "), "{place}");
    assert!(!folder.path().join("checkpoint").exists());
}

#[test]
fn a_loss_that_is_not_finite_is_reported_and_never_saved() {
    let folder = tempfile::tempdir().unwrap();
    let task = Points { spoil_loss_at: Some(5), ..Points::new() };
    let error = trainer(&task, &config(), folder.path()).run(Classifier::new(1)).unwrap_err();
    let message = error.to_string();
    let TrainingError::NonFinite { step, quantity, place, checkpoint, wall_seconds, .. } = error else { panic!("{message}") };
    assert_eq!((step, quantity, place.as_str()), (5, "loss", "layer.7"));
    assert!(wall_seconds > 0.0, "what it took is lost");
    let checkpoint = checkpoint.expect("step 4 or before was saved");
    assert!(checkpoint.ends_with("step-000000004") || checkpoint.ends_with("step-000000003"));
    assert!(message.contains("Lower the learning rate") && message.contains(&checkpoint.display().to_string()), "{message}");
    let result = finished(trainer(&Points::new(), &config(), folder.path()).resume(true).run(Classifier::new(2)));
    assert_eq!(first_non_finite_parameter(&result.model), None);
}

#[test]
fn a_gradient_that_is_not_finite_names_its_parameter() {
    let folder = tempfile::tempdir().unwrap();
    let task = Points { spoil_gradient: true, ..Points::new() };
    let error = trainer(&task, &config(), folder.path()).run(Classifier::new(1)).unwrap_err();
    assert!(error.to_string().contains("step 1: the gradient is not finite (first seen in the gradient of norm.gamma)"), "{error}");
    assert!(error.to_string().contains("No checkpoint had been written yet"), "{error}");
    assert!(!folder.path().join("checkpoint").exists());
}

#[test]
fn a_learning_rate_far_too_high_ends_with_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let config = TrainingConfig { learning_rate: 1e38, schedule: ScheduleConfig::Constant, checkpoint_every: 1, steps: 50, ..config() };
    let error = trainer(&Points::plain(4), &config, folder.path()).run(Classifier::new(1)).unwrap_err();
    let TrainingError::NonFinite { place, checkpoint, .. } = error else { panic!("{error}") };
    assert!(!place.is_empty());
    if let Some(folder) = checkpoint {
        assert!(folder.join("state.json").exists());
    }
}

#[test]
fn training_stops_when_the_score_no_longer_improves() {
    let folder = tempfile::tempdir().unwrap();
    let scripted = Mutex::new(vec![5.0, 4.0, f64::NAN, 4.5, 1.0]);
    let task = Points { scripted: Some(scripted), ..Points::new() };
    let config = TrainingConfig { steps: 100, evaluate_every: 2, checkpoint_every: 3, patience: Some(2), ..config() };
    let result = run(&task, &config, folder.path());
    assert_eq!((result.step, result.steps, result.metrics[0].value), (4, 8, 4.0));
    assert_eq!(names(&folder.path().join("checkpoint")), ["latest", "step-000000004", "step-000000008"]);
}

#[test]
fn a_time_limit_ends_the_run_as_if_its_steps_were_done() {
    let folder = tempfile::tempdir().unwrap();
    let config = TrainingConfig { minutes: Some(1e-12), ..config() };
    let result = run(&Points::new(), &config, folder.path());
    assert_eq!((result.steps, result.metrics.len()), (1, 1));
    assert!(folder.path().join("checkpoint/step-000000001/state.json").exists());
}

#[test]
fn the_result_can_be_the_mean_of_the_last_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let config = TrainingConfig { average: 2, keep: 3, ..config() };
    let result = run(&Points::new(), &config, folder.path());
    assert_eq!((result.averaged, result.step), (2, 9));
    let checkpoints = CheckpointFolder::new(folder.path(), DIGEST);
    let weights = |step| {
        let model = super::state_dict::load_model(Classifier::new(5), &checkpoints.load(step).unwrap()).unwrap();
        tensors_by_path(&model)
    };
    let (sixth, ninth) = (weights(6), weights(9));
    for (path, tensor) in tensors_by_path(&result.model) {
        for ((mean, a), b) in tensor.iter::<f32>().zip(sixth[&path].iter::<f64>()).zip(ninth[&path].iter::<f64>()) {
            assert_eq!(mean, ((a + b) / 2.0) as f32, "{path}");
        }
    }
    assert_ne!(sixth["hidden.weight"], ninth["hidden.weight"]);
    assert_eq!(Points::new().loss_of(&result.model), result.metrics[0].value);
}

#[test]
fn the_log_tells_the_loss_of_the_task_from_what_is_added_to_it() {
    let of = |task: Points, is_deferred: bool| {
        let folder = tempfile::tempdir().unwrap();
        let config = TrainingConfig { log_every: 2, evaluate_every: 100, checkpoint_every: 100, ..config() };
        let (mut run, mut model) = trainer(&task, &config, folder.path()).begin(Classifier::new(1)).unwrap();
        run.is_deferred = is_deferred;
        for _ in 1..=4 {
            model = run.advance(model).unwrap();
        }
        (log_lines(folder.path()), tensors_by_path(&model))
    };
    for is_deferred in [false, true] {
        let plain = of(Points::new(), is_deferred);
        // Of the steps of the second line only the first has penalties.
        let penalised = of(Points { penalised_steps: 3, ..Points::new() }, is_deferred);
        assert_eq!(plain.1, penalised.1, "constants change no weights");
        for (plain, penalised) in plain.0.iter().zip(&penalised.0) {
            assert_eq!(plain["loss"], penalised["loss"], "{penalised}");
            assert!(plain.get("span_loss").is_none(), "{plain}");
        }
        let added = |line: usize, name: &str| penalised.0[line][name].as_f64().unwrap();
        assert!((added(0, "span_loss") - 3.0).abs() < 1e-6 && (added(0, "ponder_loss") - 0.5).abs() < 1e-6);
        let share = added(1, "ponder_loss") / 0.5;
        assert!(share > 0.2 && share < 0.8 && (added(1, "span_loss") / 3.0 - share).abs() < 1e-6, "{:?}", penalised.0);
    }
}

#[test]
fn a_metric_that_is_not_reported_cannot_select() {
    struct Renamed(Points);
    impl Task for Renamed {
        type Model = Classifier;
        type Batch = Batch;
        type Carried = f32;
        fn epoch(&self, epoch: u64, key: &RandomKey) -> Vec<Vec<usize>> {
            self.0.epoch(epoch, key)
        }
        fn batch(&self, items: &[usize], epoch: u64, key: &RandomKey) -> Batch {
            self.0.batch(items, epoch, key)
        }
        fn units(&self, batch: &Batch) -> usize {
            self.0.units(batch)
        }
        fn loss(&self, model: &Classifier, batch: &Batch, pass: Pass<'_, f32>, probe: &mut Probe) -> TrainingLoss {
            self.0.loss(model, batch, pass, probe)
        }
        fn evaluate(&self, model: &Classifier, split: Split, interrupt: &Interrupt) -> Option<Scores> {
            self.0.evaluate(model, split, interrupt)
        }
        fn selection(&self) -> Selection {
            Selection::highest("bleu")
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (task, config) = (Renamed(Points::new()), config());
    let trainer = Trainer::new(&task, &config, folder.path(), DIGEST, RandomKey::from_seed(1)).watcher(Watcher::Nobody);
    let error = trainer.run(Classifier::new(1)).unwrap_err();
    assert!(error.to_string().contains("no metric `bleu`") && error.to_string().contains("it reports: loss"), "{error}");
}

#[test]
fn spans_stay_fractions_whatever_pulls_at_them() {
    /// Nothing but the penalty of spans, times a factor.
    struct Pull {
        factor: f64,
        spans: Mutex<Vec<f32>>,
    }
    impl Task for Pull {
        type Model = AnyAttention;
        type Batch = ();
        type Carried = ();
        fn epoch(&self, _epoch: u64, _key: &RandomKey) -> Vec<Vec<usize>> {
            vec![vec![0]]
        }
        fn batch(&self, _items: &[usize], _epoch: u64, _key: &RandomKey) {}
        fn units(&self, _batch: &()) -> usize {
            1
        }
        fn loss(&self, model: &AnyAttention, _batch: &(), _pass: Pass<'_, ()>, probe: &mut Probe) -> TrainingLoss {
            let input = AttentionInput::self_attention(Tensor::ones([1, 2, 4], &Device::flex().autodiff()));
            (model.forward(input, probe).losses.total().unwrap() * self.factor).into()
        }
        fn evaluate(&self, _model: &AnyAttention, _split: Split, _interrupt: &Interrupt) -> Option<Scores> {
            Some(Scores::of("loss", 0.0, ""))
        }
        fn selection(&self) -> Selection {
            Selection::lowest("loss")
        }
        fn can_locate(&self) -> bool {
            false
        }
        fn after_step(&self, model: AnyAttention) -> AnyAttention {
            let spans = model.logits::<AdaptiveSpan>().unwrap().span.as_ref().unwrap().val().into_data();
            self.spans.lock().unwrap().extend(spans.iter::<f32>());
            model
        }
    }
    let spec = LayerSpec::new(Role::Decoder, 4, 2).with_max_length(8);
    let span = AnyMechanism::from(AdaptiveSpanConfig::default().with_initial(0.5));
    for (factor, end) in [(1e3, 0.0), (-1e3, 1.0)] {
        let folder = tempfile::tempdir().unwrap();
        let config = TrainingConfig { learning_rate: 0.3, schedule: ScheduleConfig::Constant, accumulate: 1, ..config() };
        let task = Pull { factor, spans: Mutex::default() };
        let trainer = Trainer::new(&task, &config, folder.path(), DIGEST, RandomKey::from_seed(1)).watcher(Watcher::Nobody);
        trainer.run(span.init(&spec, &RandomKey::from_seed(1), &Device::flex().autodiff())).unwrap();
        let spans = task.spans.into_inner().unwrap();
        assert!(spans[0] > 0.0 && spans[0] < 1.0, "the first step is free: {spans:?}");
        assert_eq!(spans[4..], [end; 14], "later ones are held");
    }
}

#[test]
fn an_empty_training_set_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let task = Points { inputs: Vec::new(), ..Points::new() };
    let error = trainer(&task, &config(), folder.path()).run(Classifier::new(1)).unwrap_err();
    assert!(matches!(error, TrainingError::EmptyEpoch { epoch: 1 }), "{error}");
}

#[test]
fn resuming_refuses_other_configurations_models_and_damaged_files() {
    let folder = tempfile::tempdir().unwrap();
    let task = Points::stopping_after(4);
    let config = config();
    trainer(&task, &config, folder.path()).run(Classifier::new(1)).unwrap();
    let fails = |digest: &str| {
        let task = Points::new();
        let key = RandomKey::from_seed(11);
        let trainer = Trainer::new(&task, &config, folder.path(), digest, key).watcher(Watcher::Nobody).resume(true);
        trainer.run(Classifier::new(1)).unwrap_err().to_string()
    };
    let message = fails("ffff");
    assert!(message.contains("0123abcd") && message.contains("ffff") && message.contains("--out"), "{message}");
    let path = folder.path().join("checkpoint/step-000000004/optimiser.bpk");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let message = fails(DIGEST);
    assert!(message.contains("optimiser.bpk") && message.contains(&format!("{} bytes", bytes.len() - 1)), "{message}");
    fs::write(&path, &bytes).unwrap();
    finished(trainer(&Points::new(), &config, folder.path()).resume(true).run(Classifier::new(2)));
}

#[test]
fn a_configuration_out_of_range_is_refused_before_anything_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    run(&Points::new(), &config(), folder.path());
    let before = names(&folder.path().join("checkpoint"));
    let broken = TrainingConfig { accumulate: 0, ..config() };
    let error = trainer(&Points::new(), &broken, folder.path()).run(Classifier::new(1)).unwrap_err();
    assert!(error.to_string().contains("`accumulate`"), "{error}");
    assert_eq!(names(&folder.path().join("checkpoint")), before);
}

#[test]
fn the_log_holds_training_and_evaluation_lines() {
    let folder = tempfile::tempdir().unwrap();
    run(&Points::new(), &config(), folder.path());
    let log = log_lines(folder.path());
    let steps =
        |key: &str| log.iter().filter(|line| line.get(key).is_some()).map(|line| line["step"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(steps("learning_rate"), [2, 4, 6, 8]);
    assert_eq!(steps("dev"), [2, 4, 6, 8, 9]);
    let second = log.iter().find(|line| line["step"] == 2 && line.get("loss").is_some()).unwrap();
    let rate = ScheduleConfig::Cosine { warmup: 3, end: 0.001 }.rate(2, 9, 0.05);
    assert_eq!((second["learning_rate"].as_f64(), second["epoch"].as_u64()), (Some(rate), Some(1)));
    assert_eq!(log.iter().find(|line| line["step"] == 4).unwrap()["epoch"], 2, "6 batches in groups of 2 are 3 steps");
}
