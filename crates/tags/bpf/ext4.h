/*
 * ext4 and its journal. A transaction has the causes of all tasks that joined it; a block of metadata that it changed
 * has those of the tasks that looked it up for it, or the transaction's if none did. Kernel threads that allocate or
 * convert extents act for the inode's recent writers.
 */
#ifndef PLIMSOLL_EXT4_H
#define PLIMSOLL_EXT4_H

/* Buffers of one transaction that are looked at: 256 MiB of metadata. */
#define TRANSACTION_BUFFERS_MAX 65536
/* Blocks of a directory that are learned at once. */
#define DIRECTORY_BLOCKS_MAX 64
#define FILE_TYPE 0170000
#define FILE_TYPE_DIRECTORY 0040000

static __always_inline bool is_ours(struct inode *inode)
{
	return inode->i_sb->s_dev == settings.device;
}

static __always_inline void join_transaction(tid_t transaction, __u64 causes)
{
	__u32 slot = transaction & 3;
	if ((state.transactions[slot] & causes) != causes)
		__sync_fetch_and_or(&state.transactions[slot], causes);
	if ((state.fast_pending & causes) != causes)
		__sync_fetch_and_or(&state.fast_pending, causes);
}

/* The task looks a block up, or is about to change it. Most are the inode's, again and again. */
static __always_inline void touch(struct actor *actor, __u64 block, __u64 causes)
{
	__u32 transaction = actor->transaction;
	if (actor->touched == block && actor->touched_for == transaction && actor->touched_by == causes)
		return;
	touch_block(block, causes, transaction);
	actor->touched = block;
	actor->touched_for = transaction;
	actor->touched_by = causes;
}

/* Where an inode is. The kernel tells of a block that is looked up only if its processor knows it from lately. */
static __always_inline void touch_inode(struct actor *actor, __u64 number, __u64 causes)
{
	__u32 inodes = settings.inodes_per_group, before = (__u32)number - 1;
	if (!actor || !causes || !inodes)
		return;
	__u32 group = before / inodes;
	__u64 *table = bpf_map_lookup_elem(&inode_tables, &group);
	if (table && *table)
		touch(actor, (*table + (__u64)(before % inodes) * settings.inode_bytes) >> BLOCK_SHIFT, causes);
}

SEC("tp_btf/block_touch_buffer")
int BPF_PROG(block_touch_buffer, struct buffer_head *buffer)
{
	if (!buffer->b_bdev || buffer->b_bdev->bd_dev != settings.device)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	if (!task->journal_info)
		return 0;
	struct actor *actor = actor_of(task);
	__u64 causes = causes_of(task, actor);
	if (causes && actor)
		touch(actor, block_of(buffer), causes);
	return 0;
}

static __always_inline int begin_handle(__u32 device, tid_t transaction)
{
	if (device != settings.device)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct actor *actor = actor_of(task);
	__u64 causes = causes_of(task, actor);
	if (actor)
		actor->transaction = transaction;
	if (causes)
		join_transaction(transaction, causes);
	return 0;
}

SEC("tp_btf/jbd2_handle_start")
int BPF_PROG(jbd2_handle_start, __u32 device, tid_t transaction)
{
	return begin_handle(device, transaction);
}

/* Work that does not fit one transaction goes on in the next. */
SEC("tp_btf/jbd2_handle_restart")
int BPF_PROG(jbd2_handle_restart, __u32 device, tid_t transaction)
{
	return begin_handle(device, transaction);
}

/* A task that works for one inode does not work for the next. */
SEC("tp_btf/jbd2_handle_stats")
int BPF_PROG(jbd2_handle_stats, __u32 device)
{
	if (device == settings.device)
		act_for(0);
	return 0;
}

SEC("tp_btf/ext4_journal_start_reserved")
int BPF_PROG(ext4_journal_start_reserved, struct super_block *super)
{
	if (super->s_dev == settings.device)
		act_for(0);
	return 0;
}

SEC("tp_btf/ext4_journal_start_inode")
int BPF_PROG(ext4_journal_start_inode, struct inode *inode)
{
	if (is_ours(inode))
		act_for_inode(inode);
	return 0;
}

SEC("tp_btf/ext4_mark_inode_dirty")
int BPF_PROG(ext4_mark_inode_dirty, struct inode *inode)
{
	if (!is_ours(inode))
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct jbd2_journal_handle *handle = task->journal_info;
	if (!handle)
		return 0;
	act_for_inode(inode);
	struct actor *actor = actor_of(task);
	__u64 causes = causes_of(task, actor);
	if (!causes)
		return 0;
	touch_inode(actor, inode->i_ino, causes);
	if (!is_kernel_thread(task)) {
		/* It joined the transaction when its handle began. */
		join_inode(actor, inode->i_ino, causes);
		return 0;
	}
	struct transaction_s *transaction = LOAD(handle, h_transaction);
	if (transaction)
		join_transaction(LOAD(transaction, t_tid), causes);
	return 0;
}

SEC("tp_btf/ext4_ext_map_blocks_enter")
int BPF_PROG(ext4_ext_map_blocks_enter, struct inode *inode)
{
	if (is_ours(inode))
		act_for_inode(inode);
	return 0;
}

static long learn_directory(__u32 number, __u64 *block)
{
	__u64 key = *block + number;
	struct block fresh = { .causes = TAKEN | DIRECTORY };
	struct block *known = bpf_map_lookup_elem(&metadata, &key);
	if (known)
		__sync_fetch_and_or(&known->causes, DIRECTORY);
	else
		bpf_map_update_elem(&metadata, &key, &fresh, BPF_NOEXIST);
	return 0;
}

SEC("tp_btf/ext4_ext_map_blocks_exit")
int BPF_PROG(ext4_ext_map_blocks_exit, struct inode *inode, unsigned int flags, struct ext4_map_blocks *map, int blocks)
{
	if (blocks <= 0 || (inode->i_mode & FILE_TYPE) != FILE_TYPE_DIRECTORY || !is_ours(inode))
		return 0;
	/* Of 4 KiB each, of which several of a file system's may lie in one. */
	__u64 first = map->m_pblk * settings.block_sectors >> (BLOCK_SHIFT - SECTOR_SHIFT);
	__u64 last = ((map->m_pblk + blocks) * settings.block_sectors - 1) >> (BLOCK_SHIFT - SECTOR_SHIFT);
	__u32 count = last - first + 1;
	bpf_loop(count > DIRECTORY_BLOCKS_MAX ? DIRECTORY_BLOCKS_MAX : count, learn_directory, &first, 0);
	return 0;
}

/* data=journal: a page that is dirty already is changed again, and no buffer says so. */
SEC("tp_btf/ext4_journalled_write_end")
int BPF_PROG(ext4_journalled_write_end, struct inode *inode, long long position, unsigned int bytes, unsigned int copied)
{
	if (!is_ours(inode) || !copied)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct actor *actor = actor_of(task);
	__u64 first = (__u64)position >> PAGE_SHIFT, last = ((__u64)position + copied - 1) >> PAGE_SHIFT;
	__u64 pages = last - first + 1;
	if (!is_kernel_thread(task) && pages <= FOLIO_PAGES_MAX)
		mark_pages(actor, inode->i_ino, first, pages, causes_of(task, actor));
	return 0;
}

static __always_inline bool is_our_journal(struct journal_s *journal)
{
	return journal->j_fs_dev->bd_dev == settings.device;
}

/* An empty journal's superblock is written before the transaction is. */
SEC("tp_btf/jbd2_start_commit")
int BPF_PROG(jbd2_start_commit, struct journal_s *journal, struct transaction_s *transaction)
{
	if (!is_our_journal(journal))
		return 0;
	state.committing = state.transactions[transaction->t_tid & 3];
	state.is_committing = 1;
	return 0;
}

/* No task joins the transaction any more; what follows is its journal blocks. A full commit writes what was pending
 * fast. */
SEC("tp_btf/jbd2_commit_flushing")
int BPF_PROG(jbd2_commit_flushing, struct journal_s *journal, struct transaction_s *transaction)
{
	if (!is_our_journal(journal))
		return 0;
	state.committing = state.transactions[transaction->t_tid & 3];
	state.fast_pending = 0;
	return 0;
}

/* The buffers of a transaction, one after the other round the list. */
struct walk {
	__u64 first;
	__u64 next;
	__u64 causes;
	__u32 transaction;
};

static long commit_next(__u32 number, struct walk *walk)
{
	if (!walk->next || (number && walk->next == walk->first))
		return 1;
	struct journal_head *head = (void *)walk->next;
	struct buffer_head *buffer = LOAD(head, b_bh);
	commit_block((LOAD(buffer, b_blocknr) * LOAD(buffer, b_size)) >> BLOCK_SHIFT, walk->causes, walk->transaction);
	walk->next = (__u64)LOAD(head, b_tnext);
	return 0;
}

SEC("tp_btf/jbd2_commit_logging")
int BPF_PROG(jbd2_commit_logging, struct journal_s *journal, struct transaction_s *transaction)
{
	if (!is_our_journal(journal) || !state.committing)
		return 0;
	__u64 first = (__u64)transaction->t_buffers;
	struct walk walk = { .first = first, .next = first, .causes = state.committing, .transaction = transaction->t_tid };
	bpf_loop(TRANSACTION_BUFFERS_MAX, commit_next, &walk, 0);
	return 0;
}

SEC("tp_btf/jbd2_end_commit")
int BPF_PROG(jbd2_end_commit, struct journal_s *journal, struct transaction_s *transaction)
{
	if (!is_our_journal(journal))
		return 0;
	state.transactions[transaction->t_tid & 3] = 0;
	state.committed = transaction->t_tid;
	state.is_committing = 0;
	return 0;
}

/*
 * The accounts with changes in a fast commit: those that joined the running transaction since the last commit of
 * either kind. Fsyncs that overlap all begin one, and the kernel lets one of them go on, whichever. So the first one to
 * begin takes the pending accounts, for the one that goes on, and it ends with the one that wrote something. One that
 * finds itself alone again begins with its first block. The set of those that joined is taken a moment before the
 * kernel takes what they changed, and so may be taken with the commit before; but a commit is always its fsync's, too.
 */
static __always_inline void begin_fast_commit(void)
{
	__u64 task = (__u32)bpf_get_current_pid_tgid();
	if (!state.fast_owner && !__sync_val_compare_and_swap(&state.fast_owner, 0, task))
		state.fast_committing = __sync_lock_test_and_set(&state.fast_pending, 0);
}

static __always_inline __u64 causes_of_fast_commit(void)
{
	begin_fast_commit();
	return state.fast_committing | current_causes();
}

SEC("tp_btf/ext4_fc_commit_start")
int BPF_PROG(ext4_fc_commit_start, struct super_block *super)
{
	if (super->s_dev == settings.device)
		begin_fast_commit();
	return 0;
}

/* If nothing was written, the pending accounts still are. */
SEC("tp_btf/ext4_fc_commit_stop")
int BPF_PROG(ext4_fc_commit_stop, struct super_block *super, int blocks, int reason)
{
	if (super->s_dev != settings.device)
		return 0;
	bool is_owner = state.fast_owner == (__u32)bpf_get_current_pid_tgid();
	if (blocks <= 0 && !is_owner)
		return 0;
	if (blocks <= 0)
		__sync_fetch_and_or(&state.fast_pending, state.fast_committing);
	state.fast_committing = 0;
	state.fast_owner = 0;
	return 0;
}

SEC("tp_btf/ext4_forget")
int BPF_PROG(ext4_forget, struct inode *inode, int is_metadata, __u64 block)
{
	/* Smaller blocks share an entry. */
	if (is_ours(inode) && settings.block_sectors == 1 << (BLOCK_SHIFT - SECTOR_SHIFT))
		drop_block(block);
	return 0;
}

/* The number of an inode may soon be another file's. */
SEC("tp_btf/ext4_evict_inode")
int BPF_PROG(ext4_evict_inode, struct inode *inode)
{
	if (is_ours(inode) && inode->i_nlink)
		drop_inode(inode->i_ino);
	return 0;
}

SEC("tp_btf/ext4_free_inode")
int BPF_PROG(ext4_free_inode, struct inode *inode)
{
	if (is_ours(inode))
		drop_inode(inode->i_ino);
	return 0;
}

#endif
