// Codex behind its adapter. Its own mode lets a model approve; `read-only` asks. Output stands in the notes of its updates.

export const codexAcp = {
  name: 'codex-acp',
  npm: { '@agentclientprotocol/codex-acp': '2.6.0', '@openai/codex': '0.166.0' },
  program: 'codex-acp',
  args: [],
  command: ({ bin, node }) => [node, bin('codex-acp')],
  prepare({ url, write }) {
    write('.codex/config.toml', [
      'model = "gpt-5.5"', 'model_provider = "interop"', 'check_for_update_on_startup = false', '[analytics]', 'enabled = false',
      '[model_providers.interop]', 'name = "interop"', `base_url = "${url}/v1"`, 'wire_api = "responses"', 'env_key = "INTEROP_KEY"', 'requires_openai_auth = false', '',
    ].join('\n'));
    return { INTEROP_KEY: 'dummy' };
  },
  mode: 'read-only',
  shell: (command) => ['exec_command', { cmd: command, sandbox_permissions: 'require_escalated', justification: 'It is needed' }],
  write: (file, content) => ['apply_patch', `*** Begin Patch\n*** Add File: ${file}\n${content.replace(/\n$/, '').split('\n').map((line) => `+${line}\n`).join('')}*** End Patch\n`],
  edit: (file, before, after) => ['apply_patch', `*** Begin Patch\n*** Update File: ${file}\n@@\n-${before}\n+${after}\n*** End Patch\n`],
  mcp: (server, tool) => `mcp__${server}/${tool}`,
  models: ['gpt-5.5', 'gpt-5.6-sol'],
  lacks: {},
};
