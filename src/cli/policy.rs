//! `crawlgate policy`: lists the policies that were in force in a running proxy, and returns to one.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::Exit;
use super::admin_client::{AdminClientError, AdminClientRequest, get_array, get_or_null, get_str};
use super::args::{OutputFormat, PolicyCommand, PolicyHistoryArgs, PolicyRollbackArgs};
use super::console::{self, note, report_cannot_run, report_invalid};
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
    let document = fetch_history(&RunningProxy::find(&args.proxy)?)?;
    let text = match args.format {
        OutputFormat::Json => format!("{document:#}\n"),
        OutputFormat::Text => history_text(get_array(&document, "policies")),
    };
    Ok(console::print(&text, Exit::Success))
}

fn fetch_history(proxy: &RunningProxy) -> Result<Json, Exit> {
    proxy
        .get("/api/v1/policy/history")
        .map_err(|error| match error {
            AdminClientError::Status(409, message) => {
                report_invalid(&message);
                Exit::Negative
            }
            error @ (AdminClientError::Status(..) | AdminClientError::Unavailable(_)) => {
                report_cannot_run(&error)
            }
        })
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
    let revision = match &args.revision {
        Some(revision) => Some(revision.clone()),
        None => {
            let history = fetch_history(&RunningProxy::find(&args.proxy)?)?;
            get_or_null(&history, "before").as_str().map(str::to_owned)
        }
    };
    // The revision is always sent, so that two of these requests cannot go back by two policies.
    let body = json!({ "reason": args.reason, "revision": revision });
    let request = AdminClientRequest::post("/api/v1/policy/rollback", Some(body.to_string()));
    let result = rollout::change(&args.proxy, args.format, request, rollout::activation_text);
    if let (None, Some(revision), Ok(Exit::CannotRun) | Err(Exit::CannotRun)) =
        (&args.revision, revision, &result)
    {
        let revision = sanitize_text(&revision);
        note(&format!(
            "the policy to return to is {revision}: to try again, run `crawlgate policy rollback {revision} --reason TEXT`"
        ));
    }
    result
}
