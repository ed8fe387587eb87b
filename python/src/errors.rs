//! Errors of the library as Python's exceptions, with their texts.

use std::error::Error;
use std::io;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// `FileNotFoundError` and its relatives where a file is at fault, `ValueError` otherwise.
pub(crate) fn exception(error: impl Error + 'static) -> PyErr {
    let text = error.to_string();
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return io::Error::new(error.kind(), text).into();
        }
        cause = error.source();
    }
    PyValueError::new_err(text)
}

pub(crate) fn value_error(text: impl Into<String>) -> PyErr {
    PyValueError::new_err(text.into())
}

pub(crate) fn type_error(text: impl Into<String>) -> PyErr {
    PyTypeError::new_err(text.into())
}
