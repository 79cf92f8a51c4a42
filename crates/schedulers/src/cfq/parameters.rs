//! What Linux's CFQ was tuned to: every constant with its name in `block/cfq-iosched.c` (Linux 3.2 to 4.x, `HZ` =
//! 1000).

use plimsoll_core::Span;

/// Disk time of a synchronous queue of priority 4, before it is scaled (`cfq_slice_sync`).
pub const SLICE_SYNC: Span = Span::from_millis(100);
/// Disk time of an asynchronous queue of priority 4 (`cfq_slice_async`).
pub const SLICE_ASYNC: Span = Span::from_millis(40);
/// A level of priority is worth this part of the slice of priority 4 (`CFQ_SLICE_SCALE`).
pub const SLICE_SCALE: i64 = 5;
/// The level without scaling of its slice (`cfq_prio_slice`; `IOPRIO_NORM`).
pub const LEVEL_NORMAL: i64 = 4;
/// Levels in a class (`IOPRIO_BE_NR`).
pub const LEVELS: u8 = 8;
/// Requests of an asynchronous slice: four times this at level 7, 32 times at level 0 (`cfq_slice_async_rq`).
pub const SLICE_ASYNC_REQUESTS: u32 = 2;
/// How long the disk waits for the next request of a queue (`cfq_slice_idle`).
pub const SLICE_IDLE: Span = Span::from_millis(8);
/// In what time all queues should have had their turn: beyond it slices are shortened (`cfq_target_latency`).
pub const TARGET_LATENCY: Span = Span::from_millis(300);
/// The average number of busy queues moves to a smaller number by this part, to a larger one by the rest
/// (`cfq_hist_divisor`).
pub const BUSY_AVERAGE_DIVISOR: u64 = 4;
/// The shortest time for which one kind of queues is served (`CFQ_MIN_TT`, two ticks).
pub const WORKLOAD_MIN: Span = Span::from_millis(2);
/// Requests of one queue at the device while others wait, at the start of its slice; half of it later (`cfq_quantum`).
pub const QUANTUM: u32 = 8;
/// When a synchronous request has waited too long (`cfq_fifo_expire[1]`).
pub const EXPIRE_SYNC: Span = Span::from_millis(125);
/// When an asynchronous request has waited too long (`cfq_fifo_expire[0]`).
pub const EXPIRE_ASYNC: Span = Span::from_millis(250);
/// How far back a request may lie without counting as a whole sweep (`cfq_back_max`).
pub const BACK_SEEK_BYTES_MAX: u64 = 16 << 20;
/// How much dearer than a seek forward a seek back is (`cfq_back_penalty`).
pub const BACK_SEEK_PENALTY: u64 = 2;
/// A request farther than this from the one before it is a seek (`CFQQ_SEEK_THR`, 800 sectors).
pub const SEEK_BYTES: u64 = 800 * 512;
/// On flash a request shorter than this counts as a seek instead (`CFQQ_SECT_THR_NONROT`, 64 sectors).
pub const SEEK_BYTES_FLASH: u32 = 64 * 512;
/// A queue is seeky if more than so many of its last 32 requests were seeks (`CFQQ_SEEKY`).
pub const SEEKS_MAX: u32 = 32 / 8;
/// With so many requests waiting a queue is deep, and idled for although it is seeky (`cfq_update_idle_window`).
pub const DEEP_REQUESTS: usize = 4;
/// Samples after which a mean think time counts, in 256ths of which each new one adds an eighth (`sample_valid`).
pub const THINK_SAMPLES_VALID: u64 = 80;
/// How much earlier than the first of its tree a queue is put that goes ahead of all (`cfq_service_tree_add`, `HZ`).
pub const FRONT: Span = Span::from_secs(1);
/// How much later than the one before it an idle queue is put (`CFQ_IDLE_DELAY`).
pub const IDLE_DELAY: Span = Span::from_millis(200);
/// Time for which the others must have wanted nothing before the idle class is served (`CFQ_IDLE_GRACE`, in Linux 2.6).
/// Later kernels serve it as soon as no other queue is busy.
pub const IDLE_GRACE: Span = Span::from_millis(100);
