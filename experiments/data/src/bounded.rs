//! A limit on the decompressed size of files and archives: a few compressed bytes can expand to any number of bytes.

use std::cell::Cell;
use std::io::{self, Read};

/// Times its own size that a compressed file may hold. Text and images stay far below it.
pub(crate) const PLAUSIBLE_RATIO: u64 = 100;
/// Bytes that any compressed file may hold, however small it is.
const LEAST: u64 = 16_000_000;

/// Most bytes that a compressed file of this size may hold where they are kept in memory.
pub(crate) fn limit_in_memory(stored_bytes: usize) -> u64 {
    (stored_bytes as u64).saturating_mul(PLAUSIBLE_RATIO).max(LEAST)
}

/// How many bytes may still come out of a file, in all that is read from it.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    spent: Cell<u64>,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, spent: Cell::new(0) }
    }

    /// All bytes that may come out.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes that have come out.
    pub(crate) fn spent(&self) -> u64 {
        self.spent.get()
    }

    /// Whether more came out than may; every read from then on is an error.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.spent() > self.limit
    }

    /// A reader whose bytes count.
    pub(crate) fn reader<R: Read>(&self, inner: R) -> Bounded<'_, R> {
        Bounded { inner, budget: self }
    }
}

/// A reader that ends with an error when its [`Budget`] is exceeded.
#[derive(Debug)]
pub(crate) struct Bounded<'a, R> {
    inner: R,
    budget: &'a Budget,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.budget.is_exceeded() {
            return Err(self.error());
        }
        let count = self.inner.read(buffer)?;
        self.budget.spent.set(self.budget.spent().saturating_add(count as u64));
        if self.budget.is_exceeded() { Err(self.error()) } else { Ok(count) }
    }
}

impl<R> Bounded<'_, R> {
    fn error(&self) -> io::Error {
        io::Error::other(format!("more than {} bytes came out", self.budget.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_budget_end_together_when_it_is_exceeded() {
        let budget = Budget::new(10);
        let mut bytes = Vec::new();
        budget.reader([1; 6].as_slice()).read_to_end(&mut bytes).unwrap();
        budget.reader([2; 4].as_slice()).read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes.len(), budget.spent(), budget.is_exceeded()), (10, 10, false));
        let message = budget.reader(io::repeat(3)).read_to_end(&mut bytes).unwrap_err().to_string();
        assert!(message.contains("more than 10 bytes") && budget.is_exceeded(), "{message}");
        assert!(budget.reader([4].as_slice()).read(&mut [0]).is_err(), "nothing is read from then on");
    }

    #[test]
    fn a_small_file_may_hold_more_times_its_size_than_a_large_one() {
        assert_eq!([limit_in_memory(0), limit_in_memory(113)], [16_000_000; 2]);
        assert_eq!(limit_in_memory(4_700_000), 470_000_000);
        assert_eq!(limit_in_memory(usize::MAX), u64::MAX);
    }
}
