//! Accounts with a bound on their part of a cache: the nearest account with a bound, from a session up. Sessions have a
//! number behind their names, `loader#3`; all of one name have one bound together.

use crate::cache::{CacheSettings, numbered};
use plimsoll_cache::Pool;
use plimsoll_core::{AccountId, AccountTree};

/// The pools of a cache that have a bound.
pub(super) struct BoundedPools {
    pools: Vec<(String, Pool)>,
    /// The pool of each session, by number. A number that is used again is [forgotten](Self::forget).
    of: Vec<Option<Pool>>,
}

impl BoundedPools {
    pub fn new(settings: &CacheSettings) -> BoundedPools {
        let numbered = numbered(settings.pools.iter().map(|(path, _)| &**path)).into_iter();
        BoundedPools { pools: numbered.map(|(path, pool)| (path.to_owned(), pool)).collect(), of: Vec::new() }
    }

    /// Each path with its pool.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Pool)> {
        self.pools.iter().map(|(path, pool)| (&**path, *pool))
    }

    /// What a session's blocks count for. O(1), but for the first time O(depth x pools with a bound).
    pub fn of(&mut self, tree: &AccountTree, session: AccountId) -> Pool {
        if self.pools.is_empty() {
            return Pool::default();
        }
        if self.of.len() <= session.index() {
            self.of.resize(session.index() + 1, None);
        }
        *self.of[session.index()].get_or_insert_with(|| nearest(&self.pools, tree, session))
    }

    /// A new account has that number now.
    pub fn forget(&mut self, account: AccountId) {
        if let Some(of) = self.of.get_mut(account.index()) {
            *of = None;
        }
    }
}

fn nearest(pools: &[(String, Pool)], tree: &AccountTree, session: AccountId) -> Pool {
    let up = std::iter::successors(tree.get(session), |account| tree.get(account.parent?));
    let mut found = up.filter_map(|account| {
        let path = tree.path(account.id);
        let named = path.rsplit_once('#').map_or(&*path, |(before, _)| before);
        pools.iter().find(|(bounded, _)| *bounded == path || *bounded == named).map(|(_, pool)| *pool)
    });
    found.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::shares::tests::device;
    use super::*;
    use plimsoll_core::{AccountKind, Allocation};

    /// Planted breaks that were seen red: only the session itself counts; a number that is given out anew stays the
    /// old account's.
    /// Promise: cache-pool-bound.
    #[test]
    fn the_nearest_bound_counts_and_an_account_with_an_old_number_is_looked_up_anew() {
        let mut tree = AccountTree::new(device());
        let open = |tree: &mut AccountTree, parent, name: &str, kind| {
            tree.open(parent, name, kind, Allocation::default()).unwrap()
        };
        let web = open(&mut tree, AccountId::ROOT, "web", AccountKind::Pool);
        let volume = open(&mut tree, web, "db", AccountKind::Pool);
        let loader = open(&mut tree, volume, "loader#1", AccountKind::Pool);
        let connection = open(&mut tree, loader, "nbd#2", AccountKind::Session);
        let other = open(&mut tree, volume, "nbd#3", AccountKind::Session);
        let backup = open(&mut tree, AccountId::ROOT, "backup", AccountKind::Session);
        let bounded = ["web", "web/db/loader"].map(|path| (path.to_owned(), 0.5));
        let numbers = numbered(bounded.iter().map(|(path, _)| &**path));
        let pool = |path: &str| numbers.iter().find(|(of, _)| *of == path).unwrap().1;
        let pools = numbers.iter().map(|(path, pool)| ((*path).to_owned(), *pool)).collect();
        let mut pools = BoundedPools { pools, of: Vec::new() };
        assert_eq!(pools.of(&tree, connection), pool("web/db/loader"));
        assert_eq!(pools.of(&tree, other), pool("web"));
        assert_eq!(pools.of(&tree, backup), Pool::default());
        tree.close(other).unwrap();
        let new = open(&mut tree, AccountId::ROOT, "new", AccountKind::Session);
        assert_eq!(new, other, "the number is used again");
        pools.forget(new);
        assert_eq!(pools.of(&tree, new), Pool::default());
    }
}
