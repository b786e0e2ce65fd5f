//! Enums with a fixed text for each variant: the words of policies, settings, headers and JSON.

/// An enum with a word for each value.
pub trait Word: Copy + 'static {
    /// All values, in the order of the declaration.
    const ALL: &'static [Self];

    /// Returns the word of the value.
    fn as_str(self) -> &'static str;
}

/// Declares enums whose variants have a word each, with a list of the variants and both conversions.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
    ($(
        $(#[$about:meta])*
        $vis:vis enum $name:ident { $($(#[$variant_about:meta])* $variant:ident = $word:literal,)+ }
    )+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name {
            $($(#[$variant_about])* $variant,)+
        }

        impl $name {
            /// All values, in the order of the declaration.
            $vis const ALL: [Self; [$($word),+].len()] = [$(Self::$variant),+];

            /// Returns the word of the value.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Returns the value with a word.
            $vis fn from_word(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == word)
            }
        }

        impl $crate::internal::model::words::Word for $name {
            const ALL: &'static [Self] = &Self::ALL;

            fn as_str(self) -> &'static str {
                self.as_str()
            }
        }
    )+};
}

pub use words;
