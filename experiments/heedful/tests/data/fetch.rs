//! `data fetch` as a person uses it: layout, verification, resumption after a crash, interruption.

use std::fs;
use std::io::{Cursor, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use heedful_host::checksum::sha256_hex;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::command::{Workplace, published, refused, stderr, succeeded};
use crate::server::{Server, content};

fn zip(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn the_licence_is_told_first_and_every_file_with_its_checksum() {
    let whole = content(5000);
    let server = Server::with_file(whole.clone());
    let unknown = format!("addresses = [\"{}\"]\nunverified = true\nsave_as = \"sub/b.bin\"", server.url("/other.bin"));
    let place = Workplace::new(&[published(&server.url("/a.bin"), &whole, ""), unknown]);
    let output = place.fetch(&[]).output().unwrap();
    let sum = sha256_hex(&whole);
    succeeded(
        &output,
        &["licence: CC0", &format!("small/a.bin: 5000 bytes, SHA-256 {sum} verified"), "small/sub/b.bin: the address is not verified"],
    );
    succeeded(&output, &[&format!("{sum} recorded, not verified")]);
    assert!(crate::command::stdout(&output).starts_with("small: a small set; licence"));
    assert_eq!(place.names(), ["a.bin", "fetched.json", "sub/b.bin"]);
    assert!(fs::read(place.root().join("sub/b.bin")).unwrap() == whole);
}

#[test]
fn what_is_there_is_not_fetched_again() {
    let (archive, whole) = (zip(&[("dir/a.txt", b"one"), ("dir/b.txt", b"two")]), content(3000));
    let (sent, other) = (archive.clone(), whole.clone());
    let server = Server::start(move |request, connection| {
        connection.file(request, if request.path == "/a.zip" { &sent } else { &other }, "1");
    });
    let recorded = format!("addresses = [\"{}\"]", server.url("/b.bin"));
    let place = Workplace::new(&[published(&server.url("/a.zip"), &archive, "unpack = \"zip\""), recorded]);
    succeeded(&place.fetch(&[]).output().unwrap(), &["verified, 2 files unpacked"]);
    assert_eq!(place.names(), ["b.bin", "dir/a.txt", "dir/b.txt", "fetched.json"], "the archive is gone");
    assert_eq!(server.requests().len(), 2);
    succeeded(&place.fetch(&[]).output().unwrap(), &["verified, was there, 2 files unpacked", "recorded, not verified, was there"]);
    assert_eq!(server.requests().len(), 2, "nothing was asked for");

    fs::remove_file(place.root().join("dir/b.txt")).unwrap();
    succeeded(&place.fetch(&[]).output().unwrap(), &["2 files unpacked"]);
    assert_eq!(fs::read(place.root().join("dir/b.txt")).unwrap(), b"two");
    assert_eq!(server.requests().len(), 3, "only what is missing was asked for");
}

#[test]
fn a_file_with_other_content_is_replaced_only_by_force() {
    let (archive, whole) = (zip(&[("dir/a.txt", b"one")]), content(3000));
    let (sent, other) = (archive.clone(), whole.clone());
    let server = Server::start(move |request, connection| {
        connection.file(request, if request.path == "/a.zip" { &sent } else { &other }, "1");
    });
    for (file, own) in [
        (published(&server.url("/b.bin"), &whole, ""), "b.bin"),
        (published(&server.url("/a.zip"), &archive, "unpack = \"zip\""), "dir/a.txt"),
    ] {
        let place = Workplace::new(&[file]);
        let path = place.root().join(own);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "mine").unwrap();
        refused(&place.fetch(&[]).output().unwrap(), 1, &[own, "--force"]);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        succeeded(&place.fetch(&["--force"]).output().unwrap(), &[]);
        assert_ne!(fs::read(&path).unwrap(), b"mine");
    }
}

#[test]
fn an_archive_is_kept_when_asked_and_unpacked_later_without_the_network() {
    let archive = zip(&[("a.txt", b"one")]);
    let server = Server::with_file(archive.clone());
    let place = Workplace::new(&[published(&server.url("/a.zip"), &archive, "unpack = \"zip\"")]);
    succeeded(&place.fetch(&["--no-unpack"]).output().unwrap(), &["small/a.zip"]);
    assert_eq!(place.names(), ["a.zip", "fetched.json"]);
    succeeded(&place.fetch(&[]).output().unwrap(), &["was there, 1 files unpacked"]);
    assert_eq!(place.names(), ["a.txt", "fetched.json"]);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn the_next_address_is_tried_when_one_does_not_have_the_file() {
    let whole = content(3000);
    let sent = whole.clone();
    let server = Server::start(move |request, connection| match request.path.as_str() {
        "/old/a.bin" => connection.answer("404 Not Found", &[], b""),
        "/changed/a.bin" => connection.file(request, b"something else", "1"),
        _ => connection.file(request, &sent, "1"),
    });
    let addresses = ["/old/a.bin", "/changed/a.bin", "/new/a.bin"].map(|path| format!("\"{}\"", server.url(path))).join(", ");
    let place = Workplace::new(&[format!("addresses = [{addresses}]\nsha256 = \"{}\"", sha256_hex(&whole))]);
    let output = place.fetch(&[]).output().unwrap();
    succeeded(&output, &["verified"]);
    assert!(stderr(&output).contains("404") && stderr(&output).contains("trying the next address"), "{}", stderr(&output));
}

#[test]
fn a_mirror_has_the_files_under_their_names() {
    let whole = content(3000);
    let server = Server::with_file(whole.clone());
    let gone = |path: &str| published(&format!("http://127.83.12.7:9{path}"), &whole, "");
    let place = Workplace::new(&[gone("/far/a.bin"), gone("/away/b.bin")]);
    succeeded(&place.fetch(&["--url", &server.url("/mirror/")]).output().unwrap(), &["a.bin", "b.bin"]);
    assert_eq!(server.requests().iter().map(|request| request.path.as_str()).collect::<Vec<_>>(), ["/mirror/a.bin", "/mirror/b.bin"]);
    let place = Workplace::new(&[gone("/far/a.bin")]);
    succeeded(&place.fetch(&["--url", &server.url("/x")]).output().unwrap(), &["a.bin"]);
    assert_eq!(server.requests().last().unwrap().path, "/x");
}

#[test]
fn a_part_of_a_data_set_is_fetched_alone() {
    let whole = content(3000);
    let server = Server::with_file(whole.clone());
    let part = |path: &str, part: &str| published(&server.url(path), &whole, &format!("part = \"{part}\""));
    let place = Workplace::new(&[part("/a.bin", "One"), part("/b.bin", "Two")]);
    succeeded(&place.fetch_named("small/two", &[]).output().unwrap(), &["b.bin"]);
    assert_eq!(place.names(), ["b.bin", "fetched.json"]);
}

/// A server that sends each client 50,000 bytes of a file and goes on once it may, and a data set with it.
fn halting(whole: &[u8]) -> (Server, Workplace, Arc<AtomicBool>) {
    let (sent, may_go_on) = (whole.to_vec(), Arc::new(AtomicBool::new(false)));
    let told = may_go_on.clone();
    let server = Server::start(move |request, connection| {
        let from = request.range().unwrap_or(0);
        let range = format!("bytes {from}-{}/{}", sent.len() - 1, sent.len());
        let status = if from == 0 { "200 OK" } else { "206 Partial Content" };
        let length = ("Content-Length", (sent.len() - from).to_string());
        let (first, rest) = sent[from..].split_at(50_000.min(sent.len() - from));
        connection.send(status, &[length, ("Content-Range", range), ("ETag", "\"1\"".to_string())], first);
        while !told.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(2));
        }
        connection.more(rest);
    });
    let place = Workplace::new(&[format!("addresses = [\"{}\"]", server.url("/a.bin"))]);
    (server, place, may_go_on)
}

/// Starts a command and waits until some bytes have arrived.
fn started(command: &mut Command, place: &Workplace) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let part = place.root().join("a.bin.part");
    let before = fs::metadata(&part).map_or(0, |metadata| metadata.len());
    while fs::metadata(&part).map_or(0, |metadata| metadata.len()) <= before {
        assert!(child.try_wait().unwrap().is_none(), "it ended before anything arrived");
        thread::sleep(Duration::from_millis(2));
    }
    child
}

#[test]
fn a_fetch_that_is_killed_goes_on_and_ends_with_the_same_file() {
    let whole = content(400_000);
    let (server, place, may_go_on) = halting(&whole);
    for _ in 0..3 {
        let mut child = started(&mut place.fetch(&[]), &place);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!place.root().join("a.bin").exists(), "it was killed before its end");
    }
    may_go_on.store(true, Ordering::SeqCst);
    succeeded(&place.fetch(&[]).output().unwrap(), &[&sha256_hex(&whole)]);
    assert!(fs::read(place.root().join("a.bin")).unwrap() == whole);
    assert_eq!(place.names(), ["a.bin", "fetched.json"], "nothing is left of the attempts");
    let ranges: Vec<Option<usize>> = server.requests().iter().map(|request| request.range()).collect();
    assert!(ranges[0].is_none() && ranges.is_sorted() && ranges[1..].iter().all(Option::is_some), "{ranges:?}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_keeps_what_arrived_and_exits_with_130() {
    let whole = content(300_000);
    for signal in ["-INT", "-TERM"] {
        let (server, place, may_go_on) = halting(&whole);
        let child = started(&mut place.fetch(&[]), &place);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{signal}: {}", stderr(&output));
        assert!(stderr(&output).contains("run the command again"), "{}", stderr(&output));
        let kept = fs::metadata(place.root().join("a.bin.part")).unwrap().len();
        assert!(kept > 0);
        may_go_on.store(true, Ordering::SeqCst);
        succeeded(&place.fetch(&[]).output().unwrap(), &[&sha256_hex(&whole)]);
        assert_eq!(server.requests()[1].range(), Some(kept as usize));
    }
}

#[test]
fn two_fetches_of_one_data_set_do_not_disturb_each_other() {
    let whole = content(300_000);
    let (_server, place, may_go_on) = halting(&whole);
    let child = started(&mut place.fetch(&[]), &place);
    refused(&place.fetch(&[]).output().unwrap(), 1, &[".fetching", "another process"]);
    may_go_on.store(true, Ordering::SeqCst);
    succeeded(&child.wait_with_output().unwrap(), &[&sha256_hex(&whole)]);
    succeeded(&place.fetch(&[]).output().unwrap(), &["was there"]);
}

#[test]
fn an_archive_that_would_do_harm_leaves_nothing_behind() {
    let archive = zip(&[("good.txt", b"1"), ("../../evil.txt", b"2")]);
    let server = Server::with_file(archive.clone());
    let place = Workplace::new(&[published(&server.url("/a.zip"), &archive, "unpack = \"zip\"")]);
    refused(&place.fetch(&[]).output().unwrap(), 1, &["a.zip", "../../evil.txt"]);
    assert_eq!(place.names(), ["a.zip"]);
    assert!(!place.folder.path().join("evil.txt").exists() && !place.folder.path().join("data/evil.txt").exists());
}

#[test]
fn what_a_killed_process_left_of_unpacking_is_cleared_away() {
    let archive = zip(&[("a.txt", b"one")]);
    let server = Server::with_file(archive.clone());
    let place = Workplace::new(&[published(&server.url("/a.zip"), &archive, "unpack = \"zip\"")]);
    fs::create_dir_all(place.root().join(".unpacking/half")).unwrap();
    fs::write(place.root().join(".unpacking/a.txt"), "o").unwrap();
    succeeded(&place.fetch(&[]).output().unwrap(), &["1 files unpacked"]);
    assert_eq!(place.names(), ["a.txt", "fetched.json"]);
}

/// The configuration of the encoder all-MiniLM-L6-v2, as it is published.
const CONFIG: &str = r#"{
  "_name_or_path": "nreimers/MiniLM-L6-H384-uncased",
  "architectures": [
    "BertModel"
  ],
  "attention_probs_dropout_prob": 0.1,
  "gradient_checkpointing": false,
  "hidden_act": "gelu",
  "hidden_dropout_prob": 0.1,
  "hidden_size": 384,
  "initializer_range": 0.02,
  "intermediate_size": 1536,
  "layer_norm_eps": 1e-12,
  "max_position_embeddings": 512,
  "model_type": "bert",
  "num_attention_heads": 12,
  "num_hidden_layers": 6,
  "pad_token_id": 0,
  "position_embedding_type": "absolute",
  "transformers_version": "4.8.2",
  "type_vocab_size": 2,
  "use_cache": true,
  "vocab_size": 30522
}
"#;

#[test]
fn a_pretrained_model_is_fetched_by_the_checksums_of_its_files() {
    let server = Server::start(|request, connection| match request.path.as_str() {
        "/config.json" => connection.file(request, CONFIG.as_bytes(), "1"),
        _ => connection.file(request, &[b'x'; 466_247], "1"),
    });
    let folder = tempfile::tempdir().unwrap();
    let mut command = crate::command::data();
    command.args(["fetch", "all-minilm-l6-v2", "--retries", "0", "--url", &server.url("/")]).arg("--out").arg(folder.path());
    let output = command.output().unwrap();
    refused(&output, 1, &["tokenizer.json", "be50c3628f2bf5bb"]);
    let said = crate::command::stdout(&output);
    assert!(said.contains("licence: Apache-2.0") && said.contains("config.json: 612 bytes") && said.contains(" verified"), "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("all-minilm-l6-v2/config.json")).unwrap(), CONFIG);
    assert!(!folder.path().join("all-minilm-l6-v2/tokenizer.json").exists());
    let asked: Vec<_> = server.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(asked, ["/config.json", "/tokenizer.json"]);
}
