//! The control socket: how `plimsoll status` and its like talk to the daemon.
//!
//! One JSON object a line in each direction, on a Unix socket that only its owner may open. It is for people and
//! scripts, a few requests a second, and for recordings; nothing on the way of a tenant's I/O passes here. The protocol
//! is described in `docs/control.md`.

pub mod caches;
pub mod client;
mod conversation;
pub mod doors;
pub mod protocol;
pub mod recording;
pub mod server;

use std::io::{self, BufRead, Read};

/// Reads a line of at most `bytes_max` bytes, without its end; `None` at the end of input.
///
/// # Errors
/// `InvalidData` for a longer line; the rest of it stays unread.
fn read_line(input: &mut impl BufRead, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.by_ref().take(bytes_max + 1).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(last) => {
            line.push(last);
            match line.len() as u64 > bytes_max {
                true => {
                    Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line longer than {bytes_max} bytes")))
                }
                // The input ended without a line end: what came counts.
                false => Ok(Some(line)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded() {
        let mut input: &[u8] = b"abc\n\nlong\nx";
        assert_eq!(read_line(&mut input, 3).unwrap().unwrap(), b"abc");
        assert_eq!(read_line(&mut input, 3).unwrap().unwrap(), b"");
        assert_eq!(read_line(&mut input, 3).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_line(&mut input, 3).unwrap().unwrap(), b"");
        assert_eq!(read_line(&mut input, 3).unwrap().unwrap(), b"x");
        assert_eq!(read_line(&mut input, 3).unwrap(), None);
    }
}
