/* Who changed each 4 KiB block of metadata. */
#ifndef PLIMSOLL_BLOCKS_H
#define PLIMSOLL_BLOCKS_H

#define SECTOR_SHIFT 9
#define BLOCK_SHIFT 12

static __always_inline void mark_block(__u64 block, __u64 causes)
{
	mark(&metadata, &block, causes);
}

/* The block is free again: what was changed in it will not be written. */
static __always_inline void drop_block(__u64 block)
{
	bpf_map_delete_elem(&metadata, &block);
}

static __always_inline void mark_metadata(struct buffer_head *buffer, __u64 causes)
{
	mark_block((buffer->b_blocknr * buffer->b_size) >> BLOCK_SHIFT, causes);
}

#endif
