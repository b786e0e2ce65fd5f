//! `crawlgate init`: writes a configuration and a policy to start from.
//!
//! They are the shipped files of `config/`, with the settings that the answers change. So they have the same comments, and
//! are checked by the same tests.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use crate::config::file;
use crate::model::rule_id::Slug;
use crate::policy::source;

use super::Exit;
use super::args::{HttpsMode, InitArgs, parse_crawler};
use super::console::{self, report_cannot_run, report_invalid};

const CONFIG: &str = include_str!("../../config/crawlgate.yaml");
const POLICY: &str = include_str!("../../config/policy.yaml");
const BROWSER_NOISE: &str = include_str!("../../config/lists/browser-noise.txt");

/// The crawler's name if none is given.
const DEFAULT_CRAWLER: &str = "crawler";

/// Runs the command. Exits with 2 if it would overwrite a file, with 3 if a file cannot be written.
pub(super) fn run(args: &InitArgs) -> Exit {
    // Before the questions, whose answers would be lost.
    let result = check_absent(args)
        .and_then(|()| collect_answers(args))
        .and_then(|answers| {
            let files = build_files(&answers)?;
            write_files(&args.directory, &files, args.force)
                .map(|()| summary(&args.directory, &files, &answers))
        });
    match result {
        Ok(text) => console::print(&text, Exit::Success),
        Err(InitError::Usage(message)) => report_invalid(&message),
        Err(InitError::Io(message)) => report_cannot_run(&message),
    }
}

/// The reason why nothing, or not everything, was written.
#[derive(Debug, PartialEq, Eq)]
enum InitError {
    /// A file exists, or an answer is invalid.
    Usage(String),
    /// A file or the terminal cannot be used.
    Io(String),
}

/// The settings that are asked for.
#[derive(Debug, PartialEq, Eq)]
struct InitAnswers {
    crawler: Slug,
    /// The networks that the crawler connects from; empty is this machine.
    sources: Vec<IpNet>,
    https: HttpsMode,
}

/// Takes the options, and asks for the others if there is a terminal.
fn collect_answers(args: &InitArgs) -> Result<InitAnswers, InitError> {
    let asks = !args.yes && io::stdin().is_terminal() && io::stderr().is_terminal();
    let crawler = match &args.crawler {
        Some(name) => name.clone(),
        None if asks => ask(
            "Name of your crawler, for rules, metrics and the log",
            DEFAULT_CRAWLER,
            parse_crawler,
        )?,
        None => parse_crawler(DEFAULT_CRAWLER).map_err(InitError::Usage)?,
    };
    let sources = match args.from.as_slice() {
        [] if asks => ask(
            "Networks that it connects from, such as 10.1.0.0/16",
            "this machine only",
            parse_sources,
        )?,
        sources => sources.to_vec(),
    };
    let https = match args.https {
        Some(https) => https,
        None if asks => ask(
            "HTTPS: evaluate each url (crawlers must trust a local certificate authority), or the host only",
            "url",
            parse_https,
        )?,
        None => HttpsMode::Url,
    };
    Ok(InitAnswers {
        crawler,
        sources,
        https,
    })
}

/// Asks until the answer is valid. An empty answer is the default.
fn ask<T>(
    question: &str,
    default: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, InitError> {
    loop {
        eprint!("{question} [{default}]: ");
        let _ = io::stderr().flush();
        let mut line = String::new();
        let count = io::stdin().lock().read_line(&mut line);
        if count.map_err(|error| InitError::Io(error.to_string()))? == 0 {
            return Err(InitError::Usage("nothing was written".to_owned()));
        }
        let answer = match line.trim() {
            "" => default,
            answer => answer,
        };
        match parse(answer) {
            Ok(value) => return Ok(value),
            Err(message) => eprintln!("{message}"),
        }
    }
}

fn parse_sources(text: &str) -> Result<Vec<IpNet>, String> {
    if text == "this machine only" {
        return Ok(Vec::new());
    }
    text.split([',', ' '])
        .filter(|part| !part.is_empty())
        .map(|part| {
            part.parse()
                .map_err(|_| format!("{part} is not a network: write one such as 10.1.0.0/16"))
        })
        .collect()
}

fn parse_https(text: &str) -> Result<HttpsMode, String> {
    match text {
        "url" => Ok(HttpsMode::Url),
        "host" => Ok(HttpsMode::Host),
        _ => Err("write url or host".to_owned()),
    }
}

/// Configuration and policy belong under version control, the authority's key does not.
const GITIGNORE: &str = "/certs/\n/var/\n";

/// The paths of all files, in the directory.
const PATHS: [&str; 6] = [
    "config/crawlgate.yaml",
    "config/policy.yaml",
    "config/lists/browser-noise.txt",
    "config/crawlgate.schema.json",
    "config/policy.schema.json",
    ".gitignore",
];

/// A file to write, with its path in the directory.
struct InitFile {
    path: &'static str,
    text: String,
}

fn build_files(answers: &InitAnswers) -> Result<Vec<InitFile>, InitError> {
    let texts = [
        build_config(answers)?,
        POLICY.to_owned(),
        BROWSER_NOISE.to_owned(),
        format!("{:#}\n", file::json_schema()),
        format!("{:#}\n", source::json_schema()),
        GITIGNORE.to_owned(),
    ];
    let files = PATHS.into_iter().zip(texts);
    Ok(files.map(|(path, text)| InitFile { path, text }).collect())
}

/// Returns the shipped configuration with the answers.
fn build_config(answers: &InitAnswers) -> Result<String, InitError> {
    let name = answers.crawler.as_str();
    let (listen, sources) = match answers.sources.as_slice() {
        [] => ("127.0.0.1:3128", "127.0.0.0/8, \"::1/128\"".to_owned()),
        networks => {
            let quoted: Vec<String> = networks.iter().map(|net| format!("\"{net}\"")).collect();
            ("0.0.0.0:3128", quoted.join(", "))
        }
    };
    let mut changes = vec![
        (
            "# Every key is shown with its default; omitted keys keep these defaults, which also apply without this file. An unknown key\n# is",
            "# `crawlgate init` has set crawlers, logs.decisions and logs.rotate, and listen and tls.intercept where it was asked to. All\n\
             # other keys are shown with their defaults. Omitted keys have their defaults, too. An unknown key\n# is"
                .to_owned(),
        ),
        ("listen: 127.0.0.1:3128\n", format!("listen: {listen}\n")),
        (
            "crawlers: []\n",
            format!("crawlers:\n  - {{ name: {name}, sources: [{sources}] }}\n"),
        ),
        (
            "  decisions: auto                #",
            "  decisions: ../var/decisions.jsonl # auto:".to_owned(),
        ),
        (
            "  rotate: { size: 256MiB, keep: 8, max_age: none }\n",
            "  rotate: { size: 128MiB, keep: 30, max_age: 30d }\n".to_owned(),
        ),
    ];
    if answers.https == HttpsMode::Host {
        changes.push(("  intercept: true\n", "  intercept: false\n".to_owned()));
    }
    let mut text = CONFIG.to_owned();
    for (shipped, changed) in changes {
        // A test covers all answers, so that a change of the shipped file is noticed.
        let (before, after) = text.split_once(shipped).ok_or_else(|| {
            InitError::Io(format!(
                "the built-in configuration lacks the line {shipped:?}"
            ))
        })?;
        text = format!("{before}{changed}{after}");
    }
    Ok(text)
}

/// Checks that no file would be overwritten without `--force`.
fn check_absent(args: &InitArgs) -> Result<(), InitError> {
    let existing: Vec<String> = PATHS
        .iter()
        .map(|path| args.directory.join(path))
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| path.display().to_string())
        .collect();
    if existing.is_empty() || args.force {
        return Ok(());
    }
    Err(InitError::Usage(format!(
        "nothing was written, since these files exist: {}. Name another directory, or add --force to overwrite them",
        existing.join(", ")
    )))
}

fn write_files(directory: &Path, files: &[InitFile], force: bool) -> Result<(), InitError> {
    for file in files {
        let path = directory.join(file.path);
        write_file(&path, &file.text, force)
            .map_err(|error| InitError::Io(format!("{}: {error}", path.display())))?;
    }
    // The place of the decision log and of the ledger. The certificate authority is created by `run`.
    let var = directory.join("var");
    fs::create_dir_all(&var).map_err(|error| InitError::Io(format!("{}: {error}", var.display())))
}

fn write_file(path: &Path, text: &str, force: bool) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    OpenOptions::new()
        .write(true)
        .create(true)
        .create_new(!force)
        .truncate(force)
        .open(path)?
        .write_all(text.as_bytes())
}

/// Lists the files, and the commands to run next.
fn summary(directory: &Path, files: &[InitFile], answers: &InitAnswers) -> String {
    let mut text = String::new();
    for file in files {
        let _ = writeln!(text, "wrote {}", directory.join(file.path).display());
    }
    text.push_str("\nNext, start the proxy, and in another shell send a crawler through it:\n\n");
    let change = match directory == Path::new(".") {
        true => String::new(),
        false => format!("cd {} && ", shell_word(directory)),
    };
    let _ = writeln!(text, "  {change}crawlgate run");
    let _ = writeln!(text, "  eval \"$(crawlgate env)\"");
    let _ = writeln!(text, "  curl -i http://example.com/calendar/2031/");
    if !answers.sources.is_empty() {
        let _ = writeln!(
            text,
            "\nCrawlers on other machines use http://ADDRESS-OF-THIS-MACHINE:3128 as their proxy."
        );
    }
    let _ = writeln!(
        text,
        "\nconfig/policy.yaml decides what may be crawled: edit it, then run `crawlgate check`. A running proxy reloads it."
    );
    text
}

/// Quotes a path for a shell if necessary.
fn shell_word(path: &Path) -> String {
    let text = PathBuf::from(path).display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    if text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_changes_its_line_of_the_shipped_configuration() {
        let answers = InitAnswers {
            crawler: Slug::new("news-bot").unwrap(),
            sources: vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()],
            https: HttpsMode::Host,
        };
        let text = build_config(&answers).unwrap();
        for line in [
            "listen: 0.0.0.0:3128",
            "  - { name: news-bot, sources: [\"10.1.0.0/16\", \"fd00::/8\"] }",
            "  intercept: false",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
        assert!(text.contains("  decisions: ../var/decisions.jsonl # auto:"));
        assert!(!text.contains("Every key is shown with its default"));
    }

    #[test]
    fn answers_are_parsed() {
        assert_eq!(parse_sources("this machine only"), Ok(vec![]));
        assert_eq!(
            parse_sources("10.1.0.0/16, ::1/128").map(|found| found.len()),
            Ok(2)
        );
        assert!(parse_sources("10.1").is_err());
        assert_eq!(parse_https("host"), Ok(HttpsMode::Host));
        assert!(parse_https("both").is_err());
        assert!(parse_crawler("anonymous").is_err() && parse_crawler("A b").is_err());
    }

    #[test]
    fn a_path_with_spaces_is_quoted() {
        assert_eq!(shell_word(Path::new("my crawl")), "'my crawl'");
        assert_eq!(shell_word(Path::new("/srv/crawl-1")), "/srv/crawl-1");
    }
}
