//! `crawlgate diff`: whose decision changes from one policy to another, by rule and by host.

mod change;
mod in_json;
mod in_text;
mod summary;
mod urls;

use std::path::{Path, PathBuf};

use crate::config::settings::PolicyOrigin;
use crate::gate::trial::Trial;
use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::compare::Structure;
use crate::policy::compile::Compiled;
use crate::vocab::profile::Profile;

use super::Exit;
use super::args::{DiffArgs, Format};
use super::open;
use super::out;
use super::paint::{self, Paint};
use change::{Change, Options};
use summary::Summary;
use urls::{Asked, Unread};

/// Runs the command.
pub(super) fn run(args: &DiffArgs) -> Exit {
    let (old, new) = match (opened(&args.old), opened(&args.new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(exit), _) | (_, Err(exit)) => return exit,
    };
    let asked = match &args.urls {
        Some(path) => urls::read(path),
        None => Ok(urls::of_cases(&old.cases, &new.cases)),
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(mistake) => return out::complain(&mistake),
    };
    let report = Report::of(args, &old.policy, &new.policy, &asked);
    let text = match args.format {
        Format::Text => in_text::of(&report, args.examples, Paint::for_stdout(), paint::width()),
        Format::Json => format!("{:#}\n", in_json::of(&report, args.examples)),
    };
    out::write(&text, report.exit())
}

fn opened(path: &Path) -> Result<Compiled, Exit> {
    open::compiled(&PolicyOrigin::Path(path.to_owned()))
}

/// Everything that differs.
struct Report<'a> {
    old: Side<'a>,
    new: Side<'a>,
    asked: usize,
    unread: &'a [Unread],
    changes: Vec<Change<'a>>,
    summary: Summary<'a>,
    /// How the policies differ as they are written; only where no URLs were given.
    structure: Option<Structure>,
}

/// One of the two policies.
struct Side<'a> {
    policy: &'a Policy,
    path: &'a PathBuf,
}

impl Side<'_> {
    fn name(&self) -> String {
        format!("{}@{}", self.policy.name(), self.policy.revision())
    }
}

impl<'a> Report<'a> {
    fn of(args: &'a DiffArgs, old: &'a Policy, new: &'a Policy, asked: &'a Asked) -> Self {
        let options = Options::of(old, new);
        let judge = |(facts, profile): &'a (CaseFacts, Option<Profile>)| {
            let profile = profile.unwrap_or(args.profile);
            let (was, is) = (
                Trial::new(old, facts, profile),
                Trial::new(new, facts, profile),
            );
            Change::between(facts, &was, &is, &options)
        };
        let changes: Vec<Change<'_>> = asked.facts.iter().filter_map(judge).collect();
        Self {
            old: Side {
                policy: old,
                path: &args.old,
            },
            new: Side {
                policy: new,
                path: &args.new,
            },
            asked: asked.facts.len(),
            unread: &asked.unread,
            summary: Summary::of(&changes),
            changes,
            structure: args.urls.is_none().then(|| Structure::of(old, new)),
        }
    }

    fn exit(&self) -> Exit {
        let rewritten = self
            .structure
            .as_ref()
            .is_some_and(|structure| !structure.is_empty());
        match (
            self.unread.is_empty(),
            self.changes.is_empty() && !rewritten,
        ) {
            (false, _) => Exit::Invalid,
            (true, true) => Exit::Success,
            (true, false) => Exit::Negative,
        }
    }
}
