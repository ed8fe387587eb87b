use fewshot::hardware::{
    DeviceInfo, DeviceKey, DevicePreference, Inventory, Rejection, Selection, Tier,
};

use super::args::MachineArgs;
use crate::prelude::*;

pub(super) fn inventory(machine: &MachineArgs, preference: &DevicePreference) -> Result<Inventory> {
    match &machine.inventory {
        Some(path) => Ok(Inventory::read(path)?),
        None => Ok(backend::inventory(preference)),
    }
}

pub(super) fn selected(machine: &MachineArgs, preference: &DevicePreference) -> Result<Selection> {
    match &machine.inventory {
        Some(_) => Ok(inventory(machine, preference)?.select(preference)?),
        None => backend::select(preference),
    }
}

pub(super) fn list(device: &DevicePreference, machine: &MachineArgs) -> Result {
    let inventory = inventory(machine, &DevicePreference::Auto)?;
    let selection = inventory.select(device);
    let selected = selection.as_ref().ok().map(|selection| &selection.device.key);
    if machine.json {
        let mut value = json!(inventory);
        if let Ok(selection) = &selection {
            value["selected"] = json!(selection.device.key);
            value["skipped"] = json!(selection.skipped);
        }
        print(value)?;
    } else {
        print(devices(&inventory, selected))?;
    }
    selection.map(|_| ()).map_err(CliError::from)
}

pub(super) fn devices(inventory: &Inventory, selected: Option<&DeviceKey>) -> String {
    let mut rows = vec![
        ["ID", "PLATFORM", "NAME", "MEMORY total / free", "DTYPES", "STATUS"].map(str::to_owned),
    ];
    rows.extend(inventory.devices.iter().map(|device| row(device, selected)));
    rows.extend(inventory.rejected.iter().map(rejected));
    let starred = "\n* with units of its own for products of matrices";
    let any = inventory.devices.iter().any(|device| device.capabilities.dtype_list().contains('*'));
    table(rows) + if any { starred } else { "" }
}

fn row(device: &DeviceInfo, selected: Option<&DeviceKey>) -> [String; 6] {
    let memory = match (device.memory.total, device.memory.unified) {
        (None, Some(true)) => "shared".to_owned(),
        (None, _) => "-".to_owned(),
        (total, _) => format!("{} / {}", known(total), known(device.memory.free)),
    };
    let mut status = format!("ok, {:.0} ms", device.probe_ms);
    if device.tier == Tier::Software {
        status += ", software";
    }
    if let Some(reason) = &device.skipped {
        status += &format!(", skipped: {reason}");
    }
    if Some(&device.key) == selected {
        status += "  <- selected";
    }
    let dtypes = device.capabilities.dtype_list();
    let platform = device.key.platform.clone();
    [device.key.to_string(), platform, device.name.clone(), memory, dtypes, status]
}

fn rejected(rejection: &Rejection) -> [String; 6] {
    let status = format!("unavailable: {}", rejection.reason);
    [&rejection.what, rejection.platform(), "-", "-", "-", &status].map(str::to_owned)
}

pub(super) fn info(device: &DevicePreference, machine: &MachineArgs) -> Result {
    let selection = selected(machine, device)?;
    if machine.json {
        return print(json!(selection));
    }
    print(facts(&selection.device))
}

/// Known facts of a device, a line each.
pub(super) fn facts(device: &DeviceInfo) -> String {
    fn text<T: ToString>(value: &Option<T>) -> Option<String> {
        value.as_ref().map(ToString::to_string)
    }
    let yes = |value: Option<bool>| value.map(|value| if value { "yes" } else { "no" }.to_owned());
    let able = &device.capabilities;
    let all = [
        ("device", Some(device.key.to_string())),
        ("name", Some(device.name.clone())),
        ("driver", device.driver.clone()),
        ("memory", text(&device.memory.total)),
        ("free memory", text(&device.memory.free)),
        ("unified memory", yes(device.memory.unified)),
        ("data types", Some(able.dtype_list())),
        ("kernels", able.route.clone()),
        ("cores", text(&able.cores)),
        ("instructions", able.instructions.as_ref().map(|all| all.join(" "))),
        ("plane", able.plane.map(|[low, high]| format!("{low} to {high} lanes"))),
        ("plane operations", yes(able.plane_operations)),
        ("shared memory", text(&able.shared_memory)),
        ("largest buffer", text(&able.largest_buffer)),
        ("bindings", text(&able.bindings)),
        ("multiprocessors", text(&able.multiprocessors)),
        ("tensor cores", able.tensor_cores.map(|n| format!("{n} a multiprocessor"))),
        ("tried in", Some(format!("{:.1} ms", device.probe_ms))),
    ];
    let known = all.into_iter().filter_map(|(name, value)| Some(format!("{name:<18}{}", value?)));
    known.collect::<Vec<_>>().join("\n")
}
