//! What can be answered to a permission question.
//!
//! Owns the list of options. Keeps: an option says exactly what it grants, and one that would mean less than its name is
//! not offered (design, section 5.1; report 7): no "always" where claude says that no rule can satisfy the gate that
//! asked, and none that the table has no words for.

use serde_json::json;
use serde_json::value::RawValue;

use crate::mappings::{PermissionUpdate, Permissions};
use crate::wire::acp::{OptionKind, PermissionOption};
use crate::wire::stream_json::ControlRequest;
use crate::wire::text::{boolean, items};

/// One option and what choosing it means.
#[derive(Debug, Clone)]
pub struct Offer {
    /// As the editor shows it.
    pub option: PermissionOption,
    /// What it grants.
    pub grant: Grant,
}

/// What an option grants.
#[derive(Debug, Clone)]
pub enum Grant {
    /// This call.
    Once,
    /// This call, and these `PermissionUpdate`s.
    More(Vec<Box<RawValue>>),
    /// Nothing.
    Nothing,
}

/// The options for a question about a tool.
#[must_use]
pub fn offers(tool: &str, request: &ControlRequest<'_>, words: &Permissions) -> Vec<Offer> {
    if tool == "ExitPlanMode" {
        return plan_offers(words);
    }
    let mut list = vec![offer("allow_once", words.allow_once(), OptionKind::AllowOnce, Grant::Once)];
    if may_last(request) {
        list.extend(lasting(request, words));
    }
    let reject = offer("reject_once", words.reject_once(), OptionKind::RejectOnce, Grant::Nothing);
    // Editors preselect the first one.
    let at = if boolean(request.default_to_no) == Some(true) { 0 } else { list.len() };
    list.insert(at, reject);
    list
}

fn offer(id: &str, name: &str, kind: OptionKind, grant: Grant) -> Offer {
    Offer { option: PermissionOption { option_id: id.to_owned(), name: name.to_owned(), kind }, grant }
}

/// Whether a rule can satisfy the gate that asked.
fn may_last(request: &ControlRequest<'_>) -> bool {
    boolean(request.suppress_always_allow_rule) != Some(true)
        && boolean(request.server_policy_ask_only) != Some(true)
        && request.matched_ask_rule.is_none()
}

/// Claude suggests what to write down so that it need not ask again. The rules and directories belong together: one
/// without the other would ask again. A mode is another, wider answer, and an option of its own.
fn lasting(request: &ControlRequest<'_>, words: &Permissions) -> Vec<Offer> {
    let suggestions = items(request.permission_suggestions).unwrap_or_default();
    let mut narrow: Option<(Vec<String>, Vec<Box<RawValue>>)> = Some((Vec::new(), Vec::new()));
    let mut wide = Vec::new();
    for raw in suggestions {
        let update: PermissionUpdate<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
        let label = words.label(&update);
        if update.kind == "setMode" {
            wide.extend(label.map(|label| (label, raw.to_owned())));
        } else {
            // One that has no words makes the whole answer one that cannot be said exactly.
            narrow = narrow.zip(label).map(|((mut labels, mut updates), label)| {
                labels.push(label);
                updates.push(raw.to_owned());
                (labels, updates)
            });
        }
    }
    let mut list = Vec::new();
    if let Some((labels, updates)) = narrow.filter(|(labels, _)| !labels.is_empty()) {
        list.push(offer("allow_always", &join(&labels), OptionKind::AllowAlways, Grant::More(updates)));
    }
    for (i, (label, update)) in wide.into_iter().enumerate() {
        let id = if list.is_empty() { "allow_always".to_owned() } else { format!("allow_always_{}", i + 2) };
        list.push(offer(&id, &label, OptionKind::AllowAlways, Grant::More(vec![update])));
    }
    list
}

fn join(labels: &[String]) -> String {
    let mut text = String::new();
    for (i, label) in labels.iter().enumerate() {
        if i == 0 {
            text.push_str(label);
        } else {
            text.push_str("; ");
            // Only the first begins a sentence.
            let mut chars = label.chars();
            text.extend(chars.next().into_iter().flat_map(char::to_lowercase));
            text.push_str(chars.as_str());
        }
    }
    text
}

/// A plan that waits for approval: the answer chooses the mode in which the work goes on.
fn plan_offers(words: &Permissions) -> Vec<Offer> {
    words
        .plan_options()
        .iter()
        .map(|option| {
            let kind = if !option.kind.allows() {
                OptionKind::RejectOnce
            } else if option.kind.as_str() == "allow_always" {
                OptionKind::AllowAlways
            } else {
                OptionKind::AllowOnce
            };
            let grant = match &option.mode {
                _ if !option.kind.allows() => Grant::Nothing,
                // Claude goes back to its default mode by itself (stream-json.md, section 6, ExitPlanMode).
                None => Grant::Once,
                Some(mode) if mode == "default" => Grant::Once,
                Some(mode) => serde_json::value::to_raw_value(&json!({
                    "type": "setMode", "mode": mode, "destination": "session",
                }))
                .map_or(Grant::Once, |update| Grant::More(vec![update])),
            };
            let id = match (&option.mode, kind) {
                (Some(mode), OptionKind::AllowAlways) => format!("plan_{mode}"),
                _ => option.kind.as_str().to_owned(),
            };
            offer(&id, &option.label, kind, grant)
        })
        .collect()
}

/// Whether an option of an agent's says a grant and a refusal alike, because another one has its id: what the agent would
/// take it for is not known, so nobody may choose it. `all` are the ids and kinds of its question.
pub(crate) fn is_unclear<'a>(id: &str, all: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    let mut grants = all.filter(|(other, _)| *other == id).map(|(_, kind)| kind.starts_with("allow"));
    grants.next().is_some_and(|first| grants.any(|other| other != first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mappings::Mappings;

    fn labels(tool: &str, request: &str) -> Vec<(String, String)> {
        let raw = RawValue::from_string(request.to_owned()).unwrap_or_else(|e| panic!("{request}: {e}"));
        let request = ControlRequest::read(Some(&raw));
        offers(tool, &request, &Mappings::builtin().permissions)
            .into_iter()
            .map(|o| (o.option.option_id, o.option.name))
            .collect()
    }

    fn ids(tool: &str, request: &str) -> Vec<String> {
        labels(tool, request).into_iter().map(|(id, _)| id).collect()
    }

    const TOUCH: &str = r#"[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"touch a.txt"}],"behavior":"allow","destination":"localSettings"},{"type":"addDirectories","directories":["/x"],"destination":"session"},{"type":"setMode","mode":"acceptEdits","destination":"session"}]"#;

    #[test]
    fn an_always_says_all_that_it_grants() {
        let all = labels("Bash", &format!(r#"{{"permission_suggestions":{TOUCH}}}"#));
        let ids: Vec<&str> = all.iter().map(|(id, _)| &**id).collect();
        assert_eq!(ids, ["allow_once", "allow_always", "allow_always_2", "reject_once"]);
        assert!(all[1].1.contains("touch a.txt") && all[1].1.contains("/x"), "{}", all[1].1);
        assert!(all[2].1.contains("edits"), "{}", all[2].1);
    }

    #[test]
    fn an_always_that_would_mean_less_than_its_name_is_not_offered() {
        assert_eq!(ids("Bash", "{}"), ["allow_once", "reject_once"]);
        for gate in [
            r#""suppress_always_allow_rule":true"#,
            r#""server_policy_ask_only":true"#,
            r#""matched_ask_rule":{"source":"x"}"#,
        ] {
            let request = format!(r#"{{"permission_suggestions":{TOUCH},{gate}}}"#);
            assert_eq!(ids("Bash", &request), ["allow_once", "reject_once"], "{gate}");
        }
        let odd = r#"{"permission_suggestions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"x"}],"behavior":"allow","destination":"localSettings"},{"type":"newKind","destination":"session"}]}"#;
        assert_eq!(ids("Bash", odd), ["allow_once", "reject_once"]);
    }

    #[test]
    fn the_refusal_comes_first_where_it_is_the_default() {
        assert_eq!(ids("Bash", r#"{"default_to_no":true}"#), ["reject_once", "allow_once"]);
    }

    #[test]
    fn a_plan_is_approved_into_a_mode_or_kept() {
        let ids = ids("ExitPlanMode", "{}");
        assert!(ids.contains(&"plan_acceptEdits".to_owned()) && ids.contains(&"reject_once".to_owned()), "{ids:?}");
    }
}
