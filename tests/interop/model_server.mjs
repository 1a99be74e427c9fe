// A model server on loopback that says what the prompt tells it to say, in the four dialects that agents speak (model/): the
// Messages API, chat completions, responses and Gemini, each as server-sent events or as one JSON body.
// Invariant: a reply depends only on the request (the script in its last prompt, and how many replies that prompt has had),
// so checks can run in any order against one server.
//
//   node model_server.mjs [PORT]      prints {"port":N,"pid":N} as one line on stdout once it listens; port 0 (default) = any
//
// A script is the lines of a prompt that begin with `%`; other lines of the prompt are ignored.
//
//   %say TEXT           text, one delta for each word      (in TEXT: \n newline, \t tab, \\ backslash)
//   %think TEXT         a thinking block, one delta for each word
//   %call NAME JSON     a tool call with that input, streamed in pieces of 24 characters (names and inputs are the agent's own)
//   %flood N            text of N deltas: "w0 w1 w2 …"
//   %clock N            text of N deltas, each the monotonic clock in nanoseconds at which it was written
//   %recall             text: the %label names of every prompt in the conversation, joined by spaces
//   %count              text: the number of prompts in the conversation
//   %results            text: what the calls of this prompt gave so far, each on lines of its own
//   %label NAME         names this prompt for %recall; says nothing
//   %pace MS            from here on, wait MS before each delta
//   %pause MS           wait once
//   %drop               close the connection here, in the middle of the reply
//   %hang               write nothing more and keep the connection open
//   %fail STATUS [N]    answer with this HTTP status instead (only the first N times this reply is asked for)
//   %stop REASON        the reply's stop_reason (default: tool_use if it calls a tool, else end_turn)
//   %next               ends this reply: the lines after it answer the next request of the same turn
//
// A prompt without a script is answered "Hello from the model server."; a turn that outlives its script gets "Done.".
// Requests without tools (session titles, summaries, suggestions) never run a script: they get a short fixed answer.
//
// A path prefix is a lane: a client given the base URL http://127.0.0.1:PORT/kills-3 (or …/kills-3/v1) shows up alone in
//   GET /kills-3/log    [{at_ms, tools, stream, model, prompt, reply, prompts, status, aborted}, …] in the order of arrival

import http from 'node:http';
import { fileURLToPath } from 'node:url';
import { anthropic } from './model/anthropic.mjs';
import { chat } from './model/chat.mjs';
import { gemini } from './model/gemini.mjs';
import { responses } from './model/responses.mjs';

const FIXED = { none: 'Hello from the model server.', over: 'Done.', title: 'Interop conversation' };
const DIALECTS = [anthropic, chat, responses, gemini];
const UNESCAPE = { '\\n': '\n', '\\t': '\t', '\\\\': '\\' };
const unescape = (text) => text.replace(/\\[nt\\]/g, (pair) => UNESCAPE[pair]);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

/** The text blocks of a message, with the reminders that the agent adds by itself taken out. */
function spokenBlocks(message) {
  const blocks = typeof message.content === 'string' ? [{ type: 'text', text: message.content }] : (message.content ?? []);
  return blocks
    .filter((block) => block.type === 'text')
    .map((block) => block.text.replace(/<system-reminder>[\s\S]*?<\/system-reminder>/g, ''))
    .filter((text) => text.trim() !== '' && !/^\[Request interrupted by user/.test(text.trim()));
}
const hasToolResult = (message) => Array.isArray(message.content) && message.content.some((block) => block.type === 'tool_result');
const resultsOf = (message) => (hasToolResult(message) ? message.content : [])
  .filter((block) => block.type === 'tool_result')
  .map(({ content }) => (typeof content === 'string' ? content : (content ?? []).map((block) => block.text ?? `(${block.type})`).join('\n')));
const isScripted = (text) => /^%[a-z]/m.test(text);

/**
 * What a request asks for: the text of the prompt in force, how many replies that prompt has had (`reply`), every
 * prompt of the conversation in order, and what the calls of the prompt in force gave (`results`). A message that carries tool results is a prompt only if it also carries a script.
 * Unless `plain`, a text without a script is no prompt once there is one with: most agents add messages of their own.
 */
export function readConversation(messages, plain = true) {
  const prompts = [];
  let results = [];
  let reply = 0;
  for (const message of messages) {
    if (message.role === 'user') results.push(...resultsOf(message));
    if (message.role === 'assistant') { reply += 1; continue; }
    if (message.role !== 'user') continue;
    const ofOthers = hasToolResult(message) || (!plain && prompts.some(isScripted));
    const spoken = spokenBlocks(message).filter((text) => !ofOthers || isScripted(text));
    if (spoken.length === 0) continue;
    prompts.push(...spoken);
    results = [];
    reply = 0;
  }
  // Prompts that the agent merged into one message are separate blocks of it: the last one is the one in force.
  const last = prompts.at(-1) ?? '';
  return { prompt: plain || isScripted(last) ? last : prompts.findLast(isScripted) ?? last, reply, prompts, results };
}

/** Cuts a script into replies, each a list of [word, rest] in order. */
export function readScript(prompt) {
  const replies = [[]];
  for (const line of prompt.split('\n')) {
    const found = /^%([a-z]+)(?: (.*))?$/s.exec(line.replace(/\r$/, ''));
    if (!found) continue;
    if (found[1] === 'next') replies.push([]);
    else replies.at(-1).push([found[1], found[2] ?? '']);
  }
  return replies;
}

function labels(prompts) {
  return prompts.flatMap((text) => [...text.matchAll(/^%label (\S+)/gm)].map((found) => found[1]));
}

/** Turns the lines of one reply into steps: {block}, {delta} and what happens to the connection. */
function* play(lines, conversation, callId) {
  let pace = 0;
  let calls = 0;
  const words = (text) => text.match(/\s*\S+\s*|\s+/g) ?? [];
  function* text(kind, deltas) {
    yield { open: kind === 'thinking' ? { type: 'thinking', thinking: '', signature: '' } : { type: 'text', text: '' } };
    for (const delta of deltas) {
      if (pace > 0) yield { pause: pace };
      yield kind === 'thinking' ? { delta: { type: 'thinking_delta', thinking: delta } } : { delta: { type: 'text_delta', text: delta } };
    }
    if (kind === 'thinking') yield { delta: { type: 'signature_delta', signature: 'c2lnbmF0dXJl' } };
    yield { close: true };
  }
  for (const [word, rest] of lines) {
    switch (word) {
      case 'say': yield* text('text', words(unescape(rest))); break;
      case 'think': yield* text('thinking', words(unescape(rest))); break;
      case 'flood': yield* text('text', Array.from({ length: Number(rest) }, (_, i) => `w${i} `)); break;
      case 'recall': yield* text('text', words(labels(conversation.prompts).join(' '))); break;
      case 'results': yield* text('text', words(conversation.results.join('\n'))); break;
      case 'count': yield* text('text', [String(conversation.prompts.length)]); break;
      case 'clock':
        yield { open: { type: 'text', text: '' } };
        for (let i = 0; i < Number(rest); i += 1) {
          if (pace > 0) yield { pause: pace };
          yield { delta: { type: 'text_delta', text: `${process.hrtime.bigint()} ` } };
        }
        yield { close: true };
        break;
      case 'call': {
        const [, name, input] = /^(\S+)\s*(.*)$/s.exec(rest);
        const json = JSON.stringify(JSON.parse(input || '{}'));
        yield { open: { type: 'tool_use', id: callId(calls), name, input: {} } };
        calls += 1;
        for (let at = 0; at < json.length; at += 24) {
          if (pace > 0) yield { pause: pace };
          yield { delta: { type: 'input_json_delta', partial_json: json.slice(at, at + 24) } };
        }
        yield { close: true };
        break;
      }
      case 'pace': pace = Number(rest); break;
      case 'pause': yield { pause: Number(rest) }; break;
      case 'drop': yield { drop: true }; return;
      case 'hang': yield { hang: true }; return;
      case 'label': case 'stop': case 'fail': break;
      default: yield* text('text', [`(the script has an unknown word: %${word})`]);
    }
  }
}

/** Starts the server; resolves to { port, url, lane(name), close() }. */
export function startModelServer(port = 0) {
  const logs = new Map();
  const failures = new Map();
  const started = process.hrtime.bigint();
  const run = Date.now().toString(36);
  let serial = 0;

  const server = http.createServer((request, response) => {
    request.socket.setNoDelay(true);
    let body = '';
    request.setEncoding('utf8');
    request.on('data', (piece) => { body += piece; });
    request.on('end', () => {
      answer(request, response, body).catch((error) => {
        if (!response.headersSent) response.writeHead(500, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ type: 'error', error: { type: 'api_error', message: `the model server failed: ${error.message}` } }));
      });
    });
  });

  const json = (response, status, value) => {
    response.writeHead(status, { 'content-type': 'application/json', 'request-id': `req_${run}` });
    response.end(JSON.stringify(value));
  };

  async function answer(request, response, body) {
    const { pathname } = new URL(request.url, 'http://loopback');
    const [, lane, route] = /^\/?(.*?)\/?((?:v1(?:beta)?\/.*)|log|chat\/completions|responses|models(?:\/.*)?)?$/.exec(pathname);
    if (request.method === 'GET' && route === 'log') return json(response, 200, logs.get(lane) ?? []);
    const path = `/${route ?? ''}`;
    for (const dialect of DIALECTS) {
      const value = dialect.side(path, body);
      if (value !== undefined) return json(response, 200, value);
    }
    const dialect = request.method === 'POST' ? DIALECTS.find((one) => one.route(path)) : undefined;
    if (dialect === undefined) return json(response, 404, anthropic.error(404, `this server has no ${request.method} ${path}`, run));

    const { messages, tools, streaming, model, fixed } = dialect.read(JSON.parse(body), path);
    const conversation = readConversation(messages, dialect === anthropic);
    const withTools = tools.length > 0;
    const replies = readScript(conversation.prompt);
    const scripted = withTools && isScripted(conversation.prompt);
    const lines = fixed !== undefined ? [['say', fixed.replaceAll('\\', '\\\\')]]
      : !withTools ? [['say', FIXED.title]]
      : !scripted && conversation.reply === 0 ? [['say', FIXED.none]]
      : replies[conversation.reply] ?? [['say', FIXED.over]];
    const entry = {
      at_ms: Number(process.hrtime.bigint() - started) / 1e6, tools: withTools, stream: streaming, model,
      prompt: conversation.prompt.slice(0, 400), reply: conversation.reply, prompts: conversation.prompts.length, status: 200, aborted: false,
    };
    if (!logs.has(lane)) logs.set(lane, []);
    logs.get(lane).push(entry);
    let gone = false;
    response.on('close', () => { if (!response.writableEnded) { gone = true; entry.aborted = true; } });

    const failing = lines.find(([word]) => word === 'fail');
    if (failing) {
      const [status, limit = Infinity] = failing[1].split(' ').map(Number);
      const key = `${lane}\n${conversation.reply}\n${conversation.prompt}`;
      const before = failures.get(key) ?? 0;
      if (before < limit) {
        failures.set(key, before + 1);
        entry.status = status;
        return json(response, status, dialect.error(status, `scripted failure ${status}`, run));
      }
    }

    serial += 1;
    const ordinal = serial;
    const steps = play(lines, conversation, (call) => dialect.callId(run, ordinal, call));
    const stop = lines.find(([word]) => word === 'stop')?.[1]
      ?? (lines.some(([word]) => word === 'call') ? 'tool_use' : 'end_turn');
    const reply = { id: `${run}_${ordinal}`, model, stop };
    if (streaming) await stream(response, dialect.stream(reply), steps, () => gone);
    else await whole(response, dialect, reply, steps);
  }

  async function whole(response, dialect, reply, steps) {
    const blocks = [];
    for (const step of steps) {
      if (step.open) blocks.push({ ...step.open });
      else if (step.pause) await wait(step.pause);
      else if (step.drop) return void response.destroy();
      else if (step.hang) return;
      else if (step.delta) {
        const block = blocks.at(-1);
        const { type, ...piece } = step.delta;
        if (type === 'input_json_delta') block.partial = (block.partial ?? '') + piece.partial_json;
        else for (const [key, value] of Object.entries(piece)) block[key] += value;
      } else if (step.close) {
        const block = blocks.at(-1);
        if (block.type === 'tool_use') { block.input = JSON.parse(block.partial ?? '{}'); delete block.partial; }
      }
    }
    json(response, 200, dialect.whole({ ...reply, blocks }));
  }

  async function stream(response, dialect, steps, isGone) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache', 'request-id': `req_${run}` });
    const send = async (events) => {
      for (const { event, data } of events) {
        const text = `${event === undefined ? '' : `event: ${event}\n`}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
        if (!response.write(text) && !isGone()) {
          // A client that reads slowly must not pile the reply up here.
          await new Promise((done) => {
            const go = () => { response.off('drain', go).off('close', go); done(); };
            response.on('drain', go).on('close', go);
          });
        }
      }
    };
    response.flushHeaders();
    await send(dialect.begin());
    for (const step of steps) {
      if (isGone()) return;
      if (step.pause) await wait(step.pause);
      else if (step.drop) return void response.destroy();
      else if (step.hang) return;
      else await send(dialect.step(step));
    }
    await send(dialect.end());
    response.end();
  }

  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => {
      const bound = server.address().port;
      resolve({
        port: bound,
        url: `http://127.0.0.1:${bound}`,
        close: () => new Promise((done) => { server.close(done); server.closeAllConnections(); }),
      });
    });
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const server = await startModelServer(Number(process.argv[2] ?? 0));
  process.stdout.write(`${JSON.stringify({ port: server.port, pid: process.pid })}\n`);
  // Started by a runner that holds our stdin: when the runner is gone, so are we.
  if (!process.stdin.isTTY) process.stdin.on('end', () => process.exit(0)).resume();
}
