use clap::Args;
use fewshot::data::{ClassFiles, OnBroken, PictureLimits, sound_pictures};

use crate::data_spec::{FolderOptions, tell_left_out};
use crate::prelude::*;

/// Options for reading files of pictures.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ReadArgs {
    /// Leave out broken pictures of files, and print how many
    #[arg(long)]
    pub(crate) skip_broken: bool,
    /// Pixels of a picture in a file, at most [default: 100000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_pixels: Option<u64>,
}

impl ReadArgs {
    /// The first of these options on the command line.
    pub(crate) fn given(self) -> Option<String> {
        super::first_given!(self, skip_broken, max_pixels)
    }

    pub(crate) fn limits(self) -> PictureLimits {
        self.max_pixels.map_or_else(PictureLimits::default, |pixels| PictureLimits { pixels })
    }

    /// The options of a run, with those that are given here.
    pub(crate) fn over(self, run: FolderOptions) -> FolderOptions {
        let on_broken = if self.skip_broken { OnBroken::Skip } else { run.on_broken };
        let limits = if self.max_pixels.is_some() { self.limits() } else { run.limits };
        FolderOptions { on_broken, limits, ..run }
    }

    /// The pictures of each class that can be used. How many are left out is printed.
    pub(crate) fn sound(self, classes: &[(String, Vec<PathBuf>)]) -> Result<ClassFiles> {
        let on_broken = if self.skip_broken { OnBroken::Skip } else { OnBroken::Fail };
        Ok(tell_left_out(sound_pictures(classes, on_broken, self.limits())?))
    }
}
