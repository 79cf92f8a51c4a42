/*
 * XFS. A committed transaction joins the committed item list (CIL) of its time; a log write has the causes of the lists
 * that are being pushed. Buffers have the causes of the tasks that logged them. Kernel threads that map, convert or
 * free extents act for the inode's recent writers.
 */
#ifndef PLIMSOLL_XFS_H
#define PLIMSOLL_XFS_H

static __always_inline bool is_our_xfs(struct xfs_inode *inode)
{
	return inode->i_vnode.i_sb->s_dev == settings.device;
}

/*
 * A buffered write is told of three times, because it may write less than it announces. It may end early (a full
 * disk, memory of the caller that is not there), and a page that was entered and never becomes dirty would stay.
 *
 * Before it: where it begins is final, after O_APPEND. Pages that are dirty already have another cause from now on.
 * Then each folio that becomes dirty is told of (`writeback_dirty_folio`). After each part: what was written of folios
 * that were dirty, in pages that were not.
 */
SEC("tp_btf/xfs_file_buffered_write")
int BPF_PROG(xfs_file_buffered_write, struct kiocb *call, struct iov_iter *from)
{
	struct inode *inode = call->ki_filp->f_inode;
	__u64 bytes = from->count;
	if (!bytes || !is_ours(inode))
		return 0;
	__u64 first = (__u64)call->ki_pos >> PAGE_SHIFT, last = ((__u64)call->ki_pos + bytes - 1) >> PAGE_SHIFT;
	__u64 pages = last - first + 1;
	struct task_struct *task = bpf_get_current_task_btf();
	struct actor *actor = actor_of(task);
	if (!actor)
		return 0;
	__u64 causes = causes_of(task, actor);
	actor->written_inode = inode->i_ino;
	actor->first_page = first;
	actor->last_page = last;
	__u64 joined = pages > JOIN_PAGES_MAX ? JOIN_PAGES_MAX : pages;
	actor->unmarked = pages - joined + mark_and_tell(inode->i_ino, first, joined, causes, true);
	join_inode(actor, inode->i_ino, causes);
	return 0;
}

/* Of a buffered write, of zeroes, of a store into mapped memory, and of what goes past the page cache. */
#define IOMAP_WRITE 1
#define IOMAP_ZERO 2
#define IOMAP_FAULT 8
#define IOMAP_DIRECT 16

SEC("tp_btf/iomap_iter")
int BPF_PROG(iomap_iter, struct iomap_iter *call)
{
	__u32 kind = call->flags & (IOMAP_WRITE | IOMAP_ZERO | IOMAP_FAULT | IOMAP_DIRECT);
	if (!(kind & IOMAP_WRITE) || !is_ours(call->inode))
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct actor *actor = actor_of(task);
	if (!actor || actor->written_inode != call->inode->i_ino)
		return 0;
	if (kind & IOMAP_FAULT)
		actor->written_inode = 0; /* that write is over */
	if (kind != IOMAP_WRITE || !actor->unmarked || !call->iomap.length)
		return 0;
	__u64 first = call->pos, end = call->pos;
	if (bpf_core_field_exists(call->iter_start_pos))
		first = call->iter_start_pos;
	if (first == end && bpf_core_field_exists(((struct iomap_iter___6_1 *)0)->processed)) {
		__s64 processed = BPF_CORE_READ((struct iomap_iter___6_1 *)call, processed);
		end += processed > 0 ? processed : 0;
	}
	if (first >= end)
		return 0;
	first >>= PAGE_SHIFT;
	__u64 pages = ((end - 1) >> PAGE_SHIFT) - first + 1;
	pages = pages > WRITE_PAGES_MAX ? WRITE_PAGES_MAX : pages;
	mark_pages(actor, actor->written_inode, first, pages, causes_of(task, actor));
	return 0;
}

/*
 * The key of a buffer among the blocks of metadata: its first sector, as XFS has its addresses. Headers of an
 * allocation group are sectors of one block, and each a buffer of its own.
 */
static __always_inline __u64 key_of_buffer(struct xfs_buf *buffer)
{
	return BPF_CORE_READ(buffer, b_maps, bm_bn);
}

static __always_inline void mark_buffer(struct xfs_buf *buffer)
{
	if (buffer->b_target->bt_bdev->bd_dev != settings.device)
		return;
	__u64 causes = current_causes();
	if (causes)
		mark_block(key_of_buffer(buffer), causes);
}

SEC("tp_btf/xfs_trans_log_buf")
int BPF_PROG(xfs_trans_log_buf, struct xfs_buf_log_item *item)
{
	mark_buffer(item->bli_buf);
	return 0;
}

/* New inodes are written without being logged. */
SEC("tp_btf/xfs_buf_item_ordered")
int BPF_PROG(xfs_buf_item_ordered, struct xfs_buf_log_item *item)
{
	mark_buffer(item->bli_buf);
	return 0;
}

SEC("tp_btf/xfs_trans_binval")
int BPF_PROG(xfs_trans_binval, struct xfs_buf_log_item *item)
{
	struct xfs_buf *buffer = item->bli_buf;
	if (buffer->b_target->bt_bdev->bd_dev == settings.device)
		drop_block(key_of_buffer(buffer));
	return 0;
}

/* The items of a transaction, one after the other. Most have fewer than ten. */
#define ITEMS_MAX 64
#define ITEM_OF_INODE 0x123b

struct item_walk {
	__u64 head;
	__u64 next;
};

/* An inode is changed in its block, too, by every task that logs it, not only by the first. */
static long log_next(__u32 number, struct item_walk *walk)
{
	if (!walk->next || walk->next == walk->head)
		return 1;
	struct xfs_log_item *item = (void *)(walk->next - bpf_core_field_offset(struct xfs_log_item, li_trans));
	walk->next = (__u64)BPF_CORE_READ(item, li_trans.next);
	if (BPF_CORE_READ(item, li_type) != ITEM_OF_INODE)
		return 0;
	__u64 at = (__u64)item - bpf_core_field_offset(struct xfs_inode_log_item, ili_item);
	struct xfs_inode *inode = BPF_CORE_READ((struct xfs_inode_log_item *)at, ili_inode);
	struct task_struct *task = bpf_get_current_task_btf();
	struct actor *actor = actor_of(task);
	__u64 causes = causes_of(task, actor), key = BPF_CORE_READ(inode, i_ino);
	if (!is_kernel_thread(task)) {
		join_inode(actor, key, causes);
	} else if (!causes) {
		__u64 *writers = bpf_map_lookup_elem(&inodes, &key);
		causes = writers ? *writers & CAUSES : 0;
	}
	if (causes)
		mark_block(BPF_CORE_READ(inode, i_imap.im_blkno), causes);
	return 0;
}

/* Sequences of lists begin anew with each mount: so does the number of a mount, in the upper bits of their keys. */
#define MOUNT_SHIFT 48
/* A task that reads a sequence while another list begins may be told the one before. */
#define SEQUENCES_ASTRAY 8

static __always_inline __u64 key_of_checkpoint(__u64 sequence)
{
	return state.checkpoint_mount << MOUNT_SHIFT | (sequence & ((1ULL << MOUNT_SHIFT) - 1));
}

static __always_inline void begin_checkpoint(__u64 sequence)
{
	__u64 last = state.checkpoint_last;
	bool is_new_mount = sequence + SEQUENCES_ASTRAY < last || (sequence == 1 && last > 2);
	if (sequence <= last && !is_new_mount)
		return;
	bool is_first = __sync_val_compare_and_swap(&state.checkpoint_last, last, sequence) == last;
	if (is_new_mount && is_first)
		count(&state.checkpoint_mount, 1);
}

/* The transaction is in the list of its time now, which cannot be pushed meanwhile. */
SEC("tp_btf/xfs_trans_commit_items")
int BPF_PROG(xfs_trans_commit_items, struct xfs_trans *transaction)
{
	struct xfs_mount *mount = transaction->t_mountp;
	if (mount->m_super->s_dev != settings.device)
		return 0;
	__u64 causes = current_causes(), sequence = mount->m_log->l_cilp->xc_ctx->sequence;
	begin_checkpoint(sequence);
	__u64 key = key_of_checkpoint(sequence);
	if (causes)
		join(&checkpoints, &key, causes);
	struct item_walk walk = { .next = (__u64)BPF_CORE_READ(transaction, t_items.next) };
	/* Copied, it is a number to the verifier. */
	bpf_probe_read_kernel(&walk.head, sizeof(walk.head), &transaction);
	walk.head += bpf_core_field_offset(struct xfs_trans, t_items);
	bpf_loop(ITEMS_MAX, log_next, &walk, 0);
	return 0;
}

SEC("tp_btf/iomap_writeback_folio")
int BPF_PROG(iomap_writeback_folio, struct inode *inode)
{
	act_for_inode(inode);
	return 0;
}

/* What `iomap_writeback_folio` was called up to 6.16. */
SEC("tp_btf/iomap_writepage")
int BPF_PROG(iomap_writepage, struct inode *inode)
{
	act_for_inode(inode);
	return 0;
}

SEC("tp_btf/xfs_unwritten_convert")
int BPF_PROG(xfs_unwritten_convert, struct xfs_inode *inode)
{
	act_for_inode(&inode->i_vnode);
	return 0;
}

SEC("tp_btf/xfs_setfilesize")
int BPF_PROG(xfs_setfilesize, struct xfs_inode *inode)
{
	act_for_inode(&inode->i_vnode);
	return 0;
}

/* The last link is gone: what the kernel frees later, it frees for the account that removed it. */
SEC("tp_btf/xfs_iunlink")
int BPF_PROG(xfs_iunlink, struct xfs_inode *inode)
{
	if (!is_our_xfs(inode))
		return 0;
	__u64 key = inode->i_vnode.i_ino, causes = current_causes();
	if (causes)
		bpf_map_update_elem(&inodes, &key, &causes, BPF_ANY);
	return 0;
}

SEC("tp_btf/xfs_inode_inactivating")
int BPF_PROG(xfs_inode_inactivating, struct xfs_inode *inode)
{
	act_for_inode(&inode->i_vnode);
	return 0;
}

/* A worker that gives back what was reserved behind the end of files goes from one to the next. */
SEC("tp_btf/xfs_itruncate_extents_start")
int BPF_PROG(xfs_itruncate_extents_start, struct xfs_inode *inode)
{
	act_for_inode(&inode->i_vnode);
	return 0;
}

SEC("tp_btf/xfs_destroy_inode")
int BPF_PROG(xfs_destroy_inode, struct xfs_inode *inode)
{
	if (is_our_xfs(inode) && inode->i_vnode.i_nlink)
		drop_inode(inode->i_vnode.i_ino);
	return 0;
}

SEC("tp_btf/xfs_iget_recycle")
int BPF_PROG(xfs_iget_recycle, struct xfs_inode *inode)
{
	if (is_our_xfs(inode))
		drop_inode(inode->i_vnode.i_ino);
	return 0;
}

/* Its number may have been that of another file before a task removed its last link. */
SEC("tp_btf/xfs_iget_miss")
int BPF_PROG(xfs_iget_miss, struct xfs_inode *inode)
{
	if (is_our_xfs(inode))
		drop_inode(inode->i_ino);
	return 0;
}

/* Lists that are pushed at the same time; more are rare, and then the log write has the causes of the first ones. */
#define PUSHED_MAX 8

/* The causes of a log write: of all lists that are being pushed. */
static __always_inline __u64 causes_of_log(struct xlog_in_core *log_buffer)
{
	struct xfs_cil *list = BPF_CORE_READ(log_buffer, ic_log, l_cilp);
	struct list_head *head = (void *)list + bpf_core_field_offset(struct xfs_cil, xc_committing);
	struct list_head *next = BPF_CORE_READ(head, next);
	__u64 causes = 0;
	for (int i = 0; i < PUSHED_MAX && next && next != head; i++) {
		struct xfs_cil_ctx *pushed = (void *)next - bpf_core_field_offset(struct xfs_cil_ctx, committing);
		__u64 key = key_of_checkpoint(BPF_CORE_READ(pushed, sequence));
		__u64 *set = bpf_map_lookup_elem(&checkpoints, &key);
		if (set)
			causes |= *set;
		next = BPF_CORE_READ(next, next);
	}
	return causes;
}

/* What a buffer is, by the name of its operations without the prefix "xfs_". */
static __always_inline __u32 class_of_xfs_buffer(struct xfs_buf *buffer)
{
	char name[8] = {};
	const char *text = BPF_CORE_READ(buffer, b_ops, name);
	if (!text || bpf_probe_read_kernel(name, sizeof(name), text))
		return CLASS_INDIRECT;
#define IS(A, B, C) (name[4] == (A) && name[5] == (B) && name[6] == (C))
	if (IS('s', 'b', 0) || IS('a', 'g', 'i') || IS('a', 'g', 'f'))
		return name[7] == 'l' ? CLASS_BITMAP : CLASS_SUPERBLOCK; /* xfs_agfl: free blocks */
	if (IS('i', 'n', 'o'))
		return name[7] == 'd' ? CLASS_INODE : CLASS_BITMAP; /* xfs_inobt: the tree of inodes */
	if (IS('f', 'i', 'n') || IS('b', 'n', 'o') || IS('c', 'n', 't') || IS('r', 'm', 'a') || IS('r', 'e', 'f'))
		return CLASS_BITMAP; /* trees that say what is free, or which owner's it is */
	if (IS('d', 'i', 'r') || IS('d', 'a', '3'))
		return CLASS_DIRECTORY;
	return CLASS_INDIRECT; /* extent maps, attributes, links */
#undef IS
}

#endif
