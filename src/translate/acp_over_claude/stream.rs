//! Text and thoughts, as they stream.
//!
//! Owns what was shown of each block. Keeps: text is exact: never twice (the full `assistant` line repeats what its
//! deltas said), never cut, and a stream that broke off and is told again continues where it stopped (stream-json.md,
//! section 0, point 5). All state is kept per subagent, so that one stream cannot disturb another (report 29).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::translate::partial_json::PartialObject;
use crate::wire::text::{Carry, Fragment};

/// The streams of a session: the main one and those of subagents.
#[derive(Debug, Default)]
pub(super) struct Streams {
    main: Stream,
    children: HashMap<Box<str>, Stream>,
    /// Input tokens of the API call that streams.
    pub(super) input_tokens: u64,
}

/// One stream of API messages.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The id of the message that streams.
    message: Option<Arc<str>>,
    blocks: Vec<Block>,
    /// What an attempt that broke off has shown, in order: the message that tells it again repeats nothing of it.
    broken: VecDeque<Told>,
}

/// Text that the editor has.
#[derive(Debug)]
struct Told {
    /// The message it was told as part of.
    id: Option<Arc<str>>,
    thought: bool,
    text: String,
}

/// A block of the message that streams.
#[derive(Debug)]
struct Block {
    kind: BlockKind,
    /// What has come of it.
    text: String,
    carry: Carry,
    /// The whole block has come.
    whole: bool,
    /// The text that this block repeats, as far as is known.
    told: Option<Told>,
}

/// What a block is.
#[derive(Debug)]
pub(super) enum BlockKind {
    Text,
    Thought,
    /// A call whose input streams in.
    Tool {
        id: String,
        fields: PartialObject,
    },
    Other,
}

/// A piece of text to be shown, and the message it is part of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) id: Option<Arc<str>>,
    pub(super) text: String,
}

impl Streams {
    pub(super) fn of(&mut self, parent: Option<&str>) -> &mut Stream {
        match parent {
            None => &mut self.main,
            Some(id) => self.children.entry(id.into()).or_default(),
        }
    }

    /// A turn has ended: nothing of it is told again in the next one. Subagents that run on keep their streams.
    pub(super) fn turn_over(&mut self, runs: impl Fn(&str) -> bool) {
        self.main = Stream::default();
        self.children.retain(|parent, _| runs(parent));
    }

    pub(super) fn forget_child(&mut self, parent: &str) {
        self.children.remove(parent);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Stream {
    /// Whether this is the message that streams.
    pub(super) fn is_at(&self, message: Option<&str>) -> bool {
        self.message.as_deref() == message
    }

    /// `message_start`; returns the calls of the message before whose input never came whole.
    pub(super) fn begin(&mut self, id: Option<&str>) -> Vec<String> {
        let blocks = std::mem::take(&mut self.blocks);
        let shown = |b: &Block| !b.text.is_empty() && matches!(b.kind, BlockKind::Text | BlockKind::Thought);
        // A message of which a block never came whole has broken off.
        let broke = blocks.iter().any(|b| !b.whole && shown(b));
        self.broken.clear();
        let mut calls = Vec::new();
        for block in blocks {
            let thought = matches!(block.kind, BlockKind::Thought);
            if broke && shown(&block) {
                let told = match block.told {
                    // What was told before and not yet repeated in full.
                    Some(told) if told.text.len() > block.text.len() => told,
                    Some(told) => Told { id: told.id, thought, text: block.text },
                    None => Told { id: self.message.clone(), thought, text: block.text },
                };
                self.broken.push_back(told);
            } else if let (BlockKind::Tool { id, .. }, false) = (block.kind, block.whole) {
                calls.push(id);
            }
        }
        self.message = id.map(Arc::from);
        calls
    }

    /// `content_block_start`.
    pub(super) fn start_block(&mut self, index: usize, kind: BlockKind) {
        // Indices are dense; a gap would be another protocol, and must not allocate without bound.
        if index > self.blocks.len() + 64 {
            return;
        }
        while self.blocks.len() <= index {
            self.blocks.push(Block::new(BlockKind::Other));
        }
        self.blocks[index] = Block::new(kind);
    }

    /// A piece of a block: what of it is new. The block is made when its start was not seen.
    pub(super) fn piece(&mut self, index: usize, thought: bool, new: Fragment<'_>) -> Option<Piece> {
        let make = || if thought { BlockKind::Thought } else { BlockKind::Text };
        if self.blocks.get(index).is_none() {
            self.start_block(index, make());
        }
        let block = self.blocks.get_mut(index)?;
        if matches!(block.kind, BlockKind::Other) {
            block.kind = make();
        }
        let text = new.complete(&mut block.carry).filter(|t| !t.is_empty())?;
        if block.text.is_empty() && block.told.is_none() {
            block.told = take(&mut self.broken, thought);
        }
        let before = block.text.len();
        block.text.push_str(&text);
        let Some(told) = &block.told else {
            return Some(Piece { id: self.message.clone(), text: text.into_owned() });
        };
        if told.text.starts_with(&block.text) {
            return None;
        }
        if block.text.starts_with(&told.text) {
            let new = block.text[before.max(told.text.len())..].to_owned();
            return Some(Piece { id: told.id.clone(), text: new });
        }
        // It is another text after all.
        block.told = None;
        Some(Piece { id: self.message.clone(), text: block.text.clone() })
    }

    /// A whole block of text has come: what of it was not told yet.
    pub(super) fn whole_text(&mut self, full: &str, thought: bool) -> Whole {
        let own = self.message.clone();
        let open = self
            .blocks
            .iter_mut()
            .find(|b| !b.whole && matches!((&b.kind, thought), (BlockKind::Text, false) | (BlockKind::Thought, true)));
        let Some(block) = open else {
            return match take(&mut self.broken, thought) {
                Some(told) if full.starts_with(&told.text) => Whole::rest(told.id, full, told.text.len()),
                Some(told) if told.text.starts_with(full) => Whole::Told,
                _ => Whole::rest(own, full, 0),
            };
        };
        block.whole = true;
        block.carry = Carry::default();
        let text = std::mem::replace(&mut block.text, full.to_owned());
        match block.told.take() {
            Some(told) if told.text.len() >= text.len() => {
                // Nothing of this block was shown so far; it repeated what was told.
                if full.starts_with(&told.text) {
                    let whole = Whole::rest(told.id.clone(), full, told.text.len());
                    block.told = Some(told);
                    whole
                } else if told.text.starts_with(full) {
                    // Cut short while it was repeating.
                    Whole::Told
                } else {
                    Whole::rest(own, full, 0)
                }
            }
            told if full.starts_with(&text) => {
                let id = told.as_ref().map_or(own, |t| t.id.clone());
                block.told = told;
                Whole::rest(id, full, text.len())
            }
            _ => Whole::Other,
        }
    }

    /// A line of another message than the one that streams: that one has ended. Returns what [`Self::begin`] does.
    pub(super) fn follow(&mut self, message: Option<&str>) -> Vec<String> {
        if message.is_some() && !self.is_at(message) { self.begin(message) } else { Vec::new() }
    }

    /// The call whose input streams at this index.
    pub(super) fn tool(&mut self, index: usize) -> Option<(&str, &mut PartialObject)> {
        match &mut self.blocks.get_mut(index)?.kind {
            BlockKind::Tool { id, fields } => Some((id, fields)),
            _ => None,
        }
    }

    /// A call's whole input has come.
    pub(super) fn whole_tool(&mut self, id: &str) {
        for block in &mut self.blocks {
            if matches!(&block.kind, BlockKind::Tool { id: this, .. } if this == id) {
                block.whole = true;
            }
        }
    }
}

/// The next text of this kind that was told.
fn take(broken: &mut VecDeque<Told>, thought: bool) -> Option<Told> {
    let at = broken.iter().position(|t| t.thought == thought)?;
    broken.remove(at)
}

/// What is left of a whole block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// Nothing.
    Told,
    /// This.
    Rest(Piece),
    /// It is another text than the one that was shown.
    Other,
}

impl Whole {
    fn rest(id: Option<Arc<str>>, full: &str, told: usize) -> Self {
        match &full[told..] {
            "" => Self::Told,
            rest => Self::Rest(Piece { id, text: rest.to_owned() }),
        }
    }
}

impl Block {
    fn new(kind: BlockKind) -> Self {
        Self { kind, text: String::new(), carry: Carry::default(), whole: false, told: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn feed(s: &mut Stream, text: &str) -> Option<Piece> {
        let raw = RawValue::from_string(format!("{text:?}")).unwrap_or_else(|e| panic!("{text}: {e}"));
        s.piece(0, false, Fragment::Token(Some(&raw)))
    }

    fn part(id: &str, text: &str) -> Piece {
        Piece { id: Some(id.into()), text: text.to_owned() }
    }

    #[test]
    fn a_whole_block_repeats_nothing_and_completes_what_is_missing() {
        let mut s = Stream::default();
        s.begin(Some("m"));
        assert_eq!(feed(&mut s, "ab"), Some(part("m", "ab")));
        assert_eq!(s.whole_text("abc", false), Whole::Rest(part("m", "c")));
        assert_eq!(s.whole_text("next", false), Whole::Rest(part("m", "next")));
    }

    #[test]
    fn a_broken_stream_goes_on_under_the_message_that_was_shown() {
        let mut s = Stream::default();
        s.begin(Some("m1"));
        feed(&mut s, "tok0 ");
        s.follow(Some("m2"));
        assert_eq!(s.whole_text("tok0 tok1", false), Whole::Rest(part("m1", "tok1")));
        s.begin(Some("m3"));
        feed(&mut s, "x");
        s.follow(Some("m4"));
        assert_eq!(s.whole_text("other", false), Whole::Rest(part("m4", "other")));
    }

    #[test]
    fn a_broken_stream_may_break_again_while_it_repeats() {
        let mut s = Stream::default();
        s.begin(Some("m1"));
        feed(&mut s, "one two ");
        s.begin(Some("m2"));
        assert_eq!(feed(&mut s, "one "), None);
        s.begin(Some("m3"));
        assert_eq!(feed(&mut s, "one two"), None);
        assert_eq!(feed(&mut s, " three"), Some(part("m1", "three")));
        assert_eq!(s.whole_text("one two three", false), Whole::Told);
    }

    #[test]
    fn what_is_cut_short_while_it_repeats_adds_nothing() {
        let mut s = Stream::default();
        s.begin(Some("m1"));
        feed(&mut s, "one two");
        s.begin(Some("m2"));
        assert_eq!(feed(&mut s, "one"), None);
        assert_eq!(s.whole_text("one", false), Whole::Told);
    }

    #[test]
    fn what_repeats_only_the_beginning_is_told_in_full() {
        let mut s = Stream::default();
        s.begin(Some("m1"));
        feed(&mut s, "one two");
        s.begin(Some("m2"));
        assert_eq!(feed(&mut s, "one "), None);
        assert_eq!(feed(&mut s, "more"), Some(part("m2", "one more")));
    }

    #[test]
    fn a_wild_index_allocates_nothing() {
        let raw = RawValue::from_string("\"x\"".into()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(Stream::default().piece(usize::MAX - 1, false, Fragment::Token(Some(&raw))), None);
    }
}
