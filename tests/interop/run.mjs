// Runs the interop checks: an ACP agent command under test, the real claude behind it, real client programs in front of it, and
// a scripted model server on loopback. Prints one line for each check and `N passed, N failed` last. Exit code 1 if any failed,
// 2 if the checks could not be run at all.
//
//   node tests/interop/run.mjs [OPTIONS] [FILTER…]      a check runs if its name contains one of the filters (default: all but
//                                                       `agents/`, `hosts/`, `editors/` and `circle/`, which need some 2 GB of programs)
//     --list             print the names only
//     --deadline SECONDS what a check may take (default 120); then it is stopped and counts as failed
//     --retries N        run a failed check again, up to N times, and say so (default 0)
//     --keep             keep the wire recordings of passing checks too
//   HOST_CMD='["/path/to/diglot","claude"]'             what hosts drive (default: the same diglot, with `claude`)
//   AGENT_CMD='["/path/to/agent","acp"]'                the agent (default: the newest built diglot, with `acp`)
//   CLAUDE_CODE_EXECUTABLE, DIGLOT_PEERS                another claude; where the client programs are installed (setup.mjs)
//
// The wire of a failed check is kept in <target>/interop-failed/<name>/*.ndjson. Needs Linux (/proc), node 20, npm and python3.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { AcpxEditor } from './clients/acpx.mjs';
import { agentChecks } from './checks/agents.mjs';
import { circleChecks } from './checks/circle.mjs';
import { conversationChecks } from './checks/conversation.mjs';
import { editorChecks } from './checks/editors.mjs';
import { hostChecks } from './checks/hosts.mjs';
import { killChecks } from './checks/kills.mjs';
import { programChecks } from './checks/programs.mjs';
import { serverChecks } from './checks/servers.mjs';
import { turnChecks } from './checks/turns.mjs';
import { wireChecks } from './checks/wire.mjs';
import { DrivenEditor } from './lib/editor.mjs';
import { Sandbox } from './lib/sandbox.mjs';
import { Report, late } from './lib/seen.mjs';
import { setup } from './setup.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, '../..');
const target = path.resolve(process.env.CARGO_TARGET_DIR ?? path.join(root, 'target'));
const out = (line) => process.stdout.write(`${line}\n`);

/** The agent under test, as argv. */
export function agentCommand() {
  if (process.env.AGENT_CMD) return JSON.parse(process.env.AGENT_CMD);
  const built = ['release', 'debug'].map((profile) => path.join(target, profile, 'diglot')).filter((file) => fs.existsSync(file));
  if (built.length === 0) throw new Error(`no diglot under ${target}: run \`cargo build --release\` or set AGENT_CMD`);
  built.sort((a, b) => fs.statSync(b).mtimeMs - fs.statSync(a).mtimeMs);
  return [built[0], 'acp'];
}

/** The program that hosts drive in the place of claude, as argv. */
function hostCommand() {
  return process.env.HOST_CMD ? JSON.parse(process.env.HOST_CMD) : [agentCommand()[0], 'claude'];
}

/** Starts the model server in a process of its own; it ends with us. */
export async function startServer() {
  const child = spawn(process.execPath, [path.join(here, 'model_server.mjs'), '0'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const [line] = await Promise.race([
    new Promise((resolve) => readline.createInterface({ input: child.stdout }).once('line', (text) => resolve([text]))),
    new Promise((_, reject) => child.on('exit', (code) => reject(new Error(`the model server exited with ${code}`)))),
  ]);
  const { port } = JSON.parse(line);
  return { url: `http://127.0.0.1:${port}`, pid: child.pid, close: () => child.stdin.end() };
}

function allChecks(place) {
  const clients = [
    { name: 'acpx', make: (sandbox) => new AcpxEditor(sandbox) },
    ...Object.entries({
      ts: [process.execPath, path.join(here, 'clients/ts_sdk.mjs'), place.tsSdk],
      python: [place.python, path.join(here, 'clients/py_sdk.py')],
    }).map(([name, argv]) => ({ name, library: true, make: (sandbox) => new DrivenEditor(sandbox, argv) })),
  ];
  return [
    ...clients.flatMap((client) => conversationChecks(client)),
    ...turnChecks, ...wireChecks, ...killChecks,
    ...agentChecks, ...hostChecks(hostCommand), ...serverChecks(hostCommand), ...programChecks(hostCommand), ...circleChecks(hostCommand, agentCommand),
    ...editorChecks(agentCommand, clients),
  ];
}

/** Runs one check in a sandbox of its own; resolves to {failures, notes, ms}. */
async function runCheck(check, { place, model, agent, deadline, keep }) {
  const started = Date.now();
  const sandbox = new Sandbox({ name: check.name, place, model, agent });
  const report = new Report();
  const used = [];
  const use = (editor) => { used.push(editor); return editor; };
  let timer;
  const expired = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`not done after ${deadline} s`)), deadline * 1000); });
  const body = (async () => {
    await check.run({ sandbox, report, use });
    // An orderly end: the client closes, nothing more arrives, and the agent takes everything it started with it.
    for (const editor of used) await editor.close();
    for (const editor of used.filter((one) => one.events)) {
      for (const event of late(editor)) report.ok(false, `came after the answer: ${JSON.stringify(event.update).slice(0, 200)}`);
    }
  })();
  body.catch(() => {}); // it may fail after the deadline did
  let ended = false;
  try { await Promise.race([body, expired]); ended = true; } catch (error) { report.ok(false, error.message); }
  clearTimeout(timer);
  const left = await sandbox.close(ended && !sandbox.forgive ? 3000 : 0);
  if (ended && !sandbox.forgive && left !== '') report.ok(false, `still alive 3 s after the client closed: ${left}`);
  const failed = report.failures.length > 0;
  const folder = path.join(target, 'interop-failed', check.name.replace(/[^a-z0-9]+/gi, '-'));
  sandbox.dispose(failed || keep ? folder : undefined);
  if (!failed && !keep) fs.rmSync(folder, { recursive: true, force: true });
  return { failures: report.failures, notes: report.notes, ms: Date.now() - started, folder };
}

async function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { list: { type: 'boolean' }, keep: { type: 'boolean' }, deadline: { type: 'string', default: '120' }, retries: { type: 'string', default: '0' } },
  });
  const place = setup();
  const checks = allChecks(place).filter((check) => (positionals.length === 0 ? !check.optional : positionals.some((filter) => check.name.includes(filter))));
  if (values.list) { checks.forEach((check) => out(check.name)); return 0; }
  const agent = agentCommand();
  const model = await startServer();
  out(`agent under test: ${agent.join(' ')}`);
  let passed = 0;
  let failed = 0;
  for (const check of checks) {
    const how = { place, model, agent, deadline: Number(values.deadline), keep: values.keep };
    let { failures, notes, ms, folder } = await runCheck(check, how);
    for (let left = Number(values.retries); failures.length > 0 && left > 0; left -= 1) {
      // Said, not hidden: real programs on a busy machine run into their own deadlines.
      for (const failure of failures) out(`again ${check.name}: ${failure}`);
      ({ failures, notes, ms, folder } = await runCheck(check, how));
    }
    const seconds = (ms / 1000).toFixed(1);
    if (failures.length === 0) { passed += 1; out(`pass  ${check.name}  (${seconds} s)`); } else {
      failed += 1;
      out(`FAIL  ${check.name}  (${seconds} s)`);
      for (const failure of failures) out(`        ${failure}`);
      out(`        wire: ${path.relative(root, folder)}`);
    }
    for (const note of notes) out(`        note: ${note}`);
  }
  model.close();
  out(`${passed} passed, ${failed} failed`);
  return failed === 0 && passed > 0 ? 0 : 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  // A stray rejection of a stopped check must not take the run with it.
  process.on('unhandledRejection', (error) => out(`        stray: ${error?.message ?? error}`));
  process.exit(await main().catch((error) => { process.stderr.write(`${error.message}\n`); return 2; }));
}
