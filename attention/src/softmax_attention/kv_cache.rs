//! Decoding state: keys and values of past steps, or of a fixed memory.

use std::ops::Range;

use burn::tensor::Tensor;

use crate::contract::decoding_position::{DecodingStart, MemoryRows, Progress};
use crate::contract::visibility::selected;
use crate::contract::{AttentionInput, SinkCache};
use crate::tensors::main_memory;

/// State of mechanisms that cache a value, and possibly a key, per position.
#[derive(Clone, Debug)]
pub struct KeyValueState {
    progress: Progress,
    keys: Option<Remembered>,
    values: Option<Remembered>,
    length: usize,
    capacity: usize,
    reach: Option<usize>,
    /// Number of first positions that are never evicted.
    sinks: usize,
    /// Rows of the memory in cross-attention.
    fixed: Option<MemoryRows>,
}

/// Numbers of the permanent first positions, if any, followed by those of the latest positions, with spare room, so that steps do not copy the existing ones.
#[derive(Clone, Debug)]
struct Remembered {
    /// `[B, G, room, D]`.
    room: Tensor<4>,
    start: usize,
    length: usize,
}

impl Remembered {
    fn full(numbers: Tensor<4>) -> Self {
        let length = numbers.dims()[2];
        Self { room: numbers, start: 0, length }
    }

    fn numbers(&self) -> Tensor<4> {
        self.room.clone().narrow(2, self.start, self.length)
    }

    /// The first `sinks` positions, the last `reach` of the others, and the new ones, at most `capacity` in all.
    fn followed_by(self, new: Tensor<4>, sinks: usize, reach: usize, capacity: usize) -> Self {
        // With fusion in Burn 0.22.1, convolutions and banded Gaussians returned wrong numbers after a step that assigned to the room in place, and correct
        // ones after a copy. Mechanisms with a limited reach cache so little that copying is cheap.
        let in_place = reach == usize::MAX || main_memory::has_kernels(&new.device());
        let Self { mut room, start: held_from, length: held } = self;
        let sinks = sinks.min(held);
        let kept = reach.min(held - sinks);
        let forgotten = held - sinks - kept;
        let [rows, heads, added, width] = new.dims();
        let (start, length) = (held_from + forgotten, sinks + kept + added);
        let end = start + length;
        if in_place && end <= room.dims()[2] {
            if sinks > 0 && forgotten > 0 {
                // The positions move up. A view of the room would not do, since assigning to it would copy the whole room.
                let first = Tensor::zeros([rows, heads, sinks, width], (&new.device(), new.dtype()));
                let first = first.slice_assign([0..rows, 0..heads, 0..sinks, 0..width], room.clone().narrow(2, held_from, sinks));
                room = room.slice_assign([0..rows, 0..heads, start..start + sinks, 0..width], first);
            }
            room = room.slice_assign([0..rows, 0..heads, end - added..end, 0..width], new);
            return Self { room, start, length };
        }
        // Half as much again: the total copied over all steps then grows linearly, not quadratically, with their number.
        let spare = if in_place { (length / 2).min(capacity - length.min(capacity)) } else { 0 };
        let spare = (spare > 0).then(|| Tensor::zeros([rows, heads, spare, width], (&new.device(), new.dtype())));
        let held = [(held_from, sinks), (start + sinks, kept)].into_iter().filter(|(_, count)| *count > 0);
        let held = held.map(|(from, count)| room.clone().narrow(2, from, count));
        Self { room: Tensor::cat(held.chain([new]).chain(spare).collect(), 2), start: 0, length }
    }
}

impl KeyValueState {
    /// A state that grows with each step up to the capacity.
    pub fn growing(start: &DecodingStart) -> Self {
        let (progress, capacity) = (Progress::new(start), start.capacity());
        Self { progress, keys: None, values: None, length: 0, capacity, reach: None, sinks: 0, fixed: None }
    }

    /// For a growing state: evicts positions more than `reach` before the next step.
    pub(crate) fn reaching(mut self, reach: Option<usize>) -> Self {
        self.reach = reach;
        self
    }

    /// For a growing state: keeps what such a cache keeps of each batch row. Positions behind the [gap](Self::gap) have moved up by its length.
    pub(crate) fn keeping(mut self, cache: SinkCache) -> Self {
        let padding = self.progress.positions().left_padding.as_ref().and_then(|counts| counts.iter().max().copied());
        self.sinks = cache.sinks + padding.unwrap_or(0);
        self.reaching(Some(cache.window - 1))
    }

    /// A state with a fixed memory for cross-attention: keys `[B, G, K, R]` and values `[B, G, K, D]`.
    pub fn fixed(start: &DecodingStart, keys: Option<Tensor<4>>, values: Tensor<4>) -> Self {
        let length = values.dims()[2];
        let [keys, values] = [keys, Some(values)].map(|numbers| numbers.map(|numbers| Remembered::full(numbers.detach())));
        let fixed = Some(MemoryRows::new(start));
        Self { progress: Progress::new(start), keys, values, length, capacity: length, reach: None, sinks: 0, fixed }
    }

    /// Returns the next positions `[B, N, C]` as an input, and advances past them.
    pub fn advance(&mut self, query: Tensor<3>) -> AttentionInput {
        self.progress.advance(query)
    }

    /// Whether this state holds a fixed memory.
    pub fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// Index of the first cached position.
    pub fn start(&self) -> usize {
        if self.sinks == 0 { self.forgotten() } else { 0 }
    }

    /// Evicted positions between the permanent first ones and the latest ones.
    pub(crate) fn gap(&self) -> Range<usize> {
        self.sinks..self.sinks + if self.sinks == 0 { 0 } else { self.forgotten() }
    }

    fn forgotten(&self) -> usize {
        self.length - self.values.as_ref().map_or(0, |values| values.length)
    }

    /// Appends the keys and values of new positions, and evicts positions out of their reach.
    ///
    /// # Panics
    /// If the capacity is exceeded, or the state holds a fixed memory.
    pub fn push(&mut self, keys: Option<Tensor<4>>, values: Tensor<4>) {
        assert!(self.fixed.is_none(), "a memory of another sequence cannot grow");
        self.length += values.dims()[2];
        assert!(self.length <= self.capacity, "{} positions exceed the state's capacity {}", self.length, self.capacity);
        let (sinks, reach, capacity) = (self.sinks, self.reach.unwrap_or(usize::MAX), self.capacity);
        let append = |old: Option<Remembered>, new: Tensor<4>| match old {
            Some(old) => old.followed_by(new.detach(), sinks, reach, capacity),
            None => Remembered::full(new.detach()),
        };
        self.keys = keys.map(|keys| append(self.keys.take(), keys));
        self.values = Some(append(self.values.take(), values));
    }

    /// Keys of the cached positions, `[B, G, K, R]`.
    pub fn keys(&self) -> Option<Tensor<4>> {
        self.keys.as_ref().map(Remembered::numbers)
    }

    /// Values of the cached positions, `[B, G, K, D]`.
    ///
    /// # Panics
    /// If the cache is empty.
    pub fn values(&self) -> Tensor<4> {
        self.values.as_ref().expect("a state is read after its first step").numbers()
    }

    /// Keeps the given batch rows, in the given order.
    pub fn select(&mut self, rows: &[usize]) {
        if self.fixed.as_mut().is_some_and(|memory| !memory.select(rows)) {
            return;
        }
        self.progress.select(rows);
        for remembered in [&mut self.keys, &mut self.values].into_iter().flatten() {
            remembered.room = selected(&remembered.room, rows);
        }
    }

    /// Bytes of the cached numbers, at 4 bytes per number.
    pub fn held_bytes(&self) -> usize {
        let held = |Remembered { room, length, .. }: &Remembered| {
            let [rows, heads, _, width] = room.dims();
            4 * rows * heads * length * width
        };
        self.remembered().map(held).sum()
    }

    /// Bytes of the state, including spare room, at 4 bytes per number.
    pub fn bytes(&self) -> usize {
        self.remembered().map(|Remembered { room, .. }| room.dims().iter().product::<usize>() * 4).sum()
    }

    fn remembered(&self) -> impl Iterator<Item = &Remembered> {
        [&self.keys, &self.values].into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::backend::{DispatchKindConversion, DispatchTensor, Flex};
    use burn::tensor::{Device, TensorData};

    use crate::contract::visibility::Visibility;

    fn numbers(x: Tensor<4>) -> Vec<f32> {
        x.into_data().try_to_vec().unwrap()
    }

    /// Positions from `start` on: each number encodes its row, head, position and channel.
    fn positions(rows: &[usize], start: usize, length: usize) -> Tensor<4> {
        let number =
            |row: usize, head: usize, position: usize, channel: usize| (((row * 10 + head) * 100 + position) * 10 + channel) as f32;
        let all = rows.iter().flat_map(|&row| {
            (0..2).flat_map(move |head| {
                (start..start + length).flat_map(move |position| (0..3).map(move |channel| number(row, head, position, channel)))
            })
        });
        Tensor::from_data(TensorData::new(all.collect(), [rows.len(), 2, length, 3]), &Device::flex())
    }

    #[test]
    fn states_hold_the_latest_positions_in_their_order() {
        for reach in [None, Some(0), Some(1), Some(7), Some(40)] {
            let mut state = KeyValueState::growing(&DecodingStart::self_attention(2, 60)).reaching(reach);
            let mut length = 0;
            for added in [5, 1, 1, 1, 1, 9, 1, 1, 1, 1, 1, 1, 20, 1, 1, 1, 13] {
                state.push(Some(positions(&[0, 1], length, added)), positions(&[3, 4], length, added));
                length += added;
                let start = reach.map_or(0, |reach| (length - added).saturating_sub(reach));
                assert_eq!(state.start(), start, "{reach:?}");
                assert_eq!(numbers(state.keys().unwrap()), numbers(positions(&[0, 1], start, length - start)), "{reach:?}");
                assert_eq!(numbers(state.values()), numbers(positions(&[3, 4], start, length - start)), "{reach:?}");
            }
        }
    }

    #[test]
    fn sinks_stay_before_the_latest_positions() {
        for (sinks, window) in [(1, 1), (3, 4), (4, 9), (2, 70)] {
            let mut state = KeyValueState::growing(&DecodingStart::self_attention(2, 60)).keeping(SinkCache { sinks, window });
            let mut length = 0;
            for added in [2, 1, 1, 5, 1, 1, 1, 9, 1, 1, 1, 20, 1, 1, 13] {
                state.push(Some(positions(&[0, 1], length, added)), positions(&[3, 4], length, added));
                length += added;
                let latest = (length - added).saturating_sub(window - 1).max(sinks.min(length));
                let expected = |rows: &[usize]| {
                    let first = positions(rows, 0, sinks.min(length));
                    if latest == length { first } else { Tensor::cat(vec![first, positions(rows, latest, length - latest)], 2) }
                };
                assert_eq!(numbers(state.keys().unwrap()), numbers(expected(&[0, 1])), "{sinks} and {window}");
                assert_eq!(numbers(state.values()), numbers(expected(&[3, 4])), "{sinks} and {window}");
                let forgotten = latest - sinks.min(length);
                assert_eq!((state.start(), state.gap()), (0, sinks..sinks + forgotten), "{sinks} and {window}");
            }
            state.select(&[1, 1]);
            let held = numbers(state.values());
            assert_eq!(held[..held.len() / 2], held[held.len() / 2..]);
            assert_eq!(state.held_bytes(), 4 * 2 * held.len());
        }
    }

    #[test]
    fn sinks_behind_padding_stay_too() {
        let start = DecodingStart::self_attention(2, 60).with_left_padding([0, 3]);
        let mut state = KeyValueState::growing(&start).keeping(SinkCache { sinks: 2, window: 2 });
        (0..9).for_each(|at| state.push(None, positions(&[0, 1], at, 1)));
        assert_eq!(numbers(state.values()), numbers(Tensor::cat(vec![positions(&[0, 1], 0, 5), positions(&[0, 1], 7, 2)], 2)));
        assert_eq!(state.gap(), 5..7);
    }

    #[test]
    fn rows_are_selected_with_the_room_behind_them() {
        let mut state = KeyValueState::growing(&DecodingStart::self_attention(3, 9));
        state.push(None, positions(&[0, 1, 2], 0, 4));
        state.push(None, positions(&[0, 1, 2], 4, 1));
        state.select(&[2, 0, 0]);
        state.push(None, positions(&[2, 0, 0], 5, 1));
        assert_eq!(numbers(state.values()), numbers(positions(&[2, 0, 0], 0, 6)));
    }

    /// Address of the numbers of a tensor in main memory.
    fn address(numbers: &Tensor<4>) -> *const f32 {
        let tensor = <DispatchTensor as DispatchKindConversion<Flex>>::try_into_backend(numbers.clone().into_dispatch());
        crate::tensors::main_memory::numbers(&tensor.expect("the tensor is one of flex").float()).as_ptr()
    }

    #[test]
    fn a_memory_is_copied_only_for_rows_of_other_sentences() {
        let memory = Tensor::zeros([2, 4, 6], &Device::flex());
        let start = DecodingStart::cross_attention(memory, Visibility::padding(vec![4, 3])).with_left_padding([0, 1]);
        let mut state = KeyValueState::fixed(&start, Some(positions(&[0, 1], 0, 4)), positions(&[3, 4], 0, 4));
        state.select(&[0, 0, 1]);
        let held = |state: &KeyValueState| [address(&state.keys().unwrap()), address(&state.values())];
        let before = held(&state);
        state.select(&[1, 0, 2]);
        state.select(&[1, 1, 2]);
        assert_eq!(held(&state), before);
        assert_eq!(numbers(state.values()), numbers(positions(&[3, 3, 4], 0, 4)));
        state.select(&[2, 0]);
        assert_eq!(numbers(state.keys().unwrap()), numbers(positions(&[1, 0], 0, 4)));
        assert_eq!(numbers(state.values()), numbers(positions(&[4, 3], 0, 4)));
        let input = state.advance(Tensor::zeros([2, 1, 6], &Device::flex()));
        assert!(input.visibility.equals(&Visibility::padding(vec![3, 4])));
        assert_eq!(input.positions.left_padding.as_deref(), Some(&[1, 0][..]));
    }

    #[test]
    fn states_hold_at_most_half_as_much_again() {
        let start = DecodingStart::self_attention(1, 1000);
        let (mut state, mut bounded) = (KeyValueState::growing(&start), KeyValueState::growing(&start).reaching(Some(20)));
        let position = 2 * 3 * 4;
        for at in 0..1000 {
            state.push(None, positions(&[0], at, 1));
            bounded.push(None, positions(&[0], at, 1));
            assert!(state.bytes() <= (at + 1) * 3 / 2 * position && bounded.bytes() <= 32 * position);
        }
        assert_eq!((state.bytes(), state.held_bytes()), (1000 * position, 1000 * position));
    }

    #[test]
    #[should_panic(expected = "10 positions exceed the state's capacity 9")]
    fn states_do_not_grow_beyond_their_capacity() {
        let mut state = KeyValueState::growing(&DecodingStart::self_attention(3, 9));
        state.push(None, positions(&[0], 0, 5));
        state.push(None, positions(&[0], 5, 5));
    }
}
