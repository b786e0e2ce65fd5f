//! A table with one cell for each source of credentials.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

/// The number of cells. Two sources that share a cell share what it limits; the hash is keyed at random, so that no
/// source can choose its cell.
const CELL_COUNT: usize = 4096;

/// One cell for each source, in bounded memory.
#[derive(Debug)]
pub(super) struct SourceTable<T> {
    hasher: RandomState,
    cells: Box<[T]>,
}

impl<T: Default> SourceTable<T> {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            cells: (0..CELL_COUNT).map(|_| T::default()).collect(),
        }
    }

    /// Returns the cell of a source; `Some` for every source.
    pub(super) fn get(&self, source: IpAddr) -> Option<&T> {
        self.cells
            .get(self.hasher.hash_one(network_key(source)) as usize % CELL_COUNT)
    }
}

/// Returns what counts as one source. An IPv6 client has a whole /64 of addresses.
fn network_key(source: IpAddr) -> u128 {
    match source.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}
