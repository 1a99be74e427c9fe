//! Colour on a terminal, and plain text everywhere else.
//!
//! Invariant: text that came from an agent is printed without its control characters, so that it cannot move the cursor,
//! change the title or repaint what was there before.

use std::borrow::Cow;

/// Whether a stream gets colour: a terminal, unless `NO_COLOR` is set or the terminal is dumb.
pub(super) fn wanted(is_terminal: bool) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    is_terminal && !set("NO_COLOR") && !dumb
}

/// Puts colour around text, or does not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    colour: bool,
}

macro_rules! styles {
    ($($name:ident $code:literal)*) => {
        $(pub(super) fn $name(self, text: &str) -> Cow<'_, str> {
            self.paint($code, text)
        })*
    };
}

impl Style {
    pub(super) fn new(colour: bool) -> Self {
        Self { colour }
    }

    fn paint<'t>(self, code: &str, text: &'t str) -> Cow<'t, str> {
        if self.colour && !text.is_empty() {
            Cow::Owned(format!("\u{1b}[{code}m{text}\u{1b}[0m"))
        } else {
            Cow::Borrowed(text)
        }
    }

    styles! { bold "1" dim "2" red "31" green "32" yellow "33" cyan "36" }
}

/// The text without control characters, except line ends and tabs.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let bad = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(bad) { Cow::Owned(text.replace(bad, "")) } else { Cow::Borrowed(text) }
}

/// The text on one line, cut to `width` characters.
pub(super) fn one_line(text: &str, width: usize) -> String {
    let text = clean(text);
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > width {
        line = line.chars().take(width.saturating_sub(1)).collect();
        line.push('…');
    }
    line
}

/// The width of the terminal on stdout, or what `COLUMNS` says, or 100.
pub(super) fn width() -> usize {
    #[cfg(unix)]
    if let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout())
        && size.ws_col > 0
    {
        return size.ws_col.into();
    }
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_cannot_command_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\u{7}\r\n\tc\u{9b}d"), "a[2Jb\n\tcd");
        assert!(matches!(clean("plain äöü\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        assert_eq!(one_line("a\n b   c", 10), "a b c");
        assert_eq!(one_line("ääääää", 4), "äää…");
    }

    #[test]
    fn without_colour_the_text_stays_as_it_is() {
        assert_eq!(Style::new(false).red("x"), "x");
        assert_eq!(Style::new(true).red("x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
