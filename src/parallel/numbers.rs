use super::{Communicator, ParallelError};

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
    fn every_process_gets_the_numbers_of_all() {
        let own = |rank: usize| vec![[0.1, -0.0, f64::MIN_POSITIVE][rank]; rank];
        let expected: Vec<_> = (0..3).map(own).collect();
        for found in run_ranks(3, |process| gather_numbers(process, &own(process.rank()))) {
            let found = found.unwrap();
            assert_eq!(found, expected);
            assert!(found[1][0].is_sign_negative());
        }
    }
}
