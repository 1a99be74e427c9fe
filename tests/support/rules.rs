//! The rules that hold everywhere, checked while a conversation runs.
//!
//! Owns what an onlooker can know who sees all lines and nothing else. Keeps: every request is answered exactly once; a
//! call is announced before it is referred to, runs before it is completed, and nothing is said of it after its end; the
//! calls of a turn are closed before its answer; only an option that allows, allows; the agent is asked and told in its
//! own protocol's order.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::judge::Rpc;

#[derive(Debug)]
struct Asked {
    id: String,
    method: String,
    session: Option<String>,
    /// A prompt that the agent was given.
    sent: bool,
    /// The uuid it was sent under.
    uuid: String,
    /// The agent was heard of it.
    taken: bool,
    /// Its agent died before it took it.
    lost: bool,
    answered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Pending,
    InProgress,
    Final,
}

#[derive(Debug, Default)]
struct Session {
    /// The answer to `session/new` has been written.
    open: bool,
    calls: BTreeMap<String, Status>,
    terminals: HashSet<String>,
    /// The answer of a turn has been written within this event.
    just_answered: bool,
}

#[derive(Debug)]
struct Question {
    tool: String,
    session: String,
    /// Option id → whether it allows.
    options: HashMap<String, bool>,
    state: QuestionState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuestionState {
    Open,
    Withdrawn,
    Answered,
}

#[derive(Debug, Default)]
struct Far {
    session: String,
    runs: bool,
    /// It is gone, and what that means is being said.
    ends: bool,
    said_anything: bool,
    /// Our `initialize`, and whether it was answered with success.
    initialize: Option<(String, bool)>,
    /// Claude's open requests: its id → the call it is about.
    requests: BTreeMap<String, Option<String>>,
    /// What else was asked under an id that was open already: which of them an answer means, nobody can tell.
    reused: BTreeMap<String, Vec<Option<String>>>,
    /// Calls that go on after their turn.
    background: HashSet<String>,
    tasks: HashMap<String, String>,
    parents: HashMap<String, String>,
}

/// What was seen and what was wrong.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    violations: Vec<String>,
    requests: Vec<Asked>,
    /// The editor used the id of an open request again: until all are answered, nobody can tell which of them an answer
    /// is for. Every one is still owed exactly one.
    unsure: bool,
    /// Ids under which an error is owed to a line that was no message.
    owed: Vec<String>,
    sessions: HashMap<String, Session>,
    questions: HashMap<String, Question>,
    /// Calls that the editor allowed: how often.
    grants: HashMap<String, u32>,
    fars: BTreeMap<u32, Far>,
    client: Value,
    near_gone: bool,
}

fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    value.pointer(path).and_then(Value::as_str)
}

impl Rules {
    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    fn broken(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    pub(crate) fn event(&mut self) {
        for session in self.sessions.values_mut() {
            session.just_answered = false;
        }
    }

    /// What waits for an answer though nobody can still give one.
    pub(crate) fn unsettled(&self) -> Vec<String> {
        let mut open: Vec<String> = self
            .requests
            .iter()
            .filter(|r| !r.answered)
            .map(|r| format!("the editor's {} {} was never answered", r.method, r.id))
            .collect();
        open.extend(self.owed.iter().map(|id| format!("a line that was no message got no answer ({id})")));
        for far in self.fars.values().filter(|f| f.runs) {
            for (id, tool) in &far.requests {
                let about = tool.clone().unwrap_or_else(|| format!("question-{id}"));
                let waits = !self.near_gone
                    && self.questions.values().any(|q| q.state == QuestionState::Open && q.tool == about);
                if !waits {
                    open.push(format!("the agent's request {id} was never answered"));
                }
            }
        }
        for (id, session) in &self.sessions {
            let far = self.fars.values().find(|f| f.session == *id);
            for (call, status) in &session.calls {
                let goes_on = far.is_some_and(|f| f.runs && f.goes_on(call));
                if *status != Status::Final && !goes_on && !self.near_gone {
                    open.push(format!("call {call} was never closed"));
                }
            }
        }
        open
    }

    /// The methods of the requests that a result under this id may answer.
    pub(crate) fn methods_of(&self, id: &str) -> Vec<String> {
        self.requests.iter().filter(|r| r.id == id && (self.unsure || !r.answered)).map(|r| r.method.clone()).collect()
    }

    pub(crate) fn near_in(&mut self, message: &Rpc) {
        match message {
            Rpc::Request { id, method, params } => {
                if method == "initialize" {
                    self.client = params.get("clientCapabilities").cloned().unwrap_or_default();
                }
                self.unsure |= self.requests.iter().any(|r| r.id == *id && !r.answered);
                self.requests.push(Asked {
                    id: id.clone(),
                    method: method.clone(),
                    session: text(params, "/sessionId").map(str::to_owned),
                    sent: false,
                    uuid: String::new(),
                    taken: false,
                    lost: false,
                    answered: false,
                });
            }
            Rpc::Garbage { id } => self.owed.push(id.clone()),
            Rpc::Notification { .. } => {}
            Rpc::Response { id, outcome } => {
                let Some(question) = self.questions.get_mut(id) else { return };
                if question.state != QuestionState::Open {
                    return;
                }
                question.state = QuestionState::Answered;
                let Ok(result) = outcome else { return };
                if text(result, "/outcome/outcome") == Some("selected")
                    && let Some(option) = text(result, "/outcome/optionId")
                    && question.options.get(option) == Some(&true)
                {
                    *self.grants.entry(question.tool.clone()).or_default() += 1;
                }
            }
        }
    }

    pub(crate) fn near_closed(&mut self) {
        self.near_gone = true;
    }

    pub(crate) fn near_out(&mut self, message: &Rpc) {
        match message {
            Rpc::Response { id, outcome } => self.response(id, outcome),
            Rpc::Request { id, method, params } => {
                if method == "session/request_permission" {
                    self.question(id, params);
                } else {
                    self.broken(format!("diglot asks the editor {method}"));
                }
            }
            Rpc::Notification { method, params } => match &**method {
                "session/update" => self.update(params),
                "$/cancel_request" => self.withdrawn(params),
                other => self.broken(format!("diglot tells the editor {other}")),
            },
            Rpc::Garbage { .. } => {}
        }
    }

    fn response(&mut self, id: &str, outcome: &Result<Value, Value>) {
        let code = outcome.as_ref().err().and_then(|e| e.get("code")).and_then(Value::as_i64);
        let no_message = matches!(code, Some(-32700 | -32600));
        if no_message && let Some(at) = self.owed.iter().position(|o| o == id) {
            self.owed.remove(at);
            return;
        }
        let Some(request) = self.requests.iter_mut().find(|r| r.id == id && !r.answered) else {
            let twice = self.requests.iter().any(|r| r.id == id);
            self.broken(format!("{} answer under {id}", if twice { "a second" } else { "an unasked" }));
            return;
        };
        request.answered = true;
        let (mut method, session, sent) = (request.method.clone(), request.session.clone(), request.sent);
        if self.unsure {
            // What can be told by the answer itself: only `session/new` is answered with a session.
            let opens = outcome.as_ref().is_ok_and(|r| text(r, "/sessionId").is_some());
            method = if opens { "session/new".to_owned() } else { String::new() };
            self.unsure = self.requests.iter().any(|r| !r.answered);
        }
        match (&*method, outcome) {
            ("session/new", Ok(result)) => {
                let id = text(result, "/sessionId").unwrap_or_default().to_owned();
                match self.sessions.get_mut(&id) {
                    Some(session) if !session.open => session.open = true,
                    Some(_) => self.broken(format!("session {id} was opened twice")),
                    None => self.broken(format!("session {id} came from nowhere")),
                }
            }
            ("session/prompt", _) => {
                if let (true, Some(session)) = (sent, session) {
                    self.turn_answered(&session);
                }
            }
            _ => {}
        }
    }

    fn turn_answered(&mut self, id: &str) {
        let Some(far) = self.fars.values().find(|f| f.session == id) else { return };
        let Some(session) = self.sessions.get_mut(id) else { return };
        session.just_answered = true;
        let open: Vec<String> = session
            .calls
            .iter()
            .filter(|(call, status)| **status != Status::Final && !(far.runs && far.goes_on(call)))
            .map(|(call, _)| call.clone())
            .collect();
        for call in open {
            self.broken(format!("call {call} is open when its turn is answered"));
        }
    }

    fn question(&mut self, id: &str, params: &Value) {
        let session = text(params, "/sessionId").unwrap_or_default().to_owned();
        let tool = text(params, "/toolCall/toolCallId").unwrap_or_default().to_owned();
        if self.questions.contains_key(id) {
            self.broken(format!("a question under the used id {id}"));
        }
        if self.near_gone {
            self.broken(format!("question {id} is asked of an editor that is gone"));
        }
        match self.sessions.get(&session).and_then(|s| s.calls.get(&tool)) {
            None => self.broken(format!("question {id} is about {tool}, which was not announced")),
            Some(Status::Final) => self.broken(format!("question {id} is about {tool}, which is closed")),
            Some(_) => {}
        }
        let list = params.get("options").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut options = HashMap::new();
        for option in &list {
            let allows = matches!(text(option, "/kind"), Some("allow_once" | "allow_always"));
            let name = text(option, "/optionId").unwrap_or_default().to_owned();
            if options.insert(name.clone(), allows).is_some() {
                self.broken(format!("question {id} has the option {name} twice"));
            }
        }
        if !options.values().any(|a| *a) || options.values().all(|a| *a) {
            self.broken(format!("question {id} needs an option that allows and one that refuses"));
        }
        self.questions.insert(id.to_owned(), Question { tool, session, options, state: QuestionState::Open });
    }

    fn withdrawn(&mut self, params: &Value) {
        let id = params.get("requestId").map(Value::to_string).unwrap_or_default();
        match self.questions.get_mut(&id) {
            Some(question) if question.state == QuestionState::Open => question.state = QuestionState::Withdrawn,
            Some(_) => self.broken(format!("question {id} is withdrawn after its end")),
            None => self.broken(format!("{id} is withdrawn, but was never asked")),
        }
    }

    fn update(&mut self, params: &Value) {
        let id = text(params, "/sessionId").unwrap_or_default().to_owned();
        let update = params.get("update").cloned().unwrap_or_default();
        let kind = text(&update, "/sessionUpdate").unwrap_or_default().to_owned();
        let notices = self.client.pointer("/session/notices").is_some_and(Value::is_object);
        let terminals = self.client.pointer("/_meta/terminal_output") == Some(&Value::Bool(true));
        let mut wrong = Vec::new();
        if kind == "notice" && !notices {
            wrong.push("a notice for an editor that shows none".to_owned());
        }
        match self.sessions.get_mut(&id) {
            Some(session) if session.open => {
                let of_the_turn = matches!(&*kind, "agent_message_chunk" | "agent_thought_chunk" | "tool_call");
                if session.just_answered && of_the_turn {
                    wrong.push(format!("{kind} follows the answer of its turn"));
                }
                match &*kind {
                    "tool_call" => wrong.extend(session.announced(&update, terminals)),
                    "tool_call_update" => wrong.extend(session.changed(&update, terminals)),
                    _ => {}
                }
            }
            _ => wrong.push(format!("{kind} for the session {id}, which is not open")),
        }
        wrong.extend(places(&update));
        for what in wrong {
            self.broken(what);
        }
    }

    pub(crate) fn session_made(&mut self, number: u32, id: &str) {
        self.sessions.insert(id.to_owned(), Session::default());
        self.fars.insert(number, Far { session: id.to_owned(), ..Far::default() });
    }

    /// The process is gone: the event that says so begins.
    pub(crate) fn far_ends(&mut self, number: u32) {
        if let Some(far) = self.fars.get_mut(&number) {
            far.ends = true;
        }
    }

    pub(crate) fn far_started(&mut self, number: u32) {
        // What the one before left is settled before another one comes.
        self.far_closed(number);
        if let Some(far) = self.fars.get_mut(&number) {
            far.runs = true;
            far.said_anything = false;
            far.initialize = None;
            far.requests.clear();
            far.reused.clear();
            far.background.clear();
        }
    }

    fn is_running(&self, session: &str, uuid: &str) -> bool {
        self.running_prompt(session).is_some_and(|at| self.requests[at].uuid == uuid)
    }

    fn running_prompt(&self, session: &str) -> Option<usize> {
        self.requests.iter().position(|r| r.sent && !r.answered && r.session.as_deref() == Some(session))
    }

    pub(crate) fn far_closed(&mut self, number: u32) {
        let Some(far) = self.fars.get_mut(&number).filter(|f| f.ends) else { return };
        far.ends = false;
        far.runs = false;
        far.requests.clear();
        far.reused.clear();
        let session = far.session.clone();
        if let Some(at) = self.running_prompt(&session) {
            let prompt = &mut self.requests[at];
            // One that the agent did not take may be given to the next one, once.
            if !prompt.taken && !prompt.lost {
                (prompt.sent, prompt.lost) = (false, true);
            } else if !self.unsure {
                self.broken(format!("session {session}: the agent died and its prompt has no answer"));
            }
        }
        let Some(state) = self.sessions.get(&session) else { return };
        let open: Vec<String> =
            state.calls.iter().filter(|(_, s)| **s != Status::Final).map(|(c, _)| c.clone()).collect();
        if self.near_gone {
            // Nobody is left to be told.
            return;
        }
        for call in open {
            self.broken(format!("call {call} is open though its agent is dead"));
        }
        let asked: Vec<String> = self
            .questions
            .iter()
            .filter(|(_, q)| q.session == session && q.state == QuestionState::Open)
            .map(|(id, _)| id.clone())
            .collect();
        for id in asked {
            self.broken(format!("question {id} is open though its agent is dead"));
        }
    }

    pub(crate) fn far_in(&mut self, number: u32, line: &Value) {
        let Some(far) = self.fars.get_mut(&number) else { return };
        far.hear(line);
        let session = far.session.clone();
        let main = line.get("parent_tool_use_id").is_none_or(Value::is_null);
        let takes = match text(line, "/type") {
            Some("command_lifecycle") => text(line, "/command_uuid").is_some_and(|u| self.is_running(&session, u)),
            Some("assistant") => main,
            Some("stream_event") => main && text(line, "/event/type") == Some("message_start"),
            Some("system") => text(line, "/subtype") == Some("init"),
            _ => false,
        };
        if takes && let Some(at) = self.running_prompt(&session) {
            self.requests[at].taken = true;
        }
    }

    pub(crate) fn far_out(&mut self, number: u32, line: &Value) {
        let Some(far) = self.fars.get_mut(&number) else { return };
        let first = !std::mem::replace(&mut far.said_anything, true);
        let mut wrong = Vec::new();
        match text(line, "/type") {
            Some("control_request") => {
                let id = text(line, "/request_id").unwrap_or_default().to_owned();
                match text(line, "/request/subtype") {
                    Some("initialize") => {
                        if !first {
                            wrong.push("`initialize` is not the first line".to_owned());
                        }
                        far.initialize = Some((id, false));
                    }
                    Some("interrupt" | "set_permission_mode") => {}
                    other => wrong.push(format!("diglot asks the agent {other:?}")),
                }
            }
            Some("user") => {
                if !matches!(far.initialize, Some((_, true))) {
                    wrong.push("a prompt before the agent has come up".to_owned());
                }
                // Those that cannot be sent are answered at once, so the first that waits is the one.
                let session = far.session.clone();
                let unsure = self.unsure;
                let of_session = |r: &&mut Asked| {
                    r.method == "session/prompt"
                        && !r.answered
                        && r.session.as_ref() == Some(&session)
                        && !(unsure && r.sent)
                };
                match self.requests.iter_mut().find(of_session) {
                    Some(request) if !request.sent => {
                        request.sent = true;
                        text(line, "/uuid").unwrap_or_default().clone_into(&mut request.uuid);
                    }
                    Some(_) => wrong.push("a prompt while another one runs".to_owned()),
                    None if unsure => {}
                    None => wrong.push("a prompt that nobody sent".to_owned()),
                }
                let content = line.pointer("/message/content").and_then(Value::as_array);
                if text(line, "/message/role") != Some("user") || content.is_none_or(Vec::is_empty) {
                    wrong.push("a prompt without content".to_owned());
                }
            }
            Some("control_response") => {
                let id = text(line, "/response/request_id").unwrap_or_default();
                let mut tools: Vec<Option<String>> = far.requests.remove(id).into_iter().collect();
                tools.extend(far.reused.get(id).into_iter().flatten().cloned());
                if tools.is_empty() {
                    wrong.push(format!("an answer to {id}, which the agent does not wait for"));
                } else if text(line, "/response/response/behavior") == Some("allow") {
                    let tools = tools.into_iter().map(|tool| tool.unwrap_or_else(|| format!("question-{id}")));
                    let tools: Vec<String> = tools.collect();
                    match tools.iter().find(|tool| self.grants.get(*tool).is_some_and(|left| *left > 0)) {
                        Some(tool) => *self.grants.entry(tool.clone()).or_default() -= 1,
                        None => wrong.push(format!("call {tools:?} is allowed, and nobody allowed it")),
                    }
                }
            }
            other => wrong.push(format!("diglot writes {other:?} to the agent")),
        }
        if first && !matches!(far.initialize, Some((_, false))) {
            wrong.push("the first line to the agent is not `initialize`".to_owned());
        }
        for what in wrong {
            self.broken(what);
        }
    }
}

impl Far {
    /// Whether the call, or one that it belongs to, runs in the background.
    fn goes_on(&self, call: &str) -> bool {
        let mut at = Some(call);
        for _ in 0..100 {
            match at {
                None => return false,
                Some(id) if self.background.contains(id) => return true,
                Some(id) => at = self.parents.get(id).map(String::as_str),
            }
        }
        false
    }

    /// What the agent says, as far as the rules need it.
    fn hear(&mut self, line: &Value) {
        let parent = text(line, "/parent_tool_use_id");
        match text(line, "/type") {
            Some("control_request") => {
                if let Some(id) = text(line, "/request_id") {
                    let tool = text(line, "/request/tool_use_id").map(str::to_owned);
                    match self.requests.entry(id.to_owned()) {
                        Entry::Vacant(free) => _ = free.insert(tool),
                        Entry::Occupied(_) => self.reused.entry(id.to_owned()).or_default().push(tool),
                    }
                }
            }
            Some("control_cancel_request") => {
                if let Some(id) = text(line, "/request_id") {
                    self.requests.remove(id);
                }
            }
            Some("control_response") => {
                if let Some((id, up)) = &mut self.initialize
                    && text(line, "/response/request_id") == Some(id)
                    && text(line, "/response/subtype") == Some("success")
                {
                    *up = true;
                }
            }
            Some("assistant") => {
                for block in line.pointer("/message/content").and_then(Value::as_array).into_iter().flatten() {
                    if let (Some("tool_use"), Some(id), Some(parent)) =
                        (text(block, "/type"), text(block, "/id"), parent)
                    {
                        self.parents.entry(id.to_owned()).or_insert_with(|| parent.to_owned());
                    }
                }
            }
            Some("stream_event") => {
                if let (Some(id), Some(parent)) = (text(line, "/event/content_block/id"), parent) {
                    self.parents.entry(id.to_owned()).or_insert_with(|| parent.to_owned());
                }
            }
            Some("user") => {
                let result = line.get("tool_use_result");
                let background = result.is_some_and(|r| {
                    r.get("backgroundTaskId").is_some_and(Value::is_string)
                        || r.get("isAsync") == Some(&Value::Bool(true))
                });
                if background {
                    for block in line.pointer("/message/content").and_then(Value::as_array).into_iter().flatten() {
                        if let Some(id) = text(block, "/tool_use_id") {
                            self.background.insert(id.to_owned());
                        }
                    }
                }
            }
            Some("system") => {
                if let (Some(task), Some(tool)) = (text(line, "/task_id"), text(line, "/tool_use_id")) {
                    self.tasks.insert(task.to_owned(), tool.to_owned());
                }
                let tool = text(line, "/task_id").and_then(|t| self.tasks.get(t).cloned());
                let moved = line.get("is_backgrounded") == Some(&Value::Bool(true))
                    || line.pointer("/patch/is_backgrounded") == Some(&Value::Bool(true));
                if let (true, Some(tool)) = (moved, tool) {
                    self.background.insert(tool);
                }
            }
            _ => {}
        }
    }
}

impl Session {
    fn announced(&mut self, update: &Value, terminals: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let call = text(update, "/toolCallId").unwrap_or_default().to_owned();
        let status = match text(update, "/status") {
            None | Some("pending") => Status::Pending,
            Some("in_progress") => Status::InProgress,
            Some(_) => Status::Final,
        };
        if status == Status::Final {
            wrong.push(format!("call {call} is announced when it is over"));
        }
        if text(update, "/title").is_none_or(str::is_empty) {
            wrong.push(format!("call {call} has no title"));
        }
        if self.calls.insert(call.clone(), status).is_some() {
            wrong.push(format!("call {call} is announced twice"));
        }
        let id = text(update, "/_meta/terminal_info/terminal_id");
        if let Some(id) = id {
            self.terminals.insert(id.to_owned());
        }
        wrong.extend(self.terminal(update, terminals));
        wrong
    }

    fn changed(&mut self, update: &Value, terminals: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let call = text(update, "/toolCallId").unwrap_or_default().to_owned();
        let Some(now) = self.calls.get_mut(&call) else {
            return vec![format!("a change of call {call}, which was not announced")];
        };
        if *now == Status::Final {
            wrong.push(format!("a change of call {call} after its end"));
        }
        let next = match text(update, "/status") {
            None => *now,
            Some("pending") => Status::Pending,
            Some("in_progress") => Status::InProgress,
            Some("completed") => {
                if *now == Status::Pending {
                    wrong.push(format!("call {call} is completed and never ran"));
                }
                Status::Final
            }
            Some(_) => Status::Final,
        };
        if next < *now {
            wrong.push(format!("call {call} goes back from {now:?} to {next:?}"));
        }
        *now = next;
        wrong.extend(self.terminal(update, terminals));
        wrong
    }

    /// Terminals are for editors that declare them, and are announced before they are used.
    fn terminal(&self, update: &Value, terminals: bool) -> Vec<String> {
        let mut ids: Vec<&str> = ["terminal_info", "terminal_output", "terminal_exit"]
            .iter()
            .filter_map(|k| text(update, &format!("/_meta/{k}/terminal_id")))
            .collect();
        let content = update.get("content").and_then(Value::as_array);
        ids.extend(content.into_iter().flatten().filter_map(|c| text(c, "/terminalId")));
        ids.into_iter()
            .filter(|id| !terminals || !self.terminals.contains(*id))
            .map(|id| format!("terminal {id} is used and was not announced"))
            .collect()
    }
}

/// Paths are absolute, lines begin at 1 (acp.md, section 5, rules 23 and 24).
fn places(update: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let list = |name: &str| update.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    for place in list("locations").iter().chain(&list("content")) {
        if let Some(path) = text(place, "/path")
            && !path.starts_with('/')
        {
            wrong.push(format!("the path {path:?} is not absolute"));
        }
        if place.get("line").and_then(Value::as_u64) == Some(0) {
            wrong.push("line 0".to_owned());
        }
    }
    wrong
}
