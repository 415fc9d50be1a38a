//! Every field of every experiment's configuration, set to other values and to extreme ones, on tiny models.
//!
//! A field that is set to another value changes a loss, a text or a score, or is of those that change time, memory and files alone, or is refused. A field that
//! is set to an extreme value is refused before the first step, or its runs end.

mod effects;
mod extremes;
mod leaves;
mod options;
mod presets;
mod tiny_commands;
mod trial;

use heedful_attention::description::AnyMechanism;

use self::tiny_commands::Variety;

/// A test of each walk for each experiment.
macro_rules! experiments {
    ($($name:ident: $experiment:ty),* $(,)?) => {
        mod another_value_of_a_field_has_an_effect_or_is_refused {
            $(
                #[test]
                fn $name() {
                    super::effects::walk::<$experiment>(&super::tiny_commands::$name());
                }
            )*
        }

        mod an_extreme_value_of_a_field_is_refused_or_runs {
            $(
                #[test]
                fn $name() {
                    super::extremes::walk::<$experiment>(&super::tiny_commands::$name());
                }
            )*
        }

        /// What a preset of the experiment of this name is refused with.
        fn refusal(name: &str, path: &std::path::Path, command: &str) -> Option<String> {
            use crate::session::experiment::Experiment;
            $(
                if name == <$experiment>::NAME {
                    return presets::refusal::<$experiment>(path, command);
                }
            )*
            panic!("{path:?} is of `{name}`")
        }
    };
}

experiments! {
    algorithmic: crate::tasks::algorithmic::Algorithmic,
    classify: crate::tasks::text_classification::TextClassification,
    classify_images: crate::tasks::image::ImageClassification,
    glue: crate::tasks::classification::Classification,
    image: crate::tasks::image::ImageModelling,
    image_mixtures: crate::tasks::image::ImageMixtures,
    lm: crate::tasks::language::Language,
    memory_rl: crate::tasks::memory_rl::MemoryRl,
    mlm: crate::tasks::pre_training::MaskedModelling,
    mlm_spans: crate::tasks::pre_training::SpanModelling,
    mt: crate::tasks::translation::Translation,
    ponder: crate::tasks::ponder::Ponder,
    recall: crate::tasks::recall::Recall,
    super_resolution: crate::tasks::image::SuperResolution,
    swap: crate::tasks::swap::Swap,
    textgen: crate::tasks::text_generation::TextGeneration,
    track: crate::tasks::recall::Track,
}

#[test]
fn another_value_of_an_option_of_a_mechanism_has_an_effect() {
    let can_be_causal = |family: &&str| AnyMechanism::of_family(family).unwrap().can_be_causal();
    let (causal, others): (Vec<&str>, Vec<&str>) = AnyMechanism::families().iter().copied().partition(can_be_causal);
    options::walk::<crate::tasks::language::Language>(&tiny_commands::lm(), &causal);
    options::walk::<crate::tasks::text_classification::TextClassification>(&tiny_commands::classify(), &others);
    options::walk::<crate::tasks::translation::Translation>(&tiny_commands::mt(), &[]);
}

#[test]
fn an_extreme_option_of_a_mechanism_is_refused_or_runs() {
    extremes::mechanisms::<crate::tasks::language::Language>(&tiny_commands::lm());
}

#[test]
fn no_preset_gives_a_field_without_effect() {
    let mut faults = Vec::new();
    for (path, command) in presets::all() {
        let program = command.split(' ').nth(1).unwrap();
        let name = match program {
            "image" if command.contains("--super-resolution") => "image-super-resolution",
            "classify" if command.contains("--images") => "classify-images",
            "mlm" if command.contains("--objective spans") => "mlm-spans",
            program => program,
        };
        faults.extend(refusal(name, &path, &command));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
