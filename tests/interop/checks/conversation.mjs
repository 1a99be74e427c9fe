// What every client must be able to do with the agent, written once and run with each client library. A check judges only
// what the client received and what happened to the files; permission answers are chosen by option kind.

import { applyDiffs, diffsIn, text, thought, turn } from '../lib/seen.mjs';

const json = JSON.stringify;
const script = (...lines) => ['Please do this.', ...lines].join('\n');
const call = (name, input) => `%call ${name} ${json(input)}`;
const counted = (n, word) => Array.from({ length: n }, (_, i) => `${word}${i}`).join(' ');

const chunk = (event) => event.type === 'update' && event.update.sessionUpdate === 'agent_message_chunk';

/** Judges one edit: what the user was asked about and what the call shows in the end both turn `before` into `after`. */
function judgeEdit(report, edit, { path, before, after, wholeOld }) {
  report.equal(edit.questions.length, 1, 'questions about the edit');
  const asked = diffsIn(edit.questions[0]?.request.toolCall.content);
  const shown = diffsIn(edit.fields.content);
  for (const [where, diffs] of [['the question', asked], ['the finished call', shown]]) {
    if (!report.ok(diffs.length > 0, `${where} shows no diff`)) continue;
    report.ok(diffs.every((diff) => diff.path === path), `${where}: diff paths ${json(diffs.map((diff) => diff.path))}, expected ${path}`);
    report.equal(applyDiffs(before, diffs), after, `${where}: its diff applied to the old file`);
  }
  if (wholeOld) report.equal(asked[0]?.oldText ?? null, before, 'the question: oldText');
  report.equal(edit.fields.kind, 'edit', 'kind of the call');
  report.ok((edit.fields.locations ?? []).some((location) => location.path === path), 'the call has the file as a location');
}

/**
 * The checks for one client {name, make(sandbox) -> its Editor}. `need.session`: the check needs the answers to initialize and
 * session/new, or several prompts in one session.
 */
export function conversationChecks(client) {
  const check = (name, body, need = {}) => ({
    name: `${client.name}/${name}`,
    async run({ sandbox, report, use }) {
      const editor = use(client.make(sandbox));
      await editor.start(need);
      await body({ sandbox, report, editor });
    },
  });

  return [
    check('initialize', async ({ report, editor }) => {
      const answer = editor.initialized;
      report.equal(answer.protocolVersion, 1, 'protocolVersion');
      report.ok(answer.agentInfo?.name && answer.agentInfo?.version, `agentInfo has a name and a version: ${json(answer.agentInfo)}`);
      report.ok(typeof answer.agentCapabilities === 'object', 'agentCapabilities are there');
      report.equal(typeof (answer.agentCapabilities?.loadSession ?? false), 'boolean', 'type of loadSession');
      report.equal(answer.agentCapabilities?.promptCapabilities?.image, true, 'promptCapabilities.image');
      report.ok(Array.isArray(answer.authMethods ?? []), 'authMethods is a list');
    }, { session: true }),

    check('new session', async ({ report, editor }) => {
      const { sessionId, modes } = editor.session;
      report.ok(typeof sessionId === 'string' && sessionId !== '', 'sessionId is a string');
      report.ok(modes?.availableModes.some((mode) => mode.id === modes.currentModeId), 'the current mode is one of the modes');
      report.ok(['default', 'acceptEdits', 'plan'].every((id) => modes?.availableModes.some((mode) => mode.id === id)), 'claude\'s modes are offered');
    }, { session: true }),

    check('text', async ({ report, editor }) => {
      const said = 'Hello,  wörld: 你好 🌍\n\n- one\ttab\n- "quotes" and \\ back\\slashes\nEnd.';
      const answer = await editor.prompt(script(`%say ${said.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('\t', '\\t')}`));
      report.stopped(answer, 'end_turn');
      report.equal(text(turn(editor, answer.tag)), said, 'text');
      report.lives(turn(editor, answer.tag), []);
    }),

    check('thought', async ({ report, editor }) => {
      const answer = await editor.prompt(script('%think First I weigh it up.', '%say Then I speak.'));
      report.stopped(answer, 'end_turn');
      report.equal(thought(turn(editor, answer.tag)), 'First I weigh it up.', 'thought');
      report.equal(text(turn(editor, answer.tag)), 'Then I speak.', 'text');
      const kinds = turn(editor, answer.tag).filter((event) => /_chunk$/.test(event.update?.sessionUpdate)).map((event) => event.update.sessionUpdate);
      report.ok(kinds.lastIndexOf('agent_thought_chunk') < kinds.indexOf('agent_message_chunk'), 'the thought comes before the text');
    }),

    check('bash allowed', async ({ sandbox, report, editor }) => {
      const command = 'touch made.txt && echo out-$((40+2))';
      const answer = await editor.prompt(script('%say Running it. ', call('Bash', { command, description: 'Makes a file' }), '%next', '%say Ran it.'));
      report.stopped(answer, 'end_turn');
      const events = turn(editor, answer.tag);
      report.equal(text(events), 'Running it. Ran it.', 'text');
      const [bash] = report.lives(events, ['completed']);
      report.equal(bash?.questions.length, 1, 'questions');
      if (bash?.questions[0]) report.options(bash.questions[0]);
      report.equal(bash?.fields.kind, 'execute', 'kind of the call');
      report.ok(json(bash?.fields.title ?? '').includes('touch made.txt'), `the title shows the command: ${bash?.fields.title}`);
      report.ok(json([bash?.contents, bash?.updates.map((update) => update._meta?.terminal_output)]).includes('out-42'), 'the output reaches the client');
      report.equal(sandbox.read('made.txt'), '', 'made.txt');
    }),

    check('bash refused', async ({ sandbox, report, editor }) => {
      editor.decide = () => 'reject_once';
      const answer = await editor.prompt(script(call('Bash', { command: 'touch refused.txt', description: 'Makes a file' }), '%next', '%say As you wish.'));
      report.stopped(answer, 'end_turn');
      const events = turn(editor, answer.tag);
      const [bash] = report.lives(events, ['failed']);
      report.equal(bash?.questions.length, 1, 'questions');
      report.equal(text(events), 'As you wish.', 'text');
      report.equal(sandbox.read('refused.txt'), null, 'refused.txt');
    }),

    check('write a new file', async ({ sandbox, report, editor }) => {
      const path = sandbox.file('new.txt');
      const after = 'alpha\nbeta\n';
      const answer = await editor.prompt(script(call('Write', { file_path: path, content: after }), '%next', '%say Written.'));
      report.stopped(answer, 'end_turn');
      const [write] = report.lives(turn(editor, answer.tag), ['completed']);
      if (write) judgeEdit(report, write, { path, before: null, after, wholeOld: true });
      report.equal(sandbox.read('new.txt'), after, 'new.txt');
    }),

    check('write over a file', async ({ sandbox, report, editor }) => {
      const before = 'one\ntwo\nthree\n';
      const after = 'uno\ndos\n';
      const path = sandbox.write('old.txt', before);
      const answer = await editor.prompt(script(call('Read', { file_path: path }), '%next', call('Write', { file_path: path, content: after }), '%next', '%say Written.'));
      report.stopped(answer, 'end_turn');
      const [read, write] = report.lives(turn(editor, answer.tag), ['completed', 'completed']);
      report.equal(read?.fields.kind, 'read', 'kind of the first call');
      if (write) judgeEdit(report, write, { path, before, after, wholeOld: true });
      report.equal(sandbox.read('old.txt'), after, 'old.txt');
    }),

    check('edit', async ({ sandbox, report, editor }) => {
      const before = 'one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n';
      const after = before.replace('five', 'FIVE\nfive and a half');
      const path = sandbox.write('edit.txt', before);
      const edit = { file_path: path, old_string: 'five', new_string: 'FIVE\nfive and a half' };
      const answer = await editor.prompt(script(call('Read', { file_path: path }), '%next', call('Edit', edit), '%next', '%say Edited.'));
      report.stopped(answer, 'end_turn');
      const [, done] = report.lives(turn(editor, answer.tag), ['completed', 'completed']);
      if (done) judgeEdit(report, done, { path, before, after });
      report.equal(sandbox.read('edit.txt'), after, 'edit.txt');
    }),

    check('edit refused', async ({ sandbox, report, editor }) => {
      editor.decide = () => 'reject_once';
      const path = sandbox.write('kept.txt', 'keep\nme\n');
      const edit = { file_path: path, old_string: 'me', new_string: 'nothing' };
      const answer = await editor.prompt(script(call('Read', { file_path: path }), '%next', call('Edit', edit), '%next', '%say Left alone.'));
      report.stopped(answer, 'end_turn');
      report.lives(turn(editor, answer.tag), ['completed', 'failed']);
      report.equal(sandbox.read('kept.txt'), 'keep\nme\n', 'kept.txt');
    }),

    check('two tools at once', async ({ sandbox, report, editor }) => {
      const command = (name) => ({ command: `echo ${name} > ${name}.txt`, description: `Writes ${name}` });
      const answer = await editor.prompt(script(call('Bash', command('left')), call('Bash', command('right')), '%next', '%say Both done.'));
      report.stopped(answer, 'end_turn');
      const events = turn(editor, answer.tag);
      const both = report.lives(events, ['completed', 'completed']);
      report.ok(both.every((one) => one.questions.length === 1), 'each is asked about once');
      report.equal(text(events), 'Both done.', 'text');
      report.equal([sandbox.read('left.txt'), sandbox.read('right.txt')], ['left\n', 'right\n'], 'the two files');
    }),

    check('cancel in mid-stream', async ({ report, editor }) => {
      const whole = counted(400, 'word');
      const answering = editor.prompt(script('%pace 25', `%say ${whole}`));
      await editor.until((event) => chunk(event) && text(editor.events).length > 20);
      await editor.cancel();
      const answer = await answering;
      report.stopped(answer, 'cancelled');
      const got = text(turn(editor, answer.tag));
      report.ok(got !== '' && got.length < whole.length && whole.startsWith(got), `the text is a part of the reply: ${json(got.slice(0, 80))}`);
      const next = await editor.prompt(script('%say Still here.'));
      report.stopped(next, 'end_turn');
      report.equal(text(turn(editor, next.tag)), 'Still here.', 'text of the next turn');
    }, { session: true }),

    check('cancel with an open question', async ({ sandbox, report, editor }) => {
      editor.decide = () => undefined;
      const answering = editor.prompt(script(call('Bash', { command: 'touch never.txt', description: 'Makes a file' }), '%next', '%say Not reached.'));
      const asked = await editor.until((event) => event.type === 'ask');
      await editor.cancel();
      if (editor.sendReply) editor.reply(asked, 'cancelled');
      const answer = await answering;
      report.stopped(answer, 'cancelled');
      const events = turn(editor, answer.tag);
      report.lives(events, ['failed']);
      report.equal(text(events), '', 'text');
      report.equal(sandbox.read('never.txt'), null, 'never.txt');
      editor.decide = () => 'allow_once';
      const next = await editor.prompt(script('%say Still here.'));
      report.stopped(next, 'end_turn');
      report.equal(text(turn(editor, next.tag)), 'Still here.', 'text of the next turn');
    }),

    check('two prompts in a row', async ({ report, editor }) => {
      const first = counted(80, 'first');
      const answering = editor.prompt(script('%pace 30', `%say ${first}`));
      await editor.until(chunk);
      const second = await editor.prompt(script('%say The second answer.'));
      const answer = await answering;
      report.stopped(answer, 'end_turn');
      report.stopped(second, 'end_turn');
      report.ok(editor.events.indexOf(answer) < editor.events.indexOf(second), 'the first is answered first');
      report.equal(text(turn(editor, answer.tag)), first, 'text of the first turn');
      report.equal(text(turn(editor, second.tag)), 'The second answer.', 'text of the second turn');
    }, { session: true }),
  ];
}
