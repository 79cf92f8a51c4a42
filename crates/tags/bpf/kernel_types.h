/*
 * The structures of the kernel that the programs look into, with only the fields that they look at. Offsets are those
 * of the running kernel: libbpf moves them when it loads (CO-RE). Names after three underscores stand for the same
 * structure as another version of the kernel has it.
 */
#ifndef PLIMSOLL_KERNEL_TYPES_H
#define PLIMSOLL_KERNEL_TYPES_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1, BPF_F_MMAPABLE = 1024 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

enum pageflags { PG_dirty = 4, PG_head = 6 };
enum req_flag_bits { __REQ_SYNC = 11 };

struct list_head {
	struct list_head *next;
};
typedef struct {
	int counter;
} atomic_t;

/* Processes. */
struct kernfs_node {
	__u64 id;
};
struct cgroup_root {
	int hierarchy_id;
};
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};
struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	int level;
	struct cgroup_root *root;
	struct cgroup *ancestors[1];
};
struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};
struct signal_struct {
	atomic_t live;
};
struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	void *worker_private;
	struct signal_struct *signal;
	void *journal_info;
	struct css_set *cgroups;
};
struct linux_binprm;
struct io_wq {
	struct task_struct *task;
};
struct io_worker {
	struct io_wq *wq;
};
/* Up to 6.3 a worker belonged to a part of its queue for each node of memory. */
struct io_wqe___6_1 {
	struct io_wq *wq;
};
struct io_worker___6_1 {
	struct io_wqe___6_1 *wqe;
};

/* Files and pages. */
struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};
struct inode {
	__u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_nlink;
	long long i_size;
	unsigned int i_state;
};
/* The states of an inode were bits of a word up to 6.17; I_DIRTY_PAGES was the third until 6.11, the sixth then. */
enum inode_state_flags_t { I_DIRTY_PAGES = 32 };
struct inode___6_18 {
	enum inode_state_flags_t i_state;
};
struct address_space {
	struct inode *host;
};
struct file {
	struct inode *f_inode;
};
struct kiocb {
	struct file *ki_filp;
	long long ki_pos;
};
struct iov_iter {
	unsigned long count;
};
typedef struct {
	unsigned long f;
} memdesc_flags_t;
struct folio {
	memdesc_flags_t flags;
	struct address_space *mapping;
	unsigned long index;
	unsigned long _flags_1;
};
/* Flags were a plain word up to 6.17. */
struct folio___plain {
	unsigned long flags;
};
/* The order stood in a byte of its own up to 6.5. */
struct folio___6_1 {
	unsigned char _folio_order;
};
struct page {
	unsigned long compound_head;
};
struct block_device {
	__u32 bd_dev;
};
struct buffer_head {
	struct folio *b_folio;
	unsigned long long b_blocknr;
	unsigned long b_size;
	char *b_data;
	struct block_device *b_bdev;
	void *b_end_io;
};
/* A buffer had a page, not a folio, up to 6.2. */
struct buffer_head___6_1 {
	struct folio *b_page;
};
struct writeback_control;

/* Block layer. */
struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};
struct bvec_iter {
	unsigned long long bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
};
struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	unsigned short bi_ioprio;
	struct bvec_iter bi_iter;
	void *bi_end_io;
	void *bi_private;
	struct bio_vec *bi_io_vec;
};
struct request {
	unsigned int cmd_flags;
	unsigned int __data_len;
	unsigned long long __sector;
	struct bio *bio;
};
struct iomap_dio {
	struct kiocb *iocb;
};
struct iomap {
	__u64 length;
};
struct iomap_iter {
	struct inode *inode;
	long long pos;
	long long iter_start_pos;
	unsigned int flags;
	struct iomap iomap;
};
/* Up to 6.14 the position was moved on later, by this. */
struct iomap_iter___6_1 {
	__s64 processed;
};

/* jbd2 and ext4. */
typedef __u32 tid_t;
struct transaction_s {
	tid_t t_tid;
	struct journal_head *t_buffers;
};
struct journal_s {
	struct block_device *j_fs_dev;
};
struct journal_head {
	struct buffer_head *b_bh;
	struct journal_head *b_tnext;
};
struct jbd2_journal_handle {
	struct transaction_s *h_transaction;
};
struct ext4_map_blocks {
	unsigned long long m_pblk;
};

/* XFS. */
struct xfs_buf_ops {
	char *name;
};
struct xfs_buf_map {
	long long bm_bn;
};
struct xfs_buftarg {
	struct block_device *bt_bdev;
};
struct xfs_buf {
	struct xfs_buftarg *b_target;
	struct xfs_buf_map *b_maps;
	const struct xfs_buf_ops *b_ops;
};
struct xfs_buf_log_item {
	struct xfs_buf *bli_buf;
};
struct xfs_imap {
	long long im_blkno;
};
struct xfs_inode {
	struct xfs_imap i_imap;
	unsigned long long i_ino;
	struct inode i_vnode;
};
struct xfs_log_item {
	struct list_head li_trans;
	unsigned int li_type;
};
struct xfs_inode_log_item {
	struct xfs_log_item ili_item;
	struct xfs_inode *ili_inode;
};
struct xfs_cil_ctx {
	unsigned long long sequence;
	struct list_head committing;
};
struct xfs_cil {
	struct xfs_cil_ctx *xc_ctx;
	struct list_head xc_committing;
};
struct xlog {
	struct xfs_cil *l_cilp;
};
struct xlog_in_core {
	struct xlog *ic_log;
};
struct xfs_mount {
	struct super_block *m_super;
	struct xlog *m_log;
};
struct xfs_trans {
	struct xfs_mount *t_mountp;
	struct list_head t_items;
};
struct pt_regs {
#if defined(__TARGET_ARCH_x86)
	unsigned long orig_ax;
#elif defined(__TARGET_ARCH_arm64)
	int syscallno;
#endif
};

#pragma clang attribute pop

#endif
