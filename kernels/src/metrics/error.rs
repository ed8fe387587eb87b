//! Operands that do not fit each other.

/// # Panics
/// When prototypes have other tasks or features than the queries, or there are none.
pub fn check_prototypes(queries: [usize; 3], found: [usize; 3]) {
    let [tasks, _, features] = queries;
    assert!(
        found[0] == tasks && found[1] > 0 && found[2] == features,
        "queries {queries:?} need prototypes [{tasks}, at least one, {features}], found {found:?}"
    );
}

/// # Panics
/// Unless there is a label for each embedding.
pub fn check_labels(embeddings: [usize; 3], found: [usize; 2]) {
    let wanted = &embeddings[..2];
    assert!(found == wanted, "embeddings {embeddings:?} need labels {wanted:?}, found {found:?}");
}
