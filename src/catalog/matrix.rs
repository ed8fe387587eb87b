use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hardware::{Bytes, DeviceInfo, DeviceKey, Precision};

/// Table of backbones and precisions by devices. Each cell comes from the device's capabilities or from a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matrix {
    /// The columns: devices, present or named and absent.
    pub devices: Vec<DeviceKey>,
    /// The rows.
    pub rows: Vec<MatrixRow>,
}

/// A backbone in a precision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixRow {
    /// Name of the backbone.
    pub backbone: String,
    /// Type that its products compute in.
    pub precision: Precision,
    /// One for each device.
    pub cells: Vec<Cell>,
}

/// Outcome of a backbone on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// It ran.
    Ok,
    /// It ran, on a device without units for the data type.
    Slow,
    /// The device does not compute in the data type.
    NoDtype,
    /// Training does not fit its memory.
    TooBig {
        /// Memory of a task.
        need: Bytes,
        /// Free memory.
        have: Bytes,
    },
    /// It was tried, and did not run.
    Failed(String),
    /// The device is not there.
    NoDevice,
    /// The device is another machine's.
    Untested,
}

impl Cell {
    /// Outcome that follows from the capabilities of `device` for training that takes `need`; `None` where only a
    /// run can show it.
    pub fn predicted(device: &DeviceInfo, precision: Precision, need: Bytes) -> Option<Self> {
        if !device.capabilities.dtype(precision.dtype()).arithmetic {
            return Some(Self::NoDtype);
        }
        let have = device.memory.free.filter(|have| need > *have)?;
        Some(Self::TooBig { need, have })
    }

    /// The result of a run.
    pub fn ran(device: &DeviceInfo, precision: Precision, result: Result<(), String>) -> Self {
        let accelerated = device.capabilities.dtype(precision.dtype()).accelerated;
        match result {
            Err(reason) => Self::Failed(reason),
            Ok(()) if precision == Precision::F32 || accelerated => Self::Ok,
            Ok(()) => Self::Slow,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.pad("ok"),
            Self::Slow => f.pad("slow"),
            Self::NoDtype => f.pad("no dtype"),
            Self::TooBig { need, have } => f.pad(&format!("too big ({need}, {have} free)")),
            Self::Failed(_) => f.pad("failed"),
            Self::NoDevice => f.pad("no device"),
            Self::Untested => f.pad("untested"),
        }
    }
}

impl Matrix {
    /// The cells of a table, row by row, a header first.
    pub fn cells(&self) -> Vec<Vec<String>> {
        let line = |names: [&str; 2], cells: &mut dyn Iterator<Item = String>| {
            names.map(str::to_owned).into_iter().chain(cells).collect()
        };
        let devices = &mut self.devices.iter().map(ToString::to_string);
        let header = line(["backbone", "precision"], devices);
        let rows = self.rows.iter().map(|row| {
            let cells = &mut row.cells.iter().map(ToString::to_string);
            line([&row.backbone, row.precision.dtype()], cells)
        });
        std::iter::once(header).chain(rows).collect()
    }

    /// Failures with their reasons, a line each.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for MatrixRow { backbone, precision, cells } in &self.rows {
            for (cell, device) in cells.iter().zip(&self.devices) {
                if let Cell::Failed(reason) = cell {
                    let dtype = precision.dtype();
                    failures.push(format!("{backbone} in {dtype} on {device}: {reason}"));
                }
            }
        }
        failures
    }

    /// Number of cells that failed, are too big, or have no device.
    pub fn refusals(&self) -> usize {
        let refused =
            |cell: &&Cell| matches!(cell, Cell::Failed(_) | Cell::TooBig { .. } | Cell::NoDevice);
        self.rows.iter().flat_map(|row| &row.cells).filter(refused).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Inventory;

    fn device(machine: &str, key: &str) -> DeviceInfo {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/inventories/");
        let inventory = Inventory::read(format!("{folder}{machine}.json").as_ref()).unwrap();
        inventory.devices.into_iter().find(|info| info.key.to_string() == key).unwrap()
    }

    #[test]
    fn cells_follow_from_types_memory_and_the_run() {
        let h200 = device("8xh200", "cuda:0");
        let numpy = device("amd_laptop", "ndarray:0");
        let small = Bytes(1 << 20);
        assert_eq!(Cell::predicted(&numpy, Precision::MixedBf16, small), Some(Cell::NoDtype));
        assert_eq!(Cell::predicted(&numpy, Precision::F32, small), None);
        let large = Bytes(13 << 30);
        let too_big = Cell::TooBig { need: large, have: Bytes(12 << 30) };
        assert_eq!(Cell::predicted(&h200, Precision::F32, large), Some(too_big));
        assert_eq!(Cell::ran(&h200, Precision::MixedF16, Ok(())), Cell::Ok);
        let flex = device("8xh200", "flex:0");
        assert_eq!(Cell::ran(&flex, Precision::MixedF16, Ok(())), Cell::Slow);
        assert_eq!(Cell::ran(&flex, Precision::F32, Ok(())), Cell::Ok);
        let failed = Cell::ran(&flex, Precision::F32, Err("no".to_owned()));
        assert_eq!(failed, Cell::Failed("no".to_owned()));
    }

    #[test]
    fn a_matrix_is_a_table() {
        let matrix = Matrix {
            devices: vec![DeviceKey::new("flex", 0), DeviceKey::new("cuda", 0)],
            rows: vec![MatrixRow {
                backbone: "conv4".to_owned(),
                precision: Precision::MixedF16,
                cells: vec![Cell::Slow, Cell::Failed("driver".to_owned())],
            }],
        };
        let cells =
            [["backbone", "precision", "flex:0", "cuda:0"], ["conv4", "f16", "slow", "failed"]];
        assert_eq!(matrix.cells(), cells);
        assert_eq!(matrix.refusals(), 1);
        assert_eq!(matrix.failures(), ["conv4 in f16 on cuda:0: driver"]);
        let json = serde_json::to_string(&matrix).unwrap();
        assert_eq!(serde_json::from_str::<Matrix>(&json).unwrap(), matrix);
    }
}
