//! The rules of the agent's side: what diglot says to it, and what it grants.

use diglot::translate::client::ClientWork;
use serde_json::Value;

use super::super::judge::Rpc;
use super::super::reverse::is_answer;
use super::super::schema::{self, Body};
use super::{Judge, Question, show, text};

impl Judge {
    pub(crate) fn agent_started(&mut self) {
        self.deaf = false;
        // A new connection counts anew if it likes.
        self.ids.clear();
    }

    pub(crate) fn agent_stopped(&mut self) {
        self.deaf = true;
        self.questions.clear();
    }

    pub(crate) fn agent_gone(&mut self) {
        self.waiting.clear();
        self.questions.clear();
        self.clients.clear();
    }

    pub(crate) fn agent_says(&mut self, line: &[u8]) {
        let value: Value = serde_json::from_slice(line).unwrap_or_default();
        match Rpc::read(line) {
            Rpc::Request { id, method, params } => {
                if self.deaf {
                    return;
                }
                let option = |o: &Value| (text(o, "/optionId").to_owned(), text(o, "/kind").to_owned());
                let options = params["options"].as_array().into_iter().flatten().map(option).collect();
                let call = text(&params, "/toolCall/toolCallId").to_owned();
                let question = Question { method, call, options, withdrawn: false };
                self.questions.entry(id).or_default().push(question);
            }
            Rpc::Notification { method, params } if method == "$/cancel_request" => {
                for question in self.questions.get_mut(&params["requestId"].to_string()).into_iter().flatten() {
                    question.withdrawn = true;
                }
            }
            Rpc::Response { id, outcome } if is_answer(&value) => {
                if let Some(method) = self.waiting.remove(&id)
                    && matches!(&*method, "session/new" | "session/fork")
                    && let Ok(result) = outcome
                    && let Some(session) = result["sessionId"].as_str()
                {
                    self.session = Some(session.to_owned());
                }
            }
            _ => {}
        }
    }

    pub(crate) fn agent_reads(&mut self, line: &[u8]) {
        if let Err(problem) = self.agent_line(line) {
            self.violations.push(format!("toward the agent: {problem}: {}", show(line)));
        }
    }

    fn problem(&self, method: &str, body: Body, value: &Value) -> Option<String> {
        let judge = if self.by_form { schema::problem_of_form } else { schema::problem };
        judge(&format!("client {method}"), body, value)
    }

    fn agent_line(&mut self, line: &[u8]) -> Result<(), String> {
        if line.contains(&b'\n') {
            return Err("a line feed in a line".into());
        }
        match Rpc::read(line) {
            Rpc::Request { id, method, params } => {
                if !self.ids.insert(id.clone()) {
                    return Err("an id twice".into());
                }
                let problem = match &*method {
                    // Gone from the schema, and what several agents still serve.
                    "session/set_model" => (!params["modelId"].is_string()).then(|| "no modelId".to_owned()),
                    _ => self.problem(&method, Body::Params, &params),
                };
                if let Some(problem) = problem {
                    return Err(problem);
                }
                match &*method {
                    "initialize" if !self.waiting.is_empty() => return Err("initialize is not the first".into()),
                    "session/prompt" => {
                        if self.waiting.values().any(|m| m == "session/prompt") {
                            return Err("a prompt while another is outstanding".into());
                        }
                        if params["prompt"].as_array().is_none_or(Vec::is_empty) {
                            return Err("an empty prompt".into());
                        }
                        self.cancelled = false;
                        if self.turn.is_none() {
                            return Err("a prompt outside of a turn".into());
                        }
                    }
                    "session/load" | "session/resume" => self.session = params["sessionId"].as_str().map(Into::into),
                    _ => {}
                }
                if !matches!(&*method, "initialize" | "authenticate" | "session/new" | "session/fork") {
                    self.of_session(&params)?;
                }
                self.waiting.insert(id, method);
                Ok(())
            }
            Rpc::Notification { method, params } => {
                if method != "session/cancel" {
                    return Err("a notification that a client has not".into());
                }
                if let Some(problem) = self.problem(&method, Body::Params, &params) {
                    return Err(problem);
                }
                self.of_session(&params)?;
                if !self.waiting.values().any(|m| m == "session/prompt") {
                    return Err("a cancel without a prompt".into());
                }
                // What was asked before must have been answered: it would hold up the agent's end.
                if let Some(id) = self.questions.keys().next() {
                    return Err(format!("a cancel before the answer to {id}"));
                }
                self.cancelled = true;
                self.owes_cancel = None;
                Ok(())
            }
            Rpc::Response { id, outcome } => {
                let open = self.questions.get_mut(&id).ok_or("an answer to no open request")?;
                // An agent that uses an id twice can be answered in either order; the answer tells which question was meant.
                let meant = open.iter().position(|question| question.is_meant_by(&outcome));
                let question = open.remove(meant.unwrap_or(0));
                if open.is_empty() {
                    self.questions.remove(&id);
                }
                self.answer(&question, outcome)
            }
            Rpc::Garbage { .. } => Err("no message".into()),
        }
    }

    fn of_session(&self, params: &Value) -> Result<(), String> {
        match params["sessionId"].as_str() == self.session.as_deref() && self.session.is_some() {
            true => Ok(()),
            false => Err(format!("not the session {:?}", self.session)),
        }
    }

    fn answer(&mut self, question: &Question, outcome: Result<Value, Value>) -> Result<(), String> {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                if let Some(problem) = schema::problem("", Body::Error, &error) {
                    return Err(problem);
                }
                return Ok(());
            }
        };
        if question.method != "session/request_permission" {
            return Ok(());
        }
        let mut plain = result.clone();
        if let Some(members) = plain.as_object_mut() {
            // Qwen's, beside the outcome.
            members.remove("answers");
        }
        if let Some(problem) = self.problem(&question.method, Body::Result, &plain) {
            return Err(problem);
        }
        // One that can be chosen, and says nothing else.
        let granting = |id: &str| question.options.iter().any(|(other, kind)| other == id && kind.starts_with("allow"));
        let rejects = question
            .options
            .iter()
            .any(|(id, kind)| matches!(&**kind, "reject_once" | "reject_always") && !id.is_empty() && !granting(id));
        match text(&result, "/outcome/outcome") {
            "cancelled" => {
                // The cancel itself follows in the same event (quirk 18), or was sent in this turn. Without a prompt there is
                // nothing to cancel, and nobody to ask.
                let prompted = self.waiting.values().any(|m| m == "session/prompt");
                if !question.withdrawn && rejects && !self.cancelled && prompted {
                    self.owes_cancel = Some(question.call.clone());
                }
                Ok(())
            }
            "selected" => {
                let chosen = text(&result, "/outcome/optionId");
                let Some((_, kind)) = question.options.iter().find(|(id, _)| id == chosen) else {
                    return Err("an option that was not offered".into());
                };
                if kind.starts_with("allow") { self.grants(question, kind, chosen) } else { Ok(()) }
            }
            _ => Err("no outcome".into()),
        }
    }

    fn grants(&mut self, question: &Question, kind: &str, chosen: &str) -> Result<(), String> {
        // Options that are answers (Kimi) all say the same kind.
        if kind != "allow_once" && !chosen.starts_with('q') {
            return Err("granted for longer".into());
        }
        let call = question.call.clone();
        let granted = self.granted.entry(call.clone()).or_default();
        *granted += 1;
        let granted = *granted;
        if self.anybody_grants {
            return Ok(());
        }
        // Ids that the API could not have made are shown as others, and a call may be shown as several.
        let plain = call.len() <= 64 && call.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let of_call = |id: &String| !plain || *id == call || id.starts_with(&format!("{call}_"));
        let allowed: u64 = self.allowed.iter().filter(|(id, _)| of_call(id)).map(|(_, n)| *n).sum();
        if granted > allowed {
            return Err(format!("{call} was granted {granted} times and allowed {allowed} times"));
        }
        Ok(())
    }

    /// Something with an effect is done for the agent: for each somebody must have allowed one.
    pub(crate) fn acts(&mut self, work: &ClientWork) {
        if !matches!(work, ClientWork::Write { .. } | ClientWork::Run { .. }) {
            return;
        }
        self.acted += 1;
        let allowed: u64 = self.allowed.values().sum();
        if !self.anybody_grants && self.acted > allowed {
            self.broken(format!("{} acts for the agent, {allowed} allowed: {work:?}", self.acted));
        }
    }

    // ---- MCP clients

    pub(crate) fn relay_says(&mut self, conn: u64, line: Option<&[u8]>) {
        match line.map(Rpc::read) {
            None => self.clients.retain(|(c, _), _| *c != conn),
            Some(Rpc::Request { id, .. }) => {
                *self.clients.entry((conn, id)).or_default() += 1;
            }
            Some(_) => {}
        }
    }

    pub(crate) fn relay_reads(&mut self, conn: u64, line: &[u8]) {
        if let Rpc::Response { id, .. } = Rpc::read(line) {
            let key = (conn, id);
            match self.clients.get_mut(&key) {
                None => self.violations.push(format!("an MCP client reads an answer to nothing: {}", show(line))),
                Some(open) => {
                    *open -= 1;
                    if *open == 0 {
                        self.clients.remove(&key);
                    }
                }
            }
        }
    }
}
