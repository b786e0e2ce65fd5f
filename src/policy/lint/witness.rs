//! Witnesses: a URL to which a rule applies, made from what its conditions ask and tried on them.

use crate::policy::condition::{Atom, Test, Truth};
use crate::policy::fact::Facts;
use crate::policy::field::Field;
use crate::policy::list::ListKind;
use crate::policy::pattern::TextKind;
use crate::vocab::target::UrlTarget;

use super::logic::{Claim, Premises, Value};
use super::view::View;

/// A URL for which a rule applies or hits, as far as its own condition and those around it go; none if none was
/// found that a GET of a crawler without a name could ask for.
pub(super) fn of(view: &View<'_>, at: usize) -> Option<String> {
    let target = candidate(view, view.premises(at)?)?;
    let facts = Facts::of_url(&target);
    let fits = |Claim { condition, value }: Claim<'_>| {
        let wanted = match value {
            Value::Yes => Truth::Yes,
            Value::No => Truth::No,
        };
        condition.evaluate(&facts, view.lists()) == wanted
    };
    let fits = view
        .path(at)
        .iter()
        .filter_map(|at| view.claim(*at))
        .all(fits);
    fits.then(|| target.as_str().to_owned())
}

/// A URL made from what premises ask, which may not fit them.
pub(super) fn candidate(view: &View<'_>, premises: &Premises<'_>) -> Option<UrlTarget> {
    let mut draft = Draft::default();
    premises.tests().for_each(|atom| draft.meet(view, atom));
    UrlTarget::parse(&draft.into_url()).ok()
}

/// A URL in parts, each as some condition wants it.
#[derive(Debug, Default)]
struct Draft {
    whole: Option<String>,
    scheme: Option<String>,
    host: Option<String>,
    port: Option<u64>,
    path: Option<String>,
    end: String,
    query: Option<String>,
}

impl Draft {
    fn meet(&mut self, view: &View<'_>, atom: &Atom) {
        match &atom.test {
            Test::Text(test) => {
                if let Some((kind, value)) = first_value(&test.kind) {
                    self.text(&atom.field, kind, value);
                }
            }
            Test::Number(ranges) if atom.field == Field::Port => {
                self.port = ranges.0.first().map(|(from, _)| *from);
            }
            Test::In(list) => {
                let list = view.lists().get(*list);
                let item = list.and_then(|list| Some((list.kind, list.items.first()?)));
                match item {
                    Some((ListKind::Domains | ListKind::Hosts, item)) => {
                        self.host = Some(item.to_owned())
                    }
                    Some((ListKind::Urls | ListKind::UrlPrefixes, item)) => {
                        self.whole = Some(item.to_owned())
                    }
                    Some((ListKind::Surts | ListKind::Addresses | ListKind::Values, _)) | None => {}
                }
            }
            Test::Number(_) | Test::Address(_) => {}
        }
    }

    fn text(&mut self, field: &Field, part: Part, value: &str) {
        let owned = || Some(value.to_owned());
        match (field, part) {
            (Field::Url, Part::Whole | Part::Beginning) => self.whole = owned(),
            (Field::Scheme, _) => self.scheme = owned(),
            (Field::Host | Field::Authority, _) => self.host = owned(),
            (Field::Path | Field::PathAndQuery, Part::Whole | Part::Beginning) => {
                self.path = owned()
            }
            (Field::Path, Part::Extension) => self.end.push_str(&format!("a.{value}")),
            (Field::Path | Field::PathAndQuery, Part::End | Part::Inside) => {
                self.end.push_str(value)
            }
            (Field::Query, _) => self.query = owned(),
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

/// Which part of a text a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    Beginning,
    End,
    Inside,
    Extension,
}

fn first_value(kind: &TextKind) -> Option<(Part, &str)> {
    let (part, values) = match kind {
        TextKind::Exact(values) | TextKind::Domain(values) => (Part::Whole, values),
        TextKind::Prefix(values) | TextKind::Under(values) => (Part::Beginning, values),
        TextKind::Suffix(values) => (Part::End, values),
        TextKind::Contains(values) => (Part::Inside, values),
        TextKind::Ext(values) => (Part::Extension, values),
        TextKind::Regex(_)
        | TextKind::Surt(_)
        | TextKind::Length(_)
        | TextKind::Segments(_)
        | TextKind::Repeats(_)
        | TextKind::Params(_) => return None,
    };
    values.first().map(|value| (part, &**value))
}
