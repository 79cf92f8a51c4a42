/* The accounts that changed each block of metadata: of ext4 by the number of its 4 KiB, of XFS by its first sector
 * (`key_of_buffer`). */
#ifndef PLIMSOLL_BLOCKS_H
#define PLIMSOLL_BLOCKS_H

#define SECTOR_SHIFT 9
#define BLOCK_SHIFT 12

/* `causes` have changed the block. */
static __always_inline void mark_block(__u64 number, __u64 causes)
{
	struct block *block = bpf_map_lookup_elem(&metadata, &number);
	if (!block) {
		struct block fresh = { .causes = causes };
		if (!bpf_map_update_elem(&metadata, &number, &fresh, BPF_NOEXIST))
			return;
		/* Another task may have been first. */
		block = bpf_map_lookup_elem(&metadata, &number);
	}
	if (block)
		join_anew(&block->causes, causes);
	else
		count(&state.entries_lost, 1);
}

/* `causes` have looked the block up for `transaction`. */
static __always_inline void touch_block(__u64 number, __u64 causes, __u32 transaction)
{
	__u32 slot = transaction & 1;
	struct block *block = bpf_map_lookup_elem(&metadata, &number);
	if (!block) {
		struct block fresh = { .causes = TAKEN };
		bpf_map_update_elem(&metadata, &number, &fresh, BPF_NOEXIST);
		block = bpf_map_lookup_elem(&metadata, &number);
		if (!block) {
			count(&state.entries_lost, 1);
			return;
		}
	}
	__u64 stale = *(volatile __u64 *)&block->touched[slot];
	__u32 before = *(volatile __u32 *)&block->transaction[slot];
	if (before != transaction && __sync_val_compare_and_swap(&block->transaction[slot], before, transaction) == before)
		__sync_fetch_and_and(&block->touched[slot], ~stale);
	if ((block->touched[slot] & causes) != causes)
		__sync_fetch_and_or(&block->touched[slot], causes);
}

/* The block is part of `transaction`: accounts that touched it have changed it; if none did, all of the transaction
 * have. */
static __always_inline void commit_block(__u64 number, __u64 all, __u32 transaction)
{
	struct block *block = bpf_map_lookup_elem(&metadata, &number);
	if (!block) {
		mark_block(number, all);
		return;
	}
	__u32 slot = transaction & 1;
	__u64 touched = block->transaction[slot] == transaction ? block->touched[slot] : 0;
	join_anew(&block->causes, touched ? touched : all);
}

/* The block is free again: its changes will not be written. */
static __always_inline void drop_block(__u64 number)
{
	bpf_map_delete_elem(&metadata, &number);
}

static __always_inline __u64 block_of(struct buffer_head *buffer)
{
	return (buffer->b_blocknr * buffer->b_size) >> BLOCK_SHIFT;
}

#endif
