use super::{Launch, ParallelError, launched};

/// One of several processes, and its way to the others.
///
/// Every process makes the same calls in the same order; each waits until the others have made theirs.
///
/// # Errors
/// Each call fails where the other processes cannot be reached; MPI ends the process instead.
pub trait Communicator: Send + Sync {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// Number of processes.
    fn size(&self) -> usize;

    /// Replaces `values`, as many in every process, by their sums over the processes. All get the same
    /// bits; the order of additions, and with it the last bits, depends on the number of processes.
    fn all_reduce(&self, values: &mut [f32]) -> Result<(), ParallelError>;

    /// The bytes of every process, in their order; lengths may differ.
    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError>;

    /// Replaces `bytes` by those of process 0, of whatever length. By default gathers the bytes of all
    /// processes; override it where there is a broadcast.
    fn broadcast(&self, bytes: &mut Vec<u8>) -> Result<(), ParallelError> {
        *bytes = self.all_gather(bytes)?.swap_remove(0);
        Ok(())
    }

    /// Waits for all processes.
    fn barrier(&self) -> Result<(), ParallelError> {
        self.all_gather(&[]).map(drop)
    }

    /// Ends all processes, which would wait for this one for ever if it ended alone.
    fn abort(&self, code: i32) -> !;
}

/// The only process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solo;

impl Communicator for Solo {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn all_reduce(&self, _: &mut [f32]) -> Result<(), ParallelError> {
        Ok(())
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError> {
        Ok(vec![bytes.to_vec()])
    }

    fn abort(&self, code: i32) -> ! {
        std::process::exit(code)
    }
}

/// The processes that were started with this one; [`Solo`] if it was started by itself, and MPI is not
/// touched then.
///
/// # Errors
/// [`ParallelError::NotCompiled`] for one of several in a program without the feature `mpi`, and
/// otherwise as `MpiCommunicator::world`.
pub fn world() -> Result<Box<dyn Communicator>, ParallelError> {
    match one_of_several() {
        None => Ok(Box::new(Solo)),
        #[cfg(feature = "mpi")]
        Some(_) => Ok(Box::new(super::MpiCommunicator::world()?)),
        #[cfg(not(feature = "mpi"))]
        Some(Launch { rank, size, by }) => Err(ParallelError::NotCompiled { rank, size, by }),
    }
}

/// [`Solo`], where nobody said what to make of other processes.
pub(crate) fn solo() -> Result<Solo, ParallelError> {
    match one_of_several() {
        None => Ok(Solo),
        Some(Launch { rank, size, by }) => Err(ParallelError::NotJoined { rank, size, by }),
    }
}

fn one_of_several() -> Option<Launch> {
    launched().filter(|launch| launch.size > 1)
}

/// The numbers of every process, in their order, bit for bit; one may have more of them than another.
///
/// # Errors
/// Where the others cannot be reached; MPI ends the process instead.
pub fn gather_numbers(
    communicator: &dyn Communicator,
    own: &[f64],
) -> Result<Vec<Vec<f64>>, ParallelError> {
    let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
    let all = communicator.all_gather(&bytes)?;
    let numbers = |bytes: &Vec<u8>| {
        let words = bytes.as_chunks::<{ size_of::<f64>() }>().0;
        words.iter().map(|word| f64::from_le_bytes(*word)).collect()
    };
    Ok(all.iter().map(numbers).collect())
}

#[cfg(test)]
mod tests {
    use super::super::thread_communicator::run_ranks;
    use super::*;

    #[test]
    fn the_only_process_keeps_what_it_has() {
        let solo: &dyn Communicator = &Solo;
        let mut values = [1.5, -2.0];
        solo.all_reduce(&mut values).unwrap();
        assert_eq!(values, [1.5, -2.0]);
        assert_eq!(solo.all_gather(&[7, 8]).unwrap(), [[7, 8]]);
        let mut bytes = vec![3];
        solo.broadcast(&mut bytes).unwrap();
        assert_eq!(bytes, [3]);
        solo.barrier().unwrap();
        assert_eq!((solo.rank(), solo.size()), (0, 1));
    }

    #[test]
    fn every_process_gets_the_numbers_of_all() {
        let own = |rank: usize| vec![[0.1, -0.0, f64::MIN_POSITIVE][rank]; rank];
        let expected: Vec<_> = (0..3).map(own).collect();
        for gathered in run_ranks(3, |process| gather_numbers(process, &own(process.rank()))) {
            let gathered = gathered.unwrap();
            assert_eq!(gathered, expected);
            assert!(gathered[1][0].is_sign_negative());
        }
    }
}
