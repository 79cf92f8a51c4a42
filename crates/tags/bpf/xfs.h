/*
 * XFS. A committed transaction joins the committed item list (CIL) of its time; a log write has the causes of the lists
 * that are being pushed. Buffers have the causes of those who logged them. Kernel threads that map, convert or free
 * extents act for the inode's recent writers.
 */
#ifndef PLIMSOLL_XFS_H
#define PLIMSOLL_XFS_H

/* Basic blocks of XFS are sectors. */
#define SECTORS_PER_BLOCK_SHIFT 3

static __always_inline bool is_our_xfs(struct xfs_inode *inode)
{
	return inode->i_vnode.i_sb->s_dev == settings.device;
}

/* Where the write begins is final here, after O_APPEND; pages that are dirty already are told of by nothing else. */
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
	if (actor) {
		actor->written_inode = inode->i_ino;
		actor->first_page = first;
		actor->last_page = last;
	}
	mark_pages(actor, inode->i_ino, first, pages > WRITE_PAGES_MAX ? WRITE_PAGES_MAX : pages, causes_of(task, actor));
	return 0;
}

static __always_inline void mark_buffer(struct xfs_buf *buffer)
{
	if (buffer->b_target->bt_bdev->bd_dev != settings.device)
		return;
	__u64 causes = current_causes();
	if (causes)
		mark_block((__u64)BPF_CORE_READ(buffer, b_maps, bm_bn) >> SECTORS_PER_BLOCK_SHIFT, causes);
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
		drop_block((__u64)BPF_CORE_READ(buffer, b_maps, bm_bn) >> SECTORS_PER_BLOCK_SHIFT);
	return 0;
}

SEC("tp_btf/xfs_inode_pin")
int BPF_PROG(xfs_inode_pin, struct xfs_inode *inode)
{
	if (!is_our_xfs(inode))
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct actor *actor = actor_of(task);
	__u64 causes = causes_of(task, actor), key = inode->i_vnode.i_ino;
	if (!is_kernel_thread(task)) {
		join_inode(actor, key, causes);
	} else if (!causes) {
		__u64 *writers = bpf_map_lookup_elem(&inodes, &key);
		causes = writers ? *writers & CAUSES : 0;
	}
	if (causes)
		mark_block((__u64)inode->i_imap.im_blkno >> SECTORS_PER_BLOCK_SHIFT, causes);
	return 0;
}

SEC("tp_btf/xfs_trans_commit")
int BPF_PROG(xfs_trans_commit, struct xfs_trans *transaction)
{
	struct xfs_mount *mount = transaction->t_mountp;
	if (mount->m_super->s_dev != settings.device)
		return 0;
	__u64 causes = current_causes(), sequence = mount->m_log->l_cilp->xc_ctx->sequence;
	if (causes)
		join(&checkpoints, &sequence, causes);
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

/* The last link is gone: what the kernel frees later, it frees for whoever removed it. */
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
		__u64 sequence = BPF_CORE_READ(pushed, sequence);
		__u64 *set = bpf_map_lookup_elem(&checkpoints, &sequence);
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
		return CLASS_BITMAP; /* trees that say what is free, or whose it is */
	if (IS('d', 'i', 'r') || IS('d', 'a', '3'))
		return CLASS_DIRECTORY;
	return CLASS_INDIRECT; /* extent maps, attributes, links */
#undef IS
}

#endif
