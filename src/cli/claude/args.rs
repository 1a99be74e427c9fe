//! Claude's command line.
//!
//! Owns what each flag and command of `claude` means here. Invariants: the parser is a pure function; nothing that a host
//! may give ends it but what ends the real one too (a missing value, a number that is none, a session id that is no UUID);
//! a prompt is neither lost nor made up. The flags themselves stand in the table in `flags`.
//!
//! How words are read (as measured on claude 2.1.332, which uses the same rules for all of its flags):
//! * `--flag value` and `--flag=value` are the same; a flag that needs a value takes the next word whatever it looks like,
//!   `--` and `-x` included; one that may have a value takes the next word only if it does not begin with `-`;
//! * a flag of many values takes every word up to the next one that begins with `-`; written with `=` it takes that one;
//! * short flags may stand together (`-pc`), the last of them with its value (`-rID`);
//! * behind `--` there are no flags.
//!
//! A flag that is not in the table is reported in [`ClaudeArgs::warnings`] and has no effect. Whether the word behind it is
//! its value cannot be known; see [`parse`] for what is decided.

mod flags;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::OsString;

use crate::session::printer::Format;
use flags::{Flag, Takes};

/// What the command line asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaudeArgs {
    /// What is to be done.
    pub command: Command,
    /// `-p`, `--print`: answer once and end. Hosts need not say so: see [`headless`](Self::headless).
    pub print: bool,
    /// The prompt of the command line; never empty. Without it the prompt is what stdin holds, and with both they are joined
    /// by a line feed. Not used when [`input_format`](Self::input_format) is stream-json.
    pub prompt: Option<String>,
    /// A lone `-` stood where a prompt would: the prompt comes on stdin, and is waited for as long as it takes.
    pub prompt_on_stdin: bool,
    /// `--input-format`.
    pub input_format: InputFormat,
    /// `--output-format`.
    pub output_format: OutputFormat,
    /// `--verbose`: with the json format, all messages instead of the last one. Real hosts may leave it out.
    pub verbose: bool,
    /// `--include-partial-messages`: `stream_event` lines are wanted.
    pub include_partial_messages: bool,
    /// `--replay-user-messages`: the host's user messages come back.
    pub replay_user_messages: bool,
    /// `--include-hook-events`: what hooks do is told.
    pub include_hook_events: bool,
    /// `--forward-subagent-text`.
    pub forward_subagent_text: bool,
    /// `--resume`, `-r`: go on with this session. `Some(None)` when no session is named, which only a terminal can answer.
    /// Not necessarily a UUID: it may be what the agent calls it.
    pub resume: Option<Option<String>>,
    /// `--continue`, `-c`: go on with the newest session of the working directory.
    pub continue_: bool,
    /// `--session-id`: the UUID that the host gives to the session, in the host's spelling; checked.
    pub session_id: Option<String>,
    /// `--fork-session`: go on in a copy.
    pub fork_session: bool,
    /// `--no-session-persistence`: leave nothing to resume.
    pub no_session_persistence: bool,
    /// `--model`; never empty.
    pub model: Option<String>,
    /// `--fallback-model`; no agent can be told.
    pub fallback_model: Option<String>,
    /// `--permission-mode`, one of `default`, `acceptEdits`, `auto`, `plan`, `dontAsk`, `bypassPermissions`. See
    /// [`mode`](Self::mode) for the one that counts.
    pub permission_mode: Option<String>,
    /// `--dangerously-skip-permissions`.
    pub dangerously_skip_permissions: bool,
    /// `--allow-dangerously-skip-permissions`: the host may change to that mode later.
    pub allow_dangerously_skip_permissions: bool,
    /// `--permission-prompt-tool`: `stdio` or `mcp__SERVER__TOOL`; never empty.
    pub permission_prompt_tool: Option<String>,
    /// `--permission-prompts none`: what would be asked is denied.
    pub permission_prompts_none: bool,
    /// `--allowedTools`, one rule each, such as `Bash(git *)`.
    pub allowed_tools: Vec<String>,
    /// `--disallowedTools`, one rule each.
    pub disallowed_tools: Vec<String>,
    /// `--tools`, one name each. An empty list is a host that wants none at all.
    pub tools: Option<Vec<String>>,
    /// `--mcp-config`: files or JSON objects.
    pub mcp_config: Vec<String>,
    /// `--strict-mcp-config`.
    pub strict_mcp_config: bool,
    /// `--add-dir`.
    pub add_dir: Vec<String>,
    /// `--append-system-prompt`; never empty.
    pub append_system_prompt: Option<String>,
    /// `--append-system-prompt-file`.
    pub append_system_prompt_file: Option<String>,
    /// `--system-prompt`; never empty, because hosts give an empty one to say that they have none.
    pub system_prompt: Option<String>,
    /// `--system-prompt-file`.
    pub system_prompt_file: Option<String>,
    /// `--json-schema`: the JSON text that the answer has to obey.
    pub json_schema: Option<String>,
    /// `--max-turns`: rounds of the model.
    pub max_turns: Option<u64>,
    /// `--max-budget-usd`: US dollars, more than 0.
    pub max_budget_usd: Option<f64>,
    /// `--max-thinking-tokens`.
    pub max_thinking_tokens: Option<u64>,
    /// `--thinking`: `enabled`, `adaptive` or `disabled`.
    pub thinking: Option<String>,
    /// `--effort`: `low`, `medium`, `high`, `xhigh` or `max`.
    pub effort: Option<String>,
    /// `--settings`: a file or a JSON object.
    pub settings: Option<String>,
    /// `--setting-sources`, one name each. An empty list is a host that wants no files read.
    pub setting_sources: Option<Vec<String>>,
    /// `--managed-settings`: a JSON object.
    pub managed_settings: Option<String>,
    /// `--managed-settings-in-initialize`: they come in the host's `initialize`.
    pub managed_settings_in_initialize: bool,
    /// `--agents`: a file or a JSON object with the host's own subagents.
    pub agents_json: Option<String>,
    /// `--await-initialize`: nothing starts before the host's `initialize`, which brings MCP servers and settings.
    pub await_initialize: bool,
    /// `--initialize-fields`: what that `initialize` will bring, one name each.
    pub initialize_fields: Vec<String>,
    /// `--name`, `-n`: what to call the session.
    pub name: Option<String>,
    /// `--debug`, `--debug-to-stderr`, `--debug-file` or `--mcp-debug` is given.
    pub debug: bool,
    /// `--debug-file`.
    pub debug_file: Option<String>,
    /// diglot's own `--agent-name` or `--diglot-agent`: which agent works. (Claude's `--agent` is something else: one of the
    /// host's subagents.)
    pub agent_name: Option<String>,
    /// diglot's own `--diglot-trace`: where to record both wires.
    pub diglot_trace: Option<String>,
    /// diglot's own `--diglot-files`: the agent may read and write files through diglot.
    pub diglot_files: bool,
    /// diglot's own `--diglot-terminals`: the agent may run commands through diglot.
    pub diglot_terminals: bool,
    /// What has no effect, one line each, to be said on stderr.
    pub warnings: Vec<String>,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Command {
    /// Be an agent.
    #[default]
    Run,
    /// `-v`, `--version`.
    Version,
    /// `-h`, `--help`, `help`.
    Help,
    /// `auth status`.
    AuthStatus {
        /// As JSON, which is what it is without `--text`.
        json: bool,
    },
    /// `mcp list`.
    McpList,
    /// `mcp get NAME`.
    McpGet(String),
    /// `agents`.
    Agents {
        /// As JSON.
        json: bool,
    },
    /// `doctor`.
    Doctor,
    /// `plugin list`.
    PluginList {
        /// As JSON.
        json: bool,
    },
    /// Something that is not done here: the text says what and why. Exit code 1; with the stream-json format also an error
    /// result.
    Refused(String),
}

/// What stdin holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputFormat {
    /// The prompt.
    #[default]
    Text,
    /// Messages and control lines.
    StreamJson,
}

/// What stdout gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// The text of the result.
    #[default]
    Text,
    /// The result, or with `--verbose` all messages in an array.
    Json,
    /// Every message as it comes, one line each.
    StreamJson,
}

/// Why the command line cannot be understood. The real one fails in these cases too, in these words, with exit code 1: hosts
/// show them and some look for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// A flag that needs a value stands at the end.
    #[error("error: option '{flag}' argument missing")]
    Missing {
        /// The flag as it was written.
        flag: String,
    },
    /// A value that a flag does not take.
    #[error("error: option '{flag}' argument '{value}' is invalid. {expected}")]
    Invalid {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// `--session-id` is no UUID.
    #[error("Error: Invalid session ID. Must be a valid UUID.")]
    SessionId,
    /// A new name for an old session, which is only possible for a copy of it.
    #[error("Error: --session-id with --continue or --resume also needs --fork-session.")]
    SessionIdOfOld,
    /// stream-json on stdin alone.
    #[error("Error: --input-format=stream-json requires output-format=stream-json.")]
    InputWithoutOutput,
}

impl ClaudeArgs {
    /// Whether this is a run without a person at a terminal: by `-p`, by the input format, or because stdout is none. The
    /// SDKs never say `-p`.
    #[must_use]
    pub fn headless(&self, stdout_is_terminal: bool) -> bool {
        self.print || self.input_format == InputFormat::StreamJson || !stdout_is_terminal
    }

    /// The permission mode to begin in: `--dangerously-skip-permissions` is a mode, and the stronger wish.
    #[must_use]
    pub fn mode(&self) -> Option<&str> {
        if self.dangerously_skip_permissions { Some("bypassPermissions") } else { self.permission_mode.as_deref() }
    }

    /// What stdout gets.
    #[must_use]
    pub fn format(&self) -> Format {
        match self.output_format {
            OutputFormat::Text => Format::Text,
            OutputFormat::Json if self.verbose => Format::JsonArray,
            OutputFormat::Json => Format::Json,
            OutputFormat::StreamJson => Format::StreamJson,
        }
    }

    /// Why nothing can be resumed or begun, if so: what more than one flag decides.
    fn check(&self) -> Result<(), UsageError> {
        if self.session_id.is_some() && (self.continue_ || self.resume.is_some()) && !self.fork_session {
            return Err(UsageError::SessionIdOfOld);
        }
        if self.input_format == InputFormat::StreamJson && self.output_format != OutputFormat::StreamJson {
            return Err(UsageError::InputWithoutOutput);
        }
        Ok(())
    }
}

/// Reads the words behind `diglot claude`.
///
/// * An empty word where a prompt would stand is nothing; a lone `-` is stdin; of several words the first is the prompt.
/// * A first word that is the path of a script and is followed by a flag is what an old SDK believes to start; it is dropped.
/// * The word behind a flag that is not known is taken for the flag's value, with one exception: when there is no other
///   prompt and the word has white space in it, it is the prompt, because values seldom have any and prompts mostly do.
///   Behind `--` a prompt is always safe.
/// * A command (`mcp list`) is one only as the first word, and not in a headless run, where it is a prompt of one word.
///
/// # Errors
/// Where the real one fails too; see [`UsageError`]. What is refused is [`Command::Refused`].
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<ClaudeArgs, UsageError> {
    let words = args.into_iter().map(|word| word.into_string().unwrap_or_else(|word| word.to_string_lossy().into()));
    let mut words: VecDeque<String> = words.collect();
    if is_script(words.front()) && words.get(1).is_some_and(|next| is_flag(next)) {
        words.pop_front();
    }
    let mut parser = Parser { words, ..Parser::default() };
    parser.run()?;
    Ok(parser.args)
}

/// What is known on the way through the words.
#[derive(Default)]
struct Parser {
    args: ClaudeArgs,
    words: VecDeque<String>,
    /// The flag of many values that takes the words to come.
    many: Option<&'static Flag>,
    /// Whether one of claude's own flags was seen.
    flagged: bool,
    operands: Vec<String>,
    /// Words behind flags that are not known: the flag, and the word.
    guesses: Vec<(String, String)>,
}

impl Parser {
    fn run(&mut self) -> Result<(), UsageError> {
        while let Some(word) = self.words.pop_front() {
            if word == "--" {
                self.operands.extend(self.words.drain(..));
            } else if is_flag(&word) {
                self.many = None;
                self.flag(&word)?;
                if matches!(self.args.command, Command::Version | Command::Help) {
                    return Ok(());
                }
            } else if let Some(flag) = self.many {
                flag.apply(&mut self.args, Some(word))?;
            } else if !self.flagged && self.operands.is_empty() && self.command(&word) {
                return Ok(());
            } else {
                self.operands.push(word);
            }
        }
        self.prompt();
        self.args.check()
    }

    fn flag(&mut self, word: &str) -> Result<(), UsageError> {
        if let Some(flag) = flags::find(word) {
            self.flagged |= !flag.is_ours();
            return self.known(flag, word);
        }
        if let Some((name, value)) = word.split_once('=').filter(|(name, _)| name.starts_with("--"))
            && let Some(flag) = flags::find(name)
        {
            self.flagged |= !flag.is_ours();
            return flag.apply(&mut self.args, Some(value.to_owned()));
        }
        self.flagged = true;
        if !word.starts_with("--")
            && let Some((first, rest)) = word.char_indices().nth(2).map(|(at, _)| word.split_at(at))
            && let Some(flag) = flags::find(first)
        {
            if flag.takes() != Takes::Nothing {
                return flag.apply(&mut self.args, Some(rest.to_owned()));
            }
            flag.apply(&mut self.args, None)?;
            return self.flag(&format!("-{rest}"));
        }
        self.unknown(word);
        Ok(())
    }

    fn known(&mut self, flag: &'static Flag, word: &str) -> Result<(), UsageError> {
        let value = match flag.takes() {
            Takes::Nothing => None,
            Takes::Optional => self.next_if(|next| !is_flag(next)),
            Takes::One | Takes::Many => {
                let value = self.words.pop_front();
                Some(value.ok_or_else(|| UsageError::Missing { flag: word.to_owned() })?)
            }
        };
        self.many = (flag.takes() == Takes::Many).then_some(flag);
        flag.apply(&mut self.args, value)
    }

    fn next_if(&mut self, wanted: impl FnOnce(&str) -> bool) -> Option<String> {
        if self.words.front().is_some_and(|next| wanted(next)) { self.words.pop_front() } else { None }
    }

    fn unknown(&mut self, word: &str) {
        let name = word.split('=').next().unwrap_or(word).to_owned();
        // A lone dash is stdin, whatever stands before it.
        let value = self.next_if(|next| name == word && !is_flag(next) && next != "-");
        match value {
            Some(value) => self.guesses.push((name, value)),
            None => self.args.warnings.push(format!("{name} is not known here and has no effect")),
        }
    }

    /// The first word that says something is the prompt; a guess is one if nothing else is.
    fn prompt(&mut self) {
        let operands = std::mem::take(&mut self.operands);
        for word in operands.into_iter().filter(|word| !word.is_empty()) {
            if self.args.prompt.is_none() && !self.args.prompt_on_stdin {
                if word == "-" {
                    self.args.prompt_on_stdin = true;
                } else {
                    self.args.prompt = Some(word);
                }
            }
        }
        let wanted =
            self.args.prompt.is_none() && !self.args.prompt_on_stdin && self.args.input_format == InputFormat::Text;
        let sentence = self.guesses.iter().rposition(|(_, word)| word.trim().contains(char::is_whitespace));
        for (at, (flag, word)) in std::mem::take(&mut self.guesses).into_iter().enumerate() {
            if wanted && sentence == Some(at) {
                self.args.warnings.push(format!("{flag} is not known here; what stands behind it is the prompt"));
                self.args.prompt = Some(word);
            } else {
                // The word itself may be a secret.
                self.args.warnings.push(format!(
                    "{flag} is not known here; it and the word behind it have no effect (write a prompt behind `--`)"
                ));
            }
        }
    }

    /// Takes `word` as a command, if it is one here.
    fn command(&mut self, word: &str) -> bool {
        let rest: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let headless = rest.iter().enumerate().any(|(at, word)| {
            matches!(*word, "-p" | "--print" | "--input-format=stream-json")
                || (*word == "--input-format" && rest.get(at + 1) == Some(&"stream-json"))
        });
        match command(word, &rest).filter(|_| !headless) {
            Some(command) => {
                self.args.command = command;
                true
            }
            None => false,
        }
    }
}

/// The command that `word` and the words behind it ask for; `None` if it is no command.
fn command(word: &str, rest: &[&str]) -> Option<Command> {
    let names: Vec<&str> = rest.iter().copied().filter(|word| !is_flag(word)).collect();
    let has = |flag: &str| rest.contains(&flag);
    let refused = |what: &str, why: &str| Command::Refused(format!("`claude {what}` is not possible here: {why}"));
    let known = match (word, names.first().copied()) {
        ("help", _) => Command::Help,
        ("auth" | "mcp" | "agents" | "doctor" | "plugin" | "plugins", _) if has("--help") || has("-h") => Command::Help,
        ("auth", Some("status")) => Command::AuthStatus { json: !has("--text") },
        ("auth", what) => refused(
            &format!("auth {}", what.unwrap_or_default()),
            "sign in with the agent's own program, which keeps its own keys",
        ),
        ("mcp", Some("list")) => Command::McpList,
        ("mcp", Some("get")) if names.len() > 1 => Command::McpGet(names[1].to_owned()),
        ("mcp", what) => refused(
            &format!("mcp {}", what.unwrap_or_default()),
            "give servers with --mcp-config, or set them up in the agent's own configuration",
        ),
        ("agents", _) => Command::Agents { json: has("--json") },
        ("doctor", _) => Command::Doctor,
        ("plugin" | "plugins", Some("list")) => Command::PluginList { json: has("--json") },
        ("plugin" | "plugins", what) => {
            refused(&format!("plugin {}", what.unwrap_or_default()), "the agent has no such plugins")
        }
        ("install" | "update" | "upgrade" | "setup-token", _) => {
            refused(word, "this is diglot in claude's place; update diglot and the agent in their own ways")
        }
        (
            "attach" | "auto-mode" | "config" | "gateway" | "import" | "kill" | "logs" | "migrate-installer" | "purge"
            | "remote-control" | "respawn" | "rm" | "stop" | "ultrareview",
            _,
        ) => refused(word, "diglot serves print mode and stream-json only"),
        _ => return None,
    };
    Some(known)
}

/// Whether a word is a flag: a lone dash is none.
fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// Whether a word is the path of a script, and no prompt that ends like one (`fix src/a.js`, `/review src/a.js`).
fn is_script(word: Option<&String>) -> bool {
    const SEPARATORS: [char; 2] = ['/', '\\'];
    word.is_some_and(|word| {
        let script = [".js", ".mjs", ".cjs", ".ts", ".mts"].iter().any(|extension| word.ends_with(extension));
        let mut parts = word.splitn(2, char::is_whitespace);
        let (start, spaced) = (parts.next().unwrap_or_default(), parts.next().is_some());
        let drive = start.get(1..3).is_some_and(|colon| colon == ":\\" || colon == ":/");
        let path = drive || start.matches(SEPARATORS).count() >= if spaced { 2 } else { 1 };
        let absolute = drive || start.starts_with(SEPARATORS);
        script && path && (absolute || !spaced)
    })
}

/// The rules of a list: separated by commas or white space, but not inside of parentheses, as in `Bash(git *),Edit`.
#[must_use]
pub fn split_rules(text: &str) -> Vec<String> {
    let mut rules = vec![String::new()];
    let mut depth = 0usize;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match rules.last_mut() {
            Some(rule) if depth > 0 || !(c == ',' || c.is_whitespace()) => rule.push(c),
            _ => rules.push(String::new()),
        }
    }
    rules.retain(|rule| !rule.is_empty());
    rules
}
