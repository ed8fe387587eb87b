use burn::module::Param;
use burn::tensor::backend::Backend;

use super::{assert_close, on_accelerators, on_backend, on_every_backend, read, tensor};
use crate::plasticity::{PlasticConnections, TraceRule};

on_every_backend! {
    traces_have_the_values_worked_out_by_hand
    lanes_of_a_trace_are_lives_of_their_own
}

fn connections<B: Backend>(rule: TraceRule) -> PlasticConnections<B> {
    let mut drawn = PlasticConnections::new([2, 2], rule, 0.5, &Default::default());
    drawn.weight = Param::from_tensor(tensor(&[1.0, 2.0, 3.0, 4.0], [2, 2]));
    drawn.alpha = Param::from_tensor(tensor(&[0.5, 0.0, 2.0, 1.0], [2, 2]));
    drawn
}

fn traces_have_the_values_worked_out_by_hand<B: Backend>() {
    let x = || tensor::<B, 3>(&[2.0, -1.0], [1, 1, 2]);
    let y = || tensor::<B, 3>(&[0.5, 1.0], [1, 1, 2]);
    let twice = |rule| {
        let connections = connections::<B>(rule);
        let once = connections.update_trace(connections.zero_trace(1), x(), y());
        assert_close("once", &read(once.clone()), &[0.5, 1.0, -0.25, -0.5], 1e-6);
        let trace = connections.update_trace(once, x(), y());
        (read(trace.clone()), read(connections.effective(trace)))
    };
    let (trace, effective) = twice(TraceRule::Hebb);
    assert_close("hebb", &trace, &[0.75, 1.5, -0.375, -0.75], 1e-6);
    assert_close("effective", &effective, &[1.375, 2.0, 2.25, 3.25], 1e-6);
    // Each output forgets by half of its square: an eighth and a half.
    let (trace, _) = twice(TraceRule::Oja);
    assert_close("oja", &trace, &[0.9375, 1.5, -0.46875, -0.75], 1e-6);
}

fn lanes_of_a_trace_are_lives_of_their_own<B: Backend>() {
    let connections = connections::<B>(TraceRule::Oja);
    let x = tensor::<B, 3>(&[2.0, -1.0, 0.5, 1.0], [2, 1, 2]);
    let y = tensor::<B, 3>(&[0.5, 1.0, 1.0, 0.0], [2, 1, 2]);
    let both = read(connections.update_trace(connections.zero_trace(2), x.clone(), y.clone()));
    for lane in 0..2 {
        let [x, y] = [&x, &y].map(|all| all.clone().narrow(0, lane, 1));
        let alone = read(connections.update_trace(connections.zero_trace(1), x, y));
        assert_close("lane", &both[lane * 4..lane * 4 + 4], &alone, 1e-6);
    }
}
