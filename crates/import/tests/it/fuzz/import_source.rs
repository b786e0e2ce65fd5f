//! One file of any system: it is translated into a valid policy with a complete report, or refused with an error at a
//! place.

use crawlgate_import::{ImportError, ImportInput, System, import};
use crawlgate_policy::MemoryFileSystem;

/// Returns the first byte of an input for a system.
pub(crate) fn system_byte(system: System) -> u8 {
    let at = System::all().position(|other| other == system);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or_default()
}

/// The first byte chooses the system; the file follows.
pub(crate) fn run(input: &[u8]) {
    let Some((system, text)) = input.split_first() else {
        return;
    };
    let systems: Vec<System> = System::all().collect();
    let Some(system) = systems.get(usize::from(*system) % systems.len()) else {
        return;
    };
    let files = MemoryFileSystem::new().with_file("regex-urlfilter.txt", text);
    let mut input = ImportInput::new(&files, ["regex-urlfilter.txt"]);
    input
        .variables
        .push(("host".to_owned(), "www.example.com".to_owned()));
    let imported = match import(*system, &input) {
        Ok(imported) => imported,
        Err(error @ ImportError::Defect(_)) => panic!("{}: {error}", system.name()),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut counted = 0;
    for part in imported.report.parts() {
        assert!(part.list().is_some(), "{part:?}");
        counted += u64::from(part.lines);
    }
    assert_eq!(imported.report.to_json()["parts"], counted);
    assert!(!imported.report.to_text().is_empty());
}
