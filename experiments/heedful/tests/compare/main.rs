//! `heedful compare` as a person uses it, on small run folders that were made up.

mod bad_input;
mod folder;
mod tables;
