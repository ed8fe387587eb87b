//! Memory of NumPy's arrays as that of tensors.

use burn::tensor::{AllocationProperty, Bytes};
use numpy::{PyArrayDyn, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// The bytes of an array, which stays as long as this does.
pub(crate) struct SharedArray {
    _array: Py<PyArrayDyn<f32>>,
    first: *const u8,
    length: usize,
}

// SAFETY: the array is only held, and released as PyO3 releases objects on any thread; its bytes are only read.
unsafe impl Send for SharedArray {}

impl SharedArray {
    /// The bytes of an array in C order. Whoever changes them gets a copy.
    pub(crate) fn bytes_of(array: &Bound<'_, PyArrayDyn<f32>>) -> Bytes {
        assert!(array.is_c_contiguous(), "values follow one another");
        let (first, length) = (array.data().cast_const().cast(), array.len() * size_of::<f32>());
        let shared = Self { _array: array.clone().unbind(), first, length };
        Bytes::from_shared(bytes::Bytes::from_owner(shared), AllocationProperty::Other)
    }
}

impl AsRef<[u8]> for SharedArray {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a C-contiguous array has so many bytes from its first on, which stay where they are while it is held. A
        // program that writes into it meanwhile gets numbers of before or after, as from NumPy's own functions.
        unsafe { std::slice::from_raw_parts(self.first, self.length) }
    }
}
