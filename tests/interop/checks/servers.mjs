// MCP servers that the host does not run but names: over HTTP, made of the official MCP SDK. An agent that reaches such servers
// gets the address; for one that does not, diglot goes there in its place. Names are hosts/AGENT/HOST/mcp-…; the host is the newest
// TypeScript SDK, and `claude` in the agent's place says that the check itself is right.

import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { claude } from '../agents/claude.mjs';
import { AGENTS, program } from '../agents/index.mjs';
import { HOSTS } from '../hosts/index.mjs';
import { Host, resultText } from '../lib/host.mjs';
import { CalcServer } from '../servers/index.mjs';
import { launcher, paired, prompt, task, well } from './hosts.mjs';

const json = JSON.stringify;
const masked = path.join(path.dirname(fileURLToPath(import.meta.url)), '../agents/without_remote.mjs');
const [recipe] = HOSTS;
const SECRET = 'Bearer for-calc-only';

/** name, type of the server in the host's words, kind of calc_http.mjs, {secret? (in a header), mask? (the agent does not say that it reaches it)} */
const CHECKS = [
  ['mcp-http', 'http', 'sessions', {}],
  ['mcp-http-authorized', 'http', 'json', { secret: SECRET }],
  ['mcp-sse', 'sse', 'sse', {}],
  ['mcp-http-by-diglot', 'http', 'sessions', { mask: true }],
  ['mcp-http-authorized-by-diglot', 'http', 'json', { mask: true, secret: SECRET }],
  ['mcp-sse-by-diglot', 'sse', 'sse', { mask: true, secret: SECRET }],
];

/** Puts without_remote.mjs in front of the agent's program in the sandbox. */
function mask(sandbox, agent) {
  const file = path.join(sandbox.folder, 'bin', agent.program);
  const real = `${file}-itself`;
  fs.renameSync(file, real);
  program(sandbox, agent.program, [process.execPath, masked, real]);
}

/** What the agent announced and the one server that it was given, as `diglot claude` recorded its wire. */
function given(sandbox) {
  const far = fs.readdirSync(sandbox.folder).filter((name) => name.startsWith('trace-'))
    .flatMap((name) => fs.readFileSync(path.join(sandbox.folder, name), 'utf8').split('\n').filter((line) => line !== '').map((line) => JSON.parse(line)))
    .filter((one) => one.wire === 'far');
  const { mcpCapabilities = {} } = far.find(({ dir, line }) => dir === 'in' && line.result?.agentCapabilities).line.result.agentCapabilities;
  const [server] = far.find(({ dir, line }) => dir === 'out' && line.method === 'session/new').line.params.mcpServers;
  return { announced: mcpCapabilities, server };
}

export function serverChecks(command) {
  return [claude, ...AGENTS].filter((agent) => agent.mcp && !agent.lacks.mcp).flatMap((agent) => CHECKS
    .filter(([name, , , how]) => !agent.lacks[name] && !(agent === claude && how.mask))
    .map(([name, type, kind, how]) => ({
      name: `hosts/${agent.name}/${recipe.name}/${name}`,
      optional: true,
      async run({ sandbox, report, use }) {
        launcher(sandbox, agent, command());
        if (how.mask) mask(sandbox, agent);
        const host = use(new Host(sandbox, recipe));
        const server = await CalcServer.start(sandbox, kind, how.secret);
        use({ close: () => server.close() });
        const headers = how.secret && { Authorization: how.secret };
        await host.open({ callback: true, servers: { calc: { type, url: server.url, headers } } });
        const result = await host.prompt(prompt('%pause 1500', task([agent.mcp('calc', 'add'), { a: 2, b: 3 }]), '%next', '%results'));
        well(report, result);
        report.ok(result.result.includes('The sum is 5.'), `what the model was told: ${result.result}`);
        const [{ use: called, result: gave } = {}] = paired(report, result.events);
        report.equal([called?.name, called?.input], ['mcp__calc__add', { a: 2, b: 3 }], 'the call');
        report.ok(resultText(gave ?? {}).includes('The sum is 5.'), `result of the call: ${json(gave)}`);
        const asked = host.events.filter((event) => event.event === 'ask').map((event) => event.tool);
        report.ok(asked.every((tool) => tool === 'mcp__calc__add'), `tools asked about: ${json(asked)}`);

        report.equal(server.events('called').map((one) => one.arguments), [{ a: 2, b: 3 }], 'calls that the server had');
        const requests = server.events('request');
        // Newer clients ask first for what only newer servers have; and to be told that there are no streams, or nothing else, is
        // part of the protocol.
        const failed = requests.filter(({ message, method, status }) => status >= 400 && message !== 'server/discover'
          && !(status === 405 && (method === 'GET' || message === 'initialize')));
        report.equal(failed, [], 'requests that failed');
        if (how.secret) report.ok([...requests, ...server.events('called')].every((one) => one.authorization === how.secret), `the header is in every request: ${json(server.told)}`);
        if (agent === claude) return;
        const { announced, server: told } = given(sandbox);
        if (how.mask) report.equal(announced, {}, 'what the agent says that it reaches');
        // What it announces and cannot do is done by diglot.
        const reaches = announced[type] && !agent.unable?.includes(type);
        if (reaches) report.equal([told.type, told.url], [type, server.url], 'the server as the agent gets it');
        else report.ok(told.command && !json(told).includes(server.url) && !(how.secret && json(told).includes(how.secret)), `an agent that does not reach it gets a program instead, and neither address nor header: ${json(told)}`);
        report.note(`reached by ${reaches ? 'the agent' : 'diglot'}, as ${[...new Set(requests.map((one) => one.client).filter(Boolean))].join(', ')}`);
      },
    })));
}
