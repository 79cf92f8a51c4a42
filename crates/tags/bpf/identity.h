/*
 * Which account a task is. A thread's registration goes before its process's, that before its cgroup's; a task that has
 * none is "others" or gets an account of its own. What was found is remembered with the task until a registration
 * changes.
 *
 * A kernel thread has no account: it works on behalf of other accounts, which the programs of the file systems set
 * (`act_for`).
 */
#ifndef PLIMSOLL_IDENTITY_H
#define PLIMSOLL_IDENTITY_H

#define PF_IO_WORKER 0x00000010
#define PF_KTHREAD 0x00200000
/* What a task remembers is valid for good: it is exiting, and its registration is gone. */
#define GENERATION_LAST (~0ULL)
/* So many levels are looked at from a task's cgroup upwards; of a deeper one so many uppermost ones, too, where tenants
 * are registered. */
#define LEVELS_MAX 128
#define UPPERMOST_MAX 16
#define HIERARCHIES_MAX 16

/*
 * The registration of an account that has ended means no account, from that moment on: a task that has it is what else
 * it is registered as, and what it creates does not inherit it. User space takes it out later.
 */
static __always_inline bool has_ended(const struct registration *registration)
{
	return state.ended_accounts & 1ULL << (registration->account & 63);
}

/* A key's registration, unless its account has ended. */
static __always_inline struct registration *registration_of(void *map, const void *key)
{
	struct registration *found = bpf_map_lookup_elem(map, key);
	return found && !has_ended(found) ? found : 0;
}

static __always_inline bool is_kernel_thread(struct task_struct *task)
{
	return task->flags & PF_KTHREAD;
}

static __always_inline struct actor *actor_of(struct task_struct *task)
{
	return bpf_task_storage_get(&actors, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/*
 * A search for a registration among the cgroups that a task is in: in each hierarchy one, and those above it. Its loops
 * are callbacks, since the verifier would follow a loop in a loop step by step, in each program that asks for a task's
 * account.
 */
struct group_search {
	/* Of the task: a struct css_set. */
	__u64 set;
	/* The next one to look at: a struct cgroup, or 0. */
	__u64 cgroup;
	/* The account that it found; less than 0: none. */
	__s64 account;
};

/* Whether `cgroup` is registered. */
static __always_inline bool is_registered(struct cgroup *cgroup, struct group_search *search)
{
	struct group group = {
		.id = BPF_CORE_READ(cgroup, kn, id),
		.hierarchy = BPF_CORE_READ(cgroup, root, hierarchy_id),
	};
	struct registration *found = registration_of(&cgroups, &group);
	if (found)
		search->account = found->account;
	return found;
}

static long search_level(__u32 number, struct group_search *search)
{
	struct cgroup *cgroup = (void *)search->cgroup;
	if (is_registered(cgroup, search))
		return 1;
	struct cgroup_subsys_state *parent = BPF_CORE_READ(cgroup, self.parent);
	search->cgroup = parent ? (__u64)BPF_CORE_READ(parent, cgroup) : 0;
	return !search->cgroup;
}

/* From below upwards: the nearest one counts. */
static long search_uppermost(__u32 number, struct group_search *search)
{
	struct cgroup *cgroup = (void *)search->cgroup, *above = 0;
	__u64 level = UPPERMOST_MAX - 1 - (number & (UPPERMOST_MAX - 1));
	__u64 at = search->cgroup + bpf_core_field_offset(struct cgroup, ancestors) + level * sizeof(cgroup);
	if (level > (__u64)BPF_CORE_READ(cgroup, level) || bpf_probe_read_kernel(&above, sizeof(above), (void *)at) || !above)
		return 0;
	return is_registered(above, search);
}

/*
 * Whether the cgroup to look at or one above it is registered. A tenant that may make cgroups may nest them without
 * end, and does not leave its account by that.
 */
static __noinline bool search_upwards(struct group_search *search)
{
	if (search->cgroup)
		bpf_loop(LEVELS_MAX, search_level, search, 0);
	if (search->account < 0 && search->cgroup && bpf_core_field_exists(((struct cgroup *)0)->ancestors))
		bpf_loop(UPPERMOST_MAX, search_uppermost, search, 0);
	return search->account >= 0;
}

static long search_hierarchy(__u32 number, struct group_search *search)
{
	struct cgroup_subsys_state *subsystem;
	__u64 at = search->set + bpf_core_field_offset(struct css_set, subsys) + number * sizeof(subsystem);
	if (bpf_probe_read_kernel(&subsystem, sizeof(subsystem), (void *)at))
		return 1;
	search->cgroup = (__u64)BPF_CORE_READ(subsystem, cgroup);
	return search_upwards(search);
}

/* The account of the nearest registered one of the task's cgroups; less than 0: there is none. */
static __noinline __s64 by_cgroups(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	__u32 hierarchies = settings.hierarchies < HIERARCHIES_MAX ? settings.hierarchies : HIERARCHIES_MAX;
	struct group_search search = { .set = (__u64)set, .cgroup = (__u64)BPF_CORE_READ(set, dfl_cgrp), .account = -1 };
	if (!search_upwards(&search))
		bpf_loop(hierarchies, search_hierarchy, &search, 0);
	return search.account;
}

/* Opens an account for a process of its own. */
static __noinline __u32 open_account(__u32 process)
{
	for (int account = 1; account < ACCOUNTS; account++) {
		__u64 bit = 1ULL << account;
		if (!(state.free_accounts & bit) || !(__sync_fetch_and_and(&state.free_accounts, ~bit) & bit))
			continue;
		struct registration registration = { .account = account, .is_automatic = 1 };
		__u32 key = account;
		if (bpf_map_update_elem(&processes, &process, &registration, BPF_NOEXIST)) {
			__sync_fetch_and_or(&state.free_accounts, bit);
			struct registration *winner = bpf_map_lookup_elem(&processes, &process);
			if (!winner)
				break;
			/* Where one that has ended is in the way, it gets an account once that is taken out. */
			return has_ended(winner) ? ACCOUNT_OTHERS : winner->account;
		}
		state.since_ns[account & 63] = bpf_ktime_get_ns();
		struct owner owner = { .process = process };
		bpf_get_current_comm(owner.name, sizeof(owner.name));
		bpf_map_update_elem(&owners, &key, &owner, BPF_ANY);
		return account;
	}
	count(&state.accounts_refused, 1);
	return ACCOUNT_OTHERS;
}

/* The thread that an io_uring worker works for; 0 where that is not known (a polling thread works for a whole ring). */
static __always_inline __u32 io_worker_owner(struct task_struct *task)
{
	struct io_worker *worker = BPF_CORE_READ(task, worker_private);
	if (!worker)
		return 0;
	if (bpf_core_field_exists(worker->wq))
		return BPF_CORE_READ(worker, wq, task, pid);
	return BPF_CORE_READ((struct io_worker___6_1 *)worker, wqe, wq, task, pid);
}

static __noinline __u64 resolve(struct task_struct *task)
{
	__u32 thread = task->pid, process = task->tgid;
	struct registration *found = registration_of(&threads, &thread);
	if (!found && task->flags & PF_IO_WORKER) {
		thread = io_worker_owner(task);
		found = registration_of(&threads, &thread);
	}
	if (!found)
		found = registration_of(&processes, &process);
	if ((!found || found->is_automatic) && state.cgroups) {
		__s64 group = by_cgroups(task);
		if (group >= 0)
			return 1ULL << (group & 63);
	}
	__u32 account = ACCOUNT_OTHERS;
	if (found)
		account = found->account;
	else if (settings.has_account_per_process)
		account = open_account(process);
	return 1ULL << (account & 63);
}

/* The accounts that the task acts for: its own, or for a kernel thread those that it works for; 0 if that is not
 * known. */
static __always_inline __u64 causes_of(struct task_struct *task, struct actor *actor)
{
	if (is_kernel_thread(task))
		return actor && actor->generation == state.sweeps ? actor->causes : 0;
	__u64 generation = state.generation;
	if (actor && (actor->generation == generation || actor->generation == GENERATION_LAST))
		return actor->causes;
	__u64 causes = resolve(task);
	if (actor) {
		actor->causes = causes;
		actor->generation = generation;
	}
	return causes;
}

static __always_inline __u64 current_causes(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	return causes_of(task, actor_of(task));
}

/* The current kernel thread works on behalf of `causes` from now on. Other tasks keep their account. */
static __always_inline void act_for(__u64 causes)
{
	struct task_struct *task = bpf_get_current_task_btf();
	if (!is_kernel_thread(task))
		return;
	struct actor *actor = actor_of(task);
	if (actor) {
		actor->causes = causes;
		actor->generation = state.sweeps;
	}
}

/* `task` is registered as another one is; where there is no room it is one of the others, and counted. */
static __always_inline void inherit(void *map, __u32 task, const struct registration *from)
{
	struct registration copy = *from;
	if (bpf_map_update_elem(map, &task, &copy, BPF_ANY))
		count(&state.registrations_lost, 1);
}

/* A thread inherits its creator's registration, a process that of the thread that forked it. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 thread = parent->pid, process = parent->tgid, born = child->pid;
	bool is_thread = child->tgid == parent->tgid;
	struct registration *inherited = registration_of(&threads, &thread);
	if (inherited) {
		if (is_thread)
			inherit(&threads, born, inherited);
		else
			inherit(&processes, born, inherited);
		return 0;
	}
	if (is_thread)
		return 0;
	inherited = registration_of(&processes, &process);
	if (inherited && !inherited->is_automatic)
		inherit(&processes, born, inherited);
	return 0;
}

/* A thread that is not the first one takes the first one's number when it executes a program. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task, int old_thread, struct linux_binprm *binary)
{
	__u32 old = old_thread, new = task->pid, process = task->tgid;
	struct registration *own = bpf_map_lookup_elem(&processes, &process);
	if (own && own->is_automatic) {
		/* It is called otherwise from now on. */
		__u32 account = own->account;
		struct owner owner = { .process = process };
		bpf_get_current_comm(owner.name, sizeof(owner.name));
		bpf_map_update_elem(&owners, &account, &owner, BPF_ANY);
	}
	if (old == new)
		return 0;
	struct registration *moved = registration_of(&threads, &old);
	if (!moved)
		return 0;
	struct registration copy = *moved;
	/* First, so that there is room. */
	bpf_map_delete_elem(&threads, &old);
	inherit(&threads, new, &copy);
	return 0;
}

/* A task that exits still closes its files: it keeps its account, while its number may soon be another's. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	if (is_kernel_thread(task))
		return 0;
	__u32 thread = task->pid, process = task->tgid;
	bool is_last = task->signal->live.counter == 0;
	struct registration *found = bpf_map_lookup_elem(&processes, &process);
	bool is_known = found || state.cgroups || bpf_map_lookup_elem(&threads, &thread);
	if (!is_known)
		return 0;
	struct actor *actor = actor_of(task);
	if (actor) {
		causes_of(task, actor);
		actor->generation = GENERATION_LAST;
	}
	bpf_map_delete_elem(&threads, &thread);
	if (!is_last || !found)
		return 0;
	if (found->is_automatic)
		__sync_fetch_and_or(&state.ended_accounts, 1ULL << (found->account & 63));
	bpf_map_delete_elem(&processes, &process);
	return 0;
}

/* A task that moves to another cgroup may become another account. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(cgroup_attach_task, struct cgroup *to, const char *path, struct task_struct *task, bool is_whole_process)
{
	if (state.cgroups)
		count(&state.generation, 1);
	return 0;
}

#endif
