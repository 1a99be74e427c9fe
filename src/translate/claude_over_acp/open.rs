//! Opening the session: initialize, log in, session/new, load or resume, then the mode and the model.
//!
//! Keeps: the agent's session is opened when the host has said what belongs into it: with its `initialize`, or, if it
//! sends none, with its first prompt; the mode is one that asks before the first prompt goes out (quirk 53); a start that
//! fails is told once, on every way a host may listen (rules 5 to 8).

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::agent::{Asked, Choice, Choices, OpenBy, Serves, Stage};
use super::setting::choices;
use super::{CLAUDE_VERSION, ClaudeOverAcp, Open};
use crate::translate::{Action, Actions, Stop, Timer};
use crate::wire::acp::methods;
use crate::wire::acp_client::{
    AgentCapabilities, ClientCapabilities, ClientInfo, Elicitation, Fs, Initialize, Initialized, McpCapabilities,
    McpServer, Models, Modes, OpenSession, Opened, PromptBlock, PromptCapabilities, Served, SessionCapabilities,
    SystemPrompt, methods as more,
};
use crate::wire::jsonrpc::ErrorObject;
use crate::wire::stream_json;
use crate::wire::stream_json_agent as say;
use crate::wire::text::{Raw, boolean, read, text, uint};

/// An agent that has not opened a session by then is given up: a Python host waits 60 s (rule 7).
const START_LIMIT: Duration = Duration::from_secs(50);

/// How long a failed start waits for the host's first word.
const WORDLESS: Duration = Duration::from_secs(2);

/// How long the answer to the host's `initialize` waits for the agent's commands (rendition table).
const COMMANDS_LIMIT: Duration = Duration::from_millis(300);

impl ClaudeOverAcp {
    /// The agent's process runs: the first request.
    pub(super) fn begin_agent(&mut self, out: &mut Actions) {
        self.agent.stage = Stage::Starting;
        out.push(Action::SetTimer(Timer::Start, START_LIMIT));
        // Whom nobody can ask is not told of forms.
        let (elicits, asks) = (self.set.options.elicits, self.set.options.asks_host);
        let elicitation =
            (elicits || asks).then(|| Elicitation { url: elicits.then(Served::default), ..Elicitation::default() });
        let params = Initialize {
            protocol_version: crate::wire::acp::PROTOCOL_VERSION,
            client_capabilities: ClientCapabilities {
                fs: Fs { read_text_file: self.set.options.files, write_text_file: self.set.options.files },
                terminal: self.set.options.terminals,
                elicitation,
                ..ClientCapabilities::default()
            },
            client_info: ClientInfo { name: "diglot", title: "diglot", version: env!("CARGO_PKG_VERSION") },
        };
        self.ask_agent(methods::INITIALIZE, &params, Asked::Initialize, out);
    }

    pub(super) fn initialized(&mut self, outcome: Result<&RawValue, ErrorObject>, out: &mut Actions) {
        let result = match outcome {
            Ok(result) => Initialized::read(Some(result)),
            Err(error) => {
                let said = self.agent_error("`initialize`", &error);
                return self.give_up(&said, out);
            }
        };
        if let Some(version) = uint(result.protocol_version).filter(|v| *v != 1) {
            let title = &self.set.profile.title;
            let said =
                format!("{title} speaks version {version} of ACP; diglot speaks 1: use a version of it that does too");
            return self.give_up(&said, out);
        }
        self.agent.serves = serves(result.agent_capabilities);
        self.agent.serves.sse &= self.set.profile.acp.mcp_sse;
        self.agent.stage = Stage::Initialized;
        self.open_session(out);
    }

    /// Opens the session when both sides are there.
    pub(super) fn open_session(&mut self, out: &mut Actions) {
        // Whoever has sent no `initialize` by its first prompt sends none (rule 8: several hosts do not).
        let host_is_there = self.host.initialized || self.host.initialize.is_some() || !self.queue.is_empty();
        let ready = self.agent.stage == Stage::Initialized && !self.agent.leaving;
        if !ready || !(host_is_there || self.host.closed) {
            return;
        }
        if self.host.closed && self.queue.is_empty() && self.host.initialize.is_none() {
            return self.exit(out);
        }
        let cwd = self.set.cwd.to_string_lossy().into_owned();
        let servers = self.servers_for_agent(out);
        let mut directories: Vec<String> = Vec::new();
        if self.agent.serves.directories {
            directories.extend(self.set.add_dirs.iter().map(|d| d.to_string_lossy().into_owned()));
        }
        let system = self.system_prompt();
        self.agent.stage = Stage::Opening;
        let (by, session_id) = match &self.set.open {
            Open::New => (OpenBy::New, None),
            Open::Resume { agent_session, fork: true } if self.agent.serves.fork => {
                (OpenBy::Fork, Some(agent_session.clone()))
            }
            Open::Resume { fork: true, .. } => {
                let said = format!("{} cannot fork a session", self.set.profile.title);
                return self.give_up(&said, out);
            }
            Open::Resume { agent_session, .. } if self.agent.serves.resume => {
                (OpenBy::Resume, Some(agent_session.clone()))
            }
            Open::Resume { agent_session, .. } if self.agent.serves.load && self.set.profile.acp.load => {
                (OpenBy::Load, Some(agent_session.clone()))
            }
            Open::Resume { .. } if self.agent.was_ready => {
                let title = &self.set.profile.title;
                out.push(Action::Warn(format!("{title} could not resume the session; it begins anew")));
                (OpenBy::New, None)
            }
            Open::Resume { .. } => {
                let said = self.no_conversation();
                return self.give_up(&said, out);
            }
        };
        let method = match by {
            OpenBy::New => methods::SESSION_NEW,
            OpenBy::Load => more::SESSION_LOAD,
            OpenBy::Resume => more::SESSION_RESUME,
            OpenBy::Fork => more::SESSION_FORK,
        };
        if matches!(by, OpenBy::Load | OpenBy::Resume) {
            self.agent.session_id.clone_from(&session_id);
            // A host does not expect its history again (quirk 58).
            self.agent.replaying = true;
        }
        let (prompt, system) = match (self.agent.serves.system_prompt, system) {
            (true, Some((mode, text))) => (Some((self.system_mode(mode, out), [PromptBlock::Text { text }])), None),
            (_, system) => (None, system),
        };
        let params = OpenSession {
            session_id: session_id.as_deref(),
            cwd: &cwd,
            mcp_servers: &servers,
            additional_directories: &directories,
            system_prompt: prompt.as_ref().map(|(mode, content)| SystemPrompt { mode, content }),
        };
        // A session that goes on after a crash has it already.
        if by == OpenBy::New || !self.agent.was_ready {
            self.agent.preamble = self.preamble(system);
        }
        self.ask_agent(method, &params, Asked::Open(by), out);
    }

    /// How the system prompt is sent: an agent refuses a mode that it has not announced.
    fn system_mode(&self, mode: &'static str, out: &mut Actions) -> &'static str {
        if mode == "override" && !self.agent.serves.system_override {
            let title = &self.set.profile.title;
            out.push(Action::Warn(format!("{title} keeps its own system prompt; the host's is added to it")));
            return "append";
        }
        mode
    }

    /// The host's system prompt: how it is meant, and its text.
    fn system_prompt(&self) -> Option<(&'static str, String)> {
        let (system, append) = self.host.system_prompts(&self.set.options);
        match (system, append) {
            (Some(system), Some(append)) => Some(("override", format!("{system}\n\n{append}"))),
            (Some(system), None) => Some(("override", system)),
            (None, Some(append)) => Some(("append", append)),
            (None, None) => None,
        }
    }

    /// What an agent that has no place for it is told with the first prompt.
    fn preamble(&self, system: Option<(&'static str, String)>) -> Option<String> {
        let mut parts = Vec::new();
        if let Some((_, text)) = system {
            parts.push(format!("<system-instructions>\n{text}\n</system-instructions>"));
        }
        if !self.agent.serves.directories && !self.set.add_dirs.is_empty() {
            let list: Vec<_> = self.set.add_dirs.iter().map(|d| format!("- {}", d.display())).collect();
            parts.push(format!("You may also work in these directories:\n{}", list.join("\n")));
        }
        if let Some(schema) = self.schema_instruction() {
            parts.push(schema);
        }
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    /// The MCP servers as the agent can take them.
    fn servers_for_agent(&mut self, out: &mut Actions) -> Vec<McpServer> {
        if self.agent.refused_servers {
            return Vec::new();
        }
        let (http, sse) = (self.agent.serves.http, self.agent.serves.sse);
        let mut servers = Vec::new();
        let mut left_out = Vec::new();
        for server in self.set.options.mcp_servers.iter().chain(&self.host.mcp_servers) {
            match server {
                McpServer::Remote { r#type, name, url, .. } if !(if *r#type == "sse" { sse } else { http }) => {
                    let encrypted = url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
                    if let Some(relay) = self.set.relay.as_ref().filter(|relay| relay.https || !encrypted) {
                        // diglot reaches it in the agent's place.
                        servers.push(relay.server(name));
                        out.push(Action::Proxy(server.clone()));
                        continue;
                    }
                    let title = &self.set.profile.title;
                    let instead = match self.set.relay {
                        Some(_) => "; put a program that speaks stdio in between, such as `npx mcp-remote URL`",
                        None => "",
                    };
                    let said = format!("{title} cannot reach MCP servers over {type}: {name} is left out{instead}");
                    out.push(Action::Warn(said));
                    left_out.push(name.clone());
                }
                other => servers.push(other.clone()),
            }
        }
        self.agent.left_out = left_out;
        servers.extend(self.relay_servers(out));
        servers
    }

    pub(super) fn opened(&mut self, by: OpenBy, outcome: Result<&RawValue, ErrorObject>, out: &mut Actions) {
        let result = match outcome {
            Ok(result) => Opened::read(Some(result)),
            Err(error) => return self.open_refused(by, &error, out),
        };
        if matches!(by, OpenBy::New | OpenBy::Fork) {
            let Some(id) = text(result.session_id) else {
                let said = format!("{} opened a session without an id", self.set.profile.title);
                return self.give_up(&said, out);
            };
            self.agent.session_id = Some(id.into_owned());
        }
        self.agent.replaying = false;
        let modes = Modes::read(result.modes);
        if modes.available_modes.is_some() {
            self.agent.modes = Choices {
                all: choices(modes.available_modes),
                current: text(modes.current_mode_id).map(Into::into),
                option: None,
            };
        }
        let models = Models::read(result.models);
        if models.available_models.is_some() {
            self.agent.models = Choices {
                all: choices(models.available_models),
                current: text(models.current_model_id).map(Into::into),
                option: None,
            };
        }
        self.read_options(result.config_options);
        if let Some(agent_session) = self.agent.session_id.clone()
            && !self.set.options.forget
        {
            out.push(Action::Remember { agent_session });
        }
        self.early_updates(out);
        self.agent.stage = Stage::Setting;
        self.set_agent_mode(None, self.mode, out);
        // The agent's own is what these words ask for.
        if let Some(model) = self.set.options.model.clone().filter(|m| !matches!(m.as_str(), "default" | "inherit"))
            && let Err(said) = self.set_model(&model, None, out)
        {
            out.push(Action::Warn(format!("--model: {said}; its own model is used")));
        }
        if let Some(effort) = self.set.options.effort {
            self.set_effort(effort, None, out);
        }
        self.settings_done(out);
    }

    fn open_refused(&mut self, by: OpenBy, error: &ErrorObject, out: &mut Actions) {
        // A method that needs no person is tried once.
        if self.needs_login(error).is_some()
            && !self.agent.tried_login
            && let Some(method) = self.set.profile.acp.authenticate.clone()
        {
            self.agent.tried_login = true;
            self.ask_agent(methods::AUTHENTICATE, &json!({"methodId": method}), Asked::Authenticate, out);
            return;
        }
        let resuming = matches!(by, OpenBy::Load | OpenBy::Resume);
        // An agent may refuse servers that it cannot start (report 56): the conversation is worth more.
        if by == OpenBy::New
            && !self.agent.tried_without_servers
            && error.code == -32602
            && !self.server_names().is_empty()
        {
            self.agent.tried_without_servers = true;
            self.agent.refused_servers = true;
            out.push(Action::Warn(format!(
                "{} refused the MCP servers ({}); it runs without them",
                self.set.profile.title, error.message
            )));
            self.agent.stage = Stage::Initialized;
            return self.open_session(out);
        }
        if resuming && self.agent.was_ready {
            // After a crash: better a new session than none, and the user is told.
            out.push(Action::Warn(format!("{} could not resume the session; it begins anew", self.set.profile.title)));
            self.set.open = Open::New;
            self.agent.session_id = None;
            self.agent.replaying = false;
            self.agent.stage = Stage::Initialized;
            return self.open_session(out);
        }
        let said = if resuming {
            format!("{} ({})", self.no_conversation(), error.message)
        } else {
            self.agent_error("to open a session", error)
        };
        self.give_up(&said, out);
    }

    pub(super) fn authenticated(&mut self, outcome: Result<&RawValue, ErrorObject>, out: &mut Actions) {
        if let Err(error) = outcome {
            let said = self.agent_error("`authenticate`", &error);
            return self.give_up(&said, out);
        }
        self.agent.stage = Stage::Initialized;
        self.open_session(out);
    }

    fn no_conversation(&self) -> String {
        format!("No conversation found with session ID: {}", self.set.session_id)
    }

    /// Everything is set: the conversation may begin.
    pub(super) fn settings_done(&mut self, out: &mut Actions) {
        if self.agent.settings_wait() {
            return;
        }
        out.push(Action::ClearTimer(Timer::Control));
        if self.agent.stage == Stage::Ready {
            return self.next_turn(out);
        }
        if self.agent.stage != Stage::Setting {
            return;
        }
        self.agent.stage = Stage::Ready;
        self.agent.was_ready = true;
        out.push(Action::ClearTimer(Timer::Start));
        if self.host.initialize.is_some() {
            if self.agent.commands.is_empty() && self.queue.is_empty() && !self.host.closed {
                out.push(Action::SetTimer(Timer::Commands, COMMANDS_LIMIT));
            } else {
                self.answer_initialize(out);
            }
        }
        self.session_start_hooks(out);
        self.next_turn(out);
    }

    /// The answer to the host's `initialize`.
    pub(super) fn answer_initialize(&mut self, out: &mut Actions) {
        let Some(id) = self.host.initialize.take() else { return };
        out.push(Action::ClearTimer(Timer::Commands));
        self.host.initialized = true;
        let words = ["low", "medium", "high", "xhigh", "max"];
        let levels: Vec<&str> =
            words.into_iter().filter(|w| self.agent.efforts.all.iter().any(|c| c.id == *w)).collect();
        let current = self.agent.models.current.as_ref();
        let model = |c: &Choice| {
            let mut model = json!({"value": c.id, "displayName": c.name, "description": c.description});
            // The option is that of the model in force.
            if !levels.is_empty() && current == Some(&c.id) {
                model["supportsEffort"] = true.into();
                model["supportedEffortLevels"] = json!(levels);
            }
            model
        };
        let mut models: Vec<Value> = self.agent.models.all.iter().map(model).collect();
        if models.is_empty() {
            models.push(json!({"value": "default", "displayName": "Default", "description": self.set.profile.title}));
        }
        let mut body = json!({
            "commands": self.agent.commands,
            "agents": [],
            "output_style": "default",
            "available_output_styles": ["default"],
            "models": models,
            "account": {},
            "pid": self.set.pid,
            "hook_on_failure_supported": true,
            "current_permission_mode": super::word(self.told_mode()),
        });
        for ack in &self.host.acks {
            body[*ack] = Value::Bool(true);
        }
        out.near(stream_json::control_response(&id, &body));
        self.next_turn(out);
    }

    /// `system/init`: the first line of each turn (rule 9).
    pub(super) fn init_line(&mut self, out: &mut Actions) {
        let servers = self.server_states();
        let commands: Vec<Value> = self.agent.commands.iter().filter_map(|c| c.get("name").cloned()).collect();
        let members = json!({
            "cwd": self.set.cwd,
            "tools": TOOLS.into_iter().map(ToOwned::to_owned).chain(self.host.mcp_tools()).collect::<Vec<String>>(),
            "mcp_servers": servers,
            "model": self.agent.model(),
            "permissionMode": super::word(self.told_mode()),
            "slash_commands": commands,
            "apiKeySource": "none",
            "claude_code_version": CLAUDE_VERSION,
            "output_style": "default",
            "agents": [],
            "skills": [],
            "plugins": [],
        });
        let Value::Object(members) = members else { return };
        self.system("init", members, out);
    }

    pub(super) fn start_timed_out(&mut self, out: &mut Actions) {
        let title = &self.set.profile.title;
        let waited = START_LIMIT.as_secs();
        let what = match self.agent.stage {
            Stage::Starting => "it did not answer `initialize`",
            _ => "it did not open a session",
        };
        let said =
            format!("{title} did not come up: {what} within {waited} s; start it by hand to see what it waits for");
        self.give_up(&said, out);
    }

    /// The session cannot be opened: the host is told, and the process stopped.
    pub(super) fn give_up(&mut self, why: &str, out: &mut Actions) {
        out.push(Action::ClearTimer(Timer::Start));
        self.tell_failure(why, out);
        self.failed = true;
        self.agent.leaving = true;
        out.push(Action::StopFar(Stop::Gently));
    }

    /// The same when there is no process (any more).
    pub(super) fn cannot_start(&mut self, why: &str, out: &mut Actions) {
        if !self.host.spoke && !self.host.closed {
            // Its `initialize` is on the way, and its answer is where a host looks first.
            self.doomed = Some(why.to_owned());
            out.push(Action::SetTimer(Timer::Control, WORDLESS));
            return;
        }
        self.fail_to_start(why, out);
    }

    /// What was kept until the host could hear it.
    pub(super) fn fail_to_start(&mut self, why: &str, out: &mut Actions) {
        self.tell_failure(why, out);
        self.failed = true;
        self.ended = true;
        out.push(Action::Exit(1));
    }

    /// Tells of a failed start on every way a host may listen: the answer to `initialize` (Python raises it), stderr (it
    /// becomes part of every SDK's exit error), and a `result` with `errors`.
    fn tell_failure(&mut self, why: &str, out: &mut Actions) {
        out.push(Action::Warn(format!("Error: {why}")));
        if let Some(id) = self.host.initialize.take() {
            out.near(say::refuse_host(&id, why));
        }
        let line = json!({
            "type": "result",
            "subtype": "error_during_execution",
            "is_error": true,
            "duration_ms": 0,
            "duration_api_ms": 0,
            "num_turns": 0,
            "session_id": self.set.session_id,
            "total_cost_usd": 0,
            "usage": say::Usage::default(),
            "modelUsage": {},
            "permission_denials": [],
            "stop_reason": null,
            "errors": [why],
            "uuid": self.uuid(),
        });
        out.near(crate::wire::jsonrpc::to_line(&line));
    }

    /// After the process's death: the next one goes on with the same session, if it can.
    pub(super) fn reopen(&mut self, kept: Option<String>) {
        self.agent.session_id = None;
        self.set.open = match kept {
            Some(agent_session) => Open::Resume { agent_session, fork: false },
            None => Open::New,
        };
    }
}

/// Claude's names of the tools that an agent's calls are rendered as.
const TOOLS: [&str; 11] =
    ["Task", "Bash", "Edit", "ExitPlanMode", "Glob", "Grep", "Read", "TodoWrite", "WebFetch", "WebSearch", "Write"];

fn serves(raw: Raw<'_>) -> Serves {
    let all = AgentCapabilities::read(raw);
    let prompt = PromptCapabilities::read(all.prompt_capabilities);
    let mcp = McpCapabilities::read(all.mcp_capabilities);
    let session = SessionCapabilities::read(all.session_capabilities);
    let system: Option<Value> = read(session.system_prompt);
    let yes = |raw| boolean(raw) == Some(true);
    let there = |raw: Raw<'_>| raw.is_some_and(|r| r.get() != "null" && r.get() != "false");
    Serves {
        load: yes(all.load_session),
        resume: there(session.resume),
        fork: there(session.fork),
        close: there(session.close),
        directories: there(session.additional_directories),
        system_prompt: there(session.system_prompt),
        system_override: system.as_ref().and_then(|s| s.pointer("/mode/override")).is_some_and(|o| !o.is_null()),
        http: yes(mcp.http),
        sse: yes(mcp.sse),
        image: yes(prompt.image),
        embedded: yes(prompt.embedded_context),
    }
}

/// Members for a `system` line.
pub(super) fn members<const N: usize>(list: [(&str, Value); N]) -> Map<String, Value> {
    list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
