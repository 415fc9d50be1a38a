//! The Rust of the book, compiled and run as tests of the documentation.

/// An item for each chapter.
macro_rules! chapters {
    ($($chapter:ident = $path:literal,)*) => {
        $(
            #[doc = include_str!($path)]
            pub struct $chapter;
        )*
    };
}

chapters! {
    BurnModel = "../../docs/book/src/burn-model.md",
    Footguns = "../../docs/book/src/footguns.md",
    LookingInside = "../../docs/book/src/looking-inside.md",
    MasksAndDecoding = "../../docs/book/src/masks-and-decoding.md",
    OwnExperiment = "../../docs/book/src/own-experiment.md",
    OwnMechanism = "../../docs/book/src/own-mechanism.md",
    Pretrained = "../../docs/book/src/pretrained.md",
    Readme = "../../README.md",
    Swapping = "../../docs/book/src/swapping.md",
    Weights = "../../docs/book/src/weights.md",
}
