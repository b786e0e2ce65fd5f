//! The protocol of a fleet: what its nodes write into the database, and send on links.

/// The number of a protocol. A release speaks its own and the one before, so that the nodes of a fleet can be replaced
/// one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetProtocol(pub u32);

impl FleetProtocol {
    /// The protocol of this release. It is raised with a change that nodes of the release before would misread.
    pub const CURRENT: Self = Self::FIRST;
    /// That of releases that do not report one.
    pub const FIRST: Self = Self(1);

    /// The oldest protocol that this release speaks.
    pub fn oldest_spoken() -> Self {
        Self(Self::CURRENT.0 - 1).max(Self::FIRST)
    }

    /// Returns `true` if nodes with the two protocols can be members of one fleet: the newer one speaks the older one's.
    pub fn works_with(self, other: Self) -> bool {
        self.0.abs_diff(other.0) <= 1
    }
}

impl std::fmt::Display for FleetProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_protocols_work_together() {
        let number = FleetProtocol;
        for (one, other, works) in [(1, 1, true), (1, 2, true), (1, 3, false), (4, 2, false)] {
            assert_eq!(
                number(one).works_with(number(other)),
                works,
                "{one} {other}"
            );
            assert_eq!(
                number(other).works_with(number(one)),
                works,
                "{other} {one}"
            );
        }
    }
}
