//! Pictures: paths, images of Pillow and arrays.

use std::path::PathBuf;

use fewshot::data::Picture;
use numpy::{
    PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};
use rayon::prelude::*;

use crate::arrays::{as_array, in_order, shape_text};
use crate::compute::computed;
use crate::errors::{exception, type_error, value_error};

/// Pictures in memory at once.
const BATCH: usize = 32;

/// Modes of Pillow's images with 8 bits a channel or less.
const MODES: [&str; 11] =
    ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV"];

/// A picture as a program gives it.
pub(crate) enum Given {
    File(PathBuf),
    Pixels(Picture),
}

impl Given {
    /// The picture, read if it is a file.
    fn picture(self) -> PyResult<Picture> {
        match self {
            Self::File(path) => Picture::open(path).map_err(exception),
            Self::Pixels(picture) => Ok(picture),
        }
    }
}

/// Pictures that are taken from a program a few at a time.
pub(crate) struct Pictures<'py> {
    iterator: Bound<'py, PyIterator>,
    taken: usize,
}

impl<'py> Pictures<'py> {
    pub(crate) fn new(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let is_one = value.extract::<PathBuf>().is_ok()
            || is_pillow(value)?
            || value.cast::<PyUntypedArray>().is_ok_and(|array| array.ndim() < 4);
        let of_what = value.get_type().name()?;
        if is_one {
            return Err(type_error(format!(
                "pictures are one {of_what}: they are a list of pictures"
            )));
        }
        let iterator = value.try_iter();
        let iterator = iterator.map_err(|_| {
            type_error(format!("pictures are a {of_what}: they are a list of pictures"))
        })?;
        Ok(Self { iterator, taken: 0 })
    }

    pub(crate) fn py(&self) -> Python<'py> {
        self.iterator.py()
    }

    /// All that are left.
    pub(crate) fn given(mut self) -> PyResult<Vec<Given>> {
        let mut given = Vec::new();
        while let Some(next) = self.next()? {
            given.push(next);
        }
        Ok(given)
    }

    /// The next few, none at the end. Handlers of signals run first.
    pub(crate) fn batch(&mut self) -> PyResult<Vec<Picture>> {
        let py = self.iterator.py();
        py.check_signals()?;
        let mut given = Vec::new();
        while given.len() < BATCH
            && let Some(next) = self.next()?
        {
            given.push(next);
        }
        computed(py, || given.into_par_iter().map(Given::picture).collect())?
    }

    fn next(&mut self) -> PyResult<Option<Given>> {
        let Some(value) = self.iterator.next() else {
            return Ok(None);
        };
        let place = self.taken;
        self.taken += 1;
        one(place, &value?).map(Some)
    }
}

fn one(place: usize, value: &Bound<'_, PyAny>) -> PyResult<Given> {
    if let Ok(path) = value.extract::<PathBuf>() {
        return Ok(Given::File(path));
    }
    if is_pillow(value)? {
        return from_pillow(place, value).map(Given::Pixels);
    }
    from_array(place, value).map(Given::Pixels)
}

/// True for an image of Pillow, which is asked only where a program has loaded it.
fn is_pillow(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let modules = value.py().import("sys")?.getattr("modules")?;
    match modules.call_method1("get", ("PIL.Image",))? {
        module if module.is_none() => Ok(false),
        module => value.is_instance(&module.getattr("Image")?),
    }
}

/// An image of Pillow, turned as the camera noted.
fn from_pillow(place: usize, image: &Bound<'_, PyAny>) -> PyResult<Picture> {
    let mode = image.getattr("mode")?.cast_into::<PyString>()?.to_string();
    if !MODES.contains(&mode.as_str()) {
        return Err(value_error(format!(
            "picture {place} has the mode {mode}: pictures have 8 bits a channel, as those of image.convert(\"RGB\")"
        )));
    }
    let turned = image.py().import("PIL.ImageOps")?.call_method1("exif_transpose", (image,))?;
    let image = turned.call_method1("convert", ("RGB",))?;
    let (width, height) = image.getattr("size")?.extract()?;
    let bytes = image.call_method0("tobytes")?.extract()?;
    Picture::from_rgb(width, height, bytes)
        .ok_or_else(|| value_error(format!("picture {place} is empty: {width}x{height} pixels")))
}

/// Bytes `[h, w]` of grey, or `[h, w, c]` with 1, 3 or 4 channels, of which the fourth is left out.
fn from_array(place: usize, value: &Bound<'_, PyAny>) -> PyResult<Picture> {
    let name = format!("picture {place}");
    let array = as_array(&name, value)?;
    let shape = array.shape().to_vec();
    if array.dtype().kind() == b'O' {
        return Err(type_error(format!(
            "{name} is a {}: pictures are paths, images of Pillow or arrays of bytes",
            value.get_type().name()?
        )));
    }
    let Ok(bytes) = array.cast::<PyArrayDyn<u8>>() else {
        return Err(type_error(format!(
            "{name} has the dtype {}: arrays of pictures are uint8, from 0 to 255",
            array.dtype()
        )));
    };
    let (height, width, channels) = match shape[..] {
        [height, width] => (height, width, 1),
        [height, width, channels @ (1 | 3 | 4)] => (height, width, channels),
        _ => {
            return Err(value_error(format!(
                "{name} has the shape {}: arrays of pictures are [h, w], or [h, w, c] with 1, 3 or 4 channels",
                shape_text(&shape)
            )));
        }
    };
    let bytes = in_order(bytes)?.to_vec()?;
    let pixels = bytes.chunks_exact(channels).flat_map(|pixel| match *pixel {
        [red, green, blue, ..] => [red, green, blue],
        _ => [pixel[0]; 3],
    });
    let (wide, high) = (u32::try_from(width), u32::try_from(height));
    let picture = wide
        .ok()
        .zip(high.ok())
        .and_then(|(width, height)| Picture::from_rgb(width, height, pixels.collect()));
    picture
        .ok_or_else(|| value_error(format!("{name} is empty: its shape is {}", shape_text(&shape))))
}
