// Kimi Code. Streams a call's arguments as its content and asks without them; writes inside the working directory unasked.

export const kimi = {
  name: 'kimi',
  npm: { '@moonshot-ai/kimi-code': '2.1.0' },
  program: 'kimi',
  args: ['acp'],
  command: ({ bin, node }) => [node, bin('kimi')],
  prepare: ({ url }) => ({
    KIMI_MODEL_NAME: 'interop-model', KIMI_MODEL_PROVIDER_TYPE: 'openai', KIMI_MODEL_API_KEY: 'dummy', KIMI_MODEL_BASE_URL: `${url}/v1`,
    KIMI_CODE_NO_AUTO_UPDATE: '1',
  }),
  shell: (command) => ['Bash', { command }],
  write: (file, content) => ['Write', { path: file, content }],
  edit: (file, before, after) => ['Edit', { path: file, old_string: before, new_string: after }],
  ask: (question, labels) => ['AskUserQuestion', { questions: [{ question, header: 'Choose', options: labels.map((label) => ({ label, description: label })), multi_select: false }] }],
  mcp: (server, tool) => `mcp__${server}__${tool}`,
  lacks: {},
};
