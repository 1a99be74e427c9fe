// The MCP servers that hosts are given besides their own: what to install, and one of them running in a check's hands.
// A recipe: {name, npm}.

import { spawn } from 'node:child_process';
import path from 'node:path';
import readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { install } from '../setup.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
export const SERVERS = [{ name: 'mcp-sdk', npm: { '@modelcontextprotocol/sdk': '1.32.2', zod: '4.6.7' } }];

/** A running servers/calc_http.mjs: its `url`, and what it told so far (`told`), in the order in which it happened. */
export class CalcServer {
  /** `kind`: sessions, json or sse; `secret`: what it wants as Authorization. Resolves when it listens. */
  static async start(sandbox, kind, secret) {
    const server = new CalcServer();
    const folder = install('servers', SERVERS[0]);
    server.told = [];
    server.child = spawn(process.execPath, [path.join(here, 'calc_http.mjs'), folder, kind, ...(secret ? [secret] : [])], { env: sandbox.env, stdio: ['pipe', 'pipe', 'inherit'] });
    server.closed = new Promise((resolve) => server.child.on('close', resolve));
    const { port } = await new Promise((resolve, reject) => {
      readline.createInterface({ input: server.child.stdout }).on('line', (line) => {
        const event = JSON.parse(line);
        if (event.event === 'listening') resolve(event); else server.told.push(event);
      });
      server.child.on('exit', (code, signal) => reject(new Error(`the MCP server exited: ${code ?? signal}`)));
    });
    server.url = `http://127.0.0.1:${port}/mcp`;
    return server;
  }

  events(name) { return this.told.filter((one) => one.event === name); }
  close() { this.child.stdin.end(); return this.closed; }
}
