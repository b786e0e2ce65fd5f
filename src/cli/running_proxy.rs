//! The running proxy that a command queries, and where its address comes from.
//!
//! Every command about a running proxy finds it here: by `--admin`, else by the configuration (`--config`,
//! `CRAWLGATE_CONFIG`, or the usual file), else at the default address.

use std::fmt;
use std::io::BufReader;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use serde_json::Value as Json;

use crate::config::load::LoadedConfig;
use crate::config::settings::Settings;

use super::Exit;
use super::admin_client::{self, AdminClientError, AdminClientRequest, AdminResponse};
use super::args::ProxyArgs;
use super::inputs;

/// A proxy that runs, or should run, at the address of its admin listener.
#[derive(Clone, Debug)]
pub(in crate::cli) struct RunningProxy {
    /// The address at which a client reaches the admin listener.
    pub(in crate::cli) address: SocketAddr,
    token_file: Option<PathBuf>,
    address_source: AddressSource,
}

/// The setting that names the address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AddressSource {
    /// `--admin`.
    Option,
    /// `admin.listen` of this configuration file, or its default there.
    Configuration(PathBuf),
    /// The default, since there is no configuration.
    Default,
}

impl fmt::Display for AddressSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option => f.write_str("--admin"),
            Self::Configuration(file) => write!(f, "admin.listen of {}", file.display()),
            Self::Default => f.write_str("the default, since no configuration was found here"),
        }
    }
}

impl fmt::Display for RunningProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy at {} ({})", self.address, self.address_source)
    }
}

impl RunningProxy {
    /// Finds the proxy, and reports errors of the configuration.
    pub(in crate::cli) fn find(args: &ProxyArgs) -> Result<Self, Exit> {
        Self::find_with_settings(args).map(|(proxy, _)| proxy)
    }

    /// Finds the proxy, and returns the settings that name it.
    pub(in crate::cli) fn find_with_settings(args: &ProxyArgs) -> Result<(Self, Settings), Exit> {
        let loaded = inputs::load_quietly(&args.overrides())?;
        Ok((Self::new(args, &loaded), loaded.settings))
    }

    /// Returns the proxy that these arguments and the configuration that they name stand for.
    pub(in crate::cli) fn new(args: &ProxyArgs, loaded: &LoadedConfig) -> Self {
        let address_source = match (args.admin, &loaded.file) {
            (Some(_), _) => AddressSource::Option,
            (None, Some(file)) => AddressSource::Configuration(file.clone()),
            (None, None) => AddressSource::Default,
        };
        let admin = &loaded.settings.admin;
        let is_local = args.admin.is_none_or(|address| address.ip().is_loopback());
        Self {
            address: admin_client::client_address(admin.listen),
            // The token is a secret of the configured proxy: another machine gets it only if the user names both.
            token_file: admin
                .token_file
                .clone()
                .filter(|_| is_local || args.config.is_some()),
            address_source,
        }
    }

    /// Sends a request to the admin API, and returns the JSON document of the response.
    ///
    /// # Errors
    /// If there is no response, or its status is not 2xx.
    pub(in crate::cli) fn send(
        &self,
        request: &AdminClientRequest<'_>,
    ) -> Result<Json, AdminClientError> {
        self.exchange(request)?
            .into_result()
            .map_err(|error| self.with_address(error))
    }

    /// Sends a request to the admin API, and returns the response with any status.
    ///
    /// # Errors
    /// If there is no response.
    pub(in crate::cli) fn exchange(
        &self,
        request: &AdminClientRequest<'_>,
    ) -> Result<AdminResponse, AdminClientError> {
        let token = admin_client::read_token(self.token_file.as_deref())?;
        admin_client::send(self.address, token.as_deref(), request)
            .map_err(|error| self.with_address(error))
    }

    /// Requests a path that needs no token, such as `/readyz`.
    ///
    /// # Errors
    /// If there is no response.
    pub(in crate::cli) fn probe(&self, path: &str) -> Result<AdminResponse, AdminClientError> {
        admin_client::send(self.address, None, &AdminClientRequest::get(path))
            .map_err(|error| self.with_address(error))
    }

    /// Opens a response that may be a stream without end.
    ///
    /// # Errors
    /// If there is no response, or its status is not 200.
    pub(in crate::cli) fn open_stream(
        &self,
        path: &str,
    ) -> Result<BufReader<TcpStream>, AdminClientError> {
        let token = admin_client::read_token(self.token_file.as_deref())?;
        admin_client::open_stream(self.address, token.as_deref(), path)
            .map_err(|error| self.with_address(error))
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// See [`Self::send`].
    pub(in crate::cli) fn get(&self, path: &str) -> Result<Json, AdminClientError> {
        self.send(&AdminClientRequest::get(path))
    }

    fn with_address(&self, error: AdminClientError) -> AdminClientError {
        match error {
            AdminClientError::Unavailable(cause) => {
                AdminClientError::Unavailable(self.unavailable_message(&cause))
            }
            AdminClientError::Status(..) => error,
        }
    }

    fn unavailable_message(&self, cause: &str) -> String {
        format!(
            "the proxy does not answer at {} ({}): {cause}. Start it with `crawlgate run`, or name another with --admin \
             ADDR, --config FILE or $CRAWLGATE_CONFIG",
            self.address, self.address_source
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::load::{self, Environment};

    use super::*;

    /// The order of precedence: `--admin`, `--config`, `CRAWLGATE_CONFIG`, the usual file, the default.
    #[test]
    fn the_address_and_its_source_are_named() {
        let directory = std::env::temp_dir().join(format!("running-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("config")).unwrap();
        let write = |name: &str, port: u16| {
            let text = format!("admin: {{ listen: \"0.0.0.0:{port}\" }}\n");
            std::fs::write(directory.join(name), text).unwrap();
        };
        write("named.yaml", 1001);
        write("variable.yaml", 1002);
        let message = |config: Option<&str>, admin: Option<&str>, variable: Option<&str>| {
            let args = ProxyArgs {
                config: config.map(PathBuf::from),
                admin: admin.map(|admin| admin.parse().unwrap()),
            };
            let variable = variable.map(str::to_owned);
            let environment = Environment {
                directory: &directory,
                variables: &|name| variable.clone().filter(|_| name == load::CONFIG_VARIABLE),
            };
            let loaded = load::load(&args.overrides(), &environment).unwrap();
            RunningProxy::new(&args, &loaded).unavailable_message("no")
        };
        let file = |name: &str| Path::new(&directory).join(name).display().to_string();
        let default = message(None, None, None);
        assert!(default.contains("127.0.0.1:3129 (the default"), "{default}");
        write("config/crawlgate.yaml", 1003);
        for (config, admin, variable, expected) in [
            (
                None,
                None,
                None,
                format!(
                    "127.0.0.1:1003 (admin.listen of {})",
                    file("config/crawlgate.yaml")
                ),
            ),
            (
                None,
                None,
                Some("variable.yaml"),
                format!("127.0.0.1:1002 (admin.listen of {})", file("variable.yaml")),
            ),
            (
                Some("named.yaml"),
                None,
                Some("variable.yaml"),
                format!("127.0.0.1:1001 (admin.listen of {})", file("named.yaml")),
            ),
            (
                Some("named.yaml"),
                Some("127.0.0.9:9"),
                None,
                "127.0.0.9:9 (--admin)".to_owned(),
            ),
        ] {
            let text = message(config, admin, variable);
            assert!(text.contains(&expected), "{text}\n{expected}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
