/* The file of gate words, as agent, shim and keeper share it. `src/words.rs` says what it means, and tests this. */
#ifndef PLIMSOLL_LAYOUT_H
#define PLIMSOLL_LAYOUT_H

#define WORDS_MAGIC 0x57474c50 /* "PLGW" */
#define WORDS_VERSION 2
#define VERSION_OFFSET 4
#define LEASE_OFFSET 64
#define LEASE_NS 500000000
#define WORDS_OFFSET 4096
#define WORD_STRIDE 64
#define CLASSES 4
#define CLASS_WRITE 0
#define CLASS_SYNC 1
#define CLASS_METADATA 2
#define CLASS_READ 3
#define ACCOUNTS_MAX 64
#define WORDS_BYTES 20480

/* What stands in the sixth argument, which the kernel does not look at, of a call by which a process installs a filter,
 * if its shim has stood aside. A filter notifies the agent of all others. `src/filter/table.rs`. */
#define ASIDE_MARK 0x6c477250 /* "PrGl" */

/* The ledger of a listener: what its agent has received and not yet answered. `src/listener/ledger.rs`. */
#define LEDGER_SLOTS 1024
#define SLOT_BYTES 128

/* The note of frozen cgroups: after a header as long as a slot, one slot for each. `src/thawer.rs`. */
#define NOTE_SLOT_BYTES 4096
#define NOTE_VERSION_OFFSET 1
#define NOTE_INODE_OFFSET 8
#define NOTE_PATH_OFFSET 16
#define NOTE_FROZEN 70 /* 'F' */

#endif
