//! A corpus, and inputs derived from it: bytes changed, parts removed, repeated or exchanged, words of the language inserted.

use std::path::Path;

use fastrand::Rng;

/// The longest derived input.
const LONGEST: usize = 4096;

/// Words that random changes would not find.
const WORDS: [&str; 32] = [
    "policy: 1\n",
    "rules:\n",
    "  - { id: a, forbid: ",
    "when: ",
    "unless: ",
    "require: ",
    "match: first",
    "stop: true",
    "then: allow",
    "set: { ",
    "stage: response",
    "mode: shadow",
    "enabled: false",
    "&a ",
    "*a",
    "<<: ",
    "!!",
    "|\n",
    "\u{feff}",
    "\r\n",
    "\"",
    "'",
    "{ ",
    " }",
    "[",
    "]",
    "0x7f",
    "[:9]",
    "(?i)",
    "\\p{L}{9}",
    "%2e",
    "\0",
];

/// The committed inputs of a target, and a source of further ones.
pub(super) struct Corpus {
    inputs: Vec<Vec<u8>>,
    random: Rng,
}

impl Corpus {
    pub(super) fn of(target: &str) -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz/corpus")
            .join(target);
        let files = std::fs::read_dir(&directory)
            .unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        let inputs = paths
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect();
        Self {
            inputs,
            random: Rng::with_seed(0),
        }
    }

    pub(super) fn inputs(&self) -> &[Vec<u8>] {
        &self.inputs
    }

    pub(super) fn seed(&mut self, seed: u64) {
        self.random = Rng::with_seed(seed);
    }

    /// An input that is close to one of the corpus.
    pub(super) fn next(&mut self) -> Vec<u8> {
        let mut input = self
            .random
            .choice(&self.inputs)
            .cloned()
            .unwrap_or_default();
        for _ in 0..self.random.usize(1..6) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.usize(0..=input.len());
        let to = self.random.usize(at..=input.len().min(at + 32));
        match self.random.u32(0..7) {
            0 => {
                input.splice(at..to, []);
            }
            1 => {
                let again = input[at..to].to_vec();
                input.splice(at..at, again);
            }
            2 => input.insert(at, self.random.u8(..)),
            3 => {
                let word = *self.random.choice(&WORDS).unwrap();
                input.splice(at..at, word.bytes());
            }
            4 => {
                let other = self
                    .random
                    .choice(&self.inputs)
                    .cloned()
                    .unwrap_or_default();
                let from = self.random.usize(0..=other.len());
                let until = self.random.usize(from..=other.len().min(from + 64));
                input.splice(at..to, other[from..until].iter().copied());
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.random.u8(..);
                }
            }
        }
    }
}
