//! The policies that there are.

use crate::credit::Credit;
use crate::lru::Lru;
use crate::policy::PolicyEntry;
use crate::s3_fifo::S3Fifo;
use crate::selective::Selective;

static POLICIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "lru",
        summary: "the block that was not used for longest leaves first; classes are ignored",
        build: |config| Box::new(Lru::new(config)),
    },
    PolicyEntry {
        name: "s3_fifo",
        summary: "by queues: what was used once leaves soon, what was used again has nine tenths; classes are ignored",
        build: |config| Box::new(S3Fifo::new(config)),
    },
    PolicyEntry {
        name: "selective",
        summary: "by priority, then LRU; large files come in only while the syncer sleeps (SOSP 2011)",
        build: |config| Box::new(Selective::new(config)),
    },
    PolicyEntry {
        name: "credit",
        summary: "by age less what priority and repeated use have earned; learns what they are worth",
        build: |config| Box::new(Credit::new(config)),
    },
];

/// Every policy.
pub fn policies() -> &'static [PolicyEntry] {
    POLICIES
}
