// The hosts that drive `diglot claude`: what to install, how to start the driver of each, and what an old one cannot do.
// A recipe: {name, npm?|pypi?|cargo? (none: among the programs of setup.mjs), also?, driver({folder, here, node}) -> argv, lacks: {what: why},
// unheard? (why claude itself does not understand its permission answers: its callback is checked with other agents only)}

import path from 'node:path';

const ts = (name, npm, lacks = {}) => ({
  name, npm, lacks,
  driver: ({ folder, here, node }) => [node, path.join(here, 'ts_sdk.mjs'), folder],
});
const python = (name, pypi, module, { also = [], lacks = {}, unheard } = {}) => ({
  name, pypi, also, lacks, unheard,
  driver: ({ folder, here }) => [path.join(folder, 'bin/python'), path.join(here, 'py_sdk.py'), module],
});

export const HOSTS = [
  ts('ts-0.3'), // 0.3.332, the one that carries the claude of these checks
  ts('ts-0.2', { '@anthropic-ai/claude-agent-sdk': '0.2.50', zod: '4.6.7' }),
  python('py-0.2', { 'claude-agent-sdk': '0.2.189' }, 'claude_agent_sdk', { lacks: { priority: 'its driver sends texts' } }),
  python('py-0.0', { 'claude-code-sdk': '0.0.25' }, 'claude_code_sdk', {
    also: ['mcp<2'],
    lacks: {
      priority: 'its driver sends texts',
      'set-model': 'has no such call', 'set-mode': 'has no such call', structured: 'has no such option',
      'deny-interrupt': 'its refusals cannot ask for an end',
    },
    unheard: 'answers {allow: true}, which claude took until 2.0',
  }),
  {
    name: 'claude-codes',
    cargo: {
      dependencies: {
        'claude-codes': '=2.1.316', serde_json: '1', uuid: { version: '1', features: ['v4'] },
        tokio: { version: '1', features: ['io-std', 'io-util', 'macros', 'process', 'rt'] },
      },
      main: new URL('claude_codes.rs', import.meta.url),
    },
    driver: ({ folder }) => [path.join(folder, 'target/debug/host')],
    lacks: {
      priority: 'its driver sends texts', partials: 'does not ask for pieces', interrupt: 'does not ask for pieces', 'agent-killed': 'does not ask for pieces',
      'hook-deny': 'has no hooks', 'hooks-seen': 'has no hooks', mcp: 'has no servers of its own', 'set-model': 'has no such call',
      'set-mode': 'has no such call', 'start-mode': 'its option is not among those of the driver', structured: 'has no such option',
    },
  },
];

/** Programs that are more than an SDK (checks/programs.mjs): what to install. */
export const PROGRAMS = {
  aiSdk: { name: 'ai-sdk', npm: { 'ai-sdk-provider-claude-code': '4.1.0', ai: '7.0.173', zod: '4.6.7' } },
  ralphy: { name: 'ralphy', npm: { 'ralphy-cli': '4.7.2' } },
};
