use super::HardwareError;

/// The error that nothing is called `name`, with the known name that it may have meant.
pub(crate) fn unknown_name<'a>(
    what: &'static str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> HardwareError {
    let known = known.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let lower = name.to_lowercase();
    let near = known.iter().map(|known| (strsim::damerau_levenshtein(known, &lower), known));
    let best = near.min_by_key(|(distance, _)| *distance);
    // Half of it wrong is another word.
    let best = best.filter(|(distance, known)| 2 * distance <= known.len());
    HardwareError::Unknown {
        what,
        name: name.to_owned(),
        suggestion: best.map(|(_, known)| known.clone()),
        known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_suggested() {
        let known = ["cuda", "vulkan", "flex"];
        let text = |name| unknown_name("platform", name, known).to_string();
        assert_eq!(
            text("vulcan"),
            "there is no platform \"vulcan\"; did you mean \"vulkan\"? There is: cuda, vulkan, flex"
        );
        assert!(text("CUDA").contains("did you mean \"cuda\"?"));
        assert!(!text("toaster").contains("did you mean"));
    }
}
