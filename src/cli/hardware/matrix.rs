use burn::tensor::backend::Backend;
use fewshot::catalog::{Backbone, Catalog, Cell, Estimate, Matrix, MatrixRow, Method, smoke};
use fewshot::episode::Protocol;
use fewshot::hardware::{
    DeviceInfo, DeviceKey, DevicePreference, HardwareError, Inventory, OptimizerKind, Precision,
    Work, guarded, run_on,
};
use fewshot::kernels::route;

use super::args::{MatrixArgs, TaskArgs};
use super::list;
use super::models::{self, training_need};
use crate::cli::error::CliError;
use crate::cli::output::{print, print_status};
use crate::cli::train::GradCheckpoint;

/// A column: a device that is there, or what was asked for and is not.
enum Column {
    Here(Box<DeviceInfo>),
    Absent(DeviceKey),
}

fn here(info: DeviceInfo) -> Column {
    Column::Here(Box::new(info))
}

pub(super) fn run(args: &MatrixArgs) -> Result<(), CliError> {
    let inventory = list::inventory(&args.machine, &DevicePreference::Auto)?;
    let ours = args.machine.inventory.is_none();
    let columns = columns(args, &inventory)?;
    let catalog = Catalog::built_in();
    let backbones = match args.models.as_slice() {
        [] => catalog.backbones().iter().collect::<Vec<_>>(),
        names => names.iter().map(|name| catalog.get(name)).collect::<Result<_, _>>()?,
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
    let devices = columns.into_iter().map(|column| match column {
        Column::Here(info) => info.key,
        Column::Absent(key) => key,
    });
    let matrix = Matrix { devices: devices.collect(), rows };
    for failure in matrix.failures() {
        print_status(failure);
    }
    match (args.machine.json, args.markdown) {
        (true, _) => print(serde_json::json!(matrix))?,
        (_, true) => print(matrix.markdown())?,
        _ => print(&matrix)?,
    }
    let asked = !args.models.is_empty() || !args.devices.is_empty();
    match matrix.refusals() {
        0 => Ok(()),
        refusals if asked => Err(CliError::Failed(format!(
            "{refusals} of the cells that were asked for failed, are too big, or have no device"
        ))),
        _ => Ok(()),
    }
}

fn columns(args: &MatrixArgs, inventory: &Inventory) -> Result<Vec<Column>, CliError> {
    if args.devices.is_empty() {
        return Ok(inventory.devices.iter().cloned().map(here).collect());
    }
    let chosen = args.devices.iter().map(|wanted| match (inventory.select(wanted), wanted) {
        (Ok(selection), _) => Ok(here(selection.device)),
        (Err(HardwareError::Unavailable { .. }), DevicePreference::Device(key)) => {
            Ok(Column::Absent(key.clone()))
        }
        (Err(HardwareError::Unavailable { .. }), DevicePreference::Platform(name)) => {
            Ok(Column::Absent(DeviceKey::new(name, 0)))
        }
        (Err(error), _) => Err(error.into()),
    });
    chosen.collect()
}

fn cell(
    column: &Column,
    backbone: &Backbone,
    precision: Precision,
    ours: bool,
) -> Result<Cell, CliError> {
    let info = match column {
        Column::Absent(_) => return Ok(Cell::NoDevice),
        Column::Here(info) => info,
    };
    if !ours {
        let (task, keep) = (TaskArgs::default(), GradCheckpoint::None);
        let need = training_need(backbone, &task, keep, models::route(info))?.bytes;
        return Ok(Cell::asked(info, precision, need).unwrap_or(Cell::Untested));
    }
    Ok(run_on(&info.key, Trying { info, backbone, precision })?)
}

struct Trying<'a> {
    info: &'a DeviceInfo,
    backbone: &'a Backbone,
    precision: Precision,
}

impl Work for Trying<'_> {
    type Output = Cell;

    fn run<B: Backend>(self, device: B::Device) -> Cell {
        let Self { info, backbone, precision } = self;
        let (method, adam) = (Method::ProtoNet, OptimizerKind::Adam);
        let protocol = Protocol::new(5, 1);
        let estimate = Estimate::new::<B>(backbone, method, protocol, adam, route::<B>(), &device);
        let need = estimate.plan(1).total().bytes;
        if let Some(cell) = Cell::asked(info, precision, need) {
            return cell;
        }
        print_status(format_args!(
            "trying {} in {} on {}",
            backbone.name,
            precision.dtype(),
            info.key
        ));
        let ran = guarded::<B, _>(&device, || smoke::<B>(backbone, precision, &device));
        Cell::ran(info, precision, ran.map_err(|error| error.to_string()).and_then(|ran| ran))
    }
}
