//! Without it Cargo would leave out the features of what macros depend on.

fn main() {}
