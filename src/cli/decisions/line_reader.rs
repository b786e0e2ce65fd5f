//! A line reader that does not copy lines, and that holds at most one long line in memory.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

/// The maximum length of a line. The proxy writes no longer lines, so longer ones are skipped.
const MAX_LINE_BYTES: usize = 32 << 20;
/// The number of bytes to read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// A reader of lines.
#[derive(Debug)]
pub(super) struct LogLineReader<R> {
    input: R,
    buffer: Vec<u8>,
    /// The part of the buffer that has been read but not returned.
    pending: Range<usize>,
    /// The position in the buffer up to which there is no line feed.
    searched: usize,
    /// `true` while the rest of a line that is too long is skipped.
    skips_line: bool,
}

/// The next line. A range is for [`LogLineReader::bytes`], and valid until the next line is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextLogLine {
    /// A line without its line feed.
    Line(Range<usize>),
    /// A line that was too long.
    TooLong,
    /// The end of the input, at least for now. The range contains the bytes after the last line feed.
    End(Range<usize>),
}

impl<R: Read> LogLineReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; CHUNK_BYTES],
            pending: 0..0,
            searched: 0,
            skips_line: false,
        }
    }

    pub(super) fn input(&mut self) -> &mut R {
        &mut self.input
    }

    /// Discards the buffer, since the input continues at another position.
    pub(super) fn restart(&mut self) {
        self.pending = 0..0;
        self.searched = 0;
        self.skips_line = false;
    }

    /// Returns the bytes of a range that [`Self::next_line`] has returned.
    pub(super) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.buffer.get(range.clone()).unwrap_or_default()
    }

    /// Reads the next line, and calls `before_reading` before each read of the input, which may block.
    ///
    /// # Errors
    /// If reading the input or `before_reading` fails.
    pub(super) fn next_line(
        &mut self,
        mut before_reading: impl FnMut() -> io::Result<()>,
    ) -> io::Result<NextLogLine> {
        loop {
            let unsearched = self
                .buffer
                .get(self.searched..self.pending.end)
                .unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', unsearched) {
                let line = self.pending.start..self.searched + at;
                self.pending.start = line.end + 1;
                self.searched = self.pending.start;
                return Ok(if std::mem::take(&mut self.skips_line) {
                    NextLogLine::TooLong
                } else {
                    NextLogLine::Line(line)
                });
            }
            self.searched = self.pending.end;
            if self.pending.len() >= MAX_LINE_BYTES {
                self.skips_line = true;
            }
            if self.skips_line {
                self.pending.start = self.pending.end;
            }
            self.make_room();
            before_reading()?;
            if self.read()? == 0 {
                return Ok(NextLogLine::End(self.pending.clone()));
            }
        }
    }

    fn make_room(&mut self) {
        if self.pending.start > 0 {
            self.buffer.copy_within(self.pending.clone(), 0);
            self.pending = 0..self.pending.len();
            self.searched = self.pending.end;
        }
        if self.buffer.len() - self.pending.end < CHUNK_BYTES / 2 {
            let larger = self.buffer.len() * 2;
            self.buffer.resize(larger, 0);
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        loop {
            let room = self.buffer.get_mut(self.pending.end..).unwrap_or_default();
            match self.input.read(room) {
                Ok(count) => {
                    self.pending.end += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns one byte at a time.
    struct OneByteReader<'b>(&'b [u8]);

    impl Read for OneByteReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else {
                return Ok(0);
            };
            buffer[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    /// Returns the lines, the rest, and the number of lines that are too long.
    fn read_all(input: impl Read) -> (Vec<String>, String, usize) {
        let mut reader = LogLineReader::new(input);
        let mut lines = vec![];
        let mut too_long = 0;
        loop {
            match reader.next_line(|| Ok(())).unwrap() {
                NextLogLine::Line(range) => {
                    lines.push(String::from_utf8(reader.bytes(&range).to_vec()).unwrap())
                }
                NextLogLine::TooLong => too_long += 1,
                NextLogLine::End(range) => {
                    let rest = String::from_utf8(reader.bytes(&range).to_vec()).unwrap();
                    return (lines, rest, too_long);
                }
            }
        }
    }

    #[test]
    fn lines_are_complete_however_they_arrive() {
        let text = "a\n\nbb\nccc";
        let expected = (
            ["a", "", "bb"].map(String::from).to_vec(),
            "ccc".to_owned(),
            0,
        );
        assert_eq!(read_all(text.as_bytes()), expected);
        assert_eq!(read_all(OneByteReader(text.as_bytes())), expected);
    }

    #[test]
    fn long_lines_are_complete_and_longer_ones_are_skipped() {
        let long = "x".repeat(3 * CHUNK_BYTES);
        let (lines, rest, skipped) = read_all(format!("a\n{long}\nb\n{long}").as_bytes());
        assert_eq!(
            (lines.len(), lines[1].len(), rest.len(), skipped),
            (3, long.len(), long.len(), 0)
        );
        let input = io::Read::chain(
            &b"a\n"[..],
            io::Read::take(io::repeat(b'x'), 3 * MAX_LINE_BYTES as u64),
        );
        let (lines, rest, skipped) = read_all(io::Read::chain(input, &b"\nb\n"[..]));
        assert_eq!(
            (lines, rest, skipped),
            (vec!["a".to_owned(), "b".to_owned()], String::new(), 1)
        );
    }
}
