//! Modular arithmetic (Delétang et al. 2022, arXiv 2207.02098; Grazzi et al. 2024, arXiv 2411.12537, section 5): expressions whose value is expected.
//!
//! Without brackets residues and operations alternate, `2 + 3 * 4 =`, and `*` binds more than `+` and `-`. With brackets an expression of `n` tokens is a
//! residue (1), `- d` (2), `( d )` (3), `( - d )` (4), or `( e op e )`, whose parts share the other tokens in all ways alike. The value is expected at `=`.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::words::{ensure_range, length_of, levels_of_range};
use super::{Generator, Level, Purpose, ScoredSequence, SequenceTaskError, ensure};

/// Options of modular arithmetic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModularArithmeticConfig {
    /// Number of residues, 2 to 64.
    pub modulus: usize,
    /// Whether there are brackets.
    pub brackets: bool,
    /// Least number of tokens of an expression. Without brackets a length that is even has a token less.
    pub shortest: usize,
    /// Most tokens of an expression of training, `=` apart; lengths are even between both.
    pub length: usize,
    /// Greater lengths that are also tested; all expressions of such a length have exactly this many tokens.
    pub longer: Vec<usize>,
}

impl Default for ModularArithmeticConfig {
    fn default() -> Self {
        Self { modulus: 5, brackets: false, shortest: 3, length: 40, longer: vec![64, 128, 256] }
    }
}

/// The tokens after the residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
    Times,
    Equals,
    Open,
    Close,
}

/// Expressions of residues of a modulus.
struct Writer<'a> {
    modulus: usize,
    tokens: Vec<u32>,
    rng: &'a mut ChaCha8Rng,
}

impl Writer<'_> {
    fn sign(&mut self, sign: Sign) {
        self.tokens.push(self.modulus as u32 + sign as u32);
    }

    fn residue(&mut self) -> usize {
        let residue = self.rng.random_range(0..self.modulus);
        self.tokens.push(residue as u32);
        residue
    }

    fn operation(&mut self) -> Sign {
        let sign = [Sign::Plus, Sign::Minus, Sign::Times][self.rng.random_range(0..3)];
        self.sign(sign);
        sign
    }

    fn computed(&self, a: usize, sign: Sign, b: usize) -> usize {
        let m = self.modulus;
        match sign {
            Sign::Plus => (a + b) % m,
            Sign::Minus => (a + m - b) % m,
            _ => a * b % m,
        }
    }

    /// Writes residues and operations in turn, and returns the value.
    fn flat(&mut self, length: usize) -> usize {
        let (mut sum, mut sign, mut product) = (0, Sign::Plus, self.residue());
        for _ in 0..(length - 1) / 2 {
            let operation = self.operation();
            let next = self.residue();
            if operation == Sign::Times {
                product = self.computed(product, Sign::Times, next);
            } else {
                sum = self.computed(sum, sign, product);
                (sign, product) = (operation, next);
            }
        }
        self.computed(sum, sign, product)
    }

    /// Writes an expression of so many tokens, and returns the value.
    fn nested(&mut self, length: usize) -> usize {
        match length {
            1 => self.residue(),
            2 => {
                self.sign(Sign::Minus);
                let residue = self.residue();
                self.computed(0, Sign::Minus, residue)
            }
            3 | 4 => {
                self.sign(Sign::Open);
                let value = self.nested(length - 2);
                self.sign(Sign::Close);
                value
            }
            _ => {
                let left = self.rng.random_range(1..=length - 4);
                self.sign(Sign::Open);
                let a = self.nested(left);
                let sign = self.operation();
                let b = self.nested(length - 3 - left);
                self.sign(Sign::Close);
                self.computed(a, sign, b)
            }
        }
    }
}

impl Generator for ModularArithmeticConfig {
    fn validate(&self) -> Result<(), SequenceTaskError> {
        ensure((2..=64).contains(&self.modulus), "modulus", || format!("{} residues; give 2 to 64", self.modulus))?;
        ensure_range(self.shortest, self.length, &self.longer, 1)
    }

    fn extent(&self) -> (usize, Vec<Level>) {
        (
            self.modulus + if self.brackets { Sign::Close as usize } else { Sign::Equals as usize } + 1,
            levels_of_range(self.length, &self.longer, 1),
        )
    }

    fn draw(&self, level: usize, _purpose: Purpose, rng: &mut ChaCha8Rng) -> ScoredSequence {
        let length = length_of(rng, self.shortest, self.length, &self.longer, level);
        let mut writer = Writer { modulus: self.modulus, tokens: Vec::with_capacity(length + 1), rng };
        let value = if self.brackets { writer.nested(length) } else { writer.flat(length) };
        writer.sign(Sign::Equals);
        ScoredSequence { targets: vec![(writer.tokens.len() - 1, value as u32)], tokens: writer.tokens }
    }
}

#[cfg(test)]
mod tests {
    use heedful_random::RandomKey;

    use super::*;

    /// The value of an expression by recursive descent, with the usual precedence.
    fn value(tokens: &[u32], at: &mut usize) -> i64 {
        fn factor(tokens: &[u32], at: &mut usize) -> i64 {
            let token = tokens[*at];
            *at += 1;
            match token {
                0..=4 => i64::from(token),
                6 => -factor(tokens, at),
                9 => {
                    let inner = value(tokens, at);
                    assert_eq!(tokens[*at], 10, "a bracket closes");
                    *at += 1;
                    inner
                }
                other => panic!("{other} begins nothing"),
            }
        }
        fn product(tokens: &[u32], at: &mut usize) -> i64 {
            let mut result = factor(tokens, at);
            while tokens.get(*at) == Some(&7) {
                *at += 1;
                result = (result * factor(tokens, at)).rem_euclid(5);
            }
            result
        }
        let mut result = product(tokens, at);
        while let Some(&sign @ (5 | 6)) = tokens.get(*at) {
            *at += 1;
            let next = product(tokens, at);
            result = (if sign == 5 { result + next } else { result - next }).rem_euclid(5);
        }
        result.rem_euclid(5)
    }

    #[test]
    fn values_are_those_of_the_usual_precedence() {
        // 2 + 3 * 4 = 14, 1 - 2 - 3 * 3 = -10, ( 2 + 3 ) * 4 = 20.
        for (tokens, expected) in [(&[2, 5, 3, 7, 4][..], 4), (&[1, 6, 2, 6, 3, 7, 3], 0), (&[9, 2, 5, 3, 10, 7, 4], 0)] {
            assert_eq!(value(tokens, &mut 0), expected);
        }
        let key = RandomKey::from_seed(12);
        for brackets in [false, true] {
            let config = ModularArithmeticConfig { brackets, longer: vec![61], ..ModularArithmeticConfig::default() };
            config.validate().unwrap();
            let mut answers = [0; 5];
            for number in 0..1000 {
                for level in [0, 1] {
                    let ScoredSequence { tokens, targets } = config.draw(level, Purpose::Training, &mut key.numbered(number).rng());
                    let expression = tokens.strip_suffix(&[8]).unwrap();
                    let mut read = 0;
                    assert_eq!(targets, [(expression.len(), value(expression, &mut read) as u32)], "{tokens:?}");
                    assert_eq!(read, expression.len());
                    assert!(level == 0 || expression.len() == 61);
                    answers[targets[0].1 as usize] += 1;
                }
            }
            assert!(answers.iter().all(|&count| count > 200), "{answers:?}");
        }
        assert_eq!(ModularArithmeticConfig::default().extent().0, 9);
        assert_eq!(ModularArithmeticConfig { modulus: 1, ..ModularArithmeticConfig::default() }.validate().unwrap_err().field, "modulus");
    }
}
