//! `diglot claude`: what a host starts as if it were the `claude` executable.
//!
//! Owns the way from a command line to a conversation. Keeps: `-v` and the small commands answer at once and start nothing
//! (rule 20); stdout carries the protocol only (rule 3); whatever cannot be begun is said on stderr and, to a host that
//! reads stream-json, in a `result` (rule 5).
//!
//! | file | what it owns |
//! |---|---|
//! | `args` | claude's command line |
//! | `start` | the conversation that it asks for |

pub mod args;
mod start;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use crate::agents;
use crate::config::Config;
use crate::mappings::Agents;
use crate::session::host;
use crate::session::printer::Format;
use crate::translate::claude_over_acp::CLAUDE_VERSION;
use args::{ClaudeArgs, Command};

/// Set for the `diglot acp` that stands behind `diglot claude`.
const INSIDE: &str = "DIGLOT_INSIDE_CLAUDE";

const HELP: &str = "\
Usage: claude [options] [prompt]

diglot in the place of claude: whatever drives `claude` over stream-json runs another agent with it.

Which agent:
  --diglot-agent NAME     gemini, grok, codebuddy, opencode, kimi, qwen, copilot, codex-acp, vibe, pi, cline, …
  DIGLOT_AGENT=NAME       the same as a variable
  agent = \"NAME\"          the same in ~/.config/diglot/config.toml
  a link named claude-NAME (or NAME-claude) to diglot

Options: those of Claude Code 2.1; what has no meaning for another agent is said on stderr.
  -p, --print             answer and end: text, or --output-format json | stream-json
  --input-format stream-json, --output-format stream-json, --include-partial-messages, --replay-user-messages
  --permission-mode, --permission-prompt-tool stdio, --allowedTools, --disallowedTools, --mcp-config
  --resume ID, --continue, --fork-session, --session-id UUID, --no-session-persistence
  --model, --system-prompt, --append-system-prompt, --json-schema, --max-turns, --max-budget-usd, --add-dir
  --diglot-trace FILE     record both wires (NDJSON, secrets masked)
  --diglot-files          the agent reads and writes files through diglot, in the session's directories only (DIGLOT_FILES=1)
  --diglot-terminals      the agent runs its commands through diglot; each is decided like a Bash call (DIGLOT_TERMINALS=1)

Examples:
  diglot claude --diglot-agent gemini -p \"what does this project do?\"
  DIGLOT_AGENT=opencode python my_agent_sdk_program.py      with cli_path set to diglot's link named claude
";

/// Whether diglot was started under a name that means `diglot claude`, and which agent the name asks for.
#[must_use]
pub fn by_name(name: &str) -> Option<Option<String>> {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    if name == "claude" {
        return Some(None);
    }
    let agent = name.strip_prefix("claude-").or_else(|| name.strip_suffix("-claude"))?;
    (!agent.is_empty()).then(|| Some(agent.to_owned()))
}

/// Runs `claude`'s command line; `named` is the agent that the program's name asks for.
pub fn main(arguments: impl IntoIterator<Item = OsString>, named: Option<String>) -> ExitCode {
    let mut args = match args::parse(arguments) {
        Ok(args) => args,
        Err(error) => {
            complain(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    if args.agent_name.is_none() {
        args.agent_name = named;
    }
    match args.command.clone() {
        Command::Version => print(&format!("{CLAUDE_VERSION} (Claude Code)\n")),
        Command::Help => print(HELP),
        Command::AuthStatus { json: true } => {
            print("{\"loggedIn\":true,\"authMethod\":\"none\",\"apiProvider\":\"firstParty\"}\n")
        }
        Command::AuthStatus { json: false } => print("Logged in by the agent's own login.\n"),
        Command::McpList => print("No MCP servers configured. They come with --mcp-config.\n"),
        Command::McpGet(name) => {
            complain(&format!("No MCP server found with name: {name}"));
            ExitCode::FAILURE
        }
        Command::Agents { json: true } => print("[]\n"),
        Command::Agents { json: false } => print("No subagents: the agent has its own.\n"),
        Command::Doctor => print("diglot stands in for claude; `diglot claude --help` says how to choose the agent.\n"),
        Command::PluginList { json: true } => print("[]\n"),
        Command::PluginList { json: false } => print("No plugins installed.\n"),
        Command::Refused(why) => failed(&args, &why),
        Command::Run => run(args),
    }
}

fn run(args: ClaudeArgs) -> ExitCode {
    if !args.headless(std::io::stdout().is_terminal()) {
        complain("this claude serves programs: give -p and a prompt, or --input-format stream-json");
        return ExitCode::FAILURE;
    }
    if agents::environment(INSIDE).is_some() {
        let why = "diglot was started as the claude that diglot itself runs; set `command` in [agents.claude] of your \
                   configuration to the real claude";
        return failed(&args, why);
    }
    for warning in &args.warnings {
        complain(warning);
    }
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&args, &error.to_string()),
    };
    let guards = super::guards(&runtime);
    let cwd = std::env::current_dir().unwrap_or_default();
    let config = match Config::load(&cwd, &agents::environment) {
        Ok(config) => config,
        Err(error) => return failed(&args, &error.to_string()),
    };
    super::start_log(None, &config);
    let started = match start::options(&args, &config, &cwd, guards) {
        Ok(started) => started,
        Err(error) => return failed(&args, &error),
    };
    let trace = started.options.trace.clone();
    let code = runtime.block_on(host::run(started.options));
    // The session is kept now, or never will be.
    drop(started.reservation);
    trace.event("exit", || serde_json::json!({"code": code}));
    trace.close();
    // A thread may still wait for the host's next line; nothing waits for it.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// The agents that can be chosen, for an error.
fn known(config: &Config, profiles: &Agents) -> String {
    agents::names(config, profiles).join(", ")
}

/// What cannot be begun: on stderr, and as a `result` for a host that reads stream-json.
fn failed(args: &ClaudeArgs, why: &str) -> ExitCode {
    complain(
        if why.starts_with("Error") || why.starts_with("error") { why.to_owned() } else { format!("Error: {why}") }
            .as_str(),
    );
    if args.format() == Format::StreamJson {
        let line = serde_json::json!({
            "type": "result", "subtype": "error_during_execution", "is_error": true, "duration_ms": 0, "duration_api_ms": 0,
            "num_turns": 0, "session_id": uuid::Uuid::new_v4().to_string(), "total_cost_usd": 0,
            "usage": {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
            "modelUsage": {}, "permission_denials": [], "stop_reason": null, "terminal_reason": "error",
            "uuid": uuid::Uuid::new_v4().to_string(), "errors": [why.trim_start_matches("Error: ")],
        });
        print(&format!("{line}\n"));
    }
    ExitCode::FAILURE
}

fn print(text: &str) -> ExitCode {
    // Whoever reads has seen enough.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Says on stderr what a host shows as claude's own words.
fn complain(message: &str) {
    // There is nobody left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr(), "{message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_named_claude_is_claude_and_may_name_the_agent() {
        assert_eq!(by_name("/usr/bin/claude"), Some(None));
        assert_eq!(by_name("claude.exe"), Some(None));
        assert_eq!(by_name("/x/claude-gemini"), Some(Some("gemini".into())));
        assert_eq!(by_name("opencode-claude"), Some(Some("opencode".into())));
        assert_eq!(by_name("/usr/bin/diglot"), None);
        assert_eq!(by_name("claude-"), None);
    }
}
