//! `crawlgate health`: the readiness or liveness of a running proxy, as an exit code.

use super::Exit;
use super::args::HealthArgs;
use super::console;
use super::running_proxy::RunningProxy;

/// Runs the command. Exits with 1 if the proxy does not answer either: to a health check both are the same.
pub(super) fn run(args: &HealthArgs) -> Result<Exit, Exit> {
    let proxy = RunningProxy::find(&args.proxy)?;
    let path = match args.live {
        true => "/healthz",
        false => "/readyz",
    };
    let response = proxy.probe(path).map_err(|error| {
        crate::console::error(&error);
        Exit::Negative
    })?;
    let exit = match response.status {
        200 => Exit::Success,
        _ => Exit::Negative,
    };
    Ok(console::print(&response.body, exit))
}
