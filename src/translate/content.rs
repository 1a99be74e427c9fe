//! What an editor's prompt holds, as content for claude.
//!
//! Owns the reading of ACP content blocks. Keeps: nothing of a prompt is lost; what cannot be given to claude is
//! refused with -32602 and a message that names the position, what was found and what is expected.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::wire::jsonrpc::{RpcError, json_kind};
use crate::wire::stream_json::{Source, UserBlock};
use crate::wire::text::{Raw, cut, items, text};

/// A prompt that can be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptContent {
    /// In the order the editor gave.
    pub blocks: Vec<UserBlock>,
    /// Whether claude will take it as a slash command: only text that starts with `/` does (stream-json.md, 2.3).
    pub is_command: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawBlock<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    data: Raw<'a>,
    #[serde(borrow)]
    mime_type: Raw<'a>,
    #[serde(borrow)]
    uri: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    resource: Raw<'a>,
    #[serde(borrow)]
    blob: Raw<'a>,
    // Signs of a chat message or of another protocol's content, named in the answer.
    #[serde(borrow)]
    role: Raw<'a>,
    #[serde(borrow, rename = "kind")]
    kind_member: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
}

/// Reads the `prompt` member of `session/prompt`.
///
/// # Errors
/// -32602; the message names the position, what was found and what is expected.
pub fn read_prompt(prompt: Raw<'_>) -> Result<PromptContent, RpcError> {
    const EXPECTED: &str = "prompt must be an array of content blocks";
    let Some(prompt) = prompt else {
        return Err(RpcError::invalid_params(format!(
            "{EXPECTED} such as {{\"type\":\"text\",\"text\":\"…\"}}; it is missing"
        )));
    };
    let Some(list) = items(Some(prompt)) else {
        return Err(RpcError::invalid_params(format!("{EXPECTED}; found {}", json_kind(prompt))));
    };
    let mut reader = Reader::default();
    for (i, raw) in list.iter().enumerate() {
        reader.block(raw).map_err(|problem| RpcError::invalid_params(format!("{EXPECTED}; prompt[{i}] {problem}")))?;
    }
    let empty = |b: &UserBlock| matches!(b, UserBlock::Text { text } if text.trim().is_empty());
    if reader.blocks.iter().all(empty) {
        return Err(RpcError::invalid_params(if list.is_empty() {
            "prompt is empty; give at least one content block".to_owned()
        } else {
            "prompt holds no text and nothing else; give at least one content block that is not empty".to_owned()
        }));
    }
    // The API refuses empty text blocks.
    reader.blocks.retain(|b| !matches!(b, UserBlock::Text { text } if text.is_empty()));
    let is_command = matches!(reader.blocks.first(), Some(UserBlock::Text { text }) if text.starts_with('/'));
    Ok(PromptContent { blocks: reader.blocks, is_command })
}

#[derive(Default)]
struct Reader {
    blocks: Vec<UserBlock>,
    /// The last block is text that ends in a mention, or begins after one: text joins it.
    mention: bool,
}

impl Reader {
    fn block(&mut self, raw: &RawValue) -> Result<(), String> {
        if !raw.get().starts_with('{') {
            return Err(format!("is {}; each block is an object with a `type`", json_kind(raw)));
        }
        let b: RawBlock<'_> = serde_json::from_str(raw.get()).map_err(|e| format!("cannot be read: {e}"))?;
        let Some(kind) = text(b.kind) else {
            return Err(if b.role.is_some() {
                "has `role`, which is a chat message; give its text as {\"type\":\"text\",\"text\":\"…\"}".into()
            } else if b.kind_member.is_some() {
                "has `kind` where a content block has `type`".into()
            } else if let Some(found) = b.kind {
                format!("has a `type` that is {}; it must be a string", json_kind(found))
            } else {
                "has no `type`; expected text, image, resource_link or resource".into()
            });
        };
        match &*kind {
            "text" => {
                let text = required(b.text, "a text block", "text")?;
                self.text(text, false);
            }
            "image" => {
                let data = required(b.data, "an image", "data")?;
                let media_type = required(b.mime_type, "an image", "mimeType")?;
                self.image(media_type, data)?;
            }
            "resource_link" => {
                let uri = required(b.uri, "a resource_link", "uri")?;
                let name = required(b.name, "a resource_link", "name")?;
                self.text(mention(&uri, &name), true);
            }
            "resource" => self.resource(b.resource)?,
            "audio" => {
                return Err("is audio, which this agent cannot hear (promptCapabilities.audio is false); \
                            give a transcript as text"
                    .into());
            }
            _ if b.role.is_some() || b.content.is_some() => {
                return Err(format!(
                    "has {}, which is a chat message (`type` is {kind:?}); give its text as {{\"type\":\"text\",\"text\":\"…\"}}",
                    if b.role.is_some() { "`role`" } else { "`content`" }
                ));
            }
            other => {
                return Err(format!(
                    "has the unknown type {:?}; expected text, image, resource_link or resource",
                    cut(other, 60)
                ));
            }
        }
        Ok(())
    }

    /// Text joins the block before it where one of the two is a mention: the editor cut one sentence in pieces.
    fn text(&mut self, text: String, is_mention: bool) {
        match self.blocks.last_mut() {
            Some(UserBlock::Text { text: last }) if is_mention || self.mention => last.push_str(&text),
            _ => self.blocks.push(UserBlock::Text { text }),
        }
        self.mention = is_mention;
    }

    fn push(&mut self, block: UserBlock) {
        self.mention = false;
        self.blocks.push(block);
    }

    fn image(&mut self, media_type: String, data: String) -> Result<(), String> {
        if !media_type.starts_with("image/") {
            return Err(format!(
                "is an image whose mimeType is {media_type:?}; expected image/png, image/jpeg, image/gif or image/webp"
            ));
        }
        self.push(UserBlock::Image { source: Source::Base64 { media_type, data } });
        Ok(())
    }

    fn resource(&mut self, raw: Raw<'_>) -> Result<(), String> {
        let Some(raw) = raw.filter(|r| r.get().starts_with('{')) else {
            return Err("is a resource without its `resource` object; expected {\"uri\":…,\"text\":…} or {\"uri\":…,\"blob\":…}".into());
        };
        let r: RawBlock<'_> = serde_json::from_str(raw.get()).map_err(|e| format!("cannot be read: {e}"))?;
        let uri = required(r.uri, "a resource", "uri")?;
        let media_type = text(r.mime_type).map(String::from);
        if let Some(content) = text(r.text) {
            self.context(&uri, &content);
            return Ok(());
        }
        let blob = required(r.blob, "a resource", "text` or `blob")?;
        let media_type = media_type.unwrap_or_default();
        match &*media_type {
            m if m.starts_with("image/") => return self.image(media_type, blob),
            "application/pdf" => {
                self.push(UserBlock::Document { source: Source::Base64 { media_type, data: blob }, title: Some(uri) });
                return Ok(());
            }
            _ => {}
        }
        // Anything that is text inside is text, whatever it calls itself.
        let bytes = STANDARD
            .decode(blob.trim())
            .or_else(|_| STANDARD_NO_PAD.decode(blob.trim()))
            .map_err(|e| format!("has a `blob` that is not base64: {e}"))?;
        match String::from_utf8(bytes) {
            Ok(content) if !content.contains('\0') => {
                self.context(&uri, &content);
                Ok(())
            }
            _ => Err(format!(
                "is a binary resource of type {media_type:?}, which cannot be put into a prompt; give a resource_link to the file instead"
            )),
        }
    }

    fn context(&mut self, uri: &str, content: &str) {
        let place = file_place(uri).map_or_else(|| uri.to_owned(), |p| p.to_string());
        let end = if content.ends_with('\n') { "" } else { "\n" };
        self.push(UserBlock::Text {
            text: format!("<context ref=\"{}\">\n{content}{end}</context>", place.replace('"', "&quot;")),
        });
    }
}

fn required(raw: Raw<'_>, what: &str, member: &str) -> Result<String, String> {
    match raw {
        None => Err(format!("is {what} without `{member}`")),
        Some(found) => text(raw)
            .map(String::from)
            .ok_or_else(|| format!("is {what} whose `{member}` is {}; it must be a string", json_kind(found))),
    }
}

/// A place in a file, as a `file:` URI names it.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    path: String,
    /// First and last line, from 1.
    lines: Option<(u64, Option<u64>)>,
    symbol: Option<String>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path)?;
        match self.lines {
            Some((from, Some(to))) if from != to => write!(f, "#L{from}-{to}"),
            Some((from, _)) => write!(f, "#L{from}"),
            None => Ok(()),
        }
    }
}

/// Editors write `file:///a%20b.rs?symbol=x#L10:20`, `#L10-L20`, `#10`, and Windows paths (`file:///C:/a`).
fn file_place(uri: &str) -> Option<Place> {
    let rest = uri.strip_prefix("file://")?;
    let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(r, f)| (r, Some(f)));
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(r, q)| (r, Some(q)));
    // A host other than this machine is not a file that claude can open.
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let mut path = percent_decode_str(path).decode_utf8().ok()?.into_owned();
    let bytes = path.as_bytes();
    if bytes.len() > 2 && bytes[1].is_ascii_alphabetic() && bytes[2] == b':' {
        path.remove(0);
    }
    let number = |s: &str| s.trim_start_matches(['L', 'l']).parse::<u64>().ok().filter(|n| *n > 0);
    let lines = fragment.and_then(|f| match f.split_once([':', '-', ',']) {
        Some((a, b)) => Some((number(a)?, number(b))),
        None => Some((number(f)?, None)),
    });
    let symbol = query.and_then(|q| {
        q.split('&')
            .find_map(|pair| pair.strip_prefix("symbol="))
            .and_then(|s| percent_decode_str(s).decode_utf8().ok().map(|s| s.into_owned()).filter(|s| !s.is_empty()))
    });
    Some(Place { path, lines, symbol })
}

/// A link as claude knows it: `@path`, in quotes where the path has a space; other schemes as they are.
fn mention(uri: &str, name: &str) -> String {
    let Some(place) = file_place(uri) else {
        return if name.is_empty() || name == uri { uri.to_owned() } else { format!("[{name}]({uri})") };
    };
    let at = place.to_string();
    let mut out = if at.chars().any(|c| c.is_whitespace() || c == '"') {
        format!("@\"{}\"", at.replace('"', ""))
    } else {
        format!("@{at}")
    };
    if let Some(symbol) = place.symbol {
        out.push_str(&format!(" (symbol `{symbol}`)"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<PromptContent, RpcError> {
        let raw = RawValue::from_string(json.to_owned()).unwrap_or_else(|e| panic!("{json}: {e}"));
        read_prompt(Some(&raw))
    }

    fn texts(json: &str) -> Vec<String> {
        let content = read(json).unwrap_or_else(|e| panic!("{e:?}"));
        content
            .blocks
            .into_iter()
            .map(|b| match b {
                UserBlock::Text { text } => text,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn refusal(json: &str) -> String {
        match read(json) {
            Err(e) => e.message,
            Ok(c) => panic!("accepted: {c:?}"),
        }
    }

    #[test]
    fn odd_uris_become_paths_with_their_lines() {
        assert_eq!(
            texts(
                r#"[{"type":"text","text":"see "},{"type":"resource_link","name":"é b.rs","uri":"file:///w/%C3%A9%20b.rs?symbol=E#L10:20"},{"type":"text","text":" now"}]"#
            ),
            ["see @\"/w/é b.rs#L10-20\" (symbol `E`) now"]
        );
        for (uri, expected) in [
            ("file:///w/a.rs", "@/w/a.rs"),
            ("file:///w/a.rs#L7", "@/w/a.rs#L7"),
            ("file:///w/a.rs#L7-L9", "@/w/a.rs#L7-9"),
            ("file:///w/a.rs#L7:7", "@/w/a.rs#L7"),
            ("file:///C:/a.rs", "@C:/a.rs"),
            ("file://localhost/w/a.rs", "@/w/a.rs"),
            ("zed:///agent/thread/1", "[n](zed:///agent/thread/1)"),
            ("https://x.test/a?b#c", "[n](https://x.test/a?b#c)"),
            ("file://elsewhere/a", "[n](file://elsewhere/a)"),
            ("file:///w/%FF", "[n](file:///w/%FF)"),
            ("not a uri", "[n](not a uri)"),
        ] {
            let json = serde_json::json!([{"type":"resource_link","name":"n","uri":uri}]).to_string();
            assert_eq!(texts(&json), [expected], "{uri}");
        }
    }

    #[test]
    fn wrong_shapes_are_named_with_their_position() {
        assert!(refusal("\"hello\"").contains("prompt must be an array of content blocks; found a string"));
        assert!(
            refusal(r#"[{"role":"user","content":"x"}]"#).contains("prompt[0] has `role`, which is a chat message")
        );
        assert!(
            refusal(r#"[{"type":"text","text":"a"},{"type":"message","role":"user","content":"x"}]"#)
                .contains("prompt[1] has `role`, which is a chat message")
        );
        assert!(
            refusal(r#"[{"type":"user","content":"x"}]"#).contains("prompt[0] has `content`, which is a chat message")
        );
        assert!(
            refusal(r#"[{"kind":"text","text":"x"}]"#)
                .contains("prompt[0] has `kind` where a content block has `type`")
        );
        assert!(refusal("[{}]").contains("prompt[0] has no `type`"));
        assert!(refusal("[\"x\"]").contains("prompt[0] is a string"));
        assert!(refusal(r#"[{"type":"text"}]"#).contains("prompt[0] is a text block without `text`"));
        assert!(refusal(r#"[{"type":"text","text":5}]"#).contains("whose `text` is a number"));
        assert!(refusal(r#"[{"type":"image","data":"x"}]"#).contains("without `mimeType`"));
        assert!(refusal(r#"[{"type":"video"}]"#).contains("unknown type \"video\""));
        assert!(refusal(r#"[{"type":"audio","data":"x","mimeType":"audio/wav"}]"#).contains("audio"));
        assert!(refusal("[]").contains("prompt is empty"));
        assert!(refusal(r#"[{"type":"text","text":" \n"}]"#).contains("no text"));
        assert!(read_prompt(None).is_err_and(|e| e.message.contains("it is missing")));
    }

    #[test]
    fn resources_are_text_images_documents_or_refused() {
        assert_eq!(
            texts(r#"[{"type":"resource","resource":{"uri":"file:///w/a%20b.txt","text":"one\n"}}]"#),
            ["<context ref=\"/w/a b.txt\">\none\n</context>"]
        );
        assert_eq!(
            texts(r#"[{"type":"resource","resource":{"uri":"x:y","blob":"aGk","mimeType":"text/plain"}}]"#),
            ["<context ref=\"x:y\">\nhi\n</context>"]
        );
        assert!(matches!(
            read(r#"[{"type":"resource","resource":{"uri":"x:y","blob":"aGk=","mimeType":"application/pdf"}}]"#),
            Ok(PromptContent { blocks, .. }) if matches!(&blocks[..], [UserBlock::Document { .. }])
        ));
        assert!(matches!(
            read(r#"[{"type":"resource","resource":{"uri":"x:y","blob":"aGk=","mimeType":"image/png"}}]"#),
            Ok(PromptContent { blocks, .. }) if matches!(&blocks[..], [UserBlock::Image { .. }])
        ));
        assert!(
            refusal(
                r#"[{"type":"resource","resource":{"uri":"x:y","blob":"AAEC","mimeType":"application/octet-stream"}}]"#
            )
            .contains("resource_link")
        );
        assert!(refusal(r#"[{"type":"resource"}]"#).contains("without its `resource` object"));
    }

    #[test]
    fn only_a_leading_slash_is_a_command() {
        assert!(read(r#"[{"type":"text","text":"/compact"}]"#).is_ok_and(|c| c.is_command));
        assert!(read(r#"[{"type":"text","text":"a /compact"}]"#).is_ok_and(|c| !c.is_command));
    }
}
