//! A web server on this machine whose answers are written by the tests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a client asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which request it is, from 0.
    pub number: usize,
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
}

impl Request {
    /// The first byte of the range that was asked for.
    pub fn range(&self) -> Option<usize> {
        self.headers.get("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }

    pub fn if_range(&self) -> Option<&str> {
        self.headers.get("if-range").map(String::as_str)
    }
}

/// The connection to a client.
pub struct Connection(TcpStream);

impl Connection {
    /// Sends a head, with `Connection: close`, and a body; the client may be gone.
    pub fn send(&mut self, status: &str, headers: &[(&str, String)], body: &[u8]) {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n");
        let _ = self.0.write_all(head.as_bytes()).and_then(|()| self.0.write_all(body)).and_then(|()| self.0.flush());
    }

    /// An answer with its true length.
    pub fn answer(&mut self, status: &str, headers: &[(&str, String)], body: &[u8]) {
        let length = [("Content-Length", body.len().to_string())];
        self.send(status, &[headers, &length].concat(), body);
    }

    /// Sends further bytes.
    pub fn more(&mut self, body: &[u8]) -> bool {
        self.0.write_all(body).and_then(|()| self.0.flush()).is_ok()
    }

    /// Sends nothing more and waits until the client ends the connection; whether it does within a minute.
    pub fn is_given_up(&mut self) -> bool {
        let _ = self.0.set_read_timeout(Some(Duration::from_secs(60)));
        // A client that goes away with bytes unread resets the connection; only a timeout is its patience.
        let ended = |error: &std::io::Error| !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        self.0.read(&mut [0]).as_ref().map_or_else(ended, |&count| count == 0)
    }

    /// A file as a good server gives it: ranges, as long as the version is the one that is asked for.
    pub fn file(&mut self, request: &Request, content: &[u8], version: &str) {
        let tag = format!("\"{version}\"");
        let same = request.if_range().is_none_or(|wanted| wanted == tag);
        match request.range().filter(|_| same) {
            Some(from) if from >= content.len() => {
                self.answer("416 Range Not Satisfiable", &[("Content-Range", format!("bytes */{}", content.len()))], b"");
            }
            Some(from) => {
                let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
                self.answer("206 Partial Content", &[("Content-Range", range), ("ETag", tag)], &content[from..]);
            }
            None => self.answer("200 OK", &[("ETag", tag)], content),
        }
    }

    /// The beginning of a file, and then the end of the connection.
    pub fn cut(&mut self, content: &[u8], version: &str, after: usize) {
        let headers = [("Content-Length", content.len().to_string()), ("ETag", format!("\"{version}\""))];
        self.send("200 OK", &headers, &content[..after]);
    }
}

/// A server that runs until it is dropped.
pub struct Server {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    ended: Arc<AtomicBool>,
}

impl Server {
    /// Starts a server that answers every request by `answer`.
    pub fn start(answer: impl Fn(&Request, &mut Connection) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, end, answer) = (requests.clone(), ended.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), seen, answer) = (stream, seen.clone(), answer.clone()) else { continue };
                thread::spawn(move || {
                    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                    if let Some(request) = read(&stream, &seen) {
                        answer(&request, &mut Connection(stream));
                    }
                });
            }
        });
        Self { address, requests, ended }
    }

    /// A server with one file.
    pub fn with_file(content: Vec<u8>) -> Self {
        Self::start(move |request, connection| connection.file(request, &content, "1"))
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn read(stream: &TcpStream, seen: &Mutex<Vec<Request>>) -> Option<Request> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_string();
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_lowercase(), value.trim().to_string()))
    });
    let headers = headers.collect();
    let mut seen = seen.lock().unwrap();
    let request = Request { number: seen.len(), path, headers };
    seen.push(request.clone());
    Some(request)
}

/// Bytes that are nowhere alike.
pub fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|index| (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8).collect()
}
