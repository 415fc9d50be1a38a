//! `data check`: what a folder holds, which experiment can use it, and what is wrong with it.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::command::{data, refused, stdout, succeeded};

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

fn check(folder: &Path) -> std::process::Output {
    data().arg("check").arg(folder).output().unwrap()
}

const RTE: &str = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n";

#[test]
fn every_data_set_of_a_folder_is_found_with_its_counts_and_its_experiment() {
    let babi = b"1 Mary moved to the hall.\n2 Where is Mary?\thall\t1\n";
    let folder = folder(&[
        ("pairs/raw/train.en", b"a\nb\n"),
        ("pairs/raw/train.de", b"A\nB\n"),
        ("pairs/raw/val.en", b"c\n"),
        ("pairs/raw/val.de", b"C\n"),
        ("pairs/raw/test_x.en", b"d\n"),
        ("pairs/raw/test_x.de", b"D\n"),
        ("ptb/ptb.train.txt", b"a b\nc\n"),
        ("ptb/ptb.valid.txt", b"a\n"),
        ("ptb/ptb.test.txt", b"a\n"),
        ("glue/RTE/train.tsv", RTE.as_bytes()),
        ("glue/RTE/dev.tsv", RTE.as_bytes()),
        ("glue/RTE/readme.txt", b"about"),
        ("babi/qa1_a_train.txt", babi),
        ("babi/qa1_a_test.txt", babi),
        ("listops/test_d20s.tsv", b"9\t( ( ( [MAX 9 ) 1 ) ] )\n"),
        ("lra-listops/basic_test.tsv", b"Source\tTarget\n( ( ( [MAX 9 ) 1 ) ] )\t9\n"),
        ("text8/text8", " anarchism originated as a term of abuse first used against early working class radicals".repeat(4).as_bytes()),
        ("odd/picture.jpeg", b"x"),
        ("odd/notes.txt", b"a\nb\n"),
        (".hidden/ptb.train.txt", b"\xff"),
    ]);
    let output = check(folder.path());
    succeeded(
        &output,
        &[
            "pairs/raw: parallel text de-en: train 2, validation 1, test_x 1 pairs; 0 with an empty side left out; for mt",
            "ptb: text: train 2, valid 1, test 1 lines",
            "for lm",
            "glue/RTE: GLUE RTE: train 1, dev 1 examples; for glue --task RTE",
            "babi: bAbI: 2 questions of 1 tasks, without task 2",
            "/listops: ListOps: no training, no validation and 1 test expressions",
            "lra-listops: ListOps: no training, no validation and 1 test expressions; for algorithmic (list-ops)",
            "text8: text: train 1, valid 1, test 1 lines",
            "odd: nothing that an experiment reads",
        ],
    );
    assert!(!stdout(&output).contains("hidden"), "{}", stdout(&output));
    assert_eq!(stdout(&output).lines().count(), 8);
    // The folder of one data set is as good as the folder of all.
    succeeded(&check(&folder.path().join("glue/RTE")), &["GLUE RTE: train 1"]);
}

#[test]
fn original_files_in_several_folders_are_one_data_set() {
    // The SHA-1 of `http://a/1` and so on.
    let story = b"One .\n\n@highlight\n\nTwo\n";
    let set = b"<doc docid=\"1\">\n<seg id=\"1\"> one </seg>\n</doc>\n";
    let folder = folder(&[
        ("lm1b/training-monolingual.tokenized.shuffled/news.en-00001-of-00100", b"a .\n"),
        ("lm1b/heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050", b"b .\n"),
        ("lm1b/heldout-monolingual.tokenized.shuffled/news.en.heldout-00001-of-00050", b"c .\n"),
        ("lambada/train-novels/Mystery/novel.txt", b"a b\n"),
        ("lambada/lambada_development_plain_text.txt", b"a b\n"),
        ("lambada/lambada_test_plain_text.txt", b"a b\n"),
        ("lambada/lambada-vocab-2.txt", b"a\t1\n"),
        ("talks/train.tags.en-de.en", b"<title>T</title>\none\n"),
        ("talks/train.tags.en-de.de", b"<title>T</title>\neins\n"),
        ("talks/IWSLT17.TED.dev2010.en-de.en.xml", set),
        ("talks/IWSLT17.TED.dev2010.en-de.de.xml", set),
        ("talks/IWSLT17.TED.tst2010.en-de.en.xml", set),
        ("talks/IWSLT17.TED.tst2010.en-de.de.xml", set),
        ("news/cnn/stories/1feefadbc173033154263b26347149f56aa664d6.story", story),
        ("news/cnn/stories/9474a573557ba1c213807a208f5565e6d591e1e5.story", story),
        ("news/dailymail/stories/c465d0b7f8a0a5aba0486556171d1fdaf465d851.story", story),
        ("news/url_lists/all_train.txt", b"http://a/1\n"),
        ("news/url_lists/all_val.txt", b"http://a/2\n"),
        ("news/url_lists/all_test.txt", b"http://a/3\n"),
    ]);
    let output = check(folder.path());
    succeeded(
        &output,
        &[
            "lm1b: text: train 1, valid 1, test 1 lines (as distributed: 1 of 99 training files",
            "lambada: text: train 1, valid 1, test 1 lines (as distributed: 1 novels",
            "talks: parallel text de-en: train 1, validation 1, TED.tst2010 1 pairs",
            "news: documents and summaries: train 1, validation 1, test 1 pairs (as listed: all_train.txt",
            "for textgen --task summary",
        ],
    );
    assert_eq!(stdout(&output).lines().count(), 4, "{}", stdout(&output));
}

#[test]
fn what_is_broken_is_named_with_file_and_line_and_the_exit_code_is_1() {
    let wrong = format!("{RTE}1\ta\tb\tperhaps\n");
    for (files, parts) in [
        (vec![("RTE/train.tsv", wrong.as_bytes()), ("RTE/dev.tsv", RTE.as_bytes())], ["train.tsv", "line 3", "perhaps"]),
        (
            vec![("t/train.en", b"a\nb\n".as_slice()), ("t/train.de", b"A\n"), ("t/val.en", b"a\n"), ("t/val.de", b"A\n")],
            ["train.en` has 2", "train.de` has 1", "broken"],
        ),
        (
            vec![("t/a.train.txt", b"a\n\xff\n".as_slice()), ("t/a.valid.txt", b"a\n"), ("t/a.test.txt", b"a\n")],
            ["a.train.txt", "line 2", "UTF-8"],
        ),
        (vec![("l/test_d20s.tsv", b"8\t( ( [MAX 9 ) ] )\n".as_slice())], ["test_d20s.tsv", "line 1", "broken"]),
        (
            vec![("p/ptb.train.txt.gz", b"no gzip".as_slice()), ("p/ptb.valid.txt", b"a\n"), ("p/ptb.test.txt", b"a\n")],
            ["ptb.train.txt.gz", "gzip", "broken"],
        ),
    ] {
        let folder = folder(&files);
        let output = check(folder.path());
        refused(&output, 1, &["1 of 1 data sets are broken"]);
        assert!(parts.iter().all(|part| stdout(&output).contains(part)), "{parts:?}: {}", stdout(&output));
    }
}

#[test]
fn a_part_that_is_not_there_is_incomplete_and_no_failure() {
    let babi = b"1 Mary moved to the hall.\n2 Where is Mary?\thall\t1\n";
    let folder =
        folder(&[("t/train.en", b"a\n"), ("t/train.de", b"A\n"), ("RTE/train.tsv", RTE.as_bytes()), ("babi/qa1_a_train.txt", babi)]);
    let output = check(folder.path());
    succeeded(&output, &["val.de or valid.de or dev.de", "dev set of RTE", "qa1_..._test.txt"]);
    assert_eq!(stdout(&output).matches("incomplete").count(), 3);
    assert_eq!(stdout(&output).lines().count(), 3, "what is of a task is not taken for a text: {}", stdout(&output));
}

#[test]
fn the_name_of_a_data_set_stands_for_its_folder_where_fetch_puts_it() {
    let folder =
        folder(&[("data/RTE/train.tsv", RTE.as_bytes()), ("data/ptb/ptb.train.txt", b"a\n"), ("text8/text8", &b"a b ".repeat(40))]);
    let of = |name: &str| data().args(["check", name]).current_dir(folder.path()).output().unwrap();
    succeeded(&of("ptb"), &["data/ptb: text: incomplete"]);
    succeeded(&of("text8"), &["text8: text: train 1"]);
    refused(&of("glue/CoLA"), 1, &["`glue/CoLA`", "`data/glue/CoLA`", "data fetch glue"]);
    refused(&of("RTE"), 1, &["`RTE` does not exist"]);
}

#[test]
fn a_report_is_also_json() {
    let folder = folder(&[("RTE/train.tsv", RTE.as_bytes()), ("RTE/dev.tsv", RTE.as_bytes()), ("odd/x.jpeg", b"x")]);
    let output = data().args(["check", "--json"]).arg(folder.path()).output().unwrap();
    succeeded(&output, &[]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let finding = &report["findings"][0];
    assert_eq!((finding["state"].as_str(), finding["used_by"].as_str()), (Some("usable"), Some("glue --task RTE")));
    assert_eq!(finding["sha256"].as_str().map(str::len), Some(64));
    assert!(report["unread"][0].as_str().unwrap().ends_with("odd"));
}

#[test]
fn a_folder_that_is_not_there_is_a_failure_and_an_empty_one_is_not() {
    let folder = folder(&[]);
    refused(&check(&folder.path().join("nowhere")), 1, &["nowhere"]);
    succeeded(&check(folder.path()), &[]);
}
