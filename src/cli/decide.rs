//! `crawlgate decide`: prints the decision for each line of standard input.
//!
//! The command streams, so that a program can keep it running and send it one line at a time.

use std::io::{self, BufRead, BufReader, BufWriter, Write};

use serde_json::{Map, Value as Json, json};

use crate::model::profile::Profile;
use crate::pipeline::offline_evaluation::OfflineEvaluation;
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::report::decision::{self, DecisionJsonWriter};

use super::Exit;
use super::args::{DecideArgs, DecideFormat};
use super::console;
use super::inputs;
use super::text::replace_controls;

pub(super) fn run(args: &DecideArgs) -> Result<Exit, Exit> {
    let policy = inputs::load_policy(Some(&args.policy))?;
    let input = BufReader::new(io::stdin().lock());
    let output = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    decide_all(&policy, args.format, input, output)
        .map_err(|error| console::report_io_error(&error))
}

fn decide_all(
    policy: &Policy,
    format: DecideFormat,
    mut input: BufReader<impl io::Read>,
    mut output: impl Write,
) -> io::Result<Exit> {
    let mut line = Vec::new();
    let mut exit = Exit::Success;
    let mut json = DecisionJsonWriter::default();
    while input.read_until(b'\n', &mut line)? > 0 {
        let text = line.trim_ascii();
        match parse_facts(text) {
            Ok(facts) => {
                let evaluation = OfflineEvaluation::new(policy, &facts, Profile::Generic);
                match format {
                    DecideFormat::Json => json.write(&evaluation, &facts, &mut output)?,
                    DecideFormat::Tsv => {
                        output.write_all(decision::to_tsv(&evaluation, &facts).as_bytes())?;
                    }
                }
            }
            Err(error) => {
                exit = Exit::Negative;
                output.write_all(render_invalid_line(text, &error, format).as_bytes())?;
            }
        }
        output.write_all(b"\n")?;
        // A program may wait for this decision before it writes its next line.
        if input.buffer().is_empty() {
            output.flush()?;
        }
        line.clear();
    }
    output.flush()?;
    Ok(exit)
}

/// Renders an input line that cannot be read.
fn render_invalid_line(line: &[u8], error: &str, format: DecideFormat) -> String {
    let input = String::from_utf8_lossy(line);
    match format {
        DecideFormat::Json => json!({ "input": input, "error": error }).to_string(),
        DecideFormat::Tsv => [&*input, "error", "", error, "", ""]
            .map(replace_controls)
            .join("\t"),
    }
}

/// Parses the facts of a line: a URL, or a JSON object.
pub(super) fn parse_facts(line: &[u8]) -> Result<CaseFacts, String> {
    let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
    if text.is_empty() {
        return Err("the line is empty".into());
    }
    if !text.starts_with('{') {
        return CaseFacts::for_url(text);
    }
    let facts: Map<String, Json> =
        serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))?;
    if facts.contains_key("ts") && facts.contains_key("decision") {
        return Err(
            "a line of a decision log, which `crawlgate diff OLD NEW --log FILE` reads".into(),
        );
    }
    CaseFacts::from_json(&facts)
}
