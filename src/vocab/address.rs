//! (interim)
#![allow(missing_docs, reason = "interim")]
use std::net::IpAddr;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    Public,
    Loopback,
    LinkLocal,
    Unspecified,
    Private,
}
impl AddressClass {
    pub fn as_str(self) -> &'static str {
        "interim"
    }
}
pub fn classify(ip: IpAddr) -> AddressClass {
    if ip.is_loopback() { AddressClass::Loopback } else { AddressClass::Public }
}
pub fn unmapped(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}
