// GitHub Copilot CLI with a model provider of one's own. Asks about several calls at once; says errors and notices as text.

export const copilot = {
  name: 'copilot',
  npm: { '@github/copilot': '1.0.102' },
  program: 'copilot',
  args: ['--acp'],
  command: ({ bin }) => [bin('copilot'), '--no-auto-update'],
  prepare: ({ url }) => ({
    COPILOT_PROVIDER_BASE_URL: `${url}/v1`, COPILOT_PROVIDER_API_KEY: 'dummy', COPILOT_MODEL: 'gpt-4.1', COPILOT_AUTO_UPDATE: 'false', COPILOT_OFFLINE: 'true',
  }),
  shell: (command) => ['bash', { command, description: 'Runs it' }],
  write: (file, content) => ['create', { path: file, file_text: content }],
  edit: (file, before, after) => ['edit', { path: file, old_str: before, new_str: after }],
  parallel: true,
  lacks: { mcp: 'offers no tools of the servers of a session when offline' },
};
