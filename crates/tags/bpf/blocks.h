/* Who changed each 4 KiB block of metadata. */
#ifndef PLIMSOLL_BLOCKS_H
#define PLIMSOLL_BLOCKS_H

#define SECTOR_SHIFT 9
#define BLOCK_SHIFT 12

/* Enters `causes` for a block of metadata; a set that was handed to the block layer is begun anew. */
static __always_inline void mark_block(__u64 block, __u64 causes)
{
	__u64 *set = bpf_map_lookup_elem(&metadata, &block);
	if (!set) {
		if (!bpf_map_update_elem(&metadata, &block, &causes, BPF_NOEXIST))
			return;
		set = bpf_map_lookup_elem(&metadata, &block);
		if (!set)
			return;
	}
	__u64 before = *(volatile __u64 *)set;
	if (before & TAKEN)
		*(volatile __u64 *)set = causes | (before & DIRECTORY);
	else if ((before & causes) != causes)
		__sync_fetch_and_or(set, causes);
}

static __always_inline void mark_metadata(struct buffer_head *buffer, __u64 causes)
{
	mark_block((buffer->b_blocknr * buffer->b_size) >> BLOCK_SHIFT, causes);
}

#endif
