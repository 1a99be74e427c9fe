//! `diglot acp`: an ACP agent on stdin and stdout.

use std::process::ExitCode;

use crate::mappings::AgentProfile;
use crate::trace::Trace;

/// What `diglot acp` was asked to do.
#[derive(Debug)]
pub struct AcpOptions {
    /// The agent to start for each session.
    pub profile: AgentProfile,
    /// Where both wires are recorded.
    pub trace: Trace,
}

/// Why `diglot acp` ended early.
#[derive(Debug, thiserror::Error)]
pub enum AcpError {
    /// This build cannot run sessions.
    #[error("this build of diglot has no session layer; build it from a complete source tree")]
    Incomplete,
}

/// Serves the editor on stdin and stdout until stdin ends.
///
/// # Errors
/// When the agent's side cannot be served.
pub fn run(options: AcpOptions) -> Result<ExitCode, AcpError> {
    options.trace.close();
    Err(AcpError::Incomplete)
}
