//! A build without OTLP says so, rather than trace nothing.

use crate::support::command::crawlgate;
use crate::support::temp_dir::TempDir;

#[test]
fn a_build_without_otlp_explains_how_to_build_with_it() {
    let folder = TempDir::new();
    folder.write(
        "c.yaml",
        "telemetry:\n  otlp:\n    endpoint: http://127.0.0.1:4318\n    headers: { authorization: s3cret }\n",
    );
    for arguments in [
        ["check", "c.yaml"].as_slice(),
        &["run", "--config", "c.yaml"],
    ] {
        let output = crawlgate(folder.path(), arguments, "");
        assert_eq!(output.code, 2, "{output:?}");
        let text = output.stdout + &output.stderr;
        assert!(
            text.contains("this build has no OTLP: cargo build --features otlp"),
            "{text}"
        );
        assert!(!text.contains("s3cret"), "{text}");
    }
    folder.write("c.yaml", "telemetry: { metrics: full, otlp: none }\n");
    let output = crawlgate(folder.path(), "check c.yaml", "");
    assert_eq!(output.code, 0, "{output:?}");
}
