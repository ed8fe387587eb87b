//! The outer step of a run.

use burn::module::Module;
use fewshot::hardware::OptimizerKind;
use fewshot::optim::{
    Adam, AdamW, AnyOptimizer, GroupError, Lamb, ParameterGroups, RateCurve, Schedule, Sgd,
};
use serde::{Deserialize, Serialize};

use crate::args::{OptimizerArgs, OptimizerName, ScheduleName, TrainArgs};
use crate::method::Method;
use crate::prelude::*;

/// The learning rate of the outer step, its rule, and its groups of parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OuterStep {
    learning_rate: f64,
    /// Never, if `None`.
    halve_every: Option<usize>,
    /// Steps over which it falls to zero, of reptile alone.
    #[serde(default)]
    steps: Option<usize>,
    /// The course of the rate where it is not halved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    curve: Option<RateCurve>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warm_up: Option<u64>,
    /// Adam, or reptile's plain steps, if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    optimizer: Option<OptimizerSettings>,
    #[serde(default, skip_serializing_if = "Groups::is_one")]
    groups: Groups,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct OptimizerSettings {
    name: OptimizerName,
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
    decay_all: bool,
}

/// Parameters with rates of their own or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Groups {
    freeze: Vec<String>,
    encoder_rate: Option<f64>,
    layer_decay: Option<f64>,
}

impl Groups {
    fn is_one(&self) -> bool {
        *self == Self::default()
    }
}

impl OuterStep {
    /// The outer step of a run of `steps`, unless the options say otherwise.
    pub(crate) fn new(args: &TrainArgs, halve_every: Option<usize>, steps: u64) -> Result<Self> {
        let reptile = args.method == Method::Reptile;
        if reptile && args.halve_every.is_some() {
            return Err(usage!("the rate of reptile falls to zero over --steps: no --halve-every"));
        }
        if reptile && args.lr.is_some_and(|rate| rate > 1.0) {
            return Err(usage!("--lr of reptile is at most 1, all the way to where its tasks end"));
        }
        if let Some(option) = args.outer.rule_given().filter(|_| reptile) {
            return Err(usage!("{option} is not for reptile, whose outer steps are plain"));
        }
        let optimizer = optimizer(&args.outer)?;
        let steps = args.steps.unwrap_or(steps);
        let default = match &optimizer {
            _ if reptile => 1.0,
            Some(OptimizerSettings { name: OptimizerName::Sgd, .. }) => 0.05,
            _ => 1e-3,
        };
        let halve_every = args.halve_every.or(halve_every);
        let curve = match args.outer.schedule {
            None | Some(ScheduleName::Halve) => None,
            Some(_) if args.halve_every.is_some() => {
                return Err(usage!("--halve-every is for --schedule halve"));
            }
            Some(ScheduleName::Constant) => Some(RateCurve::Constant),
            Some(ScheduleName::MultiStep) => Some(multi_step(&args.outer)?),
            Some(ScheduleName::Cosine) => Some(RateCurve::Cosine { steps }),
            Some(ScheduleName::OneCycle) => Some(RateCurve::OneCycle { steps }),
        };
        check_schedule(&args.outer, halve_every, steps)?;
        let shortened = usize::try_from(steps).unwrap_or(usize::MAX).min(usize::MAX - 1);
        Ok(Self {
            learning_rate: args.lr.unwrap_or(default),
            halve_every: halve_every.filter(|_| curve.is_none()),
            steps: reptile.then_some(shortened),
            curve,
            warm_up: args.outer.warm_up,
            optimizer,
            groups: groups(&args.outer)?,
        })
    }

    pub(crate) fn schedule(&self) -> Schedule {
        let halved = |every: usize| RateCurve::Step { every: every as u64, gamma: 0.5 };
        let curve = match (self.steps, &self.curve, self.halve_every) {
            (Some(steps), ..) => RateCurve::Linear { steps: steps as u64 },
            (_, Some(curve), _) => curve.clone(),
            (_, _, Some(every)) => halved(every),
            (None, None, None) => RateCurve::Constant,
        };
        Schedule::new(self.learning_rate, curve).with_warm_up(self.warm_up.unwrap_or(0))
    }

    pub(crate) fn optimizer(&self) -> AnyOptimizer {
        let Some(settings) = self.optimizer else {
            return match self.steps {
                Some(_) => AnyOptimizer::Sgd(Sgd::new()),
                None => AnyOptimizer::Adam(Adam::new()),
            };
        };
        let OptimizerSettings { name, momentum, nesterov, weight_decay, .. } = settings;
        match name {
            OptimizerName::Sgd => {
                let sgd = Sgd::new().with_momentum(momentum).with_nesterov(nesterov);
                AnyOptimizer::Sgd(sgd.with_weight_decay(weight_decay))
            }
            OptimizerName::Adam => AnyOptimizer::Adam(Adam::new().with_weight_decay(weight_decay)),
            OptimizerName::AdamW => {
                AnyOptimizer::AdamW(AdamW::new().with_weight_decay(weight_decay))
            }
            OptimizerName::Lamb => AnyOptimizer::Lamb(Lamb::new().with_weight_decay(weight_decay)),
        }
    }

    /// The kind that memory is planned for.
    pub(crate) fn kind(&self) -> OptimizerKind {
        match self.optimizer() {
            AnyOptimizer::Sgd(sgd) if sgd.momentum == 0.0 => OptimizerKind::Sgd,
            AnyOptimizer::Sgd(_) => OptimizerKind::Momentum,
            AnyOptimizer::Adam(_) => OptimizerKind::Adam,
            AnyOptimizer::AdamW(_) => OptimizerKind::AdamW,
            AnyOptimizer::Lamb(_) => OptimizerKind::Lamb,
        }
    }

    /// The groups of the learner's parameters.
    pub(crate) fn groups<B: Backend, M: Module<B>>(&self, learner: &M) -> Result<ParameterGroups> {
        let wrong = |error: GroupError| usage!("--freeze: {error}");
        let Groups { freeze, encoder_rate, layer_decay } = &self.groups;
        let mut groups = ParameterGroups::of(learner).freeze(freeze).map_err(wrong)?;
        if self.optimizer.is_some_and(|it| it.weight_decay > 0.0 && !it.decay_all) {
            groups = groups.without_decay_of_vectors();
        }
        if let Some(rate) = encoder_rate {
            groups = groups.encoder_rate(rate / self.learning_rate);
        }
        if let Some(factor) = layer_decay {
            groups = groups.layer_decay(*factor);
        }
        Ok(groups)
    }
}

fn optimizer(args: &OptimizerArgs) -> Result<Option<OptimizerSettings>> {
    let name = args.optimizer.unwrap_or(OptimizerName::Adam);
    let momentum = match (name, args.momentum) {
        (OptimizerName::Sgd, momentum) => momentum.unwrap_or(0.9),
        (_, Some(_)) => return Err(usage!("--momentum is for --optimizer sgd")),
        (_, None) => 0.0,
    };
    if !(0.0..1.0).contains(&momentum) {
        return Err(usage!("--momentum must be from 0 to below 1"));
    }
    if args.nesterov && momentum == 0.0 {
        return Err(usage!("--nesterov is for --optimizer sgd with momentum"));
    }
    let default = match name {
        OptimizerName::Sgd | OptimizerName::Adam => 0.0,
        OptimizerName::AdamW | OptimizerName::Lamb => 0.01,
    };
    let weight_decay = args.weight_decay.unwrap_or(default);
    if !(weight_decay.is_finite() && weight_decay >= 0.0) {
        return Err(usage!("--weight-decay must be a number from 0 on"));
    }
    if args.decay_all && weight_decay == 0.0 {
        return Err(usage!("--decay-all needs a --weight-decay"));
    }
    let (nesterov, decay_all) = (args.nesterov, args.decay_all);
    let is_plain_adam = name == OptimizerName::Adam && weight_decay == 0.0;
    let settings = OptimizerSettings { name, momentum, nesterov, weight_decay, decay_all };
    Ok((!is_plain_adam).then_some(settings))
}

fn multi_step(args: &OptimizerArgs) -> Result<RateCurve> {
    let milestones = args.milestones.clone();
    if milestones.is_empty() {
        return Err(usage!("--schedule multi-step needs --milestones, as 30000,60000"));
    }
    if !milestones.is_sorted_by(|one, next| one < next) {
        return Err(usage!("--milestones must rise"));
    }
    let gamma = args.gamma.unwrap_or(0.1);
    match gamma.is_finite() && gamma > 0.0 {
        true => Ok(RateCurve::MultiStep { milestones, gamma }),
        false => Err(usage!("--gamma must be a positive number")),
    }
}

fn check_schedule(args: &OptimizerArgs, halve_every: Option<usize>, steps: u64) -> Result {
    if args.schedule != Some(ScheduleName::MultiStep) {
        if !args.milestones.is_empty() {
            return Err(usage!("--milestones are for --schedule multi-step"));
        }
        if args.gamma.is_some() {
            return Err(usage!("--gamma is for --schedule multi-step"));
        }
    }
    match (args.schedule, args.warm_up) {
        (Some(ScheduleName::Halve), _) if halve_every.is_none() => {
            Err(usage!("--schedule halve needs --halve-every"))
        }
        (Some(ScheduleName::OneCycle), Some(_)) => {
            Err(usage!("--warm-up is not for --schedule one-cycle, which rises at first itself"))
        }
        (_, Some(warm_up)) if warm_up >= steps => {
            Err(usage!("--warm-up {warm_up} leaves nothing of {steps} steps"))
        }
        _ => Ok(()),
    }
}

fn groups(args: &OptimizerArgs) -> Result<Groups> {
    if args.encoder_lr.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Err(usage!("--encoder-lr must be a positive number"));
    }
    if args.lr_decay_by_layer.is_some_and(|factor| !(factor > 0.0 && factor <= 1.0)) {
        return Err(usage!("--lr-decay-by-layer must be above 0 and at most 1"));
    }
    if args.ema.is_some_and(|decay| !(0.0..1.0).contains(&decay)) {
        return Err(usage!("--ema must be from 0 to below 1"));
    }
    Ok(Groups {
        freeze: args.freeze.clone(),
        encoder_rate: args.encoder_lr,
        layer_decay: args.lr_decay_by_layer,
    })
}
