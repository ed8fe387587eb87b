//! NumPy's arrays as tensors.

use burn::tensor::{AllocationProperty, Bytes, DType, Tensor, TensorData};
use numpy::{
    PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::B;
use crate::errors::{type_error, value_error};
use crate::shared_array::SharedArray;

/// Values that are checked for being finite at a time.
const CHECKED: usize = 1024;

/// Embeddings of one task, `[n, d]`, or of several, `[t, n, d]`: float32 in C order, finite, and at least one.
pub(crate) struct Embeddings<'py> {
    name: &'static str,
    array: Bound<'py, PyArrayDyn<f32>>,
}

impl<'py> Embeddings<'py> {
    /// Takes what NumPy makes an array of. Arrays of float32 in C order are read where they are; others are converted.
    pub(crate) fn new(name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let given = as_array(name, value)?;
        let kind = given.dtype().kind();
        if !matches!(kind, b'f' | b'i' | b'u') {
            return Err(type_error(format!(
                "{name} has the dtype {}: embeddings are real numbers, as float32",
                given.dtype()
            )));
        }
        let shape = given.shape();
        if !matches!(shape.len(), 2 | 3) {
            return Err(value_error(format!(
                "{name} has the shape {}: embeddings are [n, d], those of several tasks [t, n, d]",
                shape_text(shape)
            )));
        }
        if shape.contains(&0) {
            return Err(value_error(format!(
                "{name} is empty: its shape is {}",
                shape_text(shape)
            )));
        }
        let embeddings = Self { name, array: float32(&given)? };
        embeddings.check_finite(&given)?;
        Ok(embeddings)
    }

    /// The same of one task alone.
    pub(crate) fn single_task(name: &'static str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let embeddings = Self::new(name, value)?;
        match embeddings.several_tasks() {
            false => Ok(embeddings),
            true => Err(value_error(format!(
                "{name} has the shape {}: embeddings are [n, d]",
                shape_text(embeddings.array.shape())
            ))),
        }
    }

    pub(crate) fn several_tasks(&self) -> bool {
        self.array.ndim() == 3
    }

    /// Tasks, embeddings of each, and their values.
    pub(crate) fn shape(&self) -> [usize; 3] {
        match *self.array.shape() {
            [tasks, examples, length] => [tasks, examples, length],
            ref shape => [1, shape[0], shape[1]],
        }
    }

    /// All values.
    pub(crate) fn to_vec(&self) -> PyResult<Vec<f32>> {
        Ok(self.array.to_vec()?)
    }

    /// Tensors `[t, n, d]` of `part` tasks each, or fewer at the end. Their memory is the array's.
    pub(crate) fn parts(&self, part: usize) -> Vec<Tensor<B, 3>> {
        let [tasks, examples, length] = self.shape();
        let (all, task) =
            (SharedArray::bytes_of(&self.array), examples * length * size_of::<f32>());
        let tensor = |first: usize| {
            let end = (first + part).min(tasks);
            let bytes = all.slice(first * task..end * task);
            let bytes = Bytes::from_shared(bytes, AllocationProperty::Other);
            let data = TensorData::from_bytes(bytes, [end - first, examples, length], DType::F32);
            Tensor::from_data(data, &Default::default())
        };
        (0..tasks).step_by(part).map(tensor).collect()
    }

    fn check_finite(&self, given: &Bound<'py, PyUntypedArray>) -> PyResult<()> {
        let array = self.array.readonly();
        let values = array.as_slice()?;
        let is_finite =
            |chunk: &&[f32]| chunk.iter().fold(true, |all, value| all & value.is_finite());
        let Some(chunk) = values.chunks(CHECKED).position(|chunk| !is_finite(&chunk)) else {
            return Ok(());
        };
        let within = values[chunk * CHECKED..].iter().position(|value| !value.is_finite());
        let place = chunk * CHECKED + within.expect("a chunk has such a value");
        let [_, examples, length] = self.shape();
        let (row, column) = (place / length, place % length);
        let (task, row_of_task) = (row / examples, row % examples);
        let (place, value) = match self.several_tasks() {
            true => (
                format!("task {task}, row {row_of_task}, column {column}"),
                given.get_item((task, row_of_task, column))?,
            ),
            false => (format!("row {row}, column {column}"), given.get_item((row, column))?),
        };
        let name = self.name;
        Err(value_error(format!(
            "{name} has {value} in {place}: embeddings are finite numbers of float32"
        )))
    }
}

/// The array that NumPy makes of a value.
pub(crate) fn as_array<'py>(
    name: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = numpy_function(value.py(), &AS_ARRAY, "asarray")?.call1((value,));
    let array = array.map_err(|error| value_error(format!("{name} is no array: {error}")))?;
    Ok(array.cast_into()?)
}

static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static REQUIRE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static ERR_STATE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A function of NumPy, looked up once.
pub(crate) fn numpy_function<'py>(
    py: Python<'py>,
    function: &'static PyOnceLock<Py<PyAny>>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    function.import(py, "numpy", name)
}

/// The array in float32 and in C order: itself, if it is so.
fn float32<'py>(given: &Bound<'py, PyUntypedArray>) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
    let py = given.py();
    if let Ok(array) = given.cast::<PyArrayDyn<f32>>()
        && array.is_c_contiguous()
        && array.readonly().as_slice().is_ok()
    {
        return Ok(array.clone());
    }
    // A value beyond float32 becomes infinite, and is refused with its place.
    let quiet = PyDict::new(py);
    quiet.set_item("over", "ignore")?;
    let quiet = numpy_function(py, &ERR_STATE, "errstate")?.call((), Some(&quiet))?;
    quiet.call_method0("__enter__")?;
    let array = numpy_function(py, &REQUIRE, "require")?.call1((given, "float32", ["C", "A"]));
    quiet.call_method1("__exit__", (py.None(), py.None(), py.None()))?;
    Ok(array?.cast_into()?)
}

/// An array of bytes in C order: itself, if it is so.
pub(crate) fn in_order<'py>(
    array: &Bound<'py, PyArrayDyn<u8>>,
) -> PyResult<Bound<'py, PyArrayDyn<u8>>> {
    let py = array.py();
    let array = numpy_function(py, &REQUIRE, "require")?.call1((array, py.None(), ["C", "A"]))?;
    Ok(array.cast_into()?)
}

/// A shape as NumPy writes it.
pub(crate) fn shape_text(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        several => {
            format!("({})", several.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}
