use super::*;
use crate::hardware::{ParameterProfile, Source};

/// 10 values to train in `body`, 3 in `head` and 2 running averages.
fn profile() -> ModelProfile {
    let tensor = |path: &str, length: usize, trainable| ParameterProfile {
        path: path.to_owned(),
        shape: vec![length],
        dtype: "f32".to_owned(),
        bytes: Bytes(4 * length as u64),
        trainable,
    };
    let parameters =
        vec![tensor("body.w", 10, true), tensor("head.w", 3, true), tensor("body.m", 2, false)];
    ModelProfile { parameters }
}

fn planner(algorithm: Algorithm, optimizer: OptimizerKind) -> MemoryPlanner {
    let activations = Activations {
        support: Sourced::modelled(100),
        queries: Sourced::modelled(1000),
        together: Sourced::modelled(1100),
        returned: Sourced::modelled(6),
        passing: Sourced::modelled(7),
        working: Sourced::modelled(20),
    };
    let task = TaskShape { support: 5, queries: 15, example: Bytes(9) };
    MemoryPlanner { profile: profile(), optimizer, algorithm, task, activations }
}

fn lines(plan: &MemoryPlan) -> Vec<(&str, u64)> {
    plan.lines.iter().map(|line| (&*line.name, line.amount.bytes.0)).collect()
}

#[test]
fn a_prototypical_step_has_the_graphs_of_all_its_tasks() {
    let plan = planner(Algorithm::Prototypical, OptimizerKind::Adam).plan(3);
    let wanted = [
        ("parameters", 60),
        ("gradients", 52),
        ("optimizer state", 104),
        ("tasks", 3 * 20 * 9),
        ("activations", 3300),
        ("gradients of tasks", 18),
        ("gradients of activations", 7),
        ("working memory", 20),
    ];
    assert_eq!(lines(&plan), wanted);
    assert_eq!(plan.total(), Sourced::modelled(60 + 52 + 104 + 540 + 3345));
    assert_eq!(plan.line("gradients"), Some(Sourced::exact(52)));
}

fn maml(steps: usize, lanes: usize, graphs: InnerGraphs) -> MemoryPlanner {
    planner(Algorithm::Maml { steps, lanes, graphs }, OptimizerKind::Sgd)
}

#[test]
fn the_chain_has_one_graph_and_the_weights_of_every_step() {
    let wanted = [
        ("parameters", 60),
        ("gradients", 52),
        ("tasks", 4 * 20 * 9),
        ("fast weights", 2 * (60 + 5 * 52)),
        ("gradients of fast weights", 2 * 52),
        ("inner graphs", 2 * (2 * 100 + 52)),
        ("activations", 2000),
        ("gradients of tasks", 12),
        ("gradients of activations", 14),
        ("working memory", 20),
    ];
    assert_eq!(lines(&maml(5, 2, InnerGraphs::One).plan(4)), wanted);
}

#[test]
fn the_unrolled_loop_has_the_graphs_of_all_steps() {
    let graphs = |planner: MemoryPlanner| planner.plan(4).line("inner graphs").unwrap().bytes.0;
    assert_eq!(graphs(maml(5, 2, InnerGraphs::Every)), 2 * (6 * 100 + 52));
    assert_eq!(graphs(maml(1, 2, InnerGraphs::Every)), graphs(maml(1, 2, InnerGraphs::One)));
}

#[test]
fn the_first_order_has_no_inner_graph() {
    let plan = maml(5, 2, InnerGraphs::None).plan(4);
    assert_eq!(plan.line("inner graphs"), None);
    assert_eq!(plan.line("fast weights").unwrap().bytes.0, 2 * (60 + 2 * 52));
    assert_eq!(plan.line("activations").unwrap().bytes.0, 2 * 1000);
    let reptile = planner(Algorithm::Reptile { steps: 5, lanes: 2 }, OptimizerKind::Sgd).plan(4);
    assert_eq!(reptile.line("activations").unwrap().bytes.0, 2 * 1100);
}

#[test]
fn a_head_alone_is_little_to_store() {
    let head = "head".to_owned();
    let algorithm = Algorithm::HeadOnly { head, steps: 5, lanes: 1, graphs: InnerGraphs::One };
    let plan = planner(algorithm, OptimizerKind::Sgd).plan(4);
    // A task alone begins at the learned values themselves.
    assert_eq!(plan.line("fast weights").unwrap().bytes.0, 5 * 12);
    assert_eq!(plan.line("inner graphs").unwrap().bytes.0, 2 * 100 + 12);
}

#[test]
fn as_many_tasks_as_fit_are_found() {
    for planner in
        [planner(Algorithm::Prototypical, OptimizerKind::Lamb), maml(3, 4, InnerGraphs::One)]
    {
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
    assert_eq!(plan.total().source, Source::Unknown);
    assert_eq!((plan.fits(Bytes(1 << 40)), plan.fits(Bytes(1))), (None, Some(false)));
    assert_eq!(planner.max_tasks(Bytes(1 << 40)), None);
    assert!(plan.to_string().contains("activations"));
}

#[test]
fn a_measured_plan_is_as_large_as_what_was_measured() {
    let fit = MemoryFit { fixed: 5000.0, each: 300.0, residual_percent: 2.0, sizes: [1, 2, 4] };
    let planner = maml(5, 2, InnerGraphs::One);
    let plan = planner.measured(10, &fit);
    assert_eq!(plan.total(), fit.at(10));
    assert_eq!(plan.line("parameters"), Some(Sourced::exact(60)));
    let rest = plan.line("fast weights and activations").unwrap();
    assert_eq!(rest.bytes.0, 8000 - 60 - 52 - 10 * 20 * 9);
}

#[test]
fn a_plan_is_a_table_and_reads_back() {
    let plan = planner(Algorithm::Prototypical, OptimizerKind::Adam).plan(1);
    let text = plan.to_string();
    assert!(text.starts_with("parameters                     60 B  exact\n"), "{text}");
    assert!(text.ends_with("total                      1.49 KiB  modelled"), "{text}");
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<MemoryPlan>(&json).unwrap(), plan);
}
