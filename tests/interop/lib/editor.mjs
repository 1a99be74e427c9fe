// What a check holds in its hands: an editor, whichever client library is behind it. It owns the ordered list of everything
// the client received (`events`) and the answers to permission questions.
// Invariant: `events` is in the order in which the client's own code was called; questions are answered by option kind.
//
// Events: {type:'update', update} {type:'ask', tag, request} {type:'replied', tag, kind} {type:'withdrawn', tag}
//         {type:'prompt', tag, text} {type:'cancel'} {type:'answer', tag, result|error} {type:'exit', code, signal}

import { spawn } from 'node:child_process';
import readline from 'node:readline';

/** Base: keeps the events, lets checks wait for one, answers questions by policy. */
export class Editor {
  constructor(sandbox) {
    this.sandbox = sandbox;
    this.events = [];
    this.waiting = new Set();
    this.prompts = 0;
    /** Decides a question: an option kind, 'cancelled', or undefined to leave it open (answer later with reply()). */
    this.decide = () => 'allow_once';
  }

  see(event) {
    this.events.push(event);
    if (event.type === 'ask') {
      const kind = this.decide(event.request, event);
      if (kind !== undefined) this.reply(event, kind);
    }
    for (const check of [...this.waiting]) check();
  }

  /** Resolves with the first event, past or coming, that satisfies `wanted`. */
  until(wanted, from = 0) {
    return new Promise((resolve, reject) => {
      const check = () => {
        const found = this.events.slice(from).find(wanted);
        if (found !== undefined) { this.waiting.delete(check); resolve(found); return; }
        if (this.ended !== undefined) { this.waiting.delete(check); reject(new Error(`the agent's connection ended first (${this.ended})`)); }
      };
      this.waiting.add(check);
      check();
    });
  }

  end(why) { this.ended ??= why; for (const check of [...this.waiting]) check(); }

  /** Answers the question `asked` (an ask event) with the option of that kind. */
  reply(asked, kind) {
    const option = asked.request.options.find((candidate) => candidate.kind === kind);
    const outcome = option === undefined ? { outcome: 'cancelled' } : { outcome: 'selected', optionId: option.optionId };
    this.events.push({ type: 'replied', tag: asked.tag, kind: option === undefined ? 'cancelled' : kind });
    this.sendReply(asked.tag, outcome);
  }

  /** Sends a prompt; resolves to its answer event {result} or {error}. */
  prompt(text) {
    this.prompts += 1;
    const tag = this.prompts;
    this.events.push({ type: 'prompt', tag, text });
    this.sendPrompt(tag, text);
    return this.until((event) => event.type === 'answer' && event.tag === tag);
  }

  cancel() { this.events.push({ type: 'cancel' }); return this.sendCancel(); }

  /** Opens a session whose tools are asked for: leaves an agent's own default mode for `default` where there is one. */
  async start() {
    this.initialized = await this.initialize();
    this.session = await this.newSession();
    const modes = this.session.modes;
    if (modes && modes.currentModeId !== 'default' && modes.availableModes.some((mode) => mode.id === 'default')) await this.setMode('default');
    return this;
  }
}

/** An editor in a process of its own that speaks the commands described in clients/ts_sdk.mjs. */
export class DrivenEditor extends Editor {
  constructor(sandbox, argv) {
    super(sandbox);
    this.child = spawn(argv[0], argv.slice(1), { env: sandbox.env, cwd: sandbox.workspace, stdio: ['pipe', 'pipe', 'pipe'] });
    this.child.stdin.on('error', () => {}); // the exit says it
    this.errors = '';
    this.child.stderr.on('data', (bytes) => { this.errors = (this.errors + bytes).slice(-4000); });
    readline.createInterface({ input: this.child.stdout }).on('line', (line) => this.heard(JSON.parse(line)));
    this.closed = new Promise((resolve) => this.child.on('close', (code, signal) => {
      this.end(`client exited: ${code ?? signal}${this.errors ? `, stderr: ${this.errors.slice(-600)}` : ''}`);
      resolve();
    }));
  }

  heard({ event, ...rest }) {
    this.see({ type: event, ...rest });
    if (event === 'exit') this.end(`agent exited: ${rest.code ?? rest.signal}`);
  }

  send(command) { this.child.stdin.write(`${JSON.stringify(command)}\n`); }

  async ask(command, event) {
    const from = this.events.length;
    this.send(command);
    const answer = await this.until((seen) => seen.type === event, from);
    if (answer.error) throw new Error(`${command.op} failed: ${answer.error.code} ${answer.error.message} ${JSON.stringify(answer.error.data)}`);
    return answer.result;
  }

  initialize() { return this.ask({ op: 'open', argv: this.sandbox.tapped(), cwd: this.sandbox.workspace }, 'opened'); }
  newSession() { return this.ask({ op: 'session', cwd: this.sandbox.workspace }, 'session'); }
  setMode(modeId) { return this.ask({ op: 'mode', modeId }, 'mode'); }
  sendPrompt(tag, text) { this.send({ op: 'prompt', tag, text }); }
  sendReply(tag, outcome) { this.send({ op: 'reply', tag, outcome }); }
  sendCancel() { this.send({ op: 'cancel' }); }
  close() { this.child.stdin.end(); return this.closed; }
}
