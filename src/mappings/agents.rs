//! One profile per agent: what to start, in which protocol and dialect it speaks, and which flags carry what.
//!
//! Owns `mappings/agents/*.toml`. A profile's name is its file's name. A user's file of the same name replaces the whole
//! built-in profile; a new name is a new agent.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{AGENTS, MappingError, Source, agent_name, compiled};

/// The protocol an agent speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Claude Code's NDJSON on stdin and stdout.
    StreamJson,
    /// The Agent Client Protocol.
    Acp,
    /// Codex's app-server.
    AppServer,
    /// A command per turn.
    OneShot,
}

/// How an agent's stream-json differs from Claude's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// As Claude Code speaks it.
    #[default]
    Claude,
    /// `tool_result` and `session_state_changed` as messages of their own, `busy` for a running turn.
    Wave,
}

/// What is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A program, looked for on PATH unless it is a path.
    Command(String),
    /// diglot itself, with this hidden subcommand.
    Builtin(String),
}

/// Which flag carries what; an absent one means that the agent has no such flag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Flags {
    /// Takes the id of a new session.
    pub session_id: Option<String>,
    /// Takes the id of a session to go on with.
    pub resume: Option<String>,
    /// Takes the name of a file with MCP servers as JSON.
    pub mcp_config: Option<String>,
    /// Takes one more folder the agent may use; repeated.
    pub add_dir: Option<String>,
    /// Takes a permission mode.
    pub permission_mode: Option<String>,
    /// Any of these among the arguments makes `bypassPermissions` a mode that can be chosen.
    pub bypass: Vec<String>,
}

/// When a call may be shown to a host, which cannot take it back or change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ToolUseAt {
    /// As soon as it runs and its input is there.
    #[default]
    InProgress,
    /// When it is asked about or has ended: the agent says `in_progress` while the input still streams (quirk 3).
    Settled,
}

/// How an agent's ACP differs from what the others do (acp-agents.md, sections 3 and 6).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AcpWays {
    /// Claude's permission mode → the agent's mode. `default` is the one that asks (quirk 53).
    pub modes: BTreeMap<String, String>,
    /// How long after its answer to a prompt the agent may still speak, in ms (quirk 42).
    pub settle_ms: u64,
    /// How long after a cancel a prompt would be swallowed, in ms (quirk 45).
    pub cancel_barrier_ms: u64,
    /// When its calls are shown.
    pub tool_use_at: ToolUseAt,
    /// True: it says `in_progress` and asks for the permission after that (OpenCode, Vibe).
    pub asks_in_progress: bool,
    /// An authentication method that needs no person, tried once when a session is refused.
    pub authenticate: Option<String>,
    /// False: `session/load` is announced and does not work (quirk 58).
    pub load: bool,
    /// False: MCP servers over SSE are announced and do not work (Grok 1.0 speaks streamable HTTP to them).
    pub mcp_sse: bool,
    /// True: `cancelled` may be the echo of an earlier turn (quirk 9).
    pub stale_cancelled: bool,
    /// True: it has one live session in a process, and no other directory than the process's (quirks 46 and 47).
    pub process_per_session: bool,
    /// True: `terminal/create` has a shell's line as its `command` (quirk 24).
    pub shell_lines: bool,
    /// True: it makes a new file only when it could read it before (quirk 27).
    pub missing_file_is_empty: bool,
    /// True: after a login that failed the process fails for ever (quirk 39).
    pub login_error_stays: bool,
    /// What a person does to log in.
    pub login: Option<String>,
}

impl Default for AcpWays {
    fn default() -> Self {
        Self {
            modes: BTreeMap::new(),
            settle_ms: 20,
            cancel_barrier_ms: 0,
            tool_use_at: ToolUseAt::default(),
            asks_in_progress: false,
            authenticate: None,
            load: true,
            mcp_sse: true,
            stale_cancelled: false,
            process_per_session: false,
            shell_lines: false,
            missing_file_is_empty: false,
            login_error_stays: false,
            login: None,
        }
    }
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProfile {
    /// What `--agent` takes.
    pub name: String,
    /// What a person reads.
    pub title: String,
    /// The protocol it speaks.
    pub protocol: Protocol,
    /// Its dialect of it.
    pub dialect: Dialect,
    /// What is started.
    pub program: Program,
    /// An environment variable that, when set, names the program instead.
    pub command_env: Option<String>,
    /// Arguments that are always given.
    pub args: Vec<String>,
    /// Variables that are set for it.
    pub env: BTreeMap<String, String>,
    /// Variables that are taken away from it.
    pub unset: Vec<String>,
    /// Which flag carries what.
    pub flags: Flags,
    /// Its ways, if it speaks ACP.
    pub acp: AcpWays,
    /// What to do when the program is not found.
    pub hint: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProfile {
    title: String,
    protocol: Protocol,
    #[serde(default)]
    dialect: Dialect,
    command: Option<String>,
    builtin: Option<String>,
    command_env: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    unset: Vec<String>,
    #[serde(default)]
    flags: Flags,
    acp: Option<AcpWays>,
    hint: String,
}

/// The agents there are.
#[derive(Debug, Clone)]
pub struct Agents {
    profiles: BTreeMap<String, AgentProfile>,
}

/// The profiles compiled in.
const BUILTIN: [(&str, &str); 16] = [
    ("agents/claude.toml", compiled!("agents/claude")),
    ("agents/claude-agent-acp.toml", compiled!("agents/claude-agent-acp")),
    ("agents/cline.toml", compiled!("agents/cline")),
    ("agents/codebuddy.toml", compiled!("agents/codebuddy")),
    ("agents/codex-acp.toml", compiled!("agents/codex-acp")),
    ("agents/copilot.toml", compiled!("agents/copilot")),
    ("agents/demo.toml", compiled!("agents/demo")),
    ("agents/gemini.toml", compiled!("agents/gemini")),
    ("agents/grok.toml", compiled!("agents/grok")),
    ("agents/io.toml", compiled!("agents/io")),
    ("agents/kimi.toml", compiled!("agents/kimi")),
    ("agents/opencode.toml", compiled!("agents/opencode")),
    ("agents/pi.toml", compiled!("agents/pi")),
    ("agents/qwen.toml", compiled!("agents/qwen")),
    ("agents/vibe.toml", compiled!("agents/vibe")),
    ("agents/wave.toml", compiled!("agents/wave")),
];

impl Agents {
    pub(super) fn read(given: &[Source<'_>]) -> Result<Self, MappingError> {
        let mut profiles = BTreeMap::new();
        let builtin = BUILTIN.into_iter().map(|(file, text)| Source::compiled(file, text));
        let given = given.iter().copied().filter(|source| source.file.starts_with(AGENTS));
        for source in builtin.chain(given) {
            let Some(name) = agent_name(source.file) else {
                continue;
            };
            profiles.insert(name.to_owned(), AgentProfile::new(source, name)?);
        }
        Ok(Self { profiles })
    }

    /// The profile of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&AgentProfile> {
        self.profiles.get(name)
    }

    /// All profiles, by name.
    pub fn iter(&self) -> impl Iterator<Item = &AgentProfile> {
        self.profiles.values()
    }
}

impl AgentProfile {
    fn new(source: Source<'_>, name: &str) -> Result<Self, MappingError> {
        let raw: RawProfile = source.read()?;
        let program = match (raw.command, raw.builtin) {
            (Some(command), None) if !command.is_empty() => Program::Command(command),
            (None, Some(builtin)) if !builtin.is_empty() => Program::Builtin(builtin),
            _ => {
                return Err(source.wrong("command", "", "a program in `command`, or a hidden subcommand in `builtin`"));
            }
        };
        if raw.protocol != Protocol::StreamJson && raw.dialect != Dialect::Claude {
            return Err(source.wrong("dialect", "wave", "no dialect: only stream-json has one"));
        }
        if raw.protocol != Protocol::Acp && raw.acp.is_some() {
            return Err(source.wrong("acp", "", "nothing: only an agent that speaks ACP has ways of doing so"));
        }
        if let Some(both) = raw.unset.iter().find(|name| raw.env.contains_key(*name)) {
            return Err(source.wrong("unset", both, "variables that `env` does not set"));
        }
        Ok(Self {
            name: name.to_owned(),
            title: raw.title,
            protocol: raw.protocol,
            dialect: raw.dialect,
            program,
            command_env: raw.command_env,
            args: raw.args,
            env: raw.env,
            unset: raw.unset,
            flags: raw.flags,
            acp: raw.acp.unwrap_or_default(),
            hint: raw.hint,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::Mappings;

    fn agent(name: &str) -> &'static AgentProfile {
        Mappings::builtin().agents.get(name).expect("a built-in profile")
    }

    #[test]
    fn claude_is_started_as_a_host_starts_it() {
        let claude = agent("claude");
        assert_eq!(claude.program, Program::Command("claude".into()));
        assert_eq!(claude.command_env.as_deref(), Some("CLAUDE_CODE_EXECUTABLE"));
        let line = claude.args.join(" ");
        for part in [
            "-p",
            "--output-format stream-json",
            "--input-format stream-json",
            "--verbose",
            "--include-partial-messages",
            "--permission-prompt-tool stdio",
            "--replay-user-messages",
        ] {
            assert!(line.contains(part), "{part} is missing in {line}");
        }
        assert!(!line.contains("--permission-mode"), "the mode is what claude's own settings say");
        assert_eq!(claude.env.get("CLAUDE_CODE_ENABLE_TODO_TOOLS").map(String::as_str), Some("1"));
    }

    #[test]
    fn what_an_outer_claude_left_behind_is_taken_away() {
        assert_eq!(agent("claude").unset, ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT"]);
    }

    #[test]
    fn wave_speaks_a_dialect_and_has_no_session_flags() {
        let wave = agent("wave");
        assert_eq!((wave.protocol, wave.dialect), (Protocol::StreamJson, Dialect::Wave));
        assert_eq!(wave.flags, Flags::default());
    }

    #[test]
    fn the_demo_is_diglot_itself() {
        assert_eq!(agent("demo").program, Program::Builtin("demo-agent".into()));
    }

    #[test]
    fn every_profile_says_what_to_do_when_its_program_is_missing() {
        let names: Vec<_> = Mappings::builtin().agents.iter().map(|agent| agent.name.as_str()).collect();
        for name in ["claude", "codebuddy", "demo", "gemini", "grok", "io", "opencode", "qwen", "wave"] {
            assert!(names.contains(&name), "{name} is missing");
        }
        assert!(Mappings::builtin().agents.iter().all(|agent| !agent.hint.is_empty() && !agent.title.is_empty()));
    }

    #[test]
    fn a_user_adds_an_agent_and_replaces_one() {
        let mappings = Mappings::with_overrides([
            ("agents/mine.toml", "title = \"Mine\"\nprotocol = \"acp\"\ncommand = \"mine\"\nhint = \"build it\"\n"),
            ("agents/wave.toml", "title = \"W\"\nprotocol = \"stream-json\"\ncommand = \"/opt/w\"\nhint = \"h\"\n"),
        ])
        .expect("valid profiles");
        assert_eq!(mappings.agents.get("mine").map(|agent| agent.protocol), Some(Protocol::Acp));
        assert_eq!(mappings.agents.get("wave").map(|agent| agent.dialect), Some(Dialect::Claude));
        assert!(mappings.agents.get("claude").is_some());
    }

    #[test]
    fn a_profile_that_cannot_be_started_is_refused() {
        for text in [
            "title = \"X\"\nprotocol = \"acp\"\nhint = \"h\"\n",
            "title = \"X\"\nprotocol = \"acp\"\nhint = \"h\"\ncommand = \"a\"\nbuiltin = \"b\"\n",
            "title = \"X\"\nprotocol = \"telnet\"\nhint = \"h\"\ncommand = \"a\"\n",
            "title = \"X\"\nprotocol = \"acp\"\ndialect = \"wave\"\nhint = \"h\"\ncommand = \"a\"\n",
            "title = \"X\"\nprotocol = \"acp\"\nhint = \"h\"\ncommand = \"a\"\nunset = [\"A\"]\nenv.A = \"1\"\n",
        ] {
            let error = Mappings::with_overrides([("agents/x.toml", text)]).expect_err("refused").to_string();
            assert!(error.contains("agents/x.toml"), "{error}");
        }
    }
}
