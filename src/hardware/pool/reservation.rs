use std::hash::Hash;

use super::ModelPool;
use super::ledger::Place;
use super::state::State;

/// Bytes charged to no model: reserved for one that is coming, or still held by one that leaves.
/// They are given back when this is dropped, by a panic too.
pub(super) struct Reservation<'p, K: Hash + Eq, V> {
    pool: &'p ModelPool<K, V>,
    place: Place,
    bytes: u64,
}

impl<'p, K: Hash + Eq, V> Reservation<'p, K, V> {
    /// Answers for `bytes` that are charged already.
    pub(super) fn of(pool: &'p ModelPool<K, V>, place: Place, bytes: u64) -> Self {
        Self { pool, place, bytes }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Charges `bytes` more, which fit.
    pub(super) fn grow(&mut self, state: &mut State<K, V>, bytes: u64) {
        state.ledger.charge(self.place, bytes);
        self.bytes += bytes;
    }

    /// Gives back all but `bytes`, which whoever asks answers for from now on.
    pub(super) fn hand_over(mut self, state: &mut State<K, V>, bytes: u64) {
        let rest = self.bytes - bytes;
        self.bytes = 0;
        state.ledger.give_back(self.place, rest);
    }
}

impl<K: Hash + Eq, V> Drop for Reservation<'_, K, V> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.lock().ledger.give_back(self.place, self.bytes);
        }
    }
}
