//! A file arrives whole or not at all, whatever a server does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use heedful_data::catalogue::download::{DownloadError, Downloaded, MOST_BYTES, Patience, Wanted, download};
use heedful_host::checksum::sha256_hex;
use heedful_host::interrupt::Interrupt;
use indicatif::ProgressBar;
use tempfile::TempDir;

use crate::server::{Connection, Request, Server, content};

/// The place of the file on every server.
const FILE: &str = "/file.bin";

/// Longer than any machine needs for an answer of its own, however busy it is.
const PATIENCE: Patience = Patience { timeout: Duration::from_secs(60), retries: 2, pause: Duration::from_millis(10) };

/// For servers that fall silent.
const IMPATIENCE: Patience = Patience { timeout: Duration::from_millis(250), ..PATIENCE };

/// A folder and what is asked for.
struct Client {
    folder: TempDir,
    bytes: Option<u64>,
    sha256: Option<String>,
    most: u64,
    patience: Patience,
}

impl Client {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), bytes: None, sha256: None, most: MOST_BYTES, patience: PATIENCE }
    }

    fn expecting(content: &[u8]) -> Self {
        Self { bytes: Some(content.len() as u64), sha256: Some(sha256_hex(content)), ..Self::new() }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("file.bin")
    }

    fn get(&self, address: &str) -> Result<Downloaded, DownloadError> {
        self.get_until(address, &Interrupt::new())
    }

    fn get_until(&self, address: &str, interrupt: &Interrupt) -> Result<Downloaded, DownloadError> {
        let wanted = Wanted { address, target: &self.target(), bytes: self.bytes, sha256: self.sha256.as_deref(), most: self.most };
        download(wanted, self.patience, interrupt, &ProgressBar::hidden())
    }

    /// Asserts that the file arrives from a server with this content, and that nothing else is left.
    #[track_caller]
    fn receives(&self, server: &Server, content: &[u8]) -> Downloaded {
        let downloaded = self.get(&server.url(FILE)).unwrap();
        assert!(fs::read(self.target()).unwrap() == content, "the file has other bytes");
        assert_eq!(self.names(), ["file.bin"], "nothing else is left");
        downloaded
    }

    /// Leaves a part as an earlier process would.
    fn leave_part(&self, bytes: &[u8], address: &str, version: &str) {
        fs::write(self.target().with_extension("bin.part"), bytes).unwrap();
        let origin = format!("{{\"address\": \"{address}\", \"etag\": \"\\\"{version}\\\"\", \"last_modified\": null}}");
        fs::write(self.target().with_extension("bin.part.json"), origin).unwrap();
    }

    fn names(&self) -> Vec<String> {
        names(self.folder.path())
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// So many bytes, and a server that sends them as `answer` does.
fn served(length: usize, answer: impl Fn(&Request, &mut Connection, &[u8]) + Send + Sync + 'static) -> (Vec<u8>, Server) {
    let whole = content(length);
    let sent = whole.clone();
    (whole, Server::start(move |request, connection| answer(request, connection, &sent)))
}

#[test]
fn a_file_arrives_whole_with_its_size_and_checksum() {
    let whole = content(200_000);
    let server = Server::with_file(whole.clone());
    for client in [Client::new(), Client::expecting(&whole)] {
        let downloaded = client.receives(&server, &whole);
        assert_eq!(downloaded, Downloaded { bytes: 200_000, sha256: sha256_hex(&whole) });
    }
}

#[test]
fn a_file_of_unknown_length_arrives_whole() {
    let (whole, server) = served(100_000, |_, connection, sent| connection.send("200 OK", &[], sent));
    Client::new().receives(&server, &whole);
}

#[test]
fn a_file_of_unknown_size_is_taken_up_to_a_limit() {
    let whole = content(100_000);
    let (announced, sent) = (Server::with_file(whole.clone()), whole.clone());
    let endless = Server::start(move |_, connection| {
        connection.send("200 OK", &[], b"");
        // Until the client has had enough.
        while connection.more(&sent) {}
    });
    for server in [&announced, &endless] {
        let client = Client { most: 99_999, ..Client::new() };
        let error = client.get(&server.url(FILE)).unwrap_err();
        assert!(matches!(error, DownloadError::TooLarge { most: 99_999, .. }), "{error}");
        assert!(error.to_string().contains("most_bytes"), "{error}");
        assert_eq!(client.names(), [""; 0], "nothing is kept");
    }
    // A size that is known says more than the limit.
    for client in [Client { most: 100_000, ..Client::new() }, Client { most: 1, ..Client::expecting(&whole) }] {
        client.receives(&announced, &whole);
    }
}

#[test]
fn a_cut_connection_is_continued_where_it_broke() {
    let (whole, server) = served(200_000, |request, connection, sent| match request.number {
        0 => connection.cut(sent, "1", 120_000),
        _ => connection.file(request, sent, "1"),
    });
    Client::new().receives(&server, &whole);
    let requests = server.requests();
    assert_eq!((requests[1].range(), requests[1].if_range()), (Some(120_000), Some("\"1\"")));
    assert_eq!(requests.len(), 2);
}

#[test]
fn a_stalled_connection_is_given_up_and_continued() {
    let whole = content(200_000);
    let (sent, (note, noted)) = (whole.clone(), mpsc::channel());
    let server = Server::start(move |request, connection| match request.range() {
        None => {
            connection.cut(&sent, "1", 70_000);
            note.send(connection.is_given_up()).unwrap();
        }
        Some(_) => connection.file(request, &sent, "1"),
    });
    // On a busy machine attempts may end before anything arrives.
    let client = Client { patience: Patience { retries: 100, ..IMPATIENCE }, ..Client::new() };
    client.receives(&server, &whole);
    assert!(server.requests().last().unwrap().range().is_some_and(|from| from <= 70_000));
    assert!(noted.recv().unwrap(), "the silence ended the first attempt, not the server");
}

#[test]
fn a_server_that_ignores_ranges_sends_the_whole_file_again() {
    let (whole, server) = served(200_000, |request, connection, sent| match request.number {
        0 => connection.cut(sent, "1", 120_000),
        _ => connection.answer("200 OK", &[("ETag", "\"1\"".to_string())], sent),
    });
    Client::new().receives(&server, &whole);
}

#[test]
fn a_file_that_changed_between_two_attempts_is_fetched_anew() {
    let (old, new) = (content(200_000), content(150_000).into_iter().rev().collect::<Vec<u8>>());
    let sent = new.clone();
    let server = Server::start(move |request, connection| match request.number {
        0 => connection.cut(&old, "old", 120_000),
        _ => connection.file(request, &sent, "new"),
    });
    Client::new().receives(&server, &new);
    assert_eq!(server.requests()[1].if_range(), Some("\"old\""));
}

#[test]
fn parts_of_two_versions_are_found_out_by_the_checksum_and_fetched_anew() {
    let (old, new) = (content(200_000), content(200_000).into_iter().rev().collect::<Vec<u8>>());
    let sent = new.clone();
    let server = Server::start(move |request, connection| match request.number {
        0 => connection.cut(&old, "old", 120_000),
        // It goes on with the new file although the old one is asked for.
        1 => {
            let range = format!("bytes 120000-{}/{}", sent.len() - 1, sent.len());
            connection.answer("206 Partial Content", &[("Content-Range", range)], &sent[120_000..]);
        }
        _ => connection.file(request, &sent, "new"),
    });
    let client = Client::expecting(&new);
    client.receives(&server, &new);
    assert_eq!(server.requests()[2].range(), None, "the third attempt begins again");
}

#[test]
fn another_range_than_the_one_asked_for_is_not_used() {
    let whole = content(200_000);
    for range in ["bytes 100000-199999/200000", "bytes 120000-199999/300000", "bytes 120000-", "lines 1-2/3"] {
        let (sent, range) = (whole.clone(), range.to_string());
        let server = Server::start(move |request, connection| match request.number {
            0 => connection.cut(&sent, "1", 120_000),
            1 => connection.answer("206 Partial Content", &[("Content-Range", range.clone())], &sent[120_000..]),
            _ => connection.file(request, &sent, "1"),
        });
        Client::new().receives(&server, &whole);
        assert_eq!(server.requests().len(), 3);
    }
}

#[test]
fn a_part_that_is_the_whole_file_needs_no_byte_more() {
    let whole = content(50_000);
    let server = Server::with_file(whole.clone());
    let client = Client::expecting(&whole);
    client.leave_part(&whole, &server.url(FILE), "1");
    client.receives(&server, &whole);
    assert_eq!(server.requests().len(), 1, "416 says that nothing is missing");
}

#[test]
fn a_part_longer_than_the_file_is_thrown_away() {
    let whole = content(50_000);
    let server = Server::with_file(whole.clone());
    let client = Client::new();
    client.leave_part(&content(60_000), &server.url(FILE), "1");
    client.receives(&server, &whole);
}

#[test]
fn a_part_from_another_address_is_used_only_under_a_checksum() {
    let whole = content(50_000);
    let server = Server::with_file(whole.clone());
    for (client, range) in [(Client::expecting(&whole), Some(20_000)), (Client::new(), None)] {
        client.leave_part(&whole[..20_000], "http://elsewhere.example/file.bin", "1");
        client.receives(&server, &whole);
        assert_eq!(server.requests().last().unwrap().range(), range);
    }
}

#[test]
fn passing_errors_of_a_server_are_tried_again() {
    let (whole, server) = served(1000, |request, connection, sent| match request.number {
        0 => connection.answer("500 Internal Server Error", &[], b"sorry"),
        1 => connection.answer("503 Service Unavailable", &[], b"sorry"),
        _ => connection.file(request, sent, "1"),
    });
    Client::new().receives(&server, &whole);
}

#[test]
fn a_pause_that_the_server_asks_for_is_kept() {
    let (whole, server) = served(1000, |request, connection, sent| match request.number {
        0 => connection.answer("429 Too Many Requests", &[("Retry-After", "1".to_string())], b""),
        _ => connection.file(request, sent, "1"),
    });
    let (client, begun) = (Client::new(), Instant::now());
    client.receives(&server, &whole);
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[test]
fn attempts_that_bring_something_new_are_not_counted() {
    let (whole, server) = served(200_000, |request, connection, sent| {
        let from = request.range().unwrap_or(0);
        let to = (from + 20_000).min(sent.len());
        let range = format!("bytes {from}-{}/{}", sent.len() - 1, sent.len());
        let length = ("Content-Length", (sent.len() - from).to_string());
        let status = if from == 0 { "200 OK" } else { "206 Partial Content" };
        connection.send(status, &[length, ("Content-Range", range), ("ETag", "\"1\"".to_string())], &sent[from..to]);
    });
    let client = Client { patience: Patience { retries: 1, ..PATIENCE }, ..Client::new() };
    client.receives(&server, &whole);
    assert_eq!(server.requests().len(), 10);
}

#[test]
fn redirects_are_followed_with_the_range() {
    let (whole, server) = served(200_000, |request, connection, sent| match (request.path.as_str(), request.number) {
        ("/file.bin", _) => connection.answer("302 Found", &[("Location", "/moved/1".to_string())], b"moved"),
        ("/moved/1", _) => connection.answer("308 Permanent Redirect", &[("Location", "2".to_string())], b""),
        (_, 2) => connection.cut(sent, "1", 120_000),
        _ => connection.file(request, sent, "1"),
    });
    Client::new().receives(&server, &whole);
    let last = server.requests().pop().unwrap();
    assert_eq!((last.path.as_str(), last.range()), ("/moved/2", Some(120_000)));
}

#[test]
fn a_wish_to_stop_ends_a_silent_connection_and_keeps_the_part() {
    let whole = content(200_000);
    let (sent, (note, noted)) = (whole.clone(), mpsc::channel());
    let server = Server::start(move |request, connection| match request.number {
        0 => {
            connection.cut(&sent, "1", 120_000);
            note.send(connection.is_given_up()).unwrap();
        }
        _ => connection.file(request, &sent, "1"),
    });
    let client = Client { patience: Patience { timeout: Duration::from_secs(600), ..PATIENCE }, ..Client::new() };
    let (interrupt, part) = (Interrupt::new(), client.target().with_extension("bin.part"));
    let raiser = interrupt.clone();
    thread::spawn(move || {
        while fs::metadata(&part).map_or(0, |metadata| metadata.len()) < 120_000 {
            thread::sleep(Duration::from_millis(2));
        }
        raiser.raise();
    });
    let error = client.get_until(&server.url(FILE), &interrupt).unwrap_err();
    assert!(matches!(error, DownloadError::Interrupted { .. }), "{error}");
    assert_eq!(client.names(), ["file.bin.part", "file.bin.part.json"]);
    client.receives(&server, &whole);
    assert_eq!(server.requests()[1].range(), Some(120_000));
    assert!(noted.recv().unwrap(), "the wish ended the first attempt, not the server");
}

#[test]
fn two_processes_do_not_write_one_part() {
    let whole = content(1000);
    let server = Server::with_file(whole.clone());
    let client = Client::new();
    let part = fs::File::create(client.target().with_extension("bin.part")).unwrap();
    part.try_lock().map_err(io::Error::from).unwrap();
    let error = client.get(&server.url(FILE)).unwrap_err();
    assert!(matches!(error, DownloadError::Busy { .. }), "{error}");
    assert_eq!(server.requests().len(), 0);
    drop(part);
    client.receives(&server, &whole);
}

/// A client and the error it gets from a server.
#[track_caller]
fn refused(client: &Client, server: &Server, parts: &[&str]) -> DownloadError {
    let error = client.get(&server.url(FILE)).unwrap_err();
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "`{part}` is missing in: {message}");
    }
    assert!(!client.target().exists(), "no file has taken its name");
    error
}

#[test]
fn a_file_that_does_not_exist_is_asked_for_once() {
    for status in ["404 Not Found", "403 Forbidden", "410 Gone", "304 Not Modified", "204 No Content"] {
        let server = Server::start(move |_, connection| connection.answer(status, &[], b""));
        let client = Client::new();
        refused(&client, &server, &["/file.bin", &status[..3], "--url"]);
        assert_eq!((server.requests().len(), client.names().len()), (1, 0));
    }
}

#[test]
fn a_server_that_stays_broken_is_given_up() {
    let server = Server::start(|_, connection| connection.answer("503 Service Unavailable", &[], b""));
    let error = refused(&Client::new(), &server, &["3 attempts", "503", "run the command again"]);
    assert!(matches!(error, DownloadError::GaveUp { attempts: 3, .. }));
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_server_that_is_not_there_or_says_nothing_is_given_up() {
    let silent = Server::start(|_, connection| {
        connection.is_given_up();
    });
    refused(&Client { patience: IMPATIENCE, ..Client::new() }, &silent, &["3 attempts", "silent"]);
    let gone = Server::start(|_, _| {});
    refused(&Client::new(), &gone, &["3 attempts"]);
    // An address of this machine at which nobody listens.
    let client = Client { patience: IMPATIENCE, ..Client::new() };
    assert!(matches!(client.get("http://127.83.12.7:9/file.bin"), Err(DownloadError::GaveUp { .. })));
}

#[test]
fn fewer_bytes_than_announced_are_no_file() {
    let whole = content(50_000);
    let server = Server::start(move |_, connection| connection.send("200 OK", &[("Content-Length", "60000".to_string())], &whole));
    let client = Client::new();
    refused(&client, &server, &["3 attempts"]);
    assert!(client.names().contains(&"file.bin.part".to_string()), "what arrived is kept");
}

#[test]
fn a_connection_that_ends_early_without_an_announced_length_is_seen_by_the_known_size() {
    let (_, server) = served(50_000, |_, connection, sent| connection.send("200 OK", &[], &sent[..40_000]));
    refused(&Client { bytes: Some(50_000), ..Client::new() }, &server, &["40000 of 50000 bytes"]);
}

#[test]
fn bytes_after_the_announced_ones_are_no_part_of_the_file() {
    let (whole, server) = served(50_000, |_, connection, sent| connection.send("200 OK", &[("Content-Length", "40000".to_string())], sent));
    let client = Client::new();
    client.receives(&server, &whole[..40_000]);
    // Where the size is known, the lie is seen before the first byte.
    refused(&Client::expecting(&whole), &server, &["40000 bytes", "50000 are expected"]);
}

#[test]
fn more_bytes_than_expected_are_refused_as_they_come() {
    let whole = content(50_000);
    let server = Server::start(move |_, connection| {
        connection.send("200 OK", &[], &whole);
        // What came before has been written by now.
        thread::sleep(Duration::from_millis(100));
        while connection.more(&[0; 1000]) {}
    });
    let client = Client { bytes: Some(50_000), ..Client::new() };
    let error = refused(&client, &server, &["more than the 50000 bytes"]);
    assert!(matches!(error, DownloadError::TooLong { expected: 50_000, .. }));
    assert!(client.names().is_empty(), "{:?}", client.names());
}

#[test]
fn another_checksum_is_refused_and_nothing_is_kept() {
    let (right, wrong) = (content(50_000), content(50_001)[1..].to_vec());
    let server = Server::with_file(wrong.clone());
    let client = Client::expecting(&right);
    refused(&client, &server, &[&sha256_hex(&right), &sha256_hex(&wrong)]);
    assert_eq!(server.requests().len(), 1);
    assert!(client.names().is_empty(), "{:?}", client.names());
}

#[test]
fn redirects_in_a_circle_end_after_ten() {
    let server = Server::start(|_, connection| connection.answer("302 Found", &[("Location", "/file.bin".to_string())], b""));
    refused(&Client::new(), &server, &["redirects more than 10 times"]);
    assert_eq!(server.requests().len(), 11);
}

#[test]
fn a_redirect_to_nowhere_is_an_error() {
    for (status, location) in
        [("302 Found", None), ("300 Multiple Choices", None), ("302 Found", Some("ftp://host/file.bin")), ("302 Found", Some("//"))]
    {
        let headers: Vec<(&str, String)> = location.map(|location| ("Location", location.to_string())).into_iter().collect();
        let server = Server::start(move |_, connection| connection.answer(status, &headers, b"elsewhere"));
        refused(&Client::new(), &server, &["/file.bin"]);
    }
}

#[test]
fn a_web_page_is_not_taken_for_a_file() {
    let page = |_: &Request, connection: &mut Connection| {
        connection.answer("200 OK", &[("Content-Type", "text/html; charset=utf-8".to_string())], b"<html>Please log in</html>");
    };
    refused(&Client::new(), &Server::start(page), &["web page"]);
}

#[test]
fn an_empty_answer_is_no_file() {
    let server = Server::start(|_, connection| connection.answer("200 OK", &[], b""));
    refused(&Client::new(), &server, &["nothing was sent"]);
}
