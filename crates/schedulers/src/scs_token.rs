//! `scs_token`: a token bucket at the system calls, the call-level scheduler that the split-level paper compares with.
//!
//! **Intuition.** At the entry of a call every account is known by name and nothing is entangled yet, so that is where
//! to throttle. **Rule.** A read or write of an account with a limit takes its bytes from the account's bucket, which
//! fills at the limit. While the balance is negative, its reads and writes wait at the entry. Below, at the block
//! level, requests are `cfq`'s, Linux's own when the paper was measured. **Complication.** There is none, and that is
//! its failure: at the entry the cost of the call is unknown. A random 4 KiB read costs as much as a sequential one,
//! and a read from the cache as much as one from the disk. An overwritten page costs as much as a new one (split-level
//! paper, figures 6 and 14).
//!
//! Cost: O(depth of the account) per call, O(held calls) when the host asks which may go on.

use crate::balance::Balance;
use crate::cfq::Cfq;
use plimsoll_core::{
    Account, AccountId, BlockRequest, Call, CallDecision, CallId, CallKind, Completion, DeviceProfile, Dispatch,
};
use plimsoll_core::{Scheduler, Time, Wish};

/// What is known of an account.
#[derive(Clone, Copy, Default)]
struct Known {
    parent: Option<AccountId>,
    balance: Option<Balance>,
    /// Calls of it, and of all that are in it, at the entry.
    held: u32,
}

/// A call at the entry.
struct HeldCall {
    id: CallId,
    account: AccountId,
    bytes: u64,
}

/// See the module's text.
pub struct ScsToken {
    device_runs_per_second: f64,
    accounts: Vec<Known>,
    /// In the order in which they came.
    held: Vec<HeldCall>,
    block_level: Cfq,
}

impl ScsToken {
    /// A scheduler for `device`.
    pub fn new(device: &DeviceProfile) -> ScsToken {
        ScsToken {
            device_runs_per_second: device.worst_case_runs_per_second,
            accounts: Vec::new(),
            held: Vec::new(),
            block_level: Cfq::new(device),
        }
    }

    /// The account and all that it is in, from the bottom up.
    fn chain(&self, account: AccountId) -> impl Iterator<Item = &Known> {
        let known = |id: AccountId| self.accounts.get(id.index());
        std::iter::successors(known(account), move |known_account| known(known_account.parent?))
    }

    fn for_each_in_chain(&mut self, account: AccountId, change: impl Fn(&mut Known)) {
        let mut next = Some(account);
        while let Some(known) = next.and_then(|id| self.accounts.get_mut(id.index())) {
            change(known);
            next = known.parent;
        }
    }

    /// When no balance of the account and those that it is in is negative any more.
    fn balanced(&self, account: AccountId) -> Time {
        let balances = self.chain(account).filter_map(|known| known.balance);
        balances.map(|balance| balance.zero_at()).max().unwrap_or(Time::ZERO)
    }

    /// Takes what a call costs if no balance is negative; whether it did.
    fn pay(&mut self, now: Time, account: AccountId, bytes: u64) -> bool {
        let can_pay = self.balanced(account) <= now;
        if can_pay {
            self.for_each_in_chain(account, |known| {
                if let Some(balance) = &mut known.balance {
                    balance.take(now, bytes as f64);
                }
            });
        }
        can_pay
    }

    fn learn(&mut self, now: Time, account: &Account) {
        if self.accounts.len() <= account.id.index() {
            self.accounts.resize(account.id.index() + 1, Known::default());
        }
        let known = &mut self.accounts[account.id.index()];
        let rate = account.allocation.limit.map(|limit| limit.bytes_per_second(self.device_runs_per_second));
        known.parent = account.parent;
        known.balance = rate.map(|rate| match known.balance {
            Some(before) => before.at_rate(now, rate),
            None => Balance::new(now, rate),
        });
    }
}

impl Scheduler for ScsToken {
    fn name(&self) -> &'static str {
        "scs_token"
    }

    fn account_opened(&mut self, now: Time, account: &Account) {
        self.learn(now, account);
        self.block_level.account_opened(now, account);
    }

    /// A new limit begins without tokens; what was owed in bytes stays owed.
    fn account_changed(&mut self, now: Time, account: &Account) {
        self.learn(now, account);
        self.block_level.account_changed(now, account);
    }

    fn account_closed(&mut self, now: Time, account: AccountId) {
        self.accounts[account.index()] = Known::default();
        self.block_level.account_closed(now, account);
    }

    fn call_entered(&mut self, now: Time, call: &Call) -> CallDecision {
        if !matches!(call.kind, CallKind::Read | CallKind::Write) {
            return CallDecision::Admit;
        }
        // Earlier waiters for the same balance go first.
        let is_its_turn = self.chain(call.account).all(|known| known.balance.is_none() || known.held == 0);
        if is_its_turn && self.pay(now, call.account, call.length) {
            return CallDecision::Admit;
        }
        self.for_each_in_chain(call.account, |known| known.held += 1);
        self.held.push(HeldCall { id: call.id, account: call.account, bytes: call.length });
        CallDecision::Hold
    }

    fn released_calls(&mut self, now: Time, released: &mut Vec<CallId>) {
        let mut held = std::mem::take(&mut self.held);
        held.retain(|call| {
            let goes_on = self.pay(now, call.account, call.bytes);
            if goes_on {
                self.for_each_in_chain(call.account, |known| known.held -= 1);
                released.push(call.id);
            }
            !goes_on
        });
        self.held = held;
    }

    fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        let earliest = self.held.iter().map(|call| self.balanced(call.account)).min();
        wishes.extend(earliest.map(|at| Wish::WakeAt(at.max(now))));
    }

    fn request_added(&mut self, now: Time, request: BlockRequest) {
        self.block_level.request_added(now, request);
    }

    fn next(&mut self, now: Time) -> Dispatch {
        self.block_level.next(now)
    }

    fn request_completed(&mut self, now: Time, completion: &Completion) {
        self.block_level.request_completed(now, completion);
    }
}
