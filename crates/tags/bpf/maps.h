/* What is remembered. The sizes given here are the smallest; the loader sets them, `docs/tags.md` says to what. */
#ifndef PLIMSOLL_MAPS_H
#define PLIMSOLL_MAPS_H

struct page_key {
	__u64 inode;
	__u64 index;
};

/* What the programs remember of a task. */
struct actor {
	__u64 generation;  /* of the registrations that `causes` comes from; of a kernel thread: of the sweeps */
	__u64 causes;      /* of a kernel thread: the accounts that it works for now */
	__u64 inode;       /* this task joined its set of writers last */
	__u64 epoch;       /* `inode_epoch` at that time */
	__u64 first_page;  /* of the buffered write to `written_inode` that the task is in (XFS) */
	__u64 last_page;
	__u64 written_inode;
	__u64 unmarked;    /* pages of that write that are in no table yet */
	__u32 transaction; /* of jbd2, that it joined last */
	__u32 touched_for; /* the transaction for which it looked `touched` up: a block of metadata, the last one */
	__u64 touched;
	__u64 touched_by;  /* the accounts that it touched that block for */
};

/*
 * A block of metadata. A task that looks it up within a handle of jbd2 may or may not change it; only if it is among
 * the buffers of the transaction, when that commits, the tasks did. Two transactions are alive at once: the one that
 * commits and the next.
 */
struct block {
	__u64 causes;
	__u64 touched[2];     /* by the last bit of the transaction's number */
	__u32 transaction[2];
};

#define TABLE(NAME, TYPE, KEY, VALUE)                  \
	struct {                                       \
		__uint(type, BPF_MAP_TYPE_##TYPE);     \
		__uint(max_entries, 1);                \
		__type(key, KEY);                      \
		__type(value, VALUE);                  \
	} NAME SEC(".maps")

TABLE(inodes, LRU_HASH, __u64, __u64);                   /* recent writers of a file */
TABLE(metadata, LRU_HASH, __u64, struct block);          /* metadata: blocks of ext4, XFS buffers by first sector */
TABLE(checkpoints, LRU_HASH, __u64, __u64);              /* XFS: causes by mount and sequence of a committed list */
TABLE(threads, HASH, __u32, struct registration);
TABLE(processes, HASH, __u32, struct registration);
TABLE(cgroups, HASH, struct group, struct registration);
TABLE(owners, ARRAY, __u32, struct owner);
TABLE(layouts, ARRAY, __u32, struct layout);
TABLE(inode_tables, ARRAY, __u32, __u64);                /* ext4: first byte of each group's inodes, 0: not known */
TABLE(flows, HASH, struct flow_key, __u64);
TABLE(counts, PERCPU_ARRAY, __u32, struct counters);

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct actor);
} actors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tag);
} tags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

const volatile struct settings settings SEC(".rodata.settings") = {};
volatile struct state state SEC(".data.state") = { .generation = 1 };

/* Of the kernel that is running; libbpf fills it in. */
extern int LINUX_KERNEL_VERSION __kconfig;

/*
 * What stands in the kernel's memory at a field, 0 where there is none. A call of the kernel copies it; from Linux 6.2
 * on a load does, for which the verifier is told of which type the memory is. It then takes a field that is a pointer
 * for one, with which nothing is reckoned.
 */
extern void *bpf_rdonly_cast(const void *memory, __u32 type) __ksym __weak;
#define LOAD(POINTER, FIELD)                                                                                                   \
	(bpf_ksym_exists(bpf_rdonly_cast)                                                                                      \
		? ((typeof(POINTER))bpf_rdonly_cast(POINTER, bpf_core_type_id_kernel(typeof(*(POINTER)))))->FIELD             \
		: BPF_CORE_READ(POINTER, FIELD))

static __always_inline void count(volatile __u64 *counter, __u64 amount)
{
	__sync_fetch_and_add(counter, amount);
}

/*
 * Hands a record to the reader. Waking it costs more than the record: it is done once for a reader that waits, which
 * then looks by itself as long as there is something.
 */
static __always_inline void submit(void *event)
{
	__u64 flags = BPF_RB_NO_WAKEUP;
	if (state.wants_waking) {
		state.wants_waking = 0;
		flags = BPF_RB_FORCE_WAKEUP;
	}
	bpf_ringbuf_submit(event, flags);
}

/* Adds causes to the set under a key. */
static __always_inline void join(void *map, const void *key, __u64 causes)
{
	__u64 *set = bpf_map_lookup_elem(map, key);
	if (!set) {
		if (!bpf_map_update_elem(map, key, &causes, BPF_NOEXIST))
			return;
		set = bpf_map_lookup_elem(map, key);
		if (!set)
			return;
	}
	if ((*set & causes) != causes)
		__sync_fetch_and_or(set, causes);
}

/* How often another task may overtake a task that joins a set until that gives up. */
#define JOIN_TRIES 3

/*
 * The same for a set with I/O that may have been taken: then it begins anew. Gives back the causes that it had and that
 * still stand, 0 if there were none.
 */
static __always_inline __u64 join_anew(__u64 *set, __u64 causes)
{
	__u64 before = *(volatile __u64 *)set;
	for (int i = 0; i < JOIN_TRIES; i++) {
		if (before & TAKEN) {
			__u64 found = __sync_val_compare_and_swap(set, before, causes | (before & DIRECTORY));
			if (found == before)
				return 0;
			before = found;
			continue;
		}
		if ((before & causes) == causes)
			return before;
		__u64 found = __sync_fetch_and_or(set, causes);
		if (!(found & TAKEN))
			return found;
		/* Taken between: the accounts of that I/O do not stand any more. */
		before = found | causes;
	}
	return 0;
}

static __always_inline __u64 mark(void *map, const void *key, __u64 causes)
{
	__u64 *set = bpf_map_lookup_elem(map, key);
	if (set)
		return join_anew(set, causes);
	if (!bpf_map_update_elem(map, key, &causes, BPF_NOEXIST))
		return 0;
	set = bpf_map_lookup_elem(map, key);
	if (set)
		return join_anew(set, causes);
	count(&state.entries_lost, 1);
	return 0;
}

#endif
