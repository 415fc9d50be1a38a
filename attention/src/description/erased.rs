//! Type-erased logits, attentions and states.

use std::any::Any;
use std::fmt::{self, Debug};

use burn::module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor};
use burn::tensor::{Device, Tensor};

use super::module::{ErasedModule, Slot};
use crate::contract::abilities::Abilities;
use crate::contract::decoding_position::DecodingStart;
use crate::contract::init::Init;
use crate::contract::probe::Probe;
use crate::contract::visibility::{Span, Visibility};
use crate::contract::{Attention, AttentionInput, AttentionOutput, Positions, QueryKeyPairs};
use crate::engine::{LogitTerms, Normaliser};
use crate::softmax_attention::SoftmaxAttention;
use crate::softmax_attention::logits::{LogitAbilities, Logits, LogitsRef};

/// Implements [`Module`] for a type with a `variant`, which appears in parameter paths, and an `inner` module.
macro_rules! erased_module {
    ($any:ident, $container:literal) => {
        impl Module for $any {
            fn collect_devices(&self, devices: Devices) -> Devices {
                self.inner.collect_devices(devices)
            }

            fn fork(mut self, device: &Device) -> Self {
                self.inner.fork(device);
                self
            }

            fn to_device(mut self, device: &Device) -> Self {
                self.inner.to_device(device);
                self
            }

            fn train(mut self) -> Self {
                self.inner.train();
                self
            }

            fn valid(&self) -> Self {
                let mut valid = self.clone();
                valid.inner.valid();
                valid
            }

            fn materialize(mut self) -> Self {
                self.inner.materialize();
                self
            }

            fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
                visitor.enter_module(self.variant, $container);
                self.inner.visit(visitor);
                visitor.exit_module(self.variant, $container);
            }

            fn map<M: ModuleMapper>(mut self, mapper: &mut M) -> Self {
                mapper.enter_module(self.variant, $container);
                self.inner.map(mapper);
                mapper.exit_module(self.variant, $container);
                self
            }
        }

        impl ModuleDisplayDefault for $any {
            fn content(&self, content: Content) -> Option<Content> {
                self.inner.content(content.set_top_level_type(self.variant))
            }

            fn num_params(&self) -> usize {
                self.inner.num_params()
            }
        }

        impl ModuleDisplay for $any {}

        impl fmt::Display for $any {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&ModuleDisplay::format(self, Default::default()))
            }
        }

        impl $any {
            /// The module, if it has this type.
            pub fn get<M: 'static>(&self) -> Option<&M> {
                self.inner.module().downcast_ref()
            }

            /// Mutable access to the module, if it has this type.
            pub fn get_mut<M: 'static>(&mut self) -> Option<&mut M> {
                self.inner.module_mut().downcast_mut()
            }

            /// Sets the variant name in parameter paths. Registered mechanisms use the name of their [`Card`](super::Card).
            pub fn named(mut self, variant: &'static str) -> Self {
                self.variant = variant;
                self
            }
        }
    };
}

/// Logits of any mechanism with logits.
#[derive(Debug)]
pub struct AnyLogits {
    variant: &'static str,
    /// Replaces the logits' own normaliser.
    normaliser: Option<Normaliser>,
    /// Soft bound of the logits.
    cap: Option<f32>,
    /// Initial logits of sinks.
    sink: Option<Init>,
    inner: Box<dyn ErasedLogits>,
}

/// An attention of any mechanism.
#[derive(Debug)]
pub struct AnyAttention {
    variant: &'static str,
    inner: Box<dyn ErasedAttention>,
}

/// State of any mechanism.
#[derive(Debug)]
pub struct AnyState(Box<dyn ErasedState>);

erased_module!(AnyLogits, "Enum:AnyLogits");
erased_module!(AnyAttention, "Enum:AnyAttention");

/// Forwards methods to the inner type.
macro_rules! forward {
    ($target:ident: $($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $result {
            self.$target().$name($($argument),*)
        })*
    };
}

trait ErasedLogits: ErasedModule {
    fn boxed(&self) -> Box<dyn ErasedLogits>;
    fn share_with(&mut self, earlier: &dyn Any);
    fn logits(&self) -> LogitsRef<'_>;
}

impl<L: Logits> ErasedLogits for Slot<L> {
    fn boxed(&self) -> Box<dyn ErasedLogits> {
        Box::new(self.clone())
    }

    fn share_with(&mut self, earlier: &dyn Any) {
        if let Some(earlier) = earlier.downcast_ref::<L>() {
            self.change(|logits| logits.sharing_with(earlier));
        }
    }

    fn logits(&self) -> LogitsRef<'_> {
        self.get()
    }
}

impl Logits for AnyLogits {
    fn abilities(&self) -> LogitAbilities {
        self.inner.logits().abilities()
    }

    fn inner(&self) -> Option<LogitsRef<'_>> {
        Some(self.inner.logits())
    }

    fn normaliser(&self) -> Normaliser {
        self.normaliser.unwrap_or_else(|| self.inner.logits().normaliser())
    }

    fn sink(&self) -> Option<Init> {
        self.sink.or_else(|| self.inner.logits().sink())
    }

    fn terms(&self, query: Tensor<3>, keys: Option<Tensor<4>>, span: Span, positions: &Positions) -> LogitTerms {
        let terms = self.inner.logits().terms(query, keys, span, positions);
        match self.cap {
            Some(limit) => terms.capped(limit),
            None => terms,
        }
    }

    fn takes_any_queries(&self) -> bool {
        self.inner.logits().takes_any_queries()
    }

    fn sharing_with(mut self, earlier: &Self) -> Self {
        self.inner.share_with(earlier.inner.module());
        self
    }
}

impl AnyLogits {
    /// Wraps the logits of a mechanism.
    pub fn new<L: Logits>(logits: L) -> Self {
        Self { variant: "", normaliser: None, cap: None, sink: None, inner: Box::new(Slot::new(logits)) }
    }

    /// The same scores with another normaliser.
    pub(crate) fn normalised_by(mut self, normaliser: Normaliser) -> Self {
        self.normaliser = Some(normaliser);
        self
    }

    /// The same scores with a softmax with sinks.
    pub(crate) fn with_sink(mut self, init: Init) -> Self {
        self.sink = Some(init);
        self
    }

    /// The same scores under a soft bound, greater than 0.
    pub(crate) fn capped(mut self, limit: f32) -> Self {
        self.cap = Some(limit);
        self
    }
}

impl Clone for AnyLogits {
    fn clone(&self) -> Self {
        Self { variant: self.variant, normaliser: self.normaliser, cap: self.cap, sink: self.sink, inner: self.inner.boxed() }
    }
}

trait ErasedState: Debug + Send {
    fn boxed(&self) -> Box<dyn ErasedState>;
    fn state(&self) -> &dyn Any;
    fn state_mut(&mut self) -> &mut dyn Any;
}

impl<S: Clone + Debug + Send + 'static> ErasedState for S {
    fn boxed(&self) -> Box<dyn ErasedState> {
        Box::new(self.clone())
    }

    fn state(&self) -> &dyn Any {
        self
    }

    fn state_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Clone for AnyState {
    fn clone(&self) -> Self {
        Self(self.0.boxed())
    }
}

impl AnyState {
    /// The state, if it has this type.
    pub fn get<S: 'static>(&self) -> Option<&S> {
        self.0.state().downcast_ref()
    }

    fn of<A: Attention>(&mut self) -> &mut A::State {
        self.0.state_mut().downcast_mut().expect("the state is that of another mechanism")
    }
}

trait ErasedAttention: ErasedModule {
    fn boxed(&self) -> Box<dyn ErasedAttention>;
    fn abilities(&self) -> Abilities;
    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput;
    fn state(&self, start: &DecodingStart) -> AnyState;
    fn step(&self, query: Tensor<3>, state: &mut AnyState, probe: &mut Probe) -> AttentionOutput;
    fn select(&self, state: &mut AnyState, rows: &[usize]);
    fn state_bytes(&self, state: &AnyState) -> Option<usize>;
    fn share_with(&mut self, earlier: &dyn Any);
    fn any_queries(&self) -> Option<Visibility>;
    fn multiplications(&self, pairs: &QueryKeyPairs) -> f64;
}

impl<A: Attention> ErasedAttention for Slot<A> {
    fn boxed(&self) -> Box<dyn ErasedAttention> {
        Box::new(self.clone())
    }

    forward! { get:
        abilities() -> Abilities;
        forward(input: AttentionInput, probe: &mut Probe) -> AttentionOutput;
        any_queries() -> Option<Visibility>;
        multiplications(pairs: &QueryKeyPairs) -> f64;
    }

    fn state(&self, start: &DecodingStart) -> AnyState {
        AnyState(Box::new(self.get().state(start)))
    }

    fn step(&self, query: Tensor<3>, state: &mut AnyState, probe: &mut Probe) -> AttentionOutput {
        self.get().step(query, state.of::<A>(), probe)
    }

    fn select(&self, state: &mut AnyState, rows: &[usize]) {
        self.get().select(state.of::<A>(), rows);
    }

    fn state_bytes(&self, state: &AnyState) -> Option<usize> {
        self.get().state_bytes(state.get().expect("the state is that of another mechanism"))
    }

    fn share_with(&mut self, earlier: &dyn Any) {
        if let Some(earlier) = earlier.downcast_ref::<A>() {
            self.change(|attention| attention.sharing_with(earlier));
        }
    }
}

impl AnyAttention {
    /// Wraps an attention that is not a softmax over logits.
    pub fn new<A: Attention>(attention: A) -> Self {
        Self { variant: "", inner: Box::new(Slot::new(attention)) }
    }

    /// Wraps a softmax over logits.
    pub fn softmax(attention: SoftmaxAttention<AnyLogits>) -> Self {
        Self::new(attention).named("Softmax")
    }

    /// The softmax, if this is one.
    pub fn as_softmax(&self) -> Option<&SoftmaxAttention<AnyLogits>> {
        self.get()
    }

    /// The logits, if they have this type.
    pub fn logits<L: Logits>(&self) -> Option<&L> {
        self.as_softmax()?.logits.get()
    }

    /// Mutable access to the logits, if they have this type.
    pub fn logits_mut<L: Logits>(&mut self) -> Option<&mut L> {
        self.get_mut::<SoftmaxAttention<AnyLogits>>()?.logits.get_mut()
    }

    /// Mechanism name in tracing spans.
    fn mechanism(&self) -> &'static str {
        self.as_softmax().map_or(self.variant, |softmax| softmax.logits.variant)
    }

    fn erased(&self) -> &dyn ErasedAttention {
        &*self.inner
    }
}

impl Clone for AnyAttention {
    fn clone(&self) -> Self {
        Self { variant: self.variant, inner: self.inner.boxed() }
    }
}

impl Attention for AnyAttention {
    type State = AnyState;

    fn forward(&self, input: AttentionInput, probe: &mut Probe) -> AttentionOutput {
        let _span = tracing::trace_span!("attention", mechanism = self.mechanism(), queries = ?input.query.dims()).entered();
        self.erased().forward(input, probe)
    }

    forward! { erased:
        abilities() -> Abilities;
        state(start: &DecodingStart) -> AnyState;
        step(query: Tensor<3>, state: &mut AnyState, probe: &mut Probe) -> AttentionOutput;
        select(state: &mut AnyState, rows: &[usize]) -> ();
        state_bytes(state: &AnyState) -> Option<usize>;
        any_queries() -> Option<Visibility>;
        multiplications(pairs: &QueryKeyPairs) -> f64;
    }

    fn sharing_with(mut self, earlier: &Self) -> Self {
        self.inner.share_with(earlier.inner.module());
        self
    }
}
