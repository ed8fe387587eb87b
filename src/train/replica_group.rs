use std::sync::Arc;

use super::TrainError;
use crate::learners::Divergence;
use crate::parallel::{Communicator, ParallelError, Reduction, gather_numbers};

/// The data-parallel group that shares the tasks of a step: the devices of this process, and the
/// processes of a run.
#[derive(Clone)]
pub(super) struct ReplicaGroup<D> {
    /// The optimizer updates the learner on the first one.
    pub(super) devices: Vec<D>,
    pub(super) communicator: Arc<dyn Communicator>,
    pub(super) reduction: Reduction,
}

impl<D> ReplicaGroup<D> {
    /// Number of replicas: devices of all processes.
    pub(super) fn count(&self) -> usize {
        self.devices.len() * self.communicator.size()
    }

    /// True if this process has rank 0, which writes files and reports.
    pub(super) fn is_root(&self) -> bool {
        self.communicator.rank() == 0
    }

    pub(super) fn is_multi_process(&self) -> bool {
        self.communicator.size() > 1
    }

    pub(super) fn any(&self, flag: bool) -> Result<bool, ParallelError> {
        if !self.is_multi_process() {
            return Ok(flag);
        }
        let mut flags = [f32::from(u8::from(flag))];
        self.communicator.all_reduce(&mut flags)?;
        Ok(flags[0] > 0.0)
    }

    /// The divergence of the lowest rank that found one, in all processes.
    pub(super) fn first_of(
        &self,
        mine: Option<Divergence>,
    ) -> Result<Option<Divergence>, ParallelError> {
        let mine = mine.map_or(Vec::new(), |mine| vec![mine.task as f64, mine.step as f64]);
        let all = gather_numbers(&*self.communicator, &mine)?;
        let mut divergences = all.iter().filter_map(|numbers| numbers.first_chunk::<2>());
        Ok(divergences
            .next()
            .map(|[task, step]| Divergence { task: *task as usize, step: *step as usize }))
    }

    /// Checks that the digest of the learner is the same in all processes.
    ///
    /// # Errors
    /// [`TrainError::Drift`] with the first rank that differs from rank 0.
    pub(super) fn check_same(&self, digest: &[u8], step: u64) -> Result<(), TrainError> {
        let all = self.communicator.all_gather(digest)?;
        match all.iter().position(|other| *other != all[0]) {
            Some(rank) => Err(TrainError::Drift { rank, step }),
            None => Ok(()),
        }
    }

    /// Runs `work` in the process of rank 0 and broadcasts its result; if it fails there, it fails in all.
    pub(super) fn broadcast_from_root(
        &self,
        work: impl FnOnce() -> Result<Vec<u8>, TrainError>,
    ) -> Result<Vec<u8>, TrainError> {
        if !self.is_multi_process() {
            return work();
        }
        let made = if self.is_root() { Some(work()) } else { None };
        let mut message = match &made {
            Some(Ok(bytes)) => [&[1], bytes.as_slice()].concat(),
            Some(Err(error)) => [&[0], error.to_string().as_bytes()].concat(),
            None => Vec::new(),
        };
        self.communicator.broadcast(&mut message)?;
        match (made, message.split_first()) {
            (Some(made), _) => made,
            (None, Some((1, bytes))) => Ok(bytes.to_vec()),
            (None, message) => {
                let text = message.map_or(&[][..], |(_, text)| text);
                let reason = String::from_utf8_lossy(text).into_owned();
                Err(TrainError::OtherProcess { rank: 0, reason })
            }
        }
    }
}
