//! The systems whose configurations can be imported.

use crate::draft::PolicyDraft;
use crate::input::{ImportError, ImportInput, MAX_RULE_FILE};
use crate::reference::SourceEvaluator;
use crate::report::Report;
use crate::settings::SettingsDraft;
use crate::systems;

/// A system whose configuration can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// brozzler and warcprox.
    Brozzler,
    /// Apache Nutch.
    Nutch,
    /// Scrapy.
    Scrapy,
    /// squid.
    Squid,
    /// GNU Wget.
    Wget,
}

/// The result of reading and translating a source, by the importer of its system.
pub struct Conversion {
    pub policy: PolicyDraft,
    pub report: Report,
    pub settings: SettingsDraft,
    /// Decides as the source's system does, by the parts of the source that were converted.
    pub evaluator: Box<dyn SourceEvaluator>,
}

/// An importer: its words, and its functions.
struct SystemSpec {
    system: System,
    /// The name on the command line.
    name: &'static str,
    /// A command as an example.
    example: &'static str,
    /// Returns `true` if the first bytes of a file look like this system's.
    recognize: fn(&[u8]) -> bool,
    convert: fn(&ImportInput<'_>) -> Result<Conversion, ImportError>,
}

const SYSTEMS: &[SystemSpec] = &[
    SystemSpec {
        system: System::Brozzler,
        name: "brozzler",
        example: "crawlgate import brozzler job.yaml",
        recognize: systems::brozzler::recognize,
        convert: systems::brozzler::convert,
    },
    SystemSpec {
        system: System::Nutch,
        name: "nutch",
        example: "crawlgate import nutch conf/regex-urlfilter.txt",
        recognize: systems::nutch::recognize,
        convert: systems::nutch::convert,
    },
    SystemSpec {
        system: System::Scrapy,
        name: "scrapy",
        example: "crawlgate import scrapy project/settings.py project/spiders/*.py",
        recognize: systems::scrapy::recognize,
        convert: systems::scrapy::convert,
    },
    SystemSpec {
        system: System::Squid,
        name: "squid",
        example: "crawlgate import squid /etc/squid/squid.conf",
        recognize: systems::squid::recognize,
        convert: systems::squid::convert,
    },
    SystemSpec {
        system: System::Wget,
        name: "wget",
        example: "crawlgate import wget mirror.sh",
        recognize: systems::wget::recognize,
        convert: systems::wget::convert,
    },
];

/// The number of bytes from which a system is recognized.
const RECOGNIZED_BYTES: usize = 64 << 10;

impl System {
    /// Returns all systems with an example of a command.
    pub fn all() -> impl Iterator<Item = (Self, &'static str)> {
        SYSTEMS.iter().map(|spec| (spec.system, spec.example))
    }

    /// Returns the system with a name on the command line.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = SYSTEMS.iter().find(|spec| spec.name == name);
        found.map(|spec| spec.system)
    }

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        self.spec().map_or("", |spec| spec.name)
    }

    /// Returns the systems whose files look like the first file of the input.
    pub fn recognize(input: &ImportInput<'_>) -> Result<Vec<Self>, ImportError> {
        let Some(first) = input.paths.first() else {
            return Ok(Vec::new());
        };
        let bytes = input.read_bytes(&first.path, MAX_RULE_FILE)?;
        let beginning = bytes.get(..RECOGNIZED_BYTES).unwrap_or(&bytes);
        let found = SYSTEMS.iter().filter(|spec| (spec.recognize)(beginning));
        Ok(found.map(|spec| spec.system).collect())
    }

    pub(crate) fn convert(self, input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
        match self.spec() {
            Some(spec) => (spec.convert)(input),
            None => Err(ImportError::Defect(
                "a system without an importer".to_owned(),
            )),
        }
    }

    fn spec(self) -> Option<&'static SystemSpec> {
        SYSTEMS.iter().find(|spec| spec.system == self)
    }
}
