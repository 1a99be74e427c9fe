//! The answer, told twice.
//!
//! Owns the text of a turn's last message, which a block of `assistant` tells and `result` repeats. Keeps: a long one is held
//! once, and written from there.

use std::sync::Arc;

use super::stream::RESULT_LIMIT;
use crate::translate::{Action, Actions};
use crate::wire::long::{LONG, LongLine, Text};

/// The texts of the blocks of the last message.
#[derive(Debug, Default, Clone)]
pub(super) struct Answer {
    blocks: Vec<Arc<Text>>,
    len: usize,
    /// Something came that was not kept.
    cut: bool,
}

impl Answer {
    /// Another block. Kept are at least the first `most` bytes.
    pub(super) fn add(&mut self, block: &Arc<Text>, most: usize) {
        if self.len < most {
            self.len += block.len();
            self.blocks.push(block.clone());
        } else {
            self.cut = true;
        }
    }

    /// Another message begins.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All that was said, if all was kept.
    pub(super) fn whole(&self) -> Option<String> {
        (!self.cut).then(|| self.blocks.iter().map(|block| block.start(block.len())).collect())
    }

    /// What was said, as far as `result` repeats it.
    pub(super) fn text(&self) -> Arc<Text> {
        match &*self.blocks {
            [one] => one.clone(),
            more => {
                let mut all = Text::default();
                for block in more {
                    all.append(block, RESULT_LIMIT.saturating_sub(all.len()));
                }
                all.into()
            }
        }
    }
}

/// Tells a line with this text in it. `line` writes one around a text; `id` is an id that is used nowhere else.
pub(super) fn tell(text: &Arc<Text>, used: usize, id: &str, line: impl Fn(&str) -> Vec<u8>, out: &mut Actions) {
    if used >= LONG {
        // Twice the id is in no other member.
        let marker = format!("{id}{id}");
        if let Some(long) = LongLine::new(&line(&marker), &marker, text.clone(), used) {
            return out.push(Action::NearLong(long));
        }
    }
    out.near(line(&text.start(used)));
}
