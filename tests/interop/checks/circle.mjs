// The circle: an ACP client in front of `diglot acp`, which has `diglot claude` for its claude, which has a real ACP agent behind
// it. The same conversation is held with the agent directly and through the circle; what arrives is compared, and what does not
// survive is in CIRCLE.md with its reason. Names are circle/AGENT.
// Invariant: a check fails when anything differs that CIRCLE.md does not say, and when CIRCLE.md says what no longer differs.
//
//   CIRCLE_UPDATE=1     writes the rows of the checks that run into CIRCLE.md instead; a difference without a reason below still fails

import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import { gemini } from '../agents/gemini.mjs';
import { prepareAgent } from '../agents/index.mjs';
import { opencode } from '../agents/opencode.mjs';
import { qwen } from '../agents/qwen.mjs';
import { RawEditor } from '../lib/raw.mjs';
import { Sandbox } from '../lib/sandbox.mjs';
import { calls, diffsIn, text, thought, turn } from '../lib/seen.mjs';
import { launcher, prompt, task, touch } from './hosts.mjs';
import { CHANCE, REASONS } from './circle_reasons.mjs';

const TABLE = path.join(path.dirname(fileURLToPath(import.meta.url)), '../CIRCLE.md');
const json = JSON.stringify;

/** name, the lines of the prompt, what to do meanwhile */
const STEPS = [
  ['talk', () => ['%think First I think.', '%say Hello from behind.']],
  ['allow', ({ agent }) => [touch(agent, 'allowed.txt'), '%next', '%say Made it.']],
  ['always', ({ agent }) => [touch(agent, 'always.txt'), '%next', '%say Made it for good.'], { kind: 'allow_always' }],
  ['again', ({ agent }) => [touch(agent, 'always.txt'), '%next', '%say Not asked again.']],
  ['write', ({ agent, sandbox }) => [task(agent.write(sandbox.file('new.txt'), 'one\ntwo\n')), '%next', '%say Written.']],
  ['read and edit', ({ agent, sandbox }) => [
    ...(READ[agent.name] ? [task(READ[agent.name](sandbox.file('there.txt'))), '%next'] : []),
    task(agent.edit(sandbox.file('there.txt'), 'beta', 'delta')), '%next', '%say Edited.',
  ]],
  ['plan', ({ agent }) => (PLAN[agent.name] ? [task(PLAN[agent.name]), '%next', '%say Planned.'] : undefined)],
  ['refuse', ({ agent }) => [`${task(agent.shell('mkdir refused'))}`, '%next', '%say Then not.'], { kind: 'reject_once' }],
  ['cancel', () => ['%pace 20', '%flood 2000'], { cancel: (event) => event.update?.sessionUpdate === 'agent_message_chunk' }],
  ['cancel a question', ({ agent }) => [`${task(agent.shell('mkdir never'))}`, '%next', '%say Never said.'], { cancel: (event) => event.type === 'ask' }],
  ['go on', () => ['%label last', '%say On we go.']],
];
const READ = {
  gemini: (file) => ['read_file', { file_path: file }],
  opencode: (file) => ['read', { filePath: file }],
  qwen: (file) => ['read_file', { file_path: file }],
};
const PLAN = {
  opencode: ['todowrite', { todos: [{ content: 'Look', status: 'completed', priority: 'high' }, { content: 'Do', status: 'in_progress', priority: 'low' }] }],
};

const kinds = (events) => [...new Set(events.filter((event) => event.type === 'update').map((event) => event.update.sessionUpdate))];

/** What a client is told of a call, without what is its own on every run. */
function callFacts(call) {
  const content = call.contents.at(-1) ?? [];
  return {
    kind: call.fields.kind,
    title: call.fields.title,
    input: call.fields.rawInput,
    locations: (call.fields.locations ?? []).map((place) => place.path),
    end: call.statuses.at(-1), // what some say on the way there is chance
    diffs: diffsIn(content).map(({ path: file, oldText, newText }) => ({ file, before: oldText ?? null, after: newText })),
    text: content.filter((item) => item.type === 'content').map((item) => item.content.text ?? item.content.type).join('\n'),
    output: call.fields.rawOutput,
  };
}

/** The order in which things arrived: thoughts, texts, calls as they begin, questions and ends of calls. */
function order(events) {
  const ids = [];
  const ended = new Set();
  const number = (id) => { if (!ids.includes(id)) ids.push(id); return ids.indexOf(id) + 1; };
  const names = events.flatMap((event) => {
    const update = event.update ?? {};
    if (event.type === 'ask') return [`question ${number(event.request.toolCall.toolCallId)}`];
    if (/^agent_(message|thought)_chunk$/.test(update.sessionUpdate)) return update.content.text === '' ? [] : [update.sessionUpdate === 'agent_message_chunk' ? 'text' : 'thought'];
    if (update.sessionUpdate === 'plan') return ['plan'];
    if (!/^tool_call/.test(update.sessionUpdate ?? '')) return [];
    const known = ids.includes(update.toolCallId);
    const begins = known ? [] : [`call ${number(update.toolCallId)}`];
    if (!['completed', 'failed'].includes(update.status) || ended.has(update.toolCallId)) return begins;
    ended.add(update.toolCallId);
    return [...begins, `end ${number(update.toolCallId)}`];
  });
  return names.filter((name, i) => name !== names[i - 1]);
}

/** What arrived in a turn, as facts by name. */
function facts(events, answer, sandbox) {
  const seen = calls(events);
  const found = {
    'stop reason': answer.result?.stopReason ?? `error ${answer.error.code}`,
    text: text(events),
    thought: thought(events),
    order: order(events),
    'number of calls': seen.length,
    'usage in the answer': Boolean(answer.result?.usage ?? answer.result?._meta?.quota ?? answer.result?._meta?.usage),
    files: fs.readdirSync(sandbox.workspace).filter((name) => !name.startsWith('.')).sort().map((name) => [name, sandbox.read(name)]),
  };
  const plan = events.findLast((event) => event.update?.sessionUpdate === 'plan');
  if (plan) found.plan = plan.update.entries.map(({ content, status, priority }) => ({ content, status, priority }));
  seen.forEach((call) => {
    for (const [name, value] of Object.entries(callFacts(call))) (found[`call: ${name}`] ??= []).push(value ?? null);
    for (const question of call.questions) {
      (found['question: kinds'] ??= []).push(question.request.options.map((option) => option.kind));
      (found['question: names'] ??= []).push(question.request.options.map((option) => option.name));
      (found['question: title'] ??= []).push(question.request.toolCall.title ?? null);
    }
    (found['question: asked'] ??= []).push(call.questions.length);
  });
  return found;
}

/** What a client is told before the first prompt. */
function openingFacts(editor) {
  const { agentCapabilities: can = {}, agentInfo, authMethods } = editor.initialized;
  const option = (category) => editor.session.configOptions?.find((one) => one.category === category);
  return {
    'agent: name': agentInfo?.name,
    'agent: can load sessions': Boolean(can.loadSession || can.sessionCapabilities?.resume),
    'agent: prompt content': Object.entries(can.promptCapabilities ?? {}).filter(([, yes]) => yes === true).map(([name]) => name).sort(),
    'agent: MCP transports': Object.entries(can.mcpCapabilities ?? {}).filter(([, yes]) => yes === true).map(([name]) => name).sort(),
    'agent: session calls': Object.keys(can.sessionCapabilities ?? {}).sort(),
    'agent: ways to log in': (authMethods ?? []).map((method) => method.id).sort(),
    'session: modes': (editor.session.modes?.availableModes ?? option('mode')?.options ?? []).map((mode) => mode.id ?? mode.value).sort(),
    'session: models': (editor.session.models?.availableModels ?? option('model')?.options ?? []).map((model) => model.modelId ?? model.value).sort(),
    'session: options': (editor.session.configOptions ?? []).map((one) => one.id).sort(),
  };
}

/** The kinds of the answers that the agent got to its questions, for each prompt, as `diglot claude` recorded its wire. */
function answersGiven(sandbox) {
  for (const name of fs.readdirSync(sandbox.folder).filter((one) => one.startsWith('trace-'))) {
    const lines = fs.readFileSync(path.join(sandbox.folder, name), 'utf8').split('\n').filter((line) => line !== '').map((line) => JSON.parse(line));
    const far = lines.filter((line) => line.wire === 'far' && line.line?.jsonrpc);
    if (far.length === 0) continue; // the trace of the other half
    const turns = [];
    const asked = new Map();
    for (const { dir, line } of far) {
      if (dir === 'out' && line.method === 'session/prompt') turns.push([]);
      else if (dir === 'in' && line.method === 'session/request_permission') asked.set(line.id, line.params.options);
      else if (dir === 'out' && line.method === undefined && asked.has(line.id)) {
        const { outcome, optionId } = line.result?.outcome ?? {};
        turns.at(-1).push(asked.get(line.id).find((option) => option.optionId === optionId)?.kind ?? outcome ?? null);
      }
    }
    return turns;
  }
  throw new Error('there is no trace of `diglot claude`');
}

/** Holds the conversation; resolves to {step: facts}. */
async function converse(editor, agent, sandbox) {
  sandbox.write('there.txt', 'alpha\nbeta\n');
  await editor.start();
  const seen = { opening: openingFacts(editor) };
  for (const [name, lines, { kind = 'allow_once', cancel } = {}] of STEPS) {
    const said = lines({ agent, sandbox });
    if (said === undefined) continue;
    editor.decide = () => (cancel ? undefined : kind);
    const from = editor.events.length;
    const answering = editor.prompt(prompt(...said));
    if (cancel) {
      const met = await editor.until(cancel, from);
      editor.cancel();
      // A client that cancels answers what is open as cancelled.
      if (met.type === 'ask') editor.reply(met, 'cancelled');
    }
    const answer = await answering;
    const events = turn(editor, answer.tag);
    if (process.env.CIRCLE_DEBUG) for (const event of events) process.stderr.write(`${name} ${json(event)}\n`);
    seen[name] = facts(events, answer, sandbox);
    (editor.answers ??= {})[name] = editor.events.slice(from).filter((event) => event.type === 'replied').map((event) => event.kind);
    if (cancel) seen[name].text = seen[name].text.replace(/^w0( w\d+)*\s*$/, 'w0 …'); // how far it came is chance
  }
  const last = (kind) => editor.events.findLast((event) => event.update?.sessionUpdate === kind)?.update;
  seen.whole = {
    ...Object.fromEntries(kinds(editor.events).map((kind) => [`updates: ${kind}`, 'told'])),
    commands: last('available_commands_update')?.availableCommands.map((one) => one.name).sort(),
  };
  // Some say a path without its first slash.
  return JSON.parse(json(seen).replaceAll(sandbox.folder, 'DIR').replaceAll(sandbox.folder.slice(1), 'DIR'));
}

/** The differences as {what, steps, direct, circle}, those of one name together. */
function compare(direct, circle) {
  const found = new Map();
  for (const step of Object.keys(direct)) {
    for (const what of new Set([...Object.keys(direct[step]), ...Object.keys(circle[step] ?? {})])) {
      const [here, there] = [direct[step][what], circle[step]?.[what]];
      if (isDeepStrictEqual(here, there)) continue;
      // What calls are like is compared where there are as many of them; that there are not is a row by itself.
      if (/^(call|question): /.test(what) && direct[step]['number of calls'] !== circle[step]?.['number of calls']) continue;
      if (!found.has(what)) found.set(what, { what, steps: [], direct: here, circle: there });
      found.get(what).steps.push(step);
    }
  }
  return [...found.values()];
}

const short = (value) => {
  const said = value === undefined ? 'nothing' : typeof value === 'string' ? value : json(value);
  return (said.length > 90 ? `${said.slice(0, 90)}…` : said).replaceAll('|', '\\|').replaceAll('`', '′').replaceAll('\n', ' ');
};
const reason = (agent, what) => (typeof REASONS[what] === 'object' ? REASONS[what][agent] : REASONS[what]);
const row = (agent, { what, steps, direct, circle }) => `| ${agent} | ${what} | ${steps.join(', ')} | \`${short(direct)}\` | \`${short(circle)}\` | ${reason(agent, what) ?? '(no reason known)'} |`;
/** What a row claims, without its examples and its reason. */
const claim = (line) => line.split(/(?<!\\)\|/).slice(1, 4).map((cell) => cell.trim()).join(' / ');
const rowsOf = (agent, lines) => lines.filter((line) => line.startsWith(`| ${agent} |`));

export function circleChecks(command, front) {
  return [gemini, opencode, qwen].map((agent) => ({
    name: `circle/${agent.name}`,
    optional: true,
    async run({ sandbox, report, use }) {
      const alone = new Sandbox({ name: `${sandbox.name}-direct`, place: sandbox.place, model: sandbox.model, agent: [] });
      use({ close: async () => { await alone.close(); alone.dispose(); } });
      alone.agent = prepareAgent(alone, agent);
      const near = new RawEditor(alone);
      const start = near.start.bind(near);
      near.start = async () => { await start(); if (agent.mode) await near.setMode(agent.mode); };
      const direct = await converse(near, agent, alone);
      near.child.stdin.end(); // how well the agent itself leaves is not what is checked

      launcher(sandbox, agent, command());
      sandbox.agent = [...front(), '--', sandbox.env.CLAUDE_UNDER_TEST];
      // The wire between the two halves is the sandbox's; the client's own is kept beside it.
      const far = use(new RawEditor({ ...sandbox, env: sandbox.env, workspace: sandbox.workspace, wire: path.join(sandbox.folder, 'editor.ndjson') }));
      const circle = await converse(far, agent, sandbox);

      const steps = Object.keys(direct).filter((step) => direct[step].order);
      const given = answersGiven(sandbox);
      report.equal(given.length, steps.length, 'prompts that the agent got');
      steps.forEach((step, i) => {
        const kind = STEPS.find(([name]) => name === step)[2];
        const what = kind?.cancel ? 'answer to the agent: cancelled' : 'answer to the agent: always';
        direct[step][what] = near.answers[step];
        circle[step][what] = given[i];
      });
      const lost = compare(direct, circle).filter((one) => !CHANCE[agent.name]?.includes(one.what));
      for (const one of lost) report.ok(reason(agent.name, one.what), `${one.what} (${one.steps.join(', ')}) differs without a known reason: ${short(one.direct)} → ${short(one.circle)}`);
      const rows = lost.map((one) => row(agent.name, one));
      const lines = fs.readFileSync(TABLE, 'utf8').split('\n');
      const written = rowsOf(agent.name, lines);
      if (process.env.CIRCLE_UPDATE) {
        const kept = lines.filter((line) => !written.includes(line));
        const head = kept.findIndex((line) => line.startsWith('|---'));
        const table = [...kept.slice(head + 1).filter((line) => line.startsWith('| ')), ...rows];
        const order = (line) => [gemini, opencode, qwen].findIndex((one) => line.startsWith(`| ${one.name} |`));
        table.sort((a, b) => order(a) - order(b));
        const rest = kept.slice(head + 1).filter((line) => !line.startsWith('| '));
        fs.writeFileSync(TABLE, [...kept.slice(0, head + 1), ...table, ...rest].join('\n'));
        return;
      }
      const [now, then] = [rows.map(claim), written.map(claim)];
      for (const one of now) report.ok(then.includes(one), `differs, but CIRCLE.md does not say so: ${rows[now.indexOf(one)]}`);
      for (const one of then) report.ok(now.includes(one), `CIRCLE.md says what does not differ: ${one}`);
    },
  }));
}
