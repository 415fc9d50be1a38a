//! Statistics, tables and pictures of the observations that a probe received from a model.
//!
//! An [`Analysis`] takes plain values ([`Observed`]), one text at a time, at initialisation, after training or both, and writes a folder:
//!
//! ```text
//! <out>/analyse.md                  what there is, and the statistics
//! <out>/statistics.csv, divergence.csv, histogram.csv, spans.csv, buckets.csv, gates.csv, halting.csv, mixtures.csv, weights.csv
//! <out>/entropy.svg, distance.svg, histogram.svg, spans.svg, gates.svg, halting-text<N>.svg
//! <out>/maps/text<N>-<module>.{svg,png}
//! <out>/image-distance.csv, row-distance.svg, column-distance.svg, maps/text<N>-<module>-pixel.svg     of images
//! ```
//!
//! `analyse.md` names the parts that a model lacks; they have no file. Statistics cover all texts. Single weights and their pictures are stored only for the
//! requested texts, since they take as much space as the weights do. Not covered: attention between words of several tokens, and the contribution of values.

mod histogram;
mod image;
mod observe;
mod page;
mod pictures;
mod record;
mod statistics;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use heedful_host::whole_files::{FileError, make_folder, write_atomically, write_atomically_with};

pub use histogram::Histogram;
pub use image::{ImageDistances, PixelChoice};
pub(crate) use observe::of_change;
pub use observe::{AnalyseOptions, run};
pub use record::{Kind, Observed, State};
pub use statistics::{BucketStatistics, Extent, GateStatistics, HeadStatistics, Mean, Place, Places, Statistics};

use crate::session::experiment::seen_image::SeenImage;
use crate::session::mixture_weights::MixtureShares;

/// Why an analysis could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalyseError {
    /// What a module showed cannot be. The message says of which text and module, and what to do.
    #[error("{0}")]
    Observed(String),
    /// A file could not be written.
    #[error(transparent)]
    Folder(#[from] FileError),
}

/// Observations of a model, summed up as they come.
///
/// # Example
/// ```
/// use heedful_experiments::analyse::{Analysis, Kind, Observed, State};
///
/// let tokens = ["a".to_string(), "b".to_string()];
/// let mut analysis = Analysis::new("an example", [0]);
/// analysis.add(Observed {
///     state: State::Trained,
///     text: 0,
///     module: "decoder.layers.0.self_attention".into(),
///     queries: tokens.to_vec(),
///     keys: tokens.to_vec(),
///     query_start: Some(0),
///     kind: Kind::Weights,
///     shape: vec![1, 2, 2],
///     values: vec![1.0, 0.0, 0.5, 0.5],
/// })?;
/// let head = analysis.statistics().heads.get(State::Trained, "decoder.layers.0.self_attention", 0).unwrap();
/// assert_eq!(head.distance.value(), Some(0.25));
/// # Ok::<(), heedful_experiments::analyse::AnalyseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Analysis {
    subject: String,
    pictured: BTreeSet<usize>,
    statistics: Statistics,
    seen: BTreeSet<(State, usize, String, Kind)>,
    /// Weights of the texts asked for, halting steps of all.
    kept: Vec<Observed>,
    /// Weights of the members of mixtures, which no text changes.
    mixtures: Vec<(State, MixtureShares)>,
    /// The images among the texts, by the number of the text.
    images: BTreeMap<usize, SeenImage>,
    overlaid: PixelChoice,
}

impl Analysis {
    /// Nothing yet of `subject`, such as `lm, adaptive-span, seed 1`; all weights of the texts `pictured` will be shown.
    pub fn new(subject: &str, pictured: impl IntoIterator<Item = usize>) -> Self {
        Self {
            subject: subject.into(),
            pictured: pictured.into_iter().collect(),
            statistics: Statistics::default(),
            seen: BTreeSet::new(),
            kept: Vec::new(),
            mixtures: Vec::new(),
            images: BTreeMap::new(),
            overlaid: PixelChoice::default(),
        }
    }

    /// Lays the weights of another pixel over images, or those of some layers alone.
    pub fn with_pixel(mut self, choice: PixelChoice) -> Self {
        self.overlaid = choice;
        self
    }

    /// Tells that a text is an image. What is added of it later has distances in the image.
    pub fn add_image(&mut self, text: usize, image: SeenImage) {
        self.images.insert(text, image);
    }

    /// Adds the weights of the members of mixtures of a model in a state ([`mixture_weights::of`](crate::session::mixture_weights::of)).
    pub fn add_mixtures(&mut self, state: State, mixtures: impl IntoIterator<Item = MixtureShares>) {
        self.mixtures.extend(mixtures.into_iter().map(|mixture| (state, mixture)));
    }

    /// Adds what a module showed of a text.
    ///
    /// # Errors
    /// As [`Observed::check`], and [`AnalyseError::Observed`] for what was shown twice; nothing is added then.
    pub fn add(&mut self, observed: Observed) -> Result<(), AnalyseError> {
        observed.check()?;
        let Observed { state, text, kind, .. } = observed;
        if !self.seen.insert((state, text, observed.module.clone(), kind)) {
            let problem = format!("{kind} {state} were shown twice; give each segment of a text a number of its own");
            return Err(observed.refused(problem));
        }
        self.statistics.add(&observed);
        if let Some(image) = self.images.get(&text).filter(|image| image.is_seen_in(&observed)) {
            self.statistics.add_distances(image, &observed);
        }
        let is_kept = match kind {
            Kind::Weights | Kind::SlotWeights => self.pictured.contains(&text),
            Kind::HaltingSteps => true,
            Kind::Spans | Kind::Buckets | Kind::Gate => false,
        };
        if is_kept {
            self.kept.push(observed);
        }
        Ok(())
    }

    /// Statistics of all observations.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Writes tables, pictures and the page that names them. Files of an earlier analysis in the folder are replaced if they have the same names.
    ///
    /// # Errors
    /// [`AnalyseError::Folder`] when a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), AnalyseError> {
        let mut files = Files { folder, listed: Vec::new() };
        tables::write(self, &mut files)?;
        pictures::write(self, &mut files)?;
        write_atomically(&files.at("analyse.md")?, page::markdown(self, &files.listed).as_bytes())?;
        Ok(())
    }

    /// Each weight of a member of a mixture: the state, path of the attention, head, member and weight. One weight for all heads has head `None`.
    fn member_weights(&self) -> impl Iterator<Item = (State, &str, Option<usize>, &str, f64)> {
        self.mixtures.iter().flat_map(|(state, MixtureShares { module, members })| {
            members.iter().flat_map(move |(member, weights)| {
                let head = |head: usize| (weights.len() > 1).then_some(head);
                weights.iter().enumerate().map(move |(at, weight)| (*state, module.as_str(), head(at), member.as_str(), *weight))
            })
        })
    }

    /// Whether the model was observed in a state.
    fn has(&self, state: State) -> bool {
        self.seen.iter().any(|(own, ..)| *own == state)
    }

    /// The state of which single texts are shown: after training, if it was observed.
    fn shown(&self) -> State {
        if self.has(State::Trained) { State::Trained } else { State::Initial }
    }

    /// Weights of the texts asked for, in the state of which single texts are shown.
    fn maps(&self) -> impl Iterator<Item = &Observed> {
        self.kept.iter().filter(|observed| observed.state == self.shown() && observed.kind != Kind::HaltingSteps)
    }

    /// The maps of images whose weights are laid over the image.
    fn overlays(&self) -> impl Iterator<Item = (&Observed, &SeenImage)> {
        self.maps().filter_map(|observed| {
            let image = self.images.get(&observed.text)?;
            (image.is_seen_in(observed) && self.overlaid.has(&observed.module)).then_some((observed, image))
        })
    }

    /// Halting steps of all texts in one state.
    fn halting(&self, state: State) -> impl Iterator<Item = &Observed> {
        self.kept.iter().filter(move |observed| observed.state == state && observed.kind == Kind::HaltingSteps)
    }
}

/// A written file.
struct Listed {
    /// Relative to the folder, with `/`.
    name: String,
    /// What it holds, as a sentence.
    sentence: String,
}

/// The files of an analysis.
struct Files<'a> {
    folder: &'a Path,
    listed: Vec<Listed>,
}

impl Files<'_> {
    /// The path of a file, in a folder that is there.
    fn at(&self, name: &str) -> Result<PathBuf, FileError> {
        let path = self.folder.join(name);
        let folder = path.parent().unwrap_or(self.folder);
        make_folder(folder)?;
        Ok(path)
    }

    fn write(&mut self, name: &str, sentence: &str, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> Result<(), FileError> {
        write_atomically_with(&self.at(name)?, write)?;
        self.listed.push(Listed { name: name.into(), sentence: sentence.into() });
        Ok(())
    }
}

/// What a module is called where it is shown; a model that is a single module has an empty path.
fn named(module: &str) -> &str {
    if module.is_empty() { "model" } else { module }
}

#[cfg(test)]
mod tests;
