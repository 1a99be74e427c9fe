//! MCP: a server over HTTP, and the client that a fake agent is for the servers of its session.
//!
//! The server speaks streamable HTTP at `/mcp` (with JSON or with events as answers) and the older way at `/sse`, over TLS if
//! it is told to. It insists on its header, its session id and the version that was agreed, and keeps what was asked of it.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The header that every request must have, and its value.
pub(crate) const KEY: (&str, &str) = ("x-key", "s3cr3t");

/// How a server answers a POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    Json,
    Events,
    /// The stream breaks off before the answer, which comes when it is taken up again.
    Broken,
}

/// A server on this machine.
#[derive(Clone)]
pub(crate) struct Server {
    address: String,
    answers: Answers,
    /// `POST tools/list`, `GET`, `DELETE`, …, in order.
    seen: Arc<Mutex<Vec<String>>>,
    /// The stream of the older way.
    stream: Arc<Mutex<Option<Sender<Value>>>>,
    /// What a broken stream still owes.
    owed: Arc<Mutex<Option<Value>>>,
    /// What its tool `approve` answers.
    approves: Arc<Mutex<Value>>,
    tls: Option<Arc<ServerConfig>>,
}

/// A connection, for the one thread that reads and writes it.
#[derive(Clone)]
struct Stream(Arc<Mutex<dyn Wire>>);

trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.lock().unwrap().flush()
    }
}

/// What a server needs to be spoken to over TLS, and its certificate as the file of a system's authorities has it.
#[cfg(feature = "https")]
pub(crate) fn tls() -> (Arc<ServerConfig>, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = tokio_rustls::rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth();
    let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    (Arc::new(config), made.cert.pem())
}

struct Request {
    method: String,
    path: String,
    headers: HashMap<String, String>,
    body: Value,
}

impl Server {
    pub(crate) fn start(answers: Answers) -> Self {
        Self::start_over(answers, None)
    }

    pub(crate) fn start_over(answers: Answers, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap().to_string(),
            answers,
            seen: Arc::default(),
            stream: Arc::default(),
            owed: Arc::default(),
            approves: Arc::new(Mutex::new(json!({"behavior": "deny", "message": "not by policy"}))),
            tls,
        };
        let this = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (this, Ok(stream)) = (this.clone(), stream) else { return };
                std::thread::spawn(move || match this.tls.clone() {
                    None => this.serve(Stream(Arc::new(Mutex::new(stream)))),
                    Some(config) => {
                        let tls = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                        this.serve(Stream(Arc::new(Mutex::new(tls))));
                    }
                });
            }
        });
        server
    }

    /// As `--mcp-config` has it.
    pub(crate) fn config(&self, path: &str) -> Value {
        let kind = if path == "/sse" { "sse" } else { "http" };
        let s = if self.tls.is_some() { "s" } else { "" };
        json!({"type": kind, "url": format!("http{s}://{}{path}", self.address), "headers": {KEY.0: KEY.1}})
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn will_answer(&self, answer: Value) {
        *self.approves.lock().unwrap() = answer;
    }

    fn serve(&self, stream: Stream) {
        let mut reader = BufReader::new(stream.clone());
        let mut writer = stream;
        while let Some(request) = read(&mut reader) {
            let what = match request.body["method"].as_str() {
                Some(method) => format!("{} {method}", request.method),
                None => request.method.clone(),
            };
            self.seen.lock().unwrap().push(what);
            if request.headers.get(KEY.0).map(String::as_str) != Some(KEY.1) {
                reply(&mut writer, "401 Unauthorized", "text/plain", "who are you?");
                continue;
            }
            match (request.method.as_str(), request.path.split('?').next().unwrap_or_default()) {
                ("POST", "/mcp") => self.posted(&request, &mut writer),
                ("GET", "/mcp") if request.headers.contains_key("last-event-id") => {
                    let owed = self.owed.lock().unwrap().take();
                    events(&mut writer);
                    event(&mut writer, &owed.unwrap_or_default());
                    return;
                }
                // It has nothing to say of its own accord.
                ("GET", "/mcp") => reply(&mut writer, "405 Method Not Allowed", "text/plain", ""),
                ("DELETE", "/mcp") => reply(&mut writer, "200 OK", "text/plain", ""),
                ("GET", "/sse") => {
                    events(&mut writer);
                    write!(writer, "event: endpoint\ndata: /messages?session=1\n\n").unwrap();
                    let (sender, messages) = channel();
                    *self.stream.lock().unwrap() = Some(sender);
                    for message in messages {
                        event(&mut writer, &message);
                    }
                    return;
                }
                ("POST", "/messages") => {
                    reply(&mut writer, "202 Accepted", "text/plain", "Accepted");
                    let sender = self.stream.lock().unwrap().clone();
                    if let (Some(answer), Some(sender)) = (self.answer(&request.body), sender) {
                        sender.send(answer).unwrap();
                    }
                }
                _ => reply(&mut writer, "404 Not Found", "text/plain", ""),
            }
        }
    }

    fn posted(&self, request: &Request, writer: &mut Stream) {
        let first = request.body["method"] == "initialize";
        let header = |name: &str| request.headers.get(name).map(String::as_str);
        if !first && (header("mcp-session-id"), header("mcp-protocol-version")) != (Some("abc"), Some("2025-06-18")) {
            return reply(writer, "400 Bad Request", "text/plain", "no session");
        }
        let Some(answer) = self.answer(&request.body) else {
            return reply(writer, "202 Accepted", "text/plain", "");
        };
        match self.answers {
            // Over several lines, as some servers write it.
            Answers::Json => {
                let body = format!("{answer:#}");
                write!(
                    writer,
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: abc\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
            }
            Answers::Broken if request.body["method"] == "tools/call" => {
                *self.owed.lock().unwrap() = Some(answer);
                chunked(
                    writer,
                    "retry: 1\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n",
                );
            }
            Answers::Events | Answers::Broken => {
                chunked(writer, &format!(": hello\nevent: message\ndata: {answer}\n\n"))
            }
        }
    }

    fn answer(&self, message: &Value) -> Option<Value> {
        let id = message.get("id")?;
        let result = match message["method"].as_str()? {
            "initialize" => json!({
                "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "0"},
            }),
            "tools/list" => json!({"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}),
            "tools/call" if message["params"]["name"] == "approve" => {
                let answer = self.approves.lock().unwrap().to_string();
                json!({"content": [{"type": "text", "text": answer}]})
            }
            "tools/call" => {
                let number = |name: &str| message["params"]["arguments"][name].as_i64().unwrap_or_default();
                json!({"content": [{"type": "text", "text": (number("a") + number("b")).to_string()}]})
            }
            other => return Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": other}})),
        };
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }
}

fn read(reader: &mut BufReader<Stream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut words = line.split(' ').map(ToOwned::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, headers, body: serde_json::from_slice(&body).unwrap_or_default() })
}

// A client that is gone reads nothing: what is written to it may fail.

fn reply(writer: &mut Stream, status: &str, kind: &str, body: &str) {
    let length = body.len();
    let _ = write!(writer, "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}");
}

fn events(writer: &mut Stream) {
    let _ = write!(writer, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n");
}

fn event(writer: &mut Stream, data: &Value) {
    let _ = write!(writer, "event: message\r\ndata: {data}\r\n\r\n");
}

/// A stream in chunks of few bytes.
fn chunked(writer: &mut Stream, body: &str) {
    let _ = write!(
        writer,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nMcp-Session-Id: abc\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    for piece in body.as_bytes().chunks(7) {
        let _ = write!(writer, "{:x}\r\n", piece.len());
        let _ = writer.write_all(piece);
        let _ = writer.write_all(b"\r\n");
    }
    let _ = write!(writer, "0\r\n\r\n");
}

/// Starts a server of the session as an agent does, calls its tool `add` and says what came of it.
pub(crate) fn call(server: &Value) -> String {
    let mut command = Command::new(server["command"].as_str().unwrap());
    command.args(server["args"].as_array().into_iter().flatten().filter_map(Value::as_str));
    for pair in server["env"].as_array().into_iter().flatten() {
        command.env(pair["name"].as_str().unwrap(), pair["value"].as_str().unwrap());
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |id: u64, method: &str, params: Value| -> Result<Value, String> {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(stdin, "{line}").map_err(|_| "the server reads nothing".to_owned())?;
        if method == "initialize" {
            writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        }
        for line in lines.by_ref() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if line["id"] == id {
                return match line.get("error") {
                    Some(error) => Err(error["message"].to_string()),
                    None => Ok(line["result"].clone()),
                };
            }
        }
        Err("the server is gone".to_owned())
    };
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fake", "version": "0"}});
    let said = ask(0, "initialize", hello)
        .and_then(|_| ask(1, "tools/list", json!({})))
        .and_then(|list| {
            assert_eq!(list["tools"][0]["name"], "add");
            ask(2, "tools/call", json!({"name": "add", "arguments": {"a": 19, "b": 23}}))
        })
        .map_or_else(|error| error, |result| result["content"][0]["text"].as_str().unwrap_or_default().to_owned());
    drop(stdin);
    child.wait().unwrap();
    said
}
