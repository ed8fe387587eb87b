use fewshot_kernels::Route;
use fewshot_models::{Cost, CostModel};

use super::*;
use crate::hardware::{Checkpointing, ParameterProfile, Provenance};

/// 10 values to train in `body`, 3 in `head` and 2 running averages.
fn profile() -> ModelProfile {
    let tensor = |path: &str, values: u64, trainable| ParameterProfile {
        path: path.to_owned(),
        values,
        bytes: Bytes(4 * values),
        trainable,
    };
    let parameters =
        vec![tensor("body.w", 10, true), tensor("head.w", 3, true), tensor("body.m", 2, false)];
    ModelProfile { parameters }
}

fn planner(method: Method, optimizer: OptimizerKind) -> MemoryPlanner {
    let activations = Activations {
        support: Cost {
            saved: 100,
            intermediate_grads: 30,
            tangents: 90,
            largest_map: 10,
            ..Cost::default()
        },
        queries: Cost { saved: 1000, largest_map: 50, ..Cost::default() },
        joint: Cost {
            saved: 1100,
            workspace: 20,
            lane_workspace: 3,
            largest_map: 70,
            ..Cost::default()
        },
        source: Provenance::Modelled,
        checkpointing: Checkpointing::Nothing,
        route: Route::Device("any"),
    };
    let task = TaskShape { support: 5, queries: 15, example: Bytes(9) };
    MemoryPlanner {
        profile: profile(),
        optimizer,
        weight_averages: 0,
        method,
        lanes: 2,
        task,
        activations,
        measured: None,
        largest_buffer: None,
    }
}

fn lines(plan: &MemoryPlan) -> Vec<(&str, u64)> {
    plan.lines.iter().map(|line| (&*line.name, line.amount.bytes.0)).collect()
}

fn on_host(planner: MemoryPlanner) -> MemoryPlanner {
    let activations = Activations { route: Route::Host("any"), ..planner.activations };
    MemoryPlanner { activations, ..planner }
}

#[test]
fn a_prototypical_step_has_the_graphs_of_all_its_tasks() {
    let plan = planner(Method::ProtoNet, OptimizerKind::Adam).plan(3);
    let expected = [
        ("parameters", 60),
        ("gradients", 52),
        ("optimizer state", 104),
        ("tasks", 3 * 20 * 9),
        ("fast weights", 52),
        ("saved maps", 4 * 3300),
        ("workspace", 4 * 20),
    ];
    assert_eq!(lines(&plan), expected);
    assert_eq!(plan.total(), MemoryFigure::modelled(60 + 52 + 104 + 540 + 52 + 4 * 3320));
    assert_eq!(plan.line("gradients"), Some(MemoryFigure::exact(52)));
}

#[test]
fn an_average_of_weights_is_a_copy_of_all_of_them() {
    let without = planner(Method::ProtoNet, OptimizerKind::Adam);
    let with = MemoryPlanner { weight_averages: 1, ..without.clone() };
    assert_eq!(without.plan(3).line("weight average"), None);
    assert_eq!(with.plan(3).line("weight average"), Some(MemoryFigure::exact(60)));
    assert_eq!(with.plan(3).total().bytes.0, without.plan(3).total().bytes.0 + 60);
    // Steps are measured without it.
    let fit = MemoryFit { fixed: 5000.0, each: 300.0, residual_percent: 2.0, sizes: [1, 2, 4] };
    let measured = |of: MemoryPlanner| MemoryPlanner { measured: Some(fit), ..of }.plan(3).total();
    assert_eq!(measured(with).bytes.0, measured(without).bytes.0 + 60);
}

fn adapting(method: Method, lanes: usize) -> MemoryPlanner {
    MemoryPlanner { lanes, ..planner(method, OptimizerKind::Sgd) }
}

#[test]
fn the_chain_has_one_graph_and_the_weights_of_every_step() {
    let expected = [
        ("parameters", 60),
        ("gradients", 52),
        ("tasks", 4 * 20 * 9),
        ("fast weights", 2 * (60 + 7 * 52)),
        ("saved maps", 4 * 2 * (130 + 90 + 1000)),
        ("workspace", 4 * 2 * 3),
    ];
    assert_eq!(lines(&adapting(Method::MamlChain { steps: 5 }, 2).plan(4)), expected);
}

#[test]
fn the_unrolled_loop_has_the_graphs_of_all_steps() {
    let plan = |steps| adapting(Method::Maml { steps }, 2).plan(4);
    let saved = plan(5).line("saved maps").unwrap();
    assert_eq!(saved.bytes.0, 4 * 2 * (5 * 130 + 90 + 1000));
    assert_eq!(plan(1), adapting(Method::MamlChain { steps: 1 }, 2).plan(4));
}

#[test]
fn the_first_order_has_no_inner_graph() {
    let method = Method::FirstOrder { steps: 5 };
    let plan = adapting(method, 2).plan(4);
    assert_eq!(plan.line("fast weights").unwrap().bytes.0, 2 * (60 + 3 * 52));
    assert_eq!(plan.line("saved maps").unwrap().bytes.0, 4 * 2 * 1000);
    // Buffers of the support are too small for the queries of a host.
    let saved = on_host(adapting(method, 2)).plan(4).line("saved maps").unwrap();
    assert_eq!(saved.bytes.0, 4 * 2 * 1100);
    let reptile = adapting(Method::Reptile { steps: 5, batch: 11 }, 2).plan(4);
    assert_eq!(reptile.line("saved maps").unwrap().bytes.0, 4 * 2 * 605);
    assert_eq!(reptile.line("fast weights").unwrap().bytes.0, 2 * (60 + 6 * 52) + 2 * 52);
}

#[test]
fn a_head_alone_is_little_to_store() {
    let plan = adapting(Method::Anil { steps: 5 }, 1).plan(4);
    // The body has gradients by support and by queries.
    assert_eq!(plan.line("fast weights").unwrap().bytes.0, 7 * 12 + 2 * 52);
    assert_eq!(plan.line("saved maps").unwrap().bytes.0, 4 * 1100);
}

#[test]
fn as_many_tasks_as_fit_are_found() {
    for planner in [
        planner(Method::ProtoNet, OptimizerKind::Lamb),
        adapting(Method::MamlChain { steps: 3 }, 4),
    ] {
        for tasks in [1, 2, 3, 4, 5, 17, 1000] {
            let Bytes(enough) = planner.plan(tasks).total().bytes;
            assert_eq!(planner.max_tasks(Bytes(enough)), Some(tasks));
            assert_eq!(planner.max_tasks(Bytes(enough - 1)), Some(tasks - 1));
            assert_eq!(planner.plan(tasks).fits(Bytes(enough)), Some(true));
        }
    }
}

#[test]
fn what_is_not_known_stays_so() {
    let known = adapting(Method::MamlChain { steps: 3 }, 4);
    let activations = Activations::unknown(Route::Reference);
    let planner = MemoryPlanner { activations, ..known };
    let plan = planner.plan(2);
    assert_eq!(plan.total().source, Provenance::Unknown);
    assert_eq!((plan.fits(Bytes(1 << 40)), plan.fits(Bytes(1))), (None, Some(false)));
    assert_eq!(planner.max_tasks(Bytes(1 << 40)), None);
    assert!(plan.to_string().contains("saved maps"));
}

#[test]
fn a_measured_plan_is_as_large_as_what_was_measured() {
    let fit = MemoryFit { fixed: 5000.0, each: 300.0, residual_percent: 2.0, sizes: [1, 2, 4] };
    let planner = |lanes| {
        let chain = adapting(Method::MamlChain { steps: 5 }, lanes);
        MemoryPlanner { measured: Some(fit), ..chain }
    };
    let plan = planner(16).plan(10);
    assert_eq!(plan.total(), fit.at(10));
    // Those that follow are stored, and no more.
    let [six, ten] = [6, 10].map(|tasks| planner(6).plan(tasks).total());
    assert_eq!((six, ten.bytes.0), (fit.at(6), fit.at(6).bytes.0 + 4 * 20 * 9));
    assert_eq!(planner(16).max_tasks(fit.at(10).bytes), Some(10));
    assert_eq!(plan.line("parameters"), Some(MemoryFigure::exact(60)));
    let rest = plan.line("fast weights and activations").unwrap();
    assert_eq!(rest.bytes.0, 8000 - 60 - 52 - 10 * 20 * 9);
}

#[test]
fn a_tensor_beyond_the_largest_buffer_does_not_fit() {
    let all = Bytes(1 << 40);
    let limited = |planner: MemoryPlanner, example| {
        let task = TaskShape { example: Bytes(example), ..planner.task };
        MemoryPlanner { task, largest_buffer: Some(Bytes(800)), ..planner }
    };
    let prototypical = || planner(Method::ProtoNet, OptimizerKind::Adam);
    assert_eq!(prototypical().plan(3).fits(all), Some(true));
    let planner = limited(prototypical(), 1);
    assert_eq!(planner.plan(2).largest, MemoryFigure::modelled(4 * 140));
    assert_eq!((planner.plan(2).fits(all), planner.plan(3).fits(all)), (Some(true), Some(false)));
    assert_eq!(planner.max_tasks(all), Some(2));
    let text = planner.plan(2).to_string();
    let last = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(last, "largest tensor 560 B 800 B at most");
    // Side by side are the lanes alone, and the images of all tasks are one tensor.
    let chain = || adapting(Method::MamlChain { steps: 1 }, 3);
    assert_eq!(limited(chain(), 1).plan(8).largest, MemoryFigure::modelled(4 * 3 * 50));
    assert_eq!(limited(chain(), 1).max_tasks(all), Some(53));
    assert_eq!(limited(chain(), 9).plan(8).largest, MemoryFigure::modelled(8 * 15 * 9));
    let activations = Activations::unknown(Route::Reference);
    let unknown = MemoryPlanner { activations, ..planner };
    assert_eq!(unknown.plan(1).largest_fits(), None);
}

#[test]
fn a_plan_is_a_table_and_reads_back() {
    let plan = planner(Method::ProtoNet, OptimizerKind::Adam).plan(1);
    let text = plan.to_string();
    assert!(text.starts_with("parameters            60 B  exact\n"), "{text}");
    let total = plan.total().bytes;
    assert!(
        text.ends_with(&format!("total            {total:>9}  modelled, about 30 %")),
        "{text}"
    );
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<MemoryPlan>(&json).unwrap(), plan);
}

/// A network of two segments, or of none that are known.
struct Halves(bool);

impl CostModel for Halves {
    fn cost(&self, batch: usize, _: Route) -> Cost {
        Cost { saved: 100 * batch as u64, ..Cost::default() }
    }

    fn segment_costs(&self, batch: usize, _: Route) -> Option<Vec<Cost>> {
        let segment = |inputs, saved, workspace| {
            let [inputs, saved] = [inputs, saved].map(|each| each * batch as u64);
            Cost { inputs, saved, workspace, ..Cost::default() }
        };
        self.0.then(|| vec![segment(8, 60, 5), segment(4, 40, 2)])
    }
}

fn segmented(network: &Halves, checkpointing: Checkpointing, route: Route) -> MemoryPlanner {
    let planner = planner(Method::ProtoNet, OptimizerKind::Sgd);
    let activations = Activations::modelled(network, planner.task, route, checkpointing);
    MemoryPlanner { activations, ..planner }
}

#[test]
fn segments_take_the_largest_of_one_task_and_all_inputs() {
    let saved = |checkpointing, route| {
        let plan = segmented(&Halves(true), checkpointing, route).plan(3);
        plan.line("saved maps").unwrap().bytes.0
    };
    let [device, host] = [Route::Device("any"), Route::Host("any")];
    assert_eq!(saved(Checkpointing::Segments, device), 4 * (12 + 60) * 20);
    assert_eq!(saved(Checkpointing::Segments, host), 4 * (12 + 100) * 20);
    assert_eq!(saved(Checkpointing::Nothing, host), 3 * 4 * 100 * 20);
    let plan = segmented(&Halves(true), Checkpointing::Segments, device).plan(3);
    assert_eq!(plan.line("workspace").unwrap().bytes.0, 4 * 5);
}

#[test]
fn what_is_computed_again_without_a_formula_is_not_known() {
    let [device, host] = [Route::Device("any"), Route::Host("any")];
    let sources = [
        (true, Checkpointing::Nothing, device, Provenance::Modelled),
        (true, Checkpointing::Segments, device, Provenance::Modelled),
        (false, Checkpointing::Segments, device, Provenance::Unknown),
        (true, Checkpointing::Balanced, device, Provenance::Unknown),
        (true, Checkpointing::Balanced, host, Provenance::Modelled),
    ];
    for (known, checkpointing, route, source) in sources {
        let plan = segmented(&Halves(known), checkpointing, route).plan(3);
        assert_eq!(plan.total().source, source, "{checkpointing:?} {route}");
    }
}
