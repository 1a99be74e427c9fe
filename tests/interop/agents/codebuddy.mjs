// CodeBuddy Code. One session in a process; a refusal ends its turn as cancelled and says nothing of the call; does not leave
// when its stdin ends.

export const codebuddy = {
  name: 'codebuddy',
  pypi: { 'codebuddy-agent-sdk': '0.3.274' },
  program: 'codebuddy',
  args: ['--acp', '--acp-transport', 'stdio'],
  command: ({ site }) => [site('codebuddy_agent_sdk/bin/codebuddy-headless')],
  prepare: ({ url }) => ({
    CODEBUDDY_API_KEY: 'dummy', CODEBUDDY_BASE_URL: url, DISABLE_AUTOUPDATER: '1', CODEBUDDY_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  }),
  shell: (command) => ['Bash', { command, description: 'Runs it' }],
  write: (file, content) => ['Write', { file_path: file, content }],
  edit: (file, before, after) => ['Edit', { file_path: file, old_string: before, new_string: after }],
  mcp: (server, tool) => `mcp__${server}__${tool}`,
  models: ['default-model', 'glm-5.2'],
  lacks: {},
};
