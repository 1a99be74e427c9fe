// Sudden deaths: the agent under test, claude, and both in the worst order. What must hold: nothing is left running, the editor
// is told once, and the conversation goes on.

import { readlinkSync } from 'node:fs';
import { commandLine, describe, gone, isAlive, kill, marked } from '../lib/procs.mjs';
import { RawEditor } from '../lib/raw.mjs';
import { calls, text, turn } from '../lib/seen.mjs';

const LIMIT = 3000;
let serial = 0;

async function eventually(what, found, ms = 20_000) {
  const end = Date.now() + ms;
  for (;;) {
    const value = await found();
    if (value) return value;
    if (Date.now() > end) throw new Error(`this did not happen in ${ms} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 30));
  }
}

const executable = (seen) => { try { return readlinkSync(`/proc/${seen.pid}/exe`); } catch { return ''; } };

/** Prompts for a command that runs for minutes; resolves when it runs, to the processes of interest. */
async function runLong(editor, sandbox, label = 'long') {
  serial += 1;
  const seconds = `300.${process.pid}${serial}`;
  const command = `touch started-${label}; sleep ${seconds}`;
  const answering = editor.prompt(`Please wait.\n%label ${label}\n%say Working. \n%call Bash ${JSON.stringify({ command, description: 'Waits' })}\n%next\n%say Waited.`);
  answering.catch(() => {}); // some checks kill the agent, and then nobody answers
  const sleeping = await eventually('the command runs', () => marked(sandbox.mark).find((seen) => commandLine(seen.pid).join(' ') === `sleep ${seconds}`));
  const claude = marked(sandbox.mark).find((seen) => executable(seen) === sandbox.place.claude && seen.pid !== editor.pid);
  if (!claude) throw new Error('claude is not among the running processes');
  return { answering, sleeping, claude };
}

const check = (name, body) => ({
  name: `kills/${name}`,
  async run({ sandbox, report, use }) {
    const editor = use(new RawEditor(sandbox));
    await editor.start();
    await body({ sandbox, report, editor });
  },
});

async function nothingLeft(sandbox, report) {
  const left = await gone(() => marked(sandbox.mark), LIMIT);
  report.ok(left.length === 0, `still alive after ${LIMIT} ms: ${describe(left)}`);
}

/** The prompt failed once with a JSON-RPC error, after every open call of the turn had failed. */
function failedOnce(report, editor, answer) {
  report.ok(Number.isInteger(answer.error?.code) && answer.error?.message, `the prompt fails with an error: ${JSON.stringify(answer.error ?? answer.result)}`);
  const events = turn(editor, answer.tag);
  for (const call of calls(events)) report.equal(call.statuses.at(-1), 'failed', `${call.fields.title}: last status before the answer`);
}

export const killChecks = [
  check('agent killed while a command runs', async ({ sandbox, report, editor }) => {
    const { sleeping, claude } = await runLong(editor, sandbox);
    report.ok(isAlive(claude) && isAlive(sleeping), 'claude and its command run before the kill');
    process.kill(editor.pid, 'SIGKILL');
    await nothingLeft(sandbox, report);
  }),

  check('agent killed while claude is stopped', async ({ sandbox, report, editor }) => {
    const { claude } = await runLong(editor, sandbox);
    process.kill(claude.pid, 'SIGSTOP');
    process.kill(editor.pid, 'SIGKILL');
    await nothingLeft(sandbox, report);
  }),

  check('editor gone while a command runs', async ({ sandbox, report, editor }) => {
    await runLong(editor, sandbox);
    editor.child.stdin.end();
    editor.child.stdout.destroy();
    await nothingLeft(sandbox, report);
  }),

  check('agent terminated while a command runs', async ({ sandbox, report, editor }) => {
    await runLong(editor, sandbox);
    process.kill(editor.pid, 'SIGTERM');
    await nothingLeft(sandbox, report);
  }),

  check('claude killed while a command runs', async ({ sandbox, report, editor }) => {
    const first = await editor.prompt('Hello.\n%label one\n%say First.');
    report.stopped(first, 'end_turn');
    const { answering, claude } = await runLong(editor, sandbox, 'two');
    // Claude writes its store with a short delay: what it never wrote, nobody can bring back.
    await eventually('the second prompt is in the store', () => sandbox.stored('user', '%label two'));
    kill([claude]);
    const answer = await answering;
    failedOnce(report, editor, answer);
    const next = await editor.prompt('And now?\n%label three\n%recall');
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)), 'one two three', 'prompts that the model saw in the next turn');
    const answered = editor.messages.filter((line) => line.method === undefined && line.id !== undefined).map((line) => line.id);
    report.equal(answered.length, new Set(answered).size, 'answers, each to a request of its own');
  }),

  check('command of a killed claude ends too', async ({ sandbox, report, editor }) => {
    const { answering, claude, sleeping } = await runLong(editor, sandbox);
    kill([claude]);
    await answering;
    const left = await gone(() => [sleeping], LIMIT);
    report.ok(left.length === 0, `still alive ${LIMIT} ms after the answer: ${describe(left)}`);
  }),

  check('claude killed in mid-stream', async ({ sandbox, report, editor }) => {
    await editor.prompt('Hello.\n%label one\n%say First.');
    const answering = editor.prompt(`Talk.\n%label two\n%pace 20\n%flood 2000`);
    await editor.until((event) => event.type === 'update' && event.update.content?.text?.startsWith('w'));
    await eventually('the second prompt is in the store', () => sandbox.stored('user', '%label two'));
    kill(marked(sandbox.mark).filter((seen) => executable(seen) === sandbox.place.claude));
    failedOnce(report, editor, await answering);
    const next = await editor.prompt('And now?\n%label three\n%recall');
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)), 'one two three', 'prompts that the model saw in the next turn');
  }),

  check('claude killed with an open question', async ({ sandbox, report, editor }) => {
    await editor.prompt('Hello.\n%label one\n%say First.');
    editor.decide = () => undefined;
    const answering = editor.prompt(`Touch it.\n%label two\n%call Bash ${JSON.stringify({ command: 'touch never.txt', description: 'Makes a file' })}\n%next\n%say Touched.`);
    const asked = await editor.until((event) => event.type === 'ask');
    kill(marked(sandbox.mark).filter((seen) => executable(seen) === sandbox.place.claude));
    failedOnce(report, editor, await answering);
    report.ok(editor.events.some((event) => event.type === 'withdrawn' && event.tag === asked.tag), 'the open question is withdrawn with $/cancel_request');
    editor.reply(asked, 'allow_once'); // too late: it must change nothing
    const next = await editor.prompt('And now?\n%label three\n%say Going on.');
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)), 'Going on.', 'text of the next turn');
    report.equal(sandbox.read('never.txt'), null, 'never.txt');
  }),

  check('claude killed between turns', async ({ sandbox, report, editor }) => {
    await editor.prompt('Hello.\n%label one\n%say First.');
    await eventually('the first answer is in the store', () => sandbox.stored('assistant', '"First."'));
    kill(marked(sandbox.mark).filter((seen) => executable(seen) === sandbox.place.claude));
    const next = await editor.prompt('And now?\n%label two\n%recall');
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)), 'one two', 'prompts that the model saw in the next turn');
  }),
];
