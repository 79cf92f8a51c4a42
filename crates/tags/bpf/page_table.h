/*
 * Which pages of files are dirty, and the accounts that dirtied each. A write looks its page up before the kernel goes
 * on, so what counts is how much memory a look touches. A hash table that scatters pages has one of the processor's
 * misses for each, and one of its address translations (`docs/tags.md`, "What it costs").
 *
 * So a line of the processor's cache holds four pages, 64 pages of a file that follow each other have lines that do, in
 * 4 KiB of memory, and such runs are scattered. A page of a full line goes to a second line of its own; a page that
 * finds room in neither is lost, and counted. Entering and leaving is a word that changes hands: there is no lock, and
 * no list of free entries.
 *
 * The complication: a number of 64 bits stands for inode and index. Two pages of the same line have the same one once
 * in 2^64; a seed keeps a tenant that chooses inodes and indexes from choosing that.
 */
#ifndef PLIMSOLL_PAGE_TABLE_H
#define PLIMSOLL_PAGE_TABLE_H

#define RUN_SHIFT 6
#define RUN_MASK ((1ULL << RUN_SHIFT) - 1)
#define LINE_ENTRIES 4

struct page_entry {
	__u64 page;        /* its number; 0: free */
	__u64 causes;
};

struct page_line {
	struct page_entry entries[LINE_ENTRIES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* which also puts lines where the processor's begin */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct page_line);
} dirty_pages SEC(".maps");

/* A page of a file as the table knows it: its number and its line. */
struct page_place {
	__u64 page;
	__u32 line;
	bool is_elsewhere; /* its entry was looked for in the second line */
};

static __always_inline __u64 mix(__u64 value)
{
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93ULL;
	value ^= value >> 32;
	value *= 0xd6e8feb86659fd93ULL;
	return value ^ value >> 32;
}

static __always_inline void place_of(struct page_place *place, const struct page_key *key)
{
	__u64 run = mix(mix(key->inode ^ settings.page_seed) + (key->index >> RUN_SHIFT));
	__u64 page = run + (key->index & RUN_MASK) * 0x9e3779b97f4a7c15ULL;
	place->page = page ? page : 1;
	place->line = (run << RUN_SHIFT | (key->index & RUN_MASK)) & settings.page_line_mask;
	place->is_elsewhere = false;
}

/* Another one than the first. */
static __always_inline __u32 second_line(const struct page_place *place)
{
	return (place->line ^ (mix(place->page) | 1)) & settings.page_line_mask;
}

static __always_inline struct page_entry *entry_in(__u32 number, __u64 page)
{
	struct page_line *line = bpf_map_lookup_elem(&dirty_pages, &number);
	if (!line)
		return 0;
	for (int i = 0; i < LINE_ENTRIES; i++) {
		if (*(volatile __u64 *)&line->entries[i].page == page)
			return &line->entries[i];
	}
	return 0;
}

/* The entry of a page, or 0. */
static __always_inline struct page_entry *entry_of(struct page_place *place)
{
	struct page_entry *entry = entry_in(place->line, place->page);
	if (entry || !state.pages_elsewhere)
		return entry;
	place->is_elsewhere = true;
	return entry_in(second_line(place), place->page);
}

static __always_inline bool enter(__u32 number, __u64 page, __u64 causes)
{
	struct page_line *line = bpf_map_lookup_elem(&dirty_pages, &number);
	if (!line)
		return false;
	for (int i = 0; i < LINE_ENTRIES; i++) {
		struct page_entry *entry = &line->entries[i];
		if (*(volatile __u64 *)&entry->page || __sync_val_compare_and_swap(&entry->page, 0, page))
			continue;
		*(volatile __u64 *)&entry->causes = causes;
		return true;
	}
	return false;
}

/*
 * `causes` have dirtied the page. Returns its earlier causes that still stand, 0 if there were none: then, of a `join`,
 * `causes` are not entered either.
 */
static __noinline __u64 mark_page(const struct page_key *key, __u64 causes, bool is_join)
{
	if (!key)
		return 0;
	struct page_place place;
	place_of(&place, key);
	struct page_entry *entry = entry_of(&place);
	if (is_join && (!entry || *(volatile __u64 *)&entry->causes & TAKEN))
		return 0;
	if (entry)
		return join_anew(&entry->causes, causes);
	if (enter(place.line, place.page, causes))
		return 0;
	if (enter(second_line(&place), place.page, causes))
		count(&state.pages_elsewhere, 1);
	else
		count(&state.entries_lost, 1);
	return 0;
}

/* The page is clean, or gone. */
static __always_inline void leave(struct page_entry *entry, const struct page_place *place)
{
	*(volatile __u64 *)&entry->causes = 0;
	*(volatile __u64 *)&entry->page = 0;
	if (place->is_elsewhere)
		count(&state.pages_elsewhere, -1);
}

#endif
