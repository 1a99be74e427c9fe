// claude driven directly over stream-json, without any adapter: what the agent under test is compared with.
// Tools are allowed without a question to the user; one prompt at a time.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import readline from 'node:readline';

export class DirectClaude {
  constructor({ claude, env, cwd, resume }) {
    this.started = process.hrtime.bigint();
    this.heard = new Set();
    this.sessionId = resume ?? randomUUID();
    this.child = spawn(claude, [
      '-p', '--input-format', 'stream-json', '--output-format', 'stream-json', '--verbose', '--include-partial-messages',
      '--permission-prompt-tool', 'stdio', '--replay-user-messages', ...(resume ? ['--resume', resume] : ['--session-id', this.sessionId]),
    ], { env, cwd, stdio: ['pipe', 'pipe', 'ignore'] });
    this.pid = this.child.pid;
    this.child.stdin.on('error', () => {}); // the exit says it
    this.exited = new Promise((resolve) => this.child.on('exit', resolve));
    readline.createInterface({ input: this.child.stdout }).on('line', (text) => {
      const line = JSON.parse(text);
      if (line.type === 'control_request' && line.request.subtype === 'can_use_tool') {
        this.send({ type: 'control_response', response: { subtype: 'success', request_id: line.request_id, response: { behavior: 'allow', updatedInput: line.request.input } } });
      }
      for (const listener of [...this.heard]) listener(line);
    });
  }

  send(line) { this.child.stdin.write(`${JSON.stringify(line)}\n`); }

  until(wanted) {
    return new Promise((resolve, reject) => {
      const listener = (line) => { if (wanted(line)) { this.heard.delete(listener); resolve(line); } };
      this.heard.add(listener);
      this.exited.then((code) => reject(new Error(`claude exited with ${code}`)));
    });
  }

  /** Resolves when claude has answered its own initialize. */
  initialize() {
    const answered = this.until((line) => line.type === 'control_response' && line.response.request_id === 'init');
    this.send({ type: 'control_request', request_id: 'init', request: { subtype: 'initialize' } });
    return answered;
  }

  /** Resolves to the result line of the turn. */
  prompt(text) {
    const ended = this.until((line) => line.type === 'result');
    this.send({ type: 'user', message: { role: 'user', content: [{ type: 'text', text }] }, parent_tool_use_id: null, session_id: '', uuid: randomUUID() });
    return ended;
  }

  close() { this.child.stdin.end(); return this.exited; }
}
