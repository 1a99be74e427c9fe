// What is alive: processes found in /proc by descent and by the mark that every check puts in its environment.
// Invariant: a process is counted by pid and start time together, and a zombie is dead.

import fs from 'node:fs';

/** The environment variable by which the processes of a check are known, wherever they were reparented to. */
export const MARK = 'DIGLOT_INTEROP_MARK';

/** {pid, parent, state, start, name, utime, stime} (times in clock ticks) of a process, or undefined if there is none. */
export function look(pid) {
  let stat;
  try { stat = fs.readFileSync(`/proc/${pid}/stat`, 'latin1'); } catch { return undefined; }
  const open = stat.indexOf('(');
  const close = stat.lastIndexOf(')');
  const fields = stat.slice(close + 2).split(' ');
  return {
    pid: Number(pid), name: stat.slice(open + 1, close), state: fields[0], parent: Number(fields[1]),
    utime: Number(fields[11]), stime: Number(fields[12]), start: fields[19],
  };
}

export const isAlive = (seen) => {
  const now = look(seen.pid);
  return now !== undefined && now.start === seen.start && now.state !== 'Z' && now.state !== 'X';
};

const everything = () => fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map(look).filter((seen) => seen !== undefined);

export function commandLine(pid) {
  try { return fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').filter(Boolean); } catch { return []; }
}

/** Every living descendant of `pid`, parents before children. */
export function descendants(pid) {
  const byParent = new Map();
  for (const seen of everything()) {
    if (!byParent.has(seen.parent)) byParent.set(seen.parent, []);
    byParent.get(seen.parent).push(seen);
  }
  const found = [];
  const walk = (parent) => { for (const child of byParent.get(parent) ?? []) { found.push(child); walk(child.pid); } };
  walk(pid);
  return found.filter(isAlive);
}

/** Every living process whose environment carries `mark`, except this one. */
export function marked(mark) {
  const needle = `${MARK}=${mark}\0`;
  return everything().filter((seen) => {
    if (seen.pid === process.pid || !isAlive(seen)) return false;
    try { return `${fs.readFileSync(`/proc/${seen.pid}/environ`, 'latin1')}\0`.includes(needle); } catch { return false; }
  });
}

export const describe = (list) => list.map((seen) => `${seen.name}(${seen.pid}${seen.state === 'T' ? ', stopped' : ''}) ${commandLine(seen.pid).join(' ').slice(0, 60)}`).join('; ');

/** Kills exactly these processes. */
export function kill(list, signal = 'SIGKILL') {
  for (const seen of list) {
    if (!isAlive(seen)) continue;
    try { process.kill(seen.pid, signal); } catch { /* it ended by itself in between */ }
  }
}

/** Waits until none of what `list()` returns is alive; returns what is left after `ms`. */
export async function gone(list, ms) {
  const end = Date.now() + ms;
  for (;;) {
    const left = list().filter(isAlive);
    if (left.length === 0 || Date.now() >= end) return left;
    await new Promise((done) => setTimeout(done, 25));
  }
}
