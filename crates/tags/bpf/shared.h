/*
 * What the programs and `src/kernel/shared.rs` both know: structures in shared memory and in records, field by field
 * the same. Bytes, unless a name says otherwise; times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef PLIMSOLL_SHARED_H
#define PLIMSOLL_SHARED_H

/* Accounts are bits 0 to 61 of a mask of causes. Bit 63: what the mask stands for was handed to the block layer. */
#define ACCOUNTS 62
#define TAKEN (1ULL << 63)
/* Bit 62 of the causes of a metadata block: it belongs to a directory. */
#define DIRECTORY (1ULL << 62)
#define CAUSES (DIRECTORY - 1)
/* Tasks that are registered nowhere, unless every process has an account of its own. */
#define ACCOUNT_OTHERS 0
/* The counters of what has no known cause. */
#define COUNTERS_UNKNOWN 63
#define COUNTERS 64

/* The classes of a file system's blocks, by their numbers in the schemes `ext4`, `xfs` and `postgresql-on-ext4`
 * (classes/). */
enum block_class {
	CLASS_UNKNOWN = 0,
	CLASS_SUPERBLOCK = 1,
	CLASS_DESCRIPTOR = 2,
	CLASS_BITMAP = 3,
	CLASS_INODE = 4,
	CLASS_INDIRECT = 5,
	CLASS_DIRECTORY = 6,
	CLASS_JOURNAL = 7,
	CLASS_FILE_SMALLEST = 8,
	CLASS_FILE_LARGEST = 18,
};
#define CLASSES 32
/* Words of a set of system calls; Linux has numbers below 512. */
#define CALL_WORDS 8

/* Set before the programs are loaded, constant from then on. */
struct settings {
	__u64 start_sector;         /* of the partition on its disk */
	__u64 slot_mask;            /* slots of the tag table less one; they are a power of two */
	__u64 end_of_buffer;        /* addresses of functions of the kernel that tell what a bio is; 0: not known */
	__u64 end_of_journal;
	__u64 end_of_fast_commit;
	__u64 end_of_xfs_log;
	__u64 end_of_xfs_buffer;
	__u64 end_of_direct;
	__u32 device;               /* as the kernel has device numbers: major << 20 | minor */
	__u32 slot_shift;
	__u32 has_events;
	__u32 has_account_per_process;
	__u32 layout_ranges;        /* entries of the static layout, sorted */
	__u32 hierarchies;          /* entries of `css_set.subsys` */
	__u32 block_sectors;        /* of a block of the file system (ext4) */
	__u32 has_flows;
	__u64 calls[CALL_WORDS];    /* bits: numbers of system calls that tell of their return */
	__u64 page_line_mask;       /* lines of the table of dirty pages less one; they are a power of two, 64 at least */
	__u64 page_seed;            /* chance, so that no tenant can choose pages that have one number */
	__u32 inodes_per_group;     /* ext4; 0: not known where inodes are */
	__u32 inode_bytes;
};

/* Shared memory: user space and programs both change it. */
struct state {
	__u64 generation;           /* counts changes of registrations: what a task remembers of itself is then stale */
	__u64 free_accounts;        /* bits that no account has */
	__u64 ended_accounts;       /* bits that mean no account any more, and that something may still carry */
	__u64 cgroups;              /* registered cgroups */
	__u64 inode_epoch;          /* counts sets of inodes that were dropped */
	__u64 sweeps;               /* counts sweeps: each forgets the accounts that kernel threads worked for before */
	__u64 is_committing;        /* whether a jbd2 transaction is being written */
	__u64 committing;           /* its causes, or those of the last one */
	__u64 transactions[4];      /* causes by the low bits of the transaction's number; two are alive at the most */
	__u64 fast_pending;         /* causes of what a fast commit would have to write */
	__u64 fast_committing;      /* causes of the fast commit that is being written */
	__u64 fast_owner;           /* the thread that began it; 0: there is none */
	__u64 checkpoint_last;      /* XFS: the newest committed item list */
	__u64 checkpoint_mount;     /* XFS: mounts so far with lists that began anew */
	__u64 entries_lost;         /* dirtied pages and blocks that found no room */
	__u64 pages_elsewhere;      /* dirty pages that are in their second line */
	__u64 inodes_guessed;       /* blocks for which the inode's recent writers stood in for the page's */
	__u64 events_lost;          /* records that found no room in the ring */
	__u64 flow_bytes_lost;      /* bytes that found no room among the flows */
	__u64 accounts_refused;     /* processes that became others because all accounts were taken */
	__u64 registrations_lost;   /* threads and processes that found no room: they are others */
	__u64 since_ns[64];         /* when each account began: an older tag means a predecessor */
	__u64 wants_waking;         /* the reader of the ring waits: the next event wakes it */
	__u32 other_device;         /* device number of the superblock, where it is not that of the block device (btrfs) */
	__u32 committed;            /* number of the jbd2 transaction that was written last */
};

/* The process that an account was opened for, automatically. */
struct owner {
	__u32 process;
	__u32 spare;
	char name[16];
};

/* An account as a thread, process or cgroup has it. */
struct registration {
	__u32 account;
	__u32 is_automatic;
};

/* A cgroup: hierarchy 0 is cgroup v2. */
struct group {
	__u64 id;
	__u64 hierarchy;
};

/* 4 KiB of the device. Even sequence: at rest. */
struct tag {
	__u64 causes;
	__u64 time_ns;
	__u64 inode;
	__u32 sequence;
	__u16 quotient;             /* block number divided by slots */
	__u8 block_class;
	__u8 flags;
};
#define TAG_WRITE 1             /* it was a write */
#define TAG_SYNC 2              /* a task waits for it (REQ_SYNC) */
#define TAG_DIRECT 4            /* it went past the page cache */
#define TAG_SAID 8              /* the task that asked for it said its class */
#define SLOT_STEP 0x9e3779b1ULL /* how far further on each stretch of a device begins in the table of tags */

/* The hint in an I/O priority is bits 3 to 12. The kernel passes it on and knows 1 to 7; ours is 512 and a class. */
#define HINT_SHIFT 3
#define HINT_MASK 0x3ff
#define HINT_OF_CLASS 0x200

struct counters {
	__u64 read;
	__u64 data;
	__u64 journal;
	__u64 metadata;
	__u64 dirtied;
	__u64 freed;
	__u64 by_class[CLASSES];    /* written */
};

/* I/O that is alike; its value is bytes. */
struct flow_key {
	__u64 causes;
	__u64 inode;
	char submitter[16];         /* the name of the task that handed it to the block layer */
	__u8 block_class;
	__u8 is_write;
	__u8 is_kernel_thread;      /* the submitter */
	__u8 spare[5];
};

/* A range of sectors with one class. */
struct layout {
	__u64 sector;
	__u32 sectors;
	__u32 block_class;
};

enum event_kind {
	EVENT_DIRTIED = 1,
	EVENT_FREED = 2,
	EVENT_ISSUED = 3,
	EVENT_COMPLETED = 4,
	EVENT_RETURNED = 5,
	EVENT_WRITTEN_DIRECT = 6,
};

struct page_event {
	__u32 kind;
	__u32 pages;
	__u64 time_ns;
	__u64 inode;
	__u64 first_page;
	__u64 causes;
	__u64 previous;
};
struct request_event {
	__u32 kind;
	__u32 bytes;
	__u64 time_ns;
	__u64 request;
	__u64 sector;
	__u64 causes;
	__u64 inode;
	__u8 operation;
	__u8 block_class;
	__u8 status;
	__u8 is_sync;
	__u8 spare[4];
};
struct call_event {
	__u32 kind;
	__u32 thread;
	__u64 time_ns;
};

#endif
