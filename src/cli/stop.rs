//! `crawlgate stop`: the stop button, pressed, shown and lifted in a running proxy.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use crate::config::settings::Admin;
use crate::politeness::stops::stop::{LONGEST, lasting};
use crate::politeness::stops::{StopId, StopReason, Target};
use crate::vocab::units::show_duration;

use super::Exit;
use super::admin::{self, Asked, Refused};
use super::args::{Format, StopArgs};
use super::open;
use super::out::{self, complain, say_and_fail, warn};

/// Where the stops are.
const PATH: &str = "/api/v1/stops";

/// What is asked of the proxy.
enum Deed {
    List,
    Lift(StopId),
    Press(Json),
}

/// Runs the command. What is wrong with the arguments is told before anybody is asked.
pub(super) fn run(args: &StopArgs) -> Exit {
    let deed = match deed(args) {
        Ok(deed) => deed,
        Err(mistake) => return complain(&mistake),
    };
    let settings = match open::settings_alone(&args.proxy.overrides()) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    match ask(&settings.admin, &deed) {
        Ok(document) => tell(&deed, &document, args.format),
        Err(refused) => refused_with(&refused),
    }
}

fn deed(args: &StopArgs) -> Result<Deed, String> {
    if args.list {
        return Ok(Deed::List);
    }
    if let Some(id) = &args.lift {
        let id = StopId::parse(id)
            .ok_or_else(|| format!("{id} is no id; `crawlgate stop --list` shows them"))?;
        return Ok(Deed::Lift(id));
    }
    let target = Target::parse(args.what.as_deref().unwrap_or_default())
        .map_err(|error| error.to_string())?;
    let reason = StopReason::new(args.reason.as_deref().unwrap_or_default());
    let reason = reason.map_err(|error| format!("--reason: {error}"))?;
    let no_time = || {
        let longest = show_duration(LONGEST);
        format!(
            "--for: write a time such as 90s, 10m, 1h or 7d, at most {longest}, or leave it out"
        )
    };
    if let Some(text) = &args.lasts {
        lasting(text).ok_or_else(no_time)?;
    }
    let (what, reason) = (target.to_string(), reason.as_str());
    Ok(Deed::Press(
        json!({ "what": what, "reason": reason, "for": args.lasts }),
    ))
}

fn ask(admin: &Admin, deed: &Deed) -> Result<Json, Refused> {
    let one = |id: &StopId| format!("{PATH}/{id}");
    match deed {
        Deed::List => admin::ask(admin, &Asked::get(PATH)),
        Deed::Lift(id) => admin::ask(
            admin,
            &Asked {
                method: "DELETE",
                ..Asked::get(&one(id))
            },
        ),
        Deed::Press(body) => admin::ask(
            admin,
            &Asked {
                method: "POST",
                body: Some(body.to_string()),
                ..Asked::get(PATH)
            },
        ),
    }
}

/// A stop that is not there is an answer; what the proxy does not understand is wrong usage.
fn refused_with(refused: &Refused) -> Exit {
    match refused {
        Refused::Answered(404, words) => {
            let _told = say_and_fail(words);
            Exit::Negative
        }
        Refused::Answered(400, words) => complain(words),
        Refused::Answered(..) | Refused::NotAsked(_) => say_and_fail(refused),
    }
}

fn tell(deed: &Deed, document: &Json, format: Format) -> Exit {
    for warning in part(document, "warnings").as_array().into_iter().flatten() {
        warn(&warning.as_str().unwrap_or_default());
    }
    let text = match (format, deed) {
        (Format::Json, _) => format!("{document:#}\n"),
        (Format::Text, Deed::List) => listed(
            part(document, "stops")
                .as_array()
                .map_or(&[], Vec::as_slice),
        ),
        (Format::Text, Deed::Lift(id)) => {
            format!("{} goes on: stop {id} is lifted\n", word(document, "what"))
        }
        (Format::Text, Deed::Press(_)) => format!(
            "{} is stopped {}: {}\nlift it with: crawlgate stop --lift {}\n",
            word(document, "what"),
            until(document),
            word(document, "reason"),
            word(document, "id")
        ),
    };
    out::write(&text, Exit::Success)
}

fn listed(stops: &[Json]) -> String {
    if stops.is_empty() {
        return "nothing is stopped\n".to_owned();
    }
    let widest = |key: &str| {
        stops
            .iter()
            .map(|stop| word(stop, key).chars().count())
            .max()
            .unwrap_or(0)
    };
    let (ids, names) = (widest("id"), widest("what"));
    let mut text = String::new();
    for stop in stops {
        let (id, what, reason) = (word(stop, "id"), word(stop, "what"), word(stop, "reason"));
        let _ = writeln!(
            text,
            "{id:>ids$}  {what:<names$}  since {}  {}  {reason}",
            word(stop, "since"),
            until(stop)
        );
    }
    text
}

fn until(stop: &Json) -> String {
    part(stop, "until")
        .as_str()
        .map_or("until it is lifted".to_owned(), |until| {
            format!("until {until}")
        })
}

/// What is at a key; nothing at all counts as null.
fn part<'j>(entry: &'j Json, key: &str) -> &'j Json {
    entry.get(key).unwrap_or(&Json::Null)
}

fn word<'j>(entry: &'j Json, key: &str) -> &'j str {
    part(entry, key).as_str().unwrap_or_default()
}
