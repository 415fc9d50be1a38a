//! The Rust of the book and of `docs`, compiled and run as tests of the documentation.

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
    Decoding = "../../docs/book/src/decoding.md",
    Footguns = "../../docs/book/src/footguns.md",
    LookingInside = "../../docs/book/src/looking-inside.md",
    Masks = "../../docs/book/src/masks.md",
    OwnExperiment = "../../docs/book/src/own-experiment.md",
    OwnModel = "../../docs/book/src/own-model.md",
    OwnMechanism = "../../docs/book/src/own-mechanism.md",
    Pretrained = "../../docs/book/src/pretrained.md",
    Readme = "../../README.md",
    QuickStart = "../../docs/book/src/quick-start-library.md",
    Swapping = "../../docs/book/src/swapping.md",
    Weights = "../../docs/weights.md",
}
