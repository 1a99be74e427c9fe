// An editor made of the acpx command line: every operation is a run of its CLI, and what it prints with `--format json` (the
// raw wire, both ways) is what the client received. It owns the acpx processes of one check.
// Invariant: questions are answered by acpx itself, by option kind, as its flags say; nothing here picks an option.
//
// Where one prompt is all a check needs, it is an `exec` (one process, one session); otherwise a session kept by acpx's own
// background owner, as a user has it.
// What its CLI cannot do: answer two questions of one prompt differently, and leave a question open in a session (its session
// owner has no terminal). A question is held open with `exec` on a terminal of its own, where acpx asks the user.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Editor } from '../lib/editor.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const FLAGS = { allow_once: '--approve-all', reject_once: '--deny-all' };

/** The mode that the sessions of an agent (by its command) must be put in, once one has been seen; null = none. */
const modes = new Map();

export class AcpxEditor extends Editor {
  constructor(sandbox) {
    super(sandbox);
    this.policy = 'allow_once';
    this.running = new Set();
  }

  /** Only a policy for all questions can be set: an option kind, or undefined to hold them open. */
  set decide(choose) { this.policy = choose(); }
  get decide() { return () => undefined; }

  async start({ session = false } = {}) {
    const agent = this.sandbox.agent.join(' ');
    if (session || !modes.has(agent)) { this.inSession = true; await super.start(); modes.set(agent, this.mode ?? null); }
    this.mode = modes.get(agent);
    return this;
  }

  run(args, { terminal = false, onLine = () => {} } = {}) {
    const { place, env, workspace } = this.sandbox;
    const agent = this.sandbox.tapped().map((word) => `'${word}'`).join(' ');
    const argv = [place.node, place.acpx, '--agent', agent, '--format', 'json', '--ttl', '60', ...args];
    if (terminal) argv.unshift(place.python, path.join(here, 'on_terminal.py'));
    const child = spawn(argv[0], argv.slice(1), { env, cwd: workspace, stdio: ['ignore', 'pipe', 'pipe'] });
    this.running.add(child);
    let errors = '';
    let output = '';
    child.stderr.on('data', (bytes) => { errors = (errors + bytes).slice(-2000); });
    readline.createInterface({ input: child.stdout }).on('line', (line) => { output = (output + line).slice(-2000); onLine(line); });
    const done = new Promise((resolve) => child.on('close', (code) => { this.running.delete(child); resolve({ code, errors, output }); }));
    return { child, done };
  }

  async must(args) {
    const { code, errors, output } = await this.run(args).done;
    if (code !== 0) throw new Error(`acpx ${args.join(' ')} exited with ${code}: ${errors} ${output}`);
  }

  /** The result of the agent's answer to `method`, as it passed on the wire. */
  wireResult(method) {
    const lines = fs.readFileSync(this.sandbox.wire, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
    const asked = lines.find(({ dir, line }) => dir === 'in' && line.method === method);
    return lines.find(({ dir, line }) => dir === 'out' && asked && line.id === asked.line.id && line.method === undefined)?.line.result;
  }

  async initialize() { await this.must(['sessions', 'new']); return this.wireResult('initialize'); }
  async newSession() { return this.wireResult('session/new'); }
  async setMode(modeId) { this.mode = modeId; await this.must(['set-mode', modeId]); }

  sendPrompt(tag, text) {
    const held = this.policy === undefined;
    const once = held || !this.inSession;
    // `agents`: what the agent asked and acpx has not answered; both number from 0, so an id alone does not say whose it is.
    const ids = { prompt: undefined, agents: new Map() };
    const args = [
      ...(held ? [] : [FLAGS[this.policy]]),
      ...(once ? ['exec', ...(this.mode ? ['--config-option', `mode=${this.mode}`] : [])] : ['prompt']),
      text,
    ];
    const { child, done } = this.run(args, { terminal: held, onLine: (line) => this.heard(tag, line, ids) });
    if (held) this.holding = child;
    done.then(({ code, errors, output }) => {
      // An answer that never came through is the failure to report; waiting longer cannot bring it.
      if (!this.events.some((event) => event.type === 'answer' && event.tag === tag)) {
        this.see({ type: 'answer', tag, error: { code: null, message: `acpx exited with ${code} and printed no answer: ${errors} ${output}` } });
      }
    });
  }

  heard(tag, text, ids) {
    let line;
    try { line = JSON.parse(text); } catch { return; }
    if (line.method === 'session/update') this.see({ type: 'update', turn: tag, update: line.params.update });
    else if (line.method === 'session/prompt') ids.prompt = line.id;
    else if (line.id !== undefined && /^(session\/request_permission$|fs\/|terminal\/|_)/.test(line.method)) {
      ids.agents.set(line.id, line);
      if (line.method === 'session/request_permission') this.see({ type: 'ask', turn: tag, tag: line.id, request: line.params });
    } else if (line.method === undefined && ids.agents.has(line.id)) {
      const { method, params } = ids.agents.get(line.id);
      ids.agents.delete(line.id);
      if (method !== 'session/request_permission') return;
      const kind = params.options.find((option) => option.optionId === line.result?.outcome?.optionId)?.kind ?? 'cancelled';
      this.see({ type: 'replied', turn: tag, tag: line.id, kind });
    } else if (line.method === undefined && ids.prompt !== undefined && line.id === ids.prompt) {
      this.see({ type: 'answer', turn: tag, tag, ...(line.error ? { error: line.error } : { result: line.result }) });
    }
  }

  async sendCancel() {
    if (this.holding) { this.holding.kill('SIGINT'); this.holding = undefined; } else await this.must(['cancel']);
  }

  async close() {
    if (this.inSession) await this.run(['sessions', 'close']).done;
    for (const child of this.running) child.kill('SIGTERM');
  }
}
