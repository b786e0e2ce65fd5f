//! `tls` of the configuration file.

use std::path::{Path, PathBuf};

use crate::config::settings::{AuthorityFiles, TlsConfig, TrustRoots};
use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::{parse_scalar, set_if_some};

const UNVERIFIED_WARNING: &str = "no origin has to prove who it is: answers may come from anybody, and the policy judges names \
                          that nobody has verified";

/// What the file says of TLS; paths are as written, and none stands for the usual one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsSection {
    tls: TlsConfig,
    authorities: Option<Vec<AuthorityFiles>>,
    bundle: Option<PathBuf>,
}

impl TlsSection {
    /// The settings. Written paths start at `home`, the others are the usual ones in `usual`.
    pub fn resolve(self, home: &Path, default_directory: &Path) -> TlsConfig {
        let from_home = |path: PathBuf| home.join(path);
        let files = |files: AuthorityFiles| AuthorityFiles {
            cert: from_home(files.cert),
            key: from_home(files.key),
        };
        let TlsConfig {
            authorities,
            bundle,
            ..
        } = TlsConfig::in_directory(default_directory);
        TlsConfig {
            authorities: self
                .authorities
                .map_or(authorities, |a| a.into_iter().map(files).collect()),
            bundle: self.bundle.map_or(bundle, from_home),
            extra_roots: self.tls.extra_roots.into_iter().map(from_home).collect(),
            ..self.tls
        }
    }
}

pub(super) fn read(text: &mut TlsSection, mut map: MapReader<'_>, problems: &mut Problems) {
    let tls = &mut text.tls;
    for (key, place) in [
        ("intercept", &mut tls.intercept),
        ("intercept_to_reject", &mut tls.intercept_to_reject),
        ("verify_upstream", &mut tls.verify_upstream),
    ] {
        let node = map.take(key);
        set_if_some(place, node.and_then(|node| read::boolean(node, problems)));
        if let Some(node) = node.filter(|_| key == "verify_upstream" && !*place) {
            problems.push(Problem::warning(&node.place, UNVERIFIED_WARNING));
        }
    }
    if let Some(node) = map.take("ca") {
        text.authorities = Some(read_authorities(node, &mut tls.create, problems));
    }
    let bundle = map
        .take("bundle")
        .and_then(|node| read::spelling(node, problems));
    text.bundle = bundle.map(PathBuf::from);
    let words = TrustRoots::ALL.map(TrustRoots::as_str);
    let roots = |word: &str| {
        TrustRoots::ALL
            .into_iter()
            .find(|roots| roots.as_str() == word)
    };
    set_if_some(
        &mut tls.roots,
        map.take("roots")
            .and_then(|node| read::word(node, &words, roots, problems)),
    );
    set_if_some(
        &mut tls.extra_roots,
        map.take("extra_roots")
            .map(|node| read_paths(node, problems)),
    );
    let leaves = map
        .take("leaf_cache")
        .and_then(|node| read::integer(node, 1..=10_000_000, problems));
    set_if_some(
        &mut tls.leaf_cache,
        leaves.and_then(|count| u64::try_from(count).ok()),
    );
    let mints = map
        .take("mints_per_client")
        .and_then(|node| parse_scalar(node, parse_rate, problems));
    set_if_some(&mut tls.mints_per_client, mints);
    map.finish(problems);
}

/// One authority, or a list of which the first signs.
fn read_authorities(
    node: &Node,
    create: &mut bool,
    problems: &mut Problems,
) -> Vec<AuthorityFiles> {
    let items = read::one_or_many(node);
    if items.is_empty() {
        problems.push(read::wrong_type(
            node,
            "`ca` needs at least one authority: {cert: FILE, key: FILE}",
        ));
    }
    items
        .iter()
        .filter_map(|item| read_authority(item, create, problems))
        .collect()
}

fn read_authority(
    node: &Node,
    create: &mut bool,
    problems: &mut Problems,
) -> Option<AuthorityFiles> {
    let mut map = MapReader::open(node, "`ca`", problems)?;
    let cert = map
        .require("cert", problems)
        .and_then(|node| read::spelling(node, problems));
    let key = map
        .require("key", problems)
        .and_then(|node| read::spelling(node, problems));
    set_if_some(
        create,
        map.take("create")
            .and_then(|node| read::boolean(node, problems)),
    );
    map.finish(problems);
    Some(AuthorityFiles {
        cert: cert?.into(),
        key: key?.into(),
    })
}

fn read_paths(node: &Node, problems: &mut Problems) -> Vec<PathBuf> {
    let items = read::one_or_many(node);
    items
        .iter()
        .filter_map(|item| read::spelling(item, problems))
        .map(PathBuf::from)
        .collect()
}

/// A number of times in a second: `200/s`.
fn parse_rate(text: &str) -> Result<u32, String> {
    let count = text
        .strip_suffix("/s")
        .and_then(|count| count.parse().ok())
        .filter(|count| *count > 0);
    count.ok_or_else(|| "write a number in a second, such as 200/s".to_owned())
}
