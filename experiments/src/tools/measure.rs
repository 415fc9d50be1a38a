//! Costs of the trained models of a finished command, measured in rounds: seconds of [scoring](ScoringOptions), speed of [decoding](DecodingOptions), and the
//! largest [batch](BatchOptions) of training within a memory.
//!
//! In each round every model is measured once, in turn, on flex. Measurements beside other programs are meaningless: the load of the machine before the first
//! round is part of the result.

mod batch;
mod decoding;
mod models;
mod scoring;

pub use self::batch::BatchOptions;
pub use self::decoding::DecodingOptions;
pub use self::models::ModelOptions;
pub use self::scoring::ScoringOptions;
