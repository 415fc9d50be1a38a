//! The weights that mixtures of logits have learned for their members (Tay et al. 2021, section 3.3), read from the parameters of a model.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use heedful_attention::tensors::read::read;
use heedful_models::prelude::*;

/// What the module is called that has the members.
const MIXTURE: &str = "Struct:Mixture";
/// What the module of an attention is called; what stands before it in a path says which attention of a model it is.
const ATTENTION: &str = "Enum:AnyAttention";

/// The weights of one mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct MixtureShares {
    /// Path of the attention (`decoder.layers.0.self_attention`).
    pub module: String,
    /// The members, each with its weight in each head, or in all heads together where they have one. Those of a head sum to 1.
    pub members: Vec<(String, Vec<f64>)>,
}

impl MixtureShares {
    /// The mean over heads of the weights of each member, the least and the greatest.
    pub fn means(&self) -> impl Iterator<Item = (&str, [f64; 3])> {
        self.members.iter().map(|(name, weights)| {
            let mean = weights.iter().sum::<f64>() / weights.len() as f64;
            (name.as_str(), [mean, weights.iter().copied().fold(f64::INFINITY, f64::min), weights.iter().copied().fold(0.0, f64::max)])
        })
    }
}

/// Those of all mixtures of a model that learn weights, in the order of the model.
pub fn of<M: Module>(model: &M) -> Vec<MixtureShares> {
    let mut visitor = Mixtures::default();
    model.visit(&mut visitor);
    let Mixtures { members, weights, .. } = visitor;
    let shares = |Weights { path, module, values }: Weights| {
        let names = members.get(&path).cloned().unwrap_or_default();
        assert_eq!(names.len(), values.len(), "a mixture has a weight for each member");
        MixtureShares { module, members: names.into_iter().zip(values).collect() }
    };
    weights.into_iter().map(shares).collect()
}

/// What all scores of a model say of its mixtures in a sentence; `None` if it has none with weights.
pub(crate) fn note<M: Module>(model: &M) -> Option<String> {
    let sentences: Vec<String> = of(model)
        .iter()
        .map(|mixture| {
            let members = mixture.means().map(|(name, [mean, least, greatest])| match least == greatest {
                true => format!("{name} {mean:.3}"),
                false => format!("{name} {mean:.3} ({least:.3} to {greatest:.3})"),
            });
            format!("{} {}", mixture.module, members.collect::<Vec<_>>().join(", "))
        })
        .collect();
    (!sentences.is_empty())
        .then(|| format!("weights of the members of mixtures, means over heads (least to greatest): {}", sentences.join("; ")))
}

/// The weights of one mixture.
struct Weights {
    /// Path of the mixture.
    path: String,
    /// Path of its attention.
    module: String,
    /// `[members, heads]`.
    values: Vec<Vec<f64>>,
}

#[derive(Default)]
struct Mixtures {
    /// Names and containers of the modules around.
    place: Vec<(String, String)>,
    /// Names of the members of each mixture, by its path.
    members: BTreeMap<String, Vec<String>>,
    weights: Vec<Weights>,
}

/// The path of modules.
fn joined<'p>(place: impl Iterator<Item = &'p (String, String)>) -> String {
    place.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(".")
}

impl ModuleVisitor for Mixtures {
    fn enter_module(&mut self, name: &str, container: &str) {
        // members, a number, and the variant of the logits.
        let depth = self.place.len();
        if depth >= 2 && self.place[depth - 2] == ("members".to_owned(), MIXTURE.to_owned()) {
            let mut families = AnyMechanism::families().iter().filter_map(|family| AnyMechanism::of_family(family));
            let family = families.find(|config| config.card().variant == name).map(|config| config.family());
            let mixture = joined(self.place[..depth - 2].iter());
            self.members.entry(mixture).or_default().push(family.unwrap_or(name).to_owned());
        }
        self.place.push((name.to_owned(), container.to_owned()));
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.place.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some((name, container)) = self.place.last() else { return };
        if container != MIXTURE {
            return;
        }
        let numbers: Vec<f64> = read(param.val()).iter::<f64>().collect();
        let shape = param.shape();
        let values = match name.as_str() {
            "head_weights" => {
                let heads = shape.dims::<2>()[1];
                let of = |member: usize, head: usize| numbers[member * heads + head].exp();
                let members = numbers.len() / heads;
                let sum = |head: usize| (0..members).map(|member| of(member, head)).sum::<f64>();
                (0..members).map(|member| (0..heads).map(|head| of(member, head) / sum(head)).collect()).collect()
            }
            "layer_weight" => {
                let second = 1.0 / (1.0 + (-numbers[0]).exp());
                vec![vec![1.0 - second], vec![second]]
            }
            _ => return,
        };
        let path = joined(self.place[..self.place.len() - 1].iter());
        let module = joined(self.place.iter().take_while(|(_, container)| container != ATTENTION));
        self.weights.push(Weights { path, module, values });
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use heedful_attention::mechanisms::mixture::{Mixture, MixtureWeights};

    use super::*;

    fn model(attention: impl Into<AnyMechanism>) -> LanguageModel {
        let block = BlockConfig { d_model: 8, heads: 2, d_ff: 8, max_length: 6, ..BlockConfig::default() };
        let config = LanguageModelConfig { vocabulary: 9, layers: 2, block, ..LanguageModelConfig::default() };
        config.with_attention(attention.into()).init(&RandomKey::from_seed(1), &Device::flex())
    }

    fn mixture(weights: MixtureWeights) -> AnyMechanism {
        let members = ["synthesizer-random", "dot-product"].map(|name| name.parse().unwrap()).to_vec();
        MixtureConfig::default().with_members(members).with_weights(weights).into()
    }

    /// Gives the mixture of the second layer other weights before their softmax.
    fn changed(mut model: LanguageModel, weights: [[f32; 2]; 2]) -> LanguageModel {
        let mixture = model.decoder.layers[1].self_attention.logits_mut::<Mixture>().unwrap();
        mixture.head_weights = Some(Param::from_data(TensorData::from(weights), &Device::flex()));
        model
    }

    #[test]
    fn weights_of_members_are_told_by_layer_and_head() {
        let model = changed(model(mixture(MixtureWeights::Softmax)), [[0.0, 3.0_f32.ln()], [0.0, 0.0]]);
        let [first, second] = &of(&model)[..] else { panic!("two layers have mixtures") };
        assert_eq!(first.module, "decoder.layers.0.self_attention");
        let names: Vec<&str> = first.members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["synthesizer-random", "dot-product"]);
        assert!(first.members.iter().all(|(_, weights)| *weights == [0.5, 0.5]), "{first:?}");
        let expected = [[0.5, 0.75], [0.5, 0.25]];
        for ((_, found), expected) in second.members.iter().zip(expected) {
            assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{found:?}");
        }
        let note = note(&model).unwrap();
        let part = "decoder.layers.1.self_attention synthesizer-random 0.625 (0.500 to 0.750), dot-product 0.375 (0.250 to 0.500)";
        assert!(note.contains(part) && note.contains("decoder.layers.0.self_attention synthesizer-random 0.500, "), "{note}");
    }

    #[test]
    fn one_weight_for_all_heads_is_told_as_that_of_both_members() {
        let model = model(mixture(MixtureWeights::Sigmoid));
        let [first, _] = &of(&model)[..] else { panic!("two layers have mixtures") };
        assert!(first.members.iter().all(|(_, weights)| *weights == [0.5]), "{first:?}");
    }

    #[test]
    fn models_without_weights_of_members_say_nothing() {
        for attention in [AnyMechanism::default(), mixture(MixtureWeights::Sum)] {
            let model = model(attention.clone());
            assert_eq!((of(&model), note(&model)), (Vec::new(), None), "{attention}");
        }
    }
}
