// Gemini CLI. Its questions are the first it says of a call; a refused call is never mentioned again, and the model goes on.

export const gemini = {
  name: 'gemini',
  npm: { '@google/gemini-cli': '0.61.0' },
  program: 'gemini',
  args: ['--acp'],
  command: ({ bin, node }) => [node, bin('gemini')],
  prepare({ url, write }) {
    write('.gemini/settings.json', {
      security: { auth: { selectedType: 'gemini-api-key' }, folderTrust: { enabled: false } },
      general: { enableAutoUpdate: false, disableAutoUpdate: true },
      privacy: { usageStatisticsEnabled: false }, telemetry: { enabled: false },
    });
    return { GEMINI_API_KEY: 'dummy', GOOGLE_GEMINI_BASE_URL: url, GEMINI_CLI_NO_RELAUNCH: 'true' };
  },
  shell: (command) => ['run_shell_command', { command, description: 'Runs it' }],
  write: (file, content) => ['write_file', { file_path: file, content }],
  edit: (file, before, after) => ['replace', { file_path: file, instruction: 'Swap it', old_string: before, new_string: after }],
  mcp: (server, tool) => `mcp_${server}_${tool}`,
  models: ['auto', 'gemini-2.5-pro'],
  lacks: { output: 'never shows what a command printed', resume: 'cannot load the sessions that it wrote' },
};
