//! Modes and models: the mode that asks, and the editor's choice.
//!
//! Owns quirks 53 (Qwen 0.24 `auto`, codex-acp 2.6 `agent`, Vibe 3.0 `accept-edits`: by default a model decides or nobody is
//! asked), 54 (where the modes are: a list, or an option of the category `mode`), 55 (Gemini, CodeBuddy, Copilot: any word is
//! taken for a model) and 56 (Gemini 0.61: a mode that was set is told as text). Keeps: a session begins in the mode that asks,
//! also when it is loaded; what the editor sets afterwards is the user's will, and is set again in a process that took the
//! session up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::near::Change;
use super::{AcpOverAcp, Asked, strict};
use crate::translate::{Action, Actions, Timer};
use crate::wire::acp::methods;
use crate::wire::acp_client::{ConfigOption, Models, Modes as RawModes, Named, Opened, methods as more};
use crate::wire::jsonrpc::RpcError;
use crate::wire::text::{Raw, items, text};

/// How long a session waits for its mode: agents answer within a second.
const LIMIT: Duration = Duration::from_secs(10);

/// The modes, models and options of a session.
#[derive(Debug, Default)]
pub(super) struct Modes {
    current: Option<String>,
    all: Vec<String>,
    /// The option that sets the mode, where there is no list of modes.
    option: Option<String>,
    models: Vec<String>,
    /// The values of each option; an option without a list takes any.
    options: BTreeMap<String, Vec<String>>,
    /// The mode that the editor chose.
    pub(super) chosen: Option<String>,
    /// The mode that diglot set before the session began.
    set: Option<String>,
}

fn string(raw: Raw<'_>) -> Option<String> {
    text(raw).map(std::borrow::Cow::into_owned)
}

/// The values of an option; they may stand in groups.
fn values(raw: Raw<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for item in items(raw).unwrap_or_default() {
        let named = Named::read(Some(item));
        all.extend(string(named.value));
        all.extend(values(named.options));
    }
    all
}

impl Modes {
    pub(super) fn read(opened: &Opened<'_>) -> Self {
        let modes = RawModes::read(opened.modes);
        let of = |raw: Raw<'_>, id: fn(&Named<'_>) -> Option<String>| -> Vec<String> {
            items(raw).unwrap_or_default().into_iter().filter_map(|item| id(&Named::read(Some(item)))).collect()
        };
        let mut this = Self {
            current: string(modes.current_mode_id),
            all: of(modes.available_modes, |named| string(named.id)),
            models: of(Models::read(opened.models).available_models, |named| string(named.model_id)),
            ..Self::default()
        };
        for item in items(opened.config_options).unwrap_or_default() {
            let option = ConfigOption::read(Some(item));
            let Some(id) = string(option.id) else { continue };
            let all = values(option.options);
            if this.all.is_empty() && text(option.category).as_deref() == Some("mode") {
                this.all.clone_from(&all);
                this.current = string(option.current_value);
                this.option = Some(id.clone());
            }
            this.options.insert(id, all);
        }
        this
    }

    /// The mode in which the session should be and is not.
    fn wanted(&self, asking: Option<&String>) -> Option<String> {
        let wanted = self.chosen.as_ref().or(asking)?;
        (self.current.as_ref() != Some(wanted) && self.all.contains(wanted)).then(|| wanted.clone())
    }

    pub(super) fn choose(&mut self, mode: String) {
        self.current = Some(mode.clone());
        self.chosen = Some(mode);
    }

    pub(super) fn choose_option(&mut self, option: &str, value: String) {
        if self.option.as_deref() == Some(option) {
            self.choose(value);
        }
    }

    /// The agent says that another mode is in force.
    pub(super) fn now(&mut self, mode: String) {
        self.current = Some(mode);
    }

    /// What the editor is told of the session: with the mode that was set.
    pub(super) fn correct(&self, result: &RawValue) -> Box<RawValue> {
        let Some(mode) = &self.set else { return result.to_owned() };
        let Ok(mut all) = serde_json::from_str::<Map<String, Value>>(result.get()) else { return result.to_owned() };
        if let Some(modes) = all.get_mut("modes").filter(|modes| modes.is_object()) {
            modes["currentModeId"] = json!(mode);
        }
        for option in all.get_mut("configOptions").and_then(Value::as_array_mut).into_iter().flatten() {
            let offers = option["options"].as_array().is_some_and(|list| {
                list.iter().any(|one| {
                    one["value"] == **mode
                        || one["options"].as_array().is_some_and(|group| group.iter().any(|one| one["value"] == **mode))
                })
            });
            if option["category"] == "mode" && offers {
                option["currentValue"] = json!(mode);
            }
        }
        strict::raw(Value::Object(all).to_string())
    }
}

impl AcpOverAcp {
    /// Sets the mode that asks before the session begins, if it is not in force.
    pub(super) fn ask_for_mode(&mut self, id: &Arc<str>, out: &mut Actions) {
        let asking = self.set.profile.acp.modes.get("default");
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(mode) = session.modes.wanted(asking) else { return self.begin(id, out) };
        session.modes.set = Some(mode.clone());
        let (method, params) = match &session.modes.option {
            Some(option) => {
                (more::SESSION_SET_CONFIG_OPTION, json!({ "sessionId": **id, "configId": option, "value": mode }))
            }
            None => (methods::SESSION_SET_MODE, json!({ "sessionId": **id, "modeId": mode })),
        };
        self.ask_agent(method, &params, Asked::AskingMode(id.clone()), out);
        out.push(Action::SetTimer(Timer::Control, LIMIT));
    }

    pub(super) fn mode_answered(&mut self, id: &Arc<str>, is_set: bool, out: &mut Actions) {
        if let Some(session) = self.sessions.get_mut(id) {
            if is_set {
                session.modes.current = session.modes.set.clone();
            } else {
                out.note("the agent refused the mode that asks");
                session.modes.set = None;
            }
        }
        if !self.asked.values().any(|asked| matches!(asked, Asked::AskingMode(_))) {
            out.push(Action::ClearTimer(Timer::Control));
        }
        self.begin(id, out);
    }

    /// The agent does not say whether the mode is set: the session begins all the same.
    pub(super) fn modes_timed_out(&mut self, out: &mut Actions) {
        let waiting: Vec<Arc<str>> = self
            .asked
            .values()
            .filter_map(|asked| match asked {
                Asked::AskingMode(id) => Some(id.clone()),
                _ => None,
            })
            .collect();
        self.asked.retain(|_, asked| !matches!(asked, Asked::AskingMode(_)));
        for id in waiting {
            self.mode_answered(&id, false, out);
        }
    }

    /// A model that is not in the agent's list is refused here: some agents take any word, and fail with the next prompt.
    pub(super) fn check_model(&self, session: Option<&str>, model: &str) -> Result<(), RpcError> {
        let known = session.and_then(|id| self.sessions.get(id)).map(|session| &session.modes.models);
        match known {
            Some(models) if !models.is_empty() && !models.iter().any(|known| known == model) => {
                Err(RpcError::invalid_params(format!("session/set_model: there is no model {model:?} here")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_option(&self, session: Option<&str>, option: &str, value: &str) -> Result<(), RpcError> {
        let known = session.and_then(|id| self.sessions.get(id)).and_then(|session| session.modes.options.get(option));
        match known {
            Some(values) if !values.is_empty() && !values.iter().any(|known| known == value) => {
                Err(RpcError::invalid_params(format!("session/set_config_option: {option:?} has no value {value:?}")))
            }
            _ => Ok(()),
        }
    }

    /// A piece of text that says only that the mode was set (Gemini); the editor, which set it, knows.
    pub(super) fn says_only_the_mode(&self, session: &str, said: &str) -> bool {
        let waits = |asked: &Asked| {
            matches!(asked, Asked::Pass(passed) if passed.session.as_deref() == Some(session) && matches!(passed.change, Change::Mode(_)))
                || matches!(asked, Asked::AskingMode(id) if &**id == session)
        };
        said.starts_with("[MODE_UPDATE] ") && self.asked.values().any(waits)
    }
}
