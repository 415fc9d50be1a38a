//! The proxy that a download goes through, as the environment names it.
//!
//! As with curl, `https_proxy` is for addresses that begin with https, `http_proxy` for those that begin with http, and `all_proxy` for both; the variable of the
//! other kind counts where none of these is set. Names are in small or capital letters. `no_proxy` lists hosts that need none. Proxies of http and https are
//! spoken to by CONNECT. One of another scheme (SOCKS) is refused, since going past it in silence may not be wanted.

use std::fmt;

use ureq::Proxy;
use ureq::http::Uri;

use super::DownloadError;

const SCHEMES: [&str; 2] = ["http", "https"];

/// A proxy and the variable that names it.
#[derive(Clone, Debug)]
pub(super) struct NamedProxy {
    pub(super) proxy: Proxy,
    pub(super) variable: &'static str,
}

impl fmt::Display for NamedProxy {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { proxy, variable } = self;
        write!(f, "the proxy {}://{}:{} ({variable})", proxy.protocol().to_string().to_lowercase(), proxy.host(), proxy.port())
    }
}

/// The proxy for an address; `variable` gives those of the environment.
///
/// # Errors
/// [`DownloadError::Proxy`] for a proxy of a scheme that is not supported, or for no address of a proxy.
pub(super) fn of(address: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Option<NamedProxy>, DownloadError> {
    const HTTPS: [&str; 2] = ["https_proxy", "HTTPS_PROXY"];
    const HTTP: [&str; 2] = ["http_proxy", "HTTP_PROXY"];
    const ALL: [&str; 2] = ["all_proxy", "ALL_PROXY"];
    let value = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let order = if address.starts_with("https://") { [HTTPS, ALL, HTTP] } else { [HTTP, ALL, HTTPS] };
    let Some((name, given)) = order.into_iter().flatten().find_map(|name| Some((name, value(name)?))) else { return Ok(None) };
    let exceptions = ["no_proxy", "NO_PROXY"].into_iter().find_map(value).unwrap_or_default();

    let (scheme, rest) = given.split_once("://").unwrap_or(("http", &given));
    let place = rest.rsplit('@').next().unwrap_or_default().trim_end_matches('/');
    let refused = |reason: String| DownloadError::Proxy { variable: name, proxy: format!("{scheme}://{place}"), reason };
    let is_supported = SCHEMES.contains(&scheme.to_ascii_lowercase().as_str());
    // Of another scheme only the exceptions count.
    let read = Proxy::new(&format!("{}://{rest}", if is_supported { scheme } else { SCHEMES[0] }));
    let read = read.map_err(|error| refused(format!("{error}; write http://HOST:PORT")))?;
    let mut builder = Proxy::builder(read.protocol()).host(read.host()).port(read.port());
    if let Some(user) = read.username() {
        builder = builder.username(user);
    }
    if let Some(password) = read.password() {
        builder = builder.password(password);
    }
    builder = exceptions.split(',').map(str::trim).filter(|host| !host.is_empty()).fold(builder, |builder, host| builder.no_proxy(host));
    let proxy = builder.build().map_err(|error| refused(error.to_string()))?;
    if address.parse::<Uri>().is_ok_and(|address| proxy.is_no_proxy(&address)) {
        return Ok(None);
    }
    if !is_supported {
        return Err(refused(format!("proxies of the scheme `{scheme}` are not supported, only those of http and https")));
    }
    Ok(Some(NamedProxy { proxy, variable: name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(address: &str, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        of(address, variable).map(|proxy| proxy.map(|proxy| proxy.to_string())).map_err(|error| error.to_string())
    }

    #[test]
    fn a_proxy_is_that_of_the_scheme_then_that_of_all() {
        let both = [("ALL_PROXY", "socks5://s:1080"), ("https_proxy", "http://user:secret@p:8080/")];
        assert_eq!(proxy("https://a/b", &both), Ok(Some("the proxy http://p:8080 (https_proxy)".into())));
        assert_eq!(proxy("https://a/b", &[("ALL_PROXY", "p:3128")]), Ok(Some("the proxy http://p:3128 (ALL_PROXY)".into())));
        assert_eq!(proxy("http://a/b", &[("HTTPS_PROXY", "https://p")]), Ok(Some("the proxy https://p:443 (HTTPS_PROXY)".into())));
        assert_eq!(proxy("https://a/b", &[("HTTPS_PROXY", " "), ("NO_PROXY", "x")]), Ok(None));
        assert_eq!(proxy("https://a/b", &[]), Ok(None));
    }

    #[test]
    fn schemes_that_are_not_supported_are_refused_by_name_unless_the_host_needs_no_proxy() {
        for scheme in ["socks5", "socks5h", "socks4", "socks4a", "socks", "SOCKS5", "ftp", "quic"] {
            for variable in ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "http_proxy"] {
                let value = format!("{scheme}://user:secret@localhost:1080");
                let message = proxy("https://a.org/b", &[(variable, &value)]).unwrap_err();
                let named = message.contains(variable) && message.contains(&format!("{scheme}://localhost:1080"));
                assert!(named && message.contains(&format!("`{scheme}`")) && !message.contains("secret"), "{message}");
                assert_eq!(proxy("https://a.org/b", &[(variable, &value), ("no_proxy", "b.org, a.org")]), Ok(None));
            }
        }
        assert!(proxy("https://a.org/b", &[("ALL_PROXY", "http://")]).unwrap_err().contains("http://HOST:PORT"));
    }
}
