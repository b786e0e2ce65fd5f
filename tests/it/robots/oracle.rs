//! Random files against two other parsers: `robotstxt` (a port of Google's) and `robotxt`.
//!
//! The files use what all three parsers read alike. Known deviations, which the generator leaves out:
//! - `robotstxt`: unknown keys, sitemaps among them, end a list of user agents; `index.html` also matches
//!   `/` (here too, not in `robotxt`); no escape is decoded, so `%7E` is not `~`; a `*` whose next
//!   character occurs more than once in the path may fail (`*=ab` in `/=.html=ab`), so stars are left to `robotxt`; `/robots.txt` can be forbidden;
//!   a byte order mark belongs to the first key.
//! - `robotxt`: a pattern that begins with `*` is different; CR alone does not end a line; a token with a suffix (`Foo/1.0`) is another token; digits are part of its tokens, as here, and
//!   not in `robotstxt`'s.
//! - here alone: delimiters after the `?` of a rule equal their escapes.

use crawlgate::robots::{RobotsAccess, RobotsFile};
use fastrand::Rng;
use robotstxt::DefaultMatcher;
use robotxt::Robots;

const FILES: u64 = 4_000;
const AGENTS: [&str; 5] = ["foo", "FooBot", "bar-bot", "Baz_bot", "*"];
const PIECES: [&str; 13] = [
    "a", "b", "ab", "/", "/", "*", "*", "$", "?", "=", ".html", "%3D", "A",
];
const ENDS: [&str; 2] = ["\n", "\r\n"];

fn pattern(rng: &mut Rng) -> String {
    let count = rng.usize(0..7);
    let pieces: Vec<&str> = (0..count)
        .map(|_| PIECES[rng.usize(..PIECES.len())])
        .collect();
    let first = if rng.u8(..10) == 0 { "*" } else { "/" };
    std::iter::once(first).chain(pieces).collect()
}

fn path(rng: &mut Rng) -> String {
    let count = rng.usize(0..8);
    let pieces = (0..count).map(|_| PIECES[rng.usize(..PIECES.len())]);
    let path: String = pieces
        .filter(|piece| *piece != "*" && *piece != "$")
        .collect();
    format!("/{path}")
}

fn line(rng: &mut Rng) -> String {
    match rng.u8(..10) {
        0..=2 => format!(
            "{}: {}",
            ["User-agent", "USER-AGENT"][rng.usize(..2)],
            AGENTS[rng.usize(..5)]
        ),
        3..=5 => format!("Disallow: {}", pattern(rng)),
        6..=7 => format!("  allow :{}  # why", pattern(rng)),
        8 => "Disallow:".to_owned(),
        _ => "# nothing".to_owned(),
    }
}

fn file(rng: &mut Rng) -> String {
    let end = ENDS[rng.usize(..2)];
    let count = rng.usize(0..14);
    (0..count).map(|_| format!("{}{end}", line(rng))).collect()
}

#[test]
fn random_files_are_read_as_others_read_them() {
    let mut asked = 0;
    let mut forbidden = 0;
    for seed in 0..FILES {
        let mut rng = Rng::with_seed(seed);
        let file = file(&mut rng);
        let ours = RobotsFile::parse(file.as_bytes());
        for _ in 0..8 {
            let agent = AGENTS[rng.usize(..4)];
            let path = path(&mut rng);
            let allowed = ours.decide(agent, &path).access == RobotsAccess::Allow;
            let url = format!("http://h.example{path}");
            let google = DefaultMatcher::default().one_agent_allowed_by_robots(&file, agent, &url);
            let stars = file
                .lines()
                .any(|line| line.contains("allow") && line.contains('*'));
            assert!(
                stars || allowed == google,
                "robotstxt, seed {seed}: {agent} {path}\n{file}"
            );
            if !file.contains("allow: *") && !file.contains("allow :*") {
                let other = Robots::parse(file.as_bytes(), agent).is_allowed(&path);
                assert_eq!(
                    allowed, other,
                    "robotxt, seed {seed}: {agent} {path}\n{file}"
                );
            }
            asked += 1;
            forbidden += usize::from(!allowed);
        }
    }
    println!("{asked} questions, {forbidden} of them forbidden");
    assert!(
        forbidden > asked / 20,
        "the files hardly forbid anything: {forbidden} of {asked}"
    );
}

/// The matcher against a simple one: every rule is tried, and `*` at every position.
#[test]
fn the_table_agrees_with_a_linear_search() {
    for seed in 0..FILES {
        let mut rng = Rng::with_seed(seed ^ 0xABCD);
        let count = rng.usize(1..12);
        let patterns: Vec<(bool, String)> = (0..count)
            .map(|_| (rng.bool(), pattern(&mut rng)))
            .collect();
        let lines = patterns.iter().map(|(allow, pattern)| {
            format!("{}: {pattern}\n", if *allow { "Allow" } else { "Disallow" })
        });
        let file = format!("User-agent: *\n{}", lines.collect::<String>());
        let ours = RobotsFile::parse(file.as_bytes());
        for _ in 0..8 {
            let path = path(&mut rng);
            let found = ours.decide("x", &path);
            let best = (patterns.iter().enumerate())
                .filter(|(_, (_, pattern))| matches(pattern.as_bytes(), path.as_bytes()))
                .max_by_key(|(n, (allow, pattern))| (pattern.len(), *allow, std::cmp::Reverse(*n)));
            let line = best.map(|(n, _)| u32::try_from(n).unwrap() + 2);
            assert_eq!(
                found.deciding_line.map(|cause| cause.line),
                line,
                "seed {seed}: {path}\n{file}"
            );
        }
    }
}

fn matches(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => true,
        [b'$'] => path.is_empty(),
        [b'*', rest @ ..] => (0..=path.len()).any(|skipped| matches(rest, &path[skipped..])),
        [byte, rest @ ..] => path.first() == Some(byte) && matches(rest, &path[1..]),
    }
}
