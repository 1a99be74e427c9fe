// pi behind its adapter. Never asks; modes are levels of thought.

export const pi = {
  name: 'pi',
  npm: { 'pi-acp': '0.0.34', '@earendil-works/pi-coding-agent': '1.6.0' },
  program: 'pi-acp',
  args: [],
  command: ({ bin, node }) => [node, bin('pi-acp')],
  prepare({ url, write, folder }) {
    write('.pi/agent/models.json', {
      providers: {
        interop: {
          baseUrl: `${url}/v1`, api: 'openai-completions', apiKey: 'dummy',
          models: ['interop-model', 'interop-model-2'].map((id) => ({ id, reasoning: true, input: ['text'], contextWindow: 200_000, maxTokens: 8000 })),
        },
      },
    });
    write('.pi/agent/settings.json', { defaultProvider: 'interop', defaultModel: 'interop-model', quietStartup: true });
    return { PI_OFFLINE: '1', PI_TELEMETRY: '0', PI_SKIP_VERSION_CHECK: '1', PATH: `${folder}/node_modules/.bin` };
  },
  shell: (command) => ['bash', { command }],
  write: (file, content) => ['write', { path: file, content }],
  edit: (file, before, after) => ['edit', { path: file, edits: [{ oldText: before, newText: after }] }],
  models: ['interop/interop-model', 'interop/interop-model-2'],
  lacks: { questions: 'never asks', mcp: 'takes no MCP servers' },
};
