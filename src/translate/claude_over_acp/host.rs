//! What the host says: prompts, control requests, answers.
//!
//! Owns what the host asked for in `initialize` and which questions to it are open. Keeps: every control request is
//! answered once, in the protocol's own words where an ACP agent cannot do it; the end of stdin is no cancel: what was
//! asked is finished, and whoever still wants an answer of the host is told that nobody can be asked (rule 16).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::turn::{Priority, Queued};
use super::{ClaudeOverAcp, Effort, Options};
use crate::translate::rules::PermissionMode;
use crate::translate::{Action, Actions};
use crate::wire::acp_client::{McpServer, NameValue, PromptBlock, Resource};
use crate::wire::jsonrpc::Id;
use crate::wire::stream_json::{self, ControlResponse, Line};
use crate::wire::stream_json_agent::{
    self as say, HostAnswer, HostBlock, HostMessage, HostRequest, HostSource, HostUser,
};
use crate::wire::text::{Raw, boolean, items, read, strings, text, uint};

/// What the reason of a refusal is when nobody could be asked.
pub(super) const NOBODY: &str = "the host's connection ended; nobody could be asked";

/// What is known of the host.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Its `initialize`, while it waits for an answer.
    pub(super) initialize: Option<String>,
    /// It was answered.
    pub(super) initialized: bool,
    /// It has said something.
    pub(super) spoke: bool,
    /// It has closed our stdin.
    pub(super) closed: bool,
    /// What of its `initialize` was applied (rule 8).
    pub(super) acks: Vec<&'static str>,
    /// Of its `initialize`.
    pub(super) mcp_servers: Vec<McpServer>,
    /// MCP servers that live in it.
    pub(super) sdk_servers: Vec<String>,
    system: Option<String>,
    append: Option<String>,
    pub(super) json_schema: Option<Value>,
    first_model: Option<String>,
    /// It wants to be told what subagents say.
    pub(super) forwards_subagents: bool,
    /// The tools of its servers, by the servers' names.
    tools: BTreeMap<String, BTreeSet<String>>,
}

/// A question to the host.
#[derive(Debug)]
pub(super) struct HostAsk {
    pub(super) id: String,
    pub(super) about: About,
}

/// What it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum About {
    /// A permission question of this number.
    Permission(u64),
    /// The same, asked of the host's permission tool.
    ByTool(u64),
    /// A hook of this run.
    Hook(u32),
    /// A message of an MCP client; the id it waits under.
    Mcp { conn: u64, id: Option<Id> },
}

impl Host {
    pub(super) fn new(options: &Options) -> Self {
        Self { sdk_servers: options.sdk_servers.clone(), json_schema: options.json_schema.clone(), ..Self::default() }
    }

    /// What a server of the host's answered to `tools/list`.
    pub(super) fn add_tools(&mut self, server: &str, result: Option<&Value>) {
        let tools = result.and_then(|r| r.get("tools")?.as_array()).into_iter().flatten();
        let names = tools.filter_map(|t| t.get("name")?.as_str().map(ToOwned::to_owned));
        self.tools.entry(server.to_owned()).or_default().extend(names);
    }

    /// The tools of its servers, as Claude calls them.
    pub(super) fn mcp_tools(&self) -> impl Iterator<Item = String> {
        self.tools.iter().flat_map(|(server, tools)| tools.iter().map(move |tool| format!("mcp__{server}__{tool}")))
    }

    /// The system prompt and what is appended; those of `initialize` over those of the flags; empty is none.
    pub(super) fn system_prompts(&self, options: &Options) -> (Option<String>, Option<String>) {
        let given = |own: &Option<String>, flag: &Option<String>| {
            own.clone().or_else(|| flag.clone()).filter(|s| !s.trim().is_empty())
        };
        (given(&self.system, &options.system_prompt), given(&self.append, &options.append_system_prompt))
    }
}

impl ClaudeOverAcp {
    /// A line of the host's.
    pub(super) fn host_line(&mut self, line: &[u8], out: &mut Actions) {
        let parsed = match Line::parse(line) {
            Ok(parsed) => parsed,
            Err(error) => {
                let said = format!("a line of the host's is left out: {error}; expected a JSON object with `type`");
                out.push(Action::Warn(said));
                return;
            }
        };
        self.host.spoke = true;
        if let Some(why) = self.doomed.take() {
            if let ("control_request", Some(id)) = (&*parsed.kind(), text(parsed.request_id)) {
                out.near(say::refuse_host(&id, &why));
            }
            return self.fail_to_start(&why, out);
        }
        match &*parsed.kind() {
            "user" => self.prompted_by_host(&HostUser::of_line(line), out),
            "control_request" => {
                let id = text(parsed.request_id).unwrap_or_default().into_owned();
                self.host_asks(&id, &HostRequest::read(parsed.request), out);
            }
            "control_response" => self.host_answered(&ControlResponse::read(parsed.response), out),
            "control_cancel_request" => out.note("the host withdrew a request that was already answered"),
            other => out.note(format!("the host's message {other:?} has no meaning here")),
        }
    }

    fn prompted_by_host(&mut self, user: &HostUser<'_>, out: &mut Actions) {
        let Some(message) = user.message else {
            out.push(Action::Warn("a `user` line of the host's has no `message`; it is left out".into()));
            return;
        };
        let blocks = self.blocks(HostMessage::read(Some(message)).content, out);
        let uuid = match text(user.uuid).filter(|u| !u.is_empty()) {
            Some(uuid) => uuid.into_owned(),
            None => self.uuid(),
        };
        let priority = Priority::of(text(user.priority).as_deref());
        let asks = boolean(user.should_query) != Some(false);
        self.enqueue(Queued { uuid, blocks, message: Some(message.to_owned()), priority, asks });
        if priority == Priority::Now && asks {
            self.preempt(out);
        }
        self.open_session(out);
        if !self.agent.is_running() {
            self.start_far(out);
        }
        self.next_turn(out);
    }

    /// A host's content as an agent can take it (quirk 70: by what it declares).
    fn blocks(&self, content: Raw<'_>, out: &mut Actions) -> Vec<PromptBlock> {
        if let Some(text) = text(content) {
            return vec![PromptBlock::Text { text: text.into_owned() }];
        }
        let serves = &self.agent.serves;
        let known = self.agent.was_ready;
        let mut blocks = Vec::new();
        for raw in items(content).unwrap_or_default() {
            let block = HostBlock::read(Some(raw));
            let source = HostSource::read(block.source);
            let data = || text(source.data).unwrap_or_default().into_owned();
            let media = |other: &str| text(source.media_type).map_or_else(|| other.to_owned(), Into::into);
            let kind = text(block.kind).unwrap_or_default();
            let source_kind = text(source.kind).unwrap_or_default();
            blocks.push(match (&*kind, &*source_kind) {
                ("text", _) => PromptBlock::Text { text: text(block.text).unwrap_or_default().into_owned() },
                ("image", "base64") if serves.image || !known => {
                    PromptBlock::Image { data: data(), mime_type: media("image/png") }
                }
                ("image" | "document", "url") => {
                    PromptBlock::Text { text: text(source.url).unwrap_or_default().into_owned() }
                }
                ("document", "base64") if serves.embedded || !known => PromptBlock::Resource {
                    resource: Resource::Blob {
                        blob: data(),
                        mime_type: media("application/pdf"),
                        uri: format!("attachment:{}", text(block.title).unwrap_or("document".into())),
                    },
                },
                ("document", "text") => PromptBlock::Text { text: data() },
                (other, _) => {
                    let title = &self.set.profile.title;
                    out.push(Action::Warn(format!("{title} cannot take a {other} block; it is told so in its place")));
                    PromptBlock::Text { text: format!("[a {other} was attached that this agent cannot take]") }
                }
            });
        }
        blocks
    }

    fn host_asks(&mut self, id: &str, request: &HostRequest<'_>, out: &mut Actions) {
        let ok = |body: Value| stream_json::control_response(id, &body);
        let subtype = text(request.subtype).unwrap_or_default();
        match &*subtype {
            "initialize" => self.host_initialize(id, request, out),
            "interrupt" if boolean(request.send_now) == Some(true) => {
                let waits = !self.queue.is_empty();
                let named = text(request.message_uuid);
                if let Some(at) = self.queue.iter().position(|q| Some(q.uuid.as_str()) == named.as_deref())
                    && let Some(first) = self.queue.remove(at)
                {
                    self.queue.push_front(first);
                }
                let all: Vec<&str> = self.queue.iter().map(|q| &*q.uuid).collect();
                let sent = if waits { "stopped" } else { "nothing_waiting" };
                out.near(ok(json!({"still_queued": all, "send_now": sent})));
                if waits {
                    self.interrupt(false, out);
                }
            }
            "interrupt" => {
                let all: Vec<&str> = self.queue.iter().map(|q| &*q.uuid).collect();
                let cancels = boolean(request.cancel_queued) == Some(true);
                // The answer comes first, then the end of the turn (section 1.5).
                out.near(ok(match cancels {
                    true => json!({"still_queued": [], "cancelled": all}),
                    false => json!({"still_queued": all}),
                }));
                self.interrupt(cancels, out);
            }
            "set_permission_mode" => self.host_sets_mode(id, text(request.mode).as_deref(), out),
            "set_model" => self.host_sets_model(id, text(request.model).as_deref(), out),
            "mcp_status" => {
                let servers = self.server_states();
                out.near(ok(json!({"mcpServers": servers})));
            }
            "mcp_message" => {
                let server = text(request.server_name).unwrap_or_default();
                self.host_tells_client(&server, request.message, out);
                out.near(ok(json!({})));
            }
            "mcp_set_servers" => {
                let servers: Map<String, Value> = read(request.servers).unwrap_or_default();
                let why = "an ACP agent takes its MCP servers only when a session is opened";
                let errors: Map<String, Value> = servers.keys().map(|n| (n.clone(), why.into())).collect();
                out.near(ok(json!({"added": [], "removed": [], "errors": errors})));
            }
            "cancel_async_message" => {
                let uuid = text(request.message_uuid).unwrap_or_default();
                let before = self.queue.len();
                self.queue.retain(|q| q.uuid != uuid);
                out.near(ok(json!({"cancelled": self.queue.len() < before})));
            }
            "get_context_usage" => {
                let (used, size) = self.context.unwrap_or_default();
                let percentage = if size == 0 { 0.0 } else { used as f64 * 100.0 / size as f64 };
                out.near(ok(json!({
                    "categories": [], "totalTokens": used, "maxTokens": size, "rawMaxTokens": size,
                    "percentage": percentage, "model": self.agent.model(), "gridRows": [], "memoryFiles": [], "mcpTools": [],
                })));
            }
            "get_settings" => out.near(ok(json!({"effective": {}, "sources": []}))),
            "rewind_files" => {
                out.near(ok(json!({"canRewind": false, "error": "an ACP agent keeps no checkpoints of files"})));
            }
            "background_tasks" => out.near(ok(json!({"backgrounded": false}))),
            // No ACP agent has it, and a host that sets it only tunes.
            "set_max_thinking_tokens" => {
                let wanted = uint(request.max_thinking_tokens).map(Effort::of_tokens);
                if !wanted.is_some_and(|wanted| self.set_effort(wanted, Some(id), out)) {
                    out.near(ok(json!({})));
                }
            }
            "apply_flag_settings" => self.host_sets_flags(id, &read(request.settings).unwrap_or_default(), out),
            "seed_read_state" | "rename_session" | "claim_session" => out.near(ok(json!({}))),
            other => out.near(stream_json::unsupported(id, other)),
        }
    }

    fn host_initialize(&mut self, id: &str, request: &HostRequest<'_>, out: &mut Actions) {
        if self.host.initialized {
            self.host.initialize = Some(id.to_owned());
            return self.answer_initialize(out);
        }
        if let Some(before) = self.host.initialize.replace(id.to_owned()) {
            out.near(say::refuse_host(&before, "another `initialize` came before this one was answered"));
            return;
        }
        // TypeScript sends an array, with one empty string for none.
        self.host.system = match text(request.system_prompt) {
            Some(one) => Some(one.into_owned()),
            None => Some(strings(request.system_prompt).join("\n\n")).filter(|s| !s.trim().is_empty()),
        }
        .filter(|s| !s.trim().is_empty());
        self.host.append = text(request.append_system_prompt).map(Into::into);
        self.host.sdk_servers.extend(strings(request.sdk_mcp_servers));
        self.host.forwards_subagents = boolean(request.forward_subagent_text) == Some(true);
        // TypeScript tells at once what its servers serve.
        let manifests: Map<String, Value> = read(request.sdk_mcp_server_manifests).unwrap_or_default();
        for (server, manifest) in &manifests {
            self.host.add_tools(server, manifest.get("toolsListResult"));
        }
        if request.json_schema.is_some() {
            self.host.json_schema = read(request.json_schema);
        }
        if request.mcp_servers.is_some() {
            let given: Map<String, Value> = read(request.mcp_servers).unwrap_or_default();
            let (servers, sdk, problems) = mcp_servers(&given);
            self.host.mcp_servers = servers;
            self.host.sdk_servers.extend(sdk);
            for problem in problems {
                out.push(Action::Warn(problem));
            }
            self.host.acks.push("mcp_servers_applied");
        }
        self.host.sdk_servers.dedup();
        if request.disallowed_tools.is_some() {
            let tools = strings(request.disallowed_tools);
            if self.add_rules(&[], &[], &tools, out) {
                self.host.acks.push("disallowed_tools_applied");
            }
        }
        for (settings, ack) in
            [(request.settings, "settings_applied"), (request.managed_settings, "managed_settings_applied")]
        {
            if settings.is_some() {
                let settings: Map<String, Value> = read(settings).unwrap_or_default();
                if self.apply_settings(&settings, out) {
                    self.host.acks.push(ack);
                }
            }
        }
        self.read_hooks(request.hooks, out);
        if self.agent.is_ready() {
            return self.answer_initialize(out);
        }
        if !self.agent.is_running() {
            // It has died since.
            return self.start_far(out);
        }
        self.open_session(out);
    }

    /// Settings, as far as they decide something here; false: something that protects could not be applied.
    fn apply_settings(&mut self, settings: &Map<String, Value>, out: &mut Actions) -> bool {
        let list = |name: &str| -> Vec<String> {
            let rules = settings.get("permissions").and_then(|p| p.get(name)).and_then(Value::as_array);
            rules.into_iter().flatten().filter_map(|r| r.as_str().map(ToOwned::to_owned)).collect()
        };
        let understood = self.add_rules(&list("allow"), &list("ask"), &list("deny"), out);
        let permissions = settings.get("permissions").and_then(Value::as_object);
        let mode = permissions.and_then(|p| p.get("defaultMode")?.as_str()).and_then(PermissionMode::parse);
        if let Some(mode) = mode.filter(|mode| self.may_be(*mode)) {
            self.mode = mode;
        }
        // What else restricts is not done here, and must not be taken for done.
        let known = |key: &String| matches!(key.as_str(), "allow" | "ask" | "deny" | "defaultMode");
        let all = permissions.into_iter().flat_map(|p| p.keys()).all(known);
        understood && all && !settings.contains_key("hooks") && !settings.contains_key("sandbox")
    }

    /// Settings that change while the conversation runs: how much the agent thinks, its model, rules.
    fn host_sets_flags(&mut self, id: &str, settings: &Map<String, Value>, out: &mut Actions) {
        if settings.contains_key("permissions") && !self.apply_settings(settings, out) {
            let said = "not all of the permissions can be applied here; those that can are in force";
            return out.near(say::refuse_host(id, said));
        }
        let string = |name: &str| settings.get(name).and_then(Value::as_str);
        if let Some(model) = string("model").filter(|m| !matches!(*m, "default" | "inherit"))
            && let Err(said) = self.set_model(model, None, out)
        {
            return out.near(say::refuse_host(id, &said));
        }
        let effort = string("effortLevel").and_then(Effort::parse);
        if !effort.is_some_and(|effort| self.set_effort(effort, Some(id), out)) {
            out.near(stream_json::control_response(id, &json!({})));
        }
    }

    fn host_sets_mode(&mut self, id: &str, mode: Option<&str>, out: &mut Actions) {
        let Some(mode) = mode.and_then(PermissionMode::parse) else {
            let known = "acceptEdits, auto, bypassPermissions, default, dontAsk, plan";
            let said = format!("Cannot set permission mode: must be one of {known}");
            return out.near(say::refuse_host_as(id, &said, "invalid_mode"));
        };
        if !self.may_be(mode) {
            let said = "Cannot set permission mode to bypassPermissions because the session was not launched with \
                        --dangerously-skip-permissions";
            return out.near(say::refuse_host_as(id, said, "bypass_not_launched"));
        }
        let told = self.told_mode();
        let before = std::mem::replace(&mut self.mode, mode);
        self.agent.own_mode = None;
        self.agent.mode_before_plan = None;
        let done = json!({"mode": super::word(mode)});
        let asked = self.agent.is_ready() && self.set_agent_mode(Some((id.to_owned(), done.clone())), before, out);
        if !asked {
            out.near(stream_json::control_response(id, &done));
            if told != mode {
                self.tell_mode(out);
            }
        }
    }

    /// Whether a mode may be chosen while the conversation runs.
    pub(super) fn may_be(&self, mode: PermissionMode) -> bool {
        mode != PermissionMode::BypassPermissions || self.set.options.may_bypass
    }

    fn host_sets_model(&mut self, id: &str, model: Option<&str>, out: &mut Actions) {
        if self.host.first_model.is_none() {
            self.host.first_model.clone_from(&self.agent.models.current);
        }
        let wanted = match model {
            None | Some("default" | "inherit") => self.host.first_model.clone(),
            Some(model) => Some(model.to_owned()),
        };
        let Some(wanted) = wanted else {
            out.near(stream_json::control_response(id, &json!({"model": "default"})));
            return;
        };
        match self.set_model(&wanted, Some(id), out) {
            Ok(true) => {}
            Ok(false) => out.near(stream_json::control_response(id, &json!({"model": self.agent.model()}))),
            Err(said) => out.near(say::refuse_host(id, &said)),
        }
    }

    /// A question to the host.
    pub(super) fn ask_host(&mut self, about: About, request: &Value, out: &mut Actions) -> String {
        let id = self.uuid();
        out.near(say::ask_host(&id, request));
        self.asks.push(HostAsk { id: id.clone(), about });
        id
    }

    fn host_answered(&mut self, response: &ControlResponse<'_>, out: &mut Actions) {
        let id = text(response.request_id).unwrap_or_default();
        let Some(at) = self.asks.iter().position(|a| a.id == id) else {
            out.note("an answer of the host's to no open question");
            return;
        };
        let ask = self.asks.remove(at);
        let answer = match text(response.subtype).as_deref() {
            Some("success") => Ok(HostAnswer::read(response.response)),
            _ => Err(text(response.error).unwrap_or("the host answered with an error".into()).into_owned()),
        };
        match ask.about {
            About::Permission(number) | About::ByTool(number) => self.permission_answered(number, answer, out),
            About::Hook(run) => self.hook_answered(run, &id, answer, out),
            About::Mcp { conn, id } => self.mcp_answered(conn, id, answer, out),
        }
    }

    /// The host has closed stdin.
    pub(super) fn host_closed(&mut self, out: &mut Actions) {
        self.host.closed = true;
        if let Some(why) = self.doomed.take() {
            return self.fail_to_start(&why, out);
        }
        for ask in std::mem::take(&mut self.asks) {
            match ask.about {
                About::Permission(number) => self.permission_answered(number, Err(NOBODY.to_owned()), out),
                // The tool is no part of the host.
                About::ByTool(_) => self.asks.push(ask),
                About::Hook(run) => self.hook_answered(run, &ask.id, Err(NOBODY.to_owned()), out),
                About::Mcp { conn, id } => self.mcp_answered(conn, id, Err(NOBODY.to_owned()), out),
            }
        }
        self.open_session(out);
        if !self.agent.is_running() && self.turn.is_none() && self.queue.is_empty() {
            return self.exit(out);
        }
        self.next_turn(out);
    }

    /// SIGINT: as the real one does, the turn is interrupted and the process ends well (rule 17).
    pub(super) fn interrupted_by_signal(&mut self, out: &mut Actions) {
        self.signalled = true;
        self.queue.clear();
        if self.turn.is_some() {
            self.interrupt(true, out);
            self.host_closed(out);
        } else {
            self.exit(out);
        }
    }
}

/// The hint of a command's input.
pub(super) fn hint(input: Raw<'_>) -> String {
    let input: Option<Value> = read(input);
    input.and_then(|i| i.get("hint").and_then(Value::as_str).map(ToOwned::to_owned)).unwrap_or_default()
}

/// MCP servers as `--mcp-config` and `initialize.mcpServers` have them: those for the agent, the names of those that live
/// in the host, and what could not be understood.
#[must_use]
pub fn mcp_servers(given: &Map<String, Value>) -> (Vec<McpServer>, Vec<String>, Vec<String>) {
    let (mut servers, mut sdk, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    let string = |value: Option<&Value>| value.and_then(Value::as_str).map(ToOwned::to_owned);
    let pairs = |value: Option<&Value>| -> Vec<NameValue> {
        let map = value.and_then(Value::as_object);
        map.into_iter()
            .flatten()
            .filter_map(|(name, v)| Some(NameValue { name: name.clone(), value: v.as_str()?.to_owned() }))
            .collect()
    };
    for (name, server) in given {
        let kind = string(server.get("type")).unwrap_or_else(|| "stdio".into());
        match (kind.as_str(), string(server.get("command")), string(server.get("url"))) {
            ("sdk", ..) => sdk.push(name.clone()),
            ("stdio", Some(command), _) => {
                let args = server.get("args").and_then(Value::as_array);
                let args = args.into_iter().flatten().filter_map(|a| a.as_str().map(ToOwned::to_owned)).collect();
                servers.push(McpServer::Stdio { name: name.clone(), command, args, env: pairs(server.get("env")) });
            }
            ("http" | "sse", _, Some(url)) => servers.push(McpServer::Remote {
                r#type: if kind == "sse" { "sse" } else { "http" },
                name: name.clone(),
                url,
                headers: pairs(server.get("headers")),
            }),
            _ => problems.push(format!(
                "MCP server {name} is left out: expected `command` (stdio), or `type` http or sse with `url`; found type {kind:?}"
            )),
        }
    }
    (servers, sdk, problems)
}

/// A raw value's text, for comparing.
pub(super) fn parsed(raw: Option<&RawValue>) -> Option<Value> {
    serde_json::from_str(raw?.get()).ok()
}
