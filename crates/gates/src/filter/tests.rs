//! The program against the obvious: what it answers to any call.

use super::program::{ARCHITECTURE, FOREIGN_NUMBER_MIN, NO_SUCH_CALL};
use super::table::{Condition, GATED, Place, REFUSED, STOOD_ASIDE};
use super::*;
use libc::sock_filter;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// `struct seccomp_data` (seccomp(2)).
#[derive(Clone, Copy, Debug)]
struct Data {
    number: u32,
    architecture: u32,
    arguments: [u64; 6],
}

impl Data {
    fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.architecture.to_le_bytes());
        for (place, argument) in self.arguments.iter().enumerate() {
            bytes[16 + 8 * place..][..8].copy_from_slice(&argument.to_le_bytes());
        }
        bytes
    }
}

/// Classic BPF, as far as the programs use it. The kernel refuses jumps beyond the end and programs without an
/// answer; so do we.
fn run(program: &[sock_filter], data: &Data) -> u32 {
    let (data, mut at, mut accumulator) = (data.bytes(), 0, 0u32);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let code = u32::from(code);
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        const GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
        const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
        const ANY_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
        const ANSWER: u32 = libc::BPF_RET | libc::BPF_K;
        match code {
            LOAD => accumulator = u32::from_le_bytes(data[k as usize..][..4].try_into().unwrap()),
            EQUAL => at += jump(accumulator == k),
            GREATER => at += jump(accumulator > k),
            AT_LEAST => at += jump(accumulator >= k),
            ANY_BIT => at += jump(accumulator & k != 0),
            ANSWER => return k,
            _ => panic!("instruction {code:#x}"),
        }
    }
}

/// What the module's description says, call by call.
fn expected(filter: Filter, data: &Data) -> u32 {
    if data.architecture != ARCHITECTURE {
        return libc::SECCOMP_RET_KILL_PROCESS;
    }
    let is_of_rings = REFUSED.iter().any(|(number, _)| *number == i64::from(data.number));
    if data.number >= FOREIGN_NUMBER_MIN || (is_of_rings && !filter.has_rings) {
        return NO_SUCH_CALL;
    }
    let operation = data.arguments[0] as u32;
    let restricts = match i64::from(data.number) {
        libc::SYS_seccomp => operation <= 1,
        libc::SYS_prctl => operation == libc::PR_SET_SECCOMP as u32,
        _ => false,
    };
    if restricts && data.arguments[5] as u32 != STOOD_ASIDE {
        return libc::SECCOMP_RET_USER_NOTIF;
    }
    let Some(call) = GATED.iter().find(|call| call.number == i64::from(data.number)) else {
        return libc::SECCOMP_RET_ALLOW;
    };
    let mut is_notified = filter.classes.contains(call.class);
    if let Condition::Flags { argument, mask } = call.condition {
        is_notified &= data.arguments[argument] as u32 & mask != 0;
    }
    if let (GateClass::Read | GateClass::Write, Place::Descriptor(argument)) = (call.class, call.place) {
        is_notified &= filter.standard_descriptors || data.arguments[argument] as u32 > 2;
    }
    if is_notified { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW }
}

fn filters() -> impl Strategy<Value = Filter> {
    let class = prop::sample::subsequence(&GateClass::ALL, 0..=4);
    (class, any::<bool>(), any::<bool>()).prop_map(|(classes, standard_descriptors, has_rings)| {
        let classes = classes.into_iter().fold(GateClasses::default(), GateClasses::with);
        Filter { classes, standard_descriptors, has_rings }
    })
}

fn calls() -> impl Strategy<Value = Data> {
    let known = GATED.iter().map(|call| call.number as u32).chain(REFUSED.iter().map(|(number, _)| *number as u32));
    let known = known.chain([libc::SYS_seccomp as u32, libc::SYS_prctl as u32]);
    let number = prop_oneof![
        6 => prop::sample::select(known.collect::<Vec<_>>()),
        2 => 0..600u32,
        1 => any::<u32>(),
        1 => (0..600u32).prop_map(|number| number | FOREIGN_NUMBER_MIN),
    ];
    // i386 has the number of a 32-bit system call of x86-64.
    let architecture = prop_oneof![9 => Just(ARCHITECTURE), 1 => Just(0x4000_0003), 1 => any::<u32>()];
    let argument = prop_oneof![
        4 => 0..6u64,
        1 => Just(libc::PR_SET_SECCOMP as u64),
        1 => Just(u64::from(STOOD_ASIDE)),
        2 => prop::sample::select(vec![libc::O_CREAT, libc::O_TRUNC, libc::O_TMPFILE, libc::O_DIRECTORY, libc::MS_SYNC])
            .prop_map(|flags| flags as u64 | libc::O_WRONLY as u64),
        1 => (0..6u64).prop_map(|low| low | 1 << 32),
        2 => any::<u64>(),
    ];
    (number, architecture, prop::array::uniform6(argument)).prop_map(|(number, architecture, arguments)| Data {
        number,
        architecture,
        arguments,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Broken on purpose and seen red: JGE for JGT at the descriptors, a jump that is one too long, rings that are
    /// refused though the tenant may have them.
    /// Promise: gates-filter.
    #[test]
    fn the_program_answers_as_described(filter in filters(), call in calls()) {
        prop_assert_eq!(run(&filter.program(), &call), expected(filter, &call));
    }
}

#[test]
fn every_call_is_in_the_table_once_and_the_program_fits() {
    let mut numbers: Vec<_> = GATED.iter().map(|call| call.number).chain(REFUSED.map(|(number, _)| number)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), GATED.len() + REFUSED.len());
    // BPF_MAXINSNS of linux/bpf_common.h.
    assert!(Filter::new(GateClasses::ALL).program().len() <= 4096);
}

/// The calls that must not pass by, written down here and nowhere else: the table is not asked, which the property
/// above does.
const WRITES: &[i64] = &[
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_io_submit,
];
const SYNCS: &[i64] = &[
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_sync,
    libc::SYS_msync,
];
const CHANGES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
];
/// Calls that only x86-64 has besides.
#[cfg(target_arch = "x86_64")]
const OLD_CHANGES: &[i64] =
    &[libc::SYS_open, libc::SYS_creat, libc::SYS_mkdir, libc::SYS_rename, libc::SYS_unlink, libc::SYS_rmdir];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CHANGES: &[i64] = &[];
const READS: &[i64] = &[libc::SYS_read, libc::SYS_pread64, libc::SYS_readv, libc::SYS_preadv, libc::SYS_preadv2];

/// Broken on purpose and seen red: a table without `syncfs`, one without `rename`, one in which `unlink` is a write.
/// Promise: gates-filter.
#[test]
fn every_call_that_must_not_pass_by_is_notified_with_its_class_and_no_other_is() {
    let changes = [CHANGES, OLD_CHANGES].concat();
    let classes = [
        (GateClass::Write, WRITES),
        (GateClass::Sync, SYNCS),
        (GateClass::Metadata, &changes),
        (GateClass::Read, READS),
    ];
    for (class, numbers) in classes {
        let filter = Filter::new(GateClasses::default().with(class));
        let program = filter.program();
        // Descriptors that are no standard ones, and in each place where a call has flags, some that make it wait.
        let flags = (libc::O_CREAT | libc::O_TRUNC | libc::MS_SYNC) as u64;
        let arguments = [flags; 6];
        let answer = |number| run(&program, &Data { number, architecture: ARCHITECTURE, arguments });
        let notified = (0..600u32).filter(|&number| answer(number) == libc::SECCOMP_RET_USER_NOTIF);
        let expected: BTreeSet<i64> = numbers.iter().copied().collect();
        assert_eq!(notified.map(i64::from).collect::<BTreeSet<_>>(), expected, "{class:?}");
        assert_eq!(filter.call_numbers().map(i64::from).collect::<BTreeSet<_>>(), expected, "{class:?}");
    }
}

/// `STOOD_ASIDE` is a number of its own, too.
/// Promise: gates-own-filter.
#[test]
fn the_shim_says_that_it_stood_aside_as_the_filter_reads_it() {
    let line = include_str!("../../shim/layout.h").lines().find_map(|line| line.strip_prefix("#define ASIDE_MARK 0x"));
    assert_eq!(u32::from_str_radix(line.unwrap().split_whitespace().next().unwrap(), 16), Ok(STOOD_ASIDE));
}

#[test]
fn a_directory_that_is_opened_changes_nothing() {
    let open = |flags: i32| {
        let arguments = [libc::AT_FDCWD as u64, 0, flags as u64, 0, 0, 0];
        let call = Data { number: libc::SYS_openat as u32, architecture: ARCHITECTURE, arguments };
        run(&Filter::default().program(), &call)
    };
    assert_eq!(open(libc::O_RDONLY | libc::O_DIRECTORY), libc::SECCOMP_RET_ALLOW);
    assert_eq!(open(libc::O_RDWR), libc::SECCOMP_RET_ALLOW);
    assert_eq!(open(libc::O_RDWR | libc::O_CREAT), libc::SECCOMP_RET_USER_NOTIF);
    assert_eq!(open(libc::O_RDWR | libc::O_TMPFILE), libc::SECCOMP_RET_USER_NOTIF);
}

#[test]
fn a_profile_names_what_the_filter_notifies() {
    let profile = Filter::new(GateClasses::ALL).oci_profile(std::path::Path::new("/run/gates.sock"), "backup");
    assert_eq!(profile["listenerPath"], "/run/gates.sock");
    assert_eq!(profile["listenerMetadata"], "backup");
    let rules = profile["syscalls"].as_array().unwrap();
    let named =
        |name: &str| rules.iter().filter(|rule| rule["names"].as_array().unwrap().contains(&name.into())).count();
    assert_eq!(named("write"), 0);
    assert_eq!(named("openat"), 3, "one for each flag");
    assert_eq!(named("msync"), 1);
    assert_eq!(GATED.iter().filter(|call| named(call.name) == 0).count(), 1);
    assert!(REFUSED.iter().all(|(_, name)| named(name) == 1));
}
