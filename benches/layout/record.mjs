// Writes src/build/startup.ld: which functions a conversation runs, for the linker to lay together.
//   node benches/layout/record.mjs            builds diglot, runs it under valgrind, writes the file
//   node benches/layout/record.mjs --check    says whether the built target/release/diglot is laid out by it
//
// Six conversations: an editor's with an agent behind stream-json, an editor's with an ACP agent, and a host's with an ACP
// agent; each once with the demo agent that lives in diglot over sockets, as Node's programs start diglot, and once over
// pipes, as all others do, and two of these with an agent that says a lot. Only the process in the middle and its guard are recorded.
// Needs Linux, lld, valgrind and binutils; takes as long as a release build.

import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const script = path.join(root, 'src/build/startup.ld');
const SECTION = '.text.startup_order';
// What the program is, as bits: an editor's with an agent behind stream-json, an editor's with an ACP agent, a host's.
const EDITOR = 1;
const PASSING = 2;
const HOST = 4;
// Its guard.
const GUARD = 8;
// Names that stand for several functions of which less than this part runs, by bytes.
const DENSE = 0.5;
const SPARSE = 16;
// Which kinds run a function, in this order: so what one kind runs lies in one piece, and passing's in two. What a guard runs
// comes first, as there is a process of that for every agent.
const ORDER = [GUARD, GUARD | SPARSE, EDITOR, EDITOR | PASSING, SPARSE, EDITOR | PASSING | HOST, EDITOR | HOST, HOST, PASSING | HOST, PASSING];
// Node gives its children sockets; with this they get pipes.
const PIPES = true;
// A longer name says what a function is an instance of; so much of it is enough.
const LONG = 110;

const run = (command, args, options = {}) => execFileSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 30, ...options });

if (process.argv.includes('--check')) check();
else await record();

/** A build whose linker knows the names puts a good part of the code into the section; one that does not, next to nothing. */
function check() {
  const program = path.join(root, 'target/release/diglot');
  const sizes = Object.fromEntries(run('size', ['-A', program]).split('\n').map((line) => line.trim().split(/\s+/)).map(([name, size]) => [name, Number(size)]));
  const part = (sizes[SECTION] ?? 0) / ((sizes[SECTION] ?? 0) + sizes['.text']);
  console.log(`${(part * 100).toFixed(0)} % of the code is laid together as ${path.relative(root, script)} says`);
  if (part < 0.25) {
    console.error('the names in it are not those of this compiler or this code any more: run node benches/layout/record.mjs');
    process.exit(1);
  }
}

async function record() {
  const target = path.join(root, 'target/layout');
  const map = path.join(target, 'map');
  // The program as it is shipped but for its layout: in one with its names in it the compiler decides some things otherwise.
  run('cargo', ['rustc', '--release', '--locked', '--bin', 'diglot', '--target-dir', target, '--', `-Clink-arg=-Wl,-Map=${map}`], {
    cwd: root, stdio: 'inherit', env: { ...process.env, DIGLOT_LAYOUT: '0' },
  });
  const diglot = path.join(target, 'release/diglot');
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'diglot-layout-'));
  try {
    const traces = [
      [EDITOR, await conversation(folder, diglot, ['acp', '--agent', 'demo'], editor)],
      [PASSING, await conversation(folder, diglot, ['acp', '--agent', 'passed'], editor)],
      [HOST, await conversation(folder, diglot, ['claude', '--diglot-agent', 'passed', '--input-format', 'stream-json', '--output-format', 'stream-json',
        '--verbose', '--include-partial-messages', '--permission-prompt-tool', 'stdio'], host)],
      [EDITOR, await conversation(folder, diglot, ['acp', '--', diglot, 'demo-agent'], editor, PIPES)],
      // Long answers, as fast as they come.
      [PASSING, await conversation(folder, diglot, ['acp', '--agent', 'fluent'], editor, PIPES)],
      [HOST, await conversation(folder, diglot, ['claude', '--diglot-agent', 'fluent', '--input-format', 'stream-json', '--output-format', 'stream-json',
        '--verbose', '--include-partial-messages'], host, PIPES)],
    ];
    const functions = sections(map);
    if (functions.length === 0) throw new Error(`${map} is not a map as lld writes it`);
    const kinds = new Map();
    for (const [kind, { own, guards }] of traces) {
      for (const [of, trace] of [[kind, own], ...guards.map((guard) => [GUARD, guard])]) {
        for (const index of executed(trace, diglot, functions)) kinds.set(index, (kinds.get(index) ?? 0) | of);
      }
    }
    fs.writeFileSync(script, text(grouped(functions, kinds)));
    const size = (of) => [...kinds].reduce((sum, [index, kind]) => sum + (of & kind ? functions[index].size : 0), 0);
    console.log(`${kinds.size} functions of ${functions.length} ran, ${size(EDITOR | PASSING | HOST | GUARD)} bytes: ` +
      `an editor's ${size(EDITOR)}, passing ${size(PASSING)}, a host's ${size(HOST)}, a guard ${size(GUARD)}`);
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

/** One recorded conversation; answers the files of diglot's trace and of its guards'. */
async function conversation(folder, diglot, args, talk, pipes = false) {
  const home = fs.mkdtempSync(path.join(folder, 'home-'));
  const work = path.join(home, 'work');
  fs.mkdirSync(work);
  fs.mkdirSync(path.join(home, '.config/diglot'), { recursive: true });
  const passed = `[agents.passed]\nprotocol = "acp"\ncommand = ${JSON.stringify(diglot)}\nargs = ["acp", "--agent", "demo"]\nenv = { LANG = "C" }\n`;
  const speaker = path.join(home, 'fluent.mjs');
  fs.writeFileSync(speaker, `import readline from 'node:readline';\n(${fluent})(readline);\n`);
  const talker = `[agents.fluent]\nprotocol = "acp"\ncommand = ${JSON.stringify(process.execPath)}\nargs = [${JSON.stringify(speaker)}]\n`;
  fs.writeFileSync(path.join(home, '.config/diglot/config.toml'), passed + talker);
  const traces = path.join(home, 'traces');
  fs.mkdirSync(traces);
  // Of what diglot starts, the guard alone is followed.
  const command = ['valgrind', '--tool=callgrind', '--dump-instr=yes', `--callgrind-out-file=${traces}/%p`, '--quiet', '--trace-children=yes',
    '--trace-children-skip=*/node', '--trace-children-skip-by-arg=acp,demo-agent', diglot, ...args];
  if (pipes) command.unshift('bash', '-c', 'set -o pipefail; cat | "$@" | cat', 'pipes');
  const child = spawn(command[0], command.slice(1), {
    cwd: work, env: { PATH: process.env.PATH, HOME: home, TMPDIR: home }, stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = new Promise((done) => child.on('exit', (code) => done(code)));
  const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const say = (message) => child.stdin.write(`${JSON.stringify(message)}\n`);
  const hear = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`diglot ${args.join(' ')} ended in the conversation`);
    return JSON.parse(value);
  };
  try {
    await talk(say, hear, work);
  } finally {
    child.stdin.end();
    await ended;
  }
  const code = await ended;
  if (code !== 0) throw new Error(`diglot ${args.join(' ')} ended with ${code}`);
  const isGuard = (trace) => /^cmd: .* __guard$/m.test(fs.readFileSync(trace, 'utf8'));
  const files = fs.readdirSync(traces).map((name) => path.join(traces, name));
  const [own, ...more] = files.filter((trace) => !isGuard(trace));
  if (!own || more.length > 0) throw new Error(`diglot ${args.join(' ')} has ${1 + more.length} traces of its own`);
  return { own, guards: files.filter(isGuard) };
}

/** An agent that says a lot: a program of its own. */
function fluent(readline) {
  const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  readline.createInterface({ input: process.stdin }).on('line', (line) => {
    const { id, method, params } = JSON.parse(line);
    const update = (update) => say({ method: 'session/update', params: { sessionId: 'one', update } });
    if (method === 'initialize') say({ id, result: { protocolVersion: 1, agentCapabilities: {}, authMethods: [] } });
    if (method === 'session/new') {
      say({ id, result: { sessionId: 'one' } });
      update({ sessionUpdate: 'available_commands_update', availableCommands: [] });
    }
    if (method === 'session/prompt') {
      const piece = params.prompt.length ? 'a piece of the answer, with "quotes"\n' : '';
      for (let count = 0; count < 10000; count += 1) update({ sessionUpdate: 'agent_message_chunk', content: { type: 'text', text: piece } });
      say({ id, result: { stopReason: 'end_turn' } });
    }
  });
}

/** Time in which diglot, slow as it is here, comes to wait for both sides. */
function rest() {
  return new Promise((done) => setTimeout(done, 1000));
}

async function editor(say, hear, cwd) {
  let last = 0;
  const ask = async (method, params) => {
    last += 1;
    say({ jsonrpc: '2.0', id: last, method, params });
    for (;;) {
      const message = await hear();
      if (message.method === 'session/request_permission') {
        const option = message.params.options.find((choice) => choice.kind === 'allow_once');
        say({ jsonrpc: '2.0', id: message.id, result: { outcome: { outcome: 'selected', optionId: option.optionId } } });
      } else if (message.id === last && !message.method) {
        if (message.error) throw new Error(JSON.stringify(message));
        return message.result;
      }
    }
  };
  await ask('initialize', { protocolVersion: 1, clientCapabilities: {} });
  const { sessionId } = await ask('session/new', { cwd, mcpServers: [] });
  for (const text of ['show me', 'again']) {
    await rest();
    await ask('session/prompt', { sessionId, prompt: [{ type: 'text', text }] });
  }
}

async function host(say, hear) {
  say({ type: 'control_request', request_id: 'start', request: { subtype: 'initialize' } });
  while ((await hear()).type !== 'control_response');
  for (const text of ['show me', 'again']) {
    await rest();
    say({ type: 'user', message: { role: 'user', content: text }, parent_tool_use_id: null, session_id: '' });
    for (;;) {
      const message = await hear();
      if (message.type === 'result') break;
      if (message.type === 'control_request') {
        const response = { behavior: 'allow', updatedInput: message.request.input };
        say({ type: 'control_response', response: { subtype: 'success', request_id: message.request_id, response } });
      }
    }
  }
}

/** The program's functions by address, each a section of its own, as lld's map tells them: {start, size, name}. */
function sections(map) {
  const row = /^ *([0-9a-f]+) +[0-9a-f]+ +([0-9a-f]+) +\d+ +\S.*:\((\.text\.[^)]+)\)$/;
  return fs.readFileSync(map, 'utf8').split('\n').map((line) => row.exec(line)).filter(Boolean)
    .map(([, start, size, name]) => ({ start: parseInt(start, 16), size: parseInt(size, 16), name }))
    .filter(({ size }) => size > 0)
    .sort((a, b) => a.start - b.start);
}

/** Which of the functions a callgrind trace with instruction addresses says were run, by index. */
function executed(trace, program, functions) {
  const ran = new Set();
  const objects = new Map();
  let object;
  let address = 0;
  for (const line of fs.readFileSync(trace, 'utf8').split('\n')) {
    const named = /^(c?)ob=\((\d+)\)(?: (.*))?$/.exec(line);
    if (named) {
      if (named[3]) objects.set(named[2], named[3]);
      if (!named[1]) object = objects.get(named[2]);
      continue;
    }
    const cost = /^(?:(0x[0-9a-f]+)|([+-])(\d+)|\*) \S+ \d/.exec(line);
    if (!cost) continue;
    if (cost[1]) address = parseInt(cost[1], 16);
    else if (cost[2]) address += cost[2] === '-' ? -Number(cost[3]) : Number(cost[3]);
    if (object !== program) continue;
    const index = upto(functions, address);
    if (index >= 0 && address < functions[index].start + functions[index].size) ran.add(index);
  }
  return ran;
}

/** The last function that starts at or before an address. */
function upto(functions, address) {
  let low = 0;
  let high = functions.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (functions[middle].start <= address) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/**
 * What the linker is to look for, one list for each of ORDER: names as patterns without what changes from build to build.
 * A pattern most of whose functions never run lies with those that all kinds run.
 */
function grouped(functions, kinds) {
  const found = new Map();
  functions.forEach((each, index) => {
    const name = pattern(each);
    const entry = found.get(name) ?? { all: 0, ran: 0, kind: 0 };
    const kind = kinds.get(index) ?? 0;
    found.set(name, { all: entry.all + each.size, ran: entry.ran + (kind ? each.size : 0), kind: entry.kind | kind });
  });
  const place = ({ all, ran, kind }) => {
    if (kind === GUARD) return GUARD;
    if (kind & GUARD) return GUARD | SPARSE;
    return ran / all >= DENSE ? kind : SPARSE;
  };
  const ran = [...found].filter(([, { kind }]) => kind);
  return ORDER.map((kind) => ran.filter(([, entry]) => place(entry) === kind).map(([name]) => name).sort());
}

/** The name of a function and of its like: without the hashes of an instance and of a crate, and no longer than needed. */
function pattern({ name }) {
  const plain = name.replace(/\.(llvm\.)?\d+$/, '').replace(/17h[0-9a-f]{16}E$/, '').replace(/Cs[0-9A-Za-z]+_/g, 'Cs*_');
  // `$` is a sign of the linker's language; `?` stands for it.
  return plain.replaceAll('$', '?').slice(0, LONG);
}

function text(groups) {
  const rows = groups.flat().map((name) => `    *(${name}*)`);
  return `/* The functions that conversations run, laid together; src/build/layout.rs says why.
   Written by benches/layout/record.mjs: do not edit. */
SECTIONS
{
  ${SECTION} :
  {
${rows.join('\n')}
  }
  /* A panic ends the program without unwinding, and its names are stripped: nothing reads these tables. */
  /DISCARD/ : { *(.eh_frame) *(.gcc_except_table .gcc_except_table.*) }
}
INSERT BEFORE .text;
`;
}
