//! A folder with a configuration, tensors in files, and what is compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Output;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

use crate::command::{binary, refused, succeeded};

/// The backends that are compared with formulas.
pub(super) const BACKENDS: &[&str] = &[
    "flex",
    #[cfg(feature = "wgpu")]
    "wgpu",
];

pub(super) const BATCH: usize = 2;
pub(super) const LENGTH: usize = 3;
pub(super) const MEMORY: usize = 4;
pub(super) const WIDTH: usize = 4;
pub(super) const HEADS: usize = 2;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tensor {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

pub(super) type Tensors = BTreeMap<String, Tensor>;

pub(super) fn tensor(shape: &[usize], values: Vec<f64>) -> Tensor {
    Tensor { dtype: Dtype::F32, shape: shape.to_vec(), values }
}

/// Numbers between -1 and 1 that differ from name to name, exact in 32 bits.
pub(super) fn drawn(name: &str, shape: &[usize]) -> Tensor {
    let mut state = name.bytes().fold(17u64, |state, byte| state.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let number = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 44) as f64 / f64::from(1 << 19) - 1.0
    };
    tensor(shape, (0..shape.iter().product::<usize>()).map(number).collect())
}

pub(super) fn bytes(tensor: &Tensor) -> Vec<u8> {
    let number = |&value: &f64| match tensor.dtype {
        Dtype::F32 => (value as f32).to_le_bytes().to_vec(),
        Dtype::F64 => value.to_le_bytes().to_vec(),
        Dtype::I64 => (value as i64).to_le_bytes().to_vec(),
        Dtype::F16 => vec![0; 2],
        Dtype::BOOL | Dtype::U8 => vec![value as u8],
        other => panic!("{other} is not written here"),
    };
    tensor.values.iter().flat_map(number).collect()
}

/// A folder with a configuration, in which files of tensors are made.
pub(super) struct Case {
    folder: TempDir,
}

impl Case {
    pub fn new(config: &str) -> Self {
        let sizes = format!("d_model = {WIDTH}\nheads = {HEADS}\nmax_length = 6\n");
        Self::of(&format!("{sizes}{config}"))
    }

    /// With a configuration of its own sizes.
    pub fn of(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mechanism.toml"), config).unwrap();
        Self { folder }
    }

    /// The example's tensors.
    pub fn example(&self) -> Tensors {
        succeeded(&self.run(&["--example", "in.safetensors"]));
        self.read("in.safetensors")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, tensors: &Tensors) {
        let stored: Vec<_> = tensors.iter().map(|(name, tensor)| (name, tensor, bytes(tensor))).collect();
        let views = stored.iter().map(|(name, tensor, bytes)| (name, TensorView::new(tensor.dtype, tensor.shape.clone(), bytes).unwrap()));
        fs::write(self.path("in.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    }

    pub fn run(&self, further: &[&str]) -> Output {
        let mut command = binary("parity");
        command.current_dir(self.folder.path()).args(["--config", "mechanism.toml"]).args(further);
        command.output().unwrap()
    }

    pub fn compute(&self, further: &[&str]) -> Output {
        self.run(&[&["--inputs", "in.safetensors", "--output", "out.safetensors"], further].concat())
    }

    pub fn results(&self, further: &[&str]) -> Tensors {
        succeeded(&self.compute(further));
        self.read("out.safetensors")
    }

    pub fn read(&self, name: &str) -> Tensors {
        let bytes = fs::read(self.path(name)).unwrap();
        let read = |view: TensorView<'_>| {
            assert_eq!(view.dtype(), Dtype::F32);
            let values = view.data().chunks(4).map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()))).collect();
            tensor(view.shape(), values)
        };
        SafeTensors::deserialize(&bytes).unwrap().tensors().into_iter().map(|(name, view)| (name, read(view))).collect()
    }

    /// As [`refuses`](Self::refuses), after other tensors were accepted.
    #[track_caller]
    pub fn refuses_instead(&self, tensors: &Tensors, parts: &[&str]) {
        let _ = fs::remove_file(self.path("out.safetensors"));
        self.refuses(tensors, parts);
    }

    /// Asserts that these tensors are refused, each part of the message named, and that nothing is written.
    #[track_caller]
    pub fn refuses(&self, tensors: &Tensors, parts: &[&str]) {
        self.write(tensors);
        refused(&self.compute(&[]), 1, &[&["in.safetensors"], parts].concat());
        assert!(!self.path("out.safetensors").exists(), "nothing is written");
    }
}

#[track_caller]
pub(super) fn same(name: &str, found: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(found.shape, expected.shape, "{name}");
    for (at, (found, expected)) in found.values.iter().zip(&expected.values).enumerate() {
        assert!((found - expected).abs() < tolerance, "{name}, element {at}: {found}, expected {expected}");
    }
}

/// Central differences of `sum(output * cotangent)` by a tensor.
pub(super) fn differences(tensors: &Tensors, name: &str, output: impl Fn(&Tensors) -> Tensor) -> Tensor {
    const STEP: f64 = 1e-5;
    let loss = |tensors: &Tensors| -> f64 { output(tensors).values.iter().zip(&tensors["cotangent"].values).map(|(y, c)| y * c).sum() };
    let derivative = |at: usize| {
        let moved = |by: f64| {
            let mut tensors = tensors.clone();
            tensors.get_mut(name).unwrap().values[at] += by;
            loss(&tensors)
        };
        (moved(STEP) - moved(-STEP)) / (2.0 * STEP)
    };
    tensor(&tensors[name].shape, (0..tensors[name].values.len()).map(derivative).collect())
}
