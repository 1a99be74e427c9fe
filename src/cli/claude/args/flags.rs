//! The flags of claude, and what becomes of each.
//!
//! Owns the table. Keeps: a flag stands here with the number of values it takes, so that the words behind it are read right
//! even where it has no effect; what a host may rely on and does not get is said, what changes only looks is not.
//! Sources: claude 2.1.332 (`--help`, and its hidden flags), the recorded command lines of hosts, and the design's table.

use super::{ClaudeArgs, Command, InputFormat, OutputFormat, UsageError, split_rules};

/// How many values a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Optional,
    One,
    Many,
}

/// What a flag does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Does {
    /// Switches something; `--flag=false` switches it off.
    Switch(fn(&mut ClaudeArgs) -> &mut bool),
    /// Sets a text. An empty one is none.
    Text(fn(&mut ClaudeArgs) -> &mut Option<String>),
    /// Takes each of its values.
    Each(Takes, fn(&mut ClaudeArgs, Option<String>) -> Result<(), UsageError>),
    /// Has no effect that anyone would miss.
    Silent(Takes),
    /// Has no effect, and that is said.
    Warn(Takes, &'static str),
    /// Cannot be done without.
    Refuse(Takes, &'static str),
}

/// A flag.
#[derive(Debug)]
pub(super) struct Flag {
    names: &'static [&'static str],
    does: Does,
}

impl Flag {
    pub(super) fn takes(&self) -> Takes {
        match self.does {
            Does::Switch(_) => Takes::Nothing,
            Does::Text(_) => Takes::One,
            Does::Each(takes, _) | Does::Silent(takes) | Does::Warn(takes, _) | Does::Refuse(takes, _) => takes,
        }
    }

    /// Whether it is diglot's and not claude's.
    pub(super) fn is_ours(&self) -> bool {
        self.names.iter().any(|name| name.starts_with("--diglot-"))
    }

    pub(super) fn apply(&self, args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
        let name = self.names[0];
        match self.does {
            Does::Switch(place) => {
                *place(args) = !matches!(value.as_deref(), Some("false" | "0" | "no" | "off"));
            }
            Does::Text(place) => *place(args) = value.filter(|text| !text.is_empty()),
            Does::Each(_, take) => take(args, value)?,
            Does::Silent(_) => {}
            Does::Warn(_, why) => say(args, format!("{name} has no effect: {why}")),
            // The first refusal is the one that is told.
            Does::Refuse(_, why) if args.command == Command::Run => {
                args.command = Command::Refused(format!("{name} is not possible here: {why}"));
            }
            Does::Refuse(..) => {}
        }
        Ok(())
    }
}

/// The flag of that name.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|flag| flag.names.contains(&name))
}

/// Adds a warning once.
fn say(args: &mut ClaudeArgs, warning: String) {
    if !args.warnings.contains(&warning) {
        args.warnings.push(warning);
    }
}

const fn flag(names: &'static [&'static str], does: Does) -> Flag {
    Flag { names, does }
}

fn invalid(flag: &'static str, value: Option<String>, expected: &'static str) -> UsageError {
    UsageError::Invalid { flag, value: value.unwrap_or_default(), expected }
}

fn output_format(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    args.output_format = match value.as_deref() {
        Some("text") => OutputFormat::Text,
        Some("json") => OutputFormat::Json,
        Some("stream-json") => OutputFormat::StreamJson,
        _ => return Err(invalid("--output-format", value, "Allowed choices are text, json, stream-json.")),
    };
    Ok(())
}

fn input_format(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    args.input_format = match value.as_deref() {
        Some("text") => InputFormat::Text,
        Some("stream-json") => InputFormat::StreamJson,
        _ => return Err(invalid("--input-format", value, "Allowed choices are text, stream-json.")),
    };
    Ok(())
}

fn session_id(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    // The library knows shorter and longer spellings, hosts and claude do not.
    let valid = |id: &String| id.len() == 36 && uuid::Uuid::try_parse(id).is_ok();
    args.session_id = Some(value.filter(valid).ok_or(UsageError::SessionId)?);
    Ok(())
}

fn permission_mode(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    match value.as_deref() {
        Some("manual") => args.permission_mode = Some("default".into()),
        Some("default" | "acceptEdits" | "auto" | "plan" | "dontAsk" | "bypassPermissions") => {
            args.permission_mode = value;
        }
        // A mode of a later claude: to ask is always safe.
        _ => {
            args.permission_mode = None;
            say(args, "--permission-mode has no effect: the modes are default, acceptEdits, auto, plan, dontAsk, bypassPermissions".into());
        }
    }
    Ok(())
}

fn permission_prompts(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    args.permission_prompts_none = match value.as_deref() {
        Some("none") => true,
        Some("host") => false,
        _ => return Err(invalid("--permission-prompts", value, "Allowed choices are host, none.")),
    };
    Ok(())
}

fn max_turns(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    let number = value.as_deref().and_then(|text| text.trim().parse().ok());
    args.max_turns = Some(number.ok_or_else(|| invalid("--max-turns", value, "must be a number"))?);
    Ok(())
}

fn max_budget_usd(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    let number = value.as_deref().and_then(|text| text.trim().parse::<f64>().ok());
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    let expected = "--max-budget-usd must be a number greater than 0";
    args.max_budget_usd = Some(number.ok_or_else(|| invalid("--max-budget-usd", value, expected))?);
    Ok(())
}

fn max_thinking_tokens(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    let number = value.as_deref().and_then(|text| text.trim().parse().ok());
    args.max_thinking_tokens = Some(number.ok_or_else(|| invalid("--max-thinking-tokens", value, "must be a number"))?);
    Ok(())
}

fn thinking(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    match value.as_deref() {
        Some("enabled" | "adaptive" | "disabled") => args.thinking = value,
        _ => say(args, "--thinking has no effect: the choices are enabled, adaptive, disabled".into()),
    }
    Ok(())
}

fn effort(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    match value.as_deref() {
        Some("low" | "medium" | "high" | "xhigh" | "max") => args.effort = value,
        _ => say(args, "--effort has no effect: the levels are low, medium, high, xhigh, max".into()),
    }
    Ok(())
}

fn tools(args: &mut ClaudeArgs, value: Option<String>) -> Result<(), UsageError> {
    let names = split_rules(&value.unwrap_or_default());
    if names != ["default"] {
        say(args, "--tools has no effect: the agent decides which tools it has".into());
    }
    args.tools.get_or_insert_default().extend(names);
    Ok(())
}

/// A list of names behind a flag that takes one word.
fn names(value: Option<String>) -> Vec<String> {
    let value = value.unwrap_or_default();
    value.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}

fn push(list: &mut Vec<String>, value: Option<String>) {
    list.extend(value.filter(|value| !value.is_empty()));
}

const ALONE: &str = "no agent of another maker can be told";
const CUT: &str = "the agent cannot forget a part of a conversation, and going on with all of it would be wrong";
const CLOUD: &str = "diglot serves sessions on this machine only";

#[rustfmt::skip]
static FLAGS: &[Flag] = &[
    // What claude does and diglot does.
    flag(&["--print", "-p"], Does::Switch(|a| &mut a.print)),
    flag(&["--version", "-v", "-V"], Does::Each(Takes::Nothing, |a, _| { a.command = Command::Version; Ok(()) })),
    flag(&["--help", "-h"], Does::Each(Takes::Nothing, |a, _| { a.command = Command::Help; Ok(()) })),
    flag(&["--output-format"], Does::Each(Takes::One, output_format)),
    flag(&["--input-format"], Does::Each(Takes::One, input_format)),
    flag(&["--verbose"], Does::Switch(|a| &mut a.verbose)),
    flag(&["--include-partial-messages"], Does::Switch(|a| &mut a.include_partial_messages)),
    flag(&["--replay-user-messages"], Does::Switch(|a| &mut a.replay_user_messages)),
    flag(&["--forward-subagent-text"], Does::Switch(|a| &mut a.forward_subagent_text)),
    flag(&["--include-hook-events"], Does::Switch(|a| &mut a.include_hook_events)),
    flag(&["--resume", "-r"], Does::Each(Takes::Optional, |a, v| { a.resume = Some(v.filter(|v| !v.is_empty())); Ok(()) })),
    flag(&["--continue", "-c"], Does::Switch(|a| &mut a.continue_)),
    flag(&["--session-id"], Does::Each(Takes::One, session_id)),
    flag(&["--fork-session"], Does::Switch(|a| &mut a.fork_session)),
    flag(&["--no-session-persistence"], Does::Switch(|a| &mut a.no_session_persistence)),
    flag(&["--model"], Does::Text(|a| &mut a.model)),
    flag(&["--permission-mode"], Does::Each(Takes::One, permission_mode)),
    flag(&["--dangerously-skip-permissions"], Does::Switch(|a| &mut a.dangerously_skip_permissions)),
    flag(&["--allow-dangerously-skip-permissions"], Does::Switch(|a| &mut a.allow_dangerously_skip_permissions)),
    flag(&["--permission-prompt-tool"], Does::Text(|a| &mut a.permission_prompt_tool)),
    flag(&["--permission-prompts"], Does::Each(Takes::One, permission_prompts)),
    flag(&["--allowedTools", "--allowed-tools"], Does::Each(Takes::Many, |a, v| { a.allowed_tools.extend(split_rules(&v.unwrap_or_default())); Ok(()) })),
    flag(&["--disallowedTools", "--disallowed-tools"], Does::Each(Takes::Many, |a, v| { a.disallowed_tools.extend(split_rules(&v.unwrap_or_default())); Ok(()) })),
    flag(&["--tools"], Does::Each(Takes::Many, tools)),
    flag(&["--mcp-config"], Does::Each(Takes::Many, |a, v| { push(&mut a.mcp_config, v); Ok(()) })),
    flag(&["--strict-mcp-config"], Does::Switch(|a| &mut a.strict_mcp_config)),
    flag(&["--add-dir"], Does::Each(Takes::Many, |a, v| { push(&mut a.add_dir, v); Ok(()) })),
    flag(&["--append-system-prompt"], Does::Text(|a| &mut a.append_system_prompt)),
    flag(&["--append-system-prompt-file"], Does::Text(|a| &mut a.append_system_prompt_file)),
    flag(&["--system-prompt"], Does::Text(|a| &mut a.system_prompt)),
    flag(&["--system-prompt-file"], Does::Text(|a| &mut a.system_prompt_file)),
    flag(&["--json-schema"], Does::Text(|a| &mut a.json_schema)),
    flag(&["--max-turns"], Does::Each(Takes::One, max_turns)),
    flag(&["--max-budget-usd"], Does::Each(Takes::One, max_budget_usd)),
    flag(&["--max-thinking-tokens"], Does::Each(Takes::One, max_thinking_tokens)),
    flag(&["--thinking"], Does::Each(Takes::One, thinking)),
    flag(&["--effort"], Does::Each(Takes::One, effort)),
    flag(&["--settings"], Does::Text(|a| &mut a.settings)),
    flag(&["--setting-sources"], Does::Each(Takes::One, |a, v| { a.setting_sources = Some(names(v)); Ok(()) })),
    flag(&["--managed-settings"], Does::Text(|a| &mut a.managed_settings)),
    flag(&["--managed-settings-in-initialize"], Does::Switch(|a| &mut a.managed_settings_in_initialize)),
    flag(&["--await-initialize"], Does::Switch(|a| &mut a.await_initialize)),
    flag(&["--initialize-fields"], Does::Each(Takes::One, |a, v| { a.initialize_fields.extend(names(v)); Ok(()) })),
    flag(&["--name", "-n"], Does::Text(|a| &mut a.name)),
    flag(&["--debug", "-d"], Does::Each(Takes::Optional, |a, _| { a.debug = true; Ok(()) })),
    flag(&["--debug-to-stderr", "-d2e"], Does::Switch(|a| &mut a.debug)),
    flag(&["--mcp-debug"], Does::Switch(|a| &mut a.debug)),
    flag(&["--debug-file"], Does::Each(Takes::One, |a, v| { a.debug = true; a.debug_file = v.filter(|v| !v.is_empty()); Ok(()) })),
    // What is kept, though no agent can be told.
    flag(&["--fallback-model"], Does::Each(Takes::One, |a, v| {
        a.fallback_model = v.filter(|v| !v.is_empty());
        say(a, format!("--fallback-model has no effect: {ALONE}"));
        Ok(())
    })),
    flag(&["--agents"], Does::Each(Takes::One, |a, v| {
        a.agents_json = v.filter(|v| !v.is_empty());
        say(a, "--agents has no effect: the agent has subagents of its own".into());
        Ok(())
    })),
    // diglot's own.
    flag(&["--agent-name", "--diglot-agent"], Does::Text(|a| &mut a.agent_name)),
    flag(&["--diglot-trace"], Does::Text(|a| &mut a.diglot_trace)),
    flag(&["--diglot-files"], Does::Switch(|a| &mut a.diglot_files)),
    flag(&["--diglot-terminals"], Does::Switch(|a| &mut a.diglot_terminals)),
    // What a host may miss.
    flag(&["--advisor"], Does::Warn(Takes::One, ALONE)),
    flag(&["--agent"], Does::Warn(Takes::One, "the agent has subagents of its own (choose the agent itself with --agent-name)")),
    flag(&["--append-subagent-system-prompt"], Does::Warn(Takes::One, ALONE)),
    flag(&["--append-subagent-system-prompt-file"], Does::Warn(Takes::One, ALONE)),
    flag(&["--autocompact"], Does::Warn(Takes::One, "the agent decides when it makes room")),
    flag(&["--betas"], Does::Warn(Takes::Many, ALONE)),
    flag(&["--brief"], Does::Warn(Takes::Nothing, "the agent has no such tool")),
    flag(&["--channels"], Does::Warn(Takes::Many, "the agent has no channels")),
    flag(&["--dangerously-load-development-channels"], Does::Warn(Takes::Many, "the agent has no channels")),
    flag(&["--chrome"], Does::Warn(Takes::Nothing, "the agent has no browser of claude's")),
    flag(&["--disable-slash-commands"], Does::Warn(Takes::Nothing, "the agent keeps its commands")),
    flag(&["--file"], Does::Warn(Takes::Many, "there is no file service")),
    flag(&["--max-context-tokens"], Does::Warn(Takes::One, "the agent knows its own limit")),
    flag(&["--plan-mode-instructions"], Does::Warn(Takes::One, ALONE)),
    flag(&["--plugin-dir"], Does::Warn(Takes::One, "the agent has no such plugins")),
    flag(&["--plugin-dir-no-mcp"], Does::Warn(Takes::One, "the agent has no such plugins")),
    flag(&["--plugin-url"], Does::Warn(Takes::One, "the agent has no such plugins")),
    flag(&["--prompt-suggestions"], Does::Warn(Takes::Optional, "the agent suggests none")),
    flag(&["--session-mirror"], Does::Warn(Takes::Nothing, "the agent keeps the conversation in its own form")),
    flag(&["--task-budget"], Does::Warn(Takes::One, ALONE)),
    flag(&["--worktree", "-w"], Does::Warn(Takes::Optional, "start diglot in the folder that is meant")),
    // What has no counterpart and is not missed.
    flag(&["--agent-color"], Does::Silent(Takes::One)),
    flag(&["--agent-id"], Does::Silent(Takes::One)),
    flag(&["--agent-type"], Does::Silent(Takes::One)),
    flag(&["--ax-screen-reader"], Does::Silent(Takes::Nothing)),
    flag(&["--bare"], Does::Silent(Takes::Nothing)),
    flag(&["--client-data-url"], Does::Silent(Takes::One)),
    flag(&["--correlation-id"], Does::Silent(Takes::One)),
    flag(&["--cowork"], Does::Silent(Takes::Nothing)),
    flag(&["--enable-auth-status"], Does::Silent(Takes::Nothing)),
    flag(&["--enable-auto-mode"], Does::Silent(Takes::Nothing)),
    flag(&["--exclude-dynamic-system-prompt-sections"], Does::Silent(Takes::Nothing)),
    flag(&["--fast-mode"], Does::Silent(Takes::One)),
    flag(&["--ide"], Does::Silent(Takes::Nothing)),
    flag(&["--init"], Does::Silent(Takes::Nothing)),
    flag(&["--maintenance"], Does::Silent(Takes::Nothing)),
    flag(&["--no-chrome"], Does::Silent(Takes::Nothing)),
    flag(&["--parent-session-id"], Does::Silent(Takes::One)),
    flag(&["--plan-mode-required"], Does::Silent(Takes::Nothing)),
    flag(&["--prefill"], Does::Silent(Takes::One)),
    flag(&["--proactivity"], Does::Silent(Takes::One)),
    flag(&["--project-config-root"], Does::Silent(Takes::One)),
    flag(&["--remote-control", "--rc"], Does::Silent(Takes::Optional)),
    flag(&["--remote-control-session-name-prefix"], Does::Silent(Takes::One)),
    flag(&["--safe-mode"], Does::Silent(Takes::Nothing)),
    flag(&["--system-prompt-snapshot"], Does::Silent(Takes::One)),
    flag(&["--team-name"], Does::Silent(Takes::One)),
    flag(&["--teammate-mode"], Does::Silent(Takes::One)),
    flag(&["--thinking-display"], Does::Silent(Takes::One)),
    flag(&["--tmux"], Does::Silent(Takes::Nothing)),
    flag(&["--workload"], Does::Silent(Takes::One)),
    flag(&["--xaa"], Does::Silent(Takes::Nothing)),
    // What would be wrong to go on without.
    flag(&["--await-claim"], Does::Refuse(Takes::Nothing, CLOUD)),
    flag(&["--bg", "--background"], Does::Refuse(Takes::Nothing, "diglot has no sessions in the background")),
    flag(&["--cloud", "--remote"], Does::Refuse(Takes::Optional, CLOUD)),
    flag(&["--desktop"], Does::Refuse(Takes::Nothing, "diglot serves print mode and stream-json only")),
    flag(&["--environment"], Does::Refuse(Takes::One, CLOUD)),
    flag(&["--from-pr"], Does::Refuse(Takes::Optional, "sessions are not found by pull requests; give --resume a session id")),
    flag(&["--init-only"], Does::Refuse(Takes::Nothing, "there are no setup hooks to run alone")),
    flag(&["--restricted"], Does::Refuse(Takes::Nothing, "the agent's tools cannot be taken away, so the restriction would not hold")),
    flag(&["--resume-drops-turn"], Does::Refuse(Takes::One, CUT)),
    flag(&["--resume-session-at"], Does::Refuse(Takes::One, CUT)),
    flag(&["--rewind-files"], Does::Refuse(Takes::One, "the agent keeps no copies of the files it changes")),
    flag(&["--sdk-url"], Does::Refuse(Takes::One, CLOUD)),
    flag(&["--teleport"], Does::Refuse(Takes::Optional, CLOUD)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for name in FLAGS.iter().flat_map(|flag| flag.names) {
            assert!(seen.insert(name), "{name}");
        }
    }
}
