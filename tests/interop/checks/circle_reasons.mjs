// Why something does not survive the circle, by the name of the fact (checks/circle.mjs); an object where agents differ in it.

const FORWARD = '`diglot acp` does not carry it yet';
const TITLES = 'stream-json has no titles; `diglot acp` makes one of Claude\'s tool and its input';

export const REASONS = {
  'agent: name': 'the client speaks to diglot',
  'agent: can load sessions': FORWARD,
  'agent: session calls': `those of \`diglot acp\`; the others it does not carry yet`,
  'agent: prompt content': 'stream-json takes no audio',
  'agent: MCP transports': 'those that Claude takes; `diglot claude` says on stderr what its agent cannot',
  'agent: ways to log in': 'Claude has logged in before it is started',
  'session: modes': 'stream-json has Claude\'s permission modes only; `diglot claude` keeps to them with the agent\'s own modes and with rules',
  'session: models': FORWARD,
  'session: options': FORWARD,
  'usage in the answer': '`diglot acp` tells usage as `usage_update`, not in the answer',
  'updates: usage_update': 'what the agent counts in its answer is the usage of the last message in stream-json, and `diglot acp` tells it as `usage_update`',
  plan: '`diglot claude` knows the agent\'s list of tasks as Claude\'s TodoWrite, and `diglot acp` tells that as a plan; it has no priorities',
  'number of calls': 'a list of tasks is told as a plan, not as a call',
  'updates: plan': 'see `plan`',
  'updates: session_info_update': FORWARD,
  'updates: current_mode_update': 'modes are Claude\'s, see `session: modes`',
  'updates: config_option_update': FORWARD,
  'updates: user_message_chunk': 'a prompt is told back to the host as a replay, which an editor that has sent it need not hear',
  'answer to the agent: always': 'an "always" is a rule that `diglot claude` keeps for the session itself; the agent hears "once"',
  order: {
    gemini: 'stream-json has no question about a call that was not told: the call comes first',
    opencode: 'see `plan`',
  },
  'call: input': {
    gemini: 'the agent gives none; `diglot claude` makes one for Claude\'s tool from the title and the diff',
    opencode: 'inputs are those of Claude\'s tools: the fields that a host knows',
    qwen: 'inputs are those of Claude\'s tools: the fields that a host knows',
  },
  'call: locations': 'stream-json has no places of its own; a command has none',
  'call: end': 'the agent never ends a call that was refused; through the circle every call ends before the answer of its prompt',
  'call: title': TITLES,
  'call: kind': 'kinds follow Claude\'s tools',
  'call: diffs': {
    gemini: 'a file that was not there has no old text (null), not an empty one',
    opencode: 'the agent has the diff in the question only; `diglot acp` keeps it in the call',
    qwen: 'a diff is made of the input of Claude\'s tool: the part that changes, and no old text where there was no file',
  },
  'call: text': {
    gemini: 'what it says beside the question has no place in stream-json; a refused call says that it was refused',
    opencode: '`diglot acp` tells the output of a command as a console block, and a refusal in its own words',
    qwen: '`diglot acp` tells the output of a command as a console block, and a refusal in its own words',
  },
  'call: output': 'a `tool_result` has the text, not the agent\'s own object',
  'question: kinds': 'the order is that of `diglot acp`; stream-json has one "always", as a suggested rule',
  'question: names': 'names are those of `diglot acp`, which say what they grant; stream-json has none',
  'question: title': TITLES,
};

/** What is told or not by chance: said under the table instead. */
export const CHANCE = {
  qwen: ['commands', 'updates: available_commands_update'], // it tells them when it gets to it, before or after the first prompt
};
