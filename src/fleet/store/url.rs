//! `store.url`: the URL of libpq, with several hosts if the database has replicas.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// A parsed URL. Its password is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    config: Config,
    tls: StoreTlsMode,
}

/// Protection of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreTlsMode {
    /// None: the database is on this machine, or the user has asked for it.
    Disabled,
    /// TLS; the certificate is verified by the system's roots, or by those of a file.
    Verified(Option<PathBuf>),
}

const FORM: &str = "write a URL such as postgresql://crawlgate:${PGPASSWORD}@db.internal/crawlgate; several hosts are \
                    separated by commas";

impl StoreUrl {
    /// Parses a URL. `sslmode` may be `disable` or `verify-full`; by default, TLS is used unless every host is this
    /// machine.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong, without the password.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with("postgresql://") && !text.starts_with("postgres://") {
            return Err(FORM.to_owned());
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut mode = None;
        let mut roots = None;
        let mut rest = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(PathBuf::from(value)),
                _ => rest.push(parameter),
            }
        }
        // The message of the library may quote the URL with its password.
        let mut config: Config = format!("{base}?{}", rest.join("&"))
            .parse()
            .map_err(|_| FORM.to_owned())?;
        if config.get_hosts().is_empty() || config.get_user().is_none() {
            return Err(format!("the host or the user is missing; {FORM}"));
        }
        let is_local = config.get_hosts().iter().all(is_this_machine);
        let tls = match mode {
            Some("disable") => StoreTlsMode::Disabled,
            None if is_local && roots.is_none() => StoreTlsMode::Disabled,
            Some("verify-full") | None => StoreTlsMode::Verified(roots),
            Some(other) => {
                return Err(format!(
                    "sslmode={other} does not verify that the server is the right one: write sslmode=verify-full, with \
                     sslrootcert=FILE if its authority is your own, or sslmode=disable"
                ));
            }
        };
        config.ssl_mode(match tls {
            StoreTlsMode::Disabled => SslMode::Disable,
            StoreTlsMode::Verified(_) => SslMode::Require,
        });
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.application_name("crawlgate");
        Ok(Self { config, tls })
    }

    pub(super) fn tls(&self) -> &StoreTlsMode {
        &self.tls
    }

    /// The user as whom to connect.
    pub(super) fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    pub(super) fn config(&self, timeout: Duration) -> Config {
        let mut config = self.config.clone();
        config.connect_timeout(timeout);
        config
    }
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.to_canonical().is_loopback())
        }
        Host::Unix(_) => true,
    }
}

/// The hosts and the database, without user and password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match host {
                Host::Tcp(name) => f.write_str(name)?,
                Host::Unix(path) => write!(f, "{}", path.display())?,
            }
            if let Some(port) = ports.get(index).or(ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        match self.config.get_dbname() {
            Some(name) => write!(f, "/{name}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_verified_unless_the_database_is_on_this_machine_or_the_url_says_so() {
        for (url, tls) in [
            ("postgresql://u@db/d", StoreTlsMode::Verified(None)),
            ("postgres://u@127.0.0.1/d", StoreTlsMode::Disabled),
            (
                "postgresql://u@localhost,db/d",
                StoreTlsMode::Verified(None),
            ),
            (
                "postgresql://u@db/d?sslmode=disable",
                StoreTlsMode::Disabled,
            ),
            (
                "postgresql://u@db:1,e:2/d?sslmode=verify-full&sslrootcert=ca.pem",
                StoreTlsMode::Verified(Some("ca.pem".into())),
            ),
        ] {
            assert_eq!(StoreUrl::parse(url).unwrap().tls, tls, "{url}");
        }
    }

    #[test]
    fn mistakes_are_reported_without_the_password() {
        for url in [
            "mysql://u:geheim@h/d",
            "postgresql://u:geheim@h:port/d",
            "postgresql:///d",
            "postgresql://u:geheim@h/d?sslmode=require",
            "postgresql://u:geheim@h/d?sslmode=prefer",
            "postgresql://u:geheim@h/d?nonsense=1",
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert!(!error.contains("geheim"), "{error}");
        }
        let url = StoreUrl::parse("postgresql://u:geheim@h:1,i:2/d").unwrap();
        assert_eq!(format!("{url} {url:?}"), "h:1,i:2/d StoreUrl(h:1,i:2/d)");
    }
}
