//! What an exchange's parts remember of origins, for operators who look on.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::gate::robots::seen::{Remembered, RobotsSeen};

use super::http::Exchange;

impl Remembered for Exchange {
    fn robots(&self, host: &str) -> Vec<RobotsSeen> {
        self.robots.of_host(host)
    }

    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        self.vetting.remembered(host)
    }

    fn refusing(&self, host: &str) -> Vec<(SocketAddr, Duration)> {
        self.vetting.refusing(host)
    }
}
