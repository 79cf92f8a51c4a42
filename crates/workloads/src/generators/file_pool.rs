//! The file server and the e-mail server of Differentiated Storage Services (SOSP 2011), sections 5.2 to 5.5. Whole
//! files are read from a pool of files of many sizes, and whole files are added to it.
//!
//! With the paper's numbers the pool and the added files come to 184 GB (file server) and 204 GB (e-mail server) in the
//! paper. Here they come to 190 and 194 GB: Table 8 is printed in whole per cents.

use crate::design::{Common, Design};
use crate::file::{Before, FileSpec};
use crate::pace::Pace;
use crate::random::{Purpose, Random};
use crate::script::{Generator, Program, Script};
use crate::step::{Action, DirectoryIndex, FileIndex};
use crate::thread::{THREADS_MAX, ThreadSpec};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Files by size, in per cent (paper 003, Table 8, "File server"). The 10 MiB column is 0.
const FILE_SERVER_SIZES: &[(u64, u32)] = &[
    (KIB, 17),
    (2 * KIB, 16),
    (4 * KIB, 16),
    (8 * KIB, 7),
    (16 * KIB, 7),
    (32 * KIB, 9),
    (64 * KIB, 7),
    (128 * KIB, 5),
    (256 * KIB, 5),
    (512 * KIB, 4),
    (MIB, 3),
    (2 * MIB, 2),
    (8 * MIB, 1),
    (32 * MIB, 1),
];

/// Files by size, in per cent (paper 003, Table 8, "E-mail server"). The 1 KiB, 2 MiB, 8 MiB and 32 MiB columns are 0.
const MAIL_SIZES: &[(u64, u32)] = &[
    (2 * KIB, 24),
    (4 * KIB, 26),
    (8 * KIB, 18),
    (16 * KIB, 12),
    (32 * KIB, 6),
    (64 * KIB, 5),
    (128 * KIB, 3),
    (256 * KIB, 2),
    (512 * KIB, 2),
    (MIB, 1),
    (10 * MIB, 1),
];

/// Reads for each write (paper 003, sections 5.2 and 5.5: "read/write ratio is 2:1").
const READS_PER_WRITE: u64 = 2;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    File,
    Mail,
}

/// A pool of files, read and added to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePool {
    pub(crate) server: Server,
    /// Files before the start.
    pub(crate) files: u64,
    pub(crate) directories: u64,
    /// Files read or made by each thread before it ends.
    pub(crate) transactions: u64,
    /// Bytes of a read or write call.
    pub(crate) block: u64,
}

impl FilePool {
    /// The paper's numbers. Section 5.4 has 262,144 files, 30 a directory, as many transactions; section 5.5 a million
    /// files in 1000 directories, as many transactions, requests of 4 KiB. The file server's request size is not in the
    /// paper; 32 KiB is what NFS clients of its time ask for at most by default.
    pub(crate) fn of_the_paper(server: Server) -> FilePool {
        match server {
            Server::File => {
                FilePool { server, files: 262_144, directories: 8_738, transactions: 262_144, block: 32 * KIB }
            }
            Server::Mail => {
                FilePool { server, files: 1_000_000, directories: 1_000, transactions: 1_000_000, block: 4 * KIB }
            }
        }
    }

    fn sizes(&self) -> &'static [(u64, u32)] {
        match self.server {
            Server::File => FILE_SERVER_SIZES,
            Server::Mail => MAIL_SIZES,
        }
    }

    /// The size that a file has once it is complete: drawn for this file alone, so nothing is remembered.
    fn size(&self, seed: u64, file: FileIndex) -> u64 {
        *Random::new(seed, Purpose::FileSize, file.0).weighted(self.sizes())
    }
}

impl Design for FilePool {
    fn file_count(&self, _common: &Common) -> u64 {
        self.files
    }

    fn file(&self, _common: &Common, seed: u64, file: FileIndex) -> FileSpec {
        let path = format!("d{}/f{}", file.0 % self.directories, file.0);
        match file.0 < self.files {
            true => FileSpec::filled(path, self.size(seed, file)),
            false => FileSpec::with(path, 0, Before::Absent),
        }
    }

    fn directory_count(&self, _common: &Common) -> u64 {
        self.directories
    }

    fn directory(&self, directory: DirectoryIndex) -> String {
        format!("d{}", directory.0)
    }

    fn thread(&self, _common: &Common, thread: u32) -> ThreadSpec {
        ThreadSpec::new(format!("server.{thread}"), Vec::new())
    }

    fn program(&self, common: &Common, seed: u64, thread: u32) -> Program {
        Box::new(PoolThread {
            design: self.clone(),
            common: common.clone(),
            pace: common.pace(),
            seed,
            left: self.transactions,
            made: FileIndex(self.files + u64::from(thread)),
            count: 0,
        })
    }
}

struct PoolThread {
    design: FilePool,
    common: Common,
    pace: Pace,
    seed: u64,
    /// Transactions to come.
    left: u64,
    /// The next file to make.
    made: FileIndex,
    /// Files made.
    count: u64,
}

impl Generator for PoolThread {
    fn next(&mut self, random: &mut Random, _taken: u64, script: &mut Script) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let is_read = random.below(READS_PER_WRITE + 1) < READS_PER_WRITE;
        script.begin(self.pace.next(random));
        let file = if is_read { FileIndex(random.below(self.design.files)) } else { self.made };
        script.call(if is_read { Action::Open { file } } else { Action::Create { file } });
        script.sweep(file, is_read, 0..self.design.size(self.seed, file), self.design.block);
        if !is_read {
            self.made.0 += u64::from(THREADS_MAX);
            self.count += 1;
            if let Some(sync) = self.common.sync.filter(|sync| self.count.is_multiple_of(sync.every)) {
                script.call(sync.action(file));
            }
        }
        script.call(Action::Close { file });
        script.end();
        script.sleep(self.pace.think());
    }
}
