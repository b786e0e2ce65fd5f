//! The binary form of a WebCopy project: a file is read or refused, with memory bounded by its length.

use crawlgate_import::{ImportError, ImportInput, System};
use crawlgate_policy::MemoryFileSystem;

/// The fuzz target `nbt`.
pub(crate) fn run(input: &[u8]) {
    let files = MemoryFileSystem::new().with_file("p.cwp", input);
    let source = ImportInput::new(&files, ["p.cwp"]);
    let dump = || System::WebCopy.dump(&source).expect("WebCopy has trees");
    match dump() {
        Ok(tree) => {
            check_tree(&tree);
            assert_eq!(dump().expect("read before"), tree);
        }
        Err(ImportError::Invalid { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    let _ = System::recognize(&source);
}

/// A tag is at most one level below the one before it, and only a compound or a list has tags in it.
fn check_tree(tree: &str) {
    let mut before = 0;
    let mut has_children = false;
    for (number, line) in tree.lines().enumerate() {
        let depth = line.len() - line.trim_start_matches(' ').len();
        assert!(
            depth <= before || has_children && depth == before + 2,
            "{number}: {line}"
        );
        assert_eq!(depth == 0, number == 0, "{number}: {line}");
        let tag = line.trim_start_matches(' ');
        has_children = tag.starts_with("Compound") || tag.starts_with("List of ");
        before = depth;
    }
    assert!(tree.starts_with("Compound"), "{tree}");
}
