//! Actions of rules as `then` and `set`.

use roxmltree::Node;

use crate::draft::OptionDrafts;

use super::source::CloudViewAction;

/// Reads an action. The error says why it has no counterpart.
pub(super) fn read_action(node: Node<'_, '_>) -> Result<CloudViewAction, String> {
    let attribute = |name: &str| node.attribute(name).unwrap_or_default().to_owned();
    match node.tag_name().name() {
        "Accept" => Ok(CloudViewAction::Accept(true)),
        "Ignore" => Ok(CloudViewAction::Accept(false)),
        "Index" => Ok(CloudViewAction::Index(true)),
        "NoIndex" => Ok(CloudViewAction::Index(false)),
        "Follow" => Ok(CloudViewAction::Follow(true)),
        "NoFollow" => Ok(CloudViewAction::Follow(false)),
        "Source" if !attribute("name").is_empty() => Ok(CloudViewAction::Source(attribute("name"))),
        "AddMeta" if !attribute("name").is_empty() => Ok(CloudViewAction::Meta {
            name: attribute("name"),
            value: attribute("value"),
        }),
        "Priority" => {
            let shift = attribute("shift");
            let shift = shift.trim().parse::<i8>().ok();
            let shift = shift.filter(|shift| (-2..=2).contains(shift));
            shift
                .map(CloudViewAction::Priority)
                .ok_or_else(|| "a priority shift is a number from -2 to 2".to_owned())
        }
        name => Err(format!("the action `{name}` has no counterpart")),
    }
}

/// The assignments of a rule.
#[derive(Default)]
pub(super) struct Assignments {
    pub then: Option<&'static str>,
    pub set: OptionDrafts,
    /// Names and values that HTTP cannot carry as they are, with what is written instead.
    pub rewritten: Vec<String>,
}

/// Translates actions; of two on the same setting the last one counts.
pub(super) fn assignments(actions: &[CloudViewAction]) -> Assignments {
    let mut assigned = Assignments::default();
    let (mut accept, mut index, mut follow) = (None, None, None);
    for action in actions {
        match action {
            CloudViewAction::Accept(value) => accept = Some(*value),
            CloudViewAction::Index(value) => index = Some(*value),
            CloudViewAction::Follow(value) => follow = Some(*value),
            CloudViewAction::Source(name) => {
                let name = assigned.carried(name, 128);
                assigned.set.set("source", name);
            }
            CloudViewAction::Meta { name, value } => {
                let name = assigned.header_name(name);
                let value = assigned.carried(value, 1_024);
                assigned.set.set(&format!("meta.{name}"), value);
            }
            CloudViewAction::Priority(shift) => {
                assigned.set.set("priority", priority(*shift));
            }
        }
    }
    assigned.set_scope(accept, index, follow);
    assigned
}

fn priority(shift: i8) -> &'static str {
    match shift {
        ..=-2 => "highest",
        -1 => "higher",
        0 => "normal",
        1 => "lower",
        2.. => "lowest",
    }
}

impl Assignments {
    fn set_scope(&mut self, accept: Option<bool>, index: Option<bool>, follow: Option<bool>) {
        let (then, sets_index, sets_follow) = match (accept, index, follow) {
            (Some(true), Some(true), Some(true)) => ("index-and-follow", false, false),
            (Some(true), Some(true), Some(false)) => ("index-only", false, false),
            (Some(true), Some(false), Some(true)) => ("follow-only", false, false),
            (Some(true), Some(true), None) => ("index", false, false),
            (Some(true), None, Some(true)) => ("follow", false, false),
            (Some(true), _, _) => ("allow", true, true),
            (Some(false), Some(false), Some(false)) => ("ignore", false, false),
            (Some(false), _, _) => ("disallow", true, true),
            (None, Some(false), None) => ("no-index", false, false),
            (None, None, Some(false)) => ("no-follow", false, false),
            (None, _, _) => ("", true, true),
        };
        self.then = Some(then).filter(|then| !then.is_empty());
        if let Some(index) = index.filter(|_| sets_index) {
            self.set.set("index", index);
        }
        if let Some(follow) = follow.filter(|_| sets_follow) {
            self.set.set("follow", follow);
        }
    }

    /// Returns the end of a header name: characters that it cannot have become `-`.
    fn header_name(&mut self, name: &str) -> String {
        let written: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(64)
            .collect();
        if written != name {
            self.rewritten
                .push(format!("`{name}` is sent as `{written}`"));
        }
        written
    }

    /// Returns text that a header can carry: other characters are written as escapes, as in URLs.
    fn carried(&mut self, text: &str, max: usize) -> String {
        let mut written = String::new();
        for c in text.trim().chars() {
            let mut buffer = [0; 4];
            let escaped = if c == ' ' || c.is_ascii_graphic() {
                c.to_string()
            } else {
                let bytes = c.encode_utf8(&mut buffer).bytes();
                bytes.map(|byte| format!("%{byte:02X}")).collect()
            };
            if written.len() + escaped.len() > max {
                break;
            }
            written.push_str(&escaped);
        }
        if written != text {
            self.rewritten
                .push(format!("`{text}` is sent as `{written}`"));
        }
        written
    }
}
