//! Mistakes and their exact words.

use plimsoll_workloads::Workload;

const CASES: &[(&str, &str)] = &[
    (
        "",
        "column 1: got the end of the text, allowed: read, write, mix, append, create, overwrite, stream, spin, spc1, \
         sfs2014, fileserver, mail, tpcb, tpch or database",
    ),
    ("read rndom 4KiB in db 1GiB", "column 6: got \"rndom\", allowed: sequential, random or runs"),
    ("read random", "column 12: got the end of the text, allowed: a size such as 4KiB or 10GB"),
    ("read random 4 KiB in db 1GiB", "column 13: got \"4\", allowed: a size such as 4KiB or 10GB"),
    ("read random 0B in db 1GiB", "column 13: got \"0B\", allowed: a size from 1 B to 1 GiB"),
    ("read random 4KiB db 1GiB", "column 18: got \"db\", allowed: in"),
    (
        "read random 4KiB in ../db 1GiB",
        "column 21: got \"../db\", allowed: a file name of letters, digits, - _ and . (not first)",
    ),
    ("read random 4KiB in db 1KiB", "column 24: got \"1KiB\", allowed: a size from 4 KiB to 1048576 TiB"),
    // What is read must be there: for reads, `empty` is a file's name.
    ("read random 4KiB in empty db 1GiB", "column 27: got \"db\", allowed: a size such as 4KiB or 10GB"),
    ("write random 4KiB in empty 1GiB", "column 32: got the end of the text, allowed: a size such as 4KiB or 10GB"),
    ("write random 4KiB in empty own db 1GiB", "column 32: got \"db\", allowed: a size such as 4KiB or 10GB"),
    ("read random 4KiB in db 1GiB from 2GiB", "column 34: got \"2GiB\", allowed: a size from 0 B to 1024 MiB"),
    ("read random 4KiB in db 1GiB from 1MiB to 1MiB", "column 42: got \"1MiB\", allowed: a size from 1 MiB to 1 GiB"),
    (
        "read runs of 10KiB by 4KiB in db 1GiB",
        "column 14: got \"10KiB\", allowed: a run that is a multiple of its calls",
    ),
    (
        "mix 101% reads random 4KiB in db 1GiB",
        "column 5: got \"101%\", allowed: a whole number of per cent from 0% to 100%",
    ),
    ("append 4KiB, think 5µs x", "column 24: got \"x\", allowed: a comma, or the end of the text"),
    ("append 4KiB fsync", "column 13: got \"fsync\", allowed: a comma, or the end of the text"),
    (
        "append 4KiB,",
        "column 13: got the end of the text, allowed: fsync, fdatasync, at, poisson, bursts, think, threads, start or \
         stop",
    ),
    ("spin, depth 3", "column 7: got \"depth\", allowed: threads, start or stop"),
    ("append 4KiB, fsync, fsync every 2", "column 21: got \"fsync\", allowed: each addition only once"),
    ("append 4KiB, fsync, fdatasync", "column 21: got \"fdatasync\", allowed: one of fsync or fdatasync"),
    ("append 4KiB, fsync every 0", "column 26: got \"0\", allowed: a whole number from 1 to 4294967296"),
    ("append 4KiB, at 0/s", "column 17: got \"0/s\", allowed: a rate such as 100/s, from 0.01/s to 10000000/s"),
    ("append 4KiB, at 3/s, think 1ms", "column 22: got \"think\", allowed: one of at, poisson or think"),
    ("append 4KiB, bursts 1s every 2s", "column 14: got \"bursts\", allowed: bursts only with at or poisson"),
    ("append 4KiB, at 3/s, bursts 2s every 1s", "column 38: got \"1s\", allowed: a time of at least 2 s"),
    (
        "write random 4KiB in db 1GiB, fsync, depth 3",
        "column 38: got \"depth\", allowed: depth without fsync, or threads instead of depth",
    ),
    (
        "read random 4KiB in db 1GiB, depth 3, think 1ms",
        "column 39: got \"think\", allowed: depth without think, or threads instead of depth",
    ),
    ("spin, threads 20000", "column 15: got \"20000\", allowed: a whole number from 1 to 16384"),
    ("spin, start 3s, stop 2s", "column 17: got \"stop\", allowed: a start before the stop"),
    (
        "stream 2Mbit by 4KiB from m 1GiB",
        "column 8: got \"2Mbit\", allowed: a rate such as 2Mbit/s or 250kB/s, from 1B/s to 1TB/s",
    ),
    ("sfs2014 edb load 3", "column 9: got \"edb\", allowed: database, swbuild, vda or vdi"),
    ("sfs2014 swbuild load 4000", "column 22: got \"4000\", allowed: a whole number from 1 to 3276"),
    ("spc1 load 1 on 1MiB", "column 16: got \"1MiB\", allowed: a size from 1 GiB to 1048576 TiB"),
    ("tpch query scale 8", "column 12: got \"scale\", allowed: the number of a query, 2, 17, 18 or 19"),
    ("tpch query 2 3 scale 8", "column 14: got \"3\", allowed: the number of a query, 2, 17, 18 or 19, or scale"),
    ("tpcb clients 8 scale 1 checkpoint 30s", "column 35: got \"30s\", allowed: every"),
    ("tpcb clients 8 scale 1 checkpoint every 30", "column 41: got \"30\", allowed: a time such as 10ms or 30s"),
    ("database rows 1GiB checkpoint every 10", "column 39: got the end of the text, allowed: buffers"),
    ("spin, ünder", "column 7: got \"ünder\", allowed: threads, start or stop"),
];

#[test]
fn mistakes_are_named_with_their_column_and_what_is_allowed() {
    for (text, expected) in CASES {
        let error = text.parse::<Workload>().expect_err(text);
        assert_eq!(error.to_string(), *expected, "{text}");
    }
}
