// An MCP server over HTTP, made of the official TypeScript SDK, with one tool: `add` {a, b}. It owns its sessions
// and tells on stdout, one JSON object a line, what reaches it:
//
//   {"event":"listening","port":…}
//   {"event":"request","method":…,"message":…,"client":…,"session":…,"authorization":…,"status":…}   an HTTP request, once answered
//   {"event":"called","arguments":…,"authorization":…}                                               the tool ran
//
//   node calc_http.mjs FOLDER sessions|json|sse [AUTHORIZATION]     FOLDER has the SDK in its node_modules
//
// `sessions`: streamable HTTP with session ids and answers as events; `json`: streamable HTTP without sessions, answers as JSON;
// `sse`: the older kind, one stream of events and a second address for what the client says. With AUTHORIZATION, a request without exactly that header is refused. It ends when its stdin does.

import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, kind, secret] = process.argv.slice(2);
const require = createRequire(path.join(folder, 'package.json'));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { McpServer } = await load('@modelcontextprotocol/sdk/server/mcp.js');
const { StreamableHTTPServerTransport } = await load('@modelcontextprotocol/sdk/server/streamableHttp.js');
const { SSEServerTransport } = await load('@modelcontextprotocol/sdk/server/sse.js');
const { z } = await load('zod');
const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);

/** session id -> its transport */
const sessions = new Map();

async function connected(transport) {
  const server = new McpServer({ name: 'calc', version: '1.0.0' });
  server.registerTool('add', { description: 'Adds two numbers', inputSchema: { a: z.number(), b: z.number() } }, async (input, { requestInfo }) => {
    say({ event: 'called', arguments: input, authorization: requestInfo?.headers.authorization });
    return { content: [{ type: 'text', text: `The sum is ${input.a + input.b}.` }] };
  });
  await server.connect(transport);
  return transport;
}

/** Hands a request to the transport that it belongs to. */
const KINDS = {
  async sessions(request, response, message) {
    const id = request.headers['mcp-session-id'];
    if (id === undefined && message?.method !== 'initialize') return refuse(response, 400, 'no session');
    if (id !== undefined && !sessions.has(id)) return refuse(response, 404, 'no such session');
    const transport = sessions.get(id)
      ?? await connected(new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID, onsessioninitialized: (given) => { sessions.set(given, transport); } }));
    return transport.handleRequest(request, response, message);
  },
  async json(request, response, message) {
    if (request.method !== 'POST') return refuse(response, 405, 'there are no streams and no sessions here');
    const transport = await connected(new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true }));
    return transport.handleRequest(request, response, message);
  },
  async sse(request, response, message) {
    const id = new URL(request.url, 'http://loopback').searchParams.get('sessionId');
    if (request.method === 'GET') {
      const transport = new SSEServerTransport('/messages', response);
      sessions.set(transport.sessionId, transport);
      return connected(transport);
    }
    if (!sessions.has(id)) return refuse(response, request.url.startsWith('/messages') ? 404 : 405, 'no such session');
    return sessions.get(id).handlePostMessage(request, response, message);
  },
};

function refuse(response, status, text) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32000, message: text } }));
}

async function answer(request, response, body) {
  const message = body === '' ? undefined : JSON.parse(body);
  const { authorization, 'mcp-session-id': session } = request.headers;
  // A stream that stays open has its status long before its end.
  const told = () => say({ event: 'request', method: request.method, message: message?.method, client: message?.params?.clientInfo?.name, session, authorization, status: response.statusCode });
  const flush = response.writeHead;
  response.writeHead = (...args) => { const written = flush.apply(response, args); told(); return written; };
  if (secret !== undefined && authorization !== secret) return refuse(response, 401, 'not without the right header');
  return KINDS[kind](request, response, message);
}

const server = http.createServer((request, response) => {
  let body = '';
  request.setEncoding('utf8');
  request.on('data', (piece) => { body += piece; });
  request.on('end', () => answer(request, response, body).catch((error) => { if (!response.headersSent) refuse(response, 500, String(error)); }));
});
server.listen(0, '127.0.0.1', () => say({ event: 'listening', port: server.address().port }));
process.stdin.on('end', () => process.exit(0)).resume();
