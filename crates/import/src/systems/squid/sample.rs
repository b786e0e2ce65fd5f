//! Requests made of the words of a source, for cases that the search does not find.

use serde_json::{Map, Value as Json, json};

use crate::systems::squid::SquidSource;
use crate::systems::squid::network::SquidRange;

/// The maximum number of values of each kind.
const MAX_VALUES: usize = 8;

/// Returns requests with the hosts, addresses and types of answers that a source names.
pub(super) fn samples(
    source: &SquidSource,
    crawlers: &[String],
) -> Vec<(String, Map<String, Json>)> {
    let mut hosts: Vec<String> = values(source, "dstdomain")
        .map(|value| value.trim_start_matches('.').to_ascii_lowercase())
        .collect();
    hosts.truncate(MAX_VALUES);
    hosts.push("www.example.net".to_owned());
    let networks = values(source, "dst").filter_map(SquidRange::parse);
    let networks = networks.flatten().flat_map(SquidRange::to_networks);
    let mut addresses: Vec<String> = networks
        .filter_map(|network| Some(network.split_once('/')?.0.to_owned()))
        .take(MAX_VALUES)
        .collect();
    addresses.insert(0, "198.51.100.7".to_owned());
    let types = [
        "text/html",
        "image/png",
        "application/pdf",
        "video/mp4",
        "audio/mpeg",
    ];
    let mut samples = Vec::new();
    for scheme in ["http", "https"] {
        for host in &hosts {
            let url = format!("{scheme}://{host}/");
            for crawler in ["anonymous"]
                .into_iter()
                .chain(crawlers.iter().map(String::as_str))
                .take(MAX_VALUES)
            {
                let who = if crawler == "anonymous" {
                    Map::new()
                } else {
                    Map::from_iter([("crawler".to_owned(), json!(crawler))])
                };
                let facts = addresses
                    .iter()
                    .map(|address| ("address", address.as_str()))
                    .chain(types.iter().map(|found| ("content_type", *found)));
                for (name, value) in facts {
                    let mut facts = who.clone();
                    facts.insert(name.to_owned(), json!(value));
                    if name == "content_type" {
                        facts.insert("address".to_owned(), json!(addresses.get(1)));
                    }
                    samples.push((url.clone(), facts));
                }
            }
        }
    }
    samples
}

fn values<'s>(source: &'s SquidSource, kind: &'static str) -> impl Iterator<Item = &'s str> {
    let acls = source.acls.iter().filter(move |acl| acl.kind == kind);
    // The networks that squid defines itself come last.
    let (own, predefined): (Vec<_>, Vec<_>) = acls.partition(|acl| !acl.parts.is_empty());
    let acls = own.into_iter().chain(predefined);
    acls.flat_map(|acl| acl.values.iter().map(|value| value.text.as_str()))
}
