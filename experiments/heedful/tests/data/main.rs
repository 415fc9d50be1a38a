//! `data`: downloads from a server that misbehaves, archives that would do harm, and what a folder is found to hold.

mod check;
mod command;
mod fetch;
#[path = "../cli/output.rs"]
mod output;
mod refusals;
#[allow(dead_code, reason = "the tests of heedful-data use the rest")]
#[path = "../../../data/tests/catalogue/server.rs"]
mod server;
