//! Expressions of the Brics automaton library: the places at which each part can end.

use std::collections::BTreeSet;

const MAX_DEPTH: usize = 60;
/// The steps after which a comparison gives up.
const MAX_STEPS: usize = 300_000;

/// A part of an expression.
enum ReferencePart {
    Empty,
    Nothing,
    Any,
    Anything,
    Char(char),
    Class(bool, Vec<(char, char)>),
    Sequence(Vec<ReferencePart>),
    Or(Vec<ReferencePart>),
    And(Vec<ReferencePart>),
    Not(Box<ReferencePart>),
    Repeat(Box<ReferencePart>, usize, Option<usize>),
    /// Numbers with a fixed number of digits.
    Interval(u64, u64, usize),
}

pub(super) struct Automaton(ReferencePart);

impl Automaton {
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let mut reader = ReferenceReader {
            text: text.chars().collect(),
            at: 0,
            depth: 0,
        };
        let part = reader.or()?;
        if reader.at < reader.text.len() {
            return Err("an unmatched `)`".to_owned());
        }
        Ok(Self(part))
    }

    pub(super) fn is_match(&self, text: &str) -> Option<bool> {
        let text: Vec<char> = text.chars().collect();
        let mut steps = 0;
        let ends = ends(&self.0, &text, 0, &mut steps)?;
        Some(ends.contains(&text.len()))
    }
}

/// Returns the places at which a part that begins at a place can end.
fn ends(
    part: &ReferencePart,
    text: &[char],
    from: usize,
    steps: &mut usize,
) -> Option<BTreeSet<usize>> {
    *steps += 1;
    if *steps > MAX_STEPS {
        return None;
    }
    let one = |fits: bool| fits.then_some(from + 1).into_iter().collect();
    let next = text.get(from).copied();
    Some(match part {
        ReferencePart::Empty => BTreeSet::from([from]),
        ReferencePart::Nothing => BTreeSet::new(),
        ReferencePart::Any => one(next.is_some()),
        ReferencePart::Anything => (from..=text.len()).collect(),
        ReferencePart::Char(c) => one(next == Some(*c)),
        ReferencePart::Class(negated, ranges) => one(next.is_some_and(|c| {
            ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
        })),
        ReferencePart::Sequence(parts) => {
            let mut places = BTreeSet::from([from]);
            for part in parts {
                places = all_ends(part, text, &places, steps)?;
            }
            places
        }
        ReferencePart::Or(parts) => {
            let mut places = BTreeSet::new();
            for part in parts {
                places.extend(ends(part, text, from, steps)?);
            }
            places
        }
        ReferencePart::And(parts) => {
            let mut places: BTreeSet<usize> = (from..=text.len()).collect();
            for part in parts {
                let found = ends(part, text, from, steps)?;
                places.retain(|place| found.contains(place));
            }
            places
        }
        ReferencePart::Not(part) => {
            let found = ends(part, text, from, steps)?;
            (from..=text.len())
                .filter(|place| !found.contains(place))
                .collect()
        }
        ReferencePart::Repeat(part, min, max) => {
            repeat_ends(part, (*min, *max), text, from, steps)?
        }
        ReferencePart::Interval(low, high, digits) => {
            let number: String = text.iter().skip(from).take(*digits).collect();
            let is_number = number.len() == *digits && number.bytes().all(|b| b.is_ascii_digit());
            let value: Option<u64> = number.parse().ok().filter(|_| is_number);
            let fits = value.is_some_and(|value| (*low..=*high).contains(&value));
            fits.then_some(from + digits).into_iter().collect()
        }
    })
}

fn all_ends(
    part: &ReferencePart,
    text: &[char],
    from: &BTreeSet<usize>,
    steps: &mut usize,
) -> Option<BTreeSet<usize>> {
    let mut places = BTreeSet::new();
    for place in from {
        places.extend(ends(part, text, *place, steps)?);
    }
    Some(places)
}

fn repeat_ends(
    part: &ReferencePart,
    (min, max): (usize, Option<usize>),
    text: &[char],
    from: usize,
    steps: &mut usize,
) -> Option<BTreeSet<usize>> {
    let mut places = BTreeSet::from([from]);
    for _ in 0..min {
        places = all_ends(part, text, &places, steps)?;
    }
    let mut found = places.clone();
    let mut count = min;
    while !places.is_empty() && max.is_none_or(|max| count < max) {
        places = all_ends(part, text, &places, steps)?;
        places.retain(|place| found.insert(*place));
        count += 1;
    }
    Some(found)
}

struct ReferenceReader {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

impl ReferenceReader {
    fn peek(&self) -> Option<char> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self) -> Result<char, String> {
        let c = self.peek().ok_or("something is missing at the end")?;
        self.at += 1;
        Ok(c)
    }

    fn take_if(&mut self, c: char) -> bool {
        let is_next = self.peek() == Some(c);
        self.at += usize::from(is_next);
        is_next
    }

    fn until(&mut self, end: char) -> Result<String, String> {
        let mut text = String::new();
        loop {
            match self.take()? {
                c if c == end => return Ok(text),
                c => text.push(c),
            }
        }
    }

    fn or(&mut self) -> Result<ReferencePart, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("too deep".to_owned());
        }
        let mut parts = vec![self.and()?];
        while self.take_if('|') {
            parts.push(self.and()?);
        }
        self.depth -= 1;
        Ok(ReferencePart::Or(parts))
    }

    fn and(&mut self) -> Result<ReferencePart, String> {
        let mut parts = vec![self.sequence()?];
        while self.take_if('&') {
            parts.push(self.sequence()?);
        }
        Ok(ReferencePart::And(parts))
    }

    fn sequence(&mut self) -> Result<ReferencePart, String> {
        let mut parts = vec![self.repeat()?];
        while !matches!(self.peek(), None | Some('|' | '&' | ')')) {
            parts.push(self.repeat()?);
        }
        Ok(ReferencePart::Sequence(parts))
    }

    fn repeat(&mut self) -> Result<ReferencePart, String> {
        let mut part = self.not()?;
        loop {
            let (min, max) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.at += 1;
                    let count = self.until('}')?;
                    let number = |text: &str| text.parse().map_err(|_| "not a number".to_owned());
                    self.at -= 1;
                    match count.split_once(',') {
                        None => (number(&count)?, Some(number(&count)?)),
                        Some((min, "")) => (number(min)?, None),
                        Some((min, max)) => (number(min)?, Some(number(max)?)),
                    }
                }
                _ => return Ok(part),
            };
            self.at += 1;
            part = ReferencePart::Repeat(Box::new(part), min, max);
        }
    }

    fn not(&mut self) -> Result<ReferencePart, String> {
        let mut is_not = false;
        while self.take_if('~') {
            is_not = !is_not;
        }
        let part = self.simple()?;
        Ok(if is_not {
            ReferencePart::Not(Box::new(part))
        } else {
            part
        })
    }

    fn simple(&mut self) -> Result<ReferencePart, String> {
        Ok(match self.take()? {
            '[' => self.class()?,
            '.' => ReferencePart::Any,
            '#' => ReferencePart::Nothing,
            '@' => ReferencePart::Anything,
            '"' => {
                ReferencePart::Sequence(self.until('"')?.chars().map(ReferencePart::Char).collect())
            }
            '(' if self.take_if(')') => ReferencePart::Empty,
            '(' => {
                let part = self.or()?;
                if !self.take_if(')') {
                    return Err("a group that is not closed".to_owned());
                }
                part
            }
            '<' => {
                let text = self.until('>')?;
                let (low, high) = text.split_once('-').ok_or("a named automaton")?;
                if low.len() != high.len() {
                    return Err("an interval of numbers without a fixed length".to_owned());
                }
                let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
                ReferencePart::Interval(number(low)?, number(high)?, low.len())
            }
            '\\' => ReferencePart::Char(self.take()?),
            c => ReferencePart::Char(c),
        })
    }

    fn class(&mut self) -> Result<ReferencePart, String> {
        let negated = self.take_if('^');
        let mut ranges = Vec::new();
        loop {
            let low = self.class_char()?;
            if self.take_if('-') {
                if self.peek() == Some(']') {
                    ranges.push((low, low));
                    ranges.push(('-', '-'));
                } else {
                    ranges.push((low, self.class_char()?));
                }
            } else {
                ranges.push((low, low));
            }
            if self.take_if(']') {
                return Ok(ReferencePart::Class(negated, ranges));
            }
        }
    }

    fn class_char(&mut self) -> Result<char, String> {
        self.take_if('\\');
        self.take()
    }
}
