//! The `diglot` program.

use std::process::ExitCode;
<<<<<<< HEAD

fn main() -> ExitCode {
    diglot::cli::main()
=======
use std::sync::Arc;

use diglot::mappings::Mappings;
use diglot::session::acp::{AcpOptions, Launch, run};
use diglot::trace::Trace;

fn main() -> ExitCode {
    if let Some(code) = diglot::peer::guard::entry() {
        return code;
    }
    let mappings = Arc::new(Mappings::builtin().clone());
    let Some(profile) = mappings.agents.get("claude").cloned().map(Arc::new) else { return ExitCode::from(70) };
    let launch = Launch {
        program: std::env::var_os("CLAUDE_CODE_EXECUTABLE").unwrap_or_else(|| "claude".into()),
        args: Vec::new(),
        env: profile.env.iter().map(|(k, v)| (k.into(), v.into())).collect(),
        env_remove: profile.unset.iter().map(Into::into).collect(),
        hint: profile.hint.clone(),
        guard: None,
    };
    let trace = match std::env::var_os("DIGLOT_TRACE").map(|p| Trace::create(p.as_ref(), None)) {
        Some(Ok(trace)) => trace,
        Some(Err(_)) => return ExitCode::from(70),
        None => Trace::disabled(),
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::from(70);
    };
    runtime.block_on(run(AcpOptions { mappings, profile, launch, trace: trace.clone() }));
    trace.close();
    runtime.shutdown_background();
    ExitCode::SUCCESS
>>>>>>> main
}
