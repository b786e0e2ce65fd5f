//! Lines of a robots.txt beyond RFC 9309: usage preferences, and what is only reported (Visit-time, Clean-param, Host).
//!
//! Nothing here changes what Allow and Disallow mean (RFC 9309 section 2.2.4). A file without such lines keeps nothing
//! for them, and one with very many keeps the first ones on uses, and the first of those that are only reported.
//!
//! - `Content-Usage: /path train-ai=n` and `Content-Signal: train-ai=n`: a rule of its group; before the first group, of
//!   all. The path may be left out in both, and is then `/`. Of the Content-Usage lines of a group those with the longest
//!   path that matches hold, whatever Allow and Disallow say; Content-Signal lines all hold that match. Where several
//!   hold, the strictest does, for each use.
//! - Such a line ends a list of user agents, but for these lines alone.
//! - `Visit-time: 0600-0845` is its group's; `Clean-param: sid&sort /shop/` and `Host: example.com` are the site's.

mod builder;

use std::borrow::Cow;

use super::escape::{normal_form, query_decoded};
use super::parse::Parsed;
use super::pattern::{Compiled, Form, matches_rest};
use super::rules::{Agent, Span, named};
use super::usage::{Preference, Spelling, preference, statement};

pub(super) use builder::{Builder, Kept};

/// What such a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// `Content-Usage` (draft-ietf-aipref-attach).
    Usage,
    /// `Content-Signal` (Cloudflare).
    Signal,
    /// `Visit-time`: the hours of the day, in UTC, in which crawlers are wanted.
    VisitTime,
    /// `Clean-param`: parameters that do not change a page (Yandex).
    CleanParam,
    /// `Host`: the site's main name (Yandex).
    Host,
}

/// The keys, in any case.
const KEYS: [(&[u8], Extension); 14] = [
    (b"content-usage", Extension::Usage),
    (b"contentusage", Extension::Usage),
    (b"content usage", Extension::Usage),
    (b"content-signal", Extension::Signal),
    (b"content-signals", Extension::Signal),
    (b"contentsignal", Extension::Signal),
    (b"content signal", Extension::Signal),
    (b"visit-time", Extension::VisitTime),
    (b"visittime", Extension::VisitTime),
    (b"visit time", Extension::VisitTime),
    (b"clean-param", Extension::CleanParam),
    (b"cleanparam", Extension::CleanParam),
    (b"clean param", Extension::CleanParam),
    (b"host", Extension::Host),
];

/// The lines on uses that are kept of a file, and as many that are only reported: sites have a few.
pub const MAX_LINES: usize = 1000;
/// The uses that are shown of one URL, whichever they are.
const MAX_USES: usize = 64;

impl Extension {
    /// What a key names; all of it has to be there, since some of the words begin others.
    pub(super) fn of_key(name: &[u8]) -> Option<Self> {
        KEYS.iter()
            .find(|(key, _)| name.eq_ignore_ascii_case(key))
            .map(|(_, extension)| *extension)
    }

    /// The key as documentation writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Usage => "Content-Usage",
            Self::Signal => "Content-Signal",
            Self::VisitTime => "Visit-time",
            Self::CleanParam => "Clean-param",
            Self::Host => "Host",
        }
    }

    fn spelling(self) -> Option<Spelling> {
        match self {
            Self::Usage => Some(Spelling::Usage),
            Self::Signal => Some(Spelling::Signal),
            Self::VisitTime | Self::CleanParam | Self::Host => None,
        }
    }
}

/// What a robots.txt says of one use of one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated<'a> {
    /// The use.
    pub purpose: Box<str>,
    /// What is said of it.
    pub preference: Preference,
    /// The first line that says so, from 1.
    pub line: u32,
    /// The line, without white space around it and without a comment.
    pub rule: Cow<'a, str>,
}

/// A line that is only reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted<'a> {
    /// Its number, from 1.
    pub line: u32,
    /// Its value.
    pub value: Cow<'a, str>,
}

impl Parsed {
    /// Whether any line speaks of uses.
    pub fn speaks_of_uses(&self) -> bool {
        let speaks = |s: &Statement| s.extension.spelling().is_some();
        self.extensions
            .as_ref()
            .is_some_and(|e| e.statements.iter().any(speaks))
    }

    /// What the file says to a crawler of uses of a URL, each use once, in the order of the lines: the first ones, to be
    /// shown. What is to be obeyed is asked for by its name, with [`Self::usage_of`].
    ///
    /// `agent` is its product token; `path_and_query` starts with `/`.
    pub fn usage(&self, agent: &str, path_and_query: &str) -> Vec<Stated<'_>> {
        self.stated(agent, path_and_query, |line, found| {
            self.add_stated(line, found)
        })
    }

    /// What the file says to a crawler of the uses of these names, however many others it names; a use of which it says
    /// nothing is left out.
    pub fn usage_of<'n>(
        &self,
        agent: &str,
        path_and_query: &str,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Vec<Stated<'_>> {
        self.stated(agent, path_and_query, |line, found| {
            names
                .clone()
                .for_each(|name| self.add_named(line, name, found));
        })
    }

    fn stated<'a>(
        &'a self,
        agent: &str,
        path_and_query: &str,
        mut add: impl FnMut(&Statement, &mut Vec<Stated<'a>>),
    ) -> Vec<Stated<'a>> {
        let Some(extensions) = self.extensions.as_deref() else {
            return vec![];
        };
        let written = normal_form(path_and_query.as_bytes());
        let url = Url {
            query: query_decoded(&written),
            written: &written,
        };
        let group = extensions.group(&self.text, agent);
        let mut found = Vec::new();
        for scope in [Scope::Site, Scope::Group(group)] {
            let holding = extensions.holding(scope, &url);
            holding.for_each(|statement| add(statement, &mut found));
        }
        found.sort_by_key(|stated| stated.line);
        found
    }

    /// The values of a crawler's Visit-time lines: of its group, and of the site.
    pub fn visit_times(&self, agent: &str) -> Vec<Noted<'_>> {
        let Some(extensions) = self.extensions.as_deref() else {
            return vec![];
        };
        let group = extensions.group(&self.text, agent);
        let scopes = [Scope::Site, Scope::Group(group)];
        let here = |statement: &&Statement| scopes.iter().any(|scope| scope.has(statement));
        self.noted(Extension::VisitTime, here)
    }

    /// The values of all lines of a kind, in order.
    pub fn lines_of(&self, extension: Extension) -> Vec<Noted<'_>> {
        self.noted(extension, |_| true)
    }

    fn noted(&self, extension: Extension, of: impl Fn(&&Statement) -> bool) -> Vec<Noted<'_>> {
        let all = self
            .extensions
            .as_deref()
            .map_or(&[][..], |extensions| &extensions.statements);
        let these = all
            .iter()
            .filter(|statement| statement.extension == extension)
            .filter(of);
        these
            .map(|statement| Noted {
                line: statement.line,
                value: self.words(statement.value),
            })
            .collect()
    }

    fn add_stated<'a>(&'a self, line: &Statement, found: &mut Vec<Stated<'a>>) {
        let Some(spelling) = line.extension.spelling() else {
            return;
        };
        for (purpose, preference) in statement(spelling, &self.words(line.value)) {
            if found.len() < MAX_USES || found.iter().any(|known| known.purpose == purpose) {
                self.add_one(line, &purpose, preference, found);
            }
        }
    }

    fn add_named<'a>(&'a self, line: &Statement, name: &str, found: &mut Vec<Stated<'a>>) {
        let Some(spelling) = line.extension.spelling() else {
            return;
        };
        let said = preference(spelling, &self.words(line.value), name);
        if said != Preference::Unset {
            self.add_one(line, name, said, found);
        }
    }

    fn add_one<'a>(
        &'a self,
        line: &Statement,
        name: &str,
        said: Preference,
        found: &mut Vec<Stated<'a>>,
    ) {
        let stated = || Stated {
            purpose: name.into(),
            preference: said,
            line: line.line,
            rule: self.words(line.whole),
        };
        match found.iter_mut().find(|known| *known.purpose == *name) {
            Some(known) if known.preference < said => *known = stated(),
            Some(_) => {}
            None => found.push(stated()),
        }
    }

    fn words(&self, span: Span) -> Cow<'_, str> {
        String::from_utf8_lossy(span.of(&self.text).unwrap_or_default())
    }
}

/// One such line.
#[derive(Debug)]
struct Statement {
    extension: Extension,
    line: u32,
    /// Which list of user agents it follows; none before the first.
    section: Option<u32>,
    whole: Span,
    /// Of preferences the value behind the path.
    value: Span,
    /// The path, if it is another than `/`.
    path: Option<Box<Compiled>>,
}

/// All such lines of a file.
#[derive(Debug)]
pub(super) struct Extensions {
    statements: Box<[Statement]>,
    /// As those of the rules, with the sections of these lines.
    agents: Box<[Agent]>,
}

/// For whom a line is.
#[derive(Clone, Copy)]
enum Scope<'a> {
    Site,
    Group(&'a [Agent]),
}

impl Scope<'_> {
    fn has(self, statement: &Statement) -> bool {
        match (self, statement.section) {
            (Self::Site, section) => section.is_none(),
            (Self::Group(agents), Some(section)) => {
                agents.iter().any(|agent| agent.section == section)
            }
            (Self::Group(_), None) => false,
        }
    }
}

/// A URL in the two forms that patterns look at.
struct Url<'a> {
    written: &'a [u8],
    query: Cow<'a, [u8]>,
}

impl Extensions {
    fn group(&self, text: &[u8], agent: &str) -> &[Agent] {
        match named(&self.agents, text, agent.as_bytes()) {
            [] => named(&self.agents, text, b"*"),
            own => own,
        }
    }

    /// The lines on uses that hold for a URL.
    fn holding<'a>(
        &'a self,
        scope: Scope<'a>,
        url: &'a Url<'a>,
    ) -> impl Iterator<Item = &'a Statement> {
        let matching = move || {
            self.statements
                .iter()
                .filter(move |s| scope.has(s) && s.matches(url))
        };
        let usages = move || matching().filter(|s| s.extension == Extension::Usage);
        let longest = usages().map(Statement::octets).max().unwrap_or(0);
        let signals = matching().filter(|s| s.extension == Extension::Signal);
        usages()
            .filter(move |s| s.octets() == longest)
            .chain(signals)
    }

    pub(super) fn bytes(&self) -> usize {
        let path = |s: &Statement| {
            s.path
                .as_ref()
                .map_or(0, |p| size_of::<Compiled>() + p.bytes.len())
        };
        let paths: usize = self.statements.iter().map(path).sum();
        size_of::<Self>() + size_of_val(&*self.statements) + size_of_val(&*self.agents) + paths
    }
}

impl Statement {
    fn octets(&self) -> usize {
        self.path.as_ref().map_or(1, |path| path.octets)
    }

    fn matches(&self, url: &Url<'_>) -> bool {
        let Some(path) = &self.path else { return true };
        let text: &[u8] = match path.form {
            Form::Written => url.written,
            Form::Query => &url.query,
        };
        matches_rest(&path.bytes, path.end, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, agent: &str, path: &str, expected: &str) {
        let parsed = Parsed::new(file.as_bytes());
        let stated = parsed.usage(agent, path);
        let stated: Vec<String> = stated
            .iter()
            .map(|s| format!("{} {} {}", s.purpose, s.preference.as_str(), s.line))
            .collect();
        assert_eq!(stated.join(", "), expected, "{agent} {path}\n{file}");
    }

    /// The example of draft-ietf-aipref-attach.
    #[test]
    fn the_drafts_example() {
        let file = "User-Agent: *\nAllow: /\nDisallow: /never/\nContent-Usage: / train-ai=n\n\
                    Content-Usage: /ai-ok/ train-ai=y\n\nUser-Agent: ExampleBot\nAllow: /\nContent-Usage: / train-ai=y\n";
        check(file, "other", "/test", "train-ai deny 4");
        check(file, "other", "/ai-ok/test", "train-ai allow 5");
        check(file, "examplebot", "/test", "train-ai allow 9");
    }

    #[test]
    fn groups_and_the_site() {
        let file = "Content-Signal: search=yes, ai-train=no\nUser-agent: a\nContent-Usage: train-ai=y\n\
                    User-agent: *\nContent-Usage: search=n\nUser-agent: b\nUser-agent: c\nDisallow: /x\nUser-agent: B\n\
                    Content-Signal: ai-input=no\n";
        check(file, "a", "/", "search allow 1, train-ai deny 1");
        check(file, "d", "/", "train-ai deny 1, search deny 5");
        check(
            file,
            "b",
            "/",
            "search allow 1, train-ai deny 1, ai-input deny 10",
        );
        check(file, "c", "/", "search allow 1, train-ai deny 1");
    }

    #[test]
    fn paths() {
        let file = "User-agent: *\nContent-Usage: /*.pdf$ train-ai=n\nContent-Usage: /a/\ttrain-ai=y\n\
                    Content-Usage: /a/b/c/ search=n # why\nContent-Usage:/a/b/c/   train-ai=y,search=y\n\
                    Content-Signal: /a/ ai-input=no\nContent-Usage: /%7Ex train-ai=n\nContent-Usage: /q?r=/ s=n\n";
        check(file, "x", "/z.pdf", "train-ai deny 2");
        check(file, "x", "/z.pdfx", "");
        check(file, "x", "/a/1", "train-ai allow 3, ai-input deny 6");
        check(file, "x", "/a/b.pdf", "train-ai deny 2, ai-input deny 6");
        check(
            file,
            "x",
            "/a/b/c/d",
            "search deny 4, train-ai allow 5, ai-input deny 6",
        );
        check(file, "x", "/~x", "train-ai deny 7");
        check(file, "x", "/q?r=%2F", "s deny 8");
    }

    #[test]
    fn hostile_spellings() {
        for (file, expected) in [
            ("\u{feff}CONTENT-USAGE : TRAIN-AI = NO", "train-ai deny 1"),
            ("content usage: train-ai=n", "train-ai deny 1"),
            ("Content-Usage train-ai=n", "train-ai deny 1"),
            ("Content-Signals: ai-train=no", "train-ai deny 1"),
            ("Content-Usage: /", ""),
            ("Content-Usage:", ""),
            ("Content-Usage: / / train-ai=n", ""),
            ("Content-Usages: train-ai=n", ""),
            ("Content-Usage: *train-ai=n", ""),
            ("Content-Usage: train-ai=\"n\"", "train-ai unset 1"),
            (
                "Content-Usage: train-ai=n\rContent-Usage: train-ai=y",
                "train-ai deny 1",
            ),
            (
                "Content-Usage: train-ai=y\nContent-Usage: train-ai=n",
                "train-ai deny 2",
            ),
        ] {
            check(file, "x", "/", expected);
        }
    }

    #[test]
    fn such_lines_change_no_rule() {
        let file = "User-agent: a\nContent-Usage: train-ai=n\nVisit-time: 0100-0200\nUser-agent: b\nDisallow: /x\n";
        let parsed = Parsed::new(file.as_bytes());
        assert_eq!(
            parsed.ruling("a", "/x").cause.unwrap().line,
            5,
            "a and b have one list, as for Google"
        );
        check(file, "b", "/", "");
    }

    #[test]
    fn what_is_reported() {
        let file = "Host: example.com\nUser-agent: a\nVisit-time: 0600-0845\nClean-param: sid /shop/\n\
                    User-agent: *\nVisit-time: 2200-2400\nHosting: x\nSitemap: /s\n";
        let parsed = Parsed::new(file.as_bytes());
        let values = |noted: Vec<Noted<'_>>| {
            noted
                .iter()
                .map(|n| n.value.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            values(parsed.visit_times("b")),
            ["0600-0845", "2200-2400"],
            "no rule ends the list"
        );
        assert_eq!(
            values(parsed.lines_of(Extension::CleanParam)),
            ["sid /shop/"]
        );
        assert_eq!(values(parsed.lines_of(Extension::Host)), ["example.com"]);
        assert!(!parsed.speaks_of_uses());
        assert_eq!(parsed.unknown(), 1);
    }

    #[test]
    fn very_many_lines() {
        let body = "Content-Usage: /a*b*c train-ai=n, search=n\n".repeat(10_000);
        let parsed = Parsed::new(body.as_bytes());
        assert_eq!(parsed.lines_of(Extension::Usage).len(), MAX_LINES);
        assert_eq!(parsed.unknown(), 9_000);
        assert_eq!(parsed.usage("x", "/aabbcc").len(), 2);
        let uses: String = (0..10_000)
            .map(|n| format!("Content-Signal: use-{n}=n\n"))
            .collect();
        assert_eq!(Parsed::new(uses.as_bytes()).usage("x", "/").len(), MAX_USES);
    }

    /// No number of other things that a file says hides what it denies.
    #[test]
    fn a_use_that_is_asked_for_is_found_among_many() {
        let reported = "Clean-param: a\nHost: h\nVisit-time: 0100-0200\n".repeat(1000);
        let lines: String = (0..900)
            .map(|n| format!("Content-Signal: use-{n}=n\n"))
            .collect();
        let members: String = (0..900).map(|n| format!("use-{n}=y,")).collect();
        let denied = "Content-Signal: AI-Train=no\n";
        for file in [
            format!("{reported}{denied}"),
            format!("{lines}{denied}"),
            format!("Content-Usage: {members}train-ai=n\n"),
            format!("Content-Signal: {members}ai-train=n, train-ai=y\n"),
        ] {
            let parsed = Parsed::new(file.as_bytes());
            let stated = parsed.usage_of("x", "/", ["search", "train-ai"].into_iter());
            let stated: Vec<_> = stated.iter().map(|s| (&*s.purpose, s.preference)).collect();
            assert_eq!(stated, [("train-ai", Preference::Deny)], "{:.60}", file);
        }
        let reported = Parsed::new(format!("{lines}{reported}").as_bytes());
        assert_eq!(reported.lines_of(Extension::Host).len(), MAX_LINES / 3);
    }
}
