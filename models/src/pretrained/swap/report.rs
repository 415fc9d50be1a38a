//! Report on the parameters of replaced attentions.

use std::fmt;

use serde::Serialize;

/// Report on the parameters of replaced attentions. Names are paths in the model, as in weight files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SwapReport {
    /// Layers with replaced attention, counted from 0.
    pub layers: Vec<usize>,
    /// Parameters of the new attentions with values of old ones.
    pub kept: Vec<Kept>,
    /// Parameters of the new attentions with initial values.
    pub new: Vec<New>,
    /// Parameters of the old attentions that were dropped.
    pub dropped: Vec<Dropped>,
}

/// A kept parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Its previous name.
    pub before: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// A parameter with initial values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct New {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Shape of the old parameter in this place, if different.
    pub was: Option<Vec<usize>>,
}

/// A dropped parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Its previous name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Reason why it was not kept.
    pub why: Reason,
}

/// Reason why a parameter was not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// The new attention has no such parameter.
    NoPlace,
    /// The matching parameter has another shape.
    OtherShape {
        /// Name of the matching parameter.
        place: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Several parameters match equally well.
    SeveralPlaces {
        /// Their names.
        places: Vec<String>,
    },
    /// All parameters of the new attention were requested to be initial.
    Reinitialised,
    /// Another parameter fits its place equally well or better.
    Contested {
        /// The place.
        place: String,
    },
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

impl SwapReport {
    /// Number of values in [`kept`](Self::kept).
    pub fn kept_parameters(&self) -> usize {
        self.kept.iter().map(|kept| elements(&kept.shape)).sum()
    }

    /// Number of values in [`new`](Self::new). Parameters shared by layers count in each.
    pub fn new_parameters(&self) -> usize {
        self.new.iter().map(|new| elements(&new.shape)).sum()
    }

    /// Number of values in [`dropped`](Self::dropped).
    pub fn dropped_parameters(&self) -> usize {
        self.dropped.iter().map(|dropped| elements(&dropped.shape)).sum()
    }

    /// Kept fraction of the old attentions' parameters, from 0 to 1; `None` if they had none.
    pub fn kept_share(&self) -> Option<f64> {
        let (kept, dropped) = (self.kept_parameters(), self.dropped_parameters());
        (kept + dropped > 0).then(|| kept as f64 / (kept + dropped) as f64)
    }
}

/// Parameters of all layers by their name within the layer, with their number of values.
fn listed<'a>(parameters: impl Iterator<Item = (&'a str, &'a [usize], String)>) -> String {
    let mut found: Vec<String> = Vec::new();
    for (name, shape, remark) in parameters {
        // The layer's place is the same for all.
        let own = name.split_once("self_attention.").map_or(name, |(_, own)| own);
        let text = format!("{own} {shape:?}{remark}");
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found.join(", ")
}

impl fmt::Display for SwapReport {
    /// One line: each parameter once, for any number of layers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers: Vec<String> = self.layers.iter().map(usize::to_string).collect();
        let (kept, new, dropped) = (self.kept_parameters(), self.new_parameters(), self.dropped_parameters());
        let share = self.kept_share().map(|share| format!(" ({share:.2})")).unwrap_or_default();
        let plural = if layers.len() == 1 { "" } else { "s" };
        write!(f, "layer{plural} {}: kept {kept} of {} parameters{share}", layers.join(", "), kept + dropped)?;
        let names = listed(self.kept.iter().map(|kept| (kept.name.as_str(), &kept.shape[..], String::new())));
        if kept > 0 {
            write!(f, ": {names}")?;
        }
        let names = listed(self.new.iter().map(|New { name, shape, was }| {
            let was = was.as_ref().map(|was| format!(" in place of {was:?}")).unwrap_or_default();
            (name.as_str(), &shape[..], was)
        }));
        if new > 0 {
            write!(f, "; new {new}: {names}")?;
        }
        let names = listed(self.dropped.iter().map(|Dropped { name, shape, why }| {
            let why = match why {
                Reason::NoPlace | Reason::Reinitialised => String::new(),
                Reason::OtherShape { shape, .. } => format!(" which is {shape:?} now"),
                Reason::SeveralPlaces { places } => format!(" which has {} places now", places.len()),
                Reason::Contested { .. } => " whose place has another".to_owned(),
            };
            (name.as_str(), &shape[..], why)
        }));
        if dropped > 0 {
            write!(f, "; dropped {dropped}: {names}")?;
        }
        Ok(())
    }
}
