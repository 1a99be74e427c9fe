//! Makes seeds for the fuzz targets of the golden files: `cargo run --bin seeds`, in this folder.

use std::path::Path;

use serde_json::Value;
use serde_json::value::RawValue;

#[derive(serde::Deserialize)]
struct Step<'a> {
    #[serde(rename = "in")]
    input: Option<String>,
    #[serde(default)]
    session: u32,
    #[serde(default)]
    process: u32,
    #[serde(borrow)]
    line: Option<&'a RawValue>,
    raw: Option<String>,
    stderr: Option<String>,
}

/// The conversations of hosts.
fn reverse(here: &Path) -> std::io::Result<()> {
    let folder = here.join("corpus/claude_over_acp");
    std::fs::create_dir_all(&folder)?;
    for entry in std::fs::read_dir(here.join("../golden/reverse"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        // The first profile, partial messages.
        let mut talk = b"\x0f".to_vec();
        talk.push(b'\n');
        for step in text.lines().skip(1).filter_map(|l| serde_json::from_str::<Step<'_>>(l).ok()) {
            let kind = match step.input.as_deref() {
                Some("host") => b'h',
                Some("agent") => b'a',
                Some("agent_closed") => b'c',
                Some("agent_failed") => b'x',
                Some("timer") => b't',
                Some("interrupted") => b'i',
                Some("relay") => b'm',
                Some("host_closed") => b'e',
                _ => continue,
            };
            talk.push(kind);
            talk.extend_from_slice(step.line.map(|l| l.get().to_owned()).or(step.raw).unwrap_or_default().as_bytes());
            talk.push(b'\n');
        }
        std::fs::write(folder.join(path.file_stem().unwrap_or_default()), talk)?;
    }
    Ok(())
}

/// A file that begins in the middle begins in the session `s`.
const OPENING: &str = r#"n{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}
a{"jsonrpc":"2.0","id":"@initialize","result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"authMethods":[]}}
n{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
a{"jsonrpc":"2.0","id":"@session/new","result":{"sessionId":"s"}}
"#;

/// The conversations of editors with agents that speak ACP themselves.
fn passing(here: &Path) -> std::io::Result<()> {
    let folder = here.join("corpus/acp_over_acp");
    std::fs::create_dir_all(&folder)?;
    for entry in std::fs::read_dir(here.join("../golden/acp"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        // The first profile.
        let mut talk = b"\x07\n".to_vec();
        if !text.contains(r#""method":"initialize""#) {
            talk.extend_from_slice(OPENING.as_bytes());
        }
        for step in text.lines().skip(1).filter_map(|l| serde_json::from_str::<Step<'_>>(l).ok()) {
            let kind = match (step.input.as_deref(), step.process) {
                (Some("editor"), _) => b'n',
                (Some("agent"), 0) => b'a',
                (Some("agent"), _) => b'b',
                (Some("agent_closed"), 0) => b'c',
                (Some("agent_closed"), _) => b'd',
                (Some("agent_failed"), _) => b'x',
                (Some("timer"), _) => b't',
                (Some("editor_closed"), _) => b'e',
                _ => continue,
            };
            talk.push(kind);
            talk.extend_from_slice(step.line.map(|l| l.get().to_owned()).or(step.raw).unwrap_or_default().as_bytes());
            talk.push(b'\n');
        }
        std::fs::write(folder.join(path.file_stem().unwrap_or_default()), talk)?;
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (talks, frames) = (here.join("corpus/acp_over_claude"), here.join("corpus/frames"));
    std::fs::create_dir_all(&talks)?;
    std::fs::create_dir_all(&frames)?;
    for entry in std::fs::read_dir(here.join("../golden/forward"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let (mut talk, mut wire) = (Vec::new(), b"\x03\x07\x20\x40".to_vec());
        for step in text.lines().skip(1).filter_map(|l| serde_json::from_str::<Step<'_>>(l).ok()) {
            let body = step.line.map(|l| l.get().to_owned()).or(step.raw).unwrap_or_default();
            let kind = match (step.input.as_deref(), step.session) {
                (Some("near"), _) => b'n',
                (Some("far"), 0) => b'f',
                (Some("far"), _) => b'g',
                (Some("far_closed"), 0) => b'c',
                (Some("far_closed"), _) => b'd',
                (Some("far_failed"), _) => b'x',
                (Some("timer"), _) => b't',
                (Some("read"), _) => b'r',
                (Some("near_closed"), _) => b'e',
                _ => continue,
            };
            let body = if body.is_empty() { step.stderr.unwrap_or_default().replace('\n', " ") } else { body };
            talk.push(kind);
            talk.extend_from_slice(body.as_bytes());
            talk.push(b'\n');
            if serde_json::from_str::<Value>(&body).is_ok() && wire.len() < 4096 {
                wire.extend_from_slice(body.as_bytes());
                wire.extend_from_slice(if kind == b'n' { b"\r\n" } else { b"\n" });
            }
        }
        let name = path.file_stem().unwrap_or_default();
        std::fs::write(talks.join(name), talk)?;
        std::fs::write(frames.join(name), wire)?;
    }
    reverse(here)?;
    passing(here)
}
