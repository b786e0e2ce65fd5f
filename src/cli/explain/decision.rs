//! `crawlgate explain --decision`: a decision that the running proxy has in memory, or that is in its log, and what the
//! policy in force says of the request.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Map, Value as Json, json};

use crate::admin::decisions::lookup::request_facts;
use crate::cli::Exit;
use crate::cli::admin_client::{AdminClientError, get_or_null, get_str};
use crate::cli::args::{ExplainArgs, OutputFormat};
use crate::cli::console::{self, report_cannot_run, report_invalid};
use crate::cli::decisions::last::find_decision;
use crate::cli::decisions::memory_only_note;
use crate::cli::running_proxy::RunningProxy;
use crate::cli::text::sanitize_text;
use crate::config::policy;
use crate::console::{ConsoleColors, Tone};
use crate::store::policies::PolicyStore;

use super::RequestExplanation;

pub(super) fn run(args: &ExplainArgs, id: &str) -> Result<Exit, Exit> {
    let mut line = find_line(args, id)?;
    let facts = line.shift_remove("facts");
    let line = Json::Object(line);
    let explanation = match facts {
        Some(Json::Object(facts)) => Some(RequestExplanation::find(args, &facts)?),
        Some(_) | None => None,
    };
    let colors = ConsoleColors::for_stdout();
    let text = match args.format {
        OutputFormat::Json => {
            let explanation = explanation.map(|explanation| explanation.to_json(args));
            format!(
                "{:#}\n",
                json!({ "decision": line, "explanation": explanation })
            )
        }
        OutputFormat::Text => {
            let mut text = decision_text(&line, colors);
            match &explanation {
                Some(explanation) => {
                    text.push_str(&policy_remark(args, &line, explanation));
                    text.push_str(&explanation.to_text(args, colors));
                }
                None => text.push_str(
                    "\nThe log has no whole URL of it (a rule without `log: true`, robots.txt, a tunnel, the option \
                     `record`, or logs.query), so the policy cannot be evaluated.\n",
                ),
            }
            text
        }
    };
    Ok(console::print(&text, Exit::Success))
}

/// Returns the line of the decision and its facts: from the memory of the running proxy, else from the decision log.
fn find_line(args: &ExplainArgs, id: &str) -> Result<Map<String, Json>, Exit> {
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return Err(report_invalid(
            &"--decision: write the value of Crawl-Decision, such as 9f3c01ab-1f, or a trace id of 32 hex digits",
        ));
    }
    let (proxy, settings) = RunningProxy::find_with_settings(&args.proxy)?;
    let error = match proxy.get(&format!("/api/v1/decisions/{id}")) {
        Ok(Json::Object(line)) => return Ok(line),
        Ok(_) => {
            return Err(report_cannot_run(
                &"the response of the proxy is not a decision",
            ));
        }
        Err(AdminClientError::Status(400, detail)) => return Err(report_invalid(&detail)),
        Err(error) => error,
    };
    let found = match settings.logs.readable_file().filter(|log| log.exists()) {
        Some(log) => find_decision(log, &id.to_ascii_lowercase())
            .map_err(|error| report_cannot_run(&error))?,
        None => None,
    };
    let line = found.and_then(|line| serde_json::from_slice::<Map<_, _>>(&line).ok());
    match (line, error) {
        (Some(mut line), _) => {
            line.insert("facts".to_owned(), request_facts(&line));
            Ok(line)
        }
        (None, AdminClientError::Status(404, detail)) => {
            let also = match settings.logs.readable_file() {
                Some(log) => format!("; nor is it in the log {}", log.display()),
                None => match memory_only_note(&proxy) {
                    Some(reach) => format!(". The proxy has only its latest decisions: {reach}"),
                    None => String::new(),
                },
            };
            crate::console::error(&format!("{detail}{also}"));
            Err(Exit::Negative)
        }
        (None, error) => Err(report_cannot_run(&error)),
    }
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
    let host = field("host");
    let subject = match (url.is_empty(), host.is_empty()) {
        (false, _) => url,
        (true, false) => host,
        (true, true) => "(not recorded)".to_owned(),
    };
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
        ("code", "crawl-code"),
        ("loss", "loss"),
    ] {
        let value = field(key);
        if !value.is_empty() {
            let _ = writeln!(text, "  {label}: {value}");
        }
    }
    text
}

/// Returns the directory of a policy, if the proxy of this machine has kept it.
fn kept_policy(args: &ExplainArgs, revision: &str) -> Option<PathBuf> {
    let (_, settings) = RunningProxy::find_with_settings(&args.proxy).ok()?;
    let is_revision = !revision.is_empty() && revision.bytes().all(|b| b.is_ascii_hexdigit());
    let directory = PolicyStore::revision_directory(&settings.store.path?, revision);
    (is_revision && policy::is_kept(&directory)).then_some(directory)
}

/// Introduces the explanation, and says if the policy has changed since the decision.
fn policy_remark(args: &ExplainArgs, line: &Json, explanation: &RequestExplanation) -> String {
    let then = get_str(line, "revision");
    let now = explanation.revision();
    if then.is_empty() || then == now {
        format!("\nWhat the policy (revision {now}) says of this request:\n")
    } else {
        let kept = match kept_policy(args, then) {
            Some(path) => format!(
                "The policy of the decision is kept: explain the URL with --policy {}\n",
                sanitize_text(&path.display().to_string())
            ),
            None => String::new(),
        };
        format!(
            "\n{kept}What the policy says of this request now (revision {now}; the decision was made under {}):\n",
            sanitize_text(then)
        )
    }
}
