//! Labels of NumPy's arrays.

use burn::tensor::{Int, Tensor, TensorData};
use numpy::{
    PyArray1, PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::B;
use crate::arrays::{as_array, numpy_function, shape_text};
use crate::errors::{type_error, value_error};

static UNIQUE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Labels of the support of tasks.
pub(crate) struct Labels<'py> {
    /// The classes, sorted, in the dtype of the labels.
    pub(crate) classes: Bound<'py, PyAny>,
    /// The place of each label among these.
    pub(crate) places: Vec<i64>,
    pub(crate) ways: usize,
}

impl<'py> Labels<'py> {
    /// Takes a label for each embedding of a support of this shape, whole numbers or text.
    pub(crate) fn new(
        value: &Bound<'py, PyAny>,
        [tasks, examples]: [usize; 2],
        several_tasks: bool,
    ) -> PyResult<Self> {
        let array = whole_or_text(value)?;
        let (expected, actual) = ([tasks, examples], array.shape());
        let expected = if several_tasks { &expected[..] } else { &expected[1..] };
        if actual != expected {
            return Err(value_error(format!(
                "labels have the shape {}: a support of this shape has labels of {}",
                shape_text(actual),
                shape_text(expected)
            )));
        }
        let (classes, places) = classes_and_places(&array)?;
        let ways = classes.len()?;
        if ways < 2 {
            return Err(value_error(format!(
                "labels have {ways} class: it takes at least two to choose among"
            )));
        }
        for (task, places) in places.chunks_exact(examples).enumerate() {
            let is_there = |class: &usize| places.contains(&(*class as i64));
            if let Some(class) = (0..ways).find(|class| !is_there(class)) {
                let class = classes.get_item(class)?;
                return Err(value_error(format!(
                    "task {task} has no example of class {class}: tasks of one call share their classes"
                )));
            }
        }
        Ok(Self { classes, places, ways })
    }

    /// `[t, n]`
    pub(crate) fn tensor(places: &[i64], shape: [usize; 2]) -> Tensor<B, 2, Int> {
        let places: Vec<i32> = places.iter().map(|&place| place as i32).collect();
        Tensor::from_data(TensorData::new(places, shape), &Default::default())
    }
}

/// The classes, sorted, and the place of each label among them.
fn classes_and_places<'py>(
    array: &Bound<'py, PyUntypedArray>,
) -> PyResult<(Bound<'py, PyAny>, Vec<i64>)> {
    let py = array.py();
    // NumPy takes several times as long.
    if let Ok(labels) = array.cast::<PyArrayDyn<i64>>() {
        let labels: Vec<i64> = labels.readonly().as_array().iter().copied().collect();
        let mut classes = labels.clone();
        classes.sort_unstable();
        classes.dedup();
        let place = |label| classes.partition_point(|class| class < label) as i64;
        let places = labels.iter().map(place).collect();
        return Ok((PyArray1::from_vec(py, classes).into_any(), places));
    }
    let inverse = PyDict::new(py);
    inverse.set_item("return_inverse", true)?;
    let unique = numpy_function(py, &UNIQUE, "unique")?;
    let (classes, places): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
        unique.call((array,), Some(&inverse))?.extract()?;
    let places: Bound<'_, PyArray1<i64>> =
        places.call_method1("ravel", ())?.call_method1("astype", ("int64",))?.cast_into()?;
    Ok((classes, places.to_vec()?))
}

/// Labels as names of classes: one for each of `rows`.
pub(crate) fn names(value: &Bound<'_, PyAny>, rows: usize) -> PyResult<Vec<String>> {
    let array = whole_or_text(value)?;
    if array.shape() != [rows] {
        return Err(value_error(format!(
            "labels have the shape {}: {rows} embeddings have labels of ({rows},)",
            shape_text(array.shape())
        )));
    }
    let names = array.call_method0("tolist")?.try_iter()?;
    names.map(|name| Ok(name?.str()?.to_string())).collect()
}

/// An array of whole numbers or text. Objects that are all text are taken for it.
fn whole_or_text<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = as_array("labels", value)?;
    let dtype = array.dtype();
    match dtype.kind() {
        b'i' | b'u' | b'U' | b'T' => Ok(array),
        b'O' if all_text(&array)? => Ok(array.call_method1("astype", ("str",))?.cast_into()?),
        _ => Err(type_error(format!(
            "labels have the dtype {dtype}: they are whole numbers or text"
        ))),
    }
}

fn all_text(array: &Bound<'_, PyUntypedArray>) -> PyResult<bool> {
    for label in array.call_method0("ravel")?.try_iter()? {
        if !label?.is_instance_of::<PyString>() {
            return Ok(false);
        }
    }
    Ok(true)
}
