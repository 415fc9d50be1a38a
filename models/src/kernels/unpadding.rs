//! Unpadding: position-wise parts compute the positions of a batch that are no padding, and no others (Zeng et al. 2022; Warner et al. 2024, section 2.1.2).
//!
//! Batches of sequences of mixed lengths are as long as the longest. [`Unpadding`] gathers the real positions of `[B, N, C]` into one row `[1, T, C]`, which
//! a feed-forward network reads like any other, and puts what comes out in its places; at the others it is 0. Which positions are real is known on the host, from
//! the lengths of the batch. Their indices go to the device with each use, which a device with a queue of its own does not wait for.

use std::sync::Arc;

use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};

/// The real positions of a padded batch.
#[derive(Clone, Debug)]
pub struct Unpadding {
    batch: usize,
    length: usize,
    /// Their places among all positions, row after row.
    places: Arc<[i32]>,
}

impl Unpadding {
    /// Of a batch `[B, N]`, of which `real` `[B N]` says row after row what is no padding; `None` if nothing is padding, or everything.
    ///
    /// # Panics
    /// If there is not one answer for each position.
    pub fn new(real: &[bool], [batch, length]: [usize; 2]) -> Option<Self> {
        assert_eq!(real.len(), batch * length, "one answer for each of {batch} x {length} positions");
        let places: Arc<[i32]> = real.iter().zip(0..).filter_map(|(&real, place)| real.then_some(place)).collect();
        (1..real.len()).contains(&places.len()).then_some(Self { batch, length, places })
    }

    /// The real positions of `x` `[B, N, C]`, one after the other, `[1, T, C]`.
    ///
    /// # Panics
    /// If `x` is of another batch.
    pub fn unpadded(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        assert_eq!([batch, length], [self.batch, self.length], "the batch of which padding is left out");
        let places = self.places(&x);
        x.reshape([batch * length, width]).select(0, places).unsqueeze_dim(0)
    }

    /// `x` `[1, T, C]` in its places, `[B, N, C]`, between zeros.
    ///
    /// # Panics
    /// If `x` has another number of positions.
    pub fn padded(&self, x: Tensor<3>) -> Tensor<3> {
        let (Self { batch, length, places }, [_, real, width]) = (self, x.dims());
        assert_eq!(real, places.len(), "real positions of a batch");
        let zeros = Tensor::<2>::zeros([batch * length, width], (&x.device(), x.dtype()));
        let places = self.places(&x);
        zeros.select_assign(0, places, x.squeeze_dim(0), IndexingUpdateOp::Add).reshape([*batch, *length, width])
    }

    fn places(&self, x: &Tensor<3>) -> Tensor<1, Int> {
        Tensor::from_data(TensorData::new(self.places.to_vec(), [self.places.len()]), &x.device())
    }
}

#[cfg(test)]
mod tests;
