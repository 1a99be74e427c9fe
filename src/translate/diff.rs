//! Changes of files, as ACP's diffs.
//!
//! Owns the cutting of a change into pieces small enough to send: an editor needs the lines that change and a little
//! around them, not 200 kB twice. Keeps: line endings and the missing newline at a file's end stay as they are (report
//! 52), and the old text is what the file really held.

use serde::Deserialize;
use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::{DiffOp, DiffTag, group_diff_ops};

use crate::wire::text::{Raw, items, text, uint};

/// Lines shown around a change.
const CONTEXT: usize = 3;

/// Files up to this size are shown whole.
const WHOLE: usize = 16 * 1024;

/// Changed parts with more lines than this are one piece: comparing them line by line costs more than it shows.
const COMPARED: usize = 3000;

/// One piece of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// `None`: there was nothing before.
    pub old: Option<String>,
    /// What is there then.
    pub new: String,
    /// The first line of the piece in the new text, from 1.
    pub line: u64,
}

/// The pieces of a file that is written anew; empty when nothing changes.
#[must_use]
pub fn rewritten(old: Option<&str>, new: &str) -> Vec<Piece> {
    let Some(old) = old else {
        return vec![Piece { old: None, new: new.to_owned(), line: 1 }];
    };
    if old == new {
        return Vec::new();
    }
    if old.len() + new.len() <= WHOLE {
        return vec![Piece { old: Some(old.to_owned()), new: new.to_owned(), line: 1 }];
    }
    let before: Vec<&str> = old.split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    let head = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let tail = before[head..].iter().rev().zip(after[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (old_middle, new_middle) = (&before[head..before.len() - tail], &after[head..after.len() - tail]);
    let ops = if old_middle.len().max(new_middle.len()) <= COMPARED {
        // The equal ends give the groups their context.
        let lead = head.min(CONTEXT);
        let trail = tail.min(CONTEXT);
        let a = &before[head - lead..before.len() - tail + trail];
        let b = &after[head - lead..after.len() - tail + trail];
        groups(a, b)
            .into_iter()
            .filter_map(|group| {
                let (first, last) = (group.first()?, group.last()?);
                let base = head - lead;
                Some((
                    base + first.old_range().start..base + last.old_range().end,
                    base + first.new_range().start..base + last.new_range().end,
                ))
            })
            .collect()
    } else {
        let start = head.saturating_sub(CONTEXT);
        vec![(
            start..(before.len() - tail + CONTEXT).min(before.len()),
            start..(after.len() - tail + CONTEXT).min(after.len()),
        )]
    };
    ops.into_iter()
        .map(|(o, n)| Piece {
            old: Some(before[o].concat()),
            line: u64::try_from(n.start).unwrap_or(u64::MAX).saturating_add(1),
            new: after[n].concat(),
        })
        .collect()
}

/// The groups of changes between two lists of lines. One algorithm is named, so that the others are not linked.
fn groups(before: &[&str], after: &[&str]) -> Vec<Vec<DiffOp>> {
    let mut hook = Compact::new(Replace::new(Capture::new()), before, after);
    // Capturing cannot fail, as its error type says.
    let Ok(()) = myers::diff(&mut hook, before, 0..before.len(), after, 0..after.len());
    group_diff_ops(hook.into_inner().into_inner().into_ops(), CONTEXT)
}

/// A part of a change as claude's `structuredPatch` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchHunk {
    /// First line in the old text, from 1.
    pub old_start: usize,
    /// Lines of the old text.
    pub old_lines: usize,
    /// First line in the new text, from 1.
    pub new_start: usize,
    /// Lines of the new text.
    pub new_lines: usize,
    /// The lines with their marks, without their ends.
    pub lines: Vec<String>,
}

/// The hunks of a change; empty when nothing changes and when there is too much to be compared.
#[must_use]
pub fn hunks(old: &str, new: &str) -> Vec<PatchHunk> {
    let before: Vec<&str> = old.split_inclusive('\n').collect();
    let after: Vec<&str> = new.split_inclusive('\n').collect();
    if before.len().max(after.len()) > COMPARED {
        return Vec::new();
    }
    let push = |lines: &mut Vec<String>, mark: char, line: &str| match line.strip_suffix('\n') {
        Some(line) => lines.push(format!("{mark}{line}")),
        None => lines.extend([format!("{mark}{line}"), "\\ No newline at end of file".to_owned()]),
    };
    groups(&before, &after)
        .into_iter()
        .filter_map(|group| {
            let (first, last) = (group.first()?, group.last()?);
            let (o, n) = (first.old_range().start..last.old_range().end, first.new_range().start..last.new_range().end);
            let mut lines = Vec::new();
            for op in &group {
                let equal = op.tag() == DiffTag::Equal;
                for line in &before[op.old_range()] {
                    push(&mut lines, if equal { ' ' } else { '-' }, line);
                }
                for line in after[op.new_range()].iter().filter(|_| !equal) {
                    push(&mut lines, '+', line);
                }
            }
            Some(PatchHunk {
                old_start: o.start + 1,
                old_lines: o.len(),
                new_start: n.start + 1,
                new_lines: n.len(),
                lines,
            })
        })
        .collect()
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Hunk<'a> {
    #[serde(borrow)]
    new_start: Raw<'a>,
    #[serde(borrow)]
    lines: Raw<'a>,
}

/// The pieces of a `structuredPatch` (stream-json.md, section 6, Edit).
#[must_use]
pub fn of_patch(patch: Raw<'_>) -> Vec<Piece> {
    items(patch)
        .unwrap_or_default()
        .into_iter()
        .filter(|raw| raw.get().starts_with('{'))
        .filter_map(|raw| serde_json::from_str::<Hunk<'_>>(raw.get()).ok())
        .filter_map(|hunk| {
            let (mut old, mut new) = (String::new(), String::new());
            // Which sides the line before was on: `\ No newline at end of file` is about that line.
            let mut last = (false, false);
            for raw in items(hunk.lines)? {
                let line = text(Some(raw))?;
                let mut chars = line.chars();
                let mark = chars.next();
                last = match mark {
                    Some(' ') | None => (true, true),
                    Some('-') => (true, false),
                    Some('+') => (false, true),
                    _ => {
                        if last.0 {
                            old.pop();
                        }
                        if last.1 {
                            new.pop();
                        }
                        continue;
                    }
                };
                for (side, on) in [(&mut old, last.0), (&mut new, last.1)] {
                    if on {
                        side.push_str(chars.as_str());
                        side.push('\n');
                    }
                }
            }
            Some(Piece { old: Some(old), new, line: uint(hunk.new_start).filter(|n| *n > 0).unwrap_or(1) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    #[test]
    fn a_patch_keeps_line_ends_and_the_missing_newline() {
        let raw = RawValue::from_string(
            r#"[{"oldStart":1,"oldLines":2,"newStart":4,"newLines":2,"lines":[" a\r","-b","\\ No newline at end of file","+c","\\ No newline at end of file"]}]"#.into(),
        )
        .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(of_patch(Some(&raw)), [Piece { old: Some("a\r\nb".into()), new: "a\r\nc".into(), line: 4 }]);
    }

    #[test]
    fn a_small_change_of_a_large_file_is_small() {
        let lines: Vec<String> = (0..5000).map(|i| format!("line {i}\n")).collect();
        let old = lines.concat();
        let new = old.replace("line 100\n", "LINE 100\n").replace("line 2500\n", "");
        let pieces = rewritten(Some(&old), &new);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].line, 98);
        assert_eq!(
            pieces[0].old.as_deref(),
            Some("line 97\nline 98\nline 99\nline 100\nline 101\nline 102\nline 103\n")
        );
        assert_eq!(pieces[0].new, "line 97\nline 98\nline 99\nLINE 100\nline 101\nline 102\nline 103\n");
        assert_eq!(pieces[1].new, "line 2497\nline 2498\nline 2499\nline 2501\nline 2502\nline 2503\n");
    }

    #[test]
    fn hunks_are_those_that_claude_writes() {
        let hunk = |old, new| hunks(old, new).pop().unwrap_or_else(|| panic!("no hunk"));
        let one = hunk("line1\nline2\nline3\n", "line1\nLINE2\nline2b\nline3\n");
        assert_eq!((one.old_start, one.old_lines, one.new_start, one.new_lines), (1, 3, 1, 4));
        assert_eq!(one.lines, [" line1", "-line2", "+LINE2", "+line2b", " line3"]);
        assert_eq!(hunk("", "hey").lines, ["+hey", "\\ No newline at end of file"]);
        assert_eq!(hunks("a\n", "a\n"), []);
    }

    #[test]
    fn a_change_of_everything_is_one_piece() {
        let old: String = (0..9000).map(|i| format!("a{i}\n")).collect();
        let new: String = (0..9000).map(|i| format!("b{i}\n")).collect();
        let pieces = rewritten(Some(&old), &new);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].old.as_deref(), Some(&*old));
        assert_eq!(pieces[0].new, new);
    }

    #[test]
    fn a_new_file_has_no_old_text_and_no_change_is_no_piece() {
        assert_eq!(rewritten(None, "x")[0].old, None);
        assert_eq!(rewritten(Some("x"), "x"), []);
        assert_eq!(rewritten(Some(""), "x")[0].old.as_deref(), Some(""));
    }
}
