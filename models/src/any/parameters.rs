//! Numbers of parameters, running averages among them, before anything is allocated.

use crate::efficientnet_lite::{FEATURES, STAGES, STEM};
use crate::{
    EfficientNetLiteConfig, ResNet12Config, ResNetConfig, VitConfig, VitFamily, WideResNetConfig,
};

/// Gain, shift and both running averages of each channel.
const NORM: u128 = 4;

/// Weights of a convolution of a square window.
fn conv(from: usize, to: usize, window: usize) -> u128 {
    [from, to, window, window].iter().map(|size| *size as u128).product()
}

fn norm(channels: usize) -> u128 {
    NORM * channels as u128
}

/// The number, unless it is beyond what can be counted.
fn counted(parameters: u128) -> Option<usize> {
    usize::try_from(parameters).ok()
}

impl ResNet12Config {
    pub(super) fn sizes(&self) -> Vec<usize> {
        self.widths.into_iter().chain([self.channels]).collect()
    }

    pub(super) fn count(&self) -> Option<usize> {
        let inputs = [self.channels].into_iter().chain(self.widths);
        let block =
            |(from, to)| conv(from, to, 3) + 2 * conv(to, to, 3) + conv(from, to, 1) + 4 * norm(to);
        counted(inputs.zip(self.widths).map(block).sum())
    }
}

impl ResNetConfig {
    pub(super) fn sizes(&self) -> Vec<usize> {
        self.blocks.into_iter().chain([self.channels, self.width]).collect()
    }

    fn expansion(&self) -> usize {
        if self.bottleneck { 4 } else { 1 }
    }

    pub(super) fn count(&self) -> Option<usize> {
        let expansion = self.expansion();
        let mut from = self.width;
        let mut total = conv(self.channels, from, 7) + norm(from);
        for (stage, blocks) in self.blocks.into_iter().enumerate() {
            let width = self.width << stage;
            let to = expansion * width;
            let block = |from: usize| match self.bottleneck {
                true => {
                    let convolutions =
                        conv(from, width, 1) + conv(width, width, 3) + conv(width, to, 1);
                    convolutions + 2 * norm(width) + norm(to)
                }
                false => conv(from, width, 3) + conv(width, width, 3) + 2 * norm(width),
            };
            if stage > 0 || from != to {
                total += conv(from, to, 1) + norm(to);
            }
            total += block(from) + (blocks.saturating_sub(1)) as u128 * block(to);
            from = to;
        }
        counted(total)
    }
}

impl WideResNetConfig {
    pub(super) fn sizes(&self) -> Vec<usize> {
        // The widest stage has 64 times as many channels.
        vec![self.blocks, self.channels, 64 * self.width.min(1 << 20)]
    }

    pub(super) fn count(&self) -> Option<usize> {
        let width = self.width as u128;
        let widths = [16, 16 * width, 32 * width, 64 * width];
        let stage = |index: usize| {
            let (from, to) = (widths[index], widths[index + 1]);
            let block = |from: u128| NORM * (from + to) + 9 * (from + to) * to;
            let shortcut = if from != to { from * to } else { 0 };
            block(from) + shortcut + self.blocks.saturating_sub(1) as u128 * block(to)
        };
        let stages: u128 = (0..3).map(stage).sum();
        counted(conv(self.channels, 16, 3) + stages + NORM * widths[3])
    }
}

impl EfficientNetLiteConfig {
    pub(super) fn count(&self) -> Option<usize> {
        let mut from = STEM;
        let mut total = conv(3, STEM, 3) + norm(STEM);
        for [repeats, window, _, expansion, to] in STAGES {
            for _ in 0..repeats {
                let wide = from * expansion;
                if expansion > 1 {
                    total += conv(from, wide, 1) + norm(wide);
                }
                total += conv(1, wide, window) + norm(wide) + conv(wide, to, 1) + norm(to);
                from = to;
            }
        }
        counted(total + conv(from, FEATURES, 1) + norm(FEATURES))
    }
}

impl VitConfig {
    pub(super) fn sizes(&self) -> Vec<usize> {
        let Self { patch, grid, width, depth, heads, projection, .. } = *self;
        let sizes = vec![patch, grid, width, depth, heads, projection];
        // Heads share the width evenly.
        match heads > 0 && width.is_multiple_of(heads) {
            true => sizes,
            false => vec![0],
        }
    }

    pub(super) fn count(&self) -> Option<usize> {
        let Self { patch, grid, width, depth, projection, registers, .. } = *self;
        let clip = self.family != VitFamily::DinoV2;
        let [grid, depth, registers] = [grid, depth, registers].map(|size| size as u128);
        let (patches, projected) = (conv(3, width, patch), conv(width, projection, 1));
        let wide = width as u128;
        // Of a block: both norms, then attention and MLP with their biases, and DINOv2's scales.
        let scales = if clip { 0 } else { 2 * wide };
        let block = 4 * wide + 12 * wide * wide + 9 * wide + scales;
        let tokens = (1 + grid * grid + 1 + registers) * wide;
        let ends = match clip {
            true => 2 * wide + projected,
            false => wide,
        };
        counted(tokens + patches + depth * block + 2 * wide + ends)
    }
}
