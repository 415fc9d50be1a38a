//! Unpadding: position-wise parts compute only the real positions of a batch (Zeng et al. 2022; Warner et al. 2024, section 2.1.2).
//!
//! Batches of sequences of mixed lengths are as long as the longest. [`Unpadding`] gathers the real positions of `[B, N, C]` into one row `[1, T, C]`, an
//! ordinary input for a feed-forward network. It scatters the result back, with 0 elsewhere. The host derives the real positions from the lengths of the batch.
//! Each use transfers their indices to the device; a device with a queue does not wait for them.

use std::sync::Arc;

use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};

/// Real positions of a padded batch.
#[derive(Clone, Debug)]
pub struct Unpadding {
    batch: usize,
    length: usize,
    /// Their indices among all positions, row after row.
    places: Arc<[i32]>,
}

impl Unpadding {
    /// Unpadding of a batch `[B, N]` with flags `real` `[B N]`, row after row; `None` if all or no positions are padding.
    ///
    /// # Panics
    /// If the number of flags differs from the number of positions.
    pub fn new(real: &[bool], [batch, length]: [usize; 2]) -> Option<Self> {
        assert_eq!(real.len(), batch * length, "one answer for each of {batch} x {length} positions");
        let places: Arc<[i32]> = real.iter().zip(0..).filter_map(|(&real, place)| real.then_some(place)).collect();
        (1..real.len()).contains(&places.len()).then_some(Self { batch, length, places })
    }

    /// The real positions of `x` `[B, N, C]`, concatenated, `[1, T, C]`.
    ///
    /// # Panics
    /// If `x` belongs to another batch.
    pub fn unpadded(&self, x: Tensor<3>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        assert_eq!([batch, length], [self.batch, self.length], "the batch of which padding is left out");
        let places = self.places(&x);
        x.reshape([batch * length, width]).select(0, places).unsqueeze_dim(0)
    }

    /// Scatters `x` `[1, T, C]` to its positions, `[B, N, C]`, with zeros elsewhere.
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
