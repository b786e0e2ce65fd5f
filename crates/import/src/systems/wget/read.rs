//! Reads a command line as a shell does, or the lines of a `.wgetrc`.

use crate::input::{ImportError, ImportInput, MAX_RULE_FILE, Place, SourceText};
use crate::report::{MissingPart, PartId, Report};
use crate::systems::wget::shell::{
    COMPUTED, CommandUse, ShellCommand, ShellWord, command_use, is_assignment, shell_commands,
};
use crate::systems::wget::{WgetCommand, WgetSource, WgetStart};

/// Returns `true` for a script that starts wget, however far it was read.
pub(crate) fn recognize(beginning: &[u8]) -> bool {
    let text = String::from_utf8_lossy(beginning);
    if text.trim_start().starts_with(['<', '{', '[']) {
        return false;
    }
    text.lines().any(|line| {
        let line = line.trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        // `sh -c "wget …"`
        let is_whole = line.contains("wget") && !line.starts_with('#') && {
            let commands = shell_commands("", line).unwrap_or_default();
            let starts = |command: &ShellCommand| {
                matches!(command_use(command), CommandUse::Wget(at) if command.len() > at)
            };
            commands.iter().any(starts)
        };
        if is_whole {
            return true;
        }
        let start = words.iter().position(|word| is_command_word(word));
        let Some(start) = start.filter(|_| !line.starts_with('#')) else {
            return false;
        };
        let commands = shell_commands(
            "",
            words.get(..=start).unwrap_or_default().join(" ").as_str(),
        );
        let found = commands.ok().and_then(|mut commands| commands.pop());
        words.len() > start + 1
            && found.is_some_and(|command| matches!(command_use(&command), CommandUse::Wget(_)))
    })
}

fn is_command_word(word: &str) -> bool {
    word.rsplit('/').next() == Some("wget")
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

/// Further commands of a `.wgetrc`, which have no option of the same name.
const WGETRC_COMMANDS: &[&str] = &[
    "addhostdir",
    "alwaysrest",
    "askpassword",
    "binddnsaddress",
    "cache",
    "checkcertificate",
    "chooseconfig",
    "cookies",
    "deleteafter",
    "dirstruct",
    "dnscache",
    "dotbytes",
    "dotsinline",
    "dotspacing",
    "dotstyle",
    "ftppasswd",
    "ftpproxy",
    "ftpscleardataconnection",
    "ftpsfallbacktoftp",
    "ftpsresumessl",
    "ftpstmlf",
    "glob",
    "hsts",
    "htmlify",
    "httpkeepalive",
    "httppasswd",
    "httpproxy",
    "httpsproxy",
    "ifmodifiedsince",
    "iri",
    "login",
    "netrc",
    "noclobber",
    "noconfig",
    "noproxy",
    "numtries",
    "passwd",
    "proxypasswd",
    "removelisting",
    "robots",
    "showalldnsentries",
    "useproxy",
    "warccdxdedup",
    "warccompression",
    "warcdigests",
    "warckeeplog",
    "wdebug",
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
        if is_wgetrc(&text.text) {
            reader.wgetrc(&text);
            continue;
        }
        match shell_commands(&path.path, &text.text) {
            Ok(commands) => reader.script(&commands, &text),
            Err(error) if recognize(text.text.as_bytes()) => {
                return Err(ImportError::invalid(&error.place, error.message));
            }
            Err(_) => reader.wgetrc(&text),
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

struct WgetReader<'a, 'i> {
    input: &'a ImportInput<'i>,
    report: &'a mut Report,
    source: WgetSource,
}

impl WgetReader<'_, '_> {
    fn push(&mut self, part: PartId, name: &str, value: &str) {
        let name = normalized(name);
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

    fn wgetrc(&mut self, text: &SourceText) {
        for (place, line) in text.lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            let part = self.report.add(place, shown(name.trim(), value.trim()));
            if is_wgetrc_line(line) {
                self.push(part, name.trim(), value);
            } else {
                self.report.not_converted(
                    part,
                    "no command of a .wgetrc, and no command line of wget",
                    MissingPart::OtherSetting,
                    None,
                );
            }
        }
    }

    /// Reads the first command of a script that starts wget. Each other command is a part.
    fn script(&mut self, commands: &[ShellCommand], text: &SourceText) {
        let starts = |command: &&ShellCommand| matches!(command_use(command), CommandUse::Wget(_));
        let Some(first) = commands.iter().position(|command| starts(&command)) else {
            self.wgetrc(text);
            return;
        };
        for (index, command) in commands.iter().enumerate() {
            let Some(word) = command.first() else {
                continue;
            };
            let found = command_use(command);
            match found {
                CommandUse::Wget(at) if index == first => {
                    self.command_line(command.get(at..).unwrap_or_default());
                }
                CommandUse::Wget(_) => {
                    let part = self.report.add(word.place.clone(), "wget …");
                    self.report.not_converted(
                        part,
                        "a further command of wget; a policy is made of the first",
                        MissingPart::KeepsOut,
                        Some("import each command into a policy of its own"),
                    );
                }
                CommandUse::MentionsWget => {
                    let part = self.report.add(word.place.clone(), named(word));
                    self.report.not_converted(
                        part,
                        "wget is started by another command",
                        MissingPart::KeepsOut,
                        Some("write the command of wget as a line of its own"),
                    );
                }
                CommandUse::Other => {
                    let part = self.report.add(word.place.clone(), named(word));
                    self.report.unrelated(part, "no command of wget");
                }
            }
        }
    }

    fn command_line(&mut self, words: &[ShellWord]) {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some(long) = word.text.strip_prefix("--") {
                self.long(long, word, &mut words);
            } else if word.text.len() > 1 && word.text.starts_with('-') {
                self.short(word, &mut words);
            } else if word.computed {
                let text = without_password(&word.text);
                let part = self.report.add(word.place.clone(), text);
                let why = "a value of the shell is not known here";
                self.report
                    .not_converted(part, why, MissingPart::KeepsOut, Some("write it out"));
            } else {
                let text = without_password(&word.text);
                let part = self.report.add(word.place.clone(), text);
                self.start(part, &word.text);
            }
        }
    }

    /// Adds an option whose value the shell computes. It is not converted if it is about what is fetched.
    fn push_computed(&mut self, part: PartId, name: &str) {
        let name = normalized(name);
        let failure = match name.as_str() {
            "domains" | "excludedomains" | "includedirectories" | "excludedirectories"
            | "acceptregex" | "rejectregex" | "accept" | "reject" | "quota" | "followtags"
            | "ignoretags" | "config" | "noparent" | "httpsonly" | "reclevel" => {
                MissingPart::LetsThrough
            }
            "input" | "base" | "recursive" | "mirror" | "spanhosts" => MissingPart::KeepsOut,
            "wait" | "randomwait" | "limitrate" | "robots" | "regextype" | "ignorecase"
            | COMPUTED => MissingPart::OtherSetting,
            _ => {
                self.push(part, &name, "");
                return;
            }
        };
        if name == "reclevel" {
            // Without it the policy would have wget's default depth.
            self.push(part, &name, COMPUTED);
        }
        let why = "its value is computed by the shell, and not known here";
        self.report
            .not_converted(part, why, failure, Some("write it out"));
    }

    /// Adds an option with its value, which is in the same word or in the next.
    fn push_value(&mut self, part: PartId, name: &str, value: &str, computed: bool) {
        if computed {
            self.push_computed(part, name);
        } else {
            self.push(part, name, value);
        }
    }

    fn long(&mut self, option: &str, word: &ShellWord, words: &mut ShellWords<'_>) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option, None),
        };
        let name = full_name(name);
        let place = &word.place;
        let mut computed = word.computed;
        let mut value_of = |value: Option<String>| {
            value.unwrap_or_else(|| {
                let next = words.next();
                computed |= next.is_some_and(|word| word.computed);
                next.map(|word| word.text.clone()).unwrap_or_default()
            })
        };
        if name == "execute" {
            let command = value_of(value);
            self.execute(place, &command, computed);
        } else if let Some((_, _, command)) = WITH_VALUE.iter().find(|(_, long, _)| *long == name) {
            let value = value_of(value);
            let part = self
                .report
                .add(place.clone(), shown(&format!("--{name}"), &value));
            self.push_value(part, command, &value, computed);
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
    fn short(&mut self, word: &ShellWord, words: &mut ShellWords<'_>) {
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
                let mut computed = word.computed;
                let value = if after.is_empty() {
                    let next = words.next();
                    computed |= next.is_some_and(|word| word.computed);
                    next.map(|word| word.text.clone()).unwrap_or_default()
                } else {
                    after.trim_start_matches('=').to_owned()
                };
                match with_value {
                    Some((_, _, command)) => {
                        let part = self
                            .report
                            .add(word.place.clone(), shown(&format!("-{letter}"), &value));
                        self.push_value(part, command, &value, computed);
                    }
                    None => self.execute(&word.place, &value, computed),
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

    fn execute(&mut self, place: &Place, command: &str, computed: bool) {
        let (name, value) = command.split_once('=').unwrap_or((command, ""));
        let part = self.report.add(
            place.clone(),
            shown(&format!("-e {}", name.trim()), value.trim()),
        );
        self.push_value(part, name.trim(), value, computed);
    }
}

/// The words of a command that are not read yet.
type ShellWords<'a> = std::slice::Iter<'a, ShellWord>;

/// Returns the name of a command of a `.wgetrc` in lower case without `_` and `-`.
fn normalized(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// Shows a command by its first word, as the others may hold secrets.
fn named(word: &ShellWord) -> String {
    match word.text.split_once('=') {
        Some((name, _)) if is_assignment(&word.text) => format!("{name}=…"),
        _ => format!("{} …", without_password(&word.text)),
    }
}

/// Returns `true` if each line of a file is a command of a `.wgetrc`.
fn is_wgetrc(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.all(|line| line.is_empty() || line.starts_with('#') || is_wgetrc_line(line))
}

fn is_wgetrc_line(line: &str) -> bool {
    line.split_once('=').is_some_and(|(name, _)| {
        let name = normalized(name.trim());
        let is_option = WITH_VALUE
            .iter()
            .chain(SWITCHES)
            .any(|(_, _, command)| *command == name);
        is_option
            || WGETRC_COMMANDS.contains(&name.as_str())
            || OTHER_SWITCHES
                .iter()
                .any(|switch| normalized(switch) == name)
    })
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
