//! Tensors of a file, arranged as a network has them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use burn::module::ParamId;
use burn::tensor::{DType, TensorData};
use burn_store::{TensorSnapshot, TensorSnapshotError};

use super::WeightsError;
use super::branch::Branch;

/// Rows as columns; what is no matrix stays as it is.
pub(super) fn transposed(given: TensorSnapshot) -> TensorSnapshot {
    let [rows, columns] = given.shape.to_vec()[..] else { return given };
    in_f32(Vec::new(), vec![columns, rows], move || {
        let values = values(&given)?;
        let turned = (0..values.len()).map(|at| values[at % rows * columns + at / rows]);
        Ok(TensorData::new(turned.collect::<Vec<_>>(), [columns, rows]))
    })
}

/// All tensors of a branch; the parts that each of `groups` names are joined along their first dimension, under the name of the first.
///
/// # Errors
/// Where a part is missing, or parts differ in shape beyond their first dimension.
pub(super) fn joined(
    branch: &Branch,
    mut given: BTreeMap<String, TensorSnapshot>,
    groups: &[&[&str]],
    expected: usize,
) -> Result<BTreeMap<String, TensorSnapshot>, WeightsError> {
    for group in groups {
        let whole = |name: &String| {
            let part = group.iter().find(|part| name.contains(**part))?;
            Some(name.replace(part, group[0]))
        };
        let wholes: BTreeSet<String> = given.keys().filter_map(whole).collect();
        for whole in wholes {
            let names: Vec<_> = group.iter().map(|part| whole.replace(group[0], part)).collect();
            let absent: Vec<_> = names.iter().filter(|name| !given.contains_key(*name)).collect();
            if let Some(first) = absent.first() {
                let (file, parameter) = (branch.file.to_owned(), branch.named(first));
                let (nearest, missing) = (None, absent.len());
                return Err(WeightsError::Missing { file, parameter, nearest, missing, expected });
            }
            let parts = names.iter().filter_map(|name| given.remove_entry(name)).collect();
            given.insert(whole, one(branch, parts)?);
        }
    }
    Ok(given)
}

fn one(
    branch: &Branch,
    parts: Vec<(String, TensorSnapshot)>,
) -> Result<TensorSnapshot, WeightsError> {
    let mut shape = parts[0].1.shape.to_vec();
    for (name, part) in &parts[1..] {
        if part.shape.get(1..) != shape.get(1..) || shape.is_empty() {
            let (file, parameter) = (branch.file.to_owned(), branch.named(name));
            let actual = part.shape.to_vec();
            return Err(WeightsError::Shape { file, parameter, expected: shape, actual });
        }
        shape[0] += part.shape[0];
    }
    let to = shape.clone();
    Ok(in_f32(Vec::new(), shape, move || {
        let all: Result<Vec<_>, _> = parts.iter().map(|(_, part)| values(part)).collect();
        Ok(TensorData::new(all?.concat(), to.clone()))
    }))
}

/// A tensor under the network's name, in f32, with as many leading dimensions of 1 as the network has.
pub(super) fn renamed(tensor: TensorSnapshot, name: &str, own: &[usize]) -> TensorSnapshot {
    let from_ones =
        |shape: &[usize]| shape.iter().skip_while(|side| **side == 1).copied().collect();
    let bare: Vec<usize> = from_ones(&tensor.shape);
    let shape = if bare == from_ones(own) { own } else { &tensor.shape }.to_vec();
    let (data, to) = (tensor.clone_data_fn(), shape.clone());
    let path = name.split('.').map(str::to_owned).collect();
    in_f32(path, shape, move || {
        let mut data = data()?.convert_dtype(DType::F32);
        data.shape = to.clone().into();
        Ok(data)
    })
}

fn values(of: &TensorSnapshot) -> Result<Vec<f32>, TensorSnapshotError> {
    Ok(of.to_data()?.convert_dtype(DType::F32).iter().collect())
}

/// A tensor in f32 with the name that `path` makes, of which there may be none yet.
pub(super) fn in_f32(
    path: Vec<String>,
    shape: Vec<usize>,
    data: impl Fn() -> Result<TensorData, TensorSnapshotError> + 'static,
) -> TensorSnapshot {
    let (data, id) = (Rc::new(data), ParamId::new());
    TensorSnapshot::from_closure(data, DType::F32, shape.into(), path, Vec::new(), id)
}
