//! MCP servers that live in the host: the agent reaches them through `diglot mcp-relay`.
//!
//! Owns the connections of the relay. Keeps: every message is passed on as it is, so the handshake is between the agent's
//! client and the host's server (the Python SDK insists on it); a request of the client's is answered in any case.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::host::{About, NOBODY, parsed};
use super::{ClaudeOverAcp, RelayCommand};
use crate::translate::{Action, Actions};
use crate::wire::acp_client::{McpServer, NameValue};
use crate::wire::jsonrpc::{self, Id, Message, RpcError};
use crate::wire::stream_json_agent::HostAnswer;
use crate::wire::text::Raw;

impl RelayCommand {
    /// The relay as the server of that name.
    pub(super) fn server(&self, name: &str) -> McpServer {
        let pair = |(name, value): &(String, String)| NameValue { name: name.clone(), value: value.clone() };
        McpServer::Stdio {
            name: name.to_owned(),
            command: self.program.clone(),
            args: self.args.iter().cloned().chain([format!("--server={name}")]).collect(),
            env: self.env.iter().map(pair).collect(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Relays {
    open: Vec<(u64, String)>,
    /// Requests for a list of tools that wait, and of which server.
    listing: Vec<(u64, Id, String)>,
}

impl ClaudeOverAcp {
    /// The names of all MCP servers, as the host calls them.
    pub(super) fn server_names(&self) -> Vec<String> {
        let own = self.set.options.mcp_servers.iter().chain(&self.host.mcp_servers).map(|s| s.name().to_owned());
        let names: BTreeSet<String> = own.chain(self.host.sdk_servers.iter().cloned()).collect();
        names.into_iter().collect()
    }

    /// All MCP servers with their states: one that the agent did not get has failed (report 56).
    pub(super) fn server_states(&self) -> Vec<Value> {
        let agent = &self.agent;
        let unreached = |name: &String| self.set.relay.is_none() && self.host.sdk_servers.contains(name);
        let state = |name: &String| {
            let failed = agent.refused_servers || agent.left_out.contains(name) || unreached(name);
            json!({"name": name, "status": if failed { "failed" } else { "connected" }})
        };
        self.server_names().iter().map(state).collect()
    }

    /// The host's servers as the agent is to start them.
    pub(super) fn relay_servers(&mut self, out: &mut Actions) -> Vec<McpServer> {
        let Some(relay) = &self.set.relay else {
            for name in &self.host.sdk_servers {
                out.push(Action::Warn(format!(
                    "MCP server {name} lives in the host and cannot be reached on this system"
                )));
            }
            return Vec::new();
        };
        let names: BTreeSet<&String> = self.host.sdk_servers.iter().collect();
        names.into_iter().map(|name| relay.server(name)).collect()
    }

    /// A line of an MCP client, or its end.
    pub(super) fn relay_said(&mut self, conn: u64, server: &str, line: Option<&[u8]>, out: &mut Actions) {
        let Some(line) = line else {
            self.relays.open.retain(|(c, _)| *c != conn);
            self.relays.listing.retain(|(c, ..)| *c != conn);
            self.asks.retain(|a| !matches!(&a.about, About::Mcp { conn: c, .. } if *c == conn));
            return;
        };
        if !self.relays.open.iter().any(|(c, _)| *c == conn) {
            self.relays.open.push((conn, server.to_owned()));
        }
        let id = match Message::parse(line) {
            Ok(Message::Request { id, method, .. }) => {
                if method == "tools/list" {
                    self.relays.listing.push((conn, id.clone(), server.to_owned()));
                }
                Some(id)
            }
            Ok(_) => None,
            Err(malformed) => {
                out.note(format!("a line of an MCP client is no message: {malformed}"));
                return;
            }
        };
        if self.host.closed || !self.host.sdk_servers.iter().any(|s| s == server) {
            if let Some(id) = id {
                let line = jsonrpc::error(&id, &RpcError::new(-32603, NOBODY));
                out.push(Action::Relay { conn, line });
            }
            return;
        }
        // The line is JSON: it was just read.
        let message: Value = serde_json::from_slice(line).unwrap_or_default();
        let request = json!({"subtype": "mcp_message", "server_name": server, "message": message});
        self.ask_host(About::Mcp { conn, id }, &request, out);
    }

    /// The host's server answered.
    pub(super) fn mcp_answered(
        &mut self,
        conn: u64,
        id: Option<Id>,
        answer: Result<HostAnswer<'_>, String>,
        out: &mut Actions,
    ) {
        // A notification is acknowledged, and nobody waits for that.
        let Some(id) = id else { return };
        let response = match answer {
            Ok(answer) => parsed(answer.mcp_response).ok_or_else(|| "the host's MCP server sent no answer".to_owned()),
            Err(why) => Err(why),
        };
        let listing = self.relays.listing.iter().position(|(c, i, _)| *c == conn && *i == id);
        if let Some((_, _, server)) = listing.map(|at| self.relays.listing.remove(at))
            && let Ok(response) = &response
        {
            self.host.add_tools(&server, response.get("result"));
        }
        let line = match response {
            Ok(response) => match (response.get("result"), response.get("error")) {
                (Some(result), _) => jsonrpc::response(&id, result),
                (None, Some(error)) => {
                    let code = error.get("code").and_then(Value::as_i64).unwrap_or(-32603);
                    let message = error.get("message").and_then(Value::as_str).unwrap_or("error");
                    jsonrpc::error(&id, &RpcError::new(code, message))
                }
                (None, None) => jsonrpc::error(&id, &RpcError::new(-32603, "the host's MCP server sent no result")),
            },
            Err(why) => jsonrpc::error(&id, &RpcError::new(-32603, why)),
        };
        out.push(Action::Relay { conn, line });
    }

    /// A message of a host's server to its clients.
    pub(super) fn host_tells_client(&mut self, server: &str, message: Raw<'_>, out: &mut Actions) {
        let Some(message) = message else { return };
        for (conn, _) in self.relays.open.iter().filter(|(_, s)| s == server) {
            out.push(Action::Relay { conn: *conn, line: message.get().as_bytes().to_vec() });
        }
    }

    /// The agent is gone, and its clients with it.
    pub(super) fn relays_closed(&mut self, _out: &mut Actions) {
        self.relays.open.clear();
        self.relays.listing.clear();
        self.asks.retain(|a| !matches!(a.about, About::Mcp { .. }));
    }
}
