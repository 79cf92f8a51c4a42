//! A case of the search: a setup and a list of steps, all of it made from one number. A step means something whatever
//! the steps before it are, so that a case stays one when some are left out.

use super::faults::{Bad, Rate};
use super::{FOUND_BEFORE_RANGES, FOUND_BEFORE_S3_FIFO, FOUND_ONCE};
use crate::rig::{Random, Setup};
use plimsoll_cache::store::{Action, Depth, RequestKind, Semantics, Target};
use std::fmt;

const POLICIES: [&str; 4] = ["lru", "selective", "credit", "s3_fifo"];

/// The policies of a case. The seeds that found something before there was `s3_fifo` stay the cases that they were.
fn policies(seed: u64) -> &'static [&'static str] {
    if FOUND_ONCE[..FOUND_BEFORE_S3_FIFO].contains(&seed) { &POLICIES[..3] } else { &POLICIES }
}

const ACTIONS: [Action; 3] = [Action::Read, Action::Write, Action::Flush];

/// How much of what was not flushed a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    Nothing,
    All,
    /// Each write or not, by chance.
    Some,
    /// The same, and some writes are torn at 512 bytes.
    Torn,
}

/// How a run ends before it starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The program dies.
    Kill,
    /// The power fails, for both devices.
    Power { cache: Keep, store: Keep },
}

/// How a moment is looked at: so many crashes are tried, and the run goes on as if there had been none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    No,
    /// Nothing and all of each device.
    Four,
    /// Some of each, torn, and a kill.
    Some {
        tries: u64,
    },
    /// As well in the start after it, and in the start after that.
    Deep,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A request, with the class and the pool that `shift` and `pool` say.
    Ask {
        kind: RequestKind,
        block: u64,
        sectors: u8,
        shift: u64,
        pool: u16,
    },
    /// A trim of several blocks, as one request if the cache has nothing of them.
    TrimRange {
        block: u64,
        blocks: u64,
    },
    /// An operation ends: the first of that kind if there is one, else the one at this place.
    End {
        prefer: Option<(Target, Action)>,
        place: u64,
    },
    CleanAll,
    CleanNoMore,
    Policy {
        name: &'static str,
        higher: u32,
        promotes: bool,
    },
    Semantics(Semantics),
    Rate(Rate),
    Bad(Bad),
    /// Nothing fails any more.
    Heal,
    /// Everything is answered and the cache is closed; so many operations of that end.
    Close {
        operations: u64,
    },
    /// The run ends and starts again, after so many starts in which the power fails.
    Restart {
        way: Way,
        nested: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub what: What,
    pub look: Look,
    /// For whatever is left to chance in it.
    pub seed: u64,
}

#[derive(Clone)]
pub struct Case {
    pub seed: u64,
    pub setup: Setup,
    pub steps: Vec<Step>,
}

/// How likely what is in a case.
struct Mix {
    trims: u64,
    /// Half of all requests are for so many blocks.
    hot: u64,
    /// The device that is slow, and how much, of 16.
    slow: Option<(Target, u64)>,
    restarts: u64,
    faults: u64,
    /// Of so many steps one is looked at.
    every: u64,
    policies: &'static [&'static str],
}

/// When a write is acknowledged.
const SEMANTICS: [Semantics; 3] = [Semantics::Strict, Semantics::WriteCache, Semantics::WriteThrough];

fn one<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

fn setup_of(policies: &[&'static str], random: &mut Random) -> (Setup, bool) {
    let semantics = one(random, &SEMANTICS);
    let policy = one(random, policies);
    let (units, store_blocks, is_wide) = match random.below(12) {
        0..4 => (5 + random.below(9) as u32, 8 + random.below(20), false),
        4..10 => (6 + random.below(24) as u32, 10 + random.below(50), false),
        10 => (30 + random.below(60) as u32, 20 + random.below(100), false),
        _ => (406 + random.below(500) as u32, 60 + random.below(500), true),
    };
    let depth = Depth { requests: 2 + random.below(14) as u32, cleaning: 1 + random.below(8) as u32 };
    let journal_blocks = 16 + random.below(6) as u32;
    let has_bounds = random.below(3) == 0;
    let setup = Setup { units, store_blocks, depth, journal_blocks, has_bounds, ..Setup::small(policy, semantics) };
    (setup, is_wide)
}

impl Case {
    pub fn new(seed: u64) -> Case {
        let mut random = Random(seed.wrapping_mul(0x9e6c_63d0_876a_68d5) ^ 0x5eed);
        let policies = policies(seed);
        let (setup, is_wide) = setup_of(policies, &mut random);
        let slow = one(&mut random, &[None, Some(Target::Store), Some(Target::Store), Some(Target::Cache)]);
        let mix = Mix {
            trims: random.below(30),
            hot: 1 + random.below((setup.store_blocks / 4).max(2)),
            slow: slow.map(|target| (target, 4 + random.below(12))),
            restarts: if random.below(2) == 0 { 3 + random.below(25) } else { 0 },
            faults: if random.below(3) == 0 { 4 + random.below(30) } else { 0 },
            every: one(&mut random, if is_wide { &[12, 200] } else { &[1, 5, 25, 100, 400] }),
            policies,
        };
        let count = 80 + random.below(if is_wide { 700 } else { 400 });
        let mut steps: Vec<Step> = (0..count).map(|at| mix.step(at, &setup, &mut random)).collect();
        if !FOUND_ONCE[..FOUND_BEFORE_RANGES].contains(&seed) {
            make_ranges(&mut steps, &mut random);
        }
        Case { seed, setup, steps }
    }
}

/// Makes some trims longer. The seeds that found something before there were ranges stay the cases that they were.
fn make_ranges(steps: &mut [Step], random: &mut Random) {
    for step in steps {
        if let What::Ask { kind: RequestKind::Trim, block, .. } = step.what
            && random.below(3) > 0
        {
            step.what = What::TrimRange { block, blocks: 2 + random.below(12) };
        }
    }
}

impl Mix {
    fn step(&self, at: u64, setup: &Setup, random: &mut Random) -> Step {
        let what = match random.below(1000) {
            n if n < self.restarts => self.restart(random),
            n if n < 60 && n >= 60 - self.faults => self.fault(setup, random),
            60..70 => What::CleanAll,
            70..72 => What::CleanNoMore,
            72..78 => {
                let (name, higher) = (one(random, self.policies), random.below(3) as u32);
                What::Policy { name, higher, promotes: random.below(4) > 0 }
            }
            78..80 => What::Semantics(one(random, &SEMANTICS)),
            80..83 => What::Close { operations: random.below(80) },
            83..480 => self.ask(setup, random),
            _ => self.end(random),
        };
        Step { what, look: self.look(at, random), seed: random.below(u64::MAX) }
    }

    fn look(&self, at: u64, random: &mut Random) -> Look {
        match random.below(50) {
            _ if !at.is_multiple_of(self.every) => Look::No,
            0 => Look::Deep,
            1..8 => Look::Some { tries: 1 + random.below(6) },
            _ => Look::Four,
        }
    }

    fn ask(&self, setup: &Setup, random: &mut Random) -> What {
        let is_hot = random.below(2) == 0;
        let block = random.below(if is_hot { self.hot } else { setup.store_blocks });
        let kind = match random.below(60) {
            n if n < self.trims => RequestKind::Trim,
            47..=54 => RequestKind::Read,
            55..=59 => RequestKind::Flush,
            _ => RequestKind::Write,
        };
        let sectors = match random.below(6) {
            0 if kind != RequestKind::Trim => {
                let first = random.below(8);
                let count = 1 + random.below(8 - first);
                (((1u32 << count) - 1) << first) as u8
            }
            _ => u8::MAX,
        };
        let shift = if random.below(8) == 0 { random.below(4) } else { 0 };
        What::Ask { kind, block, sectors, shift, pool: one(random, &[0, 0, 0, 1]) }
    }

    fn end(&self, random: &mut Random) -> What {
        let place = random.below(1 << 16);
        let prefer = match self.slow {
            Some((slow, much)) if random.below(16) < much => {
                let fast = if slow == Target::Store { Target::Cache } else { Target::Store };
                Some((fast, one(random, &ACTIONS)))
            }
            _ => None,
        };
        What::End { prefer, place }
    }

    fn restart(&self, random: &mut Random) -> What {
        let keep = |random: &mut Random| one(random, &[Keep::Nothing, Keep::All, Keep::Some, Keep::Torn]);
        let way = match random.below(4) {
            0 => Way::Kill,
            _ => Way::Power { cache: keep(random), store: keep(random) },
        };
        What::Restart { way, nested: random.below(4) }
    }

    fn fault(&self, setup: &Setup, random: &mut Random) -> What {
        let part = 1 + random.below(3);
        match random.below(8) {
            0..3 => What::Heal,
            3 => {
                let action = one(random, &[Action::Write, Action::Trim, Action::Flush, Action::Read]);
                What::Rate(Rate { target: Target::Store, action, one_in: 1 + random.below(20) })
            }
            4 => What::Rate(Rate {
                target: Target::Cache,
                action: one(random, &[Action::Read, Action::Write, Action::Flush]),
                one_in: 10 + random.below(80),
            }),
            5 | 6 => {
                let first = random.below(setup.store_blocks);
                let action = one(random, &[Action::Write, Action::Write, Action::Read]);
                What::Bad(Bad { target: Target::Store, action, blocks: first..first + part })
            }
            _ => {
                let first = setup.first_unit() + random.below(u64::from(setup.units));
                What::Bad(Bad { target: Target::Cache, action: Action::Write, blocks: first..first + part })
            }
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { units, journal_blocks, store_blocks, policy, semantics, depth, has_bounds, .. } = &self.setup;
        write!(
            f,
            "{policy}, {semantics:?}, {units} units, {journal_blocks} blocks of journal, {store_blocks} of store, "
        )?;
        writeln!(f, "{} requests, {} copies, bounds: {has_bounds}", depth.requests, depth.cleaning)?;
        for (at, Step { what, look, seed }) in self.steps.iter().enumerate() {
            write!(f, "{at:4}  {what:?}")?;
            match look {
                Look::No => writeln!(f)?,
                look => writeln!(f, "   looked at: {look:?} (seed {seed})")?,
            }
        }
        Ok(())
    }
}
