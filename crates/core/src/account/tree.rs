//! The tree that a host keeps for each device: opens, changes and closes accounts, and admits reserves.

use super::members::Members;
use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The accounts of one device. Numbers are dense, and the lowest free one is assigned first. So the accounts that are
/// open at once fit the fast path of [`crate::CauseSet`]. Opening, changing and closing cost O(log accounts).
#[derive(Clone, Debug)]
pub struct AccountTree {
    device: DeviceProfile,
    slots: Vec<Option<Slot>>,
    /// Numbers below the highest that no account has.
    free: BinaryHeap<Reverse<u32>>,
}

#[derive(Clone, Debug)]
struct Slot {
    account: Account,
    /// Of a pool that has had any.
    members: Option<Box<Members>>,
}

impl AccountTree {
    /// A tree with only its root, which stands for `device` and has all of its worst-case rate.
    pub fn new(device: DeviceProfile) -> AccountTree {
        let root = Account {
            id: AccountId::ROOT,
            parent: None,
            name: device.name.clone(),
            kind: AccountKind::Pool,
            allocation: Allocation {
                reserve: Rate::RunsPerSecond(device.worst_case_runs_per_second),
                ..Allocation::default()
            },
        };
        AccountTree { device, slots: vec![Some(Slot { account: root, members: None })], free: BinaryHeap::new() }
    }

    /// The device that the root stands for.
    pub fn device(&self) -> &DeviceProfile {
        &self.device
    }

    /// The account numbered `id`, if it is open.
    pub fn get(&self, id: AccountId) -> Option<&Account> {
        Some(&self.slot(id)?.account)
    }

    fn slot(&self, id: AccountId) -> Option<&Slot> {
        self.slots.get(id.index())?.as_ref()
    }

    fn members(&self, id: AccountId) -> Option<&Members> {
        self.slot(id)?.members.as_deref()
    }

    /// The members of a pool that is open.
    fn members_mut(&mut self, pool: AccountId) -> &mut Members {
        let slot = self.slots[pool.index()].as_mut().expect("an account that has members is open");
        slot.members.get_or_insert_default()
    }

    /// Every open account, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Account> {
        self.slots.iter().flatten().map(|slot| &slot.account)
    }

    /// The open accounts directly in `parent`, by name.
    pub fn children(&self, parent: AccountId) -> impl Iterator<Item = &Account> {
        self.members(parent).into_iter().flat_map(Members::iter).filter_map(|member| self.get(member))
    }

    /// The names from below the root to `id`, joined by `/`; the root's own name for the root.
    pub fn path(&self, id: AccountId) -> String {
        match self.get(id).map(|account| (account, account.parent)) {
            None => format!("account {}", id.0),
            Some((account, None | Some(AccountId::ROOT))) => account.name.clone(),
            Some((account, Some(parent))) => format!("{}/{}", self.path(parent), account.name),
        }
    }

    /// The account with that [`path`](Self::path).
    pub fn find(&self, path: &str) -> Option<&Account> {
        self.find_in(AccountId::ROOT, path)
    }

    /// The account with that path below `pool`; a name may have a `/` in it.
    fn find_in(&self, pool: AccountId, path: &str) -> Option<&Account> {
        let members = self.members(pool)?;
        if let Some(member) = members.named(path) {
            return self.get(member);
        }
        let mut ends = path.match_indices('/').map(|(end, _)| end);
        ends.find_map(|end| self.find_in(members.named(&path[..end])?, &path[end + 1..]))
    }

    /// Runs per second that the members of `parent` were promised, leaving `except` out.
    pub fn promised(&self, parent: AccountId, except: Option<AccountId>) -> f64 {
        let except = except.and_then(|id| self.get(id)).filter(|account| account.parent == Some(parent));
        let except_runs_per_second = except.map_or(0.0, |account| self.reserve(account));
        self.members(parent).map_or(0.0, |members| members.promised(except_runs_per_second))
    }

    fn reserve(&self, account: &Account) -> f64 {
        account.allocation.reserve.runs_per_second(self.device.worst_case_runs_per_second)
    }

    /// Opens an account in `parent`.
    ///
    /// # Errors
    /// A name that a sibling has; a parent that is closed, a session or too deep; or an allocation out of range. Also a
    /// reserve that does not fit into the rest of its parent's.
    pub fn open(
        &mut self,
        parent: AccountId,
        name: &str,
        kind: AccountKind,
        allocation: Allocation,
    ) -> Result<AccountId, AccountError> {
        let path = match parent {
            AccountId::ROOT => name.to_owned(),
            _ => format!("{}/{name}", self.path(parent)),
        };
        match self.get(parent) {
            None => return Err(AccountError::Tree { path, problem: "the pool that it should be in is not open" }),
            Some(holder) if holder.kind == AccountKind::Session => {
                return Err(AccountError::Tree { path, problem: "a session cannot hold accounts" });
            }
            Some(_) if self.depth(parent) >= DEPTH_MAX => {
                return Err(AccountError::Tree { path, problem: "too deep, allowed are 16 levels" });
            }
            Some(_) => {}
        }
        if self.members(parent).is_some_and(|members| members.named(name).is_some()) {
            return Err(AccountError::Name { path });
        }
        self.admit(&path, parent, None, &allocation)?;
        let id = AccountId(self.free.pop().map_or(self.slots.len() as u32, |Reverse(lowest)| lowest));
        let account = Account { id, parent: Some(parent), name: name.to_owned(), kind, allocation };
        let reserve = self.reserve(&account);
        self.members_mut(parent).join(name, id, reserve);
        let slot = Some(Slot { account, members: None });
        match self.slots.get_mut(id.index()) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        Ok(id)
    }

    /// Changes what an open account was promised.
    ///
    /// # Errors
    /// As [`open`](Self::open), and a reserve below what the members of the account were promised.
    pub fn change(&mut self, id: AccountId, allocation: Allocation) -> Result<&Account, AccountError> {
        let path = self.path(id);
        let Some(&Account { parent: Some(parent), allocation: Allocation { reserve: before, .. }, .. }) = self.get(id)
        else {
            return Err(AccountError::Tree { path, problem: "only an open pool or session can be changed" });
        };
        self.admit(&path, parent, Some(id), &allocation)?;
        let asked = allocation.reserve.runs_per_second(self.device.worst_case_runs_per_second);
        let promised = self.promised(id, None);
        if promised > asked + ADMISSION_TOLERANCE_RUNS_PER_SECOND {
            return Err(AccountError::Members { path, asked, promised });
        }
        let before = before.runs_per_second(self.device.worst_case_runs_per_second);
        self.members_mut(parent).change(before, asked);
        let slot = self.slots[id.index()].as_mut().expect("found above");
        slot.account.allocation = allocation;
        Ok(&slot.account)
    }

    /// Closes an account; its number may be given out again.
    ///
    /// # Errors
    /// The root, an account that is not open, and a pool that still has members.
    pub fn close(&mut self, id: AccountId) -> Result<(), AccountError> {
        let problem = match self.slot(id) {
            Some(Slot { account: Account { parent: Some(_), .. }, members }) => {
                let is_empty = members.as_ref().is_none_or(|members| members.is_empty());
                (!is_empty).then_some("a pool with members cannot be closed")
            }
            _ => Some("only an open pool or session can be closed"),
        };
        if let Some(problem) = problem {
            return Err(AccountError::Tree { path: self.path(id), problem });
        }
        let Slot { account, .. } = self.slots[id.index()].take().expect("found above");
        let reserve = self.reserve(&account);
        self.members_mut(account.parent.expect("the root is not closed")).leave(&account.name, reserve);
        self.free.push(Reverse(id.0));
        Ok(())
    }

    fn depth(&self, id: AccountId) -> usize {
        let ancestors = std::iter::successors(self.get(id), |account| self.get(account.parent?));
        ancestors.count() - 1
    }

    fn admit(
        &self,
        path: &str,
        parent: AccountId,
        except: Option<AccountId>,
        allocation: &Allocation,
    ) -> Result<(), AccountError> {
        if let Some(problem) = allocation.problem(&self.device) {
            return Err(AccountError::Allocation { path: path.to_owned(), problem });
        }
        let asked = allocation.reserve.runs_per_second(self.device.worst_case_runs_per_second);
        let available = self.get(parent).map_or(0.0, |holder| self.reserve(holder));
        let promised = self.promised(parent, except);
        if asked > 0.0 && asked + promised > available + ADMISSION_TOLERANCE_RUNS_PER_SECOND {
            let parent = self.path(parent);
            return Err(AccountError::Admission { path: path.to_owned(), parent, asked, available, promised });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device() -> DeviceProfile {
        DeviceProfile {
            name: "disk0".into(),
            capacity_bytes: 120 << 30,
            worst_case_runs_per_second: 112.0,
            sequential_bytes_per_second: 50e6,
            sequential_write_bytes_per_second: 50e6,
            write_settle: Span::ZERO,
            is_rotational: true,
            outstanding_max: 10,
        }
    }

    fn reserve(percent: f64) -> Allocation {
        Allocation { reserve: Rate::DevicePercent(percent), ..Allocation::default() }
    }

    /// Promise: accounts-refusal.
    #[test]
    fn a_refusal_says_by_how_much() {
        let mut tree = AccountTree::new(device());
        let web = tree.open(AccountId::ROOT, "web", AccountKind::Pool, reserve(80.0)).unwrap();
        let refused = tree.open(AccountId::ROOT, "mail", AccountKind::Pool, reserve(30.0)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "mail: a reserve of 33.6 runs/s does not fit: disk0 has 112 runs/s, 89.6 are promised to others, 11.2 too many"
        );
        assert!((refused.excess() - 11.2).abs() < 1e-9);
        let alone = tree.open(web, "a", AccountKind::Session, reserve(90.0)).unwrap_err().to_string();
        assert!(alone.contains("web has 89.6 runs/s, 0 are promised to others"), "{alone}");
        tree.open(web, "a", AccountKind::Session, reserve(50.0)).unwrap();
        let refused = tree.open(web, "b", AccountKind::Session, reserve(31.0)).unwrap_err();
        assert!((refused.excess() - 1.12).abs() < 1e-9);
        let refused = tree.change(web, reserve(40.0)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "web: a reserve of 44.8 runs/s is less than its members were promised, 56 runs/s: 11.2 too few"
        );
        assert_eq!(tree.change(web, reserve(50.0)).unwrap().allocation, reserve(50.0));
    }

    #[test]
    fn allocations_out_of_range_are_refused() {
        let mut tree = AccountTree::new(device());
        let mut of =
            |allocation| tree.open(AccountId::ROOT, "a", AccountKind::Pool, allocation).unwrap_err().to_string();
        assert_eq!(of(Allocation { weight: 0, ..reserve(0.0) }), "a: weight 0 is out of range, allowed are 1 to 10000");
        assert_eq!(
            of(Allocation { limit: Some(Rate::DevicePercent(10.0)), ..reserve(20.0) }),
            "a: limit 10% is less than reserve 20%, allowed is at least as much"
        );
        assert!(of(Allocation { limit: Some(Rate::ZERO), ..reserve(0.0) }).contains("allowed is more than 0"));
        for read in [Span::ZERO, Span::from_secs(3601), Span::MAX] {
            let deadlines = Deadlines { read: Some(read), ..Deadlines::default() };
            let refusal = of(Allocation { deadlines, ..reserve(0.0) });
            assert!(refusal.contains("allowed is a time above zero and up to 1 h"), "{refusal}");
        }
        for priority in [Priority::Level(8), Priority::RealTime(8)] {
            assert!(of(Allocation { priority, ..reserve(0.0) }).contains("0 (highest) to 7"));
        }
    }

    #[test]
    fn priorities_are_read_and_written_as_files_have_them() {
        for (written, priority) in
            [("3", Priority::Level(3)), ("\"idle\"", Priority::Idle), ("{ realtime = 0 }", Priority::RealTime(0))]
        {
            let read: Allocation = toml::from_str(&format!("priority = {written}")).unwrap();
            assert_eq!(read.priority, priority, "{written}");
            let again: Allocation = toml::from_str(&toml::to_string(&read).unwrap()).unwrap();
            assert_eq!(again, read);
        }
        let mut order = [Priority::Idle, Priority::Level(0), Priority::RealTime(7), Priority::Level(7)];
        order.sort_unstable();
        assert_eq!(order, [Priority::RealTime(7), Priority::Level(0), Priority::Level(7), Priority::Idle]);
    }

    #[test]
    fn the_tree_keeps_its_shape() {
        let mut tree = AccountTree::new(device());
        let pool = tree.open(AccountId::ROOT, "web", AccountKind::Pool, reserve(0.0)).unwrap();
        let session = tree.open(pool, "db", AccountKind::Session, reserve(0.0)).unwrap();
        assert_eq!(tree.path(session), "web/db");
        assert_eq!(tree.find("web/db").unwrap().id, session);
        assert!(matches!(tree.open(pool, "db", AccountKind::Pool, reserve(0.0)), Err(AccountError::Name { .. })));
        assert!(tree.open(session, "x", AccountKind::Session, reserve(0.0)).is_err());
        assert!(tree.close(pool).is_err());
        tree.close(session).unwrap();
        assert!(tree.close(session).is_err());
        assert_eq!(tree.open(pool, "again", AccountKind::Session, reserve(0.0)), Ok(session), "lowest number first");
        let mut deepest = pool;
        for level in 1.. {
            match tree.open(deepest, &format!("level{level}"), AccountKind::Pool, reserve(0.0)) {
                Ok(deeper) => deepest = deeper,
                Err(error) => {
                    assert!(error.to_string().ends_with("too deep, allowed are 16 levels"), "{error}");
                    assert_eq!(level, DEPTH_MAX);
                    break;
                }
            }
        }
    }

    /// What the tree knows by heart, worked out from all accounts: the slow twin of its indexes.
    fn assert_as_counted(tree: &AccountTree) {
        let lowest_free = (0..).find(|&number| tree.get(AccountId(number)).is_none()).map(AccountId);
        let opened = tree.clone().open(AccountId::ROOT, "one more", AccountKind::Session, reserve(0.0));
        assert_eq!(opened.ok(), lowest_free);
        for pool in tree.iter() {
            let members: Vec<_> = tree.iter().filter(|account| account.parent == Some(pool.id)).collect();
            let sum: f64 = members.iter().map(|member| tree.reserve(member)).sum();
            assert!((tree.promised(pool.id, None) - sum).abs() < 1e-9);
            for member in &members {
                assert!((tree.promised(pool.id, Some(member.id)) - (sum - tree.reserve(member))).abs() < 1e-9);
                assert_eq!(tree.find(&tree.path(member.id)), Some(*member));
                let twin = tree.clone().open(pool.id, &member.name, AccountKind::Session, reserve(0.0));
                assert!(matches!(twin, Err(AccountError::Name { .. })), "{twin:?}");
            }
            let children: Vec<_> = tree.children(pool.id).map(|child| child.id).collect();
            let mut by_name = members;
            by_name.sort_by(|a, b| a.name.cmp(&b.name));
            assert_eq!(children, by_name.iter().map(|member| member.id).collect::<Vec<_>>());
        }
        assert_eq!((tree.find(""), tree.find("one more"), tree.find("0/")), (None, None, None));
    }

    proptest! {
        /// Whatever is opened, changed and closed: no account's members are promised more than it has.
        /// Promise: accounts-fit.
        #[test]
        fn reserves_always_fit(steps in proptest::collection::vec((0u8..3, 0u32..12, 0.0f64..60.0), 1..80)) {
            let mut tree = AccountTree::new(device());
            for (number, (step, target, percent)) in steps.into_iter().enumerate() {
                let target = AccountId(target);
                let _ = match step {
                    // Every fifth name looks like a path.
                    0 if number % 5 == 0 => {
                        let name = format!("{}/{number}", number / 2);
                        tree.open(target, &name, AccountKind::Pool, reserve(percent)).map(drop)
                    }
                    0 => tree.open(target, &number.to_string(), AccountKind::Pool, reserve(percent)).map(drop),
                    1 => tree.change(target, reserve(percent)).map(drop),
                    _ => tree.close(target),
                };
                for account in tree.iter() {
                    prop_assert!(tree.promised(account.id, None) <= tree.reserve(account) + 1e-3);
                }
                assert_as_counted(&tree);
            }
        }
    }
}
