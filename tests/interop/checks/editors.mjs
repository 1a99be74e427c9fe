// An editor in front of `diglot acp --agent NAME`, with the real ACP agent behind it: what every editor must be able to do,
// whatever the agent. Names are editors/AGENT/CHECK; with the real client programs of clients/ in the place of the raw wire, which
// some of the agents are checked with, editors/AGENT/CLIENT/CHECK.

import fs from 'node:fs';
import { gemini } from '../agents/gemini.mjs';
import { grok } from '../agents/grok.mjs';
import { AGENTS, make, prepareAgent } from '../agents/index.mjs';
import { kimi } from '../agents/kimi.mjs';
import { RawEditor } from '../lib/raw.mjs';
import { text, turn } from '../lib/seen.mjs';

/** The agents that the client programs are tried with: one that asks before it tells, one with words of its own, one that streams calls. */
const WITH_CLIENTS = [gemini, grok, kimi];
const RAW = { make: (sandbox) => new RawEditor(sandbox) };

const prompt = (...lines) => ['Please do this.', ...lines, 'Thank you.'].join('\n');
const call = ([tool, input]) => `%call ${tool} ${JSON.stringify(input)}`;
const touch = (recipe, name) => call(recipe.shell(make(recipe, name)));
const chunk = (event) => event.type === 'update' && event.update.sessionUpdate === 'agent_message_chunk';
const END = ['completed', 'failed'];

/** The events of each call, by id, in order; every rule of a call's life is judged. */
function judgeCalls(report, events) {
  const lives = new Map();
  for (const event of events) {
    const update = event.type === 'ask' ? { sessionUpdate: 'question', ...event.request.toolCall } : event.update;
    if (!update?.toolCallId || !/^(tool_call|tool_call_update|question)$/.test(update.sessionUpdate)) continue;
    const life = lives.get(update.toolCallId) ?? { id: update.toolCallId, said: [] };
    lives.set(update.toolCallId, life);
    life.said.push(update);
  }
  for (const { id, said } of lives.values()) {
    report.equal(said[0].sessionUpdate, 'tool_call', `${id} is announced first`);
    report.equal(said.filter((update) => update.sessionUpdate === 'tool_call').length, 1, `${id} is announced once`);
    report.ok(said[0].title && said[0].kind && said[0].status, `${id} is announced with title, kind and status: ${JSON.stringify(said[0]).slice(0, 200)}`);
    const statuses = said.filter((update) => update.sessionUpdate !== 'question').map((update) => update.status).filter(Boolean);
    const steps = statuses.map((status) => ['pending', 'in_progress', 'completed', 'failed'].indexOf(status));
    report.ok(steps.every((step, i) => i === 0 || step >= steps[i - 1]), `${id} never goes back: ${statuses}`);
    report.equal(statuses.filter((status) => END.includes(status)).length, 1, `${id} ends once: ${statuses}`);
    for (const update of said.filter((one) => one.sessionUpdate === 'question')) report.ok(update.title, `the question about ${id} has a title`);
  }
  return [...lives.values()].map(({ said }) => ({
    end: said.map((update) => update.status).findLast((status) => END.includes(status)),
    questions: said.filter((update) => update.sessionUpdate === 'question'),
    kind: said.findLast((update) => update.kind)?.kind,
    shown: said.flatMap((update) => update.content ?? []),
  }));
}

/** Every update that was written to the client before the last answer was handed over by its library, in that order. */
function judgeHandedOver(report, editor, wire) {
  const lines = fs.readFileSync(wire, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
  const asked = lines.filter(({ dir, line }) => dir === 'in' && line.method === 'session/prompt').map(({ line }) => line.id);
  const kinds = (list) => list.map((update) => update.sessionUpdate);
  const written = lines.slice(0, lines.findLastIndex(({ dir, line }) => dir === 'out' && line.method === undefined && asked.includes(line.id)))
    .filter(({ dir, line }) => dir === 'out' && line.method === 'session/update').map(({ line }) => line.params.update);
  const given = editor.events.slice(0, editor.events.findLastIndex((event) => event.type === 'answer'))
    .filter((event) => event.type === 'update').map((event) => event.update);
  report.equal(kinds(given), kinds(written), 'updates that the client was given, of those on its wire');
}

/**
 * The checks of `recipe` with one client: {name?, make(sandbox) -> its Editor, library? (it parses what it gets)}. Without a name
 * it is the raw wire, which alone can do what takes a `raw` editor.
 */
function checksWith(agentCommand, recipe, client) {
  const asks = !recipe.lacks.questions;
  const check = (name, body, { raw = false, once = false } = {}) => (raw && client !== RAW ? [] : [{
    name: ['editors', recipe.name, client.name, name].filter(Boolean).join('/'),
    optional: true,
    async run({ sandbox, report, use }) {
      prepareAgent(sandbox, recipe);
      sandbox.agent = [...agentCommand(), '--agent', recipe.name];
      const editor = use(client.make(sandbox));
      await editor.start({ session: !once });
      await body({ sandbox, report, editor });
      if (client.library) judgeHandedOver(report, editor, sandbox.wire);
    },
  }]);
  return [
    ...check('initialize', async ({ report, editor }) => {
      const { protocolVersion, agentInfo, agentCapabilities, authMethods } = editor.initialized;
      report.equal(protocolVersion, 1, 'protocolVersion');
      report.ok(agentInfo?.name && agentInfo?.version, `agentInfo has a name and a version: ${JSON.stringify(agentInfo)}`);
      report.ok(typeof agentCapabilities === 'object' && Array.isArray(authMethods), 'agentCapabilities and authMethods are there');
      const session = editor.session;
      report.ok(typeof session.sessionId === 'string' && session.sessionId !== '', 'sessionId is a string');
      if (recipe.mode) report.equal(session.modes?.currentModeId, recipe.mode, 'the mode that asks');
    }),

    ...check('text', async ({ report, editor }) => {
      const answer = await editor.prompt(prompt('%think Hm.', '%say Hello,  wörld: 你好 🌍'));
      report.stopped(answer, 'end_turn');
      report.equal(text(turn(editor, answer.tag)).trim(), 'Hello,  wörld: 你好 🌍', 'text');
    }),

    ...check('command allowed', async ({ sandbox, report, editor }) => {
      const answer = await editor.prompt(prompt('%say Running it. ', touch(recipe, 'made.txt'), '%next', '%say Ran it.'));
      report.stopped(answer, 'end_turn');
      const events = turn(editor, answer.tag);
      const [one] = judgeCalls(report, events);
      report.equal(one?.end, 'completed', 'end of the call');
      report.equal(one?.kind, 'execute', 'kind of the call');
      report.equal(one?.questions.length, asks ? 1 : 0, 'questions');
      report.equal(sandbox.read('made.txt'), '', 'made.txt');
      report.ok(text(events).includes('Ran it.'), `text: ${text(events)}`);
    }),

    ...(asks ? [...check('command refused', async ({ sandbox, report, editor }) => {
      editor.decide = () => 'reject_once';
      const answer = await editor.prompt(prompt(touch(recipe, 'refused.txt'), '%next', '%say As you wish.'));
      // Whether the turn goes on is the agent's; that nobody cancelled is diglot's to say.
      report.stopped(answer, 'end_turn');
      const [one] = judgeCalls(report, turn(editor, answer.tag));
      report.equal(one?.end, 'failed', 'end of the call');
      report.equal(sandbox.read('refused.txt'), null, 'refused.txt');
      const next = await editor.prompt(prompt('%label next', '%say Still here.'));
      report.stopped(next, 'end_turn');
      report.equal(text(turn(editor, next.tag)).trim(), 'Still here.', 'text of the next turn');
    }),

    ...check('cancel with an open question', async ({ sandbox, report, editor }) => {
      editor.decide = () => undefined;
      const answering = editor.prompt(prompt(touch(recipe, 'never.txt'), '%next', '%say Not reached.'));
      const asked = await editor.until((event) => event.type === 'ask');
      await editor.cancel();
      // The raw one leaves it open, as bad clients do; acpx answers by itself.
      if (client !== RAW && editor.sendReply) editor.reply(asked, 'cancelled');
      const answer = await answering;
      report.stopped(answer, 'cancelled');
      const [one] = judgeCalls(report, turn(editor, answer.tag));
      report.equal(one?.end, 'failed', 'end of the call');
      report.equal(sandbox.read('never.txt'), null, 'never.txt');
      editor.decide = () => 'allow_once';
      const next = await editor.prompt(prompt('%label next', '%say Still here.'));
      report.stopped(next, 'end_turn');
    }, { once: true })] : []),

    ...check('cancel', async ({ report, editor }) => {
      const answering = editor.prompt(prompt('%pace 20', '%flood 2000'));
      await editor.until(chunk);
      await editor.cancel();
      const answer = await answering;
      report.stopped(answer, 'cancelled');
      // At once: whatever the agent does with a prompt so soon, this one is answered.
      const next = await editor.prompt(prompt('%label next', '%say Still here.'));
      report.stopped(next, 'end_turn');
      report.equal(text(turn(editor, next.tag)).trim(), 'Still here.', 'text of the next turn');
    }),

    ...check('two prompts', async ({ report, editor }) => {
      const first = editor.prompt(prompt('%label one', '%pace 20', '%say The first answer, which takes its time.'));
      // Prompts of acpx are processes of their own, which start in any order.
      if (client.name === 'acpx') await editor.until(chunk);
      const second = editor.prompt(prompt('%label two', '%say The second.'));
      const [one, two] = [await first, await second];
      report.stopped(one, 'end_turn');
      report.stopped(two, 'end_turn');
      report.ok(editor.events.indexOf(one) < editor.events.indexOf(two), 'the first is answered first');
      report.equal(text(turn(editor, one.tag)).trim(), 'The first answer, which takes its time.', 'text of the first turn');
      report.equal(text(turn(editor, two.tag)).trim(), 'The second.', 'text of the second turn');
    }),

    ...check('two sessions', async ({ report, editor }) => {
      const one = editor.session.sessionId;
      const other = (await editor.newSession()).sessionId;
      report.ok(one !== other, 'two ids');
      const ask = (id, ...lines) => editor.request('session/prompt', { sessionId: id, prompt: [{ type: 'text', text: prompt(...lines) }] });
      const answers = await Promise.all([ask(one, '%label one', '%pace 10', '%say To the first.'), ask(other, '%label other', '%say To the other.')]);
      for (const answer of answers) report.equal(answer.result?.stopReason, 'end_turn', `stop reason of ${JSON.stringify(answer)}`);
      const said = (id) => text(editor.events.filter((event) => event.session === id)).trim();
      report.ok(said(one).endsWith('To the first.') && !said(one).includes('other'), `in the first: ${said(one)}`);
      report.ok(said(other).endsWith('To the other.') && !said(other).includes('first'), `in the other: ${said(other)}`);
    }, { raw: true }),
  ];
}

/** All of them; `clients`: the client programs, as checksWith() takes them. */
export const editorChecks = (agentCommand, clients) => AGENTS
  .flatMap((recipe) => [RAW, ...(WITH_CLIENTS.includes(recipe) ? clients : [])].flatMap((client) => checksWith(agentCommand, recipe, client)));
