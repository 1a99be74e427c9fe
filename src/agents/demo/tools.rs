//! What the scripted agent really does: commands and files.
//!
//! Invariants: a command runs in a session of its own, as with claude, so that only who knows it can end
//! it; the results have the shapes that claude's have.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{Agent, Flow, Input};
use crate::translate::diff;

impl Agent {
    /// Does what a tool call says, unless it already has its result.
    pub(super) fn run_tool(&mut self, id: &str) -> Flow {
        let Some(call) = self.find_call(id).filter(|call| call.open) else {
            return Ok(());
        };
        let (name, input) = (call.name.clone(), call.input.clone());
        // The model's message ends before a tool runs.
        self.close_message("tool_use")?;
        if name == "Bash" {
            return self.run_command(id, input["command"].as_str().unwrap_or_default());
        }
        let path = |input: &Value| self.cwd.join(input["file_path"].as_str().unwrap_or_default());
        let done = match name.as_str() {
            "Write" => write(&path(&input), input["content"].as_str().unwrap_or_default()),
            "Edit" => edit(&path(&input), &input),
            "Read" => read(&path(&input)),
            "TodoWrite" => {
                let new = input["todos"].clone();
                let old = std::mem::replace(&mut self.todos, new.clone());
                Ok(("The list was changed.".into(), json!({"oldTodos": old, "newTodos": new})))
            }
            other => Err(format!("No such tool available: {other}")),
        };
        match done {
            Ok((content, value)) => self.say_result(id, content.into(), false, value, None),
            Err(message) => {
                let error = format!("Error: {message}");
                self.say_result(id, message.into(), true, error.into(), None)
            }
        }
    }

    fn run_command(&mut self, id: &str, command: &str) -> Flow {
        let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
        let mut process = in_own_session(&[shell.into(), flag.into(), command.into()]);
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = match process.current_dir(&self.cwd).spawn() {
            Ok(child) => child,
            Err(error) => {
                let message = format!("the command could not be started: {error}");
                return self.say_result(id, message.clone().into(), true, message.into(), None);
            }
        };
        let pid = child.id();
        self.children.add(pid);
        let (sender, leaving) = (self.sender.clone(), self.children.leaving.clone());
        std::thread::spawn(move || {
            let output = child.wait_with_output();
            if !leaving.load(Ordering::SeqCst) {
                // The main thread is gone only when the process ends.
                let _ = sender.send(Input::CommandEnded(pid, output));
            }
        });
        let waited = self.wait_until(None, |agent| agent.ended.iter().any(|(ended, _)| *ended == pid));
        if waited.is_err() {
            kill_session(pid);
            self.children.remove(pid);
            return waited;
        }
        let at = self.ended.iter().position(|(ended, _)| *ended == pid);
        let Some((_, output)) = at.and_then(|at| self.ended.remove(at)) else {
            return Ok(());
        };
        let (content, error, value) = command_result(output);
        self.say_result(id, content.into(), error, value, None)
    }

    /// Starts a command and leaves it running.
    pub(super) fn spawn(&mut self, command: &[String], pid_file: Option<&str>) -> Flow {
        let words: Vec<OsString> = command.iter().map(Into::into).collect();
        let mut process = in_own_session(&words);
        process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(mut child) = process.current_dir(&self.cwd).spawn() {
            let pid = child.id();
            self.children.add(pid);
            if let Some(path) = pid_file {
                // Written aside and renamed, so that a reader never sees half a number.
                let path = self.cwd.join(path);
                let aside = path.with_extension("new");
                let _ = std::fs::write(&aside, pid.to_string()).and_then(|()| std::fs::rename(&aside, &path));
            }
            let children = self.children.clone();
            std::thread::spawn(move || {
                let _ = child.wait();
                children.remove(pid);
            });
        }
        Ok(())
    }
}

/// The result of a command: its text, whether it failed, and `tool_use_result`.
fn command_result(output: std::io::Result<Output>) -> (String, bool, Value) {
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            let message = format!("the command was lost: {error}");
            return (message.clone(), true, message.into());
        }
    };
    let stdout = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    let both = [stdout.as_str(), stderr.as_str()].into_iter().filter(|text| !text.is_empty());
    let both = both.collect::<Vec<_>>().join("\n");
    if !output.status.success() {
        let code = output.status.code().map_or_else(|| "by a signal".into(), |code| code.to_string());
        let text = format!("Exit code {code}\n{both}");
        return (text.clone(), true, format!("Error: {text}").into());
    }
    let quiet = both.is_empty();
    let text = if quiet { "(Bash completed with no output)".into() } else { both };
    let value = json!({
        "stdout": stdout, "stderr": stderr, "interrupted": false, "isImage": false, "noOutputExpected": quiet,
    });
    (text, false, value)
}

type Done = Result<(String, Value), String>;

fn write(path: &Path, content: &str) -> Done {
    let old = std::fs::read_to_string(path).ok();
    std::fs::write(path, content).map_err(|error| format!("{}: {error}", path.display()))?;
    let (kind, text) = match old {
        None => ("create", format!("File created successfully at: {}", path.display())),
        Some(_) => ("update", format!("The file {} has been updated.", path.display())),
    };
    let patch = old.as_deref().map_or_else(Vec::new, |old| structured_patch(old, content));
    let value = json!({
        "type": kind, "filePath": path, "content": content, "structuredPatch": patch, "originalFile": old,
        "userModified": false,
    });
    Ok((text, value))
}

fn edit(path: &Path, input: &Value) -> Done {
    let old = std::fs::read_to_string(path).map_err(|_| format!("File does not exist: {}", path.display()))?;
    let (from, to) =
        (input["old_string"].as_str().unwrap_or_default(), input["new_string"].as_str().unwrap_or_default());
    if !old.contains(from) {
        return Err(format!("String to replace not found in file.\nString: {from}"));
    }
    let all = input["replace_all"] == true;
    let new = if all { old.replace(from, to) } else { old.replacen(from, to, 1) };
    std::fs::write(path, &new).map_err(|error| format!("{}: {error}", path.display()))?;
    let value = json!({
        "filePath": path, "oldString": from, "newString": to, "originalFile": old,
        "structuredPatch": structured_patch(&old, &new), "userModified": false, "replaceAll": all,
    });
    Ok((format!("The file {} has been updated.", path.display()), value))
}

fn read(path: &Path) -> Done {
    let text = std::fs::read_to_string(path).map_err(|_| format!("File does not exist: {}", path.display()))?;
    let numbered = text.split('\n').enumerate().map(|(index, line)| format!("{}\t{line}", index + 1));
    let lines = text.split('\n').count();
    let file = json!({
        "filePath": path, "content": text, "numLines": lines, "startLine": 1, "totalLines": lines,
    });
    Ok((numbered.collect::<Vec<_>>().join("\n"), json!({"type": "text", "file": file})))
}

/// The hunks between two texts, as claude writes them.
fn structured_patch(old: &str, new: &str) -> Vec<Value> {
    let hunk = |hunk: diff::PatchHunk| {
        json!({
            "oldStart": hunk.old_start, "oldLines": hunk.old_lines,
            "newStart": hunk.new_start, "newLines": hunk.new_lines, "lines": hunk.lines,
        })
    };
    diff::hunks(old, new).into_iter().map(hunk).collect()
}

/// A command that leads a session of its own: this program starts itself, does that, and becomes it.
fn in_own_session(words: &[OsString]) -> Command {
    let this = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("diglot"));
    let mut command = Command::new(this);
    command.arg("demo-agent").arg("--lead-session").args(words);
    command
}

#[cfg(unix)]
pub(super) fn lead_session(words: &[OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt;

    // Fails only for a group leader, and a fresh child is none.
    let _ = rustix::process::setsid();
    if let Some((program, args)) = words.split_first() {
        let error = Command::new(program).args(args).exec();
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("cannot start {}: {error}\n", program.to_string_lossy()).as_bytes(),
        );
    }
    ExitCode::from(127)
}

#[cfg(not(unix))]
pub(super) fn lead_session(words: &[OsString]) -> ExitCode {
    let Some((program, args)) = words.split_first() else {
        return ExitCode::from(127);
    };
    let code = Command::new(program).args(args).status().ok().and_then(|status| status.code());
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(127))
}

/// Kills a command and what it started in its group.
#[cfg(unix)]
pub(super) fn kill_session(pid: u32) {
    use rustix::process::{Pid, Signal, kill_process_group};

    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

#[cfg(not(unix))]
pub(super) fn kill_session(_: u32) {}

#[cfg(unix)]
pub(super) fn kill_self() {
    use rustix::process::{Signal, getpid, kill_process};

    // Cannot fail for oneself.
    let _ = kill_process(getpid(), Signal::KILL);
}

#[cfg(not(unix))]
pub(super) fn kill_self() {
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_claudes_line_numbers_and_signs() {
        let patch = structured_patch("line1\nline2\nline3\n", "line1\nLINE2\nline2b\nline3\n");
        assert_eq!(
            patch,
            [json!({
                "oldStart": 1, "oldLines": 3, "newStart": 1, "newLines": 4,
                "lines": [" line1", "-line2", "+LINE2", "+line2b", " line3"],
            })]
        );
    }

    #[test]
    fn a_file_without_a_last_line_end_says_so() {
        let patch = structured_patch("", "hey");
        assert_eq!(patch[0]["lines"], json!(["+hey", "\\ No newline at end of file"]));
    }

    #[test]
    fn files_are_written_edited_and_read_for_real() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let (_, value) = write(&path, "a\nb\n").unwrap();
        assert_eq!((&value["type"], &value["originalFile"]), (&json!("create"), &Value::Null));
        let (_, value) = write(&path, "a\nc\n").unwrap();
        assert_eq!((&value["type"], &value["originalFile"]), (&json!("update"), &json!("a\nb\n")));
        edit(&path, &json!({"old_string": "c", "new_string": "d"})).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nd\n");
        assert!(edit(&path, &json!({"old_string": "zz", "new_string": "d"})).unwrap_err().contains("not found"));
        assert_eq!(read(&path).unwrap().0, "1\ta\n2\td\n3\t");
        assert!(read(&dir.path().join("none")).unwrap_err().contains("does not exist"));
    }
}
