//! Who answers permission questions, and how.
//!
//! Invariant: nothing is allowed but by a person's word at this terminal or by `--yes`, and `--yes` allows only once.

use serde_json::{Value, json};

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// `--yes`: the first option that allows once.
    Yes,
    /// `--no`: the first option that rejects.
    No,
    /// The person at the terminal.
    Person,
    /// Nobody can be asked.
    Nobody,
}

/// An answer: the outcome for the agent, and what to tell the person.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) outcome: Value,
    pub(super) said: String,
}

/// The answer that needs no person; `None` when a person has to be asked.
pub(super) fn without_person(policy: Policy, options: &Value) -> Option<Answer> {
    match policy {
        Policy::Person => None,
        Policy::Yes => Some(
            first(options, &["allow_once"])
                .unwrap_or_else(|| refuse(options, "--yes allows only once, and there is no such option: refused")),
        ),
        Policy::No => Some(refuse(options, "refused (--no)")),
        Policy::Nobody => Some(cancelled(
            "nobody can be asked, because standard input is no terminal: refused (--yes and --no answer for you)",
        )),
    }
}

/// The answer that a person typed; `None` when it is none.
pub(super) fn typed(text: &str, options: &Value) -> Option<Answer> {
    let options = options.as_array()?;
    let index: usize = text.trim().parse().ok()?;
    select(options.get(index.checked_sub(1)?)?)
}

/// The answer when there is nobody to ask any more, or the question does not matter any more.
pub(super) fn cancelled(said: &str) -> Answer {
    Answer { outcome: json!({"outcome": "cancelled"}), said: said.to_owned() }
}

fn refuse(options: &Value, said: &str) -> Answer {
    let refused = first(options, &["reject_once", "reject_always"]);
    let outcome = refused.map_or_else(|| cancelled(said).outcome, |answer| answer.outcome);
    Answer { outcome, said: said.to_owned() }
}

fn first(options: &Value, kinds: &[&str]) -> Option<Answer> {
    let options = options.as_array()?;
    kinds.iter().find_map(|kind| options.iter().find(|option| option["kind"] == **kind)).and_then(select)
}

fn select(option: &Value) -> Option<Answer> {
    let id = option["optionId"].as_str()?;
    Some(Answer {
        outcome: json!({"outcome": "selected", "optionId": id}),
        said: option["name"].as_str().unwrap_or(id).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(kinds: &[&str]) -> Value {
        kinds.iter().map(|kind| json!({"optionId": format!("id-{kind}"), "name": kind, "kind": kind})).collect()
    }

    fn chosen(answer: &Answer) -> &str {
        answer.outcome["optionId"].as_str().unwrap_or("cancelled")
    }

    #[test]
    fn yes_allows_once_and_never_always() {
        let all = options(&["allow_always", "allow_once", "reject_once"]);
        assert_eq!(chosen(&without_person(Policy::Yes, &all).unwrap()), "id-allow_once");
        let only_always = options(&["allow_always", "reject_once"]);
        assert_eq!(chosen(&without_person(Policy::Yes, &only_always).unwrap()), "id-reject_once");
    }

    #[test]
    fn no_rejects_once_rather_than_always_and_cancels_rather_than_allows() {
        let all = options(&["allow_once", "reject_always", "reject_once"]);
        assert_eq!(chosen(&without_person(Policy::No, &all).unwrap()), "id-reject_once");
        assert_eq!(chosen(&without_person(Policy::No, &options(&["allow_once"])).unwrap()), "cancelled");
    }

    #[test]
    fn without_a_person_nothing_is_allowed_and_the_reason_is_said() {
        let answer = without_person(Policy::Nobody, &options(&["allow_once"])).unwrap();
        assert_eq!(chosen(&answer), "cancelled");
        assert!(answer.said.contains("nobody can be asked"), "{}", answer.said);
    }

    #[test]
    fn a_person_answers_by_number_and_is_asked_again_otherwise() {
        let all = options(&["allow_once", "reject_once"]);
        assert_eq!(without_person(Policy::Person, &all), None);
        assert_eq!(chosen(&typed(" 2 ", &all).unwrap()), "id-reject_once");
        for nonsense in ["", "0", "3", "y", "-1"] {
            assert_eq!(typed(nonsense, &all), None, "{nonsense}");
        }
    }
}
