//! The user agents that lines other than Allow and Disallow address: Crawl-delay, Request-rate and
//! the lines in [`extension`](super::extension).
//!
//! By RFC 9309 section 2.2.4 such lines do not end a list of user agents for rules. For themselves
//! they do: a line addresses the agents right above it. Otherwise a delay for one crawler would
//! apply to those of the next group, too, since many files list the delays without any rule.

use super::agent::RobotsAgent;
use super::rules::{AgentGroups, AgentLine, TextSpan, agent_groups, sort_agents};

/// The user-agent lines of a file, with sections that end with the lines that address them.
#[derive(Debug, Default)]
pub(super) struct DirectiveAgents(Box<[AgentLine]>);

impl DirectiveAgents {
    /// Returns the user-agent lines for a crawler.
    pub(super) fn groups(&self, text: &[u8], agent: RobotsAgent<'_>) -> AgentGroups<'_> {
        agent_groups(&self.0, text, agent)
    }

    pub(super) fn memory_size(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Collects the user-agent lines of a file.
#[derive(Debug, Default)]
pub(super) struct DirectiveAgentsBuilder {
    agents: Vec<AgentLine>,
    /// The number of lists of user agents so far.
    sections: u32,
    agent_list: DirectiveAgentList,
}

/// The state of the current list of user agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DirectiveAgentList {
    /// The next user-agent line begins a list.
    #[default]
    Closed,
    /// The next user-agent line continues the list.
    Open,
}

impl DirectiveAgentsBuilder {
    /// Adds a user-agent line. One without a token begins or continues a list without adding an
    /// agent.
    pub(super) fn add_agent(&mut self, token: TextSpan) {
        if self.agent_list == DirectiveAgentList::Closed {
            self.sections = self.sections.saturating_add(1);
            self.agent_list = DirectiveAgentList::Open;
        }
        if !token.is_empty() {
            self.agents.push(AgentLine {
                token,
                section: self.sections,
            });
        }
    }

    /// Ends the list of user agents.
    pub(super) fn end_list(&mut self) {
        self.agent_list = DirectiveAgentList::Closed;
    }

    /// Returns the section of a line at this position; `None` before the first list.
    pub(super) fn section(&self) -> Option<u32> {
        (self.sections > 0).then_some(self.sections)
    }

    /// Finishes the collection. `text` is the file that the spans point into.
    pub(super) fn finish(self, text: &[u8]) -> DirectiveAgents {
        DirectiveAgents(sort_agents(self.agents, text))
    }
}
