//! What the tests of the peer layer share: a runtime with a deadline, and agents that are shell scripts.

use std::time::Duration;

use diglot::peer::child::ChildSpec;
use diglot::peer::guard::Guards;
use tokio::signal::unix::{SignalKind, signal};

/// Far more than anything here takes: a test that reaches it hangs.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs a test on a current-thread runtime.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system allows a runtime");
    runtime
        .block_on(async {
            // As diglot does: a starter of these tests that ignores them would have the agents ignore them too.
            for kind in [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()] {
                _ = signal(kind).expect("the system allows a handler");
            }
            tokio::time::timeout(DEADLINE, test).await
        })
        .expect("the test hangs: what it waits for has not happened")
}

/// An agent that is a shell script.
pub(crate) fn script(script: &str) -> ChildSpec {
    let mut spec = ChildSpec::new("sh", std::env::temp_dir());
    spec.args = vec!["-c".into(), script.into()];
    spec.guards = Guards::of_program(env!("CARGO_BIN_EXE_diglot"));
    spec
}
