//! `diglot try`: one conversation in the terminal, through the real chain.
//!
//! Owns what is started and where: `diglot acp` as a process of its own, as an editor starts it, and that one starts the
//! agent. Invariant: the demo agent works in a fresh folder that is gone afterwards; any other works where the person is.

mod ask;
mod client;
mod pipe;
mod view;
mod wires;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::style::{self, Style};
use super::{CliError, exit};
use crate::agents;
use crate::config::Config;
use ask::Policy;
use client::Outcome;

/// What the demo agent is told when nobody says anything.
const DEMO_PROMPT: &str = "Show me what a conversation looks like.";

/// Names another program to be started instead of `diglot acp`, with the same arguments; for tests.
const ADAPTER: &str = "DIGLOT_TRY_ADAPTER";

const EXAMPLES: &str = "\
Examples:
  diglot try                                 the built-in demo agent; needs nothing, writes only in a temporary folder
  diglot try --wire --yes                    the same, as the messages on both sides of diglot
  diglot try --agent claude \"what is here?\"  Claude Code, in this folder
  diglot try --no --cwd /tmp/x -- ./my-claude --flag  -- any program that speaks Claude's stream-json";

/// Have a conversation in the terminal: editor, diglot and agent, all of them real
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TryArgs {
    /// The agent: demo, claude, wave, or one of your configuration [default: demo]
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// Allow once whatever the agent asks for
    #[arg(long, conflicts_with = "no")]
    pub(super) yes: bool,
    /// Refuse whatever the agent asks for
    #[arg(long)]
    pub(super) no: bool,
    /// Show the messages on both wires instead of the conversation
    #[arg(long)]
    pub(super) wire: bool,
    /// Where the agent works [default: here; for the demo agent a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(super) cwd: Option<PathBuf>,
    /// Record both wires in this file
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// What to say; without it you are asked
    #[arg(value_name = "PROMPT")]
    pub(super) prompt: Vec<String>,
    /// How to start the agent, instead of its usual command
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

/// All that the conversation needs to know.
struct Plan {
    adapter: PathBuf,
    adapter_args: Vec<OsString>,
    /// The agent's working folder.
    cwd: PathBuf,
    title: String,
    /// What to say first.
    prompt: Option<String>,
    /// What an empty line means when the person is asked for a prompt.
    fallback: Option<&'static str>,
    /// Whether to ask for more prompts.
    interactive: bool,
    policy: Policy,
    wire: Option<Wire>,
    style: Style,
}

/// What `--wire` needs.
struct Wire {
    /// A private folder for the named pipe.
    folder: Scratch,
    /// Where the trace goes besides.
    copy: Option<PathBuf>,
    width: usize,
}

pub(super) fn run(args: TryArgs, log: Option<&str>, config: &Config, here: &Path) -> Result<ExitCode, CliError> {
    let other = std::env::var_os(ADAPTER).filter(|adapter| !adapter.is_empty());
    let fallback = if args.command.is_empty() { agents::DEMO } else { agents::DEFAULT };
    let agent = args.agent.as_deref().unwrap_or(fallback);
    let demo = agent == agents::DEMO && args.command.is_empty();
    let (_, profile) = super::profile(Some(agent), &args.command, config)?;
    if other.is_none() {
        agents::locate(&profile, &agents::environment)?;
    }

    let scratch;
    let cwd = match args.cwd {
        Some(folder) => super::folder(&folder)?,
        None if demo => {
            scratch = Scratch::new()?;
            scratch.path.clone()
        }
        None => here.to_owned(),
    };

    let terminal = std::io::stdin().is_terminal();
    let policy = match (args.yes, args.no) {
        (true, _) => Policy::Yes,
        (_, true) => Policy::No,
        _ if terminal => Policy::Person,
        _ => Policy::Nobody,
    };
    let prompt = match args.prompt.join(" ") {
        said if !said.trim().is_empty() => Some(said),
        _ if terminal && policy == Policy::Person => None,
        _ if demo => Some(DEMO_PROMPT.to_owned()),
        _ => {
            return Err(CliError::Usage(format!(
                "say what {} shall do: diglot try --agent {agent} \"…\"",
                profile.title
            )));
        }
    };

    let program = match other {
        Some(adapter) => adapter.into(),
        None => std::env::current_exe().map_err(agents::AgentError::NoSelf)?,
    };
    let mut adapter_args: Vec<OsString> = vec!["acp".into(), "--agent".into(), agent.into()];
    if let Some(log) = log {
        adapter_args.extend(["--log".into(), log.into()]);
    }
    let wire = if args.wire {
        let folder = Scratch::new()?;
        adapter_args.extend(["--trace".into(), pipe::path(&folder.path).into()]);
        Some(Wire { folder, copy: args.trace, width: style::width() })
    } else {
        if let Some(trace) = args.trace {
            adapter_args.extend(["--trace".into(), trace.into()]);
        }
        None
    };
    if !args.command.is_empty() {
        adapter_args.push("--".into());
        adapter_args.extend(args.command.iter().map(Into::into));
    }

    let plan = Plan {
        adapter: program,
        adapter_args,
        cwd,
        title: profile.title,
        interactive: prompt.is_none(),
        prompt,
        fallback: demo.then_some(DEMO_PROMPT),
        policy,
        wire,
        style: Style::new(style::wanted(std::io::stdout().is_terminal())),
    };
    let runtime = super::runtime()?;
    let outcome = runtime.block_on(client::converse(plan));
    // A thread may still wait for a line from the terminal; nothing waits for it.
    runtime.shutdown_background();
    finish(outcome?)
}

fn finish(outcome: Outcome) -> Result<ExitCode, CliError> {
    let (message, code) = match outcome {
        Outcome::Stopped(reason) => match reason.as_str() {
            "end_turn" => return Ok(ExitCode::SUCCESS),
            "cancelled" => return Ok(ExitCode::from(exit::STOPPED)),
            reason => (format!("the turn ended early: {reason}"), 1),
        },
        Outcome::Quit => return Ok(ExitCode::from(exit::STOPPED)),
        Outcome::Refused { what, message, reason } => {
            let code = match reason.as_deref() {
                Some("agent_died" | "agent_not_started" | "agent_silent" | "agent_garbled") => exit::AGENT_DIED,
                Some("agent_not_found") => exit::NO_AGENT,
                _ => 1,
            };
            (format!("{what} failed: {message}"), code)
        }
        // The adapter said on stderr why.
        Outcome::Gone(Some(code)) if [exit::USAGE, exit::NO_AGENT, exit::FAULT].contains(&code) => {
            return Ok(ExitCode::from(code));
        }
        Outcome::Gone(_) => ("diglot acp ended before it had answered".into(), exit::AGENT_DIED),
        Outcome::Nonsense(problem) => (format!("diglot acp broke the protocol: {problem}"), exit::FAULT),
    };
    super::complain(&message);
    Ok(ExitCode::from(code))
}

/// A folder that only its owner can enter, and that is removed with all that is in it.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> Result<Self, CliError> {
        let name = format!("diglot-try-{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .create(&path)
            .map_err(|error| CliError::Fault(format!("cannot create {}: {error}; set TMPDIR", path.display())))?;
        // Agents tell real paths; with the real one they can be shown relative to it.
        let path = path.canonicalize().unwrap_or(path);
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays for the system to clean up.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
