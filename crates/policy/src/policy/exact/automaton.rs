//! Automata that read a text byte by byte and decide whether it passes a test.

use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton as _;
use aho_corasick::nfa::contiguous::NFA as LiteralNfa;
use regex_automata::MatchKind;
use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look, Repetition};

use crate::policy::pattern::{CaseSensitivity, Ranges};

/// The maximum size of an automaton, in bytes.
const SIZE_LIMIT: usize = 16 << 20;
/// Bytes that UTF-8 does not use: the beginning and the end of the text in literals.
const TEXT_START: u8 = 0xfe;
const TEXT_END: u8 = 0xff;

/// The result of reading a part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Progress {
    /// The rest of the text does not matter.
    Decided(bool),
    /// The state of the automaton.
    State(u32),
}

/// An automaton for the texts that pass a test.
#[derive(Debug)]
pub(super) enum TextAutomaton {
    Expression(Box<dense::DFA<Vec<u32>>>),
    Literals(Box<LiteralSet>),
    Count(PartCounter),
}

/// Literals, each with the place at which it must be found.
#[derive(Debug)]
pub(super) struct LiteralSet {
    nfa: LiteralNfa,
    root: u32,
    /// `true` if all literals begin at the start of the text.
    is_anchored: bool,
    /// The bytes in the literals, in both cases if the case does not matter.
    bytes: Vec<u8>,
}

/// The place at which a literal must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiteralPlace {
    Whole,
    Start,
    End,
    Anywhere,
    /// The whole text, or its end after a dot.
    Domain,
    /// The end of the text after a dot.
    Extension,
    /// The whole text, or its start before a slash.
    Directory,
}

impl LiteralPlace {
    /// Returns the forms of a literal with the marks for the ends of the text.
    fn forms(self, text: &str) -> Vec<Vec<u8>> {
        let text = text.as_bytes();
        let whole = || [&[TEXT_START], text, &[TEXT_END]].concat();
        let after_dot = || [b".", text, &[TEXT_END]].concat();
        match self {
            Self::Whole => vec![whole()],
            Self::Start => vec![[&[TEXT_START], text].concat()],
            Self::End => vec![[text, &[TEXT_END]].concat()],
            Self::Anywhere => vec![text.to_owned()],
            Self::Domain => vec![whole(), after_dot()],
            Self::Extension => vec![after_dot()],
            Self::Directory => vec![whole(), [&[TEXT_START], text, b"/"].concat()],
        }
    }

    fn is_anchored(self) -> bool {
        match self {
            Self::Whole | Self::Start | Self::Directory => true,
            Self::End | Self::Anywhere | Self::Domain | Self::Extension => false,
        }
    }
}

/// Counts the parts of a text, up to the last number that matters.
#[derive(Debug)]
pub(super) struct PartCounter {
    ranges: Ranges,
    /// The separator of the parts; `None` to count bytes.
    separator: Option<u8>,
    /// Larger numbers are equivalent to this one.
    cap: u64,
}

/// The largest number that is counted.
const MAX_COUNT: u64 = 20_000;

impl TextAutomaton {
    /// Creates an automaton for an expression that is searched in texts of ASCII characters.
    /// The error is the reason why it cannot be built.
    pub(super) fn from_expression(
        pattern: &str,
        case: CaseSensitivity,
        alphabet: Alphabet,
    ) -> Result<Self, &'static str> {
        let hir = parse(pattern, case)?;
        let hir = match alphabet {
            Alphabet::Ascii => to_ascii(&hir),
            Alphabet::Unicode => hir,
        };
        Self::from_hir(&hir)
    }

    fn from_hir(hir: &Hir) -> Result<Self, &'static str> {
        const TOO_LARGE: &str = "the automaton of an expression is too large";
        let nfa = thompson::Compiler::new()
            .configure(
                thompson::Config::new()
                    .utf8(false)
                    .which_captures(thompson::WhichCaptures::None)
                    .nfa_size_limit(Some(SIZE_LIMIT)),
            )
            .build_from_hir(hir)
            .map_err(|_| TOO_LARGE)?;
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Unanchored)
            .accelerate(false)
            .determinize_size_limit(Some(SIZE_LIMIT))
            .dfa_size_limit(Some(SIZE_LIMIT));
        let dfa = dense::Builder::new()
            .configure(config)
            .build_from_nfa(&nfa)
            .map_err(|_| TOO_LARGE)?;
        Ok(Self::Expression(Box::new(dfa)))
    }

    /// Creates an automaton for texts with one of the literals.
    pub(super) fn from_literals<'a>(
        literals: impl IntoIterator<Item = (&'a str, LiteralPlace)>,
        case: CaseSensitivity,
    ) -> Result<Self, &'static str> {
        let mut patterns = Vec::new();
        let mut is_anchored = true;
        for (text, place) in literals {
            is_anchored &= place.is_anchored();
            patterns.extend(place.forms(text));
        }
        let folds = case == CaseSensitivity::Insensitive;
        let nfa = LiteralNfa::builder()
            .ascii_case_insensitive(folds)
            .build(&patterns)
            .map_err(|_| "there are too many values")?;
        let root = nfa
            .start_state(Anchored::No)
            .map_or(0, |state| state.as_u32());
        let mut bytes: Vec<u8> = patterns.iter().flatten().copied().collect();
        if folds {
            let other = |byte: &u8| match byte.is_ascii_lowercase() {
                true => byte.to_ascii_uppercase(),
                false => byte.to_ascii_lowercase(),
            };
            let others: Vec<u8> = bytes.iter().map(other).collect();
            bytes.extend(others);
        }
        bytes.sort_unstable();
        bytes.dedup();
        Ok(Self::Literals(Box::new(LiteralSet {
            nfa,
            root,
            is_anchored,
            bytes,
        })))
    }

    /// Creates an automaton that counts the non-empty parts between separators, or all bytes.
    pub(super) fn from_count(ranges: &Ranges, separator: Option<u8>) -> Result<Self, &'static str> {
        let ends = ranges
            .0
            .iter()
            .flat_map(|(from, to)| [*from, if *to == u64::MAX { 0 } else { *to }]);
        let cap = ends.max().unwrap_or(0).saturating_add(1);
        if cap > MAX_COUNT {
            return Err("a count has too many values");
        }
        Ok(Self::Count(PartCounter {
            ranges: ranges.clone(),
            separator,
            cap,
        }))
    }

    /// The number of transitions, or an estimate.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Expression(dfa) => dfa.memory_usage() / size_of::<u32>(),
            Self::Literals(set) => set.nfa.memory_usage() / size_of::<u32>(),
            Self::Count(_) => 0,
        }
    }

    /// The state before the first byte.
    pub(super) fn start(&self) -> Progress {
        match self {
            Self::Expression(dfa) => dfa
                .start_state(&start::Config::new())
                .map_or(Progress::Decided(false), |state| {
                    Progress::State(state.as_u32())
                }),
            Self::Literals(set) => match set.step(set.root, TEXT_START) {
                // After the start, the root is not yet a dead end.
                Progress::Decided(false) => Progress::State(set.root),
                progress @ (Progress::Decided(true) | Progress::State(_)) => progress,
            },
            Self::Count(_) => Progress::State(0),
        }
    }

    /// The state after a byte.
    pub(super) fn step(&self, state: u32, byte: u8) -> Progress {
        match self {
            Self::Expression(dfa) => {
                let next = dfa.next_state(dfa_state(state), byte);
                if dfa.is_match_state(next) {
                    Progress::Decided(true)
                } else if dfa.is_dead_state(next) || dfa.is_quit_state(next) {
                    Progress::Decided(false)
                } else {
                    Progress::State(next.as_u32())
                }
            }
            Self::Literals(set) => set.step(state, byte),
            Self::Count(counter) => Progress::State(counter.step(state, byte)),
        }
    }

    /// The result at the end of the text.
    pub(super) fn finish(&self, state: u32) -> bool {
        match self {
            Self::Expression(dfa) => dfa.is_match_state(dfa.next_eoi_state(dfa_state(state))),
            Self::Literals(set) => set.step(state, TEXT_END) == Progress::Decided(true),
            Self::Count(counter) => counter.ranges.contains(counter.count(state)),
        }
    }

    /// Returns `true` if a whole text passes.
    pub(super) fn accepts(&self, text: &str) -> bool {
        let mut progress = self.start();
        for byte in text.bytes() {
            progress = match progress {
                Progress::Decided(result) => return result,
                Progress::State(state) => self.step(state, byte),
            };
        }
        match progress {
            Progress::Decided(result) => result,
            Progress::State(state) => self.finish(state),
        }
    }

    /// Returns a number for each byte; the automaton does not distinguish bytes with equal numbers.
    pub(super) fn byte_class(&self, byte: u8) -> u16 {
        match self {
            Self::Expression(dfa) => u16::from(dfa.byte_classes().get(byte)),
            Self::Literals(set) => match set.bytes.binary_search(&byte) {
                Ok(_) => u16::from(byte),
                Err(_) => u16::MAX,
            },
            Self::Count(counter) => u16::from(counter.separator == Some(byte)),
        }
    }
}

fn dfa_state(state: u32) -> StateID {
    StateID::new(state as usize).unwrap_or_default()
}

impl LiteralSet {
    fn step(&self, state: u32, byte: u8) -> Progress {
        let state = aho_corasick::automaton::StateID::new(state as usize).unwrap_or_default();
        let next = self.nfa.next_state(Anchored::No, state, byte);
        if self.nfa.is_match(next) || self.nfa.is_match(state) {
            Progress::Decided(true)
        } else if self.is_anchored && next.as_u32() == self.root {
            Progress::Decided(false)
        } else {
            Progress::State(next.as_u32())
        }
    }
}

/// The state is the number of complete and begun parts, times two; plus one inside a part.
impl PartCounter {
    fn step(&self, state: u32, byte: u8) -> u32 {
        let inside = state & 1 == 1;
        let begins = match self.separator {
            None => true,
            Some(separator) if byte == separator => return state & !1,
            Some(_) => !inside,
        };
        let count = self.count(state) + u64::from(begins);
        let count = u32::try_from(count.min(self.cap)).unwrap_or(u32::MAX >> 1);
        count << 1 | u32::from(self.separator.is_some())
    }

    fn count(&self, state: u32) -> u64 {
        u64::from(state >> 1)
    }
}

/// The characters of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alphabet {
    /// The field is a part of a URL.
    Ascii,
    Unicode,
}

pub(super) fn parse(pattern: &str, case: CaseSensitivity) -> Result<Hir, &'static str> {
    regex_syntax::ParserBuilder::new()
        .case_insensitive(case == CaseSensitivity::Insensitive)
        .build()
        .parse(pattern)
        .map_err(|_| "an expression cannot be parsed")
}

/// Restricts an expression to texts of ASCII characters.
pub(super) fn to_ascii(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.is_ascii() => Hir::literal(literal.0.clone()),
        HirKind::Literal(_) => Hir::fail(),
        HirKind::Class(class) => ascii_class(class),
        HirKind::Look(look) => Hir::look(ascii_look(*look)),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(to_ascii(&repetition.sub)),
            ..repetition.clone()
        }),
        HirKind::Capture(capture) => to_ascii(&capture.sub),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(to_ascii).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(to_ascii).collect()),
    }
}

fn ascii_class(class: &Class) -> Hir {
    let ascii = ClassUnicode::new([ClassUnicodeRange::new('\0', '\x7f')]);
    let bytes = match class {
        Class::Unicode(class) => {
            let mut class = class.clone();
            class.intersect(&ascii);
            class.to_byte_class()
        }
        Class::Bytes(class) => Some(class.clone()),
    };
    bytes.map_or_else(Hir::fail, |bytes| Hir::class(Class::Bytes(bytes)))
}

fn ascii_look(look: Look) -> Look {
    match look {
        Look::WordUnicode => Look::WordAscii,
        Look::WordUnicodeNegate => Look::WordAsciiNegate,
        Look::WordStartUnicode => Look::WordStartAscii,
        Look::WordEndUnicode => Look::WordEndAscii,
        Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
        Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
        Look::Start
        | Look::End
        | Look::StartLF
        | Look::EndLF
        | Look::StartCRLF
        | Look::EndCRLF
        | Look::WordAscii
        | Look::WordAsciiNegate
        | Look::WordStartAscii
        | Look::WordEndAscii
        | Look::WordStartHalfAscii
        | Look::WordEndHalfAscii => look,
    }
}
