//! Machine translation: the experiment `mt`.

mod config;
mod pretrained;
mod trivial;
mod words;

use heedful_data::generate::{self, Sizes};
use heedful_data::parallel::{Pair, ParallelCorpus};
use heedful_data::synonyms;
use heedful_data::tokenise::Tokeniser;
use heedful_metrics::{Bleu, ChrF, CorpusMetric, Meteor, Synonyms, TextMetric, Tokeniser as WordsOfBleu};
use heedful_models::architectures::seq2seq::Seq2SeqTransformer;
use heedful_models::pretrained::presets::Preset;

use crate::session::comparison::folder_name;
use crate::tasks::prelude::*;
use crate::tasks::pretrained::{Checksums, read_into};
use crate::tasks::text_to_text::models::{self, MODELS};
use crate::tasks::text_to_text::pretrained::{PERPLEXITY_BEFORE, Read};
use crate::tasks::text_to_text::{self, Frame, TextToTextTask, TokenPair};

pub use config::{Translation, TranslationConfig, TranslationData};

/// The name of this score and the language it is for.
const METEOR: &str = "METEOR";
const ENGLISH: &str = "en";

/// A tokenised parallel corpus.
#[derive(Debug)]
pub struct TranslationDataset {
    name: String,
    corpus: ParallelCorpus,
    tokeniser: Tokeniser,
    frame: Frame,
    /// Vocabulary size of models. A pretrained model may have more tokens than its tokeniser.
    vocabulary: usize,
    /// The checksums of the pretrained model, if there is one.
    pretrained: Option<Checksums>,
    train: Vec<TokenPair>,
    valid: Vec<TokenPair>,
    too_long: usize,
    synonyms: Option<Synonyms>,
}

impl TranslationDataset {
    /// METEOR, whose stems are of English words, if that is the target language. Its words are those of BLEU.
    fn meteor(&self, bleu: Bleu) -> Option<Meteor<'_>> {
        (self.corpus.target_language == ENGLISH).then_some(Meteor { tokeniser: bleu.tokeniser, synonyms: self.synonyms.as_ref() })
    }

    /// What stands around sources and targets.
    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }

    /// The tokens of the sources of pairs.
    fn sources<'p>(&self, pairs: impl IntoIterator<Item = &'p Pair>) -> Result<Vec<Vec<u32>>, ExperimentError> {
        pairs.into_iter().map(|pair| self.frame.source(&self.tokeniser, &pair.source)).collect()
    }

    /// The training pairs.
    pub(crate) fn train(&self) -> &[TokenPair] {
        &self.train
    }

    /// The sources of the first test set, at most `count`, from short to long.
    ///
    /// # Errors
    /// If a tokeniser that was not trained here has no token for a part of them.
    pub(crate) fn test_sources(&self, count: usize) -> Result<Vec<Vec<u32>>, ExperimentError> {
        let pairs = self.corpus.tests.first().map_or(&[][..], |(_, pairs)| pairs);
        let mut sources = self.sources(pairs.iter().take(count))?;
        sources.sort_by_key(Vec::len);
        Ok(sources)
    }
}

impl Experiment for Translation {
    const NAME: &'static str = "mt";
    const TITLE: &'static str = "Machine translation";
    const ABOUT: &'static str = "\
        Compare attention mechanisms, or whole models, on machine translation.\n\nTrains an encoder-decoder Transformer for each attention, or each \
        model of --model, and each seed, translates the test sets, and prints a table of BLEU, chrF and, of translations into English, METEOR, with \
        parameters, speed and memory. Without --data it uses a built-in corpus that needs no file. With --pretrained it begins with the weights of a \
        pretrained T5 and scores them before and after training.";
    const OPTIONS: &'static [CommandOption] = &[
        CommandOption::pretrained("Folder of a pretrained T5 of Hugging Face with its tokenizer.json: score it, and fine-tune it. --set prefix='translate English to German: \
            ' sets the text before each source [default: that, with the names of the languages]").conflicts(&["model"]),
        CommandOption::new("source", "data.source", OptionValue::Word("LANGUAGE", &[]), "Source language: the extension of the source files in --data (train.en, val.en, test*.en)"),
        CommandOption::new("target", "data.target", OptionValue::Word("LANGUAGE", &[]), "Target language"),
    ];
    const MODELS: &'static [NamedModel] = MODELS;
    const DATA: &'static [&'static str] =
        &["tokeniser", "pretrained", "prefix", "data.source", "data.target", "data.synonyms", "data.generated_pairs", "model.max_length"];
    const READS_FILES: bool = true;
    const STACKS: usize = 2;
    const BATCH: &'static str = "data.batch_tokens";
    const COLUMNS: &'static [&'static str] = ParallelCorpus::COLUMNS;
    const HAS_TRIVIAL_BASELINE: bool = true;
    type Data = TranslationDataset;
    type Model = Seq2SeqTransformer;
    type Task<'a> = TextToTextTask<'a>;

    fn defaults(config: &mut Config<Self>) {
        let attentions =
            "dot-product,synthesizer-dense,synthesizer-random,synthesizer-factorized-random,synthesizer-random+dot-product,gaussian";
        config.compare(attentions, "");
        // One layer: a second one in the decoder could do with cross-attention what is asked of self-attention here.
        config.model.layers = 1;
        let schedule = ScheduleConfig::Linear { warmup: 60, end: 1e-4 };
        config.training = TrainingConfig { steps: 600, learning_rate: 4e-3, schedule, ..TrainingConfig::every(200) };
    }

    fn beneath(config: &Config<Self>) -> Result<Option<Table>, ExperimentError> {
        let tokeniser = WordsOfBleu::of_language(&config.own.data.target);
        let is_other = config.run.data.is_some() && tokeniser != WordsOfBleu::default();
        let mut table = config.own.pretrained.as_deref().map(|folder| pretrained::beneath(folder, config)).transpose()?;
        if is_other {
            let bleu = Table::from_iter([("tokeniser".to_owned(), Value::from(tokeniser.name()))]);
            table.get_or_insert_default().insert("bleu".to_owned(), Value::Table(bleu));
        }
        Ok(table)
    }

    fn fit_model(name: &str, plain: &Config<Self>, own: &mut Config<Self>, attention: &Attention) -> Result<(), ExperimentError> {
        let tying = own.own.tying;
        models::fit(name, &plain.model, &mut own.model, |model| model.encoder_decoder(1, attention.layout.clone(), tying))
    }

    fn preset(preset: &Preset) -> Option<PaperModel> {
        PaperModel::of_encoder_decoder(preset)
    }

    fn rules() -> Vec<Rule<Self>> {
        let files = |candidate: &Candidate<Self>| candidate.config.run.data.is_some();
        vec![
            Rule::counts(&["data.batch_tokens", "data.generated_pairs", "decoding.batch_tokens"]),
            Rule::made(&["data.generated_pairs"], "with --data no pairs are generated; leave it out"),
            Rule::used(
                &["prefix"],
                |candidate| candidate.config.own.pretrained.is_some(),
                "only sources of a pretrained model have a prefix; leave it out, or give --pretrained DIR",
            ),
            Rule::used(
                &["data.source", "data.target"],
                files,
                "the built-in corpus has its own languages; leave it out, or give --data DIR",
            ),
        ]
    }

    fn check(settings: &Settings<Config<Self>>, attentions: &[Attention]) -> Result<(), ExperimentError> {
        let config = &settings.value;
        let Self { data, label_smoothing, decoding, bleu, .. } = &config.own;
        decoding.check(settings, *label_smoothing)?;
        let remedy =
            "synonyms are for METEOR, which is computed for translations into English; leave it out, or give --data and --target en";
        let is_english = config.run.data.is_some() && data.target == ENGLISH;
        settings.require("data.synonyms", data.synonyms.is_none() || is_english, remedy)?;
        bleu.validate().map_err(|problem| settings.refuse("bleu.smoothing", problem))?;
        pretrained::check(settings, attentions)?;
        for attention in attentions {
            // The vocabulary is not known before the data is read and does not matter here.
            config.model(1, attention).validate().map_err(ExperimentError::usage)?;
        }
        Ok(())
    }

    fn open(config: &Config<Self>) -> Result<Vec<TranslationDataset>, ExperimentError> {
        let TranslationData { source, target, synonyms, generated_pairs, .. } = &config.own.data;
        let (name, mut corpus) = match &config.run.data {
            Some(dir) => {
                let corpus =
                    ParallelCorpus::read_columns(dir, source, target, &config.run.column_names()).map_err(ExperimentError::failure)?;
                for warning in words::warnings(config.own.bleu.tokeniser, &corpus) {
                    tracing::warn!("{warning}");
                }
                (format!("{} {source}-{target}", folder_name(dir)), corpus)
            }
            None => {
                let sizes = Sizes { train: *generated_pairs, ..Sizes::PARALLEL };
                ("built-in".to_owned(), generate::parallel(&RandomKey::from_seed(0).named("translation data"), sizes))
            }
        };
        let texts = corpus.train.iter().flat_map(|pair| [pair.source.as_str(), pair.target.as_str()]);
        let (folder, prefix) = (config.own.pretrained.as_deref(), config.own.prefix.as_deref());
        let Read { tokeniser, frame, vocabulary, checksums: pretrained } = Read::of(folder, prefix, &config.own.tokeniser, texts)?;
        if let Some(checksums) = &pretrained {
            corpus.sha256 = checksums.with_data(&corpus.sha256);
        }
        let encode = |pair: &Pair| frame.pair(&tokeniser, [&pair.source, &pair.target]);
        let max_length = config.model.max_length;
        let fits = |pair: &TokenPair| pair.source.len() <= max_length && pair.target.len() < max_length;
        let mut train = corpus.train.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        let all = train.len();
        train.retain(fits);
        let too_long = all - train.len();
        if too_long > 0 {
            tracing::warn!("{too_long} of {all} training pairs are longer than model.max_length = {max_length} tokens and are left out");
        }
        if train.is_empty() {
            return Err(ExperimentError::usage(format!(
                "model.max_length = {max_length}: every training pair is longer; give --set model.max_length=N with a larger N"
            )));
        }
        let valid = corpus.valid.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        let mut tests = Vec::new();
        for (name, pairs) in &corpus.tests {
            for (line, pair) in pairs.iter().enumerate() {
                tests.push((name.as_str(), line, frame.source(&tokeniser, &pair.source)?.len()));
            }
        }
        let longest = valid.iter().enumerate().map(|(line, pair)| ("valid", line, pair.source.len().max(pair.target.len() + 1)));
        for (set, line, length) in longest.chain(tests) {
            if length > max_length {
                return Err(ExperimentError::usage(format!(
                    "{set}: sentence {} has {length} tokens, more than model.max_length = {max_length}, the maximal length of every attention here; \
                     give --set model.max_length={}",
                    line + 1,
                    length.next_power_of_two()
                )));
            }
        }
        let synonyms = synonyms.as_deref().map(synonyms::read).transpose().map_err(ExperimentError::failure)?;
        let synonyms = synonyms.map(|file| Synonyms::new(&file.name, file.sets));
        Ok(vec![TranslationDataset { name, corpus, tokeniser, frame, vocabulary, pretrained, train, valid, too_long, synonyms }])
    }

    fn card(data: &TranslationDataset) -> Card<'_> {
        let TranslationDataset { name, corpus, tokeniser, vocabulary, train, valid, too_long, .. } = data;
        let ParallelCorpus { source_language, target_language, tests, skipped, sha256, .. } = corpus;
        let tests: Vec<_> = tests.iter().map(|(name, pairs)| format!("{name} {}", pairs.len())).collect();
        let skipped: usize = skipped.iter().map(|skipped| skipped.lines.len()).sum();
        let description = format!(
            "{source_language} to {target_language}: {} training pairs ({skipped} with an empty side and {too_long} over the maximal length left out), \
             {} for validation; test sets: {}; {} tokens in the joint vocabulary",
            train.len(),
            valid.len(),
            tests.join(", "),
            tokeniser.vocabulary_size()
        );
        Card { vocabulary: *vocabulary, ..Card::of_texts(name, sha256, description, tokeniser) }
    }

    fn batch_tokens(config: &Config<Self>, data: &TranslationDataset) -> usize {
        text_to_text::batch_tokens(&data.train, config.own.data.batch_tokens)
    }

    fn lengths(setup: Setup<'_, Self>) -> TrainingLengths {
        text_to_text::lengths(&setup.data.train, setup.config.model.max_length, setup.attention)
    }

    fn task(setup: Setup<'_, Self>) -> TextToTextTask<'_> {
        let TranslationDataset { train, valid, tokeniser, frame, .. } = setup.data;
        let Self { data, label_smoothing, decoding, .. } = &setup.config.own;
        TextToTextTask { train, valid, tokeniser, frame, batch_tokens: data.batch_tokens, label_smoothing: *label_smoothing, decoding }
    }

    fn model(setup: Setup<'_, Self>, key: &RandomKey, device: &Device) -> Result<Seq2SeqTransformer, ExperimentError> {
        let model = setup.config.model(setup.data.vocabulary, setup.attention).init(key, device);
        read_into(setup.config.own.pretrained.as_deref(), model)
    }

    fn score(setup: Setup<'_, Self>, trained: Trained<'_, '_, Self>, interrupt: &Interrupt) -> Interruptible<Scores> {
        let Trained { task, model, paths } = trained;
        let TranslationDataset { corpus: ParallelCorpus { tests, .. }, pretrained, .. } = setup.data;
        let mut scores = Scores::default();
        for (index, (name, pairs)) in tests.iter().enumerate() {
            let sources = setup.data.sources(pairs)?;
            let Some(hypotheses) = task.generate(model, &sources, "translating", interrupt) else { return Ok(None) };
            paths.write_hypotheses(name, &hypotheses)?;
            paths.write_references(name, &pairs.iter().map(|pair| pair.target.as_str()).collect::<Vec<_>>())?;
            add_scores(setup.config, setup.data, index, &hypotheses, &mut scores);
        }
        let Some(perplexity) = task.perplexity(model, interrupt) else { return Ok(None) };
        scores.push("valid perplexity", perplexity, "per token of the joint vocabulary, without label smoothing");
        if let (Some(checksums), Some((name, pairs))) = (pretrained, tests.first()) {
            scores.notes.push(checksums.to_string());
            let before = Self::model(setup, &RandomKey::from_seed(0), &model.source.tokens.weight.device())?;
            let Some(perplexity) = task.perplexity(&before, interrupt) else { return Ok(None) };
            scores.push(PERPLEXITY_BEFORE, perplexity, "per token, of the pretrained weights");
            let Some(hypotheses) = task.generate(&before, &setup.data.sources(pairs)?, "translating", interrupt) else { return Ok(None) };
            let references: Vec<[&str; 1]> = pairs.iter().map(|pair| [pair.target.as_str()]).collect();
            let bleu = setup.config.own.bleu;
            let signature = format!("{}, test set {name}, {}", bleu.signature(Some(1)), setup.config.own.decoding);
            scores.push(pretrained::BEFORE, bleu.corpus_score(&hypotheses, &references).score, signature);
        }
        Ok(Some(scores))
    }

    fn columns() -> Vec<MetricColumn> {
        vec![
            MetricColumn::new("BLEU", "BLEU").higher_is_better(),
            MetricColumn::new(pretrained::BEFORE, "before").higher_is_better().defined_as("BLEU of the pretrained weights"),
            MetricColumn::new("chrF2", "chrF2").higher_is_better(),
            MetricColumn::new(METEOR, METEOR).percent().higher_is_better(),
            MetricColumn::new("valid perplexity", "valid ppl").lower_is_better(),
        ]
    }

    fn trivial_baselines(
        config: &TranslationConfig,
        data: &TranslationDataset,
        interrupt: &Interrupt,
    ) -> Interruptible<Vec<TrivialBaseline>> {
        Ok(trivial::baselines(config, data, interrupt))
    }

    fn published() -> PublishedNumbers {
        PublishedNumbers::machine_translation()
    }

    fn texts(Setup { config, data, .. }: Setup<'_, Self>, count: usize) -> Vec<String> {
        text_to_text::texts(&data.corpus.tests, &data.frame, &data.tokeniser, config.model.max_length, count)
    }

    fn read(setup: Setup<'_, Self>, model: &Seq2SeqTransformer, text: &str, probe: &mut Probe) -> Result<Reading, ExperimentError> {
        Self::task(setup).read(model, text, setup.config.model.max_length, probe)
    }
}

/// Adds the scores of translations of the test set with this number.
fn add_scores(config: &TranslationConfig, data: &TranslationDataset, index: usize, hypotheses: &[String], scores: &mut Scores) {
    let tests = &data.corpus.tests;
    let (name, pairs) = &tests[index];
    let (bleu, chrf) = (config.own.bleu, ChrF::default());
    let references: Vec<[&str; 1]> = pairs.iter().map(|pair| [pair.target.as_str()]).collect();
    let of_texts = |kind| ItemScore::of_texts(name, kind);
    let mut values = vec![
        ("BLEU", bleu.corpus_score(hypotheses, &references).score, bleu.signature(Some(1)), of_texts(CorpusMetric::Bleu(bleu))),
        ("chrF2", chrf.corpus_score(hypotheses, &references).score, chrf.signature(Some(1)), of_texts(CorpusMetric::ChrF(chrf))),
    ];
    if let Some(meteor) = data.meteor(bleu) {
        let statistics = meteor.corpus_statistics(hypotheses, &references);
        let value = meteor.score(&meteor.total(statistics.iter().copied())).score;
        values.push((METEOR, value, meteor.signature(Some(1)), ItemScore::new(name, "sentences", Combination::Mean, &[METEOR])));
        let mut table = ItemTable::new(name, &[METEOR]);
        references.iter().zip(&statistics).for_each(|([reference], of_sentence)| table.push(reference.as_bytes(), &[of_sentence.score]));
        scores.items.push(table);
    }
    let (set, of) = ((index, tests.len(), name.as_str()), config.own.decoding.to_string());
    for (metric, value, signature, made_of) in values {
        text_to_text::push_of_set(scores, set, (metric, value, &signature), &of, made_of);
    }
}
