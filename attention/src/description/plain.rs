//! An attention as plain double-precision loops, one query and key at a time.
//!
//! Nothing here uses the engine, a visibility's value or a tensor operation; only parameter values are read from a module.

use std::collections::BTreeMap;

use burn::module::Module;

use crate::contract::layer_spec::LayerSpec;
use crate::description::AnyMechanism;
use crate::description::Query;
use crate::description::array::Array;
use crate::description::case::{Case, parameters};
use crate::description::view::View;

/// A mechanism with a [formula](crate::description::Mechanism::formula), and the values of its parameters.
#[derive(Clone, Debug)]
pub struct PlainAttention {
    pub(super) mechanism: AnyMechanism,
    pub(crate) spec: LayerSpec,
    /// Values by their path in the module.
    pub parameters: BTreeMap<String, Array>,
    /// Prefix of the attention's parameter paths.
    root: String,
}

impl PlainAttention {
    /// Reads the parameters of a module that contains the attention: the module with the first map called `output`, or else the part with the mechanism's name.
    ///
    /// # Panics
    /// If the mechanism defines no formula.
    pub fn read<M: Module>(mechanism: &AnyMechanism, spec: LayerSpec, module: &M) -> Self {
        assert!(mechanism.has_formula(), "{mechanism} gives no formula");
        let parameters = parameters(module, None);
        let roots = parameters.keys().filter_map(|path| path.strip_suffix("output.weight"));
        let named = format!("{}.", mechanism.card().variant);
        let of_name = || parameters.keys().find_map(|path| Some(path[..path.find(&named)? + named.len()].to_owned()));
        let root = roots.min_by_key(|root| root.len()).map(str::to_owned).or_else(of_name).unwrap_or_default();
        Self { mechanism: mechanism.clone(), spec, parameters, root }
    }

    pub(super) fn find(&self, path: &str) -> Option<&Array> {
        self.parameters.get(&format!("{}{path}", self.root))
    }

    pub(super) fn parameter(&self, path: &str) -> &Array {
        self.find(path).unwrap_or_else(|| panic!("no parameter {}{path} among {:?}", self.root, self.parameters.keys()))
    }

    /// Context `[B, Q, C]` and weights `[B, H, Q, K]`, if the mechanism has key weights.
    pub fn forward(&self, case: &Case, view: &View) -> (Array, Option<Array>) {
        let LayerSpec { heads, d_model, .. } = self.spec;
        let (batch, queries) = (case.batch(), case.length());
        let mut context = Array { shape: vec![batch, queries, d_model], values: vec![0.0; batch * queries * d_model] };
        let shape = vec![batch, heads, queries, case.keys()];
        let mut shown = Array { values: vec![0.0; shape.iter().product()], shape };
        let mut has_weights = true;
        let (output, bias) = (self.find("output.weight"), self.find("output.bias"));
        for (b, i) in (0..batch).flat_map(|b| (0..queries).map(move |i| (b, i))) {
            let mut concatenated = Vec::new();
            for h in 0..heads {
                let (head, weights) = Query::new(self, case, view, [b, h, i]).attend();
                concatenated.extend(head);
                match weights {
                    Some(weights) => shown.row_mut(&[b, h, i]).copy_from_slice(&weights),
                    None => has_weights = false,
                }
            }
            let Some(output) = output else {
                context.row_mut(&[b, i]).copy_from_slice(&concatenated);
                continue;
            };
            for (c, out) in context.row_mut(&[b, i]).iter_mut().enumerate() {
                *out = concatenated.iter().enumerate().map(|(r, z)| z * output.at(&[r, c])).sum();
                *out += bias.map_or(0.0, |bias| bias.at(&[c]));
            }
        }
        (context, has_weights.then_some(shown))
    }
}
