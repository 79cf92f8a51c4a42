//! Returns from calls that gates notify are told only while there are gates.
//!
//! The kernel reports the end of every system call of the machine or of none. With the reports each call takes a fifth
//! of a microsecond longer. A thread in a call that was let in came through a listener. So reports are off until there
//! is a listener, and when the last one has been gone for a while.

/// Looks in a row that find no listener, after which nothing is told any more.
const QUIET_LOOKS: u32 = 10;

/// Whether returns are told.
#[derive(Default)]
pub(crate) struct Returns {
    are_told: bool,
    quiet_looks: u32,
}

impl Returns {
    /// A new listener is there. Returns whether returns are told from now on, if that changes.
    pub fn listener_came(&mut self) -> Option<bool> {
        self.quiet_looks = 0;
        (!std::mem::replace(&mut self.are_told, true)).then_some(true)
    }

    /// Looks whether a thread can be in a call. Returns whether returns are told from now on, if that changes.
    pub fn look(&mut self, has_listeners: bool) -> Option<bool> {
        self.quiet_looks = if has_listeners { 0 } else { self.quiet_looks.saturating_add(1) };
        let ends = self.are_told && self.quiet_looks >= QUIET_LOOKS;
        self.are_told &= !ends;
        ends.then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Red if looks that found a thread between are counted too, and if it ends more than once.
    #[test]
    fn they_are_told_from_the_first_listener_on_until_there_has_been_none_for_a_while() {
        let mut returns = Returns::default();
        assert_eq!((0..20).find_map(|_| returns.look(false)), None);
        assert_eq!((returns.listener_came(), returns.listener_came()), (Some(true), None));
        assert_eq!((0..20).find_map(|_| returns.look(true)), None);
        assert_eq!((1..QUIET_LOOKS).find_map(|_| returns.look(false)), None);
        assert_eq!(returns.look(true), None);
        assert_eq!((1..QUIET_LOOKS).find_map(|_| returns.look(false)), None);
        assert_eq!((returns.look(false), returns.look(false)), (Some(false), None));
        assert_eq!(returns.listener_came(), Some(true));
    }
}
