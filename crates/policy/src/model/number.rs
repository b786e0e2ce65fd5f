//! Conversions of numbers.

/// Converts a number that is not negative; one that is too large becomes the maximum.
pub fn saturating_u32(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}
