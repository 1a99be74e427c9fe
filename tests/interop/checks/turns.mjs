// Turns as the model server and claude see them: no request more than claude alone would make, prompts in their order,
// sessions and subagents side by side, and the mode that claude's own settings give.

import fs from 'node:fs';
import path from 'node:path';
import { DirectClaude } from '../lib/direct.mjs';
import { RawEditor } from '../lib/raw.mjs';
import { Sandbox } from '../lib/sandbox.mjs';
import { calls, text, turn } from '../lib/seen.mjs';

const json = JSON.stringify;
const call = (name, input) => `%call ${name} ${json(input)}`;

const check = (name, body) => ({
  name: `turns/${name}`,
  async run({ sandbox, report, use }) {
    const editor = use(new RawEditor(sandbox));
    await body({ sandbox, report, editor, use });
  },
});

/** Three turns of different shapes. */
const TURNS = [
  ['%label plain', '%say Just text.'],
  ['%label tool', call('Bash', { command: 'touch t1', description: 'Makes a file' }), '%next', '%say One tool.'],
  ['%label tools', call('Bash', { command: 'touch t2', description: 'Makes a file' }), call('Bash', { command: 'touch t3', description: 'Makes a file' }), '%next',
    call('Bash', { command: 'touch t4', description: 'Makes a file' }), '%next', '%say Three tools.'],
].map((lines) => ['Please.', ...lines].join('\n'));

const perTurn = (requests, wanted) => Object.fromEntries(['plain', 'tool', 'tools'].map((label) => [
  label, requests.filter((request) => wanted(request) && request.prompt.includes(`%label ${label}\n`)).length,
]));

export const turnChecks = [
  check('as many model requests as claude alone', async ({ sandbox, report, editor, use }) => {
    await editor.start();
    for (const prompt of TURNS) report.stopped(await editor.prompt(prompt), 'end_turn');
    await editor.close();
    const ours = await sandbox.requests();

    const alone = new Sandbox({ name: `${sandbox.name}-alone`, place: sandbox.place, model: sandbox.model, agent: [] });
    use({ close: async () => { await alone.close(); alone.dispose(); } });
    const claude = new DirectClaude({ claude: sandbox.place.claude, env: alone.env, cwd: alone.workspace });
    await claude.initialize();
    for (const prompt of TURNS) await claude.prompt(prompt);
    await claude.close();
    const theirs = await alone.requests();

    report.equal(perTurn(ours, (request) => request.tools), perTurn(theirs, (request) => request.tools), 'requests with tools in each turn');
    report.equal(ours.length, theirs.length, 'requests of any kind in the whole conversation');
    report.note(`claude alone: ${theirs.length} requests; here: ${ours.length}, of them ${ours.filter((request) => !request.tools).length} without tools`);
  }),

  check('a queue of prompts', async ({ report, editor }) => {
    await editor.start();
    const answering = [0, 1, 2, 3].map((i) => editor.prompt(`Number ${i}.\n%pace 10\n%say ${Array.from({ length: 30 }, (_, word) => `p${i}w${word}`).join(' ')}`));
    const answers = await Promise.all(answering);
    const order = editor.events.filter((event) => event.type === 'answer').map((event) => event.tag);
    report.equal(order, [1, 2, 3, 4], 'order of the answers');
    answers.forEach((answer, i) => {
      report.stopped(answer, 'end_turn');
      report.equal(text(turn(editor, answer.tag)), Array.from({ length: 30 }, (_, word) => `p${i}w${word}`).join(' '), `text of prompt ${i}`);
    });
  }),

  check('cancel with prompts waiting', async ({ report, editor }) => {
    await editor.start();
    const answering = [editor.prompt('Talk.\n%pace 20\n%flood 1000'), editor.prompt('Then this.\n%say Second.')];
    await editor.until((event) => event.type === 'update' && event.update.content?.text?.startsWith('w'));
    editor.cancel();
    const [first, second] = await Promise.all(answering);
    report.stopped(first, 'cancelled');
    report.ok(['cancelled', 'end_turn'].includes(second.result?.stopReason), `the waiting prompt is answered: ${json(second.result ?? second.error)}`);
    const said = text(editor.events).includes('Second.');
    report.equal(said, second.result?.stopReason === 'end_turn', 'the text of the waiting prompt came');
    const next = await editor.prompt('And this.\n%say Third.');
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)), 'Third.', 'text of the next turn');
  }),

  check('two sessions at once', async ({ report, editor }) => {
    await editor.start();
    const other = await editor.newSession();
    report.ok(other.sessionId !== editor.session.sessionId, 'the sessions have different ids');
    const words = (name) => Array.from({ length: 40 }, (_, i) => `${name}${i}`).join(' ');
    const here = editor.prompt(`Talk.\n%pace 20\n%say ${words('here')}`);
    editor.prompts += 1;
    const tag = editor.prompts;
    editor.sendPrompt(tag, `Talk.\n%pace 20\n%say ${words('there')}`, other.sessionId);
    await Promise.all([here, editor.until((event) => event.type === 'answer' && event.tag === tag)]);
    const textOf = (session) => text(editor.events.filter((event) => event.session === session));
    report.equal(textOf(editor.session.sessionId), words('here'), 'text of the first session');
    report.equal(textOf(other.sessionId), words('there'), 'text of the second session');
  }),

  check('subagents ask in parallel', async ({ sandbox, report, editor }) => {
    editor.decide = () => undefined;
    await editor.start();
    const task = (name) => call('Agent', {
      description: `Child ${name}`, subagent_type: 'general-purpose', run_in_background: false,
      prompt: `You are ${name}.\n${call('Bash', { command: `touch ${name}.txt`, description: `Makes ${name}` })}\n%next\n%say Child ${name} is done.`,
    });
    const answering = editor.prompt(`Delegate.\n${task('left')}\n${task('right')}\n%next\n%say All done.`);
    const first = await editor.until((event) => event.type === 'ask');
    const second = await editor.until((event) => event.type === 'ask' && event !== first);
    report.ok(first.request.toolCall.toolCallId !== second.request.toolCall.toolCallId, 'the two questions are about different calls');
    // Both are open now. The one asked last is answered first.
    editor.reply(second, 'allow_once');
    editor.reply(first, 'allow_once');
    const answer = await answering;
    report.stopped(answer, 'end_turn');
    const events = turn(editor, answer.tag);
    const seen = report.lives(events, ['completed', 'completed', 'completed', 'completed']);
    const parents = new Set(seen.filter((one) => one.questions.length > 0).map((one) => one.fields._meta?.claudeCode?.parentToolUseId));
    const agents = new Set(seen.filter((one) => one.questions.length === 0).map((one) => one.id));
    report.equal([...parents].sort(), [...agents].sort(), 'each child\'s call names its own parent call');
    report.equal(text(events), 'All done.', 'text');
    report.equal([sandbox.read('left.txt'), sandbox.read('right.txt')], ['', ''], 'the files of both children');
  }),

  check('an overloaded model is asked again', async ({ report, editor }) => {
    await editor.start();
    const answer = await editor.prompt('Try.\n%fail 529 2\n%say It went through.');
    report.stopped(answer, 'end_turn');
    report.equal(text(turn(editor, answer.tag)), 'It went through.', 'text');
  }),

  check('a model error fails the prompt once', async ({ report, editor }) => {
    await editor.start();
    const answer = await editor.prompt('Try.\n%fail 400');
    report.ok(Number.isInteger(answer.error?.code), `the prompt fails with an error: ${json(answer.result ?? answer.error)}`);
    const next = await editor.prompt('Again.\n%say Recovered.');
    report.stopped(next, 'end_turn');
    report.equal(text(turn(editor, next.tag)), 'Recovered.', 'text of the next turn');
  }),

  check('a session starts in claude\'s own mode', async ({ report, editor }) => {
    editor.initialized = await editor.initialize();
    const session = await editor.newSession();
    report.equal(session.modes?.currentModeId, 'default', 'mode without settings');
  }),

  check('a session starts in the mode of the settings', async ({ sandbox, report, editor }) => {
    fs.writeFileSync(path.join(sandbox.env.CLAUDE_CONFIG_DIR, 'settings.json'), json({ permissions: { defaultMode: 'acceptEdits' } }));
    editor.initialized = await editor.initialize();
    editor.session = await editor.newSession();
    report.equal(editor.session.modes?.currentModeId, 'acceptEdits', 'mode with defaultMode acceptEdits');
    const answer = await editor.prompt(`Write.\n${call('Write', { file_path: sandbox.file('unasked.txt'), content: 'x\n' })}\n%next\n%say Written.`);
    report.stopped(answer, 'end_turn');
    report.equal(calls(turn(editor, answer.tag)).flatMap((one) => one.questions).length, 0, 'questions in acceptEdits mode');
    report.equal(sandbox.read('unasked.txt'), 'x\n', 'unasked.txt');
  }),
];
