//! What the answers to a permission question are called.
//!
//! Owns `mappings/permissions.toml` and the rule that a label says exactly what is granted: whatever a label would say only
//! in part (a kind of update, a place or a form of rule that the table lacks, hidden characters, more than fits one line) has
//! none, and an answer without a label is not offered.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;

use super::template::{MAX_CHARS, Template, is_hidden};
use super::{MappingError, Source};

/// A change of permissions, as the agent suggests it with a question and takes it back with an answer
/// (`PermissionUpdate` of 2.1.332). Read leniently: what is missing is empty, an unknown kind is kept as its word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PermissionUpdate<'a> {
    /// `addRules`, `setMode`, `addDirectories` and others.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    /// For `…Rules`.
    #[serde(borrow)]
    pub rules: Vec<PermissionRule<'a>>,
    /// For `…Rules`: `allow`, `deny` or `ask`.
    #[serde(borrow)]
    pub behavior: Cow<'a, str>,
    /// Where it is kept: `session`, `localSettings`, `projectSettings`, `userSettings`, `cliArg`.
    #[serde(borrow)]
    pub destination: Cow<'a, str>,
    /// For `setMode`.
    #[serde(borrow)]
    pub mode: Cow<'a, str>,
    /// For `…Directories`.
    #[serde(borrow)]
    pub directories: Vec<Cow<'a, str>>,
}

/// One rule of an update.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PermissionRule<'a> {
    /// The tool the rule is about.
    #[serde(rename = "toolName", borrow)]
    pub tool_name: Cow<'a, str>,
    /// What the rule is limited to; absent: every call.
    #[serde(rename = "ruleContent", borrow)]
    pub rule_content: Option<Cow<'a, str>>,
}

/// ACP's kinds of answer (schema 1.20, `PermissionOptionKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionKind {
    /// Allows this call.
    AllowOnce,
    /// Allows this call and later ones.
    AllowAlways,
    /// Refuses this call.
    RejectOnce,
    /// Refuses this call and later ones.
    RejectAlways,
}

impl OptionKind {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowAlways => "allow_always",
            Self::RejectOnce => "reject_once",
            Self::RejectAlways => "reject_always",
        }
    }

    /// Whether the answer lets the call run.
    #[must_use]
    pub fn allows(self) -> bool {
        matches!(self, Self::AllowOnce | Self::AllowAlways)
    }
}

/// One answer to a plan that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanOption {
    /// What the editor shows.
    pub label: String,
    /// ACP's kind.
    pub kind: OptionKind,
    /// The mode the session goes on in; absent for an answer that refuses.
    pub mode: Option<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawPermissions {
    option: RawOptions,
    scope: HashMap<String, String>,
    phrase: RawPhrases,
    mode: HashMap<String, String>,
    rules: HashMap<String, RawForms>,
    plan: Option<Vec<PlanOption>>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawOptions {
    allow_once: Option<String>,
    reject_once: Option<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawPhrases {
    rule: Option<String>,
    rule_in_session: Option<String>,
    directories: Option<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawForms {
    any: Option<String>,
    exact: Option<String>,
    pattern: Option<String>,
    path: Option<String>,
    domain: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct Forms {
    any: Option<Template>,
    exact: Option<Template>,
    pattern: Option<Template>,
    path: Option<Template>,
    domain: Option<Template>,
}

/// The table of labels.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    allow_once: String,
    reject_once: String,
    scopes: HashMap<String, String>,
    rule: Option<Template>,
    rule_in_session: Option<Template>,
    directories: Option<Template>,
    modes: HashMap<String, Template>,
    rules: HashMap<String, Forms>,
    plan: Vec<PlanOption>,
}

const SESSION: &str = "session";

impl Permissions {
    pub(super) fn read(layers: &[Source<'_>]) -> Result<Self, MappingError> {
        let mut all = Self::default();
        for source in layers {
            let raw: RawPermissions = source.read()?;
            if let Some(label) = raw.option.allow_once {
                all.allow_once = label;
            }
            if let Some(label) = raw.option.reject_once {
                all.reject_once = label;
            }
            all.scopes.extend(raw.scope);
            let phrases = [
                (&mut all.rule, raw.phrase.rule, "rule", "what"),
                (&mut all.rule_in_session, raw.phrase.rule_in_session, "rule_in_session", "what"),
                (&mut all.directories, raw.phrase.directories, "directories", "directories"),
            ];
            for (place, text, key, field) in phrases {
                if let Some(text) = text {
                    *place = Some(source.template(&format!("phrase.{key}"), &text, &[field, "scope"])?);
                }
            }
            for (mode, text) in raw.mode {
                let label = source.template(&format!("mode.{mode}"), &text, &["scope"])?;
                all.modes.insert(mode, label);
            }
            for (tool, forms) in raw.rules {
                let forms = Forms::new(*source, &tool, forms)?;
                all.rules.insert(tool, forms);
            }
            if let Some(plan) = raw.plan {
                if let Some(option) = plan.iter().find(|option| option.kind.allows() != option.mode.is_some()) {
                    let expected = "a `mode` on every answer that allows, and on no other";
                    return Err(source.wrong("plan", &option.label, expected));
                }
                all.plan = plan;
            }
        }
        Ok(all)
    }

    /// The label of "allow this call".
    #[must_use]
    pub fn allow_once(&self) -> &str {
        &self.allow_once
    }

    /// The label of "refuse this call".
    #[must_use]
    pub fn reject_once(&self) -> &str {
        &self.reject_once
    }

    /// The answers to a plan that waits for approval, in order.
    #[must_use]
    pub fn plan_options(&self) -> &[PlanOption] {
        &self.plan
    }

    /// What an "allow always" that grants this update is called; `None` if it cannot be said exactly, and must then not be
    /// offered. One line of at most [`MAX_CHARS`] characters.
    #[must_use]
    pub fn label(&self, update: &PermissionUpdate<'_>) -> Option<String> {
        let scope = self.scopes.get(update.destination.as_ref())?.as_str();
        let label = match update.kind.as_ref() {
            "addRules" if update.behavior == "allow" => {
                let what: Option<Vec<String>> =
                    update.rules.iter().map(|rule| self.what(rule, &update.destination)).collect();
                let phrase = if update.destination == SESSION { &self.rule_in_session } else { &self.rule };
                fill(phrase.as_ref()?, &[("what", &list(&what?)?), ("scope", scope)])?
            }
            "setMode" if update.destination == SESSION => {
                fill(self.modes.get(update.mode.as_ref())?, &[("scope", scope)])?
            }
            "addDirectories" => {
                let directories: Vec<String> = update.directories.iter().map(|path| path.to_string()).collect();
                fill(self.directories.as_ref()?, &[("directories", &list(&directories)?), ("scope", scope)])?
            }
            _ => return None,
        };
        let exact = label.chars().count() <= MAX_CHARS && !label.chars().any(is_hidden);
        exact.then_some(label)
    }

    /// What one rule allows.
    fn what(&self, rule: &PermissionRule<'_>, destination: &str) -> Option<String> {
        let name = rule.tool_name.as_ref();
        let (key, server, tool) = match name.strip_prefix("mcp__") {
            None => (name, "", name),
            Some(rest) => match rest.split_once("__") {
                Some((server, tool)) => ("mcp", server, tool),
                None => ("mcp_server", rest, ""),
            },
        };
        if name.is_empty() {
            return None;
        }
        let forms = self.rules.get(key).or_else(|| self.rules.get("other"))?;
        let names = [("tool", tool), ("server", server)];
        let Some(content) = rule.rule_content.as_deref() else {
            return fill(forms.any.as_ref()?, &names);
        };
        if let (Some(domain), Some(form)) = (content.strip_prefix("domain:"), &forms.domain) {
            return fill(form, &[("domain", domain), ("rule", content)]);
        }
        if let Some(form) = &forms.path {
            return fill(form, &[("path", &path(content, destination)?), ("rule", content)]);
        }
        let form = if content.contains('*') { &forms.pattern } else { &forms.exact };
        fill(form.as_ref()?, &[("rule", content), names[0], names[1]])
    }
}

impl Forms {
    fn new(source: Source<'_>, tool: &str, raw: RawForms) -> Result<Self, MappingError> {
        let read = |form: &str, text: Option<String>, known: &[&str]| {
            text.map(|text| source.template(&format!("rules.{tool}.{form}"), &text, known)).transpose()
        };
        Ok(Self {
            any: read("any", raw.any, &["tool", "server"])?,
            exact: read("exact", raw.exact, &["rule", "tool", "server"])?,
            pattern: read("pattern", raw.pattern, &["rule", "tool", "server"])?,
            path: read("path", raw.path, &["path", "rule"])?,
            domain: read("domain", raw.domain, &["domain", "rule"])?,
        })
    }
}

fn fill(template: &Template, values: &[(&str, &str)]) -> Option<String> {
    // A value longer than any label would be cut on filling in, and a cut label is no exact one.
    if values.iter().any(|(_, value)| value.chars().nth(MAX_CHARS).is_some()) {
        return None;
    }
    template.fill(|field| values.iter().find(|(name, _)| *name == field).map(|(_, value)| Cow::Borrowed(*value)))
}

/// `a`, `a and b`, `a, b and c`; `None` for nothing, and for an empty item.
fn list(items: &[String]) -> Option<String> {
    if items.iter().any(|item| item.trim().is_empty()) {
        return None;
    }
    let (last, before) = items.split_last()?;
    Some(if before.is_empty() { last.clone() } else { format!("{} and {last}", before.join(", ")) })
}

/// A path of a rule as a person writes it. In rules `//` begins an absolute path and `/` one below the folder the settings
/// belong to, which for the user's own settings is a folder nobody thinks of: such a rule cannot be said.
fn path(content: &str, destination: &str) -> Option<String> {
    if let Some(absolute) = content.strip_prefix("//") {
        return Some(format!("/{absolute}"));
    }
    match content.strip_prefix('/') {
        Some(_) if destination == "userSettings" => None,
        Some(below) => Some(format!("./{below}")),
        None => Some(content.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::Mappings;

    fn label(json: &str) -> Option<String> {
        let update: PermissionUpdate<'_> = serde_json::from_str(json).expect("the test's own JSON");
        Mappings::builtin().permissions.label(&update)
    }

    fn rule(tool: &str, content: &str, destination: &str) -> Option<String> {
        let content = if content.is_empty() {
            String::new()
        } else {
            format!(",\"ruleContent\":{}", serde_json::to_string(content).expect("a string"))
        };
        label(&format!(
            "{{\"type\":\"addRules\",\"rules\":[{{\"toolName\":\"{tool}\"{content}}}],\"behavior\":\"allow\",\
             \"destination\":\"{destination}\"}}"
        ))
    }

    #[test]
    fn every_suggestion_that_was_recorded_says_what_it_grants() {
        let rows = [
            (("Bash", "touch a.txt", "localSettings"), "Always allow `touch a.txt` in this project"),
            (("Bash", "npm run *", "localSettings"), "Always allow commands that match `npm run *` in this project"),
            (("Read", "//etc/**", "session"), "Allow reading /etc/** during this session"),
            (("WebFetch", "domain:127.0.0.1", "localSettings"), "Always allow fetching from 127.0.0.1 in this project"),
            (("WebSearch", "", "localSettings"), "Always allow web searches in this project"),
            (("mcp__calc__add", "", "localSettings"), "Always allow add (calc) in this project"),
        ];
        for ((tool, content, destination), expected) in rows {
            assert_eq!(rule(tool, content, destination).as_deref(), Some(expected));
        }
        assert_eq!(
            label(r#"{"type":"setMode","mode":"acceptEdits","destination":"session"}"#).as_deref(),
            Some("Allow all edits during this session")
        );
        assert_eq!(
            label(r#"{"type":"addDirectories","directories":["/data/a"],"destination":"session"}"#).as_deref(),
            Some("Allow access to /data/a during this session")
        );
    }

    #[test]
    fn the_place_of_a_grant_is_part_of_its_label() {
        let places = [
            ("projectSettings", "Always allow `ls` in this project, for everyone who uses its settings"),
            ("userSettings", "Always allow `ls` in all projects"),
            ("session", "Allow `ls` during this session"),
        ];
        for (place, expected) in places {
            assert_eq!(rule("Bash", "ls", place).as_deref(), Some(expected));
        }
    }

    #[test]
    fn all_rules_of_an_update_are_named() {
        let json = r#"{"type":"addRules","behavior":"allow","destination":"session","rules":[
            {"toolName":"Bash","ruleContent":"ls"},{"toolName":"Bash","ruleContent":"pwd"},{"toolName":"Read"}]}"#;
        assert_eq!(label(json).as_deref(), Some("Allow `ls`, `pwd` and reading any file during this session"));
        let json = r#"{"type":"addDirectories","directories":["/a","/b"],"destination":"session"}"#;
        assert_eq!(label(json).as_deref(), Some("Allow access to /a and /b during this session"));
    }

    #[test]
    fn what_cannot_be_said_exactly_is_not_offered() {
        let unsaid = [
            r#"{"type":"brandNew","destination":"session"}"#,
            r#"{"type":"replaceRules","rules":[{"toolName":"Bash"}],"behavior":"allow","destination":"session"}"#,
            r#"{"type":"removeRules","rules":[{"toolName":"Bash"}],"behavior":"allow","destination":"session"}"#,
            r#"{"type":"removeDirectories","directories":["/a"],"destination":"session"}"#,
            r#"{"type":"addRules","rules":[{"toolName":"Bash"}],"behavior":"deny","destination":"session"}"#,
            r#"{"type":"addRules","rules":[{"toolName":"Bash"}],"behavior":"ask","destination":"session"}"#,
            r#"{"type":"addRules","rules":[{"toolName":"Bash"}],"behavior":"allow","destination":"cliArg"}"#,
            r#"{"type":"addRules","rules":[{"toolName":"Bash"}],"behavior":"allow","destination":"brandNew"}"#,
            r#"{"type":"addRules","rules":[],"behavior":"allow","destination":"session"}"#,
            r#"{"type":"addRules","rules":[{}],"behavior":"allow","destination":"session"}"#,
            r#"{"type":"addRules","rules":[{"toolName":"Frob","ruleContent":"x"}],"behavior":"allow","destination":"session"}"#,
            r#"{"type":"addDirectories","directories":[],"destination":"session"}"#,
            r#"{"type":"addDirectories","directories":["/a",""],"destination":"session"}"#,
            r#"{"type":"setMode","mode":"bypassPermissions","destination":"session"}"#,
            r#"{"type":"setMode","mode":"acceptEdits","destination":"userSettings"}"#,
            r#"{}"#,
        ];
        for json in unsaid {
            assert_eq!(label(json), None, "{json}");
        }
    }

    #[test]
    fn one_rule_that_cannot_be_said_hides_the_whole_update() {
        let json = r#"{"type":"addRules","behavior":"allow","destination":"session","rules":[
            {"toolName":"Bash","ruleContent":"ls"},{"toolName":"Frob","ruleContent":"x"}]}"#;
        assert_eq!(label(json), None);
    }

    #[test]
    fn hidden_characters_and_overlong_rules_are_not_offered() {
        assert_eq!(rule("Bash", "ls\nrm -r /", "session"), None);
        assert_eq!(rule("Bash", "ls \u{202e}x", "session"), None);
        assert_eq!(rule("Bash", &"x".repeat(MAX_CHARS), "session"), None);
        assert_eq!(rule("Bash", &"x".repeat(1_000_000), "session"), None);
        assert!(rule("Bash", &"x".repeat(MAX_CHARS - 60), "session").is_some());
    }

    #[test]
    fn paths_are_written_as_a_person_writes_them() {
        assert_eq!(
            rule("Edit", "/src/**", "localSettings").as_deref(),
            Some("Always allow editing ./src/** in this project")
        );
        assert_eq!(
            rule("Edit", "~/notes/**", "session").as_deref(),
            Some("Allow editing ~/notes/** during this session")
        );
        assert_eq!(rule("Edit", "/src/**", "userSettings"), None);
    }

    #[test]
    fn a_whole_mcp_server_is_said_to_be_whole() {
        let expected = "Always allow every tool of calc in this project";
        assert_eq!(rule("mcp__calc", "", "localSettings").as_deref(), Some(expected));
    }

    #[test]
    fn each_plan_answer_that_allows_names_the_mode_it_leads_to() {
        let options = Mappings::builtin().permissions.plan_options();
        assert!(options.iter().any(|option| option.kind == OptionKind::RejectOnce));
        for option in options {
            assert_eq!(option.kind.allows(), option.mode.is_some(), "{}", option.label);
        }
        let text = "[[plan]]\nlabel = \"Yes\"\nkind = \"allow_once\"\n";
        let error = Mappings::with_overrides([("permissions.toml", text)]).expect_err("refused").to_string();
        assert!(error.contains("`mode`"), "{error}");
    }

    #[test]
    fn the_plain_answers_have_labels() {
        let permissions = &Mappings::builtin().permissions;
        assert_eq!((permissions.allow_once(), permissions.reject_once()), ("Allow once", "Reject"));
    }
}
