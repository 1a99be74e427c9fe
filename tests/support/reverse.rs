//! A whole conversation of a host with an agent, without pipes, processes or time.
//!
//! Owns the life of the agent's process and the timers, as explicit inputs, and the names by which an input refers to what
//! diglot asked. Keeps: a line of the agent's comes only from a process that runs, a timer fires only while it is set,
//! nothing happens after the exit, and every line that goes in or comes out passes the judges.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use diglot::mappings::Mappings;
use diglot::translate::claude_over_acp::host::mcp_servers;
use diglot::translate::claude_over_acp::{ClaudeOverAcp, Effort, Open, Options, RelayCommand, Settings, States};
use diglot::translate::client::{ClientDone, ClientWork, Output};
use diglot::translate::rules::{PermissionMode, Rules};
use diglot::translate::{Action, Actions, Clock, Event, FarExit, FarSpec, StartFailure, Stop, Timer, Translator};
use diglot::wire::acp_client::McpServer;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::conversation::Counter;
use super::reverse_rules::Judge;

/// The host's id of the session in every conversation.
pub(crate) const SESSION: &str = "11111111-1111-4111-8111-111111111111";

/// What a conversation is held with.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Setting {
    pub(crate) profile: String,
    /// `new`, or the agent's id of the session that is resumed.
    pub(crate) resume: Option<String>,
    pub(crate) fork: bool,
    pub(crate) add_dirs: Vec<PathBuf>,
    pub(crate) partial: bool,
    pub(crate) replay: bool,
    /// `--permission-prompt-tool stdio`.
    pub(crate) asks_host: bool,
    pub(crate) mode: String,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) model: Option<String>,
    /// A word of `--effort` or `--thinking`.
    pub(crate) effort: Option<String>,
    /// `--allow-dangerously-skip-permissions`.
    pub(crate) may_bypass: bool,
    pub(crate) system_prompt: Option<String>,
    pub(crate) append_system_prompt: Option<String>,
    /// As `--mcp-config` has them.
    pub(crate) mcp_servers: Map<String, Value>,
    pub(crate) max_turns: Option<u64>,
    pub(crate) max_budget_usd: Option<f64>,
    pub(crate) json_schema: Option<Value>,
    /// `none`, `marked`, `plain`.
    pub(crate) states: String,
    pub(crate) modern: bool,
    /// `--forward-subagent-text`.
    pub(crate) forward_subagent_text: bool,
    /// The host answers `elicitation`.
    pub(crate) elicits: bool,
    pub(crate) forget: bool,
    /// There is an MCP relay.
    pub(crate) relay: bool,
    /// `--permission-prompt-tool mcp__S__T`: T.
    pub(crate) permission_tool: Option<String>,
    /// `--diglot-files`.
    pub(crate) files: bool,
    /// `--diglot-terminals`.
    pub(crate) terminals: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            profile: "demo".to_owned(),
            resume: None,
            fork: false,
            add_dirs: Vec::new(),
            partial: false,
            replay: false,
            asks_host: true,
            mode: "default".to_owned(),
            allow: Vec::new(),
            deny: Vec::new(),
            model: None,
            effort: None,
            may_bypass: false,
            system_prompt: None,
            append_system_prompt: None,
            mcp_servers: Map::new(),
            max_turns: None,
            max_budget_usd: None,
            json_schema: None,
            states: "none".to_owned(),
            modern: true,
            forward_subagent_text: false,
            elicits: false,
            forget: false,
            relay: true,
            permission_tool: None,
            files: false,
            terminals: false,
        }
    }
}

/// A clock that goes on by one millisecond at each look.
#[derive(Debug, Default)]
struct Ticks(u64);

impl Clock for Ticks {
    fn now_ms(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Something that happens.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// The host writes a line.
    Host(Vec<u8>),
    /// It has closed stdin.
    HostClosed,
    /// SIGINT.
    Interrupted,
    /// The agent writes a line.
    Agent(Vec<u8>),
    /// Its process has ended.
    AgentClosed(FarExit),
    /// Its process could not be started.
    AgentFailed(StartFailure),
    /// A timer runs out.
    Timer(Timer),
    /// A program behind the MCP relay writes a line, or has gone.
    Relay(u64, String, Option<Vec<u8>>),
    /// The permission tool answered, or could not.
    Tool(u64, Result<String, String>),
    /// What came of a work for the agent.
    Client(u64, ClientDone),
    /// A command of the agent's has ended.
    CommandEnded(u64, Output),
}

/// Something that diglot does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Done {
    Host(Vec<u8>),
    Agent(Vec<u8>),
    Start(FarSpec),
    Stop(Stop),
    Set(Timer, Duration),
    Clear(Timer),
    Relay(u64, Vec<u8>),
    Client(u64, ClientWork),
    Proxy(McpServer),
    Tool(u64, String, Value),
    Remember(String),
    Warn(String),
    Exit(u8),
}

/// The conversation.
pub(crate) struct Conversation {
    translator: ClaudeOverAcp,
    /// The agent's process runs.
    pub(crate) runs: bool,
    /// Nothing is written to it any more.
    deaf: bool,
    heard: bool,
    /// Files and terminals are served.
    serves: (bool, bool),
    pub(crate) host_open: bool,
    pub(crate) exited: bool,
    timers: Vec<Timer>,
    /// Ids of the questions to the host, in order.
    asks: Vec<String>,
    /// Methods and ids of the requests to the agent that wait.
    requests: Vec<(String, String)>,
    pub(crate) judge: Judge,
}

/// Whether a line is an answer, and no other JSON with an `id` in it.
pub(crate) fn is_answer(value: &Value) -> bool {
    let ends = value.get("result").is_some() || value.get("error").is_some();
    value["jsonrpc"] == "2.0" && value.get("method").is_none() && ends
}

fn settings(setting: &Setting) -> Result<Settings, String> {
    let profile = Mappings::builtin().agents.get(&setting.profile).cloned();
    let profile = profile.ok_or_else(|| format!("there is no profile {:?}", setting.profile))?;
    let mode = PermissionMode::parse(&setting.mode).ok_or_else(|| format!("there is no mode {:?}", setting.mode))?;
    let (rules, rejected) = Rules::parse(&setting.allow, &[], &setting.deny, None);
    if !rejected.is_empty() {
        return Err(format!("rules that cannot be read: {rejected:?}"));
    }
    let states = match &*setting.states {
        "none" => States::None,
        "marked" => States::Marked,
        "plain" => States::Plain,
        other => return Err(format!("there are no states {other:?}")),
    };
    let (servers, sdk_servers, problems) = mcp_servers(&setting.mcp_servers);
    if !problems.is_empty() {
        return Err(problems.join("; "));
    }
    let relay = RelayCommand {
        program: "/bin/diglot".to_owned(),
        args: vec!["mcp-relay".to_owned()],
        env: vec![("TOKEN".to_owned(), "secret".to_owned())],
        https: true,
    };
    Ok(Settings {
        profile: Arc::new(profile),
        session_id: SESSION.to_owned(),
        open: match &setting.resume {
            None => Open::New,
            Some(id) => Open::Resume { agent_session: id.clone(), fork: setting.fork },
        },
        cwd: PathBuf::from("/w"),
        add_dirs: setting.add_dirs.clone(),
        options: Options {
            partial: setting.partial,
            replay: setting.replay,
            asks_host: setting.asks_host,
            permission_tool: setting.permission_tool.clone(),
            mode,
            rules,
            model: setting.model.clone(),
            effort: setting.effort.as_deref().and_then(Effort::parse),
            may_bypass: setting.may_bypass || mode == PermissionMode::BypassPermissions,
            append_system_prompt: setting.append_system_prompt.clone(),
            system_prompt: setting.system_prompt.clone(),
            mcp_servers: servers,
            sdk_servers,
            max_turns: setting.max_turns,
            max_budget_usd: setting.max_budget_usd,
            json_schema: setting.json_schema.clone(),
            states,
            await_initialize: false,
            modern: setting.modern,
            forward_subagent_text: setting.forward_subagent_text,
            elicits: setting.elicits,
            forget: setting.forget,
            files: setting.files,
            terminals: setting.terminals,
        },
        relay: setting.relay.then_some(relay),
        pid: 1,
        ids: Box::new(Counter::default()),
        clock: Box::new(Ticks::default()),
    })
}

/// Whether a work is of a kind that was switched on.
fn setting_serves(work: &ClientWork, (files, terminals): &(bool, bool)) -> bool {
    match work {
        ClientWork::Read { .. } | ClientWork::Write { .. } => *files,
        ClientWork::Find { .. } => *files || *terminals,
        _ => *terminals,
    }
}

impl Conversation {
    /// A conversation that has begun, and what was done at its beginning.
    ///
    /// # Errors
    /// When the setting is wrong.
    pub(crate) fn new(setting: &Setting) -> Result<(Self, Vec<Done>), String> {
        let mut conversation = Self {
            translator: ClaudeOverAcp::new(settings(setting)?),
            runs: false,
            deaf: false,
            heard: false,
            serves: (setting.files, setting.terminals),
            host_open: true,
            exited: false,
            timers: Vec::new(),
            asks: Vec::new(),
            requests: Vec::new(),
            judge: Judge::new(setting),
        };
        let mut done = Vec::new();
        conversation.event(Event::Begin, &mut done);
        Ok((conversation, done))
    }

    /// The timers that are set.
    pub(crate) fn timers(&self) -> &[Timer] {
        &self.timers
    }

    /// A line in which `"@ask N"` is the id of the Nth question to the host, and `"@METHOD"` that of the request of this
    /// method that the agent has not answered yet (the oldest one).
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn resolve(&self, line: &str) -> Result<String, String> {
        let mut text = line.to_owned();
        while let Some(start) = text.find("\"@") {
            let rest = &text[start + 2..];
            let (name, _) = rest.split_once('"').ok_or("a name without an end")?;
            let name = name.to_owned();
            let id = match name.strip_prefix("ask ") {
                Some(number) => {
                    let at = number.parse::<usize>().ok().and_then(|n| n.checked_sub(1));
                    at.and_then(|at| self.asks.get(at)).map(|id| format!("{id:?}"))
                }
                None => self.requests.iter().find(|(method, _)| *method == name).map(|(_, id)| id.clone()),
            };
            let id = id.ok_or_else(|| format!("nothing waits as {name:?}"))?;
            text.replace_range(start..start + name.len() + 3, &id);
        }
        Ok(text)
    }

    /// What happens, and what is done about it.
    ///
    /// # Errors
    /// When it cannot happen now.
    pub(crate) fn feed(&mut self, input: &Input) -> Result<Vec<Done>, String> {
        if self.exited {
            return Err("diglot has exited".into());
        }
        self.judge.event();
        let mut done = Vec::new();
        match input {
            Input::Host(line) => {
                if !self.host_open {
                    return Err("the host has closed stdin".into());
                }
                self.judge.host_says(line);
                self.event(Event::Near(line), &mut done);
            }
            Input::HostClosed => {
                if !self.host_open {
                    return Err("the host has closed stdin before".into());
                }
                self.host_open = false;
                self.judge.host_closed();
                self.event(Event::NearClosed, &mut done);
            }
            Input::Interrupted => {
                self.judge.interrupted();
                self.event(Event::Interrupted, &mut done);
            }
            Input::Agent(line) => {
                if !self.runs {
                    return Err("no agent runs".into());
                }
                self.heard = true;
                self.answered(line);
                self.judge.agent_says(line);
                self.event(Event::Far(line), &mut done);
            }
            Input::AgentClosed(exit) => {
                if !self.runs {
                    return Err("no agent runs".into());
                }
                self.stopped();
                self.event(Event::FarClosed(exit), &mut done);
            }
            Input::AgentFailed(why) => {
                if !self.runs || self.heard {
                    return Err("no agent is being started".into());
                }
                self.stopped();
                self.event(Event::FarFailed(why), &mut done);
            }
            Input::Timer(timer) => {
                let at = self.timers.iter().position(|t| t == timer);
                self.timers.remove(at.ok_or_else(|| format!("timer {timer:?} is not set"))?);
                self.judge.time_ran_out(*timer);
                self.event(Event::Timer(*timer), &mut done);
            }
            Input::Tool(effect, answer) => {
                self.judge.tool_answers(*effect, answer.as_deref().ok());
                self.event(Event::ToolCalled { effect: *effect, answer: answer.clone() }, &mut done);
            }
            Input::Client(effect, finished) => {
                self.event(Event::Client { effect: *effect, done: finished.clone() }, &mut done);
            }
            Input::CommandEnded(terminal, output) => {
                self.event(Event::CommandEnded { terminal: *terminal, output: output.clone() }, &mut done);
            }
            Input::Relay(conn, server, line) => {
                self.judge.relay_says(*conn, line.as_deref());
                self.event(Event::Relay { conn: *conn, server, line: line.as_deref() }, &mut done);
            }
        }
        Ok(done)
    }

    fn stopped(&mut self) {
        self.runs = false;
        self.requests.clear();
        self.judge.agent_gone();
    }

    fn answered(&mut self, line: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(line) else { return };
        if is_answer(&value)
            && let Some(id) = value.get("id").map(Value::to_string)
        {
            self.requests.retain(|(_, own)| *own != id);
        }
    }

    fn event(&mut self, event: Event<'_>, done: &mut Vec<Done>) {
        let mut actions = Actions::default();
        self.translator.handle(event, &mut actions);
        for action in actions.drain() {
            if self.exited {
                self.judge.broken(format!("it goes on after its exit: {action:?}"));
            }
            let what = match action {
                Action::Near(line) => Done::Host(line),
                Action::NearLong(line) => Done::Host(line.to_line()),
                Action::Chunk(chunk) => Done::Host(chunk.to_line()),
                Action::Far(line) => {
                    if !self.runs || self.deaf {
                        // Nobody reads it: the session layer drops it.
                        continue;
                    }
                    Done::Agent(line)
                }
                Action::StartFar(spec) => {
                    if self.runs {
                        self.judge.broken("it starts a second process".into());
                    }
                    (self.runs, self.deaf, self.heard) = (true, false, false);
                    self.judge.agent_started();
                    Done::Start(spec)
                }
                Action::StopFar(how) => {
                    if !self.runs {
                        self.judge.broken("it stops a process that does not run".into());
                    }
                    self.deaf |= how != Stop::Interrupt;
                    self.judge.agent_stopped();
                    Done::Stop(how)
                }
                Action::SetTimer(timer, after) => {
                    self.timers.retain(|t| *t != timer);
                    self.timers.push(timer);
                    Done::Set(timer, after)
                }
                Action::ClearTimer(timer) => {
                    // Clearing one that is not set is nothing worth showing.
                    if !self.timers.contains(&timer) {
                        continue;
                    }
                    self.timers.retain(|t| *t != timer);
                    Done::Clear(timer)
                }
                Action::Relay { conn, line } => Done::Relay(conn, line),
                Action::Proxy(server) => Done::Proxy(server),
                Action::AskTool { effect, tool, arguments } => {
                    self.judge.asks_tool(effect, &arguments);
                    Done::Tool(effect, tool, arguments)
                }
                Action::Client { effect, work } => {
                    if !setting_serves(&work, &self.serves) {
                        self.judge.broken(format!("it does what nobody switched on: {work:?}"));
                    }
                    self.judge.acts(&work);
                    Done::Client(effect, work)
                }
                Action::Remember { agent_session } => Done::Remember(agent_session),
                Action::Warn(text) => Done::Warn(text),
                Action::Exit(code) => {
                    self.exited = true;
                    if self.runs {
                        self.judge.broken("it exits while the agent runs".into());
                    }
                    Done::Exit(code)
                }
                Action::Note(_) => continue,
                other @ (Action::End | Action::ReadFile { .. } | Action::ForgetFile) => {
                    self.judge.broken(format!("it does what only an editor's session does: {other:?}"));
                    continue;
                }
            };
            self.written(&what);
            done.push(what);
        }
        let seen: HashSet<Timer> = self.timers.iter().copied().collect();
        if self.exited && seen.contains(&Timer::Start) {
            self.judge.broken("it exits with a timer set".into());
        }
    }

    fn written(&mut self, what: &Done) {
        let value = |line: &[u8]| serde_json::from_slice::<Value>(line).unwrap_or_default();
        match what {
            Done::Host(line) => {
                let value = value(line);
                if value["type"] == "control_request"
                    && let Some(id) = value["request_id"].as_str()
                {
                    self.asks.push(id.to_owned());
                }
                self.judge.host_reads(line);
            }
            Done::Agent(line) => {
                let value = value(line);
                if let (Some(method), Some(id)) = (value["method"].as_str(), value.get("id")) {
                    self.requests.push((method.to_owned(), id.to_string()));
                }
                self.judge.agent_reads(line);
            }
            Done::Relay(conn, line) => self.judge.relay_reads(*conn, line),
            Done::Exit(code) => self.judge.exits(*code),
            _ => {}
        }
    }
}
