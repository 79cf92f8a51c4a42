/*
 * The accounts that really caused each block's I/O: programs on tracepoints of a stock kernel (docs/tags.md). Each
 * header is a topic. The license is what the kernel asks of programs that call most of its helper functions.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "shared.h"
#include "maps.h"
#include "page_table.h"
#include "identity.h"
#include "counters.h"
#include "blocks.h"
#include "pages.h"
#include "ext4.h"
#include "xfs.h"
#include "block.h"
#include "calls.h"
#include "sweep.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
