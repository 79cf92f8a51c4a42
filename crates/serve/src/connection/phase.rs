//! How far a connection or a mount has come.

/// From its first request to its last answer. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Requests are heard.
    Open,
    /// No more are heard; those under way are answered, unless their session aborts them.
    Closing,
    /// Nothing is answered any more.
    Broken,
}
