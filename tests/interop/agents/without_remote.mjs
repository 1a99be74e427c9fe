// An agent whose answer to `initialize` does not say that it reaches MCP servers over HTTP, whatever it can do: what diglot does
// in the place of such an agent is checked with real ones. All else passes unchanged, both ways, as does the end of either side.
//
//   node without_remote.mjs COMMAND ARGS…

import { spawn } from 'node:child_process';
import readline from 'node:readline';

const child = spawn(process.argv[2], process.argv.slice(3), { stdio: ['pipe', 'pipe', 'inherit'] });
process.stdin.pipe(child.stdin);
child.stdin.on('error', () => {}); // the exit says it
readline.createInterface({ input: child.stdout, crlfDelay: Infinity }).on('line', (line) => {
  let said = line;
  if (line.includes('"mcpCapabilities"')) {
    const message = JSON.parse(line);
    if (message.result?.agentCapabilities) { delete message.result.agentCapabilities.mcpCapabilities; said = JSON.stringify(message); }
  }
  process.stdout.write(`${said}\n`);
});
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('close', (code) => process.exit(code ?? 1));
