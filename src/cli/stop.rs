//! `crawlgate stop`: the stop button, pressed, shown and lifted in a running proxy.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use crate::config::settings::AdminConfig;
use crate::model::units::format_duration;
use crate::pacing::stops::stop::{MAX_STOP_DURATION, parse_stop_duration};
use crate::pacing::stops::{StopId, StopReason, StopTarget};

use super::Exit;
use super::admin_client::{self, AdminClientError, AdminClientRequest};
use super::args::{OutputFormat, StopArgs};
use super::console::{self, report_cannot_run, report_invalid, warn};
use super::inputs;

/// Where the stops are.
const PATH: &str = "/api/v1/stops";

/// What is asked of the proxy.
enum StopAction {
    List,
    Lift(StopId),
    Create(Json),
}

/// Runs the command. What is wrong with the arguments is told before anybody is asked.
pub(super) fn run(args: &StopArgs) -> Exit {
    let deed = match parse_action(args) {
        Ok(deed) => deed,
        Err(mistake) => return report_invalid(&mistake),
    };
    let settings = match inputs::load_settings_quietly(&args.proxy.overrides()) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    match send(&settings.admin, &deed) {
        Ok(document) => print_result(&deed, &document, args.format),
        Err(refused) => report_error(&refused),
    }
}

fn parse_action(args: &StopArgs) -> Result<StopAction, String> {
    if args.list {
        return Ok(StopAction::List);
    }
    if let Some(id) = &args.lift {
        let id = StopId::parse(id)
            .ok_or_else(|| format!("{id} is no id; `crawlgate stop --list` shows them"))?;
        return Ok(StopAction::Lift(id));
    }
    let target = StopTarget::parse(args.what.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())?;
    let reason = StopReason::new(args.reason.as_deref().unwrap_or_default());
    let reason = reason.map_err(|error| format!("--reason: {error}"))?;
    let no_time = || {
        let longest = format_duration(MAX_STOP_DURATION);
        format!(
            "--for: write a time such as 90s, 10m, 1h or 7d, at most {longest}, or leave it out"
        )
    };
    if let Some(text) = &args.duration {
        parse_stop_duration(text).ok_or_else(no_time)?;
    }
    let (what, reason) = (target.to_string(), reason.as_str());
    Ok(StopAction::Create(
        json!({ "what": what, "reason": reason, "for": args.duration }),
    ))
}

fn send(admin: &AdminConfig, action: &StopAction) -> Result<Json, AdminClientError> {
    let one = |id: &StopId| format!("{PATH}/{id}");
    match action {
        StopAction::List => admin_client::send(admin, &AdminClientRequest::get(PATH)),
        StopAction::Lift(id) => admin_client::send(
            admin,
            &AdminClientRequest {
                method: "DELETE",
                ..AdminClientRequest::get(&one(id))
            },
        ),
        StopAction::Create(body) => admin_client::send(
            admin,
            &AdminClientRequest {
                method: "POST",
                body: Some(body.to_string()),
                ..AdminClientRequest::get(PATH)
            },
        ),
    }
}

/// A stop that is not there is an answer; what the proxy does not understand is wrong usage.
fn report_error(error: &AdminClientError) -> Exit {
    match error {
        AdminClientError::Status(404, words) => {
            let _told = report_cannot_run(words);
            Exit::Negative
        }
        AdminClientError::Status(400, words) => report_invalid(words),
        AdminClientError::Status(..) | AdminClientError::Unavailable(_) => report_cannot_run(error),
    }
}

fn print_result(action: &StopAction, document: &Json, format: OutputFormat) -> Exit {
    for warning in get_or_null(document, "warnings")
        .as_array()
        .into_iter()
        .flatten()
    {
        warn(&warning.as_str().unwrap_or_default());
    }
    let text = match (format, action) {
        (OutputFormat::Json, _) => format!("{document:#}\n"),
        (OutputFormat::Text, StopAction::List) => list_text(
            get_or_null(document, "stops")
                .as_array()
                .map_or(&[], Vec::as_slice),
        ),
        (OutputFormat::Text, StopAction::Lift(id)) => {
            format!(
                "{} goes on: stop {id} is lifted\n",
                get_str(document, "what")
            )
        }
        (OutputFormat::Text, StopAction::Create(_)) => format!(
            "{} is stopped {}: {}\nlift it with: crawlgate stop --lift {}\n",
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
    let widest = |key: &str| {
        stops
            .iter()
            .map(|stop| get_str(stop, key).chars().count())
            .max()
            .unwrap_or(0)
    };
    let (ids, names) = (widest("id"), widest("what"));
    let mut text = String::new();
    for stop in stops {
        let (id, what, reason) = (
            get_str(stop, "id"),
            get_str(stop, "what"),
            get_str(stop, "reason"),
        );
        let _ = writeln!(
            text,
            "{id:>ids$}  {what:<names$}  since {}  {}  {reason}",
            get_str(stop, "since"),
            until_text(stop)
        );
    }
    text
}

fn until_text(stop: &Json) -> String {
    get_or_null(stop, "until")
        .as_str()
        .map_or("until it is lifted".to_owned(), |until| {
            format!("until {until}")
        })
}

/// What is at a key; nothing at all counts as null.
fn get_or_null<'j>(entry: &'j Json, key: &str) -> &'j Json {
    entry.get(key).unwrap_or(&Json::Null)
}

fn get_str<'j>(entry: &'j Json, key: &str) -> &'j str {
    get_or_null(entry, key).as_str().unwrap_or_default()
}
