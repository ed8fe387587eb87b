//! Ways of computing a product, by type and device.

use cubecl::features::{Features, Tma};
use cubek::matmul::components::tile::TileMatmulKind;
use cubek::matmul::launch::Strategy;
use cubek::matmul::routines::BlueprintStrategy::Inferred;
use cubek::matmul::routines::TileSizeSelection;
use cubek::matmul::routines::double_buffering::DoubleBufferingArgs;
use cubek::matmul::routines::double_unit::DoubleUnitSelectionArgs;
use cubek::matmul::routines::ordered_double_buffering::OrderedSelectionArgs;
use cubek::matmul::routines::simple::SimpleArgs;
use cubek::matmul::routines::simple_unit::SimpleUnitSelectionArgs;

use super::ProductType;

/// What a way of computing needs of the device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing but multiplication and addition.
    Units,
    /// Tensor cores.
    TensorCores,
    /// Tensor cores, and a unit that copies tiles to shared memory.
    Tma,
}

impl Needs {
    /// What of it the device lacks.
    pub fn lacking(self, features: &Features) -> Option<&'static str> {
        let matmul = &features.matmul;
        match self {
            Self::Units => None,
            _ if matmul.cmma.is_empty() && matmul.mma.is_empty() => Some("no tensor cores"),
            Self::Tma if !features.tma.contains(Tma::Base) => Some("no tensor memory accelerator"),
            _ => None,
        }
    }
}

/// The ways of computing products of this type, those first that are expected to be fastest for large
/// matrices: Burn's own search gives tiles that are copied by the tensor memory accelerator the highest
/// priority, and cubek's benches have ordered double buffering as the best of the others. Instructions on
/// single tiles (`mma`) go before cooperative ones (`cmma`), whose layout in shared memory is not swizzled.
pub fn strategies(of: ProductType) -> Vec<(Needs, Strategy)> {
    let units = [
        Strategy::DoubleUnit(Inferred(DoubleUnitSelectionArgs {
            tile_size: TileSizeSelection::MaxTileSize,
        })),
        Strategy::SimpleUnit(Inferred(SimpleUnitSelectionArgs {
            tile_size: TileSizeSelection::MaxTileSize,
        })),
    ];
    let units = units.map(|strategy| (Needs::Units, strategy));
    match of {
        ProductType::F32 => units.into(),
        ProductType::Tf32 => tensor_cores().into(),
        ProductType::F16 | ProductType::Bf16 => tensor_cores().into_iter().chain(units).collect(),
    }
}

fn tensor_cores() -> [(Needs, Strategy); 9] {
    // The kind of tile is given by the name of the strategy.
    let tile_matmul = TileMatmulKind::Cmma;
    let rows = || Inferred(SimpleArgs { multi_rows: true, tile_matmul });
    let rows_of_tma = || Inferred(SimpleArgs { multi_rows: true, tile_matmul });
    let double = |specialized| Inferred(DoubleBufferingArgs { specialized, tile_matmul });
    let ordered = Inferred(OrderedSelectionArgs {
        partition_k: Some(2),
        row_count: Some(8),
        rows_per_plane: Some(2),
        tile_matmul,
    });
    [
        (Needs::Tma, Strategy::SpecializedTmaMma(Inferred(().into()))),
        (Needs::Tma, Strategy::SimpleTmaMma(rows_of_tma())),
        (Needs::Tma, Strategy::SpecializedTmaCmma(Inferred(().into()))),
        (Needs::Tma, Strategy::SimpleTmaCmma(rows_of_tma())),
        (Needs::TensorCores, Strategy::SpecializedCyclicMma(Inferred(().into()))),
        (Needs::TensorCores, Strategy::OrderedDoubleCmma(ordered)),
        (Needs::TensorCores, Strategy::DoubleCyclicMma(double(true))),
        (
            Needs::TensorCores,
            Strategy::DoubleTilewiseCmma(Inferred(DoubleBufferingArgs {
                specialized: false,
                tile_matmul,
            })),
        ),
        (Needs::TensorCores, Strategy::SimpleCyclicCmma(rows())),
    ]
}

/// Without what all of them begin with.
pub fn name(strategy: &Strategy) -> String {
    let name = strategy.to_string();
    name.strip_prefix("matmul_").unwrap_or(&name).to_owned()
}
