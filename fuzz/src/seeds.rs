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
    text: Option<String>,
    failed: Option<String>,
}

/// A file that begins in the middle begins in the session `s`.
const OPENING: &str = r#"n{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}
a{"jsonrpc":"2.0","id":"@initialize","result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"authMethods":[]}}
n{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
a{"jsonrpc":"2.0","id":"@session/new","result":{"sessionId":"s"}}
"#;

/// The first byte of a host's conversation in which diglot serves files and terminals.
const SERVED: u8 = 0x3c;

/// Of a conversation with a host, by the target's letters.
fn of_host(step: &Step<'_>) -> Option<u8> {
    Some(match step.input.as_deref()? {
        "host" => b'h',
        "agent" => b'a',
        "agent_closed" => b'c',
        "agent_failed" => b'x',
        "timer" => b't',
        "interrupted" => b'i',
        "relay" => b'm',
        "host_closed" => b'e',
        "client" => b'd',
        "command_ended" => b'k',
        _ => return None,
    })
}

/// Of an editor's with an agent that speaks ACP itself.
fn of_editor(step: &Step<'_>) -> Option<u8> {
    Some(match (step.input.as_deref()?, step.process) {
        ("editor", _) => b'n',
        ("agent", 0) => b'a',
        ("agent", _) => b'b',
        ("agent_closed", 0) => b'c',
        ("agent_closed", _) => b'd',
        ("agent_failed", _) => b'x',
        ("timer", _) => b't',
        ("editor_closed", _) => b'e',
        _ => return None,
    })
}

/// The golden files of one folder; `head` chooses the profile.
fn folder(
    here: &Path,
    golden: &str,
    target: &str,
    head: u8,
    opening: &str,
    kind: fn(&Step<'_>) -> Option<u8>,
) -> std::io::Result<()> {
    let folder = here.join("corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    for entry in std::fs::read_dir(here.join("../golden").join(golden))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        let served = [r#""files":true"#, r#""terminals":true"#].iter().any(|switch| text.contains(switch));
        let mut talk = vec![if served { SERVED } else { head }, b'\n'];
        if !text.contains(r#""method":"initialize""#) {
            talk.extend_from_slice(opening.as_bytes());
        }
        for step in text.lines().skip(1).filter_map(|l| serde_json::from_str::<Step<'_>>(l).ok()) {
            let Some(kind) = kind(&step) else { continue };
            talk.push(kind);
            let done = step.failed.map(|why| format!("x {why}")).or(step.text).map(|text| text.replace('\n', "\\n"));
            let body = step.line.map(|l| l.get().to_owned()).or(step.raw).or(done).unwrap_or_default();
            talk.extend_from_slice(body.as_bytes());
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
    // The first profile, partial messages.
    folder(here, "reverse", "claude_over_acp", 0x0f, "", of_host)?;
    folder(here, "acp", "acp_over_acp", 0x07, OPENING, of_editor)
}
