// A clean room for one check: its own HOME, workspace, model server lane, process mark and wire recording.
// Invariant: nothing of the machine's own claude settings reaches a check, and nothing of a check outlives close().

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { MARK, describe, gone, kill, marked } from './procs.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
let serial = 0;

export class Sandbox {
  /** `place`: what setup() returned; `model`: {url}; `agent`: argv of the agent under test. */
  constructor({ name, place, model, agent }) {
    serial += 1;
    this.name = name;
    this.place = place;
    this.agent = agent;
    this.model = model;
    this.lane = `${name.replace(/[^a-z0-9]+/gi, '-')}-${serial}`;
    this.mark = `${process.pid}-${this.lane}`;
    this.folder = fs.mkdtempSync(path.join(os.tmpdir(), 'diglot-interop-'));
    this.home = path.join(this.folder, 'home');
    this.workspace = path.join(this.folder, 'workspace');
    this.wire = path.join(this.folder, 'wire.ndjson');
    fs.mkdirSync(path.join(this.home, '.claude'), { recursive: true });
    fs.mkdirSync(this.workspace);
    this.env = {
      PATH: `${path.dirname(place.node)}:${process.env.PATH}`, HOME: this.home, CLAUDE_CONFIG_DIR: path.join(this.home, '.claude'),
      TERM: 'dumb', LANG: 'C.UTF-8', SHELL: '/bin/bash', TMPDIR: this.folder,
      ANTHROPIC_BASE_URL: `${model.url}/${this.lane}`, ANTHROPIC_API_KEY: 'dummy',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1', DISABLE_TELEMETRY: '1',
      CLAUDE_CODE_EXECUTABLE: place.claude,
      [MARK]: this.mark,
    };
  }

  file(name) { return path.join(this.workspace, name); }
  write(name, text) { fs.writeFileSync(this.file(name), text); return this.file(name); }
  read(name) { try { return fs.readFileSync(this.file(name), 'utf8'); } catch { return null; } }

  /** The agent's argv behind a recorder of its wire. */
  tapped() { return [process.execPath, path.join(here, '../tap.mjs'), this.wire, ...this.agent]; }

  /** Puts a recorder in front of claude itself and returns the file it writes. */
  tapClaude() {
    const log = path.join(this.folder, 'claude.ndjson');
    const shim = path.join(this.folder, 'claude-tapped');
    const quoted = [process.execPath, path.join(here, '../tap.mjs'), log, this.place.claude].map((word) => `'${word}'`).join(' ');
    fs.writeFileSync(shim, `#!/bin/sh\nexec ${quoted} "$@"\n`, { mode: 0o755 });
    this.env.CLAUDE_CODE_EXECUTABLE = shim;
    return log;
  }

  /** The model requests of this check so far. */
  async requests() { return (await fetch(`${this.model.url}/${this.lane}/log`)).json(); }

  /** Whether claude's store on disk already has a message of this type (`user`, `assistant`) with this text in it. */
  stored(type, text) {
    const projects = path.join(this.home, '.claude/projects');
    if (!fs.existsSync(projects)) return false;
    return fs.readdirSync(projects, { recursive: true })
      .filter((name) => name.endsWith('.jsonl'))
      .flatMap((name) => fs.readFileSync(path.join(projects, name), 'utf8').split('\n').slice(0, -1))
      .some((line) => line.includes(text) && JSON.parse(line).type === type);
  }

  /** Ends every process of the check; says which had to be killed because they outlived `grace` ms ('' = none). */
  async close(grace = 3000) {
    const left = describe(await gone(() => marked(this.mark), grace));
    // Parents first would let a child escape to a new parent, but the mark finds it there all the same.
    for (let round = 0; round < 5; round += 1) {
      const still = marked(this.mark);
      if (still.length === 0) break;
      kill(still);
      await gone(() => still, 500);
    }
    return left;
  }

  /** Keeps the recordings in `folder` (a failed check) or drops everything. */
  dispose(folder) {
    if (folder !== undefined) {
      fs.rmSync(folder, { recursive: true, force: true });
      fs.mkdirSync(folder, { recursive: true });
      for (const name of fs.readdirSync(this.folder)) {
        if (/\.(ndjson|log)$/.test(name)) fs.copyFileSync(path.join(this.folder, name), path.join(folder, name));
      }
    }
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}
