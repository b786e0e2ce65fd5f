//! squid: `squid.conf`.

mod access;
mod acl;
pub mod network;
mod read;
mod sample;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, to_slug};
use crate::input::{ImportError, ImportInput};
use crate::reference::squid::SquidEvaluator;
use crate::report::{PartId, Report};

pub(crate) use read::recognize;

/// The parts of a `squid.conf` that decide about requests.
#[derive(Clone, Debug, Default)]
pub struct SquidSource {
    pub acls: Vec<SquidAcl>,
    /// `http_access`, in order.
    pub requests: Vec<AccessLine>,
    /// `http_reply_access`, in order.
    pub replies: Vec<AccessLine>,
    /// The source has `ssl_bump` lines that intercept TLS.
    pub bumps: bool,
}

/// An `acl`, with the values of all lines that have its name.
#[derive(Clone, Debug)]
pub struct SquidAcl {
    pub name: String,
    /// The type: `dstdomain`, `url_regex` …
    pub kind: String,
    /// Its lines; those of files are parts of their own. Empty for those that squid defines itself.
    pub parts: Vec<PartId>,
    pub values: Vec<AclValue>,
    /// The comment above its first line.
    pub about: Option<String>,
    /// The reason why it cannot be converted, found by the reader.
    pub problem: Option<String>,
    /// `-n`: addresses are not looked up.
    pub no_lookup: bool,
    /// Notes about files that were read from another place.
    pub notes: Vec<String>,
}

/// A value of an `acl`.
#[derive(Clone, Debug)]
pub struct AclValue {
    pub text: String,
    /// `-i` was in effect.
    pub ignore_case: bool,
}

/// A line of `http_access` or `http_reply_access`.
#[derive(Clone, Debug)]
pub struct AccessLine {
    pub part: PartId,
    pub allows: bool,
    pub acls: Vec<AclUse>,
    /// The comment above it.
    pub about: Option<String>,
}

/// A name of an `acl` in a line, with `!` if it is negated.
#[derive(Clone, Debug)]
pub struct AclUse {
    pub name: String,
    pub negated: bool,
}

impl SquidSource {
    /// Returns the `acl` with a name.
    pub fn acl(&self, name: &str) -> Option<&SquidAcl> {
        self.acls.iter().find(|acl| acl.name == name)
    }
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let read::SquidFile {
        source,
        mut settings,
        max_body,
    } = read::read(input, &mut report)?;
    let mut policy = PolicyDraft {
        name: to_slug(input.name.as_deref().unwrap_or("squid")),
        ..PolicyDraft::default()
    };
    access::convert(&source, &mut policy, &mut settings, &mut report);
    if let Some((part, size)) = max_body {
        policy.options.set("max_body", size);
        report.converted(part, "max_body", crate::report::PartNeed::Response);
    }
    let evaluator = SquidEvaluator::new(&source, &report);
    Ok(Conversion {
        policy,
        report,
        settings,
        evaluator: Box::new(evaluator),
    })
}
