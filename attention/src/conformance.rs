//! Conformance checks for every attention, including custom mechanisms.
//!
//! A [`Subject`] is an attention on a device; a [`Property`] is one statement of the contract, checked for every subject whose
//! [`Abilities`](crate::contract::abilities::Abilities) meet its prerequisite. [`Subject::check`] checks all properties:
//!
//! ```
//! use burn::tensor::Device;
//! use heedful_attention::conformance::Subject;
//! use heedful_attention::description::Mechanism;
//! use heedful_attention::mechanisms::uniform::UniformConfig;
//! use heedful_attention::contract::layer_spec::{LayerSpec, Role};
//! use heedful_attention::softmax_attention::SoftmaxAttention;
//!
//! let spec = LayerSpec::new(Role::Decoder, 6, 2).with_max_length(8).with_dropout(0.3);
//! let subject = Subject::new(
//!     spec,
//!     |spec, key, device| SoftmaxAttention::new(UniformConfig::default().init(spec, key, device), spec, key, device),
//!     &Device::flex(),
//! );
//! let report = subject.check()?;
//! println!("{report}");
//! # Ok::<(), heedful_attention::conformance::Report>(())
//! ```
//!
//! If the mechanism defines its [`formula`](mod@crate::description::formula) and the subject was created from [it](Subject::of), contexts and weights are
//! compared with the double-precision results of [`PlainAttention`](crate::description::PlainAttention). For mechanisms on several backends,
//! [`two_devices_agree`] compares subjects on two of them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::contract::Attention;
use crate::description::AnyMechanism;

mod building;
#[cfg(feature = "cube")]
mod device;
mod expected_panic;
mod gradients;
mod plain;
pub mod properties;
pub mod subject;

#[cfg(all(test, feature = "wgpu"))]
pub(crate) use device::cube_test_device;
#[cfg(feature = "cube")]
pub use device::{TEST_DEVICE, test_device};
pub use properties::{Outcome, two_devices_agree};
pub use subject::Subject;

/// Defines the properties: statement, name, prerequisite and check.
macro_rules! properties {
    ($(#[doc = $statement:literal] $property:ident($presupposed:ident) = $module:ident::$check:ident,)*) => {
        /// A property of every attention that meets its prerequisite.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Property {
            $(#[doc = $statement] $property,)*
        }

        impl Property {
            /// All properties, in check order.
            pub const ALL: &[Self] = &[$(Self::$property,)*];

            /// Statement of the property.
            pub fn statement(self) -> &'static str {
                match self { $(Self::$property => $statement.trim_ascii(),)* }
            }

            /// Prerequisite of the property.
            pub fn presupposes(self) -> Presupposition {
                match self { $(Self::$property => Presupposition::$presupposed,)* }
            }

            fn ask<A: Attention>(self, subject: &Subject<A>) -> Outcome {
                match self { $(Self::$property => $module::$check(subject),)* }
            }
        }
    };
}

properties! {
    /// Contexts and weights are those of the paper's formula in double precision, under every view.
    Formula(Formula) = plain::contexts_and_weights_are_those_of_the_formula,
    /// A change of one element moves no output before it.
    Causality(Causality) = properties::the_future_is_not_seen,
    /// The content of padding moves no output of a real element.
    Padding(Nothing) = properties::padding_content_does_not_matter,
    /// A query without visible keys has weights exactly 0, an output independent of content, and finite gradients.
    EmptyRows(Nothing) = properties::a_row_without_a_key_has_weight_zero,
    /// Every length from 1 to the maximum works; longer sequences are refused with the limit in the message.
    Lengths(Nothing) = properties::lengths_up_to_the_maximum_work_and_longer_are_refused,
    /// Around the border nothing changes: finite outputs and gradients, no future, steps equal the full pass.
    Borders(Border) = properties::borders_change_nothing,
    /// Batch rows are independent: a row equals its result alone.
    Batch(Nothing) = properties::batch_rows_are_independent,
    /// The same properties hold with a single head, or the minimum number of heads, as with several.
    FewestHeads(Nothing) = building::one_head_is_enough,
    /// Steps of one, of three, and of the whole sequence give what one pass over the sequence gives.
    Steps(Steps) = properties::steps_equal_the_full_pass,
    /// After a state's rows are reordered, repeated or dropped, decoding continues as if with these rows from the start.
    Selection(Steps) = properties::selecting_rows_reorders_a_state,
    /// A left-padded row equals the same row alone and unpadded, in a full pass and in steps.
    LeftPadding(Nothing) = properties::left_padding_equals_no_padding,
    /// Dropout needs a key, repeats with the same key, differs with another key, and keeps the expectation of functions linear in the weights.
    Dropout(Dropout) = properties::dropout_is_a_function_of_its_key,
    /// Weights are reported once, are not negative, are 0 where hidden (head by head), and sum to 1 if a key is visible.
    Weights(Weights) = properties::weights_are_those_of_the_view,
    /// A probe does not change outputs, with and without dropout.
    Probe(Nothing) = properties::a_probe_changes_nothing,
    /// Gradients of the inputs, also under dropout, and of every trained parameter equal the slopes of the outputs.
    Gradients(Nothing) = gradients::gradients_are_slopes,
    /// On request, the fused engine returns the context and all gradients of the reference engine, for any visibility per head, and both run when requested.
    Engines(Nothing) = properties::engines_agree,
    /// Auxiliary losses are returned if and only if they are claimed; they are finite, and their gradients equal their slopes.
    Losses(Nothing) = gradients::auxiliary_losses_are_those_claimed,
    /// A key determines the attention bit by bit, and computation leaves no trace in it.
    Determinism(Nothing) = building::one_key_builds_one_attention,
    /// A record loaded into an attention from another key restores the recorded one bit by bit.
    Record(Nothing) = building::a_record_restores_the_attention,
}

impl Property {
    /// Whether the subject meets the prerequisite of the property.
    pub fn is_asked_of<A: Attention>(self, subject: &Subject<A>) -> bool {
        self.presupposes().is_met_by(subject)
    }

    /// Checks the property of a subject, if it meets the prerequisite. A panic of the mechanism is also an error.
    ///
    /// # Errors
    /// Description of the violation.
    pub fn check<A: Attention>(self, subject: &Subject<A>) -> Outcome {
        if !self.is_asked_of(subject) {
            return Ok(());
        }
        catch_unwind(AssertUnwindSafe(|| self.ask(subject)))
            .unwrap_or_else(|panic| Err(format!("panic: {}", properties::message(&*panic).unwrap_or("without a message"))))
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.statement())
    }
}

/// Prerequisite of a [`Property`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Presupposition {
    /// Nothing.
    Nothing,
    /// A mechanism with a formula.
    Formula,
    /// Self-attention with support for causality.
    Causality,
    /// Decoding step by step.
    Steps,
    /// Weights observable by a probe.
    Weights,
    /// A dropout probability greater than 0.
    Dropout,
    /// A length at which the mechanism changes its behaviour.
    Border,
}

impl Presupposition {
    /// Whether a subject meets it.
    pub fn is_met_by<A: Attention>(self, subject: &Subject<A>) -> bool {
        match self {
            Self::Nothing => true,
            Self::Formula => subject.mechanism.as_ref().is_some_and(AnyMechanism::has_formula),
            Self::Causality => subject.is_causal(),
            Self::Steps => subject.decodes(),
            Self::Weights => subject.attention.abilities().weights,
            Self::Dropout => subject.spec.dropout > 0.0,
            Self::Border => subject.border.is_some(),
        }
    }
}

impl fmt::Display for Presupposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Formula => "a mechanism that gives its formula",
            Self::Causality => "causal self-attention",
            Self::Steps => "decoding step by step",
            Self::Weights => "weights that can be shown",
            Self::Dropout => "dropout",
            Self::Border => "a border",
        })
    }
}

/// Result of one property check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The property holds.
    Held,
    /// The subject does not meet the prerequisite.
    NotAsked(Presupposition),
    /// The property does not hold, with the reason.
    Broken(String),
}

/// Results of all property checks. `Display` prints a table under the subject's name; `Debug` prints the same, for `unwrap`.
#[derive(Clone, PartialEq, Eq)]
pub struct Report {
    subject: String,
    verdicts: Vec<(Property, Verdict)>,
}

impl Report {
    /// The checked attention and its place.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// All properties with their results.
    pub fn verdicts(&self) -> &[(Property, Verdict)] {
        &self.verdicts
    }

    /// Violated properties with reasons.
    pub fn broken(&self) -> impl Iterator<Item = (Property, &str)> {
        self.verdicts.iter().filter_map(|(property, verdict)| match verdict {
            Verdict::Broken(why) => Some((*property, why.as_str())),
            _ => None,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        for (property, verdict) in &self.verdicts {
            let word = match verdict {
                Verdict::Held => "held",
                Verdict::NotAsked(_) => "not asked",
                Verdict::Broken(_) => "BROKEN",
            };
            writeln!(f, "{word:9}  {:11}  {property}", format!("{property:?}"))?;
            match verdict {
                Verdict::Held => {}
                Verdict::NotAsked(missing) => writeln!(f, "{:24}presupposes {missing}", "")?,
                Verdict::Broken(why) => writeln!(f, "{:24}{why}", "")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{self}")
    }
}

impl std::error::Error for Report {}

impl<A: Attention> Subject<A> {
    /// Checks all properties.
    pub fn report(&self) -> Report {
        let verdict = |property: Property| match property.check(self) {
            _ if !property.is_asked_of(self) => Verdict::NotAsked(property.presupposes()),
            Ok(()) => Verdict::Held,
            Err(why) => Verdict::Broken(why),
        };
        Report { subject: self.to_string(), verdicts: Property::ALL.iter().map(|&property| (property, verdict(property))).collect() }
    }

    /// Checks all properties.
    ///
    /// # Errors
    /// The report, if a property does not hold.
    pub fn check(&self) -> Result<Report, Report> {
        let report = self.report();
        if report.broken().next().is_none() { Ok(report) } else { Err(report) }
    }
}
