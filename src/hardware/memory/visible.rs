/// How the system knows a CUDA device.
#[derive(Debug, PartialEq)]
pub(super) enum Visible {
    /// By its number on the machine.
    Number(u32),
    /// By its UUID or the start of it.
    Name(String),
}

/// The device that CUDA gives this number when `CUDA_VISIBLE_DEVICES` is `setting`.
///
/// # Conventions
/// As in the CUDA programming guide: the list is of numbers and UUIDs, and ends before the first
/// entry that is no device; without the variable all devices are visible.
pub(super) fn visible(index: usize, setting: Option<&str>) -> Result<Visible, String> {
    let Some(setting) = setting else {
        return u32::try_from(index).map(Visible::Number).map_err(|error| error.to_string());
    };
    let devices = setting.split(',').map_while(|entry| match entry.trim() {
        name if name.starts_with("GPU-") || name.starts_with("MIG-") => {
            Some(Visible::Name(name.to_owned()))
        }
        number => number.parse().ok().map(Visible::Number),
    });
    let mut devices = devices.collect::<Vec<_>>();
    if index < devices.len() {
        return Ok(devices.swap_remove(index));
    }
    Err(format!("CUDA_VISIBLE_DEVICES={setting} makes {} devices visible", devices.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_place_in_the_list_of_visible_devices() {
        let number = |index, setting| visible(index, setting).unwrap();
        assert_eq!(number(2, None), Visible::Number(2));
        assert_eq!(number(0, Some("3,1")), Visible::Number(3));
        assert_eq!(number(1, Some("3, 1")), Visible::Number(1));
        assert_eq!(number(1, Some("0,GPU-8932f9")), Visible::Name("GPU-8932f9".to_owned()));
    }

    #[test]
    fn the_list_ends_before_what_is_no_device() {
        for (index, setting) in [(0, ""), (0, "-1"), (1, "0,-1,1"), (2, "0,1"), (0, "NoDevFiles")] {
            let error = visible(index, Some(setting)).unwrap_err();
            assert!(error.contains(&format!("CUDA_VISIBLE_DEVICES={setting} makes")), "{error}");
        }
    }
}
