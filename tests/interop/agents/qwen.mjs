// Qwen Code. Its own mode lets a model approve; a refusal ends its turn as cancelled; three processes.

export const qwen = {
  name: 'qwen',
  npm: { '@qwen-code/qwen-code': '0.24.4' },
  program: 'qwen',
  args: ['--acp'],
  command: ({ bin, node }) => [node, bin('qwen')],
  prepare({ url, write }) {
    write('.qwen/settings.json', {
      $version: 3, security: { auth: { selectedType: 'openai' } }, general: { enableAutoUpdate: false },
      privacy: { usageStatisticsEnabled: false }, telemetry: { enabled: false }, model: { name: 'interop-model' },
    });
    return { OPENAI_API_KEY: 'dummy', OPENAI_BASE_URL: `${url}/v1`, OPENAI_MODEL: 'interop-model' };
  },
  mode: 'default',
  shell: (command) => ['run_shell_command', { command, is_background: false, description: 'Runs it' }],
  write: (file, content) => ['write_file', { file_path: file, content }],
  edit: (file, before, after) => ['edit', { file_path: file, old_string: before, new_string: after }],
  ask: (question, labels) => ['ask_user_question', { questions: [{ question, header: 'Choose', options: labels.map((label) => ({ label, description: label })), multiSelect: false }] }],
  mcp: (server, tool) => `mcp__${server}__${tool}`,
  lacks: {},
};
