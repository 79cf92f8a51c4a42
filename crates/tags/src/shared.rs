//! The structures of `bpf/shared.h`, field by field.

/// Bytes of an entry of the tag table.
pub(crate) const ENTRY_BYTES: usize = size_of::<Tag>();
/// Accounts at once.
pub(crate) const ACCOUNTS: u32 = 62;
/// The account of all processes that are registered nowhere.
pub(crate) const ACCOUNT_OTHERS: u32 = 0;
/// The counters of what has no known cause.
pub(crate) const COUNTERS_UNKNOWN: u32 = 63;
/// Sets of counters.
pub(crate) const COUNTERS: u32 = 64;
/// Classes of blocks.
pub(crate) const CLASSES: usize = plimsoll_core::class::CLASSES;

/// Words of a set of system calls; Linux has numbers below 512.
pub(crate) const CALL_WORDS: usize = 8;

/// Flags of a tag: it was a write; a process waits for it; its process said its class.
pub(crate) const TAG_WRITE: u8 = 1;
pub(crate) const TAG_SYNC: u8 = 2;
pub(crate) const TAG_SAID: u8 = 8;
/// Distance of the starts of consecutive stretches of a device in the table of tags. It is odd, and 2^32 over the
/// golden ratio (Knuth, volume 3, 6.4).
pub(crate) const SLOT_STEP: u32 = 0x9e37_79b1;

/// What has the same bytes here and there.
pub(crate) trait Plain: Sized {
    fn put(&self, to: &mut Vec<u8>);
    /// Takes itself off the front of `from`; `None` if that is too short.
    fn take(from: &mut &[u8]) -> Option<Self>;

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(&mut bytes);
        bytes
    }
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Plain for $type {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_ne_bytes());
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                let (first, rest) = from.split_first_chunk()?;
                *from = rest;
                Some(Self::from_ne_bytes(*first))
            }
        }
    )*};
}
plain!(u8, u16, u32, u64);

impl<T: Plain + Copy + Default, const N: usize> Plain for [T; N] {
    fn put(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|element| element.put(to));
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let mut elements = [T::default(); N];
        for element in &mut elements {
            *element = T::take(from)?;
        }
        Some(elements)
    }
}

/// Structures shared with programs of the kernel. They have no padding, so all their bytes are fields.
macro_rules! shared {
    ($($(#[$meta:meta])* struct $name:ident { $($field:ident: $type:ty),* $(,)? } $bytes:literal)*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $bytes && 0 $(+ size_of::<$type>())* == $bytes);

        impl Plain for $name {
            fn put(&self, to: &mut Vec<u8>) {
                $(self.$field.put(to);)*
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                Some($name { $($field: Plain::take(from)?),* })
            }
        }
    )*};
}

shared! {
    struct Settings {
        start_sector: u64,
        slot_mask: u64,
        end_of_buffer: u64,
        end_of_journal: u64,
        end_of_fast_commit: u64,
        end_of_xfs_log: u64,
        end_of_xfs_buffer: u64,
        end_of_direct: u64,
        device: u32,
        slot_shift: u32,
        has_events: u32,
        has_account_per_process: u32,
        layout_ranges: u32,
        hierarchies: u32,
        block_sectors: u32,
        has_flows: u32,
        calls: [u64; CALL_WORDS],
        page_line_mask: u64,
        page_seed: u64,
        inodes_per_group: u32,
        inode_bytes: u32,
    } 184

    struct State {
        generation: u64,
        free_accounts: u64,
        ended_accounts: u64,
        cgroups: u64,
        inode_epoch: u64,
        sweeps: u64,
        is_committing: u64,
        committing: u64,
        transactions: [u64; 4],
        fast_pending: u64,
        fast_committing: u64,
        fast_owner: u64,
        checkpoint_last: u64,
        checkpoint_mount: u64,
        entries_lost: u64,
        pages_elsewhere: u64,
        inodes_guessed: u64,
        events_lost: u64,
        flow_bytes_lost: u64,
        accounts_refused: u64,
        registrations_lost: u64,
        since_ns: [u64; 64],
        wants_waking: u64,
        other_device: u32,
        committed: u32,
    } 720

    struct Owner {
        process: u32,
        spare: u32,
        name: [u8; 16],
    } 24

    struct Registration {
        account: u32,
        is_automatic: u32,
    } 8

    struct Group {
        id: u64,
        hierarchy: u64,
    } 16

    struct Tag {
        causes: u64,
        time_ns: u64,
        inode: u64,
        sequence: u32,
        quotient: u16,
        block_class: u8,
        flags: u8,
    } 32

    struct Counters {
        read: u64,
        data: u64,
        journal: u64,
        metadata: u64,
        dirtied: u64,
        freed: u64,
        by_class: [u64; CLASSES],
    } 304

    struct FlowKey {
        causes: u64,
        inode: u64,
        submitter: [u8; 16],
        block_class: u8,
        is_write: u8,
        is_kernel_thread: u8,
        spare: [u8; 5],
    } 40

    struct Layout {
        sector: u64,
        sectors: u32,
        block_class: u32,
    } 16

    struct PageEvent {
        kind: u32,
        pages: u32,
        time_ns: u64,
        inode: u64,
        first_page: u64,
        causes: u64,
        previous: u64,
    } 48

    struct CallEvent {
        kind: u32,
        thread: u32,
        time_ns: u64,
    } 16

    struct RequestEvent {
        kind: u32,
        bytes: u32,
        time_ns: u64,
        request: u64,
        sector: u64,
        causes: u64,
        inode: u64,
        operation: u8,
        block_class: u8,
        status: u8,
        is_sync: u8,
        spare: [u8; 4],
    } 56
}
