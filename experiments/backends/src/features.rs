//! The cargo features that are compiled in, for the provenance of results.

/// The compiled cargo features that change how tensors are computed.
pub fn compiled() -> Vec<String> {
    all().into_iter().filter(|(_, is_in)| *is_in).map(|(name, _)| name.to_owned()).collect()
}

/// The features that change what computes, and whether they are compiled in. `default` and `cube` stand for others.
fn all() -> [(&'static str, bool); 10] {
    macro_rules! compiled {
        ($($name:literal),*; $($of_burn:literal: $is_in:expr),*) => {
            [$(($name, cfg!(feature = $name)),)* $(($of_burn, cfg!(feature = $of_burn) || $is_in),)*]
        };
    }
    compiled!("ndarray", "wgpu", "vulkan", "metal", "webgpu", "cuda", "cuda-cpp", "rocm"; "fusion": gpu_backends_fuse(), "autotune": gpu_backends_tune())
}

/// Whether Burn's GPU backends join operations, whoever asked for it: with its feature their type is another one.
fn gpu_backends_fuse() -> bool {
    #[cfg(feature = "cube")]
    return std::any::TypeId::of::<burn_cubecl::Cube>() != std::any::TypeId::of::<burn_cubecl::CubeBackend>();
    #[cfg(not(feature = "cube"))]
    false
}

/// Whether Burn's GPU backends choose kernels by timing them, whoever asked for it: with its feature they do so by default.
fn gpu_backends_tune() -> bool {
    #[cfg(feature = "cube")]
    use burn_cubecl::kernel::matmul::MatmulStrategy;
    #[cfg(feature = "cube")]
    return !matches!(MatmulStrategy::default(), MatmulStrategy::Cube);
    #[cfg(not(feature = "cube"))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_that_is_compiled_in_is_named() {
        let named = compiled();
        let has = |name: &str| named.iter().any(|other| other == name);
        assert_eq!((has("ndarray"), has("wgpu")), (cfg!(feature = "ndarray"), cfg!(feature = "wgpu")), "{named:?}");
        assert!(has("fusion") || !cfg!(feature = "fusion"), "{named:?}");
        assert!(has("autotune") || !cfg!(feature = "autotune"), "{named:?}");
        #[cfg(feature = "cube")]
        assert_eq!(has("fusion"), std::any::type_name::<burn::backend::Cube>().contains("Fusion"), "{named:?}");
    }

    /// A feature that is added to the manifest is to be recorded as well.
    #[test]
    fn all_features_of_the_manifest_are_known() {
        let manifest: toml::Table = include_str!("../Cargo.toml").parse().unwrap();
        let written = manifest["features"].as_table().unwrap().keys().map(String::as_str);
        let mut written: Vec<&str> = written.filter(|name| !["default", "cube"].contains(name)).collect();
        let mut known = all().map(|(name, _)| name);
        written.sort_unstable();
        known.sort_unstable();
        assert_eq!(written, known);
    }
}
