//! The command line.
//!
//! Owns the commands, the exit codes and the log. Invariants: stdout carries what the command is asked for and nothing
//! else, everything else goes to stderr; nothing is done before it is needed, but for the guard of the first agent, so that
//! an editor and a host are answered within milliseconds.

mod acp;
pub mod claude;
pub mod mappings;
mod mcp_relay;
mod quirks;
mod style;
mod try_;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::agents::{self, AgentError};
use crate::config::{self, Config, ConfigError};
use crate::mappings::{AgentProfile, MappingError, Mappings};
use crate::peer::guard::Guards;
use crate::trace::TraceError;
use mappings::{MappingsArgs, MappingsError};

/// What diglot's exit codes mean; the numbers are those of `sysexits.h`.
pub mod exit {
    /// The command line or the configuration is wrong.
    pub const USAGE: u8 = 64;
    /// The agent's program was not found.
    pub const NO_AGENT: u8 = 69;
    /// diglot itself failed.
    pub const FAULT: u8 = 70;
    /// The agent died, or never came up.
    pub const AGENT_DIED: u8 = 75;
    /// The person at the terminal stopped it.
    pub const STOPPED: u8 = 130;
}

const EXAMPLES: &str = "\
Examples:
  diglot try                            watch a whole conversation with the built-in agent
  diglot try --agent claude \"hello\"     the same with Claude Code
  diglot acp                            what an editor starts (Agent Client Protocol on stdin and stdout)
  diglot mappings permission            what becomes of the protocols' words about permissions

Exit codes: 64 wrong usage, 69 agent not found, 70 a fault of diglot, 75 the agent died.
Configuration: ~/.config/diglot/config.toml; a project's .diglot.toml may set `agent` and `log`.";

#[derive(Debug, Parser)]
#[command(
    name = "diglot",
    version,
    about = "An interpreter between agent protocols: editors that speak ACP, and coding agents that do not",
    after_help = EXAMPLES,
    arg_required_else_help = true,
    disable_help_subcommand = true,
)]
struct Cli {
    /// What to log on stderr: off, error, warn, info, debug, trace, or TARGET=LEVEL,… [env: DIGLOT_LOG]
    #[arg(long, global = true, value_name = "LEVEL", value_parser = log_filter)]
    log: Option<Targets>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Acp(acp::AcpArgs),
    Try(try_::TryArgs),
    /// Be `claude` for a program that drives it, and let an ACP agent do the work
    #[command(disable_help_flag = true)]
    Claude(DemoArgs),
    /// Show what becomes of each word of the protocols
    Mappings(MappingsArgs),
    /// Plays a scripted agent that speaks Claude's stream-json
    #[command(hide = true, disable_help_flag = true)]
    DemoAgent(DemoArgs),
    #[command(hide = true)]
    McpRelay(mcp_relay::McpRelayArgs),
}

#[derive(Debug, Args)]
struct DemoArgs {
    /// `--script FILE`, and whatever else a host gives to claude
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Mapping(#[from] MappingError),
    #[error(transparent)]
    Ledger(#[from] MappingsError),
    #[error("{0}")]
    Fault(String),
}

impl CliError {
    fn code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Config(_) | Self::Trace(_) | Self::Mapping(_) | Self::Ledger(_) => exit::USAGE,
            Self::Agent(AgentError::Protocol { .. }) => exit::USAGE,
            Self::Agent(AgentError::Unknown { .. } | AgentError::NotFound { .. }) => exit::NO_AGENT,
            Self::Agent(AgentError::NoSelf(_)) | Self::Fault(_) => exit::FAULT,
        }
    }
}

/// Runs the command that the arguments ask for and gives the process's exit code.
#[must_use]
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // `claude`'s command line is its own: nothing of diglot's may be read into it.
    if let Some(agent) = claude::by_name(&name.to_string_lossy()) {
        return claude::main(arguments, agent);
    }
    if arguments.next().is_some_and(|first| first == "claude") {
        return claude::main(arguments, None);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and the version are errors to the parser, but they go to stdout and end well.
            let code = if error.use_stderr() { exit::USAGE } else { 0 };
            // There is nobody left to tell when the output is closed.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    // The agent has its own way with everything, and no configuration.
    if let Command::DemoAgent(args) = cli.command {
        return agents::demo::run(args.args);
    }
    // Neither has the pipe, which an agent starts in any folder and at any time.
    let result = match cli.command {
        Command::McpRelay(args) => mcp_relay::run(&args),
        _ => run(cli),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(error.code())
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, CliError> {
    let cwd = std::env::current_dir().unwrap_or_default();
    let config = Config::load(&cwd, &agents::environment)?;
    let log = cli.log.as_ref().map(ToString::to_string);
    start_log(cli.log, &config);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    match cli.command {
        Command::Acp(args) => acp::run(&args, &config),
        Command::Try(args) => try_::run(args, log.as_deref(), &config, &cwd),
        Command::Mappings(args) => show_mappings(args),
        Command::DemoAgent(args) => Ok(agents::demo::run(args.args)),
        // Only behind a flag of diglot's, which it does not take.
        Command::Claude(args) => Ok(claude::main(args.args, None)),
        Command::McpRelay(args) => mcp_relay::run(&args),
    }
}

fn show_mappings(mut args: MappingsArgs) -> Result<ExitCode, CliError> {
    let mut stdout = std::io::stdout().lock();
    args.colour = style::wanted(stdout.is_terminal());
    match mappings::run(args, &mut stdout) {
        // Whoever reads has seen enough.
        Err(MappingsError::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        result => Ok(result.map(|()| ExitCode::SUCCESS)?),
    }
}

/// The tables with the user's own over them, and the profile that the flags, the command behind `--` and the configuration
/// choose.
fn profile(agent: Option<&str>, command: &[String], config: &Config) -> Result<(Mappings, AgentProfile), CliError> {
    let tables = Mappings::with_overrides(config::mapping_files(&agents::environment)?)?;
    let profile = agents::resolve(agent, command, config, &tables.agents, &agents::environment)?;
    Ok((tables, profile))
}

/// The async runtime: one thread, started only by the commands that need one.
fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CliError::Fault(format!("the runtime cannot be started: {error}")))
}

/// The guards of a command that will start an agent: what the first one is to start becomes clear while it comes up.
fn guards(runtime: &tokio::runtime::Runtime) -> Guards {
    let guards = Guards::default();
    let _inside = runtime.enter();
    guards.start_ahead();
    guards
}

/// Says on stderr what went wrong.
fn complain(message: &str) {
    // There is nobody left to tell when stderr is closed.
    let _ = writeln!(std::io::stderr(), "diglot: {message}");
}

fn log_filter(text: &str) -> Result<Targets, String> {
    let wrong =
        |part: &str| format!("`{part}` is no level; give off, error, warn, info, debug, trace, or TARGET=LEVEL,…");
    // A bare word that is no level would count as a target of which everything is logged.
    let known = |part: &&str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
    match text.split(',').find(|part| !known(part)) {
        Some(part) => Err(wrong(part)),
        None => text.parse().map_err(|_| wrong(text)),
    }
}

fn start_log(flag: Option<Targets>, config: &Config) {
    let mut problem = None;
    let filter = flag.unwrap_or_else(|| {
        let text = config.log.as_deref().unwrap_or("warn");
        log_filter(text).unwrap_or_else(|error| {
            problem = Some(format!("log `{text}` is ignored: {error}"));
            Targets::new().with_default(LevelFilter::WARN)
        })
    });
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(style::wanted(std::io::stderr().is_terminal()))
        .with_target(false);
    // Fails only if a log was started before, and then that one serves.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
    if let Some(problem) = problem {
        tracing::warn!("{problem}");
    }
}

/// An absolute form of a folder that has to exist.
fn folder(path: &Path) -> Result<std::path::PathBuf, CliError> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if absolute.is_dir() {
        Ok(absolute)
    } else {
        Err(CliError::Usage(format!("{} is no folder; name one that exists", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(args: &[&str]) -> Result<Command, clap::Error> {
        Cli::try_parse_from(["diglot"].iter().chain(args)).map(|cli| cli.command)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_stands_behind_two_dashes_is_the_agents_command() {
        let Ok(Command::Acp(args)) = parse(&["acp", "--agent", "wave", "--trace", "/t", "--", "w", "--agent", "x"])
        else {
            panic!("not understood")
        };
        assert_eq!((args.agent.as_deref(), args.trace.as_deref()), (Some("wave"), Some(Path::new("/t"))));
        assert_eq!(args.command, ["w", "--agent", "x"]);
        let Ok(Command::Try(args)) = parse(&["try", "--yes", "say", "hello", "--", "w", "-x"]) else {
            panic!("not understood")
        };
        assert_eq!((args.prompt.join(" ").as_str(), args.command.join(" ").as_str()), ("say hello", "w -x"));
    }

    #[test]
    fn yes_and_no_exclude_each_other() {
        assert!(parse(&["try", "--yes", "--no"]).is_err());
    }

    #[test]
    fn the_log_takes_a_level_or_targets_and_refuses_nonsense() {
        assert!(parse(&["acp", "--log", "debug"]).is_ok());
        assert!(parse(&["--log", "diglot=trace,warn", "acp"]).is_ok());
        let error = parse(&["acp", "--log", "loud"]).unwrap_err().to_string();
        assert!(error.contains("TARGET=LEVEL"), "{error}");
    }

    #[test]
    fn the_demo_agent_takes_whatever_a_host_gives_to_claude() {
        let args = ["-p", "--help", "--output-format", "stream-json", "--script", "f", "--", "--log", "loud"];
        let all: Vec<&str> = ["demo-agent"].into_iter().chain(args).collect();
        let Ok(Command::DemoAgent(demo)) = parse(&all) else { panic!("not understood") };
        assert_eq!(demo.args.iter().filter(|arg| *arg != "--").count(), args.len() - 1);
    }
}
