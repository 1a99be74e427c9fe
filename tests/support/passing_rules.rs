//! The rules of a conversation of an editor with an agent that speaks ACP itself, which hold everywhere.
//!
//! Owns what was seen on both wires so far. Keeps: nothing of the code under test is used to read the lines. Toward the editor
//! the rules are the schema's and those of a call's life, whatever the agent did; toward the agent only standard members, one
//! prompt at a time, and nothing granted that the editor did not grant; text passes as it came.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::Value;

use super::judge::Rpc;
use super::schema::{self, Body};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Pending,
    InProgress,
    Final,
}

/// The schema's kinds of updates.
const KINDS: [&str; 11] = [
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
];

#[derive(Debug, Default)]
struct Session {
    /// How far each call is, and in which turn it was announced.
    calls: BTreeMap<String, (Status, u64)>,
    turn: u64,
    /// It is there only if it can be loaded.
    only_loading: bool,
    /// The editor's id of the prompt that the agent has, or had last.
    prompt: Option<String>,
    /// Texts that the agent has said and the editor has not got.
    texts: Vec<String>,
}

#[derive(Debug)]
struct Ask {
    session: String,
    /// Options that allow.
    allows: BTreeSet<String>,
    open: bool,
}

/// A request of the agent's.
#[derive(Debug)]
struct Question {
    id: String,
    session: String,
    permission: bool,
    allows: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Process {
    deaf: bool,
    ids: HashSet<String>,
    /// Id → method and session of diglot's requests that wait.
    waiting: BTreeMap<String, (String, String)>,
    initialized: bool,
    questions: Vec<Question>,
    /// Sessions that are taken up again: their history is not for the editor.
    returning: BTreeSet<String>,
    /// Sessions that it has opened.
    opened: BTreeSet<String>,
}

/// What was found wrong so far, and what was seen.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    violations: Vec<String>,
    /// Bodies of a form that was judged before pass.
    pub(crate) by_form: bool,
    editor_gone: bool,
    /// Requests of the editor's that wait: id, method, session.
    requests: Vec<(String, String, String)>,
    /// Of those the prompts with something in them, in order.
    prompts: Vec<(String, String)>,
    /// Ids under which an error is owed to a line that was no message.
    owed: Vec<String>,
    /// Sessions that the editor knows, or is about to load.
    sessions: HashMap<String, Session>,
    /// What the agent says in sessions that the editor does not know yet.
    early: HashMap<String, Vec<String>>,
    asks: HashMap<String, Ask>,
    /// Session and option: what the editor has allowed and diglot has not passed on.
    grants: Vec<(String, String)>,
    processes: BTreeMap<u32, Process>,
}

fn show(line: &[u8]) -> String {
    String::from_utf8_lossy(line).chars().take(400).collect()
}

fn text(value: &Value, at: &str) -> String {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn allows(params: &Value) -> BTreeSet<String> {
    let list = params["options"].as_array().cloned().unwrap_or_default();
    list.iter().filter(|o| text(o, "/kind").starts_with("allow")).map(|o| text(o, "/optionId")).collect()
}

impl Judge {
    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.clone()
    }

    pub(crate) fn broken(&mut self, what: String) {
        self.violations.push(what);
    }

    /// What is open at the end of a conversation that has come to rest.
    pub(crate) fn unsettled(&self) -> Vec<String> {
        let mut open: Vec<String> = self
            .requests
            .iter()
            .map(|(id, method, _)| format!("the editor's {method} {id} was never answered"))
            .collect();
        if self.editor_gone {
            open.clear();
        }
        open.extend(self.owed.iter().map(|id| format!("a line that was no message got no answer ({id})")));
        for (number, process) in self.processes.iter().filter(|(_, process)| !process.deaf) {
            for question in &process.questions {
                open.push(format!("the request {} of process {number} was never answered", question.id));
            }
        }
        open.extend(
            self.asks
                .iter()
                .filter(|(_, ask)| ask.open && !self.editor_gone)
                .map(|(id, _)| format!("the question {id} to the editor is still open")),
        );
        for (id, session) in &self.sessions {
            for text in session.texts.iter().filter(|_| !self.editor_gone) {
                open.push(format!("a text of session {id} is lost: {text}"));
            }
        }
        open
    }

    pub(crate) fn editor_in(&mut self, line: &[u8]) {
        match Rpc::read(line) {
            Rpc::Request { id, method, params } => {
                let session = text(&params, "/sessionId");
                if matches!(&*method, "session/load" | "session/resume") {
                    self.sessions
                        .entry(session.clone())
                        .or_insert_with(|| Session { only_loading: true, ..Session::default() });
                }
                let says = params["prompt"].as_array().is_some_and(|list| list.iter().any(|block| block["text"] != ""));
                if method == "session/prompt" && says {
                    self.prompts.push((id.clone(), session.clone()));
                }
                self.requests.push((id, method, session));
            }
            Rpc::Garbage { id } => self.owed.push(id),
            Rpc::Notification { .. } => {}
            Rpc::Response { id, outcome } => {
                let Some(ask) = self.asks.get_mut(&id).filter(|ask| ask.open) else { return };
                ask.open = false;
                if let Ok(result) = outcome
                    && text(&result, "/outcome/outcome") == "selected"
                    && ask.allows.contains(&text(&result, "/outcome/optionId"))
                {
                    self.grants.push((ask.session.clone(), text(&result, "/outcome/optionId")));
                }
            }
        }
    }

    pub(crate) fn editor_closed(&mut self) {
        self.editor_gone = true;
    }

    fn judge(&mut self, method: &str, body: Body, value: &Value, line: &[u8]) {
        // What is the agent's own passes; what has a schema has to fit.
        let judge = if self.by_form { schema::unreadable_form } else { schema::unreadable };
        if let Some(problem) = judge(method, body, value) {
            self.broken(format!("{problem}: {}", show(line)));
        }
    }

    pub(crate) fn editor_out(&mut self, line: &[u8]) {
        if line.contains(&b'\n') || serde_json::from_slice::<Value>(line).is_err() {
            return self.broken(format!("toward the editor: no line of JSON: {}", show(line)));
        }
        match Rpc::read(line) {
            Rpc::Request { id, method, params } => {
                self.judge(&method, Body::Params, &params, line);
                if self.editor_gone {
                    self.broken(format!("{method} is asked of an editor that is gone"));
                }
                let session = text(&params, "/sessionId");
                if method == "session/request_permission" {
                    let call = text(&params, "/toolCall/toolCallId");
                    match self.sessions.get(&session).and_then(|s| s.calls.get(&call)) {
                        None => self.broken(format!("question {id} is about {call}, which was not announced")),
                        Some((Status::Final, _)) => {
                            self.broken(format!("question {id} is about {call}, which has ended"))
                        }
                        Some(_) => {}
                    }
                }
                let ask = Ask { session, allows: allows(&params), open: true };
                if self.asks.insert(id.clone(), ask).is_some() {
                    self.broken(format!("a question under the used id {id}"));
                }
            }
            Rpc::Notification { method, params } => {
                // A kind of update that the schema does not have is a newer protocol's or the agent's own.
                let kind = text(&params, "/update/sessionUpdate");
                if method != "session/update" || KINDS.contains(&&*kind) {
                    self.judge(&method, Body::Params, &params, line);
                }
                match &*method {
                    "session/update" => self.update(&params),
                    "$/cancel_request" => {
                        let id = params["requestId"].to_string();
                        match self.asks.get_mut(&id) {
                            Some(ask) if ask.open => ask.open = false,
                            _ => self.broken(format!("{id} is withdrawn, and is not open")),
                        }
                    }
                    other if other.starts_with('_') => {}
                    other => self.broken(format!("the editor is told {other}")),
                }
            }
            Rpc::Response { id, outcome } => {
                let code = outcome.as_ref().err().and_then(|error| error["code"].as_i64());
                if matches!(code, Some(-32700 | -32600))
                    && let Some(at) = self.owed.iter().position(|owed| *owed == id)
                {
                    self.owed.remove(at);
                    return;
                }
                let Some(at) = self.requests.iter().position(|(waits, ..)| *waits == id) else {
                    return self.broken(format!("an answer to nothing: {}", show(line)));
                };
                let (_, method, session) = self.requests.remove(at);
                self.prompts.retain(|(waits, _)| *waits != id);
                match &outcome {
                    Ok(result) => self.judge(&method, Body::Result, result, line),
                    Err(error) => self.judge("", Body::Error, error, line),
                }
                match (&*method, &outcome) {
                    ("session/new" | "session/fork", Ok(result)) => {
                        let id = text(result, "/sessionId");
                        let texts = self.early.remove(&id).unwrap_or_default();
                        self.sessions.insert(id, Session { texts, ..Session::default() });
                    }
                    // What was said of a session that did not come to be is of no use.
                    ("session/load" | "session/resume", Err(_)) => {
                        let again = self
                            .requests
                            .iter()
                            .any(|(_, m, s)| matches!(&**m, "session/load" | "session/resume") && *s == session);
                        if let Some(known) = self.sessions.get_mut(&session).filter(|_| !again) {
                            known.texts.clear();
                            if known.only_loading {
                                self.sessions.remove(&session);
                            }
                        }
                    }
                    ("session/load" | "session/resume", Ok(_)) => {
                        self.sessions.entry(session).or_default().only_loading = false;
                    }
                    ("session/prompt", _) => self.turn_ends(&id, &session),
                    ("session/close", Ok(_)) => {
                        self.sessions.remove(&session);
                    }
                    _ => {}
                }
            }
            Rpc::Garbage { .. } => self.broken(format!("toward the editor: no message: {}", show(line))),
        }
    }

    fn turn_ends(&mut self, id: &str, session: &str) {
        // One that the agent never had ends nothing.
        let Some(session) = self.sessions.get(session).filter(|session| session.prompt.as_deref() == Some(id)) else {
            return;
        };
        let open = session.calls.iter().filter(|(_, (status, _))| *status != Status::Final);
        let open: Vec<String> =
            open.map(|(call, _)| format!("call {call} is open when its turn is answered")).collect();
        self.violations.extend(open);
    }

    fn update(&mut self, params: &Value) {
        let id = text(params, "/sessionId");
        let update = &params["update"];
        let kind = text(update, "/sessionUpdate");
        let Some(session) = self.sessions.get_mut(&id) else {
            return self.broken(format!("{kind} for the session {id}, which the editor does not know"));
        };
        let call = text(update, "/toolCallId");
        let status = match update["status"].as_str() {
            Some("pending") => Some(Status::Pending),
            Some("in_progress") => Some(Status::InProgress),
            Some(_) => Some(Status::Final),
            None => None,
        };
        let problem = match &*kind {
            "tool_call" => {
                match session.calls.insert(call.clone(), (status.unwrap_or(Status::Pending), session.turn)) {
                    Some((before, turn)) if before != Status::Final || turn == session.turn => {
                        Some("is announced twice".to_owned())
                    }
                    _ if ["title", "kind", "status"].iter().any(|name| !update[*name].is_string()) => {
                        Some("is announced without title, kind or status".to_owned())
                    }
                    _ => None,
                }
            }
            "tool_call_update" => match (session.calls.get_mut(&call).map(|(status, _)| status), status) {
                (None, _) => Some("is changed and was not announced".to_owned()),
                (Some(Status::Final), Some(_)) => Some("ends twice".to_owned()),
                (Some(before), Some(status)) if status < *before => Some(format!("goes back to {status:?}")),
                (Some(before), Some(status)) => {
                    *before = status;
                    None
                }
                (Some(_), None) => None,
            },
            "agent_message_chunk" | "agent_thought_chunk" => {
                let said = update.to_string();
                match session.texts.iter().position(|text| *text == said) {
                    Some(0) => {
                        session.texts.remove(0);
                        None
                    }
                    Some(_) => Some("comes out of order".to_owned()),
                    None => match self
                        .early
                        .get_mut(&id)
                        .and_then(|early| Some((early.iter().position(|t| *t == said)?, early)))
                    {
                        Some((at, early)) => {
                            early.remove(at);
                            None
                        }
                        None => Some("was not said by the agent".to_owned()),
                    },
                }
            }
            _ => None,
        };
        if let Some(problem) = problem {
            self.broken(format!(
                "{kind} {call} {problem}: {}",
                params.to_string().chars().take(300).collect::<String>()
            ));
        }
    }

    pub(crate) fn agent_started(&mut self, number: u32) {
        self.processes.insert(number, Process::default());
    }

    /// Its stdin is closed.
    pub(crate) fn agent_deaf(&mut self, number: u32) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.deaf = true;
        }
    }

    pub(crate) fn agent_closed(&mut self, number: u32) {
        self.processes.remove(&number);
    }

    pub(crate) fn agent_in(&mut self, number: u32, line: &[u8]) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        match Rpc::read(line) {
            Rpc::Request { id, method, params } => process.questions.push(Question {
                id,
                session: text(&params, "/sessionId"),
                permission: method == "session/request_permission",
                allows: allows(&params),
            }),
            Rpc::Response { id, outcome } => {
                if let Some((method, session)) = process.waiting.remove(&id) {
                    process.initialized |= method == "initialize" && outcome.is_ok();
                    if let Ok(result) = &outcome {
                        let new = text(result, "/sessionId");
                        match &*method {
                            "session/new" | "session/fork" => _ = process.opened.insert(new),
                            "session/load" | "session/resume" => _ = process.opened.insert(session.clone()),
                            _ => {}
                        }
                    }
                    // One that cannot be taken up, or not yet, goes on saying what is not for the editor.
                    let again =
                        |(m, s): &(String, String)| matches!(&**m, "session/load" | "session/resume") && *s == session;
                    if again(&(method, session.clone())) && outcome.is_ok() && !process.waiting.values().any(again) {
                        process.returning.remove(&session);
                    }
                }
            }
            Rpc::Notification { method, params } if method == "session/update" => {
                let id = text(&params, "/sessionId");
                let update = &params["update"];
                let is_text =
                    matches!(text(update, "/sessionUpdate").as_str(), "agent_message_chunk" | "agent_thought_chunk");
                let says = update["content"]["type"].is_string() && update["content"]["text"] != "";
                let sets = process.waiting.values().any(|(method, of)| method == "session/set_mode" && *of == id);
                let only_mode = sets && text(update, "/content/text").starts_with("[MODE_UPDATE] ");
                let opens = |(method, of): &(String, String)| {
                    matches!(&**method, "session/load" | "session/resume") && *of == id
                };
                // Of one that it had refused to open, it can say nothing.
                let its = process.opened.contains(&id) || process.waiting.values().any(opens);
                if is_text && says && !only_mode && !process.returning.contains(&id) {
                    match self.sessions.get_mut(&id) {
                        Some(_) if !its => {}
                        Some(session) => session.texts.push(update.to_string()),
                        None => self.early.entry(id).or_default().push(update.to_string()),
                    }
                }
            }
            _ => {}
        }
    }

    pub(crate) fn agent_out(&mut self, number: u32, line: &[u8]) {
        if line.contains(&b'\n') || serde_json::from_slice::<Value>(line).is_err() {
            return self.broken(format!("toward the agent: no line of JSON: {}", show(line)));
        }
        match Rpc::read(line) {
            Rpc::Request { id, method, params } => self.asked(number, id, method, &params, line),
            Rpc::Notification { method, params } => {
                let problem = schema::strictly(&format!("client {method}"), Body::Params, &params);
                if let Some(problem) = problem {
                    self.broken(format!("{problem}: {}", show(line)));
                }
                let session = text(&params, "/sessionId");
                let open = self.processes.get(&number).is_some_and(|process| {
                    process.questions.iter().any(|question| question.permission && question.session == session)
                });
                if method == "session/cancel" && open {
                    self.broken("a cancel passes while a question is open".to_owned());
                }
            }
            Rpc::Response { id, outcome } => self.agent_answered(number, &id, &outcome, line),
            Rpc::Garbage { .. } => self.broken(format!("toward the agent: no message: {}", show(line))),
        }
    }

    fn asked(&mut self, number: u32, id: String, method: String, params: &Value, line: &[u8]) {
        if let Some(problem) = schema::strictly(&format!("client {method}"), Body::Params, params) {
            self.broken(format!("{problem}: {}", show(line)));
        }
        let returns = matches!(&*method, "session/load" | "session/resume")
            && !self
                .requests
                .iter()
                .any(|(_, asked, session)| *asked == method && *session == text(params, "/sessionId"));
        let session = text(params, "/sessionId");
        if method == "session/prompt"
            && let Some(known) = self.sessions.get_mut(&session)
        {
            known.turn += 1;
            known.prompt = self.prompts.iter().find(|(_, of)| *of == session).map(|(id, _)| id.clone());
        }
        let Some(process) = self.processes.get_mut(&number) else { return };
        let mut wrong = Vec::new();
        if !process.ids.insert(id.clone()) || id.parse::<u32>().is_err() {
            wrong.push(format!("{method} under the id {id}, which is used or no small number"));
        }
        if method != "initialize" && !process.initialized {
            wrong.push(format!("{method} before `initialize` was answered"));
        }
        let busy = process.waiting.values().any(|(m, s)| m == "session/prompt" && *s == session);
        if method == "session/prompt" && busy {
            wrong.push("a second prompt while one runs".to_owned());
        }
        if returns {
            process.returning.insert(session.clone());
        } else if matches!(&*method, "session/load" | "session/resume")
            && let Some(known) = self.sessions.get_mut(&session)
        {
            // Its history comes again.
            known.calls.clear();
            process.returning.remove(&session);
        }
        process.waiting.insert(id, (method, session));
        for what in wrong {
            self.broken(format!("{what}: {}", show(line)));
        }
    }

    fn agent_answered(&mut self, number: u32, id: &str, outcome: &Result<Value, Value>, line: &[u8]) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        let Some(at) = process.questions.iter().position(|question| question.id == *id) else {
            return self.broken(format!("an answer to nothing that the agent asked: {}", show(line)));
        };
        let question = process.questions.remove(at);
        let Ok(result) = outcome else { return };
        if !question.permission {
            return;
        }
        if let Some(problem) = schema::unreadable("client session/request_permission", Body::Result, result) {
            self.broken(format!("{problem}: {}", show(line)));
        }
        let option = text(result, "/outcome/optionId");
        if text(result, "/outcome/outcome") == "selected" && question.allows.contains(&option) {
            match self.grants.iter().position(|grant| *grant == (question.session.clone(), option.clone())) {
                Some(at) => {
                    self.grants.remove(at);
                }
                None => self.broken(format!("{option} is granted, and the editor did not: {}", show(line))),
            }
        }
    }
}
