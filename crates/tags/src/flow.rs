//! Which accounts caused which I/O, and which submitted it, for people to look at
//! ([`Options::flows_max`](crate::Options::flows_max)).
//!
//! Counters tell what each account has caused in all. A flow has the causes, the file, the class, the direction, and
//! the task that handed it to the block layer. For a buffered write that task is a thread of the kernel.

use crate::shared::{self, Plain};
use plimsoll_core::Class;

/// I/O that is alike, since it was last asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Bit n: account n is one of the causes; 0: none is known.
    pub causes_mask: u64,
    /// The inode of the file; 0 for what belongs to no file.
    pub inode: u64,
    /// What it holds, in the numbers of [`Tag::class`](crate::Tag::class).
    pub class: Class,
    /// Whether it was written.
    pub is_write: bool,
    /// The name of the task that handed it to the block layer.
    pub submitter: String,
    /// Whether that is a thread of the kernel.
    pub is_kernel_thread: bool,
    /// How much.
    pub bytes: u64,
}

/// All flows since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flows {
    /// Those that found room, in no order.
    pub flows: Vec<Flow>,
    /// Bytes that did not, because there was more that is not alike than
    /// [`Options::flows_max`](crate::Options::flows_max).
    pub untold_bytes: u64,
}

impl Flow {
    /// As the programs count it.
    pub(crate) fn parse(mut key: &[u8], bytes: u64) -> Option<Flow> {
        let key: shared::FlowKey = Plain::take(&mut key)?;
        let name: Vec<u8> = key.submitter.into_iter().take_while(|byte| *byte != 0).collect();
        Some(Flow {
            causes_mask: key.causes,
            inode: key.inode,
            class: Class::new(key.block_class).unwrap_or_default(),
            is_write: key.is_write != 0,
            submitter: String::from_utf8_lossy(&name).into_owned(),
            is_kernel_thread: key.is_kernel_thread != 0,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_the_programs_write_it() {
        let mut submitter = [0; 16];
        submitter[..7].copy_from_slice(b"kworker");
        let (causes, inode, spare) = (6, 7, [0; 5]);
        let key = shared::FlowKey { causes, inode, submitter, block_class: 8, is_write: 0, is_kernel_thread: 1, spare };
        let (class, submitter) = (Class::new(8).unwrap(), "kworker".to_owned());
        let (is_write, is_kernel_thread) = (false, true);
        let expected = Flow { causes_mask: 6, inode, class, is_write, submitter, is_kernel_thread, bytes: 9 };
        assert_eq!(Flow::parse(&key.bytes(), 9), Some(expected));
        assert_eq!(Flow::parse(&key.bytes()[..20], 9), None);
    }
}
