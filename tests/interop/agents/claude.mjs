// The real Claude Code: not an ACP agent by itself. As `claude` it stands in the place of diglot, to say that a check is right;
// as `round-trip` it stands behind `diglot acp` behind `diglot claude`.

export const claudeTools = {
  shell: (command) => ['Bash', { command, description: 'Runs it' }],
  write: (file, content) => ['Write', { file_path: file, content }],
  edit: (file, before, after) => ['Edit', { file_path: file, old_string: before, new_string: after }],
  ask: (question, labels) => ['AskUserQuestion', { questions: [{ question, header: 'Choose', options: labels.map((label) => ({ label, description: label })), multiSelect: false }] }],
  mcp: (server, tool) => `mcp__${server}__${tool}`,
};

export const claude = { ...claudeTools, name: 'claude', models: ['claude-sonnet-4-5', 'claude-haiku-4-5'], parallel: true, lacks: {} };

export const roundTrip = {
  ...claudeTools,
  name: 'round-trip',
  profile: 'claude',
  ask: undefined, // the forward side has Claude ask in plain text
  parallel: true,
  lacks: { resume: 'the forward side does not load sessions yet' },
};
