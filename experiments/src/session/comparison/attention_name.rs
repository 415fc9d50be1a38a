//! Attentions by name: mechanisms, layouts, and lists and tables of mechanisms, with options behind them.

use heedful_host::names::unknown;
use heedful_models::prelude::*;
use serde::Deserialize;

use crate::model::attention::Attention;
use crate::session::error::ExperimentError;
use crate::session::experiment::definition::{Config, Experiment};

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
            unknown("attention", &name, &known, "--list shows all").into()
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
    use heedful_attention::mechanisms::lsh::BucketCount;
    use heedful_runs::settings::Settings;

    use super::*;
    use crate::tasks::image::SuperResolution;
    use crate::tasks::language::Language;
    use crate::tasks::translation::Translation;

    fn of<E: Experiment>(names: &[&str], options: &[&str]) -> Vec<Attention> {
        let config = Settings::set(options).unwrap().value;
        names.iter().map(|name| attention::<E>(&config, name).unwrap()).collect()
    }

    #[test]
    fn layouts_are_read_with_and_without_quotes_and_with_the_options_of_their_mechanisms() {
        let texts = ["{encoder = linformer, decoder = [dot-product, 'relative'], cross=uniform}", "[gaussian,dot-product]"];
        let attentions = of::<Translation>(&texts, &["mechanisms.linformer.rank=8"]);
        let names: Vec<_> = attentions.iter().map(|attention| attention.name.as_str()).collect();
        assert_eq!(names, ["{encoder=linformer,decoder=[dot-product,relative],cross=uniform}", "[gaussian,dot-product]"]);
        let placed = Translation::attentions(&attentions[0]);
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
        let again = of::<Translation>(&names, &["mechanisms.linformer.rank=8"]);
        assert_eq!(again[0].layout, attentions[0].layout);
        let of_layers = of::<Language>(&["[local-1d,dot-product]"], &[]);
        let families: Vec<_> = Language::attentions(&of_layers[0]).iter().map(|(_, mechanism)| mechanism.family()).collect();
        assert_eq!(families, ["local-1d", "dot-product"]);
    }

    #[test]
    fn every_kth_layer_can_have_another_mechanism() {
        let hybrids = ["[3*gated-delta-net, dot-product]", "[gla,2*relative,gla]", "[1*uniform,3*alibi]"];
        let attentions = of::<Language>(&hybrids, &[]);
        let families = |index: usize| -> Vec<&str> { (0..8).map(|layer| attentions[index].layout.decoder.at(layer).family()).collect() };
        let delta = "gated-delta-net";
        assert_eq!(families(0), [delta, delta, delta, "dot-product", delta, delta, delta, "dot-product"]);
        assert_eq!(families(1), ["gla", "relative", "relative", "gla", "gla", "relative", "relative", "gla"]);
        assert_eq!(families(2), ["uniform", "alibi", "alibi", "alibi", "uniform", "alibi", "alibi", "alibi"]);
        assert_eq!(attentions[0].name, "[3*gated-delta-net,dot-product]");
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
        let attentions = of::<Translation>(&texts, &[]);
        let ranks = |index: usize| -> Vec<Option<usize>> {
            let placed = Translation::attentions(&attentions[index]);
            placed.iter().filter(|(role, _)| *role == Role::Encoder).map(|(_, one)| one.get::<LinformerConfig>().unwrap().rank).collect()
        };
        assert_eq!(ranks(0), [Some(8), Some(4), Some(4), Some(2)]);
        assert_eq!(ranks(1), [Some(8)]);
        let name = "{encoder=[linformer{rank=8},2*linformer{rank=4,sharing=none},{name=linformer,rank=2}]}";
        assert_eq!(attentions[0].name, name);
        let again = of::<Translation>(&[name], &[]);
        assert_eq!(again[0].layout, attentions[0].layout);
        let decoder = &attentions[1].layout.decoder;
        let local = decoder.at(0).get::<LocalOneDConfig>().unwrap();
        assert_eq!((local.query_block, local.logits.name().as_str()), (Some(4), "shared-qk"));
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
        let attentions = of::<SuperResolution>(&names, &["mechanisms.gaussian.deviations=[0.5]"]);
        let families = |index: usize| -> Vec<(Role, &str)> {
            let placed = SuperResolution::attentions(&attentions[index]);
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
            let placed = SuperResolution::attentions(&attentions[index]);
            placed.iter().find_map(|(_, mechanism)| Some(mechanism.get::<GaussianConfig>()?.deviations.clone())).unwrap()
        };
        assert_eq!([0, 1, 2, 3].map(deviations), [(); 4].map(|()| vec![0.5]));
        // Its options reach the attention that no name says anything of.
        let attentions = self::of::<SuperResolution>(&["gaussian"], &["mechanisms.dot-product.qk_norm='rms'"]);
        assert_ne!(attentions[0].layout.encoder.at(0), &AnyMechanism::default());
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
        let attentions = of::<Translation>(&["hc-sa", "hc-all", "sh-x"], &[options]);
        for (attention, gaussians) in attentions.iter().zip([2, 4, 2]) {
            let placed = Translation::attentions(attention);
            let gaussians_of = placed.iter().filter_map(|(_, attention)| attention.get::<GaussianConfig>());
            let of_gaussian = gaussians_of.map(|gaussian| (gaussian.deviations.clone(), gaussian.length_ratio));
            assert_eq!(of_gaussian.collect::<Vec<_>>(), vec![(vec![0.5], 1.25); gaussians], "{}", attention.name);
        }
    }
}
