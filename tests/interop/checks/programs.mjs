// The reverse half with programs that are more than an SDK: the AI SDK's provider, ralphy, and claude-agent-acp, which makes an
// ACP agent of whatever claude it is given (so ACP → stream-json → ACP). Names are hosts/AGENT/PROGRAM/CHECK, as in hosts.mjs.

import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { claude, roundTrip } from '../agents/claude.mjs';
import { claudeAgentAcp } from '../agents/claude-agent-acp.mjs';
import { AGENTS } from '../agents/index.mjs';
import { PROGRAMS } from '../hosts/index.mjs';
import { RawEditor } from '../lib/raw.mjs';
import { calls, text, turn } from '../lib/seen.mjs';
import { install } from '../setup.mjs';
import { launcher, prompt, task, touch } from './hosts.mjs';

const drivers = path.join(path.dirname(fileURLToPath(import.meta.url)), '../hosts');
const json = JSON.stringify;

/** Runs a program to its end; resolves to {code, out, err}. */
function run(sandbox, argv, input = '') {
  return new Promise((resolve) => {
    const child = spawn(argv[0], argv.slice(1), { env: sandbox.env, cwd: sandbox.workspace, stdio: ['pipe', 'pipe', 'pipe'] });
    let out = '';
    let err = '';
    child.stdout.on('data', (bytes) => { out += bytes; });
    child.stderr.on('data', (bytes) => { err += bytes; });
    child.stdin.on('error', () => {}); // it may be gone before it reads
    child.stdin.end(input);
    child.on('close', (code) => resolve({ code, out, err }));
  });
}

/** The `result` lines that the program under test wrote. */
const results = (sandbox) => fs.readFileSync(sandbox.wire, 'utf8').trim().split('\n').map((line) => JSON.parse(line))
  .filter(({ dir, line }) => dir === 'out' && line.type === 'result').map(({ line }) => line);

/** One call of the AI SDK; resolves to {events, done, parts, asked}. */
async function generate({ sandbox, report }, job) {
  const folder = install('hosts', PROGRAMS.aiSdk);
  const { out, err } = await run(sandbox, [sandbox.place.node, path.join(drivers, 'ai_sdk.mjs'), folder], json({ cwd: sandbox.workspace, ...job }));
  const events = out.split('\n').filter((line) => line !== '').map((line) => JSON.parse(line));
  const failed = events.find((event) => event.event === 'failed');
  const done = events.find((event) => event.event === 'done') ?? {};
  report.ok(!failed && done.event, `the call went well: ${failed?.error ?? (done.event ? '' : err.slice(-600))}`);
  return { done, failed, parts: events.filter((event) => event.event === 'part').map((event) => event.part), asked: events.filter((event) => event.event === 'ask') };
}

const AI_SDK = [
  ['generate-text', [], async (check) => {
    const { done } = await generate(check, { call: 'generateText', text: prompt('%say Hello from the library.') });
    check.report.equal([done.text, done.finish], ['Hello from the library.', 'stop'], 'text and finish reason');
  }],
  ['stream-text', ['questions'], async (check) => {
    const { agent, sandbox, report } = check;
    const words = Array.from({ length: 60 }, (_, i) => `w${i}`).join(' ');
    const { done, parts, asked } = await generate(check, { call: 'streamText', text: prompt(touch(agent, 'streamed.txt'), '%next', `%say ${words}`), callback: true });
    report.ok(done.text?.endsWith(words), `text: ${done.text}`);
    report.equal(done.finish, 'stop', 'finish reason');
    report.equal(parts.filter((part) => part.type === 'error'), [], 'errors in the stream');
    report.ok(parts.filter((part) => part.type === 'text-delta').length > 1, 'the text comes in pieces');
    for (const kind of ['text', 'tool-input']) {
      const of = (what) => parts.filter((part) => part.type === `${kind}-${what}`).map((part) => part.id);
      report.equal(of('end'), of('start'), `each ${kind}-start has its ${kind}-end`);
    }
    const used = parts.filter((part) => part.type === 'tool-call');
    report.equal(used.map((part) => part.toolName), ['Bash'], 'tool calls');
    const input = typeof used[0]?.input === 'string' ? JSON.parse(used[0].input) : used[0]?.input;
    report.ok(input?.command?.includes('streamed.txt'), `input of the call: ${json(used[0]?.input)}`);
    const gave = parts.filter((part) => /^tool-(result|error)$/.test(part.type));
    report.equal(gave.map((part) => [part.type, part.toolCallId]), [['tool-result', used[0]?.toolCallId]], 'tool results');
    report.equal(asked.map((event) => event.tool), ['Bash'], 'tools asked about');
    report.equal(sandbox.read('streamed.txt'), '', 'streamed.txt');
  }],
  ['deny', ['questions'], async (check) => {
    const { agent, sandbox, report } = check;
    const { done, parts } = await generate(check, {
      call: 'streamText', text: prompt(touch(agent, 'denied.txt'), '%next', '%say Then not.'), callback: true, answer: { behavior: 'deny', message: 'Not today.' },
    });
    report.equal(done.finish, 'stop', 'finish reason');
    report.equal(sandbox.read('denied.txt'), null, 'denied.txt');
    const failed = parts.filter((part) => part.type === 'tool-error');
    report.ok(failed.length === 1 && json(failed[0].error).includes('Not today.'), `the reason in the error of the call: ${json(failed)}`);
  }],
  ['generate-object', ['structured'], async (check) => {
    const { agent, report } = check;
    const value = { city: 'Oslo', people: 700000 };
    const schema = { type: 'object', properties: { city: { type: 'string' }, people: { type: 'number' } }, required: ['city', 'people'], additionalProperties: false };
    const lines = agent === claude ? [task(['StructuredOutput', value]), '%next', '%say Done with it.'] : [`%say ${json(value)}`];
    const { done } = await generate(check, { call: 'generateObject', text: prompt(...lines), schema });
    report.equal(done.object, value, 'the object');
  }],
];

const RALPHY = [
  ['task', [], async ({ sandbox, agent, report }) => {
    sandbox.env.IS_SANDBOX = '1'; // or claude itself refuses to skip permissions for root
    const git = (...args) => execFileSync('git', args, { cwd: sandbox.workspace, env: sandbox.env, stdio: 'ignore' });
    git('init', '--quiet');
    git('-c', 'user.name=Interop', '-c', 'user.email=interop@example.invalid', 'commit', '--quiet', '--allow-empty', '-m', 'Start');
    const entry = path.join(install('hosts', PROGRAMS.ralphy), 'node_modules/ralphy-cli/bin.js');
    const { code, out, err } = await run(sandbox, [sandbox.place.node, entry, '--claude', '--no-commit', '--fast', '--max-retries', '1', prompt(touch(agent, 'task.txt'), '%next', '%say The task is done.')]);
    report.equal(code, 0, `exit code (${(out + err).slice(-600)})`);
    report.equal(sandbox.read('task.txt'), '', 'task.txt');
    report.equal(results(sandbox).map((result) => [result.subtype, result.is_error, result.result]), [['success', false, 'The task is done.']], 'results');
    report.ok(/complete|success|done/i.test(out + err), `what it says in the end: ${(out + err).slice(-300)}`);
  }],
];

/** An editor of ours in front of claude-agent-acp in front of the program under test. */
async function editorOver({ sandbox, use }) {
  const folder = install('agents', claudeAgentAcp);
  sandbox.env.CLAUDE_CODE_EXECUTABLE = sandbox.env.CLAUDE_UNDER_TEST;
  sandbox.agent = [sandbox.place.node, path.join(folder, 'node_modules/.bin/claude-agent-acp')];
  // The wire of the program under test is what matters; the editor's own is kept beside it.
  const editor = use(new RawEditor({ ...sandbox, env: sandbox.env, workspace: sandbox.workspace, wire: path.join(sandbox.folder, 'editor.ndjson') }));
  await editor.start();
  return editor;
}

const OVER = [
  ['prompt', [], async (check) => {
    const { report } = check;
    const editor = await editorOver(check);
    const answer = await editor.prompt(prompt('%think I think.', '%say Through two adapters.'));
    report.stopped(answer, 'end_turn');
    report.equal(text(turn(editor, answer.tag)), 'Through two adapters.', 'text');
    const next = await editor.prompt(prompt('%label two', '%say Again.'));
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)), 'Again.', 'text of the second turn');
  }],
  ['allow', ['questions'], async (check) => {
    const { agent, sandbox, report } = check;
    const editor = await editorOver(check);
    const answer = await editor.prompt(prompt(touch(agent, 'allowed.txt'), '%next', '%say Made it.'));
    report.stopped(answer, 'end_turn');
    const [call, ...more] = calls(turn(editor, answer.tag));
    report.equal(more, [], 'further calls');
    report.equal([call?.fields.kind, call?.questions.length, call?.statuses.at(-1)], ['execute', 1, 'completed'], 'kind, questions and last status of the call');
    report.ok(json(call?.fields.rawInput)?.includes('allowed.txt'), `input of the call: ${json(call?.fields.rawInput)}`);
    report.equal(sandbox.read('allowed.txt'), '', 'allowed.txt');
    report.ok(text(turn(editor, answer.tag)).includes('Made it.'), `text: ${text(turn(editor, answer.tag))}`);
  }],
  ['refuse', ['questions'], async (check) => {
    const { agent, sandbox, report } = check;
    const editor = await editorOver(check);
    editor.decide = () => 'reject_once';
    const answer = await editor.prompt(prompt(touch(agent, 'refused.txt'), '%next', '%say Then not.'));
    // claude-agent-acp refuses with an interrupt or without one; either way the turn ends with an answer.
    report.ok(['end_turn', 'cancelled'].includes(answer.result?.stopReason), `the prompt is answered: ${json(answer.result ?? answer.error)}`);
    report.equal(sandbox.read('refused.txt'), null, 'refused.txt');
    const [call] = calls(turn(editor, answer.tag));
    report.equal([call?.questions.length, call?.statuses.at(-1)], [1, 'failed'], 'questions and last status of the call');
    editor.decide = () => 'allow_once';
    const next = await editor.prompt(prompt('%say Go on.'));
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)), 'Go on.', 'text of the next turn');
  }],
  ['edit', [], async (check) => {
    const { agent, sandbox, report } = check;
    const editor = await editorOver(check);
    const answer = await editor.prompt(prompt(task(agent.write(sandbox.file('new.txt'), 'hello\nworld\n')), '%next', '%say Written.'));
    report.stopped(answer, 'end_turn');
    report.equal(sandbox.read('new.txt')?.trimEnd(), 'hello\nworld', 'new.txt');
    const [call] = calls(turn(editor, answer.tag));
    report.equal([call?.fields.kind, call?.statuses.at(-1)], ['edit', 'completed'], 'kind and last status of the call');
    const diff = (call?.contents ?? []).flat().find((item) => item.type === 'diff');
    report.equal([path.basename(diff?.path ?? ''), diff?.newText?.trimEnd()], ['new.txt', 'hello\nworld'], 'the diff of the call');
  }],
  ['cancel', [], async (check) => {
    const { report } = check;
    const editor = await editorOver(check);
    const answering = editor.prompt(prompt('%pace 20', '%flood 2000'));
    await editor.until((event) => event.type === 'update' && event.update.sessionUpdate === 'agent_message_chunk');
    editor.cancel();
    report.stopped(await answering, 'cancelled');
    const next = await editor.prompt(prompt('%say On we go.'));
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)), 'On we go.', 'text of the next turn');
  }],
];

const CHECKS = [[PROGRAMS.aiSdk, AI_SDK], [PROGRAMS.ralphy, RALPHY], [claudeAgentAcp, OVER]];

/** The programs in front of `command()` (argv of `diglot claude`) with each agent behind it. */
export function programChecks(command) {
  return [claude, roundTrip, ...AGENTS].flatMap((agent) => CHECKS.flatMap(([recipe, list]) => list
    .filter(([, needs]) => !needs.some((what) => agent.lacks[what]))
    .map(([name, , body]) => ({
      name: `hosts/${agent.name}/${recipe.name}/${name}`,
      optional: true,
      async run({ sandbox, report, use }) {
        launcher(sandbox, agent, command());
        await body({ sandbox, agent, report, use });
      },
    }))));
}
