//! A whole conversation without pipes, processes or time: the connection, its sessions, and what the session layer does
//! between them.
//!
//! Owns the routing of lines, the life of the far processes and the timers, all as explicit inputs. Keeps: a far line
//! reaches only a process that runs, one that was heard cannot fail to start, a timer fires only while it is set, and
//! every line that goes in or comes out passes the judges.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diglot::mappings::{AgentProfile, Mappings};
use diglot::translate::acp_agent::{AcpAgent, Route, unknown_session};
use diglot::translate::acp_over_claude::{AcpOverClaude, Settings};
use diglot::translate::{
    Action, Actions, Event, FarExit, FarSpec, FileContent, IdSource, StartFailure, Stop, Timer, Translator,
};

use super::judge::Judge;
use uuid::Uuid;

/// Something that happens; the number is the session's.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// The editor writes a line.
    Near(Vec<u8>),
    /// The editor is gone.
    NearClosed,
    /// The session's process writes a line.
    Far(u32, Vec<u8>),
    /// The session's process has ended.
    FarClosed(u32, FarExit),
    /// The session's process could not be started.
    FarFailed(u32, StartFailure),
    /// A timer runs out.
    Timer(u32, Timer),
    /// The oldest file that the session waits for has been read.
    Read(u32),
}

/// Something that diglot does; the number is the session's, `None` for the connection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Output {
    pub(crate) session: Option<u32>,
    pub(crate) what: Done,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Done {
    Near(Vec<u8>),
    Far(Vec<u8>),
    Start(FarSpec),
    Stop(Stop),
    Set(Timer, Duration),
    Clear(Timer),
    End,
}

/// An input that cannot happen now, such as a line of a process that does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Impossible(pub(crate) String);

/// What a conversation is held with.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// The profile's name.
    pub(crate) profile: String,
    /// Files that can be read.
    pub(crate) files: HashMap<PathBuf, FileContent>,
    /// Files are read at once; otherwise by [`Input::Read`].
    pub(crate) reads_at_once: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self { profile: "claude".to_owned(), files: HashMap::new(), reads_at_once: true }
    }
}

/// The uuids of a conversation: 00000000-0000-4000-8000-000000000001 and so on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<AtomicU64>);

impl IdSource for Counter {
    fn uuid(&mut self) -> Uuid {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        format!("00000000-0000-4000-8000-{number:012}").parse().unwrap_or_default()
    }
}

struct Session {
    translator: AcpOverClaude,
    id: String,
    runs: bool,
    /// Its process has written a line.
    heard: bool,
    timers: HashSet<Timer>,
    reads: Vec<(u64, PathBuf)>,
}

/// The conversation.
pub(crate) struct Conversation {
    agent: AcpAgent,
    sessions: BTreeMap<u32, Session>,
    opened: u32,
    ids: Counter,
    mappings: Arc<Mappings>,
    profile: Arc<AgentProfile>,
    setting: Setting,
    near_open: bool,
    pub(crate) judge: Judge,
}

fn mappings() -> Arc<Mappings> {
    static SHARED: std::sync::OnceLock<Arc<Mappings>> = std::sync::OnceLock::new();
    SHARED.get_or_init(|| Arc::new(Mappings::builtin().clone())).clone()
}

impl Conversation {
    pub(crate) fn new(setting: Setting) -> Self {
        let mappings = mappings();
        let profile = mappings.agents.get(&setting.profile).cloned();
        let profile = profile.unwrap_or_else(|| panic!("there is no profile {:?}", setting.profile));
        Self {
            agent: AcpAgent::new(profile.title.clone()),
            sessions: BTreeMap::new(),
            opened: 0,
            ids: Counter::default(),
            mappings,
            profile: Arc::new(profile),
            setting,
            near_open: true,
            judge: Judge::default(),
        }
    }

    /// The sessions that have not ended.
    pub(crate) fn sessions(&self) -> Vec<u32> {
        self.sessions.keys().copied().collect()
    }

    /// The ACP id of a session.
    pub(crate) fn session_id(&self, number: u32) -> Option<&str> {
        self.sessions.get(&number).map(|s| &*s.id)
    }

    /// Whether the session's process runs.
    pub(crate) fn runs(&self, number: u32) -> bool {
        self.sessions.get(&number).is_some_and(|s| s.runs)
    }

    /// The timers of a session that are set.
    pub(crate) fn timers(&self, number: u32) -> Vec<Timer> {
        let all = [Timer::Start, Timer::Cancel, Timer::Settle, Timer::Control];
        let set = self.sessions.get(&number).map(|s| &s.timers);
        all.into_iter().filter(|t| set.is_some_and(|s| s.contains(t))).collect()
    }

    /// Whether the session waits for a file.
    pub(crate) fn is_reading(&self, number: u32) -> bool {
        self.sessions.get(&number).is_some_and(|s| !s.reads.is_empty())
    }

    /// Whether nothing is left to be answered in any session.
    pub(crate) fn is_settled(&self) -> bool {
        self.sessions.values().all(|s| s.translator.is_settled())
    }

    /// Lets one thing happen.
    ///
    /// # Errors
    /// When it cannot happen now.
    pub(crate) fn feed(&mut self, input: &Input) -> Result<Vec<Output>, Impossible> {
        if let Input::Near(line) | Input::Far(_, line) = input
            && std::str::from_utf8(line).is_err()
        {
            return Err(Impossible("a line is UTF-8; what is not is no line (src/wire/frame.rs)".into()));
        }
        let mut done = Vec::new();
        self.judge.event();
        match input {
            Input::Near(line) => self.near(line, &mut done)?,
            Input::NearClosed => {
                if !std::mem::replace(&mut self.near_open, false) {
                    return Err(Impossible("the editor is gone already".into()));
                }
                self.judge.near_closed();
                for number in self.sessions() {
                    self.event(number, Event::NearClosed, &mut done);
                }
            }
            Input::Far(number, line) => {
                self.running(*number)?.heard = true;
                self.judge.far_in(*number, line);
                self.event(*number, Event::Far(line), &mut done);
            }
            Input::FarClosed(number, exit) => {
                self.running(*number)?.runs = false;
                self.judge.far_ends(*number);
                self.event(*number, Event::FarClosed(exit), &mut done);
                self.judge.far_closed(*number);
            }
            Input::FarFailed(number, why) => {
                let session = self.running(*number)?;
                if session.heard {
                    return Err(Impossible(format!("the process of session {number} has started")));
                }
                session.runs = false;
                self.judge.far_ends(*number);
                self.event(*number, Event::FarFailed(why), &mut done);
                self.judge.far_closed(*number);
            }
            Input::Timer(number, timer) => {
                let set = self.sessions.get_mut(number).is_some_and(|s| s.timers.remove(timer));
                if !set {
                    return Err(Impossible(format!("timer {timer:?} of session {number} is not set")));
                }
                self.event(*number, Event::Timer(*timer), &mut done);
            }
            Input::Read(number) => {
                if !self.is_reading(*number) {
                    return Err(Impossible(format!("session {number} waits for no file")));
                }
                self.read(*number, &mut done);
            }
        }
        if self.setting.reads_at_once {
            for number in self.sessions() {
                while self.is_reading(number) {
                    self.read(number, &mut done);
                }
            }
        }
        Ok(done)
    }

    fn running(&mut self, number: u32) -> Result<&mut Session, Impossible> {
        match self.sessions.get_mut(&number) {
            Some(session) if session.runs => Ok(session),
            _ => Err(Impossible(format!("no process of session {number} runs"))),
        }
    }

    fn near(&mut self, line: &[u8], done: &mut Vec<Output>) -> Result<(), Impossible> {
        if !self.near_open {
            return Err(Impossible("the editor is gone".into()));
        }
        self.judge.near_in(line);
        match self.agent.route(line) {
            Route::Reply(answer) => self.reply(answer, done),
            Route::Open(_) => {
                let number = self.opened;
                self.opened += 1;
                let id = self.ids.uuid().to_string();
                self.judge.session_made(number, &id);
                let translator = AcpOverClaude::new(Settings {
                    mappings: self.mappings.clone(),
                    profile: self.profile.clone(),
                    client: self.agent.client(),
                    number,
                    session_id: Arc::from(&*id),
                    ids: Box::new(self.ids.clone()),
                });
                let session =
                    Session { translator, id, runs: false, heard: false, timers: HashSet::new(), reads: Vec::new() };
                self.sessions.insert(number, session);
                self.event(number, Event::Near(line), done);
            }
            Route::Session { session_id, request } => {
                let number = self.sessions.iter().find(|(_, s)| s.id == session_id).map(|(n, _)| *n);
                match (number, request) {
                    (Some(number), _) => self.event(number, Event::Near(line), done),
                    (None, Some(id)) => self.reply(unknown_session(&id, &session_id), done),
                    (None, None) => {}
                }
            }
            Route::Answer(number) => {
                if self.sessions.contains_key(&number) {
                    self.event(number, Event::Near(line), done);
                }
            }
            Route::Withdraw(_) => {
                for number in self.sessions() {
                    self.event(number, Event::Near(line), done);
                }
            }
            Route::Skip(_) => {}
        }
        Ok(())
    }

    fn reply(&mut self, answer: Vec<u8>, done: &mut Vec<Output>) {
        self.judge.near_out(&answer);
        done.push(Output { session: None, what: Done::Near(answer) });
    }

    fn read(&mut self, number: u32, done: &mut Vec<Output>) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let (effect, path) = session.reads.remove(0);
        let content = self.setting.files.get(&path).cloned().unwrap_or(FileContent::Missing);
        self.event(number, Event::FileRead { effect, content }, done);
    }

    fn event(&mut self, number: u32, event: Event<'_>, done: &mut Vec<Output>) {
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let mut actions = Actions::default();
        session.translator.handle(event, &mut actions);
        let mut ended = false;
        for action in actions.drain() {
            if ended {
                self.judge.broken(format!("session {number} goes on after its end"));
            }
            let what = match action {
                Action::Near(line) => Done::Near(line),
                Action::NearLong(line) => Done::Near(line.to_line()),
                Action::Chunk(chunk) => Done::Near(chunk.to_line()),
                Action::Far(line) => {
                    // Nobody reads it: the session layer drops it.
                    if !session.runs {
                        continue;
                    }
                    Done::Far(line)
                }
                Action::StartFar(spec) => {
                    if session.runs {
                        self.judge.broken(format!("session {number} starts a second process"));
                    }
                    (session.runs, session.heard) = (true, false);
                    self.judge.far_started(number);
                    Done::Start(spec)
                }
                Action::StopFar(how) => {
                    if !session.runs {
                        self.judge.broken(format!("session {number} stops a process that does not run"));
                    }
                    Done::Stop(how)
                }
                Action::ReadFile { effect, path } => {
                    session.reads.push((effect, path));
                    continue;
                }
                Action::SetTimer(timer, after) => {
                    session.timers.insert(timer);
                    Done::Set(timer, after)
                }
                Action::ClearTimer(timer) => {
                    session.timers.remove(&timer);
                    Done::Clear(timer)
                }
                Action::Note(_) | Action::ForgetFile => continue,
                // A host's session has these; an editor's never does.
                other @ (Action::Relay { .. }
                | Action::AskTool { .. }
                | Action::Client { .. }
                | Action::Proxy(_)
                | Action::Remember { .. }
                | Action::Warn(_)
                | Action::Exit(_)) => {
                    self.judge.broken(format!("session {number} does what only a host's does: {other:?}"));
                    continue;
                }
                Action::End => {
                    if session.runs {
                        self.judge.broken(format!("session {number} ends while its process runs"));
                    }
                    ended = true;
                    Done::End
                }
            };
            match &what {
                Done::Near(line) => self.judge.near_out(line),
                Done::Far(line) => self.judge.far_out(number, line),
                _ => {}
            }
            done.push(Output { session: Some(number), what });
        }
        if ended {
            self.sessions.remove(&number);
        }
    }
}
