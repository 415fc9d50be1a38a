//! `data list`, and commands that cannot be meant.

use std::fs;

use crate::command::{Workplace, data, refused, stderr, stdout, succeeded};
use crate::server::Server;

#[test]
fn the_list_has_every_data_set_with_size_licence_and_page() {
    let output = data().arg("list").output().unwrap();
    succeeded(
        &output,
        &[
            "multi30k",
            "ptb",
            "glue",
            "licence  CC BY-SA 4.0",
            "size     6.0 MB",
            "page     http",
            "address  http",
            "size     not published",
        ],
    );
    let output = data().args(["list", "--json"]).output().unwrap();
    succeeded(&output, &[]);
    let catalogue: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(catalogue["set"].as_array().unwrap().iter().any(|set| set["name"] == "ptb" && set["file"][0]["bytes"] == 5_101_618));
}

#[test]
fn an_unknown_name_or_part_is_refused_with_the_nearest_one() {
    refused(&data().args(["fetch", "wikitext2"]).output().unwrap(), 2, &["wikitext2", "did you mean `wikitext-2`"]);
    refused(&data().args(["fetch", "glue/Cola2"]).output().unwrap(), 2, &["Cola2", "did you mean `CoLA`", "SST-2"]);
    refused(&data().args(["fetch", "ptb", "glu"]).output().unwrap(), 2, &["did you mean `glue`"]);
}

#[test]
fn a_mirror_that_cannot_be_meant_is_refused() {
    refused(&data().args(["fetch", "ptb", "--url", "ftp://a/b"]).output().unwrap(), 2, &["ftp://a/b"]);
    refused(&data().args(["fetch", "ptb", "--url", "http://a/b"]).output().unwrap(), 2, &["3 files", "ending in /"]);
    refused(&data().args(["fetch", "enwik8", "text8", "--url", "http://a/"]).output().unwrap(), 2, &["2 data sets"]);
}

#[test]
fn options_that_make_no_sense_are_usage_errors() {
    for arguments in
        [&["fetch"][..], &["fetch", "ptb", "--timeout", "0"], &["fetch", "ptb", "--retries", "-1"], &["check"], &["list", "ptb"], &[]]
    {
        let output = data().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_catalogue_with_an_unknown_field_is_refused_with_its_line() {
    let place = Workplace::new(&["addresses = [\"http://127.0.0.1:9/a\"]\nchecksum = \"1\"".to_string()]);
    refused(&place.fetch(&[]).output().unwrap(), 2, &["catalogue.toml"]);
    assert!(stderr(&place.fetch(&[]).output().unwrap()).contains("checksum"));
    fs::remove_file(place.folder.path().join("catalogue.toml")).unwrap();
    refused(&place.fetch(&[]).output().unwrap(), 2, &["catalogue.toml"]);
}

#[test]
fn a_proxy_that_cannot_be_used_is_named() {
    let place = Workplace::new(&["addresses = [\"http://example.invalid/a\"]".to_string()]);
    for (variable, proxy, parts) in [
        ("ALL_PROXY", "socks5://me:secret@127.0.0.1:1080", ["ALL_PROXY", "socks5://127.0.0.1:1080"]),
        ("https_proxy", "quic://127.0.0.1:1", ["https_proxy", "`quic`"]),
        ("HTTP_PROXY", "http://127.0.0.1:1", ["the proxy http://127.0.0.1:1 (HTTP_PROXY)", "refuses the connection"]),
    ] {
        let output = place.fetch(&[]).env(variable, proxy).output().unwrap();
        refused(&output, 1, &parts);
        assert!(!stderr(&output).contains("secret"));
        assert!(!place.root().join("a").exists());
    }
}

#[test]
fn a_redirect_goes_through_the_proxy_though_its_beginning_needs_none() {
    let proxy = Server::start(|_, connection| connection.answer("403 Forbidden", &[], b""));
    let server = Server::start(|_, connection| connection.answer("302 Found", &[("Location", "http://example.invalid/a".into())], b""));
    let place = Workplace::new(&[format!("addresses = [\"{}\"]", server.url("/a"))]);
    let output = place.fetch(&[]).env("HTTP_PROXY", proxy.url("")).env("NO_PROXY", "127.0.0.1").output().unwrap();
    refused(&output, 1, &["the proxy http://127.0.0.1:", "(HTTP_PROXY) does not connect"]);
    assert!(proxy.requests().iter().all(|request| request.path == "example.invalid:80") && !proxy.requests().is_empty());
    // One that is not supported is refused by name where the redirect leads to it.
    let output = place.fetch(&[]).env("ALL_PROXY", "socks5://127.0.0.1:1").env("NO_PROXY", "127.0.0.1").output().unwrap();
    refused(&output, 1, &["`socks5://127.0.0.1:1` of ALL_PROXY cannot be used", "`example.invalid` is to be reached through it"]);
}

#[test]
fn an_output_folder_that_cannot_be_made_is_a_failure() {
    let place = Workplace::new(&["addresses = [\"http://127.0.0.1:9/a\"]".to_string()]);
    fs::write(place.folder.path().join("data"), "a file").unwrap();
    refused(&place.fetch(&[]).output().unwrap(), 1, &["data/small", "--out"]);
}
