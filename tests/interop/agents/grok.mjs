// Grok Build. A refusal ends its turn as cancelled. Commands that look harmless (`echo`, `touch`) run unasked.

export const grok = {
  name: 'grok',
  npm: { '@xai-official/grok': '1.0.41' },
  program: 'grok',
  args: ['agent', '--no-leader', 'stdio'],
  command: ({ bin }) => [bin('grok')],
  // The addresses stand between `agent` and its own subcommand.
  inserted: ({ url }) => ['--xai-api-base-url', `${url}/v1`, '--cli-chat-proxy-base-url', `${url}/v1`],
  prepare: () => ({ XAI_API_KEY: 'xai-dummy', GROK_DISABLE_AUTOUPDATE: '1' }),
  shell: (command) => ['run_terminal_command', { command, description: 'Runs it' }],
  make: (name) => `printf '' > ${name}`,
  write: (file, content) => ['write', { file_path: file, content }],
  edit: (file, before, after) => ['search_replace', { file_path: file, old_string: before, new_string: after }],
  ask: (question, labels) => ['ask_user_question', { questions: [{ question, header: 'Choose', options: labels.map((label) => ({ label, description: label })), multiSelect: false }] }],
  mcp: (server, tool) => `${server}__${tool}`,
  models: ['interop-model', 'interop-model-2'],
  lacks: {},
  // Says that it reaches such servers, and speaks streamable HTTP to them.
  unable: ['sse'],
};
