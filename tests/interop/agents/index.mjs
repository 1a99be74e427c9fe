// The agents that `diglot claude` is checked with: what to install, how to start each offline against the model server, and the
// names and inputs of its tools for scripts. Adding one is a file here and a line below.
//
// A recipe: {name (that of diglot's profile), npm?|pypi?, program (the name on PATH), args (how its makers start it as an ACP agent),
//   command({bin, site, node}) -> argv of the real program, inserted?({url}) -> arguments to stand after the first one,
//   prepare({url, write, folder}) -> variables (write(file in HOME, text or JSON)), mode? (the mode that asks),
//   shell(command), write(file, text), edit(file, before, after), ask?(question, labels): [tool, input] for a `%call` line,
//   make?(name) (a command for an empty file that it asks about, if it does not about `touch`),
//   mcp?(server, tool) -> the name that the model sees, models? (ids that can be set), parallel? (asks about calls at once),
//   anthropic? (it is Claude inside), lacks: {what: why} for checks that it cannot pass}

import fs from 'node:fs';
import path from 'node:path';
import { install } from '../setup.mjs';
import { claudeAgentAcp } from './claude-agent-acp.mjs';
import { codebuddy } from './codebuddy.mjs';
import { codexAcp } from './codex-acp.mjs';
import { copilot } from './copilot.mjs';
import { gemini } from './gemini.mjs';
import { grok } from './grok.mjs';
import { kimi } from './kimi.mjs';
import { opencode } from './opencode.mjs';
import { pi } from './pi.mjs';
import { qwen } from './qwen.mjs';

export const AGENTS = [gemini, grok, codebuddy, opencode, kimi, qwen, copilot, codexAcp, pi, claudeAgentAcp];

/** A command that makes an empty file, of a kind that the agent asks about. */
export const make = (recipe, name) => (recipe.make ?? ((file) => `touch ${file}`))(name);

const quote = (word) => `'${word.replaceAll("'", "'\\''")}'`;

/** A program in the sandbox: a shell script of that name in its own folder of programs. Returns its path. */
export function program(sandbox, name, argv, { inserted = [] } = {}) {
  const folder = path.join(sandbox.folder, 'bin');
  fs.mkdirSync(folder, { recursive: true });
  const file = path.join(folder, name);
  const words = argv.map(quote).join(' ');
  const lines = inserted.length === 0 ? [`exec ${words} "$@"`] : ['first=$1', 'shift', `exec ${words} "$first" ${inserted.map(quote).join(' ')} "$@"`];
  fs.writeFileSync(file, `#!/bin/sh\n${lines.join('\n')}\n`, { mode: 0o755 });
  if (!sandbox.env.PATH.startsWith(`${folder}:`)) sandbox.env.PATH = `${folder}:${sandbox.env.PATH}`;
  return file;
}

/** Makes `recipe` startable in the sandbox under its own name, offline; returns the argv of it as an ACP agent. */
export function prepareAgent(sandbox, recipe) {
  const folder = install('agents', recipe);
  const url = `${sandbox.model.url}/${sandbox.lane}`;
  const write = (name, value) => {
    const file = path.join(sandbox.home, name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value, null, 2));
  };
  // Keys of other makers make some agents choose another model.
  if (!recipe.anthropic) for (const name of ['ANTHROPIC_BASE_URL', 'ANTHROPIC_API_KEY']) delete sandbox.env[name];
  const { PATH, ...env } = recipe.prepare({ url, write, folder });
  Object.assign(sandbox.env, { DISABLE_TELEMETRY: '1', NO_COLOR: '1', ...env });
  if (PATH) sandbox.env.PATH = `${PATH}:${sandbox.env.PATH}`;
  const argv = recipe.command({
    node: sandbox.place.node,
    bin: (name) => path.join(folder, 'node_modules/.bin', name),
    site: (name) => {
      const library = path.join(folder, 'lib');
      const python = fs.readdirSync(library).find((one) => one.startsWith('python'));
      return path.join(library, python, 'site-packages', name);
    },
  });
  const file = program(sandbox, recipe.program, argv, { inserted: recipe.inserted?.({ url }) });
  return [file, ...recipe.args];
}
