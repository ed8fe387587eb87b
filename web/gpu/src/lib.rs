//! Networks of the page on the graphics processor, by WebGPU: prepared pictures in, embeddings out.

use std::panic;
use std::sync::Arc;

use burn::backend::Wgpu;
use burn::backend::wgpu::graphics::WebGpu;
use burn::backend::wgpu::{WgpuDevice, init_setup_async};
use fewshot::adapted::{BackboneOrigin, PretrainedBackbone, UnfittedModel};
use wasm_bindgen::prelude::*;
use wgpu::{Device, ErrorFilter};

type Result<T = (), E = JsError> = std::result::Result<T, E>;

#[wasm_bindgen]
extern "C" {
    /// Ends the use of the graphics processor, for this reason.
    #[wasm_bindgen(js_namespace = globalThis, js_name = failGpu)]
    fn fail(reason: &str);
}

/// Tells the page what a panic says, where nobody would read it.
#[wasm_bindgen(start)]
pub fn start() {
    panic::set_hook(Box::new(|panic| fail(panic.payload_as_str().unwrap_or("it gave no reason"))));
}

/// A graphics processor.
#[wasm_bindgen]
pub struct Gpu(Device);

#[wasm_bindgen]
impl Gpu {
    /// The graphics processor of this browser, which must have one: a panic says what it lacks. One is all a program can have.
    pub async fn open() -> Self {
        let setup = init_setup_async::<WebGpu>(&WgpuDevice::DefaultDevice, Default::default());
        let device = setup.await.device;
        device.set_device_lost_callback(|_, message| {
            fail(&format!("the graphics processor is gone: {message}"))
        });
        device.on_uncaptured_error(Arc::new(|error: wgpu::Error| fail(&error.to_string())));
        Self(device)
    }

    /// The network of this name with the content of a file of its weights.
    ///
    /// # Errors
    /// When the content is no file of its weights, and when the device has no place for them.
    pub async fn load(&self, network: &str, content: Vec<u8>, file: &str) -> Result<Network> {
        let decode =
            async || PretrainedBackbone::decode(network, content, file, &Default::default());
        Ok(self.network(checked(&self.0, decode).await??))
    }

    /// The network that is in a model's file, of a model on a network that was trained.
    ///
    /// # Errors
    /// When there is none in the content, and when the device has no place for it.
    pub async fn load_from_model(&self, content: Vec<u8>, file: &str) -> Result<Network> {
        let decode = async || UnfittedModel::decode(&content, file, None, &Default::default());
        let model = checked(&self.0, decode).await??;
        match model.source.network() {
            Some(network) if matches!(network.origin(), BackboneOrigin::Trained(_)) => {
                Ok(self.network(network.clone()))
            }
            _ => Err(JsError::new("the file has no network in it")),
        }
    }

    fn network(&self, backbone: PretrainedBackbone<Wgpu>) -> Network {
        Network { device: self.0.clone(), backbone }
    }
}

/// A network on the graphics processor.
#[wasm_bindgen]
pub struct Network {
    device: Device,
    backbone: PretrainedBackbone<Wgpu>,
}

#[wasm_bindgen]
impl Network {
    /// The embedding of a picture that is prepared for this network.
    ///
    /// # Errors
    /// When the device refuses or fails.
    pub async fn embed(&self, image: Vec<f32>) -> Result<Vec<f32>> {
        let embed = async || self.backbone.embed_prepared_async(&image).await;
        Ok(checked(&self.device, embed).await??)
    }
}

/// Does `work` on a device, whose refusals come apart from results: without them, memory that was never written would pass for one.
async fn checked<T>(device: &Device, work: impl AsyncFnOnce() -> T) -> Result<T> {
    let filters = [ErrorFilter::OutOfMemory, ErrorFilter::Internal, ErrorFilter::Validation];
    let scopes = filters.map(|filter| device.push_error_scope(filter));
    let done = work().await;
    let mut refusal = None;
    for scope in scopes.into_iter().rev() {
        refusal = scope.pop().await.or(refusal);
    }
    match refusal {
        Some(error) => Err(error.into()),
        None => Ok(done),
    }
}
