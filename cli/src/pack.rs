//! `fewshot data pack`.

use std::sync::Arc;

use fewshot::data::{ClassDataset, Pack, PackWriter, PixelStore, Split};
use fewshot::hardware::Bytes;

use crate::args::PackArgs;
use crate::data_spec::{FolderOptions, ImageSpec};
use crate::prelude::*;

pub(crate) fn run(args: &PackArgs) -> Result {
    backend::prepare(None)?;
    if let Some(file) = &args.check {
        return check(file);
    }
    let spec = args.spec.as_ref().ok_or_else(|| usage!("data to pack is needed"))?;
    let to = args.to.as_ref().ok_or_else(|| usage!("--to FILE is needed"))?;
    args.images.check(spec)?;
    let options = args.images.over(spec.default_options()?);
    let split = args.images.split.unwrap_or(Split::Vinyals);
    let writer = Arc::new(PackWriter::create(to)?);
    let splits = spec.open_in(split, options, PixelStore::Pack(writer.clone()))?;
    let shades = options.shades.unwrap_or_else(|| spec.shades());
    writer.finish(&splits, shades, source(&spec.clone().absolute(), split, options))?;
    let images = Pack::open(to)?.images();
    let (shape, classes, to) = (splits.train.image_shape(), splits.classes(), to.display());
    let [train, validation, test] = classes;
    let size = Bytes(images as u64 * shape.values() as u64);
    print(format_args!(
        "{images} images of {shape} ({size}), classes to train, validate and test on: {train}, {validation}, {test}, in {to}"
    ))
}

/// Origin of a pack, for whoever looks at it.
fn source(spec: &ImageSpec, split: Split, options: FolderOptions) -> Value {
    let mut source = json!({ "data": spec, "split": spec.split_name(split) });
    if matches!(spec, ImageSpec::Files(..)) {
        let FolderOptions { size, color, on_broken, limits, .. } = options;
        join(
            &mut source,
            json!({
                "size": size,
                "color": color,
                "fit": "stretched",
                "on_broken": on_broken,
                "max_pixels": limits.pixels,
            }),
        );
    }
    source
}

fn check(file: &Path) -> Result {
    let pack = Pack::open(file)?;
    pack.check()?;
    let (images, shape) = (pack.images(), pack.image_shape());
    print(format_args!("{} is whole: {images} images of {shape}", file.display()))
}
