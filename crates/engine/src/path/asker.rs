//! Where the answer of a request goes.

/// The maker of a request, which gets its answer: a front end or a part of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A front end, by its number, and its own name for the request.
    FrontEnd(u32, u64),
    /// The volume's cache, and the first of the store operations that make up the request.
    Cache(u32),
    /// Reading ahead for a session of the volume, into one of the session's slots.
    ReadAhead { session: u32, slot: u32 },
}

impl Asker {
    /// The front end and its name for the request, if a front end made it.
    pub(crate) fn front_end(self) -> Option<(u32, u64)> {
        match self {
            Asker::FrontEnd(number, token) => Some((number, token)),
            Asker::Cache(_) | Asker::ReadAhead { .. } => None,
        }
    }

    /// Whether the cache before the volume made it.
    pub(crate) fn is_cache(self) -> bool {
        matches!(self, Asker::Cache(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break: a cache's operation is taken for the request of the front end with that number.
    #[test]
    fn a_request_of_the_engine_itself_is_of_no_front_end() {
        let askers = [Asker::FrontEnd(u32::MAX, 7), Asker::Cache(u32::MAX), Asker::ReadAhead { session: 0, slot: 7 }];
        assert_eq!(askers.map(Asker::front_end), [Some((u32::MAX, 7)), None, None]);
        assert_eq!(askers.map(Asker::is_cache), [false, true, false]);
    }
}
