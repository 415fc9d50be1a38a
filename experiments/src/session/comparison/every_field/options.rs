//! Other values of options of mechanisms have an effect.

use heedful_runs::settings::MECHANISMS;

use super::Variety;
use super::effects::{Allowed, done, fault};
use super::leaves::{leaves, options, others};
use crate::session::experiment::definition::Experiment;

/// Options of mechanisms that change only time or memory.
const OPTIONS_OF_TIME: &[&str] = &[
    "engine",
    "lightweight-conv.execution",
    "local-1d.execution",
    "local-2d.execution",
    "sliding-window.execution",
    "sparse-fixed.execution",
    "sparse-strided.execution",
    "streaming-llm.execution",
];

/// Whether an option of a mechanism changes only time or memory.
fn is_of_time(path: &str) -> bool {
    OPTIONS_OF_TIME.iter().any(|option| path.ends_with(&format!(".{option}")))
}

/// Experiments, what is set in them, and options of mechanisms with values that then have an effect.
const OPTIONS: &[(&str, &[&str], &[&str])] = &[
    ("lm", &["run.attention=['aft']", "mechanisms.aft.form='local'"], &["mechanisms.aft.window=4"]),
    ("lm", &["run.attention=['entmax']"], &["mechanisms.entmax.alpha=2.0"]),
    ("lm", &["run.attention=['forgetting']", "mechanisms.forgetting.gate='bias-only'"], &["mechanisms.forgetting.decay_times=[2.0, 8.0]"]),
    ("lm", &["run.attention=['gaussian']", "mechanisms.gaussian.execution='banded'"], &["mechanisms.gaussian.window=4"]),
    ("mt", &["run.attention=['{encoder=dot-product,decoder=dot-product,cross=gaussian}']"], &["mechanisms.gaussian.length_ratio=2.0"]),
    ("lm", &["run.attention=['local-2d']"], &["mechanisms.local-2d.query_block=[2, 4]"]),
    ("lm", &["run.attention=['lsh']"], &["mechanisms.lsh.full_attention_below=40"]),
    ("lm", &["run.attention=['lsh']", "mechanisms.lsh.bucket_mask=false"], &["mechanisms.lsh.after=2", "mechanisms.lsh.wrap=true"]),
    (
        "lm",
        &["run.attention=['lsh']", "mechanisms.lsh.bucket_mask=false", "mechanisms.lsh.wrap=true"],
        &["mechanisms.lsh.across_rounds=true"],
    ),
    ("lm", &["run.attention=['mla']", "mechanisms.mla.rotary_width=4"], &["mechanisms.mla.base=100.0"]),
    ("lm", &["run.attention=['rotary']", "mechanisms.rotary.qk_norm='rms'"], &["mechanisms.rotary.qk_norm_epsilon=0.5"]),
    (
        "lm",
        &["run.attention=['rotary']"],
        &[
            "mechanisms.rotary.scaling={kind='linear', factor=2.0}",
            "mechanisms.rotary.scaling={kind='ntk', factor=2.0}",
            "mechanisms.rotary.scaling={kind='dynamic', factor=2.0, original_max_position_embeddings=8}",
            "mechanisms.rotary.scaling={kind='proportional', partial_rotary_factor=0.5}",
            "mechanisms.rotary.scaling={kind='llama3', factor=2.0, original_max_position_embeddings=8}",
            "mechanisms.rotary.scaling={kind='yarn', factor=2.0, original_max_position_embeddings=8}",
        ],
    ),
    (
        "lm",
        &[
            "run.attention=['rotary']",
            "model.d_model=16",
            "mechanisms.rotary.scaling={kind='yarn', factor=2.0, original_max_position_embeddings=4096}",
        ],
        &[
            "mechanisms.rotary.scaling.attention_factor=2.0",
            "mechanisms.rotary.scaling.beta_fast=2.0",
            "mechanisms.rotary.scaling.beta_slow=0.1",
            "mechanisms.rotary.scaling.truncate=false",
        ],
    ),
    (
        "lm",
        &["run.attention=['sparse-fixed']", "mechanisms.sparse-fixed.integration='interleaved'"],
        &["mechanisms.sparse-fixed.ratio=[2, 1]"],
    ),
    (
        "lm",
        &["run.attention=['sparse-strided']", "mechanisms.sparse-strided.integration='interleaved'"],
        &["mechanisms.sparse-strided.ratio=[2, 1]"],
    ),
    ("lm", &["run.attention=['rotary@streaming-llm']"], &["mechanisms.streaming-llm.positions='sequence'"]),
    ("lm", &["run.attention=['synthesizer-factorized-dense']"], &["mechanisms.synthesizer-factorized-dense.factors=[4, 10]"]),
];

/// Walks over the options of mechanisms in models that have them, and names all at once that break the rule. No option may be refused with every value.
pub(super) fn walk<E: Experiment>(variety: &Variety, families: &[&str]) {
    let mut faults = Vec::new();
    for family in families {
        let table = format!("{MECHANISMS}.{family}");
        let name = if *family == "mixture" { "dot-product+uniform" } else { family };
        let base = variety.with(&[format!("run.attention=['{name}']").as_str()]);
        let is_in = |path: &str, option: &str| path == option || path.starts_with(&format!("{option}."));
        let has_context = |path: &str| OPTIONS.iter().any(|(_, _, options)| options.iter().any(|option| is_in(path, given(option).0)));
        let options: Vec<_> = leaves(&table, &options::<E>(&base, family)).into_iter().filter(|(path, _)| !has_context(path)).collect();
        let options: Vec<_> = options.iter().map(|(path, value)| (path.as_str(), others::<E>(&base, path, value))).collect();
        faults.extend(faults_of::<E>(&base, &options));
    }
    for (experiment, further, options) in OPTIONS.iter().filter(|(experiment, ..)| *experiment == E::NAME) {
        let options: Vec<_> = options.iter().map(|option| given(option)).map(|(path, value)| (path, vec![value.to_owned()])).collect();
        faults
            .extend(faults_of::<E>(&variety.with(further), &options).into_iter().map(|fault| format!("{experiment} {further:?}: {fault}")));
    }
    assert!(faults.is_empty(), "{} options:\n{}", faults.len(), faults.join("\n"));
}

/// An option and its value.
fn given(option: &str) -> (&str, &str) {
    option.split_once('=').expect("a value is given")
}

fn faults_of<E: Experiment>(base: &[String], options: &[(&str, Vec<String>)]) -> Vec<String> {
    let plain = done::<E>(base);
    let fault = |(path, values): &(&str, Vec<String>)| fault::<E>(base, &plain, path, values.clone(), is_of_time(path), Allowed::Nothing);
    options.iter().filter_map(fault).collect()
}
