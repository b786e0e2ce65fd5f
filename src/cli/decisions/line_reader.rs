//! Lines of any reader, without a copy of each, and without ever holding more than one long line.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

/// A line that is longer is none of the log; it is passed over.
const MAX_LINE_BYTES: usize = 32 << 20;
/// What is read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Reads lines.
#[derive(Debug)]
pub(super) struct LogLineReader<R> {
    input: R,
    buffer: Vec<u8>,
    /// What is in the buffer and was not given out.
    pending: Range<usize>,
    /// How far a line feed was looked for.
    searched: usize,
    skip: SkipLine,
}

/// Whether the rest of a line that is too long is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkipLine {
    No,
    Yes,
}

/// What is next. A range is one of [`LogLineReader::at`], until the next line is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextLogLine {
    /// A line without its line feed.
    Line(Range<usize>),
    /// A line that was too long.
    TooLong,
    /// The input ends here, for now at least; behind these bytes there is no line feed yet.
    End(Range<usize>),
}

impl<R: Read> LogLineReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; CHUNK_BYTES],
            pending: 0..0,
            searched: 0,
            skip: SkipLine::No,
        }
    }

    /// What is read from.
    pub(super) fn input(&mut self) -> &mut R {
        &mut self.input
    }

    /// Forgets what was read and not given out: the input goes on at another place.
    pub(super) fn restart(&mut self) {
        (self.pending, self.searched, self.skip) = (0..0, 0, SkipLine::No);
    }

    /// The bytes of a range that [`Self::next`] gave.
    pub(super) fn bytes(&self, range: &Range<usize>) -> &[u8] {
        self.buffer.get(range.clone()).unwrap_or_default()
    }

    /// The next line. `before_reading` is called before the input is, which may wait.
    ///
    /// # Errors
    /// Those of the input and of `before_reading`.
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
                return Ok(match std::mem::replace(&mut self.skip, SkipLine::No) {
                    SkipLine::No => NextLogLine::Line(line),
                    SkipLine::Yes => NextLogLine::TooLong,
                });
            }
            self.searched = self.pending.end;
            if self.pending.len() >= MAX_LINE_BYTES {
                self.skip = SkipLine::Yes;
            }
            if self.skip == SkipLine::Yes {
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

    /// Gives one byte at a time.
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

    fn all(input: impl Read) -> (Vec<String>, String, usize) {
        let (mut lines, mut whole, mut long) = (LogLineReader::new(input), vec![], 0);
        loop {
            match lines.next_line(|| Ok(())).unwrap() {
                NextLogLine::Line(range) => {
                    whole.push(String::from_utf8(lines.bytes(&range).to_vec()).unwrap())
                }
                NextLogLine::TooLong => long += 1,
                NextLogLine::End(range) => {
                    let rest = String::from_utf8(lines.bytes(&range).to_vec()).unwrap();
                    return (whole, rest, long);
                }
            }
        }
    }

    #[test]
    fn lines_come_whole_however_they_arrive() {
        let text = "a\n\nbb\nccc";
        let expected = (
            ["a", "", "bb"].map(String::from).to_vec(),
            "ccc".to_owned(),
            0,
        );
        assert_eq!(all(text.as_bytes()), expected);
        assert_eq!(all(OneByteReader(text.as_bytes())), expected);
    }

    #[test]
    fn long_lines_are_whole_and_longer_ones_passed_over() {
        let long = "x".repeat(3 * CHUNK_BYTES);
        let (lines, rest, passed) = all(format!("a\n{long}\nb\n{long}").as_bytes());
        assert_eq!(
            (lines.len(), lines[1].len(), rest.len(), passed),
            (3, long.len(), long.len(), 0)
        );
        let input = io::Read::chain(
            &b"a\n"[..],
            io::Read::take(io::repeat(b'x'), 3 * MAX_LINE_BYTES as u64),
        );
        let (lines, rest, passed) = all(io::Read::chain(input, &b"\nb\n"[..]));
        assert_eq!(
            (lines, rest, passed),
            (vec!["a".to_owned(), "b".to_owned()], String::new(), 1)
        );
    }
}
