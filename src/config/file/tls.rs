//! `tls` of the configuration file.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::config::settings::{AuthorityFiles, Settings};
use crate::model::certificate_verification::CertificateVerification;
use crate::proxy::intercept::RefusalDelivery;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader};

use super::ReadContext;
use super::json_schema::{one_or_many_schema, text_schema};
use super::key::{
    ConfigKey, CountValue, CustomValue, ParsedValue, PathValue, SwitchValue, WordValue,
    object_schema, read_keys,
};

const UNVERIFIED_WARNING: &str = "certificates of origins are not verified: responses may come from anyone, and the policy \
                                  evaluates host names that nothing has verified";

pub(super) const KEYS: &[ConfigKey<Settings>] = &[
    ConfigKey::new(
        "intercept",
        "Intercept TLS, so that the policy evaluates each URL.",
        &SwitchValue::new(|s: &mut Settings| &mut s.tls.intercept),
    ),
    ConfigKey::new(
        "intercept_to_reject",
        "Intercept a tunnel that is refused, so that its client can read the reason.",
        &SwitchValue {
            on: RefusalDelivery::InsideTls,
            off: RefusalDelivery::AtConnect,
            place: |s: &mut Settings| &mut s.tls.refusal_delivery,
            warning_if_off: None,
        },
    ),
    ConfigKey::new(
        "verify_upstream",
        "Verify the certificates of origins.",
        &SwitchValue {
            on: CertificateVerification::On,
            off: CertificateVerification::Skip,
            place: |s: &mut Settings| &mut s.tls.verify,
            warning_if_off: Some(UNVERIFIED_WARNING),
        },
    ),
    ConfigKey::new(
        "ca",
        "The certificate authority, or a list of which the first signs.",
        &CustomValue(read_authorities, |_| {
            let mut defaults = AuthorityDraft::new();
            let authority = object_schema("An authority.", AUTHORITY_KEYS, &mut defaults);
            one_or_many_schema(&authority)
        }),
    ),
    ConfigKey::new(
        "bundle",
        "The file to which the system's roots and the authorities are written.",
        &PathValue(|s: &mut Settings, path| s.tls.bundle = path),
    ),
    ConfigKey::new(
        "roots",
        "The trusted roots for origins: the system's, or Mozilla's, which are built in.",
        &WordValue(|s: &mut Settings| &mut s.tls.roots),
    ),
    ConfigKey::new(
        "extra_roots",
        "Files (PEM) with additional roots.",
        &CustomValue(read_extra_roots, |_| one_or_many_schema(&text_schema())),
    ),
    ConfigKey::new(
        "leaf_cache",
        "The number of cached certificates, one per host.",
        &CountValue(1..=10_000_000, |s: &mut Settings| &mut s.tls.leaf_cache),
    ),
    ConfigKey::new(
        "mints_per_client",
        "Certificates for new hosts that one client may cause per second: 200/s.",
        &ParsedValue {
            parse: parse_rate,
            store: |s: &mut Settings, rate| s.tls.mints_per_client = rate,
            schema: rate_schema,
        },
    ),
];

struct AuthorityDraft {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    create: bool,
}

const AUTHORITY_KEYS: &[ConfigKey<AuthorityDraft>] = &[
    ConfigKey::required(
        "cert",
        "Its certificate.",
        &PathValue(|draft: &mut AuthorityDraft, path| draft.cert = Some(path)),
    ),
    ConfigKey::required(
        "key",
        "Its key, which only its owner may read.",
        &PathValue(|draft: &mut AuthorityDraft, path| draft.key = Some(path)),
    ),
    ConfigKey::new(
        "create",
        "Create it if neither file exists.",
        &SwitchValue::new(|draft: &mut AuthorityDraft| &mut draft.create),
    ),
];

impl AuthorityDraft {
    fn new() -> Self {
        Self {
            cert: None,
            key: None,
            create: true,
        }
    }
}

fn read_authorities(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    let items = read::one_or_many(node);
    if items.is_empty() {
        context.problems.push(read::wrong_type(
            node,
            "`ca` needs at least one authority: {cert: FILE, key: FILE}",
        ));
    }
    let mut authorities = Vec::with_capacity(items.len());
    for item in items {
        let Some(map) = MapReader::open(item, "`ca`", context.problems) else {
            continue;
        };
        let mut draft = AuthorityDraft::new();
        read_keys(AUTHORITY_KEYS, map, &mut draft, context);
        if let (Some(cert), Some(key)) = (draft.cert, draft.key) {
            let create = draft.create;
            authorities.push(AuthorityFiles { cert, key, create });
        }
    }
    settings.tls.authorities = authorities;
}

fn read_extra_roots(node: &Node, settings: &mut Settings, context: &mut ReadContext<'_>) {
    settings.tls.extra_roots = read::one_or_many(node)
        .iter()
        .filter_map(|item| read::spelling(item, context.problems))
        .map(|path| context.base.resolve(path))
        .collect();
}

/// Parses a number of times per second: `200/s`.
fn parse_rate(text: &str) -> Result<u32, String> {
    let count = text
        .strip_suffix("/s")
        .and_then(|count| count.parse().ok())
        .filter(|count| *count > 0);
    count.ok_or_else(|| "write a number per second, such as 200/s".to_owned())
}

fn rate_schema(settings: &mut Settings) -> Json {
    json!({
        "type": "string",
        "pattern": "^([0-9]+/s|.*\\$\\{.*)$",
        "default": format!("{}/s", settings.tls.mints_per_client),
    })
}
