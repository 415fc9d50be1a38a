//! `data`: downloads from a server that misbehaves, archives that would do harm, and what a folder is found to hold.

mod archives;
mod check;
mod command;
mod download;
mod fetch;
mod refusals;
mod server;
