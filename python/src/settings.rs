//! Heads by their names and settings.

use std::cell::RefCell;

use burn::tensor::Tensor;
use fewshot::learners::heads::{
    AnyHead, Baseline, BaselinePlusPlus, BdCspn, DeepEmd, Dn4, Finetune, HEAD_NAMES, LaplacianShot,
    LogisticRegression, MatchingNetConfig, MetaBaseline, MetaOptNet, Prototypes, PtMap, R2d2Config,
    Sgd, SimpleCnaps, SimpleShot, SoftKMeans, TRAINED_ON_EPISODES, TRANSDUCTIVE_HEAD_NAMES, Tim,
    TimSolver, TransductiveFineTuning,
};
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::B;
use crate::errors::value_error;

/// Names of the heads that need no training on episodes.
pub(crate) fn methods() -> Vec<&'static str> {
    let all = HEAD_NAMES.iter().chain(TRANSDUCTIVE_HEAD_NAMES).copied();
    all.filter(|name| !TRAINED_ON_EPISODES.contains(name)).collect()
}

/// The name of a head that there is.
pub(crate) fn known(name: &str) -> PyResult<&'static str> {
    let known = methods();
    match known.iter().find(|known| **known == name) {
        Some(known) => Ok(known),
        None if TRAINED_ON_EPISODES.contains(&name) => Err(value_error(format!(
            "{name} has weights of its own, which are trained on episodes: `fewshot train --method {name}` does it"
        ))),
        None => {
            Err(value_error(format!("there is no method {name:?}: there are {}", known.join(", "))))
        }
    }
}

/// Settings that are taken one by one; those that nobody has taken are unknown.
struct Settings<'a> {
    head: &'a str,
    given: RefCell<Map<String, Value>>,
}

impl Settings<'_> {
    /// The setting of this name, or its default.
    fn or<T: DeserializeOwned>(&self, name: &str, default: T) -> PyResult<T> {
        let Some(value) = self.given.borrow_mut().remove(name) else {
            return Ok(default);
        };
        serde_json::from_value(value.clone()).map_err(|error| {
            value_error(format!("setting {name} of {} is {value}: {error}", self.head))
        })
    }

    fn base_mean(&self) -> PyResult<Option<Tensor<B, 1>>> {
        let mean: Option<Vec<f32>> = self.or("base_mean", None)?;
        Ok(mean.map(|mean| Tensor::from_floats(mean.as_slice(), &Default::default())))
    }

    fn sgd(&self) -> PyResult<Sgd> {
        let default = Sgd::default();
        Ok(Sgd {
            steps: self.or("steps", default.steps)?,
            rate: self.or("rate", default.rate)?,
            momentum: self.or("momentum", default.momentum)?,
            dampening: self.or("dampening", default.dampening)?,
            weight_decay: self.or("weight_decay", default.weight_decay)?,
        })
    }
}

/// The head of this name with these settings, and those of its paper otherwise. `maps` is the shape `[c, h, w]` of an
/// embedding.
pub(crate) fn head(
    name: &str,
    settings: &Map<String, Value>,
    maps: [usize; 3],
) -> PyResult<AnyHead<B>> {
    let settings = Settings { head: name, given: RefCell::new(settings.clone()) };
    let head = made(name, &settings, maps)?;
    match settings.given.borrow().keys().next() {
        None => Ok(head),
        Some(unknown) => Err(value_error(format!("{name} has no setting {unknown}"))),
    }
}

fn made(name: &str, s: &Settings<'_>, maps: [usize; 3]) -> PyResult<AnyHead<B>> {
    let device = Default::default();
    let head = AnyHead::<B>::with_name(name, maps, &device);
    Ok(match head.expect("the name is known") {
        AnyHead::Prototypes(Prototypes { score, scale }) => AnyHead::Prototypes(Prototypes {
            score: s.or("score", score)?,
            scale: s.or("scale", scale)?,
        }),
        AnyHead::SimpleShot(default) => {
            let head = match s.base_mean()? {
                Some(mean) => default.with_base_mean(mean),
                None => default,
            };
            AnyHead::SimpleShot(SimpleShot {
                transform: s.or("transform", head.transform)?,
                score: s.or("score", head.score)?,
                ..head
            })
        }
        AnyHead::Matching(_) => {
            let default = MatchingNetConfig::new(maps.iter().product());
            let attention = s.or("attention", default.attention)?;
            AnyHead::Matching(default.with_attention(attention).init(&device))
        }
        AnyHead::MetaBaseline(_) => {
            AnyHead::MetaBaseline(MetaBaseline::new(s.or("scale", 10.0)?, &device))
        }
        AnyHead::SimpleCnaps(SimpleCnaps { regulariser }) => {
            AnyHead::SimpleCnaps(SimpleCnaps { regulariser: s.or("regulariser", regulariser)? })
        }
        AnyHead::Dn4(Dn4 { map, neighbours }) => {
            AnyHead::Dn4(Dn4 { map, neighbours: s.or("neighbours", neighbours)? })
        }
        AnyHead::DeepEmd(DeepEmd { map, temperature }) => {
            AnyHead::DeepEmd(DeepEmd { map, temperature: s.or("temperature", temperature)? })
        }
        AnyHead::R2d2(_) => {
            let default = R2d2Config::new();
            let config = R2d2Config {
                lambda: s.or("lambda", default.lambda)?,
                errors: s.or("errors", default.errors)?,
                intercept: s.or("intercept", default.intercept)?,
                scale: s.or("scale", default.scale)?,
                ..default
            };
            AnyHead::R2d2(config.init(&device))
        }
        AnyHead::MetaOptNet(default) => {
            let head = default.with_scale(s.or("scale", 1.0)?);
            AnyHead::MetaOptNet(MetaOptNet {
                c: s.or("c", head.c)?,
                ridge: s.or("ridge", head.ridge)?,
                ..head
            })
        }
        AnyHead::Logistic(LogisticRegression { c, unit_length }) => {
            AnyHead::Logistic(LogisticRegression {
                c: s.or("c", c)?,
                unit_length: s.or("unit_length", unit_length)?,
            })
        }
        AnyHead::Baseline(_) => AnyHead::Baseline(Baseline { sgd: s.sgd()? }),
        AnyHead::BaselinePlusPlus(BaselinePlusPlus { scale, .. }) => {
            AnyHead::BaselinePlusPlus(BaselinePlusPlus {
                sgd: s.sgd()?,
                scale: s.or("scale", scale)?,
            })
        }
        AnyHead::Finetune(Finetune { steps, rate, temperature }) => AnyHead::Finetune(Finetune {
            steps: s.or("steps", steps)?,
            rate: s.or("rate", rate)?,
            temperature: s.or("temperature", temperature)?,
        }),
        AnyHead::TransductiveFineTuning(default) => {
            AnyHead::TransductiveFineTuning(TransductiveFineTuning {
                similarity: s.or("similarity", default.similarity)?,
                update: s.or("update", default.update)?,
                steps: s.or("steps", default.steps)?,
                rate: s.or("rate", default.rate)?,
                temperature: s.or("temperature", default.temperature)?,
            })
        }
        AnyHead::TimGd(default) => AnyHead::TimGd(tim(s, default, TimSolver::Gd)?),
        AnyHead::TimAdm(default) => AnyHead::TimAdm(tim(s, default, TimSolver::Adm)?),
        AnyHead::BdCspn(BdCspn { scale, lengths, scored }) => AnyHead::BdCspn(BdCspn {
            scale: s.or("scale", scale)?,
            lengths: s.or("lengths", lengths)?,
            scored: s.or("scored", scored)?,
        }),
        AnyHead::LaplacianShot(default) => {
            let head = match s.base_mean()? {
                Some(mean) => default.with_base_mean(mean),
                None => default,
            };
            AnyHead::LaplacianShot(LaplacianShot {
                lambda: s.or("lambda", head.lambda)?,
                neighbours: s.or("neighbours", head.neighbours)?,
                steps: s.or("steps", head.steps)?,
                tolerance: s.or("tolerance", head.tolerance)?,
                scale: s.or("scale", head.scale)?,
                weights: s.or("weights", head.weights)?,
                lengths: s.or("lengths", head.lengths)?,
                scored: s.or("scored", head.scored)?,
                ..head
            })
        }
        AnyHead::PtMap(PtMap { power, lambda, rate, steps, after_power }) => {
            AnyHead::PtMap(PtMap {
                power: s.or("power", power)?,
                lambda: s.or("lambda", lambda)?,
                rate: s.or("rate", rate)?,
                steps: s.or("steps", steps)?,
                after_power: s.or("after_power", after_power)?,
            })
        }
        AnyHead::SoftKMeans(SoftKMeans { steps }) => {
            AnyHead::SoftKMeans(SoftKMeans { steps: s.or("steps", steps)? })
        }
        trained @ (AnyHead::Relation(_) | AnyHead::Feat(_) | AnyHead::Leo(_)) => trained,
    })
}

fn tim(s: &Settings<'_>, default: Tim, solver: TimSolver) -> PyResult<Tim> {
    Ok(Tim {
        solver,
        similarity: s.or("similarity", default.similarity)?,
        steps: s.or("steps", default.steps)?,
        rate: s.or("rate", default.rate)?,
        temperature: s.or("temperature", default.temperature)?,
        cross_entropy: s.or("cross_entropy", default.cross_entropy)?,
        marginal_entropy: s.or("marginal_entropy", default.marginal_entropy)?,
        conditional_entropy: s.or("conditional_entropy", default.conditional_entropy)?,
    })
}
