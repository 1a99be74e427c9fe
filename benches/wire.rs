//! The wires: frames and JSON-RPC.
//!
//! Part of the budget "CPU per streamed delta: 3 µs" (a delta of claude is a line of about 330 bytes, its answer one of about
//! 200), and what the size of a tool result costs.

mod support;

use bytes::BytesMut;
use diglot::wire::frame::{Frame, FrameDecoder, write_line};
use diglot::wire::jsonrpc::Message;
use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use serde_json::json;

fn main() {
    divan::main();
}

/// A megabyte of lines of about this length.
fn stream(length: usize) -> Vec<u8> {
    let overhead = support::text_delta("").len();
    let line = support::text_delta(&"x".repeat(length.saturating_sub(overhead)));
    let mut stream = Vec::new();
    while stream.len() < 1 << 20 {
        write_line(&mut stream, &line);
    }
    stream
}

/// Cutting a megabyte that comes in reads of 64 KiB into lines, each checked to be UTF-8 (MB/s).
#[divan::bench(args = [330, 4_096, 262_144])]
fn frames_decoded(bencher: Bencher<'_, '_>, line: usize) {
    let stream = stream(line);
    bencher.counter(BytesCount::new(stream.len())).bench_local(|| {
        let mut decoder = FrameDecoder::default();
        let mut buf = BytesMut::new();
        let mut lines = 0;
        for read in stream.chunks(64 * 1024) {
            buf.extend_from_slice(read);
            while let Some(Frame::Line(line)) = decoder.decode(&mut buf) {
                lines += black_box(line).len();
            }
        }
        lines
    });
}

/// Writing lines: the search for what must be escaped, and the copy (MB/s).
#[divan::bench(args = [200, 4_096, 262_144])]
fn frames_written(bencher: Bencher<'_, '_>, length: usize) {
    let line = vec![b'x'; length];
    let mut out = Vec::with_capacity(2 * length);
    bencher.counter(BytesCount::new(length)).bench_local(|| {
        out.clear();
        write_line(&mut out, black_box(&line));
    });
}

/// Reading the envelope of an editor's prompt of this many bytes.
#[divan::bench(args = [40, 4_096, 1_048_576])]
fn jsonrpc_parsed(bencher: Bencher<'_, '_>, text: usize) {
    let prompt = json!([{"type": "text", "text": "x".repeat(text)}]);
    let params = json!({"sessionId": "10fc729a-f339-4cd2-abc8-90e388d6bdf4", "prompt": prompt});
    let line = json!({"jsonrpc": "2.0", "id": 7, "method": "session/prompt", "params": params}).to_string();
    bencher
        .counter(BytesCount::new(line.len()))
        .counter(ItemsCount::new(1usize))
        .bench_local(|| Message::parse(black_box(line.as_bytes())).is_ok());
}
