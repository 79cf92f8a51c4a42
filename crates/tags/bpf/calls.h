/* When system calls return: for the agent, which let them in and measures how long they took. */
#ifndef PLIMSOLL_CALLS_H
#define PLIMSOLL_CALLS_H

static __always_inline __u64 call_number(struct pt_regs *registers)
{
#if defined(__TARGET_ARCH_x86)
	return registers->orig_ax;
#elif defined(__TARGET_ARCH_arm64)
	return registers->syscallno;
#else
	return ~0ULL;
#endif
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *registers, long result)
{
	__u64 number = call_number(registers);
	if (number >= 64 * CALL_WORDS || !(settings.calls[(number / 64) & (CALL_WORDS - 1)] & (1ULL << (number & 63))))
		return 0;
	/* A task that is registered nowhere was not let in. */
	if (current_causes() == 1ULL << ACCOUNT_OTHERS)
		return 0;
	struct call_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(&state.events_lost, 1);
		return 0;
	}
	event->kind = EVENT_RETURNED;
	event->thread = bpf_get_current_pid_tgid();
	event->time_ns = bpf_ktime_get_ns();
	submit(event);
	return 0;
}

#endif
