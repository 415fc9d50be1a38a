//! Cosines and sines of positions, cached.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};

/// Tables of cosines and sines `[N, P]`, computed in double precision on the host: in single precision, cosines at position 10,000 are wrong by up to 3e-4.
///
/// Tables are computed once per device and shared by layers with the same angles.
pub(in crate::mechanisms) struct Tables {
    /// Angle per position of each pair.
    frequencies: Vec<f64>,
    /// Factor of cosines and sines.
    magnitude: f64,
    made: Mutex<Vec<Made>>,
}

/// Tables of positions from 0 on.
struct Made {
    device: Device,
    dtype: DType,
    cos: Tensor<2>,
    sin: Tensor<2>,
}

/// Tables of all existing layers.
static TABLES: Mutex<Vec<Weak<Tables>>> = Mutex::new(Vec::new());

impl Tables {
    /// Shared tables for these angles.
    pub(in crate::mechanisms) fn shared(frequencies: Vec<f64>, magnitude: f64) -> Arc<Self> {
        let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|tables| tables.strong_count() > 0);
        let same = |tables: &Arc<Self>| tables.frequencies == frequencies && tables.magnitude == magnitude;
        if let Some(known) = tables.iter().filter_map(Weak::upgrade).find(same) {
            return known;
        }
        let new = Arc::new(Self { frequencies, magnitude, made: Mutex::default() });
        tables.push(Arc::downgrade(&new));
        new
    }

    /// Cosines and sines of some positions, `[N, P]` each.
    pub(in crate::mechanisms) fn of(&self, positions: Range<usize>, device: &Device, dtype: DType) -> [Tensor<2>; 2] {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let is_theirs = |made: &Made| made.dtype == dtype && made.device == *device && made.device.is_autodiff() == device.is_autodiff();
        let place = made.iter().position(is_theirs);
        let rows = place.map_or(0, |place| made[place].cos.dims()[0]);
        let place = match place {
            Some(place) if rows >= positions.end => place,
            // Half as much again: each decoding step needs one more position.
            _ => {
                let [cos, sin] = self.made_of(positions.end.max(rows + rows / 2), device, dtype);
                let new = Made { device: device.clone(), dtype, cos, sin };
                match place {
                    Some(place) => made[place] = new,
                    None => made.push(new),
                }
                place.unwrap_or(made.len() - 1)
            }
        };
        let Made { cos, sin, .. } = &made[place];
        let is_all = positions == (0..cos.dims()[0]);
        [cos, sin].map(|table| if is_all { table.clone() } else { table.clone().narrow(0, positions.start, positions.len()) })
    }

    /// Cosines and sines of positions in any order, `[N, P]` each.
    pub(in crate::mechanisms) fn at(&self, positions: &[usize], device: &Device, dtype: DType) -> [Tensor<2>; 2] {
        let end = positions.iter().max().map_or(0, |last| last + 1);
        let indices = positions.iter().map(|&position| position as i32).collect();
        let indices = Tensor::<1, Int>::from_data(TensorData::new(indices, [positions.len()]), device);
        self.of(0..end, device, dtype).map(|table| table.select(0, indices.clone()))
    }

    /// Tables of the first `positions` positions.
    fn made_of(&self, positions: usize, device: &Device, dtype: DType) -> [Tensor<2>; 2] {
        [f64::cos, f64::sin].map(|of| {
            let numbers = (0..positions).flat_map(|position| {
                self.frequencies.iter().map(move |frequency| (self.magnitude * of(position as f64 * frequency)) as f32)
            });
            Tensor::from_data(TensorData::new(numbers.collect(), [positions, self.frequencies.len()]), (device, dtype))
        })
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").field("frequencies", &self.frequencies).field("magnitude", &self.magnitude).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::read::read;

    fn rows(tables: &Tables, positions: Range<usize>) -> [Vec<f32>; 2] {
        tables.of(positions, &Device::flex(), DType::F32).map(|table| read(table).try_to_vec().unwrap())
    }

    #[test]
    fn layers_with_the_same_angles_share_their_tables() {
        let [one, same, other] = [0.125, 0.125, 0.25].map(|slowest| Tables::shared(vec![1.0, slowest], 1.0));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert!(!Arc::ptr_eq(&one, &Tables::shared(vec![1.0, 0.125], 2.0)));
    }

    #[test]
    fn any_positions_in_any_order_have_the_same_rows() {
        let tables = Tables::shared(vec![1.0, 0.0625], 1.5);
        for positions in [3..5, 0..5, 4..5, 0..2, 5..6, 0..7, 20..23] {
            let expected = |of: fn(f64) -> f64| -> Vec<f32> {
                positions.clone().flat_map(|p| [1.0, 0.0625].map(|frequency| (1.5 * of(p as f64 * frequency)) as f32)).collect()
            };
            assert_eq!(rows(&tables, positions.clone()), [expected(f64::cos), expected(f64::sin)], "{positions:?}");
        }
    }

    #[test]
    fn positions_may_be_repeated() {
        let tables = Tables::shared(vec![1.0, 0.25], 1.0);
        let [cos, sin] = tables.at(&[3, 0, 3], &Device::flex(), DType::F32);
        let [one, other] = rows(&tables, 0..4);
        for (found, all) in [(cos, one), (sin, other)] {
            let expected = [&all[6..8], &all[0..2], &all[6..8]].concat();
            assert_eq!(read(found).try_to_vec::<f32>().unwrap(), expected);
        }
    }

    #[test]
    fn a_table_is_made_once_for_each_device() {
        let tables = Tables::shared(vec![1.0, 0.03125], 1.0);
        for (length, positions) in [(4, 4), (4, 4), (2, 4), (5, 6), (6, 6), (7, 9)] {
            tables.of(0..length, &Device::flex(), DType::F32);
            let made = tables.made.lock().unwrap();
            assert_eq!((made.len(), made[0].cos.dims()), (1, [positions, 2]), "{length}");
        }
        assert!(tables.of(0..4, &Device::flex().autodiff(), DType::F32)[0].device().is_autodiff());
        assert_eq!(tables.of(0..4, &Device::flex(), DType::BF16)[0].dtype(), DType::BF16);
        assert_eq!(tables.made.lock().unwrap().len(), 3);
    }
}
