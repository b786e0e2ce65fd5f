//! Construction of example URLs that a rule matches, from the values in its conditions.

use crate::policy::condition::{Atom, AtomTest, Truth};
use crate::policy::fact::Facts;
use crate::policy::field::Field;
use crate::policy::list::ListKind;
use crate::policy::pattern::{LiteralTestKind, TextKind};
use crate::urls::target::UrlTarget;

use super::lint_view::LintView;
use super::logic::Assumptions;

/// Returns a URL that a rule and the groups around it match, for a GET by an anonymous crawler, if
/// one was found.
pub(super) fn find_url(view: &LintView<'_>, at: usize) -> Option<String> {
    let target = candidate_url(view, view.assumptions(at)?)?;
    let facts = Facts::for_url(&target);
    let matches = view
        .path(at)
        .iter()
        .filter_map(|at| view.assertion(*at))
        .all(|assertion| assertion.evaluate(&facts, view.lists()) == Truth::Yes);
    matches.then(|| target.as_str().to_owned())
}

/// Builds a URL from the values in the assumptions. It may not meet them.
pub(crate) fn candidate_url(
    view: &LintView<'_>,
    assumptions: &Assumptions<'_>,
) -> Option<UrlTarget> {
    let mut draft = UrlDraft::default();
    for atom in assumptions.positive_atoms() {
        draft.apply_atom(view, atom);
    }
    UrlTarget::parse(&draft.into_url()).ok()
}

/// The parts of a URL, each as a condition requires it.
#[derive(Debug, Default)]
struct UrlDraft {
    whole: Option<String>,
    scheme: Option<String>,
    host: Option<String>,
    port: Option<u64>,
    path: Option<String>,
    end: String,
    query: Option<String>,
}

impl UrlDraft {
    fn apply_atom(&mut self, view: &LintView<'_>, atom: &Atom) {
        match &atom.test {
            AtomTest::Text(test) => {
                if let Some((kind, value)) = first_value(&test.kind) {
                    self.apply_text(&atom.field, kind, value);
                }
            }
            AtomTest::Number(ranges) if atom.field == Field::Port => {
                self.port = ranges.0.first().map(|(from, _)| *from);
            }
            AtomTest::InList(list) => {
                let list = view.lists().get(*list);
                let item = list.and_then(|list| Some((list.kind, list.items.first_text()?)));
                match item {
                    Some((ListKind::Domains | ListKind::Hosts, item)) => {
                        self.host = Some(item.to_owned())
                    }
                    Some((ListKind::Urls | ListKind::UrlPrefixes, item)) => {
                        self.whole = Some(item.to_owned())
                    }
                    Some((
                        ListKind::Surts
                        | ListKind::Substrings
                        | ListKind::Globs
                        | ListKind::Regexes
                        | ListKind::Addresses
                        | ListKind::Values,
                        _,
                    ))
                    | None => {}
                }
            }
            AtomTest::Number(_) | AtomTest::Address(_) => {}
        }
    }

    fn apply_text(&mut self, field: &Field, part: TextPart, value: &str) {
        match (field, part) {
            (Field::Url, TextPart::Whole | TextPart::Beginning) => self.whole = Some(value.into()),
            (Field::Scheme, _) => self.scheme = Some(value.into()),
            (Field::Host | Field::Authority, _) => self.host = Some(value.into()),
            (Field::Path | Field::PathAndQuery, TextPart::Whole | TextPart::Beginning) => {
                self.path = Some(value.into())
            }
            (Field::Path, TextPart::Extension) => self.end.push_str(&format!("a.{value}")),
            (Field::Path | Field::PathAndQuery, TextPart::End | TextPart::Inside) => {
                self.end.push_str(value)
            }
            (Field::Query, _) => self.query = Some(value.into()),
            (Field::Param(name), _) => self.query = Some(format!("{name}={value}")),
            _ => {}
        }
    }

    fn into_url(self) -> String {
        let Self {
            whole,
            scheme,
            host,
            port,
            path,
            end,
            query,
        } = self;
        let base = whole.unwrap_or_else(|| {
            let scheme =
                scheme.unwrap_or_else(|| if port == Some(443) { "https" } else { "http" }.into());
            let host = host.unwrap_or_else(|| "www.example.com".into());
            let port = port.map_or(String::new(), |port| format!(":{port}"));
            format!(
                "{scheme}://{host}{port}{}",
                path.unwrap_or_else(|| "/".into())
            )
        });
        let base = if end.is_empty() || base.ends_with('/') {
            base
        } else {
            base + "/"
        };
        let query = query.map_or(String::new(), |query| format!("?{query}"));
        format!(
            "{base}{}{query}",
            if base.ends_with('/') {
                end.trim_start_matches('/')
            } else {
                &end
            }
        )
    }
}

/// The part of a text that a value describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextPart {
    Whole,
    Beginning,
    End,
    Inside,
    Extension,
}

fn first_value(kind: &TextKind) -> Option<(TextPart, &str)> {
    let TextKind::Literal(kind, values) = kind else {
        return None;
    };
    let part = match kind {
        LiteralTestKind::Exact | LiteralTestKind::Domain => TextPart::Whole,
        LiteralTestKind::Prefix | LiteralTestKind::Under => TextPart::Beginning,
        LiteralTestKind::Suffix => TextPart::End,
        LiteralTestKind::Contains => TextPart::Inside,
        LiteralTestKind::Ext => TextPart::Extension,
        LiteralTestKind::Surt => return None,
    };
    values.first().map(|value| (part, &**value))
}
