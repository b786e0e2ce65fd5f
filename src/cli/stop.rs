//! `crawlgate stop`: creates, lists and lifts stops in a running proxy.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use crate::model::units::format_duration;
use crate::pacing::stops::stop::{MAX_STOP_DURATION, parse_stop_duration};
use crate::pacing::stops::{StopId, StopReason, StopTarget};

use super::Exit;
use super::admin_client::{AdminClientError, AdminClientRequest, get_array, get_or_null, get_str};
use super::args::{OutputFormat, StopArgs};
use super::console::{self, report_cannot_run, report_invalid, warn};
use super::running_proxy::RunningProxy;

const PATH: &str = "/api/v1/stops";

/// The action that the arguments request.
enum StopAction {
    List,
    Lift(StopId),
    /// Creates a stop; this is the body of the request.
    Create(Json),
}

/// Runs the command. Reports errors in the arguments before it contacts the proxy.
pub(super) fn run(args: &StopArgs) -> Result<Exit, Exit> {
    let action = parse_action(args).map_err(|error| report_invalid(&error))?;
    let proxy = RunningProxy::find(&args.proxy)?;
    let document = send(&proxy, &action).map_err(|error| report_error(&error))?;
    Ok(print_result(&action, &document, args.format))
}

fn parse_action(args: &StopArgs) -> Result<StopAction, String> {
    if args.list {
        return Ok(StopAction::List);
    }
    if let Some(id) = &args.lift {
        let id = StopId::parse(id).ok_or_else(|| {
            format!("--lift: {id} is not an id; `crawlgate stop --list` shows the ids")
        })?;
        return Ok(StopAction::Lift(id));
    }
    let target = StopTarget::parse(args.what.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())?;
    let reason = StopReason::new(args.reason.as_deref().unwrap_or_default())
        .map_err(|error| format!("--reason: {error}"))?;
    if let Some(text) = &args.duration
        && parse_stop_duration(text).is_none()
    {
        let longest = format_duration(MAX_STOP_DURATION);
        return Err(format!(
            "--for: write a duration such as 90s, 10m, 1h or 7d, at most {longest}, or leave it out"
        ));
    }
    Ok(StopAction::Create(json!({
        "what": target.to_string(),
        "reason": reason.as_str(),
        "for": args.duration,
    })))
}

fn send(proxy: &RunningProxy, action: &StopAction) -> Result<Json, AdminClientError> {
    match action {
        StopAction::List => proxy.get(PATH),
        StopAction::Lift(id) => proxy.send(&AdminClientRequest {
            method: "DELETE",
            ..AdminClientRequest::get(&format!("{PATH}/{id}"))
        }),
        StopAction::Create(body) => {
            proxy.send(&AdminClientRequest::post(PATH, Some(body.to_string())))
        }
    }
}

/// Reports an error. A stop that does not exist is a negative result; a request that the proxy rejects as invalid is
/// wrong usage.
fn report_error(error: &AdminClientError) -> Exit {
    match error {
        AdminClientError::Status(404, message) => {
            report_invalid(message);
            Exit::Negative
        }
        AdminClientError::Status(400, message) => report_invalid(message),
        AdminClientError::Status(..) | AdminClientError::Unavailable(_) => report_cannot_run(error),
    }
}

fn print_result(action: &StopAction, document: &Json, format: OutputFormat) -> Exit {
    for warning in get_array(document, "warnings") {
        warn(&warning.as_str().unwrap_or_default());
    }
    let text = match (format, action) {
        (OutputFormat::Json, _) => format!("{document:#}\n"),
        (OutputFormat::Text, StopAction::List) => list_text(get_array(document, "stops")),
        (OutputFormat::Text, StopAction::Lift(id)) => {
            format!(
                "{} continues: stop {id} is lifted\n",
                get_str(document, "what")
            )
        }
        (OutputFormat::Text, StopAction::Create(_)) => format!(
            "{} is stopped {}: {}\nto lift the stop: crawlgate stop --lift {}\n",
            get_str(document, "what"),
            until_text(document),
            get_str(document, "reason"),
            get_str(document, "id")
        ),
    };
    console::print(&text, Exit::Success)
}

fn list_text(stops: &[Json]) -> String {
    if stops.is_empty() {
        return "nothing is stopped\n".to_owned();
    }
    let ids = column_width(stops, "id");
    let targets = column_width(stops, "what");
    let mut text = String::new();
    for stop in stops {
        let _ = writeln!(
            text,
            "{:>ids$}  {:<targets$}  since {}  {}  {}",
            get_str(stop, "id"),
            get_str(stop, "what"),
            get_str(stop, "since"),
            until_text(stop),
            get_str(stop, "reason")
        );
    }
    text
}

fn column_width(stops: &[Json], key: &str) -> usize {
    stops
        .iter()
        .map(|stop| get_str(stop, key).chars().count())
        .max()
        .unwrap_or(0)
}

fn until_text(stop: &Json) -> String {
    get_or_null(stop, "until")
        .as_str()
        .map_or("until it is lifted".to_owned(), |until| {
            format!("until {until}")
        })
}
