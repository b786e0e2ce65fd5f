//! A build without OTLP says so, rather than trace nothing.

use crate::support::command::crawlgate;
use crate::support::folder::Folder;

#[test]
fn a_build_without_otlp_says_how_to_get_one_with_it() {
    let folder = Folder::new();
    folder.write(
        "c.yaml",
        "telemetry:\n  otlp:\n    endpoint: http://127.0.0.1:4318\n    headers: { authorization: s3cret }\n",
    );
    for arguments in [
        ["check", "c.yaml"].as_slice(),
        &["run", "--config", "c.yaml"],
    ] {
        let said = crawlgate(folder.path(), arguments, "");
        assert_eq!(said.code, 2, "{said:?}");
        let text = said.out + &said.err;
        assert!(
            text.contains("this build has no OTLP: cargo build --features otlp"),
            "{text}"
        );
        assert!(!text.contains("s3cret"), "{text}");
    }
    folder.write("c.yaml", "telemetry: { metrics: full, otlp: none }\n");
    let said = crawlgate(folder.path(), &["check", "c.yaml"], "");
    assert_eq!(said.code, 0, "{said:?}");
}
