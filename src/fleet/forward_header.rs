//! `Crawl-Fleet`, which tells the owner of a host what the entry knows about a forwarded request.
//!
//! The field is read on links only. Everywhere else `Crawl-*` fields are removed, so that neither a crawler nor an
//! origin can set it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use crawlgate_fleet::node::{Epoch, NodeName};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use super::protocol::FleetProtocol;

/// The field of a forwarded request, and of an answer that means that the connection to the crawler is closed.
pub const CRAWL_FLEET: HeaderName = HeaderName::from_static("crawl-fleet");
/// The field of an answer by a node that does not own the host: `node-b; epoch=7`, or `unknown`.
pub const CRAWL_FLEET_OWNER: HeaderName = HeaderName::from_static("crawl-fleet-owner");

/// The value of [`CRAWL_FLEET`] in the answer to a crawler whose connection is closed without one.
const HANG_UP: &str = "hang-up";
/// The value of [`CRAWL_FLEET_OWNER`] if the answering node knows no owner.
const UNKNOWN_OWNER: &str = "unknown";
/// The number of bytes that most fields need.
const TYPICAL_FIELD_BYTES: usize = 160;
/// The largest number of bytes that the field adds to a request's head.
pub const MAX_FIELD_BYTES: usize = 512;

/// The field of a forwarded request. A request is forwarded once: `hop` is always 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardHeader<'a> {
    /// The node that forwards the request.
    pub entry: NodeName,
    /// The name of the crawler that the entry has identified.
    pub crawler: Cow<'a, str>,
    /// The crawler's address.
    pub client: IpAddr,
    /// The identifier of the request at the entry.
    pub id: Cow<'a, str>,
    /// The version of HTTP that the crawler uses.
    pub version: Version,
    /// The subject of the request.
    pub form: TargetForm,
    /// The time for which the request may still be held, if it has waited at the entry.
    pub deadline: Option<Duration>,
    /// `true` if the entry exports its span, which `traceparent` names: so does the owner.
    pub is_traced: bool,
}

/// The subject of a request. The target of a forwarded request is always a whole URL, which cannot express `OPTIONS *`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetForm {
    /// A resource, or the host of a tunnel.
    Resource,
    /// The server: `OPTIONS *`.
    Server,
}

/// The reason why a field is not one that an entry sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardHeaderError {
    /// The header is absent or occurs more than once.
    #[error("a request on a link needs one Crawl-Fleet field")]
    Missing,
    /// A part is missing or does not parse.
    #[error("Crawl-Fleet has no valid {0}")]
    Invalid(&'static str),
    /// The entry speaks none of the protocols that this release speaks.
    #[error(
        "the entry has the protocol {0} of the fleet, this node {own}: run releases whose protocols differ by one at most",
        own = FleetProtocol::CURRENT
    )]
    OtherProtocol(FleetProtocol),
}

impl<'a> ForwardHeader<'a> {
    /// Reads the field of a request.
    ///
    /// # Errors
    /// If there is not exactly one, or a part of it is invalid.
    pub fn read(headers: &'a HeaderMap) -> Result<Self, ForwardHeaderError> {
        let mut values = headers.get_all(CRAWL_FLEET).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(ForwardHeaderError::Missing);
        };
        let text = value.to_str().map_err(|_| ForwardHeaderError::Missing)?;
        Self::parse(text)
    }

    fn parse(text: &'a str) -> Result<Self, ForwardHeaderError> {
        let parts = ForwardHeaderParts::split(text);
        let required = |part: Option<&'a str>, key| part.ok_or(ForwardHeaderError::Invalid(key));
        let invalid = ForwardHeaderError::Invalid;
        let protocol = match parts.protocol {
            Some(number) => FleetProtocol(number.parse().map_err(|_| invalid("protocol"))?),
            None => FleetProtocol::FIRST,
        };
        // Before the parts that another protocol may express in another way.
        if !FleetProtocol::CURRENT.works_with(protocol) {
            return Err(ForwardHeaderError::OtherProtocol(protocol));
        }
        if required(parts.hop, "hop")? != "1" {
            return Err(invalid("hop"));
        }
        let deadline = match parts.deadline {
            Some(millis) => Some(millis.parse().map_err(|_| invalid("deadline"))?),
            None => None,
        };
        Ok(Self {
            entry: NodeName::new(required(parts.node, "node")?).map_err(|_| invalid("node"))?,
            crawler: required(parts.crawler, "crawler")?.into(),
            client: required(parts.client, "client")?
                .parse()
                .map_err(|_| invalid("client"))?,
            id: required(parts.id, "id")?.into(),
            version: match required(parts.version, "version")? {
                "1.0" => Version::HTTP_10,
                "1.1" => Version::HTTP_11,
                "2" => Version::HTTP_2,
                _ => return Err(invalid("version")),
            },
            form: match parts.form {
                None => TargetForm::Resource,
                Some("server") => TargetForm::Server,
                Some(_) => return Err(invalid("form")),
            },
            deadline: deadline.map(Duration::from_millis),
            is_traced: parts.trace == Some("1"),
        })
    }

    /// Returns the value of the field; `None` if a name has a character that a header field cannot have.
    pub fn to_value(&self) -> Option<HeaderValue> {
        let version = match self.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            _ => "1.1",
        };
        let mut text = String::with_capacity(TYPICAL_FIELD_BYTES);
        let client = self.client;
        write!(text, "protocol={}; client={client}", FleetProtocol::CURRENT).ok()?;
        // Formatting is slow, and each forwarded request has this field.
        for (key, value) in [
            ("; node=", self.entry.as_str()),
            ("; crawler=", &self.crawler),
            ("; id=", &self.id),
            ("; version=", version),
            ("; hop=", "1"),
        ] {
            text.push_str(key);
            text.push_str(value);
        }
        if self.form == TargetForm::Server {
            text.push_str("; form=server");
        }
        if let Some(deadline) = self.deadline {
            write!(text, "; deadline={}", deadline.as_millis()).ok()?;
        }
        if self.is_traced {
            text.push_str("; trace=1");
        }
        HeaderValue::try_from(text).ok()
    }
}

/// The parts of a field, as text.
#[derive(Default)]
struct ForwardHeaderParts<'a> {
    protocol: Option<&'a str>,
    node: Option<&'a str>,
    crawler: Option<&'a str>,
    client: Option<&'a str>,
    id: Option<&'a str>,
    version: Option<&'a str>,
    hop: Option<&'a str>,
    form: Option<&'a str>,
    deadline: Option<&'a str>,
    trace: Option<&'a str>,
}

impl<'a> ForwardHeaderParts<'a> {
    /// Splits a field. Parts of later protocols are ignored, and of two with one key the first counts.
    fn split(text: &'a str) -> Self {
        let mut parts = Self::default();
        for (key, value) in text.split(';').filter_map(|part| part.split_once('=')) {
            let part = match key.trim_ascii_start() {
                "protocol" => &mut parts.protocol,
                "node" => &mut parts.node,
                "crawler" => &mut parts.crawler,
                "client" => &mut parts.client,
                "id" => &mut parts.id,
                "version" => &mut parts.version,
                "hop" => &mut parts.hop,
                "form" => &mut parts.form,
                "deadline" => &mut parts.deadline,
                "trace" => &mut parts.trace,
                _ => continue,
            };
            part.get_or_insert(value.trim_ascii_end());
        }
        parts
    }
}

/// The owner that another node names because it does not own the host itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedOwner {
    pub node: NodeName,
    pub epoch: Epoch,
}

impl NamedOwner {
    /// Returns the value of [`CRAWL_FLEET_OWNER`] for an owner, if one is known.
    pub fn to_value(owner: Option<&Self>) -> HeaderValue {
        owner
            .map(|owner| format!("{}; epoch={}", owner.node, owner.epoch))
            .and_then(|text| HeaderValue::try_from(text).ok())
            .unwrap_or(HeaderValue::from_static(UNKNOWN_OWNER))
    }

    /// Reads the answer of a node that is not the owner: `None` if the answer is that of an owner, `Some(None)` if the
    /// node knows no owner.
    pub fn read(headers: &HeaderMap) -> Option<Option<Self>> {
        let text = headers.get(CRAWL_FLEET_OWNER)?.to_str().ok();
        Some(text.and_then(Self::parse))
    }

    fn parse(text: &str) -> Option<Self> {
        let (node, epoch) = text.split_once("; epoch=")?;
        Some(Self {
            node: NodeName::new(node).ok()?,
            epoch: Epoch(epoch.parse().ok()?),
        })
    }
}

/// Marks an answer on a link: the entry closes the crawler's connection.
pub fn set_close_connection(headers: &mut HeaderMap) {
    headers.insert(CRAWL_FLEET, HeaderValue::from_static(HANG_UP));
}

/// Returns `true` if an answer on a link means that the crawler's connection is closed.
pub fn is_close_connection(headers: &HeaderMap) -> bool {
    headers
        .get(CRAWL_FLEET)
        .is_some_and(|value| value == HANG_UP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> ForwardHeader<'static> {
        ForwardHeader {
            entry: NodeName::new("node-a").unwrap(),
            crawler: "news".into(),
            client: "2001:db8::7".parse().unwrap(),
            id: "9f3c01ab-1f".into(),
            version: Version::HTTP_2,
            form: TargetForm::Server,
            deadline: Some(Duration::from_millis(1_500)),
            is_traced: false,
        }
    }

    fn with(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.append(CRAWL_FLEET, value.parse().unwrap());
        headers
    }

    #[test]
    fn the_field_is_read_as_it_was_written() {
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            for (form, deadline, is_traced) in [
                (TargetForm::Resource, None, true),
                (TargetForm::Resource, Some(Duration::ZERO), false),
                (TargetForm::Server, Some(Duration::from_secs(60)), true),
            ] {
                let written = ForwardHeader {
                    version,
                    form,
                    deadline,
                    is_traced,
                    ..header()
                };
                let value = written.to_value().unwrap();
                assert!(value.len() < MAX_FIELD_BYTES, "{value:?}");
                let mut headers = HeaderMap::new();
                headers.append(CRAWL_FLEET, value);
                assert_eq!(ForwardHeader::read(&headers), Ok(written));
            }
        }
    }

    #[test]
    fn a_field_that_no_entry_sends_is_an_error() {
        let valid = header().to_value().unwrap().to_str().unwrap().to_owned();
        let cases = [
            (valid.replace("hop=1", "hop=2"), "hop"),
            (valid.replace("hop=1", "hops=1"), "hop"),
            (valid.replace("node=node-a", "node=-"), "node"),
            (valid.replace("node=node-a; ", ""), "node"),
            (valid.replace("2001:db8::7", "home"), "client"),
            (valid.replace("version=2", "version=3"), "version"),
            (valid.replace("deadline=1500", "deadline=-1"), "deadline"),
            (valid.replace("form=server", "form=x"), "form"),
            (valid.replace("; id=", "; di="), "id"),
            (valid.replace("protocol=1", "protocol=one"), "protocol"),
            (valid.replace("crawler=", "="), "crawler"),
        ];
        for (text, part) in cases {
            let expected = Err(ForwardHeaderError::Invalid(part));
            assert_eq!(ForwardHeader::read(&with(&text)), expected, "{text}");
        }
        let mut twice = with(&valid);
        let other = Err(ForwardHeaderError::OtherProtocol(FleetProtocol(3)));
        for text in [
            valid.replace("protocol=1", "protocol=3"),
            "protocol=3".to_owned(),
        ] {
            assert_eq!(ForwardHeader::read(&with(&text)), other, "{text}");
        }
        for text in [
            valid.replace("protocol=1", "protocol=2"),
            valid.replace("protocol=1; ", ""),
        ] {
            assert_eq!(ForwardHeader::read(&with(&text)), Ok(header()), "{text}");
        }
        twice.append(CRAWL_FLEET, valid.parse().unwrap());
        for headers in [HeaderMap::new(), twice] {
            let missing = Err(ForwardHeaderError::Missing);
            assert_eq!(ForwardHeader::read(&headers), missing);
        }
    }

    #[test]
    fn an_owner_is_named_or_unknown() {
        let owner = NamedOwner {
            node: NodeName::new("b").unwrap(),
            epoch: Epoch(u64::MAX),
        };
        for named in [Some(owner), None] {
            let mut headers = HeaderMap::new();
            assert_eq!(NamedOwner::read(&headers), None);
            headers.insert(CRAWL_FLEET_OWNER, NamedOwner::to_value(named.as_ref()));
            assert_eq!(NamedOwner::read(&headers), Some(named));
        }
    }
}
