// A host made of the official TypeScript SDK. It owns one conversation with the program under test ($CLAUDE_UNDER_TEST) and
// reports, in order, what the SDK handed to it; it decides nothing by itself. Commands come in and events go out as one JSON
// object a line:
//
//   in   {"op":"once","text":…,"options":O}         a whole conversation of one prompt: query() with a string
//        {"op":"open","options":O}                  a conversation to prompt: query() with a stream
//        {"op":"prompt","text":…,"more":{…}}        `more`: other members of the message, as priority and shouldQuery
//        {"op":"interrupt"|"model"|"mode","tag":…,"value":…}
//        {"op":"reply","tag":…,"answer":…}          to an ask (a permission result) or a hook (a hook output)
//        {"op":"close"}                             ends the stream; the end of stdin too
//   out  {"event":"opened"}                         {"event":"message","message":SDKMessage}
//        {"event":"ask","tag":…,"tool":…,"input":…,"call":…,"suggestions":[…]}
//        {"event":"hook","tag":…,"name":…,"input":…}       {"event":"called","arguments":…}   our MCP tool ran
//        {"event":"did","tag":…,"error"?:…}                {"event":"withdrawn","tag":…}
//        {"event":"ended","error"?:…}               the SDK's iterator ended or threw
//   O = {cwd, callback, partial, hooks:[NAME…], calc, servers:{NAME:…}, model, mode, resume, schema, allowed:[…]}, all but
//       cwd optional; calc: a server of our own, servers: of others, as the SDK takes them
//
//   node ts_sdk.mjs FOLDER        FOLDER has the SDK in its node_modules

import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

const require = createRequire(path.join(process.argv[2], 'package.json'));
const { createSdkMcpServer, query, tool } = await import(pathToFileURL(require.resolve('@anthropic-ai/claude-agent-sdk')));
const { z } = await import(pathToFileURL(require.resolve('zod')));
const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);

const open = new Map();
let tags = 0;

/** Puts a question to the check; resolves to its answer. */
function put(event, signal) {
  tags += 1;
  const tag = tags;
  return new Promise((resolve, reject) => {
    open.set(tag, resolve);
    signal?.addEventListener('abort', () => { if (open.delete(tag)) { say({ event: 'withdrawn', tag }); reject(new Error('withdrawn')); } });
    say({ ...event, tag });
  });
}

function sdkOptions({ cwd, callback, partial, hooks, calc, servers, model, mode, resume, schema, allowed }) {
  const hook = (name) => [{ hooks: [(input, _, { signal }) => put({ event: 'hook', name, input }, signal)] }];
  const add = tool('add', 'Adds two numbers', { a: z.number(), b: z.number() }, async (input) => {
    say({ event: 'called', arguments: input });
    return { content: [{ type: 'text', text: `The sum is ${input.a + input.b}.` }] };
  });
  return {
    cwd,
    pathToClaudeCodeExecutable: process.env.CLAUDE_UNDER_TEST,
    stderr: (text) => process.stderr.write(text),
    ...(callback ? { canUseTool: (name, input, { signal, suggestions, toolUseID }) => put({ event: 'ask', tool: name, input, call: toolUseID, suggestions }, signal) } : {}),
    ...(partial ? { includePartialMessages: true } : {}),
    ...(hooks ? { hooks: Object.fromEntries(hooks.map((name) => [name, hook(name)])) } : {}),
    ...(calc ? { mcpServers: { calc: createSdkMcpServer({ name: 'calc', version: '1.0.0', tools: [add] }) } } : {}),
    ...(servers ? { mcpServers: servers } : {}),
    ...(model ? { model } : {}),
    ...(mode ? { permissionMode: mode } : {}),
    ...(resume ? { resume } : {}),
    ...(schema ? { outputFormat: { type: 'json_schema', schema } } : {}),
    ...(allowed ? { allowedTools: allowed } : {}),
  };
}

/** The prompts of a conversation, as the SDK wants them. */
class Prompts {
  constructor() { this.waiting = []; this.taker = undefined; this.closed = false; }
  push(text, more) { this.waiting.push({ type: 'user', session_id: '', parent_tool_use_id: null, message: { role: 'user', content: text }, ...more }); this.taker?.(); }
  close() { this.closed = true; this.taker?.(); }
  async* [Symbol.asyncIterator]() {
    for (;;) {
      while (this.waiting.length > 0) yield this.waiting.shift();
      if (this.closed) return;
      await new Promise((resolve) => { this.taker = resolve; });
    }
  }
}

let conversation;
let prompts;
let ended = Promise.resolve();

async function pump() {
  try {
    for await (const message of conversation) say({ event: 'message', message });
    say({ event: 'ended' });
  } catch (error) {
    say({ event: 'ended', error: String(error?.message ?? error) });
  }
}

async function control(tag, work) {
  try { await work(); say({ event: 'did', tag }); } catch (error) { say({ event: 'did', tag, error: String(error?.message ?? error) }); }
}

const operations = {
  once({ text, options }) { conversation = query({ prompt: text, options: sdkOptions(options) }); ended = pump(); },
  open({ options }) {
    prompts = new Prompts();
    conversation = query({ prompt: prompts, options: sdkOptions(options) });
    ended = pump();
    say({ event: 'opened' });
  },
  prompt({ text, more }) { prompts.push(text, more); },
  interrupt({ tag }) { control(tag, () => conversation.interrupt()); },
  model({ tag, value }) { control(tag, () => conversation.setModel(value)); },
  mode({ tag, value }) { control(tag, () => conversation.setPermissionMode(value)); },
  reply({ tag, answer }) { const settle = open.get(tag); open.delete(tag); settle?.(answer); },
  async close() { prompts?.close(); await ended; process.exit(0); },
};

const commands = readline.createInterface({ input: process.stdin });
commands.on('line', (line) => { const command = JSON.parse(line); operations[command.op](command); });
commands.on('close', () => operations.close());
