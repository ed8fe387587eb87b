use std::fmt;

/// One of several processes that were started together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its number, from 0.
    pub rank: usize,
    /// How many were started, 1 or more.
    pub size: usize,
    /// Who started them.
    pub by: Launcher,
}

/// What starts several processes, told by the variables that it sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpirun` of MVAPICH2.
    Mvapich,
    /// The process manager of MPICH and of libraries made from it, or `srun --mpi=pmi2`.
    Pmi,
    /// `srun` of Slurm.
    Slurm,
}

impl Launcher {
    const ALL: [Self; 4] = [Self::OpenMpi, Self::Mvapich, Self::Pmi, Self::Slurm];

    /// Name of the program and its library.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "mpirun (Open MPI)",
            Self::Mvapich => "mpirun (MVAPICH2)",
            Self::Pmi => "a PMI process manager",
            Self::Slurm => "srun (Slurm)",
        }
    }

    /// The variables with the number of a process and with their count.
    ///
    /// Slurm's are those of a job step: the batch script itself has `SLURM_PROCID` and
    /// `SLURM_NTASKS` too, and is one process.
    fn variables(self) -> [&'static [&'static str]; 2] {
        match self {
            Self::OpenMpi => [&["OMPI_COMM_WORLD_RANK"], &["OMPI_COMM_WORLD_SIZE"]],
            Self::Mvapich => [&["MV2_COMM_WORLD_RANK"], &["MV2_COMM_WORLD_SIZE"]],
            Self::Pmi => [&["PMI_RANK"], &["PMI_SIZE"]],
            Self::Slurm => [&["PMIX_RANK", "SLURM_PROCID"], &["SLURM_STEP_NUM_TASKS"]],
        }
    }

    fn launch(self, variable: &impl Fn(&str) -> Option<String>) -> Option<Launch> {
        let number = |names: &[&str]| {
            names.iter().find_map(|name| variable(name)?.trim().parse::<usize>().ok())
        };
        let [rank, size] = self.variables().map(number);
        let (rank, size) = (rank?, size?);
        (rank < size).then_some(Launch { rank, size, by: self })
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether this process was started by `mpirun` or `srun`, and as which of how many. Looks at the
/// environment alone, without MPI.
pub fn launched() -> Option<Launch> {
    launch_of(|name| std::env::var(name).ok())
}

/// [`launched`] with `variable` for the environment.
fn launch_of(variable: impl Fn(&str) -> Option<String>) -> Option<Launch> {
    Launcher::ALL.into_iter().find_map(|launcher| launcher.launch(&variable))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(environment: &[(&str, &str)]) -> Option<(usize, usize, Launcher)> {
        let launch = launch_of(|wanted| {
            let (_, value) = environment.iter().find(|(name, _)| *name == wanted)?;
            Some((*value).to_owned())
        });
        launch.map(|launch| (launch.rank, launch.size, launch.by))
    }

    #[test]
    fn every_launcher_is_known_by_its_variables() {
        let open = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")];
        assert_eq!(found(&open), Some((2, 4, Launcher::OpenMpi)));
        let mvapich = [("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "2")];
        assert_eq!(found(&mvapich), Some((0, 2, Launcher::Mvapich)));
        assert_eq!(found(&[("PMI_RANK", "1"), ("PMI_SIZE", "3")]), Some((1, 3, Launcher::Pmi)));
        let pmix = [("PMIX_RANK", "5"), ("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "8")];
        assert_eq!(found(&pmix), Some((5, 8, Launcher::Slurm)));
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2")];
        assert_eq!(found(&slurm), Some((1, 2, Launcher::Slurm)));
    }

    #[test]
    fn the_launcher_within_a_slurm_job_goes_first() {
        let inside = [
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "1"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ];
        assert_eq!(found(&inside), Some((3, 4, Launcher::OpenMpi)));
    }

    #[test]
    fn a_process_by_itself_is_one_of_none() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None, "a batch script");
        assert_eq!(found(&[("PMI_RANK", "one"), ("PMI_SIZE", "2")]), None);
        assert_eq!(found(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]), None);
        assert_eq!(found(&[("PMIX_RANK", "0")]), None);
    }
}
