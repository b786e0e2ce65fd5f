//! `crawlgate policy`: lists the policies that were in force in a running proxy, and returns to one.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::Exit;
use super::admin_client::{AdminClientError, AdminClientRequest, get_array, get_or_null, get_str};
use super::args::{OutputFormat, PolicyCommand, PolicyHistoryArgs, PolicyRollbackArgs};
use super::console::{self, report_cannot_run, report_invalid};
use super::rollout;
use super::running_proxy::RunningProxy;
use super::text::sanitize_text;

pub(super) fn run(command: &PolicyCommand) -> Result<Exit, Exit> {
    match command {
        PolicyCommand::History(args) => show_history(args),
        PolicyCommand::Rollback(args) => roll_back(args),
    }
}

fn show_history(args: &PolicyHistoryArgs) -> Result<Exit, Exit> {
    let proxy = RunningProxy::find(&args.proxy)?;
    let response = proxy.get("/api/v1/policy/history");
    let document = response.map_err(|error| match error {
        AdminClientError::Status(409, message) => {
            report_invalid(&message);
            Exit::Negative
        }
        error @ (AdminClientError::Status(..) | AdminClientError::Unavailable(_)) => {
            report_cannot_run(&error)
        }
    })?;
    let text = match args.format {
        OutputFormat::Json => format!("{document:#}\n"),
        OutputFormat::Text => history_text(get_array(&document, "policies")),
    };
    Ok(console::print(&text, Exit::Success))
}

fn history_text(policies: &[Json]) -> String {
    if policies.is_empty() {
        return "no policy is recorded\n".to_owned();
    }
    let is_true = |entry, key| get_or_null(entry, key).as_bool() == Some(true);
    let mut text = String::new();
    for entry in policies {
        let mark = if is_true(entry, "active") { "*" } else { " " };
        let kept = if is_true(entry, "kept") {
            ""
        } else {
            " (not kept)"
        };
        let _ = writeln!(
            text,
            "{mark} {}  {}@{}{kept}  {}{}",
            get_str(entry, "at"),
            sanitize_text(get_str(entry, "policy")),
            sanitize_text(get_str(entry, "revision")),
            get_str(entry, "how"),
            rollout::author_text(entry)
        );
    }
    text
}

fn roll_back(args: &PolicyRollbackArgs) -> Result<Exit, Exit> {
    let body = json!({ "reason": args.reason, "revision": args.revision });
    let request = AdminClientRequest::post("/api/v1/policy/rollback", Some(body.to_string()));
    rollout::change(&args.proxy, args.format, request, rollout::activation_text)
}
