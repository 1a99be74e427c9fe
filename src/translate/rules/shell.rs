//! Shell commands as far as rules need to understand them.
//!
//! Owns the cutting of a command line into its simple commands. Keeps: what is not understood is never said to be simple; a
//! rule that allows asks [`simple_commands`], which gives up rather than guesses, and a rule that forbids asks
//! [`suspects`], which rather names too much than too little.

/// The simple commands of a line, as they are written. `None` for whatever could run something that is not among them:
/// substitutions, groups, here-documents, redirections to files, comments, open quotes, control characters.
pub(super) fn simple_commands(line: &str) -> Option<Vec<String>> {
    let mut commands = Vec::new();
    let mut now = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                now.push(c);
                loop {
                    let inner = chars.next()?;
                    now.push(inner);
                    if inner == '\'' {
                        break;
                    }
                }
            }
            '"' => {
                now.push(c);
                loop {
                    let inner = chars.next()?;
                    match inner {
                        '`' => return None,
                        '$' if matches!(chars.peek(), Some('(' | '{' | '[')) => return None,
                        '\\' => {
                            now.push(inner);
                            now.push(chars.next()?);
                            continue;
                        }
                        _ => {}
                    }
                    now.push(inner);
                    if inner == '"' {
                        break;
                    }
                }
            }
            '\\' => match chars.next()? {
                '\n' => {}
                escaped => now.extend(['\\', escaped]),
            },
            '`' | '(' | ')' | '<' => return None,
            '$' if matches!(chars.peek(), Some('(' | '{' | '[' | '\'' | '"')) => return None,
            '#' if now.is_empty() || now.ends_with([' ', '\t']) => return None,
            '>' => harmless_redirection(&mut now, &mut chars)?,
            '&' if chars.peek() == Some(&'>') => {
                chars.next();
                harmless_redirection(&mut now, &mut chars)?;
            }
            ';' | '|' | '&' | '\n' => end(&mut commands, &mut now),
            c if c.is_control() && c != '\t' => return None,
            c => now.push(c),
        }
    }
    end(&mut commands, &mut now);
    Some(commands)
}

fn end(commands: &mut Vec<String>, now: &mut String) {
    let command = now.trim();
    if !command.is_empty() {
        commands.push(command.to_owned());
    }
    now.clear();
}

/// Takes a redirection away that writes no file: to `/dev/null`, or of one stream into another. `None` for any other.
fn harmless_redirection(now: &mut String, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<()> {
    // The number before it belongs to it.
    let word = now.rfind([' ', '\t']).map_or(0, |at| at + 1);
    if now[word..].bytes().all(|b| b.is_ascii_digit()) {
        now.truncate(word);
    }
    chars.next_if_eq(&'>');
    let to_stream = chars.next_if_eq(&'&').is_some();
    while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
    let mut target = String::new();
    while let Some(c) = chars.next_if(|c| !matches!(c, ' ' | '\t' | '\n' | ';' | '|' | '&')) {
        target.push(c);
    }
    let harmless = if to_stream {
        !target.is_empty() && target.bytes().all(|b| b.is_ascii_digit())
    } else {
        target == "/dev/null"
    };
    harmless.then_some(())
}

/// Everything in a line that may be run as a command: for rules that forbid. Each as it is written and without its quotes
/// and what stands before the program (assignments, `sudo` and the like).
pub(super) fn suspects(line: &str) -> Vec<String> {
    let mut found = vec![line.trim().to_owned()];
    gather(line, 0, &mut found);
    found.dedup();
    found
}

fn gather(line: &str, depth: usize, found: &mut Vec<String>) {
    let understood = simple_commands(line);
    let parts: Vec<String> = match &understood {
        Some(commands) => commands.clone(),
        // Not understood: each place at which a command may begin, quotes or not.
        None => line
            .split([';', '|', '&', '\n', '(', ')', '`', '{', '}', '"', '\''])
            .map(|part| part.trim().trim_end_matches(['$', '<', '>']).trim_end().to_owned())
            .filter(|part| !part.is_empty())
            .collect(),
    };
    for part in parts {
        let words = words(&part);
        let bare = &words[words.len() - before_program(&words)..];
        for text in [part.clone(), words.join(" "), bare.join(" "), named(bare)] {
            if !found.contains(&text) {
                found.push(text);
            }
        }
        // What a shell is given to run.
        let program = bare.first().map(|program| base(program));
        if depth < 3 && matches!(program, Some("bash" | "sh" | "zsh" | "dash" | "ksh" | "eval" | "xargs" | "find")) {
            let rest = &bare[1..];
            let joined = rest.iter().skip_while(|word| word.starts_with('-')).cloned().collect::<Vec<_>>().join(" ");
            let inner = rest.iter().filter(|word| word.contains(' ')).cloned().chain([joined]);
            for inner in inner.filter(|inner| !inner.is_empty()) {
                gather(&inner, depth + 1, found);
            }
        }
    }
}

/// How many words are left when what stands before the program is taken away.
fn before_program(words: &[String]) -> usize {
    const BEFORE: [&str; 18] = [
        "sudo", "env", "time", "nohup", "command", "exec", "builtin", "nice", "timeout", "stdbuf", "then", "do",
        "else", "if", "while", "until", "!", "{",
    ];
    let mut after_wrapper = false;
    let mut left = words.len();
    for word in words {
        let assigns = word
            .split_once('=')
            .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        let argument = after_wrapper && (word.starts_with('-') || word.starts_with(|c: char| c.is_ascii_digit()));
        if BEFORE.contains(&base(word)) {
            after_wrapper = true;
        } else if !assigns && !argument {
            break;
        }
        left -= 1;
    }
    left
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The command with its program's name instead of its path.
fn named(words: &[String]) -> String {
    let mut words = words.to_vec();
    if let Some(program) = words.first_mut() {
        *program = base(program).to_owned();
    }
    words.join(" ")
}

/// The words of a command without their quotes; an open quote ends with the command.
fn words(command: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut now: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                now.get_or_insert_default();
            }
            (None | Some('"'), '\\') => now.get_or_insert_default().extend(chars.next()),
            (None, c) if c.is_whitespace() => words.extend(now.take()),
            (_, c) => now.get_or_insert_default().push(c),
        }
    }
    words.extend(now);
    words
}

/// The words of a command when all of them mean just what they say: nothing in them is replaced by the shell.
pub(super) fn plain_words(command: &str) -> Option<Vec<String>> {
    let mut single = false;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => single = !single,
            // As quoted words are written: '\''.
            '\\' if !single && chars.as_str().starts_with('\'') => {
                chars.next();
            }
            _ if single => {}
            ' ' => {}
            c if c.is_alphanumeric() || "_-./:=,@%+".contains(c) => {}
            _ => return None,
        }
    }
    (!single).then(|| words(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_every_place_where_a_command_ends() {
        let cut = |line: &str| simple_commands(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(cut("a && b|| c;d | e & f\ng |& h"), ["a", "b", "c", "d", "e", "f", "g", "h"]);
        assert_eq!(cut("git commit -m 'a; b && c' \"d|e\" f\\;g"), ["git commit -m 'a; b && c' \"d|e\" f\\;g"]);
        assert_eq!(cut("a \\\n  b"), ["a   b"]);
        assert_eq!(cut("a 2>&1 >/dev/null 2> /dev/null | b &>/dev/null"), ["a", "b"]);
        assert_eq!(cut("echo $HOME a#b"), ["echo $HOME a#b"]);
        assert_eq!(cut(" ; "), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_understood_is_not_simple() {
        for line in [
            "a $(b)",
            "a `b`",
            "a \"$(b)\"",
            "a \"`b`\"",
            "(a)",
            "a > f",
            "a >> f",
            "a 2>f",
            "a &> f",
            "a < f",
            "a <<E\nb\nE",
            "a <(b)",
            "a 'b",
            "a \"b",
            "a # b",
            "# a",
            "a ${b}",
            "a \"${b@P}\"",
            "a $'b'",
            "a\rb",
            "a\0",
            "a \\",
            "a >& f",
            "a >| f",
            "a > /dev/null/../x",
            "a > \"/dev/null\"x",
            "f() { a; }",
            "a $[1]",
        ] {
            assert_eq!(simple_commands(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_forbidden_command_is_found_where_it_hides() {
        for line in [
            "rm -rf x",
            "a && rm -rf x",
            "a; sudo rm -rf x",
            "$(rm -rf x)",
            "echo `rm -rf x`",
            "(rm -rf x)",
            "a\nrm -rf x",
            "'rm' -rf x",
            "r\\m -rf x",
            "/bin/rm -rf x",
            "FOO=1 rm -rf x",
            "bash -c 'rm -rf x'",
            "sh -c \"a; rm -rf x\"",
            "a | xargs rm -rf",
            "if true; then rm -rf x; fi",
            "timeout 5 rm -rf x",
            "env -i A=b rm -rf x",
            "eval rm -rf x",
            "echo \"$(rm -rf x)\"",
        ] {
            let found = suspects(line);
            assert!(found.iter().any(|s| s.starts_with("rm -rf")), "{line:?}: {found:?}");
        }
        assert!(!suspects("git commit -m 'rm -rf x'").iter().any(|s| s.starts_with("rm")));
    }

    #[test]
    fn only_words_that_mean_themselves_are_plain() {
        assert_eq!(plain_words("rm -- 'a b' c"), Some(vec!["rm".into(), "--".into(), "a b".into(), "c".into()]));
        assert_eq!(plain_words("rm -- 'it'\\''s'"), Some(vec!["rm".into(), "--".into(), "it's".into()]));
        for line in ["rm *", "rm $x", "rm ~", "rm a;b", "rm \"a\"", "rm a\nb", "rm 'a", "rm {a,b}"] {
            assert_eq!(plain_words(line), None, "{line}");
        }
    }
}
