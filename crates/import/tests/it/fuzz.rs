//! The fuzz targets of the importers, on stable Rust: sources made from those in `tests/import`.
//!
//! `CRAWLGATE_FUZZ_SECONDS` sets the time of each target, `CRAWLGATE_FUZZ_SEED` another seed. A failing input is printed
//! and written to a file that `cargo fuzz` accepts.

mod import_expression;
mod import_source;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::support::{processor_time, sources};

/// The default seed; it makes the result depend on the code alone.
const SEED: u64 = 20_261_124;
/// The time of each target.
const SECONDS: u64 = 1;
/// The longest time for one input, in an unoptimised build: of the processor, so that a busy machine changes nothing.
const HANGS: Duration = Duration::from_secs(60);
/// The longest derived input.
const LONGEST: usize = 4096;

/// Words that random changes would not find.
const WORDS: [&str; 40] = [
    "<",
    "/>",
    "</",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "&amp;",
    "&#0;",
    "\"",
    "'",
    "*",
    "^",
    "$",
    "||",
    "@@",
    "#",
    "##",
    "(?i)",
    "(?!",
    "\\1",
    "\\Q",
    "[^",
    "{2}",
    "(a+)+",
    "\r\n",
    "\u{feff}",
    "\u{e9}",
    "%2e",
    "include ",
    "\\\n",
    "- ",
    "&a ",
    "*a",
    ": ",
    "[",
    "{",
    "${",
    "#parse(\"",
    "99999999999999999999",
];

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a target with inputs, then with others that are derived from them.
fn fuzz(target: &str, inputs: &[Vec<u8>], run: fn(&[u8])) {
    let seed = variable("CRAWLGATE_FUZZ_SEED").unwrap_or(SEED);
    let time = Duration::from_secs(variable("CRAWLGATE_FUZZ_SECONDS").unwrap_or(SECONDS));
    assert!(inputs.len() > 5, "{target} has no inputs");
    let mut random = Rng::with_seed(seed);
    let begin = Instant::now();
    let mut made = 0_u64;
    while made == 0 || begin.elapsed() < time {
        let mut input = random.choice(inputs).cloned().unwrap_or_default();
        input.truncate(LONGEST);
        for _ in 0..random.usize(1..6) {
            change(&mut random, inputs, &mut input);
        }
        one(target, run, &input);
        made += 1;
    }
    println!("{target}: {made} generated inputs, CRAWLGATE_FUZZ_SEED={seed}");
}

/// Changes, removes, repeats or inserts bytes.
fn change(random: &mut Rng, inputs: &[Vec<u8>], input: &mut Vec<u8>) {
    let at = random.usize(0..=input.len());
    let to = random.usize(at..=input.len().min(at + 32));
    match random.u32(0..7) {
        0 => drop(input.splice(at..to, [])),
        1 => {
            let again = input[at..to].to_vec();
            input.splice(at..at, again);
        }
        2 => input.insert(at, random.u8(..)),
        3 | 4 => {
            let word = WORDS[random.usize(..WORDS.len())];
            input.splice(at..at, word.bytes());
        }
        5 => {
            let other = &inputs[random.usize(..inputs.len())];
            let from = random.usize(0..=other.len());
            let until = random.usize(from..=other.len().min(from + 64));
            input.splice(at..to, other[from..until].iter().copied());
        }
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.u8(..);
            }
        }
    }
}

fn one(target: &str, run: fn(&[u8]), input: &[u8]) {
    let begin = processor_time();
    let outcome = catch_unwind(AssertUnwindSafe(|| run(input)));
    let time = processor_time().saturating_sub(begin);
    let hangs = time > HANGS;
    if outcome.is_err() || hangs {
        let file = std::env::temp_dir().join(format!("crawlgate-fuzz-{target}"));
        let _ = fs::write(&file, input);
        eprintln!(
            "{target} failed on {}: {}",
            file.display(),
            input.escape_ascii()
        );
    }
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
    assert!(!hangs, "{target} took {time:?}");
}

/// Returns the files of the sources whose names have one of the ends, each after the byte of its system.
fn files(ends: &[&str]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for (system, path) in sources() {
        let entries = fs::read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = entries.filter(|path| path.is_file()).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap().to_str().unwrap();
            if ends.iter().any(|end| name.ends_with(end)) && name != "command" {
                let mut input = vec![import_source::system_byte(system)];
                input.extend(fs::read(&path).unwrap());
                found.push(input);
            }
        }
    }
    found
}

#[test]
fn rule_files() {
    fuzz(
        "import_source",
        &files(&[".txt", ".rules", ".conf", "rc", ".sh", "hosts"]),
        import_source::run,
    );
}

#[test]
fn documents() {
    fuzz(
        "import_source",
        &files(&["xml", ".json", ".yaml", ".py"]),
        import_source::run,
    );
}

#[test]
fn expressions() {
    let texts = [
        "\\.(gif|jpg)$",
        "^https?://([a-z0-9]*\\.)*example\\.com/",
        "^(?!/private)/.*",
        "(?i)/a/b",
        "/a{2,3}b+?",
        "[^/]+/[\\w-]*",
        ".*(/[^/]+)/[^/]+\\1/[^/]+\\1/",
        "\\Q/a?b\\E.*",
        "(?>a|ab)c",
        "a(?=/b)/b",
        "/(?<name>a|b)/x",
        "(a|b&&c)~d",
    ];
    let inputs = (0..84).map(|number: u8| {
        let mut input = vec![number % 7, number / 7];
        input.extend(texts[usize::from(number / 7)].bytes());
        input.extend(b"\0/a/b/private/abc");
        input
    });
    fuzz(
        "import_expression",
        &inputs.collect::<Vec<_>>(),
        import_expression::run,
    );
}
