//! Which options exist, what values they take, their defaults, and what this version does with them.
