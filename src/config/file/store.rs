//! `store` of the configuration file.

use crate::diagnostics::problems::Problems;
use crate::yaml::read::{self, MapReader};

use super::{set_if_some, unsupported};

/// The directory, as written; none if the file does not name one.
pub(super) fn read(path: &mut Option<String>, mut map: MapReader<'_>, problems: &mut Problems) {
    let written = map
        .take("path")
        .and_then(|node| read::spelling(node, problems));
    set_if_some(path, written.map(|written| Some(written.to_owned())));
    unsupported::check(&mut map, "store", problems);
    map.finish(problems);
}
