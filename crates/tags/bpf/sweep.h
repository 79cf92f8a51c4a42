/*
 * Whether an account's number can be used again: nothing that will still be written carries it. Run by user space for
 * accounts that have ended, so no page gets their bit any more; it can only move on, from pages and inodes by kernel
 * threads to transactions and blocks of metadata. So it is taken out of what feeds first, and looked for in what is fed
 * then.
 */
#ifndef PLIMSOLL_SWEEP_H
#define PLIMSOLL_SWEEP_H

/* The context of the program: bits in, bits out. */
struct sweep {
	__u64 ended;
	__u64 carried;
};

static long find_in_pages(void *map, const void *number, struct page_line *line, struct sweep *sweep)
{
	for (int i = 0; i < LINE_ENTRIES; i++) {
		__u64 causes = line->entries[i].page ? line->entries[i].causes : 0;
		if (!(causes & TAKEN))
			sweep->carried |= causes & sweep->ended;
	}
	return 0;
}

static long take_out(void *map, const void *key, __u64 *set, struct sweep *sweep)
{
	__u64 gone = sweep->ended & ~sweep->carried;
	if (*set & gone)
		__sync_fetch_and_and(set, ~gone);
	return 0;
}

static long find_in_metadata(void *map, const void *key, struct block *block, struct sweep *sweep)
{
	if (block->causes & TAKEN)
		take_out(map, key, &block->causes, sweep);
	else
		sweep->carried |= block->causes & sweep->ended;
	for (int slot = 0; slot < 2; slot++) {
		bool is_over = (__s32)(block->transaction[slot] - state.committed) <= 0;
		if (is_over)
			take_out(map, key, &block->touched[slot], sweep);
		else
			sweep->carried |= block->touched[slot] & sweep->ended;
	}
	return 0;
}

SEC("syscall")
int sweep_accounts(struct sweep *context)
{
	struct sweep sweep = { .ended = context->ended & CAUSES };
	bpf_for_each_map_elem(&dirty_pages, find_in_pages, &sweep, 0);
	bpf_for_each_map_elem(&inodes, take_out, &sweep, 0);
	bpf_for_each_map_elem(&checkpoints, take_out, &sweep, 0);
	/* Tasks look their inodes up again, and kernel threads work for no account until they are told. */
	count(&state.inode_epoch, 1);
	count(&state.sweeps, 1);
	bpf_for_each_map_elem(&metadata, find_in_metadata, &sweep, 0);
	if (!state.is_committing)
		__sync_fetch_and_and(&state.committing, ~(sweep.ended & ~sweep.carried));
	__u64 alive = state.committing | state.fast_pending | state.fast_committing;
	for (int i = 0; i < 4; i++)
		alive |= state.transactions[i];
	context->carried = sweep.carried | (alive & sweep.ended);
	return 0;
}

#endif
