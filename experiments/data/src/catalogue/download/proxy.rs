//! The proxy that a download goes through, as the environment names it.
//!
//! As with curl, `https_proxy` is for addresses that begin with https, `http_proxy` for those that begin with http, and `all_proxy` for both. Unlike with curl, the
//! variable of the other kind counts where none of these is set, and all names may be in capital letters. `no_proxy` lists hosts that need none, each with the hosts
//! of its domain; it is asked for each host that a redirect leads to. Proxies of http and https are spoken to by CONNECT. One of another scheme (SOCKS) is
//! refused where a host needs it, since going past it in silence may not be wanted.

use std::fmt;

use ureq::Proxy;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::DownloadError;

const SCHEMES: [&str; 2] = ["http", "https"];

/// A proxy and the variable that names it.
#[derive(Clone, Debug)]
pub(super) struct NamedProxy {
    /// Of a scheme that is not supported only the exceptions count.
    proxy: Proxy,
    variable: &'static str,
    /// The scheme, if it is not supported, and the place.
    unsupported: Option<(String, String)>,
}

impl NamedProxy {
    /// What the client goes through, with the hosts that need none; nothing where [`Direct`] refuses the others.
    pub(super) fn supported(&self) -> Option<Proxy> {
        self.unsupported.is_none().then(|| self.proxy.clone())
    }

    /// Whether an address needs it.
    pub(super) fn is_for(&self, address: &Uri) -> bool {
        !self.proxy.is_no_proxy(address)
    }

    /// # Errors
    /// [`DownloadError::Proxy`] for an address that needs a proxy of a scheme that is not supported.
    fn check(&self, address: &Uri) -> Result<(), DownloadError> {
        let Some((scheme, place)) = self.unsupported.as_ref().filter(|_| self.is_for(address)) else { return Ok(()) };
        let host = address.host().unwrap_or_default();
        let reason = format!(
            "`{host}` is to be reached through it, and proxies of the scheme `{scheme}` are not supported, only those of http and https"
        );
        Err(DownloadError::Proxy { variable: self.variable, proxy: format!("{scheme}://{place}"), reason })
    }
}

/// Finds hosts that are reached without a proxy, and refuses those that need one which is not supported, wherever a redirect leads.
#[derive(Debug)]
pub(super) struct Direct(pub(super) Option<NamedProxy>);

impl Resolver for Direct {
    fn resolve(&self, address: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        if let Some(proxy) = &self.0 {
            proxy.check(address).map_err(|error| ureq::Error::Other(Box::new(error)))?;
        }
        DefaultResolver::default().resolve(address, config, timeout)
    }
}

impl fmt::Display for NamedProxy {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { proxy, variable, .. } = self;
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
    for host in exceptions.split([',', ' ']).filter(|host| !host.is_empty()) {
        // As for curl, wget and Python a name means its domain too, and so does one with a dot before it.
        let bare = host.trim_start_matches('.');
        builder = builder.no_proxy(bare);
        if !bare.contains('*') {
            builder = builder.no_proxy(&format!(".{bare}"));
        }
    }
    let proxy = builder.build().map_err(|error| refused(error.to_string()))?;
    let named = NamedProxy { proxy, variable: name, unsupported: (!is_supported).then(|| (scheme.to_owned(), place.to_owned())) };
    if let Ok(address) = address.parse() {
        named.check(&address)?;
    }
    Ok(Some(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(address: &str, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let used = |proxy: NamedProxy| proxy.is_for(&address.parse().unwrap()).then(|| proxy.to_string());
        of(address, variable).map(|proxy| proxy.and_then(used)).map_err(|error| error.to_string())
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

    #[test]
    fn an_exception_is_a_name_and_its_domain() {
        let is_used = |host: &str, exceptions: &str| {
            proxy(&format!("https://{host}/b"), &[("ALL_PROXY", "http://p"), ("NO_PROXY", exceptions)]).unwrap().is_some()
        };
        for exceptions in ["example.org", ".example.org", "a.org, example.org", "a.org example.org", "EXAMPLE.org", "*"] {
            assert!(!is_used("example.org", exceptions) && !is_used("files.example.org", exceptions), "{exceptions}");
        }
        assert!(is_used("myexample.org", "example.org") && is_used("example.org", "files.example.org"));
        assert!(!is_used("files.example.org", "*.example.org") && !is_used("127.0.0.1", "127.0.0.1") && is_used("127.0.0.12", "127.0.0.1"));
    }
}
