//! Matches of which each item has as many as two texts share.

use std::collections::HashMap;
use std::hash::Hash;

/// How often each item occurs.
pub(super) fn counts<'t, T: Eq + Hash + ?Sized + 't>(items: impl IntoIterator<Item = &'t T>) -> HashMap<&'t T, u64> {
    let mut counts = HashMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}

/// Uses up one of the available items, if there is one.
pub(super) fn take<T: Eq + Hash + ?Sized>(available: &mut HashMap<&T, u64>, item: &T) -> bool {
    match available.get_mut(item) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    }
}
