//! First bytes of the files beside a tablespace: a name of seven bytes, and their version's digit.

use std::io;

/// Bytes of the name, which no version changes.
const NAME: usize = 7;

/// True if `start` begins with `magic`, false if a file begins so that is no such file.
///
/// # Errors
/// `InvalidData` for such a file of another version, with what to do.
pub(crate) fn is_at(start: &[u8], magic: &[u8; 8]) -> io::Result<bool> {
    match start.get(..magic.len()) {
        Some(found) if found == magic => Ok(true),
        Some(found) if found[..NAME] == magic[..NAME] => {
            let why = format!(
                "the file begins with {}, and this version of Forebay knows {}: start the server with the version that wrote it",
                found.escape_ascii(),
                magic.escape_ascii()
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
        _ => Ok(false),
    }
}
