/// One of several processes that were started together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of processes started, 1 or more.
    pub size: usize,
    /// The program that started them, and its library.
    pub by: &'static str,
}

/// A launcher of several processes, the variables with the number of a process, and those with their
/// count.
type Launcher = (&'static str, &'static [&'static str], &'static str);

/// Open MPI, MVAPICH2, the process manager of MPICH and of libraries made from it or
/// `srun --mpi=pmi2`, and Slurm. Slurm's variables are those of a job step: the batch script itself
/// has `SLURM_PROCID` and `SLURM_NTASKS` too, and is one process.
const LAUNCHERS: [Launcher; 4] = [
    ("mpirun (Open MPI)", &["OMPI_COMM_WORLD_RANK"], "OMPI_COMM_WORLD_SIZE"),
    ("mpirun (MVAPICH2)", &["MV2_COMM_WORLD_RANK"], "MV2_COMM_WORLD_SIZE"),
    ("a PMI process manager", &["PMI_RANK"], "PMI_SIZE"),
    ("srun (Slurm)", &["PMIX_RANK", "SLURM_PROCID"], "SLURM_STEP_NUM_TASKS"),
];

/// The launch of this process by `mpirun` or `srun`; `None` if neither started it. Looks at the
/// environment alone, without MPI.
pub fn launched() -> Option<Launch> {
    launch_of(|name| std::env::var(name).ok())
}

/// [`launched`] with `variable` for the environment.
fn launch_of(variable: impl Fn(&str) -> Option<String>) -> Option<Launch> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    LAUNCHERS.into_iter().find_map(|(by, ranks, size)| {
        let (rank, size) = (ranks.iter().find_map(|name| number(name))?, number(size)?);
        (rank < size).then_some(Launch { rank, size, by })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(environment: &[(&str, &str)]) -> Option<(usize, usize, &'static str)> {
        let launch = launch_of(|variable| {
            let (_, value) = environment.iter().find(|(name, _)| *name == variable)?;
            Some((*value).to_owned())
        });
        launch.map(|launch| (launch.rank, launch.size, launch.by))
    }

    #[test]
    fn every_launcher_is_known_by_its_variables() {
        let open = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(launch(&open), Some((2, 4, LAUNCHERS[0].0)));
        let mvapich = [("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2")];
        assert_eq!(launch(&mvapich), Some((0, 2, LAUNCHERS[1].0)));
        assert_eq!(launch(&[("PMI_RANK", "1"), ("PMI_SIZE", "3")]), Some((1, 3, LAUNCHERS[2].0)));
        let pmix = [("PMIX_RANK", "5"), ("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "8")];
        assert_eq!(launch(&pmix), Some((5, 8, LAUNCHERS[3].0)));
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(launch(&slurm), Some((1, 2, LAUNCHERS[3].0)));
    }

    #[test]
    fn the_launcher_within_a_slurm_job_goes_first() {
        let inside = [
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "1"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ];
        assert_eq!(launch(&inside), Some((3, 4, LAUNCHERS[0].0)));
    }

    #[test]
    fn a_process_by_itself_is_one_of_none() {
        assert_eq!(launch(&[]), None);
        assert_eq!(launch(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None, "a batch script");
        assert_eq!(launch(&[("PMI_RANK", "one"), ("PMI_SIZE", "2")]), None);
        assert_eq!(launch(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]), None);
        assert_eq!(launch(&[("PMIX_RANK", "0")]), None);
    }
}
