//! The sum of gradients over micro-batches, in their order.
//!
//! The values of all parameters, one after another, are divided into as many slices as there are ranks. After each round, in which every rank has computed one
//! micro-batch, a rank receives its slice of all of them and adds them up in their order. At the end all receive all slices. So memory and traffic do not grow
//! with the number of ranks, and each sum is that of one process: the same additions in the same order, on the same kind of device.

use std::collections::HashSet;
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, Device, Tensor, TensorData};
use heedful_attention::tensors::read::read;

use super::{RankError, Ranks, Topic};

/// Adds up the gradients of micro-batches.
pub(in crate::train) enum GradientSum<'a, M> {
    /// All of them are computed here.
    Alone(GradientsAccumulator<M>),
    /// They are computed by several ranks.
    Shared(SharedSum<'a>),
}

impl<'a, M: Module> GradientSum<'a, M> {
    /// Nothing yet, of the gradients of `model`.
    pub(in crate::train) fn new(ranks: &'a Ranks, model: &M) -> Self {
        if ranks.size() == 1 { Self::Alone(GradientsAccumulator::new()) } else { Self::Shared(SharedSum::new(ranks, model)) }
    }

    /// Adds a round: the gradients of one micro-batch of each of the first `count` ranks, of which `own` is this one's.
    pub(in crate::train) fn add(&mut self, model: &M, own: Option<GradientsParams>, count: usize) -> Result<(), RankError> {
        match self {
            Self::Alone(accumulator) => {
                accumulator.accumulate(model, own.expect("the only rank computes every micro-batch"));
                Ok(())
            }
            Self::Shared(sum) => sum.add(model, own, count),
        }
    }

    /// The sum, the same on every rank.
    pub(in crate::train) fn finish(self, model: &M) -> Result<GradientsParams, RankError> {
        match self {
            Self::Alone(mut accumulator) => Ok(accumulator.grads()),
            Self::Shared(sum) => sum.finish(model),
        }
    }
}

/// A part of a parameter that lies in one slice.
#[derive(Clone, Debug)]
struct Piece {
    /// Which parameter, in the order in which the model is visited.
    parameter: usize,
    /// Which of its values, in bytes.
    bytes: Range<usize>,
    dtype: DType,
}

/// The part of the sum that this rank adds up.
pub(in crate::train) struct SharedSum<'a> {
    ranks: &'a Ranks,
    device: Device,
    /// Number of parameters.
    parameters: usize,
    /// Of each rank.
    slices: Vec<Vec<Piece>>,
    /// Of each piece of the own slice; none where no micro-batch had a gradient.
    sums: Vec<Option<Tensor<1>>>,
}

impl<'a> SharedSum<'a> {
    fn new<M: Module>(ranks: &'a Ranks, model: &M) -> Self {
        let mut sizes = Sizes::default();
        model.visit(&mut sizes);
        let slices = slices(&sizes.sizes, ranks.size());
        let device = model.devices().into_iter().next().expect("a model to train has parameters").without_autodiff();
        let sums = vec![None; slices[ranks.rank()].len()];
        Self { ranks, device, parameters: sizes.sizes.len(), slices, sums }
    }

    fn add<M: Module>(&mut self, model: &M, own: Option<GradientsParams>, count: usize) -> Result<(), RankError> {
        let messages = match own {
            None => vec![Vec::new(); self.ranks.size()],
            Some(gradients) => {
                let mut values = Values { gradients, seen: HashSet::new(), values: Vec::new() };
                model.visit(&mut values);
                self.slices.iter().map(|slice| message(slice, &values.values)).collect()
            }
        };
        let told = self.ranks.exchange(Topic::Gradients, messages)?;
        // In a round the order of the ranks is that of the micro-batches.
        for message in &told[..count] {
            let (mut values, is_there) = message.split_at(message.len() - self.parameters);
            for (piece, sum) in self.slices[self.ranks.rank()].iter().zip(&mut self.sums) {
                if is_there[piece.parameter] == 0 {
                    continue;
                }
                let (value, rest) = values.split_at(piece.bytes.len());
                values = rest;
                let length = value.len() / piece.dtype.size();
                let value =
                    Tensor::from_data(TensorData::from_bytes_vec(value.to_vec(), [length], piece.dtype), (&self.device, piece.dtype));
                *sum = Some(match sum.take() {
                    Some(sum) => sum + value,
                    None => value,
                });
            }
        }
        Ok(())
    }

    fn finish<M: Module>(self, model: &M) -> Result<GradientsParams, RankError> {
        let mut own = vec![None; self.parameters];
        for (piece, sum) in self.slices[self.ranks.rank()].iter().zip(self.sums) {
            own[piece.parameter] = sum.map(|sum| Bytes { first: piece.bytes.start, bytes: read(sum).as_bytes().to_vec() });
        }
        let told = self.ranks.gather(Topic::Sums, message(&self.slices[self.ranks.rank()], &own))?;
        let mut sums = vec![None; self.parameters];
        for (slice, message) in self.slices.iter().zip(&told) {
            let (mut values, is_there) = message.split_at(message.len() - self.parameters);
            for piece in slice.iter().filter(|piece| is_there[piece.parameter] == 1) {
                let (value, rest) = values.split_at(piece.bytes.len());
                values = rest;
                sums[piece.parameter].get_or_insert_with(Vec::new).extend_from_slice(value);
            }
        }
        let mut register =
            Register { device: self.device, sums: sums.into_iter(), seen: HashSet::new(), gradients: GradientsParams::new() };
        model.visit(&mut register);
        Ok(register.gradients)
    }
}

/// Values of a parameter, from the byte `first` on.
#[derive(Clone, Debug)]
struct Bytes {
    first: usize,
    bytes: Vec<u8>,
}

/// The pieces of a slice that are there, and at the end for each parameter whether it is there.
fn message(slice: &[Piece], values: &[Option<Bytes>]) -> Vec<u8> {
    let mut message = Vec::with_capacity(slice.iter().map(|piece| piece.bytes.len()).sum::<usize>() + values.len() + 1);
    for piece in slice {
        if let Some(Bytes { first, bytes }) = &values[piece.parameter] {
            message.extend_from_slice(&bytes[piece.bytes.start - first..piece.bytes.end - first]);
        }
    }
    message.extend(values.iter().map(|value| u8::from(value.is_some())));
    message
}

/// Parameters of so many values, one after another, in `count` slices of as equal a length as there is.
fn slices(sizes: &[(usize, DType)], count: usize) -> Vec<Vec<Piece>> {
    let total: usize = sizes.iter().map(|(values, _)| values).sum();
    let border = |slice: usize| (total as u128 * slice as u128 / count as u128) as usize;
    let pieces = |slice: usize| {
        let mut begin = 0;
        let piece = |(parameter, &(values, dtype)): (usize, &(usize, DType))| {
            let first = border(slice).max(begin);
            let after = border(slice + 1).min(begin + values);
            let bytes = first.saturating_sub(begin) * dtype.size()..after.saturating_sub(begin) * dtype.size();
            begin += values;
            (first < after).then_some(Piece { parameter, bytes, dtype })
        };
        sizes.iter().enumerate().filter_map(piece).collect()
    };
    (0..count).map(pieces).collect()
}

/// Number and type of the values of each parameter. One that appears twice counts once, where it appears first.
#[derive(Default)]
struct Sizes {
    seen: HashSet<ParamId>,
    sizes: Vec<(usize, DType)>,
}

impl ModuleVisitor for Sizes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.seen.insert(param.id) {
            self.sizes.push((param.shape().num_elements(), param.val().dtype()));
        }
    }
}

/// The values of the gradients of a micro-batch.
struct Values {
    gradients: GradientsParams,
    seen: HashSet<ParamId>,
    values: Vec<Option<Bytes>>,
}

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.seen.insert(param.id) {
            let gradient = self.gradients.remove::<D>(param.id);
            self.values.push(gradient.map(|gradient| {
                assert_eq!(gradient.dtype(), param.val().dtype(), "a gradient has the type of its parameter");
                Bytes { first: 0, bytes: read(gradient).as_bytes().to_vec() }
            }));
        }
    }
}

/// Makes gradients of sums.
struct Register {
    device: Device,
    sums: std::vec::IntoIter<Option<Vec<u8>>>,
    seen: HashSet<ParamId>,
    gradients: GradientsParams,
}

impl ModuleVisitor for Register {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.seen.insert(param.id)
            && let Some(bytes) = self.sums.next().expect("there is one for each parameter")
        {
            let dtype = param.val().dtype();
            let data = TensorData::from_bytes_vec(bytes, param.shape(), dtype);
            self.gradients.register(param.id, Tensor::<D>::from_data(data, (&self.device, dtype)));
        }
    }
}
