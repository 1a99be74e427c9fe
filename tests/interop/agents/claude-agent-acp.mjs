// The TypeScript adapter in front of the real Claude Code: an ACP agent that asks as Claude does. Its own mode may be another.

import { claudeTools } from './claude.mjs';

export const claudeAgentAcp = {
  ...claudeTools,
  name: 'claude-agent-acp',
  npm: { '@agentclientprotocol/claude-agent-acp': '0.101.0' },
  program: 'claude-agent-acp',
  args: [],
  command: ({ bin, node }) => [node, bin('claude-agent-acp')],
  anthropic: true,
  prepare: () => ({}),
  mode: 'default',
  models: undefined, // the ids are those that it makes of Claude's list
  lacks: { structured: 'has no answer by a schema', parallel: 'asks for the children of a call only after it' },
};
