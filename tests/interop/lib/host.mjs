// What a check of the reverse half holds in its hands: a host, whichever SDK is behind it, in front of the program under test.
// It owns the ordered list of what the host received (`events`, see hosts/ts_sdk.mjs) and answers questions and hooks by policy.
// Invariant: `events` is in the order in which the SDK handed things over.

import { spawn } from 'node:child_process';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { install } from '../setup.mjs';

const drivers = path.join(path.dirname(fileURLToPath(import.meta.url)), '../hosts');

export class Host {
  /** `recipe`: one of hosts/index.mjs. The program under test is $CLAUDE_UNDER_TEST of the sandbox. */
  constructor(sandbox, recipe) {
    this.sandbox = sandbox;
    this.events = [];
    this.waiting = new Set();
    this.tags = 0;
    /** Answers to an ask and to a hook; undefined leaves it open (answer later with reply()). */
    this.decide = (asked) => ({ behavior: 'allow', updatedInput: asked.input });
    this.hook = () => ({});
    const argv = recipe.driver({ folder: install('hosts', recipe), here: drivers, node: process.execPath });
    this.child = spawn(argv[0], argv.slice(1), { env: sandbox.env, cwd: sandbox.workspace, stdio: ['pipe', 'pipe', 'pipe'] });
    this.child.stdin.on('error', () => {}); // the exit says it
    this.errors = '';
    this.child.stderr.on('data', (bytes) => { this.errors = (this.errors + bytes).slice(-4000); });
    readline.createInterface({ input: this.child.stdout }).on('line', (line) => this.see(JSON.parse(line)));
    this.closed = new Promise((resolve) => this.child.on('close', (code, signal) => {
      this.gone = `the host exited: ${code ?? signal}${this.errors ? `, stderr: ${this.errors.slice(-1000)}` : ''}`;
      this.wake();
      resolve(code);
    }));
  }

  wake() { for (const check of [...this.waiting]) check(); }

  see(event) {
    this.events.push(event);
    if (event.event === 'ask' || event.event === 'hook') {
      const answer = event.event === 'ask' ? this.decide(event) : this.hook(event);
      if (answer !== undefined) this.reply(event, answer);
    }
    this.wake();
  }

  send(command) { this.child.stdin.write(`${JSON.stringify(command)}\n`); }

  /** Resolves with the first event, past or coming, that satisfies `wanted`; fails when none can come any more. */
  until(wanted, from = 0) {
    return new Promise((resolve, reject) => {
      const check = () => {
        const found = this.events.slice(from).find(wanted);
        const ended = this.events.find((event) => event.event === 'ended');
        if (found !== undefined) resolve(found);
        else if (ended) reject(new Error(`the conversation ended first (${ended.error ?? 'without an error'}); stderr: ${this.errors.slice(-1000)}`));
        else if (this.gone) reject(new Error(this.gone));
        else return;
        this.waiting.delete(check);
      };
      this.waiting.add(check);
      check();
    });
  }

  reply(event, answer) { this.send({ op: 'reply', tag: event.tag, answer }); }

  options(more) { return { cwd: this.sandbox.workspace, ...more }; }

  /** A conversation of one prompt; resolves to the ended event. */
  once(text, options = {}) {
    this.send({ op: 'once', text, options: this.options(options) });
    return this.until((event) => event.event === 'ended');
  }

  async open(options = {}) {
    this.send({ op: 'open', options: this.options(options) });
    await this.until((event) => event.event === 'opened');
    return this;
  }

  /** Sends a prompt; resolves to the result message that comes next, with the events of the turn as `events`. */
  async prompt(text) {
    const from = this.events.length;
    this.send({ op: 'prompt', text });
    const ended = await this.until((event) => event.message?.type === 'result', from);
    return { ...ended.message, events: this.events.slice(from, this.events.indexOf(ended) + 1) };
  }

  /** An `interrupt`, `model` or `mode` call; resolves when the SDK's call does, rejects when it throws. */
  async control(op, value) {
    this.tags += 1;
    const tag = this.tags;
    this.send({ op, tag, value });
    const { error } = await this.until((event) => event.event === 'did' && event.tag === tag);
    if (error) throw new Error(`${op} failed: ${error}`);
  }

  /** Ends the conversation as the SDK ends one; resolves when the host is gone. */
  close() { this.child.stdin.end(); return this.closed; }
}

/** The messages of a list of events. */
export const messages = (events, type) => events.filter((event) => event.event === 'message' && (!type || event.message.type === type)).map((event) => event.message);

/** The content blocks of that type that whole assistant (or user) messages of the events carry. */
export const blocks = (events, from, type) => messages(events, from)
  .flatMap(({ message }) => (Array.isArray(message.content) ? message.content : [])).filter((block) => block.type === type);

/** The text that the whole assistant messages carry. */
export const said = (events) => blocks(events, 'assistant', 'text').map((block) => block.text).join('');

/** The text of a tool result. */
export const resultText = (block) => (typeof block.content === 'string' ? block.content : (block.content ?? []).map((one) => one.text ?? '').join('\n'));
