//! An agent's process is started, read and written as a wire, and what goes wrong is said precisely.
#![cfg(unix)]

mod peer_common;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use diglot::peer::child::{Child, ChildSpec, ExitReport, SpawnError};
use diglot::peer::guard::Guards;
use diglot::peer::sink::SinkClosed;
use diglot::wire::frame::{Frame, NoiseReason};
use peer_common::{run, script};

async fn spawn(spec: &ChildSpec) -> Child {
    Child::spawn(spec).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn failure(spec: &ChildSpec) -> SpawnError {
    match Child::spawn(spec).await {
        Ok(_) => panic!("{spec:?} was started"),
        Err(error) => error,
    }
}

fn line(text: &str) -> Option<Frame> {
    Some(Frame::Line(text.to_owned().into()))
}

#[test]
fn the_end_of_stdin_reaches_the_agent_after_all_lines() {
    run(async {
        let Child { mut output, input, mut exit, control: _control } =
            spawn(&script("while read -r line; do printf '%s\\n' \"$line\"; done; exit 3")).await;
        input.send(b"{\"n\":1}\n{\"n\":2}\n".to_vec()).await.expect("the agent reads");
        input.send(b"{\"n\":3}\n".to_vec()).await.expect("the agent reads");
        input.close().await.expect("the agent reads to the end");
        for n in 1..=3 {
            assert_eq!(output.next_frame().await, line(&format!("{{\"n\":{n}}}")));
        }
        assert_eq!(output.next_frame().await, None);
        assert_eq!(exit.wait().await.code, Some(3));
    });
}

#[test]
fn large_lines_and_many_lines_pass_in_both_directions_in_order() {
    run(async {
        let Child { mut output, input, mut exit, control: _control } = spawn(&script("exec cat")).await;
        let large = format!("{{\"text\":\"{}\"}}", "é".repeat(1 << 19));
        let write = async {
            for n in 0..2000 {
                let text = if n % 500 == 250 { format!("{large}\n") } else { format!("{{\"n\":{n}}}\n") };
                input.send(text.into_bytes()).await.expect("the agent reads");
            }
            input.close().await.expect("the agent reads to the end");
        };
        let read = async {
            for n in 0..2000 {
                let expected = if n % 500 == 250 { large.clone() } else { format!("{{\"n\":{n}}}") };
                assert!(output.next_frame().await == line(&expected), "line {n}");
            }
            assert_eq!(output.next_frame().await, None);
        };
        tokio::join!(write, read);
        assert!(exit.wait().await.success());
    });
}

#[test]
fn noise_keeps_its_place_and_an_over_long_line_does_not_harm_the_next() {
    run(async {
        let mut spec =
            script("echo '{\"n\":1}'; echo Warning; head -c 100000 /dev/zero | tr '\\0' x; echo; echo '{\"n\":2}'");
        spec.max_line = 5000;
        let mut child = spawn(&spec).await;
        assert_eq!(child.output.next_frame().await, line("{\"n\":1}"));
        for (why, len) in [(NoiseReason::NotJson, 7), (NoiseReason::TooLong { limit: 5000 }, 100_000)] {
            let Some(Frame::Noise(noise)) = child.output.next_frame().await else { panic!("no noise") };
            assert_eq!((noise.why, noise.total_len), (why, len));
        }
        assert_eq!(child.output.next_frame().await, line("{\"n\":2}"));
        assert_eq!(child.output.next_frame().await, None);
    });
}

#[test]
fn the_agent_gets_its_arguments_environment_and_directory() {
    run(async {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let mut spec = script(r#"printf '{"%s":"%s %s","%s":"%s"}\n' "$0" "$SET" "${HOME-none}" "$1" "$(pwd -P)""#);
        spec.args.extend(["zero".into(), "o n\"e".into()]);
        spec.env = vec![("SET".into(), "with blank".into())];
        spec.env_remove = vec!["HOME".into()];
        spec.cwd = directory.path().canonicalize().expect("it was just made");
        let mut child = spawn(&spec).await;
        let expected = format!("{{\"zero\":\"with blank none\",\"o n\"e\":\"{}\"}}", spec.cwd.display());
        assert_eq!(child.output.next_frame().await, line(&expected));
    });
}

#[test]
fn the_program_is_looked_up_on_the_path_that_the_child_gets() {
    run(async {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let program = directory.path().join("some-agent");
        std::fs::write(&program, "#!/bin/sh\nexit 9\n").expect("the directory is ours");
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("the file is ours");
        let mut spec = script("");
        spec.program = "some-agent".into();
        assert!(
            matches!(failure(&spec).await, SpawnError::NotFound { program } if program.as_os_str() == "some-agent")
        );
        spec.env = vec![("PATH".into(), directory.path().into())];
        assert_eq!(spawn(&spec).await.exit.wait().await.code, Some(9));
    });
}

#[test]
fn what_prevents_a_start_is_told_apart() {
    run(async {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = directory.path().join("file");
        std::fs::write(&file, "#!/no/such/interpreter\n").expect("the directory is ours");
        let mut spec = script("");
        spec.cwd = directory.path().join("missing");
        assert!(matches!(failure(&spec).await, SpawnError::CwdMissing { cwd } if cwd == spec.cwd));
        spec.cwd = file.clone();
        assert!(matches!(failure(&spec).await, SpawnError::CwdNotADirectory { cwd } if cwd == file));
        // Not known to be missing before it is entered.
        spec.cwd = directory.path().join("long".repeat(100));
        let error = failure(&spec).await;
        assert!(matches!(&error, SpawnError::Other { .. }), "{error}");
        #[cfg(target_os = "linux")]
        assert!(error.to_string().contains("cannot be entered"), "{error}");
        spec.cwd = directory.path().into();
        spec.program = "./missing".into();
        assert!(matches!(failure(&spec).await, SpawnError::NotFound { .. }));
        spec.program = file.clone().into();
        assert!(matches!(failure(&spec).await, SpawnError::NotExecutable { program } if program == file));
        spec.program = directory.path().into();
        assert!(matches!(failure(&spec).await, SpawnError::NotExecutable { .. }));
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("the file is ours");
        spec.program = "./file".into();
        assert!(matches!(failure(&spec).await, SpawnError::NoInterpreter { .. }));
        spec.program = "".into();
        assert!(matches!(failure(&spec).await, SpawnError::NotFound { .. }));
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_guard_that_cannot_be_started_is_told_apart() {
    run(async {
        let mut spec = script("exit 0");
        spec.guards = Guards::of_program("/no/such/guard");
        assert!(matches!(failure(&spec).await, SpawnError::Guard { .. }));
        spec.guards = Guards::of_program("/bin/true");
        assert!(matches!(failure(&spec).await, SpawnError::Guard { .. }));
    });
}

#[test]
fn the_end_of_stderr_is_in_the_report() {
    run(async {
        let text = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo >&2; echo 'out of memory' >&2; exit 2";
        let mut child = spawn(&script(text)).await;
        let report = child.exit.wait().await;
        assert_eq!(report.code, Some(2));
        assert!(report.stderr_tail.len() <= 4096);
        assert!(report.stderr_tail.ends_with("xx\nout of memory\n"), "{report}");
        assert!(report.to_string().starts_with("exited with code 2; the end of its stderr: xx"));
    });
    let report = ExitReport { code: None, signal: Some(9), stderr_tail: "\n".to_owned() };
    assert_eq!(report.to_string(), "was ended by signal 9 (SIGKILL)");
}

#[test]
fn an_agent_that_stops_reading_is_reported_and_still_heard() {
    run(async {
        let mut child = spawn(&script("exec <&-; echo '{\"n\":1}'; exec sleep 1000")).await;
        assert_eq!(child.output.next_frame().await, line("{\"n\":1}"));
        let broken = SinkClosed { kind: io::ErrorKind::BrokenPipe };
        let closed = loop {
            if let Err(closed) = child.input.send(b"{}\n".to_vec()).await {
                break closed;
            }
        };
        assert_eq!(closed, broken);
        let report = child.stop(Duration::ZERO, |_| {}).await;
        assert_eq!(report.signal, Some(15));
    });
}

#[test]
fn the_end_of_stdout_is_seen_while_the_agent_lives() {
    run(async {
        let Child { mut output, input, mut exit, control: _control } =
            spawn(&script("echo '{}'; exec >&-; read line; exit 4")).await;
        assert_eq!(output.next_frame().await, line("{}"));
        assert_eq!(output.next_frame().await, None);
        drop(input);
        assert_eq!(exit.wait().await.code, Some(4));
    });
}

#[test]
fn stopping_closes_stdin_first_and_gives_all_that_is_still_said() {
    run(async {
        let child = spawn(&script("cat >/dev/null; seq -f '{\"n\":%.0f}' 1 20000; exit 3")).await;
        let mut frames = Vec::new();
        let report = child.stop(Duration::from_secs(20), |frame| frames.push(frame)).await;
        assert_eq!(report.code, Some(3));
        assert_eq!(frames.len(), 20_000);
        assert_eq!(frames.last().cloned(), line("{\"n\":20000}"));
    });
}

#[test]
fn stopping_an_agent_that_ignores_the_end_of_stdin_terminates_it() {
    run(async {
        let child = spawn(&script("exec sleep 1000")).await;
        let report = child.stop(Duration::ZERO, |_| {}).await;
        assert_eq!((report.code, report.signal), (None, Some(15)));
    });
}
