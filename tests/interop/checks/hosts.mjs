// The reverse half: every host of hosts/ drives `diglot claude` with every agent of agents/ behind it, and must not notice that
// it is not Claude Code. Names are hosts/AGENT/HOST/CHECK; the agent `claude` is the real Claude Code in the same place, which
// says that the check itself is right, and `round-trip` is Claude behind both halves of diglot. What a host or an agent cannot do is left out by name in its recipe (`lacks`).
//
//   HOST_CMD='["/path/to/diglot","claude"]'     the program under test; `--diglot-agent AGENT` is added

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { claude, roundTrip } from '../agents/claude.mjs';
import { AGENTS, make, prepareAgent, program } from '../agents/index.mjs';
import { HOSTS } from '../hosts/index.mjs';
import { blocks, Host, messages, resultText, said } from '../lib/host.mjs';
import { descendants, gone, kill, marked } from '../lib/procs.mjs';

const tap = path.join(path.dirname(fileURLToPath(import.meta.url)), '../tap.mjs');
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const json = JSON.stringify;
export const task = (call) => `%call ${call[0]} ${json(call[1])}`;
/** A prompt of these script lines that survives what agents put around a prompt. */
export const prompt = (...lines) => ['Please do this.', ...lines, 'Thank you.'].join('\n');

/** Makes the program under test startable as `claude`, with the agent behind it, and tells the drivers where it is. */
export function launcher(sandbox, agent, command) {
  let argv = [sandbox.place.claude];
  if (agent !== claude) {
    // diglot finds the agent's program on PATH.
    if (agent !== roundTrip) prepareAgent(sandbox, agent);
    sandbox.env.DIGLOT_TRACE = path.join(sandbox.folder, 'trace-%p.ndjson');
    argv = [...command, '--diglot-agent', agent.profile ?? agent.name];
  }
  // Where a host names the launcher itself as the claude to start, what stands behind it must still find the real one.
  sandbox.env.CLAUDE_UNDER_TEST = program(sandbox, 'claude', ['env', `CLAUDE_CODE_EXECUTABLE=${sandbox.place.claude}`, process.execPath, tap, sandbox.wire, ...argv]);
}

/** The turn ended well; returns whether. */
export function well(report, result) {
  return report.equal([result.subtype, result.is_error], ['success', false], `the result (${json(result.errors ?? result.result)?.slice(0, 300)})`);
}

/** Each call of the turn has exactly one result, after it. Returns the pairs {use, result}. */
export function paired(report, events) {
  const uses = blocks(events, 'assistant', 'tool_use');
  const results = blocks(events, 'user', 'tool_result');
  report.equal(results.map((block) => block.tool_use_id).sort(), uses.map((block) => block.id).sort(), 'each tool_use has one tool_result');
  return uses.map((use) => ({ use, result: results.find((block) => block.tool_use_id === use.id) }));
}

/** The first call of the turn that ran a command, with its result. */
function command(report, events) {
  const found = paired(report, events).find(({ use }) => use.name === 'Bash');
  report.ok(found, `a Bash call among ${json(blocks(events, 'assistant', 'tool_use').map((use) => use.name))}`);
  return found;
}

const asks = (host, from = 0) => host.events.slice(from).filter((event) => event.event === 'ask');
export const touch = (agent, name) => task(agent.shell(make(agent, name)));

/** name, [what host and agent must not lack], body({host, agent, sandbox, report, start}) */
const CHECKS = [
  ['one-shot', [], async ({ host, report }) => {
    const ended = await host.once(prompt('%say Hello from one shot.'));
    report.equal(ended.error, undefined, 'error of the conversation');
    const all = messages(host.events);
    const results = messages(host.events, 'result');
    report.equal(results.length, 1, 'results');
    well(report, results[0]);
    report.equal(results[0].result, 'Hello from one shot.', 'result text');
    report.equal(said(host.events), 'Hello from one shot.', 'text of the messages');
    report.ok(UUID.test(results[0].session_id), `the session id is a UUID: ${results[0].session_id}`);
    const init = all.find((message) => message.type === 'system' && message.subtype === 'init');
    report.ok(init, 'there is a system/init');
    report.equal(init?.session_id, results[0].session_id, 'session id of system/init');
    for (const field of ['cwd', 'tools', 'mcp_servers', 'model', 'permissionMode', 'apiKeySource']) report.ok(init?.[field] !== undefined && init[field] !== null, `system/init has ${field}`);
    report.ok(all.indexOf(init) < all.findIndex((message) => message.type === 'assistant'), 'system/init comes before the text');
  }],

  ['multi-turn', [], async ({ host, report }) => {
    await host.open();
    const first = await host.prompt(prompt('%label one', '%say First.'));
    well(report, first);
    report.equal(first.result, 'First.', 'first result');
    const second = await host.prompt(prompt('%label two', '%recall'));
    well(report, second);
    report.equal(second.result, 'one two', 'prompts that the model saw');
    report.equal(second.session_id, first.session_id, 'session id of the second turn');
    report.equal(said(second.events), 'one two', 'text of the second turn');
  }],

  ['partials', [], async ({ host, report }) => {
    await host.open({ partial: true });
    const words = Array.from({ length: 200 }, (_, i) => `w${i}`).join(' ');
    const result = await host.prompt(prompt(`%think First I think.`, `%say ${words}`));
    well(report, result);
    const streamed = messages(result.events, 'stream_event').map((message) => message.event);
    const deltas = streamed.filter((event) => event.type === 'content_block_delta' && event.delta.type === 'text_delta').map((event) => event.delta.text);
    report.ok(deltas.length > 1, `the text comes in pieces: ${deltas.length}`);
    report.equal(deltas.join(''), words, 'joined pieces');
    report.equal(said(result.events), words, 'text of the whole messages');
    report.equal(result.result, words, 'result text');
    const count = (type) => streamed.filter((event) => event.type === type).length;
    report.equal(count('message_start'), count('message_stop'), 'each message_start has its message_stop');
    report.equal(count('content_block_start'), count('content_block_stop'), 'each content_block_start has its content_block_stop');
    let open;
    for (const event of streamed) {
      if (event.type === 'content_block_start') { report.equal(open, undefined, 'block open before the next starts'); open = event.index; }
      if (event.type === 'content_block_delta') report.equal(event.index, open, 'index of a delta');
      if (event.type === 'content_block_stop') { report.equal(event.index, open, 'index of a stop'); open = undefined; }
    }
  }],

  ['allow', ['questions', 'callback'], async ({ host, agent, sandbox, report }) => {
    await host.open({ callback: true });
    const result = await host.prompt(prompt(touch(agent, 'allowed.txt'), '%next', '%say Made it.'));
    well(report, result);
    const asked = asks(host);
    report.equal(asked.length, 1, 'questions');
    report.equal(asked[0]?.tool, 'Bash', 'tool asked about');
    report.ok(asked[0]?.input.command?.includes('allowed.txt'), `the command asked about: ${json(asked[0]?.input)}`);
    const ran = command(report, result.events);
    report.ok(ran?.use.input.command?.includes('allowed.txt'), `the command of the call: ${json(ran?.use.input)}`);
    if (asked[0]?.call) report.equal(asked[0].call, ran?.use.id, 'call asked about');
    report.ok(!ran?.result?.is_error, `the call went well: ${json(ran?.result)}`);
    report.equal(sandbox.read('allowed.txt'), '', 'allowed.txt');
    report.ok(result.result.includes('Made it.'), `result text: ${result.result}`);
  }],

  ['edit', [], async ({ host, agent, sandbox, report }) => {
    await host.open({ callback: true });
    const result = await host.prompt(prompt(task(agent.write(sandbox.file('new.txt'), 'hello\nworld\n')), '%next', '%say Written.'));
    well(report, result);
    report.equal(sandbox.read('new.txt')?.trimEnd(), 'hello\nworld', 'new.txt');
    const [{ use, result: gave } = {}] = paired(report, result.events);
    report.ok(['Write', 'Edit'].includes(use?.name), `the call is a Write (or an Edit): ${use?.name}`);
    report.ok(use?.input.file_path?.endsWith('new.txt'), `the file of the call: ${json(use?.input)}`);
    if (use?.name === 'Write') report.equal(use.input.content.trimEnd(), 'hello\nworld', 'content of the call');
    report.ok(!gave?.is_error, `the call went well: ${json(gave)}`);
  }],

  ['output', ['output'], async ({ host, agent, report }) => {
    await host.open({ callback: true });
    const result = await host.prompt(prompt(task(agent.shell('touch out.txt; printf "%s-%s\\n" seen here; exit 3')), '%next', '%say It failed.'));
    well(report, result);
    const ran = command(report, result.events);
    report.ok(resultText(ran?.result ?? {}).includes('seen-here'), `the output in the result: ${json(ran?.result)}`);
  }],

  ['deny', ['questions', 'callback'], async ({ host, agent, sandbox, report }) => {
    host.decide = () => ({ behavior: 'deny', message: 'Not today, says the host.' });
    await host.open({ callback: true });
    const result = await host.prompt(prompt(touch(agent, 'denied.txt'), '%next', '%say Then not.'));
    // Some agents end their turn with a refusal; for the host that is no failure.
    well(report, result);
    report.equal(sandbox.read('denied.txt'), null, 'denied.txt');
    const ran = command(report, result.events);
    report.ok(ran?.result?.is_error, `the call failed: ${json(ran?.result)}`);
    report.ok(resultText(ran?.result ?? {}).includes('Not today, says the host.'), `the host's reason in the result: ${json(ran?.result)}`);
    const next = await host.prompt(prompt('%say Go on.'));
    well(report, next);
    report.equal(next.result, 'Go on.', 'result of the next turn');
  }],

  ['deny-interrupt', ['questions', 'callback'], async ({ host, agent, sandbox, report }) => {
    host.decide = () => ({ behavior: 'deny', message: 'Stop here.', interrupt: true });
    await host.open({ callback: true });
    const result = await host.prompt(prompt(touch(agent, 'denied.txt'), '%next', '%say Never said.'));
    report.equal(result.subtype, 'error_during_execution', 'subtype of the result');
    report.equal(sandbox.read('denied.txt'), null, 'denied.txt');
    report.ok(!said(result.events).includes('Never said.'), 'the turn ends with the refusal');
    paired(report, result.events);
    host.decide = (asked) => ({ behavior: 'allow', updatedInput: asked.input });
    const next = await host.prompt(prompt('%say On we go.'));
    well(report, next);
    report.equal(next.result, 'On we go.', 'result of the next turn');
  }],

  ['nobody-to-ask', ['questions'], async ({ host, agent, sandbox, report }) => {
    await host.open();
    const result = await host.prompt(prompt(touch(agent, 'unasked.txt'), '%next', '%say Then not.'));
    well(report, result);
    report.equal(sandbox.read('unasked.txt'), null, 'unasked.txt');
    const ran = command(report, result.events);
    report.ok(ran?.result?.is_error, `the call failed: ${json(ran?.result)}`);
    if (result.permission_denials !== undefined) report.equal(result.permission_denials?.map((one) => [one.tool_name, one.tool_use_id]), [['Bash', ran?.use.id]], 'permission_denials');
  }],

  ['queued', [], async ({ host, report }) => {
    await host.open();
    const words = Array.from({ length: 40 }, (_, i) => `w${i}`).join(' ');
    host.send({ op: 'prompt', text: prompt('%label one', '%pace 20', `%say ${words}`) });
    host.send({ op: 'prompt', text: prompt('%label two', '%recall') });
    const first = await host.until((event) => event.message?.type === 'result');
    const second = await host.until((event) => event.message?.type === 'result', host.events.indexOf(first) + 1);
    well(report, first.message);
    well(report, second.message);
    report.equal([first.message.result, second.message.result], [words, 'one two'], 'results, in the order of the prompts');
  }],

  ['cut-in', ['priority'], async ({ host, report }) => {
    await host.open({ partial: true });
    const words = Array.from({ length: 200 }, (_, i) => `w${i}`).join(' ');
    host.send({ op: 'prompt', text: prompt('%pace 50', `%say ${words}`) });
    await host.until((event) => event.message?.event?.delta?.type === 'text_delta');
    host.send({ op: 'prompt', text: prompt('%say Later.'), more: { priority: 'later' } });
    host.send({ op: 'prompt', text: prompt('%say At once.'), more: { priority: 'now' } });
    const results = [];
    for (let from = 0; results.length < 3;) {
      const result = await host.until((event) => event.message?.type === 'result', from);
      from = host.events.indexOf(result) + 1;
      results.push(result.message);
    }
    results.forEach((result) => well(report, result));
    report.equal(results[0].terminal_reason, 'aborted_streaming', 'why the first turn ended');
    report.ok(results[0].result.length < words.length, 'the first answer is cut short');
    report.equal(results.slice(1).map((result) => result.result), ['At once.', 'Later.'], 'results, by priority');
  }],

  ['without-query', ['priority'], async ({ host, report }) => {
    await host.open();
    host.send({ op: 'prompt', text: prompt('%label one'), more: { shouldQuery: false } });
    const first = await host.until((event) => event.message?.type === 'result');
    report.equal([first.message.subtype, first.message.num_turns, first.message.result], ['success', 0, ''], 'the result of a message that asks for nothing');
    const second = await host.prompt(prompt('%label two', '%recall'));
    well(report, second);
    report.equal(second.result, 'one two', 'what the model was told');
  }],

  ['changed-input', ['questions', 'callback'], async ({ host, agent, sandbox, report }) => {
    host.decide = (asked) => ({ behavior: 'allow', updatedInput: { ...asked.input, command: 'touch changed.txt' } });
    await host.open({ callback: true });
    const result = await host.prompt(prompt(touch(agent, 'original.txt'), '%next', '%say Done with it.'));
    well(report, result);
    report.equal(sandbox.read('original.txt'), null, 'original.txt');
    const ran = command(report, result.events);
    if (agent === claude) report.equal(sandbox.read('changed.txt'), '', 'changed.txt');
    // ACP has no way to change a call: what the host did not allow must not run, and it is told.
    else report.ok(ran?.result?.is_error, `the call failed: ${json(ran?.result)}`);
  }],

  ['two-questions', ['questions', 'callback', 'parallel'], async ({ host, agent, sandbox, report }) => {
    host.decide = () => undefined;
    await host.open({ callback: true });
    const child = (name) => task(['Agent', {
      description: `Child ${name}`, subagent_type: 'general-purpose', run_in_background: false,
      prompt: prompt(touch(agent, `${name}.txt`), '%next', `%say Child ${name} is done.`),
    }]);
    const lines = agent.shell === claude.shell ? [child('left'), child('right')] : [touch(agent, 'left.txt'), touch(agent, 'right.txt')];
    const ending = host.prompt(prompt(...lines, '%next', '%say Both are there.'));
    const first = await host.until((event) => event.event === 'ask');
    const second = await host.until((event) => event.event === 'ask' && event !== first);
    report.ok(first.input.command !== second.input.command, `two commands: ${json([first.input, second.input])}`);
    // Both are open now. The one asked last is answered first.
    host.reply(second, { behavior: 'allow', updatedInput: second.input });
    host.reply(first, { behavior: 'allow', updatedInput: first.input });
    const result = await ending;
    well(report, result);
    report.equal([sandbox.read('left.txt'), sandbox.read('right.txt')], ['', ''], 'left.txt and right.txt');
  }],

  ['choice', ['ask', 'callback'], async ({ host, agent, report }) => {
    host.decide = (asked) => ({ behavior: 'allow', updatedInput: asked.tool === 'AskUserQuestion' ? { ...asked.input, answers: { 'Which colour?': 'Green' } } : asked.input });
    await host.open({ callback: true });
    const result = await host.prompt(prompt(task(agent.ask('Which colour?', ['Red', 'Green'])), '%next', '%results'));
    well(report, result);
    const [asked] = asks(host);
    report.equal(asked?.tool, 'AskUserQuestion', 'tool asked about');
    report.equal(asked?.input.questions?.[0]?.question, 'Which colour?', 'question');
    report.equal(asked?.input.questions?.[0]?.options?.map((option) => option.label), ['Red', 'Green'], 'choices');
    report.ok(result.result.includes('Green') && !/Red"?\s*$/.test(result.result), `what the model was told: ${result.result}`);
  }],

  ['interrupt', [], async ({ host, report }) => {
    await host.open({ partial: true });
    const ending = host.prompt(prompt('%pace 20', '%flood 2000'));
    await host.until((event) => event.message?.event?.delta?.type === 'text_delta');
    await host.control('interrupt');
    const result = await ending;
    report.equal(result.subtype, 'error_during_execution', 'subtype of the result');
    const next = await host.prompt(prompt('%say On we go.'));
    well(report, next);
    report.equal(next.result, 'On we go.', 'result of the next turn');
  }],

  ['interrupt-command', [], async ({ host, agent, sandbox, report }) => {
    await host.open({ callback: true });
    const ending = host.prompt(prompt(task(agent.shell('touch started.txt; tail -f /dev/null')), '%next', '%say Never.'));
    for (let waited = 0; sandbox.read('started.txt') === null; waited += 50) {
      if (waited > 30_000) throw new Error('the command did not start in 30 s');
      await new Promise((done) => setTimeout(done, 50));
    }
    await host.control('interrupt');
    const result = await ending;
    report.equal(result.subtype, 'error_during_execution', 'subtype of the result');
    paired(report, result.events);
    const next = await host.prompt(prompt('%say On we go.'));
    well(report, next);
    report.equal(next.result, 'On we go.', 'result of the next turn');
  }],

  ['hook-deny', ['questions'], async ({ host, agent, sandbox, report }) => {
    host.hook = () => ({ hookSpecificOutput: { hookEventName: 'PreToolUse', permissionDecision: 'deny', permissionDecisionReason: 'The hook says no.' } });
    await host.open({ callback: true, hooks: ['PreToolUse'] });
    const result = await host.prompt(prompt(touch(agent, 'hooked.txt'), '%next', '%say Then not.'));
    well(report, result);
    report.equal(sandbox.read('hooked.txt'), null, 'hooked.txt');
    report.equal(asks(host).length, 0, 'questions to the callback');
    const hooked = host.events.filter((event) => event.event === 'hook');
    report.equal(hooked.map((event) => [event.name, event.input.tool_name]), [['PreToolUse', 'Bash']], 'hooks');
    report.ok(hooked[0]?.input.tool_input?.command?.includes('hooked.txt'), `input of the hook: ${json(hooked[0]?.input.tool_input)}`);
    const ran = command(report, result.events);
    report.ok(ran?.result?.is_error && resultText(ran.result).includes('The hook says no.'), `the hook's reason in the result: ${json(ran?.result)}`);
  }],

  ['hooks-seen', [], async ({ host, agent, report }) => {
    await host.open({ callback: true, hooks: ['PreToolUse', 'PostToolUse'] });
    const result = await host.prompt(prompt(touch(agent, 'seen.txt'), '%next', '%say Made it.'));
    well(report, result);
    const hooked = host.events.filter((event) => event.event === 'hook');
    report.equal(hooked.map((event) => [event.name, event.input.hook_event_name, event.input.tool_name]), [['PreToolUse', 'PreToolUse', 'Bash'], ['PostToolUse', 'PostToolUse', 'Bash']], 'hooks');
    report.equal(hooked.map((event) => event.input.session_id), [result.session_id, result.session_id], 'session ids of the hooks');
    report.ok(hooked[1]?.input.tool_response !== undefined, 'PostToolUse has the response');
  }],

  ['mcp-tool', ['mcp'], async ({ host, agent, report }) => {
    await host.open({ callback: true, calc: true });
    const result = await host.prompt(prompt('%pause 1500', task([agent.mcp('calc', 'add'), { a: 2, b: 3 }]), '%next', '%results'));
    well(report, result);
    report.equal(host.events.filter((event) => event.event === 'called').map((event) => event.arguments), [{ a: 2, b: 3 }], 'calls of the host\'s tool');
    report.ok(result.result.includes('The sum is 5.'), `what the model was told: ${result.result}`);
    const [{ use, result: gave } = {}] = paired(report, result.events);
    report.equal(use?.name, 'mcp__calc__add', 'name of the call');
    report.equal(use?.input, { a: 2, b: 3 }, 'input of the call');
    report.ok(resultText(gave ?? {}).includes('The sum is 5.'), `result of the call: ${json(gave)}`);
    report.ok(asks(host).every((asked) => asked.tool === 'mcp__calc__add'), `tools asked about: ${json(asks(host).map((asked) => asked.tool))}`);
  }],

  ['set-model', ['set-model', 'models'], async ({ host, agent, sandbox, report }) => {
    const [, other] = agent.models;
    await host.open();
    well(report, await host.prompt(prompt('%label before', '%say First.')));
    await host.control('model', other);
    well(report, await host.prompt(prompt('%label after', '%say Second.')));
    const asked = (await sandbox.requests()).filter((request) => /^%label after$/m.test(request.prompt));
    report.ok(asked.length > 0 && asked.some((request) => other.endsWith(request.model)), `models asked after the change to ${other}: ${json(asked.map((request) => request.model))}`);
  }],

  ['set-mode', ['set-mode'], async ({ host, agent, sandbox, report }) => {
    await host.open({ callback: true });
    well(report, await host.prompt(prompt('%say First.')));
    await host.control('mode', 'acceptEdits');
    well(report, await host.prompt(prompt(task(agent.write(sandbox.file('edit.txt'), 'x\n')), '%next', '%say Written.')));
    report.equal(asks(host).length, 0, 'questions in acceptEdits');
    report.equal(sandbox.read('edit.txt')?.trimEnd(), 'x', 'edit.txt');
  }],

  ['start-mode', [], async ({ host, agent, sandbox, report }) => {
    await host.open({ callback: true, mode: 'acceptEdits' });
    const result = await host.prompt(prompt(task(agent.write(sandbox.file('edit.txt'), 'x\n')), '%next', '%say Written.'));
    well(report, result);
    report.equal(asks(host).length, 0, 'questions in acceptEdits');
    report.equal(sandbox.read('edit.txt')?.trimEnd(), 'x', 'edit.txt');
    report.equal(messages(host.events, 'system').find((message) => message.subtype === 'init')?.permissionMode, 'acceptEdits', 'mode of system/init');
  }],

  ['resume', ['resume'], async ({ host, start, report }) => {
    await host.open();
    const first = await host.prompt(prompt('%label one', '%say First.'));
    well(report, first);
    await host.close();
    const later = start();
    await later.open({ resume: first.session_id });
    const second = await later.prompt(prompt('%label two', '%recall'));
    well(report, second);
    report.equal(second.result, 'one two', 'prompts that the model saw');
    report.equal(second.session_id, first.session_id, 'session id after the resume');
    report.equal(said(later.events), 'one two', 'nothing of the past is told again');
  }],

  ['structured', ['structured'], async ({ host, agent, report }) => {
    const value = { city: 'Oslo', people: 700000 };
    const schema = { type: 'object', properties: { city: { type: 'string' }, people: { type: 'number' } }, required: ['city', 'people'], additionalProperties: false };
    const lines = agent === claude ? [task(['StructuredOutput', value]), '%next', '%say Done with it.'] : [`%say ${json(value)}`];
    const ended = await host.once(prompt(...lines), { schema });
    report.equal(ended.error, undefined, 'error of the conversation');
    const [result] = messages(host.events, 'result');
    well(report, result);
    report.equal(result.structured_output, value, 'structured output');
  }],

  ['agent-killed', [], async ({ host, agent, sandbox, report }) => {
    await host.open({ partial: true });
    const ending = host.prompt(prompt('%pace 20', '%flood 3000'));
    ending.catch(() => {}); // with claude itself killed, the conversation ends instead
    await host.until((event) => event.message?.event?.delta?.type === 'text_delta');
    const all = marked(sandbox.mark);
    const tapped = descendants(host.child.pid).find((seen) => seen.parent === host.child.pid);
    const under = all.find((seen) => seen.parent === tapped.pid);
    // With claude in its own place, it is the one to die; with an agent behind diglot, all of that agent.
    const victims = agent === claude ? [under] : descendants(under.pid).filter((seen) => fs.readlinkSync(`/proc/${seen.pid}/exe`) !== fs.readlinkSync(`/proc/${under.pid}/exe`));
    report.ok(victims.length > 0, 'there is something to kill');
    kill(victims);
    if (agent === claude) {
      const ended = await host.until((event) => event.event === 'ended');
      report.ok(ended.error, 'the conversation ends with an error');
      return;
    }
    const result = await ending;
    report.ok(result.is_error, `the turn failed: ${json([result.subtype, result.result])}`);
    if (result.subtype !== 'success') report.ok((result.errors ?? ['old hosts drop it']).length > 0, 'the result says why');
    const left = await gone(() => victims, 3000);
    report.equal(left.length, 0, 'what is left of the agent');
  }],
];

/** Runs the program under test once, as a script would; resolves to {code, out, err}. */
function run(sandbox, args, input = '') {
  return new Promise((resolve) => {
    const child = spawn(sandbox.env.CLAUDE_UNDER_TEST, args, { env: sandbox.env, cwd: sandbox.workspace, stdio: ['pipe', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.on('data', (bytes) => { out += bytes; });
    child.stderr.on('data', (bytes) => { err += bytes; });
    child.stdin.on('error', () => {}); // it may be gone before it reads
    child.stdin.end(input);
    child.on('close', (code) => resolve({ code, out, err }));
  });
}
const lines = (text) => text.split('\n').filter((line) => line !== '').map((line) => JSON.parse(line));
const NOBODY = '00000000-0000-4000-8000-000000000000';

/** The command line, without an SDK: name, body({sandbox, agent, report}) */
const CLI_CHECKS = [
  ['version', async ({ sandbox, report }) => {
    for (const flag of ['--version', '-v']) {
      const { code, out } = await run(sandbox, [flag]);
      report.equal(code, 0, `exit code of ${flag}`);
      report.ok(/^2\.\d+\.\d+ \(Claude Code\)\n$/.test(out), `${flag} says ${json(out)}`);
    }
  }],
  ['text', async ({ sandbox, report }) => {
    report.equal(await run(sandbox, ['-p', prompt('%say Plain text.')]), { code: 0, out: 'Plain text.\n', err: '' }, 'a prompt as an argument');
    const piped = await run(sandbox, ['--print'], prompt('%say Piped text.'));
    report.equal([piped.code, piped.out], [0, 'Piped text.\n'], 'a prompt on stdin');
  }],
  ['json', async ({ sandbox, report }) => {
    const { code, out } = await run(sandbox, ['-p', prompt('%say As JSON.'), '--output-format', 'json']);
    report.equal(code, 0, 'exit code');
    const result = JSON.parse(out);
    report.equal([result.type, result.subtype, result.is_error, result.result], ['result', 'success', false, 'As JSON.'], 'the result');
    for (const [field, kind] of Object.entries({ duration_ms: 'number', duration_api_ms: 'number', num_turns: 'number', total_cost_usd: 'number', usage: 'object', modelUsage: 'object', permission_denials: 'object', session_id: 'string', uuid: 'string' })) {
      report.equal(typeof result[field], kind, `type of ${field}`);
    }
  }],
  ['stream-json', async ({ sandbox, agent, report }) => {
    const { code, out } = await run(sandbox, ['-p', prompt(touch(agent, 'bypassed.txt'), '%next', '%say As lines.'), '--output-format', 'stream-json', '--verbose', '--permission-mode', 'acceptEdits', '--allowedTools', 'Bash']);
    report.equal(code, 0, 'exit code');
    const all = lines(out);
    report.equal([all[0]?.type, all[0]?.subtype], ['system', 'init'], 'first line');
    report.equal([all.at(-1)?.type, all.at(-1)?.result], ['result', 'As lines.'], 'last line');
    report.ok(all.every((line) => line.session_id === all[0].session_id), 'one session id in all lines');
    report.equal(sandbox.read('bypassed.txt'), '', 'the file of an allowed tool');
    paired(report, all.map((message) => ({ event: 'message', message })));
  }],
  ['session-id', async ({ sandbox, report }) => {
    const id = '11111111-2222-4333-8444-555555555555';
    const { out } = await run(sandbox, ['-p', prompt('%say Mine.'), '--output-format', 'json', '--session-id', id]);
    report.equal(JSON.parse(out).session_id, id, 'session id of the result');
    const again = await run(sandbox, ['-p', prompt('%say Mine.'), '--session-id', id]);
    report.equal(again.code, 1, 'exit code with the same id again');
    report.ok(again.err.includes('already in use'), `stderr: ${again.err}`);
    const bad = await run(sandbox, ['-p', 'x', '--session-id', 'mine']);
    report.equal([bad.code, bad.err.trim()], [1, 'Error: Invalid session ID. Must be a valid UUID.'], 'with an id that is none');
  }],
  ['resume-unknown', async ({ sandbox, report }) => {
    const { code, out, err } = await run(sandbox, ['-p', 'x', '--output-format', 'stream-json', '--verbose', '--resume', NOBODY]);
    report.equal(code, 1, 'exit code');
    report.ok(err.includes(`No conversation found with session ID: ${NOBODY}`), `stderr: ${err}`);
    const [result] = lines(out);
    report.equal([result?.type, result?.is_error], ['result', true], 'the result');
    report.ok(result?.errors?.[0]?.includes('No conversation found'), `errors: ${json(result?.errors)}`);
  }],
  ['continue', async ({ sandbox, agent, report }) => {
    if (agent.lacks.resume) return;
    await run(sandbox, ['-p', prompt('%label one', '%say First.')]);
    const { code, out } = await run(sandbox, ['-p', '-c', prompt('%label two', '%recall')]);
    report.equal([code, out], [0, 'one two\n'], 'what the model saw');
  }],
];

/** The whole matrix for the program `command()` (argv of `diglot claude`). */
export function hostChecks(command) {
  return [claude, roundTrip, ...AGENTS].flatMap((agent) => HOSTS.flatMap((recipe) => CHECKS
    .filter(([name, needs]) => ![name, ...needs].some((what) => recipe.lacks[what] || agent.lacks[what]))
    .filter(([, needs]) => !(agent === claude && recipe.unheard && needs.includes('callback')))
    .filter(([, needs]) => needs.every((what) => !['mcp', 'ask', 'models', 'parallel'].includes(what) || agent[what]))
    .map(([name, , body]) => ({
      name: `hosts/${agent.name}/${recipe.name}/${name}`,
      optional: true,
      async run({ sandbox, report, use }) {
        launcher(sandbox, agent, command());
        const start = () => {
          const host = use(new Host(sandbox, recipe));
          if (agent === claude && recipe.unheard) host.options = ({ callback, ...more }) => ({ cwd: sandbox.workspace, ...(callback ? { allowed: ['Bash', 'Write', 'mcp__calc__add'] } : {}), ...more });
          return host;
        };
        await body({ host: start(), agent, sandbox, report, start });
      },
    }))).concat(CLI_CHECKS.map(([name, body]) => ({
    name: `hosts/${agent.name}/cli/${name}`,
    optional: true,
    async run({ sandbox, report }) {
      launcher(sandbox, agent, command());
      await body({ sandbox, agent, report });
    },
  }))));
}
