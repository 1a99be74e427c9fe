//! Short texts with `{placeholders}`, as the tables write them for titles and labels.
//!
//! Owns the syntax and the one-line rule: whatever is filled in, the text that comes out is a single line of at most
//! [`MAX_CHARS`] characters, cut at a character boundary.

use std::borrow::Cow;

/// The longest title or label, in characters; a longer one is cut and ends in `…`.
pub const MAX_CHARS: usize = 200;

/// A text with placeholders, checked when its table was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(String),
}

impl Template {
    /// Reads a template. `{{` and `}}` stand for the braces themselves.
    ///
    /// # Errors
    /// Says which brace is alone, in words fit for an error message about a table.
    pub fn parse(source: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut chars = source.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' if chars.peek() == Some(&'{') => {
                    chars.next();
                    text.push('{');
                }
                '}' if chars.peek() == Some(&'}') => {
                    chars.next();
                    text.push('}');
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match chars.next() {
                            Some('}') => break,
                            Some(c) => name.push(c),
                            None => return Err(format!("a `}}` after `{{{name}`")),
                        }
                    }
                    if name.is_empty() {
                        return Err("a name between `{` and `}`".to_owned());
                    }
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(Part::Field(name));
                }
                '}' => return Err("`}}` for a brace that belongs to the text".to_owned()),
                c => text.push(c),
            }
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Self { parts })
    }

    /// The names between braces, in order, repeated ones repeated.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Field(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// Fills the template in. `None` when a placeholder has no value or an empty one: a half-filled text says less than
    /// the fallback its caller has.
    pub fn fill<'v>(&self, lookup: impl Fn(&str) -> Option<Cow<'v, str>>) -> Option<String> {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Field(name) => {
                    let value = lookup(name)?;
                    if value.trim().is_empty() {
                        return None;
                    }
                    // A command of several megabytes must not be copied to make a line of 200 characters.
                    filled.push_str(head(&value));
                }
            }
        }
        Some(filled)
    }
}

/// As much of `value` as can matter for one line: folding only ever shortens runs of white space, so this leaves a wide
/// margin for values that begin with an indented block.
fn head(value: &str) -> &str {
    match value.char_indices().nth(MAX_CHARS * 8) {
        Some((end, _)) => &value[..end],
        None => value,
    }
}

/// Whether a character changes what a reader sees, or what a program reads, without being seen: control characters, the
/// marks that turn the direction of writing round, with which a command can be made to look like another one, joiners
/// and spaces of no width, and the tags, in which whole texts can be hidden.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}')
}

/// One line: white space folded to single spaces, hidden characters left out, cut to [`MAX_CHARS`] characters.
#[must_use]
pub fn one_line(text: &str) -> String {
    one_line_of(text, MAX_CHARS)
}

/// [`one_line`], cut to `max` characters instead.
#[must_use]
pub fn one_line_of(text: &str, max: usize) -> String {
    let mut line = String::with_capacity(text.len().min(max.saturating_mul(4)));
    let mut chars = 0;
    let mut gap = false;
    for c in text.chars() {
        if c.is_whitespace() {
            gap = chars > 0;
            continue;
        }
        if is_hidden(c) {
            continue;
        }
        if chars + usize::from(gap) >= max {
            // The room for the mark is taken from the last character, so that the bound holds with it.
            while chars >= max {
                line.pop();
                chars -= 1;
            }
            line.truncate(line.trim_end().len());
            line.push('…');
            break;
        }
        if std::mem::take(&mut gap) {
            line.push(' ');
            chars += 1;
        }
        line.push(c);
        chars += 1;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(source: &str, values: &[(&str, &str)]) -> Option<String> {
        Template::parse(source)
            .expect("the test's own template")
            .fill(|name| values.iter().find(|(key, _)| *key == name).map(|(_, value)| Cow::Owned((*value).to_owned())))
    }

    #[test]
    fn placeholders_are_filled_and_doubled_braces_are_text() {
        assert_eq!(fill("Read {path}", &[("path", "a.rs")]).as_deref(), Some("Read a.rs"));
        assert_eq!(fill("{{{a}}}", &[("a", "x")]).as_deref(), Some("{x}"));
    }

    #[test]
    fn a_missing_or_blank_value_leaves_the_template_unfilled() {
        assert_eq!(fill("Read {path}", &[]), None);
        assert_eq!(fill("Read {path}", &[("path", " \n")]), None);
    }

    #[test]
    fn a_lonely_brace_is_refused_with_what_is_missing() {
        assert_eq!(Template::parse("Read {path").expect_err("refused"), "a `}` after `{path`");
        assert!(Template::parse("a } b").is_err());
        assert!(Template::parse("a {} b").is_err());
    }

    #[test]
    fn white_space_folds_to_one_line() {
        assert_eq!(one_line("  cd /a &&\n\t make   all\r\n"), "cd /a && make all");
        assert_eq!(one_line("a\u{1b}[31mb"), "a[31mb");
        assert_eq!(one_line("rm \u{202e}txt.a"), "rm txt.a");
        assert_eq!(one_line("a\u{61c}\u{200b}\u{200d}\u{2060}\u{2064}\u{feff}\u{e0041}b"), "ab");
    }

    #[test]
    fn a_long_line_is_cut_at_a_character_and_marked() {
        let line = one_line(&"ä".repeat(500));
        assert_eq!(line.chars().count(), MAX_CHARS);
        assert!(line.ends_with("ä…"));
        assert_eq!(one_line(&"x".repeat(MAX_CHARS)), "x".repeat(MAX_CHARS));
        let spaced = one_line(&"ab ".repeat(200));
        assert!(spaced.chars().count() <= MAX_CHARS && spaced.ends_with('…'), "{spaced}");
    }
}
