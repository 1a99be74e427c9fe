//! The members of a JSON object that is still being written.
//!
//! Owns an incremental scanner over `input_json_delta` pieces: it tells each top-level member once its value is
//! complete, so that a call gets its title and its place before its input is whole. Keeps: bounded memory, whatever is
//! streamed; a long value is skipped, not kept.

/// Longer values are not kept: a title or a path is short, and the whole input comes with the `assistant` line.
const MAX_VALUE: usize = 4096;

/// The scanner.
#[derive(Debug, Default)]
pub struct PartialObject {
    state: State,
    key: Vec<u8>,
    value: Vec<u8>,
    escaped: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    Key,
    InKey,
    Colon,
    Value,
    InString,
    Scalar,
    Nested {
        depth: u32,
        in_string: bool,
    },
    Comma,
    /// The object is complete, or what came is no object.
    End,
}

impl PartialObject {
    /// Takes the next piece; returns the members that it completed: name, and the text of a string, number or boolean.
    pub fn feed(&mut self, piece: &str) -> Vec<(String, String)> {
        let mut done = Vec::new();
        for &b in piece.as_bytes() {
            self.byte(b, &mut done);
        }
        done
    }

    fn keep(&mut self, b: u8) {
        if self.value.len() <= MAX_VALUE {
            self.value.push(b);
        }
    }

    fn byte(&mut self, b: u8, done: &mut Vec<(String, String)>) {
        match self.state {
            State::Start => match b {
                b'{' => self.state = State::Key,
                b if b.is_ascii_whitespace() => {}
                _ => self.state = State::End,
            },
            State::Key | State::Comma => match b {
                b'"' if self.state == State::Key => {
                    self.key.clear();
                    self.key.push(b);
                    self.state = State::InKey;
                }
                b',' if self.state == State::Comma => self.state = State::Key,
                b if b.is_ascii_whitespace() => {}
                _ => self.state = State::End,
            },
            State::InKey => {
                if self.key.len() <= MAX_VALUE {
                    self.key.push(b);
                }
                if self.closes_string(b) {
                    self.state = State::Colon;
                }
            }
            State::Colon => match b {
                b':' => {
                    self.value.clear();
                    self.state = State::Value;
                }
                b if b.is_ascii_whitespace() => {}
                _ => self.state = State::End,
            },
            State::Value => match b {
                b if b.is_ascii_whitespace() => {}
                b'"' => {
                    self.keep(b);
                    self.state = State::InString;
                }
                b'{' | b'[' => self.state = State::Nested { depth: 1, in_string: false },
                _ => {
                    self.keep(b);
                    self.state = State::Scalar;
                }
            },
            State::InString => {
                self.keep(b);
                if self.closes_string(b) {
                    self.finish(done);
                    self.state = State::Comma;
                }
            }
            State::Scalar => match b {
                b',' | b'}' => {
                    self.finish(done);
                    self.state = if b == b',' { State::Key } else { State::End };
                }
                b if b.is_ascii_whitespace() => {
                    self.finish(done);
                    self.state = State::Comma;
                }
                _ => self.keep(b),
            },
            State::Nested { depth, in_string: true } => {
                if self.closes_string(b) {
                    self.state = State::Nested { depth, in_string: false };
                }
            }
            State::Nested { depth, in_string: false } => match b {
                b'"' => self.state = State::Nested { depth, in_string: true },
                b'{' | b'[' => self.state = State::Nested { depth: depth.saturating_add(1), in_string: false },
                b'}' | b']' if depth == 1 => self.state = State::Comma,
                b'}' | b']' => self.state = State::Nested { depth: depth - 1, in_string: false },
                _ => {}
            },
            State::End => {}
        }
    }

    fn closes_string(&mut self, b: u8) -> bool {
        if self.escaped {
            self.escaped = false;
            return false;
        }
        self.escaped = b == b'\\';
        b == b'"'
    }

    fn finish(&mut self, done: &mut Vec<(String, String)>) {
        if self.value.len() > MAX_VALUE || self.key.len() > MAX_VALUE {
            return;
        }
        let value = match self.value.first() {
            Some(b'"') => serde_json::from_slice(&self.value).ok(),
            _ => String::from_utf8(self.value.clone()).ok(),
        };
        if let (Ok(key), Some(value)) = (serde_json::from_slice(&self.key), value) {
            done.push((key, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&str]) -> Vec<(String, String)> {
        let mut p = PartialObject::default();
        pieces.iter().flat_map(|piece| p.feed(piece)).collect()
    }

    #[test]
    fn members_are_told_when_they_are_complete_however_the_text_is_cut() {
        let json = r#"{"a":"x\"}é\\","n":{"a":"}","b":[1,{"c":"]"}]},"t":true , "k\"":-5,"last":"z"}"#;
        let expected: Vec<(String, String)> = [("a", "x\"}é\\"), ("t", "true"), ("k\"", "-5"), ("last", "z")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        assert_eq!(all(&[json]), expected);
        let chars: Vec<String> = json.chars().map(String::from).collect();
        let pieces: Vec<&str> = chars.iter().map(String::as_str).collect();
        assert_eq!(all(&pieces), expected);
    }

    #[test]
    fn an_open_member_is_not_told() {
        assert_eq!(all(&["{\"command\":\"ls -", "la"]), []);
    }

    #[test]
    fn a_long_value_is_skipped_and_the_next_one_told() {
        let long = "x".repeat(MAX_VALUE * 2);
        assert_eq!(
            all(&[&format!("{{\"content\":\"{long}\",\"path\":\"/a\"}}")]),
            [("path".to_owned(), "/a".to_owned())]
        );
    }

    #[test]
    fn what_is_no_object_ends_quietly() {
        for junk in ["[1,2]", "\"x\"", "{]", "{\"a\" 5}", "}}}}", "{\"a\":1}{\"b\":2}"] {
            let _ = all(&[junk]);
        }
        assert_eq!(all(&["[\"a\"]"]), []);
    }
}
