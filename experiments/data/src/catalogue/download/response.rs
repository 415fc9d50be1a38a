//! The meaning of a server's answer for a file that may be there in part.

use std::io::ErrorKind;
use std::time::Duration;

use ureq::http::{HeaderMap, Response, StatusCode, Uri};
use ureq::{Body, ResponseExt};

use super::{DownloadError, Failure, LONGEST_PAUSE, NamedProxy};
use crate::catalogue::partial_download::{Origin, Resumption};

/// An answer that is of use.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The rest of a part, of a file of this size.
    Rest { total: Option<u64> },
    /// The file from its beginning.
    Whole { total: Option<u64>, origin: Origin },
    /// The part is the whole file already.
    Complete,
    /// The part is of no use, for this reason.
    Unusable(String),
}

/// The answer to a request for a file, or for the rest of it.
pub(super) fn answer(response: &Response<Body>, address: &str, resumption: Option<&Resumption>) -> Result<Answer, Failure> {
    if response.get_redirect_history().is_some_and(loses_security) {
        return Err(Failure::Final(DownloadError::Insecure { address: address.to_string() }));
    }
    let (status, headers) = (response.status(), response.headers());
    let refused = |reason: String| Failure::Final(DownloadError::Refused { address: address.to_string(), reason });
    match (status, resumption) {
        (StatusCode::OK, _) if is_page(headers, address) => Err(refused("the answer is a web page instead of the file".to_string())),
        (StatusCode::OK, _) => Ok(Answer::Whole { total: response.body().content_length(), origin: origin(headers, address) }),
        (StatusCode::PARTIAL_CONTENT, Some(resumption)) => Ok(rest(headers, resumption.from)),
        (StatusCode::RANGE_NOT_SATISFIABLE, Some(resumption)) => {
            Ok(match header(headers, "content-range").and_then(total_of_unsatisfied) {
                Some(total) if total == resumption.from => Answer::Complete,
                _ => Answer::Unusable("the server has fewer bytes than the part (416)".to_string()),
            })
        }
        (status, _) if is_passing(status) => {
            Err(Failure::Again { cause: format!("the server answers {status}"), wait: retry_after(headers) })
        }
        (status, _) => Err(refused(format!("the server answers {status}"))),
    }
}

/// What an error of the client means, which may have connected to a proxy.
pub(super) fn judge(error: ureq::Error, address: &str, proxy: Option<&NamedProxy>) -> Failure {
    use ureq::Error;
    let connects = matches!(error, Error::ConnectProxyFailed(_));
    // A host that needs no proxy fails by itself.
    let proxy = proxy.filter(|proxy| connects || address.parse().is_ok_and(|address| proxy.is_for(&address)));
    let address = address.to_string();
    match (error, proxy) {
        (Error::Io(cause), Some(proxy)) if cause.kind() == ErrorKind::ConnectionRefused => {
            Failure::again(format!("{proxy} refuses the connection"))
        }
        (Error::HostNotFound, Some(proxy)) => Failure::again(format!("the host of {proxy} is not found")),
        (Error::Timeout(_), Some(proxy)) => Failure::again(format!("the server, or {proxy}, is silent")),
        (Error::ConnectProxyFailed(reason), Some(proxy)) => Failure::again(format!("{proxy} does not connect: {reason}")),
        (Error::ConnectionFailed, Some(proxy)) => Failure::again(format!("{proxy} cannot be reached")),
        (error, _) => judge_of_server(error, address),
    }
}

fn judge_of_server(error: ureq::Error, address: String) -> Failure {
    use ureq::Error;
    match error {
        Error::TooManyRedirects => Failure::Final(DownloadError::Redirects { address }),
        Error::RequireHttpsOnly(_) => Failure::Final(DownloadError::Insecure { address }),
        Error::Timeout(_) => Failure::again("the server is silent"),
        Error::HostNotFound => Failure::again("the host is not found (no connection, or a proxy is needed: HTTPS_PROXY)"),
        // A certificate that does not hold arrives as invalid data.
        Error::Io(cause) if !matches!(cause.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput) => Failure::again(cause.to_string()),
        Error::ConnectionFailed | Error::Protocol(_) | Error::BodyStalled => Failure::again(error.to_string()),
        Error::Other(cause) => Failure::Final(match cause.downcast::<DownloadError>() {
            Ok(refusal) => *refusal,
            Err(cause) => DownloadError::Refused { address, reason: cause.to_string() },
        }),
        error => Failure::Final(DownloadError::Refused { address, reason: error.to_string() }),
    }
}

fn rest(headers: &HeaderMap, from: u64) -> Answer {
    match header(headers, "content-range").and_then(content_range) {
        Some((start, last, total)) if start == from && total.is_none_or(|total| last + 1 == total) => Answer::Rest { total },
        _ => Answer::Unusable("the server sends another range than the one asked for".to_string()),
    }
}

fn origin(headers: &HeaderMap, address: &str) -> Origin {
    let text = |name| header(headers, name).map(str::to_string);
    Origin { address: address.to_string(), etag: text("etag"), last_modified: text("last-modified") }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// First byte, last byte and size of the file from `bytes 5-9/10`; a `*` is an unknown size.
fn content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (start, last) = range.split_once('-')?;
    let (start, last) = (start.trim().parse().ok()?, last.trim().parse().ok()?);
    let total = if total.trim() == "*" { None } else { Some(total.trim().parse().ok()?) };
    (start <= last && last < u64::MAX).then_some((start, last, total))
}

/// Size of the file from `bytes */10`.
fn total_of_unsatisfied(text: &str) -> Option<u64> {
    text.strip_prefix("bytes ")?.trim().strip_prefix("*/")?.parse().ok()
}

/// Whether a status may be another one soon.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)
}

/// The pause a server asks for in seconds; a date is not understood.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = header(headers, "retry-after")?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_PAUSE))
}

/// A page for people under the address of a file: a login, a notice, an error that calls itself a success.
fn is_page(headers: &HeaderMap, address: &str) -> bool {
    let is_html = header(headers, "content-type").is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/html"));
    is_html && !address.ends_with(".html") && !address.ends_with(".htm")
}

fn loses_security(history: &[Uri]) -> bool {
    let is = |uri: &Uri, scheme| uri.scheme_str() == Some(scheme);
    history.windows(2).any(|step| is(&step[0], "https") && is(&step[1], "http"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read_or_refused() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, 9, Some(10))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, 9, None)));
        for odd in ["bytes 9-5/10", "bytes 5-/10", "5-9/10", "bytes */10", "bytes 5-18446744073709551615/*", "bytes -1-2/3", ""] {
            assert_eq!(content_range(odd), None, "{odd}");
        }
        assert_eq!(total_of_unsatisfied("bytes */10"), Some(10));
        assert_eq!(total_of_unsatisfied("bytes 0-9/10"), None);
    }

    #[test]
    fn a_step_from_https_to_http_is_seen_anywhere_in_a_history() {
        let history = |addresses: &[&str]| addresses.iter().map(|address| address.parse().unwrap()).collect::<Vec<Uri>>();
        assert!(loses_security(&history(&["http://a/", "https://b/", "http://c/"])));
        assert!(!loses_security(&history(&["http://a/", "http://b/", "https://c/"])));
    }

    #[test]
    fn a_server_may_ask_for_a_pause_but_not_for_a_day() {
        let mut headers = HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert("retry-after", "7".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(7)));
        headers.insert("retry-after", "86400".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(LONGEST_PAUSE));
        headers.insert("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT".parse().unwrap());
        assert_eq!(retry_after(&headers), None);
    }

    #[test]
    fn certificates_that_do_not_hold_are_not_tried_again() {
        let invalid = ureq::Error::Io(std::io::Error::new(ErrorKind::InvalidData, "invalid peer certificate"));
        assert!(matches!(judge(invalid, "https://a/b", None), Failure::Final(DownloadError::Refused { .. })));
        let reset = ureq::Error::Io(ErrorKind::ConnectionReset.into());
        assert!(matches!(judge(reset, "https://a/b", None), Failure::Again { .. }));
    }
}
