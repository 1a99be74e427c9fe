//! Files and commands that the agent has diglot read, write and run as its client, where the user switched that on.
//!
//! Owns `fs/*` and `terminal/*`: what waits, the terminals, and what of it was already allowed. Keeps: to write a file and to
//! start a command are acts, and diglot grants none by itself. An act passes hooks, rules, mode and host like a permission
//! question ([`super::permission`]), unless it is the very act (this file, this command) of a call that the agent asked
//! about and that was allowed in this turn: then it is covered, once. To read is no act; only rules hold it off. What a path
//! really leads to decides, not how it is spelt. A command's output is kept until the turn ends, released or not, and is
//! its call's result (quirks 23 to 25: those of the design's table, section 6).

use std::hash::RandomState;
use std::path::PathBuf;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::ClaudeOverAcp;
use super::calls::{Content, Exit, Status};
use super::command::{self, CommandLine};
use super::grants::{Deed, Grant};
use super::question::{Choice, Question};
use crate::translate::client::{ClientDone, ClientFailure, ClientWork, Command, CommandExit, Output, Want};
use crate::translate::rules::{Decision, by_letters};
use crate::translate::{Action, Actions};
use crate::wire::acp_client::methods;
use crate::wire::jsonrpc::{self, Id, RpcError, codes};
use crate::wire::text::{Raw, read};

/// Bytes of a command's output that are kept at most, and if the agent does not say.
const OUTPUT: usize = 1024 * 1024;

/// Terminals of one turn.
const TERMINALS: usize = 64;

/// Works that may wait.
const WAITING: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Served {
    effects: u64,
    waiting: Vec<(u64, Waiting)>,
    acts: u64,
    count: u64,
    terminals: Vec<Terminal>,
    pub(super) grants: Vec<Grant>,
    /// Keys of the hashes of contents: nobody can make two contents with one hash.
    pub(super) keys: RandomState,
}

/// A request of the agent's that waits for a work.
#[derive(Debug)]
struct Waiting {
    id: Id,
    then: Then,
}

#[derive(Debug)]
enum Then {
    /// It is decided when it is known where the path leads.
    Decide(Act),
    /// It is decided when it is known what the file holds now: an edit of it was allowed or is shown.
    Compare(Act),
    /// It is done; the call that diglot made up for it.
    Do(Option<String>),
    /// The command starts.
    Start(u64),
    /// The output is told.
    Output(u64),
}

/// Something that the agent wants done.
#[derive(Debug)]
pub(super) enum Act {
    Read {
        path: PathBuf,
        skip: u64,
        limit: Option<u64>,
    },
    Write {
        path: PathBuf,
        content: String,
        /// What the file must still hold: an edit of that was shown.
        over: Option<String>,
    },
    Run(Command),
}

impl Act {
    /// ACP's kind of a call that does it.
    fn kind(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "edit",
            Self::Run(_) => "execute",
        }
    }
}

#[derive(Debug)]
struct Terminal {
    number: u64,
    /// The call that diglot made up for it.
    call: Option<String>,
    ended: Option<Output>,
    /// Requests that wait for its end.
    waits: Vec<Id>,
    /// The agent has no more use for it.
    released: bool,
}

impl Terminal {
    fn id(&self) -> String {
        format!("term_{}", self.number)
    }
}

impl ClaudeOverAcp {
    /// A request of the agent's to its client; false: it is none, or not served.
    pub(super) fn client_asked(&mut self, id: &Id, method: &str, params: Raw<'_>, out: &mut Actions) -> bool {
        let served = match method {
            methods::FS_READ_TEXT_FILE | methods::FS_WRITE_TEXT_FILE => self.set.options.files,
            methods::TERMINAL_CREATE
            | methods::TERMINAL_OUTPUT
            | methods::TERMINAL_WAIT_FOR_EXIT
            | methods::TERMINAL_KILL
            | methods::TERMINAL_RELEASE => self.set.options.terminals,
            _ => false,
        };
        if !served {
            return false;
        }
        let params: Map<String, Value> = read(params).unwrap_or_default();
        if let Err(error) = self.client_request(id, method, &params, out) {
            out.far(jsonrpc::error(id, &error));
        }
        true
    }

    fn client_request(
        &mut self,
        id: &Id,
        method: &str,
        params: &Map<String, Value>,
        out: &mut Actions,
    ) -> Result<(), RpcError> {
        let session = string(params, "sessionId")?;
        if self.agent.session_id.as_deref() != Some(session) {
            return Err(RpcError::invalid_params(format!("{method}: there is no session {session}")));
        }
        let act = match method {
            methods::FS_READ_TEXT_FILE => {
                let number = |name: &str| params.get(name).and_then(Value::as_u64);
                // The first line is 1; several agents count from 0.
                let skip = number("line").unwrap_or(1).max(1) - 1;
                Act::Read { path: path(params, "path")?, skip, limit: number("limit") }
            }
            methods::FS_WRITE_TEXT_FILE => {
                Act::Write { path: path(params, "path")?, content: string(params, "content")?.to_owned(), over: None }
            }
            methods::TERMINAL_CREATE => Act::Run(command::read(params, &self.set.cwd, OUTPUT)?),
            _ => return self.terminal_request(id, method, params, out),
        };
        if self.served.waiting.len() >= WAITING {
            return Err(RpcError::new(codes::INTERNAL_ERROR, "too much is asked for at once"));
        }
        let (path, want) = match &act {
            Act::Read { path, .. } => (path, Want::File),
            Act::Write { path, .. } => (path, Want::NewFile),
            Act::Run(command) => (&command.cwd, Want::Directory),
        };
        let work = ClientWork::Find { path: path.clone(), want, roots: self.client_roots() };
        self.client_work(id.clone(), Then::Decide(act), work, out);
        Ok(())
    }

    /// Requests about a command that was started.
    fn terminal_request(
        &mut self,
        id: &Id,
        method: &str,
        params: &Map<String, Value>,
        out: &mut Actions,
    ) -> Result<(), RpcError> {
        let name = string(params, "terminalId")?;
        let found = self.served.terminals.iter_mut().find(|t| !t.released && t.id() == name);
        let terminal = found.ok_or_else(|| failure(&ClientFailure::NotFound(name.to_owned())))?;
        let number = terminal.number;
        match (method, &terminal.ended) {
            (methods::TERMINAL_OUTPUT, Some(output)) => out.far(output_answer(id, output)),
            (methods::TERMINAL_OUTPUT, None) => {
                self.client_work(id.clone(), Then::Output(number), ClientWork::Output { terminal: number }, out);
            }
            (methods::TERMINAL_WAIT_FOR_EXIT, Some(output)) => {
                out.far(jsonrpc::response(id, &exit_status(output.exit)));
            }
            (methods::TERMINAL_WAIT_FOR_EXIT, None) => terminal.waits.push(id.clone()),
            (_, ended) => {
                if ended.is_none() {
                    out.push(Action::Client { effect: 0, work: ClientWork::Kill { terminal: number } });
                }
                terminal.released = method == methods::TERMINAL_RELEASE;
                out.far(jsonrpc::response(id, &json!({})));
            }
        }
        Ok(())
    }

    fn client_roots(&self) -> Vec<PathBuf> {
        std::iter::once(&self.set.cwd).chain(&self.set.add_dirs).cloned().collect()
    }

    fn client_work(&mut self, id: Id, then: Then, work: ClientWork, out: &mut Actions) {
        self.served.effects += 1;
        let effect = self.served.effects;
        self.served.waiting.push((effect, Waiting { id, then }));
        out.push(Action::Client { effect, work });
    }

    /// A work was done, or could not be.
    pub(super) fn client_did(&mut self, effect: u64, done: ClientDone, out: &mut Actions) {
        let Some(at) = self.served.waiting.iter().position(|(e, _)| *e == effect) else {
            out.note("a work for an agent that is gone");
            return;
        };
        let (_, Waiting { id, then }) = self.served.waiting.remove(at);
        match (then, done) {
            (Then::Decide(act), ClientDone::Found(real)) => self.find_act(id, act, real, out),
            (Then::Compare(act), ClientDone::Text(now)) => self.decide_act(id, act, true, Some(now), out),
            (Then::Compare(act), ClientDone::Failed(ClientFailure::NotFound(_))) => {
                self.decide_act(id, act, true, Some(String::new()), out);
            }
            // What it holds cannot be read: nothing can be compared, so the host is asked.
            (Then::Compare(act), ClientDone::Failed(_)) => self.decide_act(id, act, true, None, out),
            (Then::Decide(Act::Read { .. }), ClientDone::Failed(ClientFailure::NotFound(_)))
                if self.set.profile.acp.missing_file_is_empty =>
            {
                out.far(jsonrpc::response(&id, &json!({"content": ""})));
            }
            (Then::Decide(_), ClientDone::Failed(why)) => out.far(jsonrpc::error(&id, &failure(&why))),
            (Then::Do(call), ClientDone::Text(content)) => {
                out.far(jsonrpc::response(&id, &json!({"content": content})));
                self.own_call_ends(call, Status::Completed, &json!(""), out);
            }
            (Then::Do(call), ClientDone::Written) => {
                out.far(jsonrpc::response(&id, &json!({})));
                self.own_call_ends(call, Status::Completed, &Value::Null, out);
            }
            (Then::Do(call), ClientDone::Failed(why)) => {
                out.far(jsonrpc::error(&id, &failure(&why)));
                self.own_call_ends(call, Status::Failed, &why.to_string().into(), out);
            }
            (Then::Start(number), ClientDone::Runs) => {
                out.far(jsonrpc::response(&id, &json!({"terminalId": format!("term_{number}")})));
                if !self.served.terminals.iter().any(|t| t.number == number) {
                    // The turn has ended meanwhile.
                    out.push(Action::Client { effect: 0, work: ClientWork::Kill { terminal: number } });
                }
            }
            (Then::Start(number), ClientDone::Failed(why)) => {
                out.far(jsonrpc::error(&id, &failure(&why)));
                if let Some(at) = self.served.terminals.iter().position(|t| t.number == number) {
                    let terminal = self.served.terminals.remove(at);
                    self.own_call_ends(terminal.call, Status::Failed, &why.to_string().into(), out);
                }
            }
            (Then::Output(_), ClientDone::Output(output)) => out.far(output_answer(&id, &output)),
            (Then::Output(number), done) => {
                // It has ended meanwhile.
                let terminal = self.served.terminals.iter().find(|t| t.number == number);
                match (terminal.and_then(|t| t.ended.as_ref()), done) {
                    (Some(output), _) => out.far(output_answer(&id, output)),
                    (None, ClientDone::Failed(why)) => out.far(jsonrpc::error(&id, &failure(&why))),
                    (None, _) => out.far(jsonrpc::error(&id, &RpcError::new(codes::INTERNAL_ERROR, "no output"))),
                }
            }
            (_, done) => {
                out.note(format!("a work that ended as another one: {done:?}"));
                out.far(jsonrpc::error(&id, &RpcError::new(codes::INTERNAL_ERROR, "the work failed")));
            }
        }
    }

    /// It is known what the act is really about: who decides?
    fn find_act(&mut self, id: Id, mut act: Act, real: PathBuf, out: &mut Actions) {
        let spelt = match &act {
            Act::Read { path, .. } | Act::Write { path, .. } => path,
            Act::Run(command) => &command.cwd,
        };
        // A way over links: what the agent calls it is not what it is.
        let straight = by_letters(spelt) == by_letters(&real);
        match &mut act {
            Act::Read { path, .. } | Act::Write { path, .. } => *path = real,
            Act::Run(command) => command.cwd = real,
        }
        match &act {
            Act::Write { path, .. } if straight && self.edit_is_known(path) => {
                let work = ClientWork::Read { path: path.clone(), skip: 0, limit: None, roots: self.client_roots() };
                self.client_work(id, Then::Compare(act), work, out);
            }
            _ => self.decide_act(id, act, straight, None, out),
        }
    }

    /// Who decides about an act: nobody but rules if it reads, nobody if just this was allowed, else hooks, rules, host.
    ///
    /// `now`: what its file holds, where that matters.
    fn decide_act(&mut self, id: Id, mut act: Act, straight: bool, now: Option<String>, out: &mut Actions) {
        let (name, input) = self.act_input(&act);
        let verdict = self.rules.decide(name, &input, &self.set.cwd);
        let verdict = verdict.as_ref().map(|v| (v.decision, v.rule.as_str()));
        if let (Act::Read { .. }, None | Some((Decision::Allow, _))) = (&act, verdict) {
            return self.do_act(id, act, None, out);
        }
        let gone = match &self.turn {
            None => Some("it was asked for outside of a turn; nobody was asked"),
            Some(turn) if turn.interrupted || turn.stopping.is_some() => Some("the turn is cancelled"),
            Some(_) => None,
        };
        if let Some(why) = gone {
            out.far(jsonrpc::error(&id, &RpcError::new(codes::INTERNAL_ERROR, why)));
            return;
        }
        let deed = Deed::of(&act, now.as_deref(), &self.set.cwd).filter(|_| straight);
        let known = deed.as_ref().and_then(|deed| self.call_of(deed));
        let denied = matches!(verdict, Some((Decision::Deny, _)));
        let covers = |deed: &Deed<'_>| self.served.grants.iter().position(|g| g.covers(deed, &self.served.keys));
        let covered = deed.as_ref().filter(|_| !denied).and_then(covers);
        if let Act::Write { over, .. } = &mut act
            && (known.is_some() || covered.is_some())
        {
            *over = now;
        }
        if let Some(at) = covered {
            self.served.grants.remove(at);
            return self.do_act(id, act, None, out);
        }
        let kind = act.kind();
        let own = known.is_none();
        let call = known.unwrap_or_else(|| self.next_own());
        self.questions.count += 1;
        let number = self.questions.count;
        // diglot does it itself, so any answer will do.
        let option = |kind: &str| Choice { id: String::new(), name: String::new(), kind: kind.into() };
        // It is open before its call is shown: that can be one more than `--max-turns` allows, and then it is cancelled.
        self.questions.open.push(Question {
            number,
            id,
            call: call.clone(),
            uses: Vec::new(),
            at: 0,
            options: vec![option("allow_once"), option("allow_always")],
            choice: None,
            act: Some(act),
            form: None,
            hook_asks: None,
        });
        match own {
            true => self.own_call(&call, kind, name, &input, out),
            false => self.show_call(&call, out),
        }
        if self.question(number).is_none() {
            return;
        }
        let uses = self.uses_now(&call);
        if let Some(question) = self.questions.open.iter_mut().find(|q| q.number == number) {
            question.uses = uses;
        }
        // The hooks of a call run once.
        match self.turn.as_mut().is_some_and(|t| t.tracked(&call).hooked) {
            true => self.decide_by_rules(number, None, out),
            false => self.decide(number, out),
        }
    }

    /// The act as a call of Claude's tools.
    fn act_input(&self, act: &Act) -> (&'static str, Map<String, Value>) {
        let input = |members: Value| match members {
            Value::Object(input) => input,
            _ => Map::new(),
        };
        match act {
            Act::Read { path, .. } => ("Read", input(json!({"file_path": path}))),
            Act::Write { path, content, .. } => ("Write", input(json!({"file_path": path, "content": content}))),
            Act::Run(command) => {
                let line = CommandLine::of(command, &self.set.cwd);
                ("Bash", input(json!({"command": line.whole()})))
            }
        }
    }

    /// An act was allowed.
    pub(super) fn act_allowed(&mut self, id: Id, call: String, act: Act, out: &mut Actions) {
        let own = Some(call).filter(|call| is_own(call));
        self.do_act(id, act, own, out);
    }

    /// An act was refused, and the agent was told.
    pub(super) fn act_refused(&mut self, call: &str, why: &str, out: &mut Actions) {
        if is_own(call) {
            self.own_call_ends(Some(call.to_owned()), Status::Failed, &why.into(), out);
        }
    }

    fn do_act(&mut self, id: Id, act: Act, own: Option<String>, out: &mut Actions) {
        let roots = self.client_roots();
        match act {
            Act::Read { path, skip, limit } => {
                self.client_work(id, Then::Do(own), ClientWork::Read { path, skip, limit, roots }, out);
            }
            Act::Write { path, content, over } => {
                self.client_work(id, Then::Do(own), ClientWork::Write { path, content, over, roots }, out);
            }
            Act::Run(command) => {
                if self.served.terminals.len() >= TERMINALS {
                    let why = "too many terminals in one turn; release those that have ended";
                    out.far(jsonrpc::error(&id, &RpcError::new(codes::INTERNAL_ERROR, why)));
                    return self.own_call_ends(own, Status::Failed, &why.into(), out);
                }
                self.served.count += 1;
                let terminal = self.served.count;
                let call = own;
                self.served.terminals.push(Terminal {
                    number: terminal,
                    call,
                    ended: None,
                    waits: Vec::new(),
                    released: false,
                });
                self.client_work(id, Then::Start(terminal), ClientWork::Run { terminal, command, roots }, out);
            }
        }
    }

    /// A command has ended.
    pub(super) fn command_ended(&mut self, number: u64, output: Output, out: &mut Actions) {
        let Some(terminal) = self.served.terminals.iter_mut().find(|t| t.number == number) else { return };
        for id in std::mem::take(&mut terminal.waits) {
            out.far(jsonrpc::response(&id, &exit_status(output.exit)));
        }
        let (call, text) = (terminal.call.take(), output.text.clone());
        let code = output.exit.and_then(|exit| exit.code);
        terminal.ended = Some(output);
        let status = if code == Some(0) { Status::Completed } else { Status::Failed };
        let result = match code {
            Some(code) => json!({"output": text, "exit_code": code}),
            None => format!("{text}[the command was killed]").into(),
        };
        self.own_call_ends(call, status, &result, out);
    }

    /// A call shows a terminal that has ended: what it put out is the call's result.
    pub(super) fn fill_terminals(&mut self, call: &str) {
        let Some(turn) = &mut self.turn else { return };
        let call = &mut turn.tracked(call).call;
        if !call.terminal.is_empty() {
            return;
        }
        let shown = call.content.iter().chain(call.output.iter().flatten());
        let ids = shown.filter_map(|content| match content {
            Content::Terminal { id } => Some(id.as_str()),
            _ => None,
        });
        let ended = |id: &str| self.served.terminals.iter().find(|t| t.id() == id)?.ended.as_ref();
        if let Some(output) = ids.filter_map(ended).next() {
            let (text, exit) = (output.text.clone(), output.exit);
            call.terminal.push(&text);
            call.exit = call.exit.or(exit.map(|exit| Exit { code: exit.code.map(i64::from) }));
        }
    }

    /// The turn is cancelled: whoever waits is answered first (quirk 18), and its commands are killed (quirk 25).
    pub(super) fn cancel_client(&mut self, out: &mut Actions) {
        for (_, Waiting { id, .. }) in std::mem::take(&mut self.served.waiting) {
            out.far(jsonrpc::error(&id, &RpcError::new(codes::REQUEST_CANCELLED, "the turn is cancelled")));
        }
        for terminal in &mut self.served.terminals {
            for id in std::mem::take(&mut terminal.waits) {
                out.far(jsonrpc::response(&id, &exit_status(Some(KILLED))));
            }
        }
        self.kill_commands(out);
    }

    fn kill_commands(&self, out: &mut Actions) {
        if self.served.terminals.iter().any(|t| t.ended.is_none()) {
            out.push(Action::Client { effect: 0, work: ClientWork::KillAll });
        }
    }

    /// The turn is over, and with it its commands and what was allowed in it.
    pub(super) fn end_commands(&mut self, out: &mut Actions) {
        self.kill_commands(out);
        for terminal in std::mem::take(&mut self.served.terminals) {
            let exit = terminal.ended.map_or(Some(KILLED), |output| output.exit);
            for id in terminal.waits {
                out.far(jsonrpc::response(&id, &exit_status(exit)));
            }
            let why = "The command still ran when the turn ended, and was killed.";
            self.own_call_ends(terminal.call, Status::Failed, &why.into(), out);
        }
        self.served.grants.clear();
    }

    /// The agent's process is gone: nobody waits for anything.
    pub(super) fn forget_client(&mut self, out: &mut Actions) {
        self.kill_commands(out);
        self.served.waiting.clear();
        self.served.terminals.clear();
        self.served.grants.clear();
    }

    /// A call for an act of which the agent showed none.
    fn next_own(&mut self) -> String {
        self.served.acts += 1;
        format!("{OWN}{}", self.served.acts)
    }

    /// A call that diglot makes up, for an act that the agent has shown none for.
    fn own_call(&mut self, call: &str, kind: &str, name: &str, input: &Map<String, Value>, out: &mut Actions) {
        let update = json!({
            "sessionUpdate": "tool_call", "toolCallId": call, "title": name, "kind": kind, "status": "pending",
            "name": name, "rawInput": input,
        });
        self.own_call_changes(call, &update, true, out);
    }

    fn own_call_ends(&mut self, call: Option<String>, status: Status, output: &Value, out: &mut Actions) {
        let Some(call) = call else { return };
        let status = if status == Status::Completed { "completed" } else { "failed" };
        let update = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status, "rawOutput": output,
        });
        self.own_call_changes(&call, &update, false, out);
    }

    fn own_call_changes(&mut self, call: &str, update: &Value, asks: bool, out: &mut Actions) {
        // What was made of JSON values can be written.
        let raw: Option<Box<RawValue>> = to_raw_value(update).ok();
        if let (Some(raw), Some(_)) = (raw, &self.turn) {
            self.call_changed(&raw, call, asks, out);
        }
    }
}

/// How a command ends that diglot kills.
const KILLED: CommandExit = CommandExit { code: None, signal: Some(9) };

/// How the ids of calls begin that diglot makes up.
const OWN: &str = "diglot_act_";

fn is_own(call: &str) -> bool {
    call.starts_with(OWN)
}

fn string<'a>(params: &'a Map<String, Value>, name: &str) -> Result<&'a str, RpcError> {
    let found = params.get(name).and_then(Value::as_str);
    found.ok_or_else(|| RpcError::invalid_params(format!("`{name}` must be a string")))
}

fn path(params: &Map<String, Value>, name: &str) -> Result<PathBuf, RpcError> {
    let path = PathBuf::from(string(params, name)?);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(RpcError::invalid_params(format!("`{name}` must be an absolute path"))),
    }
}

/// A failure in ACP's terms.
fn failure(why: &ClientFailure) -> RpcError {
    match why {
        ClientFailure::NotFound(what) => {
            RpcError::new(codes::RESOURCE_NOT_FOUND, why.to_string()).with_data(json!({"uri": what}))
        }
        ClientFailure::NotAllowed(said) => RpcError::invalid_params(said.clone()),
        ClientFailure::Failed(said) => RpcError::new(codes::INTERNAL_ERROR, said.clone()),
    }
}

fn exit_status(exit: Option<CommandExit>) -> Value {
    let exit = exit.unwrap_or_default();
    json!({"exitCode": exit.code, "signal": exit.signal.map(signal_name)})
}

fn signal_name(signal: i32) -> String {
    let known = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (6, "SIGABRT"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
    ];
    known.iter().find(|(number, _)| *number == signal).map_or_else(|| signal.to_string(), |(_, name)| (*name).into())
}

fn output_answer(id: &Id, output: &Output) -> Vec<u8> {
    let mut answer = json!({"output": output.text, "truncated": output.truncated});
    if output.exit.is_some() {
        answer["exitStatus"] = exit_status(output.exit);
    }
    jsonrpc::response(id, &answer)
}
