//! `diglot mcp-relay`: what an agent starts for an MCP server that lives in the host.
//!
//! Owns the end that the agent sees: a pipe between stdio and the relay's socket, which understands nothing of what passes.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::CliError;
use crate::peer::relay;

/// Carry an MCP conversation to the diglot that started the agent
#[derive(Debug, Args)]
pub(super) struct McpRelayArgs {
    /// The socket of that diglot
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// The server that is meant
    #[arg(long, value_name = "NAME")]
    server: String,
}

pub(super) fn run(args: &McpRelayArgs) -> Result<ExitCode, CliError> {
    let Some(token) = std::env::var_os(relay::TOKEN) else {
        return Err(CliError::Usage(format!(
            "{} is not set; this command is for agents that diglot started",
            relay::TOKEN
        )));
    };
    let runtime = super::runtime()?;
    let ended = runtime.block_on(relay::pipe(&args.socket, &args.server, &token.to_string_lossy()));
    // A thread may still wait for the next line of stdin; nothing waits for it.
    runtime.shutdown_background();
    ended.map_err(|error| {
        let socket = args.socket.display();
        CliError::Fault(format!("cannot reach {socket}: {error}; the diglot that made it may have ended"))
    })?;
    Ok(ExitCode::SUCCESS)
}
