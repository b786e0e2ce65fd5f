//! A project as it is read, for the conversion and for the evaluator.

use crate::report::PartId;

/// A rule.
#[derive(Clone, Debug)]
pub struct WebCopyRule {
    pub part: PartId,
    /// Its number in the list, from 1.
    pub number: usize,
    /// Its comment or name.
    pub about: Option<String>,
    pub expression: String,
    pub compare: WebCopyCompare,
    /// It applies to what does not match.
    pub negated: bool,
    pub is_enabled: bool,
    /// `None` for a rule that sets a priority or stops only.
    pub action: Option<WebCopyAction>,
    pub stops: bool,
    pub priority: WebCopyPriority,
    pub ignore_case: bool,
}

/// The text that a rule compares with its expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebCopyCompare {
    Authority,
    AuthorityPathQuery,
    ContentType,
    Url,
    /// Without the slash at its beginning.
    Path,
    PathQuery,
    Query,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebCopyAction {
    Exclude,
    ExcludeButScan,
    Download,
    DownloadNoScan,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WebCopyPriority {
    High,
    #[default]
    Normal,
    Low,
}

/// The hosts that a project is about.
#[derive(Clone, Debug)]
pub struct WebCopyScope {
    pub part: PartId,
    /// The host of the project's URI.
    pub main: String,
    /// Hosts as they are written.
    pub hosts: Vec<String>,
    /// Hosts with those below them.
    pub domains: Vec<String>,
}

/// The greatest number of directories in the path of a URL of the project's own host.
#[derive(Clone, Debug)]
pub struct WebCopyDepth {
    pub part: PartId,
    pub host: Option<String>,
    pub max: u64,
}

/// What decides about URLs.
#[derive(Clone, Debug, Default)]
pub struct WebCopyProject {
    pub scope: Option<WebCopyScope>,
    pub depth: Option<WebCopyDepth>,
    pub rules: Vec<WebCopyRule>,
}
