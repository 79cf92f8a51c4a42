//! What goes over the daemon's socket: one request of 24 bytes and one answer of 8 a connection, in the machine's
//! order.
//!
//! | bytes | request | | bytes | answer |
//! | --- | --- | --- | --- | --- |
//! | 0 to 3 | [`MAGIC`] | | 0 to 3 | 0, or a number of errno(3) |
//! | 4 | [`VERSION`] | | 4 | the class that the file has now |
//! | 5 | 1: say the class; 2: ask for it | | 5 to 7 | 0 |
//! | 6 | the class, 0 to 31; 0 takes back what was said | | | |
//! | 7 | 0 | | | |
//! | 8 to 15 | the file's `st_dev` | | | |
//! | 16 to 23 | its `st_ino` | | | |

use plimsoll_core::Class;
use rustix::io::Errno;

/// How a request begins: "PLCL" where the lowest byte comes first.
pub const MAGIC: u32 = 0x4c43_4c50;
/// The version of the form.
pub const VERSION: u8 = 1;
/// Bytes of a request.
pub const REQUEST_BYTES: usize = 24;
/// Bytes of an answer.
pub const ANSWER_BYTES: usize = 8;
const COMMAND_SAY: u8 = 1;
const COMMAND_ASK: u8 = 2;

/// What a client wants of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The class that it has from now on, 0 for that of its file system; `None`: which one it has.
    pub class: Option<Class>,
    /// The number of its file system's device.
    pub device: u64,
    /// The number of its inode.
    pub inode: u64,
}

/// What the daemon answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Why not, if not.
    pub error: Option<Errno>,
    /// What was said of the file; unclassified if nothing was.
    pub class: Class,
}

impl Request {
    /// As it travels.
    pub fn bytes(&self) -> [u8; REQUEST_BYTES] {
        let command = if self.class.is_some() { COMMAND_SAY } else { COMMAND_ASK };
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[4..8].copy_from_slice(&[VERSION, command, self.class.unwrap_or_default().number(), 0]);
        bytes[8..16].copy_from_slice(&self.device.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.inode.to_ne_bytes());
        bytes
    }

    /// Reads a request; `None` if it is none, since any process may send any bytes.
    pub fn parse(bytes: &[u8]) -> Option<Request> {
        let bytes: &[u8; REQUEST_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let is_ours = bytes[..4] == MAGIC.to_ne_bytes() && bytes[4] == VERSION && bytes[7] == 0;
        let class = match (bytes[5], bytes[6]) {
            _ if !is_ours => return None,
            (COMMAND_SAY, class) => Some(Class::new(class)?),
            (COMMAND_ASK, 0) => None,
            _ => return None,
        };
        Some(Request { class, device: word(8), inode: word(16) })
    }
}

impl Answer {
    /// As it travels.
    pub fn bytes(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&self.error.map_or(0, Errno::raw_os_error).to_ne_bytes());
        bytes[4] = self.class.number();
        bytes
    }

    /// Reads an answer; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<Answer> {
        let bytes: &[u8; ANSWER_BYTES] = bytes.try_into().ok()?;
        let error = i32::from_ne_bytes(bytes[..4].try_into().expect("four bytes"));
        let error = (error != 0).then(|| Errno::from_raw_os_error(error));
        Some(Answer { error, class: Class::new(bytes[4])? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_understood_and_nothing_else() {
        for class in [None, Some(Class::UNCLASSIFIED), Class::new(31)] {
            let request = Request { class, device: 7 << 40, inode: u64::MAX };
            assert_eq!(Request::parse(&request.bytes()), Some(request));
            let bytes = request.bytes();
            assert_eq!(Request::parse(&bytes[..23]), None, "too short");
            assert_eq!(Request::parse(&[&bytes[..], &[0]].concat()), None, "too long");
            for place in 0..8 {
                let mut wrong = bytes;
                wrong[place] ^= 0xe0;
                assert_eq!(Request::parse(&wrong), None, "byte {place}");
            }
        }
        for error in [None, Some(Errno::PERM)] {
            let answer = Answer { error, class: Class::JOURNAL };
            assert_eq!(Answer::parse(&answer.bytes()), Some(answer));
        }
        assert_eq!(Answer::parse(&[0, 0, 0, 0, 32, 0, 0, 0]), None, "no class");
    }
}
