//! The simulated host.

use serde_json::{Value, json};

use super::super::reverse::Input;
use super::{HOOKS, Simulation, line};

impl Simulation {
    pub(super) fn host_says(&mut self, value: &Value) {
        self.feed(Input::Host(line(value)));
    }

    pub(super) fn control(&mut self, request: &Value) {
        self.host.controls += 1;
        let id = format!("h{}", self.host.controls);
        self.host_says(&json!({ "type": "control_request", "request_id": id, "request": request }));
    }

    pub(super) fn begin(&mut self) {
        self.host.begun = true;
        let mut request = json!({ "subtype": "initialize" });
        if self.rng.chance(35) {
            let mut hooks = json!({});
            for (at, event) in HOOKS.into_iter().enumerate() {
                if self.rng.chance(40) {
                    hooks[event] =
                        json!([{ "matcher": null, "hookCallbackIds": [format!("hook_{at}")], "timeout": 5 }]);
                }
            }
            request["hooks"] = hooks;
        }
        if self.rng.chance(15) {
            request["sdkMcpServers"] = json!(["calc"]);
        }
        if self.rng.chance(20) {
            request["forwardSubagentText"] = json!(true);
        }
        if self.rng.chance(10) {
            request["disallowedTools"] = json!(["WebFetch"]);
        }
        self.control(&request);
    }

    pub(super) fn prompt(&mut self) {
        self.host.prompts += 1;
        let uuid = format!("99999999-9999-4999-8999-{:012}", self.host.prompts);
        let content = match self.rng.below(8) {
            0 => json!(""),
            1 => {
                json!([{ "type": "text", "text": "go" }, { "type": "image", "source": { "type": "base64", "data": "AA" } }])
            }
            _ => json!("go"),
        };
        let mut value = json!({ "type": "user", "message": { "role": "user", "content": content }, "session_id": "",
            "parent_tool_use_id": null, "uuid": uuid });
        match self.rng.below(20) {
            0..=1 => value["priority"] = json!("now"),
            2..=3 => value["priority"] = json!("later"),
            4 => value["priority"] = json!("next"),
            _ => {}
        }
        if self.rng.chance(8) {
            value["shouldQuery"] = json!(false);
        }
        self.host_says(&value);
    }

    pub(super) fn answers(&mut self, any: bool) {
        let ids: Vec<String> = self.host.asks.keys().cloned().collect();
        let late = self.host.old.last().cloned().filter(|_| !any && self.rng.chance(10));
        let Some(id) = late.or_else(|| self.rng.pick(&ids).cloned()) else { return };
        let request = self.host.asks.remove(&id).unwrap_or_default();
        let body = match request["subtype"].as_str() {
            Some("mcp_message") => {
                json!({ "mcp_response": { "jsonrpc": "2.0", "id": request["message"]["id"], "result": {} } })
            }
            Some("elicitation") => match self.rng.below(4) {
                0 => json!({ "action": "accept", "content": { "colour": "r" } }),
                1 => json!({ "action": "cancel" }),
                2 => json!({}),
                _ => json!({ "action": "decline" }),
            },
            Some("hook_callback") => match self.rng.below(9) {
                0 => {
                    json!({ "hookSpecificOutput": { "permissionDecision": "deny", "permissionDecisionReason": "no" } })
                }
                1 => json!({ "hookSpecificOutput": { "permissionDecision": "allow" } }),
                2 => json!({ "hookSpecificOutput": { "permissionDecision": "ask" } }),
                3 => json!({ "decision": "block", "reason": "more" }),
                4 => json!({ "continue": false, "stopReason": "enough" }),
                5 => json!("nonsense"),
                6 => json!({ "hookSpecificOutput": { "additionalContext": "by the way" } }),
                _ => json!({}),
            },
            _ => match self.rng.below(10) {
                0 => json!({ "behavior": "deny", "message": "no" }),
                1 => json!({ "behavior": "deny", "message": "no", "interrupt": true }),
                2 => json!({ "allow": false, "reason": "no" }),
                3 => json!({ "behavior": "allow", "updatedInput": { "command": "other" } }),
                4 => json!({ "behavior": "maybe" }),
                5 => json!({ "behavior": "allow", "updatedPermissions": [{ "type": "setMode", "mode": "acceptEdits",
                    "destination": "session" }] }),
                6 => json!({ "behavior": "allow", "updatedInput": { "answers": { "Pick?": "A" } } }),
                _ => json!({ "behavior": "allow", "updatedInput": request["input"] }),
            },
        };
        let response = match self.rng.below(12) {
            0 => json!({ "subtype": "error", "request_id": id, "error": "the host failed" }),
            _ => json!({ "subtype": "success", "request_id": id, "response": body }),
        };
        self.host.old.push(id);
        self.host_says(&json!({ "type": "control_response", "response": response }));
    }

    pub(super) fn host_does(&mut self) {
        match self.rng.below(40) {
            0..=7 if self.host.begun || self.rng.chance(30) => self.prompt(),
            0..=7 => self.begin(),
            8 => self.control(&json!({ "subtype": "interrupt", "cancel_queued": self.host.prompts.is_multiple_of(2) })),
            9 => self.control(&json!({ "subtype": "interrupt" })),
            10 => {
                let modes = ["default", "plan", "acceptEdits", "bypassPermissions", "nonsense"];
                let mode = *self.rng.pick(&modes).unwrap_or(&"default");
                self.control(&json!({ "subtype": "set_permission_mode", "mode": mode }));
            }
            11 => {
                let model = *self.rng.pick(&["big", "small", "nothing", "default"]).unwrap_or(&"big");
                self.control(&json!({ "subtype": "set_model", "model": model }));
            }
            12 => {
                let subtypes = ["mcp_status", "get_context_usage", "no_such_thing", "rewind_files", "initialize"];
                let subtype = *self.rng.pick(&subtypes).unwrap_or(&"mcp_status");
                self.control(&json!({ "subtype": subtype }));
            }
            13 => {
                let uuid = format!("99999999-9999-4999-8999-{:012}", self.host.prompts);
                self.control(&json!({ "subtype": "cancel_async_message", "message_uuid": uuid }));
            }
            17 => {
                let tokens = *self.rng.pick(&[0_u64, 2000, 40_000]).unwrap_or(&0);
                self.control(&json!({ "subtype": "set_max_thinking_tokens", "max_thinking_tokens": tokens }));
            }
            18 => self.control(&json!({ "subtype": "apply_flag_settings", "settings": { "effortLevel": "high",
                "permissions": { "deny": ["WebFetch"] } } })),
            14 => self.feed(Input::Host(b"not json".to_vec())),
            15 => self.host_says(&json!({ "type": "keep_alive" })),
            16 if self.rng.chance(25) => self.feed(Input::HostClosed),
            _ if !self.host.silent => self.answers(false),
            _ => {}
        }
    }
}
