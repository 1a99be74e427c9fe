//! Questions to the user that an agent asks in a way of its own (quirks 10 and 11): as a permission with answers for options
//! (Kimi), with the questions in `_meta` (Qwen), or as a request of its own (Grok, CodeBuddy).
//!
//! Keeps: they reach the host as Claude's own `AskUserQuestion` and `ExitPlanMode`; nothing is answered for the user.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ClaudeOverAcp;
use super::elicit::{Field, as_content};
use super::host::{About, NOBODY, parsed};
use super::permission::Why;
use super::question::{Choice, End, Question};
use super::render::ToolUse;
use crate::translate::Actions;
use crate::wire::jsonrpc::Id;
use crate::wire::stream_json_agent::HostAnswer;
use crate::wire::text::{Raw, read, text};

/// A question to the user that comes as a permission.
#[derive(Debug, Clone)]
pub(super) enum ChoiceOf {
    /// Each option is an answer (Kimi).
    Options { question: String },
    /// The questions stand in `_meta`, the answers beside the outcome (Qwen).
    Meta { questions: Value },
    /// A request of Grok's own (quirk 11).
    Grok { questions: Value },
    /// A request of CodeBuddy's own (quirk 11).
    CodeBuddy { questions: Value },
    /// Grok's plan, to be approved (quirk 11).
    GrokPlan { plan: String },
    /// `elicitation/create`: a form of choices.
    Form { fields: Vec<Field>, questions: Value },
    /// `elicitation/create`, as the host itself answers it.
    Elicitation,
}

impl ClaudeOverAcp {
    /// A request of the agent's own that is a question to the user: Grok's and CodeBuddy's (quirk 11).
    pub(super) fn own_question(&mut self, id: Id, method: &str, params: Raw<'_>, out: &mut Actions) -> bool {
        let params: Value = read(params).unwrap_or_default();
        let string = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let choice = match method {
            "_x.ai/ask_user_question" => params.get("questions").cloned().map(|questions| ChoiceOf::Grok { questions }),
            "_x.ai/exit_plan_mode" => Some(ChoiceOf::GrokPlan { plan: string("planContent") }),
            "_codebuddy.ai/question" => {
                params.pointer("/schema/questions").cloned().map(|questions| ChoiceOf::CodeBuddy { questions })
            }
            _ => None,
        };
        let Some(choice) = choice else { return false };
        self.questions.count += 1;
        let number = self.questions.count;
        let call = Some(string("toolCallId")).filter(|c| !c.is_empty()).unwrap_or_else(|| format!("question_{number}"));
        self.questions.open.push(Question {
            number,
            id,
            call,
            uses: Vec::new(),
            at: 0,
            options: Vec::new(),
            choice: Some(choice),
            form: None,
            act: None,
            hook_asks: None,
        });
        match &self.turn {
            None => self.refuse(number, "the question came outside of a turn; nobody was asked", &Why::Nobody, out),
            Some(turn) if turn.interrupted || turn.stopping.is_some() => self.answer_cancelled(number, out),
            Some(_) => self.ask_choice(number, out),
        }
        true
    }

    /// `AskUserQuestion` or `ExitPlanMode`, as far as the agent's question can be said so.
    pub(super) fn ask_choice(&mut self, number: u64, out: &mut Actions) {
        let Some(question) = self.question(number) else { return };
        let (name, member, value) = match &question.choice {
            Some(ChoiceOf::Options { question: text }) => {
                let options: Vec<Value> = question
                    .options
                    .iter()
                    .filter(|o| !o.kind.starts_with("reject"))
                    .map(|o| json!({"label": o.name, "description": ""}))
                    .collect();
                let one = json!({"question": text, "header": "Question", "options": options, "multiSelect": false});
                // What the call has of it, it has in full.
                let one = self.shown_question(&question.call, text).unwrap_or(one);
                ("AskUserQuestion", "questions", json!([one]))
            }
            Some(ChoiceOf::Meta { questions } | ChoiceOf::Grok { questions } | ChoiceOf::CodeBuddy { questions }) => {
                ("AskUserQuestion", "questions", as_claude_asks(questions))
            }
            Some(ChoiceOf::Form { questions, .. }) => ("AskUserQuestion", "questions", questions.clone()),
            Some(ChoiceOf::GrokPlan { plan }) => ("ExitPlanMode", "plan", plan.as_str().into()),
            Some(ChoiceOf::Elicitation) | None => return,
        };
        let mut input = Map::new();
        input.insert(member.into(), value);
        let call = question.call.clone();
        let id = super::render::tool_use_id(&call);
        let mut one = ToolUse { id, name: name.into(), input: input.clone(), cut: false };
        if let Some(turn) = &mut self.turn {
            let tracked = turn.tracked(&call);
            if tracked.closed {
                return self.refuse(number, "the call had already ended; nobody was asked", &Why::Nobody, out);
            }
            tracked.asked = true;
            tracked.hooked = true;
            match tracked.uses.first() {
                // It was already shown as the agent calls it.
                Some(shown) => one.id.clone_from(&shown.id),
                None => {
                    tracked.uses = vec![one.clone()];
                    self.call(&one, out);
                }
            }
        }
        if !self.set.options.asks_host && self.set.options.elicits && name == "AskUserQuestion" && !self.host.closed {
            return self.ask_by_form(number, &input, out);
        }
        if self.host.closed || !self.set.options.asks_host {
            return self.refuse(number, NOBODY, &Why::Nobody, out);
        }
        let request = json!({
            "subtype": "can_use_tool", "tool_name": one.name, "display_name": one.name, "input": input,
            "tool_use_id": one.id, "permission_suggestions": [], "requires_user_interaction": true,
        });
        self.state("requires_action", out);
        self.ask_host(About::Permission(number), &request, out);
    }

    /// A question as the call that asks it has it: with what each choice means.
    fn shown_question(&self, call: &str, text: &str) -> Option<Value> {
        let tracked = self.turn.as_ref()?.calls.iter().find(|t| t.call.id == call)?;
        let arguments = tracked.call.raw_input.as_ref()?.get("questions")?;
        let all = as_claude_asks(arguments);
        all.as_array()?.iter().find(|q| q.get("question").and_then(Value::as_str) == Some(text)).cloned()
    }

    pub(super) fn choice_answered(&mut self, number: u64, allows: bool, answered: &HostAnswer<'_>, out: &mut Actions) {
        if !allows {
            let said = text(answered.message).unwrap_or("The user did not answer the question.".into());
            return self.refuse(number, &said, &Why::Host, out);
        }
        let input = parsed(answered.updated_input.or(answered.input)).unwrap_or_default();
        let answers = input.get("answers").and_then(Value::as_object).cloned().unwrap_or_default();
        self.choice_ends(number, &answers, out);
    }

    /// Passes the answers on, by the text of their questions.
    pub(super) fn choice_ends(&mut self, number: u64, answers: &Map<String, Value>, out: &mut Actions) {
        let Some(at) = self.questions.open.iter().position(|q| q.number == number) else { return };
        let question = &self.questions.open[at];
        match &question.choice {
            Some(ChoiceOf::Options { .. }) => {
                let chosen = answers.values().find_map(Value::as_str);
                let option = question.options.iter().find(|o| chosen == Some(o.name.as_str())).map(|o| o.id.clone());
                let Some(option) = option else {
                    let said = "the host's answer is none of the question's options";
                    return self.refuse(number, said, &Why::Nobody, out);
                };
                self.questions.open.remove(at).end(&End::Option(&option), out);
            }
            Some(ChoiceOf::GrokPlan { .. }) => self.questions.open.remove(at).end(&End::Answers(answers), out),
            Some(ChoiceOf::Form { fields, .. }) => match as_content(fields, answers) {
                Some(content) => {
                    let question = self.questions.open.remove(at);
                    question.end(&End::Answers(&content), out);
                    self.close_own_call(number, &question.call, answers, out);
                }
                None => self.refuse(number, "the host's answers do not fit the form", &Why::Nobody, out),
            },
            _ if answers.is_empty() => {
                self.refuse(number, "the host's answer holds no answers to the questions", &Why::Nobody, out);
            }
            _ => self.questions.open.remove(at).end(&End::Answers(answers), out),
        }
    }
}

/// An agent's questions with every member that Claude's have.
pub(super) fn as_claude_asks(questions: &Value) -> Value {
    let list = questions.as_array().into_iter().flatten().map(|question| {
        let string = |name: &str| question.get(name).and_then(Value::as_str);
        let many = question.get("multiSelect").or_else(|| question.get("multi_select"));
        let options: Vec<Value> = question
            .get("options")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|option| match option.as_str() {
                Some(label) => json!({"label": label, "description": ""}),
                None => json!({
                    "label": option.get("label").or_else(|| option.get("name")).cloned().unwrap_or_default(),
                    "description": option.get("description").and_then(Value::as_str).unwrap_or_default(),
                }),
            })
            .collect();
        json!({
            "question": string("question").unwrap_or_default(),
            "header": string("header").unwrap_or("Question"),
            "options": options,
            "multiSelect": many.and_then(Value::as_bool).unwrap_or_default(),
        })
    });
    Value::Array(list.collect())
}

/// Answers by another member of their questions, or without one by their place.
pub(super) fn by(questions: &Value, member: &str, answers: &Map<String, Value>) -> Map<String, Value> {
    let list = questions.as_array().into_iter().flatten().enumerate();
    list.filter_map(|(n, question)| {
        let key = question.get(member).and_then(Value::as_str).map_or_else(|| n.to_string(), ToOwned::to_owned);
        Some((key, answers.get(question.get("question")?.as_str()?)?.clone()))
    })
    .collect()
}

pub(super) fn as_list(answer: &Value) -> Value {
    match answer {
        Value::Array(_) => answer.clone(),
        one => json!([one]),
    }
}

/// Whether a permission is in truth a question with choices (quirk 10).
pub(super) fn choice_of(call: &RawValue, options: &[Choice], _meta: Raw<'_>) -> Option<ChoiceOf> {
    let call: Value = serde_json::from_str(call.get()).ok()?;
    let meta = call.get("_meta");
    if meta.and_then(|m| m.get("qwenInteractionKind")).and_then(Value::as_str) == Some("user_question") {
        let questions = meta.and_then(|m| m.get("qwenQuestions")).filter(|q| q.is_array()).cloned();
        return questions.map(|questions| ChoiceOf::Meta { questions });
    }
    // Kimi: `q0_opt_1`, `q0_skip`.
    let is_answer = |id: &str| {
        id.strip_prefix('q')
            .and_then(|rest| rest.split_once('_'))
            .is_some_and(|(number, rest)| number.parse::<u32>().is_ok() && (rest.starts_with("opt_") || rest == "skip"))
    };
    if options.is_empty() || !options.iter().all(|o| is_answer(&o.id)) {
        return None;
    }
    let first = call.pointer("/content/0/content/text").or_else(|| call.get("title"));
    let question = first.and_then(Value::as_str).unwrap_or("?").to_owned();
    Some(ChoiceOf::Options { question })
}
