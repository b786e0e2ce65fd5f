//! Nutch's filters: the first line that fits decides.

use fancy_regex::Regex;

use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::systems::nutch::RegexLine;

/// `RegexURLFilterBase.filter`: the first expression that is found decides; without one the URL is refused.
pub struct RegexUrlFilter {
    lines: Vec<(bool, Option<Regex>)>,
}

impl RegexUrlFilter {
    /// Compiles the lines.
    pub fn new(lines: &[RegexLine]) -> Self {
        let lines = lines
            .iter()
            .map(|line| (line.allows, Regex::new(&line.expression).ok()));
        Self {
            lines: lines.collect(),
        }
    }
}

impl SourceEvaluator for RegexUrlFilter {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        for (allows, regex) in &self.lines {
            match regex.as_ref().map(|regex| regex.is_match(request.url)) {
                Some(Ok(true)) if *allows => return SourceVerdict::Allow,
                Some(Ok(true)) => return SourceVerdict::Refuse,
                Some(Ok(false)) => {}
                Some(Err(_)) | None => return SourceVerdict::Unknown,
            }
        }
        SourceVerdict::Refuse
    }
}
