//! WebCopy
