//! Readers of data under damaged files: each returns data or an error, never panics, ends, and takes memory in proportion to the files.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;
use heedful_data::word_vectors::WordVectors;
use heedful_data::{GlueData, GlueTask, LabelledTexts, ParallelCorpus, TextCorpus, babi, dialogue, images, list_ops, summary, synonyms};
use heedful_random::RandomKey;
use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tar::{EntryType, Header};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;
/// The peak is that of the whole process, so that one reader runs at a time.
static MEASURED: Mutex<()> = Mutex::new(());

const CASES: u32 = 300;
/// Bytes that a reader may allocate for a byte of its files, and whatever they hold. A dialogue repeats its facts in each of at most 100 exchanges.
const PER_BYTE: usize = 400;
const WHATEVER: usize = 1 << 20;

/// What formats are made of, and what breaks them.
const FRAGMENTS: [&[u8]; 26] = [
    b"\t",
    b"\n",
    b"\r\n",
    b"\"",
    b"\"\"",
    b",",
    b" ",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"0",
    b"-1",
    b"1",
    b"99999999999999999999",
    b"1e400",
    b"null",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    "\u{2028}".as_bytes(),
    "ß".as_bytes(),
];

/// One way of damaging a file; places are shares of its length.
#[derive(Clone, Debug)]
enum Damage {
    Cut { at: f64 },
    Remove { at: f64, length: usize },
    Insert { at: f64, fragment: usize, times: usize },
    Overwrite { at: f64, byte: u8 },
    Repeat { at: f64, length: usize, times: usize },
}

impl Damage {
    fn any() -> impl Strategy<Value = Self> {
        let at = 0.0..1.0f64;
        prop_oneof![
            1 => at.clone().prop_map(|at| Self::Cut { at }),
            2 => (at.clone(), 1..40usize).prop_map(|(at, length)| Self::Remove { at, length }),
            4 => (at.clone(), 0..FRAGMENTS.len(), 1..3usize).prop_map(|(at, fragment, times)| Self::Insert { at, fragment, times }),
            1 => (at.clone(), 0..FRAGMENTS.len(), 500..2000usize).prop_map(|(at, fragment, times)| Self::Insert { at, fragment, times }),
            3 => (at.clone(), any::<u8>()).prop_map(|(at, byte)| Self::Overwrite { at, byte }),
            2 => (at, 1..200usize, 1..30usize).prop_map(|(at, length, times)| Self::Repeat { at, length, times }),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |at: f64| (at * bytes.len() as f64) as usize;
        match *self {
            Self::Cut { at } => bytes.truncate(place(at)),
            Self::Remove { at, length } => {
                let start = place(at);
                bytes.drain(start..bytes.len().min(start + length));
            }
            Self::Insert { at, fragment, times } => {
                let start = place(at);
                bytes.splice(start..start, FRAGMENTS[fragment].repeat(times));
            }
            Self::Overwrite { at, byte } => {
                let index = place(at);
                if let Some(old) = bytes.get_mut(index) {
                    *old = byte;
                }
            }
            Self::Repeat { at, length, times } => {
                let start = place(at);
                let piece = bytes[start..bytes.len().min(start + length)].repeat(times);
                bytes.splice(start..start, piece);
            }
        }
    }
}

/// Files by their names.
type Files<'a> = [(&'a str, Vec<u8>)];

fn written(dir: &Path, files: &Files) {
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Reads the files as they are, which succeeds, and damaged in many ways.
fn survives<T, E: std::error::Error>(files: &Files, read: impl Fn(&Path) -> Result<T, E>) {
    let _measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let whole = tempfile::tempdir().unwrap();
    written(whole.path(), files);
    if let Err(error) = read(whole.path()) {
        panic!("the undamaged files are not read: {error}");
    }
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let (refused, accepted) = (Mutex::new(0), Mutex::new(0));
    let damages = prop::collection::vec((0..files.len(), Damage::any()), 1..4);
    let outcome = runner.run(&damages, |damages| {
        let mut damaged = files.to_vec();
        for (file, damage) in &damages {
            damage.apply(&mut damaged[*file].1);
        }
        let dir = tempfile::tempdir().unwrap();
        written(dir.path(), &damaged);
        let bytes: usize = damaged.iter().map(|(_, bytes)| bytes.len()).sum();
        ALLOCATED.reset_peak_usage();
        let before = ALLOCATED.current_usage();
        let counter = match read(dir.path()) {
            Ok(_) => &accepted,
            Err(error) => {
                prop_assert!(!error.to_string().is_empty());
                &refused
            }
        };
        let taken = ALLOCATED.peak_usage().saturating_sub(before);
        prop_assert!(taken <= WHATEVER + PER_BYTE * bytes, "{taken} bytes for {bytes} of files");
        *counter.lock().unwrap() += 1;
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    // Damage that is never noticed, or always, would not get far into a reader.
    let (refused, accepted) = (refused.into_inner().unwrap(), accepted.into_inner().unwrap());
    assert!(refused > CASES / 20 && accepted > 0, "{refused} refused, {accepted} accepted");
}

fn text(lines: &str) -> Vec<u8> {
    lines.as_bytes().to_vec()
}

#[test]
#[should_panic(expected = "bytes for")]
fn a_reader_that_takes_too_much_memory_is_found() {
    let files = [("a.txt", text("a b c\n"))];
    survives(&files, |_| {
        // Written, for memory that is never touched could be optimised away.
        let much = std::hint::black_box(vec![1u8; 64 << 20]);
        let touched = much.contains(&2);
        if touched { Err(std::io::Error::other("no")) } else { Ok(()) }
    });
}

#[test]
#[should_panic(expected = "a reader that panics")]
fn a_reader_that_panics_is_found() {
    survives(&[("a.txt", text("a b c\n"))], |dir| {
        let bytes = fs::read(dir.join("a.txt"))?;
        assert!(bytes.len() < 1000, "a reader that panics");
        std::io::Result::Ok(())
    });
}

#[test]
fn parallel_text() {
    let side = |word: &str| text(&format!("{word} one\n{word} two\n{word} three .\n"));
    let files = [
        ("train.en", side("a")),
        ("train.de", side("ä")),
        ("val.en", side("b")),
        ("val.de", side("ö")),
        ("test.en", side("c")),
        ("test.de", side("ü")),
    ];
    survives(&files, |dir| ParallelCorpus::read(dir, "en", "de"));
}

#[test]
fn running_text() {
    let files = [("a.train.txt", text("a b\n\nc d e\n")), ("a.valid.txt", text("a\n")), ("a.test.txt", text("b\n"))];
    survives(&files, TextCorpus::read);
    survives(&[("input.txt", text(&"some words on a line\n".repeat(40)))], TextCorpus::read);
    survives(&[("text8", text(&"some words on a line ".repeat(40)))], TextCorpus::read);
}

#[test]
fn text_of_the_billion_words_and_of_lambada() {
    let files = [
        ("training-monolingual.tokenized.shuffled/news.en-00001-of-00100", text("a b .\nc d .\n")),
        ("heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050", text("a .\n")),
        ("heldout-monolingual.tokenized.shuffled/news.en.heldout-00001-of-00050", text("b .\n")),
    ];
    survives(&files, TextCorpus::read);
    let files = [
        ("train-novels/A/a.txt", text("one two\nthree\n")),
        ("lambada_development_plain_text.txt", text("a b a\nc d c\n")),
        ("lambada_test_plain_text.txt", text("e f e\n")),
    ];
    survives(&files, TextCorpus::read);
}

#[test]
fn talks_of_iwslt() {
    let train = text("<url>u</url>\n<title>T</title>\n one .\n two .\n");
    let set = text("<doc docid=\"1\">\n<seg id=\"1\"> one &amp; two </seg>\n<seg id=\"2\"> three </seg>\n</doc>\n");
    let files = [
        ("train.tags.en-de.en", train.clone()),
        ("train.tags.en-de.de", train),
        ("IWSLT17.TED.dev2010.en-de.en.xml", set.clone()),
        ("IWSLT17.TED.dev2010.en-de.de.xml", set.clone()),
        ("IWSLT17.TED.tst2010.en-de.en.xml", set.clone()),
        ("IWSLT17.TED.tst2010.en-de.de.xml", set),
    ];
    survives(&files, |dir| ParallelCorpus::read(dir, "en", "de"));
}

#[test]
fn compressed_text() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all("some words on a line\n".repeat(40).as_bytes()).unwrap();
    survives(&[("input.txt.gz", encoder.finish().unwrap())], TextCorpus::read);
}

#[test]
fn tables_of_glue() {
    let cola = text("gj04\t1\t\tThey left.\ngj04\t0\t*\tLeft they a.\n");
    survives(&[("train.tsv", cola.clone()), ("dev.tsv", cola)], |dir| GlueData::read(dir, GlueTask::Cola));
    let rte =
        text("index\tsentence1\tsentence2\tlabel\n0\tIt \"rains.\tIt is wet.\tentailment\n1\tIt snows.\tIt is hot.\tnot_entailment\n");
    survives(&[("train.tsv", rte.clone()), ("dev.tsv", rte)], |dir| GlueData::read(dir, GlueTask::Rte));
    let scores = text("index\tsentence1\tsentence2\tscore\n0\tA dog.\tA cat.\t1.250\n1\tA.\tA.\t5.000\n");
    survives(&[("train.tsv", scores.clone()), ("dev.tsv", scores)], |dir| GlueData::read(dir, GlueTask::StsB));
}

#[test]
fn lines_of_super_glue() {
    let lines = [
        (GlueTask::BoolQ, r#"{"question": "is it wet", "passage": "Water -- It is.", "idx": 4, "label": true}"#),
        (GlueTask::Copa, r#"{"premise": "It rained.", "choice1": "Wet.", "choice2": "Dry.", "question": "effect", "label": 1, "idx": 4}"#),
        (
            GlueTask::Wic,
            r#"{"word": "class", "sentence1": "A real class.", "sentence2": "Naïve classes met.", "idx": 4, "label": false,
                "start1": 7, "start2": 6, "end1": 12, "end2": 13, "version": 1.1}"#,
        ),
        (
            GlueTask::Wsc,
            r#"{"text": "The dog saw Bo, and he ran.", "idx": 4, "label": true,
                "target": {"span1_index": 3, "span1_text": "Bo", "span2_index": 5, "span2_text": "he"}}"#,
        ),
        (
            GlueTask::MultiRc,
            r#"{"idx": 9, "version": 1.1, "passage": {"text": "Ann ran.", "questions": [
                {"question": "Who ran?", "idx": 5, "answers": [{"text": "Ann", "idx": 1, "label": 1}, {"text": "Bo", "idx": 2, "label": 0}]}]}}"#,
        ),
        (
            GlueTask::Record,
            r#"{"source": "CNN", "idx": 8, "passage": {"text": "Zoë met Bo\n@highlight\nBo stayed", "entities": [{"start": 0, "end": 2}, {"start": 8, "end": 9}]},
                "qas": [{"query": "@placeholder went.", "idx": 7, "answers": [{"start": 0, "end": 2, "text": "Zoë"}]}]}"#,
        ),
    ];
    for (task, line) in lines {
        let line = line.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
        let file = text(&format!("{line}\n{line}\n"));
        survives(&[("train.jsonl", file.clone()), ("val.jsonl", file)], |dir| GlueData::read(dir, task));
    }
}

#[test]
fn labelled_texts() {
    let read = |dir: &Path| LabelledTexts::read(dir, &RandomKey::from_seed(0));
    let csv = text(&"\"1\",\"A title\",\"A \"\"long\"\" text\"\n\"2\",\"Other\",\"Other text, too\"\n".repeat(6));
    survives(&[("train.csv", csv.clone()), ("test.csv", csv), ("classes.txt", text("World\nSports\n"))], read);
    let lines = text(&"0\tthe plot is thin\n1\tone cannot look away\n".repeat(6));
    survives(&[("train.tsv", lines.clone()), ("test.tsv", lines)], read);
    let questions = text(&"DESC:manner How did it end ?\nNUM:count How many are there ?\n".repeat(6));
    survives(&[("train_5500.label", questions.clone()), ("TREC_10.label", questions)], read);
}

#[test]
fn dialogues() {
    let lines = "1 your persona: i have two dogs.\n2 your persona: i sing.\n3 hi !\thello .\n4 what do you do ?\ti sing .\t\ta|b\n";
    let files = [("valid_self_original_no_cands.txt", text(&lines.repeat(20)))];
    survives(&files, |dir| dialogue::read(dir, dialogue::USUAL_KIND, 3));
}

#[test]
fn documents_and_summaries() {
    let table = text(&"A long text . It goes on .\tA text .\n".repeat(20));
    survives(&[("train.tsv", table.clone()), ("valid.tsv", table.clone()), ("test.tsv", table)], summary::read);
    // The SHA-1 of `http://a/1` and so on.
    let story = text("One .\n\nTwo .\n\n@highlight\n\nOne and two\n");
    let files = [
        ("cnn/stories/1feefadbc173033154263b26347149f56aa664d6.story", story.clone()),
        ("cnn/stories/9474a573557ba1c213807a208f5565e6d591e1e5.story", story.clone()),
        ("cnn/stories/c465d0b7f8a0a5aba0486556171d1fdaf465d851.story", story),
        ("all_train.txt", text("http://a/1\n")),
        ("all_val.txt", text("http://a/2\n")),
        ("all_test.txt", text("http://a/3\n")),
    ];
    survives(&files, summary::read);
}

#[test]
fn stories_of_babi() {
    let story = text(&"1 Mary moved to the hall.\n2 John sat.\n3 Where is Mary? \thall\t1\n".repeat(12));
    let files = [("qa1_single_train.txt", story.clone()), ("qa1_single_test.txt", story)];
    survives(&files, |dir| babi::read(dir, "en", 1));
}

#[test]
fn expressions_of_list_ops() {
    let original = text(&"9\t( ( ( [MAX 9 ) 1 ) ] )\n1\t( ( ( [SM 6 ) 5 ) ] )\n".repeat(5));
    survives(&[("train_d20s.tsv", original.clone()), ("test_d20s.tsv", original)], list_ops::read);
    let arena = text("Source\tTarget\n( ( ( [MAX 9 ) 1 ) ] )\t9\n3\t3\n");
    survives(&[("basic_train.tsv", arena.clone()), ("basic_val.tsv", arena.clone()), ("basic_test.tsv", arena)], list_ops::read);
}

#[test]
fn vectors_of_words() {
    let vectors = text("the 0.1 -0.2 3e-1\nof 1 2 3\nand -1 -2 -3\n");
    survives(&[("vectors.txt", vectors)], |dir| WordVectors::read(&dir.join("vectors.txt")));
}

#[test]
fn sets_of_synonyms() {
    survives(&[("synonyms.txt", text("big vast\ncar auto\nwalk go\n"))], |dir| synonyms::read(&dir.join("synonyms.txt")));
}

#[test]
fn images_of_mnist_and_cifar() {
    let header = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let pixels = [header(&[2051, 12, 3, 3]), (0..108).collect()].concat();
    let labels = [header(&[2049, 12]), (0..12).map(|index| index % 3).collect()].concat();
    let files = [
        ("train-images-idx3-ubyte", pixels.clone()),
        ("train-labels-idx1-ubyte", labels.clone()),
        ("t10k-images-idx3-ubyte", pixels),
        ("t10k-labels-idx1-ubyte", labels),
    ];
    survives(&files, images::read);
    let records = |count: u8| (0..count).flat_map(|label| [vec![label], vec![label; 3072]].concat()).collect::<Vec<u8>>();
    survives(&[("data_batch_1.bin", records(10)), ("test_batch.bin", records(2))], images::read);
}

#[test]
fn images_of_imagenet_and_celeba() {
    let png = |value: u8| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 3, 2);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&[value; 18]).unwrap();
        bytes
    };
    let files = [
        ("list_eval_partition.txt", text("1.jpg 0\n2.jpg 1\n3.jpg 2\n")),
        ("img_align_celeba/1.png", png(1)),
        ("img_align_celeba/2.png", png(2)),
        ("img_align_celeba/3.png", png(3)),
    ];
    survives(&files, images::read);
    let npz = |count: usize| {
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        writer.start_file("data.npy", zip::write::SimpleFileOptions::default()).unwrap();
        let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({count}, 12), }}\n");
        let length = (header.len() as u16).to_le_bytes();
        writer.write_all(&[b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &vec![7; 12 * count]].concat()).unwrap();
        writer.finish().unwrap().into_inner()
    };
    survives(&[("train_data_batch_1.npz", npz(12)), ("val_data.npz", npz(2))], images::read);
}

/// A gzip file of so many megabytes that are all the same byte, after a beginning.
fn megabytes(beginning: &[u8], byte: u8, count: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(beginning).unwrap();
    let megabyte = vec![byte; 1_000_000];
    for _ in 0..count {
        encoder.write_all(&megabyte).unwrap();
    }
    encoder.finish().unwrap()
}

/// A header of a tar archive.
fn tar_header(name: &str, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_path(name).unwrap();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    header
}

/// Asserts that a file that stands for many more bytes than it has is refused with these parts, and takes no more than 64 MiB.
#[track_caller]
fn defused<T, E: std::error::Error>(files: &Files, parts: &[&str], read: impl Fn(&Path) -> Result<T, E>) {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), files);
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    let Err(error) = read(dir.path()) else { panic!("the bomb is read") };
    let taken = ALLOCATED.peak_usage().saturating_sub(before);
    let message = error.to_string();
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    assert!(taken <= 64 << 20, "{taken} bytes: {message}");
}

#[test]
fn compressed_files_that_hold_more_than_is_plausible_are_refused_within_their_limit() {
    let _measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = RandomKey::from_seed(1);
    let limit = ["more than 16000000 bytes", "decompress it first"];
    defused(&[("input.txt.gz", megabytes(b"a b\n", b'a', 30))], &[limit[0], limit[1], "input.txt.gz"], TextCorpus::read);
    // Few bytes, but a string for each of them.
    defused(&[("input.txt.gz", megabytes(b"a b\n", b'\n', 12))], &limit, TextCorpus::read);
    defused(&[("train_5500.label.gz", megabytes(b"A:b \xf0\n", b'a', 30)), ("TREC_10.label", text("A:b x\n"))], &limit, |dir| {
        LabelledTexts::read(dir, &key)
    });
    let header = [2051_u32, 10_000, 100, 300].map(u32::to_be_bytes).concat();
    let labels = [&2049_u32.to_be_bytes()[..], &[0, 0, 0, 1, 7]].concat();
    let names = ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];
    let idx = [megabytes(&header, 0, 30), labels.clone(), [&[0, 0, 8, 3][..], &[0, 0, 0, 1].repeat(3), &[9]].concat(), labels];
    let idx: Vec<_> = names.into_iter().zip(idx).collect();
    defused(&idx, &limit, images::read);
}

#[test]
fn archives_that_hold_more_than_is_plausible_are_refused_within_their_limit() {
    let _measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = RandomKey::from_seed(1);
    let entry = |name: &str| {
        let mut header = tar_header(name, EntryType::Regular, 30_000_000);
        header.set_cksum();
        megabytes(header.as_bytes(), b'a', 30)
    };
    let limit = ["more than 16000000 bytes", "unpack it and give the folder"];
    defused(&[("a.tar.gz", entry("tasks/en/qa1_x_train.txt"))], &limit, |dir| babi::read(dir, "en", 1));
    defused(&[("a.tar.gz", entry("aclImdb/train/pos/0_9.txt"))], &limit, |dir| LabelledTexts::read(dir, &key));
    // What is passed over counts as well.
    defused(&[("a.tar.gz", entry("aclImdb/README"))], &limit, |dir| LabelledTexts::read(dir, &key));
}

#[test]
fn sparse_files_of_archives_are_refused_whatever_length_they_claim() {
    let _measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = RandomKey::from_seed(1);
    let old = |name: &str| {
        let mut header = tar_header(name, EntryType::GNUSparse, 0);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.set_real_size(3 << 30);
        gnu.sparse[0].offset = *b"30000000000\0";
        gnu.sparse[0].numbytes = [b'0'; 12];
        header.set_cksum();
        [header.as_bytes().as_slice(), &[0; 1_024]].concat()
    };
    let pax = |name: &str| {
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_pax_extensions([("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.realsize", b"3221225472")]).unwrap();
        let mut header = tar_header(name, EntryType::Regular, 4);
        header.set_cksum();
        builder.append(&header, &b"0\n0\n"[..]).unwrap();
        builder.into_inner().unwrap()
    };
    let (task, review) = ("tasks/en/qa1_x_train.txt", "aclImdb/train/pos/0_9.txt");
    let refusal = ["sparse file", "unpack it"];
    for (task, review) in [(old(task), old(review)), (pax(task), pax(review))] {
        let [task, review] = [task, review].map(|bytes| megabytes(&bytes, 0, 0));
        assert!(task.len() < 250, "{}", task.len());
        defused(&[("a.tar.gz", task)], &[&refusal[..], &["qa1_x_train.txt"]].concat(), |dir| babi::read(dir, "en", 1));
        defused(&[("a.tar.gz", review)], &[&refusal[..], &["0_9.txt"]].concat(), |dir| LabelledTexts::read(dir, &key));
    }
}
