//! The one integration-test binary.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod support;
