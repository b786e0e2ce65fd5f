//! `crawlgate schema`: the JSON Schema of policies and configurations, for editors.

use crate::config::file;
use crate::policy::source;

use super::Exit;
use super::args::{SchemaArgs, SchemaOf};
use super::out;

/// Runs the command.
pub(super) fn run(args: &SchemaArgs) -> Exit {
    let schema = match args.of {
        SchemaOf::Policy => source::json_schema(),
        SchemaOf::Config => file::json_schema(),
    };
    out::write(&format!("{schema:#}\n"), Exit::Success)
}
