// Measures diglot and the incumbent adapter side by side in one run, and claude driven directly as the baseline of both.
// README: `node benches/compare/compare.mjs [--runs N] [--only startup,stream,latency,edit,size] [--json FILE]` prints a table,
// then the same as JSON on one line; diglot is AGENT_CMD or the newest built binary, so run `cargo build --release` first.
//
// Every figure comes from rounds in which the sides take turns (the order is reversed every other round), so a slow spell of
// the machine hits all of them. CPU and memory are the adapter process's own, from /proc; claude and other children are not
// counted. Times are reported as best and median. Needs Linux, node 20, npm and python3; the first run installs the programs.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { descendants } from '../../tests/interop/lib/procs.mjs';
import { Sandbox } from '../../tests/interop/lib/sandbox.mjs';
import { agentCommand, startServer } from '../../tests/interop/run.mjs';
import { npmInstall, setup } from '../../tests/interop/setup.mjs';

const INCUMBENT = { '@agentclientprotocol/claude-agent-acp': '0.101.0' };
const DELTAS = 20_000;
const TICK_SECONDS = 0.01; // USER_HZ is 100 on every Linux that node runs on

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => Number(process.hrtime.bigint()) / 1e6;
const sorted = (list) => [...list].sort((a, b) => a - b);
const quantile = (list, q) => sorted(list)[Math.min(list.length - 1, Math.floor(q * list.length))];
const median = (list) => quantile(list, 0.5);
const round = (value, digits) => Number(value.toFixed(digits));

/** A program on pipes that speaks one JSON object a line; keeps count of what it wrote. */
class Peer {
  constructor(argv, sandbox) {
    this.born = now();
    this.bytes = 0;
    this.listeners = new Set();
    this.child = spawn(argv[0], argv.slice(1), { env: sandbox.env, cwd: sandbox.workspace, stdio: ['pipe', 'pipe', 'ignore'] });
    this.pid = this.child.pid;
    this.child.stdin.on('error', () => {}); // the exit says it
    this.exited = new Promise((resolve) => this.child.on('exit', resolve));
    let rest = '';
    this.child.stdout.setEncoding('utf8');
    this.child.stdout.on('data', (text) => {
      const at = process.hrtime.bigint();
      this.bytes += Buffer.byteLength(text);
      const lines = (rest + text).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        const message = JSON.parse(line);
        for (const listener of [...this.listeners]) listener(message, at);
      }
    });
  }

  send(message) { this.child.stdin.write(`${JSON.stringify(message)}\n`); }

  until(wanted) {
    return new Promise((resolve, reject) => {
      const listener = (message, at) => { if (wanted(message)) { this.listeners.delete(listener); resolve(message); } };
      this.listeners.add(listener);
      this.exited.then((code) => reject(new Error(`exited with ${code}`)));
    });
  }

  close() { this.child.stdin.end(); return this.exited; }
}

/** An ACP agent, with a session in which every question is allowed once. */
class Adapter extends Peer {
  constructor(argv, sandbox) {
    super(argv, sandbox);
    this.cwd = sandbox.workspace;
    this.ids = 0;
    this.listeners.add((message) => {
      if (message.method !== 'session/request_permission') return;
      const { optionId } = message.params.options.find((option) => option.kind === 'allow_once');
      this.send({ jsonrpc: '2.0', id: message.id, result: { outcome: { outcome: 'selected', optionId } } });
    });
  }

  async request(method, params) {
    this.ids += 1;
    const id = this.ids;
    const answered = this.until((message) => message.id === id && message.method === undefined);
    this.send({ jsonrpc: '2.0', id, method, params });
    const answer = await answered;
    if (answer.error) throw new Error(`${method}: ${JSON.stringify(answer.error)}`);
    return answer.result;
  }

  initialize() { return this.request('initialize', { protocolVersion: 1, clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: false } }); }
  async ready() {
    const { sessionId, modes } = await this.request('session/new', { cwd: this.cwd, mcpServers: [] });
    this.sessionId = sessionId;
    this.mode = modes?.currentModeId;
  }
  async askingMode() { if (this.mode !== 'default') await this.request('session/set_mode', { sessionId: this.sessionId, modeId: 'default' }); }
  prompt(text) { return this.request('session/prompt', { sessionId: this.sessionId, prompt: [{ type: 'text', text }] }); }
  textOf(message) {
    const update = message.params?.update;
    return update?.sessionUpdate === 'agent_message_chunk' ? update.content.text : undefined;
  }
}

/** claude itself. */
class Claude extends Peer {
  constructor(argv, sandbox) {
    super([argv[0], '-p', '--input-format', 'stream-json', '--output-format', 'stream-json', '--verbose', '--include-partial-messages',
      '--permission-prompt-tool', 'stdio', '--replay-user-messages', '--session-id', randomUUID()], sandbox);
  }

  initialize() {
    const answered = this.until((message) => message.type === 'control_response');
    this.send({ type: 'control_request', request_id: 'init', request: { subtype: 'initialize' } });
    return answered;
  }
  async ready() { /* claude is ready when it has answered initialize */ }
  prompt(text) {
    const ended = this.until((message) => message.type === 'result');
    this.send({ type: 'user', message: { role: 'user', content: text }, parent_tool_use_id: null, session_id: '', uuid: randomUUID() });
    return ended;
  }
  textOf(message) {
    return message.type === 'stream_event' && message.event.delta?.type === 'text_delta' ? message.event.delta.text : undefined;
  }
}

const status = (pid, field) => Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))[1]);
const rssMb = (pid) => round(status(pid, 'VmRSS') / 1024, 2);

/** CPU seconds that a process itself has used: by the scheduler's own count (ns), and by the ticks of /proc/PID/stat. */
function cpu(pid) {
  const stat = fs.readFileSync(`/proc/${pid}/stat`, 'latin1');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const exact = fs.readdirSync(`/proc/${pid}/task`)
    .map((task) => Number(fs.readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]))
    .reduce((sum, ns) => sum + ns, 0) / 1e9;
  return { ticks: (Number(fields[11]) + Number(fields[12])) * TICK_SECONDS, exact };
}

/** One side of the comparison: how to start it, and the figures it has collected. */
function side(name, Kind, argv) { return { name, Kind, argv, figures: {} }; }
const note = (one, figure, ...values) => { (one.figures[figure] ??= []).push(...values); };

async function measured(one, context, body) {
  const sandbox = new Sandbox({ name: `bench-${one.name}`, place: context.place, model: context.model, agent: one.argv });
  const peer = new one.Kind(one.argv, sandbox);
  try { await body(peer, sandbox); await peer.close(); } finally { await sandbox.close(2000); sandbox.dispose(); }
}

/** Runs `body` for each side, `runs` times, the order reversed every other round. */
async function rounds(sides, runs, context, body) {
  for (let run = 0; run < runs; run += 1) {
    for (const one of run % 2 === 0 ? sides : [...sides].reverse()) await measured(one, context, (peer, sandbox) => body(one, peer, sandbox));
  }
}

const measures = {
  startup: (sides, context) => rounds(sides, context.runs, context, async (one, peer) => {
    await peer.initialize();
    note(one, 'initialize_ms', now() - peer.born);
    await peer.ready();
    note(one, 'session_ms', now() - peer.born);
    await peer.prompt('Hello.\n%say Hello.');
  }),

  stream: (sides, context) => rounds(sides, Math.max(3, Math.ceil(context.runs / 3)), context, async (one, peer) => {
    await peer.initialize();
    await peer.ready();
    await peer.prompt('Hello.\n%say Hello.');
    await wait(1000); // what an adapter still does after its first turn is not the stream's
    const helpers = () => descendants(peer.pid).filter((seen) => seen.parent === peer.pid && seen.name !== 'claude').length;
    note(one, 'helper_processes', helpers());
    note(one, 'rss_idle_mb', rssMb(peer.pid));
    let letters = 0;
    let messages = 0;
    peer.listeners.add((message) => { const text = peer.textOf(message); if (text !== undefined) { letters += text.length; messages += 1; } });
    const before = cpu(peer.pid);
    const started = now();
    await peer.prompt(`Flood.\n%flood ${DELTAS}`);
    const after = cpu(peer.pid);
    note(one, 'stream_wall_s', (now() - started) / 1000);
    note(one, 'cpu_us_per_delta', ((after.exact - before.exact) / DELTAS) * 1e6);
    note(one, 'cpu_ticks_us_per_delta', ((after.ticks - before.ticks) / DELTAS) * 1e6);
    note(one, 'stream_messages', messages);
    note(one, 'rss_after_mb', rssMb(peer.pid));
    const whole = Array.from({ length: DELTAS }, (_, i) => `w${i} `).join('').length;
    if (letters !== whole) throw new Error(`${one.name} passed on ${letters} of ${whole} characters`);
  }),

  latency: (sides, context) => rounds(sides, Math.max(3, Math.ceil(context.runs / 3)), context, async (one, peer) => {
    await peer.initialize();
    await peer.ready();
    await peer.prompt('Hello.\n%say Hello.');
    await wait(1000);
    peer.listeners.add((message, at) => {
      for (const stamp of peer.textOf(message)?.match(/\d{9,}/g) ?? []) note(one, 'latency_ms', Number(at - BigInt(stamp)) / 1e6);
    });
    await peer.prompt('Tick.\n%pace 5\n%clock 1000');
  }),

  edit: (sides, context) => rounds(sides.filter((one) => one.Kind === Adapter), 1, context, async (one, peer, sandbox) => {
    const lines = Array.from({ length: 4000 }, (_, i) => `line ${String(i).padStart(5, '0')} of a file that is not small at all`);
    const file = sandbox.write('large.txt', `${lines.join('\n')}\n`);
    await peer.initialize();
    await peer.ready();
    await peer.askingMode();
    await peer.prompt(`Read.\n%call Read ${JSON.stringify({ file_path: file, offset: 2000, limit: 5 })}\n%next\n%say Read it.`);
    await wait(500); // late updates of the first turn are not the edit's
    const before = peer.bytes;
    await peer.prompt(`Edit.\n%call Edit ${JSON.stringify({ file_path: file, old_string: lines[2001], new_string: 'a new line' })}\n%next\n%say Edited.`);
    note(one, 'edit_bytes', peer.bytes - before);
    if (!sandbox.read('large.txt').includes('a new line')) throw new Error(`${one.name} did not edit the file`);
  }),

  async size(sides, context) {
    for (const one of sides.filter((each) => each.Kind === Adapter)) {
      if (one.folder === undefined) { note(one, 'installed_mb', fs.statSync(fs.realpathSync(one.argv[0])).size / 1e6); continue; }
      let bytes = 0;
      let claude = 0;
      for (const entry of fs.readdirSync(one.folder, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile()) continue;
        const { size } = fs.statSync(path.join(entry.parentPath ?? entry.path, entry.name));
        bytes += size;
        if (entry.name === 'claude') claude += size;
      }
      note(one, 'installed_mb', bytes / 1e6);
      note(one, 'installed_without_claude_mb', (bytes - claude) / 1e6);
      note(one, 'node_mb', fs.statSync(context.place.node).size / 1e6);
    }
  },
};

function summary(sides) {
  const direct = sides.find((one) => one.Kind === Claude).figures;
  const result = {};
  for (const { name, figures } of sides) {
    const at = (figure, digits, pick = median) => (figures[figure]?.length ? round(pick(figures[figure]), digits) : null);
    const best = (list) => Math.min(...list);
    const added = (q) => (figures === direct || !figures.latency_ms || !direct.latency_ms ? null : round(quantile(figures.latency_ms, q) - quantile(direct.latency_ms, q), 3));
    result[name] = {
      start_to_initialize_ms: at('initialize_ms', 1), start_to_initialize_best_ms: at('initialize_ms', 1, best),
      start_to_session_ms: at('session_ms', 1), start_to_session_best_ms: at('session_ms', 1, best),
      cpu_us_per_delta: at('cpu_us_per_delta', 2), cpu_ticks_us_per_delta: at('cpu_ticks_us_per_delta', 1),
      stream_wall_s: at('stream_wall_s', 2), stream_messages: at('stream_messages', 0),
      latency_p50_ms: at('latency_ms', 3), latency_p95_ms: at('latency_ms', 3, (list) => quantile(list, 0.95)),
      added_latency_p50_ms: added(0.5), added_latency_p95_ms: added(0.95),
      rss_idle_mb: at('rss_idle_mb', 1), rss_after_mb: at('rss_after_mb', 1), helper_processes: at('helper_processes', 0),
      edit_bytes: at('edit_bytes', 0), installed_mb: at('installed_mb', 1), installed_without_claude_mb: at('installed_without_claude_mb', 1), node_mb: at('node_mb', 1),
    };
  }
  return result;
}

const ROWS = [
  ['start to initialize answered, ms', 'start_to_initialize_ms'], ['  best', 'start_to_initialize_best_ms'],
  ['start to session ready, ms', 'start_to_session_ms'], ['  best', 'start_to_session_best_ms'],
  ['CPU per streamed delta, µs', 'cpu_us_per_delta'], ['  by clock ticks', 'cpu_ticks_us_per_delta'],
  [`${DELTAS} deltas, wall s`, 'stream_wall_s'], ['  messages to the editor', 'stream_messages'],
  ['latency per delta p50, ms', 'latency_p50_ms'], ['latency per delta p95, ms', 'latency_p95_ms'],
  ['added latency p50, ms', 'added_latency_p50_ms'], ['added latency p95, ms', 'added_latency_p95_ms'],
  ['memory idle, MB', 'rss_idle_mb'], [`memory after ${DELTAS} deltas, MB`, 'rss_after_mb'], ['helper processes', 'helper_processes'],
  ['one-line edit of a 200 kB file, bytes', 'edit_bytes'],
  ['installed, MB', 'installed_mb'], ['  without claude, MB', 'installed_without_claude_mb'], ['  and node, MB', 'node_mb'],
];

function table(result) {
  const names = Object.keys(result);
  const rows = [['', ...names], ...ROWS.map(([title, key]) => [title, ...names.map((name) => result[name][key] ?? '–')])].map((row) => row.map(String));
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  return rows.map((row) => row.map((cell, column) => (column === 0 ? cell.padEnd(widths[0]) : cell.padStart(widths[column]))).join('  ')).join('\n');
}

const { values } = parseArgs({ options: { runs: { type: 'string', default: '10' }, only: { type: 'string' }, json: { type: 'string' } } });
const only = values.only?.split(',') ?? Object.keys(measures);
const place = setup();
const folder = path.join(place.peers, 'incumbent');
npmInstall(folder, INCUMBENT);
const sides = [
  side('diglot', Adapter, agentCommand()),
  { ...side('incumbent', Adapter, [place.node, path.join(folder, 'node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js')]), folder },
  side('claude', Claude, [place.claude]),
];
const model = await startServer();
const context = { place, model, runs: Number(values.runs) };
for (const name of only) {
  if (!measures[name]) throw new Error(`no measure is called ${name}: choose from ${Object.keys(measures).join(', ')}`);
  process.stderr.write(`measuring ${name}\n`);
  await measures[name](sides, context);
}
model.close();
const result = summary(sides);
const report = { date: new Date().toISOString(), machine: { cpus: os.cpus().length, model: os.cpus()[0]?.model, load: os.loadavg() }, runs: context.runs, diglot: sides[0].argv, sides: result };
process.stdout.write(`${table(result)}\n\n${JSON.stringify(report)}\n`);
if (values.json) fs.writeFileSync(values.json, `${JSON.stringify(report, null, 2)}\n`);
process.exit(0);
