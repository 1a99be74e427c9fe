//! Takes secrets out of what is recorded.
//!
//! Owns the decision what a secret is. Invariants: everything but the secrets stays byte for byte as it
//! was (order of members, spelling of numbers, spaces); what comes out is valid JSON whenever what went
//! in was; `***` stands for every secret.
//!
//! Masked are
//! - the values of environment variables whose names say that they are secret, wherever they occur;
//! - the values that an editor passes on for MCP servers (`env` and `headers`) under such names, where
//!   they stand and wherever they occur afterwards;
//! - string members of JSON objects with such names;
//! - `Bearer …`, and tokens of well-known shapes (`sk-…` and its like).
//!
//! JSON escapes hide nothing, and JSON inside a JSON string is searched as well. One thing is out of
//! reach: a secret that an agent streams in several pieces, each of which is a line of its own.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::OsString;

use memchr::memmem::Finder;

/// What stands for a secret.
const MASK: &str = "***";

/// Shorter values are too common to be looked for everywhere.
const SHORTEST: usize = 8;

/// How many values are remembered; more than any configuration has.
const MOST: usize = 512;

/// JSON in a JSON string in a JSON string … is followed this deep.
const DEPTH: usize = 4;

/// Prefixes of tokens that are recognised by their shape.
const SHAPES: &[&str] = &["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AIza"];

/// How long the rest of such a token is at least.
const SHAPE_REST: usize = 16;

/// Finds and masks secrets; learns new ones from the lines it sees.
#[derive(Debug, Default)]
pub struct Masker {
    /// Longest first, so that a secret that contains another is masked whole.
    secrets: Vec<Secret>,
    known: HashSet<String>,
}

#[derive(Debug)]
struct Secret {
    length: usize,
    finder: Finder<'static>,
}

impl Masker {
    /// Knows the secrets among these environment variables.
    pub fn from_env(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut masker = Self::default();
        for (name, value) in vars {
            if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
                && is_secret_variable(name)
            {
                masker.learn(value);
            }
        }
        masker
    }

    /// From now on this value is a secret wherever it occurs, unless it is too short or a mere number.
    pub fn learn(&mut self, value: &str) {
        let value = value.strip_prefix("Bearer ").unwrap_or(value).trim();
        let mere_number = value.bytes().all(|byte| byte.is_ascii_digit());
        if value.len() < SHORTEST || mere_number || self.known.len() >= MOST {
            return;
        }
        if self.known.insert(value.to_owned()) {
            let at = self.secrets.partition_point(|secret| secret.length >= value.len());
            self.secrets.insert(at, Secret { length: value.len(), finder: Finder::new(value).into_owned() });
        }
    }

    /// Appends the JSON text `line` to `out` with its secrets masked. Returns false, with `out` as it
    /// was, when `line` is not one JSON text.
    pub fn json(&mut self, line: &[u8], out: &mut Vec<u8>) -> bool {
        self.json_within(line, out, DEPTH)
    }

    fn json_within(&mut self, line: &[u8], out: &mut Vec<u8>, depth: usize) -> bool {
        if serde_json::from_slice::<serde::de::IgnoredAny>(line).is_err() {
            return false;
        }
        let Ok(text) = std::str::from_utf8(line) else {
            return false;
        };
        let mut scan = Scan { text, frames: Vec::new(), edits: Vec::new() };
        scan.run(self, depth);
        // A later edit of the same string is the stronger one (a `value` beside a secret `name`).
        scan.edits.sort_by_key(|edit| edit.start);
        let mut copied = 0;
        for (index, edit) in scan.edits.iter().enumerate() {
            if scan.edits.get(index + 1).is_some_and(|next| next.start == edit.start) {
                continue;
            }
            out.extend_from_slice(&line[copied..edit.start]);
            // Writing a string into memory cannot fail.
            let _ = serde_json::to_writer(&mut *out, &edit.with);
            copied = edit.end;
        }
        out.extend_from_slice(&line[copied..]);
        true
    }

    /// The text with its secrets masked.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.secrets {
            if let Some(first) = secret.finder.find(text.as_bytes()) {
                text = Cow::Owned(replace_from(&text, first, secret));
            }
        }
        if let Some(masked) = mask_shapes(&text) {
            text = Cow::Owned(masked);
        }
        text
    }
}

fn replace_from(text: &str, first: usize, secret: &Secret) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut next = Some(first);
    while let Some(at) = next {
        out.push_str(&rest[..at]);
        out.push_str(MASK);
        rest = &rest[at + secret.length..];
        next = secret.finder.find(rest.as_bytes());
    }
    out.push_str(rest);
    out
}

/// Masks `Bearer …` and tokens of known shapes; `None` when there are none.
fn mask_shapes(text: &str) -> Option<String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~+/=".contains(&byte);
    let bytes = text.as_bytes();
    let mut out: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        let fresh = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let hit = if !fresh {
            None
        } else if bytes[at].eq_ignore_ascii_case(&b'b') {
            let word = bytes.get(at..at + 7);
            let found = word.is_some_and(|word| word.eq_ignore_ascii_case(b"bearer "));
            found.then_some((at + 7, SHORTEST))
        } else {
            let shape = SHAPES.iter().find(|shape| bytes[at..].starts_with(shape.as_bytes()));
            shape.map(|shape| (at, shape.len() + SHAPE_REST))
        };
        if let Some((start, shortest)) = hit {
            let end = start + bytes[start..].iter().take_while(|&&byte| token(byte)).count();
            if end - start >= shortest {
                let out = out.get_or_insert_default();
                out.push_str(&text[copied..start]);
                out.push_str(MASK);
                copied = end;
                at = end;
                continue;
            }
        }
        at += 1;
    }
    let mut out = out?;
    out.push_str(&text[copied..]);
    Some(out)
}

struct Edit {
    start: usize,
    end: usize,
    with: String,
}

/// One open object or array.
#[derive(Default)]
struct Frame {
    /// An object that waits for a member's name (the next string is one).
    wants_name: bool,
    is_object: bool,
    /// Every string in here is a secret: the value of a member with a secret name.
    secret: bool,
    /// In here are the variables or headers of an MCP server: names and values make secrets known.
    variables: bool,
    /// What the current member's name says about its value.
    member: Member,
    /// Of `{"name": …, "value": …}`: whether the name is a secret one, and where the value stands.
    secret_name: bool,
    value: Option<(usize, usize, String)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Member {
    #[default]
    Plain,
    Secret,
    Variables,
    Name,
    Value,
}

struct Scan<'t> {
    text: &'t str,
    frames: Vec<Frame>,
    edits: Vec<Edit>,
}

impl Scan<'_> {
    fn run(&mut self, masker: &mut Masker, depth: usize) {
        let bytes = self.text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                b'"' => {
                    let end = string_end(bytes, at);
                    self.string(at, end, masker, depth);
                    at = end;
                    continue;
                }
                b'{' | b'[' => {
                    let (secret, variables) = self.frames.last().map_or((false, false), |frame| {
                        (
                            frame.secret || frame.member == Member::Secret,
                            frame.variables || frame.member == Member::Variables,
                        )
                    });
                    let is_object = bytes[at] == b'{';
                    self.frames.push(Frame { wants_name: is_object, is_object, secret, variables, ..Frame::default() });
                }
                b'}' | b']' => {
                    if let Some(frame) = self.frames.pop()
                        && frame.secret_name
                        && let Some((start, end, value)) = frame.value
                    {
                        self.hide(start, end, &value, frame.variables, masker);
                    }
                }
                b',' => {
                    if let Some(frame) = self.frames.last_mut() {
                        frame.wants_name = frame.is_object;
                        frame.member = Member::Plain;
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn string(&mut self, start: usize, end: usize, masker: &mut Masker, depth: usize) {
        let decoded = decode(&self.text[start..end]);
        let Some(frame) = self.frames.last_mut() else {
            return self.value(start, end, &decoded, masker, depth);
        };
        if frame.is_object && frame.wants_name {
            frame.wants_name = false;
            frame.member = member(&decoded, frame.variables);
            return;
        }
        if frame.secret || frame.member == Member::Secret {
            let learn = frame.variables;
            return self.hide(start, end, &decoded, learn, masker);
        }
        match frame.member {
            Member::Name => frame.secret_name = is_secret_variable(&decoded),
            Member::Value => frame.value = Some((start, end, decoded.clone().into_owned())),
            _ => {}
        }
        self.value(start, end, &decoded, masker, depth);
    }

    /// A string that is no secret as a whole, but may contain one.
    fn value(&mut self, start: usize, end: usize, decoded: &str, masker: &mut Masker, depth: usize) {
        if depth > 0 && decoded.starts_with(['{', '[']) {
            let mut inner = Vec::new();
            if masker.json_within(decoded.as_bytes(), &mut inner, depth - 1) {
                if inner != decoded.as_bytes()
                    && let Ok(with) = String::from_utf8(inner)
                {
                    self.edits.push(Edit { start, end, with });
                }
                return;
            }
        }
        if let Cow::Owned(with) = masker.text(decoded) {
            self.edits.push(Edit { start, end, with });
        }
    }

    fn hide(&mut self, start: usize, end: usize, decoded: &str, learn: bool, masker: &mut Masker) {
        if decoded.is_empty() {
            return;
        }
        if learn {
            masker.learn(decoded);
        }
        self.edits.push(Edit { start, end, with: MASK.to_owned() });
    }
}

/// The index after the closing quote of the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The text that a JSON string (with its quotes) means.
fn decode(quoted: &str) -> Cow<'_, str> {
    let inner = &quoted[1..quoted.len().saturating_sub(1).max(1)];
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    // A lone surrogate is valid JSON text but no Rust string: such a string is searched as it stands.
    serde_json::from_str(quoted).map_or(Cow::Borrowed(inner), Cow::Owned)
}

fn member(name: &str, in_variables: bool) -> Member {
    match name {
        "name" => Member::Name,
        "value" => Member::Value,
        "env" | "headers" | "variables" => Member::Variables,
        _ if in_variables && is_secret_variable(name) => Member::Secret,
        _ if is_secret_member(name) => Member::Secret,
        _ => Member::Plain,
    }
}

/// Whether an environment variable or header of this name holds a secret: some word of it says so.
fn is_secret_variable(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let marks = ["SECRET", "PASSWORD", "PASSWD", "AUTHORIZATION", "CREDENTIAL", "COOKIE"];
    marks.iter().any(|mark| upper.contains(mark))
        || upper
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| ["KEY", "KEYS", "TOKEN", "TOKENS"].iter().any(|mark| word.ends_with(mark)))
}

/// Whether a JSON member of this name holds a secret if it holds a string: its last word says so.
/// `inputTokens`, `apiKeySource` and a bare `key` do not; `api_key`, `accessToken` and `ANTHROPIC_API_KEY` do.
fn is_secret_member(name: &str) -> bool {
    let shouted = name.bytes().all(|byte| !byte.is_ascii_lowercase());
    if shouted {
        return name != "KEY" && is_secret_variable(name);
    }
    let start = name
        .char_indices()
        .rev()
        .find(|&(at, c)| c.is_ascii_uppercase() || (at > 0 && !name.as_bytes()[at - 1].is_ascii_alphanumeric()))
        .map_or(0, |(at, _)| at);
    let last = name[start..].to_ascii_lowercase();
    match last.as_str() {
        "key" => start > 0,
        "token" | "secret" | "secrets" | "password" | "passwd" | "authorization" | "credential" | "credentials" => true,
        other => ["apikey", "accesstoken", "authtoken", "secretkey"].contains(&other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Masker {
        Masker::from_env(pairs.iter().map(|&(name, value)| (name.into(), value.into())))
    }

    fn json(masker: &mut Masker, line: &str) -> String {
        let mut out = Vec::new();
        assert!(masker.json(line.as_bytes(), &mut out), "not JSON: {line}");
        let out = String::from_utf8(out).unwrap();
        serde_json::from_str::<serde_json::Value>(&out).expect("what comes out is JSON");
        out
    }

    #[test]
    fn what_holds_no_secret_stays_byte_for_byte() {
        let line = r#" {"b" : 1.00,"a":[ "x\u0041\n", null,true ],"text":"task-oriented risk-averse sk-1 a key","key":"Enter","usage":{"input_tokens":12},"apiKeySource":"ANTHROPIC_API_KEY"} "#;
        assert_eq!(json(&mut Masker::default(), line), line);
    }

    #[test]
    fn a_secret_variable_is_masked_wherever_it_occurs() {
        let mut masker = env(&[("MY_API_KEY", "hunter2hunter2"), ("PATH", "/usr/local/bin")]);
        let line = r#"{"a":["x hunter2hunter2 y hunter2hunter2"],"path":"/usr/local/bin"}"#;
        assert_eq!(json(&mut masker, line), r#"{"a":["x *** y ***"],"path":"/usr/local/bin"}"#);
        assert_eq!(masker.text("export K=hunter2hunter2;"), "export K=***;");
    }

    #[test]
    fn a_secret_is_found_behind_json_escapes() {
        let mut masker = env(&[("DB_PASSWORD", "p\"w/ö\\1234")]);
        for spelling in [r#""p\"w/ö\\1234""#, r#""p\u0022w\/\u00f6\\12\u00334""#, r#""p\"w/\u00F6\u005c1234""#] {
            let line = format!(r#"{{"t":{spelling}}}"#);
            assert_eq!(json(&mut masker, &line), r#"{"t":"***"}"#, "{spelling}");
        }
    }

    #[test]
    fn a_secret_is_found_in_json_inside_a_json_string() {
        let mut masker = env(&[("TOKEN", "abc\"def\"ghi")]);
        let inner = serde_json::json!({"command": "echo abc\"def\"ghi", "api_key": "x"}).to_string();
        let outer = serde_json::json!({"partial_json": inner}).to_string();
        let masked: serde_json::Value = serde_json::from_str(&json(&mut masker, &outer)).unwrap();
        let masked: serde_json::Value = serde_json::from_str(masked["partial_json"].as_str().unwrap()).unwrap();
        assert_eq!(masked, serde_json::json!({"command": "echo ***", "api_key": "***"}));
    }

    #[test]
    fn members_with_secret_names_are_masked_and_counts_of_tokens_are_not() {
        let line = r#"{"api_key":"1","accessToken":"2","Authorization":"3","password":"","ANTHROPIC_AUTH_TOKEN":"5","x-api-key":"6","token":{"a":"7","n":8},"outputTokens":"9","max_tokens":10,"tokenSource":"none"}"#;
        assert_eq!(
            json(&mut Masker::default(), line),
            r#"{"api_key":"***","accessToken":"***","Authorization":"***","password":"","ANTHROPIC_AUTH_TOKEN":"***","x-api-key":"***","token":{"a":"***","n":8},"outputTokens":"9","max_tokens":10,"tokenSource":"none"}"#
        );
    }

    #[test]
    fn what_an_editor_gives_to_mcp_servers_is_masked_there_and_afterwards() {
        let mut masker = Masker::default();
        let line = r#"{"mcpServers":[{"name":"gh","env":[{"name":"GH_TOKEN","value":"s3cr3t-one"},{"value":"s3cr3t-two","name":"PASSWORD"},{"name":"MODE","value":"fast-lane"}]},{"name":"web","headers":[{"name":"Authorization","value":"Bearer s3cr3t-three"}]}]}"#;
        assert_eq!(
            json(&mut masker, line),
            r#"{"mcpServers":[{"name":"gh","env":[{"name":"GH_TOKEN","value":"***"},{"value":"***","name":"PASSWORD"},{"name":"MODE","value":"fast-lane"}]},{"name":"web","headers":[{"name":"Authorization","value":"***"}]}]}"#
        );
        let argv = serde_json::json!({"argv": ["--mcp-config", r#"{"env":{"GH_TOKEN":"s3cr3t-four"}}"#, "s3cr3t-two"]});
        let masked = json(&mut masker, &argv.to_string());
        assert!(!masked.contains("s3cr3t"), "{masked}");
        assert_eq!(masker.text("s3cr3t-one s3cr3t-three s3cr3t-four fast-lane"), "*** *** *** fast-lane");
    }

    #[test]
    fn bearer_tokens_and_known_shapes_are_masked() {
        let masker = Masker::default();
        for (text, masked) in [
            ("Authorization: Bearer abcdefgh.ij", "Authorization: Bearer ***"),
            ("bearer of bad news", "bearer of bad news"),
            ("key=sk-ant-api03-0123456789abcdef!", "key=***!"),
            ("a sk-0123456789abcdef0 b", "a *** b"),
            ("密码sk-0123456789abcdef0123", "密码***"),
            ("ghp_0123456789abcdef0123", "***"),
        ] {
            assert_eq!(masker.text(text), masked);
        }
    }

    #[test]
    fn short_values_and_numbers_are_not_hunted_for() {
        let masker = env(&[("MAX_OUTPUT_TOKENS", "320000000"), ("A_KEY", "on")]);
        assert_eq!(masker.text("on 320000000"), "on 320000000");
    }

    #[test]
    fn a_secret_that_contains_another_is_masked_whole() {
        let masker = env(&[("A_TOKEN", "abcdefgh"), ("B_TOKEN", "abcdefgh-ijkl")]);
        assert_eq!(masker.text("abcdefgh-ijkl abcdefgh"), "*** ***");
    }

    #[test]
    fn what_is_no_json_is_left_to_the_caller() {
        let mut out = b"kept".to_vec();
        for line in ["{", "{} {}", "", "nul", "\u{feff}{}"] {
            assert!(!Masker::default().json(line.as_bytes(), &mut out), "{line}");
        }
        assert_eq!(out, b"kept");
        assert!(Masker::default().json(br#""lone \ud800 surrogate""#, &mut out));
    }
}
