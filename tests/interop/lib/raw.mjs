// An editor that is nothing but the wire: JSON-RPC lines written and read by hand, so that checks can send what no client
// library would, count answers, and hold the agent's own process. It records the wire itself (no process in between).

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import readline from 'node:readline';
import { Editor } from './editor.mjs';

export class RawEditor extends Editor {
  constructor(sandbox) {
    super(sandbox);
    this.ids = 0;
    this.pending = new Map();
    this.messages = [];
    this.started = process.hrtime.bigint();
    this.log = fs.openSync(sandbox.wire, 'a');
    this.child = spawn(sandbox.agent[0], sandbox.agent.slice(1), { env: sandbox.env, cwd: sandbox.workspace, stdio: ['pipe', 'pipe', 'pipe'] });
    this.pid = this.child.pid;
    this.child.stdin.on('error', () => {}); // the exit says it
    this.child.stderr.on('data', (bytes) => this.record('err', String(bytes)));
    readline.createInterface({ input: this.child.stdout }).on('line', (line) => this.heard(line));
    this.exited = new Promise((resolve) => this.child.on('exit', (code, signal) => {
      this.record('exit', { code, signal });
      this.end(`agent exited: ${code ?? signal}`);
      resolve({ code, signal });
    }));
  }

  record(dir, line) {
    fs.writeSync(this.log, `${JSON.stringify({ ms: Number((process.hrtime.bigint() - this.started) / 10_000n) / 100, dir, line })}\n`);
  }

  heard(text) {
    let line;
    try { line = JSON.parse(text); } catch { line = text; }
    this.record('out', line);
    this.messages.push(line);
    if (line.method === 'session/update') this.see({ type: 'update', session: line.params.sessionId, update: line.params.update });
    else if (line.method === 'session/request_permission') this.see({ type: 'ask', session: line.params.sessionId, tag: line.id, request: line.params });
    else if (line.method === '$/cancel_request') this.see({ type: 'withdrawn', tag: line.params.requestId });
    else if (line.method !== undefined && line.id !== undefined) this.send({ jsonrpc: '2.0', id: line.id, error: { code: -32601, message: 'method not found' } });
    else if (line.method === undefined && this.pending.has(line.id)) {
      const settle = this.pending.get(line.id);
      this.pending.delete(line.id);
      settle(line);
    }
    for (const check of [...this.waiting]) check();
  }

  /** Writes these bytes as they are, then a newline. */
  sendText(text) { this.record('in', text); this.child.stdin.write(`${text}\n`); }
  send(message) { this.record('in', message); this.child.stdin.write(`${JSON.stringify(message)}\n`); }

  /** Resolves to the whole answer line {id, result|error}. */
  request(method, params) {
    const id = this.ids;
    this.ids += 1;
    const answer = new Promise((resolve, reject) => {
      this.pending.set(id, resolve);
      this.exited.then(({ code, signal }) => reject(new Error(`the agent exited (${code ?? signal}) before it answered ${method}`)));
    });
    answer.catch(() => {}); // a check that kills the agent does not wait for the answer
    this.send({ jsonrpc: '2.0', id, method, params });
    return answer;
  }

  /** Resolves with the first line from the agent, past or coming, that satisfies `wanted`. */
  line(wanted, from = 0) {
    return new Promise((resolve) => {
      const check = () => {
        const found = this.messages.slice(from).find(wanted);
        if (found !== undefined) { this.waiting.delete(check); resolve(found); }
      };
      this.waiting.add(check);
      check();
    });
  }

  async result(method, params) {
    const answer = await this.request(method, params);
    if (answer.error) throw new Error(`${method} failed: ${JSON.stringify(answer.error)}`);
    return answer.result;
  }

  initialize() {
    return this.result('initialize', {
      protocolVersion: 1, clientInfo: { name: 'interop-raw', version: '1' },
      clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false },
    });
  }

  newSession() { return this.result('session/new', { cwd: this.sandbox.workspace, mcpServers: [] }); }
  setMode(modeId) { return this.result('session/set_mode', { sessionId: this.session.sessionId, modeId }); }
  sendPrompt(tag, text, sessionId = this.session.sessionId) {
    this.request('session/prompt', { sessionId, prompt: [{ type: 'text', text }] })
      .then(({ result, error }) => this.see({ type: 'answer', session: sessionId, tag, ...(error ? { error } : { result }) }), () => {});
  }
  sendReply(tag, outcome) { this.send({ jsonrpc: '2.0', id: tag, result: { outcome } }); }
  sendCancel() { this.send({ jsonrpc: '2.0', method: 'session/cancel', params: { sessionId: this.session.sessionId } }); }
  close() { this.child.stdin.end(); return this.exited; }
}
