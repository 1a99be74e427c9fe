//! Server-sent events, as MCP servers send them over HTTP.
//!
//! Owns the cutting of a stream into events. Keeps: any cutting of the bytes gives the same events; an event that is longer
//! than a message may be is an error, and no memory is kept for it.

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its kind; empty: `message`.
    pub kind: String,
    /// Its lines of data, joined by LF.
    pub data: String,
}

/// An event is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {0} bytes")]
pub struct TooLong(pub usize);

/// Cuts a stream into events.
#[derive(Debug)]
pub struct SseDecoder {
    limit: usize,
    line: Vec<u8>,
    /// The last byte was a CR, so an LF would belong to it.
    cr: bool,
    begun: bool,
    event: SseEvent,
    has_data: bool,
    last_id: Option<String>,
    retry_ms: Option<u64>,
}

impl SseDecoder {
    /// A decoder of a stream that begins now; `limit`: bytes of an event.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            cr: false,
            begun: false,
            event: SseEvent::default(),
            has_data: false,
            last_id: None,
            retry_ms: None,
        }
    }

    /// The id of the last event that had one: where to go on after the stream broke off.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// How long to wait before going on, if the server said so.
    #[must_use]
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Takes bytes and gives the events that they complete.
    ///
    /// # Errors
    /// When an event is longer than the limit; the stream is of no use then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, TooLong> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_cr = std::mem::take(&mut self.cr);
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => {
                    self.cr = byte == b'\r';
                    events.extend(self.end_of_line());
                }
                byte => {
                    if self.line.len() + self.event.data.len() >= self.limit {
                        return Err(TooLong(self.limit));
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(events)
    }

    fn end_of_line(&mut self) -> Option<SseEvent> {
        let bytes = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&bytes);
        // A byte order mark may stand at the beginning.
        let line = if std::mem::replace(&mut self.begun, true) { &*line } else { line.trim_start_matches('\u{feff}') };
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => self.event.kind = value.to_owned(),
            "id" if !value.contains('\0') => self.last_id = Some(value.to_owned()),
            "retry" => self.retry_ms = value.parse().ok().or(self.retry_ms),
            // A comment, or a field of the future.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\u{feff}: hello\r\nid: 7\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nevent: endpoint\rdata:/m?s=1\r\rretry: 20\n\ndata\n\ndata: ü\n\nid: 8\ndata: cut off";

    fn decoded(size: usize) -> (Vec<SseEvent>, SseDecoder) {
        let mut decoder = SseDecoder::new(100);
        let events = STREAM.as_bytes().chunks(size).flat_map(|part| decoder.push(part).unwrap()).collect();
        (events, decoder)
    }

    #[test]
    fn any_cutting_gives_the_same_events() {
        let event = |kind: &str, data: &str| SseEvent { kind: kind.into(), data: data.into() };
        let expected = [event("", "{\"a\":\n1}"), event("endpoint", "/m?s=1"), event("", ""), event("", "ü")];
        for size in 1..STREAM.len() {
            let (events, decoder) = decoded(size);
            assert_eq!(events, expected, "{size}");
            assert_eq!((decoder.last_id(), decoder.retry_ms()), (Some("8"), Some(20)));
        }
    }

    #[test]
    fn an_event_without_an_end_is_bounded() {
        let mut decoder = SseDecoder::new(100);
        assert_eq!(decoder.push(&[b'x'; 200]), Err(TooLong(100)));
        let mut decoder = SseDecoder::new(100);
        let lines = "data: 0123456789\n".repeat(20);
        assert_eq!(decoder.push(lines.as_bytes()), Err(TooLong(100)));
    }
}
