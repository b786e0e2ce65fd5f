//! Bytes as the tables write them: printable ASCII, escapes, and names in braces.

/// Bytes with places for what is known only when a row runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Bytes(Vec<u8>),
    Port,
    Admin,
    Via,
}

/// The values of the names in braces.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// `{port}`: the port of the row's origin.
    pub(crate) port: u16,
    /// `{admin}`: the port of the gate's admin listener.
    pub(crate) admin: u16,
    /// `{via}`: what the gate calls itself in `Via`.
    pub(crate) via: String,
}

impl Text {
    /// Reads `\r \n \t \s \0 \\ \{ \} \xHH`, `{port}`, `{admin}`, `{via}` and `{COUNT*TEXT}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut parts = Self::default();
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            rest = match first {
                b'\\' => parts.escape(after)?,
                b'{' => parts.braces(after)?,
                b' '..=b'~' => {
                    parts.push(&[*first]);
                    after
                }
                other => return Err(format!("byte {other:#04x}: write it as \\xHH")),
            };
        }
        Ok(parts)
    }

    /// Adds what follows.
    pub(crate) fn append(&mut self, other: Self) {
        for part in other.0 {
            match part {
                Part::Bytes(bytes) => self.push(&bytes),
                name @ (Part::Port | Part::Admin | Part::Via) => self.0.push(name),
            }
        }
    }

    /// The bytes, with every name replaced.
    pub(crate) fn bytes(&self, names: &Names) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in &self.0 {
            match part {
                Part::Bytes(part) => bytes.extend_from_slice(part),
                Part::Port => bytes.extend_from_slice(names.port.to_string().as_bytes()),
                Part::Admin => bytes.extend_from_slice(names.admin.to_string().as_bytes()),
                Part::Via => bytes.extend_from_slice(names.via.as_bytes()),
            }
        }
        bytes
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(Part::Bytes(last)) => last.extend_from_slice(bytes),
            _ => self.0.push(Part::Bytes(bytes.to_vec())),
        }
    }

    /// Reads what follows a backslash; returns what follows that.
    fn escape<'a>(&mut self, text: &'a [u8]) -> Result<&'a [u8], String> {
        let wrong = || {
            format!(
                "`\\{}` is no escape",
                String::from_utf8_lossy(text.get(..3).unwrap_or(text))
            )
        };
        let (first, after) = text.split_first().ok_or_else(wrong)?;
        let byte = match first {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b's' => b' ',
            b'0' => 0,
            b'\\' | b'{' | b'}' => *first,
            b'x' => {
                let (digits, after) = after.split_at_checked(2).ok_or_else(wrong)?;
                let digits = str::from_utf8(digits).map_err(|_| wrong())?;
                self.push(&[u8::from_str_radix(digits, 16).map_err(|_| wrong())?]);
                return Ok(after);
            }
            _ => return Err(wrong()),
        };
        self.push(&[byte]);
        Ok(after)
    }

    /// Reads what follows a brace; returns what follows the closing one.
    fn braces<'a>(&mut self, text: &'a [u8]) -> Result<&'a [u8], String> {
        let end = text
            .iter()
            .position(|b| *b == b'}')
            .ok_or(r"`{` without `}`: write \{ for a brace")?;
        let name = str::from_utf8(&text[..end]).map_err(|e| e.to_string())?;
        match name {
            "port" => self.0.push(Part::Port),
            "admin" => self.0.push(Part::Admin),
            "via" => self.0.push(Part::Via),
            _ => self.repeat(name)?,
        }
        Ok(&text[end + 1..])
    }

    fn repeat(&mut self, name: &str) -> Result<(), String> {
        let wrong =
            || format!(r"`{{{name}}}`: port, admin, via or COUNT*TEXT; write \{{ for a brace");
        let (count, text) = name.split_once('*').ok_or_else(wrong)?;
        let count: usize = count.parse().map_err(|_| wrong())?;
        let Self(parts) = Self::read(text)?;
        let [Part::Bytes(bytes)] = parts.as_slice() else {
            return Err(wrong());
        };
        self.push(&bytes.repeat(count));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_escape_has_its_bytes() {
        let names = Names {
            port: 8080,
            admin: 8081,
            via: "crawlgate-a1".into(),
        };
        for (text, bytes) in [
            (r"a\r\n\t\s\0\\\{\}\xe9", &b"a\r\n\t \0\\{}\xe9"[..]),
            ("{port}-{admin}-{via}", b"8080-8081-crawlgate-a1"),
            (r"[{3*a\n}]", b"[a\na\na\n]"),
        ] {
            assert_eq!(Text::read(text).unwrap().bytes(&names), bytes, "{text}");
        }
    }

    #[test]
    fn whatever_else_is_a_mistake() {
        for text in [
            r"\q", r"\x", r"\xg1", "{", "{host}", "{3*}", "{x*a}", "é", "\t",
        ] {
            assert!(Text::read(text).is_err(), "{text}");
        }
    }
}
