// Writes src/build/startup.ld: which functions a conversation runs, for the linker to lay together.
//   node benches/layout/record.mjs            builds diglot with names, runs it under valgrind, writes the file
//   node benches/layout/record.mjs --check    says whether the built target/release/diglot is laid out by it
//
// Three conversations, each with the demo agent that lives in diglot: an editor's with an agent behind stream-json, an
// editor's with an ACP agent, and a host's with an ACP agent. Only the process in the middle is recorded. Needs Linux,
// valgrind and binutils; takes as long as a release build.

import { execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const script = path.join(root, 'src/build/startup.ld');
const SECTION = '.text.startup_order';
// A group of functions goes in as one pattern when at least this part of it runs, by bytes.
const DENSE = 0.9;
// A longer name says what a function is an instance of; so much of it is enough.
const LONG = 100;

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
  run('cargo', ['rustc', '--release', '--locked', '--bin', 'diglot', '--target-dir', target, '--', `-Clink-arg=-Wl,-Map=${map}`], {
    cwd: root, stdio: 'inherit', env: { ...process.env, CARGO_PROFILE_RELEASE_STRIP: 'none', DIGLOT_LAYOUT: '0' },
  });
  const diglot = path.join(target, 'release/diglot');
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'diglot-layout-'));
  try {
    const traces = [
      await conversation(folder, diglot, ['acp', '--agent', 'demo'], editor),
      await conversation(folder, diglot, ['acp', '--agent', 'passed'], editor),
      await conversation(folder, diglot, ['claude', '--diglot-agent', 'passed', '--input-format', 'stream-json', '--output-format', 'stream-json',
        '--verbose', '--include-partial-messages', '--permission-prompt-tool', 'stdio'], host),
      // Long answers, as fast as they come.
      await conversation(folder, diglot, ['acp', '--agent', 'fluent'], editor),
      await conversation(folder, diglot, ['claude', '--diglot-agent', 'fluent', '--input-format', 'stream-json', '--output-format', 'stream-json',
        '--verbose', '--include-partial-messages'], host),
    ];
    const functions = symbols(diglot, coldNames(map));
    const ran = new Set(traces.flatMap((trace) => [...executed(trace, diglot, functions)]));
    const patterns = grouped(functions, ran);
    fs.writeFileSync(script, text(patterns));
    const size = [...ran].reduce((sum, index) => sum + functions[index].size, 0);
    console.log(`${ran.size} functions of ${functions.length} ran, ${size} bytes; ${patterns.length} patterns in ${path.relative(root, script)}`);
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
}

/** One recorded conversation; answers the trace's file. */
async function conversation(folder, diglot, args, talk) {
  const home = fs.mkdtempSync(path.join(folder, 'home-'));
  const work = path.join(home, 'work');
  fs.mkdirSync(work);
  fs.mkdirSync(path.join(home, '.config/diglot'), { recursive: true });
  const passed = `[agents.passed]\nprotocol = "acp"\ncommand = ${JSON.stringify(diglot)}\nargs = ["acp", "--agent", "demo"]\nenv = { LANG = "C" }\n`;
  const speaker = path.join(home, 'fluent.mjs');
  fs.writeFileSync(speaker, `import readline from 'node:readline';\n(${fluent})(readline);\n`);
  const talker = `[agents.fluent]\nprotocol = "acp"\ncommand = ${JSON.stringify(process.execPath)}\nargs = [${JSON.stringify(speaker)}]\n`;
  fs.writeFileSync(path.join(home, '.config/diglot/config.toml'), passed + talker);
  const trace = path.join(home, 'trace');
  const child = spawn('valgrind', ['--tool=callgrind', '--dump-instr=yes', `--callgrind-out-file=${trace}`, '--quiet', diglot, ...args], {
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
  return trace;
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
  for (const text of ['show me', 'again']) await ask('session/prompt', { sessionId, prompt: [{ type: 'text', text }] });
}

async function host(say, hear) {
  say({ type: 'control_request', request_id: 'start', request: { subtype: 'initialize' } });
  while ((await hear()).type !== 'control_response');
  for (const text of ['show me', 'again']) {
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

/** Names of the functions that the compiler put among the unlikely ones, as a linker's map tells them. */
function coldNames(map) {
  return new Set([...fs.readFileSync(map, 'utf8').matchAll(/\.text\.unlikely\.([^\s)]+)/g)].map((found) => found[1]));
}

/** The program's functions by address: {start, size, name, cold}. */
function symbols(program, cold) {
  return run('nm', ['-S', '--defined-only', program]).split('\n').map((line) => line.split(' '))
    .filter((words) => words.length === 4 && 'tTwW'.includes(words[2]))
    .map(([start, size, , name]) => ({ start: parseInt(start, 16), size: parseInt(size, 16), name, cold: cold.has(name) }))
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

/** Names as patterns without what changes from build to build; whole paths where nearly all of them ran. */
function grouped(functions, ran) {
  const tree = { all: 0, ran: 0, below: new Map() };
  functions.forEach(({ name, size, cold }, index) => {
    let node = tree;
    for (const part of ['', cold ? '.text.unlikely.' : '.text.', ...parts(name)]) {
      if (part !== '') {
        if (!node.below.has(part)) node.below.set(part, { all: 0, ran: 0, below: new Map() });
        node = node.below.get(part);
      }
      node.all += size;
      node.ran += ran.has(index) ? size : 0;
    }
  });
  const found = [];
  const walk = (node, path_, depth) => {
    if (node.ran === 0) return;
    if (node.below.size === 0 || (depth > 2 && node.ran / node.all >= DENSE)) found.push(path_);
    else for (const [part, below] of node.below) walk(below, path_ + part, depth + 1);
  };
  walk(tree, '', 0);
  return found.sort();
}

/** The parts of a mangled name's path: crate, modules, function; hashes (of an instance, of a crate) are left out. */
function parts(name) {
  const plain = name.replace(/\.(llvm\.)?\d+$/, '');
  if (!plain.startsWith('_ZN')) return [plain.replace(/Cs[0-9A-Za-z]+_/g, 'Cs*_')];
  const found = [];
  for (let at = 3; /\d/.test(plain[at] ?? '');) {
    const digits = /^\d+/.exec(plain.slice(at))[0];
    const part = plain.slice(at, at + digits.length + Number(digits));
    if (/^17h[0-9a-f]{16}$/.test(part)) break;
    found.push(part);
    at += part.length;
  }
  found[0] = `_ZN${found[0]}`;
  return found;
}

function text(patterns) {
  // `$` is a sign of the linker's language; `?` stands for it. Functions marked cold lie in sections of another prefix.
  const rows = [...new Set(patterns.map((pattern) => `    *(${pattern.replaceAll('$', '?').slice(0, LONG)}*)`))];
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
