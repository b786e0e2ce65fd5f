//! Reads a command line as a shell does, or the lines of a `.wgetrc`.

use std::sync::Arc;

use crate::input::{ImportError, ImportInput, MAX_RULE_FILE, Place};
use crate::report::{MissingPart, PartId, Report};
use crate::systems::wget::{WgetCommand, WgetSource, WgetStart};

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    let mut lines = text.lines().map(str::trim);
    lines
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .is_some_and(|line| line.starts_with("wget "))
}

/// Options with a value: the letter, the long name, and the command of `.wgetrc`.
const WITH_VALUE: &[(&str, &str, &str)] = &[
    ("A", "accept", "accept"),
    ("R", "reject", "reject"),
    ("D", "domains", "domains"),
    ("", "exclude-domains", "excludedomains"),
    ("I", "include-directories", "includedirectories"),
    ("X", "exclude-directories", "excludedirectories"),
    ("", "accept-regex", "acceptregex"),
    ("", "reject-regex", "rejectregex"),
    ("", "regex-type", "regextype"),
    ("l", "level", "reclevel"),
    ("w", "wait", "wait"),
    ("", "limit-rate", "limitrate"),
    ("Q", "quota", "quota"),
    ("i", "input-file", "input"),
    ("U", "user-agent", "useragent"),
    ("O", "output-document", "outputdocument"),
    ("P", "directory-prefix", "dirprefix"),
    ("o", "output-file", "logfile"),
    ("a", "append-output", "logfile"),
    ("t", "tries", "tries"),
    ("T", "timeout", "timeout"),
    ("B", "base", "base"),
    ("", "user", "user"),
    ("", "password", "password"),
    ("", "http-user", "httpuser"),
    ("", "http-password", "httppassword"),
    ("", "proxy-user", "proxyuser"),
    ("", "proxy-password", "proxypassword"),
    ("", "header", "header"),
    ("", "cut-dirs", "cutdirs"),
    ("", "warc-file", "warcfile"),
    ("", "load-cookies", "loadcookies"),
    ("", "save-cookies", "savecookies"),
    ("", "waitretry", "waitretry"),
    ("", "max-redirect", "maxredirect"),
    ("", "referer", "referer"),
    ("", "follow-tags", "followtags"),
    ("", "ignore-tags", "ignoretags"),
    ("", "ca-certificate", "cacertificate"),
    ("", "certificate", "certificate"),
    ("", "private-key", "privatekey"),
    ("", "post-data", "postdata"),
    ("", "dns-timeout", "dnstimeout"),
    ("", "connect-timeout", "connecttimeout"),
    ("", "read-timeout", "readtimeout"),
    ("", "restrict-file-names", "restrictfilenames"),
    ("", "bind-address", "bindaddress"),
    ("", "prefer-family", "preferfamily"),
    ("", "progress", "progress"),
    ("", "report-speed", "reportspeed"),
    ("", "secure-protocol", "secureprotocol"),
    ("", "method", "method"),
    ("", "body-data", "bodydata"),
    ("", "body-file", "bodyfile"),
    ("", "ftp-user", "ftpuser"),
    ("", "ftp-password", "ftppassword"),
    ("", "remote-encoding", "remoteencoding"),
    ("", "local-encoding", "localencoding"),
    ("", "use-askpass", "useaskpass"),
    ("", "rejected-log", "rejectedlog"),
    ("", "ca-directory", "cadirectory"),
    ("", "crl-file", "crlfile"),
    ("", "certificate-type", "certificatetype"),
    ("", "private-key-type", "privatekeytype"),
    ("", "random-file", "randomfile"),
    ("", "egd-file", "egdfile"),
    ("", "pinnedpubkey", "pinnedpubkey"),
    ("", "ciphers", "ciphers"),
    ("", "hsts-file", "hstsfile"),
    ("", "warc-header", "warcheader"),
    ("", "warc-max-size", "warcmaxsize"),
    ("", "warc-tempdir", "warctempdir"),
    ("", "warc-dedup", "warcdedup"),
    ("", "start-pos", "startpos"),
    ("", "retry-on-http-error", "retryonhttperror"),
    ("", "config", "config"),
    ("", "input-metalink", "inputmetalink"),
    ("", "metalink-index", "metalinkindex"),
    ("", "preferred-location", "preferredlocation"),
    ("", "compression", "compression"),
    ("", "dns-servers", "dnsservers"),
    ("", "post-file", "postfile"),
    ("", "default-page", "defaultpage"),
];

/// Switches that are not about which pages are fetched. Those that begin with `no-` are not listed.
const OTHER_SWITCHES: &[&str] = &[
    "adjust-extension",
    "ask-password",
    "auth-no-challenge",
    "background",
    "backup-converted",
    "backups",
    "content-disposition",
    "content-on-error",
    "continue",
    "convert-file-only",
    "convert-links",
    "debug",
    "delete-after",
    "force-directories",
    "force-html",
    "ftps-implicit",
    "html-extension",
    "ignore-length",
    "inet4-only",
    "inet6-only",
    "keep-badhash",
    "keep-session-cookies",
    "metalink-over-http",
    "passive-ftp",
    "preserve-permissions",
    "protocol-directories",
    "quiet",
    "retr-symlinks",
    "retry-connrefused",
    "retry-on-host-error",
    "save-headers",
    "server-response",
    "show-progress",
    "spider",
    "strict-comments",
    "timestamping",
    "trust-server-names",
    "unlink",
    "use-server-timestamps",
    "verbose",
    "warc-cdx",
    "xattr",
];

/// Switches: the letter, the long name, and the command.
const SWITCHES: &[(&str, &str, &str)] = &[
    ("r", "recursive", "recursive"),
    ("m", "mirror", "mirror"),
    ("H", "span-hosts", "spanhosts"),
    ("L", "relative", "relativeonly"),
    ("p", "page-requisites", "pagerequisites"),
    ("", "random-wait", "randomwait"),
    ("", "no-parent", "noparent"),
    ("", "ignore-case", "ignorecase"),
    ("", "https-only", "httpsonly"),
    ("", "follow-ftp", "followftp"),
];

pub(super) fn read(
    input: &ImportInput<'_>,
    report: &mut Report,
) -> Result<WgetSource, ImportError> {
    let mut reader = WgetReader {
        input,
        report,
        source: WgetSource::default(),
    };
    for path in &input.paths {
        let text = input.read_text(&path.path, MAX_RULE_FILE)?;
        if recognize(text.text.as_bytes()) {
            reader.command_line(&path.path, &text.text)?;
        } else {
            for (place, line) in text.lines() {
                let line = line.trim();
                if !line.is_empty() && !line.starts_with('#') {
                    reader.wgetrc_line(place, line);
                }
            }
        }
    }
    for seed in input
        .seeds
        .iter()
        .flat_map(|seeds| seeds.lines())
        .map(str::trim)
    {
        if !seed.is_empty() && !seed.starts_with('#') {
            reader.source.starts.push(WgetStart {
                part: None,
                url: seed.to_owned(),
            });
        }
    }
    Ok(reader.source)
}

/// The maximum number of words of a command.
const MAX_WORDS: usize = 20_000;

struct WgetReader<'a, 'i> {
    input: &'a ImportInput<'i>,
    report: &'a mut Report,
    source: WgetSource,
}

/// A word of a shell, with its place.
struct CommandWord {
    text: String,
    place: Place,
    /// It has a variable or a command in it.
    computed: bool,
}

impl WgetReader<'_, '_> {
    fn push(&mut self, part: PartId, name: &str, value: &str) {
        let name: String = name
            .chars()
            .filter(|c| !matches!(c, '_' | '-'))
            .map(|c| c.to_ascii_lowercase())
            .collect();
        let value = value.trim().to_owned();
        if name == "input" {
            self.input_file(part, &value);
            return;
        }
        self.source.commands.push(WgetCommand { part, name, value });
    }

    fn input_file(&mut self, part: PartId, file: &str) {
        match self.input.read_text(file, MAX_RULE_FILE) {
            Ok(text) => {
                self.report.unrelated(part, "its URLs follow");
                for (place, line) in text.lines().filter(|(_, line)| !line.trim().is_empty()) {
                    let part = self.report.add(place, without_password(line.trim()));
                    self.start(part, line.trim());
                }
            }
            Err(error) => self.report.not_converted(
                part,
                format!("the file of URLs is not read: {error}"),
                MissingPart::KeepsOut,
                Some("put it beside the command, or use --seeds"),
            ),
        }
    }

    fn start(&mut self, part: PartId, url: &str) {
        let url = if url.contains("://") {
            url.to_owned()
        } else {
            format!("http://{url}")
        };
        self.source.starts.push(WgetStart {
            part: Some(part),
            url,
        });
    }

    fn wgetrc_line(&mut self, place: Place, line: &str) {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let part = self.report.add(place, shown(name.trim(), value.trim()));
        self.push(part, name.trim(), value);
    }

    fn command_line(&mut self, file: &str, text: &str) -> Result<(), ImportError> {
        let mut words = shell_words(file, text)?.into_iter();
        words.next();
        while let Some(word) = words.next() {
            if word.computed {
                let part = self.report.add(word.place, "…");
                let why = "a value of the shell is not known here";
                self.report
                    .not_converted(part, why, MissingPart::KeepsOut, Some("write it out"));
            } else if let Some(long) = word.text.strip_prefix("--") {
                self.long(long, &word.place, &mut words);
            } else if word.text.len() > 1 && word.text.starts_with('-') {
                self.short(&word, &mut words);
            } else {
                let part = self.report.add(word.place, without_password(&word.text));
                self.start(part, &word.text);
            }
        }
        Ok(())
    }

    fn long(&mut self, option: &str, place: &Place, words: &mut dyn Iterator<Item = CommandWord>) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option, None),
        };
        let name = full_name(name);
        if name == "execute" {
            let command = value.or_else(|| words.next().map(|word| word.text));
            self.execute(place, &command.unwrap_or_default());
        } else if let Some((_, _, command)) = WITH_VALUE.iter().find(|(_, long, _)| *long == name) {
            let value = value
                .or_else(|| words.next().map(|word| word.text))
                .unwrap_or_default();
            let part = self
                .report
                .add(place.clone(), shown(&format!("--{name}"), &value));
            self.push(part, command, &value);
        } else if let Some((_, _, command)) = SWITCHES.iter().find(|(_, long, _)| *long == name) {
            let part = self.report.add(place.clone(), format!("--{name}"));
            self.push(part, command, "on");
        } else {
            let part = self.report.add(place.clone(), format!("--{name}"));
            let is_known = OTHER_SWITCHES.contains(&name)
                || matches!(
                    name,
                    "no-clobber" | "no-directories" | "no-check-certificate"
                )
                || name.starts_with("no-");
            if is_known {
                self.push(part, name, "");
            } else {
                let why = "an option that is not known";
                self.report
                    .not_converted(part, why, MissingPart::LetsThrough, None);
            }
        }
    }

    /// Reads letters that may be joined, of which the last may have a value: `-rl 3`, `-np`.
    fn short(&mut self, word: &CommandWord, words: &mut dyn Iterator<Item = CommandWord>) {
        let mut rest = word.text.get(1..).unwrap_or_default();
        while let Some(letter) = rest.get(..1) {
            let after = rest.get(1..).unwrap_or_default();
            if letter == "n" {
                let part = self.report.add(
                    word.place.clone(),
                    format!("-{}", rest.get(..2).unwrap_or(rest)),
                );
                let name = if after.starts_with('p') {
                    "noparent"
                } else {
                    "no"
                };
                self.push(part, name, "on");
                rest = after.get(1..).unwrap_or_default();
                continue;
            }
            let with_value = WITH_VALUE.iter().find(|(short, _, _)| *short == letter);
            if letter == "e" || with_value.is_some() {
                let value = if after.is_empty() {
                    words.next().map(|word| word.text).unwrap_or_default()
                } else {
                    after.trim_start_matches('=').to_owned()
                };
                match with_value {
                    Some((_, _, command)) => {
                        let part = self
                            .report
                            .add(word.place.clone(), shown(&format!("-{letter}"), &value));
                        self.push(part, command, &value);
                    }
                    None => self.execute(&word.place, &value),
                }
                return;
            }
            let part = self.report.add(word.place.clone(), format!("-{letter}"));
            match SWITCHES.iter().find(|(short, _, _)| *short == letter) {
                Some((_, _, command)) => self.push(part, command, "on"),
                None => self.push(part, letter, ""),
            }
            rest = after;
        }
    }

    fn execute(&mut self, place: &Place, command: &str) {
        let (name, value) = command.split_once('=').unwrap_or((command, ""));
        let part = self.report.add(
            place.clone(),
            shown(&format!("-e {}", name.trim()), value.trim()),
        );
        self.push(part, name.trim(), value);
    }
}

/// Completes a name that is shortened, as wget does if only one begins with it.
fn full_name(name: &str) -> &str {
    let longs = WITH_VALUE.iter().chain(SWITCHES).map(|(_, long, _)| *long);
    let all: Vec<&str> = longs
        .chain(OTHER_SWITCHES.iter().copied())
        .chain(["execute"])
        .collect();
    if all.contains(&name) {
        return name;
    }
    let mut fitting = all.into_iter().filter(|long| long.starts_with(name));
    match (fitting.next(), fitting.next()) {
        (Some(long), None) => long,
        _ => name,
    }
}

/// Shows an option; values that may be secrets as `***`.
fn shown(name: &str, value: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let is_secret = ["pass", "user", "header", "cookie", "post", "proxy", "key"]
        .iter()
        .any(|word| lower.contains(word));
    match (is_secret, value) {
        (_, "") => name.to_owned(),
        (true, _) => format!("{name} ***"),
        (false, value) => format!("{name} {value}"),
    }
}

fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest.split_at_checked(end) {
        Some((authority, path)) => match authority.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://***@{host}{path}"),
            None => url.to_owned(),
        },
        None => url.to_owned(),
    }
}

/// Splits a command into words, with quotes and backslashes. It ends at `;`, `|`, `&`, `>` or a new line.
fn shell_words(file: &str, text: &str) -> Result<Vec<CommandWord>, ImportError> {
    let mut words: Vec<CommandWord> = Vec::new();
    let mut current: Option<CommandWord> = None;
    let mut quote = None;
    let (mut line, mut column) = (1, 0);
    let mut chars = text.chars().peekable();
    let mut started = false;
    let file: Arc<str> = file.into();
    while let Some(c) = chars.next() {
        column += 1;
        let place = Place {
            file: Arc::clone(&file),
            line,
            column,
        };
        if words.len() > MAX_WORDS {
            let message = format!("more than {MAX_WORDS} words");
            return Err(ImportError::invalid(&place, message));
        }
        if c == '\n' {
            (line, column) = (line + 1, 0);
        }
        if current.is_none() && quote.is_none() && c == '#' {
            while chars.next_if(|c| *c != '\n').is_some() {}
            continue;
        }
        let is_end = matches!(c, '\n' | ';' | '|' | '&' | '>' | '<');
        if quote.is_none() && (c.is_whitespace() || is_end) {
            words.extend(current.take());
            if is_end && started {
                break;
            }
            continue;
        }
        started = true;
        if quote.is_none() && c == '\\' && chars.next_if_eq(&'\n').is_some() {
            (line, column) = (line + 1, 0);
            continue;
        }
        let word = current.get_or_insert_with(|| CommandWord {
            text: String::new(),
            place: place.clone(),
            computed: false,
        });
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None | Some('"'), '\\') => word.text.extend(chars.next()),
            (None | Some('"'), '$' | '`') => word.computed = true,
            (_, c) => word.text.push(c),
        }
    }
    words.extend(current);
    if quote.is_some() {
        let place = Place {
            line,
            column: 1,
            file,
        };
        return Err(ImportError::invalid(&place, "a quote is not closed"));
    }
    Ok(words)
}
