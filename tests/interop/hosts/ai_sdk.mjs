// A host made of the AI SDK with its provider for Claude Code: one call of the library, told as JSON lines. The program under
// test is $CLAUDE_UNDER_TEST. The job is one JSON object on stdin:
//
//   in   {"call":"generateText"|"streamText"|"generateObject","text":…,"cwd":…,"schema"?:…,"callback"?:true,"answer"?:…}
//   out  {"event":"ask","tool":…,"input":…}     answered by `answer` (a permission result; without one, allowed as asked)
//        {"event":"part","part":…}              streamText: each part of the full stream
//        {"event":"done","text"?:…,"object"?:…,"finish":…,"usage":…,"calls"?:…,"results"?:…}     or     {"event":"failed","error":…}
//
//   node ai_sdk.mjs FOLDER

import { createRequire } from 'node:module';
import path from 'node:path';
import { text as whole } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';

const require = createRequire(path.join(process.argv[2], 'package.json'));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { generateObject, generateText, jsonSchema, streamText } = await load('ai');
const { createClaudeCode } = await load('ai-sdk-provider-claude-code');
const say = (event) => process.stdout.write(`${JSON.stringify(event)}\n`);

const { call, text, cwd, schema, callback, answer } = JSON.parse(await whole(process.stdin));
const canUseTool = (tool, input) => { say({ event: 'ask', tool, input }); return Promise.resolve(answer ?? { behavior: 'allow', updatedInput: input }); };
// The provider passes on few variables by itself; what an agent needs beyond them is given by name, as its README says.
const settings = { cwd, pathToClaudeCodeExecutable: process.env.CLAUDE_UNDER_TEST, env: { ...process.env }, settingSources: [], ...(callback ? { canUseTool } : {}) };
const asked = { model: createClaudeCode({ defaultSettings: settings })('sonnet'), prompt: text, maxRetries: 0 };

const calls = {
  async generateText() {
    const { text: said, finishReason, usage, steps } = await generateText(asked);
    const all = steps.flatMap((step) => step.content);
    return { text: said, finish: finishReason, usage, calls: all.filter((part) => part.type === 'tool-call'), results: all.filter((part) => /^tool-(result|error)$/.test(part.type)) };
  },
  async streamText() {
    const result = streamText({ ...asked, onError: () => {} });
    for await (const part of result.fullStream) say({ event: 'part', part: part.type === 'error' ? { type: 'error', error: String(part.error?.message ?? part.error) } : part });
    return { text: await result.text, finish: await result.finishReason, usage: await result.usage };
  },
  async generateObject() {
    const { object, finishReason, usage } = await generateObject({ ...asked, schema: jsonSchema(schema) });
    return { object, finish: finishReason, usage };
  },
};

try { say({ event: 'done', ...await calls[call]() }); } catch (error) { say({ event: 'failed', error: `${error.name}: ${error.message}` }); }
process.exit(0);
