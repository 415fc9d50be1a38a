//! What became of the parameters of attentions that were replaced.

use std::fmt;

use serde::Serialize;

/// What became of the parameters of the attentions that were replaced. Names are paths in the model, as files of weights have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SwapReport {
    /// The layers whose attention was replaced, counted from 0.
    pub layers: Vec<usize>,
    /// Parameters of the new attentions that have the values of old ones.
    pub kept: Vec<Kept>,
    /// Parameters of the new attentions with initial values.
    pub new: Vec<New>,
    /// Parameters of the old attentions that the model has no longer.
    pub dropped: Vec<Dropped>,
}

/// A parameter that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Its name before.
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
    /// The shape of the old parameter in this place, whose shape is another one.
    pub was: Option<Vec<usize>>,
}

/// A parameter that the model has no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The name it had.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Why it was not kept.
    pub why: Reason,
}

/// Why a parameter was not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// The new attention has nothing of this kind.
    NoPlace,
    /// What has its place has another shape.
    OtherShape {
        /// What has its place.
        place: String,
        /// The shape of that.
        shape: Vec<usize>,
    },
    /// Several parameters could take it, and none is more like it than the others.
    SeveralPlaces {
        /// Their names.
        places: Vec<String>,
    },
    /// All parameters of the new attention were to be initial ones.
    Reinitialised,
    /// Another parameter is as fit for its place, or more so.
    Contested {
        /// The place.
        place: String,
    },
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

impl SwapReport {
    /// Numbers in [`kept`](Self::kept).
    pub fn kept_parameters(&self) -> usize {
        self.kept.iter().map(|kept| elements(&kept.shape)).sum()
    }

    /// Numbers in [`new`](Self::new). One that layers share counts in each.
    pub fn new_parameters(&self) -> usize {
        self.new.iter().map(|new| elements(&new.shape)).sum()
    }

    /// Numbers in [`dropped`](Self::dropped).
    pub fn dropped_parameters(&self) -> usize {
        self.dropped.iter().map(|dropped| elements(&dropped.shape)).sum()
    }

    /// The share of the old attentions' parameters that was kept, from 0 to 1; `None` if they had none.
    pub fn kept_share(&self) -> Option<f64> {
        let (kept, dropped) = (self.kept_parameters(), self.dropped_parameters());
        (kept + dropped > 0).then(|| kept as f64 / (kept + dropped) as f64)
    }
}

/// Parameters of all layers by the names that they have in each, with how many numbers there are.
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
    /// One line: each parameter once, whichever of the layers have it.
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
