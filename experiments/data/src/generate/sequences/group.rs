//! Finite groups whose elements are permutations.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::SequenceTaskError;

/// A group by its name: `s2` to `s5` all permutations, `a3` to `a5` the even ones, `z2` to `z120` the residues of a sum, `a4xz5` pairs of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum GroupName {
    /// All permutations of so many points.
    Symmetric(usize),
    /// The even permutations of so many points.
    Alternating(usize),
    /// Residues under addition.
    Cyclic(usize),
    /// Pairs of an even permutation of four points and a residue modulo 5, which is solvable and has as many elements as A5.
    AlternatingFourAndFive,
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symmetric(points) => write!(f, "s{points}"),
            Self::Alternating(points) => write!(f, "a{points}"),
            Self::Cyclic(order) => write!(f, "z{order}"),
            Self::AlternatingFourAndFive => f.write_str("a4xz5"),
        }
    }
}

impl FromStr for GroupName {
    type Err = SequenceTaskError;

    fn from_str(name: &str) -> Result<Self, SequenceTaskError> {
        let lower = name.to_lowercase();
        let number = |letter: char| lower.strip_prefix(letter)?.parse::<usize>().ok();
        match (number('s'), number('a'), number('z')) {
            _ if lower == "a4xz5" => Ok(Self::AlternatingFourAndFive),
            (Some(points @ 2..=5), ..) => Ok(Self::Symmetric(points)),
            (_, Some(points @ 3..=5), _) => Ok(Self::Alternating(points)),
            (.., Some(order @ 2..=120)) => Ok(Self::Cyclic(order)),
            _ => Err(SequenceTaskError {
                field: "group",
                reason: format!("no group is called {name}; known are s2 to s5, a3 to a5, z2 to z120 and a4xz5"),
            }),
        }
    }
}

impl TryFrom<String> for GroupName {
    type Error = SequenceTaskError;

    fn try_from(name: String) -> Result<Self, SequenceTaskError> {
        name.parse()
    }
}

impl From<GroupName> for String {
    fn from(group: GroupName) -> Self {
        group.to_string()
    }
}

/// A group as a table of products. Its elements are numbered from 0, which is the identity.
#[derive(Clone, Debug)]
pub struct Group {
    /// Each element as where it takes the points, in lexicographic order.
    permutations: Vec<Vec<u8>>,
    /// The product of `a` and `b` at `a * order + b`.
    products: Vec<u32>,
}

/// The groups that were asked for. A table takes longer to make than a sequence.
static MADE: LazyLock<Mutex<HashMap<GroupName, Arc<Group>>>> = LazyLock::new(Mutex::default);

impl Group {
    /// The group of this name.
    pub fn new(name: GroupName) -> Arc<Self> {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(made.entry(name).or_insert_with(|| Arc::new(Self::generated(&generators(name)))))
    }

    /// The group that permutations of the same points generate.
    fn generated(generators: &[Vec<u8>]) -> Self {
        let points = generators[0].len();
        let mut permutations: Vec<Vec<u8>> = vec![(0..points as u8).collect()];
        let mut next = 0;
        while next < permutations.len() {
            for generator in generators {
                let product = followed_by(&permutations[next], generator);
                if !permutations.contains(&product) {
                    permutations.push(product);
                }
            }
            next += 1;
        }
        permutations.sort();
        let numbers: HashMap<&[u8], u32> = permutations.iter().zip(0..).map(|(element, number)| (element.as_slice(), number)).collect();
        let product = |a: &Vec<u8>, b: &Vec<u8>| numbers[followed_by(a, b).as_slice()];
        let products = permutations.iter().flat_map(|a| permutations.iter().map(move |b| product(a, b))).collect();
        Self { permutations, products }
    }

    /// Number of elements.
    pub fn order(&self) -> usize {
        self.permutations.len()
    }

    /// The product of two elements: as permutations, first `a` and then `b`.
    ///
    /// # Panics
    /// If there are no such elements.
    pub fn product(&self, a: u32, b: u32) -> u32 {
        assert!((b as usize) < self.order(), "there is no element {b}");
        self.products[a as usize * self.order() + b as usize]
    }

    /// The elements that move at most so many points.
    pub fn moving_at_most(&self, points: usize) -> Vec<u32> {
        let moved = |element: &[u8]| element.iter().enumerate().filter(|&(from, &to)| from != to as usize).count();
        self.permutations.iter().zip(0..).filter(|(element, _)| moved(element) <= points).map(|(_, number)| number).collect()
    }
}

/// First one permutation and then another.
fn followed_by(first: &[u8], second: &[u8]) -> Vec<u8> {
    first.iter().map(|&to| second[to as usize]).collect()
}

/// Permutations that generate a group.
fn generators(name: GroupName) -> Vec<Vec<u8>> {
    // The permutation of all points that takes each point of the cycle to the next.
    let cycle = |points: usize, cycle: &[u8]| -> Vec<u8> {
        let mut permutation: Vec<u8> = (0..points as u8).collect();
        cycle.iter().zip(cycle.iter().cycle().skip(1)).for_each(|(&from, &to)| permutation[from as usize] = to);
        permutation
    };
    match name {
        GroupName::Symmetric(points) => (1..points as u8).map(|point| cycle(points, &[0, point])).collect(),
        GroupName::Alternating(points) => (2..points as u8).map(|point| cycle(points, &[0, 1, point])).collect(),
        GroupName::Cyclic(order) => vec![cycle(order, &(0..order as u8).collect::<Vec<_>>())],
        GroupName::AlternatingFourAndFive => vec![cycle(9, &[0, 1, 2]), cycle(9, &[0, 1, 3]), cycle(9, &[4, 5, 6, 7, 8])],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_their_orders_and_laws() {
        for (name, order, is_abelian) in [
            ("s2", 2, true),
            ("s3", 6, false),
            ("s4", 24, false),
            ("s5", 120, false),
            ("a3", 3, true),
            ("a4", 12, false),
            ("a5", 60, false),
            ("z2", 2, true),
            ("z60", 60, true),
            ("a4xz5", 60, false),
        ] {
            let group = Group::new(name.parse().unwrap());
            assert_eq!((group.order(), name.parse::<GroupName>().unwrap().to_string()), (order, name.to_owned()));
            let all = || 0..order as u32;
            assert!(all().all(|a| group.product(a, 0) == a && group.product(0, a) == a), "{name}: 0 is the identity");
            assert!(all().all(|a| all().filter(|&b| group.product(a, b) == 0).count() == 1), "{name}: inverses");
            let step = order.div_ceil(20);
            for (a, b, c) in
                all().step_by(step).flat_map(|a| all().step_by(step).flat_map(move |b| (0..order as u32).map(move |c| (a, b, c))))
            {
                assert_eq!(group.product(group.product(a, b), c), group.product(a, group.product(b, c)), "{name}");
            }
            assert_eq!(all().all(|a| all().all(|b| group.product(a, b) == group.product(b, a))), is_abelian, "{name}");
        }
        for name in ["s6", "a2", "z1", "z121", "q8", "a4xz4"] {
            assert!(name.parse::<GroupName>().unwrap_err().reason.contains(name));
        }
    }

    /// A group is solvable if its series of commutators ends with the identity: S5 and A5 are not.
    #[test]
    fn the_groups_of_five_points_are_not_solvable() {
        for (name, is_solvable) in [("s5", false), ("a5", false), ("s4", true), ("a4xz5", true), ("z60", true)] {
            let group = Group::new(name.parse().unwrap());
            let mut elements: Vec<u32> = (0..group.order() as u32).collect();
            let inverse = |a: u32| (0..group.order() as u32).find(|&b| group.product(a, b) == 0).unwrap();
            loop {
                let commutator = |a: u32, b: u32| group.product(group.product(inverse(a), inverse(b)), group.product(a, b));
                let mut derived: Vec<u32> =
                    elements.iter().flat_map(|&a| elements.iter().map(move |&b| (a, b))).map(|(a, b)| commutator(a, b)).collect();
                derived.sort_unstable();
                derived.dedup();
                let closed = |set: &[u32]| -> Vec<u32> {
                    let mut closed: Vec<u32> =
                        set.iter().flat_map(|&a| set.iter().map(move |&b| (a, b))).map(|(a, b)| group.product(a, b)).collect();
                    closed.sort_unstable();
                    closed.dedup();
                    closed
                };
                let mut next = closed(&derived);
                while next != derived {
                    derived = next;
                    next = closed(&derived);
                }
                if derived.len() == elements.len() {
                    break;
                }
                elements = derived;
            }
            assert_eq!(elements.len() == 1, is_solvable, "{name}");
        }
    }

    #[test]
    fn products_take_points_through_the_first_element_and_then_the_second() {
        let group = Group::new(GroupName::Symmetric(3));
        let number = |permutation: [u8; 3]| group.permutations.iter().position(|element| *element == permutation).unwrap() as u32;
        let (swap, turn) = (number([1, 0, 2]), number([1, 2, 0]));
        assert_eq!(group.product(swap, turn), number([2, 1, 0]));
        assert_eq!(group.product(turn, swap), number([0, 2, 1]));
        assert_eq!(Group::new(GroupName::Symmetric(5)).moving_at_most(2).len(), 11, "the identity and ten swaps");
        assert_eq!(Group::new(GroupName::Symmetric(5)).moving_at_most(3).len(), 31, "and twenty cycles of three");
    }
}
