//! The user agents that lines other than Allow and Disallow address: Crawl-delay, Request-rate and
//! the lines in [`extension`](super::extension).
//!
//! By RFC 9309 section 2.2.4 such lines do not end a list of user agents for rules. For themselves
//! they do: a line addresses the agents right above it. Otherwise a delay for one crawler would
//! apply to those of the next group, too, since many files list the delays without any rule.

use super::agent::RobotsAgent;
use super::rules::{AgentGroups, AgentLine, AgentListsBuilder, agent_groups};

/// The user-agent lines of a file, with sections that end with the lines that address them.
#[derive(Debug, Default)]
pub(super) struct DirectiveAgents(Box<[AgentLine]>);

impl DirectiveAgents {
    /// Creates the table. `text` is the file that the spans point into.
    pub(super) fn new(lists: AgentListsBuilder, text: &[u8]) -> Self {
        Self(lists.finish(text))
    }

    /// Returns the user-agent lines for a crawler.
    pub(super) fn groups(&self, text: &[u8], agent: RobotsAgent<'_>) -> AgentGroups<'_> {
        agent_groups(&self.0, text, agent)
    }

    pub(super) fn memory_size(&self) -> usize {
        size_of_val(&*self.0)
    }
}
