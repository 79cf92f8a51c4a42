/*
 * A bio enters the block layer: before it is allocated a request, split or merged. Its kind shows in the function that
 * it calls when it ends; the causes of each of its 4 KiB stand with the page, the block of metadata or the transaction.
 */
#ifndef PLIMSOLL_BLOCK_H
#define PLIMSOLL_BLOCK_H

#define OPERATION_MASK 0xff
#define OPERATION_READ 0
#define OPERATION_WRITE 1
#define BTRFS_MAGIC 0x9123683E
/* Steps of a walk through one bio: 1 GiB of it. */
#define BIO_STEPS_MAX (1 << 18)
/* Steps of a search in the static layout: enough for any number of ranges. */
#define SEARCH_STEPS_MAX 32
/* Blocks of one request with joined tags: 16 MiB. */
#define REQUEST_BLOCKS_MAX 4096
/* Pointers to pages of anonymous memory are marked in their low bits. */
#define MAPPING_FLAGS 3

/* A walk through a bio, in memory of its CPU: programs that run before a request is queued are not interrupted by
 * another. */
struct bio_walk {
	struct bio_vec *vectors;
	struct bio_vec vector;
	__u64 sector;
	__u64 time_ns;
	__u64 causes;        /* of the whole bio, if `has_causes` */
	__u64 mapping;       /* the last one that was looked at, and what was found */
	__u64 key;
	__u64 inode;
	__u64 run_causes;    /* of the last blocks that were not charged yet */
	__u64 run_bytes;
	__u64 run_inode;     /* a bio of a file has no other file's */
	__u32 run_class;
	__u32 offset;
	__u32 left;
	__u32 next_vector;
	__u32 block_class;   /* of the whole bio, if `is_known` */
	__u32 file_class;
	bool has_vector;
	bool has_causes;
	bool is_known;       /* causes and class of the whole bio */
	__u8 flags;          /* of the tags */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bio_walk);
} walks SEC(".maps");

/* Files up to 4 KiB, 16 KiB, and so on in steps of four. */
static __always_inline __u32 class_of_size(long long bytes)
{
	__u32 block_class = CLASS_FILE_SMALLEST;
	for (long long limit = 4096; block_class < CLASS_FILE_LARGEST && bytes > limit; limit <<= 2)
		block_class++;
	return block_class;
}

/* The class of a sector by the static layout of ext4; a sector that is in none of its ranges holds other metadata. */
static __noinline __u32 class_of_sector(__u64 sector)
{
	__u32 low = 0, high = settings.layout_ranges;
	for (int step = 0; step < SEARCH_STEPS_MAX && low < high; step++) {
		__u32 middle = low + (high - low) / 2;
		struct layout *range = bpf_map_lookup_elem(&layouts, &middle);
		if (!range)
			break;
		if (sector < range->sector)
			high = middle;
		else if (sector >= range->sector + range->sectors)
			low = middle + 1;
		else
			return range->block_class;
	}
	return CLASS_INDIRECT;
}

/*
 * Where the tag of a block is. What a file system puts at the same place in each of its groups would have one slot if
 * that were the rest of a division alone: so each stretch of the device as long as the table begins elsewhere in it.
 */
static __always_inline __u32 slot_of(__u64 block)
{
	return (block + (block >> settings.slot_shift) * SLOT_STEP) & settings.slot_mask;
}

static __noinline void write_tag(__u64 block, __u64 causes, const struct bio_walk *walk, __u64 inode, __u32 block_class)
{
	__u32 slot = slot_of(block);
	struct tag *tag = bpf_map_lookup_elem(&tags, &slot);
	if (!tag || !walk)
		return;
	/* Two writers at once: two overlapping writes are in flight, and either may be the later one. */
	__u32 sequence = *(volatile __u32 *)&tag->sequence;
	if (sequence & 1 || __sync_val_compare_and_swap(&tag->sequence, sequence, sequence + 1) != sequence)
		return;
	tag->causes = causes;
	tag->time_ns = walk->time_ns;
	tag->inode = inode;
	tag->quotient = block >> settings.slot_shift;
	tag->block_class = block_class;
	tag->flags = walk->flags;
	__sync_val_compare_and_swap(&tag->sequence, sequence + 1, sequence + 2);
}

/* For people who look: what the run is, and which thread submitted it. */
static __noinline void count_flow(const struct bio_walk *walk)
{
	if (!walk)
		return;
	struct flow_key key = {
		.causes = walk->run_causes & CAUSES,
		.inode = walk->run_inode,
		.block_class = walk->run_class,
		.is_write = !!(walk->flags & TAG_WRITE),
		.is_kernel_thread = is_kernel_thread(bpf_get_current_task_btf()),
	};
	__u64 bytes = walk->run_bytes;
	bpf_get_current_comm(key.submitter, sizeof(key.submitter));
	__u64 *flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow) {
		if (!bpf_map_update_elem(&flows, &key, &bytes, BPF_NOEXIST))
			return;
		flow = bpf_map_lookup_elem(&flows, &key);
	}
	if (flow)
		__sync_fetch_and_add(flow, bytes);
	else
		count(&state.flow_bytes_lost, bytes);
}

static __noinline void charge_run(struct bio_walk *walk)
{
	if (!walk || !walk->run_bytes)
		return;
	__u32 kind = CHARGE_DATA;
	if (!(walk->flags & TAG_WRITE))
		kind = CHARGE_READ;
	else if (walk->flags & TAG_DIRECT)
		kind = CHARGE_DATA;
	else if (walk->run_class == CLASS_JOURNAL)
		kind = CHARGE_JOURNAL;
	else if (walk->run_class && walk->run_class < CLASS_FILE_SMALLEST)
		kind = CHARGE_METADATA;
	charge(walk->run_causes, walk->run_bytes, kind, walk->run_class);
	if (settings.has_flows)
		count_flow(walk);
	walk->run_bytes = 0;
}

/* A page of a file is written: the accounts that dirtied it. It is clean from now on, unless a task dirties it
 * again. */
static __always_inline __u64 take_page(struct bio_walk *walk, struct folio *folio, __u64 index)
{
	struct page_key page = { .inode = walk->key, .index = index };
	struct page_place place;
	place_of(&place, &page);
	struct page_entry *entry = entry_of(&place);
	__u64 causes = 0;
	if (entry) {
		unsigned long flags = bpf_core_field_exists(folio->flags.f)
			? LOAD(folio, flags.f)
			: LOAD((struct folio___plain *)folio, flags);
		causes = __sync_fetch_and_or(&entry->causes, TAKEN) & CAUSES;
		if (!(flags & (1UL << bpf_core_enum_value(enum pageflags, PG_dirty))))
			leave(entry, &place);
	}
	if (!causes) {
		__u64 *set = bpf_map_lookup_elem(&inodes, &page.inode);
		causes = set ? *set & CAUSES : 0;
		if (causes)
			count(&state.inodes_guessed, 1);
	}
	return causes;
}

/* What a page cache belongs to: a file of ours, or (`key` 0) something else, such as the device itself. */
static __always_inline void look_at_mapping(struct bio_walk *walk, __u64 mapping)
{
	if (walk->mapping == mapping)
		return;
	walk->mapping = mapping;
	struct inode *inode = LOAD((struct address_space *)mapping, host);
	struct super_block *super = LOAD(inode, i_sb);
	__u32 device = LOAD(super, s_dev);
	if (!state.other_device && LOAD(super, s_magic) == BTRFS_MAGIC)
		state.other_device = device;
	walk->inode = LOAD(inode, i_ino);
	walk->key = 0;
	if (device == settings.device)
		walk->key = walk->inode;
	else if (device == state.other_device && device)
		walk->key = (__u64)inode;
	if (walk->key)
		walk->file_class = class_of_size(LOAD(inode, i_size));
}

struct found {
	__u64 causes;
	__u64 inode;
	__u32 block_class;
};

/* A block of the device's own page cache. */
static __always_inline void look_at_metadata(struct bio_walk *walk, __u64 block, struct found *found)
{
	found->block_class = class_of_sector(walk->sector);
	struct block *known = bpf_map_lookup_elem(&metadata, &block);
	if (known) {
		if (known->causes & DIRECTORY && found->block_class == CLASS_INDIRECT)
			found->block_class = CLASS_DIRECTORY;
		if (walk->flags & TAG_WRITE)
			found->causes = __sync_fetch_and_or(&known->causes, TAKEN) & CAUSES;
	}
	/* The journal's superblock has no cause of its own; it moves because of the accounts that filled the journal last. */
	if (!found->causes && found->block_class == CLASS_JOURNAL)
		found->causes = state.committing;
}

static __noinline void look_at_page(struct bio_walk *walk, __u64 page, struct found *found)
{
	if (!walk || !found)
		return;
	__u64 head = BPF_CORE_READ((struct page *)page, compound_head);
	__u64 first = head & 1 ? head - 1 : page;
	struct folio *folio = (void *)first;
	__u64 mapping = (__u64)BPF_CORE_READ(folio, mapping);
	if (!mapping || mapping & MAPPING_FLAGS) {
		found->causes = current_causes(); /* memory of a process, or of the file system */
		return;
	}
	look_at_mapping(walk, mapping);
	if (!walk->key) {
		look_at_metadata(walk, walk->sector >> (BLOCK_SHIFT - SECTOR_SHIFT), found);
		return;
	}
	found->inode = walk->inode;
	found->block_class = walk->file_class;
	if (walk->flags & TAG_WRITE)
		found->causes = take_page(walk, folio, LOAD(folio, index) + (page - first) / bpf_core_type_size(struct page));
}

static long tag_next(__u32 number, void *nothing)
{
	__u32 zero = 0;
	struct bio_walk *walk = bpf_map_lookup_elem(&walks, &zero);
	if (!walk || !walk->left)
		return 1;
	if (!walk->has_vector) {
		if (bpf_probe_read_kernel(&walk->vector, sizeof(walk->vector), walk->vectors + walk->next_vector))
			return 1;
		walk->has_vector = true;
	}
	__u32 at = walk->vector.bv_offset + walk->offset;
	__u32 step = PAGE_BYTES - (at & (PAGE_BYTES - 1)), in_vector = walk->vector.bv_len - walk->offset;
	if (step > in_vector)
		step = in_vector;
	if (step > walk->left)
		step = walk->left;
	struct found found = {};
	look_at_page(walk, (__u64)walk->vector.bv_page + (at >> PAGE_SHIFT) * bpf_core_type_size(struct page), &found);
	if (walk->has_causes)
		found.causes = walk->causes;
	write_tag(walk->sector >> (BLOCK_SHIFT - SECTOR_SHIFT), found.causes, walk, found.inode, found.block_class);
	if (walk->run_bytes && (walk->run_causes != found.causes || walk->run_class != found.block_class))
		charge_run(walk);
	walk->run_causes = found.causes;
	walk->run_inode = found.inode;
	walk->run_class = found.block_class;
	walk->run_bytes += step;
	walk->sector += step >> SECTOR_SHIFT;
	walk->left -= step;
	walk->offset += step;
	if (walk->offset >= walk->vector.bv_len) {
		walk->offset = 0;
		walk->next_vector++;
		walk->has_vector = false;
	}
	return 0;
}

static __always_inline void is_all(struct bio_walk *walk, __u64 causes, __u32 block_class)
{
	walk->has_causes = walk->is_known = true;
	walk->causes = causes;
	walk->block_class = block_class;
}

/* What can be said of the whole bio by the function that it calls when it ends. A module's types are there when it is
 * loaded. */
static __always_inline void look_at_end(struct bio_walk *walk, struct bio *bio)
{
	__u64 end = (__u64)bio->bi_end_io;
	void *private = bio->bi_private;
	if (!end)
		return;
	if (end == settings.end_of_buffer) {
		__u64 end_of_buffer = (__u64)LOAD((struct buffer_head *)private, b_end_io);
		if (end_of_buffer && end_of_buffer == settings.end_of_journal)
			is_all(walk, state.committing, CLASS_JOURNAL);
		else if (end_of_buffer && end_of_buffer == settings.end_of_fast_commit)
			is_all(walk, causes_of_fast_commit(), CLASS_JOURNAL);
	} else if (bpf_core_type_exists(struct xlog_in_core) && end == settings.end_of_xfs_log) {
		is_all(walk, causes_of_log(private), CLASS_JOURNAL);
	} else if (bpf_core_type_exists(struct xfs_buf) && end == settings.end_of_xfs_buffer) {
		struct xfs_buf *buffer = private;
		__u64 block = key_of_buffer(buffer);
		struct block *known = walk->flags & TAG_WRITE ? bpf_map_lookup_elem(&metadata, &block) : 0;
		is_all(walk, known ? __sync_fetch_and_or(&known->causes, TAKEN) & CAUSES : 0, class_of_xfs_buffer(buffer));
	} else if (end == settings.end_of_direct) {
		struct inode *inode = BPF_CORE_READ((struct iomap_dio *)private, iocb, ki_filp, f_inode);
		is_all(walk, current_causes(), class_of_size(BPF_CORE_READ(inode, i_size)));
		walk->flags |= TAG_DIRECT;
		walk->inode = BPF_CORE_READ(inode, i_ino);
		__u32 said = ((bio->bi_ioprio >> HINT_SHIFT) & HINT_MASK) ^ HINT_OF_CLASS;
		if (said && said < CLASSES) {
			walk->flags |= TAG_SAID;
			walk->block_class = said;
		}
	}
}

/* Another block of a bio of which everything is known: its pages need not be looked at. */
static long tag_known(__u32 number, __u64 *first)
{
	__u32 zero = 0;
	struct bio_walk *walk = bpf_map_lookup_elem(&walks, &zero);
	if (!walk)
		return 1;
	write_tag(*first + number, walk->causes, walk, walk->inode, walk->block_class);
	return 0;
}

static __always_inline void tag_all(struct bio_walk *walk)
{
	__u64 first = walk->sector >> (BLOCK_SHIFT - SECTOR_SHIFT);
	__u64 last = (walk->sector + (walk->left >> SECTOR_SHIFT) - 1) >> (BLOCK_SHIFT - SECTOR_SHIFT);
	walk->run_causes = walk->causes;
	walk->run_inode = walk->inode;
	walk->run_class = walk->block_class;
	walk->run_bytes = walk->left;
	if (first == last)
		write_tag(first, walk->causes, walk, walk->inode, walk->block_class);
	else
		bpf_loop(last - first + 1, tag_known, &first, 0);
}

/* The kernel's word for it: fsync, direct I/O, the journal's commits, and no writeback that merely cleans memory. */
static __always_inline bool is_waited_for(__u32 flags)
{
	return flags & (1U << bpf_core_enum_value(enum req_flag_bits, __REQ_SYNC));
}

/* No page that becomes dirty tells of it. */
static __always_inline void tell_of_direct_write(const struct bio_walk *walk)
{
	struct page_key first = { .inode = walk->inode };
	tell_of_pages(EVENT_WRITTEN_DIRECT, &first, 0, walk->causes, 0);
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(block_bio_queue, struct bio *bio)
{
	if (bio->bi_bdev->bd_dev != settings.device)
		return 0;
	__u32 zero = 0, operation = bio->bi_opf & OPERATION_MASK;
	struct bio_walk *walk = bpf_map_lookup_elem(&walks, &zero);
	if (!walk || operation > OPERATION_WRITE || !bio->bi_iter.bi_size)
		return 0;
	__builtin_memset(walk, 0, sizeof(*walk));
	walk->vectors = bio->bi_io_vec;
	walk->sector = bio->bi_iter.bi_sector - settings.start_sector;
	walk->left = bio->bi_iter.bi_size;
	walk->next_vector = bio->bi_iter.bi_idx;
	walk->offset = bio->bi_iter.bi_bvec_done;
	walk->time_ns = bpf_ktime_get_ns();
	walk->flags = (operation == OPERATION_WRITE ? TAG_WRITE : 0) | (is_waited_for(bio->bi_opf) ? TAG_SYNC : 0);
	look_at_end(walk, bio);
	if (operation == OPERATION_READ) {
		walk->has_causes = true;
		walk->causes = current_causes();
	}
	if (settings.has_events && walk->flags & TAG_DIRECT && operation == OPERATION_WRITE)
		tell_of_direct_write(walk);
	if (walk->is_known)
		tag_all(walk);
	else
		bpf_loop(BIO_STEPS_MAX, tag_next, 0, 0);
	charge_run(walk);
	return 0;
}

/* What the tags of a request's blocks say together. */
struct request_walk {
	__u64 block;
	__u64 last;
	__u64 causes;
	__u64 inode;
	__u32 block_class;
	bool has_class;
};

static long join_next(__u32 number, struct request_walk *walk)
{
	if (walk->block > walk->last)
		return 1;
	__u32 slot = slot_of(walk->block);
	struct tag *tag = bpf_map_lookup_elem(&tags, &slot);
	if (tag && tag->quotient == (__u16)(walk->block >> settings.slot_shift)) {
		walk->causes |= tag->causes;
		if (!walk->has_class) {
			walk->block_class = tag->block_class;
			walk->inode = tag->inode;
		}
		walk->has_class = true;
	}
	walk->block++;
	return 0;
}

static __always_inline void tell_of_request(__u32 kind, struct request *request, __u32 bytes, __u8 status)
{
	struct bio *bio = request->bio;
	if (!bio || bio->bi_bdev->bd_dev != settings.device)
		return;
	struct request_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(&state.events_lost, 1);
		return;
	}
	__u64 sector = request->__sector - settings.start_sector;
	struct request_walk walk = { .block = sector >> (BLOCK_SHIFT - SECTOR_SHIFT) };
	walk.last = (sector + (bytes >> SECTOR_SHIFT) - 1) >> (BLOCK_SHIFT - SECTOR_SHIFT);
	__u32 operation = request->cmd_flags & OPERATION_MASK;
	if (kind == EVENT_ISSUED && bytes && operation <= OPERATION_WRITE)
		bpf_loop(REQUEST_BLOCKS_MAX, join_next, &walk, 0);
	event->kind = kind;
	event->bytes = bytes;
	event->time_ns = bpf_ktime_get_ns();
	event->request = (__u64)request;
	event->sector = sector;
	event->causes = walk.causes;
	event->inode = walk.inode;
	event->operation = operation;
	event->block_class = walk.block_class;
	event->status = status;
	event->is_sync = is_waited_for(request->cmd_flags);
	submit(event);
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *request)
{
	tell_of_request(EVENT_ISSUED, request, request->__data_len, 0);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *request, __u8 status, unsigned int bytes)
{
	if (bytes) /* else a step of a flush */
		tell_of_request(EVENT_COMPLETED, request, bytes, status);
	return 0;
}

#endif
