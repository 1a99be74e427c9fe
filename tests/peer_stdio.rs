//! diglot's own stdin and stdout work as wires whatever they are, and nothing that others share with them is changed.
#![cfg(unix)]

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use diglot::peer::stdio;
use diglot::wire::frame::{Frame, write_line};
use rustix::fs::{OFlags, fcntl_getfl};

/// Not a test by itself: the process that the others start. It sends every message back until its stdin ends.
#[test]
fn echo() {
    if std::env::var_os("ECHO").is_none() {
        return;
    }
    // The test harness may have begun a line on stdout.
    let mut harness = std::io::stdout();
    harness.write_all(b"\n").and_then(|()| harness.flush()).expect("the test reads");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system allows a runtime");
    runtime.block_on(async {
        let mut frames = stdio::frames();
        let sink = stdio::sink(64);
        while let Some(frame) = frames.next_frame().await {
            let Frame::Line(line) = frame else { panic!("{frame:?}") };
            let mut out = Vec::new();
            write_line(&mut out, &line);
            sink.send(out).await.expect("the test reads");
        }
        sink.close().await.expect("the test reads to the end");
    });
    runtime.shutdown_background();
}

fn start(stdin: impl Into<Stdio>, stdout: impl Into<Stdio>) -> Child {
    Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", "echo", "--nocapture"])
        .env("ECHO", "1")
        .stdin(stdin)
        .stdout(stdout)
        .spawn()
        .expect("this test can be started again")
}

/// The messages among what the test harness of the other process prints besides.
fn messages(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with('{')).collect()
}

fn non_blocking(fd: impl AsFd) -> bool {
    fcntl_getfl(fd).expect("the descriptor is open").contains(OFlags::NONBLOCK)
}

/// Sends messages, small and large, one at a time and at once, and expects them back.
fn converse(near_in: impl Into<OwnedFd>, near_out: impl Into<OwnedFd>, shared: &[OwnedFd], mut child: Child) {
    let mut near_in = File::from(near_in.into());
    let mut lines = BufReader::new(File::from(near_out.into()));
    let mut receive = || {
        let mut line = String::new();
        while !line.starts_with('{') {
            line.clear();
            assert!(lines.read_line(&mut line).expect("the other process writes") > 0, "it ended");
        }
        line
    };
    for n in 0..100 {
        let message = format!("{{\"n\":{n}}}\n");
        near_in.write_all(message.as_bytes()).expect("the other process reads");
        assert_eq!(receive(), message);
    }
    for fd in shared {
        assert!(!non_blocking(fd), "a description that this process shares was changed");
    }
    let large: Vec<String> =
        (0..20).map(|n| format!("{{\"n\":{n},\"text\":\"{}\"}}\n", "x".repeat(n * 10_000))).collect();
    let all = large.concat();
    let writer = std::thread::spawn(move || {
        near_in.write_all(all.as_bytes())?;
        // Where both directions are one socket, closing one descriptor says nothing; a pipe knows only closing.
        _ = rustix::net::shutdown(&near_in, rustix::net::Shutdown::Write);
        std::io::Result::Ok(())
    });
    for message in large {
        assert!(receive() == message, "{:.10}", message);
    }
    writer.join().expect("it does not panic").expect("the other process reads");
    assert!(child.wait().expect("it runs").success());
}

#[test]
fn pipes() {
    let (theirs_in, near_in) = pipe().expect("pipes are allowed");
    let (near_out, theirs_out) = pipe().expect("pipes are allowed");
    let shared =
        [OwnedFd::from(theirs_in.try_clone().expect("it is open")), theirs_out.try_clone().expect("it is open").into()];
    let child = start(theirs_in, theirs_out);
    converse(near_in, near_out, &shared, child);
}

#[test]
fn sockets() {
    let (theirs_in, near_in) = UnixStream::pair().expect("sockets are allowed");
    let (near_out, theirs_out) = UnixStream::pair().expect("sockets are allowed");
    let shared =
        [OwnedFd::from(theirs_in.try_clone().expect("it is open")), theirs_out.try_clone().expect("it is open").into()];
    let child = start(OwnedFd::from(theirs_in), OwnedFd::from(theirs_out));
    converse(near_in, near_out, &shared, child);
}

#[test]
fn one_socket_for_both() {
    let (theirs, near) = UnixStream::pair().expect("sockets are allowed");
    let shared = [OwnedFd::from(theirs.try_clone().expect("it is open"))];
    let child = start(OwnedFd::from(theirs.try_clone().expect("it is open")), OwnedFd::from(theirs));
    let near_in = near.try_clone().expect("it is open");
    converse(near_in, near, &shared, child);
}

#[test]
fn files() {
    let mut input = tempfile::tempfile().expect("a temporary file can be made");
    let mut output = tempfile::tempfile().expect("a temporary file can be made");
    let text: String = (0..1000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    input.write_all(text.as_bytes()).expect("the file is ours");
    input.rewind().expect("the file is ours");
    let mut child = start(input, output.try_clone().expect("it is open"));
    assert!(child.wait().expect("it runs").success());
    let mut got = String::new();
    output.rewind().expect("the file is ours");
    output.read_to_string(&mut got).expect("the file is ours");
    assert_eq!(messages(&got), text.lines().collect::<Vec<_>>());
}

#[test]
fn nothing_at_all() {
    let mut child = start(Stdio::null(), Stdio::null());
    assert!(child.wait().expect("it runs").success());
}
