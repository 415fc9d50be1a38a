//! The programs of the package, each as a function: a program of a user's own calls one after it has made its mechanisms known.

pub mod backends;
pub mod cost;
pub mod peers;
