//! Changes of the policy of a running proxy, for `shadow` and `policy`: the request, and the report of its result.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::Exit;
use super::admin_client::{AdminClientRequest, get_array, get_or_null, get_str};
use super::args::{OutputFormat, ProxyArgs};
use super::console::{self, print_problems, report_cannot_run, report_invalid};
use super::reload::{policy_name, problems};
use super::running_proxy::RunningProxy;
use super::text::sanitize_text;

/// Requests a change, and reports its result as text by `describe`, or as JSON.
pub(super) fn change(
    args: &ProxyArgs,
    format: OutputFormat,
    request: AdminClientRequest<'_>,
    describe: impl FnOnce(&Json) -> String,
) -> Result<Exit, Exit> {
    let proxy = RunningProxy::find(args)?;
    let request = AdminClientRequest {
        user: local_user(),
        ..request
    };
    let (document, status) = proxy
        .exchange(&request)
        .and_then(|response| Ok((response.document()?, response.status)))
        .map_err(|error| report_cannot_run(&error))?;
    let detail = || sanitize_text(get_str(&document, "detail")).into_owned();
    let problems = problems(&document);
    Ok(match (status, format) {
        (200, OutputFormat::Text) => {
            print_problems(&problems);
            console::print(&describe(&document), Exit::Success)
        }
        (200, OutputFormat::Json) => console::print(&format!("{document:#}\n"), Exit::Success),
        (409, _) => {
            report_invalid(&detail());
            Exit::Negative
        }
        (400 | 413, _) => report_invalid(&detail()),
        (422, _) => {
            print_problems(&problems);
            report_invalid(&detail())
        }
        (202, _) => report_cannot_run(&detail()),
        (status, _) => report_cannot_run(&format!(
            "the proxy responds with status {status}: {}",
            detail()
        )),
    })
}

/// Describes a policy that became active.
pub(super) fn activation_text(document: &Json) -> String {
    let before = get_str(document, "before");
    let mut text = format!(
        "policy {} is active, in place of revision {before}\n",
        policy_name(document)
    );
    let written = get_array(document, "written")
        .iter()
        .filter_map(Json::as_str);
    let written: Vec<_> = written.map(sanitize_text).collect();
    if !written.is_empty() {
        let _ = writeln!(text, "written: {}", written.join(", "));
    }
    let _ = writeln!(
        text,
        "to return: crawlgate policy rollback {before} --reason TEXT"
    );
    text
}

/// Describes who made a change and why: ` by ann (127.0.0.1): ticket 7`.
pub(super) fn author_text(document: &Json) -> String {
    let text = |key| get_or_null(document, key).as_str().map(sanitize_text);
    let author = match (text("user"), text("address")) {
        (Some(user), Some(address)) => format!(" by {user} ({address})"),
        (Some(user), None) => format!(" by {user}"),
        (None, Some(address)) => format!(" by {address}"),
        (None, None) => String::new(),
    };
    let reason = text("reason").map_or(String::new(), |reason| format!(": {reason}"));
    author + &reason
}

/// Returns the name of the user of this shell, to be recorded.
fn local_user() -> Option<String> {
    let names = ["USER", "LOGNAME"].into_iter();
    let name = names
        .filter_map(|name| std::env::var(name).ok())
        .find(|name| !name.is_empty())?;
    // A colon ends the user in credentials.
    (!name.contains(':')).then_some(name)
}
