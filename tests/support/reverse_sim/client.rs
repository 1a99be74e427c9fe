//! What the session does for the agent: a disk of a few files, and commands that run until they end or are killed.

use std::path::{Path, PathBuf};

use diglot::translate::client::{ClientDone, ClientFailure, ClientWork, CommandExit, Output};
use serde_json::json;

use super::super::reverse::Input;
use super::{SESSION, Simulation};

/// A command that diglot was told to start.
#[derive(Debug)]
pub(super) struct Running {
    terminal: u64,
    started: bool,
    killed: bool,
}

impl Simulation {
    /// diglot wants something done.
    pub(super) fn work_comes(&mut self, effect: u64, work: ClientWork) {
        match work {
            ClientWork::Kill { terminal } => self.kill(|running| running.terminal == terminal),
            ClientWork::KillAll => self.kill(|_| true),
            work => {
                if let ClientWork::Run { terminal, .. } = work {
                    self.commands.push(Running { terminal, started: false, killed: false });
                }
                self.works.push((effect, work));
            }
        }
    }

    fn kill(&mut self, which: impl Fn(&Running) -> bool) {
        self.commands.iter_mut().filter(|running| which(running)).for_each(|running| running.killed = true);
    }

    /// Something that was to be done is done, or a command ends; false: there is nothing.
    pub(super) fn session_does(&mut self, patiently: bool) -> bool {
        let ends = self.commands.iter().position(|running| running.started && (running.killed || !patiently));
        if let Some(at) = ends.filter(|_| self.works.is_empty() || self.rng.chance(30)) {
            let running = self.commands.remove(at);
            let exit = match running.killed {
                true => CommandExit { code: None, signal: Some(9) },
                false => CommandExit { code: Some(0), signal: None },
            };
            let output = Output { text: "out\n".to_owned(), truncated: false, exit: Some(exit) };
            self.feed(Input::CommandEnded(running.terminal, output));
            return true;
        }
        if self.works.is_empty() {
            return false;
        }
        let at = usize::try_from(self.rng.below(self.works.len() as u64)).unwrap_or_default();
        let (effect, work) = self.works.remove(at);
        let done = self.outcome(&work);
        self.feed(Input::Client(effect, done));
        true
    }

    fn outcome(&mut self, work: &ClientWork) -> ClientDone {
        if self.rng.chance(6) {
            if let ClientWork::Run { terminal, .. } = work {
                self.commands.retain(|running| running.terminal != *terminal);
            }
            return ClientDone::Failed(ClientFailure::Failed("the disk is full".to_owned()));
        }
        let missing = |path: &Path| ClientDone::Failed(ClientFailure::NotFound(path.display().to_string()));
        match work {
            ClientWork::Find { path, .. } if !path.starts_with("/w") => {
                ClientDone::Failed(ClientFailure::NotAllowed("outside of the session's directories".to_owned()))
            }
            ClientWork::Find { path, .. } => ClientDone::Found(path.clone()),
            ClientWork::Read { path, .. } => match self.disk.get(path) {
                Some(text) => ClientDone::Text(text.clone()),
                None => missing(path),
            },
            ClientWork::Write { path, content, over, .. } => {
                let now = self.disk.get(path).map(String::as_str).unwrap_or_default();
                if over.as_ref().is_some_and(|over| over != now) {
                    return ClientDone::Failed(ClientFailure::Failed("the file has changed".to_owned()));
                }
                self.disk.insert(path.clone(), content.clone());
                ClientDone::Written
            }
            ClientWork::Run { terminal, .. } => {
                self.commands.iter_mut().filter(|r| r.terminal == *terminal).for_each(|r| r.started = true);
                ClientDone::Runs
            }
            ClientWork::Output { .. } => ClientDone::Output(Output { text: "so far".to_owned(), ..Output::default() }),
            ClientWork::Kill { .. } | ClientWork::KillAll => unreachable!("they have no answer"),
        }
    }

    /// The agent wants its client to do something.
    pub(super) fn wants_client(&mut self) {
        self.agent.next_id += 1;
        let id = self.agent.next_id;
        let file = *self.rng.pick(&["/w/a", "/w/b", "/etc/passwd", "b"]).unwrap_or(&"/w/a");
        let terminal = self.rng.pick(&self.agent.terminals).cloned();
        let (method, mut params) = match (self.rng.below(9), terminal) {
            (0..=1, _) => ("fs/read_text_file", json!({ "path": file })),
            (2..=3, _) => {
                let content = *self.rng.pick(&["b\n", "a\n", ""]).unwrap_or(&"b\n");
                ("fs/write_text_file", json!({ "path": file, "content": content }))
            }
            (4, _) | (_, None) => {
                let command = *self.rng.pick(&["ls", "rm a", "make"]).unwrap_or(&"ls");
                ("terminal/create", json!({ "command": command }))
            }
            (5, Some(terminal)) => ("terminal/output", json!({ "terminalId": terminal })),
            (6, Some(terminal)) => ("terminal/wait_for_exit", json!({ "terminalId": terminal })),
            (7, Some(terminal)) => ("terminal/kill", json!({ "terminalId": terminal })),
            (_, Some(terminal)) => ("terminal/release", json!({ "terminalId": terminal })),
        };
        params["sessionId"] = json!(SESSION);
        self.agent_says(json!({ "id": id, "method": method, "params": params }));
    }

    /// What the disk holds at the beginning.
    pub(super) fn new_disk() -> std::collections::BTreeMap<PathBuf, String> {
        [(PathBuf::from("/w/a"), "a\n".to_owned())].into()
    }
}
