//! The kernel's figures of memory: how much there is, and how much may be dirty.

use std::fs::read_to_string;

const BYTES_PER_KIB: u64 = 1024;
/// `vm.dirty_ratio` where the kernel does not tell it, per cent.
const DIRTY_PERCENT_DEFAULT: u64 = 20;

/// Memory that can be had without swapping, bytes, if the kernel says.
pub fn available_bytes() -> Option<u64> {
    available_in(&read_to_string("/proc/meminfo").ok()?)
}

fn available_in(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * BYTES_PER_KIB)
}

/// Bytes that may be dirty before the kernel makes writers wait: `vm.dirty_bytes`, or `vm.dirty_ratio` of the memory.
pub fn dirty_bytes_max() -> u64 {
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let bytes = number("/proc/sys/vm/dirty_bytes").filter(|&bytes| bytes > 0);
    bytes.unwrap_or_else(|| {
        let percent = number("/proc/sys/vm/dirty_ratio").unwrap_or(DIRTY_PERCENT_DEFAULT);
        available_bytes().unwrap_or(0) / 100 * percent
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_told_in_kib() {
        assert_eq!(available_in("MemTotal:  100 kB\nMemAvailable:    50 kB\n"), Some(51_200));
        assert_eq!((available_in("MemTotal: 100 kB\n"), available_in("MemAvailable: 50 MB")), (None, None));
    }
}
