//! `session/new`: its parameters, as the flags and the environment that claude is started with.
//!
//! Owns the command line (design, section 5.1; stream-json.md, section 5). Keeps: every parameter is applied or the
//! request is refused; nothing is left out silently.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::mappings::AgentProfile;
use crate::translate::FarSpec;
use crate::translate::acp_agent::object;
use crate::wire::acp::methods;
use crate::wire::jsonrpc::{RpcError, json_kind};
use crate::wire::text::{Raw, items, text};

/// What `session/new` asked for.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    cwd: PathBuf,
    directories: Vec<PathBuf>,
    /// `mcpServers` in claude's form; `None` without servers.
    mcp_servers: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    cwd: Raw<'a>,
    #[serde(borrow)]
    mcp_servers: Member<'a>,
    #[serde(borrow)]
    additional_directories: Raw<'a>,
    #[serde(borrow)]
    system_prompt: Raw<'a>,
}

/// Tells an absent member from `null`.
#[derive(Default)]
struct Member<'a>(Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Member<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}

/// How the process continues the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conversation<'a> {
    /// A new one under this id.
    New(&'a str),
    /// The one that claude kept under this id.
    Resume(&'a str),
}

impl Opening {
    /// Reads the parameters.
    ///
    /// # Errors
    /// -32602; the message names the parameter, what was found and what is expected.
    pub(super) fn read(params: Raw<'_>) -> Result<Self, RpcError> {
        let p: Params<'_> = object(methods::SESSION_NEW, params)?;
        let cwd = absolute(p.cwd, "cwd")?;
        let directories = match p.additional_directories {
            None => Vec::new(),
            Some(raw) => items(Some(raw))
                .ok_or_else(|| {
                    invalid(format!(
                        "`additionalDirectories` must be an array of absolute paths; found {}",
                        json_kind(raw)
                    ))
                })?
                .into_iter()
                .enumerate()
                .map(|(i, raw)| absolute(Some(raw), &format!("additionalDirectories[{i}]")))
                .collect::<Result<_, _>>()?,
        };
        // Never silently ignored (acp.md, section 5, rule 34).
        if p.system_prompt.is_some() {
            return Err(invalid(
                "`systemPrompt` is not supported; it was not advertised in `sessionCapabilities`".into(),
            ));
        }
        let mcp_servers = match p.mcp_servers.0 {
            None => return Err(invalid("`mcpServers` is missing; send an empty array for none".into())),
            Some(raw) if raw.get() == "null" => None,
            Some(raw) => {
                let list = items(Some(raw)).ok_or_else(|| {
                    invalid(format!("`mcpServers` must be an array of servers; found {}", json_kind(raw)))
                })?;
                mcp_servers(&list)?
            }
        };
        Ok(Self { cwd, directories, mcp_servers })
    }

    /// The session's directory.
    pub(super) fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Whether the editor gave an MCP server of this name.
    pub(super) fn has_mcp_server(&self, name: &str) -> bool {
        self.mcp_servers.as_ref().is_some_and(|servers| servers.contains_key(name))
    }

    /// Refuses what the agent has no flag for, rather than leaving it out.
    ///
    /// # Errors
    /// -32602 names the parameter.
    pub(super) fn check(self, profile: &AgentProfile) -> Result<Self, RpcError> {
        let agent = &profile.title;
        if self.mcp_servers.is_some() && profile.flags.mcp_config.is_none() {
            return Err(invalid(format!("{agent} takes no MCP servers; send an empty `mcpServers`")));
        }
        if !self.directories.is_empty() && profile.flags.add_dir.is_none() {
            return Err(invalid(format!("{agent} takes no `additionalDirectories`; leave them out")));
        }
        Ok(self)
    }

    /// The process to start.
    pub(super) fn spec(&self, profile: &AgentProfile, conversation: Conversation<'_>, mode: Option<&str>) -> FarSpec {
        let mut args = profile.args.clone();
        let mut give = |flag: &Option<String>, value: &str| {
            if let Some(flag) = flag {
                args.extend([flag.clone(), value.to_owned()]);
            }
        };
        let flags = &profile.flags;
        match conversation {
            Conversation::New(id) => give(&flags.session_id, id),
            Conversation::Resume(id) => give(&flags.resume, id),
        }
        if let Some(mode) = mode {
            give(&flags.permission_mode, mode);
        }
        for dir in &self.directories {
            give(&flags.add_dir, &dir.to_string_lossy());
        }
        let servers = self.mcp_servers.as_ref().map(|servers| json!({ "mcpServers": servers }).to_string());
        let file = flags.mcp_config.clone().zip(servers);
        FarSpec { args, file, cwd: self.cwd.clone(), roots: self.directories.clone() }
    }
}

fn invalid(message: String) -> RpcError {
    RpcError::invalid_params(format!("session/new: {message}"))
}

fn absolute(raw: Raw<'_>, name: &str) -> Result<PathBuf, RpcError> {
    let Some(raw) = raw else {
        return Err(invalid(format!("`{name}` is missing; expected an absolute path")));
    };
    let Some(path) = text(Some(raw)) else {
        return Err(invalid(format!("`{name}` must be an absolute path; found {}", json_kind(raw))));
    };
    let path = PathBuf::from(&*path);
    if !path.is_absolute() {
        return Err(invalid(format!("`{name}` must be an absolute path; found {:?}", path.to_string_lossy())));
    }
    Ok(path)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Server<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    command: Raw<'a>,
    #[serde(borrow)]
    args: Raw<'a>,
    #[serde(borrow)]
    env: Raw<'a>,
    #[serde(borrow)]
    url: Raw<'a>,
    #[serde(borrow)]
    headers: Raw<'a>,
    #[serde(borrow)]
    value: Raw<'a>,
}

/// ACP's list of servers as claude's `{name: …}`.
fn mcp_servers(list: &[&RawValue]) -> Result<Option<Map<String, Value>>, RpcError> {
    let mut servers = Map::new();
    for (i, raw) in list.iter().enumerate() {
        let at = |problem: String| invalid(format!("mcpServers[{i}] {problem}"));
        if !raw.get().starts_with('{') {
            return Err(at(format!("must be an object; found {}", json_kind(raw))));
        }
        let server: Server<'_> = serde_json::from_str(raw.get()).map_err(|e| at(format!("cannot be read: {e}")))?;
        let word = |raw: Raw<'_>, member: &str| {
            text(raw).map(String::from).ok_or_else(|| at(format!("needs `{member}`, a string")))
        };
        let name = word(server.name, "name")?;
        let kind = text(server.kind).unwrap_or_default();
        let config = match &*kind {
            "" | "stdio" => json!({
                "type": "stdio",
                "command": word(server.command, "command")?,
                "args": words(server.args).ok_or_else(|| at("needs `args`, an array of strings".into()))?,
                "env": pairs(server.env).ok_or_else(|| at("needs `env`, an array of {name, value}".into()))?,
            }),
            "http" | "sse" => json!({
                "type": kind,
                "url": word(server.url, "url")?,
                "headers": pairs(server.headers).ok_or_else(|| at("needs `headers`, an array of {name, value}".into()))?,
            }),
            other => return Err(at(format!("has the unknown type {other:?}; expected stdio, http or sse"))),
        };
        if servers.insert(name.clone(), config).is_some() {
            return Err(at(format!("has the name {name:?} of another server; names must differ")));
        }
    }
    Ok(Some(servers).filter(|s| !s.is_empty()))
}

/// Absent counts as empty: typed clients leave it out.
fn words(raw: Raw<'_>) -> Option<Vec<String>> {
    match raw {
        None => Some(Vec::new()),
        Some(raw) => items(Some(raw))?.into_iter().map(|item| text(Some(item)).map(String::from)).collect(),
    }
}

fn pairs(raw: Raw<'_>) -> Option<Map<String, Value>> {
    let Some(raw) = raw else { return Some(Map::new()) };
    items(Some(raw))?
        .into_iter()
        .map(|item| {
            let pair: Server<'_> = serde_json::from_str(item.get()).ok()?;
            Some((text(pair.name)?.into_owned(), Value::String(text(pair.value)?.into_owned())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::Mappings;

    fn read(json: &str) -> Result<Opening, RpcError> {
        let raw = RawValue::from_string(json.to_owned()).unwrap_or_else(|e| panic!("{json}: {e}"));
        Opening::read(Some(&raw))
    }

    #[test]
    fn parameters_become_flags() {
        let opening = read(
            r#"{"cwd":"/w","additionalDirectories":["/x y"],"mcpServers":[
                {"name":"a","command":"/bin/a","args":["1"],"env":[{"name":"K","value":"v"}]},
                {"type":"http","name":"b","url":"http://h","headers":[{"name":"H","value":"v"}]}]}"#,
        )
        .unwrap_or_else(|e| panic!("{e:?}"));
        let claude = Mappings::builtin().agents.get("claude").unwrap_or_else(|| panic!("no profile"));
        let spec = opening.spec(claude, Conversation::Resume("S"), Some("plan"));
        let after = |flag: &str| {
            let at = spec.args.iter().position(|a| a == flag).unwrap_or_else(|| panic!("no {flag}"));
            spec.args[at + 1].clone()
        };
        assert_eq!(after("--resume"), "S");
        assert_eq!(after("--permission-mode"), "plan");
        assert_eq!(after("--permission-prompt-tool"), "stdio");
        assert_eq!(after("--add-dir"), "/x y");
        // Not among the arguments, which everybody on the machine can read.
        assert_eq!(
            spec.file.map(|(flag, text)| (flag, serde_json::from_str::<Value>(&text).unwrap_or_default())),
            Some((
                "--mcp-config".to_owned(),
                json!({"mcpServers":{
                "a":{"type":"stdio","command":"/bin/a","args":["1"],"env":{"K":"v"}},
                "b":{"type":"http","url":"http://h","headers":{"H":"v"}}}})
            ))
        );
        // Report 79: "you run inside of Claude Code" is not handed on.
        assert!(
            ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT"]
                .iter()
                .all(|v| claude.unset.iter().any(|u| u == v))
        );
    }

    #[test]
    fn wrong_parameters_are_named() {
        let refusal = |json: &str| read(json).err().map(|e| e.message).unwrap_or_default();
        assert!(refusal(r#"{"mcpServers":[]}"#).contains("`cwd` is missing"));
        assert!(refusal(r#"{"cwd":"w","mcpServers":[]}"#).contains("absolute path; found \"w\""));
        assert!(refusal(r#"{"cwd":5,"mcpServers":[]}"#).contains("found a number"));
        assert!(refusal(r#"{"cwd":"/w"}"#).contains("`mcpServers` is missing"));
        assert!(read(r#"{"cwd":"/w","mcpServers":null}"#).is_ok());
        assert!(refusal(r#"{"cwd":"/w","mcpServers":[{"name":"a"}]}"#).contains("mcpServers[0] needs `command`"));
        assert!(refusal(r#"{"cwd":"/w","mcpServers":[{"type":"acp","name":"a"}]}"#).contains("unknown type \"acp\""));
        assert!(refusal(r#"{"cwd":"/w","mcpServers":[],"systemPrompt":{}}"#).contains("systemPrompt"));
    }
}
