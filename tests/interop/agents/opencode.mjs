// OpenCode. Options instead of modes; a refusal ends its turn without a text.

const model = (name) => ({
  name, tool_call: true, reasoning: true, attachment: true, temperature: true, modalities: { input: ['text', 'image'], output: ['text'] },
  limit: { context: 200_000, output: 8000 }, cost: { input: 1, output: 2 },
});

export const opencode = {
  name: 'opencode',
  npm: { 'opencode-ai': '1.18.33' },
  program: 'opencode',
  args: ['acp'],
  command: ({ bin }) => [bin('opencode')],
  prepare({ url, write }) {
    write('.config/opencode/opencode.json', {
      $schema: 'https://opencode.ai/config.json', autoupdate: false, share: 'disabled', model: 'interop/interop-model', small_model: 'interop/interop-model',
      provider: {
        interop: {
          npm: '@ai-sdk/openai-compatible', name: 'Interop', options: { baseURL: `${url}/v1`, apiKey: 'dummy' },
          models: { 'interop-model': model('Interop'), 'interop-model-2': model('Interop 2') },
        },
      },
      permission: { bash: 'ask', edit: 'ask', webfetch: 'ask' },
    });
    return Object.fromEntries(['DISABLE_AUTOUPDATE', 'DISABLE_MODELS_FETCH', 'DISABLE_LSP_DOWNLOAD', 'DISABLE_DEFAULT_PLUGINS', 'DISABLE_SHARE'].map((name) => [`OPENCODE_${name}`, '1']));
  },
  shell: (command) => ['bash', { command, description: 'Runs it' }],
  write: (file, content) => ['write', { filePath: file, content }],
  edit: (file, before, after) => ['edit', { filePath: file, oldString: before, newString: after }],
  mcp: (server, tool) => `${server}_${tool}`,
  models: ['interop/interop-model', 'interop/interop-model-2'],
  lacks: {},
};
