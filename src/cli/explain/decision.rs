//! `crawlgate explain --decision`: a decision that the running proxy still has in memory, and what its policy says of the
//! request.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use crate::cli::Exit;
use crate::cli::admin_client::{self, AdminClientError, AdminClientRequest, get_or_null, get_str};
use crate::cli::args::{ExplainArgs, OutputFormat};
use crate::cli::console::{self, report_cannot_run, report_invalid};
use crate::cli::inputs;
use crate::cli::text::sanitize_text;
use crate::console::{ConsoleColors, Tone};

use super::ExplainedRequest;

pub(super) fn run(args: &ExplainArgs, id: &str) -> Exit {
    match explain(args, id) {
        Ok(text) => console::print(&text, Exit::Success),
        Err(exit) => exit,
    }
}

fn explain(args: &ExplainArgs, id: &str) -> Result<String, Exit> {
    let mut line = fetch(args, id)?;
    let facts = line.shift_remove("facts");
    let line = Json::Object(line);
    let request = match facts {
        Some(Json::Object(facts)) => Some(load_request(args, facts)?),
        Some(_) | None => None,
    };
    let colors = ConsoleColors::for_stdout();
    Ok(match args.format {
        OutputFormat::Json => {
            let explanation = request.map(|request| request.to_json(args));
            format!(
                "{:#}\n",
                json!({ "decision": line, "explanation": explanation })
            )
        }
        OutputFormat::Text => {
            let mut text = decision_text(&line, colors);
            match &request {
                Some(request) => {
                    text.push_str(&policy_remark(&line, request));
                    text.push_str(&request.to_text(args, colors));
                }
                None => text.push_str(
                    "\nThe whole URL is not kept (tunnel, record: none, or logs.query), so the policy cannot be \
                     evaluated.\n",
                ),
            }
            text
        }
    })
}

/// Returns the line of the decision, and its facts.
fn fetch(args: &ExplainArgs, id: &str) -> Result<Map<String, Json>, Exit> {
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return Err(report_invalid(
            &"--decision: write the value of Crawl-Decision, such as 9f3c01ab-1f, or a trace id of 32 hex digits",
        ));
    }
    let settings = inputs::load_settings_quietly(&args.proxy.overrides())?;
    let path = format!("/api/v1/decisions/{id}");
    match admin_client::send(&settings.admin, &AdminClientRequest::get(&path)) {
        Ok(Json::Object(line)) => Ok(line),
        Ok(_) => Err(report_cannot_run(
            &"the response of the proxy is not a decision",
        )),
        Err(AdminClientError::Status(404, detail)) => {
            crate::console::error(&format!(
                "{detail} (crawlgate decisions --all --filter decision={id})"
            ));
            Err(Exit::Negative)
        }
        Err(AdminClientError::Status(400, detail)) => Err(report_invalid(&detail)),
        Err(error) => Err(report_cannot_run(&error)),
    }
}

/// Loads the policy for the facts of a decision.
fn load_request(args: &ExplainArgs, facts: Map<String, Json>) -> Result<ExplainedRequest, Exit> {
    let crawler = facts
        .get("crawler")
        .and_then(Json::as_str)
        .map(str::to_owned);
    ExplainedRequest::load(args, &facts, crawler.as_deref())
}

/// Describes the decision that was made: the verdict, the request, and what failed.
fn decision_text(line: &Json, colors: ConsoleColors) -> String {
    let field = |key| {
        let value = get_or_null(line, key);
        match value.as_str() {
            Some(text) => sanitize_text(text).into_owned(),
            None if value.is_null() => String::new(),
            None => value.to_string(),
        }
    };
    let (word, tone) = match get_str(line, "verdict") {
        "reject" => ("refused", Tone::Bad),
        "shadow_reject" => ("allowed, and would be refused in shadow", Tone::Warning),
        _ => ("allowed", Tone::Good),
    };
    let verdict = colors.paint(tone, word);
    let mut text = format!(
        "Decision {} at {}: {verdict}, reason {}, stage {}\n",
        field("decision"),
        field("ts"),
        field("reason"),
        field("stage")
    );
    let url = field("url");
    let subject = if url.is_empty() { field("host") } else { url };
    let _ = writeln!(text, "  {} {subject}", field("method"));
    for (key, label) in [
        ("crawler", "crawler"),
        ("rule", "rule"),
        ("cause", "cause"),
        ("error", "error"),
        ("address", "address"),
        ("robots_agent", "robots.txt agent"),
        ("held_ms", "held (ms)"),
        ("origin_status", "origin's status"),
        ("sent_status", "status sent"),
        ("loss", "loss"),
    ] {
        let value = field(key);
        if !value.is_empty() {
            let _ = writeln!(text, "  {label}: {value}");
        }
    }
    text
}

/// Introduces the explanation, and says if the policy has changed since the decision.
fn policy_remark(line: &Json, request: &ExplainedRequest) -> String {
    let then = get_str(line, "revision");
    let now = request.policy().revision();
    if then.is_empty() || then == now {
        format!("\nWhat the policy (revision {now}) says of this request:\n")
    } else {
        format!(
            "\nWhat the policy says of this request now (revision {now}; the decision was made under {}):\n",
            sanitize_text(then)
        )
    }
}
