//! Downloads and archives, with a server on this machine.

mod archives;
mod download;
mod server;
