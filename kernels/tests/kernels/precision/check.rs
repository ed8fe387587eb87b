use super::*;
use fewshot_kernels::Acceleration;

/// Those of which a device need not have tensor cores.
const ANYWHERE: [Precision; 3] = [Precision::F32, Precision::MixedF16, Precision::MixedBf16];

#[test]
fn flex_computes_in_every_precision_without_units_for_any() {
    for precision in ANYWHERE {
        let device = Default::default();
        assert_eq!(precision.check::<Flex>(&device), Ok(Acceleration::None), "{precision:?}");
        assert_eq!(precision.check::<Twice>(&device), Ok(Acceleration::None), "{precision:?}");
    }
}

#[test]
fn tf32_is_of_devices_with_tensor_cores_alone() {
    let error = Precision::Tf32.check::<Twice>(&Default::default()).unwrap_err().to_string();
    assert_eq!(error, "autodiff<autodiff<flex>> does not compute in tf32");
}

#[cfg(feature = "ndarray")]
#[test]
fn a_backend_without_the_type_says_so_with_both_names() {
    type NdArray = burn::backend::NdArray;
    let device = Default::default();
    assert_eq!(Precision::F32.check::<NdArray>(&device), Ok(Acceleration::None));
    for precision in [Precision::MixedF16, Precision::MixedBf16] {
        let error = precision.check::<NdArray>(&device).unwrap_err().to_string();
        let wanted = format!("ndarray does not compute in {}", precision.dtype());
        assert_eq!(error, wanted);
    }
}
