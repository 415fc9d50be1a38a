//! Which mechanisms compute the same with default options on the sequences of an experiment: a comparison of two of them would be one of a thing with itself. Where
//! the data are far shorter than the model may read, the check before training has to refuse them.

use std::collections::{BTreeMap, BTreeSet};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Tensor, TensorData};
use heedful_attention::contract::Attention as _;
use heedful_attention::prelude::*;
use heedful_attention::tensors::read::read;
use heedful_runs::settings::Settings;
use rand::RngExt;

use super::*;
use crate::session::comparison::candidate::candidates;
use crate::session::footprint::Memory;
use crate::tasks::algorithmic::Algorithmic;
use crate::tasks::classification::Classification;
use crate::tasks::image::{ImageClassification, ImageMixtures, ImageModelling, SuperResolution};
use crate::tasks::language::Language;
use crate::tasks::memory_rl::MemoryRl;
use crate::tasks::pre_training::{MaskedModelling, SpanModelling};
use crate::tasks::recall::{Recall, Track};
use crate::tasks::swap::Swap;
use crate::tasks::text_classification::TextClassification;
use crate::tasks::text_generation::TextGeneration;
use crate::tasks::translation::Translation;

/// Mechanisms that compute the same with the same parameters, and why they are two.
const EXPLAINED: [(&str, &str, &str); 1] =
    [("synthesizer-random", "synthesizer-random-fixed", "only one of them trains its table, and here both have the same")];

/// Outputs that differ by less are the same.
const TOLERANCE: f32 = 1e-5;

/// Adds noise to every parameter, trained or not, which is the same for parameters of one shape in their order: what starts at zero, or at one, hides differences.
#[derive(Default)]
struct Perturbed(BTreeMap<Vec<usize>, u64>);

impl ModuleMapper for Perturbed {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| {
            let shape = tensor.dims().to_vec();
            let number = self.0.entry(shape.clone()).or_default();
            *number += 1;
            let mut rng = RandomKey::from_seed(7).named(&format!("{shape:?}")).numbered(*number).rng();
            let noise: Vec<f32> = (0..shape.iter().product()).map(|_| rng.random_range(-0.3..0.3)).collect();
            let noise = Tensor::<D>::from_data(TensorData::new(noise, shape), &tensor.device());
            tensor + noise
        })
    }
}

impl Places {
    /// Whether the data are so much shorter than the model that sizes which follow the length of the model are too great for them: a comparison refuses these.
    fn is_far_below_the_model(&self) -> bool {
        self.roles.iter().flat_map(|role| self.lengths.of(*role).keys()).all(|length| 2 * length <= self.lengths.max_length)
    }
}

/// What the attentions of a candidate give in all of their places, at the greatest length.
fn outputs(places: &Places, d_model: usize) -> Vec<f32> {
    let device = Device::flex();
    let mut all = Vec::new();
    for (place, mechanism, _) in places.all().filter(|(place, ..)| place.layer < 2) {
        let mut place = place;
        place.d_model = d_model;
        let length = *places.lengths.of(place.role).keys().next_back().unwrap();
        let attention = mechanism.init(&place, &RandomKey::from_seed(1), &device).map(&mut Perturbed::default());
        let sequence = |name: &str| {
            let mut rng = RandomKey::from_seed(2).named(name).rng();
            let values: Vec<f32> = (0..length * d_model).map(|_| rng.random_range(-3.0..3.0)).collect();
            Tensor::<3>::from_data(TensorData::new(values, [1, length, d_model]), &device)
        };
        let input = match place.role {
            Role::Encoder => AttentionInput::self_attention(sequence("own")),
            Role::Decoder => AttentionInput::self_attention(sequence("own")).visibility(Visibility::causal()),
            Role::Cross => AttentionInput::cross_attention(sequence("own"), sequence("other")),
        };
        all.extend(read(attention.forward(input, &mut Probe::off()).context).iter::<f32>());
    }
    all
}

/// Adds the pairs of mechanisms of an experiment that give the same.
fn equal<E: Experiment>(found: &mut BTreeSet<(String, String)>) {
    let settings = |name: &str| Settings::set(&[&format!("run.attention=['{name}']"), "run.models=[]"]).unwrap();
    let datasets = E::open(&settings(&AnyMechanism::default().name()).value).unwrap();
    let mut computed: Vec<(String, Vec<f32>, bool)> = Vec::new();
    for mechanism in AnyMechanism::all() {
        // What cannot stand in models of this experiment is no candidate.
        let Ok(of_name) = candidates::<E>(&mut settings(&mechanism.name()), Memory::here()) else { continue };
        let Candidate { attention, config, .. } = &of_name[0];
        let setup = Setup { config, data: &datasets[0], attention };
        if E::fits(setup).is_err() {
            continue;
        }
        let places = Places::of::<E>(setup);
        let is_refused = places.is_far_below_the_model() && check::<E>(&of_name, &datasets[..1]).is_err();
        computed.push((attention.name.clone(), outputs(&places, E::sizes(config).d_model), is_refused));
    }
    assert!(computed.len() > 10, "{} has only {} candidates", E::NAME, computed.len());
    for (index, (name, one, is_refused)) in computed.iter().enumerate() {
        for (other_name, other, is_other_refused) in &computed[..index] {
            let is_same = one.len() == other.len() && one.iter().zip(other).all(|(one, other)| (one - other).abs() < TOLERANCE);
            if is_same && !one.is_empty() && !is_refused && !is_other_refused {
                found.insert((other_name.clone(), format!("{name} in {}", E::NAME)));
            }
        }
    }
}

#[test]
fn no_two_mechanisms_compute_the_same_by_default_but_those_that_are_explained() {
    let mut found = BTreeSet::new();
    // `ponder` has no attention.
    equal::<Algorithmic>(&mut found);
    equal::<Classification>(&mut found);
    equal::<ImageClassification>(&mut found);
    equal::<ImageMixtures>(&mut found);
    equal::<ImageModelling>(&mut found);
    equal::<Language>(&mut found);
    equal::<MaskedModelling>(&mut found);
    equal::<MemoryRl>(&mut found);
    equal::<Recall>(&mut found);
    equal::<SpanModelling>(&mut found);
    equal::<SuperResolution>(&mut found);
    equal::<Swap>(&mut found);
    equal::<TextClassification>(&mut found);
    equal::<TextGeneration>(&mut found);
    equal::<Track>(&mut found);
    equal::<Translation>(&mut found);
    let is_explained = |(one, other): &&(String, String)| {
        EXPLAINED.iter().any(|(first, second, _)| one == first && other.split(" in ").next() == Some(*second))
    };
    let others: Vec<_> = found.iter().filter(|pair| !is_explained(pair)).collect();
    assert!(others.is_empty(), "these compute the same: {others:#?}");
}
