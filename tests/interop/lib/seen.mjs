// Reading what a client received: the text of a turn, the life of each tool call, its diffs; and a report that collects every
// expectation that did not hold. Pure functions over an editor's ordered events.

import { isDeepStrictEqual } from 'node:util';

/** The events of the turn answered as `tag`: after its prompt and after the answers before it, up to its own answer. */
export function turn(editor, tag) {
  const { events } = editor;
  const answered = events.findIndex((event) => event.type === 'answer' && event.tag === tag);
  const end = answered < 0 ? events.length : answered + 1;
  if (events.some((event) => event.turn !== undefined)) return events.slice(0, end).filter((event) => event.turn === tag);
  const asked = events.findIndex((event) => event.type === 'prompt' && event.tag === tag);
  const before = events.slice(0, end - 1).findLastIndex((event) => event.type === 'answer');
  return events.slice(Math.max(asked, before) + 1, end);
}

/** What came after the answer of the last prompt and belongs to a turn: there should be nothing. */
export function late(editor) {
  const tags = (type) => editor.events.filter((event) => event.type === type).map((event) => event.tag);
  const last = editor.events.findLastIndex((event) => event.type === 'answer');
  if (last < 0 || tags('prompt').some((tag) => !tags('answer').includes(tag))) return [];
  return editor.events.slice(last + 1)
    .filter((event) => event.type === 'update' && /^(agent_(message|thought)_chunk|tool_call|tool_call_update)$/.test(event.update.sessionUpdate));
}

const joined = (events, kind) => events
  .filter((event) => event.type === 'update' && event.update.sessionUpdate === kind)
  .map((event) => event.update.content.text ?? '').join('');
export const text = (events) => joined(events, 'agent_message_chunk');
export const thought = (events) => joined(events, 'agent_thought_chunk');

/**
 * The tool calls in order of announcement: {id, announced, statuses (changes only), fields (the latest of each), contents (every
 * content list seen), updates, questions}. What a permission question says of its call counts as an update of it.
 */
export function calls(events) {
  const found = new Map();
  const merge = (call, update, index) => {
    for (const [key, value] of Object.entries(update)) {
      if (value === null || value === undefined || key === 'sessionUpdate') continue;
      if (key === '_meta') call.fields._meta = { ...call.fields._meta, ...value };
      else call.fields[key] = value;
    }
    if (update.content) call.contents.push(update.content);
    if (update.status && call.statuses.at(-1) !== update.status) call.statuses.push(update.status);
    call.updates.push(update);
    call.last = index;
  };
  const enter = (id, announced) => {
    if (!found.has(id)) found.set(id, { id, announced, statuses: [], fields: {}, contents: [], updates: [], questions: [] });
    return found.get(id);
  };
  events.forEach((event, index) => {
    if (event.type === 'update' && event.update.sessionUpdate === 'tool_call') {
      const call = enter(event.update.toolCallId, true);
      merge(call, { status: 'pending', ...event.update }, index);
    } else if (event.type === 'update' && event.update.sessionUpdate === 'tool_call_update') {
      merge(enter(event.update.toolCallId, false), event.update, index);
    } else if (event.type === 'ask') {
      const call = enter(event.request.toolCall.toolCallId, false);
      const before = call.statuses.at(-1);
      call.questions.push({ ...event, statusBefore: before, index });
      merge(call, event.request.toolCall, index);
    }
  });
  return [...found.values()];
}

export const diffsIn = (content) => (content ?? []).filter((item) => item.type === 'diff');

/** Applies diffs to a text; undefined when an old text is not where it should be. `before` null = there was no file. */
export function applyDiffs(before, diffs) {
  let now = before;
  for (const { oldText, newText } of diffs) {
    if (oldText === null || oldText === undefined) {
      if (now !== null) return undefined;
      now = newText;
    } else {
      const at = (now ?? '').indexOf(oldText);
      if (at < 0) return undefined;
      now = now.slice(0, at) + newText + now.slice(at + oldText.length);
    }
  }
  return now;
}

const short = (value) => { const said = JSON.stringify(value) ?? String(value); return said.length > 300 ? `${said.slice(0, 300)}…` : said; };

/** Collects what did not hold, so that one run tells everything a check found. */
export class Report {
  constructor() { this.failures = []; this.notes = []; }
  ok(holds, what) { if (!holds) this.failures.push(what); return Boolean(holds); }
  equal(seen, wanted, what) { return this.ok(isDeepStrictEqual(seen, wanted), `${what}: expected ${short(wanted)}, saw ${short(seen)}`); }
  note(what) { this.notes.push(what); }

  /** The turn was answered with this stop reason. */
  stopped(answer, reason) {
    return this.ok(!answer.error, `the prompt failed: ${short(answer.error)}`) && this.equal(answer.result.stopReason, reason, 'stopReason');
  }

  /** Every call of the turn was announced by a tool_call, ended before the answer, and (unless refused) ran in between. */
  lives(events, wanted) {
    const seen = calls(events);
    this.equal(seen.length, wanted.length, 'number of tool calls');
    seen.forEach((call, i) => {
      const name = call.fields.title ?? call.id;
      this.ok(call.announced, `${name}: mentioned before its tool_call`);
      const end = wanted[i] ?? 'completed';
      const full = ['pending', 'in_progress', end];
      const allowed = end === 'failed' ? [full, ['pending', 'failed']] : [full];
      this.ok(allowed.some((statuses) => isDeepStrictEqual(statuses, call.statuses)), `${name}: statuses ${short(call.statuses)}, expected ${short(full)}`);
      for (const asked of call.questions) this.ok(asked.statusBefore === 'pending' || asked.statusBefore === undefined, `${name}: asked about while ${asked.statusBefore}`);
    });
    return seen;
  }

  /** A permission question offers each kind at most sensibly: known kinds, unique ids, names, and at least once-allow and once-reject. */
  options(question) {
    const { options } = question.request;
    const kinds = options.map((option) => option.kind);
    this.ok(kinds.every((kind) => ['allow_once', 'allow_always', 'reject_once', 'reject_always'].includes(kind)), `unknown option kind in ${short(kinds)}`);
    this.ok(kinds.includes('allow_once') && kinds.includes('reject_once'), `the question must offer allow_once and reject_once, has ${short(kinds)}`);
    this.equal(new Set(options.map((option) => option.optionId)).size, options.length, 'option ids are unique');
    this.ok(options.every((option) => option.name), 'every option has a name');
  }
}
