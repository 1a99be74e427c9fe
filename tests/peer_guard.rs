//! No process of an agent outlives diglot, and an agent's end is reported as it was.
#![cfg(target_os = "linux")]

mod peer_common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use diglot::peer::child::{Child, ChildSpec, ExitReport};
use diglot::peer::guard::Guards;
use diglot::wire::frame::Frame;
use peer_common::{run, script};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO can be made");
}

/// A FIFO that processes hold open for writing: it ends when the last of them is dead.
struct Witness {
    path: PathBuf,
    reader: pipe::Receiver,
    own: Option<pipe::Sender>,
    _directory: TempDir,
}

impl Witness {
    fn new() -> Self {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let path = directory.path().join("witness");
        make_fifo(&path);
        let reader = pipe::OpenOptions::new().open_receiver(&path).expect("the FIFO was just made");
        // Without a writer the FIFO would have ended before it began.
        let own = pipe::OpenOptions::new().open_sender(&path).expect("its reader is open");
        Self { path, reader, own: Some(own), _directory: directory }
    }

    /// Waits for one line from each of `count` processes, a process id, and gives them in that order.
    async fn pids(&mut self, count: usize) -> Vec<Pid> {
        let mut text = String::new();
        while text.matches('\n').count() < count {
            let byte = self.reader.read_u8().await.expect("the test itself keeps the FIFO open");
            text.push(byte.into());
        }
        let number = |line: &str| line.parse().ok().and_then(Pid::from_raw);
        text.lines().map(|line| number(line).unwrap_or_else(|| panic!("no process id: {text}"))).collect()
    }

    /// Waits until all that held the FIFO are dead.
    async fn all_dead(mut self) {
        self.own = None;
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).await.expect("a FIFO can be read");
    }
}

/// An agent with a command in a session of its own; both tell their process ids to the witness, the command first.
const FAMILY: &str = r#"
    setsid sh -c 'exec 9>"$WITNESS"; echo $$ >&9; exec sleep 1000' &
    exec 9>"$WITNESS"
"#;
/// The agent says who it is and goes on for ever, whatever comes.
const STAY: &str = r"
    echo $$ >&9
    while :; do sleep 1000 & wait; done
";
const DEAF: &str = "trap '' TERM HUP INT\n";

fn family(parts: &[&str], witness: &Witness) -> ChildSpec {
    let mut spec = script(&parts.concat());
    spec.env = vec![("WITNESS".into(), witness.path.clone().into())];
    spec
}

async fn spawn(spec: &ChildSpec) -> Child {
    Child::spawn(spec).await.unwrap_or_else(|error| panic!("{error}"))
}

fn ended(code: Option<i32>, signal: Option<i32>) -> ExitReport {
    ExitReport { code, signal, stderr_tail: String::new() }
}

fn parent(pid: Pid) -> Pid {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).expect("it lives");
    let after_name = stat.rsplit(')').next().expect("a string has a last part");
    let parent = after_name.split_whitespace().nth(1).and_then(|field| field.parse().ok());
    parent.and_then(Pid::from_raw).expect("the fourth field is the parent")
}

#[test]
fn exit_codes_and_signals_are_passed_through() {
    run(async {
        for (text, expected) in [
            ("exit 0", ended(Some(0), None)),
            ("exit 7", ended(Some(7), None)),
            ("exit 143", ended(Some(143), None)),
            ("kill -KILL $$", ended(None, Some(9))),
            ("kill -TERM $$", ended(None, Some(15))),
            ("ulimit -c 0; kill -SEGV $$", ended(None, Some(11))),
        ] {
            let mut child = spawn(&script(text)).await;
            assert_eq!(child.exit.wait().await, expected, "{text}");
            assert_eq!(child.exit.wait().await, expected, "{text}, asked again");
        }
    });
}

/// Not a test by itself: the process that [`killed_holder`] kills. It starts the script and waits for ever.
#[test]
fn holder() {
    let Ok(text) = std::env::var("HOLDER_SCRIPT") else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("the system allows a runtime").block_on(async {
        let mut child = spawn(&script(&text)).await;
        child.exit.wait().await;
    });
}

/// Starts the script below a process of its own and kills that process without warning once `prepare` is through.
fn killed_holder(parts: &[&str], prepare: impl FnOnce(Pid)) {
    run(async {
        let mut witness = Witness::new();
        let mut holder = Command::new(std::env::current_exe().expect("this test has a path"))
            .args(["--exact", "holder", "--nocapture"])
            .env("HOLDER_SCRIPT", parts.concat())
            .env("WITNESS", &witness.path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("this test can be started again");
        let pids = witness.pids(2).await;
        let agent = pids.into_iter().find(|pid| parent(parent(*pid)) == Pid::from_child(&holder));
        prepare(agent.expect("the agent is the guard's child, and that the holder's"));
        holder.kill().expect("it runs");
        holder.wait().expect("it was killed");
        witness.all_dead().await;
    });
}

#[test]
fn nothing_survives_the_killing_of_diglot() {
    killed_holder(&[FAMILY, STAY], |_| {});
}

#[test]
fn nothing_survives_the_killing_of_diglot_when_the_agent_is_stopped() {
    killed_holder(&[FAMILY, STAY], |agent| kill_process(agent, Signal::STOP).expect("it lives"));
}

#[test]
fn nothing_survives_the_killing_of_diglot_when_all_ignore_sigterm() {
    killed_holder(&[DEAF, FAMILY, STAY], |_| {});
}

#[test]
fn nothing_survives_the_dropping_of_the_child() {
    run(async {
        let mut witness = Witness::new();
        let child = spawn(&family(&[FAMILY, STAY], &witness)).await;
        witness.pids(2).await;
        drop(child);
        witness.all_dead().await;
    });
}

#[test]
fn waiting_for_the_end_does_not_bring_it_about() {
    run(async {
        let Child { mut exit, input, output, control } = spawn(&script("read line; exit 4")).await;
        drop((output, control));
        tokio::select! {
            biased;
            report = exit.wait() => panic!("{report}"),
            sent = input.send(b"now\n".to_vec()) => sent.expect("the agent reads"),
        }
        assert_eq!(exit.wait().await, ended(Some(4), None));
    });
}

#[test]
fn what_an_agent_leaves_behind_is_ended_before_its_end_is_reported() {
    for parts in [&[FAMILY][..], &[DEAF, FAMILY]] {
        run(async {
            let mut witness = Witness::new();
            let text = [parts, &["echo $$ >&9; read go; exit 6"]].concat();
            let mut child = spawn(&family(&text, &witness)).await;
            witness.pids(2).await;
            child.input.send(b"go\n".to_vec()).await.expect("the agent reads");
            assert_eq!(child.exit.wait().await, ended(Some(6), None));
            // The command held the agent's stdout: without its end this would not come.
            assert_eq!(child.output.next_frame().await, None);
            witness.all_dead().await;
        });
    }
}

#[test]
fn a_command_that_ends_by_itself_after_the_agent_is_let_finish() {
    run(async {
        let mut witness = Witness::new();
        let text = r#"
            (exec 9>"$WITNESS"; echo 1 >&9; read go <"$WITNESS.go"; echo '{"late":true}') &
            exit 0
        "#;
        let go = witness.path.with_extension("go");
        make_fifo(&go);
        let mut child = spawn(&family(&[text], &witness)).await;
        witness.pids(1).await;
        std::fs::write(&go, "go\n").expect("the command reads");
        assert_eq!(child.output.next_frame().await, Some(Frame::Line("{\"late\":true}".into())));
        assert_eq!(child.exit.wait().await, ended(Some(0), None));
    });
}

#[test]
fn terminate_ends_a_stopped_agent_and_what_it_started() {
    run(async {
        let mut witness = Witness::new();
        let mut child = spawn(&family(&[FAMILY, STAY], &witness)).await;
        witness.pids(2).await;
        let agent = Pid::from_raw(child.control.pid().cast_signed()).expect("the agent has a number");
        kill_process(agent, Signal::STOP).expect("it lives");
        child.control.terminate();
        assert_eq!(child.exit.wait().await, ended(None, Some(15)));
        witness.all_dead().await;
    });
}

#[test]
fn terminate_ends_in_sigkill_for_those_who_ignore_it() {
    run(async {
        let mut witness = Witness::new();
        let mut child = spawn(&family(&[DEAF, FAMILY, STAY], &witness)).await;
        witness.pids(2).await;
        child.control.terminate();
        assert_eq!(child.exit.wait().await, ended(None, Some(9)));
        witness.all_dead().await;
    });
}

#[test]
fn kill_ends_all_at_once() {
    run(async {
        let mut witness = Witness::new();
        let mut child = spawn(&family(&[FAMILY, STAY], &witness)).await;
        witness.pids(2).await;
        child.control.kill();
        assert_eq!(child.exit.wait().await, ended(None, Some(9)));
        witness.all_dead().await;
        child.control.interrupt();
        child.control.terminate();
        child.control.kill();
    });
}

#[test]
fn interrupt_reaches_the_agent() {
    run(async {
        let text = "trap 'exit 5' INT; echo '{}'; read line";
        let mut child = spawn(&script(text)).await;
        assert_eq!(child.output.next_frame().await, Some(Frame::Line("{}".into())));
        child.control.interrupt();
        assert_eq!(child.exit.wait().await, ended(Some(5), None));
    });
}

#[test]
fn the_killing_of_the_guard_reaches_the_agent_by_itself() {
    run(async {
        let text = "trap 'echo \"{}\"; exit' TERM; echo '{\"n\":1}'; read line";
        let mut child = spawn(&script(text)).await;
        assert_eq!(child.output.next_frame().await, Some(Frame::Line("{\"n\":1}".into())));
        let agent = Pid::from_raw(child.control.pid().cast_signed()).expect("the agent has a number");
        kill_process(parent(agent), Signal::KILL).expect("the guard lives as long as the agent");
        // Nobody has asked for the end yet, so this is the parent-death signal alone.
        assert_eq!(child.output.next_frame().await, Some(Frame::Line("{}".into())));
    });
}

#[test]
fn the_killing_of_the_guard_ends_the_agent_whatever_it_ignores() {
    for parts in [&[r#"exec 9>"$WITNESS""#, STAY][..], &[DEAF, r#"exec 9>"$WITNESS""#, STAY]] {
        run(async {
            let mut witness = Witness::new();
            let mut child = spawn(&family(parts, &witness)).await;
            let agent = witness.pids(1).await[0];
            kill_process(parent(agent), Signal::KILL).expect("the guard lives as long as the agent");
            assert_eq!(child.exit.wait().await, ended(None, None));
            witness.all_dead().await;
        });
    }
}

/// Guards that hold the witness open and say a line to it when they start.
fn witnessed(witness: &Witness, directory: &Path) -> Guards {
    let program = directory.join("guard");
    let diglot = env!("CARGO_BIN_EXE_diglot");
    let text = format!("#!/bin/sh\nexec 9>'{}'\necho $$ >&9\nexec '{diglot}' \"$@\"\n", witness.path.display());
    // Written by another process: a test beside this one that forks meanwhile would hold it open, and it could not be run.
    let write = r#"printf %s "$1" >"$2" && chmod 755 "$2""#;
    let written = Command::new("sh").args(["-c", write, "sh", &text]).arg(&program).status();
    assert!(written.expect("there is a shell").success());
    Guards::of_program(program)
}

#[test]
fn a_guard_that_was_started_ahead_serves_the_next_agent_and_each_one_later_gets_its_own() {
    run(async {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let mut witness = Witness::new();
        let mut spec = script("read go; exit 3");
        spec.guards = witnessed(&witness, directory.path());
        spec.guards.start_ahead();
        let ahead = witness.pids(1).await[0];
        let first = spawn(&spec).await;
        let second = spawn(&spec).await;
        let later = witness.pids(1).await[0];
        let guard = |child: &Child| parent(Pid::from_raw(child.control.pid().cast_signed()).expect("it has a number"));
        assert_eq!((guard(&first), guard(&second)), (ahead, later));
        for mut child in [first, second] {
            child.input.send(b"go\n".to_vec()).await.expect("the agent reads");
            assert_eq!(child.exit.wait().await, ended(Some(3), None));
        }
        drop(spec);
        witness.all_dead().await;
    });
}

#[test]
fn a_guard_that_was_started_ahead_and_is_not_needed_ends() {
    run(async {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let mut witness = Witness::new();
        let guards = witnessed(&witness, directory.path());
        guards.start_ahead();
        witness.pids(1).await;
        drop(guards);
        witness.all_dead().await;
    });
}

#[test]
fn a_guard_that_was_killed_before_it_was_needed_is_replaced() {
    run(async {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let mut witness = Witness::new();
        let mut spec = script("exit 4");
        spec.guards = witnessed(&witness, directory.path());
        spec.guards.start_ahead();
        let ahead = witness.pids(1).await[0];
        kill_process(ahead, Signal::KILL).expect("it waits for its order");
        let stat = format!("/proc/{}/stat", ahead.as_raw_pid());
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::task::yield_now().await;
        }
        assert_eq!(spawn(&spec).await.exit.wait().await, ended(Some(4), None));
    });
}

/// What `diglot acp`, started by a program that ignores these signals, answers to `session/new` with this agent.
fn below_one_that_ignores(signals: &str, agent: &[&str], out: &Path) -> String {
    // A shell cannot ignore SIGCHLD for what it starts.
    let mut diglot = Command::new("env")
        .args([&format!("--ignore-signal={signals}"), env!("CARGO_BIN_EXE_diglot"), "acp", "--"])
        .args(agent)
        .env("OUT", out)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("coreutils are there");
    let mut stdin = diglot.stdin.take().expect("it is piped");
    let mut answers = BufReader::new(diglot.stdout.take().expect("it is piped")).lines();
    let mut answer = String::new();
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#,
    ] {
        writeln!(stdin, "{line}").expect("diglot reads");
        answer = answers.next().expect("diglot answers").expect("in text");
    }
    drop(stdin);
    diglot.wait().expect("it ends with its stdin");
    answer
}

#[test]
fn an_agent_ignores_no_signal_that_diglot_catches_whatever_its_starter_ignored() {
    let directory = TempDir::new().expect("a temporary directory can be made");
    let out = directory.path().join("status");
    let agent = ["sh", "-c", "cat /proc/$$/status >\"$OUT\""];
    below_one_that_ignores("HUP,INT,TERM,CHLD", &agent, &out);
    let status = std::fs::read_to_string(&out).expect("the agent has run");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("Linux says so");
    let ignored = u64::from_str_radix(ignored.trim(), 16).expect("it is a mask");
    for signal in [Signal::HUP, Signal::INT, Signal::TERM, Signal::CHILD] {
        assert_eq!(ignored & (1 << (signal.as_raw() - 1)), 0, "{signal:?} in {ignored:x}");
    }
}

#[test]
fn a_program_that_is_not_there_is_told_also_below_a_starter_that_ignores_its_children() {
    let directory = TempDir::new().expect("a temporary directory can be made");
    let answer = below_one_that_ignores("CHLD", &["no-such-program"], directory.path());
    assert!(answer.contains("no-such-program was not found"), "{answer}");
}

#[test]
fn what_an_agent_is_started_with_is_seen_in_its_own_process_only() {
    run(async {
        let mut spec = script("read go");
        spec.args.push("an-argument-of-the-agent".into());
        spec.env.push(("A_VARIABLE".into(), "a-value-of-the-agent".into()));
        let child = spawn(&spec).await;
        let agent = Pid::from_raw(child.control.pid().cast_signed()).expect("the agent has a number");
        let of = |pid: Pid| {
            let read = |file: &str| std::fs::read(format!("/proc/{}/{file}", pid.as_raw_pid())).expect("it lives");
            String::from_utf8_lossy(&[read("cmdline"), read("environ")].concat()).into_owned()
        };
        for secret in ["an-argument-of-the-agent", "a-value-of-the-agent"] {
            assert!(of(agent).contains(secret), "{secret}");
            assert!(!of(parent(agent)).contains(secret), "{secret}");
        }
        child.stop(Duration::ZERO, |_| {}).await;
    });
}

#[test]
fn an_order_that_fits_into_no_socket_at_once_arrives_whole() {
    run(async {
        let mut spec = script("echo \"{\\\"n\\\":$#,\\\"last\\\":\\\"$9\\\"}\"");
        spec.args.push("sh".into());
        spec.args.extend((0..8).map(|_| "x".repeat(120_000).into()));
        spec.args.push("the end".into());
        let mut child = spawn(&spec).await;
        assert_eq!(child.output.next_frame().await, Some(Frame::Line("{\"n\":9,\"last\":\"the end\"}".into())));
        spec.args.extend((0..100).map(|_| "x".repeat(120_000).into()));
        let Err(error) = Child::spawn(&spec).await else { panic!("the system takes 12 MB of arguments") };
        assert!(error.to_string().contains("Argument list too long"), "{error}");
        spec.args = vec!["a\0b".into()];
        let Err(error) = Child::spawn(&spec).await else { panic!("no argument has a NUL") };
        assert!(error.to_string().contains("NUL"), "{error}");
    });
}

#[test]
fn an_orphan_that_ends_stays_no_zombie() {
    run(async {
        let mut witness = Witness::new();
        let text = r#"exec 9>"$WITNESS"; (sh -c 'echo $$ >&9' &); read go"#;
        let child = spawn(&family(&[text], &witness)).await;
        let orphan = witness.pids(1).await[0];
        let entry = format!("/proc/{}", orphan.as_raw_pid());
        while std::fs::exists(&entry).expect("/proc can be read") {
            tokio::task::yield_now().await;
        }
        child.stop(Duration::ZERO, |_| {}).await;
    });
}

#[test]
fn no_descriptor_of_the_agent_stays_in_the_guard_and_none_of_the_guard_in_the_agent() {
    run(async {
        let child = spawn(&script("read go")).await;
        let agent = Pid::from_raw(child.control.pid().cast_signed()).expect("the agent has a number");
        let link = |pid: Pid, fd: &str| {
            let path = format!("/proc/{}/fd/{fd}", pid.as_raw_pid());
            std::fs::read_link(path).map(|link| link.to_string_lossy().into_owned())
        };
        let open = |pid: Pid| -> Vec<String> {
            let path = format!("/proc/{}/fd", pid.as_raw_pid());
            let entries = std::fs::read_dir(path).expect("it lives").flatten();
            entries.flat_map(|entry| link(pid, &entry.file_name().to_string_lossy())).collect()
        };
        let (agents, guards) = (open(agent), open(parent(agent)));
        for fd in ["0", "1", "2"] {
            let stdio = link(agent, fd).expect("the agent has stdio");
            assert!(stdio.starts_with("pipe:") && !guards.contains(&stdio), "{fd}: {guards:?}");
        }
        let lifeline = guards.iter().rfind(|path| path.starts_with("socket:"));
        let lifeline = lifeline.expect("the guard has a lifeline");
        assert!(!agents.contains(lifeline), "{agents:?}");
        child.stop(Duration::ZERO, |_| {}).await;
    });
}
