use fewshot::catalog::{self, Backbone, Cell, Matrix, MatrixRow, Method, smoke};
use fewshot::episode::Protocol;
use fewshot::hardware::{
    Checkpointing, DeviceInfo, DeviceKey, DevicePreference, HardwareError, Inventory,
    OptimizerKind, Precision, guarded, run_on,
};
use fewshot::kernels::{Route, route};

use super::args::MatrixArgs;
use super::list;
use super::models::{self, Estimating};
use crate::prelude::*;

/// The training that must fit.
fn planned(backbone: &Backbone, route: Route) -> Estimating<'_> {
    let (method, protocol) = (Method::ProtoNet, Protocol::new(5, 1));
    let (optimizer, checkpointing) = (OptimizerKind::Adam, Checkpointing::Nothing);
    Estimating { backbone, method, protocol, optimizer, checkpointing, route }
}

/// A column: a device, or one that was named and is absent.
type Column = Result<DeviceInfo, DeviceKey>;

pub(super) fn run(args: &MatrixArgs) -> Result {
    let inventory = list::inventory(&args.machine, &DevicePreference::Auto)?;
    let ours = args.machine.inventory.is_none();
    let columns = columns(args, &inventory)?;
    let backbones = match args.models.as_slice() {
        [] => catalog::backbones().iter().collect::<Vec<_>>(),
        names => names.iter().map(|name| catalog::backbone(name)).collect::<Result<_, _>>()?,
    };
    let mut rows = Vec::new();
    for backbone in backbones {
        for precision in Precision::ALL {
            let cells = columns.iter().map(|column| cell(column, backbone, precision, ours));
            rows.push(MatrixRow {
                backbone: backbone.name.clone(),
                precision,
                cells: cells.collect::<Result<_, _>>()?,
            });
        }
    }
    let devices = columns.into_iter().map(|column| column.map_or_else(|key| key, |info| info.key));
    let matrix = Matrix { devices: devices.collect(), rows };
    for failure in matrix.failures() {
        print_status(failure);
    }
    if args.machine.json {
        print(json!(matrix))?;
    } else if args.markdown {
        let mut lines = matrix.cells();
        lines.insert(1, vec!["---".to_owned(); lines[0].len()]);
        let lines = lines.iter().map(|cells| format!("| {} |", cells.join(" | ")));
        print(lines.collect::<Vec<_>>().join("\n"))?;
    } else {
        print(table(matrix.cells()))?;
    }
    let by_name = !args.models.is_empty() || !args.devices.is_empty();
    match matrix.refusals() {
        0 => Ok(()),
        refusals if by_name => Err(failed!(
            "{refusals} of the cells that were asked for failed, are too big, or have no device"
        )),
        _ => Ok(()),
    }
}

fn columns(args: &MatrixArgs, inventory: &Inventory) -> Result<Vec<Column>> {
    if args.devices.is_empty() {
        return Ok(inventory.devices.iter().cloned().map(Ok).collect());
    }
    let chosen =
        args.devices.iter().map(|preference| match (inventory.select(preference), preference) {
            (Ok(selection), _) => Ok(Ok(selection.device)),
            (Err(HardwareError::Unavailable { .. }), DevicePreference::Device(key)) => {
                Ok(Err(key.clone()))
            }
            (Err(HardwareError::Unavailable { .. }), DevicePreference::Platform(name)) => {
                Ok(Err(DeviceKey::new(name, 0)))
            }
            (Err(error), _) => Err(error.into()),
        });
    chosen.collect()
}

fn cell(column: &Column, backbone: &Backbone, precision: Precision, ours: bool) -> Result<Cell> {
    let Ok(info) = column else { return Ok(Cell::NoDevice) };
    if ours {
        return Ok(run_on(vec![info.clone()], Trying { info, backbone, precision })?);
    }
    let need = planned(backbone, models::route(info)).need()?.bytes;
    Ok(Cell::predicted(info, precision, need).unwrap_or(Cell::Untested))
}

struct Trying<'a> {
    info: &'a DeviceInfo,
    backbone: &'a Backbone,
    precision: Precision,
}

impl Work for Trying<'_> {
    type Output = Cell;

    fn run<B: Backend>(self, hardware: HardwareManager<B>) -> Cell {
        let Self { info, backbone, precision } = self;
        let device = hardware.device();
        let estimate = planned(backbone, route::<B>()).on::<B>(device);
        let need = estimate.planner.plan(1).total().bytes;
        if let Some(cell) = Cell::predicted(info, precision, need) {
            return cell;
        }
        let (name, dtype, key) = (&backbone.name, precision.dtype(), &info.key);
        print_status(format_args!("trying {name} in {dtype} on {key}"));
        let ran = guarded::<B, _>(device, || smoke::<B>(backbone, precision, device));
        Cell::ran(info, precision, ran.map_err(|error| error.to_string()).and_then(|ran| ran))
    }
}
