/* The books of each account. What several have caused is divided among them, so that the sums are those of the
 * device. */
#ifndef PLIMSOLL_COUNTERS_H
#define PLIMSOLL_COUNTERS_H

enum charge { CHARGE_READ, CHARGE_DATA, CHARGE_JOURNAL, CHARGE_METADATA, CHARGE_DIRTIED, CHARGE_FREED };

struct charging {
	__u64 causes;
	__u64 bytes;
	__u32 charge;
	__u32 block_class;
};

static __always_inline void charge_one(__u32 account, const struct charging *charging)
{
	struct counters *counters = bpf_map_lookup_elem(&counts, &account);
	if (!counters)
		return;
	__u64 bytes = charging->bytes;
	switch (charging->charge) {
	case CHARGE_READ:
		count(&counters->read, bytes);
		return;
	case CHARGE_DIRTIED:
		count(&counters->dirtied, bytes);
		return;
	case CHARGE_FREED:
		count(&counters->freed, bytes);
		return;
	case CHARGE_DATA:
		count(&counters->data, bytes);
		break;
	case CHARGE_JOURNAL:
		count(&counters->journal, bytes);
		break;
	default:
		count(&counters->metadata, bytes);
	}
	count(&counters->by_class[charging->block_class & (CLASSES - 1)], bytes);
}

static long charge_next(__u32 account, struct charging *charging)
{
	if (charging->causes & (1ULL << (account & 63)))
		charge_one(account, charging);
	return 0;
}

/* The number of the lowest bit that is set. */
static __always_inline __u32 lowest_bit(__u64 mask)
{
	__u32 bit = 0;
	if (!(mask & 0xffffffff)) { mask >>= 32; bit += 32; }
	if (!(mask & 0xffff)) { mask >>= 16; bit += 16; }
	if (!(mask & 0xff)) { mask >>= 8; bit += 8; }
	if (!(mask & 0xf)) { mask >>= 4; bit += 4; }
	if (!(mask & 0x3)) { mask >>= 2; bit += 2; }
	if (!(mask & 0x1)) bit += 1;
	return bit;
}

static __noinline void charge(__u64 causes, __u64 bytes, __u32 kind, __u32 block_class)
{
	struct charging charging = { .causes = causes & CAUSES, .bytes = bytes, .charge = kind, .block_class = block_class };
	if (!charging.causes) {
		charge_one(COUNTERS_UNKNOWN, &charging);
		return;
	}
	__u32 first = lowest_bit(charging.causes);
	if (!(charging.causes & (charging.causes - 1))) {
		charge_one(first, &charging);
		return;
	}
	__u64 members = 0;
	for (__u64 rest = charging.causes; rest && members < ACCOUNTS; rest &= rest - 1)
		members++;
	/* What does not divide goes to the first. */
	charging.bytes = bytes / members;
	charge_one(first, &(struct charging){ .bytes = bytes % members, .charge = kind, .block_class = block_class });
	bpf_loop(ACCOUNTS, charge_next, &charging, 0);
}

static __always_inline void charge_dirtied(__u64 causes, __u64 bytes)
{
	charge(causes, bytes, CHARGE_DIRTIED, 0);
}

static __always_inline void charge_freed(__u64 causes, __u64 bytes)
{
	charge(causes, bytes, CHARGE_FREED, 0);
}

#endif
