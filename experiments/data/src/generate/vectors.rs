//! Sequences of vectors whose elements need different amounts of computation (Graves 2016, sections 3.1 to 3.4).
//!
//! - **Parity**: one vector of `size` numbers of which 1 to `size` are 1 or -1 and the others 0. Is the number of ones odd?
//! - **Logic**: 1 to `length` vectors. Each has two bits `b_0` and `b_1` and 1 to `gates` gates, one-hot among ten truth tables, in as many slots as there are at most:
//!   `b_(i+1) = T_i(b_i, b_(i-1))`, of which the last is asked. After the first vector `b_0` is the answer before, and 0 stands in its place.
//! - **Addition**: 2 to `numbers` vectors, each a number of 1 to `digits` random digits, most significant first, one-hot in as many slots as there are at most.
//!   From the second on the sum so far is asked, as its digits, least significant first, and `none` after the last.
//! - **Sorting**: 2 to `numbers` vectors of a number from the standard normal distribution and a flag that tells the last; then as many zero vectors, at which
//!   the places of the numbers are asked in ascending order.

use heedful_random::RandomKey;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::sequences::SequenceTaskError;

/// The truth tables: `T(p, q)` for `p` and `q` true, only `p`, only `q`, and neither (Graves 2016, Table 1).
const GATES: [[bool; 4]; 10] = [
    [false, false, false, true],
    [false, false, true, false],
    [false, true, false, false],
    [false, true, true, false],
    [false, true, true, true],
    [true, false, false, false],
    [true, false, false, true],
    [true, true, false, true],
    [true, false, true, true],
    [true, true, true, false],
];
const DIGITS: usize = 10;
/// The greatest size of a task.
const MOST: usize = 10_000;

/// A sequence of vectors with targets at some of them.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorSequence {
    /// The numbers of the vectors, one vector after the other.
    pub inputs: Vec<f32>,
    /// Elements in ascending order, at least one, each with its target classes: one of each group.
    pub targets: Vec<(usize, Vec<u32>)>,
}

/// Options of parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VectorParityConfig {
    /// Numbers of the vector, at least 1 (default 16; 64 in the paper).
    pub size: usize,
}

/// Options of logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogicConfig {
    /// Most gates of a vector, at least 1 (default 4; 10 in the paper).
    pub gates: usize,
    /// Most vectors of a sequence, at least 1 (default 4; 10 in the paper).
    pub length: usize,
}

/// Options of addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdditionConfig {
    /// Most digits of a number, 1 to 9 (default 3; 5 in the paper).
    pub digits: usize,
    /// Most numbers of a sequence, 2 to 9 (default 3; 5 in the paper).
    pub numbers: usize,
}

/// Options of sorting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SortConfig {
    /// Most numbers of a sequence, at least 2 (default 6; 15 in the paper).
    pub numbers: usize,
}

impl Default for VectorParityConfig {
    fn default() -> Self {
        Self { size: 16 }
    }
}

impl Default for LogicConfig {
    fn default() -> Self {
        Self { gates: 4, length: 4 }
    }
}

impl Default for AdditionConfig {
    fn default() -> Self {
        Self { digits: 3, numbers: 3 }
    }
}

impl Default for SortConfig {
    fn default() -> Self {
        Self { numbers: 6 }
    }
}

/// A task and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum VectorTask {
    /// Whether the number of ones is odd.
    Parity(VectorParityConfig),
    /// The output of a chain of gates.
    Logic(LogicConfig),
    /// The sum so far.
    Addition(AdditionConfig),
    /// Numbers in ascending order.
    Sort(SortConfig),
}

impl Default for VectorTask {
    fn default() -> Self {
        Self::Parity(VectorParityConfig::default())
    }
}

impl VectorTask {
    /// Names of the tasks, which are their `kind`.
    pub const NAMES: [&str; 4] = ["parity", "logic", "addition", "sort"];

    /// The name of the task.
    pub fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::Parity(_) => 0,
            Self::Logic(_) => 1,
            Self::Addition(_) => 2,
            Self::Sort(_) => 3,
        }]
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of its range.
    pub fn validate(&self) -> Result<(), SequenceTaskError> {
        let within = |field, value: usize, least: usize, most: usize| {
            let reason = format!("{value} is not a number from {least} to {most}");
            if (least..=most).contains(&value) { Ok(()) } else { Err(SequenceTaskError { field, reason }) }
        };
        match *self {
            Self::Parity(VectorParityConfig { size }) => within("size", size, 1, MOST),
            Self::Logic(LogicConfig { gates, length }) => within("gates", gates, 1, MOST).and_then(|()| within("length", length, 1, MOST)),
            Self::Addition(AdditionConfig { digits, numbers }) => {
                within("digits", digits, 1, 9).and_then(|()| within("numbers", numbers, 2, 9))
            }
            Self::Sort(SortConfig { numbers }) => within("numbers", numbers, 2, MOST),
        }
    }

    /// Numbers of a vector.
    pub fn inputs(&self) -> usize {
        match self {
            Self::Parity(task) => task.size,
            Self::Logic(task) => 2 + GATES.len() * task.gates,
            Self::Addition(task) => DIGITS * task.digits,
            Self::Sort(_) => 2,
        }
    }

    /// Number of class groups, each with one target, and number of classes per group, at least 2.
    pub fn outputs(&self) -> [usize; 2] {
        match self {
            Self::Parity(_) | Self::Logic(_) => [1, 2],
            // A sum of at most nine numbers has at most one digit more than they have.
            Self::Addition(task) => [task.digits + 1, DIGITS + 1],
            Self::Sort(task) => [1, task.numbers],
        }
    }

    /// Most elements of a sequence.
    pub fn longest(&self) -> usize {
        match self {
            Self::Parity(_) => 1,
            Self::Logic(task) => task.length,
            Self::Addition(task) => task.numbers,
            Self::Sort(task) => 2 * task.numbers,
        }
    }

    /// The sequence that `key` makes.
    ///
    /// # Panics
    /// If the options are not valid.
    pub fn draw(&self, key: &RandomKey) -> VectorSequence {
        let rng = &mut key.rng();
        match self {
            Self::Parity(task) => task.draw(rng),
            Self::Logic(task) => task.draw(rng),
            Self::Addition(task) => task.draw(rng),
            Self::Sort(task) => task.draw(rng),
        }
    }
}

impl VectorParityConfig {
    fn draw(&self, rng: &mut ChaCha8Rng) -> VectorSequence {
        let mut places: Vec<usize> = (0..self.size).collect();
        let count = rng.random_range(1..=self.size);
        let (chosen, _) = places.partial_shuffle(rng, count);
        let mut inputs = vec![0.0; self.size];
        for &mut place in chosen {
            inputs[place] = if rng.random_bool(0.5) { 1.0 } else { -1.0 };
        }
        let ones = inputs.iter().filter(|&&number| number == 1.0).count();
        VectorSequence { inputs, targets: vec![(0, vec![(ones % 2) as u32])] }
    }
}

impl LogicConfig {
    fn draw(&self, rng: &mut ChaCha8Rng) -> VectorSequence {
        let mut sequence = VectorSequence { inputs: Vec::new(), targets: Vec::new() };
        let mut answer = None;
        for element in 0..rng.random_range(1..=self.length) {
            let first = answer.unwrap_or_else(|| rng.random_bool(0.5));
            let second = rng.random_bool(0.5);
            let shown = answer.is_none() && first;
            sequence.inputs.extend([f32::from(shown), f32::from(second)]);
            let (mut before, mut last) = (first, second);
            let gates = rng.random_range(1..=self.gates);
            for slot in 0..self.gates {
                let gate = (slot < gates).then(|| rng.random_range(0..GATES.len()));
                sequence.inputs.extend((0..GATES.len()).map(|index| f32::from(gate == Some(index))));
                if let Some(gate) = gate {
                    (before, last) = (last, GATES[gate][2 * usize::from(!last) + usize::from(!before)]);
                }
            }
            sequence.targets.push((element, vec![u32::from(last)]));
            answer = Some(last);
        }
        sequence
    }
}

impl AdditionConfig {
    fn draw(&self, rng: &mut ChaCha8Rng) -> VectorSequence {
        let mut sequence = VectorSequence { inputs: Vec::new(), targets: Vec::new() };
        let mut sum = 0;
        for element in 0..rng.random_range(2..=self.numbers) {
            let length = rng.random_range(1..=self.digits);
            let mut number = 0;
            for slot in 0..self.digits {
                let digit = (slot < length).then(|| rng.random_range(0..DIGITS));
                sequence.inputs.extend((0..DIGITS).map(|index| f32::from(digit == Some(index))));
                number = digit.map_or(number, |digit| DIGITS * number + digit);
            }
            sum += number;
            if element > 0 {
                let mut rest = Some(sum);
                let classes = (0..=self.digits).map(|_| match rest {
                    Some(number) => {
                        rest = (number >= DIGITS).then_some(number / DIGITS);
                        (number % DIGITS) as u32
                    }
                    None => DIGITS as u32,
                });
                sequence.targets.push((element, classes.collect()));
            }
        }
        sequence
    }
}

impl SortConfig {
    fn draw(&self, rng: &mut ChaCha8Rng) -> VectorSequence {
        let count = rng.random_range(2..=self.numbers);
        let numbers: Vec<f32> = (0..count).map(|_| normal(rng)).collect();
        let mut inputs: Vec<f32> =
            numbers.iter().enumerate().flat_map(|(place, &number)| [number, f32::from(place + 1 == count)]).collect();
        inputs.resize(4 * count, 0.0);
        let mut places: Vec<usize> = (0..count).collect();
        places.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
        VectorSequence { inputs, targets: places.into_iter().enumerate().map(|(at, place)| (count + at, vec![place as u32])).collect() }
    }
}

/// A number from the standard normal distribution (Box and Muller 1958).
fn normal(rng: &mut ChaCha8Rng) -> f32 {
    let (radius, angle): (f64, f64) = (1.0 - rng.random_range(0.0..1.0), rng.random_range(0.0..1.0));
    ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
}

impl VectorSequence {
    /// Number of vectors with `inputs` numbers each.
    pub fn length(&self, inputs: usize) -> usize {
        self.inputs.len() / inputs
    }
}

/// Numbers and shape of sequences as one array `[B, N, inputs]`, with zeros behind the shorter ones, and the length of each.
pub fn padded<'s>(sequences: impl Iterator<Item = &'s VectorSequence> + Clone, inputs: usize) -> (Vec<f32>, [usize; 3], Vec<usize>) {
    let lengths: Vec<usize> = sequences.clone().map(|sequence| sequence.length(inputs)).collect();
    let width = lengths.iter().copied().max().unwrap_or(0);
    let mut numbers = Vec::with_capacity(lengths.len() * width * inputs);
    for (row, sequence) in sequences.enumerate() {
        numbers.extend(&sequence.inputs);
        numbers.resize((row + 1) * width * inputs, 0.0);
    }
    let rows = lengths.len();
    (numbers, [rows, width, inputs], lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks() -> [VectorTask; 4] {
        [
            VectorTask::default(),
            VectorTask::Logic(LogicConfig::default()),
            VectorTask::Addition(AdditionConfig::default()),
            VectorTask::Sort(SortConfig::default()),
        ]
    }

    fn drawn(task: VectorTask) -> impl Iterator<Item = VectorSequence> {
        (0..300).map(move |index| task.draw(&RandomKey::from_seed(1).numbered(index)))
    }

    #[test]
    fn sequences_have_the_sizes_that_their_task_says() {
        for task in tasks() {
            task.validate().unwrap();
            let ([groups, classes], inputs) = (task.outputs(), task.inputs());
            let mut longest = 0;
            for sequence in drawn(task) {
                let length = sequence.length(inputs);
                longest = longest.max(length);
                assert_eq!(sequence.inputs.len(), length * inputs);
                assert!(!sequence.targets.is_empty() && sequence.targets.is_sorted_by(|a, b| a.0 < b.0));
                for (at, asked) in &sequence.targets {
                    assert!(*at < length && asked.len() == groups && asked.iter().all(|&class| (class as usize) < classes), "{sequence:?}");
                }
            }
            assert_eq!(longest, task.longest(), "{}", task.name());
            let first = task.draw(&RandomKey::from_seed(1).numbered(0));
            assert_eq!(drawn(task).next().unwrap(), first, "a key makes one sequence");
        }
    }

    #[test]
    fn parity_is_of_the_ones_alone() {
        let mut odd = 0;
        for sequence in drawn(VectorTask::default()) {
            let ones = sequence.inputs.iter().filter(|&&number| number == 1.0).count();
            assert_eq!(sequence.targets, [(0, vec![(ones % 2) as u32])]);
            assert!(sequence.inputs.iter().all(|number| [-1.0, 0.0, 1.0].contains(number)));
            odd += ones % 2;
        }
        assert!((100..200).contains(&odd), "{odd} of 300");
    }

    #[test]
    fn gates_are_applied_to_the_last_two_bits() {
        let tables: [fn(bool, bool) -> bool; 10] = [
            |p, q| !(p || q),
            |p, q| !p && q,
            |p, q| p && !q,
            |p, q| p != q,
            |p, q| !(p && q),
            |p, q| p && q,
            |p, q| p == q,
            |p, q| p || !q,
            |p, q| !p || q,
            |p, q| p || q,
        ];
        let task = LogicConfig { gates: 3, length: 4 };
        let inputs = VectorTask::Logic(task).inputs();
        for sequence in drawn(VectorTask::Logic(task)) {
            let mut answer = None;
            for (element, (at, asked)) in
                sequence.inputs.chunks(inputs).zip(&sequence.targets).enumerate().map(|(n, pair)| ((n, pair.0), pair.1))
            {
                let (number, vector) = element;
                assert_eq!(*at, number);
                assert!(number == 0 || vector[0] == 0.0, "the answer before is not shown");
                let mut bits = vec![answer.unwrap_or(vector[0] == 1.0), vector[1] == 1.0];
                for slot in vector[2..].chunks(10) {
                    let Some(gate) = slot.iter().position(|&on| on == 1.0) else { break };
                    let [q, p] = [bits[bits.len() - 2], bits[bits.len() - 1]];
                    bits.push(tables[gate](p, q));
                }
                assert!(bits.len() > 2, "there is a gate at least");
                let last = bits[bits.len() - 1];
                assert_eq!(asked, &[u32::from(last)]);
                answer = Some(last);
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_numbers_so_far() {
        let task = VectorTask::Addition(AdditionConfig { digits: 2, numbers: 4 });
        for sequence in drawn(task) {
            let number = |vector: &[f32]| {
                let digits = vector.chunks(10).filter_map(|slot| slot.iter().position(|&on| on == 1.0));
                digits.fold(0, |number, digit| 10 * number + digit)
            };
            let numbers: Vec<usize> = sequence.inputs.chunks(20).map(number).collect();
            assert_eq!(sequence.targets.len() + 1, numbers.len(), "nothing is asked at the first number");
            for (at, asked) in &sequence.targets {
                let digits = asked.iter().take_while(|&&class| class < 10);
                let (sum, _) = digits.clone().fold((0, 1), |(sum, unit), &digit| (sum + unit * digit as usize, unit * 10));
                assert_eq!(sum, numbers[..=*at].iter().sum::<usize>());
                assert!(asked[digits.count()..].iter().all(|&class| class == 10), "nothing follows the end: {asked:?}");
            }
        }
    }

    #[test]
    fn sorting_asks_for_the_places_after_the_numbers() {
        let mut all = Vec::new();
        for sequence in drawn(VectorTask::Sort(SortConfig::default())) {
            let count = sequence.targets.len();
            assert_eq!(sequence.inputs.len(), 4 * count);
            let numbers: Vec<f32> = sequence.inputs.chunks(2).take(count).map(|vector| vector[0]).collect();
            assert!(sequence.inputs.chunks(2).enumerate().all(|(at, vector)| (vector[1] == 1.0) == (at + 1 == count)));
            assert!(sequence.inputs[2 * count..].iter().all(|&number| number == 0.0));
            let sorted: Vec<f32> = sequence.targets.iter().map(|(_, asked)| numbers[asked[0] as usize]).collect();
            assert!(sorted.is_sorted() && sequence.targets[0].0 == count, "{sequence:?}");
            all.extend(numbers);
        }
        let mean = all.iter().sum::<f32>() / all.len() as f32;
        let variance = all.iter().map(|number| (number - mean).powi(2)).sum::<f32>() / all.len() as f32;
        assert!(mean.abs() < 0.15 && (0.8..1.2).contains(&variance), "{mean}, {variance} of {}", all.len());
    }

    #[test]
    fn shorter_sequences_are_padded_with_zeros() {
        let of = |inputs: Vec<f32>| VectorSequence { inputs, targets: vec![(0, vec![0])] };
        let (numbers, shape, lengths) = padded([of(vec![1.0, 2.0]), of(vec![3.0, 4.0, 5.0, 6.0])].iter(), 2);
        assert_eq!((lengths, shape), (vec![1, 2], [2, 2, 2]));
        assert_eq!(numbers, [1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn impossible_sizes_are_refused_by_name() {
        for (task, field) in [
            (VectorTask::Parity(VectorParityConfig { size: 0 }), "size"),
            (VectorTask::Logic(LogicConfig { gates: 0, length: 1 }), "gates"),
            (VectorTask::Logic(LogicConfig { gates: 1, length: 0 }), "length"),
            (VectorTask::Addition(AdditionConfig { digits: 10, numbers: 2 }), "digits"),
            (VectorTask::Addition(AdditionConfig { digits: 1, numbers: 1 }), "numbers"),
            (VectorTask::Sort(SortConfig { numbers: 1 }), "numbers"),
        ] {
            assert_eq!(task.validate().unwrap_err().field, field);
        }
    }
}
