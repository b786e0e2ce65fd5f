//! Reads `squid.conf`: logical lines, comments above them, `include`, and values in files.

use crate::input::{ImportError, ImportInput, MAX_RULE_FILE, Place};
use crate::report::{MissingPart, PartId, Report};
use crate::settings::SettingsDraft;
use crate::systems::squid::{AccessLine, AclUse, AclValue, SquidAcl, SquidSource};

/// The greatest depth of `include`.
const MAX_INCLUDES: usize = 16;
/// The maximum number of files that are included.
const MAX_FILES: usize = 200;

/// A source with its report.
pub(super) struct SquidFile {
    pub source: SquidSource,
    pub settings: SettingsDraft,
    /// `reply_body_max_size` without a condition: its line, and the size as the policy writes it.
    pub max_body: Option<(PartId, String)>,
}

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        let access = matches!(words.next(), Some("http_access" | "http_reply_access"));
        access && matches!(words.next(), Some("allow" | "deny"))
    })
}

pub(super) fn read(input: &ImportInput<'_>, report: &mut Report) -> Result<SquidFile, ImportError> {
    let mut reader = SquidReader {
        input,
        report,
        file: SquidFile {
            source: SquidSource {
                acls: predefined_acls(),
                ..SquidSource::default()
            },
            settings: SettingsDraft::default(),
            max_body: None,
        },
        files: 0,
        conditions: 0,
    };
    for path in &input.paths {
        reader.read_file(&path.path, 0)?;
    }
    Ok(reader.file)
}

/// The `acl`s that squid defines itself.
fn predefined_acls() -> Vec<SquidAcl> {
    let acls: [(&str, &str, &[&str]); 6] = [
        ("all", "src", &["all"]),
        ("manager", "squid-manager", &[]),
        ("localhost", "src", &["127.0.0.1/32", "::1"]),
        (
            "to_localhost",
            "dst",
            &["127.0.0.0/8", "0.0.0.0/32", "::1/128", "::/128"],
        ),
        ("to_linklocal", "dst", &["169.254.0.0/16", "fe80::/10"]),
        ("CONNECT", "method", &["CONNECT"]),
    ];
    let acls = acls.iter().map(|(name, kind, values)| {
        let mut acl = new_acl(name, kind);
        acl.values = values.iter().map(|text| plain_value(text)).collect();
        acl
    });
    acls.collect()
}

fn new_acl(name: &str, kind: &str) -> SquidAcl {
    SquidAcl {
        name: name.to_owned(),
        kind: kind.to_owned(),
        parts: Vec::new(),
        values: Vec::new(),
        about: None,
        problem: None,
        no_lookup: false,
        notes: Vec::new(),
    }
}

fn plain_value(text: &str) -> AclValue {
    AclValue {
        text: text.to_owned(),
        ignore_case: false,
    }
}

struct SquidReader<'a, 'i> {
    input: &'a ImportInput<'i>,
    report: &'a mut Report,
    file: SquidFile,
    files: usize,
    /// The number of `if` that are open.
    conditions: usize,
}

/// A line with those that continue it.
struct LogicalLine {
    place: Place,
    text: String,
    about: Option<String>,
}

/// Joins continued lines, and gives each the comment above it.
fn logical_lines<'t>(lines: impl Iterator<Item = (Place, &'t str)>) -> Vec<LogicalLine> {
    let mut found: Vec<LogicalLine> = Vec::new();
    let mut comments: Vec<&str> = Vec::new();
    let mut continues = false;
    for (place, line) in lines {
        let (text, goes_on) = match line.strip_suffix('\\') {
            Some(text) => (text, true),
            None => (line, false),
        };
        if let Some(last) = found.last_mut().filter(|_| continues) {
            last.text.push(' ');
            last.text.push_str(text.trim());
        } else if let Some(comment) = line.trim().strip_prefix('#') {
            comments.push(comment.trim());
            continue;
        } else if line.trim().is_empty() {
            comments.clear();
            continue;
        } else {
            let about = comments.join(" ");
            comments.clear();
            found.push(LogicalLine {
                place,
                text: text.trim().to_owned(),
                about: Some(about).filter(|about| is_description(about)),
            });
        }
        continues = goes_on;
    }
    found
}

/// Returns `false` for comments that are commented rules or decoration.
fn is_description(comment: &str) -> bool {
    let first = comment.split_whitespace().next().unwrap_or_default();
    let is_directive = first == "acl" || first.contains('_') || first == "TAG:";
    !is_directive && comment.len() <= 200 && comment.chars().any(char::is_alphabetic)
}

impl SquidReader<'_, '_> {
    fn read_file(&mut self, path: &str, depth: usize) -> Result<(), ImportError> {
        self.files += 1;
        let source = self.input.read_text(path, MAX_RULE_FILE)?;
        for line in logical_lines(source.lines()) {
            self.read_line(line, depth)?;
        }
        Ok(())
    }

    fn read_line(&mut self, line: LogicalLine, depth: usize) -> Result<(), ImportError> {
        let words = split_words(&line.text);
        let Some((directive, rest)) = words.split_first() else {
            return Ok(());
        };
        let part = self
            .report
            .add(line.place.clone(), without_secrets(directive, &line.text));
        match directive.as_str() {
            "if" => self.conditions += 1,
            "endif" => {
                self.conditions = self.conditions.saturating_sub(1);
                self.conditional(part);
                return Ok(());
            }
            _ => {}
        }
        if self.conditions > 0 {
            self.conditional(part);
            return Ok(());
        }
        match directive.as_str() {
            "acl" => self.read_acl(rest, part, &line),
            "http_access" => {
                let access = self.read_access(rest, part, line.about);
                self.file.source.requests.extend(access);
            }
            "http_reply_access" => {
                let access = self.read_access(rest, part, line.about);
                self.file.source.replies.extend(access);
            }
            "include" => self.include(rest, part, depth)?,
            "ssl_bump" => self.read_bump(rest, part),
            "reply_body_max_size" => self.read_max_body(rest, part),
            directive => self.other(directive, part),
        }
        Ok(())
    }

    fn conditional(&mut self, part: PartId) {
        self.report.not_converted(
            part,
            "lines between if and endif depend on the process of squid",
            MissingPart::LetsThrough,
            Some("a file without if"),
        );
    }

    fn read_access(
        &mut self,
        words: &[String],
        part: PartId,
        about: Option<String>,
    ) -> Option<AccessLine> {
        let (action, names) = words.split_first()?;
        let allows = match action.as_str() {
            "allow" => true,
            "deny" => false,
            _ => {
                let why = "neither allow nor deny: squid does not start with it";
                self.report
                    .not_converted(part, why, MissingPart::LetsThrough, None);
                return None;
            }
        };
        let acls = names.iter().map(|word| {
            let name = word.trim_start_matches('!');
            AclUse {
                name: name.to_owned(),
                negated: (word.len() - name.len()) % 2 == 1,
            }
        });
        let acls: Vec<AclUse> = acls.collect();
        if acls.is_empty() {
            let why = "it names no acl, and squid ignores it";
            self.report.dead(part, why);
            return None;
        }
        Some(AccessLine {
            part,
            allows,
            acls,
            about,
        })
    }

    fn read_acl(&mut self, words: &[String], part: PartId, line: &LogicalLine) {
        let (Some(name), Some(kind)) = (words.first(), words.get(1)) else {
            let why = "an acl needs a name and a type";
            self.report
                .not_converted(part, why, MissingPart::LetsThrough, None);
            return;
        };
        let mut acl = match self.take_acl(name) {
            Some(acl) => acl,
            None => new_acl(name, kind),
        };
        if acl.parts.is_empty() {
            acl.about.clone_from(&line.about);
        }
        if acl.kind != *kind {
            acl.problem = Some(format!("the acl has two types, {} and {kind}", acl.kind));
        }
        acl.parts.push(part);
        self.read_values(&mut acl, words.get(2..).unwrap_or_default(), part);
        self.file.source.acls.push(acl);
    }

    /// Takes an `acl` that is already defined. One of squid's own is replaced if the type is another one.
    fn take_acl(&mut self, name: &str) -> Option<SquidAcl> {
        let acls = &mut self.file.source.acls;
        let index = acls.iter().position(|acl| acl.name == name)?;
        let acl = acls.remove(index);
        (!acl.parts.is_empty() || acl.name == "all").then_some(acl)
    }

    fn read_values(&mut self, acl: &mut SquidAcl, words: &[String], part: PartId) {
        let is_regex = acl.kind.ends_with("_regex") || acl.kind.ends_with("mime_type");
        let mut ignore_case = false;
        for word in words {
            match word.as_str() {
                "-i" if is_regex => ignore_case = true,
                "+i" if is_regex => ignore_case = false,
                "-n" => acl.no_lookup = true,
                "--" => {}
                word => match file_name(word) {
                    Some(file) => self.read_values_of_file(acl, file, ignore_case, part),
                    None => acl.values.push(AclValue {
                        text: word.to_owned(),
                        ignore_case,
                    }),
                },
            }
        }
    }

    fn read_values_of_file(
        &mut self,
        acl: &mut SquidAcl,
        file: &str,
        ignore_case: bool,
        part: PartId,
    ) {
        let path = relative(file);
        let source = match self.input.read_text(&path, MAX_RULE_FILE) {
            Ok(source) => source,
            Err(error) => {
                acl.problem = Some(format!(
                    "its file {file} is not read ({error}): copy it beside squid.conf"
                ));
                return;
            }
        };
        if path != file {
            let note = format!("{file} is the file {path} beside squid.conf");
            acl.notes.push(note);
        }
        let _ = part;
        let mut ignore_case = ignore_case;
        for (place, line) in source.lines() {
            let value = without_comment(line).trim();
            if value.is_empty() {
                continue;
            }
            acl.parts.push(self.report.add(place, value));
            for word in value_words(value, &acl.kind) {
                match word {
                    "-i" => ignore_case = true,
                    "+i" => ignore_case = false,
                    word => acl.values.push(AclValue {
                        text: word.to_owned(),
                        ignore_case,
                    }),
                }
            }
        }
    }

    fn include(&mut self, words: &[String], part: PartId, depth: usize) -> Result<(), ImportError> {
        let mut problem = None;
        for word in words {
            let paths = match self.included_files(&relative(word.trim_matches('"'))) {
                Ok(paths) => paths,
                Err(why) => {
                    problem = Some(why);
                    continue;
                }
            };
            for path in paths {
                if depth >= MAX_INCLUDES || self.files >= MAX_FILES {
                    problem = Some("too many files are included, or in a circle".to_owned());
                    continue;
                }
                match self.read_file(&path, depth + 1) {
                    Ok(()) => {}
                    Err(error @ (ImportError::File { .. } | ImportError::Outside { .. })) => {
                        problem = Some(format!("the file is not read: {error}"));
                    }
                    Err(error @ (ImportError::Invalid { .. } | ImportError::Defect(_))) => {
                        return Err(error);
                    }
                }
            }
        }
        match problem {
            Some(why) => self.report.not_converted(
                part,
                why,
                MissingPart::LetsThrough,
                Some("include the file by its name, beside squid.conf"),
            ),
            None => self
                .report
                .unrelated(part, "the file was read in its place"),
        }
        Ok(())
    }

    /// Returns the files that a path names, which may have `*` and `?` in its last part.
    fn included_files(&self, path: &str) -> Result<Vec<String>, String> {
        if !path.contains(['*', '?', '[']) {
            return Ok(vec![path.to_owned()]);
        }
        let (directory, pattern) = path.rsplit_once('/').unwrap_or(("", path));
        if directory.contains(['*', '?', '[']) || pattern.contains('[') {
            return Err("such a pattern of file names is not expanded".to_owned());
        }
        let names = self.input.list_files(directory);
        let mut names = names.map_err(|error| format!("no directory is read: {error}"))?;
        // As for a shell, a star does not stand for the first dot of a name.
        names.retain(|name| {
            name.starts_with('.') == pattern.starts_with('.')
                && fits_pattern(pattern.as_bytes(), name.as_bytes())
        });
        if names.is_empty() {
            return Err("no file fits it".to_owned());
        }
        let paths = names.iter().map(|name| match directory {
            "" => name.clone(),
            directory => format!("{directory}/{name}"),
        });
        Ok(paths.collect())
    }

    fn read_bump(&mut self, words: &[String], part: PartId) {
        match words.first().map(String::as_str) {
            Some("terminate" | "reconnect" | "err") => self.report.not_converted(
                part,
                "squid ends connections by it during the TLS handshake",
                MissingPart::LetsThrough,
                Some("a rule `forbid` with the hosts"),
            ),
            Some("splice" | "none") => self.report.unrelated(
                part,
                "which tunnels are not intercepted is the option `tls: tunnel` of a rule; see configuration.yaml",
            ),
            _ => {
                self.file.source.bumps = true;
                self.report.unrelated(
                    part,
                    "https is intercepted unless `tls.intercept` is false; see configuration.yaml",
                );
            }
        }
        let settings = &mut self.file.settings.settings;
        if !settings.iter().any(|(path, _, _)| path == "tls.intercept") {
            let note = "The source has ssl_bump lines. Where squid splices, set the option `tls: tunnel` in a rule of the policy.";
            settings.push(("tls.intercept".to_owned(), true.into(), note.to_owned()));
        }
    }

    fn read_max_body(&mut self, words: &[String], part: PartId) {
        let mut words = words.iter().map(String::as_str);
        let number: Option<u64> = words.next().and_then(|word| word.parse().ok());
        let unit = match words.next() {
            Some("bytes" | "B") | None => Some("B"),
            Some("KB" | "kB") => Some("KiB"),
            Some("MB") => Some("MiB"),
            Some("GB") => Some("GiB"),
            Some(_) => None,
        };
        let is_for_all = words.all(|word| word == "all");
        match (number, unit) {
            (Some(number), Some(unit)) if is_for_all && self.file.max_body.is_none() => {
                self.file.max_body = Some((part, format!("{number}{unit}")));
            }
            _ => self.report.not_converted(
                part,
                "a limit of size with a condition",
                MissingPart::LetsThrough,
                Some("`set: { max_body: … }` in a rule"),
            ),
        }
    }

    fn other(&mut self, directive: &str, part: PartId) {
        let decides = matches!(
            directive,
            "adapted_http_access"
                | "http_access2"
                | "miss_access"
                | "url_rewrite_program"
                | "redirect_program"
                | "request_header_access"
                | "reply_header_access"
                | "ident_lookup_access"
                | "icap_enable"
                | "adaptation_access"
                | "tcp_outgoing_address"
                | "cache_peer_access"
        );
        if directive.starts_with("delay_") {
            self.report.not_converted(
                part,
                "delay pools limit the bandwidth of clients",
                MissingPart::OtherSetting,
                Some("`politeness.bytes_per_second` limits that of hosts"),
            );
        } else if matches!(
            directive,
            "adapted_http_access" | "http_access2" | "miss_access"
        ) || directive.ends_with("_program") && decides
        {
            self.report.not_converted(
                part,
                "it can refuse requests, and has no counterpart",
                MissingPart::LetsThrough,
                None,
            );
        } else {
            let why = "none of a policy's business: caching, logging, peers, ports or headers";
            self.report.unrelated(part, why);
        }
    }
}

/// Returns the name of the file that a value stands for: `"blocked.txt"` or `parameters("blocked.txt")`.
fn file_name(word: &str) -> Option<&str> {
    let word = match word.strip_prefix("parameters(") {
        Some(inner) => inner.strip_suffix(')')?,
        None => word,
    };
    word.strip_prefix('"')?.strip_suffix('"')
}

/// Makes a path of an absolute one: that below squid's directory, or the name of the file.
fn relative(path: &str) -> String {
    for directory in ["/etc/squid/", "/etc/squid3/", "/usr/local/etc/squid/"] {
        if let Some(rest) = path.strip_prefix(directory) {
            return rest.to_owned();
        }
    }
    let name = if path.starts_with('/') {
        path.rsplit('/').next()
    } else {
        None
    };
    name.unwrap_or(path).to_owned()
}

/// Splits a line into words. A word that begins with `#` begins a comment; quotes keep spaces together.
fn split_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '#' {
            break;
        }
        let is_quoted = first == '"' || rest.starts_with("parameters(\"");
        let end = match rest.find('"').filter(|_| is_quoted) {
            Some(open) => {
                let inner = rest.get(open + 1..).unwrap_or_default();
                let close = inner.find('"').map(|close| open + close + 2);
                close.map(|close| close + word_end(rest.get(close..).unwrap_or_default()))
            }
            None => None,
        };
        let end = end.unwrap_or_else(|| word_end(rest));
        let (word, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
        words.push(word.to_owned());
        rest = tail.trim_start();
    }
    words
}

fn word_end(text: &str) -> usize {
    text.find(char::is_whitespace).unwrap_or(text.len())
}

/// Cuts the comment of a line in a file of values.
fn without_comment(line: &str) -> &str {
    let begins = line.trim_start().starts_with('#');
    let cut = line.find(" #").or_else(|| line.find("\t#"));
    match cut {
        _ if begins => "",
        Some(cut) => line.get(..cut).unwrap_or(line),
        None => line,
    }
}

/// Splits a line of a file into values. In a file of expressions a line is one value.
fn value_words<'v>(value: &'v str, kind: &str) -> Vec<&'v str> {
    if kind.ends_with("_regex") {
        return vec![value];
    }
    value.split_whitespace().collect()
}

/// Replaces passwords by `***`.
fn without_secrets(directive: &str, line: &str) -> String {
    let has_secret = matches!(
        directive,
        "cachemgr_passwd"
            | "cache_peer"
            | "auth_param"
            | "external_acl_type"
            | "wccp2_service"
            | "sslcrtd_program"
            | "url_rewrite_program"
            | "https_port"
            | "ftp_user"
    ) || line.contains(" snmp_community ")
        || line.contains("login=")
        || line.contains("password");
    if has_secret {
        return format!("{directive} ***");
    }
    line.to_owned()
}

/// Compares a name with a pattern in which `*` is any text and `?` any character.
fn fits_pattern(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // The place after the last star, and what it fits so far.
    let mut star = None;
    while let Some(byte) = name.get(read) {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                star = Some((at, read));
            }
            Some(expected) if *expected == b'?' || expected == byte => {
                at += 1;
                read += 1;
            }
            Some(_) | None => {
                let Some((after, from)) = star else {
                    return false;
                };
                at = after;
                read = from + 1;
                star = Some((after, read));
            }
        }
    }
    let rest = pattern.get(at..).unwrap_or_default();
    rest.iter().all(|byte| *byte == b'*')
}
