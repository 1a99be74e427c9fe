// An editor made of the official TypeScript SDK. It owns the ACP connection to the agent and reports, in order, what the SDK
// handed to it; it decides nothing by itself. Commands come in and events go out as one JSON object a line:
//
//   in   {"op":"open","argv":[…],"cwd":…}            out  {"event":"opened","result":InitializeResponse}
//        {"op":"session","cwd":…}                         {"event":"session","result":NewSessionResponse}
//        {"op":"mode","modeId":…}                         {"event":"mode","result":…}
//        {"op":"prompt","tag":…,"text":…}                 {"event":"answer","tag":…,"result":PromptResponse}
//        {"op":"cancel"}                                  {"event":"update","update":SessionUpdate}
//        {"op":"reply","tag":…,"outcome":…}               {"event":"ask","tag":…,"request":RequestPermissionRequest}
//        {"op":"close"}                                   {"event":"withdrawn","tag":…}
//   Anything that fails is {"event":…,"tag":…,"error":{code,message,data}}. The end of stdin is a close.
//
//   node ts_sdk.mjs SDK_MODULE

import { spawn } from 'node:child_process';
import fs from 'node:fs/promises';
import readline from 'node:readline';
import { Readable, Writable } from 'node:stream';
import { pathToFileURL } from 'node:url';

const sdk = await import(pathToFileURL(process.argv[2]));
const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);
const failure = (error) => ({ code: error.code ?? null, message: error.message, data: error.data ?? null });

let agent;
let connection;
let sessionId;
let questions = 0;
const open = new Map();

const editor = sdk.client({ name: 'interop-ts' })
  .onNotification('session/update', ({ params }) => say({ event: 'update', update: params.update }))
  .onRequest('fs/read_text_file', async ({ params }) => ({ content: await fs.readFile(params.path, 'utf8') }))
  .onRequest('fs/write_text_file', async ({ params }) => { await fs.writeFile(params.path, params.content); return {}; })
  .onRequest('session/request_permission', ({ params, signal }) => new Promise((resolve) => {
    questions += 1;
    const tag = questions;
    open.set(tag, (outcome) => resolve({ outcome }));
    signal.addEventListener('abort', () => { if (open.delete(tag)) { say({ event: 'withdrawn', tag }); resolve({ outcome: { outcome: 'cancelled' } }); } });
    say({ event: 'ask', tag, request: params });
  }));

const report = (event, work, extra = {}) => work.then(
  (result) => say({ event, ...extra, result }),
  (error) => say({ event, ...extra, error: failure(error) }),
);

const operations = {
  open({ argv, cwd }) {
    agent = spawn(argv[0], argv.slice(1), { cwd, stdio: ['pipe', 'pipe', 'inherit'] });
    agent.on('exit', (code, signal) => say({ event: 'exit', code, signal }));
    connection = editor.connect(sdk.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)));
    report('opened', connection.agent.request('initialize', {
      protocolVersion: sdk.PROTOCOL_VERSION,
      clientInfo: { name: 'interop-ts', version: '1' },
      clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: false },
    }));
  },
  session({ cwd }) {
    report('session', connection.agent.request('session/new', { cwd, mcpServers: [] }).then((result) => { sessionId = result.sessionId; return result; }));
  },
  mode({ modeId }) { report('mode', connection.agent.request('session/set_mode', { sessionId, modeId })); },
  prompt({ tag, text }) { report('answer', connection.agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text }] }), { tag }); },
  cancel() { connection.agent.notify('session/cancel', { sessionId }); },
  reply({ tag, outcome }) { const settle = open.get(tag); open.delete(tag); settle?.(outcome); },
  close() { agent?.stdin.end(); agent ? agent.once('close', () => process.exit(0)) : process.exit(0); },
};

const commands = readline.createInterface({ input: process.stdin });
commands.on('line', (line) => { const command = JSON.parse(line); operations[command.op](command); });
commands.on('close', () => operations.close());
