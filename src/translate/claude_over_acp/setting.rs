//! The mode, the model and the other options of the agent, and how the host sets them.
//!
//! Keeps: a change is answered to whoever asked for it when the agent has answered it, or has not in time; a choice is made
//! only where it is clear which one is meant.

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ClaudeOverAcp;
use super::agent::{Asked, Change, Choice, Choices, Stage};
use super::open::members;
use crate::translate::rules::PermissionMode;
use crate::translate::{Action, Actions, Timer};
use crate::wire::acp::methods;
use crate::wire::acp_client::{ConfigOption, Named, SetConfigOption, SetMode, SetModel, methods as more};
use crate::wire::jsonrpc::ErrorObject;
use crate::wire::stream_json;
use crate::wire::stream_json_agent as say;
use crate::wire::text::{Raw, items, text};

/// How long a change of the mode or the model may take.
const SETTING_LIMIT: Duration = Duration::from_secs(10);

impl ClaudeOverAcp {
    /// Configuration options: the newer place of modes and models (quirk 54).
    pub(super) fn read_options(&mut self, raw: Raw<'_>) {
        for raw in items(raw).unwrap_or_default() {
            let option = ConfigOption::read(Some(raw));
            let Some(id) = text(option.id) else { continue };
            let target = match text(option.category).as_deref().unwrap_or(&id) {
                "mode" => &mut self.agent.modes,
                "model" => &mut self.agent.models,
                "thought_level" => &mut self.agent.efforts,
                _ => continue,
            };
            let all = values(option.options);
            if !all.is_empty() {
                *target =
                    Choices { all, current: text(option.current_value).map(Into::into), option: Some(id.into_owned()) };
            }
        }
    }

    /// Puts the agent into the mode that fits the host's. Questions are decided by diglot, so all but `plan` are the one that asks.
    /// `before`: the host's mode if it is refused.
    pub(super) fn set_agent_mode(
        &mut self,
        host: Option<(String, Value)>,
        before: PermissionMode,
        out: &mut Actions,
    ) -> bool {
        let word = if self.mode == PermissionMode::Plan { "plan" } else { "default" };
        let wanted = self.set.profile.acp.modes.get(word).cloned().or_else(|| {
            let same = |c: &&Choice| c.id == word || c.name.eq_ignore_ascii_case(word);
            self.agent.modes.all.iter().find(same).map(|c| c.id.clone())
        });
        let Some(mode) = wanted.filter(|m| self.agent.modes.current.as_ref() != Some(m)) else { return false };
        let known = self.agent.modes.all.iter().any(|c| c.id == mode);
        // Grok names no modes and takes them all the same (quirk 54): its profile says so.
        if !known && !self.set.profile.acp.modes.contains_key(word) {
            return false;
        }
        let Some(session_id) = self.agent.session_id.clone() else { return false };
        let (host, done) = host.map_or((None, Value::Null), |(id, done)| (Some(id), done));
        let asked = Asked::Setting { host, done, change: Change::Mode(mode.clone(), before) };
        match self.agent.modes.option.clone() {
            Some(option) => {
                let params = SetConfigOption { session_id: &session_id, config_id: &option, value: &mode };
                self.ask_agent(more::SESSION_SET_CONFIG_OPTION, &params, asked, out);
            }
            None => {
                let params = SetMode { session_id: &session_id, mode_id: &mode };
                self.ask_agent(methods::SESSION_SET_MODE, &params, asked, out);
            }
        }
        self.limit_setting(out);
        true
    }

    /// A change while the conversation runs is waited for only so long.
    fn limit_setting(&self, out: &mut Actions) {
        if self.agent.stage == Stage::Ready {
            out.push(Action::SetTimer(Timer::Control, SETTING_LIMIT));
        }
    }

    /// Whether the agent has a mode in which it plans and does nothing.
    pub(super) fn agent_plans(&self) -> bool {
        self.set.profile.acp.modes.contains_key("plan") || self.agent.modes.all.iter().any(|c| c.id == "plan")
    }

    /// The model that is meant: by its id, its name, the last part of its id, or a part of either that only one has.
    fn find_model(&self, wanted: &str) -> Result<String, String> {
        let Choices { all, current, .. } = &self.agent.models;
        // Claude's mark of a longer context.
        let lower = wanted.trim_end_matches("[1m]").to_lowercase();
        let either =
            |c: &Choice, fits: &dyn Fn(&str) -> bool| fits(&c.id.to_lowercase()) || fits(&c.name.to_lowercase());
        let ways: [&dyn Fn(&Choice) -> bool; 4] = [
            &|c| c.id == wanted,
            &|c| either(c, &|text| text == lower),
            &|c| either(c, &|text| bare(text) == lower),
            &|c| either(c, &|text| text.contains(&lower)),
        ];
        let title = &self.set.profile.title;
        for way in ways {
            let fitting: Vec<&str> = all.iter().filter(|c| way(c)).map(|c| c.id.as_str()).collect();
            match (&*fitting, current) {
                ([], _) => {}
                ([one], _) => return Ok((*one).to_owned()),
                (_, Some(current)) if fitting.contains(&current.as_str()) => return Ok(current.clone()),
                _ => {
                    let names = fitting.iter().take(20).copied().collect::<Vec<_>>().join(", ");
                    return Err(format!("{title} has more than one model {wanted:?}: {names}"));
                }
            }
        }
        let names: Vec<_> = all.iter().take(20).map(|c| c.id.as_str()).collect();
        let names = if names.is_empty() { "only its own".to_owned() } else { names.join(", ") };
        Err(format!("{title} has no model {wanted:?}; it has {names}"))
    }

    /// Chooses a model. True: the agent was asked, and its answer is the host's.
    pub(super) fn set_model(&mut self, wanted: &str, host: Option<&str>, out: &mut Actions) -> Result<bool, String> {
        let model = self.find_model(wanted)?;
        if self.agent.models.current.as_ref() == Some(&model) {
            return Ok(false);
        }
        let Some(session_id) = self.agent.session_id.clone() else {
            return Err("the session is not open yet".into());
        };
        let host = host.map(ToOwned::to_owned);
        let asked = Asked::Setting { host, done: json!({"model": model}), change: Change::Model(model.clone()) };
        match self.agent.models.option.clone() {
            Some(option) => {
                let params = SetConfigOption { session_id: &session_id, config_id: &option, value: &model };
                self.ask_agent(more::SESSION_SET_CONFIG_OPTION, &params, asked, out);
            }
            None => {
                let params = SetModel { session_id: &session_id, model_id: &model };
                self.ask_agent(more::SESSION_SET_MODEL, &params, asked, out);
            }
        }
        self.limit_setting(out);
        Ok(true)
    }

    /// Sets how much the agent thinks, where it has an option for it. True: it was asked, and its answer is the host's.
    pub(super) fn set_effort(&mut self, wanted: Effort, host: Option<&str>, out: &mut Actions) -> bool {
        self.set.options.effort = Some(wanted);
        let Choices { all, current, option } = &self.agent.efforts;
        let (Some(option), Some(session_id)) = (option.clone(), self.agent.session_id.clone()) else { return false };
        let Some(value) = nearest(all, wanted).filter(|value| current.as_ref() != Some(value)) else { return false };
        let host = host.map(ToOwned::to_owned);
        let asked = Asked::Setting { host, done: json!({}), change: Change::Effort(value.clone()) };
        let params = SetConfigOption { session_id: &session_id, config_id: &option, value: &value };
        self.ask_agent(more::SESSION_SET_CONFIG_OPTION, &params, asked, out);
        self.limit_setting(out);
        true
    }

    /// The mode that the host was told: its own, or one that the agent went into by itself.
    pub(super) fn told_mode(&self) -> PermissionMode {
        self.agent.own_mode.unwrap_or(self.mode)
    }

    /// Tells the host which mode is in force.
    pub(super) fn tell_mode(&mut self, out: &mut Actions) {
        let word = super::word(self.told_mode());
        self.system("status", members([("status", Value::Null), ("permissionMode", word.into())]), out);
    }

    /// The agent is in another mode. What it means for the host is told; diglot itself asks for no less than before.
    pub(super) fn agent_mode_is(&mut self, id: &str, out: &mut Actions) {
        let known = self.agent.modes.current.as_deref() == Some(id) || self.agent.waits_for_mode(id);
        self.agent.modes.current = Some(id.to_owned());
        if known || self.agent.stage != Stage::Ready {
            return;
        }
        let Some(mode) = self.host_mode(id) else {
            out.note(format!("the agent's mode {id} has no counterpart"));
            return;
        };
        let before = self.told_mode();
        self.agent.own_mode = None;
        match mode {
            PermissionMode::Plan if self.mode != PermissionMode::Plan => {
                self.agent.mode_before_plan = Some(std::mem::replace(&mut self.mode, PermissionMode::Plan));
            }
            PermissionMode::Default if self.mode == PermissionMode::Plan => {
                self.mode = self.agent.mode_before_plan.take().unwrap_or_default();
            }
            PermissionMode::Plan | PermissionMode::Default => {}
            wider if wider != self.mode => self.agent.own_mode = Some(wider),
            _ => {}
        }
        if self.told_mode() != before {
            self.tell_mode(out);
        }
    }

    /// Claude's mode that an agent's is: by the profile, else by its id or name.
    fn host_mode(&self, id: &str) -> Option<PermissionMode> {
        let modes = &self.set.profile.acp.modes;
        let is = |word: &str| modes.get(word).is_some_and(|own| own == id);
        match (is("default"), is("plan")) {
            (true, _) => return Some(PermissionMode::Default),
            (false, true) => return Some(PermissionMode::Plan),
            _ => {}
        }
        let name = self.agent.modes.all.iter().find(|c| c.id == id).map(|c| c.name.as_str());
        [Some(id), name].into_iter().flatten().find_map(|word| {
            let plain: String = word.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
            Some(match plain.as_str() {
                "default" | "ask" | "manual" => PermissionMode::Default,
                "plan" | "planmode" => PermissionMode::Plan,
                "acceptedits" | "autoedit" => PermissionMode::AcceptEdits,
                "bypasspermissions" | "yolo" | "fullaccess" => PermissionMode::BypassPermissions,
                "dontask" => PermissionMode::DontAsk,
                _ => return None,
            })
        })
    }

    /// The agent answered a change of its mode or model.
    pub(super) fn setting_answered(
        &mut self,
        host: Option<String>,
        done: Value,
        change: Change,
        error: Option<ErrorObject>,
        out: &mut Actions,
    ) {
        match (&change, &error) {
            (Change::Mode(mode, _), None) => self.agent.modes.current = Some(mode.clone()),
            (Change::Model(model), None) => {
                self.agent.models.current = Some(model.clone());
                // The next process gets it too.
                self.set.options.model = Some(model.clone());
            }
            (Change::Effort(value), None) => self.agent.efforts.current = Some(value.clone()),
            (Change::Mode(_, before), Some(_)) if host.is_some() => self.mode = *before,
            (Change::Mode(..), Some(error)) if self.rules.restricts() && self.agent.stage == Stage::Setting => {
                let said = self.agent_error("the mode that asks, which the rules need", error);
                return self.give_up(&said, out);
            }
            (_, Some(_)) => {}
        }
        match (host, error) {
            (Some(id), None) => {
                out.near(stream_json::control_response(&id, &done));
                if let Change::Mode(_, before) = change
                    && before != self.mode
                {
                    self.tell_mode(out);
                }
            }
            (Some(id), Some(error)) => {
                let said = self.agent_error("the change", &error);
                out.near(say::refuse_host(&id, &said));
            }
            (None, None) => {}
            (None, Some(error)) => {
                let said = self.agent_error("a mode, a model or an option", &error);
                out.push(Action::Warn(said));
            }
        }
        self.settings_done(out);
    }

    /// The agent did not answer a change: whoever waits is told, and the conversation goes on.
    pub(super) fn settings_timed_out(&mut self, out: &mut Actions) {
        let title = self.set.profile.title.clone();
        for (host, change) in self.agent.forget_settings() {
            if let Change::Mode(_, before) = change {
                self.mode = before;
            }
            if let Some(id) = host {
                out.near(say::refuse_host(&id, &format!("{title} did not answer")));
            }
        }
        self.next_turn(out);
    }
}

/// The last part of a model's id, without what stands in brackets behind it.
fn bare(id: &str) -> &str {
    let id = id.split(['[', '(']).next().unwrap_or(id).trim_end();
    id.rsplit(['/', ':']).next().unwrap_or(id)
}

/// How much a model thinks, in Claude's words and those that turn it on and off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Not at all.
    Off,
    /// `minimal` of other agents.
    Minimal,
    /// `low`.
    Low,
    /// `medium`.
    Medium,
    /// `high`.
    High,
    /// `xhigh`.
    XHigh,
    /// `max`.
    Max,
    /// As the agent likes.
    On,
}

impl Effort {
    /// The level of a word: of `--effort`, of `--thinking`, or of an agent's option.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word.to_lowercase().as_str() {
            "off" | "none" | "disabled" | "false" => Self::Off,
            "minimal" => Self::Minimal,
            "low" => Self::Low,
            "medium" => Self::Medium,
            "high" => Self::High,
            "xhigh" => Self::XHigh,
            "max" => Self::Max,
            "on" | "enabled" | "adaptive" | "true" => Self::On,
            _ => return None,
        })
    }

    /// The level that a number of thinking tokens stands for, by the steps of Claude's own words for it (4,000; 10,000;
    /// 31,999).
    #[must_use]
    pub fn of_tokens(tokens: u64) -> Self {
        match tokens {
            0 => Self::Off,
            1..=4_000 => Self::Low,
            4_001..=10_000 => Self::Medium,
            10_001..=31_998 => Self::High,
            _ => Self::Max,
        }
    }
}

/// The choice whose level is nearest, the lower of two.
fn nearest(all: &[Choice], wanted: Effort) -> Option<String> {
    let levels: Vec<(Effort, &Choice)> =
        all.iter().filter_map(|c| Some((Effort::parse(&c.id).or_else(|| Effort::parse(&c.name))?, c))).collect();
    let exact = levels.iter().find(|(level, _)| *level == wanted);
    let on = levels.iter().find(|(level, _)| *level == Effort::On);
    let near = || {
        // To think or not is another question than how much.
        let of_kind = levels.iter().filter(|(level, _)| (*level == Effort::Off) == (wanted == Effort::Off));
        let of_kind: Vec<_> = of_kind.filter(|(level, _)| *level != Effort::On && wanted != Effort::On).collect();
        let least = || levels.iter().filter(|(level, _)| *level != Effort::On).min_by_key(|(level, _)| *level);
        of_kind
            .into_iter()
            .min_by_key(|(level, _)| ((*level as i8 - wanted as i8).abs(), *level))
            .or_else(|| (wanted == Effort::Off).then(least).flatten())
    };
    exact.or_else(near).or(on.filter(|_| wanted != Effort::Off)).map(|(_, choice)| choice.id.clone())
}

fn choice(raw: &RawValue) -> Option<Choice> {
    let named = Named::read(Some(raw));
    let id = text(named.id).or_else(|| text(named.model_id)).or_else(|| text(named.value))?.into_owned();
    let name = text(named.name).map_or_else(|| id.clone(), Into::into);
    Some(Choice { id, name, description: text(named.description).unwrap_or_default().into_owned() })
}

pub(super) fn choices(raw: Raw<'_>) -> Vec<Choice> {
    items(raw).unwrap_or_default().into_iter().filter_map(choice).collect()
}

/// The values of an option: a list, or a list of groups.
fn values(raw: Raw<'_>) -> Vec<Choice> {
    let mut all = Vec::new();
    for raw in items(raw).unwrap_or_default() {
        match Named::read(Some(raw)).options {
            Some(group) => all.extend(choices(Some(group))),
            None => all.extend(choice(raw)),
        }
    }
    all
}
