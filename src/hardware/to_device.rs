use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{BasicOps, Bool, Int, Tensor};

/// `module` with every tensor on `device`; frozen parameters stay frozen.
pub(crate) fn to_device<B: Backend, M: Module<B>>(module: M, device: &B::Device) -> M {
    module.map(&mut DeviceMapper { device })
}

struct DeviceMapper<'a, B: Backend> {
    device: &'a B::Device,
}

impl<B: Backend> DeviceMapper<'_, B> {
    fn carried<const D: usize, K: BasicOps<B>>(&self, tensor: Tensor<B, D, K>) -> Tensor<B, D, K> {
        match tensor.device() == *self.device {
            true => tensor,
            false => {
                let dtype = tensor.dtype();
                Tensor::from_data(tensor.into_data(), (self.device, dtype))
            }
        }
    }
}

impl<B: Backend> ModuleMapper<B> for DeviceMapper<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        param.map(|tensor| {
            let tracked = tensor.is_require_grad();
            let carried = self.carried(tensor);
            match carried.is_require_grad() == tracked {
                true => carried,
                false => carried.set_require_grad(tracked),
            }
        })
    }

    fn map_int<const D: usize>(
        &mut self,
        param: Param<Tensor<B, D, Int>>,
    ) -> Param<Tensor<B, D, Int>> {
        param.map(|tensor| self.carried(tensor))
    }

    fn map_bool<const D: usize>(
        &mut self,
        param: Param<Tensor<B, D, Bool>>,
    ) -> Param<Tensor<B, D, Bool>> {
        param.map(|tensor| self.carried(tensor))
    }
}
