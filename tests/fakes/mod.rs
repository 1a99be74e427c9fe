//! Agents that are not there: their ACP as it was measured (or, for io, as it is documented), told by the prompt what to do.
//!
//! A fake runs inside of a test binary that is started again ([`command`]), so it needs no other language and no build of
//! its own. What it does in a turn stands in the prompt, one step a line:
//!
//! | step | |
//! |---|---|
//! | `say TEXT` | the answer, a piece for each word |
//! | `think TEXT` | a thought |
//! | `run COMMAND` | a call that runs a command, and asks for it as the agent asks |
//! | `write PATH TEXT` | a call that writes a file, and asks |
//! | `question`, `plan TEXT` | a question to the user, a plan to be approved, as the agent has them |
//! | `hang` | nothing, until it is cancelled |
//! | `fail` | the model answers with an error |
//! | `child` | starts a process that outlives the turn |
//! | `die` | exits with status 3 |
//!
//! Others belong to one agent and stand in its file.

pub(crate) mod acp;
pub(crate) mod codebuddy;
pub(crate) mod grok;
pub(crate) mod io;
pub(crate) mod mcp;

use std::path::Path;

/// A script that is the agent `name`; `test` is the name of the test that calls [`serve`].
pub(crate) fn command(name: &str, test: &str, at: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let binary = std::env::current_exe().unwrap();
    // What the test runner says is no protocol.
    let script = format!(
        "#!/bin/sh\nexport DIGLOT_FAKE={name} DIGLOT_FAKE_ARGS=\"$*\"\nexec 3>&1 >/dev/null\nexec '{}' --exact {test} --ignored --nocapture\n",
        binary.display()
    );
    std::fs::write(at, script).unwrap();
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Is the agent that the environment names, until its client leaves.
pub(crate) fn serve() {
    match std::env::var("DIGLOT_FAKE").as_deref() {
        Ok("grok") => grok::serve(),
        Ok("codebuddy") => codebuddy::serve(),
        Ok("io") => io::serve(),
        Ok(other) => panic!("there is no fake {other}"),
        // Somebody runs the ignored tests.
        Err(_) => {}
    }
}
