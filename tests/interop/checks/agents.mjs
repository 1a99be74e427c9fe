// Each agent by itself, without diglot: it starts offline, answers, and its tools run when they are allowed. When a check of a
// host with this agent fails, these say whether the agent or the model server is to blame.

import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { AGENTS, make, prepareAgent } from '../agents/index.mjs';
import { RawEditor } from '../lib/raw.mjs';
import { text, turn } from '../lib/seen.mjs';

/** A prompt of these script lines that survives what agents put around a prompt. */
const prompt = (...lines) => ['Please do this.', ...lines, 'Thank you.'].join('\n');
const calc = path.join(path.dirname(fileURLToPath(import.meta.url)), '../agents/calc.mjs');
const call = ([tool, input]) => `%call ${tool} ${JSON.stringify(input)}`;

/** Ends an agent that may leave late, or never, when its stdin ends: how well it leaves is not what is checked here. */
async function leave(editor) {
  editor.child.stdin.end();
  const timer = setTimeout(() => editor.child.kill('SIGKILL'), 3000);
  await editor.exited;
  clearTimeout(timer);
}

const agentCheck = (recipe, name, body, { mcp = false } = {}) => ({
  name: `agents/${recipe.name}/${name}`,
  optional: true,
  async run({ sandbox, report, use }) {
    sandbox.agent = prepareAgent(sandbox, recipe);
    const editor = use(new RawEditor(sandbox));
    editor.close = () => leave(editor);
    sandbox.forgive = true;
    if (mcp) editor.newSession = () => editor.result('session/new', { cwd: sandbox.workspace, mcpServers: [{ name: 'calc', command: process.execPath, args: [calc], env: [] }] });
    await editor.start();
    if (recipe.mode) await editor.setMode(recipe.mode);
    await body({ sandbox, report, editor, use });
  },
});

export const agentChecks = AGENTS.flatMap((recipe) => [
  agentCheck(recipe, 'text', async ({ report, editor }) => {
    const answer = await editor.prompt(prompt('%say pong'));
    report.stopped(answer, 'end_turn');
    report.equal(text(turn(editor, answer.tag)).trim(), 'pong', 'text');
    const next = await editor.prompt(prompt('%think Hm.', '%say pong again'));
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)).trim(), 'pong again', 'text of the second turn');
  }),
  agentCheck(recipe, 'tools', async ({ sandbox, report, editor }) => {
    sandbox.write('there.txt', 'alpha\nbeta\n');
    const answer = await editor.prompt(prompt(
      call(recipe.shell(make(recipe, 'made-by-shell.txt'))), '%next', call(recipe.write(sandbox.file('made-by-write.txt'), 'hello\n')), '%next', '%say Done with it.',
    ));
    report.stopped(answer, 'end_turn');
    report.equal(sandbox.read('made-by-shell.txt'), '', 'made-by-shell.txt');
    report.equal(sandbox.read('made-by-write.txt')?.trim(), 'hello', 'made-by-write.txt');
    report.ok(text(turn(editor, answer.tag)).includes('Done with it.'), `the text after the tools: ${text(turn(editor, answer.tag))}`);
    const asked = editor.events.filter((event) => event.type === 'ask').length;
    report.note(`${asked} questions`);
  }),
  agentCheck(recipe, 'refusal', async ({ sandbox, report, editor }) => {
    editor.decide = () => 'reject_once';
    const answer = await editor.prompt(prompt(call(recipe.shell(make(recipe, 'refused.txt'))), '%next', '%say Then not.'));
    const asked = editor.events.filter((event) => event.type === 'ask').length;
    report.equal(asked, recipe.lacks.questions ? 0 : 1, 'questions');
    if (!recipe.lacks.questions) report.equal(sandbox.read('refused.txt'), null, 'refused.txt');
    report.note(`stops with ${answer.result?.stopReason ?? JSON.stringify(answer.error)}, says ${JSON.stringify(text(turn(editor, answer.tag)))}`);
    report.note(`asks with ${JSON.stringify(editor.events.find((event) => event.type === 'ask')?.request.options.map((option) => `${option.optionId}: ${option.kind}`))}`);
  }),
  ...(recipe.lacks.resume ? [] : [agentCheck(recipe, 'resume', async ({ sandbox, report, editor, use }) => {
    report.stopped(await editor.prompt(prompt('%label one', '%say First.')), 'end_turn');
    await editor.close();
    const later = use(new RawEditor(sandbox));
    later.close = () => leave(later);
    const { agentCapabilities } = await later.initialize();
    const method = agentCapabilities.sessionCapabilities?.resume ? 'session/resume' : 'session/load';
    await later.result(method, { sessionId: editor.session.sessionId, cwd: sandbox.workspace, mcpServers: [] });
    later.session = editor.session;
    const answer = await later.prompt(prompt('%label two', '%recall'));
    report.stopped(answer, 'end_turn');
    report.ok(text(turn(later, answer.tag)).endsWith('one two'), `prompts that the model saw: ${text(turn(later, answer.tag))}`);
    report.note(`by ${method}`);
  })]),
  ...(recipe.models ? [agentCheck(recipe, 'model', async ({ sandbox, report, editor }) => {
    const [, other] = recipe.models;
    const { sessionId, configOptions } = editor.session;
    const option = configOptions?.find((one) => one.category === 'model');
    await (option ? editor.result('session/set_config_option', { sessionId, configId: option.id, value: other }) : editor.result('session/set_model', { sessionId, modelId: other }));
    report.stopped(await editor.prompt(prompt('%label after', '%say Hello.')), 'end_turn');
    const asked = (await sandbox.requests()).filter((request) => /^%label after$/m.test(request.prompt)).map((request) => request.model);
    // Some ask another model of their own for a title.
    report.ok(asked.some((model) => other.endsWith(model)), `models asked: ${JSON.stringify(asked)}`);
  })] : []),
  ...(recipe.mcp ? [agentCheck(recipe, 'mcp', async ({ report, editor }) => {
    const answer = await editor.prompt(prompt('%pause 1500', call([recipe.mcp('calc', 'add'), { a: 2, b: 3 }]), '%next', '%results'));
    report.stopped(answer, 'end_turn');
    report.ok(text(turn(editor, answer.tag)).includes('The sum is 5.'), `what the model was told: ${text(turn(editor, answer.tag))}`);
  }, { mcp: true })] : []),
]);
