//! The rows of `tests/conformance`, parsed. The README there defines each line.
//!
//! Every error in a file is reported as `file:line: message`, all in one run.

use super::text::Text;

/// One exchange and all that is expected of it.
#[derive(Clone, Debug)]
pub(crate) struct WireRow {
    /// Unique over all files.
    pub(crate) name: String,
    /// `file:line`, for reports.
    pub(crate) place: String,
    /// The configuration that it runs under.
    pub(crate) gate: String,
    /// The requested host. Rows about bad responses have one each: three of them in a row let a host rest.
    pub(crate) host: String,
    /// The actions and expectations of the client, in order.
    pub(crate) client: Vec<Step>,
    /// The actions of the origin on each of its connections.
    pub(crate) origin: Vec<Deed>,
    /// The requests that the origin must have received.
    pub(crate) at_origin: AtOrigin,
    /// The state of the client's connection afterwards.
    pub(crate) client_end: ClientEnd,
    /// The state of the origin's connection afterwards.
    pub(crate) origin_end: Option<OriginEnd>,
}

/// One step of the client.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Send these bytes, in one write.
    Send(Text),
    /// Send nothing for a moment, so that the following bytes arrive separately.
    Pause,
    /// End the sending direction, continue to read.
    HalfClose,
    /// Wait until the origin has received the head of a request.
    AwaitOrigin,
    /// Wait until these bytes have come.
    Sees(Text),
    /// Close the connection without reading what has come.
    Leave,
    /// Read one response, which must be this.
    Get(Box<RowAnswer>),
    /// The connection must end without further bytes.
    GetEnd,
}

/// A response that the client must get.
#[derive(Clone, Debug)]
pub(crate) struct RowAnswer {
    /// Its status.
    pub(crate) status: u16,
    /// Its author.
    pub(crate) maker: Maker,
    /// A response to HEAD.
    pub(crate) bodyless: bool,
    /// Required fields; all values of a name are given, in order.
    pub(crate) has: Vec<(String, Text)>,
    /// Forbidden fields, also among the trailers.
    pub(crate) lacks: Vec<String>,
    /// The body.
    pub(crate) body: Option<Text>,
    /// The connection must end before the message does.
    pub(crate) cut: bool,
}

/// The author of a response; the runner checks the requirements of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// The origin: forwarded and labelled.
    Origin,
    /// The proxy, without refusing.
    Own,
    /// The proxy, refusing for this reason.
    Refusal(String),
    /// An interim answer (100).
    Interim,
}

/// One step of the origin.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// Begin without waiting for a request; only as the first step.
    AtOnce,
    /// Wait for one more request.
    Request,
    /// Wait for the head of one more request only.
    Head,
    /// Send these bytes.
    Send(Text),
    /// Send nothing for a moment.
    Pause,
    /// Send nothing, read on.
    Hang,
    /// End the connection.
    Close,
    /// Break the connection.
    Reset,
}

/// The requests that the origin must have received.
#[derive(Clone, Debug)]
pub(crate) enum AtOrigin {
    /// No connection at all.
    Untouched,
    /// Exactly these requests.
    Requests(Text),
    /// These requests, the last of them cut inside its body.
    Cut(Text),
    /// At most incomplete requests.
    NeverWhole,
}

/// The state of the client's connection afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientEnd {
    /// One more request on it is answered.
    Kept,
    /// It ends, with nothing more on it.
    Closed,
    /// It is reset (RST).
    Reset,
    /// The client itself closed it.
    Left,
}

/// The state of the origin's connection afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginEnd {
    /// One more request uses it.
    Reused,
    /// One more request uses another connection.
    Fresh,
    /// The proxy closes it on its own.
    Closed,
}

/// Reads the rows of one file.
///
/// # Errors
/// Every mistake, as `file:line: what`.
pub(crate) fn rows(file: &str, text: &str) -> Result<Vec<WireRow>, Vec<String>> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{file}:{}", number + 1);
        if let Err(problem) = read(line, &place, &mut drafts) {
            problems.push(format!("{place}: {problem}"));
        }
    }
    let mut rows = Vec::new();
    for draft in drafts {
        let place = draft.place.clone();
        match draft.finish() {
            Ok(row) => rows.push(row),
            Err(problem) => problems.push(format!("{place}: {problem}")),
        }
    }
    if problems.is_empty() {
        Ok(rows)
    } else {
        Err(problems)
    }
}

/// The default request of a row, and what the origin receives for it.
const USUAL_REQUEST: &str =
    r"GET http://a.test:{port}/page HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n";
const USUAL_AT_ORIGIN: &str =
    r"GET /page HTTP/1.1\r\nHost: a.test:{port}\r\nVia: 1.1 {via}\r\n\r\n";

const USUAL_HOST: &str = "a.test";

/// A line with the row's host in place of the default host.
fn with_host(line: &str, host: &str) -> String {
    line.replace("a.test:{port}", &format!("{host}:{{port}}"))
}

/// A row while its lines are read.
#[derive(Default)]
struct Draft {
    name: String,
    place: String,
    why: bool,
    gate: Option<String>,
    host: String,
    client: Vec<Step>,
    origin: Vec<Deed>,
    got: Option<Text>,
    got_cut: bool,
    untouched: bool,
    never_whole: bool,
    client_end: Option<ClientEnd>,
    origin_end: Option<OriginEnd>,
}

fn read(line: &str, place: &str, drafts: &mut Vec<Draft>) -> Result<(), String> {
    if line.is_empty() {
        return Ok(());
    }
    if line.ends_with(char::is_whitespace) {
        return Err(r"blank at the end of a line: write \s".into());
    }
    if let Some(name) = line.strip_prefix("== ") {
        let is_name = name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let host = if place.starts_with("responses") {
            format!("{name}.test")
        } else {
            USUAL_HOST.into()
        };
        drafts.push(Draft {
            name: name.into(),
            place: place.into(),
            host,
            ..Draft::default()
        });
        return if is_name {
            Ok(())
        } else {
            Err(format!("`{name}` is no name: a-z, 0-9 and -"))
        };
    }
    match (drafts.last_mut(), line.starts_with('#')) {
        (Some(draft), _) => draft.add(&with_host(line, &draft.host)),
        (None, true) => Ok(()),
        (None, false) => Err("a line before the first row".into()),
    }
}

impl Draft {
    fn add(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "#" => self.why = true,
            "gate" => self.gate = Some(rest.into()),
            ">" => self.send(Text::read(rest)?),
            "sees" => self.client.push(Step::Sees(Text::read(rest)?)),
            "<" => self.client.push(expected(rest)?),
            "<+" | "<-" | "<=" | "<!" => self.expect(word, rest)?,
            "o>" => self.origin_sends(Text::read(rest)?),
            "o:" => self.origin.push(deed(rest)?),
            "o<" => self.got.get_or_insert_default().append(Text::read(rest)?),
            "o<!" => self.got_cut = self.got.is_some() && known(rest, &["cut"])?,
            "origin" => self.origin_line(rest)?,
            "client" => self.client_end = Some(client_end(rest)?),
            _ => self.client.push(step(line)?),
        }
        Ok(())
    }

    /// Consecutive lines are one write.
    fn send(&mut self, text: Text) {
        match self.client.last_mut() {
            Some(Step::Send(sent)) => sent.append(text),
            _ => self.client.push(Step::Send(text)),
        }
    }

    fn origin_sends(&mut self, text: Text) {
        match self.origin.last_mut() {
            Some(Deed::Send(sent)) => sent.append(text),
            _ => self.origin.push(Deed::Send(text)),
        }
    }

    /// A line about the answer above it.
    fn expect(&mut self, word: &str, rest: &str) -> Result<(), String> {
        let Some(Step::Get(answer)) = self.client.last_mut() else {
            return Err(format!("`{word}` belongs under a `<` line"));
        };
        match word {
            "<+" => {
                let (name, value) = pseudo(rest)
                    .or_else(|| rest.split_once(": "))
                    .ok_or("`<+ Name: value`")?;
                answer.has.push((name.into(), Text::read(value)?));
            }
            "<-" => answer.lacks.push(rest.into()),
            "<=" => answer
                .body
                .get_or_insert_default()
                .append(Text::read(rest)?),
            _ => answer.cut = known(rest, &["cut"])?,
        }
        Ok(())
    }

    fn origin_line(&mut self, rest: &str) -> Result<(), String> {
        match rest {
            "untouched" => self.untouched = true,
            "never whole" => self.never_whole = true,
            "reused" => self.origin_end = Some(OriginEnd::Reused),
            "fresh" => self.origin_end = Some(OriginEnd::Fresh),
            "closed" => self.origin_end = Some(OriginEnd::Closed),
            other => {
                return Err(format!(
                    "`origin {other}`: untouched, never whole, reused, fresh or closed"
                ));
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<WireRow, String> {
        if !self.why {
            return Err(format!("{}: a row says why (`# …`)", self.name));
        }
        if !self.client.iter().any(|s| matches!(s, Step::Send(_))) {
            let usual = |text| Text::read(&with_host(text, &self.host));
            self.client.insert(0, Step::Send(usual(USUAL_REQUEST)?));
            if !self.untouched && !self.never_whole {
                self.got.get_or_insert(usual(USUAL_AT_ORIGIN)?);
            }
        }
        let at_origin = match (self.got, self.got_cut, self.untouched, self.never_whole) {
            (Some(text), false, false, false) => AtOrigin::Requests(text),
            (Some(text), true, false, false) => AtOrigin::Cut(text),
            (None, _, true, false) => AtOrigin::Untouched,
            (None, _, false, true) => AtOrigin::NeverWhole,
            _ => {
                return Err(format!(
                    "{}: what the origin gets: `o<`, `origin untouched` or `origin never whole`",
                    self.name
                ));
            }
        };
        let client_end = self
            .client_end
            .ok_or(format!("{}: `client …` is missing", self.name))?;
        Ok(WireRow {
            name: self.name,
            place: self.place,
            gate: self.gate.unwrap_or_else(|| "usual".into()),
            host: self.host,
            client: self.client,
            origin: self.origin,
            at_origin,
            client_end,
            origin_end: self.origin_end,
        })
    }
}

/// `:phrase: text`: a part of the status line written as a field.
fn pseudo(rest: &str) -> Option<(&str, &str)> {
    let value = rest.strip_prefix(":phrase: ")?;
    Some((":phrase", value))
}

fn step(line: &str) -> Result<Step, String> {
    match line {
        "pause" => Ok(Step::Pause),
        "half-close" => Ok(Step::HalfClose),
        "await origin" => Ok(Step::AwaitOrigin),
        "leave" => Ok(Step::Leave),
        other => Err(format!("`{other}` is no line of a row")),
    }
}

fn deed(word: &str) -> Result<Deed, String> {
    match word {
        "at once" => Ok(Deed::AtOnce),
        "request" => Ok(Deed::Request),
        "head" => Ok(Deed::Head),
        "pause" => Ok(Deed::Pause),
        "hang" => Ok(Deed::Hang),
        "close" => Ok(Deed::Close),
        "reset" => Ok(Deed::Reset),
        other => Err(format!(
            "`o: {other}`: at once, request, head, pause, hang, close or reset"
        )),
    }
}

fn client_end(word: &str) -> Result<ClientEnd, String> {
    match word {
        "kept" => Ok(ClientEnd::Kept),
        "closed" => Ok(ClientEnd::Closed),
        "reset" => Ok(ClientEnd::Reset),
        "left" => Ok(ClientEnd::Left),
        other => Err(format!("`client {other}`: kept, closed, reset or left")),
    }
}

/// `end`, or `STATUS [own | REASON] [bodyless]`.
fn expected(rest: &str) -> Result<Step, String> {
    if rest == "end" {
        return Ok(Step::GetEnd);
    }
    let mut words = rest.split(' ');
    let status = words
        .next()
        .and_then(|w| w.parse().ok())
        .ok_or("`< STATUS …` or `< end`")?;
    let mut answer = RowAnswer {
        status,
        maker: if status == 100 {
            Maker::Interim
        } else {
            Maker::Origin
        },
        bodyless: false,
        has: Vec::new(),
        lacks: Vec::new(),
        body: None,
        cut: false,
    };
    for word in words {
        match word {
            "bodyless" => answer.bodyless = true,
            "own" => answer.maker = Maker::Own,
            reason => answer.maker = Maker::Refusal(reason.into()),
        }
    }
    Ok(Step::Get(Box::new(answer)))
}

fn known(word: &str, words: &[&str]) -> Result<bool, String> {
    if words.contains(&word) {
        Ok(true)
    } else {
        Err(format!("`{word}`: {}", words.join(" or ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_whole() {
        let text = "# a file\n\n== one\n# why\ngate hasty\n> GET / HTTP/1.1\\r\\n\n> \\r\\n\npause\n> x\n< 451 rule bodyless\n\
                    <+ Crawl-Rule: no\n<- Server\n<= a\\s\n<! cut\no: close\norigin untouched\norigin fresh\nclient kept\n";
        let rows = rows("f.txt", text).unwrap();
        let row = &rows[0];
        assert_eq!(
            (row.name.as_str(), row.place.as_str(), row.gate.as_str()),
            ("one", "f.txt:3", "hasty")
        );
        assert_eq!(row.client.len(), 4, "{:?}", row.client);
        let Step::Get(answer) = &row.client[3] else {
            panic!("{:?}", row.client)
        };
        assert_eq!(answer.maker, Maker::Refusal("rule".into()));
        assert!(
            answer.bodyless && answer.cut && answer.lacks == ["Server"] && answer.has.len() == 1
        );
        assert!(matches!(row.at_origin, AtOrigin::Untouched));
        assert_eq!(
            (row.client_end, row.origin_end),
            (ClientEnd::Kept, Some(OriginEnd::Fresh))
        );
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        for (text, mistake) in [
            ("> x", "f:1: a line before the first row"),
            (
                "== One\n# w\n> x\norigin untouched\nclient kept",
                "f:1: `One` is no name",
            ),
            (
                "== one\n# w\n> x \norigin untouched\nclient kept",
                "f:3: blank at the end",
            ),
            (
                "== one\n# w\n> x\norigin gone\nclient kept",
                "f:4: `origin gone`",
            ),
            (
                "== one\n# w\n> x\norigin untouched\nclient open",
                "f:5: `client open`",
            ),
            (
                "== one\n> x\norigin untouched\nclient kept",
                "f:1: one: a row says why",
            ),
            (
                "== one\n# w\n> x\nclient kept",
                "f:1: one: what the origin gets",
            ),
            (
                "== one\n# w\n> x\norigin untouched",
                "f:1: one: `client …` is missing",
            ),
            (
                "== one\n# w\n> x\norigin untouched\norigin never whole\nclient kept",
                "f:1: one: what the origin",
            ),
            (
                "== one\n# w\n> x\n<+ a: b\norigin untouched\nclient kept",
                "f:4: `<+` belongs under",
            ),
            (
                "== one\n# w\n> x\n< ok\norigin untouched\nclient kept",
                "f:4: `< STATUS",
            ),
            (
                "== one\n# w\n> x\nsleep\norigin untouched\nclient kept",
                "f:4: `sleep` is no line",
            ),
            (
                "== one\n# w\n> {prot}\norigin untouched\nclient kept",
                "f:3: `{prot}`",
            ),
        ] {
            let problems = rows("f", text).unwrap_err().join("\n");
            assert!(problems.contains(mistake), "{text}\n{problems}");
        }
    }
}
