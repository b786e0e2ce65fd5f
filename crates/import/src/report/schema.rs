//! The JSON Schema of a report.

use serde_json::{Value as Json, json};

use super::{AssumptionEffect, MissingPart, PartNeed, ReportList};

pub(super) fn json_schema() -> Json {
    let lists = ReportList::ALL.map(|list| {
        let items = json!({ "$ref": format!("#/$defs/{}", list.as_str()) });
        let lists = json!({ "description": list.description(), "type": "array", "items": items });
        (list.as_str(), lists)
    });
    let definitions = ReportList::ALL.map(|list| (list.as_str(), part_schema(list)));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Report of crawlgate import",
        "description": "The outcome of each element, attribute and line of a source: each is in exactly one of the five lists.",
        "type": "object",
        "properties": {
            "report": { "description": "The version of the format.", "const": 1 },
            "parts": {
                "description": "The number of parts of the source: the sum of the five lists.",
                "type": "integer",
                "minimum": 0
            },
            "lists": {
                "description": "The five lists, each in the order of the source.",
                "type": "object",
                "properties": to_object(lists),
                "required": ReportList::ALL.map(ReportList::as_str),
                "additionalProperties": false
            }
        },
        "required": ["report", "parts", "lists"],
        "additionalProperties": false,
        "$defs": to_object(definitions)
    })
}

fn to_object<const N: usize>(entries: [(&str, Json); N]) -> Json {
    let entries = entries.into_iter();
    entries
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// Returns the schema of the parts in a list.
fn part_schema(list: ReportList) -> Json {
    let mut properties = vec![
        (
            "place",
            json!({
                "description": "The place in the source: `file:line:column`, from 1.",
                "type": "string",
                "pattern": ":[1-9][0-9]*:[1-9][0-9]*$"
            }),
        ),
        (
            "text",
            json!({ "description": "The text of the part. Secrets are `***`.", "type": "string" }),
        ),
    ];
    let common = properties.len();
    match list {
        ReportList::Converted => properties.extend(target_properties()),
        ReportList::Assumed => {
            properties.extend(target_properties());
            properties.push((
                "assumption",
                text("The assumption under which it means the same."),
            ));
            let effects = AssumptionEffect::ALL.map(AssumptionEffect::as_str);
            properties.push((
                "effect",
                json!({ "description": "The difference of the policy if the assumption does not hold.", "enum": effects }),
            ));
        }
        ReportList::NotConverted => {
            properties.push(("why", text("The reason.")));
            let failures = MissingPart::ALL.map(MissingPart::as_str);
            properties.push((
                "fails",
                json!({ "description": "The consequence: more is allowed, less is allowed, or refusals do not change.", "enum": failures }),
            ));
            properties.push((
                "instead",
                json!({ "description": "The nearest thing that can be written by hand.", "type": ["string", "null"] }),
            ));
        }
        ReportList::Unrelated | ReportList::Dead => properties.push(("why", text("The reason."))),
    }
    let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let mut properties = properties.clone();
    properties.insert(
        common,
        (
            "lines",
            json!({
                "description": "The number of lines that are counted here; 1 if it is missing.",
                "type": "integer",
                "minimum": 0
            }),
        ),
    );
    let properties = properties.into_iter();
    let properties: Json = properties
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn text(description: &str) -> Json {
    json!({ "description": description, "type": "string", "minLength": 1 })
}

fn target_properties() -> [(&'static str, Json); 2] {
    let stages = PartNeed::ALL.map(PartNeed::as_str);
    [
        (
            "became",
            text("The id of a rule, a list (`lists.NAME`) or the path of an option."),
        ),
        (
            "stage",
            json!({ "description": "The knowledge that it needs to decide.", "enum": stages }),
        ),
    ]
}
