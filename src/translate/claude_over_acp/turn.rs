//! The queue, the turn, its end and its `result`.
//!
//! Owns what waits and what runs. Keeps: one `session/prompt` is outstanding at most, and the next goes out only after its
//! answer (quirk 44); one prompt gives one `result`, and it is the turn's last line but `idle` (rules 12 and 15); whatever
//! is open at the end is closed before it (rule 11, quirk 7).

use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;

use super::ClaudeOverAcp;
use super::agent::Asked;
use super::answer::Answer;
use super::calls::Call;
use super::finish::{Finish, Verdict};
use super::render::ToolUse;
use crate::translate::{Action, Actions, Stop, Timer};
use crate::wire::acp::methods;
use crate::wire::acp_client::{OfSession, Prompt, PromptBlock};
use crate::wire::stream_json_agent::{self as say, Usage};

/// An agent that has not ended its turn so long after a cancel is killed and its session resumed (quirk 40).
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

/// A prompt that waits.
#[derive(Debug)]
pub(super) struct Queued {
    /// The host's id of it, or ours.
    pub(super) uuid: String,
    /// What it says to the agent.
    pub(super) blocks: Vec<PromptBlock>,
    /// As the host wrote it; `None`: it is diglot's own.
    pub(super) message: Option<Box<RawValue>>,
    /// Where it stands in the queue.
    pub(super) priority: Priority,
    /// It asks for an answer; else it only stands before the next prompt (`shouldQuery`).
    pub(super) asks: bool,
}

/// When a prompt is sent, in the order of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Priority {
    /// At once: the turn that runs is cut short.
    Now,
    /// After the turn that runs.
    Next,
    /// When nothing else waits.
    Later,
}

impl Priority {
    pub(super) fn of(word: Option<&str>) -> Self {
        match word {
            Some("now") => Self::Now,
            Some("later") => Self::Later,
            _ => Self::Next,
        }
    }
}

/// A call and how far the host has seen it.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) call: Call,
    /// What the host was shown; empty: nothing yet.
    pub(super) uses: Vec<ToolUse>,
    /// The call of the subagent that made it, as the host was shown that.
    pub(super) parent: Option<String>,
    pub(super) closed: bool,
    /// What the model was told in place of a result.
    pub(super) refusal: Option<String>,
    /// A permission question about it was open, or is.
    pub(super) asked: bool,
    /// Its `PreToolUse` hooks have run, or do.
    pub(super) hooked: bool,
}

/// The turn that runs.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) uuid: String,
    /// The command that it is; empty: none.
    pub(super) command: String,
    /// What the agent is asked; taken when it is sent.
    pub(super) blocks: Vec<PromptBlock>,
    /// `session/prompt` is outstanding.
    pub(super) prompting: bool,
    pub(super) started_ms: u64,
    /// Model messages so far.
    pub(super) rounds: u64,
    pub(super) calls_since_message: bool,
    /// What comes next is another model request's: after a prompt, and after calls.
    pub(super) fresh: bool,
    /// The host or the user interrupted it.
    pub(super) interrupted: bool,
    /// A prompt that does not wait did: the turn has not failed.
    pub(super) preempted: bool,
    /// `session/cancel` was sent.
    cancelled: bool,
    /// Why diglot itself stops it.
    pub(super) stopping: Option<Finish>,
    pub(super) finish: Option<Finish>,
    pub(super) calls: Vec<Tracked>,
    pub(super) denials: Vec<Value>,
    /// The text since the last call, of blocks that have ended.
    pub(super) answer: Answer,
    /// The agent said or did something.
    pub(super) spoke: bool,
    pub(super) usage: Option<Usage>,
    /// The agent tells the tokens of each of its calls of the model.
    pub(super) counts_messages: bool,
    /// A permission was refused in it.
    pub(super) refused: bool,
    /// A stop hook ended it for good.
    pub(super) hook_ended: bool,
    /// How often a stop hook sent it on.
    pub(super) stop_hooks: u32,
    /// How often the model was asked to mend its structured output.
    pub(super) mended: u32,
    pub(super) structured: Option<Value>,
    /// The plan that was shown last.
    pub(super) plan: Option<Value>,
}

impl Turn {
    fn new(queued: Queued, now: u64) -> Self {
        let command = match queued.blocks.first() {
            Some(PromptBlock::Text { text }) if text.starts_with('/') => {
                text.split_whitespace().next().unwrap_or_default().to_owned()
            }
            _ => String::new(),
        };
        Self {
            uuid: queued.uuid,
            command,
            blocks: queued.blocks,
            prompting: false,
            started_ms: now,
            rounds: 0,
            calls_since_message: false,
            fresh: true,
            interrupted: false,
            preempted: false,
            cancelled: false,
            stopping: None,
            finish: None,
            calls: Vec::new(),
            denials: Vec::new(),
            answer: Answer::default(),
            spoke: false,
            usage: None,
            counts_messages: false,
            refused: false,
            hook_ended: false,
            stop_hooks: 0,
            mended: 0,
            structured: None,
            plan: None,
        }
    }

    /// What is asked, as text.
    pub(super) fn prompt(&self) -> String {
        let texts = self.blocks.iter().filter_map(|b| match b {
            PromptBlock::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// A model message begins. `goes_on`: it is the rest of one that a result came into.
    pub(super) fn message_begins(&mut self, goes_on: bool) {
        // Another message of the same answer is no other round (quirks 33 and 34).
        if std::mem::take(&mut self.fresh) {
            self.rounds += 1;
        }
        self.calls_since_message = false;
        if !goes_on {
            self.answer.clear();
        }
    }

    /// A call as the host was shown it.
    pub(super) fn shown(&self, id: &str) -> Option<String> {
        self.calls.iter().find(|t| t.call.id == id)?.uses.first().map(|one| one.id.clone())
    }

    pub(super) fn tracked(&mut self, id: &str) -> &mut Tracked {
        let at = match self.calls.iter().position(|t| t.call.id == id) {
            Some(at) => at,
            None => {
                let call = Call::new(id);
                self.calls.push(Tracked {
                    call,
                    uses: Vec::new(),
                    parent: None,
                    closed: false,
                    refusal: None,
                    asked: false,
                    hooked: false,
                });
                self.calls.len() - 1
            }
        };
        &mut self.calls[at]
    }
}

impl ClaudeOverAcp {
    /// Starts the next turn if nothing is in the way.
    pub(super) fn next_turn(&mut self, out: &mut Actions) {
        // A mode or a model that was asked for is in force before the next prompt.
        if self.turn.is_some()
            || !self.agent.is_ready()
            || self.agent.barrier
            || self.agent.settings_wait()
            || self.hooks.starting
        {
            return;
        }
        while let Some(queued) = self.queue.pop_front() {
            let now = self.set.clock.now_ms();
            self.state("running", out);
            self.init_line(out);
            if self.set.options.replay
                && let Some(message) = &queued.message
            {
                out.near(say::replay(message, &self.set.session_id, &queued.uuid));
            }
            self.stray_text(out);
            let asks = queued.asks;
            self.turn = Some(Turn::new(queued, now));
            if asks {
                return self.prompt_hooks(out);
            }
            self.keep_as_context(out);
        }
        if self.host.closed && self.agent.is_ready() && self.host.initialize.is_none() {
            if !self.context_blocks.is_empty() {
                out.note("what was to stand before the next prompt is not sent: there is none");
            }
            self.exit(out);
        }
    }

    /// A message that asks for nothing: it stands before the next prompt, and its turn is over.
    fn keep_as_context(&mut self, out: &mut Actions) {
        let Some(mut turn) = self.turn.take() else { return };
        self.context_blocks.append(&mut turn.blocks);
        let now = self.set.clock.now_ms();
        self.tell_result(&turn, Verdict::without_query(String::new()), now, out);
        self.failed = false;
        self.state("idle", out);
    }

    /// Puts a prompt into the queue: by its priority, and behind its equals.
    pub(super) fn enqueue(&mut self, queued: Queued) {
        let at = self.queue.iter().position(|q| q.priority > queued.priority).unwrap_or(self.queue.len());
        self.queue.insert(at, queued);
    }

    /// Sends the prompt: the hooks have let it pass.
    pub(super) fn send_prompt(&mut self, out: &mut Actions) {
        let Some(turn) = &mut self.turn else { return };
        if turn.interrupted {
            turn.finish = Some(Finish::Stop("cancelled".into()));
            return self.settled(out);
        }
        let mut blocks = std::mem::take(&mut turn.blocks);
        // An empty prompt wedges Gemini (quirk 48): it is answered here.
        let says_nothing = |b: &PromptBlock| matches!(b, PromptBlock::Text { text } if text.trim().is_empty());
        if blocks.iter().all(says_nothing) {
            turn.finish = Some(Finish::Blocked(String::new()));
            return self.settled(out);
        }
        blocks.retain(|b| !says_nothing(b));
        // A command is one only at the beginning.
        if self.turn.as_ref().is_some_and(|t| t.command.is_empty()) {
            let mut before = std::mem::take(&mut self.context_blocks);
            before.extend(self.hooks.take_context().map(|text| PromptBlock::Text { text }));
            before.append(&mut blocks);
            blocks = before;
        }
        if let Some(preamble) = self.agent.preamble.take() {
            blocks.insert(0, PromptBlock::Text { text: preamble });
        }
        let Some(session_id) = self.agent.session_id.clone() else { return };
        if let Some(turn) = &mut self.turn {
            turn.prompting = true;
            turn.fresh = true;
        }
        let params = Prompt { session_id: &session_id, prompt: &blocks };
        self.ask_agent(methods::SESSION_PROMPT, &params, Asked::Prompt, out);
    }

    /// The agent answered the prompt.
    pub(super) fn prompted(&mut self, finish: Finish, out: &mut Actions) {
        out.push(Action::ClearTimer(Timer::Cancel));
        let Some(turn) = &mut self.turn else { return };
        turn.prompting = false;
        turn.finish = Some(turn.stopping.take().unwrap_or(finish));
        // What still comes belongs to this turn (quirk 42).
        match self.set.profile.acp.settle_ms {
            0 => self.settled(out),
            wait => out.push(Action::SetTimer(Timer::Settle, Duration::from_millis(wait))),
        }
    }

    /// Nothing more comes of the turn: stop hooks may send it on, else it ends.
    pub(super) fn settled(&mut self, out: &mut Actions) {
        out.push(Action::ClearTimer(Timer::Settle));
        let Some(turn) = &self.turn else { return };
        if turn.finish.is_none() || turn.prompting {
            return;
        }
        self.refuse_questions("the turn ended before an answer came", out);
        self.end_commands(out);
        self.close_calls("the agent said nothing of its end", out);
        self.end_message("end_turn", out);
        if self.mend_structured_output(out) || self.stop_hooks(out) {
            return;
        }
        self.end_turn(out);
    }

    /// Writes the `result`.
    pub(super) fn end_turn(&mut self, out: &mut Actions) {
        self.end_lanes(out);
        self.compaction_failed("the turn ended", out);
        // It may have asked while a hook held the prompt or the end.
        self.refuse_questions("the turn ended before an answer came", out);
        self.close_calls("the turn ended", out);
        self.end_commands(out);
        self.end_message("end_turn", out);
        let now = self.set.clock.now_ms();
        let Some(mut turn) = self.turn.take() else { return };
        let finish = turn.finish.take().unwrap_or(Finish::Stop("end_turn".into()));
        let verdict = self.verdict(&turn, finish, out);
        self.failed = verdict.is_error && !(turn.interrupted && self.signalled);
        self.tell_result(&turn, verdict, now, out);
        self.agent.turns += 1;
        self.state("idle", out);
        let wait = self.set.profile.acp.cancel_barrier_ms;
        if turn.cancelled && wait > 0 {
            self.agent.barrier = true;
            out.push(Action::SetTimer(Timer::Barrier, Duration::from_millis(wait)));
        }
        self.next_turn(out);
    }

    pub(super) fn barrier_over(&mut self, out: &mut Actions) {
        self.agent.barrier = false;
        self.next_turn(out);
    }

    /// `--max-turns`: a model message more than it allows.
    ///
    /// True: what comes now would be the first of such a message, and the turn was stopped.
    pub(super) fn over_the_limit(&mut self, out: &mut Actions) -> bool {
        let (Some(most), Some(turn)) = (self.set.options.max_turns, &self.turn) else { return false };
        let begins = turn.fresh && !self.stream.is_in_calls();
        let over = begins && turn.rounds >= most;
        if over {
            self.stop_turn(Finish::MaxTurns(most), out);
        }
        over
    }

    /// `--max-budget-usd`.
    pub(super) fn limit_budget(&mut self, out: &mut Actions) {
        if let Some(most) = self.set.options.max_budget_usd
            && self.cost_usd > most
        {
            self.stop_turn(Finish::Budget, out);
        }
    }

    /// diglot itself ends the turn.
    pub(super) fn stop_turn(&mut self, why: Finish, out: &mut Actions) {
        let Some(turn) = &mut self.turn else { return };
        if turn.stopping.is_some() || turn.interrupted || turn.finish.is_some() {
            return;
        }
        if !turn.prompting {
            // A hook still holds the prompt: it is not sent.
            turn.finish = Some(why);
            self.forget_host_asks_of_turn(out);
            return self.settled(out);
        }
        turn.stopping = Some(why);
        self.cancel_agent(out);
    }

    /// The host interrupts.
    pub(super) fn interrupt(&mut self, cancel_queued: bool, out: &mut Actions) {
        if cancel_queued {
            self.queue.clear();
        }
        if let Some(turn) = &mut self.turn {
            turn.preempted = false;
        }
        self.cut_short(out);
    }

    /// A prompt came that does not wait: the turn that runs makes way for it.
    pub(super) fn preempt(&mut self, out: &mut Actions) {
        let Some(turn) = &mut self.turn else { return };
        if turn.interrupted || turn.stopping.is_some() || turn.finish.is_some() {
            return;
        }
        turn.preempted = true;
        self.cut_short(out);
    }

    fn cut_short(&mut self, out: &mut Actions) {
        if let Some(turn) = &mut self.turn
            && !turn.interrupted
        {
            turn.interrupted = true;
            let (prompting, finished) = (turn.prompting, turn.finish.is_some());
            self.forget_host_asks_of_turn(out);
            if prompting {
                self.cancel_agent(out);
            } else if finished {
                self.settled(out);
            } else {
                self.send_prompt(out);
            }
        }
    }

    /// Tells the agent to stop: every question of its own is answered first, or two of them would wait for ever (quirk 18).
    fn cancel_agent(&mut self, out: &mut Actions) {
        self.cancel_questions(out);
        self.cancel_client(out);
        if let Some(turn) = &mut self.turn {
            turn.cancelled = true;
        }
        let Some(session_id) = self.agent.session_id.clone() else { return };
        let params = OfSession { session_id: &session_id };
        out.far(crate::wire::jsonrpc::notification(methods::SESSION_CANCEL, &params));
        out.push(Action::SetTimer(Timer::Cancel, CANCEL_LIMIT));
    }

    /// It did not stop: its process is killed and the session resumed by the next prompt.
    pub(super) fn cancel_timed_out(&mut self, out: &mut Actions) {
        if self.turn.as_ref().is_some_and(|t| t.prompting) {
            out.note("the agent did not stop after a cancel; it is killed");
            out.push(Action::StopFar(Stop::Kill));
        }
    }
}
