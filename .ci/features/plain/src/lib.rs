//! The features of shared dependencies other than Burn, for packages that do without it.
