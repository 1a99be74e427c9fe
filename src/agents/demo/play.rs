//! Plays the turns and steps of a script.
//!
//! Invariants: a turn ends with exactly one `result`, whatever happens in it; a question is settled once;
//! between any two steps, and while any step waits, what comes in is dealt with.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::super::script::{Step, Words, fill, fill_value};
use super::say::words;
use super::{Agent, Answer, Call, Flow, Prompt, Question, Stop, tools};

/// What the permission mode and the remembered rules say about a call.
enum Decision {
    Ask,
    Allow,
    Refuse(&'static str),
}

impl Agent {
    pub(super) fn play_turn(&mut self, prompt: Prompt) -> Flow {
        self.turn += 1;
        self.in_turn = true;
        self.prompt = prompt;
        self.first_frame = true;
        self.calls.clear();
        self.current = None;
        self.questions.clear();
        self.answered.clear();
        self.denials.clear();
        self.last_text.clear();
        self.result_sent = false;
        self.turn_tokens = 0;
        self.turn_messages = 0;
        let script = Rc::clone(&self.script);
        let played = self.begin_turn().and_then(|()| self.steps(script.turn(self.turn)));
        let end = match played {
            Ok(()) => {
                self.close_message("end_turn")?;
                if !self.result_sent {
                    self.say_turn_result(None, &Map::new())?;
                }
                if self.failed_last { "cancelled" } else { "completed" }
            }
            Err(Stop::Interrupted) => {
                let reason = self.say_interruption()?;
                if !self.result_sent {
                    self.say_turn_result(Some(reason), &Map::new())?;
                }
                "cancelled"
            }
            Err(stop) => return Err(stop),
        };
        self.in_turn = false;
        let uuid = self.prompt.uuid.clone();
        self.lifecycle(uuid.as_deref(), end)?;
        self.state("idle")
    }

    fn begin_turn(&mut self) -> Flow {
        let uuid = self.prompt.uuid.clone();
        self.lifecycle(uuid.as_deref(), "started")?;
        self.init()?;
        if self.flags.replay && !self.wave() {
            let mut line = self.prompt.message.clone();
            line["isReplay"] = true.into();
            line["parent_tool_use_id"] = Value::Null;
            self.say(line)?;
        }
        Ok(())
    }

    pub(super) fn steps(&mut self, steps: &[Step]) -> Flow {
        for step in steps {
            self.take_waiting()?;
            self.step(step)?;
        }
        self.take_waiting()
    }

    fn step(&mut self, step: &Step) -> Flow {
        match step {
            // Taken out when the script was read.
            Step::Agent(_) | Step::Turn {} => Ok(()),
            Step::Text { text, pieces, times } => {
                let mut filled: Vec<String> = pieces.iter().map(|piece| fill(piece, self)).collect();
                if pieces.is_empty() {
                    filled = words(&fill(text, self)).map(Into::into).collect();
                }
                let all = (0..*times).flat_map(|_| filled.iter().map(String::as_str));
                self.say_block("text", all)
            }
            Step::Thought { text } => {
                let text = fill(text, self);
                self.say_block("thinking", words(&text))
            }
            Step::Tool { name, input, id, parent } => self.call(name, input, id.as_deref(), parent.as_deref()),
            Step::MessageEnd {} => {
                let waits = self.calls.iter().any(|call| call.open);
                self.close_message(if waits { "tool_use" } else { "end_turn" })
            }
            Step::Ask { tool, suggestions, wait, more, allow, deny, cancelled } => {
                let Some(call) = self.named_call(tool.as_deref()) else {
                    return Ok(());
                };
                let branches = Branches { allow, deny, cancelled };
                let Some(asked) = self.ask(&call, suggestions.as_deref(), more, &branches)? else {
                    return Ok(());
                };
                if !wait {
                    return Ok(());
                }
                self.wait_until(None, |agent| agent.questions[asked].answer.is_some())?;
                self.answered.retain(|&other| other != asked);
                self.settle(asked, &branches)
            }
            Step::Answers { of, allow, deny, cancelled } => self.answers(of, &Branches { allow, deny, cancelled }),
            Step::Withdraw { tool } => self.withdraw(tool.as_deref()),
            Step::Run { tool } => match self.named_call(tool.as_deref()) {
                Some(call) => self.run_tool(&call),
                None => Ok(()),
            },
            Step::ToolResult { tool, content, error, value } => {
                let content = fill_value(content, self);
                let value = value.as_ref().map(|value| fill_value(value, self));
                let value = value.unwrap_or_else(|| made_up_value(&content, *error));
                match self.named_call(tool.as_deref()) {
                    Some(call) => self.say_result(&call, content, *error, value, None),
                    None => Ok(()),
                }
            }
            Step::Spawn { command, pid_file } => {
                let command: Vec<String> = command.iter().map(|word| fill(word, self)).collect();
                let pid_file = pid_file.as_ref().map(|path| fill(path, self));
                self.spawn(&command, pid_file.as_deref())
            }
            Step::Init {} => self.init(),
            Step::Result { set } => {
                self.close_message("end_turn")?;
                let Value::Object(set) = fill_value(&Value::Object(set.clone()), self) else {
                    return Ok(());
                };
                self.say_turn_result(None, &set)
            }
            Step::Mode { mode } => self.set_mode(mode),
            Step::State { state } => {
                let states = std::mem::replace(&mut self.states, true);
                let said = self.state(state);
                self.states = states;
                said
            }
            Step::Send { line } => {
                let line = fill_value(line, self);
                self.write(&line)
            }
            Step::Raw { text, hex, times } => {
                let mut bytes = fill(text, self).into_bytes();
                bytes.extend(unhex(hex));
                for _ in 0..*times {
                    self.write_bytes(&bytes)?;
                }
                Ok(())
            }
            Step::Stderr { text } => {
                let text = fill(text, self);
                // Nobody has to read it.
                let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{text}\n").as_bytes());
                Ok(())
            }
            Step::Exit { code } => Err(Stop::Exit(*code)),
            Step::Kill {} => {
                tools::kill_self();
                Err(Stop::Exit(137))
            }
            Step::Hang { deaf: true } => loop {
                std::thread::park();
            },
            Step::Hang { deaf: false } => self.wait_until(None, |_| false),
            Step::Sigterm { ignore } => {
                self.children.ignore_sigterm.store(*ignore, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
            Step::Pause { ms } => self.wait_until(Some(Duration::from_millis(*ms)), |_| false),
            Step::Expect { line } => {
                self.expecting = Some(fill_value(line, self));
                self.wait_until(None, |agent| agent.expecting.is_none() || agent.input_ended)
            }
            Step::If { prompt, resumed, refused, then, otherwise } => {
                let resumes = self.flags.resume.is_some();
                let refuses = !self.denials.is_empty();
                let holds = prompt.as_ref().is_none_or(|part| self.prompt.text.contains(part.as_str()))
                    && resumed.is_none_or(|resumed| resumed == resumes)
                    && refused.is_none_or(|refused| refused == refuses);
                self.steps(if holds { then } else { otherwise })
            }
            Step::Repeat { times, steps } => {
                let outer = self.round;
                for round in 0..*times {
                    self.round = round;
                    self.steps(steps)?;
                }
                self.round = outer;
                Ok(())
            }
        }
    }

    fn call(&mut self, name: &str, input: &Value, id: Option<&str>, parent: Option<&str>) -> Flow {
        let mut input = fill_value(input, self);
        if input.is_null() {
            input = json!({});
        }
        let id = match id {
            Some(id) => fill(id, self),
            // The ids of a conversation never come twice, also not from another process.
            None if self.flags.resume.is_some() => {
                format!("toolu_{}_{}_{}", std::process::id(), self.turn, self.calls.len())
            }
            None => format!("toolu_{}_{}", self.turn, self.calls.len()),
        };
        let parent = parent.map(|parent| fill(parent, self));
        self.say_call(&id, name, &input, parent.as_deref())?;
        self.calls.push(Call {
            id: id.clone(),
            name: name.to_owned(),
            input,
            parent,
            open: true,
            decision: Value::Null,
        });
        self.current = Some(id);
        Ok(())
    }

    /// The id of the tool call that a step means.
    fn named_call(&mut self, name: Option<&str>) -> Option<String> {
        match name {
            Some(name) => Some(fill(name, self)),
            None => self.current.clone(),
        }
    }

    pub(super) fn find_call(&mut self, id: &str) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.id == id)
    }

    /// Asks, or decides without asking; returns the question's index when it was asked.
    fn ask(
        &mut self,
        id: &str,
        suggestions: Option<&[Value]>,
        more: &Map<String, Value>,
        branches: &Branches<'_>,
    ) -> Flow<Option<usize>> {
        let Some(call) = self.find_call(id) else {
            return Ok(None);
        };
        let (name, input, parent) = (call.name.clone(), call.input.clone(), call.parent.clone());
        match self.decide(&name, &input) {
            Decision::Allow => {
                self.decided(id, json!({"decision": "accept", "source": "config"}));
                self.steps(branches.allow)?;
                return Ok(None);
            }
            Decision::Refuse(message) => {
                self.denials.push(json!({"tool_name": name, "tool_use_id": id, "tool_input": input}));
                if !self.wave() {
                    self.say(json!({
                        "type": "system", "subtype": "permission_denied", "tool_name": name, "tool_use_id": id,
                        "message": message,
                    }))?;
                }
                let error = format!("Error: {message}");
                self.say_result(id, message.into(), true, error.into(), None)?;
                return Ok(None);
            }
            Decision::Ask => {}
        }
        let request = Uuid::new_v4().to_string();
        let suggestions = match suggestions {
            Some(suggestions) => suggestions.iter().map(|one| fill_value(one, self)).collect(),
            None => suggest(&name, &input),
        };
        let mut body = json!({
            "subtype": "can_use_tool", "tool_name": name, "display_name": name, "input": input,
            "description": describe(&input), "tool_use_id": id,
        });
        if !suggestions.is_empty() {
            body["permission_suggestions"] = suggestions.into();
        }
        if parent.is_some() {
            body["agent_id"] = "agent-1".into();
        }
        for (name, value) in more {
            body[name] = fill_value(value, self);
        }
        self.last_request.clone_from(&request);
        self.state("requires_action")?;
        self.questions.push(Question { request: request.clone(), call: id.to_owned(), answer: None, settled: false });
        self.write(&json!({"type": "control_request", "request_id": request, "request": body}))?;
        let index = self.questions.len() - 1;
        if self.input_ended {
            self.answer(index, Answer::Failed("Tool permission stream closed".into()))?;
        }
        Ok(Some(index))
    }

    fn decide(&self, name: &str, input: &Value) -> Decision {
        let edits = matches!(name, "Write" | "Edit");
        let ruled = self.rules.iter().any(|(tool, content)| {
            tool == name && content.as_deref().is_none_or(|content| input["command"] == content)
        });
        match self.mode.as_str() {
            "bypassPermissions" => Decision::Allow,
            "acceptEdits" if edits => Decision::Allow,
            _ if ruled => Decision::Allow,
            "dontAsk" => Decision::Refuse("permission mode dontAsk: nothing is asked, so this call is refused"),
            _ if !self.flags.prompts => Decision::Refuse("this call needs a permission and nobody can be asked"),
            _ => Decision::Ask,
        }
    }

    fn decided(&mut self, call: &str, decision: Value) {
        if let Some(call) = self.find_call(call) {
            call.decision = decision;
        }
    }

    /// Notes the answer to a question; the step that waits for it deals with it.
    pub(super) fn answer(&mut self, index: usize, answer: Answer) -> Flow {
        if self.questions[index].answer.is_some() {
            return Ok(());
        }
        self.questions[index].answer = Some(answer);
        self.answered.push_back(index);
        if self.in_turn && self.questions.iter().all(|question| question.answer.is_some()) {
            self.state("running")?;
        }
        Ok(())
    }

    fn answers(&mut self, of: &[String], branches: &Branches<'_>) -> Flow {
        let of: Vec<String> = of.iter().map(|call| fill(call, self)).collect();
        let meant = |question: &Question| !question.settled && (of.is_empty() || of.contains(&question.call));
        loop {
            let left = self.questions.iter().filter(|question| meant(question)).count();
            if left == 0 {
                return Ok(());
            }
            self.wait_until(None, |agent| agent.answered.iter().any(|&index| meant(&agent.questions[index])))?;
            let next = self.answered.iter().position(|&index| meant(&self.questions[index]));
            if let Some(index) = next.and_then(|at| self.answered.remove(at)) {
                self.settle(index, branches)?;
            }
        }
    }

    fn settle(&mut self, index: usize, branches: &Branches<'_>) -> Flow {
        let question = &mut self.questions[index];
        question.settled = true;
        let (id, answer) = (question.call.clone(), question.answer.take());
        // Keeps a second answer from counting.
        question.answer = Some(Answer::Failed(String::new()));
        self.current = Some(id.clone());
        match answer {
            Some(Answer::Allow { input, permissions }) => {
                let lasting = !permissions.is_empty();
                for permission in &permissions {
                    self.grant(permission)?;
                }
                if let (Some(input), Some(call)) = (input, self.find_call(&id)) {
                    call.input = input;
                }
                let source = if lasting { "user_permanent" } else { "user_temporary" };
                self.decided(&id, json!({"decision": "accept", "source": source}));
                self.steps(branches.allow)
            }
            Some(Answer::Deny { message, interrupt }) => {
                self.note_denial(&id);
                self.last_answer.clone_from(&message);
                if interrupt {
                    return Err(Stop::Interrupted);
                }
                self.decided(&id, json!({"decision": "reject", "source": "user_reject"}));
                match branches.deny {
                    Some(steps) => self.steps(steps),
                    None => self.refused(&id, &message),
                }
            }
            Some(Answer::Failed(why)) => {
                self.last_answer.clone_from(&why);
                match branches.cancelled {
                    Some(steps) => self.steps(steps),
                    None => {
                        let message = format!("Tool permission request failed: {why}");
                        let error = format!("Error: {message}");
                        self.say_result(&id, message.into(), true, error.into(), None)
                    }
                }
            }
            None => Ok(()),
        }
    }

    fn refused(&mut self, id: &str, message: &str) -> Flow {
        let decision = json!({"decision": "reject", "source": "user_reject"});
        let meta = json!({"non_execution_kind": "permission-rule", "permission_decision": decision});
        self.say_result(id, message.into(), true, format!("Error: {message}").into(), Some(meta))
    }

    pub(super) fn note_denial(&mut self, id: &str) {
        if let Some(call) = self.find_call(id) {
            let denial = json!({"tool_name": call.name, "tool_use_id": call.id, "tool_input": call.input});
            self.denials.push(denial);
        }
    }

    /// Remembers what an answer's `updatedPermissions` grants.
    fn grant(&mut self, permission: &Value) -> Flow {
        match permission["type"].as_str() {
            Some("addRules") if permission["behavior"] == "allow" => {
                for rule in permission["rules"].as_array().into_iter().flatten() {
                    if let Some(tool) = rule["toolName"].as_str() {
                        let content = rule["ruleContent"].as_str().map(Into::into);
                        self.rules.push((tool.to_owned(), content));
                    }
                }
                Ok(())
            }
            Some("setMode") => match permission["mode"].as_str() {
                Some(mode) => self.set_mode(mode),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn withdraw(&mut self, tool: Option<&str>) -> Flow {
        let call = self.named_call(tool);
        let open =
            self.questions.iter().position(|question| Some(&question.call) == call.as_ref() && !question.settled);
        if let Some(index) = open {
            self.questions[index].settled = true;
            self.questions[index].answer.get_or_insert(Answer::Failed(String::new()));
            self.answered.retain(|&other| other != index);
            let request = self.questions[index].request.clone();
            self.write(&json!({"type": "control_cancel_request", "request_id": request}))?;
        }
        Ok(())
    }

    pub(super) fn set_mode(&mut self, mode: &str) -> Flow {
        if self.mode == mode {
            return Ok(());
        }
        mode.clone_into(&mut self.mode);
        self.say(json!({"type": "system", "subtype": "status", "status": null, "permissionMode": mode}))
    }

    /// Waits between two pieces of a text, and deals with what came.
    pub(super) fn breathe(&mut self) -> Flow {
        if self.pace.is_zero() {
            return self.take_waiting();
        }
        self.wait_until(Some(self.pace), |_| false)
    }

    /// Deals with what comes in until `done`, or for so long.
    pub(super) fn wait_until(&mut self, time: Option<Duration>, done: impl Fn(&Self) -> bool) -> Flow {
        if self.starting && self.expecting.is_none() {
            let Some(time) = time else {
                loop {
                    std::thread::park();
                }
            };
            std::thread::sleep(time);
            return Ok(());
        }
        let deadline = time.map(|time| Instant::now() + time);
        loop {
            self.take_waiting()?;
            if done(self) {
                return Ok(());
            }
            if !self.take_one(deadline)? {
                return Ok(());
            }
        }
    }
}

struct Branches<'s> {
    allow: &'s [Step],
    deny: &'s Option<Vec<Step>>,
    cancelled: &'s Option<Vec<Step>>,
}

impl Words for Agent {
    fn word(&mut self, name: &str) -> Option<String> {
        Some(match name {
            "session" => self.session.clone(),
            "cwd" => self.cwd.display().to_string(),
            "prompt" => self.prompt.text.clone(),
            "uuid" => Uuid::new_v4().to_string(),
            "user" => self.prompt.uuid.clone().unwrap_or_default(),
            "tool" => self.current.clone().unwrap_or_default(),
            "request" => self.last_request.clone(),
            "answer" => self.last_answer.clone(),
            "turn" => self.turn.to_string(),
            "n" => self.round.to_string(),
            _ => return None,
        })
    }
}

/// What claude suggests for a call.
fn suggest(name: &str, input: &Value) -> Vec<Value> {
    match name {
        "Write" | "Edit" => vec![json!({"type": "setMode", "mode": "acceptEdits", "destination": "session"})],
        "Bash" => vec![json!({
            "type": "addRules", "behavior": "allow", "destination": "localSettings",
            "rules": [{"toolName": "Bash", "ruleContent": input["command"]}],
        })],
        _ => Vec::new(),
    }
}

/// The short text that goes with a question.
fn describe(input: &Value) -> String {
    let text = |name: &str| input[name].as_str().map(str::to_owned);
    let file = || text("file_path").map(|path| path.rsplit('/').next().unwrap_or_default().to_owned());
    text("description").or_else(file).unwrap_or_default()
}

fn made_up_value(content: &Value, error: bool) -> Value {
    let text = content.as_str().unwrap_or_default();
    if error {
        return format!("Error: {text}").into();
    }
    json!({"stdout": text, "stderr": "", "interrupted": false, "isImage": false, "noOutputExpected": false})
}

/// Bytes from hexadecimal digits; everything else is skipped.
fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_read_with_or_without_gaps() {
        assert_eq!(unhex("ff fe:00"), [0xff, 0xfe, 0]);
        assert!(unhex("").is_empty());
    }
}
