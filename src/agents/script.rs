//! The language in which a scripted agent is described.
//!
//! Owns the reading of scripts; [`super::demo`] plays them. Invariant: a script that reads without an
//! error can be played; whatever is misspelt is refused with the number of its line.
//!
//! # A script
//! is a text file with one JSON object a line. Blank lines and lines that begin with `#` are skipped. Each
//! object is a step and says in `do` what to do:
//!
//! ```text
//! {"do":"agent","model":"demo-1","interrupt":"stop"}
//! {"do":"turn"}
//! {"do":"thought","text":"The user said: $prompt"}
//! {"do":"tool","name":"Bash","input":{"command":"touch a"}}
//! {"do":"ask","allow":[{"do":"run"}],"deny":[{"do":"text","text":"Then not."}]}
//! {"do":"text","text":"Done."}
//! ```
//!
//! - `agent`, at most once and first, sets what the agent is like ([`Profile`]).
//! - The steps before the first `turn` are done when the agent starts, before it reads anything (but for `expect`).
//! - `turn` begins the steps of the next turn. A turn begins with a user message; what belongs to every
//!   turn is done without being asked for: `command_lifecycle`, `system/init`, the end of an open message,
//!   and the `result`. The turns are used one after the other; when they run out, the last one is used
//!   again. A script without `turn` answers each prompt with `ok`.
//!
//! # Steps
//! What the model says: [`Step::Text`], [`Step::Thought`], [`Step::Tool`], [`Step::MessageEnd`]. With
//! `--include-partial-messages` they stream as claude streams: start, deltas, the whole `assistant` line, stop. \
//! What tools do: [`Step::Ask`], [`Step::Answers`], [`Step::Withdraw`], [`Step::Run`], [`Step::ToolResult`],
//! [`Step::Spawn`]. Where a step names no tool it means the latest one. \
//! What else is said: [`Step::Init`], [`Step::Result`], [`Step::Mode`], [`Step::State`], [`Step::Send`]. \
//! What goes wrong: [`Step::Raw`], [`Step::Stderr`], [`Step::Exit`], [`Step::Kill`], [`Step::Hang`],
//! [`Step::Sigterm`]. \
//! When: [`Step::Pause`], [`Step::Expect`], [`Step::If`], [`Step::Repeat`].
//!
//! # Words that are replaced
//! in every string of a step: `$session`, `$cwd`, `$prompt` (the text of this turn's user message), `$uuid`
//! (a new one each time), `$user` (the `uuid` of this turn's user message), `$tool` (the latest tool call's
//! id), `$request` (the `request_id` of the latest question, or of the line that an `expect` saw), `$answer`
//! (what the latest refusal said), `$turn` (the turn's number, from 1), `$n` (the round of the innermost
//! `repeat`, from 0). `$$` is a dollar sign. Anything else after `$` stays as it is.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::mappings::Dialect;

/// The conversation that `diglot try` shows.
pub const DEMO: &str = include_str!("demo.ndjson");

/// A script, read and checked.
#[derive(Clone, Debug)]
pub struct Script {
    /// What the agent is like.
    pub profile: Profile,
    /// What it does before it reads anything.
    pub start: Vec<Step>,
    /// What it does turn by turn; never empty.
    pub turns: Vec<Vec<Step>>,
}

/// What an agent is like, as its `agent` step says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// `claude` (the default) or `wave`.
    pub dialect: Dialect,
    /// The model's name in every message.
    pub model: String,
    /// The permission mode at the start; a `--permission-mode` flag is stronger.
    pub mode: String,
    /// What `initialize` does.
    pub initialize: Initialize,
    /// What `interrupt` does.
    pub interrupt: Interrupt,
    /// `{name, description, argumentHint}`, as `initialize` answers them.
    pub commands: Vec<Value>,
    /// Whether `session_state_changed` is sent; without this, when the environment asks claude for it.
    pub states: Option<bool>,
    /// How many milliseconds lie between two pieces of a text; scaled by `DIGLOT_DEMO_PACE` (in percent).
    pub pace_ms: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            dialect: Dialect::Claude,
            model: "demo-script-1".into(),
            mode: "default".into(),
            initialize: Initialize::default(),
            interrupt: Interrupt::default(),
            commands: Vec::new(),
            states: None,
            pace_ms: 0,
        }
    }
}

/// What an agent does with `initialize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initialize {
    /// Answers it.
    #[default]
    Answer,
    /// Never answers it.
    Silent,
    /// Answers with an error.
    Error,
}

/// What an agent does with `interrupt` in the middle of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interrupt {
    /// Stops the turn, in the order in which claude does.
    #[default]
    Stop,
    /// Answers it and goes on.
    Ignore,
    /// Neither answers nor stops.
    Silent,
}

/// One step of a script.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// What the agent is like; see [`Profile`].
    Agent(Box<Profile>),
    /// The steps of the next turn follow.
    Turn {},
    /// A text block, word by word.
    Text {
        /// The text.
        #[serde(default)]
        text: String,
        /// The pieces in which it streams, instead of words.
        #[serde(default)]
        pieces: Vec<String>,
        /// How often the whole is said; long texts need no long scripts.
        #[serde(default = "one")]
        times: u32,
    },
    /// A thinking block, word by word.
    Thought {
        /// The text.
        text: String,
    },
    /// A tool call; what follows until its result means this one.
    Tool {
        /// The tool's name, such as `Bash`.
        name: String,
        /// Its input. Not a string of it is longer than what is streamed.
        #[serde(default)]
        input: Value,
        /// Its id; without it, `toolu_<turn>_<number>`, or `toolu_<process>_<turn>_<number>` when resumed.
        id: Option<String>,
        /// The tool call (of a subagent) that this one belongs to.
        parent: Option<String>,
    },
    /// Ends the current API message (`message_delta`, `message_stop`); otherwise the first result does.
    MessageEnd {},
    /// Asks `can_use_tool`, unless the permission mode or an earlier "always" decides, and does what the
    /// answer says. Without a `deny` of its own, a refusal becomes the tool's failed result.
    Ask {
        /// The tool call; without it, the latest.
        tool: Option<String>,
        /// `permission_suggestions`; without it, what claude would suggest.
        suggestions: Option<Vec<Value>>,
        /// Whether to wait for the answer; if not, an `answers` step must follow.
        #[serde(default = "yes")]
        wait: bool,
        /// More members of the request.
        #[serde(default)]
        more: Map<String, Value>,
        /// What to do when allowed.
        #[serde(default)]
        allow: Vec<Step>,
        /// What to do when refused, instead of the failed result.
        deny: Option<Vec<Step>>,
        /// What to do when there is no proper answer (an error, the end of the input), instead of the
        /// failed result.
        cancelled: Option<Vec<Step>>,
    },
    /// Waits for the answers to questions that did not wait, and deals with them in the order in which
    /// they come.
    Answers {
        /// The tool calls; without them, all that were asked.
        #[serde(default)]
        of: Vec<String>,
        /// As in `ask`; `$tool` and "the latest tool" mean the one that was answered.
        #[serde(default)]
        allow: Vec<Step>,
        /// As in `ask`.
        deny: Option<Vec<Step>>,
        /// As in `ask`.
        cancelled: Option<Vec<Step>>,
    },
    /// Withdraws a question (`control_cancel_request`).
    Withdraw {
        /// The tool call; without it, the latest.
        tool: Option<String>,
    },
    /// Really does what the tool call says and gives its result: `Bash`, `Write`, `Edit`, `Read` and
    /// `TodoWrite`. A command runs in a session of its own, as with claude.
    Run {
        /// The tool call; without it, the latest.
        tool: Option<String>,
    },
    /// A tool's result, made up.
    ToolResult {
        /// The tool call; without it, the latest.
        tool: Option<String>,
        /// The result's content: a text, or an array of blocks.
        content: Value,
        /// Whether the tool failed.
        #[serde(default)]
        error: bool,
        /// `tool_use_result`; without it, `{"stdout": content, …}` or the error's text.
        value: Option<Value>,
    },
    /// Starts a command in a session of its own and leaves it running.
    Spawn {
        /// The program and its arguments.
        command: Vec<String>,
        /// A file that gets its process id.
        pid_file: Option<String>,
    },
    /// `system/init` once more, as for a turn that nobody asked for.
    Init {},
    /// The turn's result, with members changed or added; the turn has no other then.
    Result {
        /// The changed members; `null` takes one out.
        #[serde(default)]
        set: Map<String, Value>,
    },
    /// Changes the permission mode and announces it.
    Mode {
        /// The new mode.
        mode: String,
    },
    /// Announces a session state.
    State {
        /// The state's name.
        state: String,
    },
    /// A line, as it stands.
    Send {
        /// The line.
        line: Value,
    },
    /// Bytes on stdout, without a line end of their own.
    Raw {
        /// The bytes, as text.
        #[serde(default)]
        text: String,
        /// More bytes, in hexadecimal.
        #[serde(default)]
        hex: String,
        /// How often.
        #[serde(default = "one")]
        times: u32,
    },
    /// A line on stderr.
    Stderr {
        /// The line.
        text: String,
    },
    /// Ends the process.
    Exit {
        /// Its exit code.
        code: u8,
    },
    /// Kills the process with SIGKILL.
    Kill {},
    /// Does nothing for ever; goes on reading unless it is `deaf`.
    Hang {
        /// Whether to stop reading as well, so that the other side's pipe fills up.
        #[serde(default)]
        deaf: bool,
    },
    /// What SIGTERM does from now on.
    Sigterm {
        /// Whether it is ignored; otherwise the agent ends its commands and exits with 143.
        ignore: bool,
    },
    /// Waits.
    Pause {
        /// Milliseconds; not scaled.
        ms: u64,
    },
    /// Waits for a line that contains this one (objects member by member); others are dealt with as ever.
    Expect {
        /// What the line must contain.
        line: Value,
    },
    /// Chooses by what is known.
    If {
        /// True when the prompt contains this.
        prompt: Option<String>,
        /// True when the agent was (not) started with `--resume`.
        resumed: Option<bool>,
        /// True when a question of this turn was (not) refused.
        refused: Option<bool>,
        /// What to do when all that is given is true.
        #[serde(default)]
        then: Vec<Step>,
        /// What to do otherwise.
        #[serde(default, rename = "else")]
        otherwise: Vec<Step>,
    },
    /// Does steps again and again.
    Repeat {
        /// How often.
        times: u32,
        /// The steps.
        steps: Vec<Step>,
    },
}

/// Why a script cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read the script {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is no step.
    #[error("line {line} of the script is no step: {message}")]
    Step {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// `agent` stands after another step, or inside one.
    #[error("line {line} of the script: `{step}` cannot stand here; {rule}")]
    Place {
        /// The line's number, from 1.
        line: usize,
        /// The step.
        step: &'static str,
        /// Where it can stand.
        rule: &'static str,
    },
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// When a line is no step or stands in the wrong place.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self { profile: Profile::default(), start: Vec::new(), turns: Vec::new() };
        let mut first = true;
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            let step: Step =
                serde_json::from_str(text).map_err(|error| ScriptError::Step { line, message: error.to_string() })?;
            check_inner(&step, line)?;
            match step {
                Step::Agent(profile) if first => script.profile = *profile,
                Step::Agent(_) => {
                    return Err(ScriptError::Place { line, step: "agent", rule: "it is the first step, once" });
                }
                Step::Turn {} => script.turns.push(Vec::new()),
                step => script.turns.last_mut().unwrap_or(&mut script.start).push(step),
            }
            first = false;
        }
        if script.turns.is_empty() {
            script.turns.push(vec![Step::Text { text: "ok".into(), pieces: Vec::new(), times: 1 }]);
        }
        Ok(script)
    }

    /// Reads a script from a file.
    ///
    /// # Errors
    /// When the file cannot be read, or as in [`Script::parse`].
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScriptError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// The steps of turn `number`, counted from 1.
    pub fn turn(&self, number: usize) -> &[Step] {
        let index = number.max(1).min(self.turns.len()) - 1;
        &self.turns[index]
    }
}

/// Refuses `agent` and `turn` inside other steps.
fn check_inner(step: &Step, line: usize) -> Result<(), ScriptError> {
    let lists: Vec<&[Step]> = match step {
        Step::Ask { allow, deny, cancelled, .. } | Step::Answers { allow, deny, cancelled, .. } => {
            vec![allow, deny.as_deref().unwrap_or_default(), cancelled.as_deref().unwrap_or_default()]
        }
        Step::If { then, otherwise, .. } => vec![then, otherwise],
        Step::Repeat { steps, .. } => vec![steps],
        _ => Vec::new(),
    };
    for inner in lists.into_iter().flatten() {
        let name = match inner {
            Step::Agent(_) => "agent",
            Step::Turn {} => "turn",
            _ => {
                check_inner(inner, line)?;
                continue;
            }
        };
        return Err(ScriptError::Place { line, step: name, rule: "it cannot stand inside another step" });
    }
    Ok(())
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// The words that are replaced in a script's strings.
pub trait Words {
    /// What stands for `$name`; `None` when nothing does.
    fn word(&mut self, name: &str) -> Option<String>;
}

/// Replaces the words in a string.
pub fn fill(text: &str, words: &mut dyn Words) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
        match words.word(&rest[..end]) {
            Some(word) => out.push_str(&word),
            None => {
                out.push('$');
                out.push_str(&rest[..end]);
            }
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Replaces the words in every string of a value (not in the names of members).
pub fn fill_value(value: &Value, words: &mut dyn Words) -> Value {
    match value {
        Value::String(text) => Value::String(fill(text, words)),
        Value::Array(items) => items.iter().map(|item| fill_value(item, words)).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), fill_value(value, words))).collect())
        }
        other => other.clone(),
    }
}

/// Whether `line` contains `pattern`: objects member by member, everything else by equality.
pub fn contains(line: &Value, pattern: &Value) -> bool {
    match (line, pattern) {
        (Value::Object(line), Value::Object(pattern)) => {
            pattern.iter().all(|(name, pattern)| line.get(name).is_some_and(|value| contains(value, pattern)))
        }
        (line, pattern) => line == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Fixed;

    impl Words for Fixed {
        fn word(&mut self, name: &str) -> Option<String> {
            match name {
                "session" => Some("s-1".into()),
                "n" => Some("7".into()),
                _ => None,
            }
        }
    }

    #[test]
    fn words_are_replaced_in_strings_and_nowhere_else() {
        let value = json!({"$session": ["$session/$n", "$$session costs $5, $HOME $nope", 3, null]});
        assert_eq!(
            fill_value(&value, &mut Fixed),
            json!({"$session": ["s-1/7", "$session costs $5, $HOME $nope", 3, null]})
        );
    }

    #[test]
    fn turns_follow_each_other_and_the_last_one_stays() {
        let script = Script::parse(
            "# a comment\n{\"do\":\"agent\",\"dialect\":\"wave\"}\n{\"do\":\"stderr\",\"text\":\"hi\"}\n\n\
             {\"do\":\"turn\"}\n{\"do\":\"text\",\"text\":\"one\"}\n{\"do\":\"turn\"}\n{\"do\":\"kill\"}\n",
        )
        .unwrap();
        assert_eq!(script.profile.dialect, Dialect::Wave);
        assert_eq!(script.start.len(), 1);
        assert!(matches!(script.turn(1), [Step::Text { .. }]));
        assert!(matches!(script.turn(2), [Step::Kill {}]));
        assert!(matches!(script.turn(9), [Step::Kill {}]));
    }

    #[test]
    fn an_empty_script_answers_ok() {
        let script = Script::parse("").unwrap();
        assert!(matches!(script.turn(1), [Step::Text { text, .. }] if text == "ok"));
    }

    #[test]
    fn a_mistake_is_refused_with_its_line_and_its_name() {
        for (text, parts) in [
            ("{\"do\":\"turn\"}\n{\"do\":\"dance\"}", ["line 2", "dance"]),
            ("{\"do\":\"text\",\"txt\":\"x\"}", ["line 1", "txt"]),
            ("{\"do\":\"agent\",\"colour\":1}", ["line 1", "colour"]),
            ("{\"do\":\"agent\",\"dialect\":\"x\"}", ["line 1", "unknown variant `x`"]),
            ("{\"do\":\"turn\"}\n{\"do\":\"agent\"}", ["line 2", "the first step"]),
            ("{\"do\":\"repeat\",\"times\":2,\"steps\":[{\"do\":\"turn\"}]}", ["`turn`", "inside"]),
            ("nonsense", ["line 1", "expected"]),
        ] {
            let message = Script::parse(text).unwrap_err().to_string();
            for part in parts {
                assert!(message.contains(part), "{text}: {message} lacks {part}");
            }
        }
    }

    #[test]
    fn a_pattern_is_contained_member_by_member() {
        let line = json!({"type": "x", "request": {"subtype": "set_model", "model": "m"}, "list": [1, 2]});
        assert!(contains(&line, &json!({"request": {"subtype": "set_model"}})));
        assert!(!contains(&line, &json!({"request": {"subtype": "interrupt"}})));
        assert!(!contains(&line, &json!({"list": [1]})));
        assert!(!contains(&line, &json!({"absent": null})));
    }

    #[test]
    fn the_demo_script_can_be_played() {
        let script = Script::parse(DEMO).unwrap();
        assert!(script.turns.len() >= 2);
    }
}
