//! A robots.txt, and behind a NUL a path: the file is read, answers about the path, and what it says beyond the standard
//! changes none of that. The same bytes are read as a line of `X-Robots-Tag` and as a statement on uses.

use std::collections::BTreeSet;

use crawlgate::robots::Parsed;
use crawlgate::robots::extension::{Extension, MAX_LINES};
use crawlgate::robots::tag::{add_words, forbids_index, members, runs};
use crawlgate::robots::usage::{MAX_MEMBERS, Preference, Spelling, statement};

const AGENTS: [&str; 3] = ["a", "bot", "x"];

/// The fuzz target `robots`.
pub(crate) fn run(input: &[u8]) {
    let (file, path) = match input.iter().position(|byte| *byte == 0) {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &b"a"[..]),
    };
    let path = format!("/{}", String::from_utf8_lossy(path));
    let parsed = Parsed::new(file);
    assert!(
        parsed.bytes() <= 4096 + 80 * file.len(),
        "{} bytes of {}",
        parsed.bytes(),
        file.len()
    );
    let bare = Parsed::new(&without_extensions(file));
    for agent in AGENTS {
        let (with, without) = (parsed.ruling(agent, &path), bare.ruling(agent, &path));
        assert_eq!(
            (with.access, with.cause),
            (without.access, without.cause),
            "{agent} {path}"
        );
        uses(&parsed, agent, &path);
    }
    lines(&parsed, file);
    let text = String::from_utf8_lossy(file);
    tags(&text);
    statements(&text);
}

/// The file with a mere comment for each line of other keys, so that the others keep their numbers: an empty one would make
/// one end of line of a CR before it and its LF.
fn without_extensions(file: &[u8]) -> Vec<u8> {
    let begins = |line: &[u8]| {
        let line = line.trim_ascii().to_ascii_lowercase();
        let keys: [&[u8]; 4] = [b"content", b"visit", b"clean", b"host"];
        keys.iter().any(|key| line.starts_with(key))
    };
    let lines = file.split_inclusive(|byte| matches!(byte, b'\r' | b'\n'));
    let bare = |line: &[u8]| {
        if begins(line) {
            let ends = line.iter().copied().filter(|b| matches!(b, b'\r' | b'\n'));
            std::iter::once(b'#').chain(ends).collect()
        } else {
            line.to_vec()
        }
    };
    lines.flat_map(bare).collect()
}

fn uses(parsed: &Parsed, agent: &str, path: &str) {
    let stated = parsed.usage(agent, path);
    let names: BTreeSet<_> = stated.iter().map(|stated| &stated.purpose).collect();
    assert_eq!(names.len(), stated.len(), "each use once");
    assert!(stated.is_sorted_by_key(|stated| stated.line) && stated.len() <= 64);
    assert!(stated.is_empty() || parsed.speaks_of_uses());
    let named = parsed.usage_of(agent, path, names.iter().map(|name| &***name));
    for said in &stated {
        let same = named
            .iter()
            .find(|named| named.purpose == said.purpose)
            .map(|named| named.preference);
        assert!(
            said.preference <= same.unwrap_or(Preference::Unset),
            "{said:?}, {same:?}"
        );
    }
}

fn lines(parsed: &Parsed, file: &[u8]) {
    let kinds = [
        Extension::Usage,
        Extension::Signal,
        Extension::VisitTime,
        Extension::CleanParam,
        Extension::Host,
    ];
    let kept: usize = kinds.iter().map(|kind| parsed.lines_of(*kind).len()).sum();
    assert!(kept <= 2 * MAX_LINES && kept as u32 <= parsed.directives());
    assert!(parsed.text().len() <= file.len());
}

fn tags(line: &str) {
    for run in runs(line) {
        assert!(
            !run.words.is_empty() && run.whole.ends_with(run.words),
            "{run:?}"
        );
        assert!(
            members(run.words).all(|member| !member.is_empty() && member == member.trim()),
            "{run:?}"
        );
    }
    let (mut all, mut none) = (String::new(), String::new());
    add_words(&mut all, &format!("noindex, {line}"), "bot");
    add_words(&mut none, line, "nobody-goes-by-this");
    assert!(
        forbids_index(&all) && none.len() <= 2 * line.len() + 2,
        "{line:?}"
    );
}

fn statements(text: &str) {
    let (usage, signal) = (
        statement(Spelling::Usage, text),
        statement(Spelling::Signal, text),
    );
    assert!(usage.len() <= MAX_MEMBERS && usage.len() == signal.len());
    for ((name, last), (same, strictest)) in usage.iter().zip(&signal) {
        assert!(name == same && last <= strictest, "{text:?}");
    }
}
