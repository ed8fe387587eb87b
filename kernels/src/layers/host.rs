//! Fused layers of every host backend.

use burn::tensor::TensorMetadata;
use burn::tensor::ops::FloatTensor;

use super::FusedLayers;
use crate::channels::cpu as channels;
use crate::conv2d::{self, ConvShape, Role};
use crate::environment::chosen;
use crate::host::{HostBackend, consume, elements, write_like, write_shape};
use crate::leaky_relu::rectifier::Rectifier;
use crate::max_pool::Windows;

impl<B: HostBackend> FusedLayers for B {
    fn pool(windows: Windows, x: FloatTensor<B>) -> FloatTensor<B> {
        let ([n, c, h, w], body) = (x.shape().dims(), chosen());
        let ([rows, columns], of_x, plane) = (windows.count([h, w]), elements::<B>(&x), h * w);
        let y = channels::planes(n * c, [rows * columns, plane], |p, y| {
            let x = &of_x[p * plane..][..plane];
            match windows {
                Windows::Adjacent => body.pool(x, w, y),
                Windows::Overlapping => body.overlapping_pool(x, w, y),
            }
        });
        write_like::<B, 4>(&x, y, [n, c, rows, columns])
    }

    fn pool_scatter(windows: Windows, x: FloatTensor<B>, dy: FloatTensor<B>) -> FloatTensor<B> {
        let (shape @ [n, c, h, w], body) = (x.shape().dims(), chosen());
        let [of_x, dy] = [&x, &dy].map(elements::<B>);
        let (plane, pooled) = (h * w, windows.count([h, w]).iter().product());
        let dx = channels::planes(n * c, [plane; 2], |p, dx| {
            let (x, dy) = (&of_x[p * plane..][..plane], &dy[p * pooled..][..pooled]);
            match windows {
                Windows::Adjacent => body.scatter(x, w, dy, dx),
                Windows::Overlapping => body.overlapping_scatter(x, w, dy, dx),
            }
        });
        write_like::<B, 4>(&x, dx, shape)
    }

    fn pool_gather(windows: Windows, x: FloatTensor<B>, u: FloatTensor<B>) -> FloatTensor<B> {
        let ([n, c, h, w], body) = (x.shape().dims(), chosen());
        let ([of_x, u], plane) = ([&x, &u].map(elements::<B>), h * w);
        let [rows, columns] = windows.count([h, w]);
        let y = channels::planes(n * c, [rows * columns, plane], |p, y| {
            let [x, u] = [&of_x, &u].map(|of| &of[p * plane..][..plane]);
            match windows {
                Windows::Adjacent => body.gather(x, w, u, y),
                Windows::Overlapping => body.overlapping_gather(x, w, u, y),
            }
        });
        write_like::<B, 4>(&x, y, [n, c, rows, columns])
    }

    fn leaky(x: FloatTensor<B>, by: Rectifier) -> FloatTensor<B> {
        let (shape @ [_, _, h, w], device) = (x.shape().dims(), B::float_device(&x));
        let body = chosen();
        let change = |_, x: &mut [f32]| body.leaky(by.slope as f32, by.most_f32(), x);
        let y = consume::<B, _>(x, |x| channels::replace(x, h * w, change));
        write_shape::<B>(y, shape.into(), &device)
    }

    fn leaky_gate(at: FloatTensor<B>, values: FloatTensor<B>, by: Rectifier) -> FloatTensor<B> {
        let (shape @ [_, _, h, w], output) = (at.shape().dims(), elements::<B>(&at));
        let (body, plane) = (chosen(), h * w);
        let change = |p: usize, values: &mut [f32]| {
            let output = &output[p * plane..][..plane];
            body.leaky_gate(by.slope as f32, by.most_f32(), output, values);
        };
        let y = consume::<B, _>(values, |values| channels::replace(values, plane, change));
        write_like::<B, 4>(&at, y, shape)
    }

    fn plane_mean(x: FloatTensor<B>, lanes: usize) -> FloatTensor<B> {
        let [n, channels, h, w] = x.shape().dims();
        let means = channels::means(&elements::<B>(&x), h * w);
        let c = channels / lanes;
        write_like::<B, 3>(&x, channels::swapped(means, [n, lanes], c), [lanes, n, c])
    }

    fn plane_spread(u: FloatTensor<B>, [h, w]: [usize; 2]) -> FloatTensor<B> {
        let [lanes, n, c] = u.shape().dims();
        let values = channels::swapped(elements::<B>(&u).into_owned(), [lanes, n], c);
        write_like::<B, 4>(&u, channels::spread(&values, h * w), [n, lanes * c, h, w])
    }

    fn channel_moments(x: FloatTensor<B>) -> FloatTensor<B> {
        let [_, c, h, w] = x.shape().dims();
        let moments = channels::moments(&elements::<B>(&x), c, h * w);
        write_like::<B, 2>(&x, moments, [2, c])
    }

    fn channel_correlate(of: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let [_, x, _] = &of;
        let [_, c, h, w] = x.shape().dims();
        let [g, of_x, centre] = of.each_ref().map(elements::<B>);
        let sums = channels::correlate(&g, &of_x, &centre, h * w);
        write_like::<B, 2>(x, sums, [2, c])
    }

    fn channel_affine(x: FloatTensor<B>, map: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let shape @ [_, _, h, w] = x.shape().dims();
        let of_map = map.each_ref().map(elements::<B>);
        let of_map = of_map.each_ref().map(|of| &**of);
        let y = consume::<B, _>(x, |x| channels::affine(x, of_map, h * w));
        write_like::<B, 4>(&map[0], y, shape)
    }

    fn channel_combine([[x, centre, scale], b]: [[FloatTensor<B>; 3]; 2]) -> FloatTensor<B> {
        let shape @ [_, _, h, w] = x.shape().dims();
        let (of_a, of_b) = ([&centre, &scale].map(elements::<B>), b.each_ref().map(elements::<B>));
        let (of_a, of_b) = (of_a.each_ref().map(|of| &**of), of_b.each_ref().map(|of| &**of));
        let y = consume::<B, _>(x, |x| channels::combine(x, of_a, of_b, h * w));
        write_like::<B, 4>(&b[0], y, shape)
    }

    fn convolution(role: Role, of: [FloatTensor<B>; 2], shape: &ConvShape) -> FloatTensor<B> {
        let [first, second] = &of.each_ref().map(elements::<B>);
        let derivative = conv2d::cpu::derivative(role, shape, [first, second]);
        write_like::<B, 4>(&of[0], derivative, shape.of(role))
    }
}
