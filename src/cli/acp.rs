//! `diglot acp`: what an editor starts.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::CliError;
use crate::agents;
use crate::config::Config;
use crate::mappings::Protocol;
use crate::session::acp::{self, AcpOptions, Launch};
use crate::session::pass;
use crate::trace::Trace;

const EXAMPLES: &str = "\
Examples:
  diglot acp                                   Claude Code for an ACP editor
  diglot acp --agent wave                      another agent
  diglot acp --agent grok                      an agent that speaks ACP itself, its defects repaired
  diglot acp --trace /tmp/diglot-%p.ndjson     record both wires (%p is the process id)
  diglot acp -- npx @anthropic-ai/claude-code  another way to start it

In Zed's settings:
  \"agent_servers\": { \"diglot\": { \"command\": \"diglot\", \"args\": [\"acp\"] } }";

/// Be an ACP agent on stdin and stdout, for an editor; the work is done by another agent
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct AcpArgs {
    /// The agent that works: claude, gemini, grok, codebuddy … or one of your configuration [default: claude]
    #[arg(long, value_name = "NAME")]
    pub(super) agent: Option<String>,
    /// Record both wires in this file (NDJSON, secrets masked) [env: DIGLOT_TRACE]
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// How to start the agent, instead of its usual command
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

pub(super) fn run(args: &AcpArgs, config: &Config) -> Result<ExitCode, CliError> {
    let runtime = super::runtime()?;
    let guards = super::guards(&runtime);
    let (mappings, profile) = super::profile(args.agent.as_deref(), &args.command, config)?;
    let trace = match args.trace.as_ref().or(config.trace.as_ref()) {
        Some(path) => Trace::create(path, Some(&profile.name))?,
        None => Trace::disabled(),
    };
    trace.event("started", || {
        let argv: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        serde_json::json!({"argv": argv, "cwd": std::env::current_dir().unwrap_or_default()})
    });
    let start = agents::start(&profile)?;
    let launch = Launch {
        program: start.program,
        args: start.args.into_iter().map(Into::into).collect(),
        env: profile.env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        env_remove: profile.unset.iter().map(Into::into).collect(),
        hint: profile.hint.clone(),
        guards,
    };
    let options = AcpOptions { mappings: Arc::new(mappings), profile: Arc::new(profile), launch, trace: trace.clone() };
    match options.profile.protocol {
        Protocol::Acp => runtime.block_on(pass::run(options)),
        Protocol::StreamJson | Protocol::AppServer | Protocol::OneShot => runtime.block_on(acp::run(options)),
    }
    trace.event("exit", || serde_json::json!({"code": 0}));
    trace.close();
    // A thread may still wait for the editor's next line; nothing waits for it.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
