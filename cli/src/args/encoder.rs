//! The network that embeds images, and the parameters that it begins with.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use fewshot::hardware::HardwareError;
use fewshot::models::EncoderConfig;

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct EncoderArgs {
    #[arg(long, value_name = "NETWORK", help = networks())]
    pub(crate) encoder: Option<EncoderSpec>,
}

/// A network as on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EncoderSpec {
    /// The network of this name, with parameters that are drawn.
    Drawn(String),
    /// A Conv-4 of so many channels.
    Wide(usize),
    /// The network of this name, with the weights of a file.
    Weights(String, PathBuf),
    /// The encoder of another run, with its parameters.
    Run(PathBuf),
}

/// Name of the network that a method has by default.
pub(crate) const CONV4: &str = "conv4";

const RUN: &str = "run";

fn networks() -> String {
    let names: Vec<_> = EncoderConfig::names().collect();
    format!(
        "Network that embeds images: NAME, with parameters that are drawn; NAME:FILE, with weights to begin with; \
         {CONV4}:CHANNELS, of another width; or {RUN}:DIR, the encoder of another run. There are {} [default: {CONV4} as \
         the method's paper has it]",
        names.join(", ")
    )
}

impl FromStr for EncoderSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        match (name, rest) {
            (_, Some("")) => Err(format!("{text:?} ends with a colon")),
            (RUN, Some(folder)) => Ok(Self::Run(folder.into())),
            (RUN, None) => Err(format!("write {RUN}:DIR, with the folder of a run")),
            _ if !EncoderConfig::names().any(|known| known == name) => Err(unknown(name)),
            (_, None) => Ok(Self::Drawn(name.to_owned())),
            (CONV4, Some(rest)) if rest.bytes().all(|byte| byte.is_ascii_digit()) => {
                let channels = rest.parse().ok().filter(|channels| (1..=16_384).contains(channels));
                let refused = || format!("{CONV4} has 1 to 16384 channels, not {rest}");
                channels.map(Self::Wide).ok_or_else(refused)
            }
            (_, Some(file)) => Ok(Self::Weights(name.to_owned(), file.into())),
        }
    }
}

fn unknown(name: &str) -> String {
    let known = EncoderConfig::names().chain([RUN]).map(str::to_owned).collect();
    HardwareError::Unknown { what: "encoder", name: name.to_owned(), known }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<EncoderSpec, String> {
        text.parse()
    }

    #[test]
    fn a_network_is_its_name_with_what_it_begins_with() {
        assert_eq!(parsed("resnet12"), Ok(EncoderSpec::Drawn("resnet12".to_owned())));
        assert_eq!(parsed("conv4:512"), Ok(EncoderSpec::Wide(512)));
        let weights = EncoderSpec::Weights("resnet18".to_owned(), "C:/w.pth".into());
        assert_eq!(parsed("resnet18:C:/w.pth"), Ok(weights));
        let weights = EncoderSpec::Weights("resnet18".to_owned(), "512".into());
        assert_eq!(parsed("resnet18:512"), Ok(weights));
        assert_eq!(parsed("run:runs/a"), Ok(EncoderSpec::Run("runs/a".into())));
    }

    #[test]
    fn what_is_no_network_is_refused_with_the_nearest_name() {
        let text = parsed("resnet81").unwrap_err();
        assert!(
            text.starts_with("there is no encoder \"resnet81\"; did you mean \"resnet"),
            "{text}"
        );
        assert_eq!(parsed("conv4:0").unwrap_err(), "conv4 has 1 to 16384 channels, not 0");
        assert!(parsed("conv4:99999999999999999999").is_err());
        assert_eq!(parsed("resnet12:").unwrap_err(), "\"resnet12:\" ends with a colon");
        assert!(parsed("run").unwrap_err().contains("run:DIR"));
        assert!(parsed("").is_err());
    }
}
