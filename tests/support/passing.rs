//! A whole conversation of an editor with an agent that speaks ACP itself, without pipes, processes or time.
//!
//! Owns the routing of lines, the life of the agent's processes and the timers, all as explicit inputs, and the names by which
//! an input refers to what was asked. Keeps: a line comes only from a process that runs, a timer fires only while it is set,
//! nothing happens after the end, and every line that goes in or comes out passes the judge.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use diglot::mappings::{AgentProfile, Mappings};
use diglot::translate::acp_over_acp::front::{Front, Otherwise, Route, unknown_session};
use diglot::translate::acp_over_acp::{AcpOverAcp, Settings};
use diglot::translate::{Action, Actions, Event, FarExit, FarSpec, StartFailure, Stop, Timer, Translator};

use super::judge::Rpc;
use super::passing_rules::Judge;

/// Diglot's own directory in every conversation.
pub(crate) const CWD: &str = "/w";

/// Something that happens; the number is the process's.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// The editor writes a line.
    Editor(Vec<u8>),
    /// The editor is gone.
    EditorClosed,
    /// A process writes a line.
    Agent(u32, Vec<u8>),
    /// A process has ended.
    AgentClosed(u32, FarExit),
    /// A process could not be started.
    AgentFailed(u32, StartFailure),
    /// A timer runs out.
    Timer(u32, Timer),
}

/// Something that diglot does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Done {
    Editor(Vec<u8>),
    Agent(u32, Vec<u8>),
    Start(u32, FarSpec),
    Stop(u32, Stop),
    Set(u32, Timer, Duration),
    Clear(u32, Timer),
    End(u32),
}

struct Link {
    link: AcpOverAcp,
    runs: bool,
    /// Nothing is written to it any more.
    deaf: bool,
    heard: bool,
    timers: Vec<Timer>,
    /// Methods and ids of the requests to it that wait.
    requests: Vec<(String, String)>,
}

/// The conversation.
pub(crate) struct Conversation {
    front: Front,
    profile: Arc<AgentProfile>,
    links: BTreeMap<u32, Link>,
    sessions: HashMap<String, u32>,
    started: u32,
    front_is_taken: bool,
    editor_open: bool,
    /// Ids of the questions to the editor, in order.
    asks: Vec<String>,
    pub(crate) judge: Judge,
}

impl Conversation {
    pub(crate) fn new(profile: &str) -> Result<Self, String> {
        let found = Mappings::builtin().agents.get(profile).cloned();
        let profile = found.ok_or_else(|| format!("there is no profile {profile:?}"))?;
        Ok(Self {
            front: Front::default(),
            profile: Arc::new(profile),
            links: BTreeMap::new(),
            sessions: HashMap::new(),
            started: 0,
            front_is_taken: false,
            editor_open: true,
            asks: Vec::new(),
            judge: Judge::default(),
        })
    }

    /// Processes that run.
    pub(crate) fn running(&self) -> Vec<u32> {
        self.links.iter().filter(|(_, link)| link.runs).map(|(number, _)| *number).collect()
    }

    /// Timers that are set.
    pub(crate) fn timers(&self) -> Vec<(u32, Timer)> {
        self.links.iter().flat_map(|(number, link)| link.timers.iter().map(|timer| (*number, *timer))).collect()
    }

    /// Requests that a process has not answered: method and id.
    pub(crate) fn waiting(&self, number: u32) -> Vec<(String, String)> {
        self.links.get(&number).map(|link| link.requests.clone()).unwrap_or_default()
    }

    /// Whether diglot is done after the editor has gone.
    pub(crate) fn is_over(&self) -> bool {
        !self.editor_open && self.links.is_empty()
    }

    /// Replaces the names in a line by what they stand for: `"@ask 1"`, and for an agent `"@session/prompt"`.
    pub(crate) fn resolve(&self, line: &str) -> Result<String, String> {
        let process = serde_json::from_str::<serde_json::Value>(line).ok().and_then(|v| v["process"].as_u64());
        let process = u32::try_from(process.unwrap_or(0)).unwrap_or(0);
        let mut out = String::new();
        let mut rest = line;
        while let Some(at) = rest.find("\"id\":\"@").or_else(|| rest.find("\"requestId\":\"@")) {
            let from = at + rest[at..].find('@').unwrap_or(0);
            let end = from + rest[from..].find('"').ok_or("a name without an end")?;
            let name = &rest[from + 1..end];
            let id = match name.strip_prefix("ask ") {
                Some(n) => {
                    let n: usize = n.parse().map_err(|_| format!("there is no ask {n:?}"))?;
                    n.checked_sub(1).and_then(|n| self.asks.get(n)).ok_or(format!("nothing is asked as {name}"))?
                }
                None => {
                    let link = self.links.get(&process).ok_or("there is no such process")?;
                    let found = link.requests.iter().find(|(method, _)| method == name);
                    &found.ok_or(format!("the agent is not asked {name}"))?.1
                }
            };
            out.push_str(&rest[..from - 1]);
            out.push_str(id);
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Lets one thing happen.
    ///
    /// # Errors
    /// When it cannot happen now.
    pub(crate) fn feed(&mut self, input: &Input) -> Result<Vec<Done>, String> {
        let mut done = Vec::new();
        match input {
            Input::Editor(line) => {
                if !self.editor_open {
                    return Err("the editor is gone".into());
                }
                if std::str::from_utf8(line).is_err() {
                    return Err("a line is UTF-8".into());
                }
                self.judge.editor_in(line);
                self.editor(line, &mut done);
            }
            Input::EditorClosed => {
                if !std::mem::replace(&mut self.editor_open, false) {
                    return Err("the editor is gone already".into());
                }
                self.judge.editor_closed();
                for number in self.links.keys().copied().collect::<Vec<_>>() {
                    self.event(number, Event::NearClosed, &mut done);
                }
            }
            Input::Agent(number, line) => {
                let link = self.live(*number)?;
                link.heard = true;
                if let Rpc::Response { id, .. } = Rpc::read(line) {
                    link.requests.retain(|(_, waits)| *waits != id);
                }
                self.judge.agent_in(*number, line);
                self.event(*number, Event::Far(line), &mut done);
            }
            Input::AgentClosed(number, exit) => {
                let link = self.live(*number)?;
                link.runs = false;
                link.requests.clear();
                self.judge.agent_closed(*number);
                self.event(*number, Event::FarClosed(exit), &mut done);
            }
            Input::AgentFailed(number, why) => {
                let link = self.live(*number)?;
                if link.heard {
                    return Err(format!("process {number} has started"));
                }
                link.runs = false;
                link.requests.clear();
                self.judge.agent_closed(*number);
                self.event(*number, Event::FarFailed(why), &mut done);
            }
            Input::Timer(number, timer) => {
                let link = self.links.get_mut(number).ok_or("there is no such process")?;
                let at = link.timers.iter().position(|set| set == timer);
                link.timers.remove(at.ok_or_else(|| format!("the timer {timer:?} is not set"))?);
                self.event(*number, Event::Timer(*timer), &mut done);
            }
        }
        Ok(done)
    }

    fn live(&mut self, number: u32) -> Result<&mut Link, String> {
        self.links.get_mut(&number).filter(|link| link.runs).ok_or_else(|| format!("process {number} does not run"))
    }

    fn editor(&mut self, line: &[u8], done: &mut Vec<Done>) {
        let number = match self.front.route(line) {
            Route::Reply(reply) => return self.reply(reply, done),
            Route::Front => self.of_front(),
            Route::Open { session_id, cwd } => self.place(session_id.as_deref(), cwd),
            Route::Session { session_id, otherwise } => match (self.sessions.get(&session_id), otherwise) {
                (Some(number), _) => *number,
                (None, Otherwise::Front) => self.of_front(),
                (None, Otherwise::Refuse(id)) => return self.reply(unknown_session(&id, &session_id), done),
                (None, Otherwise::Nothing) => return,
            },
            Route::Answer(number) => number,
            Route::All => {
                for number in self.links.keys().copied().collect::<Vec<_>>() {
                    self.event(number, Event::Near(line), done);
                }
                return;
            }
            Route::Skip(_) => return,
        };
        self.event(number, Event::Near(line), done);
    }

    fn reply(&mut self, line: Vec<u8>, done: &mut Vec<Done>) {
        self.judge.editor_out(&line);
        done.push(Done::Editor(line));
    }

    fn of_front(&mut self) -> u32 {
        if !self.links.contains_key(&0) {
            self.add(0, CWD.into(), false);
        }
        0
    }

    fn place(&mut self, session: Option<&str>, cwd: PathBuf) -> u32 {
        if let Some(number) = session.and_then(|id| self.sessions.get(id)) {
            return *number;
        }
        let alone = self.profile.acp.process_per_session;
        if !alone || (!self.front_is_taken && cwd == *CWD) {
            self.front_is_taken = true;
            return self.of_front();
        }
        self.started += 1;
        self.add(self.started, cwd, true);
        self.started
    }

    fn add(&mut self, number: u32, cwd: PathBuf, own: bool) {
        let link = AcpOverAcp::new(Settings {
            profile: self.profile.clone(),
            number,
            cwd,
            initialize: if own { self.front.initialize() } else { None },
            login: if own { self.front.login() } else { None },
            own,
        });
        let (timers, requests) = (Vec::new(), Vec::new());
        self.links.insert(number, Link { link, runs: false, deaf: false, heard: false, timers, requests });
    }

    fn event(&mut self, number: u32, event: Event<'_>, done: &mut Vec<Done>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let mut actions = Actions::default();
        link.link.handle(event, &mut actions);
        let mut ended = false;
        for action in actions.drain() {
            if ended {
                self.judge.broken(format!("process {number} goes on after its end"));
            }
            match action {
                Action::Near(line) => {
                    if let Rpc::Request { id, .. } = Rpc::read(&line) {
                        self.asks.push(id);
                    }
                    self.judge.editor_out(&line);
                    done.push(Done::Editor(line));
                }
                // Nobody reads it: the session layer drops it.
                Action::Far(_) if !link.runs || link.deaf => {}
                Action::Far(line) => {
                    if let Rpc::Request { id, method, .. } = Rpc::read(&line) {
                        link.requests.push((method, id));
                    }
                    self.judge.agent_out(number, &line);
                    done.push(Done::Agent(number, line));
                }
                Action::StartFar(spec) => {
                    if link.runs {
                        self.judge.broken(format!("process {number} is started while it runs"));
                    }
                    (link.runs, link.deaf, link.heard) = (true, false, false);
                    self.judge.agent_started(number);
                    done.push(Done::Start(number, spec));
                }
                Action::StopFar(how) => {
                    if !link.runs {
                        self.judge.broken(format!("process {number} is stopped and does not run"));
                    }
                    link.deaf |= how == Stop::Gently;
                    if link.deaf {
                        self.judge.agent_deaf(number);
                    }
                    done.push(Done::Stop(number, how));
                }
                Action::SetTimer(timer, after) => {
                    link.timers.retain(|set| *set != timer);
                    link.timers.push(timer);
                    done.push(Done::Set(number, timer, after));
                }
                Action::ClearTimer(timer) => {
                    if let Some(at) = link.timers.iter().position(|set| *set == timer) {
                        link.timers.remove(at);
                        done.push(Done::Clear(number, timer));
                    }
                }
                Action::Remember { agent_session } => {
                    self.sessions.insert(agent_session, number);
                }
                Action::Note(_) => {}
                Action::End => {
                    if link.runs {
                        self.judge.broken(format!("process {number} is left while it runs"));
                    }
                    ended = true;
                    done.push(Done::End(number));
                }
                other => {
                    self.judge.broken(format!("process {number} does what only another direction does: {other:?}"))
                }
            }
        }
        if ended {
            self.links.remove(&number);
            self.sessions.retain(|_, of| *of != number);
        }
    }
}
