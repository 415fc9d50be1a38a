//! What every part has in common: its module, what it reads and what it writes.

use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, TensorData};
use heedful_attention::prelude::*;

use super::inputs::{Input, Inputs};
use super::parameter_docs::meaning;
use super::parameters::{self, Parameter};
use super::pass::{Pass, cotangent};
use super::tensor_file::{self, Size, Sizes, TensorFileError};
use crate::session::error::ExperimentError;

/// Sizes of examples, for the names that shapes have.
const EXAMPLE: [(&str, usize); 6] = [("batch", 2), ("length", 6), ("memory", 4), ("carried", 3), ("steps", 4), ("remembered", 3)];

/// A tensor that is written.
#[derive(Clone, Debug)]
pub(super) struct Output {
    /// Its name.
    pub name: String,
    shape: Vec<Size>,
    meaning: String,
    has_cotangent: bool,
}

impl Output {
    /// What may be differentiated.
    pub(super) fn new(name: &str, shape: &[Size], meaning: &str) -> Self {
        Self { name: name.to_owned(), shape: shape.to_vec(), meaning: meaning.to_owned(), has_cotangent: true }
    }

    /// What is only shown.
    pub(super) fn shown(name: &str, shape: &[Size], meaning: &str) -> Self {
        Self::new(name, shape, meaning).without_cotangent()
    }

    /// The same without gradients.
    pub(super) fn without_cotangent(self) -> Self {
        Self { has_cotangent: false, ..self }
    }
}

/// A part of a model that reads tensors and writes tensors.
pub(super) trait Runnable {
    /// What holds its parameters.
    type Module: Module;

    /// The module with weights of its own.
    fn module(&self, device: &Device) -> Self::Module;

    /// What it reads beside parameters and cotangents, what decides sizes first.
    fn inputs(&self, module: &Self::Module) -> Vec<Input>;

    /// What it writes beside gradients.
    fn outputs(&self, module: &Self::Module) -> Vec<Output>;

    /// What the parameter at `path` means.
    fn meaning(&self, path: &str) -> Option<&'static str> {
        meaning(path)
    }

    /// Refuses what has the right shapes and cannot be meant.
    fn check(&self, _module: &Self::Module, _inputs: &Inputs) -> Result<(), TensorFileError> {
        Ok(())
    }

    /// The engine that is asked for, where there is a choice.
    fn engine(&self) -> Engine {
        Engine::Auto
    }

    /// Computes all outputs.
    fn run(&self, module: &Self::Module, pass: &mut Pass);
}

/// A row of a table: name, shape and meaning.
type Row = Vec<String>;

/// A part, whatever its module.
pub(super) trait AnyPart {
    /// What is read and what is written.
    fn tables(&self) -> [Vec<Row>; 2];

    /// An input file with drawn numbers.
    fn example(&self, key: &RandomKey) -> Vec<(String, TensorData)>;

    /// What the output file holds for an input file.
    ///
    /// # Errors
    /// A file that cannot be used (failure); an engine that did not run (usage).
    fn compute(&self, inputs: &Path, device: &Device) -> Result<Vec<(String, TensorData)>, ExperimentError>;
}

fn is(shape: &[usize]) -> Vec<Size> {
    shape.iter().copied().map(Size::Is).collect()
}

/// All that is read: parameters, inputs, and a cotangent for each output that has one.
fn declared<R: Runnable>(part: &R, module: &R::Module) -> Vec<Input> {
    let parameter = |Parameter { path, shape, trained }: Parameter| {
        let meaning = part.meaning(&path).unwrap_or("parameter");
        let meaning = if trained { meaning.to_owned() } else { format!("{meaning} (not trained)") };
        Input::numbers(&path, &is(&shape), &meaning)
    };
    let of_output = |output: Output| {
        let what = if output.name == "output" { "the output" } else { &output.name };
        Input::numbers(
            &cotangent(&output.name),
            &output.shape,
            &format!("gradient of the loss by {what}; without any such no gradient is computed"),
        )
        .optional()
    };
    let cotangents = part.outputs(module).into_iter().filter(|output| output.has_cotangent).map(of_output);
    parameters::list(module).into_iter().map(parameter).chain(part.inputs(module)).chain(cotangents).collect()
}

impl<R: Runnable> AnyPart for R {
    fn tables(&self) -> [Vec<Row>; 2] {
        let module = self.module(&Device::flex().autodiff());
        let row = |name: &str, shape: &[Size], meaning: &str| vec![name.to_owned(), tensor_file::shape(shape), meaning.to_owned()];
        let inputs: Vec<Row> = declared(self, &module).iter().map(|input| row(&input.name, &input.shape, &input.meaning)).collect();
        let outputs = self.outputs(&module);
        let mut written: Vec<Row> = outputs.iter().map(|output| row(&output.name, &output.shape, &output.meaning)).collect();
        if outputs.iter().any(|output| output.has_cotangent) {
            let leaves = self.inputs(&module).into_iter().filter(|input| input.has_gradient).map(|input| (input.name, input.shape));
            let trained = parameters::list(&module).into_iter().filter(|parameter| parameter.trained);
            let all = leaves.chain(trained.map(|parameter| (parameter.path, is(&parameter.shape))));
            let first = "gradient of the sum of outputs times their cotangents";
            written.extend(
                all.enumerate().map(|(at, (name, shape))| row(&format!("grad.{name}"), &shape, if at == 0 { first } else { "likewise" })),
            );
        }
        [inputs, written]
    }

    fn example(&self, key: &RandomKey) -> Vec<(String, TensorData)> {
        let module = self.module(&Device::flex().autodiff());
        let sizes = Sizes::new(&EXAMPLE);
        declared(self, &module).into_iter().map(|input| (input.name.clone(), input.example(&sizes, key))).collect()
    }

    fn compute(&self, inputs: &Path, device: &Device) -> Result<Vec<(String, TensorData)>, ExperimentError> {
        let module = self.module(device);
        let declared = declared(self, &module);
        let inputs = Inputs::read(inputs, &declared).map_err(ExperimentError::failure)?;
        self.check(&module, &inputs).map_err(ExperimentError::failure)?;
        let value = |Parameter { path, .. }: Parameter| {
            let data = inputs.numbers(&path).expect("parameters are always there").clone();
            (path, data)
        };
        let values = parameters::list(&module).into_iter().map(value).collect();
        let module = parameters::load(module, values);
        let mut pass = Pass::new(&inputs, &declared, device);
        self.run(&module, &mut pass);
        pass.check_engine(self.engine()).map_err(ExperimentError::usage)?;
        Ok(pass.finish(&module))
    }
}
