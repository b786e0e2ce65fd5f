//! The seeds of a crawl.

use crate::input::{ImportError, ImportInput, Place};
use crate::report::{PartId, Report};

use super::beans::Beans;
use super::scope::read_source_lines;

/// The seeds, and the lines among them that add prefixes to rules.
#[derive(Debug, Default)]
pub(super) struct Seeds {
    /// URLs and hosts as they are written.
    pub urls: Vec<String>,
    /// Lines that begin with `+` or `-`.
    pub directives: Vec<String>,
    /// The parts of lines that begin with `-`.
    pub rejecting_parts: Vec<PartId>,
    /// The parts of the seeds, without those.
    pub parts: Vec<PartId>,
    pub is_unknown: bool,
}

impl Seeds {
    /// Reads the seeds that were given, or else those of the bean.
    pub(super) fn read(
        beans: &Beans,
        input: &ImportInput<'_>,
        report: &mut Report,
    ) -> Result<Self, ImportError> {
        let mut seeds = Self::default();
        let bean = beans
            .by_class("TextSeedModule")
            .or_else(|| beans.by_id("seeds"));
        if let Some(text) = &input.seeds {
            let lines = (1_u32..).zip(text.lines());
            for (line, text) in lines {
                let text = text.trim();
                if text.is_empty() || text.starts_with('#') {
                    continue;
                }
                let place = Place {
                    line,
                    ..Place::start("--seeds")
                };
                let part = report.add(place, text);
                seeds.add(part, text);
            }
            if let Some(bean) = bean {
                for part in bean.all_parts() {
                    report.dead(part, "--seeds replaces the seeds of the file");
                }
            }
            return Ok(seeds);
        }
        let Some(bean) = bean else {
            seeds.is_unknown = true;
            return Ok(seeds);
        };
        seeds.parts.extend(bean.all_parts());
        let lines = match beans.property(bean, "textSource") {
            Some(value) => read_source_lines(beans, value, input, report, &mut seeds.parts)?,
            None => None,
        };
        let Some(lines) = lines else {
            seeds.is_unknown = true;
            return Ok(seeds);
        };
        for (part, line) in lines {
            seeds.add(part, &line);
        }
        seeds.is_unknown = seeds.urls.is_empty() && seeds.directives.is_empty();
        Ok(seeds)
    }

    fn add(&mut self, part: PartId, line: &str) {
        if line.starts_with('-') {
            self.rejecting_parts.push(part);
        } else {
            self.parts.push(part);
        }
        if line.starts_with(|c: char| c.is_alphanumeric()) {
            let url = line.split_whitespace().next().unwrap_or(line);
            self.urls.push(url.to_owned());
        } else {
            self.directives.push(line.to_owned());
        }
    }
}
