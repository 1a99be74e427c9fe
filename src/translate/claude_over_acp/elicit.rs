//! Forms that the agent wants the user to fill in, and addresses to open (`elicitation/create`).
//!
//! Keeps: a host that answers `elicitation` is asked so; another one is asked `AskUserQuestion` if the form is a choice, and what
//! it cannot be asked is declined; nothing is filled in for the user.

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::ClaudeOverAcp;
use super::choices::ChoiceOf;
use super::host::{About, NOBODY};
use super::permission::Why;
use super::question::Question;
use crate::translate::{Action, Actions};
use crate::wire::jsonrpc::{self, Id, RpcError};
use crate::wire::stream_json_agent::HostAnswer;
use crate::wire::text::{Raw, read, text};

/// What is shown, what is sent, and what explains it.
type Choice = (String, Value, String);

/// One member of a form that is a choice.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    name: String,
    /// What the host's answer names it by.
    question: String,
    values: Vec<Choice>,
    many: bool,
    required: bool,
    /// The member for an answer that is none of the choices.
    custom: Option<String>,
}

impl ClaudeOverAcp {
    /// `elicitation/create`.
    pub(super) fn elicitation_asked(&mut self, id: Id, params: Raw<'_>, out: &mut Actions) {
        let order = order(params);
        let params: Value = read(params).unwrap_or_default();
        let string = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mode = string("mode");
        // The agent's own question is one toward the host, however it is asked (Kimi, Claude); hosts that answer questions may
        // not answer forms.
        let questions = self.questions_of(&string("toolCallId"));
        let by_tool = self.set.options.asks_host && !self.denies("AskUserQuestion");
        let elicits = self.set.options.elicits;
        let (direct, fields) = match &*mode {
            "form" if by_tool && (questions.is_some() || !elicits) => (elicits, fields(&params, &order)),
            "form" | "url" if elicits => (true, None),
            "form" => (false, None),
            _ => {
                // Not announced: an agent may not ask so.
                let said = format!("elicitation/create: the mode {mode:?} is not served");
                out.far(jsonrpc::error(&id, &RpcError::invalid_params(said)));
                return;
            }
        };
        self.questions.count += 1;
        let number = self.questions.count;
        let call = Some(string("toolCallId")).filter(|c| !c.is_empty()).unwrap_or_else(|| format!("question_{number}"));
        let asked = fields.is_some();
        let choice = fields.map_or(ChoiceOf::Elicitation, |fields| as_asked(fields, questions));
        self.questions.open.push(Question {
            number,
            id,
            call,
            uses: Vec::new(),
            at: 0,
            options: Vec::new(),
            choice: Some(choice),
            act: None,
            hook_asks: None,
        });
        match &self.turn {
            None => {
                return self.refuse(number, "the question came outside of a turn; nobody was asked", &Why::Nobody, out);
            }
            Some(turn) if turn.interrupted || turn.stopping.is_some() => return self.answer_cancelled(number, out),
            Some(_) => {}
        }
        if asked {
            return self.ask_choice(number, out);
        }
        if !direct {
            let title = &self.set.profile.title;
            out.push(Action::Warn(format!(
                "Warning: {title} asks for a form that this host cannot show; it is declined"
            )));
            return self.refuse(number, "the host cannot show this form", &Why::Nobody, out);
        }
        if self.host.closed {
            return self.refuse(number, NOBODY, &Why::Nobody, out);
        }
        let call = string("toolCallId");
        if let Some(tracked) = self.turn.as_mut().and_then(|turn| turn.calls.iter_mut().find(|t| t.call.id == call)) {
            tracked.asked = true;
        }
        let mut request = json!({
            "subtype": "elicitation", "mcp_server_name": self.set.profile.name, "message": string("message"), "mode": mode,
        });
        for (member, own) in
            [("requested_schema", "requestedSchema"), ("url", "url"), ("elicitation_id", "elicitationId")]
        {
            if let Some(value) = params.get(own) {
                request[member] = value.clone();
            }
        }
        if !order.is_empty() {
            request["property_order"] = json!(order);
        }
        self.state("requires_action", out);
        self.ask_host(About::Permission(number), &request, out);
    }

    /// The questions of a call that asks some.
    fn questions_of(&self, call: &str) -> Option<Value> {
        let tracked = self.turn.as_ref()?.calls.iter().find(|t| t.call.id == call)?;
        let shown = tracked.uses.first().filter(|one| one.name == "AskUserQuestion")?;
        shown.input.get("questions").cloned()
    }

    /// The host answered `elicitation`.
    pub(super) fn elicitation_answered(&mut self, number: u64, answer: &HostAnswer<'_>, out: &mut Actions) {
        let Some(at) = self.questions.open.iter().position(|q| q.number == number) else { return };
        let question = self.questions.open.remove(at);
        let mut result = json!({"action": "decline"});
        if let Some(action @ ("accept" | "cancel")) = text(answer.action).as_deref() {
            result["action"] = action.into();
        }
        if let (true, Some(content)) = (result["action"] == "accept", read::<Value>(answer.content)) {
            result["content"] = content;
        }
        out.far(jsonrpc::response(&question.id, &result));
    }

    /// `elicitation/complete`: what was to be done at an address is done.
    pub(super) fn elicitation_complete(&mut self, params: Raw<'_>, out: &mut Actions) {
        let params: Value = read(params).unwrap_or_default();
        let Some(id) = params.get("elicitationId").filter(|_| self.set.options.elicits) else { return };
        let server = self.set.profile.name.as_str().into();
        let members = super::open::members([("mcp_server_name", server), ("elicitation_id", id.clone())]);
        self.system("elicitation_complete", members, out);
    }

    /// A question without a call of the agent's was shown as one: it gets its result.
    pub(super) fn close_own_call(&mut self, number: u64, call: &str, answers: &Map<String, Value>, out: &mut Actions) {
        if call != format!("question_{number}") {
            return;
        }
        let Some(turn) = &mut self.turn else { return };
        let tracked = turn.tracked(call);
        if std::mem::replace(&mut tracked.closed, true) {
            return;
        }
        let uses = tracked.uses.clone();
        let content = format!("The user answered: {}", Value::Object(answers.clone()));
        self.give_result(&uses, content, out);
    }
}

/// The names of a form's members, in the agent's order: it is what a person sees.
fn order(params: Raw<'_>) -> Vec<String> {
    struct Keys(Vec<String>);
    impl<'de> Deserialize<'de> for Keys {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Members;
            impl<'de> Visitor<'de> for Members {
                type Value = Vec<String>;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
                    let mut keys = Vec::new();
                    while let Some((key, _)) = map.next_entry::<String, IgnoredAny>()? {
                        keys.push(key);
                    }
                    Ok(keys)
                }
            }
            deserializer.deserialize_map(Members).map(Keys)
        }
    }
    #[derive(Deserialize)]
    struct Schema {
        properties: Keys,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        requested_schema: Schema,
    }
    params
        .and_then(|raw| serde_json::from_str::<Params>(raw.get()).ok())
        .map_or_else(Vec::new, |p| p.requested_schema.properties.0)
}

/// The choices of a form; `None`: it is more than choices.
fn fields(params: &Value, order: &[String]) -> Option<Vec<Field>> {
    let schema = params.get("requestedSchema")?;
    let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema.get("properties")?.as_object()?;
    let mut fields: Vec<Field> = Vec::new();
    for (name, property) in order.iter().filter_map(|name| properties.get_key_value(name)) {
        let required = required.contains(&name.as_str());
        if let Some(field) = fields.iter_mut().find(|field| *name == format!("{}_custom", field.name)) {
            field.custom = Some(name.clone());
            continue;
        }
        match values(property) {
            Some((values, many)) => {
                let label = ["title", "description"].iter().find_map(|key| property.get(key)?.as_str());
                let question = label.unwrap_or(name).to_owned();
                fields.push(Field { name: name.clone(), question, values, many, required, custom: None });
            }
            None if required => return None,
            None => {}
        }
    }
    if let ([one], false) = (&mut *fields, message.is_empty()) {
        message.clone_into(&mut one.question);
    }
    (!fields.is_empty()).then_some(fields)
}

/// The values of a member that is a choice, and whether there may be several.
fn values(property: &Value) -> Option<(Vec<Choice>, bool)> {
    let string = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let listed = |of: &Value| -> Option<Vec<Choice>> {
        if let Some(list) = of.get("enum").and_then(Value::as_array) {
            return list.iter().map(|v| Some((v.as_str()?.to_owned(), v.clone(), String::new()))).collect();
        }
        let list = of.get("oneOf").or_else(|| of.get("anyOf"))?.as_array()?;
        let one = |v: &Value| {
            let value = v.get("const")?.clone();
            let label =
                Some(string(v, "title")).filter(|t| !t.is_empty()).or_else(|| value.as_str().map(Into::into))?;
            Some((label, value, string(v, "description")))
        };
        list.iter().map(one).collect()
    };
    match property.get("type").and_then(Value::as_str)? {
        "string" => Some((listed(property)?, false)),
        "array" => Some((listed(property.get("items")?)?, true)),
        "boolean" => {
            let yes = ("Yes".to_owned(), true.into(), String::new());
            Some((vec![yes, ("No".to_owned(), false.into(), String::new())], false))
        }
        _ => None,
    }
}

/// A form of choices as it is asked: with the questions of its call, if it has as many.
fn as_asked(mut fields: Vec<Field>, questions: Option<Value>) -> ChoiceOf {
    let known: Vec<String> = questions
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|question| question.get("question")?.as_str().map(ToOwned::to_owned))
        .collect();
    match questions.filter(|_| known.len() == fields.len()) {
        Some(questions) => {
            for (field, question) in fields.iter_mut().zip(known) {
                field.question = question;
            }
            ChoiceOf::Form { fields, questions }
        }
        None => {
            let questions = as_questions(&fields);
            ChoiceOf::Form { fields, questions }
        }
    }
}

/// The form as `AskUserQuestion`'s questions.
fn as_questions(fields: &[Field]) -> Value {
    let question = |field: &Field| {
        let options: Vec<Value> =
            field.values.iter().map(|(label, _, why)| json!({"label": label, "description": why})).collect();
        json!({"question": field.question, "header": "Question", "options": options, "multiSelect": field.many})
    };
    Value::Array(fields.iter().map(question).collect())
}

/// The form's content for the host's answers; `None`: something is missing, or is none of the choices.
pub(super) fn as_content(fields: &[Field], answers: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut content = Map::new();
    for field in fields {
        let Some(answer) = answers.get(&field.question) else {
            if field.required {
                return None;
            }
            continue;
        };
        let value =
            |said: &str| field.values.iter().find(|(label, ..)| label == said).map(|(_, value, _)| value.clone());
        let said: Vec<&str> = match answer {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            Value::String(one) if field.many && value(one).is_none() => one.split(", ").collect(),
            Value::String(one) => vec![one],
            _ => return None,
        };
        let known: Option<Vec<Value>> = said.iter().map(|s| value(s)).collect();
        match (known, &field.custom) {
            (Some(known), _) if field.many => content.insert(field.name.clone(), Value::Array(known)),
            (Some(mut known), _) if known.len() == 1 => content.insert(field.name.clone(), known.remove(0)),
            (None, Some(custom)) => content.insert(custom.clone(), said.join(", ").into()),
            _ => return None,
        };
    }
    Some(content)
}

/// The answer to the agent.
pub(super) fn answer(id: &Id, action: &str, content: Option<&Map<String, Value>>) -> Vec<u8> {
    let mut result = json!({"action": action});
    if let Some(content) = content {
        result["content"] = Value::Object(content.clone());
    }
    jsonrpc::response(id, &result)
}
