//! Simulated peers: an editor and a claude that do what real ones do, at random moments.
//!
//! Owns the two models and the clock between them: which of the things that can happen happens next. Keeps: a
//! conversation depends on its seed alone; claude keeps its own protocol's order (stream-json.md, section 10) however
//! late it reads and however suddenly it dies; what the editor should have been told is known.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use diglot::translate::{FarExit, FileContent, StartFailure, Stop};
use serde_json::{Value, json};

use super::claude::{Act, Claude, Said};
use super::conversation::{Conversation, Done, Input, Output, Setting};
use super::judge::Rpc;

/// What an editor without notices reads when a conversation was lost that was never answered.
const BEGINS_ANEW: &str = "nothing was kept of this conversation; it begins anew\n\n";

/// splitmix64: small, and the same on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.next() % n }
    }

    /// True in `percent` of all cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(usize::try_from(self.below(list.len() as u64)).unwrap_or(0))
    }
}

/// What the simulated editor knows.
#[derive(Debug, Default)]
struct Editor {
    next_id: u64,
    /// Sessions that were opened: number → id.
    sessions: Vec<String>,
    opening: u32,
    prompts: u32,
    waiting: Vec<u64>,
    /// Open questions: id → option ids.
    questions: BTreeMap<u64, Vec<String>>,
    /// Questions that were answered or withdrawn.
    old: Vec<u64>,
    /// Text that was shown, per session.
    shown: HashMap<String, Said>,
    /// It never answers a question.
    silent: bool,
}

/// A simulated conversation.
pub(crate) struct Simulation {
    rng: Rng,
    conversation: Conversation,
    editor: Editor,
    claudes: BTreeMap<u32, Claude>,
    /// Conversations that claude has written down: session id → kept.
    store: HashMap<String, bool>,
    near_open: bool,
    /// Files are read late.
    late: bool,
    /// What claude said to be shown, per session.
    said: HashMap<String, Said>,
    /// Everything that happened, for a golden file.
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
        let mut files = HashMap::new();
        files.insert(PathBuf::from("/w/a.txt"), FileContent::Text("old\n".to_owned()));
        files.insert(PathBuf::from("/w/b.txt"), FileContent::Unreadable("it is not text"));
        let late = rng.chance(50);
        let setting = Setting { files, reads_at_once: !late, ..Setting::default() };
        let mut sim = Self {
            conversation: Conversation::new(setting),
            editor: Editor { silent: rng.chance(5), ..Editor::default() },
            claudes: BTreeMap::new(),
            store: HashMap::new(),
            near_open: true,
            late,
            said: HashMap::new(),
            inputs: Vec::new(),
            problems: Vec::new(),
            rng,
        };
        sim.conversation.judge.by_form = true;
        sim.begin();
        let steps = 10 + sim.rng.below(90);
        for _ in 0..steps {
            sim.step();
        }
        sim.settle();
        sim
    }

    /// The first line of this conversation as a golden file.
    pub(crate) fn header(&self, seed: u64) -> String {
        let reads = if self.late { "late" } else { "at once" };
        json!({ "about": format!("simulated conversation {seed}"), "source": "written", "reads": reads,
            "files": { "/w/a.txt": "old\n", "/w/b.txt": { "unreadable": "it is not text" } } })
        .to_string()
    }

    fn begin(&mut self) {
        let client = match self.rng.below(3) {
            0 => json!({}),
            1 => json!({ "session": { "notices": {} } }),
            _ => json!({ "_meta": { "terminal_output": true } }),
        };
        let params = json!({ "protocolVersion": 1, "clientCapabilities": client });
        self.ask("initialize", &params);
        self.open();
    }

    fn feed(&mut self, input: Input) {
        match self.conversation.feed(&input) {
            Ok(outputs) => {
                self.inputs.push(input);
                for output in outputs {
                    self.take(output);
                }
            }
            Err(e) => self.problems.push(format!("the simulation did something impossible: {}", e.0)),
        }
    }

    fn take(&mut self, output: Output) {
        match (output.what, output.session) {
            (Done::Near(bytes), session) => self.editor_reads(&bytes, session),
            (Done::Far(bytes), Some(session)) => {
                if let (Some(claude), Ok(value)) = (self.claudes.get_mut(&session), serde_json::from_slice(&bytes)) {
                    claude.inbox.push_back(value);
                }
            }
            (Done::Start(spec), Some(session)) => {
                let claude = Claude::start(&mut self.rng, &spec.args, &self.store);
                self.claudes.insert(session, claude);
            }
            (Done::Stop(how), Some(session)) => {
                if let Some(claude) = self.claudes.get_mut(&session) {
                    match how {
                        Stop::Gently => claude.stdin_closed = true,
                        Stop::Interrupt => claude.sigint = true,
                        Stop::Kill => claude.killed = true,
                    }
                }
            }
            _ => {}
        }
    }

    fn editor_reads(&mut self, bytes: &[u8], session: Option<u32>) {
        match Rpc::read(bytes) {
            Rpc::Request { id, params, .. } => {
                let options = params.get("options").and_then(Value::as_array).cloned().unwrap_or_default();
                let ids = options
                    .iter()
                    .filter_map(|o| o.get("optionId").and_then(Value::as_str).map(str::to_owned))
                    .collect();
                if let Ok(id) = id.parse() {
                    self.editor.questions.insert(id, ids);
                }
            }
            Rpc::Notification { method, params } => {
                if method == "$/cancel_request" {
                    if let Some(id) = params.get("requestId").and_then(Value::as_u64) {
                        self.editor.questions.remove(&id);
                        self.editor.old.push(id);
                    }
                    return;
                }
                let update = params.get("update").cloned().unwrap_or_default();
                let text = update.pointer("/content/text").and_then(Value::as_str).unwrap_or_default();
                let id = params.get("sessionId").and_then(Value::as_str).unwrap_or_default().to_owned();
                let said = self.editor.shown.entry(id).or_default();
                match update.get("sessionUpdate").and_then(Value::as_str) {
                    // What diglot itself has to say is no text of claude's.
                    Some("agent_message_chunk") => said.text.push_str(&text.replace(BEGINS_ANEW, "")),
                    Some("agent_thought_chunk") => said.thoughts.push_str(text),
                    _ => {}
                }
            }
            Rpc::Response { id, outcome } => {
                if let Ok(id) = id.parse::<u64>() {
                    self.editor.waiting.retain(|w| *w != id);
                }
                if let Ok(result) = outcome
                    && let Some(id) = result.get("sessionId").and_then(Value::as_str)
                {
                    self.editor.sessions.push(id.to_owned());
                }
                let _ = session;
            }
            Rpc::Garbage { .. } => {}
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.editor.next_id;
        self.editor.next_id += 1;
        if method == "session/prompt" {
            self.editor.waiting.push(id);
        }
        self.feed(Input::Near(line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))));
        id
    }

    fn open(&mut self) {
        self.editor.opening += 1;
        let params = match self.rng.below(12) {
            0 => json!({ "cwd": "w", "mcpServers": [] }),
            1 => {
                json!({ "cwd": "/w", "additionalDirectories": ["/x"], "mcpServers": [{ "name": "a", "command": "/a", "args": [], "env": [] }] })
            }
            _ => json!({ "cwd": "/w", "mcpServers": [] }),
        };
        self.ask("session/new", &params);
    }

    /// One thing happens.
    fn step(&mut self) {
        let r = self.rng.below(100);
        if r < 30 && self.near_open {
            self.editor_acts();
        } else if r < 92 {
            self.claude_acts();
        } else if r < 96 {
            self.time_passes(30);
        } else {
            self.files_are_read();
        }
    }

    fn files_are_read(&mut self) {
        for number in self.conversation.sessions() {
            if self.conversation.is_reading(number) {
                self.feed(Input::Read(number));
                return;
            }
        }
    }

    /// A timer runs out; with a claude that is merely slow only now and then.
    fn time_passes(&mut self, percent: u64) {
        for number in self.conversation.sessions() {
            if let Some(timer) = self.conversation.timers(number).first().copied() {
                let hangs = self.claudes.get(&number).is_some_and(|c| c.hangs);
                if hangs || self.rng.chance(percent) {
                    self.feed(Input::Timer(number, timer));
                    return;
                }
            }
        }
    }

    fn editor_acts(&mut self) {
        let session = self.rng.pick(&self.editor.sessions).cloned();
        match (self.rng.below(40), session) {
            (0..12, Some(session)) => self.prompt(&session),
            (12..15, Some(session)) => {
                let params = json!({ "sessionId": session });
                self.feed(Input::Near(line(
                    &json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }),
                )));
            }
            (15..17, _) => {
                let id = match self.rng.pick(&self.editor.waiting).copied() {
                    Some(id) if self.rng.chance(80) => id,
                    _ => self.rng.below(20),
                };
                let params = json!({ "requestId": id });
                self.feed(Input::Near(line(
                    &json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": params }),
                )));
            }
            (17..19, Some(session)) => {
                let mode = self.rng.pick(&["default", "plan", "acceptEdits", "nonsense"]).copied().unwrap_or_default();
                self.ask("session/set_mode", &json!({ "sessionId": session, "modeId": mode }));
            }
            (19..20, _) => self.garbage_to_diglot(),
            (20..21, _) if self.editor.opening < 3 => self.open(),
            (21..22, _) if self.rng.chance(15) => self.leave(),
            (22..23, _) => {
                if let Some(id) = self.rng.pick(&self.editor.old).copied() {
                    self.answer(id, &["allow_once".to_owned()]);
                }
            }
            _ => {
                let ids: Vec<u64> = self.editor.questions.keys().copied().collect();
                if let (Some(id), false) = (self.rng.pick(&ids).copied(), self.editor.silent) {
                    let options = self.editor.questions.remove(&id).unwrap_or_default();
                    self.editor.old.push(id);
                    self.answer(id, &options);
                }
            }
        }
    }

    fn prompt(&mut self, session: &str) {
        if self.editor.prompts > 7 {
            return;
        }
        self.editor.prompts += 1;
        let prompt = match self.rng.below(10) {
            0 => json!("text"),
            1 => json!([]),
            2 => json!([{ "type": "text", "text": "/cost" }]),
            3 => {
                json!([{ "type": "text", "text": "see " }, { "type": "resource_link", "name": "a", "uri": "file:///w/a.rs#L1" }])
            }
            _ => json!([{ "type": "text", "text": "go" }]),
        };
        self.ask("session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
    }

    fn answer(&mut self, id: u64, options: &[String]) {
        let chosen = self.rng.pick(options).cloned().unwrap_or_default();
        let body = match self.rng.below(20) {
            0 => json!({ "error": { "code": -32601, "message": "no" } }),
            1 => json!({ "result": { "outcome": { "outcome": "cancelled" } } }),
            2 => json!({ "result": { "outcome": { "outcome": "selected", "optionId": "yes" } } }),
            3 => json!({ "result": {} }),
            4 => json!({ "result": null }),
            5 => {
                json!({ "result": { "outcome": { "outcome": "selected", "optionId": "reject_once", "_meta": { "reason": "why" } } } })
            }
            _ => json!({ "result": { "outcome": { "outcome": "selected", "optionId": chosen } } }),
        };
        let mut message = json!({ "jsonrpc": "2.0", "id": id });
        for (key, value) in body.as_object().into_iter().flatten() {
            message[key] = value.clone();
        }
        self.feed(Input::Near(line(&message)));
    }

    fn garbage_to_diglot(&mut self) {
        let lines = [
            "{not json",
            "[]",
            "7",
            "{}",
            r#"{"type":"bash_command","command":"x"}"#,
            r#"{"jsonrpc":"2.0","id":"x","method":"no/such"}"#,
            r#"{"jsonrpc":"2.0","method":"no/such"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":99999999,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"s","method":"session/prompt","params":{"sessionId":"nobody","prompt":[]}}"#,
            r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"nobody"}}"#,
        ];
        let text = self.rng.pick(&lines).copied().unwrap_or_default();
        self.feed(Input::Near(text.as_bytes().to_vec()));
    }

    fn leave(&mut self) {
        self.near_open = false;
        self.editor.questions.clear();
        self.feed(Input::NearClosed);
    }

    /// One of the processes does something.
    fn claude_acts(&mut self) {
        let numbers: Vec<u32> = self.claudes.keys().copied().filter(|n| self.conversation.runs(*n)).collect();
        let Some(number) = self.rng.pick(&numbers).copied() else { return };
        self.claude_does(number);
    }

    fn claude_does(&mut self, number: u32) {
        let Some(claude) = self.claudes.get_mut(&number) else { return };
        match claude.act(&mut self.rng, &mut self.store) {
            Act::Say(lines) => {
                for said in lines {
                    if let (true, Some(id)) = (self.near_open, self.conversation.session_id(number)) {
                        let all = self.said.entry(id.to_owned()).or_default();
                        all.text.push_str(&said.said.text);
                        all.thoughts.push_str(&said.said.thoughts);
                    }
                    self.feed(Input::Far(number, line(&said.value)));
                }
            }
            Act::Noise(text) => self.feed(Input::Far(number, text.as_bytes().to_vec())),
            Act::Exit(exit) => self.dies(number, exit),
            Act::NoStart(message) => self.feed(Input::FarFailed(number, StartFailure::NoProgram(message))),
            Act::Nothing => {}
        }
    }

    fn dies(&mut self, number: u32, exit: FarExit) {
        self.feed(Input::FarClosed(number, exit));
    }

    /// Everything comes to rest: claude works off what it has, timers run out, and whoever hangs is ended.
    fn settle(&mut self) {
        for round in 0..2000 {
            for number in self.conversation.sessions() {
                while self.conversation.is_reading(number) {
                    self.feed(Input::Read(number));
                }
            }
            // The editor answers what is open; one that never does cancels.
            let ids: Vec<u64> = self.editor.questions.keys().copied().collect();
            if self.near_open && !ids.is_empty() {
                if self.editor.silent {
                    self.cancel_all();
                    // What belongs to background work outlives the cancel, so in the end it answers.
                    self.editor.silent = round < 5;
                } else {
                    for id in ids {
                        let options = self.editor.questions.remove(&id).unwrap_or_default();
                        self.answer(id, &options);
                    }
                }
            }
            let numbers: Vec<u32> = self.claudes.keys().copied().filter(|n| self.conversation.runs(*n)).collect();
            let mut busy = false;
            for number in numbers {
                busy |= self.claudes.get(&number).is_some_and(Claude::has_work);
                self.claude_does(number);
            }
            if !busy {
                let before = self.inputs.len();
                self.time_passes(100);
                if self.inputs.len() == before && self.near_open && !self.editor.waiting.is_empty() {
                    // Whoever waits for a claude that hangs cancels in the end.
                    self.cancel_all();
                }
                if self.inputs.len() == before && (self.editor.questions.is_empty() || !self.near_open) {
                    break;
                }
            }
        }
        self.finish();
    }

    fn cancel_all(&mut self) {
        for session in self.editor.sessions.clone() {
            let params = json!({ "sessionId": session });
            self.feed(Input::Near(line(&json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }))));
        }
    }

    fn finish(&mut self) {
        if self.near_open {
            self.problems.extend(self.conversation.judge.unsettled());
            if !self.conversation.is_settled() {
                self.problems.push("a session is not settled".to_owned());
            }
            self.leave();
        }
        for number in self.conversation.sessions() {
            for _ in 0..500 {
                if !self.conversation.runs(number) {
                    break;
                }
                self.claude_does(number);
            }
            if self.conversation.runs(number) {
                self.dies(number, FarExit { signal: Some(9), ..FarExit::default() });
            }
        }
        self.problems.extend(self.conversation.judge.unsettled());
        if !self.conversation.sessions().is_empty() {
            self.problems.push("a session lives on when the editor is gone and its process is dead".to_owned());
        }
        self.problems.extend(self.conversation.judge.violations());
        self.text_is_exact();
    }

    /// What was shown is what was said: all of it while the editor was there, in order, once.
    fn text_is_exact(&mut self) {
        let mut all = std::mem::take(&mut self.said);
        for id in self.editor.shown.keys() {
            all.entry(id.clone()).or_default();
        }
        for (id, expected) in all {
            let shown = self.editor.shown.get(&id).cloned().unwrap_or_default();
            for (what, shown, expected) in
                [("text", &shown.text, &expected.text), ("thoughts", &shown.thoughts, &expected.thoughts)]
            {
                if shown != expected {
                    self.problems.push(format!("{what} of {id}: shown {shown:?}, said {expected:?}"));
                }
            }
        }
    }
}
