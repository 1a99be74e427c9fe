// Each agent by itself, without diglot: it starts offline, answers, and its tools run when they are allowed. When a check of a
// host with this agent fails, these say whether the agent or the model server is to blame.

import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { AGENTS, prepareAgent } from '../agents/index.mjs';
import { RawEditor } from '../lib/raw.mjs';
import { text, turn } from '../lib/seen.mjs';

/** A prompt of these script lines that survives what agents put around a prompt. */
const prompt = (...lines) => ['Please do this.', ...lines, 'Thank you.'].join('\n');
const calc = path.join(path.dirname(fileURLToPath(import.meta.url)), '../agents/calc.mjs');
const call = ([tool, input]) => `%call ${tool} ${JSON.stringify(input)}`;

const agentCheck = (recipe, name, body, { mcp = false } = {}) => ({
  name: `agents/${recipe.name}/${name}`,
  optional: true,
  async run({ sandbox, report, use }) {
    sandbox.agent = prepareAgent(sandbox, recipe);
    const editor = use(new RawEditor(sandbox));
    // Some leave late or never when their stdin ends; ending them is not what is checked here.
    editor.close = async () => { editor.child.stdin.end(); editor.child.kill('SIGKILL'); await editor.exited; sandbox.forgive = true; };
    if (mcp) editor.newSession = () => editor.result('session/new', { cwd: sandbox.workspace, mcpServers: [{ name: 'calc', command: process.execPath, args: [calc], env: [] }] });
    await editor.start();
    if (recipe.mode) await editor.setMode(recipe.mode);
    await body({ sandbox, report, editor, recipe });
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
      call(recipe.shell('touch made-by-shell.txt')), '%next', call(recipe.write(sandbox.file('made-by-write.txt'), 'hello\n')), '%next', '%say Done with it.',
    ));
    report.stopped(answer, 'end_turn');
    report.equal(sandbox.read('made-by-shell.txt'), '', 'made-by-shell.txt');
    report.equal(sandbox.read('made-by-write.txt')?.trim(), 'hello', 'made-by-write.txt');
    report.ok(text(turn(editor, answer.tag)).includes('Done with it.'), `the text after the tools: ${text(turn(editor, answer.tag))}`);
    const asked = editor.events.filter((event) => event.type === 'ask').length;
    report.note(`${asked} questions`);
  }),
  ...(recipe.mcp ? [agentCheck(recipe, 'mcp', async ({ report, editor }) => {
    const answer = await editor.prompt(prompt(call([recipe.mcp('calc', 'add'), { a: 2, b: 3 }]), '%next', '%results'));
    report.stopped(answer, 'end_turn');
    report.ok(text(turn(editor, answer.tag)).includes('The sum is 5.'), `what the model was told: ${text(turn(editor, answer.tag))}`);
  }, { mcp: true })] : []),
]);
