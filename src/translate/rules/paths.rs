//! Paths and patterns of paths.
//!
//! Owns the reading of path rules, which are those of gitignore with Claude's beginnings: `//` from the root, `~/` from home,
//! `/` from the session's directory, anything else from the working directory. Keeps: no file is looked at; `..` is resolved
//! by its letters.

use std::path::{Component, Path, PathBuf};

/// The path from the root, without `.` and `..`.
pub(super) fn normal(path: &str, cwd: &Path, home: Option<&Path>) -> PathBuf {
    let from_home = path.strip_prefix("~/").or((path == "~").then_some(""));
    let whole = match (from_home, home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => cwd.join(path),
    };
    by_letters(&whole)
}

/// A path without `.`, `..` and doubled separators.
pub(crate) fn by_letters(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                // At the root it stays there.
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// Whether a path lies in one of these directories, or is one of them.
pub(super) fn inside(path: &Path, directories: &[&Path]) -> bool {
    directories.iter().any(|directory| path.starts_with(normal(&directory.to_string_lossy(), Path::new("/"), None)))
}

/// Whether the pattern of a rule covers a path that [`normal`] made. A pattern that covers a directory covers all in it.
pub(super) fn matches(pattern: &str, path: &Path, cwd: &Path, home: Option<&Path>) -> bool {
    let Some(pattern) = anchored(pattern, cwd, home) else { return false };
    let text = path.to_string_lossy().replace('\\', "/");
    let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
    let pattern: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    segments(&pattern, &parts)
}

/// The pattern from the root.
fn anchored(pattern: &str, cwd: &Path, home: Option<&Path>) -> Option<String> {
    if pattern.is_empty() {
        return None;
    }
    let (base, rest) = if let Some(rest) = pattern.strip_prefix("//") {
        (None, rest)
    } else if let Some(rest) = pattern.strip_prefix("~/") {
        (Some(home?), rest)
    } else if pattern == "~" {
        (Some(home?), "")
    } else if let Some(rest) = pattern.strip_prefix('/') {
        (Some(cwd), rest)
    } else if pattern.trim_end_matches('/').contains('/')
        || pattern.starts_with('.') && pattern.trim_matches('.').is_empty()
    {
        (Some(cwd), pattern)
    } else {
        // A name alone is looked for in every directory.
        return Some(format!("{}/**/{}", escape(&normal("", cwd, None)), pattern));
    };
    let mut parts: Vec<String> = Vec::new();
    if let Some(base) = base {
        let base = normal("", base, None);
        parts.extend(escape(&base).split('/').filter(|part| !part.is_empty()).map(str::to_owned));
    }
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part.to_owned()),
        }
    }
    Some(parts.join("/"))
}

/// A directory whose own characters mean nothing else in a pattern.
fn escape(path: &Path) -> String {
    let mut out = String::new();
    for c in path.to_string_lossy().replace('\\', "/").chars() {
        if matches!(c, '*' | '?' | '[') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Whether the pattern covers the path or a directory above it.
fn segments(pattern: &[&str], path: &[&str]) -> bool {
    // `reach[j]`: the pattern so far covers the first `j` parts of the path.
    let mut reach = vec![false; path.len() + 1];
    reach[0] = true;
    for (at, segment) in pattern.iter().enumerate() {
        let mut next = vec![false; path.len() + 1];
        if *segment == "**" {
            // At the end it covers what is in the directory, not the directory.
            let least = usize::from(at + 1 == pattern.len());
            let first = reach.iter().position(|reached| *reached);
            if let Some(first) = first {
                for place in next.iter_mut().skip(first + least) {
                    *place = true;
                }
            }
        } else {
            for (j, part) in path.iter().enumerate() {
                next[j + 1] = reach[j] && wildcard(segment, part);
            }
        }
        reach = next;
    }
    reach.iter().any(|reached| *reached) && !pattern.is_empty()
}

/// Whether a pattern with `*`, `?` and `\` covers a whole text. Takes at most the product of their lengths.
pub(super) fn wildcard(pattern: &str, text: &str) -> bool {
    #[derive(Clone, Copy, PartialEq)]
    enum P {
        Star,
        One,
        Is(char),
    }
    let mut parts = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        parts.push(match c {
            '*' => P::Star,
            '?' => P::One,
            '\\' => P::Is(chars.next().unwrap_or('\\')),
            c => P::Is(c),
        });
    }
    parts.dedup_by(|a, b| *a == P::Star && *b == P::Star);
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match parts.get(p) {
            Some(P::Star) => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(P::One) => {
                p += 1;
                t += 1;
            }
            Some(P::Is(c)) if *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    p = after;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    parts[p..].iter().all(|part| *part == P::Star)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, path: &str) -> bool {
        let (cwd, home) = (Path::new("/w/p"), Some(Path::new("/home/u")));
        matches(pattern, &normal(path, cwd, home), cwd, home)
    }

    #[test]
    fn patterns_begin_where_claude_says() {
        for (pattern, path) in [
            ("//etc/**", "/etc/a/b"),
            ("~/x/**", "/home/u/x/y"),
            ("~/x/**", "~/x/y"),
            ("/src/**", "/w/p/src/a"),
            ("src/*.rs", "src/a.rs"),
            ("./src/**", "/w/p/src/a"),
            ("*.env", "a/b/c.env"),
            (".env", "/w/p/.env"),
            ("src", "/w/p/src/a/b"),
            ("src/", "src/a"),
            ("src/**/t.rs", "src/t.rs"),
            ("src/**/t.rs", "src/a/b/t.rs"),
            ("../q/*", "/w/q/a"),
            ("**", "/w/p/a"),
            ("a?c", "abc"),
            ("//**", "/any/thing"),
            ("./**", "a"),
        ] {
            assert!(covers(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("//etc/**", "/w/p/etc/a"),
            ("//etc/**", "/etc"),
            ("/src/**", "/src/a"),
            ("src/*.rs", "src/a/b.rs"),
            ("src/**", "src/../x"),
            ("src/**", "/w/p/src/../../../etc/passwd"),
            ("*.env", "/w/other.env"),
            ("**", "/w/q"),
            ("", "a"),
            ("~/x", "/home/other/x"),
            ("src/**", "srcx/a"),
        ] {
            assert!(!covers(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn wildcards_are_quick_and_exact() {
        assert!(wildcard("git * --force", "git push a --force"));
        assert!(!wildcard("git *", "git"));
        assert!(wildcard("a\\*b", "a*b") && !wildcard("a\\*b", "axb"));
        assert!(!wildcard(&"*a".repeat(40), &"b".repeat(5_000)));
        assert!(wildcard("", "") && wildcard("**", "x") && !wildcard("", "x"));
    }
}
