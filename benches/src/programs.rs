//! The program `peers`, and commands of the program `heedful`.

pub mod backends;
pub mod cost;
pub mod peers;
