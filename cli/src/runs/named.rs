use fewshot::train::RunHistory;

use crate::prelude::*;

/// A run with the shortest name that tells it from the others of its list.
pub(super) type NamedRun = (String, RunHistory);

pub(super) fn read(folders: &[PathBuf]) -> Result<Vec<NamedRun>> {
    let runs = folders.iter().map(|folder| RunHistory::read(folder));
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    let paths: Vec<&Path> = runs.iter().map(RunHistory::folder).collect();
    if let Some(twice) = (1..paths.len()).find(|&index| paths[..index].contains(&paths[index])) {
        return Err(usage!("{} is named twice", folders[twice].display()));
    }
    Ok(short_names(&paths).into_iter().zip(runs).collect())
}

/// The last components of each path, as many as tell the path from the others.
fn short_names(paths: &[&Path]) -> Vec<String> {
    let end = |path: &Path, count: usize| -> PathBuf {
        path.iter().skip(path.iter().count().saturating_sub(count)).collect()
    };
    let alone = |path: &Path, count: usize| {
        paths.iter().filter(|other| end(other, count) == end(path, count)).count() <= 1
    };
    let name = |path: &&Path| {
        let most = path.iter().count();
        let count = (1..most).find(|&count| alone(path, count)).unwrap_or(most);
        end(path, count).display().to_string()
    };
    paths.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_short_as_they_can_tell_runs_apart() {
        let paths = ["/a/x/run-1", "/a/y/run-1", "/b/x/run-1", "/b/run-2"].map(Path::new);
        let names = short_names(&paths).join(" ").replace('\\', "/");
        assert_eq!(names, "a/x/run-1 y/run-1 b/x/run-1 run-2");
        assert_eq!(short_names(&[Path::new("/")]), ["/"]);
    }
}
