// A tap on a pipe: runs a command with our stdin, stdout and stderr, and copies what passes to a file, one line a message:
// {"ms":…, "dir":"in"|"out"|"err"|"exit", "line":…}. Invariant: the bytes pass unchanged and in order, and the end of
// either side (EOF, exit, signal) reaches the other.
//
//   node tap.mjs FILE COMMAND ARGS…

import { spawn } from 'node:child_process';
import fs from 'node:fs';

const [file, command, ...args] = process.argv.slice(2);
const log = fs.openSync(file, 'a');
const started = process.hrtime.bigint();

function record(dir, line) {
  const ms = Number((process.hrtime.bigint() - started) / 10_000n) / 100;
  let parsed = line;
  try { parsed = JSON.parse(line); } catch { /* not JSON: kept as the text it is */ }
  fs.writeSync(log, `${JSON.stringify({ ms, dir, line: parsed })}\n`);
}

function copy(dir, from, to) {
  let rest = '';
  const decoder = new TextDecoder();
  from.on('data', (bytes) => {
    if (!to.write(bytes)) { from.pause(); to.once('drain', () => from.resume()); }
    const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
    rest = lines.pop();
    for (const line of lines) record(dir, line);
  });
  from.on('end', () => { if (rest !== '') record(dir, rest); if (dir === 'in') to.end(); });
  to.on('error', () => {}); // the reader went away: the exit below says how
}

const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
copy('in', process.stdin, child.stdin);
copy('out', child.stdout, process.stdout);
copy('err', child.stderr, process.stderr);
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('error', (error) => { record('exit', error.message); process.exit(127); });
child.on('close', (code, signal) => {
  record('exit', { code, signal });
  process.exit(code ?? 1);
});
