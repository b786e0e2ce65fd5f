//! Parses the heads of the frames in a byte stream (RFC 9113 section 4.1), and of most payloads
//! nothing.
//!
//! The parser validates nothing: the `h2` crate does. It sees the same bytes, in parts of any size,
//! and allocates nothing.

/// The bytes with which a client begins a connection (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame's head.
const HEAD_LENGTH: usize = 9;

/// The flag of DATA and HEADERS that ends the sender's side of a stream.
pub const END_STREAM: u8 = 0x1;
/// The flag of SETTINGS and PING that makes them an acknowledgement.
pub const ACK: u8 = 0x1;
/// The flag of HEADERS and CONTINUATION that ends a field section.
pub const END_HEADERS: u8 = 0x4;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// The length of the payload.
    pub length: u32,
    pub kind: FrameKind,
    pub flags: u8,
    /// The stream; 0 for the connection.
    pub stream: u32,
}

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// A type that RFC 9113 does not define.
    Extension(u8),
}

/// A position in a frame that the parser has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEvent {
    /// The head is complete.
    Begun(FrameHead),
    /// The number in the payload is complete: the error code of RST_STREAM and GOAWAY, the
    /// increment of WINDOW_UPDATE. A payload that is too short has none.
    Number(FrameHead, u32),
    /// The last byte of the frame has passed.
    Ended(FrameHead),
}

/// Finds the frames in one direction of a connection.
#[derive(Clone, Debug)]
pub struct FrameParser {
    state: ParserState,
    /// The number of bytes until the state changes.
    remaining: u32,
    head: [u8; HEAD_LENGTH],
    number: u32,
}

#[derive(Clone, Copy, Debug)]
enum ParserState {
    /// In the preface.
    Preface,
    /// In a head.
    Head,
    /// In the rest of a payload.
    Payload(FrameHead),
    /// In the bytes before the number of a payload.
    BeforeNumber(FrameHead),
    /// In the number of a payload.
    Number(FrameHead),
}

impl FrameHead {
    /// Returns `true` if a flag is set.
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn parse(bytes: &[u8; HEAD_LENGTH]) -> Self {
        let [l1, l2, l3, kind, flags, s1, s2, s3, s4] = *bytes;
        Self {
            length: u32::from_be_bytes([0, l1, l2, l3]),
            kind: FrameKind::from_byte(kind),
            flags,
            stream: u32::from_be_bytes([s1 & 0x7f, s2, s3, s4]),
        }
    }
}

impl FrameKind {
    fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Data,
            1 => Self::Headers,
            2 => Self::Priority,
            3 => Self::RstStream,
            4 => Self::Settings,
            5 => Self::PushPromise,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::WindowUpdate,
            9 => Self::Continuation,
            other => Self::Extension(other),
        }
    }

    /// Returns the offset of the number in a payload that the parser reads.
    fn number_offset(self) -> Option<u32> {
        match self {
            Self::RstStream | Self::WindowUpdate => Some(0),
            Self::GoAway => Some(4),
            Self::Data
            | Self::Headers
            | Self::Priority
            | Self::Settings
            | Self::PushPromise
            | Self::Ping
            | Self::Continuation
            | Self::Extension(_) => None,
        }
    }
}

impl FrameParser {
    /// Creates a parser for the bytes of a server, which begin with a frame.
    pub fn for_server() -> Self {
        Self {
            state: ParserState::Head,
            remaining: HEAD_LENGTH as u32,
            head: [0; HEAD_LENGTH],
            number: 0,
        }
    }

    /// Creates a parser for the bytes of a client, which begin with the preface.
    pub fn for_client() -> Self {
        Self {
            state: ParserState::Preface,
            remaining: PREFACE.len() as u32,
            ..Self::for_server()
        }
    }

    /// Returns `true` between two frames.
    pub fn is_between_frames(&self) -> bool {
        matches!(self.state, ParserState::Head) && self.remaining == HEAD_LENGTH as u32
    }

    /// Consumes bytes up to the next event. Returns `None` when all are consumed.
    pub fn next_event(&mut self, bytes: &mut &[u8]) -> Option<FrameEvent> {
        loop {
            if self.remaining > 0 {
                let taken = self.take(bytes);
                if taken == 0 || self.remaining > 0 {
                    return None;
                }
            }
            if let Some(event) = self.finish_part() {
                return Some(event);
            }
        }
    }

    /// Consumes bytes of the current part; returns their number.
    fn take(&mut self, bytes: &mut &[u8]) -> u32 {
        let taken = bytes.len().min(self.remaining as usize);
        let (part, rest) = bytes.split_at_checked(taken).unwrap_or_default();
        match self.state {
            ParserState::Head => {
                let filled = HEAD_LENGTH - self.remaining as usize;
                if let Some(free) = self.head.get_mut(filled..filled + taken) {
                    free.copy_from_slice(part);
                }
            }
            ParserState::Number(_) => {
                for byte in part {
                    self.number = self.number << 8 | u32::from(*byte);
                }
            }
            ParserState::Preface | ParserState::Payload(_) | ParserState::BeforeNumber(_) => {}
        }
        *bytes = rest;
        self.remaining -= taken as u32;
        taken as u32
    }

    /// Moves on from a part that is complete.
    fn finish_part(&mut self) -> Option<FrameEvent> {
        match self.state {
            ParserState::Preface => {
                self.enter(ParserState::Head, HEAD_LENGTH as u32);
                None
            }
            ParserState::Head => {
                let head = FrameHead::parse(&self.head);
                match head.kind.number_offset() {
                    Some(offset) if head.length >= offset + 4 => {
                        self.enter(ParserState::BeforeNumber(head), offset);
                    }
                    Some(_) | None => self.enter(ParserState::Payload(head), head.length),
                }
                Some(FrameEvent::Begun(head))
            }
            ParserState::BeforeNumber(head) => {
                self.number = 0;
                self.enter(ParserState::Number(head), 4);
                None
            }
            ParserState::Number(head) => {
                let offset = head.kind.number_offset().unwrap_or(0);
                self.enter(ParserState::Payload(head), head.length - offset - 4);
                Some(FrameEvent::Number(head, self.number))
            }
            ParserState::Payload(head) => {
                self.enter(ParserState::Head, HEAD_LENGTH as u32);
                Some(FrameEvent::Ended(head))
            }
        }
    }

    fn enter(&mut self, state: ParserState, remaining: u32) {
        self.state = state;
        self.remaining = remaining;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends a frame with a random payload, and its events.
    fn push_random(random: &mut fastrand::Rng, bytes: &mut Vec<u8>, events: &mut Vec<FrameEvent>) {
        let kind = random.u8(..12);
        let length = [0, 1, 3, 4, 7, 8, 9, 200, 16_384, 70_000][random.usize(..10)];
        let stream = random.u32(..);
        let head = FrameHead {
            length,
            kind: FrameKind::from_byte(kind),
            flags: random.u8(..),
            stream: stream & 0x7fff_ffff,
        };
        bytes.extend_from_slice(&length.to_be_bytes()[1..]);
        bytes.extend_from_slice(&[kind, head.flags]);
        bytes.extend_from_slice(&stream.to_be_bytes());
        let payload: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        events.push(FrameEvent::Begun(head));
        let at = if kind == 7 { 4 } else { 0 };
        if let Some(number) = payload.get(at..at + 4)
            && [3, 7, 8].contains(&kind)
        {
            let number = u32::from_be_bytes(number.try_into().unwrap());
            events.push(FrameEvent::Number(head, number));
        }
        events.push(FrameEvent::Ended(head));
        bytes.extend_from_slice(&payload);
    }

    /// Returns the events of bytes that arrive in parts of at most `most` bytes.
    fn events_in_parts(
        parser: &mut FrameParser,
        random: &mut fastrand::Rng,
        mut bytes: &[u8],
        most: usize,
    ) -> Vec<FrameEvent> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let (mut part, rest) = bytes.split_at(random.usize(..=most).min(bytes.len()));
            while let Some(event) = parser.next_event(&mut part) {
                events.push(event);
            }
            assert!(part.is_empty());
            bytes = rest;
        }
        events
    }

    #[test]
    fn frames_are_found_however_they_arrive() {
        let mut random = fastrand::Rng::with_seed(9113);
        for round in 0..200 {
            let (mut bytes, mut expected) = (Vec::new(), Vec::new());
            let is_client = random.bool();
            let mut parser = if is_client {
                bytes.extend_from_slice(PREFACE);
                FrameParser::for_client()
            } else {
                FrameParser::for_server()
            };
            for _ in 0..random.u32(..12) {
                push_random(&mut random, &mut bytes, &mut expected);
            }
            let most = [1, 2, 9, 64, 20_000][random.usize(..5)];
            let found = events_in_parts(&mut parser, &mut random, &bytes, most);
            assert_eq!(found, expected, "round {round}, parts of {most}");
            assert!(parser.is_between_frames());
        }
    }

    #[test]
    fn any_bytes_are_parsed_to_their_end() {
        let mut random = fastrand::Rng::with_seed(7540);
        for _ in 0..200 {
            let length = random.usize(..4096);
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let whole = events_in_parts(&mut FrameParser::for_server(), &mut random, &bytes, 4096);
            let single = events_in_parts(&mut FrameParser::for_server(), &mut random, &bytes, 1);
            assert_eq!(whole, single);
        }
    }

    #[test]
    fn the_reserved_bit_is_no_part_of_the_stream() {
        let mut bytes = &[0, 0, 0, 4, 1, 0x80, 0, 0, 5][..];
        let head = FrameHead {
            length: 0,
            kind: FrameKind::Settings,
            flags: ACK,
            stream: 5,
        };
        let mut parser = FrameParser::for_server();
        assert_eq!(parser.next_event(&mut bytes), Some(FrameEvent::Begun(head)));
        assert!(head.has(ACK) && !head.has(END_HEADERS) && !parser.is_between_frames());
        assert_eq!(parser.next_event(&mut bytes), Some(FrameEvent::Ended(head)));
        assert_eq!(parser.next_event(&mut bytes), None);
    }
}
