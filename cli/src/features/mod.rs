//! Features: `fewshot embed` writes them, `fewshot eval --features` tests methods on them.

mod args;
mod embed;
mod plot;
mod table;
mod test;

pub(crate) use args::{EMBED_HELP, EmbedArgs};
pub(crate) use embed::embed;
pub(crate) use test::eval_features;
