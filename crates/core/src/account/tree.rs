//! The tree that a host keeps for each device: opens, changes and closes accounts, and admits reserves.

use super::*;

/// The accounts of one device. Numbers are dense and the lowest free one is given out first, so that the accounts that
/// are open at once fit the fast path of [`crate::CauseSet`].
#[derive(Clone, Debug)]
pub struct AccountTree {
    device: DeviceProfile,
    slots: Vec<Option<Account>>,
}

impl AccountTree {
    /// A tree with only its root, which stands for `device` and has all of its worst-case rate to give away.
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
        AccountTree { device, slots: vec![Some(root)] }
    }

    /// The device that the root stands for.
    pub fn device(&self) -> &DeviceProfile {
        &self.device
    }

    /// The account numbered `id`, if it is open.
    pub fn get(&self, id: AccountId) -> Option<&Account> {
        self.slots.get(id.index())?.as_ref()
    }

    /// Every open account, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Account> {
        self.slots.iter().flatten()
    }

    /// The open accounts directly in `parent`, by number. O(accounts).
    pub fn children(&self, parent: AccountId) -> impl Iterator<Item = &Account> {
        self.iter().filter(move |account| account.parent == Some(parent))
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
        self.iter().find(|account| account.parent.is_some() && self.path(account.id) == path)
    }

    /// Runs per second that the members of `parent` were promised, leaving `except` out.
    pub fn promised(&self, parent: AccountId, except: Option<AccountId>) -> f64 {
        let members = self.children(parent).filter(|member| Some(member.id) != except);
        // Not `sum`: the sum of no members would be -0.
        members.map(|member| self.reserve(member)).fold(0.0, |sum, reserve| sum + reserve)
    }

    fn reserve(&self, account: &Account) -> f64 {
        account.allocation.reserve.runs_per_second(self.device.worst_case_runs_per_second)
    }

    /// Opens an account in `parent`.
    ///
    /// # Errors
    /// A name that a sibling has, a parent that is closed, a session or too deep, an allocation out of range, or a
    /// reserve that does not fit into what the parent has left.
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
        if self.children(parent).any(|sibling| sibling.name == name) {
            return Err(AccountError::Name { path });
        }
        self.admit(&path, parent, None, &allocation)?;
        let index = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(None);
        }
        let id = AccountId(index as u32);
        self.slots[index] = Some(Account { id, parent: Some(parent), name: name.to_owned(), kind, allocation });
        Ok(id)
    }

    /// Changes what an open account was promised.
    ///
    /// # Errors
    /// As [`open`](Self::open), and a reserve below what the members of the account were promised.
    pub fn change(&mut self, id: AccountId, allocation: Allocation) -> Result<&Account, AccountError> {
        let path = self.path(id);
        let Some(&Account { parent: Some(parent), .. }) = self.get(id) else {
            return Err(AccountError::Tree { path, problem: "only an open pool or session can be changed" });
        };
        self.admit(&path, parent, Some(id), &allocation)?;
        let asked = allocation.reserve.runs_per_second(self.device.worst_case_runs_per_second);
        let promised = self.promised(id, None);
        if promised > asked + ADMISSION_TOLERANCE_RUNS_PER_SECOND {
            return Err(AccountError::Members { path, asked, promised });
        }
        let account = self.slots[id.index()].as_mut().expect("found above");
        account.allocation = allocation;
        Ok(account)
    }

    /// Closes an account; its number may be given out again.
    ///
    /// # Errors
    /// The root, an account that is not open, and a pool that still has members.
    pub fn close(&mut self, id: AccountId) -> Result<(), AccountError> {
        let path = self.path(id);
        if id == AccountId::ROOT || self.get(id).is_none() {
            return Err(AccountError::Tree { path, problem: "only an open pool or session can be closed" });
        }
        if self.children(id).next().is_some() {
            return Err(AccountError::Tree { path, problem: "a pool with members cannot be closed" });
        }
        self.slots[id.index()] = None;
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
            is_rotational: true,
            outstanding_max: 10,
        }
    }

    fn reserve(percent: f64) -> Allocation {
        Allocation { reserve: Rate::DevicePercent(percent), ..Allocation::default() }
    }

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

    proptest! {
        /// Whatever is opened, changed and closed: no account's members are promised more than it has.
        #[test]
        fn reserves_always_fit(steps in proptest::collection::vec((0u8..3, 0u32..12, 0.0f64..60.0), 1..80)) {
            let mut tree = AccountTree::new(device());
            for (number, (step, target, percent)) in steps.into_iter().enumerate() {
                let target = AccountId(target);
                let _ = match step {
                    0 => tree.open(target, &number.to_string(), AccountKind::Pool, reserve(percent)).map(drop),
                    1 => tree.change(target, reserve(percent)).map(drop),
                    _ => tree.close(target),
                };
                for account in tree.iter() {
                    prop_assert!(tree.promised(account.id, None) <= tree.reserve(account) + 1e-3);
                }
            }
        }
    }
}
