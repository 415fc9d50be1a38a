//! The least memory that a part takes, against the memory that the machine has.

use heedful_attention::description::parameter_formula::ParameterCount;
use heedful_attention::prelude::*;
use heedful_host::machine::available_memory;
use heedful_runs::settings::Settings;

use super::config::{BlockOptions, ParityConfig};
use super::part::Part;
use crate::session::error::ExperimentError;
use crate::session::footprint::{Blocks, amount};

impl ParityConfig {
    /// Refuses a part whose weights exceed the machine's memory, before anything is built.
    pub(super) fn refuse_too_large(&self, settings: &Settings<Self>) -> Result<(), ExperimentError> {
        match available_memory() {
            Some(available) => self.refuse_beyond(available, settings),
            None => Ok(()),
        }
    }

    fn refuse_beyond(&self, available: u64, settings: &Settings<Self>) -> Result<(), ExperimentError> {
        let needed = self.weights();
        if needed <= u128::from(available) {
            return Ok(());
        }
        let problem = format!(
            "the part `{}` needs at least {} of memory for its weights, and {} are available; give a smaller size",
            self.part.name(),
            amount(needed),
            amount(u128::from(available))
        );
        Err(settings.refuse(self.size_at_fault(available), problem).into())
    }

    /// Least bytes of the part.
    fn weights(&self) -> u128 {
        let counted = |attention: &AnyMechanism, role: Role| {
            let spec = self.spec(role, self.placed_layers().start);
            attention.parameters_at(&spec).unwrap_or_default()
        };
        let mut attention = ParameterCount::default();
        let own = self.part.has_attention().then(|| counted(&self.attention, self.self_role()));
        let cross = self.cross.as_ref().map(|cross| counted(&cross.0, Role::Cross));
        for ParameterCount { trained, fixed } in own.into_iter().chain(cross) {
            attention.trained = attention.trained.saturating_add(trained);
            attention.fixed = attention.fixed.saturating_add(fixed);
        }
        let d_ff = match self.part {
            Part::Attention | Part::Step | Part::Halting => 0,
            // Every gate has a square map at least, which is as many numbers as a network of half as many hidden units.
            part if !part.has_attention() => self.d_model / 2,
            _ => self.block.d_ff,
        };
        Blocks {
            number: self.blocks() as u128,
            attention,
            d_model: self.d_model,
            d_ff,
            gated_feed_forward: self.block.gated_feed_forward,
            max_length: self.max_length,
            positions: self.positions,
        }
        .bytes()
    }

    /// The first field with whose default the part fits, or the one that saves most.
    fn size_at_fault(&self, available: u64) -> &'static str {
        let ordinary = Self::default();
        let with_d_ff = |d_ff: usize| Self { block: BlockOptions { d_ff, ..self.block }, ..self.clone() };
        let smaller = [
            ("layers", Self { layers: ordinary.layers.min(self.layers), layer: 0, ..self.clone() }),
            ("d_model", Self { d_model: ordinary.d_model.min(self.d_model), ..self.clone() }),
            ("head_width", Self { head_width: None, ..self.clone() }),
            ("max_length", Self { max_length: ordinary.max_length.min(self.max_length), ..self.clone() }),
            ("block.d_ff", with_d_ff(ordinary.block.d_ff.min(self.block.d_ff))),
            ("attention", Self { attention: ordinary.attention, ..self.clone() }),
        ];
        let fitting = smaller.iter().find(|(_, part)| part.weights() <= u128::from(available));
        fitting.or_else(|| smaller.iter().min_by_key(|(_, part)| part.weights())).map_or("layers", |(field, _)| field)
    }
}

#[cfg(test)]
mod tests {
    use heedful_runs::settings::Assignment;

    use super::*;

    fn refused(assignments: &[&str], available: u64) -> Option<String> {
        let assignments = assignments.iter().map(|text| Assignment::parse(text).unwrap()).collect();
        let settings = Settings::<ParityConfig>::read(None, assignments).unwrap();
        settings.value.refuse_beyond(available, &settings).err().map(|error| error.to_string())
    }

    #[test]
    fn a_part_beyond_the_memory_is_refused_by_its_size() {
        let cases = [
            (["part=stack", "layers=1000000000"], "layers"),
            (["part=stack:reversible", "d_model=1000000000"], "d_model"),
            (["part=attention", "head_width=1000000000000"], "head_width"),
            (["attention=\"synthesizer-random\"", "max_length=10000000"], "max_length"),
            (["part=block", "block.d_ff=100000000000"], "block.d_ff"),
            (["part=gate:gru", "d_model=100000000"], "d_model"),
        ];
        for (assignments, field) in cases {
            let message = refused(&assignments, 1 << 34).unwrap();
            assert!(message.contains(&format!("`{field}`")) && message.contains("16.0 GiB are available"), "{assignments:?}: {message}");
        }
    }

    #[test]
    fn a_part_within_the_memory_is_not_refused() {
        let numbers = 64 * 64 * 4;
        assert_eq!(refused(&[], numbers * 4 + 1024), None);
        assert!(refused(&[], numbers * 4 + 1023).is_some(), "query, key, value and output maps of 64 by 64");
        assert_eq!(refused(&["part=stack:shared", "layers=1000000000"], 1 << 34), None, "one block");
    }
}
