//! Equal seeds give equal steps; a thread more changes no other's; and no text makes the parser panic.

mod support;

use plimsoll_workloads::{Step, Workload};
use proptest::prelude::*;
use support::{plan, steps};

const TEXTS: [&str; 12] = [
    "read random 4KiB in db 1GiB, depth 20",
    "write runs of 1MiB by 4KiB in own big 1GiB, fsync every 3",
    "mix 70% reads random 4KiB in data 1GiB, poisson 100/s, bursts 1s every 4s",
    "append 4KiB, fsync, poisson 100/s",
    "create 10KiB, fsync, think 10ms",
    "spc1 load 5 on 10GiB",
    "sfs2014 database load 1",
    "sfs2014 swbuild load 1",
    "fileserver files 100 directories 7 transactions 1000",
    "mail files 100 directories 7 transactions 1000, fsync every 2",
    "tpcb clients 3 scale 1 checkpoint every 2s",
    "database rows 10MiB checkpoint every 100 buffers",
];
const STEPS: usize = 2_000;

/// Promise: lab-workloads.
#[test]
fn equal_seeds_give_equal_steps_and_others_do_not() {
    for text in TEXTS {
        let run = |seed| -> Vec<Vec<Step>> {
            let plan = plan(text, seed);
            (0..plan.thread_count()).map(|thread| steps(&plan, thread, STEPS)).collect()
        };
        assert_eq!(run(1), run(1), "{text}");
        if !text.starts_with("create") {
            assert_ne!(run(1), run(2), "{text}");
        }
    }
}

#[test]
fn a_thread_more_changes_no_others_steps() {
    for text in
        ["read sequential 4KiB in db 1GiB", TEXTS[0], TEXTS[1], TEXTS[2], TEXTS[3], TEXTS[4], TEXTS[8], TEXTS[9]]
    {
        let (three, four) = (plan(&format!("{text}, threads 3"), 9), plan(&format!("{text}, threads 4"), 9));
        for thread in 0..3 {
            assert_eq!(steps(&three, thread, STEPS), steps(&four, thread, STEPS), "{text}");
        }
        assert!(steps(&four, 2, STEPS) != steps(&four, 3, STEPS), "{text}: threads draw the same");
    }
    let (one, two) = (plan("sfs2014 vdi load 1", 9), plan("sfs2014 vdi load 2", 9));
    assert_eq!(steps(&one, 1, STEPS), steps(&two, 1, STEPS));
}

#[test]
#[should_panic(expected = "thread 1 of 1")]
fn a_thread_that_is_not_there_is_refused() {
    plan(TEXTS[0], 1).thread(1);
}

/// Words of the grammar, so that random texts come far into it.
const WORDS: [&str; 57] = [
    "read",
    "write",
    "mix",
    "append",
    "create",
    "overwrite",
    "stream",
    "spin",
    "spc1",
    "sfs2014",
    "fileserver",
    "mail",
    "tpcb",
    "tpch",
    "database",
    "sequential",
    "random",
    "runs",
    "of",
    "by",
    "in",
    "own",
    "from",
    "to",
    "memory",
    "load",
    "on",
    "files",
    "directories",
    "transactions",
    "clients",
    "scale",
    "checkpoint",
    "every",
    "query",
    "17",
    "buffers",
    ",",
    "fsync",
    "fdatasync",
    "at",
    "poisson",
    "bursts",
    "think",
    "depth",
    "threads",
    "direct",
    "start",
    "stop",
    "reads",
    "4KiB",
    "10GiB",
    "90%",
    "10ms",
    "100/s",
    "2Mbit/s",
    "big",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
        let _ = text.parse::<Workload>();
    }

    #[test]
    fn what_is_read_can_be_run_and_what_is_not_names_a_word_of_the_text(
        chosen in proptest::collection::vec(0..WORDS.len(), 1..9), head in 0..15usize
    ) {
        let mut words = vec![WORDS[head]];
        words.extend(chosen.into_iter().map(|index| WORDS[index]));
        let text = words.join(" ");
        match text.parse::<Workload>() {
            Ok(workload) => {
                let plan = workload.plan(1);
                prop_assert!(plan.thread_count() > 0);
                prop_assert!(!steps(&plan, 0, 50).is_empty(), "{text}");
            }
            Err(error) => {
                let from: String = text.chars().skip(error.column - 1).collect();
                let is_end = from.is_empty() && error.got == "the end of the text";
                prop_assert!(is_end || from.starts_with(error.got.trim_matches('"')), "{text}: {error}");
            }
        }
    }

    #[test]
    fn extremes_overflow_nowhere(size in 1u64..1 << 60, block in 1u64..1 << 30, kind in 0..4usize, seed: u64) {
        let size = size.max(block);
        let kind = ["sequential", "random", "runs of", ""][kind];
        let text = match kind {
            "" => format!("append {block}B to log {size}B"),
            "runs of" => format!("read runs of {block}B by {block}B in big {size}B"),
            _ => format!("write {kind} {block}B in big {size}B, threads 3"),
        };
        // A size is read as a decimal fraction and so rounded to 53 bits.
        prop_assume!(text.parse::<Workload>().is_ok());
        let plan = plan(&text, seed);
        let bytes = size + (1 << 10);
        for (_, _, offset, length) in support::transfers(&steps(&plan, 0, 100)) {
            prop_assert!(length == block && offset + length <= bytes, "{text}: {offset} + {length}");
        }
    }
}
