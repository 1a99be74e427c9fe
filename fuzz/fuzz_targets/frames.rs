//! Any bytes, cut into any reads: the frames are those of the bytes in one piece, and nothing panics.

#![no_main]

use bytes::BytesMut;
use diglot::wire::frame::{Frame, FrameDecoder};
use libfuzzer_sys::fuzz_target;

/// Small, so that over-long lines occur.
const LIMIT: usize = 64;

fn frames(pieces: &[&[u8]]) -> Vec<Frame> {
    let mut decoder = FrameDecoder::new(LIMIT);
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Some(frame) = decoder.decode(&mut buffer) {
            frames.push(frame);
        }
        assert!(buffer.len() <= LIMIT + piece.len(), "more is kept than the limit");
    }
    while let Some(frame) = decoder.finish(&mut buffer) {
        frames.push(frame);
    }
    frames
}

fuzz_target!(|data: &[u8]| {
    // The first bytes say where the rest is cut.
    let (cuts, bytes) = data.split_at(data.len().min(4));
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for cut in cuts {
        let (piece, after) = rest.split_at(usize::from(*cut).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    let whole = frames(&[bytes]);
    assert_eq!(frames(&pieces), whole);
    for frame in &whole {
        if let Frame::Line(line) = frame {
            assert!(line.len() <= LIMIT && !line.contains(&b'\n'));
            assert!(std::str::from_utf8(line).is_ok());
        }
    }
});
