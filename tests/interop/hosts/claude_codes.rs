//! A host made of the crate `claude-codes`: the same commands and events as `ts_sdk.mjs`, over stdin and stdout. Messages are
//! told as the crate's own types write them, so what they cannot read shows up as an error of the conversation.
//!
//! The crate asks for no pieces of a text and has no end of a conversation but to kill the program.

use std::collections::HashMap;
use std::path::PathBuf;

use claude_codes::{AsyncClient, ClaudeCliBuilder, ClaudeInput, ClaudeOutput, ControlRequestPayload, ToolPermissionRequest};
use claude_codes::io::{ControlResponse, ControlResponsePayload};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use uuid::Uuid;

fn say(event: Value) {
    println!("{event}");
}

fn ended(error: impl std::fmt::Display) {
    say(json!({"event": "ended", "error": error.to_string()}));
}

/// The program of `$CLAUDE_UNDER_TEST` with these options of the check, or the crate's own defaults when there are none.
async fn start(options: &Value) -> Result<AsyncClient, claude_codes::Error> {
    let text = |name: &str| options[name].as_str().map(str::to_owned);
    let asks = options["callback"].as_bool() == Some(true);
    if !asks && ["resume", "model"].iter().all(|name| options[*name].is_null()) {
        return AsyncClient::with_defaults().await;
    }
    let mut cli = ClaudeCliBuilder::new().working_directory(PathBuf::from(text("cwd").unwrap_or_default()));
    if let Ok(program) = std::env::var("CLAUDE_UNDER_TEST") {
        cli = cli.command(program);
    }
    if asks {
        cli = cli.permission_prompt_tool("stdio");
    }
    if let Some(id) = text("resume") {
        cli = cli.resume(Some(id));
    }
    if let Some(model) = text("model") {
        cli = cli.model(model);
    }
    if let Some(allowed) = options["allowed"].as_array() {
        cli = cli.allowed_tools(allowed.iter().filter_map(Value::as_str));
    }
    let mut client = AsyncClient::from_builder(cli).await?;
    if asks {
        client.enable_tool_approval().await?;
    }
    Ok(client)
}

#[derive(Default)]
struct Open {
    tags: u64,
    asked: HashMap<u64, (String, ToolPermissionRequest)>,
    interrupts: HashMap<String, Value>,
}

impl Open {
    fn heard(&mut self, output: &ClaudeOutput) {
        match output {
            ClaudeOutput::ControlRequest(request) => {
                if let ControlRequestPayload::CanUseTool(asked) = &request.request {
                    self.tags += 1;
                    say(json!({
                        "event": "ask", "tag": self.tags, "tool": asked.tool_name, "input": asked.input, "call": asked.tool_use_id,
                        "suggestions": asked.permission_suggestions,
                    }));
                    self.asked.insert(self.tags, (request.request_id.clone(), asked.clone()));
                }
            }
            ClaudeOutput::ControlCancelRequest(cancel) => {
                if let Some((&tag, _)) = self.asked.iter().find(|(_, (id, _))| *id == cancel.request_id) {
                    self.asked.remove(&tag);
                    say(json!({"event": "withdrawn", "tag": tag}));
                }
            }
            ClaudeOutput::ControlResponse(response) => {
                let (id, error) = match &response.response {
                    ControlResponsePayload::Success { request_id, .. } => (request_id, None),
                    ControlResponsePayload::Error { request_id, error } => (request_id, Some(error)),
                };
                if let Some(tag) = self.interrupts.remove(id) {
                    say(json!({"event": "did", "tag": tag, "error": error}));
                }
            }
            _ => match serde_json::to_value(output) {
                Ok(message) => say(json!({"event": "message", "message": message})),
                Err(error) => ended(error),
            },
        }
    }

    fn answer(&mut self, command: &Value) -> Option<ControlResponse> {
        let (id, asked) = self.asked.remove(&command["tag"].as_u64()?)?;
        let answer = &command["answer"];
        let reason = answer["message"].as_str().unwrap_or_default();
        Some(match answer["behavior"].as_str() {
            Some("allow") if answer["updatedInput"].is_null() => asked.allow(&id),
            Some("allow") => asked.allow_with(answer["updatedInput"].clone(), &id),
            _ if answer["interrupt"].as_bool() == Some(true) => asked.deny_and_stop(reason, &id),
            _ => asked.deny(reason, &id),
        })
    }
}

/// A conversation of one prompt, by the crate's own loop until the result.
async fn once(command: &Value) {
    let mut client = match start(&command["options"]).await {
        Ok(client) => client,
        Err(error) => return ended(error),
    };
    let mut open = Open::default();
    let prompt = command["text"].as_str().unwrap_or_default();
    match client.query_stream(prompt).await {
        Ok(mut stream) => {
            while let Some(output) = stream.next().await {
                match output {
                    Ok(output) => open.heard(&output),
                    Err(error) => return ended(error),
                }
            }
            say(json!({"event": "ended"}));
        }
        Err(error) => ended(error),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    let mut open = Open::default();
    let mut client: Option<AsyncClient> = None;
    loop {
        let command = match &mut client {
            None => commands.next_line().await?,
            // Messages first: a read that is given up in the middle of a line would lose its beginning.
            Some(running) => tokio::select! {
                biased;
                output = running.receive() => {
                    match output {
                        Ok(output) => open.heard(&output),
                        Err(error) => { ended(error); client = None; }
                    }
                    continue;
                }
                command = commands.next_line() => command?,
            },
        };
        let Some(command) = command else { return Ok(()) };
        let command: Value = serde_json::from_str(&command)?;
        match (command["op"].as_str(), &mut client) {
            (Some("once"), _) => once(&command).await,
            (Some("open"), _) => match start(&command["options"]).await {
                Ok(started) => {
                    client = Some(started);
                    say(json!({"event": "opened"}));
                }
                Err(error) => ended(error),
            },
            (Some("prompt"), Some(client)) => {
                client.send(&ClaudeInput::user_message(command["text"].as_str().unwrap_or_default(), Uuid::new_v4())).await?;
            }
            (Some("interrupt"), Some(client)) => {
                let id = client.interrupt().await?;
                open.interrupts.insert(id, command["tag"].clone());
            }
            (Some("reply"), Some(client)) => {
                if let Some(answer) = open.answer(&command) {
                    client.send_control_response(answer).await?;
                }
            }
            (Some("close"), _) => return Ok(()),
            _ => {}
        }
    }
}
