//! The Crawl-delay and Request-rate lines of a file, by the user agents right above them.

use std::time::Duration;

use super::agent::RobotsAgent;
use super::file::RobotsFile;
use super::request_rate::RequestRate;

/// The lines, each with the section of its user agents in [`super::directive_agents`].
#[derive(Debug, Default)]
pub(super) struct DelayLines {
    pub(super) delays: Vec<(u32, Duration)>,
    pub(super) rates: Vec<(u32, RequestRate)>,
}

impl DelayLines {
    pub(super) fn is_empty(&self) -> bool {
        self.delays.is_empty() && self.rates.is_empty()
    }

    pub(super) fn memory_size(&self) -> usize {
        size_of_val(&*self.delays) + size_of_val(&*self.rates)
    }
}

impl RobotsFile {
    /// Returns the Crawl-delay of a crawler's group: the longest if there are several.
    pub fn crawl_delay<'a>(&self, agent: impl Into<RobotsAgent<'a>>) -> Option<Duration> {
        self.lines_for(&self.delays.delays, agent.into()).max()
    }

    /// Returns the Request-rate lines of a crawler's group.
    pub(super) fn request_rates(
        &self,
        agent: RobotsAgent<'_>,
    ) -> impl Iterator<Item = RequestRate> + use<'_> {
        self.lines_for(&self.delays.rates, agent)
    }

    /// Returns the values of a crawler's group, from lines in the order of their sections.
    fn lines_for<'a, T: Copy>(
        &'a self,
        lines: &'a [(u32, T)],
        agent: RobotsAgent<'_>,
    ) -> impl Iterator<Item = T> + use<'a, T> {
        let groups = self.directive_agents.groups(&self.text, agent);
        let agents = groups.own.iter().chain(groups.first_product);
        agents.flat_map(move |agent| {
            let start = lines.partition_point(|(section, _)| *section < agent.section);
            lines
                .get(start..)
                .unwrap_or_default()
                .iter()
                .take_while(|(section, _)| *section == agent.section)
                .map(|(_, value)| *value)
        })
    }
}
