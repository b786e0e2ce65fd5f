//! `crawlgate schema`: the JSON Schema of policies and configurations, for editors.

use crate::config::file;
use crate::policy::source;

use super::Exit;
use super::args::{SchemaArgs, SchemaKind};
use super::console;

/// Runs the command.
pub(super) fn run(args: &SchemaArgs) -> Exit {
    let schema = match args.of {
        SchemaKind::Policy => source::json_schema(),
        SchemaKind::Config => file::json_schema(),
    };
    console::print(&format!("{schema:#}\n"), Exit::Success)
}
