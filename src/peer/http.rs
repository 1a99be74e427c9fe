//! Requests over HTTP/1.1 to one server: what MCP over HTTP needs, and no more.
//!
//! Owns the connections. Keeps: what is sent goes to the one origin that was configured and to no other, because secrets go
//! with it (a redirect is an error); an error never repeats a header, a query or a password; every step but the waiting for
//! an answer has a time limit, and a body is read in pieces.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, LOCATION};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Whether this build speaks https.
pub const HTTPS: bool = cfg!(feature = "https");

/// How long it may take until a connection stands.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// Connections that are kept for the next request.
const IDLE: usize = 4;

/// Why a request has no answer. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is none.
    #[error("the address of the MCP server is no http address: {0}; expected http://HOST:PORT/PATH")]
    NoAddress(String),
    /// It is encrypted, and this diglot cannot.
    #[error(
        "{0} needs https, which this diglot was built without; put a program that speaks stdio in between (such as \
         `npx mcp-remote URL`), or reach it over http on this machine"
    )]
    NoTls(String),
    /// A header that HTTP cannot carry.
    #[error("the header {0:?} of the MCP server cannot be sent: it has characters that no header may have")]
    BadHeader(String),
    /// Nobody is there.
    #[error("{at} cannot be reached: {why}; is the server running?")]
    Connect {
        /// The origin.
        at: String,
        /// What the system said.
        why: String,
    },
    /// The connection broke.
    #[error("the connection to {at} broke: {why}")]
    Broken {
        /// The origin.
        at: String,
        /// What went wrong.
        why: String,
    },
    /// It points elsewhere.
    #[error("{at} redirects to {to}; configure that address if it is the right one")]
    Redirect {
        /// The origin.
        at: String,
        /// Where to, without its query.
        to: String,
    },
    /// An answer that is too long.
    #[error("the answer of {at} is longer than {limit} bytes")]
    TooLong {
        /// The origin.
        at: String,
        /// The limit.
        limit: usize,
    },
}

/// Where requests go.
#[derive(Debug, Clone)]
pub struct Endpoint {
    uri: Uri,
    headers: HeaderMap,
}

impl Endpoint {
    /// Reads an address and the headers that go with every request.
    ///
    /// # Errors
    /// When it is no address that can be reached, or a header none that can be sent.
    pub fn new<'h>(url: &str, headers: impl IntoIterator<Item = (&'h str, &'h str)>) -> Result<Self, HttpError> {
        let uri: Uri = url.parse().map_err(|_| HttpError::NoAddress(plain(url)))?;
        match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(_)) => {}
            (Some("https"), Some(_)) if HTTPS => {}
            (Some("https"), Some(_)) => return Err(HttpError::NoTls(origin(&uri))),
            _ => return Err(HttpError::NoAddress(plain(url))),
        }
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let bad = || HttpError::BadHeader(name.to_owned());
            let key = HeaderName::try_from(name).map_err(|_| bad())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| bad())?;
            value.set_sensitive(true);
            all.append(key, value);
        }
        Ok(Self { uri, headers: all })
    }

    /// The address that a server names within its own origin.
    ///
    /// # Errors
    /// When it lies elsewhere.
    pub fn within(&self, reference: &str) -> Result<Self, HttpError> {
        let elsewhere = || HttpError::Redirect { at: self.origin(), to: plain(reference) };
        let path = if reference.contains("://") {
            let uri: Uri = reference.parse().map_err(|_| elsewhere())?;
            if origin(&uri) != self.origin() {
                return Err(elsewhere());
            }
            uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string)
        } else if reference.starts_with("//") {
            return Err(elsewhere());
        } else if reference.starts_with('/') {
            reference.to_owned()
        } else {
            let folder = self.uri.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{reference}")
        };
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(path.parse().map_err(|_| elsewhere())?);
        let uri = Uri::from_parts(parts).map_err(|_| elsewhere())?;
        Ok(Self { uri, headers: self.headers.clone() })
    }

    /// `http://HOST:PORT`: what may be said of it.
    #[must_use]
    pub fn origin(&self) -> String {
        origin(&self.uri)
    }
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    at: String,
    body: Incoming,
}

impl Answer {
    /// Whether the body is a stream of events.
    #[must_use]
    pub fn is_events(&self) -> bool {
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
    }

    /// A header's text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => return Err(HttpError::Broken { at: self.at.clone(), why: error.to_string() }),
                None => return Ok(None),
            }
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// When it is longer than the limit, or the connection breaks.
    pub async fn all(&mut self, limit: usize) -> Result<Vec<u8>, HttpError> {
        let mut all = Vec::new();
        while let Some(piece) = self.piece().await? {
            if all.len() + piece.len() > limit {
                return Err(HttpError::TooLong { at: self.at.clone(), limit });
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// The connections to a server.
#[derive(Debug, Default)]
pub struct Connections {
    idle: Mutex<Vec<Sender>>,
}

impl Connections {
    /// Sends a request and waits for the head of its answer, for as long as it takes. Dropped, it closes its connection.
    ///
    /// # Errors
    /// [`HttpError`]
    pub async fn send(
        &self,
        method: Method,
        to: &Endpoint,
        more: &[(HeaderName, String)],
        body: Bytes,
    ) -> Result<Answer, HttpError> {
        let at = to.origin();
        let broken = |error: hyper::Error| HttpError::Broken { at: at.clone(), why: reason(&error) };
        let mut request = request(method, to, more, body)?;
        let mut sender = match self.take() {
            Some(sender) => sender,
            None => connect(to).await?,
        };
        let response = loop {
            match sender.try_send_request(request).await {
                Ok(response) => break response,
                Err(mut error) => match error.take_message() {
                    // A kept connection was closed meanwhile, and nothing was sent on it.
                    Some(unsent) => {
                        request = unsent;
                        sender = connect(to).await?;
                    }
                    None => return Err(broken(error.into_error())),
                },
            }
        };
        self.keep(sender);
        let (head, body) = response.into_parts();
        if head.status.is_redirection() {
            let to = head.headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("another address");
            return Err(HttpError::Redirect { at, to: plain(to) });
        }
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, at, body })
    }

    /// A kept connection that is free: its last answer was read to the end.
    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        let free = idle.iter().position(SendRequest::is_ready)?;
        Some(idle.swap_remove(free))
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        if idle.len() < IDLE {
            idle.push(sender);
        }
    }
}

fn request(
    method: Method,
    to: &Endpoint,
    more: &[(HeaderName, String)],
    body: Bytes,
) -> Result<Request<Full<Bytes>>, HttpError> {
    let path = to.uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path.is_empty() { "/" } else { path };
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|_| HttpError::NoAddress(to.origin()))?;
    let headers = request.headers_mut();
    headers.extend(to.headers.clone());
    let authority = to.uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let own = [(HOST, host.to_owned())];
    for (name, value) in own.iter().chain(more) {
        let value = HeaderValue::try_from(value).map_err(|_| HttpError::BadHeader(name.to_string()))?;
        headers.insert(name.clone(), value);
    }
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    Ok(request)
}

async fn connect(to: &Endpoint) -> Result<Sender, HttpError> {
    let at = to.origin();
    let failed = |why: String| HttpError::Connect { at: at.clone(), why };
    // Brackets belong to an address's text only.
    let host = to.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let encrypted = to.uri.scheme_str() == Some("https");
    let port = to.uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    let stream = timeout(CONNECT_LIMIT, TcpStream::connect((host, port)));
    let stream = stream.await.map_err(|_| failed("no answer".into()))?.map_err(|error| failed(error.to_string()))?;
    // A small message is not to wait for the next one.
    _ = stream.set_nodelay(true);
    #[cfg(feature = "https")]
    if encrypted {
        let stream = timeout(CONNECT_LIMIT, tls::encrypt(stream, host)).await;
        let stream = stream.map_err(|_| failed("no answer to the TLS handshake".into()))?.map_err(failed)?;
        return speak(stream).await.map_err(|error| failed(error.to_string()));
    }
    speak(stream).await.map_err(|error| failed(error.to_string()))
}

/// HTTP on a connection that stands.
async fn speak<S>(stream: S) -> Result<Sender, hyper::Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to an MCP server ended");
        }
    });
    Ok(sender)
}

#[cfg(feature = "https")]
mod tls {
    //! The certificates of the system decide whom to trust.

    use std::sync::{Arc, OnceLock};

    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    pub(super) async fn encrypt(stream: TcpStream, host: &str) -> Result<TlsStream<TcpStream>, String> {
        static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
        let config = match CONFIG.get() {
            Some(config) => config.clone(),
            None => {
                // Reading them takes a while, and a disk.
                let read = tokio::task::spawn_blocking(config).await.map_err(|error| error.to_string())??;
                CONFIG.get_or_init(|| Arc::new(read)).clone()
            }
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| error.to_string())
    }

    fn config() -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (known, _) = roots.add_parsable_certificates(found.certs);
        if known == 0 {
            return Err("no certificates of authorities are found on this system; set SSL_CERT_FILE".to_owned());
        }
        Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    }
}

/// An error with what is behind it.
fn reason(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn origin(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    let host = uri.host().unwrap_or_default();
    uri.port_u16().map_or_else(|| format!("{scheme}://{host}"), |port| format!("{scheme}://{host}:{port}"))
}

/// An address without what may be secret in it: user, query, fragment.
fn plain(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}/{path}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Result<Endpoint, HttpError> {
        Endpoint::new(url, [("Authorization", "Bearer secret")])
    }

    #[test]
    fn an_address_is_understood_or_refused_without_its_secrets() {
        assert_eq!(endpoint("http://127.0.0.1:8080/mcp?key=1").unwrap().origin(), "http://127.0.0.1:8080");
        assert_eq!(endpoint("http://[::1]/").unwrap().origin(), "http://[::1]");
        let encrypted = if HTTPS { "" } else { "https://u:p@h/x?key=1" };
        for bad in ["ftp://u:p@h/x?key=1", "mcp", "http:///x", encrypted, ""] {
            let error = endpoint(bad).expect_err(bad).to_string();
            assert!(!error.contains("key=1") && !error.contains("u:p"), "{error}");
        }
        let bad = Endpoint::new("http://h/", [("X-Key", "a\nb")]).expect_err("a line feed").to_string();
        assert!(bad.contains("X-Key") && !bad.contains("a\nb"), "{bad}");
        assert!(!format!("{:?}", endpoint("http://h/").unwrap()).contains("secret"));
    }

    #[test]
    fn what_a_server_names_lies_within_its_origin() {
        let here = endpoint("http://h:1/a/sse?x=1").unwrap();
        let path = |reference: &str| here.within(reference).map(|e| e.uri.to_string());
        assert_eq!(path("/messages?s=1").unwrap(), "http://h:1/messages?s=1");
        assert_eq!(path("messages").unwrap(), "http://h:1/a/messages");
        assert_eq!(path("http://h:1/m").unwrap(), "http://h:1/m");
        for elsewhere in ["http://h:2/m", "https://h:1/m", "http://evil/m", "//evil/m"] {
            assert!(path(elsewhere).is_err(), "{elsewhere}");
        }
    }
}
