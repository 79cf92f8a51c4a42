//! Makes a case that fails smaller, as long as it fails.

use super::case::{Case, Look, Step};
use super::look::Tally;
use super::play::{Found, play, simpler};
use super::quietly;

/// Smaller cases that are tried.
const TRIES_MAX: usize = 3000;

struct Shrinker {
    case: Case,
    found: Found,
    tries: usize,
}

impl Shrinker {
    /// Takes `case` if it fails, too.
    fn try_this(&mut self, case: Case) -> bool {
        self.tries += 1;
        match quietly(|| play(&case, &mut Tally::default(), |_| {})) {
            Ok(()) => false,
            Err(found) => {
                (self.case, self.found) = (case, found);
                true
            }
        }
    }

    fn with_steps(&self, steps: Vec<Step>) -> Case {
        Case { steps, ..self.case.clone() }
    }

    /// Leaves out as many steps at once as possible, then fewer.
    fn steps(&mut self) {
        let mut length = self.case.steps.len() / 2;
        while length > 0 {
            let mut from = 0;
            while from < self.case.steps.len() && self.tries < TRIES_MAX {
                let mut steps = self.case.steps.clone();
                steps.drain(from..steps.len().min(from + length));
                let case = self.with_steps(steps);
                if !self.try_this(case) {
                    from += length;
                }
            }
            length /= 2;
        }
    }

    /// Nothing is looked at but where it fails: then all else is quick.
    fn last_look(&mut self) {
        let mut steps = self.case.steps.clone();
        let last = steps.len().saturating_sub(1);
        steps[..last].iter_mut().for_each(|step| step.look = Look::No);
        let case = self.with_steps(steps);
        self.try_this(case);
    }

    fn looks(&mut self) {
        for at in 0..self.case.steps.len() {
            let mut steps = self.case.steps.clone();
            if std::mem::replace(&mut steps[at].look, Look::No) != Look::No {
                let case = self.with_steps(steps);
                self.try_this(case);
            }
        }
    }

    fn setup(&mut self) {
        for setup in simpler(&self.case.setup) {
            let case = Case { setup, ..self.case.clone() };
            self.try_this(case);
        }
    }
}

/// A case that fails and of which, as a rule, no step can be left out; and how it fails.
pub fn shrink(case: Case, found: Found) -> (Case, Found) {
    let mut shrinker = Shrinker { case, found, tries: 0 };
    // What comes after the failure is of no account.
    let until = shrinker.case.steps.len().min(shrinker.found.step + 1);
    let first = shrinker.with_steps(shrinker.case.steps[..until].to_vec());
    shrinker.try_this(first);
    shrinker.last_look();
    loop {
        let before = shrinker.case.steps.len();
        shrinker.steps();
        shrinker.setup();
        if shrinker.case.steps.len() == before || shrinker.tries >= TRIES_MAX {
            break;
        }
    }
    shrinker.looks();
    (shrinker.case, shrinker.found)
}
