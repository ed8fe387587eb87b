use crate::hardware::Bytes;

/// Where bytes are held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The device of this number in the pool.
    Device(usize),
    Host,
}

/// What may be held and is held in one place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    pub(super) budget: u64,
    pub(super) used: u64,
    pub(super) peak: u64,
}

impl Account {
    fn of(budget: Bytes) -> Self {
        Self { budget: budget.0, ..Self::default() }
    }

    /// What has to go before `need` more fit.
    pub(super) fn excess(&self, need: u64) -> u64 {
        self.used.saturating_add(need).saturating_sub(self.budget)
    }
}

/// The accounts of all devices and of the host. No account ever holds more than its budget.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) devices: Vec<Account>,
    pub(super) host: Account,
    /// The most that all devices held together.
    pub(super) peak: u64,
}

impl Ledger {
    pub(super) fn new(budgets: impl Iterator<Item = Bytes>) -> Self {
        Self { devices: budgets.map(Account::of).collect(), host: Account::default(), peak: 0 }
    }

    pub(super) fn account(&mut self, place: Place) -> &mut Account {
        match place {
            Place::Device(device) => &mut self.devices[device],
            Place::Host => &mut self.host,
        }
    }

    /// All that is held on devices.
    pub(super) fn used(&self) -> u64 {
        self.devices.iter().map(|account| account.used).sum()
    }

    pub(super) fn charge(&mut self, place: Place, bytes: u64) {
        let account = self.account(place);
        assert_eq!(account.excess(bytes), 0, "{bytes} bytes charged to the full {account:?}");
        account.used += bytes;
        account.peak = account.peak.max(account.used);
        self.peak = self.peak.max(self.used());
    }

    pub(super) fn give_back(&mut self, place: Place, bytes: u64) {
        self.account(place).used -= bytes;
    }
}
