//! `crawlgate reload`: reloads the policy of a running proxy, and shows what changed, or the errors.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::model::rule_id::RuleId;

use super::Exit;
use super::admin_client::{
    AdminClientError, AdminClientRequest, AdminResponse, get_array, get_or_null, get_str, get_u64,
};
use super::args::{OutputFormat, ProxyReportArgs};
use super::console::{self, print_problems, report_cannot_run};
use super::running_proxy::RunningProxy;
use super::text::sanitize_text;

/// Runs the command. Exits with 2 if the policy has errors, as `check` does.
pub(super) fn run(args: &ProxyReportArgs) -> Result<Exit, Exit> {
    let proxy = RunningProxy::find(&args.proxy)?;
    let result = proxy
        .exchange(&AdminClientRequest::post("/api/v1/reload", None))
        .and_then(|response| Ok((response.document()?, response)));
    let (document, response) = result.map_err(|error| report_cannot_run(&error))?;
    let exit = match (response.status, get_str(&document, "result")) {
        (_, "loaded" | "unchanged") if is_shadow_refused(&document) => Exit::Invalid,
        (_, "loaded" | "unchanged") => Exit::Success,
        (_, "refused") => Exit::Invalid,
        (_, "pending") => Exit::CannotRun,
        _ => return Err(report_unexpected(response)),
    };
    Ok(match args.format {
        OutputFormat::Json => console::print(&format!("{document:#}\n"), exit),
        OutputFormat::Text => print_report(&proxy, &document, exit),
    })
}

fn is_shadow_refused(document: &Json) -> bool {
    get_str(get_or_null(document, "shadow"), "result") == "refused"
}

fn report_unexpected(response: AdminResponse) -> Exit {
    match response.into_result() {
        Ok(_) => report_cannot_run(&"the response of the proxy is not the result of a reload"),
        Err(error) => report_cannot_run(&error),
    }
}

fn print_report(proxy: &RunningProxy, document: &Json, exit: Exit) -> Exit {
    print_problems(&problems(document));
    let shadow = get_or_null(document, "shadow");
    print_problems(&problems(shadow));
    let policy = policy_name(document);
    let mut text = match get_str(document, "result") {
        "loaded" => format!(
            "policy {policy} is active, in place of revision {}\n{}",
            get_str(document, "before"),
            changes_text(proxy)
        ),
        "unchanged" => format!(
            "policy {policy} has not changed; changes of the configuration take effect at a restart\n"
        ),
        "refused" => format!("policy {policy} remains active: the files have errors\n"),
        _ => format!("policy {policy} is active\n"),
    };
    if let Some(detail) = get_or_null(document, "detail").as_str()
        && get_str(document, "result") != "refused"
    {
        let _ = writeln!(text, "{}", sanitize_text(detail));
    }
    if !shadow.is_null() {
        let _ = writeln!(
            text,
            "shadow policy {}: {}",
            policy_name(shadow),
            get_str(shadow, "result")
        );
    }
    console::print(&text, exit)
}

/// Returns `name@revision` of the policy in a report.
pub(super) fn policy_name(document: &Json) -> String {
    format!(
        "{}@{}",
        get_str(document, "policy"),
        get_str(document, "revision")
    )
}

/// Returns a line for each rule, option and list that the reload added, removed or changed.
fn changes_text(proxy: &RunningProxy) -> String {
    let diff = match proxy.get("/api/v1/policy/diff") {
        Ok(diff) => diff,
        Err(AdminClientError::Status(..)) => return String::new(),
        Err(error) => return format!("the changes are unknown: {error}\n"),
    };
    let mut text = String::new();
    for (part, key, noun) in [
        ("rules", "id", "rule"),
        ("options", "option", "option"),
        ("lists", "list", "list"),
    ] {
        for change in get_array(&diff, part) {
            text.push_str(&change_text(change, key, noun));
        }
    }
    text
}

fn change_text(change: &Json, key: &str, noun: &str) -> String {
    let name = get_str(change, key);
    let side = |key| get_or_null(change, key).as_str().unwrap_or("none");
    let line = match get_str(change, "change") {
        "added" => format!("+ {noun} {name}: {}", side("after")),
        "removed" => format!("- {noun} {name}: {}", side("before")),
        "moved" => format!("~ {noun} {name} has moved"),
        _ => format!("~ {noun} {name}: {} -> {}", side("before"), side("after")),
    };
    format!("  {}\n", sanitize_text(&line))
}

/// Returns the problems of a response, as `check` has them, without the lines of the files, which may be elsewhere.
pub(super) fn problems(document: &Json) -> Vec<Problem> {
    get_array(document, "problems")
        .iter()
        .map(read_problem)
        .collect()
}

fn read_problem(document: &Json) -> Problem {
    let position = |key| u32::try_from(get_u64(document, key)).unwrap_or(0);
    let location = SourceLocation {
        file: Arc::from(get_str(document, "file")),
        line: position("line"),
        column: position("column"),
    };
    let text = |key| get_or_null(document, key).as_str().map(str::to_owned);
    let message = get_str(document, "message");
    let problem = match get_str(document, "severity") {
        "warning" => Problem::warning(&location, message),
        "advice" => Problem::advice(&location, message),
        _ => Problem::error(&location, message),
    };
    Problem {
        rule: text("rule").as_deref().and_then(RuleId::new),
        found: text("found"),
        help: text("help"),
        suggestion: text("near"),
        ..problem
    }
}
