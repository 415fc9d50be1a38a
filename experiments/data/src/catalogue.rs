//! Public data sets: where they are published, how they are fetched, and what a folder of data can be used for.
//!
//! The catalogue ([`Catalogue`]) is a TOML file in the program. For each data set it lists the licence, the files with their published addresses, sizes and
//! checksums, and the source of this information. [`fetch`] downloads the originals into the layout that the readers of [`crate`] expect; [`download`] resumes
//! and verifies a single file, [`archive`] unpacks archives, and [`check`] reads a folder with every matching reader. Not covered: data sets behind a login.
//! Downloads need the feature `download`.

#[cfg(feature = "download")]
pub mod archive;
pub mod check;
#[cfg(feature = "download")]
pub mod download;
mod entries;
#[cfg(feature = "download")]
pub mod fetch;
#[cfg(feature = "download")]
mod mrpc;
#[cfg(feature = "download")]
mod partial_download;

pub use entries::{Catalogue, CatalogueError, DataSet, Make, SourceFile, Unpack};
