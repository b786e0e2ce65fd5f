//! Connects to vetted addresses: Happy Eyeballs (RFC 8305) over a list that is already resolved.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use crate::pipeline::permit::OriginTimeouts;

use super::destination::{LocalAddresses, VettedAddresses};

/// The time before the next attempt starts in parallel (RFC 8305 section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// The maximum number of addresses that are tried.
pub(super) const MAX_ATTEMPTS: usize = 4;

/// The time limits of connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialLimits {
    /// The limit of one attempt.
    pub connect: Duration,
    /// The limit of all attempts together.
    pub total: Duration,
}

impl DialLimits {
    /// Returns these limits with the policy's values in place of the configured ones.
    pub fn with_overrides(self, timeouts: OriginTimeouts) -> Self {
        Self {
            connect: timeouts.connect.unwrap_or(self.connect),
            total: timeouts.connect_total.unwrap_or(self.total),
        }
    }
}

/// The reason why no address could be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialError {
    /// The connection was refused, or reset before it was established.
    Refused,
    /// No answer arrived in time.
    Timeout,
    /// There is no route to the address.
    Unreachable,
    /// Any other failure, such as running out of ports or file descriptors.
    Other,
}

impl DialError {
    /// Returns the failure to report after two failed attempts.
    fn combine(self, later: Self) -> Self {
        match (self, later) {
            (_, Self::Timeout | Self::Other) => later,
            (Self::Timeout | Self::Other, _) => self,
            (Self::Refused, _) | (_, Self::Refused) => Self::Refused,
            (Self::Unreachable, Self::Unreachable) => Self::Unreachable,
        }
    }
}

/// Connects to the first of the vetted addresses that answers.
///
/// # Errors
/// Returns the failure that is most likely to be temporary: [`DialError::Refused`] or
/// [`DialError::Unreachable`] only if no attempt failed for another reason.
pub async fn dial(
    vetted: &VettedAddresses,
    limits: DialLimits,
) -> Result<(TcpStream, SocketAddr), DialError> {
    let order = interleave(vetted.addresses());
    let local = vetted.local().map(|local| **local);
    match timeout(limits.total, race(order, limits.connect, local)).await {
        Ok(result) => result,
        Err(_) => Err(DialError::Timeout),
    }
}

/// Alternates between the address families, beginning with the family of the first address.
fn interleave(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<SocketAddr>, VecDeque<SocketAddr>) =
        addresses.iter().partition(|a| a.is_ipv6() == first_is_v6);
    let mut order = VecDeque::new();
    while order.len() < MAX_ATTEMPTS && (!first.is_empty() || !second.is_empty()) {
        order.extend(first.pop_front());
        order.extend(second.pop_front());
    }
    order.truncate(MAX_ATTEMPTS);
    order
}

/// Starts an attempt, and another in parallel whenever one fails or takes too long.
async fn race(
    mut order: VecDeque<SocketAddr>,
    attempt_timeout: Duration,
    local: Option<LocalAddresses>,
) -> Result<(TcpStream, SocketAddr), DialError> {
    let mut attempts = tokio::task::JoinSet::new();
    let mut worst = DialError::Unreachable;
    while let Some(address) = order.pop_front() {
        if order.is_empty() && attempts.is_empty() {
            // The usual case: one address, which needs no task.
            return attempt(address, attempt_timeout, local).await;
        }
        attempts.spawn(attempt(address, attempt_timeout, local));
        let mut stagger = pin!(sleep(ATTEMPT_DELAY));
        tokio::select! {
            Some(result) = attempts.join_next() => match result {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => worst = worst.combine(error),
                Err(_) => worst = DialError::Other,
            },
            () = &mut stagger => {}
        }
    }
    while let Some(result) = attempts.join_next().await {
        match result {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => worst = worst.combine(error),
            Err(_) => worst = DialError::Other,
        }
    }
    Err(worst)
}

async fn attempt(
    address: SocketAddr,
    attempt_timeout: Duration,
    local: Option<LocalAddresses>,
) -> Result<(TcpStream, SocketAddr), DialError> {
    let connected = match local.and_then(|local| local.for_peer(address.ip())) {
        None => timeout(attempt_timeout, TcpStream::connect(address)).await,
        Some(local) => timeout(attempt_timeout, connect_from(local, address)).await,
    };
    let stream = match connected {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(classify_error(&error)),
        Err(_) => return Err(DialError::Timeout),
    };
    // The connected address must be the vetted one, whatever the machine's packet filter does.
    if stream.peer_addr().ok() != Some(address) {
        return Err(DialError::Unreachable);
    }
    let _ = stream.set_nodelay(true);
    Ok((stream, address))
}

/// Connects from an address of this machine.
async fn connect_from(local: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match local {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(address).await
}

fn classify_error(error: &io::Error) -> DialError {
    use io::ErrorKind as K;
    if matches!(
        error.kind(),
        K::ConnectionRefused | K::ConnectionReset | K::ConnectionAborted
    ) {
        return DialError::Refused;
    }
    if error.kind() == K::TimedOut {
        return DialError::Timeout;
    }
    let unreachable = matches!(
        error.kind(),
        K::NetworkUnreachable | K::HostUnreachable | K::AddrNotAvailable
    );
    if unreachable {
        DialError::Unreachable
    } else {
        DialError::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let all = [
            "10.0.0.1:80",
            "10.0.0.2:80",
            "10.0.0.3:80",
            "[2001:db8::1]:80",
            "[2001:db8::2]:80",
        ];
        let addresses: Vec<SocketAddr> = all.iter().map(|a| a.parse().unwrap()).collect();
        let order: Vec<String> = interleave(&addresses)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            order,
            [
                "10.0.0.1:80",
                "[2001:db8::1]:80",
                "10.0.0.2:80",
                "[2001:db8::2]:80"
            ]
        );
    }
}
