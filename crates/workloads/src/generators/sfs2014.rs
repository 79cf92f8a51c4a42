//! SFS2014-like: the four workloads of the SPEC SFS 2014 benchmark as the request-executor paper runs them (its Table
//! 5).
//!
//! Load is in the benchmark's own units: databases, builds, streams, desktops. Each unit has its components. A
//! component is threads that do so many operations a second, evenly spaced, one after the other, on the unit's files.
//!
//! **Sources.** *Table 5*: what the paper's Table 5 says, which always wins. *Guide*: SPEC SFS 2014 User's Guide. It
//! has the operation mix and read sizes of DATABASE, and 24 GB a database, 5 GB a build, 24 GB a stream, 12 GB a
//! desktop. *Ours*: what neither says, chosen so that the parts add up to a hundred. So this is *like* SFS2014 and
//! never a SPEC result.

use crate::design::{Common, Design};
use crate::file::{Before, FileSpec};
use crate::pace::{Arrivals, Pace};
use crate::random::Random;
use crate::script::{Generator, Program, Script, transfer};
use crate::step::{Action, DirectoryIndex, FileIndex};
use crate::thread::{THREADS_MAX, ThreadSpec};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Offsets of random calls and lengths of all calls are multiples of this, bytes: the smallest transfer of Table 5.
const ALIGNMENT: u64 = 512;
/// Files in a directory. Ours: SPEC SFS 2008's 30 (paper 003, section 5.4).
const FILES_PER_DIRECTORY: u64 = 30;
/// Directories that threads make are numbered from here, files from `FIRST_MADE`: above all that are prepared.
const FIRST_MADE: u64 = 1 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    ReadOn,
    ReadRandom,
    ReadFile,
    WriteOn,
    WriteRandom,
    WriteFile,
    Stat,
    Access,
    SetAttributes,
    MakeDirectory,
    ReadDirectory,
    Create,
    Unlink,
}

/// Lengths: from, to (bytes, both included), and per cent.
type Lengths = &'static [((u64, u64), u32)];

/// A part of a workload.
#[derive(Debug)]
struct Component {
    name: &'static str,
    /// Threads for each unit of load.
    threads: u32,
    /// Operations per second of each thread.
    per_second: f64,
    /// Files for each unit of load, and bytes of each.
    files: u64,
    file_bytes: u64,
    /// Operations, in per cent.
    mix: &'static [(Operation, u32)],
    reads: Lengths,
    writes: Lengths,
}

/// 266 operations a second and database. Ours, as are 10 + 2 files and the split into threads; their sum is the
/// guide's 24 GB. Mix: Table 5 (79 % and 20 %; 80 % and 20 %) and guide (1 % sequential reads). Reads: Table 5 (99 %
/// 8 KB), guide (1 % 1 MB). Writes: Table 5 (100 % 8 KB; half of the log's 8 KB or more; ours: which).
const DATABASE: &[Component] = &[
    Component {
        name: "table",
        threads: 5,
        per_second: 50.0,
        files: 10,
        file_bytes: 2 * GIB,
        mix: &[(Operation::ReadOn, 1), (Operation::ReadRandom, 79), (Operation::WriteRandom, 20)],
        reads: &[((8 * KIB, 8 * KIB), 99), ((MIB, MIB), 1)],
        writes: &[((8 * KIB, 8 * KIB), 100)],
    },
    Component {
        name: "log",
        threads: 1,
        per_second: 16.0,
        files: 2,
        file_bytes: 2 * GIB,
        mix: &[(Operation::WriteOn, 80), (Operation::WriteRandom, 20)],
        reads: &[((8 * KIB, 8 * KIB), 100)],
        writes: &[((512, 4 * KIB), 50), ((8 * KIB, 32 * KIB), 50)],
    },
];

/// 500 operations a second and build in five threads, 60,000 files of 16 KiB: ours (guide: "several tens of thousands
/// of files"). Mix: Table 5 (70 % stat); the other 30 %: ours. Reads: Table 5 (45 % of 4 to 8 KB). Writes: Table 5 (39
/// % of 1 to 8 KB, 36 % of 64 to 128 KB). The others: ours.
const BUILD: &[Component] = &[Component {
    name: "build",
    threads: 5,
    per_second: 100.0,
    files: 60_000,
    file_bytes: 16 * KIB,
    mix: &[
        (Operation::Stat, 70),
        (Operation::ReadFile, 6),
        (Operation::WriteFile, 7),
        (Operation::Access, 6),
        (Operation::SetAttributes, 5),
        (Operation::MakeDirectory, 1),
        (Operation::ReadDirectory, 2),
        (Operation::Create, 1),
        (Operation::Unlink, 2),
    ],
    reads: &[((4 * KIB, 8 * KIB), 45), ((KIB, 3584), 20), ((8704, 32 * KIB), 25), ((33 * KIB, 128 * KIB), 10)],
    writes: &[((KIB, 8 * KIB), 39), ((64 * KIB, 128 * KIB), 36), ((8704, 63 * KIB), 25)],
}];

/// 10 operations a second and stream (9 of data, 1 of companions) and 12 + 12 files of 1 GiB: ours. The sum is the
/// guide's 24 GB. Mix: Table 5 (100 % sequential writes; 84 % random reads; the other 16 %: ours). Writes: Table 5 (95
/// % of 64 KB or more); reads: Table 5 (all of 64 KB or more); up to how much: ours.
const VIDEO: &[Component] = &[
    Component {
        name: "data",
        threads: 1,
        per_second: 9.0,
        files: 12,
        file_bytes: GIB,
        mix: &[(Operation::WriteOn, 100)],
        reads: &[((64 * KIB, MIB), 100)],
        writes: &[((32 * KIB, 63 * KIB), 5), ((64 * KIB, MIB), 95)],
    },
    Component {
        name: "companion",
        threads: 1,
        per_second: 1.0,
        files: 12,
        file_bytes: GIB,
        mix: &[
            (Operation::ReadRandom, 84),
            (Operation::ReadOn, 8),
            (Operation::Stat, 4),
            (Operation::Access, 2),
            (Operation::ReadDirectory, 2),
        ],
        reads: &[((64 * KIB, MIB), 100)],
        writes: &[((64 * KIB, MIB), 100)],
    },
];

/// 200 operations a second and desktop in two threads, 12 files of 1 GiB: ours; the sum is the guide's 12 GB. Mix:
/// Table 5 (20 % random reads, 64 % random writes); the other 16 %: ours. Reads: Table 5 (59 % of 16 to 32 KB). Writes:
/// Table 5 (71 % of at most 4 KB, of which 21 % are 0.5 KB). The others: ours.
const DESKTOP: &[Component] = &[Component {
    name: "desktop",
    threads: 2,
    per_second: 100.0,
    files: 12,
    file_bytes: GIB,
    mix: &[
        (Operation::ReadRandom, 20),
        (Operation::WriteRandom, 64),
        (Operation::ReadOn, 6),
        (Operation::WriteOn, 9),
        (Operation::Stat, 1),
    ],
    reads: &[((16 * KIB, 32 * KIB), 59), ((512, 4 * KIB), 20), ((4608, 15 * KIB), 15), ((33 * KIB, 64 * KIB), 6)],
    writes: &[((512, 512), 21), ((KIB, 4 * KIB), 50), ((4608, 16 * KIB), 20), ((17 * KIB, 64 * KIB), 9)],
}];

/// Which of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Database,
    Build,
    Video,
    Desktop,
}

impl Kind {
    fn components(self) -> &'static [Component] {
        match self {
            Kind::Database => DATABASE,
            Kind::Build => BUILD,
            Kind::Video => VIDEO,
            Kind::Desktop => DESKTOP,
        }
    }

    pub(crate) fn threads_per_load(self) -> u32 {
        self.components().iter().map(|component| component.threads).sum()
    }
}

/// An SFS2014-like load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sfs2014 {
    pub(crate) kind: Kind,
    /// Databases, builds, streams or desktops.
    pub(crate) load: u32,
}

/// A thread's place: its component, its number among the component's threads, and the first of its files.
struct Place {
    component: &'static Component,
    number: u32,
    first_file: u64,
}

impl Sfs2014 {
    fn files_per_load(&self) -> u64 {
        self.kind.components().iter().map(|component| component.files).sum()
    }

    fn place(&self, thread: u32) -> Place {
        let per_load = self.kind.threads_per_load();
        let (load, mut number) = (thread / per_load, thread % per_load);
        let mut first_file = u64::from(load) * self.files_per_load();
        for component in self.kind.components() {
            if number < component.threads {
                return Place { component, number: load * component.threads + number, first_file };
            }
            number -= component.threads;
            first_file += component.files;
        }
        unreachable!("a thread is below the sum of the components' threads")
    }

    fn file_bytes(&self, file: u64) -> u64 {
        let mut number = file % self.files_per_load();
        for component in self.kind.components() {
            if number < component.files {
                return component.file_bytes;
            }
            number -= component.files;
        }
        unreachable!("a file is below the sum of the components' files")
    }
}

impl Design for Sfs2014 {
    fn file_count(&self, _common: &Common) -> u64 {
        u64::from(self.load) * self.files_per_load()
    }

    fn file(&self, _common: &Common, _seed: u64, file: FileIndex) -> FileSpec {
        if file.0 >= FIRST_MADE {
            return FileSpec::with(format!("d0/new{}", file.0 - FIRST_MADE), 0, Before::Absent);
        }
        FileSpec::filled(format!("d{}/f{}", file.0 / FILES_PER_DIRECTORY, file.0), self.file_bytes(file.0))
    }

    fn directory_count(&self, common: &Common) -> u64 {
        self.file_count(common).div_ceil(FILES_PER_DIRECTORY)
    }

    fn thread_count(&self, _common: &Common) -> u32 {
        self.load * self.kind.threads_per_load()
    }

    fn thread(&self, _common: &Common, thread: u32) -> ThreadSpec {
        let Place { component, number, .. } = self.place(thread);
        ThreadSpec::new(format!("{}.{number}", component.name), Vec::new())
    }

    fn program(&self, _common: &Common, _seed: u64, thread: u32) -> Program {
        let Place { component, first_file, .. } = self.place(thread);
        let made = FIRST_MADE + u64::from(thread);
        Box::new(OperationThread {
            component,
            first_file,
            pace: Pace::new(Arrivals::Even { per_second: component.per_second }, None),
            read_position: 0,
            write_position: 0,
            oldest: made,
            next_file: made,
            next_directory: made,
        })
    }
}

struct OperationThread {
    component: &'static Component,
    first_file: u64,
    pace: Pace,
    /// Where the last sequential read and write ended, counted through all files of the component.
    read_position: u64,
    write_position: u64,
    /// The files that this thread has made and not removed: `oldest` up to before `next_file`, in strides.
    oldest: u64,
    next_file: u64,
    next_directory: u64,
}

/// A length by the table, a multiple of the alignment.
fn draw_length(lengths: Lengths, random: &mut Random) -> u64 {
    let &(from, to) = random.weighted(lengths);
    from + random.below((to - from) / ALIGNMENT + 1) * ALIGNMENT
}

impl OperationThread {
    fn any_file(&self, random: &mut Random) -> FileIndex {
        FileIndex(self.first_file + random.below(self.component.files))
    }

    /// The place of a sequential call: on in the same file, or at the start of the next one.
    fn on(&mut self, is_read: bool, length: u64) -> (FileIndex, u64) {
        let Component { files, file_bytes, .. } = *self.component;
        let position = if is_read { &mut self.read_position } else { &mut self.write_position };
        if *position % file_bytes + length > file_bytes {
            *position = position.next_multiple_of(file_bytes);
        }
        *position %= files * file_bytes;
        let place = (FileIndex(self.first_file + *position / file_bytes), *position % file_bytes);
        *position += length;
        place
    }

    /// One call on a file between its opening and closing.
    fn transfer(&self, file: FileIndex, is_read: bool, offset: u64, length: u64, script: &mut Script) {
        script.call(Action::Open { file });
        script.call(transfer(is_read, file, offset, length));
        script.call(Action::Close { file });
    }

    /// A new file. An unlink with nothing to remove makes one, so that its thread does not run out of files to remove.
    fn make(&mut self, script: &mut Script) {
        let file = FileIndex(self.next_file);
        script.call(Action::Create { file });
        script.call(Action::Close { file });
        self.next_file += u64::from(THREADS_MAX);
    }

    fn write(&mut self, operation: Operation, random: &mut Random, script: &mut Script) {
        let length = draw_length(self.component.writes, random);
        match operation {
            Operation::WriteOn => {
                let (file, offset) = self.on(false, length);
                self.transfer(file, false, offset, length, script);
            }
            Operation::WriteFile => {
                let file = self.any_file(random);
                script.call(Action::Open { file });
                script.call(Action::Truncate { file, length: 0 });
                script.call(transfer(false, file, 0, length));
                script.call(Action::Close { file });
            }
            _ => {
                let places = (self.component.file_bytes - length) / ALIGNMENT + 1;
                let offset = random.below(places) * ALIGNMENT;
                self.transfer(self.any_file(random), false, offset, length, script);
            }
        }
    }

    fn read(&mut self, operation: Operation, random: &mut Random, script: &mut Script) {
        let length = draw_length(self.component.reads, random);
        match operation {
            Operation::ReadOn => {
                let (file, offset) = self.on(true, length);
                self.transfer(file, true, offset, length, script);
            }
            Operation::ReadFile => self.transfer(self.any_file(random), true, 0, length, script),
            _ => {
                let places = (self.component.file_bytes - length) / ALIGNMENT + 1;
                let offset = random.below(places) * ALIGNMENT;
                self.transfer(self.any_file(random), true, offset, length, script);
            }
        }
    }
}

impl Generator for OperationThread {
    fn next(&mut self, random: &mut Random, _taken: u64, script: &mut Script) {
        script.begin(self.pace.next(random));
        let operation = *random.weighted(self.component.mix);
        match operation {
            Operation::ReadOn | Operation::ReadRandom | Operation::ReadFile => self.read(operation, random, script),
            Operation::WriteOn | Operation::WriteRandom | Operation::WriteFile => self.write(operation, random, script),
            Operation::Stat => script.call(Action::Stat { file: self.any_file(random) }),
            Operation::Access => {
                let file = self.any_file(random);
                script.call(Action::Open { file });
                script.call(Action::Close { file });
            }
            Operation::SetAttributes => script.call(Action::SetAttributes { file: self.any_file(random) }),
            Operation::MakeDirectory => {
                script.call(Action::MakeDirectory { directory: DirectoryIndex(self.next_directory) });
                self.next_directory += u64::from(THREADS_MAX);
            }
            Operation::ReadDirectory => {
                let file = self.any_file(random);
                script.call(Action::ReadDirectory { directory: DirectoryIndex(file.0 / FILES_PER_DIRECTORY) });
            }
            Operation::Create => self.make(script),
            Operation::Unlink if self.oldest < self.next_file => {
                script.call(Action::Unlink { file: FileIndex(self.oldest) });
                self.oldest += u64::from(THREADS_MAX);
            }
            Operation::Unlink => self.make(script),
        }
        script.end();
    }
}
