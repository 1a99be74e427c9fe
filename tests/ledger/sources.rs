//! What the sources say: every text in which a word may stand, and the words that stand where only words do.
//!
//! Keeps: comments and test modules do not count, so that talking about a word is not handling it.

use std::collections::BTreeSet;

use diglot::mappings::ledger::Way;

use super::{files, read, root};

/// The code and the tables, without comments and tests: what they are called below the repository's root, and their text.
pub(crate) struct Sources {
    texts: Vec<(String, String)>,
}

/// Where words are handled. The tables count: a row of a table handles the word it names.
const FOLDERS: [&str; 5] = ["src/wire", "src/translate", "src/session", "src/peer", "src/cli/claude"];

/// What serves one direction only, by how its path begins. Everything else serves both.
const ONE_WAY: [(Way, &[&str]); 2] = [
    (
        Way::Forward,
        &[
            "src/translate/acp_over_claude",
            "src/translate/acp_agent",
            "src/translate/content",
            "src/translate/permission",
            "src/translate/plan",
            "src/session/acp",
            "mappings/tools",
            "mappings/errors",
            "mappings/modes",
            "mappings/stop_reasons",
            "mappings/permissions",
        ],
    ),
    (
        Way::Reverse,
        &[
            "src/translate/claude_over_acp",
            "src/translate/rules",
            "src/wire/acp_client",
            "src/wire/stream_json_agent",
            "src/session/host",
            "src/session/printer",
            "src/session/store",
            "src/peer/relay",
            "src/cli/claude",
        ],
    ),
];

/// Files whose texts are no words of the protocols though they stand where such words do: the names of agents' tools, and
/// parts of paths.
const OTHER_WORDS: [&str; 2] = ["src/translate/claude_over_acp/render/names", "src/translate/rules/"];

/// Between two peers that both speak ACP words are passed on, which is no fate of theirs: a row is all they need.
const PASSING: [&str; 3] = ["src/translate/acp_over_acp", "src/wire/acp_editor", "src/session/pass"];

/// The directions that a file serves.
pub(crate) fn ways(file: &str) -> Vec<Way> {
    if PASSING.iter().any(|start| file.starts_with(start)) {
        return Vec::new();
    }
    let one = ONE_WAY.iter().find(|(_, starts)| starts.iter().any(|start| file.starts_with(start)));
    one.map_or_else(|| Way::ALL.to_vec(), |(way, _)| vec![*way])
}

impl Sources {
    pub(crate) fn read() -> Self {
        let all = FOLDERS.iter().flat_map(|folder| files(folder, "rs")).filter(|path| !path.ends_with("tests.rs"));
        let code = all.map(|path| (path.clone(), code(&read(&path))));
        let mut texts: Vec<(String, String)> = code
            .map(|(path, text)| {
                let below = path.strip_prefix(root("")).unwrap_or(&path);
                (slashed(below), text)
            })
            .collect();
        if !texts.is_empty() {
            let ledgers = ["acp.toml", "stream_json.toml"].map(|file| root("mappings").join(file));
            for path in files("mappings", "toml").into_iter().filter(|path| !ledgers.contains(path)) {
                let below = path.strip_prefix(root("")).unwrap_or(&path);
                texts.push((slashed(below), table(&read(&path))));
            }
        }
        Self { texts }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.texts.iter().any(|(file, _)| file.starts_with("src/translate"))
    }

    /// Whether some text that serves this direction has this word, or a name that stands for it in Rust: `session_update`
    /// for `sessionUpdate`, `ToolCall` for `tool_call`.
    pub(crate) fn mentions(&self, way: Way, word: &str) -> bool {
        // `fs.readTextFile` and `session/new.cwd`: the code sees the last part.
        let last = match word.rsplit_once('.') {
            Some((_, last)) if !last.is_empty() => last,
            _ => word,
        };
        let forms = [word.to_owned(), last.to_owned(), snake(last), pascal(last)];
        let texts = self.texts.iter().filter(|(file, _)| ways(file).contains(&way));
        texts.into_iter().any(|(_, text)| forms.iter().any(|form| has(text, form)))
    }

    /// The reasons that `errors.toml` is asked for by name, with the file.
    pub(crate) fn reasons(&self) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for (file, text) in &self.texts {
            for (at, _) in text.match_indices("self.error(") {
                let argument = text[at + "self.error(".len()..].trim_start();
                if let Some(reason) = argument.strip_prefix('"').and_then(|rest| rest.split('"').next()) {
                    found.insert((file.clone(), reason.to_owned()));
                }
            }
        }
        found
    }

    /// The words that stand where only words do, with the file: methods, flags, variables, arms of a match over texts, and
    /// the variants of enums that are written as words.
    pub(crate) fn words(&self) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        let code = self.texts.iter().filter(|(file, _)| file.starts_with("src/"));
        for (file, text) in code.filter(|(file, _)| !OTHER_WORDS.iter().any(|start| file.starts_with(start))) {
            for literal in literals(text) {
                if is_method(literal) || is_flag(literal) || is_variable(literal) {
                    found.insert((file.clone(), literal.to_owned()));
                }
            }
            for line in text.lines().filter(|line| line.trim_start().starts_with(['"', '|']) && line.contains("=>")) {
                let arm = line.split("=>").next().unwrap_or_default();
                for literal in literals(arm.split(" if ").next().unwrap_or_default()).filter(|word| !word.is_empty()) {
                    found.insert((file.clone(), literal.to_owned()));
                }
            }
            for variant in tagged_variants(text) {
                found.insert((file.clone(), variant));
            }
        }
        found
    }
}

/// A path as it is written in a list, on every system.
fn slashed(path: &std::path::Path) -> String {
    path.display().to_string().replace('\\', "/")
}

/// Code without comments and without what stands behind `#[cfg(test)]`, which is the last thing in a file unless it names
/// another one.
fn code(text: &str) -> String {
    let text = text.replace("#[cfg(test)]\nmod tests;", "");
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn table(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Whether `word` stands in `text` with no letter, digit or underscore beside it.
fn has(text: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + word.len()..].chars().next();
            let joined = |c: Option<char>| c.is_some_and(inside);
            let part = word.starts_with(inside) && joined(before) || word.ends_with(inside) && joined(after);
            !part
        })
}

/// `session_update` for `sessionUpdate`.
fn snake(word: &str) -> String {
    let mut snake = String::new();
    for (at, c) in word.chars().enumerate() {
        if c.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// `ToolCall` for `tool_call`, `AcceptEdits` for `acceptEdits`.
fn pascal(word: &str) -> String {
    word.split(['_', '-', '/'])
        .map(|part| {
            let mut chars = part.chars();
            chars.next().map(|first| first.to_ascii_uppercase().to_string() + chars.as_str()).unwrap_or_default()
        })
        .collect()
}

/// The plain string literals of a piece of code. Raw strings and escapes are no words.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2).filter(|literal| !literal.contains(['\n', '\\', ' ']))
}

fn is_method(literal: &str) -> bool {
    let lower = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '$');
    let parts: Vec<_> = literal.split('/').collect();
    parts.len() >= 2
        && parts.iter().all(|part| lower(part))
        && !["text", "image", "audio", "application"].contains(&parts[0])
}

fn is_flag(literal: &str) -> bool {
    literal.strip_prefix("--").is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    })
}

fn is_variable(literal: &str) -> bool {
    (literal.starts_with("CLAUDE") || literal.starts_with("ANTHROPIC"))
        && literal.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// The variants of enums that serde writes in snake case, as the words they are on the wire.
fn tagged_variants(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !(line.starts_with("#[serde(") && line.contains("rename_all = \"snake_case\"")) {
            continue;
        }
        let Some(head) = lines.by_ref().find(|line| !line.starts_with("#[")) else {
            break;
        };
        if !head.contains("enum ") {
            continue;
        }
        for line in lines.by_ref().take_while(|line| !line.starts_with('}')) {
            let Some(variant) =
                line.strip_prefix("    ").filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
            else {
                continue;
            };
            let name: String = variant.chars().take_while(char::is_ascii_alphanumeric).collect();
            words.push(snake(&name));
        }
    }
    words
}

#[test]
fn words_are_found_where_only_words_stand() {
    let text = code(
        "// \"session/hidden\"\n#[serde(tag = \"t\", rename_all = \"snake_case\")]\npub enum E<'a> {\n    #[serde(x)]\n    \
         ToolCall(T<'a>),\n    Plan {\n        entries: u8,\n    },\n}\nfn f() {\n    match s {\n        \"a\" | \"b\" => 1,\n        \
         \"c\" if g(\"d\") => 2,\n    };\n    h(\"session/new\", \"--resume\", \"text/plain\", \"CLAUDECODE\");\n}\n#[cfg(test)]\n\"--x\"",
    );
    let sources = Sources { texts: vec![("src/translate/x.rs".to_owned(), text)] };
    let found: Vec<_> = sources.words().into_iter().map(|(_, word)| word).collect();
    assert_eq!(found, ["--resume", "CLAUDECODE", "a", "b", "c", "plan", "session/new", "tool_call"]);
}

#[test]
fn a_word_is_found_in_its_rust_forms_and_not_inside_another() {
    let sources =
        Sources { texts: vec![("src/wire/x.rs".to_owned(), "ToolCall session_update \"end_turn\" -p".to_owned())] };
    for word in ["tool_call", "sessionUpdate", "params.sessionUpdate", "end_turn", "-p"] {
        assert!(sources.mentions(Way::Forward, word), "{word}");
    }
    for word in ["tool", "turn", "update", "call"] {
        assert!(!sources.mentions(Way::Forward, word), "{word}");
    }
}

#[test]
fn a_word_of_one_direction_is_not_looked_for_in_the_other() {
    let texts = vec![
        ("src/translate/claude_over_acp/turn.rs".to_owned(), "\"there\"".to_owned()),
        ("src/wire/acp.rs".to_owned(), "\"everywhere\"".to_owned()),
    ];
    let sources = Sources { texts };
    assert!(sources.mentions(Way::Reverse, "there") && !sources.mentions(Way::Forward, "there"));
    assert!(sources.mentions(Way::Reverse, "everywhere") && sources.mentions(Way::Forward, "everywhere"));
}
