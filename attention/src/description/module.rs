//! Burn modules behind a pointer.
//!
//! [`Module`] has methods that are generic or return `Self`, which rules out trait objects. Here the same operations modify a module in place, visitors and
//! mappers are trait objects, and parameters pass as [`Any`] with their rank.

use std::any::Any;
use std::fmt::Debug;

use burn::module::{Content, Devices, Flag, Module, ModuleDisplay, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Device, Int, Tensor};

/// A module of any type.
pub(super) trait ErasedModule: Any + Debug + Send {
    fn collect_devices(&self, devices: Devices) -> Devices;
    fn fork(&mut self, device: &Device);
    fn to_device(&mut self, device: &Device);
    fn train(&mut self);
    fn valid(&mut self);
    fn materialize(&mut self);
    fn visit(&self, visitor: &mut dyn ErasedVisitor);
    fn map(&mut self, mapper: &mut dyn ErasedMapper);
    fn content(&self, content: Content) -> Option<Content>;
    fn num_params(&self) -> usize;
    fn module(&self) -> &dyn Any;
    fn module_mut(&mut self) -> &mut dyn Any;
}

/// Holder from which an operation takes a module by value.
#[derive(Clone, Debug)]
pub(super) struct Slot<M>(Option<M>);

impl<M> Slot<M> {
    pub(super) fn new(module: M) -> Self {
        Self(Some(module))
    }

    pub(super) fn get(&self) -> &M {
        self.0.as_ref().expect("an operation puts back the module that it took")
    }

    pub(super) fn change(&mut self, change: impl FnOnce(M) -> M) {
        self.0 = self.0.take().map(change);
    }
}

impl<M: Module + ModuleDisplay + 'static> ErasedModule for Slot<M> {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.get().collect_devices(devices)
    }

    fn fork(&mut self, device: &Device) {
        self.change(|module| module.fork(device));
    }

    fn to_device(&mut self, device: &Device) {
        self.change(|module| module.to_device(device));
    }

    fn train(&mut self) {
        self.change(M::train);
    }

    fn valid(&mut self) {
        self.change(|module| module.valid());
    }

    fn materialize(&mut self) {
        self.change(M::materialize);
    }

    fn visit(&self, visitor: &mut dyn ErasedVisitor) {
        self.get().visit(&mut ThroughVisitor(visitor));
    }

    fn map(&mut self, mapper: &mut dyn ErasedMapper) {
        self.change(|module| module.map(&mut ThroughMapper(mapper)));
    }

    fn content(&self, content: Content) -> Option<Content> {
        self.get().content(content)
    }

    fn num_params(&self) -> usize {
        Module::num_params(self.get())
    }

    fn module(&self) -> &dyn Any {
        self.get()
    }

    fn module_mut(&mut self) -> &mut dyn Any {
        self.0.as_mut().expect("an operation puts back the module that it took")
    }
}

/// Calls a generic method with a rank given at run time.
macro_rules! with_rank {
    ($rank:expr, $call:ident) => {
        match $rank {
            1 => $call!(1),
            2 => $call!(2),
            3 => $call!(3),
            4 => $call!(4),
            5 => $call!(5),
            6 => $call!(6),
            rank => panic!("a parameter of rank {rank}: modules of the registry have parameters of ranks 1 to 6"),
        }
    };
}

const SAME_TYPE: &str = "a parameter comes with its own rank";

/// A [`ModuleVisitor`]. Parameters are `Param<Tensor<D>>`, `Param<Tensor<D, Int>>` and `Param<Tensor<D, Bool>>`.
pub(super) trait ErasedVisitor {
    fn param(&mut self, rank: usize, param: &dyn Any);
    fn flag(&mut self, flag: &Param<Flag>);
    fn enter(&mut self, name: &str, container: &str);
    fn exit(&mut self, name: &str, container: &str);
}

impl<V: ModuleVisitor> ErasedVisitor for V {
    fn param(&mut self, rank: usize, param: &dyn Any) {
        macro_rules! visit {
            ($rank:literal) => {
                if let Some(param) = param.downcast_ref::<Param<Tensor<$rank>>>() {
                    self.visit_float(param)
                } else if let Some(param) = param.downcast_ref::<Param<Tensor<$rank, Int>>>() {
                    self.visit_int(param)
                } else {
                    self.visit_bool(param.downcast_ref::<Param<Tensor<$rank, Bool>>>().expect(SAME_TYPE))
                }
            };
        }
        with_rank!(rank, visit);
    }

    fn flag(&mut self, flag: &Param<Flag>) {
        self.visit_flag(flag);
    }

    fn enter(&mut self, name: &str, container: &str) {
        self.enter_module(name, container);
    }

    fn exit(&mut self, name: &str, container: &str) {
        self.exit_module(name, container);
    }
}

struct ThroughVisitor<'a>(&'a mut dyn ErasedVisitor);

impl ModuleVisitor for ThroughVisitor<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.param(D, param);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.0.param(D, param);
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.0.param(D, param);
    }

    fn visit_flag(&mut self, flag: &Param<Flag>) {
        self.0.flag(flag);
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.0.enter(name, container);
    }

    fn exit_module(&mut self, name: &str, container: &str) {
        self.0.exit(name, container);
    }
}

/// A [`ModuleMapper`]. Parameters as in [`ErasedVisitor`].
pub(super) trait ErasedMapper {
    fn param(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any>;
    fn flag(&mut self, flag: Param<Flag>) -> Param<Flag>;
    fn enter(&mut self, name: &str, container: &str);
    fn exit(&mut self, name: &str, container: &str);
}

impl<M: ModuleMapper> ErasedMapper for M {
    fn param(&mut self, rank: usize, param: Box<dyn Any>) -> Box<dyn Any> {
        macro_rules! map {
            ($rank:literal) => {
                if param.is::<Param<Tensor<$rank>>>() {
                    Box::new(self.map_float(*param.downcast::<Param<Tensor<$rank>>>().expect(SAME_TYPE)))
                } else if param.is::<Param<Tensor<$rank, Int>>>() {
                    Box::new(self.map_int(*param.downcast::<Param<Tensor<$rank, Int>>>().expect(SAME_TYPE)))
                } else {
                    Box::new(self.map_bool(*param.downcast::<Param<Tensor<$rank, Bool>>>().expect(SAME_TYPE)))
                }
            };
        }
        with_rank!(rank, map)
    }

    fn flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        self.map_flag(flag)
    }

    fn enter(&mut self, name: &str, container: &str) {
        self.enter_module(name, container);
    }

    fn exit(&mut self, name: &str, container: &str) {
        self.exit_module(name, container);
    }
}

struct ThroughMapper<'a>(&'a mut dyn ErasedMapper);

impl ModuleMapper for ThroughMapper<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        *self.0.param(D, Box::new(param)).downcast().expect(SAME_TYPE)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        *self.0.param(D, Box::new(param)).downcast().expect(SAME_TYPE)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        *self.0.param(D, Box::new(param)).downcast().expect(SAME_TYPE)
    }

    fn map_flag(&mut self, flag: Param<Flag>) -> Param<Flag> {
        self.0.flag(flag)
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.0.enter(name, container);
    }

    fn exit_module(&mut self, name: &str, container: &str) {
        self.0.exit(name, container);
    }
}
