//! Candidates of a comparison: attentions, and whole models by name.
//!
//! A model is the rest of the configuration with the model's own fields. These lie beneath the configuration file and the options of the command, which can
//! change them. In the configuration of a run folder they stand above everything else, so that the file repeats its runs.

use heedful_backends::Backend;
use heedful_host::names::{suggestion, unknown};
use heedful_runs::results::Results;
use heedful_runs::run_folder::RUN_TABLES;
use heedful_runs::settings::{self, Assignment, MECHANISMS, Settings};
use toml::{Table, Value};

use crate::model::attention::Attention;
use crate::model::mechanisms;
use crate::session::error::ExperimentError;
use crate::session::experiment::definition::{Candidate, Config, Experiment, Setup};
use crate::session::experiment::rule::{check_use, check_values, field};
use crate::session::footprint::{self, Memory};
use crate::session::options::{CommonOptions, ModelRun};
use crate::session::presets::NamedPreset;

use super::attention_name::attention;
use super::idle::Places;

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
    if models.is_empty() || !settings.assigned().any(|path| path == MODELS) {
        return Ok(models);
    }
    let of_file = settings.without(&MODELS)?.value.run.models;
    let presets = NamedPreset::all::<E>();
    let of_experiment = E::MODELS.iter().map(|known| known.name).chain(presets.iter().map(|preset| preset.name.as_str()));
    let of_experiment = of_experiment.filter(|name| of_file.iter().all(|own| own.name != *name));
    let known: Vec<&str> = of_file.iter().map(|own| own.name.as_str()).chain(of_experiment).collect();
    let of_name = |model: ModelRun| {
        if model != (ModelRun { name: model.name.clone(), ..ModelRun::default() }) {
            return Ok(model);
        }
        match of_file.iter().find(|own| own.name == model.name) {
            Some(own) => Ok(own.clone()),
            None if of_file.is_empty() || known.contains(&model.name.as_str()) => Ok(model),
            None if NamedPreset::settings::<E>(&model.name)?.is_some() => Ok(model),
            None => Err(unknown("model", &model.name, &known, &format!("known are {}", known.join(", "))).into()),
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
    for path in settings.assigned() {
        let path = path.join(".");
        let is_own = |model: &ModelRun| model.set.as_ref().is_some_and(|set| field(set, &path).is_some());
        let problem =
            "it would change no model of this command, since each sets its own value in run.models; change these, or leave it out";
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
            format!("`{name}` can take the weights of a model that this command trains: {}", trained.join(", ")),
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
        let problem = "this table selects runs or their resources, for all models; leave it out";
        return Err(settings.refuse(&format!("{place_of_set}.{table}"), problem).into());
    }
    let (own, attention_name) = match (&model.set, &model.attention) {
        // A configuration that was written down has both, and needs nothing of a known model.
        (Some(_), Some(attention)) => (settings.with(&given, &place_of_set)?, attention.clone()),
        (set, attention) => {
            let of_experiment = E::MODELS.iter().find(|known| known.name == name);
            let of_experiment = of_experiment.map(|known| Ok((known.attention.to_owned(), known.settings.join("\n").parse()?)));
            let parsed = of_experiment.transpose().unwrap_or_else(|error: toml::de::Error| panic!("the settings of `{name}`: {error}"));
            let found = match parsed {
                Some(found) => Some(found),
                None => NamedPreset::settings::<E>(name)?,
            };
            let Some((known_attention, known_settings)) = found else {
                let presets = NamedPreset::all::<E>();
                let of_papers = presets.iter().map(|preset| preset.name.as_str());
                let known: Vec<_> = E::MODELS.iter().map(|model| model.name).chain(of_papers).collect();
                if known.is_empty() || set.is_some() {
                    let near = suggestion(name, known);
                    let problem = format!("`{}` knows no model `{name}`; give it an attention and what it sets{near}", E::NAME);
                    return Err(settings.refuse(&place, problem).into());
                }
                return Err(unknown("model", name, &known, "--list shows all").into());
            };
            let mut own = settings.over_table(known_settings)?;
            let attention_name = attention.clone().unwrap_or(known_attention);
            let attention = self::attention::<E>(&own.value, &attention_name)?;
            E::fit_model(name, &settings.value, &mut own.value, &attention)?;
            (own.with(&given, &place_of_set)?, attention_name)
        }
    };
    if own.value.model.attention.is_some() {
        let problem = "the attention of a model is its `attention`; leave this out";
        return Err(settings.refuse(&format!("{place_of_set}.model.attention"), problem).into());
    }
    let attention = attention::<E>(&own.value, &attention_name)?;
    let set = settings::changes(&settings.value, &own.value, &RUN_TABLES)?;
    if let Some(data) = E::DATA.iter().find(|path| field(&set, path).is_some()) {
        let problem = "all candidates share the data; set it outside of the model";
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
    let remedy = format!("`{}` generates its data and reads no files; leave --data out", E::NAME);
    settings.require("run.data", E::READS_FILES || settings.value.run.data.is_none(), remedy)?;
    if let Some(columns) = &settings.value.run.columns {
        columns.check(E::COLUMNS).map_err(|problem| settings.refuse("run.columns", problem))?;
    }
    let remedy = "no batch of this experiment has padding that could be left out; leave it out";
    settings.require("model.unpadded", E::HAS_PADDING || !settings.value.model.unpadded, remedy)?;
    check_values(settings)?;
    // Checks of single layers come after that of all of them.
    attentions.iter().try_for_each(|attention| footprint::check::<E>(settings, &settings.value, attention, None, memory))?;
    E::check(settings, attentions)?;
    let table = settings::complete(&settings.value)?;
    Ok(settings.require(E::BATCH, field(&table, E::BATCH) != Some(&Value::Integer(0)), "it must be at least 1")?)
}

/// Refuses fields that have no effect on any candidate: those of the rules, and options of mechanisms that the command sets.
pub(super) fn check_effects<E: Experiment>(settings: &Settings<Config<E>>, candidates: &[Candidate<E>]) -> Result<(), ExperimentError> {
    check_use(settings, candidates)?;
    for path in settings.assigned() {
        let [table, family, options @ ..] = path.as_slice() else { continue };
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

/// A sentence for all candidates that are one and the same model and so train identically, and one for those that differ in nothing that counts on any of the
/// data sets; the names of its candidates are in order.
pub(super) fn twins<E: Experiment>(candidates: &[Candidate<E>], datasets: &[E::Data]) -> Result<Vec<String>, ExperimentError> {
    /// What candidates compute, and the name of each with what it is.
    struct Same<'c> {
        computed: String,
        members: Vec<(&'c str, String)>,
    }
    let mut models: Vec<Same<'_>> = Vec::new();
    for Candidate { attention, config, .. } in candidates.iter().filter(|candidate| candidate.weights_of.is_none()) {
        // The options that an attention uses are part of it.
        let rest = settings::digest(config, &[&RUN_TABLES[..], &[MECHANISMS]].concat())?;
        let identity = format!("{rest} {:?}", E::attentions(attention));
        let places = datasets.iter().map(|data| Places::of::<E>(Setup { config, data, attention }).computed());
        let places: Vec<_> = places.filter(|computed| !computed.is_empty()).collect();
        let computed = if places.is_empty() { identity.clone() } else { format!("{rest} {places:?}") };
        let member = (attention.name.as_str(), identity);
        match models.iter_mut().find(|same| same.computed == computed) {
            Some(same) => same.members.push(member),
            None => models.push(Same { computed, members: vec![member] }),
        }
    }
    let sentence = |Same { members, .. }: Same<'_>| {
        let ((last, identity), others) = members.split_last()?;
        let names: Vec<&str> = others.iter().map(|(name, _)| *name).collect();
        let names = (!others.is_empty()).then(|| format!("{} and {last}", names.join(", ")))?;
        Some(if others.iter().all(|(_, other)| other == identity) {
            format!(
                "{names} are the same model with this configuration: they are trained identically, and any difference between their rows is one of speed alone."
            )
        } else {
            format!(
                "{names} compute the same on the training data, where none hides a key that another shows: differences between their rows are those of rounding, \
                 chance and speed."
            )
        })
    };
    Ok(models.into_iter().filter_map(sentence).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use heedful_attention::mechanisms::adaptive_span::{AdaptiveSpanConfig, SpanKind};
    use heedful_models::parts::residual::NormOrder;

    use super::*;
    use crate::tasks::image::{ImageModelling, SuperResolution};
    use crate::tasks::language::Language;
    use crate::tasks::memory_rl::MemoryRl;
    use crate::tasks::pre_training::{MaskedModelling, SpanModelling};
    use crate::tasks::recall::Recall;
    use crate::tasks::swap::Swap;
    use crate::tasks::translation::Translation;

    /// The candidates of a command with these attentions and options.
    pub(crate) fn of<E: Experiment>(names: &[&str], options: &[&str]) -> (Settings<Config<E>>, Vec<Candidate<E>>) {
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        let attention = format!("run.attention=[{}]", names.join(", "));
        let mut settings = Settings::set(&[options, &[attention.as_str()]].concat()).unwrap();
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
            let settings = Settings::set(&[&models, &format!("run.attention={attention}"), option]).unwrap();
            check_overridden::<Language>(&settings).map_err(|error| error.to_string())
        };
        let own = "{name='a', attention='uniform', set={training={steps=7}}}";
        let error = of(&[own, &own.replace("'a'", "'b'")], "[]", "training.steps=50").unwrap_err();
        assert!(error.contains("`--set training.steps=50`") && error.contains("run.models"), "{error}");
        let error = of(&[own], "[]", "training={learning_rate=0.5, steps=50}").unwrap_err();
        assert!(error.contains("`training.steps`"), "{error}");
        // It counts where one model has no value of its own.
        let other = "{name='c', attention='uniform', set={training={learning_rate=0.5}}}";
        assert_eq!(of(&[own, other], "[]", "training.steps=50"), Ok(()));
        assert_eq!(of(&[own], "['uniform']", "training.steps=50"), Ok(()));
        assert_eq!(of(&[own], "[]", "training={learning_rate=0.5}"), Ok(()));
    }

    #[test]
    fn options_of_a_mechanism_stay_when_its_kind_changes() {
        let models = "run.models=[{name='a', attention='adaptive-span', set={mechanisms={adaptive-span={kind='dynamic'}}}}]";
        let options = [models, "run.attention=[]", "mechanisms.adaptive-span={max_span=64, kind='fixed', initial=0.5}"];
        let mut settings = Settings::set(&options).unwrap();
        let candidate = candidates::<Language>(&mut settings, Memory::here()).unwrap().pop().unwrap();
        let expected = AdaptiveSpanConfig::default().with_kind(SpanKind::Dynamic).with_max_span(64).with_initial(0.5);
        assert_eq!(candidate.attention.layout.decoder.at(0).get::<AdaptiveSpanConfig>(), Some(&expected));
        let changed = settings::changes(&settings.value, &candidate.config, &RUN_TABLES).unwrap();
        assert_eq!(changed, "mechanisms.adaptive-span.kind = 'dynamic'".parse().unwrap());
        // So they do where two options give the table of the mechanism.
        let options = ["mechanisms.adaptive-span={max_span=64, kind='fixed', initial=0.5}", "mechanisms.adaptive-span={kind='dynamic'}"];
        let (_, candidates) = of::<Language>(&["adaptive-span"], &options);
        assert_eq!(candidates[0].attention.layout.decoder.at(0).get::<AdaptiveSpanConfig>(), Some(&expected));
    }

    #[test]
    fn what_a_known_model_sets_stands_above_its_own_fields() {
        let of = |models: &str| {
            let mut settings = Settings::set(&[&format!("run.models=[{models}]")]).unwrap();
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
        // Options reach the attention that no name says anything of.
        assert_eq!(refusal::<SuperResolution>(&["gaussian"], "mechanisms.dot-product.qk_norm='rms'"), None);
        assert!(refusal::<SuperResolution>(&["gaussian"], "mechanisms.lsh.rounds=1").is_some());
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

    /// What a command with this file and these options is refused with before it reads data.
    fn refused<E: Experiment>(file: &str, options: &[&str]) -> Option<String> {
        let at = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(at.path(), file).unwrap();
        let assignments = options.iter().map(|text| Assignment::parse(text).unwrap()).collect();
        let mut settings = Settings::<Config<E>>::read(Some(at.path()), assignments).unwrap();
        let checked = candidates::<E>(&mut settings, Memory::here()).and_then(|candidates| check_effects::<E>(&settings, &candidates));
        checked.err().map(|error| {
            assert_eq!(error.exit_code(), 2, "{error}");
            error.to_string()
        })
    }

    #[test]
    fn fields_without_effect_are_refused_with_the_reason() {
        let data = "run.data='folder'";
        let refusals = [
            ("data.generated_pairs", refused::<Translation>("", &[data, "data.generated_pairs=5"])),
            ("data.source", refused::<Translation>("", &["data.source=en"])),
            ("data.target", refused::<Translation>("[data]\ntarget = 'fr'", &[])),
            ("data.generated_words", refused::<Language>("[data]\ngenerated_words = 7", &[data])),
            ("data.reductions.levels", refused::<SuperResolution>("", &["data.reductions.levels=2"])),
            ("data.factor", refused::<ImageModelling>("", &["data.factor=2"])),
            ("spans.density", refused::<MaskedModelling>("", &["spans.density=0.3"])),
            ("masking.masked", refused::<SpanModelling>("[masking]\nmasked = 0.7", &[])),
            ("decoding.beam", refused::<SpanModelling>("", &["decoding.beam=2"])),
            ("auxiliary.target_weight", refused::<Language>("", &["auxiliary={targets=1,target_weight=0.9}"])),
            ("auxiliary.target_weight", refused::<Swap>("", &["auxiliary={targets=1,target_weight=0.9}"])),
            ("auxiliary.intermediate_layers", refused::<Language>("", &["model.layers=1", "auxiliary={intermediate_layers=false}"])),
            ("auxiliary", refused::<Language>("", &["auxiliary={targets=1,intermediate_layers=false}"])),
            ("auxiliary", refused::<Language>("[model]\nlayers = 1\n[auxiliary]\ntargets = 1", &[])),
            ("auxiliary", refused::<Swap>("", &["auxiliary={targets=1,intermediate_layers=false}"])),
            ("auxiliary", refused::<Language>("", &["auxiliary={target_weight=0.0,intermediate_layers=false}"])),
            ("data.stride", refused::<Language>("", &["data.memory=8", "data.stride=16"])),
            ("data.stride", refused::<Swap>("", &["data.memory=8", "data.stride=16"])),
            ("model.decoder_layers", refused::<Language>("", &["model.decoder_layers=1"])),
            ("prefix", refused::<Translation>("", &["prefix='translate: '"])),
        ];
        for (field, refusal) in refusals {
            let message = refusal.unwrap_or_else(|| panic!("{field} is accepted"));
            assert!(message.contains(&format!("`{field}`")) && message.contains("leave it out"), "{message}");
        }
        // A file that repeats a run has all fields, and options of a command say what they mean to have an effect.
        assert_eq!(refused::<SpanModelling>("[masking]\nmasked = 0.8", &[]), None);
        assert_eq!(refused::<Translation>("[data]\ntarget = 'fr'", &[data]), None);
        assert_eq!(refused::<SuperResolution>("", &["data.factor=2"]), None);
        for losses in ["{}", "{targets=1}", "{targets=1,intermediate_layers=false,multiple_positions=false}", "{intermediate_layers=false}"]
        {
            assert_eq!(refused::<Language>("", &[&format!("auxiliary={losses}")]), None, "{losses}");
        }
    }

    #[test]
    fn the_file_of_a_run_is_under_the_rules_once_it_is_edited() {
        let mut config = Config::<Translation>::default();
        config.run.attention = vec!["dot-product".into()];
        config.own.data.target = "fr".into();
        let written = settings::complete_text(&config).unwrap();
        assert_eq!(refused::<Translation>(&written, &[]), None);
        let edited = written.replace("source = \"en\"", "source = \"de\"");
        assert_ne!(edited, written);
        assert!(refused::<Translation>(&edited, &[]).unwrap().contains("`data.source`"));
        let (heading, rest) = written.split_once('\n').unwrap();
        let without_checksum = format!("{heading}\n{}", rest.split_once('\n').unwrap().1);
        assert_eq!(refused::<Translation>(&without_checksum, &[]), None);
    }

    #[test]
    fn another_kind_of_optimiser_leaves_the_options_of_the_file_behind() {
        let file = "[training.optimiser]\nbetas = [0.8, 0.9]\nepsilon = 1e-9\n";
        assert_eq!(refused::<Language>(file, &["training.optimiser.kind=sgd"]), None);
        assert!(refused::<Language>(&format!("{file}kind = 'sgd'\n"), &[]).unwrap().contains("`training.optimiser.betas`"));
    }

    #[test]
    fn steps_without_a_limit_can_be_given_as_hugging_face_has_them() {
        for (names, options) in
            [(&["mamba-2"][..], &["mechanisms.mamba-2.time_step_limit=[0.0,inf]"][..]), (&["mamba-2{time_step_limit=[0.0,inf]}"], &[])]
        {
            let (_, candidates) = of::<Language>(names, options);
            assert_eq!(*candidates[0].attention.layout.decoder.at(0), "mamba-2".parse().unwrap());
        }
        let (_, candidates) = of::<Language>(&["mamba-2{time_step_limit=[0.5,inf]}"], &[]);
        assert!(format!("{:?}", candidates[0].attention.layout.decoder).contains("[0.5, 3.4"));
        assert!(refused::<Language>("", &["run.attention=['mamba-2']", "mechanisms.mamba-2.time_step_limit=[nan,inf]"]).is_some());
    }

    #[test]
    fn values_that_would_end_a_run_late_are_refused_before_it_begins() {
        let refusals = [
            ("bleu.smoothing", refused::<Translation>("", &["bleu.smoothing={floor=-1.0}"])),
            ("decoding.batch_tokens", refused::<SpanModelling>("", &["decoding.batch_tokens=0"])),
            ("search.clip", refused::<MemoryRl>("", &["search.clip=[0.5, 1.5]"])),
            ("model.dropout", refused::<Language>("", &["model.dropout=nan"])),
        ];
        for (field, refusal) in refusals {
            let message = refusal.unwrap_or_else(|| panic!("{field} is accepted"));
            assert!(message.contains(field), "{message}");
        }
    }

    #[test]
    fn a_folder_of_data_is_refused_where_no_files_are_read() {
        let message = refused::<Recall>("", &["run.data='folder'"]).unwrap();
        assert!(message.contains("`run.data`") && message.contains("leave --data out"), "{message}");
        assert_eq!(refused::<Language>("", &["run.data='folder'"]), None);
    }

    #[test]
    fn candidates_that_are_one_model_are_named() {
        let found = |names: &[&str]| twins::<Translation>(&of::<Translation>(names, &[]).1, &[]).unwrap();
        let [sentence] = &found(&["gaussian", "dot-product", "hc-sa", "hc-all", "sh-x"])[..] else { panic!("one pair is the same") };
        assert!(sentence.starts_with("gaussian and hc-sa are the same model"), "{sentence}");
        assert_eq!(found(&["dot-product", "hc-sa", "hc-all", "sh-x", "synthesizer-random", "synthesizer-random-fixed"]), [""; 0]);

        let models = "run.models=[{name='a', attention='lsh', set={}}, {name='b', attention='lsh', set={model={layers=3}}}]";
        let (_, candidates) = of::<Language>(&["lsh"], &[models]);
        let [sentence] = &twins::<Language>(&candidates, &[]).unwrap()[..] else { panic!("one pair is the same") };
        assert!(sentence.starts_with("lsh and a are the same model"), "{sentence}");
    }
}
