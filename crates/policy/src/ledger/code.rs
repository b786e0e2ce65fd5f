//! OmniFind's codes, as the ledger counts them.

/// The codes that this program assigns.
const NUMBERS: [u16; 12] = [612, 613, 614, 680, 700, 710, 720, 730, 740, 760, 761, 770];
/// The texts of [`NUMBERS`], and that of any other code, which a file of another version may have.
const LABELS: [&str; NUMBERS.len() + 1] = [
    "612", "613", "614", "680", "700", "710", "720", "730", "740", "760", "761", "770", "other",
];

/// A code that is counted: one that this program assigns, or any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OmnifindCode(u8);

impl OmnifindCode {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; LABELS.len()] = {
        let mut all = [Self(0); LABELS.len()];
        let mut at = 0;
        while at < all.len() {
            #[allow(
                clippy::indexing_slicing,
                reason = "the index is below the length, and the loop is evaluated at compile time"
            )]
            {
                all[at] = Self(at as u8);
            }
            at += 1;
        }
        all
    };

    /// Returns the value of a code.
    pub fn from_number(number: u16) -> Self {
        let at = NUMBERS.binary_search(&number).unwrap_or(NUMBERS.len());
        Self(u8::try_from(at).unwrap_or_default())
    }

    /// The number; 0 for any other code.
    pub fn number(self) -> u16 {
        NUMBERS.get(self.index()).copied().unwrap_or_default()
    }

    /// The value of the metric's label and the key in JSON.
    pub fn as_str(self) -> &'static str {
        LABELS.get(self.index()).copied().unwrap_or_default()
    }

    /// The position in [`Self::ALL`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::reason::Reason;

    #[test]
    fn numbers_and_labels_agree() {
        for (at, code) in OmnifindCode::ALL.into_iter().enumerate() {
            assert_eq!(code.index(), at);
            assert_eq!(OmnifindCode::from_number(code.number()), code);
        }
        for number in NUMBERS {
            assert_eq!(
                OmnifindCode::from_number(number).as_str(),
                number.to_string()
            );
        }
        assert_eq!(OmnifindCode::from_number(999).as_str(), "other");
    }

    #[test]
    fn every_code_of_a_reason_is_counted_by_itself() {
        for code in Reason::ALL.iter().filter_map(|reason| reason.row().code) {
            assert_eq!(OmnifindCode::from_number(code).number(), code);
        }
    }
}
