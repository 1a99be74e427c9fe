//! The conversation that a command line asks for.
//!
//! Owns the reading of everything the flags name: files, settings, the sessions that are known. Keeps: nothing is started
//! here, and nothing of a file's content is said in an error but where it is wrong.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::args::{ClaudeArgs, InputFormat};
use super::complain;
use crate::agents;
use crate::config::{self, Config};
use crate::mappings::{AcpWays, AgentProfile, Agents, Mappings, Program, Protocol};
use crate::peer::guard::Guards;
use crate::session::acp::Launch;
use crate::session::host::{HostOptions, Input, Real};
use crate::session::store::{Reservation, SessionStore, checked};
use crate::trace::Trace;
use crate::translate::claude_over_acp::host::mcp_servers;
use crate::translate::claude_over_acp::{Effort, Open, Options, Settings, States};
use crate::translate::rules::{PermissionMode, Rules};
use crate::wire::acp_client::McpServer;

/// How long a silent stdin is waited for when it might hold a prompt; the real one waits as long.
const SILENT: Duration = Duration::from_secs(3);

/// A prompt, a settings file or an MCP configuration is smaller.
const FILE_LIMIT: u64 = 16 * 1024 * 1024;

/// What is to be run, and what keeps the session's id for it meanwhile.
pub(super) struct Started {
    pub(super) options: HostOptions,
    pub(super) reservation: Option<Reservation>,
}

/// Reads everything that the flags name.
pub(super) fn options(args: &ClaudeArgs, config: &Config, cwd: &Path, guards: Guards) -> Result<Started, String> {
    let files = config::mapping_files(&agents::environment).map_err(|e| e.to_string())?;
    let profiles = Mappings::agents_with_overrides(files).map_err(|e| e.to_string())?;
    let profile = profile(args, config, &profiles)?;
    let (launch, profile) = launch(profile, guards)?;
    let trace = match args.diglot_trace.as_ref().map(PathBuf::from).or_else(|| config.trace.clone()) {
        Some(path) => Trace::create(&path, Some(&profile.name)).map_err(|e| e.to_string())?,
        None => Trace::disabled(),
    };
    trace.event("started", || {
        let argv: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        serde_json::json!({"argv": argv, "cwd": cwd})
    });
    let store = match SessionStore::of_user(&agents::environment) {
        Ok(store) => Some(store),
        Err(error) => {
            tracing::warn!(%error, "sessions cannot be resumed later");
            None
        }
    };
    let (session_id, open, reservation) = session(args, store.as_ref(), &profile, cwd)?;
    let input = match args.input_format {
        InputFormat::StreamJson => Input::Stream,
        InputFormat::Text => Input::Prompt(prompt(args)?),
    };
    let mut options = conversation(args)?;
    options.files = args.diglot_files || config.files;
    options.terminals = args.diglot_terminals || config.terminals;
    let asker = asker(args, &mut options)?;
    let settings = Settings {
        profile: Arc::new(profile),
        session_id,
        open,
        cwd: cwd.to_owned(),
        add_dirs: args.add_dir.iter().map(|dir| cwd.join(dir)).collect(),
        options,
        relay: None,
        pid: std::process::id(),
        ids: Box::new(Real::default()),
        clock: Box::new(Real::default()),
    };
    let store = store.filter(|_| !args.no_session_persistence);
    Ok(Started {
        options: HostOptions { settings, launch, asker, input, format: args.format(), store, trace },
        reservation,
    })
}

/// The agent: of the flag or the program's name, else of the configuration.
fn profile(args: &ClaudeArgs, config: &Config, profiles: &Agents) -> Result<AgentProfile, String> {
    let Some(name) = args.agent_name.as_deref().or(config.agent.as_deref()) else {
        return Err(format!(
            "no agent is chosen; name one with --diglot-agent, DIGLOT_AGENT, or `agent` in ~/.config/diglot/config.toml; known are {}",
            super::known(config, profiles)
        ));
    };
    let mut profile =
        agents::resolve(Some(name), &[], config, profiles, &agents::environment).map_err(|e| e.to_string())?;
    if profiles.get(name).is_none()
        && let Some(own) = config.agents.get(name).filter(|own| own.protocol.is_none())
    {
        // An agent of the user's that nobody has measured: plain ACP.
        agents::speaks_acp(&mut profile);
        profile.args.clone_from(&own.args);
        profile.env.clone_from(&own.env);
    }
    Ok(profile)
}

/// How the agent is started. One that speaks no ACP is reached through diglot's own forward side.
fn launch(mut profile: AgentProfile, guards: Guards) -> Result<(Launch, AgentProfile), String> {
    if profile.protocol != Protocol::Acp {
        let own = std::env::current_exe().map_err(|e| format!("the path of diglot itself is not known: {e}"))?;
        profile.args = vec!["acp".into(), "--agent".into(), profile.name.clone()];
        profile.program = Program::Command(own.to_string_lossy().into_owned());
        // It must not find diglot again where it looks for claude.
        profile.env = BTreeMap::from([(super::INSIDE.to_owned(), "1".to_owned())]);
        profile.unset = Vec::new();
        profile.acp = AcpWays { settle_ms: 0, ..AcpWays::default() };
    }
    let start = agents::start(&profile).map_err(|e| e.to_string())?;
    let launch = Launch {
        program: start.program,
        args: start.args.into_iter().map(Into::into).collect(),
        env: profile.env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        env_remove: profile.unset.iter().map(Into::into).collect(),
        hint: profile.hint.clone(),
        guards,
    };
    Ok((launch, profile))
}

/// The host's id of the session, and which of the agent's it is.
fn session(
    args: &ClaudeArgs,
    store: Option<&SessionStore>,
    profile: &AgentProfile,
    cwd: &Path,
) -> Result<(String, Open, Option<Reservation>), String> {
    let new_id = || uuid::Uuid::new_v4().to_string();
    let known = match &args.resume {
        Some(Some(id)) => {
            let unknown = || format!("No conversation found with session ID: {id}");
            let record = match store {
                Some(store) if checked(id).is_ok() => store.find(id).map_err(|e| e.to_string())?,
                _ => None,
            };
            match record {
                Some(record) if record.agent == profile.name => Some((record.id, record.acp_session_id)),
                Some(record) => {
                    return Err(format!(
                        "{}: it belongs to the agent {}, not to {}",
                        unknown(),
                        record.agent,
                        profile.name
                    ));
                }
                // Not of ours: perhaps what the agent itself calls it.
                None if checked(id).is_err() => Some((new_id(), id.clone())),
                None => return Err(unknown()),
            }
        }
        Some(None) => return Err("--resume needs a session ID when nobody is at a terminal".into()),
        None if args.continue_ => match store {
            Some(store) => {
                let newest = store.newest(cwd, &profile.name).map_err(|e| e.to_string())?;
                newest.map(|record| (record.id, record.acp_session_id))
            }
            None => None,
        },
        None => None,
    };
    let own = args.session_id.clone();
    match known {
        Some((id, agent_session)) => {
            let fork = args.fork_session;
            let id = if fork { own.unwrap_or_else(new_id) } else { id };
            Ok((id, Open::Resume { agent_session, fork }, None))
        }
        None => {
            let reservation = match (&own, store) {
                (Some(id), Some(store)) => Some(store.reserve(id).map_err(|e| format!("Error: {e}"))?),
                _ => None,
            };
            Ok((own.unwrap_or_else(new_id), Open::New, reservation))
        }
    }
}

/// What the flags say of the conversation.
fn conversation(args: &ClaudeArgs) -> Result<Options, String> {
    let mut allow = args.allowed_tools.clone();
    let mut deny = args.disallowed_tools.clone();
    let mut ask = Vec::new();
    let mut model = args.model.clone();
    for settings in [&args.settings, &args.managed_settings].into_iter().flatten() {
        let settings = json_or_file(settings, "--settings")?;
        let list = |name: &str| -> Vec<String> {
            let rules = settings.get("permissions").and_then(|p| p.get(name)).and_then(Value::as_array);
            rules.into_iter().flatten().filter_map(|r| r.as_str().map(ToOwned::to_owned)).collect()
        };
        allow.extend(list("allow"));
        deny.extend(list("deny"));
        ask.extend(list("ask"));
        if model.is_none() {
            model = settings.get("model").and_then(Value::as_str).map(ToOwned::to_owned);
        }
    }
    let thinking = args.thinking.as_deref().and_then(Effort::parse);
    let effort = args.effort.as_deref().and_then(Effort::parse);
    // No thinking at all is more than a number of tokens, and that more than to think as one likes.
    let effort = effort
        .or(thinking.filter(|effort| *effort == Effort::Off))
        .or(args.max_thinking_tokens.map(Effort::of_tokens))
        .or(thinking);
    let home = agents::environment("HOME").or_else(|| agents::environment("USERPROFILE")).map(PathBuf::from);
    let (mut rules, rejected) = Rules::parse(&allow, &ask, &deny, home.as_deref());
    for rejected in rejected {
        let widened = rules.widen(&rejected);
        complain(&format!("Warning: {rejected}{widened}"));
    }
    let (mut servers, mut sdk) = (Vec::new(), Vec::new());
    for given in &args.mcp_config {
        let all = json_or_file(given, "--mcp-config")?;
        let Some(list) = all.get("mcpServers").and_then(Value::as_object) else {
            return Err("--mcp-config: expected an object with `mcpServers`".into());
        };
        let (more, in_host, problems) = mcp_servers(list);
        servers.extend(more);
        sdk.extend(in_host);
        for problem in problems {
            complain(&format!("Warning: {problem}"));
        }
    }
    let asks_host = args.permission_prompt_tool.as_deref() == Some("stdio") && !args.permission_prompts_none;
    let mode = match args.mode() {
        Some(mode) => PermissionMode::parse(mode).unwrap_or_default(),
        None => PermissionMode::default(),
    };
    let given = |name: &str| agents::environment(name).is_some_and(|v| !v.is_empty() && v != "0" && v != "false");
    let typescript = agents::environment("CLAUDE_CODE_ENTRYPOINT").is_some_and(|v| v == "sdk-ts");
    let version = agents::environment("CLAUDE_AGENT_SDK_VERSION").map(|v| v.to_string_lossy().into_owned());
    let version = version.as_deref().filter(|version| !version.is_empty());
    let states = match (given("CLAUDE_CODE_SDK_READS_SESSION_STATE"), given("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")) {
        (_, true) => States::Plain,
        (true, false) => States::Marked,
        (false, false) => States::None,
    };
    let json_schema = match &args.json_schema {
        Some(schema) => Some(serde_json::from_str(schema).map_err(|e| format!("--json-schema is not JSON: {e}"))?),
        None => None,
    };
    Ok(Options {
        partial: args.include_partial_messages,
        replay: args.replay_user_messages,
        asks_host,
        permission_tool: None,
        mode,
        may_bypass: args.dangerously_skip_permissions
            || args.allow_dangerously_skip_permissions
            || mode == PermissionMode::BypassPermissions,
        rules,
        model,
        effort,
        append_system_prompt: text_or_file(&args.append_system_prompt, &args.append_system_prompt_file)?,
        system_prompt: text_or_file(&args.system_prompt, &args.system_prompt_file)?,
        mcp_servers: servers,
        sdk_servers: sdk,
        max_turns: args.max_turns,
        max_budget_usd: args.max_budget_usd,
        json_schema,
        states,
        await_initialize: args.await_initialize,
        // TypeScript passes on every line, and before 0.3 the type of none of the newer ones.
        modern: version
            .is_some_and(|version| !typescript || !(version.starts_with("0.1.") || version.starts_with("0.2."))),
        forward_subagent_text: args.forward_subagent_text || given("CLAUDE_CODE_FORWARD_SUBAGENT_TEXT"),
        // Only this SDK knows the request; a program without a handler for it declines by itself.
        elicits: typescript && version.is_some(),
        forget: args.no_session_persistence,
        files: false,
        terminals: false,
    })
}

/// The MCP server of `--permission-prompt-tool mcp__SERVER__TOOL`. The agent gets it only if a rule allows another tool of it:
/// one that only answers permissions is none of the agent's business.
fn asker(args: &ClaudeArgs, options: &mut Options) -> Result<Option<McpServer>, String> {
    let Some(name) = args.permission_prompt_tool.as_deref().filter(|tool| *tool != "stdio") else { return Ok(None) };
    if args.permission_prompts_none {
        return Ok(None);
    }
    let wrong = || format!("--permission-prompt-tool: expected stdio or mcp__SERVER__TOOL; found {name}");
    let rest = name.strip_prefix("mcp__").ok_or_else(wrong)?;
    // A server's name may hold the separator itself.
    let known = options.mcp_servers.iter().position(|server| {
        rest.strip_prefix(server.name()).is_some_and(|tool| tool.starts_with("__") && tool.len() > 2)
    });
    let Some(at) = known else {
        return Err(format!("--permission-prompt-tool: no --mcp-config has the server of {name}"));
    };
    let server = options.mcp_servers[at].clone();
    let tool = &rest[server.name().len() + 2..];
    let prefix = format!("mcp__{}__", server.name());
    if !args.allowed_tools.iter().any(|rule| rule.starts_with(&prefix) && rule != name) {
        options.mcp_servers.remove(at);
    }
    options.permission_tool = Some(tool.to_owned());
    Ok(Some(server))
}

/// A JSON object, given as such or as the name of a file.
fn json_or_file(given: &str, flag: &str) -> Result<Map<String, Value>, String> {
    let text = if given.trim_start().starts_with('{') { given.to_owned() } else { file(Path::new(given), flag)? };
    match serde_json::from_str(&text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(format!("{flag}: expected a JSON object")),
        Err(error) => Err(format!("{flag}: not JSON: {error}")),
    }
}

fn file(path: &Path, flag: &str) -> Result<String, String> {
    let read = || -> std::io::Result<String> {
        let mut text = String::new();
        std::fs::File::open(path)?.take(FILE_LIMIT).read_to_string(&mut text)?;
        Ok(text)
    };
    read().map_err(|error| format!("{flag}: cannot read {}: {error}", path.display()))
}

fn text_or_file(text: &Option<String>, path: &Option<String>) -> Result<Option<String>, String> {
    let from_file = path.as_ref().map(|path| file(Path::new(path), "the system prompt's file")).transpose()?;
    Ok(match (text.clone(), from_file) {
        (Some(text), Some(more)) => Some(format!("{text}\n\n{more}")),
        (text, more) => text.or(more),
    })
}

/// The one prompt: of the command line, of stdin, or both.
fn prompt(args: &ClaudeArgs) -> Result<String, String> {
    let from_stdin = if std::io::stdin().is_terminal() { String::new() } else { stdin(args)? };
    let joined = match (args.prompt.as_deref(), from_stdin.trim()) {
        (Some(prompt), "") => prompt.to_owned(),
        (Some(prompt), _) => format!("{prompt}\n{from_stdin}"),
        (None, _) => from_stdin,
    };
    if joined.trim().is_empty() {
        return Err(
            "Error: Input must be provided either through stdin or as a prompt argument when using --print".into()
        );
    }
    Ok(joined)
}

/// What stdin holds. One that says nothing is waited for only so long, unless the prompt can only be there.
fn stdin(args: &ClaudeArgs) -> Result<String, String> {
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut first = vec![0; 8192];
        let read = stdin.read(&mut first).unwrap_or_default();
        first.truncate(read);
        // The receiver may have stopped waiting.
        let more = read > 0 && sender.send(first).is_ok();
        let mut rest = Vec::new();
        if more && stdin.take(FILE_LIMIT).read_to_end(&mut rest).is_ok() {
            let _ = sender.send(rest);
        }
    });
    let mut bytes = if args.prompt_on_stdin || args.prompt.is_none() {
        // There is no other prompt.
        receiver.recv().unwrap_or_default()
    } else {
        match receiver.recv_timeout(SILENT) {
            Ok(bytes) => bytes,
            Err(mpsc::RecvTimeoutError::Disconnected) => Vec::new(),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                complain("Warning: no stdin data received in 3s, proceeding without it.");
                return Ok(String::new());
            }
        }
    };
    bytes.extend(receiver.iter().flatten());
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
