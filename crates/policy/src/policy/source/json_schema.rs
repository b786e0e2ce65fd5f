//! The JSON Schema of policies (draft 2020-12), for editors: made from the tables by which policies are read.
//!
//! It says which keys there are, where they may stand and what values they take. What a schema cannot say, such as
//! whether a list exists or a pattern compiles, is for `check`. Descriptions are plain text.

mod about;
mod case;
mod condition;
mod options;

use serde_json::{Map, Value as Json, json};

use crate::policy::list::ListKind;
use crate::policy::rule::PolicyStage;

use super::tree::ThenAction;

/// The schema of a policy file, of a file of a policy's directory, and of a case file.
pub fn json_schema() -> Json {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "crawlgate policy",
        "description": "What may be crawled, with which options, and tests of it.",
        "type": "object",
        "additionalProperties": false,
        "properties": document(),
        // The keys of a head stand together, in one file of a directory.
        "dependentRequired": {
            "name": ["policy", "options"],
            "options": ["policy", "name"],
            "on_invalid_rule": ["policy", "name", "options"],
            "global_space": ["policy", "name", "options"],
        },
        "if": { "required": ["policy"], "properties": { "policy": { "type": "string" } } },
        "then": { "required": ["cases"], "propertyNames": { "enum": ["policy", "cases"] } },
        "else": {
            "if": { "required": ["policy"] },
            "then": { "required": ["name", "options"], "properties": { "options": { "required": ["disposition"] } } },
        },
        "$defs": definitions(),
    })
}

fn document() -> Json {
    json!({
        "policy": described(
            "The version of the policy language; in a case file the path of its policy, relative to the file.",
            &json!({ "anyOf": [{ "const": 1 }, { "type": "string" }] }),
        ),
        "name": described(
            "The policy's name, shown in headers, logs and metrics.",
            &json!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}$" }),
        ),
        "on_invalid_rule": described(
            "What becomes of a rule whose own condition cannot be compiled: the whole policy is refused, or the rule is \
             disabled with all in it.",
            &json!({ "enum": ["refuse", "disable"], "default": "refuse" }),
        ),
        "options": described("Options of every URL, before the first rule.", &reference("options")),
        "lists": {
            "description": "Named sets for big data.",
            "type": "object",
            "additionalProperties": reference("list"),
        },
        "rules": described("Rules that apply to every crawler.", &reference("rules")),
        "spaces": described(
            "Crawl spaces: options and rules of some crawlers.",
            &json!({ "type": "array", "items": reference("space") }),
        ),
        "global_space": described(
            "Whether a URL that a space refuses belongs to another crawler: rules on hosts, nothing, or union.",
            &json!({ "anyOf": [
                { "type": "null" },
                { "const": "union" },
                { "type": "object", "additionalProperties": false, "properties": { "rules": described("Rules on hosts, of which the first that applies holds.", &reference("rules")) } },
            ] }),
        ),
        "cases": described(
            "Tests that travel with the policy.",
            &json!({ "type": "array", "items": reference("case") }),
        ),
    })
}

fn definitions() -> Json {
    let mut all = json!({
        "text": { "type": ["string", "number", "boolean"] },
        "texts": { "anyOf": [
            reference("text"),
            { "type": "array", "minItems": 1, "items": reference("text") },
        ] },
        "rules": { "type": "array", "items": reference("rule") },
        "rule": rule(),
        "list": list(),
        "space": space(),
        "options": options::schema(),
    });
    if let Some(all) = all.as_object_mut() {
        all.extend(condition::definitions());
        all.extend(case::definitions());
    }
    all
}

fn rule() -> Json {
    let of_groups = ["then", "set", "stop", "match", "rules"];
    let of_filters = ["log", "reject", "reject_status", "as"];
    let none_of = |keys: &[&str]| -> Json {
        let keys: Map<String, Json> = keys
            .iter()
            .map(|key| ((*key).to_owned(), Json::Bool(false)))
            .collect();
        json!({ "properties": keys })
    };
    let kinds = ["when", "unless", "forbid", "require"];
    let pairs = kinds.iter().enumerate().flat_map(|(at, one)| {
        kinds
            .iter()
            .skip(at + 1)
            .map(move |other| json!({ "not": { "required": [one, other] } }))
    });
    let filter = json!({
        "if": { "anyOf": [{ "required": ["forbid"] }, { "required": ["require"] }] },
        "then": none_of(&of_groups),
        "else": none_of(&of_filters),
    });
    json!({
        "description": "A group (when, unless, or neither) sets options and contains rules; a filter (forbid, require) refuses URLs.",
        "type": "object",
        "additionalProperties": false,
        "properties": rule_keys(),
        "allOf": pairs.chain([filter]).collect::<Vec<_>>(),
    })
}

fn rule_keys() -> Json {
    let flag = |about: &str, default: bool| json!({ "description": about, "type": "boolean", "default": default });
    let word = |about: &str, words: &[&str]| json!({ "description": about, "enum": words });
    let condition = |about: &str| described(about, &reference("condition"));
    json!({
        "id": {
            "description": "The rule's name in headers, logs and metrics; without one it is its position.",
            "type": ["string", "number", "boolean"],
            "pattern": "^[A-Za-z0-9_.-]{1,128}$",
        },
        "about": described("Free text, shown by explain and in refusals.", &reference("text")),
        "enabled": flag("Whether the rule takes part.", true),
        "mode": word("shadow: the rule is judged and counted, and changes nothing.", &["enforce", "shadow"]),
        "stage": word("Makes the rule wait for this stage.", &PolicyStage::ALL.map(PolicyStage::as_str)),
        "when": condition("A group that applies if the condition holds."),
        "unless": condition("A group that applies if the condition does not hold."),
        "forbid": condition("A filter: URLs for which the condition holds are refused."),
        "require": condition("A filter: URLs for which the condition does not hold are refused."),
        "then": {
            "description": "What becomes of the URLs of a group.",
            "anyOf": ThenAction::WORDS.map(|(word, then)| json!({ "const": word, "description": about::then(then) })),
        },
        "set": described("Options that a group assigns.", &reference("options")),
        "stop": flag("Ends the list of rules in which the outermost group around it stands, for this stage.", false),
        "match": word("first: of the direct children only the first that applies is processed.", &["all", "first"]),
        "rules": described("Rules inside the group.", &reference("rules")),
        "log": flag("Whether a URL that the filter refuses is recorded.", false),
        "reject": options::option_schema("reject"),
        "reject_status": options::option_schema("reject_status"),
        "as": {
            "description": "At the document stage: the page is an error although its status says otherwise, and is answered \
                            with this status.",
            "type": "integer",
            "minimum": 400,
            "maximum": 599,
            "not": { "const": 407 },
        },
    })
}

fn list() -> Json {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["kind"],
        "properties": {
            "kind": {
                "description": "How the items are compared.",
                "anyOf": ListKind::ALL.map(|kind| json!({ "const": kind.as_str(), "description": about::list_kind(kind) })),
            },
            "file": {
                "description": "A file with one item a line, relative to the policy; # begins a comment; gzip is allowed.",
                "type": "string",
            },
            "items": { "description": "The items themselves.", "type": "array", "items": reference("text") },
        },
        "oneOf": [{ "required": ["file"] }, { "required": ["items"] }],
    })
}

fn space() -> Json {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name"],
        "properties": {
            "name": { "description": "The space's name.", "type": ["string", "number"], "pattern": "^[a-z0-9][a-z0-9-]{0,63}$" },
            "crawlers": described("The crawlers in it; without any it is that of all others.", &reference("texts")),
            "options": described("Options of these crawlers, before their rules.", &reference("options")),
            "rules": described("Rules of these crawlers, after those of the document.", &reference("rules")),
        },
    })
}

/// A schema defined elsewhere in the document.
fn reference(name: &str) -> Json {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// A schema with a description in front.
fn described(about: &str, schema: &Json) -> Json {
    let mut all = Map::new();
    all.insert("description".to_owned(), about.into());
    all.extend(schema.as_object().cloned().unwrap_or_default());
    all.into()
}
