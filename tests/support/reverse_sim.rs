//! Simulated peers: a host and an agent that do what real ones do, at random moments.
//!
//! Owns the two models and which of the things that can happen happens next. Keeps: a conversation depends on its seed
//! alone; the agent answers what it is asked in its own time, or dies; what it said inside of a turn is known.

mod agent;
mod client;
mod host;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use diglot::translate::client::ClientWork;
use diglot::translate::{Stop, Timer};
use serde_json::{Value, json};

use super::reverse::{Conversation, Done, Input, Setting};
use super::sim::Rng;

const SESSION: &str = "s1";

/// The events of which a host may want to be told.
const HOOKS: [&str; 9] = [
    "PreToolUse",
    "PostToolUse",
    "UserPromptSubmit",
    "Stop",
    "PermissionRequest",
    "SessionStart",
    "PreCompact",
    "SubagentStart",
    "SubagentStop",
];

#[derive(Debug, Default)]
struct Host {
    begun: bool,
    prompts: u64,
    controls: u64,
    /// Open questions: id → the request.
    asks: BTreeMap<String, Value>,
    /// Questions that are over.
    old: Vec<String>,
    /// It never answers.
    silent: bool,
}

#[derive(Debug, Default)]
struct Agent {
    inbox: VecDeque<Value>,
    prompt: Option<Value>,
    cancelled: bool,
    /// It does not stop for a cancel.
    stubborn: bool,
    calls: Vec<String>,
    next_call: u64,
    next_id: u64,
    questions: Vec<u64>,
    /// The terminals it was given.
    terminals: Vec<String>,
    /// Its stdin is closed, or it was killed.
    stopping: Option<Stop>,
    /// What it can do.
    resumes: bool,
    loads: bool,
}

/// A simulated conversation.
pub(crate) struct Simulation {
    rng: Rng,
    conversation: Conversation,
    setting: Setting,
    host: Host,
    agent: Agent,
    clients: u64,
    /// What the session has to do for the agent, by its number.
    works: Vec<(u64, ClientWork)>,
    commands: Vec<client::Running>,
    disk: BTreeMap<PathBuf, String>,
    said: String,
    shown: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) problems: Vec<String>,
}

fn line(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

impl Simulation {
    /// Holds the conversation of a seed.
    pub(crate) fn run(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let setting = Self::setting(&mut rng);
        let (conversation, begun) = Conversation::new(&setting).unwrap_or_else(|e| panic!("the setting: {e}"));
        let mut sim = Self {
            conversation,
            host: Host { silent: rng.chance(5), ..Host::default() },
            agent: Agent::default(),
            clients: 0,
            works: Vec::new(),
            commands: Vec::new(),
            disk: Self::new_disk(),
            said: String::new(),
            shown: String::new(),
            inputs: Vec::new(),
            problems: Vec::new(),
            setting,
            rng,
        };
        sim.conversation.judge.by_form = true;
        sim.agent.resumes = sim.rng.chance(40);
        sim.agent.loads = sim.rng.chance(40);
        for done in begun {
            sim.take(done);
        }
        let steps = 10 + sim.rng.below(120);
        for _ in 0..steps {
            if sim.conversation.exited {
                break;
            }
            sim.step();
        }
        sim.settle();
        sim
    }

    fn setting(rng: &mut Rng) -> Setting {
        let word = |rng: &mut Rng, words: &[&str]| rng.pick(words).map_or_else(String::new, |w| (*w).to_owned());
        let mut setting = Setting {
            profile: word(rng, &["io", "io", "io", "kimi", "codebuddy", "grok", "opencode", "gemini"]),
            resume: rng.chance(15).then(|| SESSION.to_owned()),
            partial: rng.chance(50),
            replay: rng.chance(20),
            asks_host: rng.chance(85),
            mode: "default".to_owned(),
            states: word(rng, &["none", "marked", "plain"]),
            modern: rng.chance(70),
            forget: rng.chance(10),
            may_bypass: rng.chance(50),
            elicits: rng.chance(30),
            effort: rng.chance(15).then(|| word(rng, &["low", "max", "disabled"])),
            ..Setting::default()
        };
        if rng.chance(25) {
            setting.mode = word(rng, &["acceptEdits", "plan", "bypassPermissions", "dontAsk"]);
        }
        if rng.chance(15) {
            setting.allow.push("Bash(ls:*)".to_owned());
        }
        if rng.chance(15) {
            setting.deny.push("Bash(rm:*)".to_owned());
        }
        if rng.chance(15) {
            setting.max_turns = Some(1 + rng.below(3));
        }
        if rng.chance(10) {
            setting.max_budget_usd = Some(0.5);
        }
        if rng.chance(10) {
            setting.json_schema = Some(json!({ "type": "object", "required": ["a"] }));
        }
        if rng.chance(15) {
            setting.mcp_servers.insert("calc".to_owned(), json!({ "type": "sdk", "name": "calc" }));
        }
        if rng.chance(10) {
            setting.mcp_servers.insert("files".to_owned(), json!({ "command": "/bin/files" }));
        }
        setting.files = rng.chance(30);
        setting.terminals = rng.chance(30);
        setting
    }

    /// The first line of this conversation as a golden file.
    pub(crate) fn header(&self, seed: u64) -> String {
        let s = &self.setting;
        json!({ "about": format!("simulated conversation {seed}"), "source": "written", "setting": {
            "profile": s.profile, "resume": s.resume, "partial": s.partial, "replay": s.replay, "asks_host": s.asks_host,
            "mode": s.mode, "allow": s.allow, "deny": s.deny, "mcp_servers": s.mcp_servers, "max_turns": s.max_turns,
            "max_budget_usd": s.max_budget_usd, "json_schema": s.json_schema, "states": s.states, "modern": s.modern,
            "forget": s.forget, "may_bypass": s.may_bypass, "elicits": s.elicits, "effort": s.effort,
            "files": s.files, "terminals": s.terminals } })
        .to_string()
    }

    fn feed(&mut self, input: Input) {
        match self.conversation.feed(&input) {
            Ok(done) => {
                self.inputs.push(input);
                for done in done {
                    self.take(done);
                }
            }
            Err(e) => self.problems.push(format!("the simulation did something impossible: {e}")),
        }
    }

    fn take(&mut self, done: Done) {
        match done {
            Done::Host(bytes) => {
                let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { return };
                let id = value["request_id"].as_str().unwrap_or_default().to_owned();
                match value["type"].as_str() {
                    Some("control_request") => {
                        self.host.asks.insert(id, value["request"].clone());
                    }
                    Some("control_cancel_request") => {
                        self.host.asks.remove(&id);
                        self.host.old.push(id);
                    }
                    // What subagents say is no part of the answer.
                    Some("assistant")
                        if value["message"]["model"] != "<synthetic>" && value["parent_tool_use_id"].is_null() =>
                    {
                        let text = value.pointer("/message/content/0/text").and_then(Value::as_str);
                        self.shown.push_str(text.unwrap_or_default());
                    }
                    _ => {}
                }
            }
            Done::Agent(bytes) => {
                if let Ok(value) = serde_json::from_slice(&bytes) {
                    self.agent.inbox.push_back(value);
                }
            }
            Done::Start(_) => {
                let (resumes, loads) = (self.agent.resumes, self.agent.loads);
                let next = (self.agent.next_call, self.agent.next_id);
                self.agent = Agent { resumes, loads, next_call: next.0, next_id: next.1, ..Agent::default() };
                self.agent.stubborn = self.rng.chance(8);
            }
            Done::Stop(how) => self.agent.stopping = Some(how),
            Done::Client(effect, work) => self.work_comes(effect, work),
            _ => {}
        }
    }

    fn client_does(&mut self) {
        let calc = self.setting.mcp_servers.contains_key("calc");
        if !calc {
            return;
        }
        self.clients += 1;
        let conn = 1 + self.rng.below(2);
        let value = match self.rng.below(4) {
            0 => None,
            1 => Some(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })),
            _ => Some(json!({ "jsonrpc": "2.0", "id": self.clients, "method": "tools/list" })),
        };
        self.feed(Input::Relay(conn, "calc".to_owned(), value.map(|v| line(&v))));
    }

    fn time_passes(&mut self, long: bool) {
        let timers: Vec<Timer> = self.conversation.timers().to_vec();
        let Some(timer) = self.rng.pick(&timers).copied() else { return };
        let soon = matches!(timer, Timer::Settle | Timer::Commands | Timer::Barrier);
        if soon || long || self.rng.chance(4) {
            self.feed(Input::Timer(timer));
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..=24 if self.conversation.host_open => self.host_does(),
            25..=34 => self.time_passes(false),
            35..=37 => self.client_does(),
            38 if self.rng.chance(20) => self.feed(Input::Interrupted),
            39..=48 if !self.works.is_empty() || !self.commands.is_empty() => {
                let patiently = self.rng.chance(80);
                self.session_does(patiently);
            }
            _ if self.conversation.runs => self.agent_does(),
            _ => {}
        }
    }

    /// Everybody comes to rest, and then the host leaves.
    fn settle(&mut self) {
        for left in [false, true] {
            for round in 0..400 {
                if self.conversation.exited {
                    break;
                }
                let before = self.inputs.len();
                if self.session_does(false) {
                    continue;
                }
                if self.conversation.host_open && !self.host.asks.is_empty() {
                    self.answers(true);
                } else if self.conversation.runs && self.agent.stopping.is_some() {
                    self.dies();
                } else if self.conversation.runs && !self.agent.inbox.is_empty() {
                    // The reading of an answer is nothing that happens.
                    self.agent_reads(true);
                    continue;
                } else if self.conversation.runs
                    && self.agent.prompt.is_some()
                    && !(self.agent.cancelled && self.agent.stubborn)
                {
                    self.agent.questions.clear();
                    self.ends();
                } else {
                    self.time_passes(true);
                }
                if self.inputs.len() == before && round > 0 {
                    break;
                }
            }
            if self.conversation.exited {
                break;
            }
            if left {
                self.problems.push("it lives on when the host is gone and nothing is left to do".to_owned());
            } else if self.conversation.host_open {
                self.problems.extend(self.conversation.judge.unsettled());
                self.feed(Input::HostClosed);
            }
        }
        self.problems.extend(self.conversation.judge.violations());
        self.problems.extend(self.conversation.judge.unsettled());
        self.problems.dedup();
        let stops = self.setting.max_turns.is_some() || self.setting.max_budget_usd.is_some();
        // Hooks that refuse stop a turn, and what comes then is not shown.
        if !stops && !self.conversation.judge.has_hooks() && self.said != self.shown {
            self.problems.push(format!("text: shown {:?}, said {:?}", self.shown, self.said));
        }
    }
}
