//! Stacks that do not fit, and what is said of them.

use burn::backend::Flex;
use burn::tensor::Tensor;
use fewshot_kernels::{ConvBlock, Moments, StackOptions, Statistics, conv_stack};

use crate::refusal::refusal;

fn tensor<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
    Tensor::ones(shape, &Default::default())
}

fn block(c: usize, out: usize) -> ConvBlock<Flex> {
    let vector = || Some(tensor([out]));
    ConvBlock {
        weight: tensor([out, c, 3, 3]),
        bias: vector(),
        gamma: vector(),
        beta: vector(),
        stride: 1,
        pool: true,
    }
}

fn moments(mean: usize, variance: usize) -> Moments<Flex> {
    Moments { mean: tensor([mean]), variance: tensor([variance]) }
}

fn assert_refused(
    images: [usize; 4],
    blocks: &[ConvBlock<Flex>],
    statistics: Statistics<Flex>,
    wanted: &str,
) {
    let images = tensor(images);
    let call = || conv_stack(images, blocks, statistics, StackOptions::default());
    assert_eq!(refusal(call), wanted);
}

const IMAGES: [usize; 4] = [2, 3, 8, 8];

#[test]
fn a_stack_needs_blocks_and_images() {
    assert_refused(IMAGES, &[], Statistics::Batch, "a convolution stack needs at least one block");
    let blocks = [block(3, 4)];
    assert_refused(
        [0, 3, 8, 8],
        &blocks,
        Statistics::Batch,
        "a convolution stack needs at least one image",
    );
}

#[test]
fn a_weight_must_take_the_channels_that_arrive() {
    let blocks = [block(3, 4), block(5, 4)];
    let wanted = "block 1 needs a weight [c_out, 4, 3, 3], found [4, 5, 3, 3]";
    assert_refused(IMAGES, &blocks, Statistics::Batch, wanted);
    let wide = ConvBlock { weight: tensor([4, 3, 5, 5]), ..block(3, 4) };
    let wanted = "block 0 needs a weight [c_out, 3, 3, 3], found [4, 3, 5, 5]";
    assert_refused(IMAGES, &[wide], Statistics::Batch, wanted);
}

#[test]
fn a_vector_must_have_a_value_a_channel() {
    let short = || Some(tensor([3]));
    let blocks = [
        ("bias", ConvBlock { bias: short(), ..block(3, 4) }),
        ("gamma", ConvBlock { gamma: short(), ..block(3, 4) }),
        ("beta", ConvBlock { beta: short(), ..block(3, 4) }),
    ];
    for (name, block) in blocks {
        let wanted = format!("block 0 needs 4 values of {name}, found 3");
        assert_refused(IMAGES, &[block], Statistics::Batch, &wanted);
    }
    for (name, moments) in [("running mean", moments(1, 4)), ("running variance", moments(4, 1))] {
        let wanted = format!("block 0 needs 4 values of {name}, found 1");
        assert_refused(IMAGES, &[block(3, 4)], Statistics::Running(vec![moments]), &wanted);
    }
}

#[test]
fn strides_are_one_or_two() {
    for stride in [0, 3] {
        let block = ConvBlock { stride, ..block(3, 4) };
        let wanted = format!("block 0 has stride {stride}, only 1 and 2 are served");
        assert_refused(IMAGES, &[block], Statistics::Batch, &wanted);
    }
}

#[test]
fn an_image_must_outlast_the_blocks() {
    let blocks = [block(3, 4), block(4, 4), block(4, 4)];
    let wanted = "block 2 would shrink an image of 1x2 to nothing";
    assert_refused([1, 3, 5, 8], &blocks, Statistics::Batch, wanted);
}

#[test]
fn running_moments_must_be_given_for_every_block() {
    let statistics = Statistics::Running(vec![moments(4, 4)]);
    let wanted = "2 blocks need as many pairs of running moments, found 1";
    assert_refused(IMAGES, &[block(3, 4), block(4, 4)], statistics, wanted);
}

#[test]
fn ghost_batches_have_as_many_images_and_one_lane() {
    for (ghost_batches, lanes, wanted) in [
        (0, 1, "2 images are not 0 batches of equal size"),
        (3, 1, "2 images are not 3 batches of equal size"),
        (2, 3, "lanes have one batch each, found 3 lanes and 2 batches"),
    ] {
        let options = StackOptions { ghost_batches, lanes, ..Default::default() };
        let blocks = [block(1, 3)];
        let call = || conv_stack(tensor(IMAGES), &blocks, Statistics::Batch, options);
        assert_eq!(refusal(call), wanted);
    }
}

#[test]
fn channels_must_be_shared_out_among_the_lanes() {
    for (lanes, name, channels) in [(2, "the images", 3), (0, "the images", 3), (3, "block 0", 4)] {
        let options = StackOptions { lanes, ..Default::default() };
        let blocks = [block(1, 4)];
        let call = || conv_stack(tensor(IMAGES), &blocks, Statistics::Batch, options);
        let wanted =
            format!("{channels} channels of {name} cannot be shared out among {lanes} lanes");
        assert_eq!(refusal(call), wanted);
    }
}
