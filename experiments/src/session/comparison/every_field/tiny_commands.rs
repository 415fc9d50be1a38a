//! Tiny commands of the experiments, and in which of them fields have an effect.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use tempfile::TempDir;

/// A tiny command, and others in which fields have an effect that have none in it.
pub(super) struct Variety {
    /// What it sets, beside what all do.
    own: Vec<String>,
    /// Where fields have an effect that have none in it.
    pub(super) contexts: &'static [Context],
    /// Further choices whose options are set to extreme values.
    pub(super) choices: &'static [Context],
    /// Whether the sizes of its model are checked by the code of another experiment's: a language model's, a classifier's or an encoder-decoder's.
    is_model_elsewhere: bool,
    /// Whether fields that mean the same in all experiments are left to `lm`.
    is_shared_elsewhere: bool,
}

/// Further fields that are set, and those (a field, a table, or a field with a value) that then have an effect.
type Context = (&'static [&'static str], &'static [&'static str]);

/// What all commands set: three steps.
const ALL: &[&str] = &[
    "training.steps=3",
    "training.evaluate_every=3",
    "training.checkpoint_every=3",
    "training.log_every=1",
    "training.learning_rate=0.01",
    "training.learning_rates=[]",
    "training.schedule={kind='constant'}",
];

/// What all commands set whose models are Transformers.
const TRANSFORMER: &[&str] =
    &["model.layers=2", "model.d_model=8", "model.heads=2", "model.d_ff=16", "model.feed_forward_in='all'", "model.dropout=0.0"];

/// Fields that change only time, memory or files.
const SAME: &[&str] = &[
    "run.backend",
    "run.trivial_baseline",
    "slurm",
    "training.checkpoint_every",
    "training.keep",
    "training.log_every",
    "model.checkpoint",
    "model.depth.halting.skip_in_training",
    "model.feed_forward_chunk",
    "model.unpadded",
    "decoding.batch_tokens",
    "loss_by_position",
];

/// Fields whose effect only a model shows that has learnt to translate: hypotheses that end, and words that match. Tests of beam search, BLEU and ROUGE show it.
/// Pretrained models, continued runs, synonyms, word vectors and names of columns need files, and have tests of their own.
const UNSEEN: &[&str] = &[
    "run.columns",
    "decoding.length_penalty",
    "bleu.lowercase",
    "data.stemmer",
    "data.synonyms",
    "data.word_vectors",
    "init",
    "pretrained",
    "start.run",
    "swap",
];

/// Fields of which the data leave one value.
const OF_DATA: &[&str] = &["model.positions.grid.rows", "model.positions.grid.columns", "model.positions.grid.channels"];

/// Values that fields of no simple kind can have.
const GIVEN: &[(&str, &str)] = &[
    ("adaptive", "{cutoffs=[4]}"),
    ("data.task.longer", "[[128, 8]]"),
    ("data.tasks", "['reverse']"),
    ("data.tasks", "['dialogue', 'summary']"),
    ("run.attention", "['uniform']"),
    ("run.backend", "'ndarray'"),
    ("run.data", "'unset'"),
    ("slurm.extra", "['--nice']"),
    ("slurm.time", "'10'"),
    ("start.attention", "'synthesizer-dense'"),
];

/// Values that a field can have which no rule finds.
pub(super) fn given(path: &str) -> impl Iterator<Item = String> {
    GIVEN.iter().filter(move |(field, _)| *field == path).map(|(_, value)| (*value).to_owned())
}

/// Whether a field changes only time, memory or files.
pub(super) fn is_same(path: &str) -> bool {
    SAME.iter().any(|field| path == *field || path.starts_with(&format!("{field}.")))
}

impl Variety {
    fn new(own: &[&str], contexts: &'static [Context]) -> Self {
        let own = TRANSFORMER.iter().chain(own).map(|field| (*field).to_owned()).collect();
        Self { own, contexts, choices: &[], is_model_elsewhere: true, is_shared_elsewhere: true }
    }

    /// All fields that it sets.
    pub(super) fn base(&self) -> Vec<String> {
        ALL.iter().map(|field| (*field).to_owned()).chain(self.own.iter().cloned()).collect()
    }

    /// Whether extreme values of a field of the model are refused by the code that refuses those of another experiment.
    pub(super) fn is_model_elsewhere(&self, path: &str) -> bool {
        self.is_model_elsewhere && path.starts_with("model.")
    }

    /// The same, for a model that no other experiment has.
    fn of_own_model(self) -> Self {
        Self { is_model_elsewhere: false, ..self }
    }

    /// The same with further fields.
    pub(super) fn with(&self, further: &[&str]) -> Vec<String> {
        self.base().into_iter().chain(further.iter().map(|field| (*field).to_owned())).collect()
    }

    /// Whether a field has its effect in one of the contexts.
    pub(super) fn has_context(&self, path: &str) -> bool {
        let of_field = |field: &&str| field.split('=').next().is_some_and(|field| path == field || path.starts_with(&format!("{field}.")));
        UNSEEN.contains(&path) || OF_DATA.contains(&path) || self.contexts.iter().any(|(_, fields)| fields.iter().any(of_field))
    }

    /// Whether a field is walked over in `lm`: what trains models, and what says which runs there are, is one code.
    pub(super) fn is_elsewhere(&self, path: &str) -> bool {
        let is_shared = ["run.", "training.", "slurm."].iter().any(|table| path.starts_with(table));
        is_shared && self.is_shared_elsewhere || path.starts_with("run.models")
    }
}

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for part in ["train", "valid", "test"] {
        let text = "the cat sat on the mat\na dog ran far\nthe dog saw a cat run\n".repeat(12);
        write(&format!("text/ptb.{part}.txt"), &format!("{text}once\n"));
    }
    let pairs =
        [("the cat sat", "Le chat assis"), ("a dog runs", "Un chien court"), ("the dog sat", "Le chien assis"), ("a cat", "Un chat")];
    for part in ["train", "val", "test"] {
        let lines = |side: fn(&(&str, &str)) -> String| pairs.iter().map(|pair| side(pair) + "\n").collect::<String>();
        write(&format!("pairs/{part}.en"), &lines(|(source, _)| (*source).to_owned()));
        write(&format!("pairs/{part}.de"), &lines(|(_, target)| (*target).to_owned()));
        write(&format!("pairs/{part}.fr"), &lines(|(_, target)| target.replace("chat", "chaton")));
    }
    folder
});

fn data(name: &str) -> String {
    let path: PathBuf = FOLDER.path().join(name);
    format!("run.data='{}'", path.display())
}

const DOT: &str = "run.attention=['dot-product']";
/// An attention with a table of all positions.
const TABLE: &str = "run.attention=['synthesizer-random']";
const LONGEST: Context = (&[TABLE], &["model.max_length"]);

pub(super) fn algorithmic() -> Variety {
    let own = [
        DOT,
        "run.models=[]",
        "data.tasks=['copy']",
        "data.length=4",
        "data.longer=6",
        "data.symbols=4",
        "data.generated_examples=16",
        "data.generated_test=4",
        "data.batch_tokens=40",
        "model.max_length=32",
    ];
    Variety::new(&own, &[LONGEST, (&["run.attention=['lsh{chunk=2}']"], &["data.rounds=[1, 3]"])])
}

pub(super) fn classify() -> Variety {
    Variety::new(&[DOT, "data.generated_texts=24", "data.test=8", "data.batch_tokens=2000", "model.max_length=64"], &[LONGEST])
        .of_own_model()
}

pub(super) fn glue() -> Variety {
    Variety::new(
        &[DOT, "data.tasks=['CoLA']", "data.generated_examples=24", "data.batch_tokens=2000", "model.max_length=64"],
        &[LONGEST, MIXED],
    )
}

/// A mixture is one of several tasks.
const MIXED: Context = (&["data.tasks=['CoLA', 'RTE']"], &["data.mixture"]);

const IMAGE: &[&str] =
    &[DOT, "data.generated_images=4", "data.valid=2", "data.test=2", "data.batch=2", "data.samples=0", "model.max_length=160"];
const DRAWN: Context = (&["data.samples=1"], &["sampling"]);

pub(super) fn classify_images() -> Variety {
    let own = [DOT, "data.generated_images=8", "data.valid=3", "data.test=3", "data.batch=2", "model.max_length=16"];
    Variety::new(&own, &[LONGEST]).of_own_model()
}

pub(super) fn image() -> Variety {
    Variety::new(IMAGE, &[LONGEST, DRAWN]).of_own_model()
}

pub(super) fn image_mixtures() -> Variety {
    Variety::new(IMAGE, &[LONGEST]).of_own_model()
}

pub(super) fn super_resolution() -> Variety {
    Variety::new(IMAGE, &[LONGEST, DRAWN])
}

pub(super) fn lm() -> Variety {
    let own = [DOT, "data.context=32", "data.batch=2", "model.max_length=40", &data("text")];
    let contexts: &'static [Context] = &[
        LONGEST,
        (&["run.data='unset'", "data.context=64", "model.max_length=64", "data.stride=64", "data.batch=16"], &["data.generated_words"]),
        (&["data.memory=4"], &["data.memory", "data.evaluation_memory"]),
        (&["auxiliary={}"], &["auxiliary"]),
        (&["training.schedule={kind='linear', warmup=2}"], &["training.schedule"]),
        (&["training.schedule={kind='noam', warmup=2, d_model=8}"], &["training.schedule"]),
        (&["training.schedule={kind='inverse-square-root', warmup=2}"], &["training.schedule"]),
        (&["training.optimiser.weight_decay=0.1"], &["training.optimiser.weight_decay", "training.optimiser.without_decay"]),
        (&[], &["training.optimiser.betas", "training.optimiser.epsilon"]),
        (&["training.optimiser={kind='adagrad'}"], &["training.optimiser.lr_decay=0.5"]),
        (
            &["training.optimiser={kind='sgd', momentum=0.9}"],
            &["training.optimiser.momentum=0.5", "training.optimiser.dampening=0.5", "training.optimiser.nesterov=true"],
        ),
        (
            &["training.optimiser={kind='adafactor'}"],
            &[
                "training.optimiser.clip_threshold=0.1",
                "training.optimiser.decay_rate=-0.1",
                "training.optimiser.epsilon_2=0.5",
                "training.optimiser.scale_parameter=false",
            ],
        ),
        // The step is the lesser of the rate and the root of the number of steps, inverted.
        (&["training.optimiser={kind='adafactor'}", "training.learning_rate=0.9"], &["training.optimiser.relative_step=false"]),
        (&["training.checkpoint_every=1", "training.average=2"], &["training.average"]),
        // Steps that are too long: the loss rises, and which weights are the best depends on when it is looked at.
        (
            &["training.steps=6", "training.evaluate_every=1", "training.learning_rate=3.0", "training.patience=6"],
            &["training.patience=1", "training.evaluate_every=6"],
        ),
        // Less than a step takes.
        (&["training.minutes=1e3"], &["training.minutes=1e-9"]),
        (&["model.gate={kind='gru'}"], &["model.gate"]),
        (&["model.layers=4", "model.depth={kind='shared', halting={epsilon=0.25}}"], &["model.depth"]),
        (&["model.initialisation={kind='normal', deviation=0.02}"], &["model.initialisation"]),
    ];
    let choices: &'static [Context] = &[
        (&["adaptive={cutoffs=[4]}"], &["adaptive"]),
        (&["model.positions={grid={rows=8, columns=8}}"], &["model.positions"]),
        (&["tokeniser={kind='bpe', vocabulary=280}"], &["tokeniser"]),
        (&["tokeniser={kind='word-piece', vocabulary=80}"], &["tokeniser"]),
        (&["training.precision='f16'"], &["training.loss_scaling"]),
        (&["training.schedule={kind='cosine', warmup=2}"], &["training.schedule"]),
    ];
    Variety { is_shared_elsewhere: false, choices, ..Variety::new(&own, contexts).of_own_model() }
}

pub(super) fn memory_rl() -> Variety {
    let own = [
        "run.models=[{name='transformer-xl'}]",
        "data.copies=4",
        "data.unroll=4",
        "data.memory=4",
        "data.evaluation_episodes=2",
        "data.test_episodes=2",
        "ppo.parts=2",
        "ppo.passes=1",
        "training.learning_rate=0.1",
        "model.layers=2",
        "model.d_model=8",
        "model.heads=2",
        "model.d_ff=16",
    ];
    let contexts: &'static [Context] = &[
        (&["run.models=[]", TABLE], &["model.max_length"]),
        (&[], &["search={entropy_weight=[0.5, 0.6]}"]),
        (&["ppo.passes=8", "training.learning_rate=0.5"], &["ppo.clip"]),
        (&["model.norm_order='pre'"], &["model.gate={kind='gru'}", "model.parallel='shared-norm'"]),
    ];
    let choices: &'static [Context] = &[
        (&["search={clip=[0.1, 0.2]}"], &["search"]),
        (&["data.environment={kind='memory-maze'}"], &["data.environment"]),
        (&["data.environment={kind='numpad'}"], &["data.environment"]),
        (&["data.environment={kind='repeat-previous'}"], &["data.environment"]),
    ];
    // It has no dropout that could be set.
    Variety { choices, own: own.map(str::to_owned).to_vec(), ..Variety::new(&[], contexts).of_own_model() }
}

pub(super) fn mlm() -> Variety {
    Variety::new(&[DOT, "data.context=16", "data.batch=2", "model.max_length=24", "data.evaluated=2", &data("text")], &[LONGEST])
}

pub(super) fn mlm_spans() -> Variety {
    let own = [DOT, "data.context=16", "data.batch=2", "model.max_length=24", "data.evaluated=2", "spans.density=0.5", &data("text")];
    Variety::new(&own, &[LONGEST])
}

pub(super) fn mt() -> Variety {
    let contexts: &'static [Context] = &[
        LONGEST,
        (&[], &["data.source='fr'", "data.target='fr'"]),
        (&["training.steps=60", "training.learning_rate=0.03"], &["bleu.effective_order"]),
    ];
    let choices: &'static [Context] =
        &[(&["bleu.smoothing={floor=0.1}"], &["bleu.smoothing"]), (&["bleu.smoothing={add-k=1.0}"], &["bleu.smoothing"])];
    let own = [DOT, "data.batch_tokens=16", "model.max_length=16", "decoding.extra_length=4", &data("pairs")];
    Variety { choices, ..Variety::new(&own, contexts).of_own_model() }
}

/// Few steps, so that some elements do not halt.
const HALTING: Context = (&["network.limit=2", "network.halting.bias=-2.0"], &["network.halting.remainder_at_limit"]);

pub(super) fn ponder() -> Variety {
    let own = ["run.models=[{name='act'}]", "data.train=8", "data.valid=2", "data.test=2", "data.batch=2", "network.units=4"];
    let choices: &'static [Context] = &[
        (&["data.task={kind='logic'}"], &["data.task"]),
        (&["data.task={kind='addition'}"], &["data.task"]),
        (&["data.task={kind='sort'}"], &["data.task"]),
    ];
    Variety { choices, own: own.map(str::to_owned).to_vec(), ..Variety::new(&[], &[HALTING]) }
}

const SEQUENCES: &[&str] = &[DOT, "run.models=[]", "data.batch=2", "data.train=8", "data.valid=2", "data.test=2", "model.max_length=512"];

pub(super) fn recall() -> Variety {
    let choices: &'static [Context] = &[
        (&["data.task={kind='in-context-recall'}"], &["data.task"]),
        (&["data.task={kind='noisy-recall'}"], &["data.task"]),
        (&["data.task={kind='fuzzy-recall'}"], &["data.task"]),
        (&["data.task={kind='memorise'}"], &["data.task"]),
        (&["data.task={kind='compress'}"], &["data.task"]),
        (&["data.task={kind='selective-copy'}"], &["data.task"]),
        (&["data.task={kind='induction'}"], &["data.task"]),
        (&["data.task={kind='needle'}"], &["data.task"]),
    ];
    Variety { choices, ..Variety::new(SEQUENCES, &[LONGEST]) }
}

pub(super) fn track() -> Variety {
    let choices: &'static [Context] =
        &[(&["data.task={kind='words'}"], &["data.task"]), (&["data.task={kind='modular-arithmetic'}"], &["data.task"])];
    Variety { choices, ..Variety::new(SEQUENCES, &[LONGEST]) }
}

pub(super) fn swap() -> Variety {
    Variety::new(
        &["run.attention=['uniform']", "start.steps=1", "data.context=32", "data.batch=2", "model.max_length=40", &data("text")],
        &[],
    )
}

pub(super) fn textgen() -> Variety {
    let own = [
        DOT,
        "data.tasks=['dialogue']",
        "data.generated_pairs=16",
        "data.test=2",
        "data.batch_tokens=4000",
        "data.turns=2",
        "decoding.extra_length=2",
        "decoding.beam=2",
        "model.max_length=32",
    ];
    Variety::new(&own, &[LONGEST])
}
