//! `crawlgate fleet cert`: issues the certificate of a node, and creates the fleet's authority.

use std::fmt::Write as _;

use crawlgate_fleet::node::NodeName;

use crate::cli::args::FleetCertArgs;
use crate::cli::{Exit, ca, console};
use crate::clock::Clock;
use crate::tls::{CaError, CertificateAuthority};

/// Issues the certificate of a node. Exits with 2 for files that exist already or are invalid.
pub(super) fn run(args: &FleetCertArgs) -> Result<Exit, Exit> {
    let FleetCertArgs { node, directory } = args;
    let name = NodeName::new(node).map_err(|error| console::report_invalid(&error))?;
    let now = Clock::system().wall_time();
    let file = |name: &str| directory.join(name);
    let (ca_cert, ca_key) = (file("fleet.pem"), file("fleet.key"));
    let mut text = String::new();
    let authority = match CertificateAuthority::load(&ca_cert, &ca_key, now) {
        Err(CaError::Missing { .. }) => {
            let _ = writeln!(
                text,
                "created the fleet's authority: {} and {}. The key signs certificates of nodes: keep it off the nodes",
                ca_cert.display(),
                ca_key.display()
            );
            CertificateAuthority::create(&ca_cert, &ca_key, now)
        }
        loaded => loaded,
    };
    let (cert, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
    let issued = authority
        .and_then(|authority| authority.issue_node_certificate(name.as_str(), &cert, &key, now));
    issued.map_err(|error| ca::report_error(&error))?;
    let _ = writeln!(
        text,
        "issued the certificate of {name}: {} and {}. On the node:\n\n  fleet:\n    node: {name}\n    tls: {{ cert: {}, \
         key: {}, ca: {} }}",
        cert.display(),
        key.display(),
        cert.display(),
        key.display(),
        ca_cert.display()
    );
    Ok(console::print(&text, Exit::Success))
}
