//! Models, optimisers and carried state as bytes, the contents of a checkpoint's files.

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::store::burn_pack::{Bytes, Reader, Tensor as PackedTensor, Writer};
use burn::tensor::TensorData;
use heedful_attention::registry::constraints;
use heedful_models::training::weights::{self, Match};

use super::checkpoint::{Checkpoint, CheckpointError};

/// The weights, in the format safetensors.
pub(crate) const MODEL: &str = "model.safetensors";
/// The optimiser's state, in burn's own format.
pub(crate) const OPTIMISER: &str = "optimiser.bpk";
/// What one batch handed to the next, in burn's own format; only where there is any.
pub(crate) const CARRIED: &str = "carried.bpk";

/// The files of a checkpoint. Equal states give equal bytes.
///
/// # Panics
/// If the device cannot be read.
pub(crate) fn to_files<M: Module>(
    model: &M,
    optimiser: &ModuleOptimizer,
    carried: Vec<(String, TensorData)>,
) -> Vec<(&'static str, Vec<u8>)> {
    let mut files = vec![(MODEL, weights::to_bytes(model)), (OPTIMISER, optimiser_bytes(optimiser))];
    if !carried.is_empty() {
        files.push((CARRIED, carried_bytes(carried)));
    }
    files
}

fn optimiser_bytes(optimiser: &ModuleOptimizer) -> Vec<u8> {
    // Burn lists the parameters in the order of a hash map; sorting them makes the file reproducible.
    let bytes = optimiser.into_bytes().expect("optimiser state can be read from its device");
    let reader = Reader::from_bytes(bytes).expect("burn reads what it has just written");
    let (metadata, scalars) = (reader.metadata().clone(), reader.scalars().clone());
    let mut tensors = reader.into_tensors().expect("burn reads what it has just written");
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let mut writer = Writer::new(tensors);
    for (key, value) in &metadata {
        writer = writer.with_metadata(key, value);
    }
    for (key, value) in scalars {
        writer = writer.with_scalar(&key, value);
    }
    writer.into_bytes().expect("the same tensors were written before").to_vec()
}

fn carried_bytes(carried: Vec<(String, TensorData)>) -> Vec<u8> {
    let pack = |(name, data): (String, TensorData)| {
        let (bytes, shape, dtype) = data.into_parts();
        PackedTensor::new(name, dtype, shape, None, bytes)
    };
    Writer::new(carried.into_iter().map(pack).collect()).into_bytes().expect("carried tensors have distinct names").to_vec()
}

/// `model` with the weights of a checkpoint. Devices, identities, ties and what is trainable stay those of `model`.
pub(crate) fn load_model<M: Module>(model: M, checkpoint: &Checkpoint) -> Result<M, CheckpointError> {
    let (path, bytes) = required(checkpoint, MODEL)?;
    let loaded = weights::from_bytes(model, bytes.to_vec(), Match::Exact);
    loaded.map(constraints::tie).map_err(|error| CheckpointError::OtherModel { path, reason: error.to_string() })
}

/// `optimiser` with the state of a checkpoint.
pub(crate) fn load_optimiser(optimiser: ModuleOptimizer, checkpoint: &Checkpoint) -> Result<ModuleOptimizer, CheckpointError> {
    let (path, bytes) = required(checkpoint, OPTIMISER)?;
    optimiser
        .from_bytes(Bytes::from_bytes_vec(bytes.to_vec()))
        .map_err(|error| CheckpointError::OtherModel { path, reason: error.to_string() })
}

/// The carried state of a checkpoint, empty if it has none.
pub(crate) fn load_carried(checkpoint: &Checkpoint) -> Result<Vec<(String, TensorData)>, CheckpointError> {
    let Some((path, bytes)) = checkpoint.file(CARRIED) else { return Ok(Vec::new()) };
    let unpack = |tensor: PackedTensor| {
        let (name, dtype, shape, _, bytes) = tensor.into_parts()?;
        Ok((name, TensorData::from_bytes(bytes, shape, dtype)))
    };
    Reader::from_bytes(Bytes::from_bytes_vec(bytes.to_vec()))
        .and_then(Reader::into_tensors)
        .and_then(|tensors| tensors.into_iter().map(unpack).collect())
        .map_err(|error| CheckpointError::Corrupt { path, reason: error.to_string() })
}

fn required<'a>(checkpoint: &'a Checkpoint, name: &str) -> Result<(std::path::PathBuf, &'a [u8]), CheckpointError> {
    checkpoint.file(name).ok_or_else(|| CheckpointError::Corrupt {
        path: checkpoint.folder.join(name),
        reason: "state.json does not list this file".to_string(),
    })
}
