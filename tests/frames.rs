//! Framing holds for any bytes, however they are cut into reads.

use bytes::BytesMut;
use diglot::wire::frame::{Frame, FrameDecoder, NOISE_HEAD, NoiseReason, write_line};
use proptest::collection::vec;
use proptest::prelude::*;

fn decode(limit: usize, chunks: &[&[u8]]) -> Vec<Frame> {
    let mut decoder = FrameDecoder::new(limit);
    let mut buf = BytesMut::new();
    let mut frames = Vec::new();
    for chunk in chunks {
        buf.extend_from_slice(chunk);
        while let Some(frame) = decoder.decode(&mut buf) {
            frames.push(frame);
        }
        assert!(buf.len() <= limit, "more than the limit stays buffered");
    }
    while let Some(frame) = decoder.finish(&mut buf) {
        frames.push(frame);
    }
    frames
}

/// Cuts `input` at the given places, taken modulo its length.
fn cut<'a>(input: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = places.iter().map(|place| place % (input.len() + 1)).collect();
    at.sort_unstable();
    let mut from = 0;
    let mut chunks = Vec::new();
    for place in at {
        chunks.push(&input[from..place]);
        from = place;
    }
    chunks.push(&input[from..]);
    chunks
}

/// Pieces of streams that meet every rule often, besides plain random bytes.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\xEF\xBB\xBF".to_vec()),
        Just(b"{\"a\":\"\xE2\x80\xA8\"}".to_vec()),
        Just(b"{}".to_vec()),
        Just(b" \t".to_vec()),
        Just(b"[1]".to_vec()),
        Just(b"noise \xFF".to_vec()),
        Just(vec![b'x'; 300]),
        Just(vec![b'y'; NOISE_HEAD + 10]),
        vec(any::<u8>(), 0..20),
    ];
    vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_cutting_of_any_bytes_gives_the_same_frames(
        input in stream(),
        places in vec(any::<usize>(), 0..20),
        limit in 1_usize..400,
    ) {
        let whole = decode(limit, &[&input]);
        prop_assert_eq!(&whole, &decode(limit, &cut(&input, &places)));
        let single: Vec<&[u8]> = input.chunks(1).collect();
        prop_assert_eq!(&whole, &decode(limit, &single));
    }

    #[test]
    fn every_line_is_accounted_for_in_order(input in stream(), limit in 1_usize..400) {
        let lines: Vec<&[u8]> = input
            .split(|byte| *byte == b'\n')
            .enumerate()
            .map(|(at, line)| match line.strip_prefix(b"\xEF\xBB\xBF") {
                Some(rest) if at == 0 && line.len() <= limit => rest,
                _ => line,
            })
            .filter(|line| line.len() > limit || !line.trim_ascii().is_empty())
            .collect();
        let frames = decode(limit, &[&input]);
        prop_assert_eq!(lines.len(), frames.len());
        for (line, frame) in lines.into_iter().zip(frames) {
            match frame {
                Frame::Line(got) => prop_assert_eq!(&got[..], line.strip_suffix(b"\r").unwrap_or(line)),
                Frame::Noise(noise) => {
                    prop_assert!(line.starts_with(&noise.bytes));
                    prop_assert!(noise.bytes.len() <= NOISE_HEAD);
                    let too_long = line.len() > limit;
                    prop_assert_eq!(too_long, matches!(noise.why, NoiseReason::TooLong { .. }));
                    if too_long {
                        prop_assert_eq!(noise.total_len, line.len());
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_written_is_read_back_as_one_line_that_means_the_same(
        text in any::<String>(),
        key in "[a-z\u{2028}\u{2029}]{0,5}",
    ) {
        let value = serde_json::json!({ key: text });
        let mut out = Vec::new();
        write_line(&mut out, value.to_string().as_bytes());
        prop_assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1);
        let written = std::str::from_utf8(&out).expect("what write_line makes of UTF-8 is UTF-8");
        let splits = written.contains(['\u{2028}', '\u{2029}', '\r']);
        prop_assert!(!splits);
        let frames = decode(usize::MAX, &[&out]);
        let [Frame::Line(line)] = &frames[..] else { panic!("one line expected: {frames:?}") };
        let back: serde_json::Value = serde_json::from_slice(line)?;
        prop_assert_eq!(back, value);
    }
}
