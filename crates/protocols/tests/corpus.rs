//! The entry functions of the fuzz targets for NBD and iSCSI in an ordinary test: on their corpus, on mutations of it,
//! and on anything.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;
#[path = "../../../fuzz/entries/iscsi.rs"]
mod iscsi;
#[path = "../../../fuzz/entries/nbd.rs"]
mod nbd;

use corpus::{assert_names, mutations, try_mutated};
use proptest::prelude::*;
use proptest::sample::Index;

type Entry = fn(&[u8]) -> bool;

const TARGETS: [(&str, Entry); 5] = [
    ("nbd_handshake", nbd::handshake),
    ("nbd_requests", nbd::requests),
    ("nbd_replies", nbd::replies),
    ("iscsi_pdus", iscsi::pdus),
    ("scsi_cdbs", iscsi::cdbs),
];

#[test]
fn the_corpus_is_what_its_names_say() {
    for (target, entry) in TARGETS {
        assert_names(target, 10, entry);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// Promise: iscsi-group-number.
    #[test]
    fn no_mutation_of_the_corpus_breaks_a_promise(input: Index, mutations in mutations()) {
        for (target, entry) in TARGETS {
            try_mutated(target, input, &mutations, entry);
        }
    }

    /// Promise: iscsi-hostile-bytes.
    #[test]
    fn no_command_whatever_its_bytes_leaves_the_volume(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        iscsi::cdbs(&bytes);
    }
}
