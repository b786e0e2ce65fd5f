//! `crawlgate robots`: what a robots.txt says, without a policy. `check` reads a file and asks nobody; `fetch` asks the
//! host.

mod beyond;
mod fetch;

use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Map, Value as Json, json};

use crate::clock::Clock;
use crate::robots::agent::product_token;
use crate::robots::extension::Stated;
use crate::robots::{Access, MAX_BYTES, Parsed, Ruling};
use crate::vocab::target::UrlTarget;
use crate::vocab::units::show_duration;

use super::args::{Format, RobotsArgs, RobotsCheckArgs, RobotsCommand};
use super::harmless::harmless;
use super::{Exit, out};

pub(super) fn run(args: &RobotsArgs) -> Exit {
    match &args.command {
        RobotsCommand::Check(args) => check(args),
        RobotsCommand::Fetch(args) => fetch::run(args),
    }
}

fn check(args: &RobotsCheckArgs) -> Exit {
    let agent = product_token(&args.agent);
    if agent.is_empty() {
        return out::complain(
            &"--agent has to begin with a product token: letters, digits, - and _",
        );
    }
    if args.file == Path::new("-") && args.urls.is_empty() {
        return out::complain(&"standard input is the file: write the URLs as arguments");
    }
    let parsed = match read(&args.file) {
        Ok(body) => Parsed::new(&body),
        Err(error) => return out::complain(&format!("{}: {error}", args.file.display())),
    };
    let mut asked = Asked {
        parsed: &parsed,
        agent,
        format: args.format,
        out: &mut io::stdout().lock(),
    };
    match asked.all(&args.urls, &mut io::stdin().lock()) {
        Ok(0) => Exit::Success,
        Ok(_) => Exit::Negative,
        Err(error) => out::failed(&error),
    }
}

/// One byte more than is used, so that a longer file is seen to be longer.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (limit, mut body) = (MAX_BYTES as u64 + 1, vec![]);
    match path == Path::new("-") {
        true => io::stdin().lock().take(limit).read_to_end(&mut body)?,
        false => File::open(path)?.take(limit).read_to_end(&mut body)?,
    };
    Ok(body)
}

/// URLs asked of one file for one crawler.
struct Asked<'a> {
    parsed: &'a Parsed,
    agent: &'a str,
    format: Format,
    out: &'a mut dyn Write,
}

impl Asked<'_> {
    /// Writes one line for each URL, and says how many of them are none.
    fn all(&mut self, urls: &[String], stdin: &mut dyn BufRead) -> io::Result<usize> {
        let mut mistakes = 0;
        self.file()?;
        for url in urls {
            mistakes += self.one(url)?;
        }
        if urls.is_empty() {
            let mut line = Vec::new();
            while stdin.read_until(b'\n', &mut line)? > 0 {
                mistakes +=
                    self.one(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']))?;
                line.clear();
            }
        }
        self.out.flush()?;
        Ok(mistakes)
    }

    /// What the file says beside its rules, for people; in JSON `fetch` tells it, since here each line is an answer.
    fn file(&mut self) -> io::Result<()> {
        let noted = match self.format {
            Format::Text => beyond::in_text(self.parsed, self.agent),
            Format::Json => vec![],
        };
        noted
            .iter()
            .try_for_each(|(word, value)| writeln!(self.out, "{word:<9} {value}"))
    }

    fn one(&mut self, input: &str) -> io::Result<usize> {
        let path = match path_and_query(input) {
            Ok(path) => path,
            Err(mistake) => {
                self.mistake(input, &mistake)?;
                return Ok(1);
            }
        };
        let answer = Answer::of(self.parsed, self.agent, &path);
        match self.format {
            Format::Text => writeln!(self.out, "{}", answer.to_text(input))?,
            Format::Json => writeln!(self.out, "{}", Json::Object(answer.to_json(input)))?,
        }
        Ok(0)
    }

    fn mistake(&mut self, input: &str, mistake: &str) -> io::Result<()> {
        match self.format {
            // Quoted, so that a space or a control character is seen and does nothing.
            Format::Text => writeln!(self.out, "{:<9} {mistake}: {input:?}", "error"),
            Format::Json => writeln!(self.out, "{}", json!({ "input": input, "error": mistake })),
        }
    }
}

/// The path and query of a URL as the proxy would send it; a path alone is taken for one on some host.
fn path_and_query(input: &str) -> Result<String, String> {
    let url = match input.starts_with('/') && !input.starts_with("//") {
        true => format!("http://host.invalid{input}"),
        false => input.to_owned(),
    };
    let target = UrlTarget::parse(&url).map_err(|mistake| mistake.to_string())?;
    Ok(target.path_and_query().to_owned())
}

/// What the file says of one URL.
struct Answer<'a> {
    ruling: Ruling<'a>,
    delay: Option<Duration>,
    /// The time between requests that Request-rate asks for now.
    rate: Option<Duration>,
    usage: Vec<Stated<'a>>,
}

impl<'a> Answer<'a> {
    fn of(parsed: &'a Parsed, agent: &str, path_and_query: &str) -> Self {
        let now = || {
            Clock::system()
                .wall()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
        };
        Self {
            ruling: parsed.ruling(agent, path_and_query),
            delay: parsed.crawl_delay(agent),
            rate: parsed.request_rate(agent, now),
            usage: parsed.usage(agent, path_and_query),
        }
    }

    fn to_text(&self, input: &str) -> String {
        let cause = match (&self.ruling.cause, &self.ruling.group) {
            (Some(cause), _) => format!("line {}: {}", cause.line, harmless(&cause.rule)),
            (None, Some(_)) => "no rule matches".to_owned(),
            (None, None) => "no group".to_owned(),
        };
        let group = self
            .ruling
            .group
            .as_deref()
            .map(|g| format!("  (group {})", harmless(g)));
        let delay = self
            .delay
            .map(|d| format!("  crawl-delay {}", show_duration(d)));
        let rate = self
            .rate
            .map(|interval| format!("  request-rate 1/{}", show_duration(interval)));
        let (group, delay, rate) = (
            group.unwrap_or_default(),
            delay.unwrap_or_default(),
            rate.unwrap_or_default(),
        );
        let usage = beyond::usage_in_text(&self.usage);
        format!(
            "{:<9} {}  {cause}{group}{delay}{rate}{usage}",
            word(self.ruling.access),
            harmless(input)
        )
    }

    fn to_json(&self, input: &str) -> Map<String, Json> {
        let cause = self.ruling.cause.as_ref();
        let entries = [
            ("url", json!(input)),
            ("allow", json!(self.ruling.access == Access::Allow)),
            ("line", json!(cause.map(|cause| cause.line))),
            ("rule", json!(cause.map(|cause| &cause.rule))),
            ("group", json!(self.ruling.group)),
            ("crawl_delay", json!(self.delay.map(show_duration))),
            (
                "request_rate",
                json!(
                    self.rate
                        .map(|interval| format!("1/{}", show_duration(interval)))
                ),
            ),
            ("usage", beyond::usage_in_json(&self.usage)),
        ];
        entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}

fn word(access: Access) -> &'static str {
    match access {
        Access::Allow => "allow",
        Access::Disallow => "disallow",
    }
}
