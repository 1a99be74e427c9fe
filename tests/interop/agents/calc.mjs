// An MCP server on stdio with one tool, `add` {a, b}: what an agent calls when it is checked by itself.

import readline from 'node:readline';

const ADD = { name: 'add', description: 'Adds two numbers', inputSchema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] } };
const answers = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'calc', version: '1.0.0' } }),
  ping: () => ({}),
  'tools/list': () => ({ tools: [ADD] }),
  'tools/call': ({ arguments: { a, b } }) => ({ content: [{ type: 'text', text: `The sum is ${a + b}.` }] }),
};

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method];
  const body = answer ? { result: answer(params ?? {}) } : { error: { code: -32601, message: `no method ${method}` } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...body })}\n`);
});
