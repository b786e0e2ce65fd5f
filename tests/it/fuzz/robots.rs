//! A robots.txt, and after a NUL a path: the file is read and decides about the path, and its extensions do not change
//! that. The same bytes are read as a line of `X-Robots-Tag` and as a statement on uses.

use std::collections::BTreeSet;

use crawlgate::robots::RobotsFile;
use crawlgate::robots::extension::{ExtensionKind, MAX_LINES};
use crawlgate::robots::robots_tag::{
    append_directives, directive_groups, forbids_index, split_directives,
};
use crawlgate::robots::usage::{MAX_MEMBERS, UsagePreference, UsageSyntax, parse_statement};

const AGENTS: [&str; 3] = ["a", "bot", "x"];

/// The fuzz target `robots`.
pub(crate) fn run(input: &[u8]) {
    let (file, path) = match input.iter().position(|byte| *byte == 0) {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &b"a"[..]),
    };
    let path = format!("/{}", String::from_utf8_lossy(path));
    let parsed = RobotsFile::parse(file);
    assert!(
        parsed.memory_size() <= 4096 + 80 * file.len(),
        "{} bytes of {}",
        parsed.memory_size(),
        file.len()
    );
    let bare = RobotsFile::parse(&without_extensions(file));
    for agent in AGENTS {
        let with = parsed.decide(agent, &path);
        let without = bare.decide(agent, &path);
        assert_eq!(with.access, without.access, "{agent} {path}");
        assert_eq!(with.deciding_line, without.deciding_line, "{agent} {path}");
        uses(&parsed, agent, &path);
    }
    lines(&parsed, file);
    let text = String::from_utf8_lossy(file);
    tags(&text);
    statements(&text);
}

/// The file with a comment in place of each line of other keys, so that line numbers stay the same: an empty line would join
/// a CR before it and its LF.
fn without_extensions(file: &[u8]) -> Vec<u8> {
    fn begins(line: &[u8]) -> bool {
        let line = line.trim_ascii().to_ascii_lowercase();
        let keys: [&[u8]; 4] = [b"content", b"visit", b"clean", b"host"];
        keys.iter().any(|key| line.starts_with(key))
    }
    let lines = file.split_inclusive(|byte| matches!(byte, b'\r' | b'\n'));
    lines
        .flat_map(|line: &[u8]| {
            if begins(line) {
                let ends = line.iter().copied().filter(|b| matches!(b, b'\r' | b'\n'));
                std::iter::once(b'#').chain(ends).collect()
            } else {
                line.to_vec()
            }
        })
        .collect()
}

fn uses(parsed: &RobotsFile, agent: &str, path: &str) {
    let stated = parsed.usage_rules(agent, path);
    let names: BTreeSet<_> = stated.iter().map(|stated| &stated.purpose).collect();
    assert_eq!(names.len(), stated.len(), "each use once");
    assert!(stated.is_sorted_by_key(|stated| stated.line) && stated.len() <= 64);
    assert!(stated.is_empty() || parsed.has_usage_lines());
    let named = parsed.usage_rules_for(agent, path, names.iter().map(|name| &***name));
    for output in &stated {
        let same = named
            .iter()
            .find(|named| named.purpose == output.purpose)
            .map(|named| named.preference);
        assert!(
            output.preference <= same.unwrap_or(UsagePreference::Unset),
            "{output:?}, {same:?}"
        );
    }
}

fn lines(parsed: &RobotsFile, file: &[u8]) {
    let kinds = [
        ExtensionKind::ContentUsage,
        ExtensionKind::ContentSignal,
        ExtensionKind::VisitTime,
        ExtensionKind::CleanParam,
        ExtensionKind::Host,
        ExtensionKind::License,
    ];
    let kept: usize = kinds
        .iter()
        .map(|kind| parsed.extension_lines(*kind).len())
        .sum();
    assert!(kept <= 2 * MAX_LINES && kept as u32 <= parsed.directives());
    assert!(parsed.text().len() <= file.len());
    let license = parsed.license();
    assert!(license.is_none_or(|url| url.len() <= 2048 && url.contains("://")));
}

fn tags(line: &str) {
    for run in directive_groups(line) {
        assert!(!run.directives.is_empty(), "{run:?}");
        assert!(run.source.ends_with(run.directives), "{run:?}");
        assert!(
            split_directives(run.directives)
                .all(|member| !member.is_empty() && member == member.trim()),
            "{run:?}"
        );
    }
    let mut all = String::new();
    let mut none = String::new();
    append_directives(&mut all, &format!("noindex, {line}"), "bot");
    append_directives(&mut none, line, "nobody-goes-by-this");
    assert!(forbids_index(&all), "{line:?}");
    assert!(none.len() <= 2 * line.len() + 2, "{line:?}");
}

fn statements(text: &str) {
    let usage = parse_statement(UsageSyntax::ContentUsage, text);
    let signal = parse_statement(UsageSyntax::ContentSignal, text);
    assert!(usage.len() <= MAX_MEMBERS && usage.len() == signal.len());
    for ((name, last), (same, strictest)) in usage.iter().zip(&signal) {
        assert!(name == same && last <= strictest, "{text:?}");
    }
}
