//! Options that several commands share, and those of training and testing.

mod augment;
mod device;
mod encoder;
mod episodes;
mod eval;
mod images;
mod inner;
mod optimizer;
mod pack;
mod read;
mod scale;
mod train;

use std::ops::RangeBounds;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};

pub(crate) use augment::{AUGMENT_HELP, AugmentArgs};
pub(crate) use device::{BatchNormRule, DeviceArgs, checkpointing};
pub(crate) use encoder::{CONV4, EncoderArgs, EncoderSpec};
pub(crate) use episodes::{EPISODES_HELP, EpisodeListArgs, Sampling, SamplingArgs, TestEpisodes};
pub(crate) use eval::{EVAL_HELP, EvalArgs};
pub(crate) use images::ImageArgs;
pub(crate) use inner::InnerArgs;
pub(crate) use optimizer::{OptimizerArgs, OptimizerName, ScheduleName};
pub(crate) use pack::{PACK_HELP, PackArgs};
pub(crate) use read::ReadArgs;
pub(crate) use train::{COSINE_SCALE, ClassicalArgs, TRAIN_HELP, TrainArgs, TrainOn};

/// The first of these options that is not at its default, as it is written on the command line.
macro_rules! first_given {
    ($args:expr, $($field:ident),+) => {
        [$((stringify!($field), $crate::args::is_given(&$args.$field))),+]
            .into_iter()
            .find(|(_, given)| *given)
            .map(|(field, _)| format!("--{}", field.replace('_', "-")))
    };
}

pub(crate) use first_given;

pub(crate) fn is_given<T: Default + PartialEq>(option: &T) -> bool {
    *option != T::default()
}

/// One of these values by its name, each with a line of help.
pub(crate) fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    values: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let named = values.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(named.collect::<Vec<_>>()).map(move |given| {
        let value = values.iter().find(|(name, ..)| *name == given);
        value.expect("the parser takes no other name").2.clone()
    })
}

/// A number of something within `range`.
pub(super) fn count(range: impl RangeBounds<u64>) -> impl TypedValueParser<Value = usize> {
    steps(range).map(|number| usize::try_from(number).unwrap_or(usize::MAX))
}

/// A number of steps within `range`.
pub(super) fn steps(range: impl RangeBounds<u64>) -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(range)
}
