/*
 * The accounts that dirtied each page of a file. ext4 tells of every write through its buffers, XFS of every buffered
 * write, all file systems when a clean page becomes dirty.
 */
#ifndef PLIMSOLL_PAGES_H
#define PLIMSOLL_PAGES_H

#define PAGE_SHIFT 12
#define PAGE_BYTES 4096
/* Pages that are looked up before a write, which takes some 60 us of a processor, whether it will write them or not. */
#define JOIN_PAGES_MAX (1 << 12)
/* Pages that one part of a buffered write may cover: 1 GiB. */
#define WRITE_PAGES_MAX (1 << 18)
/* Pages of a folio: 2 MiB are the most that the page cache of a file uses, 1 GiB is allowed for. */
#define FOLIO_PAGES_MAX (1 << 18)
#define EXT4_MAGIC 0xEF53

static __always_inline unsigned long folio_flags(struct folio *folio)
{
	if (bpf_core_field_exists(folio->flags.f))
		return folio->flags.f;
	return ((struct folio___plain *)folio)->flags;
}

static __always_inline bool is_large(struct folio *folio)
{
	return folio_flags(folio) & (1UL << bpf_core_enum_value(enum pageflags, PG_head));
}

static __always_inline __u64 folio_pages(struct folio *folio)
{
	if (!is_large(folio))
		return 1;
	if (bpf_core_field_exists(((struct folio___6_1 *)0)->_folio_order))
		return 1ULL << (BPF_CORE_READ((struct folio___6_1 *)folio, _folio_order) & 31);
	return 1ULL << (BPF_CORE_READ(folio, _flags_1) & 31);
}

/*
 * The key of an inode of the file system on our device; 0 if it is on another. Where the superblock has the device's
 * number, inode numbers are unique; else (btrfs: one for each subvolume) the inode's address is, while it has pages.
 */
static __always_inline __u64 key_of(struct inode *inode, __u32 device)
{
	if (device == settings.device)
		return inode->i_ino;
	__u64 address = 0;
	/* Copied, it is a number to the verifier, and no pointer that must not be reckoned with. */
	if (device == state.other_device && device)
		bpf_probe_read_kernel(&address, sizeof(address), &inode);
	return address;
}

/* `causes` have written the inode; looked up once for a run of writes of one task. */
static __always_inline void join_inode(struct actor *actor, __u64 inode, __u64 causes)
{
	__u64 epoch = state.inode_epoch;
	if (actor && actor->inode == inode && actor->epoch == epoch)
		return;
	mark(&inodes, &inode, causes);
	if (actor) {
		actor->inode = inode;
		actor->epoch = epoch;
	}
}

static __always_inline void drop_inode(__u64 inode)
{
	if (!bpf_map_delete_elem(&inodes, &inode))
		count(&state.inode_epoch, 1);
}

/* Whether pages of the inode wait to be written, as the kernel notes it. */
static __always_inline bool has_dirty_pages(struct inode *inode)
{
	__u32 flags, dirty;
	if (bpf_core_type_exists(enum inode_state_flags_t)) {
		flags = BPF_CORE_READ((struct inode___6_18 *)inode, i_state);
		dirty = bpf_core_enum_value(enum inode_state_flags_t, I_DIRTY_PAGES);
	} else {
		flags = inode->i_state;
		dirty = LINUX_KERNEL_VERSION >= KERNEL_VERSION(6, 12, 0) ? 1 << 5 : 1 << 2;
	}
	return flags & dirty;
}

/* All is written: the account that writes the inode next is its only recent writer. Work that is left is still for the
 * last ones. */
SEC("tp_btf/writeback_single_inode")
int BPF_PROG(writeback_single_inode, struct inode *inode)
{
	__u64 key = key_of(inode, inode->i_sb->s_dev);
	if (!key || has_dirty_pages(inode))
		return 0;
	__u64 *writers = bpf_map_lookup_elem(&inodes, &key);
	if (!writers || *writers & TAKEN)
		return 0;
	__sync_fetch_and_or(writers, TAKEN);
	count(&state.inode_epoch, 1);
	return 0;
}

/* The current kernel thread works for the accounts that wrote the inode lately. */
static __always_inline void act_for_inode(struct inode *inode)
{
	struct task_struct *task = bpf_get_current_task_btf();
	if (!is_kernel_thread(task))
		return;
	__u64 key = key_of(inode, inode->i_sb->s_dev);
	if (!key)
		return;
	__u64 *writers = bpf_map_lookup_elem(&inodes, &key);
	act_for(writers ? *writers & CAUSES : 0);
}

static __noinline void tell_of_pages(__u32 kind, const struct page_key *first, __u64 pages, __u64 causes, __u64 previous)
{
	struct page_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(&state.events_lost, 1);
		return;
	}
	event->kind = kind;
	event->pages = pages;
	event->time_ns = bpf_ktime_get_ns();
	event->inode = first ? first->inode : 0;
	event->first_page = first ? first->index : 0;
	event->causes = causes;
	event->previous = previous;
	submit(event);
}

/*
 * A run of pages being marked or freed, and those of it that a record is due for. In memory of the CPU instead of on
 * the stack: the verifier follows each value that it finds on the stack through each turn of a loop.
 */
struct page_walk {
	struct page_key page;
	struct page_key first;
	__u64 causes;
	__u64 pending;
	__u64 previous;
	__u64 fresh;
	bool is_join; /* pages that are clean are only counted */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct page_walk);
} page_walks SEC(".maps");

static __always_inline struct page_walk *page_walk(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&page_walks, &zero);
}

static __always_inline void tell_of_walk(struct page_walk *walk)
{
	if (walk->pending)
		tell_of_pages(EVENT_DIRTIED, &walk->first, walk->pending, walk->causes, walk->previous);
	walk->pending = 0;
}

static long mark_next(__u32 number, void *nothing)
{
	struct page_walk *walk = page_walk();
	if (!walk)
		return 1;
	struct page_key page = walk->page;
	__u64 before = mark_page(&page, walk->causes, walk->is_join);
	walk->page.index++;
	if (!before)
		walk->fresh++;
	if (!settings.has_events)
		return 0;
	if (!before && walk->is_join) {
		tell_of_walk(walk);
		return 0;
	}
	bool is_new = (before & walk->causes) != walk->causes;
	if (!is_new || before != walk->previous)
		tell_of_walk(walk);
	if (!is_new)
		return 0;
	if (!walk->pending)
		walk->first = page;
	walk->pending++;
	walk->previous = before;
	return 0;
}

/* Enters `causes` for pages from `first` on, of a `join` only for those that are dirty; gives back how many were
 * clean. */
static __noinline __u64 mark_many(struct page_key *first, __u64 pages, __u64 causes, bool is_join)
{
	struct page_walk *walk = page_walk();
	if (!walk || !first)
		return 0;
	__builtin_memset(walk, 0, sizeof(*walk));
	walk->page = *first;
	walk->causes = causes;
	walk->is_join = is_join;
	bpf_loop(pages, mark_next, 0, 0);
	tell_of_walk(walk);
	return walk->fresh;
}

/* The same, and told to the reader of events. */
static __always_inline __u64 mark_and_tell(__u64 inode, __u64 first, __u64 pages, __u64 causes, bool is_join)
{
	struct page_key page = { .inode = inode, .index = first };
	if (pages != 1)
		return mark_many(&page, pages, causes, is_join);
	__u64 before = mark_page(&page, causes, is_join);
	if (settings.has_events && (before & causes) != causes && (before || !is_join))
		tell_of_pages(EVENT_DIRTIED, &page, 1, causes, before);
	return !before;
}

/* Enters `causes` for pages from `first` on, and into the books. Of a write that is told of in parts these are no
 * longer unmarked. */
static __always_inline void mark_pages(struct actor *actor, __u64 inode, __u64 first, __u64 pages, __u64 causes)
{
	__u64 fresh = mark_and_tell(inode, first, pages, causes, false);
	join_inode(actor, inode, causes);
	if (fresh)
		charge_dirtied(causes, fresh * PAGE_BYTES);
	if (actor && actor->written_inode == inode)
		actor->unmarked -= fresh < actor->unmarked ? fresh : actor->unmarked;
}

/* A page of a file or a block of metadata was changed through a buffer: ext4's files, and its metadata. */
static __always_inline int dirtied_buffer(struct buffer_head *buffer, __u64 inode, __u64 index)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct actor *actor = actor_of(task);
	__u64 causes = causes_of(task, actor);
	if (inode) {
		if (!is_kernel_thread(task))
			mark_pages(actor, inode, index, 1, causes);
	} else if (causes) {
		mark_block(block_of(buffer), causes);
	}
	return 0;
}

SEC("tp_btf/block_dirty_buffer")
int BPF_PROG(block_dirty_buffer, struct buffer_head *buffer)
{
	if (!buffer->b_bdev || buffer->b_bdev->bd_dev != settings.device)
		return 0;
	__u64 inode, index, pages;
	if (bpf_core_field_exists(buffer->b_folio)) {
		struct folio *folio = buffer->b_folio;
		struct address_space *mapping = folio->mapping;
		if (!mapping)
			return 0;
		inode = key_of(mapping->host, mapping->host->i_sb->s_dev);
		index = folio->index;
		pages = folio_pages(folio);
	} else {
		struct folio *page = BPF_CORE_READ((struct buffer_head___6_1 *)buffer, b_page);
		struct address_space *mapping = BPF_CORE_READ(page, mapping);
		if (!mapping)
			return 0;
		inode = BPF_CORE_READ(mapping, host, i_sb, s_dev) == settings.device ? BPF_CORE_READ(mapping, host, i_ino) : 0;
		index = BPF_CORE_READ(page, index);
		pages = 1;
	}
	/* A folio lies at a multiple of its size. */
	index += ((__u64)buffer->b_data & ((pages << PAGE_SHIFT) - 1)) >> PAGE_SHIFT;
	return dirtied_buffer(buffer, inode, index);
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(writeback_dirty_folio, struct folio *folio, struct address_space *mapping)
{
	if (!mapping)
		return 0;
	struct inode *inode = mapping->host;
	__u64 key = key_of(inode, inode->i_sb->s_dev);
	struct task_struct *task = bpf_get_current_task_btf();
	if (!key || is_kernel_thread(task))
		return 0;
	struct actor *actor = actor_of(task);
	__u64 first = folio->index, pages = folio_pages(folio), last = first + pages - 1;
	if (actor && actor->written_inode == key && actor->first_page <= last && actor->last_page >= first) {
		if (actor->first_page > first)
			first = actor->first_page;
		if (actor->last_page < last)
			last = actor->last_page;
	} else if (pages > 1 && inode->i_sb->s_magic == EXT4_MAGIC) {
		return 0; /* its buffers told which pages */
	}
	pages = last - first + 1;
	mark_pages(actor, key, first, pages > FOLIO_PAGES_MAX ? FOLIO_PAGES_MAX : pages, causes_of(task, actor));
	return 0;
}

static long free_next(__u32 number, void *nothing)
{
	struct page_walk *walk = page_walk();
	if (!walk)
		return 1;
	struct page_key page = walk->page;
	walk->page.index++;
	struct page_place place;
	place_of(&place, &page);
	struct page_entry *entry = entry_of(&place);
	if (!entry)
		return 0;
	__u64 causes = entry->causes;
	leave(entry, &place);
	if (causes & TAKEN)
		return 0;
	if (!walk->pending)
		walk->first = page;
	walk->causes |= causes;
	walk->pending++;
	return 0;
}

/* A folio leaves the page cache: its dirty pages will not be written. */
SEC("tp_btf/mm_filemap_delete_from_page_cache")
int BPF_PROG(mm_filemap_delete_from_page_cache, struct folio *folio)
{
	struct address_space *mapping = folio->mapping;
	if (!mapping)
		return 0;
	__u64 key = key_of(mapping->host, mapping->host->i_sb->s_dev), pages = folio_pages(folio);
	struct page_walk *walk = page_walk();
	if (!key || !walk)
		return 0;
	__builtin_memset(walk, 0, sizeof(*walk));
	walk->page.inode = key;
	walk->page.index = folio->index;
	if (pages == 1)
		free_next(0, 0);
	else
		bpf_loop(pages > FOLIO_PAGES_MAX ? FOLIO_PAGES_MAX : pages, free_next, 0, 0);
	if (!walk->pending)
		return 0;
	charge_freed(walk->causes, walk->pending * PAGE_BYTES);
	if (settings.has_events)
		tell_of_pages(EVENT_FREED, &walk->first, walk->pending, walk->causes, walk->causes);
	return 0;
}

#endif
