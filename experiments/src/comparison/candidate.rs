//! Candidates of a comparison: attentions, and whole models by name.
//!
//! A model is the rest of the configuration with the fields that make the model what it is. They lie beneath the configuration file and the options of the
//! command, which can change them; written down, in the configuration of a run folder, they stand above everything else, so that the file repeats its runs.

use heedful_attention::error::ConfigError;
use heedful_attention::registry::AnyMechanism;
use heedful_host::names::suggestion;
use heedful_models::block::FeedForwardIn;
use heedful_models::layout::AttentionLayout;
use serde::Deserialize;
use toml::{Table, Value};

use crate::attention::Attention;
use crate::backend::Backend;
use crate::error::ExperimentError;
use crate::experiment::definition::{Candidate, Config, Experiment};
use crate::footprint::{self, Memory};
use crate::mechanisms;
use crate::options::{CommonOptions, ModelRun, unknown};
use crate::results::Results;
use crate::run_folder::RUN_TABLES;
use crate::settings::{self, Assignment, Settings};

/// The table of options of mechanisms in every configuration.
const MECHANISMS: &str = "mechanisms";

/// The fields of the configuration that `--model` sets, in experiments that have it: of attentions and models those are compared that the command names.
pub fn model_assignments(names: &[String], options: &CommonOptions) -> Vec<Assignment> {
    let table = |name: &String| Value::Table(Table::from_iter([("name".to_owned(), Value::String(name.trim().to_owned()))]));
    let none = || Vec::<Value>::new();
    match (names.is_empty(), options.attention.is_empty()) {
        (true, true) => Vec::new(),
        (true, false) => vec![Assignment::option("--attention", "run.models", none())],
        (false, is_without_attention) => {
            let models = Assignment::option("--model", "run.models", names.iter().map(table).collect::<Vec<_>>());
            let attentions = is_without_attention.then(|| Assignment::option("--model", "run.attention", none()));
            std::iter::once(models).chain(attentions).collect()
        }
    }
}

/// Those that the configuration names, each checked with the configuration that it is trained with. Models then stand in `settings` with all that they set,
/// so that the configuration repeats the runs whatever the models of this name become.
pub(crate) fn candidates<E: Experiment>(settings: &mut Settings<Config<E>>, memory: Memory) -> Result<Vec<Candidate<E>>, ExperimentError> {
    if let Some(given) = &settings.value.model.attention {
        let is_assigned = settings.assigned().any(|path| path == ["run", "attention"]);
        if is_assigned || settings.value.run.attention != Config::<E>::default().run.attention {
            return Err(settings
                .refuse("model.attention", "run.attention (--attention) names mechanisms as well; give one of the two")
                .into());
        }
        let name = given.name().map_err(|problem| settings.refuse("model.attention", problem))?;
        settings.value.run.attention = vec![name];
    }
    settings.value.run.models = defined(settings)?;
    let config = &settings.value;
    let attentions = config.run.attention.iter().map(|name| attention::<E>(config, name)).collect::<Result<Vec<_>, _>>()?;
    let models = config.run.models.iter().enumerate().map(|(index, model)| named_model::<E>(settings, index, model, memory));
    let models = models.collect::<Result<Vec<_>, _>>()?;
    check::<E>(settings, &attentions, memory)?;
    let mut candidates: Vec<_> =
        attentions.into_iter().map(|attention| Candidate { attention, config: config.clone(), weights_of: None }).collect();
    let mut resolved = Vec::new();
    for (model, candidate) in models {
        resolved.push(model);
        candidates.push(candidate);
    }
    check_sources(settings, &candidates)?;
    let names: Vec<_> = candidates.iter().map(|candidate| candidate.attention.name.as_str()).collect();
    config.run.check(settings, &names, &Backend::ALL.map(Backend::name))?;
    settings.value.run.models = resolved;
    Ok(candidates)
}

/// The models of the command. Where an option gives only a name, it means the model of this name in the configuration file, if the file has one.
fn defined<E: Experiment>(settings: &Settings<Config<E>>) -> Result<Vec<ModelRun>, ExperimentError> {
    const MODELS: [&str; 2] = ["run", "models"];
    let models = settings.value.run.models.clone();
    if !settings.assigned().any(|path| path == MODELS) {
        return Ok(models);
    }
    let of_file = settings.without(&MODELS)?.value.run.models;
    let of_experiment = E::MODELS.iter().map(|known| known.name).filter(|name| of_file.iter().all(|own| own.name != *name));
    let known: Vec<&str> = of_file.iter().map(|own| own.name.as_str()).chain(of_experiment).collect();
    let of_name = |model: ModelRun| {
        if model != (ModelRun { name: model.name.clone(), ..ModelRun::default() }) {
            return Ok(model);
        }
        match of_file.iter().find(|own| own.name == model.name) {
            Some(own) => Ok(own.clone()),
            None if of_file.is_empty() || known.contains(&model.name.as_str()) => Ok(model),
            None => Err(unknown("model", &model.name, &known, &format!("known are {}", known.join(", ")))),
        }
    };
    models.into_iter().map(of_name).collect()
}

/// Refuses fields that the command sets and that each of its models sets to a value of its own. Call it before [`candidates`], which adds to what models set.
pub(super) fn check_overridden<E: Experiment>(settings: &Settings<Config<E>>) -> Result<(), ExperimentError> {
    let models = defined(settings)?;
    if !settings.value.run.attention.is_empty() || models.is_empty() {
        return Ok(());
    }
    let complete = settings::complete(&settings.value)?;
    for path in settings.assigned() {
        let path = path.join(".");
        // A table may have further fields, which no model sets.
        if field(&complete, &path).is_some_and(Value::is_table) {
            continue;
        }
        let is_own = |model: &ModelRun| model.set.as_ref().is_some_and(|set| field(set, &path).is_some());
        let problem =
            "it would change no model of this command, since each has a value of its own in run.models; change these, or leave it out";
        settings.require(&path, !models.iter().all(is_own), problem)?;
    }
    Ok(())
}

/// Refuses weights of what is not trained by the same command.
fn check_sources<E: Experiment>(settings: &Settings<Config<E>>, candidates: &[Candidate<E>]) -> Result<(), ExperimentError> {
    for (index, ModelRun { name, weights_of, .. }) in settings.value.run.models.iter().enumerate() {
        let Some(source) = weights_of else { continue };
        let trained: Vec<&str> = candidates
            .iter()
            .filter(|candidate| candidate.weights_of.is_none())
            .map(|candidate| candidate.attention.name.as_str())
            .collect();
        settings.require(
            &format!("run.models.{index}.weights_of"),
            trained.contains(&source.as_str()),
            format!("`{name}` can have the weights of what this command trains: {}", trained.join(", ")),
        )?;
    }
    Ok(())
}

/// A model that the configuration names, with all that it sets.
fn named_model<E: Experiment>(
    settings: &Settings<Config<E>>,
    index: usize,
    model: &ModelRun,
    memory: Memory,
) -> Result<(ModelRun, Candidate<E>), ExperimentError> {
    let ModelRun { name, .. } = model;
    let place = format!("run.models.{index}");
    let place_of_set = format!("{place}.set");
    let given = model.set.clone().unwrap_or_default();
    if let Some(table) = RUN_TABLES.into_iter().find(|table| given.contains_key(*table)) {
        let problem = "it says which runs there are or where, for all models; leave it out";
        return Err(settings.refuse(&format!("{place_of_set}.{table}"), problem).into());
    }
    let (own, attention_name) = match (&model.set, &model.attention) {
        // A configuration that was written down has both, and needs nothing of a known model.
        (Some(_), Some(attention)) => (settings.with(&given, &place_of_set)?, attention.as_str()),
        (set, attention) => {
            let Some(known) = E::MODELS.iter().find(|known| known.name == name) else {
                let known: Vec<_> = E::MODELS.iter().map(|model| model.name).collect();
                if known.is_empty() || set.is_some() {
                    let near = suggestion(name, known);
                    let problem = format!("`{}` knows no model `{name}`; give it an attention and what it sets{near}", E::NAME);
                    return Err(settings.refuse(&place, problem).into());
                }
                return Err(unknown("model", name, &known, "--list shows all"));
            };
            let mut own = settings.over(known.settings)?;
            let attention_name = attention.as_deref().unwrap_or(known.attention);
            let attention = self::attention::<E>(&own.value, attention_name)?;
            E::fit_model(name, &settings.value, &mut own.value, &attention)?;
            (own.with(&given, &place_of_set)?, attention_name)
        }
    };
    if own.value.model.attention.is_some() {
        let problem = "the attention of a model is its `attention`; leave this out";
        return Err(settings.refuse(&format!("{place_of_set}.model.attention"), problem).into());
    }
    let attention = attention::<E>(&own.value, attention_name)?;
    let set = settings::changes(&settings.value, &own.value, &RUN_TABLES)?;
    if let Some(data) = E::DATA.iter().find(|path| field(&set, path).is_some()) {
        let problem = "it says what the data are, which all that are compared share; set it outside of the model";
        return Err(settings.refuse(&format!("{place_of_set}.{data}"), problem).into());
    }
    let weights_of = model.weights_of.clone();
    let resolved = ModelRun { name: name.clone(), attention: Some(attention.name.clone()), set: Some(set), weights_of: weights_of.clone() };
    let attention = Attention { name: name.clone(), ..attention };
    check::<E>(&own, std::slice::from_ref(&attention), memory)?;
    Ok((resolved, Candidate { attention, config: own.value, weights_of }))
}

fn check<E: Experiment>(settings: &Settings<Config<E>>, attentions: &[Attention], memory: Memory) -> Result<(), ExperimentError> {
    let training = &settings.value.training;
    training.validate().map_err(|error| settings.refuse(&format!("training.{}", error.field), error.reason))?;
    let is_assigned = settings.assigned().any(|path| path == ["training", "learning_rate"]);
    let remedy = "training.learning_rates are tried in its place; give --set training.learning_rates=[RATE], or [] to try none";
    settings.require("training.learning_rate", !is_assigned || training.learning_rates.is_empty(), remedy)?;
    let remedy = "no batch of this experiment has padding that could be left out; leave it out";
    settings.require("model.unpadded", E::HAS_PADDING || !settings.value.model.unpadded, remedy)?;
    // Checks of single layers come after that of all of them.
    attentions.iter().try_for_each(|attention| footprint::check::<E>(settings, &settings.value, attention, None, memory))?;
    E::check(settings, attentions)?;
    let table = settings::complete(&settings.value)?;
    Ok(settings.require(E::BATCH, field(&table, E::BATCH) != Some(&Value::Integer(0)), "it must be at least 1")?)
}

/// The field of this dotted path.
fn field<'t>(table: &'t Table, path: &str) -> Option<&'t Value> {
    match path.split_once('.') {
        None => table.get(path),
        Some((name, rest)) => field(table.get(name)?.as_table()?, rest),
    }
}

/// Options of feed-forward networks.
const FEED_FORWARD: [&str; 7] = [
    "d_ff",
    "activation",
    "gated_feed_forward",
    "feed_forward_bias",
    "feed_forward_chunk",
    "separable_feed_forward",
    "feed_forward_dropout",
];

/// Refuses options of mechanisms and of feed-forward networks that the command sets and that no candidate has a use for.
pub(super) fn check_effects<E: Experiment>(settings: &Settings<Config<E>>, candidates: &[Candidate<E>]) -> Result<(), ExperimentError> {
    let has_none = candidates.iter().all(|candidate| candidate.config.model.feed_forward_in == FeedForwardIn::None);
    for path in settings.assigned() {
        if let [table, option] = path
            && table == "model"
            && FEED_FORWARD.contains(&option.as_str())
        {
            let problem = "no model of this command has feed-forward networks; leave it out, or give model.feed_forward_in";
            settings.require(&path.join("."), !has_none, problem)?;
        }
        let [table, family, options @ ..] = path else { continue };
        if table != MECHANISMS {
            continue;
        }
        let used: Vec<_> = candidates.iter().flat_map(|candidate| E::attentions(&candidate.attention)).collect();
        let option = options.first().map(String::as_str);
        let mut unused: Vec<&str> = used.iter().map(|used| mechanisms::use_of(used, family, option)).filter_map(Result::err).collect();
        if unused.len() < used.len() {
            continue;
        }
        unused.sort_unstable();
        unused.dedup();
        let problem = format!("it would change no model of this command: {}; leave it out", unused.join(", "));
        return Err(settings.refuse(&path.join("."), problem).into());
    }
    Ok(())
}

/// The candidates, and the attentions of which the folder has runs already.
pub(super) fn with_earlier<E: Experiment>(candidates: &[Candidate<E>], results: &Results, config: &Config<E>) -> Vec<Candidate<E>> {
    let mut all = candidates.to_vec();
    for record in results.records().iter().filter(|record| !record.is_model) {
        if all.iter().all(|candidate| candidate.attention.name != record.attention)
            && let Ok(attention) = attention::<E>(config, &record.attention)
        {
            all.push(Candidate { attention, config: config.clone(), weights_of: None });
        }
    }
    all
}

/// A sentence for all candidates that are one and the same model and so train identically; the names of its candidates are in order.
pub(super) fn twins<E: Experiment>(candidates: &[Candidate<E>]) -> Result<Vec<String>, ExperimentError> {
    let mut models: Vec<(String, Vec<&str>)> = Vec::new();
    for Candidate { attention, config, .. } in candidates.iter().filter(|candidate| candidate.weights_of.is_none()) {
        // The options that an attention uses are part of it.
        let identity = format!("{} {:?}", settings::digest(config, &[&RUN_TABLES[..], &[MECHANISMS]].concat())?, E::attentions(attention));
        match models.iter_mut().find(|(other, _)| *other == identity) {
            Some((_, names)) => names.push(&attention.name),
            None => models.push((identity, vec![&attention.name])),
        }
    }
    let sentence = |(_, names): (_, Vec<&str>)| {
        let (last, others) = names.split_last()?;
        let names = (!others.is_empty()).then(|| format!("{} and {last}", others.join(", ")))?;
        Some(format!(
            "{names} are the same model with this configuration: they are trained identically, and any difference between their rows is one of speed alone."
        ))
    };
    Ok(models.into_iter().filter_map(sentence).collect())
}

/// Names beside those of mechanisms that `--attention` takes: layouts of several mechanisms, for models with an encoder and a decoder.
pub(super) fn layouts<E: Experiment>() -> Vec<&'static str> {
    if E::STACKS < 2 { Vec::new() } else { AttentionLayout::names().collect() }
}

/// The attention of a name, with the options of its mechanisms.
///
/// # Errors
/// A usage error for a name that nobody knows, with the nearest that is known.
pub(crate) fn attention<E: Experiment>(config: &Config<E>, name: &str) -> Result<Attention, ExperimentError> {
    if let Some(own) = E::attention_named(config, name) {
        return own;
    }
    let with_options = |layout: AttentionLayout| layout.map(|mechanism| config.mechanisms.within_mechanism(&mechanism));
    let placed = |attention: Attention| {
        let other = config.mechanisms.within_mechanism(&AnyMechanism::default());
        Attention { layout: E::placed(attention.layout, &other), ..attention }
    };
    if let Some(layout) = AttentionLayout::named(name).filter(|_| E::STACKS >= 2) {
        return Ok(Attention { name: name.to_owned(), layout: with_options(layout) });
    }
    if name.starts_with(['[', '{']) {
        let layout = read_layout(name).map_err(|problem| ExperimentError::usage(format!("attention `{name}`: {problem}")))?;
        if E::STACKS < 2 && !name.starts_with('[') {
            let problem =
                format!("`{}` has one stack of layers; give a name, or a list such as [dot-product,relative] for its layers", E::NAME);
            return Err(ExperimentError::usage(format!("attention `{name}`: {problem}")));
        }
        let attention = Attention { name: compact(name), layout: with_options(layout) };
        let attention = if name.starts_with('[') { placed(attention) } else { attention };
        for (mechanism, option) in options_within(&attention.name) {
            let own = E::attentions(&attention).into_iter().filter(|(_, other)| other.name() == mechanism.name());
            let mut uses = own.map(|(role, mechanism)| mechanism.without_effect(&option, role));
            if let Some(reason) = uses.next().flatten().filter(|_| uses.all(|reason| reason.is_some())) {
                return Err(ExperimentError::usage(format!("attention `{name}`: `{option}` would change nothing: {reason}")));
            }
        }
        return Ok(attention);
    }
    let (base, options) = AnyMechanism::split_options(name);
    let mechanism = config.mechanisms.attention(base).map_err(|error| match error {
        // Of a mixture, the member that is not known. What stands behind `@` is no attention by itself; the error knows what may stand there.
        ConfigError::UnknownAttention { name, .. } if !name.starts_with('@') => {
            let known: Vec<_> = AnyMechanism::names().into_iter().chain(layouts::<E>()).collect();
            unknown("attention", &name, &known, "--list shows all")
        }
        error => ExperimentError::usage(error),
    })?;
    let Some(options) = options else { return Ok(placed(Attention::new(mechanism))) };
    let refuse = |problem: &dyn std::fmt::Display| ExperimentError::usage(format!("attention `{name}`: {problem}"));
    let mechanism = mechanism.with_options(&options).map_err(|error| refuse(&error))?;
    let attention = placed(Attention { name: format!("{}{options}", mechanism.name()), ..Attention::new(mechanism.clone()) });
    for option in AnyMechanism::option_names(&options) {
        let own = E::attentions(&attention).into_iter().filter(|(_, other)| *other == mechanism);
        let mut uses = own.map(|(role, mechanism)| mechanism.without_effect(&option, role));
        if let Some(reason) = uses.next().flatten().filter(|_| uses.all(|reason| reason.is_some())) {
            return Err(refuse(&format!("`{option}` would change nothing: {reason}")));
        }
    }
    Ok(attention)
}

/// A list of mechanisms, one for each layer, or a table with those of `encoder`, `decoder` and `cross`, in TOML whose names need no quotes, may have options behind
/// them and may be repeated: `{encoder=linformer{rank=16},decoder=[3*gla,relative]}`.
fn read_layout(text: &str) -> Result<AttentionLayout, String> {
    #[derive(Deserialize)]
    struct Field {
        attention: AttentionLayout,
    }
    let field: Result<Field, _> = toml::from_str(&format!("attention = {}", quoted(text)?));
    field.map(|field| field.attention).map_err(|error| error.message().to_owned())
}

/// Most layers that a number before a name stands for.
const MOST_REPEATED: usize = 1000;

/// The text with quotes around names that have none, and names behind a number and `*` so many times.
fn quoted(text: &str) -> Result<String, String> {
    let word_of = |rest: &str| rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_+-@.".contains(c))).unwrap_or(rest.len());
    let mut quoted = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let quote @ ('"' | '\'') = first {
            let end = rest[1..].find(quote).map_or(rest.len(), |end| end + 2);
            quoted.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let word = &rest[..word_of(rest)];
        rest = &rest[word.len().max(first.len_utf8())..];
        if let (Ok(count), Some(behind)) = (word.parse::<usize>(), rest.strip_prefix('*')) {
            let name = &behind[..word_of(behind)];
            if name.is_empty() || !(1..=MOST_REPEATED).contains(&count) {
                return Err(format!("`{word}*{name}`: give a number from 1 to {MOST_REPEATED}, `*` and a name, such as 3*dot-product"));
            }
            let options = &behind[name.len()..][..length_of_options(&behind[name.len()..])];
            quoted.push_str(&vec![format!("\"{name}{}\"", compact(options)); count].join(","));
            rest = &behind[name.len() + options.len()..];
            continue;
        }
        let is_value = word.parse::<f64>().is_ok() || ["true", "false"].contains(&word) || rest.trim_start().starts_with('=');
        match word {
            "" => quoted.push(first),
            word if is_value => quoted.push_str(word),
            word => {
                let (options, behind) = rest.split_at(length_of_options(rest));
                quoted.extend(["\"", word, &compact(options), "\""]);
                rest = behind;
            }
        }
    }
    Ok(quoted)
}

/// Length of the braces that a text begins with, up to the one that closes them; 0 if it begins with something else.
fn length_of_options(text: &str) -> usize {
    if !text.starts_with('{') {
        return 0;
    }
    let mut open = 0usize;
    let closing = text.char_indices().find(|&(_, sign)| {
        match sign {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        open == 0
    });
    closing.map_or(text.len(), |(at, _)| at + 1)
}

/// Options behind the names in a list or a table, each with its mechanism.
fn options_within(text: &str) -> Vec<(AnyMechanism, String)> {
    let is_of_name = |sign: char| sign.is_ascii_alphanumeric() || "_+-@.".contains(sign);
    let braces = text.match_indices('{').filter_map(|(at, _)| {
        let name = text[..at].rsplit(|sign: char| !is_of_name(sign)).next().filter(|name| !name.is_empty())?;
        let options = &text[at..][..length_of_options(&text[at..])];
        Some((name.parse::<AnyMechanism>().ok()?, AnyMechanism::option_names(options)))
    });
    braces.flat_map(|(mechanism, names)| names.into_iter().map(move |name| (mechanism.clone(), name))).collect()
}

/// The text without blanks and quotes: the name of a layout.
fn compact(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && !['"', '\''].contains(c)).collect()
}

#[cfg(test)]
mod tests {
    use heedful_attention::mechanisms::gaussian::GaussianConfig;
    use heedful_attention::mechanisms::linformer::LinformerConfig;
    use heedful_attention::mechanisms::local_1d::LocalOneDConfig;
    use heedful_attention::mechanisms::lsh::{BucketCount, LshConfig};
    use heedful_attention::placement::Role;
    use heedful_models::residual::NormOrder;

    use super::*;
    use crate::image::SuperResolution;
    use crate::language::Language;
    use crate::translation::Translation;

    fn of<E: Experiment>(names: &[&str], options: &[&str]) -> (Settings<Config<E>>, Vec<Candidate<E>>) {
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        let attention = format!("run.attention=[{}]", names.join(", "));
        let assignments = options.iter().chain([&attention.as_str()]).map(|text| Assignment::parse(text).unwrap()).collect();
        let mut settings = Settings::read(None, assignments).unwrap();
        let candidates = candidates::<E>(&mut settings, Memory::here()).unwrap();
        (settings, candidates)
    }

    fn refusal<E: Experiment>(names: &[&str], option: &str) -> Option<String> {
        let (settings, candidates) = of::<E>(names, &[option]);
        check_effects::<E>(&settings, &candidates).err().map(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    #[test]
    fn layouts_are_read_with_and_without_quotes_and_with_the_options_of_their_mechanisms() {
        let texts = ["{encoder = linformer, decoder = [dot-product, 'relative'], cross=uniform}", "[gaussian,dot-product]"];
        let (_, candidates) = of::<Translation>(&texts, &["mechanisms.linformer.rank=8", "model.layers=2"]);
        let names: Vec<_> = candidates.iter().map(|candidate| candidate.attention.name.as_str()).collect();
        assert_eq!(names, ["{encoder=linformer,decoder=[dot-product,relative],cross=uniform}", "[gaussian,dot-product]"]);
        let placed = Translation::attentions(&candidates[0].attention);
        let families: Vec<_> = placed.iter().map(|(role, mechanism)| (*role, mechanism.family())).collect();
        let expected = [
            (Role::Encoder, "linformer"),
            (Role::Decoder, "dot-product"),
            (Role::Decoder, "relative"),
            (Role::Cross, "uniform"),
            (Role::Cross, "uniform"),
        ];
        assert_eq!(families, expected);
        assert_eq!(placed[0].1.get::<LinformerConfig>().unwrap().rank, Some(8));
        // The name of a layout names the same layout.
        let (_, again) = of::<Translation>(&names, &["mechanisms.linformer.rank=8", "model.layers=2"]);
        assert_eq!(again[0].attention.layout, candidates[0].attention.layout);
        let (_, of_layers) = of::<Language>(&["[local-1d,dot-product]"], &["model.layers=2"]);
        let families: Vec<_> = Language::attentions(&of_layers[0].attention).iter().map(|(_, mechanism)| mechanism.family()).collect();
        assert_eq!(families, ["local-1d", "dot-product"]);
    }

    #[test]
    fn a_model_that_an_option_names_is_that_of_the_configuration_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[[run.models]]\nname = 'wide'\nattention = 'relative'\nset = { model = { d_model = 64 } }\n
                    [[run.models]]\nname = 'transformer'\nattention = 'uniform'\nset = { model = { layers = 3 } }";
        std::fs::write(file.path(), text).unwrap();
        let of = |name: &str| {
            let options = CommonOptions { config: Some(file.path().to_owned()), ..CommonOptions::default() };
            let mut settings = Settings::read(options.config.as_deref(), model_assignments(&[name.to_owned()], &options)).unwrap();
            candidates::<Language>(&mut settings, Memory::here()).map(|candidates| {
                assert_eq!((candidates.len(), settings.value.run.models.len()), (1, 1), "{name}");
                let Candidate { attention, config, .. } = &candidates[0];
                (attention.layout.decoder.at(0).name(), config.model.d_model, config.model.layers)
            })
        };
        let default = Config::<Language>::default().model;
        assert_eq!(of("wide").unwrap(), ("relative".to_owned(), 64, default.layers));
        // It comes before one of the same name that the experiment knows.
        assert_eq!(of("transformer").unwrap(), ("uniform".to_owned(), default.d_model, 3));
        // Others of the experiment can be named as well.
        assert_eq!(of("llama-3").unwrap().0, "rotary");
        let error = of("wid").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let words = error.to_string();
        assert!(words.contains("did you mean `wide`?") && words.contains("wide, transformer, "), "{words}");
    }

    #[test]
    fn fields_that_each_model_sets_itself_are_refused() {
        let of = |models: &[&str], attention: &str, option: &str| {
            let models = format!("run.models=[{}]", models.join(", "));
            let options = [&models, &format!("run.attention={attention}"), option].map(|text| Assignment::parse(text).unwrap());
            check_overridden::<Language>(&Settings::read(None, options.into()).unwrap()).map_err(|error| error.to_string())
        };
        let own = "{name='a', attention='uniform', set={training={steps=7}}}";
        let error = of(&[own, &own.replace("'a'", "'b'")], "[]", "training.steps=50").unwrap_err();
        assert!(error.contains("`--set training.steps=50`") && error.contains("run.models"), "{error}");
        // It counts where one model has no value of its own. Of a table each field would have to be one that the models set.
        let other = "{name='c', attention='uniform', set={training={learning_rate=0.5}}}";
        assert_eq!(of(&[own, other], "[]", "training.steps=50"), Ok(()));
        assert_eq!(of(&[own], "['uniform']", "training.steps=50"), Ok(()));
        assert_eq!(of(&[own], "[]", "training={steps=50}"), Ok(()));
    }

    #[test]
    fn what_a_known_model_sets_stands_above_its_own_fields() {
        let of = |models: &str| {
            let mut settings = Settings::read(None, vec![Assignment::parse(&format!("run.models=[{models}]")).unwrap()]).unwrap();
            candidates::<Language>(&mut settings, Memory::here()).map(|mut candidates| candidates.pop().unwrap())
        };
        let known = of("{name='transformer-xl'}").unwrap();
        let changed = of("{name='transformer-xl', set={training={learning_rate=0.5}, model={norm_order='pre'}}}").unwrap();
        assert_eq!(changed.attention.layout, known.attention.layout);
        assert_eq!((changed.config.training.learning_rate, changed.config.model.norm_order), (0.5, NormOrder::Pre));
        assert_ne!(known.config.model.norm_order, NormOrder::Pre);
        let mut rest = changed.config;
        rest.training.learning_rate = known.config.training.learning_rate;
        rest.model.norm_order = known.config.model.norm_order;
        assert_eq!(settings::digest(&rest, &RUN_TABLES).unwrap(), settings::digest(&known.config, &RUN_TABLES).unwrap());
        // With an attention it is a model of one's own.
        let own = of("{name='transformer-xl', attention='uniform', set={}}").unwrap();
        assert_eq!(own.config.model, Config::<Language>::default().model);
        let error = of("{name='transformer-x', set={}}").err().unwrap().to_string();
        let problem = "`lm` knows no model `transformer-x`; give it an attention and what it sets; did you mean `transformer-xl`?";
        assert!(error.contains("run.models.0") && error.contains(problem), "{error}");
    }

    #[test]
    fn every_kth_layer_can_have_another_mechanism() {
        let hybrids = ["[3*gated-delta-net, dot-product]", "[gla,2*relative,gla]", "[1*uniform,3*alibi]"];
        let (_, candidates) = of::<Language>(&hybrids, &["model.layers=8"]);
        let families = |index: usize| -> Vec<&str> {
            let attention: &Attention = &candidates[index].attention;
            (0..8).map(|layer| attention.layout.decoder.at(layer).family()).collect()
        };
        let delta = "gated-delta-net";
        assert_eq!(families(0), [delta, delta, delta, "dot-product", delta, delta, delta, "dot-product"]);
        assert_eq!(families(1), ["gla", "relative", "relative", "gla", "gla", "relative", "relative", "gla"]);
        assert_eq!(families(2), ["uniform", "alibi", "alibi", "alibi", "uniform", "alibi", "alibi", "alibi"]);
        assert_eq!(candidates[0].attention.name, "[3*gated-delta-net,dot-product]");
        for text in ["[0*alibi,gla]", "[1001*alibi]", "[2*]", "[2*'alibi']"] {
            let error = attention::<Language>(&Default::default(), text).unwrap_err().to_string();
            assert!(error.contains("from 1 to 1000") && error.contains("3*dot-product"), "{text}: {error}");
        }
    }

    #[test]
    fn layers_and_parts_have_options_behind_their_names() {
        let texts = [
            "{encoder=[linformer{rank=8}, 2*linformer{rank = 4, sharing='none'},{name=linformer,rank=2}]}",
            "{encoder=linformer{rank=8},decoder=[shared-qk@local-1d{query_block=4},lsh{buckets=[4, 6]}],cross=dot-product}",
        ];
        let (_, candidates) = of::<Translation>(&texts, &["model.layers=4"]);
        let ranks = |index: usize| -> Vec<Option<usize>> {
            let placed = Translation::attentions(&candidates[index].attention);
            placed.iter().filter(|(role, _)| *role == Role::Encoder).map(|(_, one)| one.get::<LinformerConfig>().unwrap().rank).collect()
        };
        assert_eq!(ranks(0), [Some(8), Some(4), Some(4), Some(2)]);
        assert_eq!(ranks(1), [Some(8)]);
        let name = "{encoder=[linformer{rank=8},2*linformer{rank=4,sharing=none},{name=linformer,rank=2}]}";
        assert_eq!(candidates[0].attention.name, name);
        let (_, again) = of::<Translation>(&[name], &["model.layers=4"]);
        assert_eq!(again[0].attention.layout, candidates[0].attention.layout);
        let decoder = &candidates[1].attention.layout.decoder;
        let local = decoder.at(0).get::<LocalOneDConfig>().unwrap();
        assert_eq!((local.query_block, local.logits.name().as_str()), (4, "shared-qk"));
        assert_eq!(decoder.at(1).get::<LshConfig>().unwrap().buckets, Some(BucketCount::Factorised([4, 6])));
        let refused = |text: &str| attention::<Translation>(&Default::default(), text).unwrap_err().to_string();
        assert!(refused("[linformer{rnk=8},dot-product]").contains("rnk"));
        assert!(refused("[linformer{rank=8,dot-product]").contains("attention `[linformer{rank=8,dot-product]`"));
        let idle = refused("[dot-product,gaussian{window=3}]");
        assert!(idle.contains("`window` would change nothing") && idle.contains("banded"), "{idle}");
    }

    #[test]
    fn super_resolution_has_a_name_or_a_list_in_its_decoder_and_a_layout_in_each_part() {
        let names = ["gaussian", "[gaussian,dot-product]", "{encoder=gaussian,decoder=[relative,uniform],cross=uniform}", "hc-sa"];
        let (_, candidates) = of::<SuperResolution>(&names, &["mechanisms.gaussian.deviations=[0.5]"]);
        let families = |index: usize| -> Vec<(Role, &str)> {
            let placed = SuperResolution::attentions(&candidates[index].attention);
            placed.iter().map(|(role, mechanism)| (*role, mechanism.family())).collect()
        };
        let (encoder, decoder, cross) = (Role::Encoder, Role::Decoder, Role::Cross);
        let crossing = |family| [(cross, family); 2];
        let of = |own: &[(Role, &'static str)], family| [own, &crossing(family)].concat();
        assert_eq!(families(0), of(&[(encoder, "dot-product"), (decoder, "gaussian")], "dot-product"));
        let list = [(encoder, "dot-product"), (decoder, "gaussian"), (decoder, "dot-product")];
        assert_eq!(families(1), of(&list, "dot-product"));
        assert_eq!(families(2), of(&[(encoder, "gaussian"), (decoder, "relative"), (decoder, "uniform")], "uniform"));
        assert_eq!(families(3), of(&[(encoder, "gaussian"), (decoder, "gaussian")], "dot-product"));
        let deviations = |index: usize| {
            let placed = SuperResolution::attentions(&candidates[index].attention);
            placed.iter().find_map(|(_, mechanism)| Some(mechanism.get::<GaussianConfig>()?.deviations.clone())).unwrap()
        };
        assert_eq!([0, 1, 2, 3].map(deviations), [(); 4].map(|()| vec![0.5]));
        // Its options reach the attention that no name says anything of.
        let (_, candidates) = self::of::<SuperResolution>(&["gaussian"], &["mechanisms.dot-product.qk_norm='rms'"]);
        assert_ne!(candidates[0].attention.layout.encoder.at(0), &AnyMechanism::default());
        assert_eq!(refusal::<SuperResolution>(&["gaussian"], "mechanisms.dot-product.qk_norm='rms'"), None);
        assert!(refusal::<SuperResolution>(&["gaussian"], "mechanisms.lsh.rounds=1").is_some());
    }

    #[test]
    fn options_behind_a_name_that_change_nothing_where_it_stands_are_refused() {
        let refused = |result: Result<Attention, ExperimentError>| result.unwrap_err().to_string();
        let name = "gaussian{length_ratio=1.5}";
        for message in [
            refused(attention::<Language>(&Default::default(), name)),
            refused(attention::<SuperResolution>(&Default::default(), name)),
            refused(attention::<Translation>(&Default::default(), name)),
        ] {
            assert!(message.contains("length_ratio") && message.contains("change nothing"), "{message}");
        }
    }

    #[test]
    fn wrong_layouts_are_refused_with_the_remedy() {
        let refused = |result: Result<Attention, ExperimentError>| result.unwrap_err().to_string();
        let translation = |text: &str| refused(attention::<Translation>(&Default::default(), text));
        assert!(translation("{encodr=linformer}").contains("encodr"));
        assert!(translation("[dot-product,linforner]").contains("linforner"));
        assert!(translation("[dot-product").contains("attention `[dot-product`"));
        let language = refused(attention::<Language>(&Default::default(), "{decoder=dot-product}"));
        assert!(language.contains("one stack") && language.contains("[dot-product,relative]"), "{language}");
    }

    #[test]
    fn options_of_the_gaussian_reach_the_layouts() {
        let options = "mechanisms.gaussian={deviations = [0.5], length_ratio = 1.25, normalisation = 'renormalise'}";
        let (_, candidates) = of::<Translation>(&["hc-sa", "hc-all", "sh-x"], &[options]);
        for (candidate, gaussians) in candidates.iter().zip([2, 4, 2]) {
            let placed = Translation::attentions(&candidate.attention);
            let gaussians_of = placed.iter().filter_map(|(_, attention)| attention.get::<GaussianConfig>());
            let of_gaussian = gaussians_of.map(|gaussian| (gaussian.deviations.clone(), gaussian.length_ratio));
            assert_eq!(of_gaussian.collect::<Vec<_>>(), vec![(vec![0.5], 1.25); gaussians], "{}", candidate.attention.name);
        }
    }

    #[test]
    fn options_that_change_no_model_are_refused() {
        for (names, option, parts) in [
            (&["gaussian", "hc-sa", "sh-x"][..], "mechanisms.gaussian.length_ratio=1.5", ["length_ratio", "cross-attention"]),
            (&["hc-all"], "mechanisms.gaussian.window=3", ["window", "banded"]),
            (&["dot-product"], "mechanisms.gaussian.deviations=[2.0]", ["deviations", "none of its attentions"]),
            (&["gaussian"], "mechanisms.synthesizer-random.trainable=false", ["trainable", "leave it out"]),
        ] {
            let message = refusal::<Translation>(names, option).unwrap_or_else(|| panic!("{option} is accepted for {names:?}"));
            assert!(message.starts_with(&format!("`--set {option}`")) && parts.iter().all(|part| message.contains(part)), "{message}");
        }
        for (names, option) in [
            (&["hc-sa", "hc-all"][..], "mechanisms.gaussian.length_ratio=1.5"),
            (&["gaussian"], "mechanisms.gaussian={execution = 'banded', window = 3}"),
            (&["synthesizer-random+dot-product"], "mechanisms.mixture.weights='sum'"),
            (&["dot-product", "random+dot-product"], "mechanisms.synthesizer-random.init_std=0.5"),
        ] {
            assert_eq!(refusal::<Translation>(names, option), None);
        }
        assert!(refusal::<Language>(&["gaussian"], "mechanisms.gaussian.length_ratio=1.5").is_some());
    }

    #[test]
    fn options_of_feed_forward_networks_are_refused_where_no_model_has_them() {
        let refusal = |options: &[&str]| {
            let (settings, candidates) = of::<Language>(&["dot-product"], options);
            check_effects::<Language>(&settings, &candidates).err().map(|error| error.to_string())
        };
        for option in ["model.d_ff=64", "model.activation=gelu", "model.feed_forward_dropout=0.1"] {
            let message = refusal(&["model.feed_forward_in=none", option]).unwrap_or_else(|| panic!("{option} is accepted"));
            assert!(message.starts_with(&format!("`--set {option}`")) && message.contains("model.feed_forward_in"), "{message}");
            assert_eq!(refusal(&[option]), None);
        }
        // One of two models has them.
        let other = "run.models=[{name='a', attention='uniform', set={model={feed_forward_in='all'}}}]";
        assert_eq!(refusal(&["model.feed_forward_in=none", "model.d_ff=64", other]), None);
    }

    #[test]
    fn candidates_that_are_one_model_are_named() {
        let found = |names: &[&str]| twins::<Translation>(&of::<Translation>(names, &[]).1).unwrap();
        let [sentence] = &found(&["gaussian", "dot-product", "hc-sa", "hc-all", "sh-x"])[..] else { panic!("one pair is the same") };
        assert!(sentence.starts_with("gaussian and hc-sa are the same model"), "{sentence}");
        assert_eq!(found(&["dot-product", "hc-sa", "hc-all", "sh-x", "synthesizer-random", "synthesizer-random-fixed"]), [""; 0]);

        let models = "run.models=[{name='a', attention='lsh', set={}}, {name='b', attention='lsh', set={model={layers=3}}}]";
        let (_, candidates) = of::<Language>(&["lsh"], &[models]);
        let [sentence] = &twins::<Language>(&candidates).unwrap()[..] else { panic!("one pair is the same") };
        assert!(sentence.starts_with("lsh and a are the same model"), "{sentence}");
    }
}
