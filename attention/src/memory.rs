//! What stepwise decoding remembers: keys and values of the steps so far, or of a fixed memory.

use burn::tensor::{Int, Tensor, TensorData};

/// State of the mechanisms that remember a value, and possibly a key, for each position.
#[derive(Clone, Debug)]
pub struct KeyValueState {
    keys: Option<Tensor<4>>,
    values: Option<Tensor<4>>,
    length: usize,
    capacity: usize,
    reach: Option<usize>,
    fixed: bool,
}

impl KeyValueState {
    /// A state that grows with each step up to `capacity` positions.
    pub fn growing(capacity: usize) -> Self {
        Self { keys: None, values: None, length: 0, capacity, reach: None, fixed: false }
    }

    /// Of a state that grows, forgets what lies more than `reach` positions before the next step.
    pub fn reaching(mut self, reach: Option<usize>) -> Self {
        self.reach = reach;
        self
    }

    /// A state that holds a memory of another sequence: keys `[B, H, K, R]` and values `[B, H, K, D]`.
    pub fn fixed(keys: Option<Tensor<4>>, values: Tensor<4>) -> Self {
        let length = values.dims()[2];
        Self { keys: keys.map(Tensor::detach), values: Some(values.detach()), length, capacity: length, reach: None, fixed: true }
    }

    /// Whether this is a memory of another sequence.
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Index of the first remembered position.
    pub fn start(&self) -> usize {
        self.length - self.values.as_ref().map_or(0, |values| values.dims()[2])
    }

    /// Appends the keys and values of new positions, and forgets what these cannot reach.
    ///
    /// # Panics
    /// If the capacity is exceeded, or the state is that of a fixed memory.
    pub fn push(&mut self, keys: Option<Tensor<4>>, values: Tensor<4>) {
        assert!(!self.fixed, "a memory of another sequence cannot grow");
        self.length += values.dims()[2];
        assert!(self.length <= self.capacity, "{} positions exceed the state's capacity {}", self.length, self.capacity);
        let reach = self.reach.unwrap_or(usize::MAX);
        let append = |old: Option<Tensor<4>>, new: Tensor<4>| match old {
            Some(old) if reach > 0 => {
                let length = old.dims()[2];
                let kept = length.min(reach);
                Tensor::cat(vec![old.narrow(2, length - kept, kept), new.detach()], 2)
            }
            _ => new.detach(),
        };
        self.keys = keys.map(|keys| append(self.keys.take(), keys));
        self.values = Some(append(self.values.take(), values));
    }

    /// Keys of the remembered positions, `[B, H, K, R]`.
    pub fn keys(&self) -> Option<Tensor<4>> {
        self.keys.clone()
    }

    /// Values of the remembered positions, `[B, H, K, D]`.
    ///
    /// # Panics
    /// If nothing is remembered yet.
    pub fn values(&self) -> Tensor<4> {
        self.values.clone().expect("a state is read after its first step")
    }

    /// Keeps the given batch rows, in the given order.
    pub fn select(&mut self, rows: &[usize]) {
        let pick = |x: Tensor<4>| {
            let rows: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
            let count = rows.len();
            let rows = Tensor::<1, Int>::from_data(TensorData::new(rows, [count]), &x.device());
            x.select(0, rows)
        };
        self.keys = self.keys.take().map(pick);
        self.values = self.values.take().map(pick);
    }

    /// Bytes that the state holds, at 4 bytes a number.
    pub fn bytes(&self) -> usize {
        [&self.keys, &self.values].into_iter().flatten().map(|x| x.dims().iter().product::<usize>() * 4).sum()
    }
}
