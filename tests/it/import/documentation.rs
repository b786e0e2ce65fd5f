//! The examples of the pages on importing are what the importer writes.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::support::command::crawlgate;

/// An example of a page: a directory of `tests/import`, and the blocks after the place that names it.
struct PageExample {
    place: String,
    source: PathBuf,
    blocks: Vec<String>,
}

/// Returns the examples of a page. A heading ends one.
fn examples(page: &Path) -> Vec<PageExample> {
    let source = Regex::new(r"tests/import/[a-z]+/[a-z0-9-]+").unwrap();
    let text = fs::read_to_string(page).unwrap();
    let mut examples: Vec<PageExample> = vec![];
    let mut is_example = false;
    let mut block: Option<String> = None;
    for (line, number) in text.lines().zip(1..) {
        match (&mut block, line.starts_with("```")) {
            (Some(_), true) => {
                let block = block.take().unwrap();
                if is_example {
                    examples.last_mut().unwrap().blocks.push(block);
                }
            }
            (Some(block), false) => *block += &format!("{line}\n"),
            (None, true) => block = Some(String::new()),
            (None, false) if line.starts_with('#') => is_example = false,
            (None, false) => {
                if let Some(found) = source.find(line) {
                    is_example = true;
                    examples.push(PageExample {
                        place: format!("{}:{number}", page.display()),
                        source: found.as_str().into(),
                        blocks: vec![],
                    });
                }
            }
        }
    }
    examples
}

impl PageExample {
    /// Returns the files of the source, those that the importer writes, and its report as text.
    fn texts(&self) -> Vec<String> {
        let system = self.source.parent().unwrap().file_name().unwrap();
        let words = fs::read_to_string(self.source.join("command")).unwrap();
        let command = format!("import {} {} --lenient", system.display(), words.trim());
        let output = crawlgate(&self.source, command.as_str(), "");
        assert!(output.code <= 1, "{}: {}", self.place, output.stderr);
        let files = [self.source.clone(), self.source.join("expected")];
        let files = files
            .iter()
            .flat_map(|folder| fs::read_dir(folder).unwrap());
        let paths = files.map(|entry| entry.unwrap().path());
        let texts = paths.filter_map(|path| fs::read_to_string(path).ok());
        texts.chain([output.stderr]).collect()
    }

    /// Returns the parts of blocks that are in no file. A line with dots stands for what is left out.
    fn unknown_parts(&self) -> Vec<String> {
        let texts: Vec<String> = self.texts().iter().map(|text| trimmed(text)).collect();
        let blocks = self.blocks.iter().map(|block| trimmed(block));
        let parts: Vec<String> = blocks
            .flat_map(|block| block.split("\n…\n").map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let unknown = parts
            .into_iter()
            .filter(|part| !texts.iter().any(|text| text.contains(part.trim())));
        unknown
            .map(|part| format!("{}:\n{part}\n", self.place))
            .collect()
    }
}

/// Returns a text without the spaces at both ends of its lines.
fn trimmed(text: &str) -> String {
    text.lines()
        .fold(String::from("\n"), |text, line| text + line.trim() + "\n")
}

#[test]
fn the_examples_are_what_the_importer_writes() {
    let pages = fs::read_dir("docs/import").unwrap();
    let mut pages: Vec<PathBuf> = pages.map(|entry| entry.unwrap().path()).collect();
    pages.push("docs/policy/norconex.md".into());
    let mut unknown = vec![];
    for page in pages {
        let examples = examples(&page);
        let blocks: usize = examples.iter().map(|example| example.blocks.len()).sum();
        assert!(blocks >= 2, "{}: {blocks} blocks", page.display());
        unknown.extend(examples.iter().flat_map(PageExample::unknown_parts));
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}
