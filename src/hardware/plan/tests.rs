use fewshot_kernels::Route;
use fewshot_models::{Cost, CostModel, SegmentCost};

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
            saved_tangents: 90,
            activation_grads: 5,
            largest_map: 10,
            ..Cost::default()
        },
        queries: Cost { saved: 1000, activation_grads: 4, largest_map: 50, ..Cost::default() },
        joint: Cost {
            saved: 1100,
            parameter_grads: 6,
            activation_grads: 7,
            workspace: 20,
            largest_map: 70,
            ..Cost::default()
        },
        inputs: 0,
        source: Provenance::Modelled,
        checkpointing: Checkpointing::Nothing,
        stacks: None,
    };
    let task = TaskShape { support: 5, queries: 15, example: Bytes(9) };
    MemoryPlanner {
        profile: profile(),
        optimizer,
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

#[test]
fn a_prototypical_step_has_the_graphs_of_all_its_tasks() {
    let plan = planner(Method::ProtoNet, OptimizerKind::Adam).plan(3);
    let wanted = [
        ("parameters", 60),
        ("gradients", 52),
        ("optimizer state", 104),
        ("tasks", 3 * 20 * 9),
        ("activations", 4 * 3300),
        ("gradients of tasks", 4 * 18 + 2 * 40),
        ("gradients of activations", 4 * 7),
        ("working memory", 4 * 20),
    ];
    assert_eq!(lines(&plan), wanted);
    assert_eq!(plan.total(), MemoryFigure::modelled(60 + 52 + 104 + 540 + 4 * 3345 + 80));
    assert_eq!(plan.line("gradients"), Some(MemoryFigure::exact(52)));
}

fn maml(steps: usize, lanes: usize, graphs: InnerGraphs) -> MemoryPlanner {
    let method = match graphs {
        InnerGraphs::None => Method::FirstOrder { steps },
        InnerGraphs::One => Method::MamlChain { steps },
        InnerGraphs::Every => Method::Maml { steps },
        InnerGraphs::Features => Method::Anil { steps },
    };
    MemoryPlanner { lanes, ..planner(method, OptimizerKind::Sgd) }
}

#[test]
fn the_chain_has_one_graph_and_the_weights_of_every_step() {
    let wanted = [
        ("parameters", 60),
        ("gradients", 52),
        ("tasks", 4 * 20 * 9),
        ("fast weights", 2 * (60 + 5 * 52)),
        ("gradients of fast weights", 2 * 52),
        ("changes of gradients", 2 * 52),
        ("inner graphs", 4 * 2 * (130 + 90)),
        ("activations", 4 * 2000),
        ("gradients of tasks", 4 * 12),
        ("gradients of activations", 4 * 2 * 5),
        ("working memory", 4 * 20),
    ];
    assert_eq!(lines(&maml(5, 2, InnerGraphs::One).plan(4)), wanted);
}

#[test]
fn the_unrolled_loop_has_the_graphs_of_all_steps() {
    let graphs = |planner: MemoryPlanner| planner.plan(4).line("inner graphs").unwrap().bytes.0;
    assert_eq!(graphs(maml(5, 2, InnerGraphs::Every)), 4 * 2 * (5 * 130 + 90));
    assert_eq!(graphs(maml(1, 2, InnerGraphs::Every)), graphs(maml(1, 2, InnerGraphs::One)));
}

#[test]
fn the_first_order_has_no_inner_graph() {
    let plan = maml(5, 2, InnerGraphs::None).plan(4);
    assert_eq!(plan.line("inner graphs"), None);
    assert_eq!(plan.line("fast weights").unwrap().bytes.0, 2 * (60 + 2 * 52));
    assert_eq!(plan.line("activations").unwrap().bytes.0, 4 * 2 * 1000);
    let reptile = planner(Method::Reptile { steps: 5, batch: 11 }, OptimizerKind::Sgd).plan(4);
    assert_eq!(reptile.line("activations").unwrap().bytes.0, 4 * 2 * 605);
    assert_eq!(reptile.line("mini-batches").unwrap().bytes.0, 2 * (20 + 11) * 9);
    assert_eq!(reptile.line("means of the inner rule").unwrap().bytes.0, 3 * 2 * 52);
    assert_eq!(reptile.line("second moments that last").unwrap().bytes.0, 2 * 52);
}

#[test]
fn a_head_alone_is_little_to_store() {
    let planner = planner(Method::Anil { steps: 5 }, OptimizerKind::Sgd);
    let plan = MemoryPlanner { lanes: 1, ..planner }.plan(4);
    // A task alone begins at the learned values themselves.
    assert_eq!(plan.line("fast weights").unwrap().bytes.0, 5 * 12);
    // The features of the support, once.
    assert_eq!(plan.line("inner graphs").unwrap().bytes.0, 4 * 100);
    assert_eq!(plan.line("changes of gradients").unwrap().bytes.0, 12);
    // The body's gradient has a part by the support as well.
    assert_eq!(plan.line("gradients of tasks").unwrap().bytes.0, 2 * 52);
}

#[test]
fn as_many_tasks_as_fit_are_found() {
    for planner in [planner(Method::ProtoNet, OptimizerKind::Lamb), maml(3, 4, InnerGraphs::One)] {
        for wanted in [1, 2, 3, 4, 5, 17, 1000] {
            let Bytes(enough) = planner.plan(wanted).total().bytes;
            assert_eq!(planner.max_tasks(Bytes(enough)), Some(wanted));
            assert_eq!(planner.max_tasks(Bytes(enough - 1)), Some(wanted - 1));
            assert_eq!(planner.plan(wanted).fits(Bytes(enough)), Some(true));
        }
    }
}

#[test]
fn what_is_not_known_stays_so() {
    let known = maml(3, 4, InnerGraphs::One);
    let planner = MemoryPlanner { activations: Activations::unknown(), ..known };
    let plan = planner.plan(2);
    assert_eq!(plan.total().source, Provenance::Unknown);
    assert_eq!((plan.fits(Bytes(1 << 40)), plan.fits(Bytes(1))), (None, Some(false)));
    assert_eq!(planner.max_tasks(Bytes(1 << 40)), None);
    assert!(plan.to_string().contains("activations"));
}

#[test]
fn a_measured_plan_is_as_large_as_what_was_measured() {
    let fit = MemoryFit { fixed: 5000.0, each: 300.0, residual_percent: 2.0, sizes: [1, 2, 4] };
    let planner = |lanes| MemoryPlanner { measured: Some(fit), ..maml(5, lanes, InnerGraphs::One) };
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
    assert_eq!(last, "largest tensor 560 B modelled, 800 B at most");
    // Side by side are the lanes alone, and the images of all tasks are one tensor.
    let chain = || maml(1, 3, InnerGraphs::One);
    assert_eq!(limited(chain(), 1).plan(8).largest, MemoryFigure::modelled(4 * 3 * 50));
    assert_eq!(limited(chain(), 1).max_tasks(all), Some(53));
    assert_eq!(limited(chain(), 9).plan(8).largest, MemoryFigure::modelled(8 * 15 * 9));
    let unknown = MemoryPlanner { activations: Activations::unknown(), ..planner };
    assert_eq!(unknown.plan(1).largest_fits(), None);
}

#[test]
fn a_plan_is_a_table_and_reads_back() {
    let plan = planner(Method::ProtoNet, OptimizerKind::Adam).plan(1);
    let text = plan.to_string();
    assert!(text.starts_with("parameters                     60 B  exact\n"), "{text}");
    assert!(text.ends_with("total                      4.81 KiB  modelled"), "{text}");
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<MemoryPlan>(&json).unwrap(), plan);
}

/// A network of two segments, or of none that are known.
struct Halves(bool);

impl CostModel for Halves {
    fn cost(&self, batch: usize, _: Route) -> Cost {
        Cost { saved: 100 * batch as u64, ..Cost::default() }
    }

    fn segment_costs(&self, batch: usize, _: Route) -> Option<Vec<SegmentCost>> {
        let batch = batch as u64;
        let graph = |saved, activation_grads| Cost {
            saved: saved * batch,
            activation_grads,
            parameter_grads: 3,
            workspace: 5,
            ..Cost::default()
        };
        let segments = vec![
            SegmentCost { inputs: 8 * batch, graph: graph(60, 2), left: 50 * batch },
            SegmentCost { inputs: 4 * batch, graph: graph(40, 1), left: 30 * batch },
        ];
        self.0.then_some(segments)
    }
}

fn segmented(network: &Halves, checkpointing: Checkpointing) -> MemoryPlanner {
    let planner = planner(Method::ProtoNet, OptimizerKind::Sgd);
    let route = Route::Host("any");
    let activations = Activations::modelled(network, planner.task, route, checkpointing);
    MemoryPlanner { activations, ..planner }
}

#[test]
fn segments_take_the_largest_of_one_task_and_what_goes_into_it() {
    let plan = segmented(&Halves(true), Checkpointing::Segments).plan(3);
    // 20 examples; the first segment with what the second left is more than the second with the
    // inputs of both.
    let wanted = [
        ("parameters", 60),
        ("gradients", 52),
        ("tasks", 3 * 20 * 9),
        ("inputs of segments", 4 * 8 * 20),
        ("activations", 4 * (60 + 30) * 20),
        ("gradients of tasks", 4 * 3),
        ("gradients of activations", 4 * 2),
        ("working memory", 4 * 5),
    ];
    assert_eq!(lines(&plan), wanted);
    let whole = segmented(&Halves(true), Checkpointing::Nothing).plan(3);
    assert_eq!(whole.line("activations"), Some(MemoryFigure::modelled(3 * 4 * 100 * 20)));
    assert_eq!(whole.line("inputs of segments"), None);
}

#[test]
fn what_is_computed_again_without_a_formula_is_not_known() {
    let sources = [
        (true, Checkpointing::Nothing, Provenance::Modelled),
        (true, Checkpointing::Segments, Provenance::Modelled),
        (false, Checkpointing::Segments, Provenance::Unknown),
        (true, Checkpointing::Balanced, Provenance::Unknown),
    ];
    for (known, checkpointing, source) in sources {
        let plan = segmented(&Halves(known), checkpointing).plan(3);
        assert_eq!(plan.total().source, source, "{checkpointing:?}");
    }
}
