//! The systems whose configurations can be imported.

use crate::conversion::Conversion;
use crate::input::{ImportError, ImportInput, MAX_RULE_FILE};
use crate::systems;

/// A system whose configuration can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Browsertrix Crawler.
    Browsertrix,
    /// brozzler and warcprox.
    Brozzler,
    /// Exalead CloudView.
    Exalead,
    /// Heritrix 3.
    Heritrix,
    /// Lists of domains, SURTs, filters and expressions.
    Lists,
    /// Norconex Web Crawler and HTTP Collector.
    Norconex,
    /// Apache Nutch.
    Nutch,
    /// IBM OmniFind.
    Omnifind,
    /// The robots.txt of a host.
    Robots,
    /// Scrapy.
    Scrapy,
    /// squid.
    Squid,
    /// Apache StormCrawler.
    StormCrawler,
    /// Velocity, later Watson Explorer Engine.
    Velocity,
    /// Cyotek WebCopy.
    WebCopy,
    /// GNU Wget.
    Wget,
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
        system: System::Browsertrix,
        name: "browsertrix",
        example: "crawlgate import browsertrix crawl-config.yaml",
        recognize: systems::browsertrix::recognize,
        convert: systems::browsertrix::convert,
    },
    SystemSpec {
        system: System::Brozzler,
        name: "brozzler",
        example: "crawlgate import brozzler job.yaml",
        recognize: systems::brozzler::recognize,
        convert: systems::brozzler::convert,
    },
    SystemSpec {
        system: System::Exalead,
        name: "exalead",
        example: "crawlgate import exalead CrawlConfig.xml",
        recognize: systems::exalead::recognize,
        convert: systems::exalead::convert,
    },
    SystemSpec {
        system: System::Heritrix,
        name: "heritrix",
        example: "crawlgate import heritrix crawler-beans.cxml",
        recognize: systems::heritrix::recognize,
        convert: systems::heritrix::convert,
    },
    SystemSpec {
        system: System::Lists,
        name: "lists",
        example: "crawlgate import lists easylist.txt",
        recognize: systems::lists::recognize,
        convert: systems::lists::convert,
    },
    SystemSpec {
        system: System::Norconex,
        name: "norconex",
        example: "crawlgate import norconex crawler-config.xml",
        recognize: systems::norconex::recognize,
        convert: systems::norconex::convert,
    },
    SystemSpec {
        system: System::Nutch,
        name: "nutch",
        example: "crawlgate import nutch conf/nutch-site.xml",
        recognize: systems::nutch::recognize,
        convert: systems::nutch::convert,
    },
    SystemSpec {
        system: System::Omnifind,
        name: "omnifind",
        example: "crawlgate import omnifind weekly=crawl.rules --global global.rules",
        recognize: systems::omnifind::recognize,
        convert: systems::omnifind::convert,
    },
    SystemSpec {
        system: System::Robots,
        name: "robots",
        example: "crawlgate import robots www.example.com=robots.txt",
        recognize: systems::robots::recognize,
        convert: systems::robots::convert,
    },
    SystemSpec {
        system: System::Scrapy,
        name: "scrapy",
        example: "crawlgate import scrapy settings.py spiders/*.py",
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
        system: System::StormCrawler,
        name: "stormcrawler",
        example: "crawlgate import stormcrawler src/main/resources/urlfilters.json",
        recognize: systems::stormcrawler::recognize,
        convert: systems::stormcrawler::convert,
    },
    SystemSpec {
        system: System::Velocity,
        name: "velocity",
        example: "crawlgate import velocity collection.xml",
        recognize: systems::velocity::recognize,
        convert: systems::velocity::convert,
    },
    SystemSpec {
        system: System::WebCopy,
        name: "webcopy",
        example: "crawlgate import webcopy site.cwp",
        recognize: systems::webcopy::recognize,
        convert: systems::webcopy::convert,
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
    /// Returns all systems.
    pub fn all() -> impl Iterator<Item = Self> {
        SYSTEMS.iter().map(|spec| spec.system)
    }

    /// Returns a command as an example.
    pub fn example(self) -> &'static str {
        self.spec().map_or("", |spec| spec.example)
    }

    /// Returns `true` if a file without any rule has a meaning: a robots.txt that allows everything.
    pub(crate) fn reads_empty_files(self) -> bool {
        self == Self::Robots
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
        let mut found: Vec<Self> = found.map(|spec| spec.system).collect();
        // Lists have no mark of their own: a line of any other file may look like an item.
        if found.len() > 1 {
            found.retain(|system| *system != Self::Lists);
        }
        Ok(found)
    }

    /// Returns the tree of a source as text, a line for each tag, for a system whose files are no text; `None` for
    /// others.
    pub fn dump(self, input: &ImportInput<'_>) -> Option<Result<String, ImportError>> {
        (self == Self::WebCopy).then(|| systems::webcopy::dump(input))
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
