//! Text and thoughts, as they stream.
//!
//! Owns what was shown of each block. Keeps: text is exact: never twice (the full `assistant` line repeats what its
//! deltas said), never cut, and a stream that broke off and is told again continues where it stopped (stream-json.md,
//! section 0, point 5). All state is kept per subagent, so that one stream cannot disturb another (report 29).

use std::collections::HashMap;
use std::sync::Arc;

use crate::translate::partial_json::PartialObject;
use crate::wire::text::Carry;

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
    /// The id of the message that streams, and the id its text is shown under.
    message: Option<Arc<str>>,
    blocks: Vec<Block>,
    /// Text that a broken attempt had shown, waiting for the message that tells it again.
    broken: Option<(Option<Arc<str>>, String)>,
}

/// A block of the message that streams.
#[derive(Debug)]
pub(super) struct Block {
    kind: BlockKind,
    /// What was shown; emptied when the whole block has come.
    shown: String,
    pub(super) carry: Carry,
    whole: bool,
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

impl Streams {
    pub(super) fn of(&mut self, parent: Option<&str>) -> &mut Stream {
        match parent {
            None => &mut self.main,
            Some(id) => self.children.entry(id.into()).or_default(),
        }
    }

    /// Nothing of a turn is told again in the next one.
    pub(super) fn turn_over(&mut self) {
        self.main.broken = None;
    }

    pub(super) fn forget_child(&mut self, parent: &str) {
        self.children.remove(parent);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Stream {
    pub(super) fn message_id(&self) -> Option<Arc<str>> {
        self.message.clone()
    }

    /// `message_start`.
    pub(super) fn begin(&mut self, id: Option<&str>) {
        self.break_off();
        self.message = id.map(Arc::from);
        self.blocks.clear();
    }

    /// What a block has shown without having come whole is text that a retry will repeat.
    fn break_off(&mut self) {
        let open = self
            .blocks
            .iter_mut()
            .find(|b| matches!(b.kind, BlockKind::Text) && !b.whole && !b.shown.is_empty())
            .map(|b| std::mem::take(&mut b.shown));
        if let Some(shown) = open {
            self.broken = Some((self.message.clone(), shown));
        }
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

    /// The block that a delta belongs to; made when its start was not seen.
    pub(super) fn block(&mut self, index: usize, kind: fn() -> BlockKind) -> Option<&mut Block> {
        if self.blocks.get(index).is_none() {
            self.start_block(index, kind());
        }
        let block = self.blocks.get_mut(index)?;
        if matches!(block.kind, BlockKind::Other) {
            block.kind = kind();
        }
        Some(block)
    }

    /// A whole block of text has come: what of it was not shown yet, and under which message.
    pub(super) fn whole_text(&mut self, message: Option<&str>, full: &str, thought: bool) -> (Option<Arc<str>>, Whole) {
        self.follow(message);
        let id = self.message.clone();
        let open = self
            .blocks
            .iter_mut()
            .find(|b| !b.whole && matches!((&b.kind, thought), (BlockKind::Text, false) | (BlockKind::Thought, true)));
        if let Some(block) = open {
            block.whole = true;
            let shown = std::mem::take(&mut block.shown);
            return (id, rest(&shown, full));
        }
        if !thought && let Some((broken_id, shown)) = self.broken.take() {
            // Told again from the start: it goes on under the id that the editor knows, as one message.
            if let Whole::Rest(at) = rest(&shown, full) {
                return (broken_id, Whole::Rest(at));
            }
        }
        (id, Whole::Rest(0))
    }

    /// A line of another message than the one that streams: that one has ended.
    pub(super) fn follow(&mut self, message: Option<&str>) {
        if message.is_some() && self.message.as_deref() != message {
            self.begin(message);
        }
    }

    /// The call whose input streams at this index.
    pub(super) fn tool(&mut self, index: usize) -> Option<(&str, &mut PartialObject)> {
        match &mut self.blocks.get_mut(index)?.kind {
            BlockKind::Tool { id, fields } => Some((id, fields)),
            _ => None,
        }
    }

    /// A call's whole input has come.
    pub(super) fn whole_tool(&mut self, message: Option<&str>, id: &str) {
        self.follow(message);
        for block in &mut self.blocks {
            if matches!(&block.kind, BlockKind::Tool { id: this, .. } if this == id) {
                block.whole = true;
            }
        }
    }
}

/// What is left of a whole block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    /// Everything from this byte on; nothing when it is the length.
    Rest(usize),
    /// It is another text than the one that was shown.
    Other,
}

fn rest(shown: &str, full: &str) -> Whole {
    if full.starts_with(shown) { Whole::Rest(shown.len()) } else { Whole::Other }
}

impl Block {
    fn new(kind: BlockKind) -> Self {
        Self { kind, shown: String::new(), carry: Carry::default(), whole: false }
    }

    /// Text was shown.
    pub(super) fn show(&mut self, text: &str) {
        self.shown.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_block_repeats_nothing_and_completes_what_is_missing() {
        let mut s = Stream::default();
        s.begin(Some("m"));
        s.start_block(0, BlockKind::Text);
        if let Some(b) = s.block(0, || BlockKind::Text) {
            b.show("ab");
        }
        assert_eq!(s.whole_text(Some("m"), "abc", false).1, Whole::Rest(2));
        assert_eq!(s.whole_text(Some("m"), "next", false).1, Whole::Rest(0));
    }

    #[test]
    fn a_broken_stream_goes_on_under_the_message_that_was_shown() {
        let mut s = Stream::default();
        s.begin(Some("m1"));
        if let Some(b) = s.block(0, || BlockKind::Text) {
            b.show("tok0 ");
        }
        assert_eq!(s.whole_text(Some("m2"), "tok0 tok1", false), (Some("m1".into()), Whole::Rest(5)));
        s.begin(Some("m3"));
        if let Some(b) = s.block(0, || BlockKind::Text) {
            b.show("x");
        }
        assert_eq!(s.whole_text(Some("m4"), "other", false), (Some("m4".into()), Whole::Rest(0)));
    }

    #[test]
    fn a_wild_index_allocates_nothing() {
        let mut s = Stream::default();
        assert!(s.block(usize::MAX - 1, || BlockKind::Text).is_none());
    }
}
