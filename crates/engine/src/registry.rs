//! The registry: every variant, and the names that a config may use. A new variant is a crate (or a file) and
//! one line here.

use kvlab_config::{CodecInfo, Known, LayoutInfo, VariantInfo};
use kvlab_core::AttentionShape;
use kvlab_store::{Variant, codec};
use std::sync::{OnceLock, RwLock};

/// Every variant that comes with kvlab.
const BUILT_IN: &[&dyn Variant] = &[
    &kvlab_store::NoCache,
    &kvlab_mha::Mha,
    &kvlab_gqa::Gqa,
    &kvlab_gqa::Mqa,
    &kvlab_swa::Swa,
    &kvlab_mla::Mla,
];

static ADDED: RwLock<Vec<&'static dyn Variant>> = RwLock::new(Vec::new());

/// The variants that come with kvlab.
pub fn built_in() -> &'static [&'static dyn Variant] {
    BUILT_IN
}

/// Adds a variant of your own, for the rest of the process; one of the same name is replaced. Call it before a config
/// is loaded.
pub fn register(variant: &'static dyn Variant) {
    let mut added = ADDED.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    added.retain(|v| v.name() != variant.name());
    added.push(variant);
}

/// Every variant, each name once.
pub fn variants() -> Vec<&'static dyn Variant> {
    let added = ADDED.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let replaced = |name: &str| added.iter().any(|v| v.name() == name);
    let kept = BUILT_IN.iter().filter(|v| !replaced(v.name()));
    kept.chain(added.iter()).copied().collect()
}

/// The variant of that name.
pub fn variant(name: &str) -> Option<&'static dyn Variant> {
    variants().into_iter().find(|v| v.name() == name)
}

/// The variant that is a layer's own attention.
pub(crate) fn own(shape: &AttentionShape) -> &'static dyn Variant {
    if shape.latent.is_some() {
        &kvlab_mla::Mla
    } else if shape.visibility.window().is_some() {
        &kvlab_swa::Swa
    } else if shape.kv_heads == shape.query_heads {
        &kvlab_mha::Mha
    } else if shape.kv_heads == 1 {
        &kvlab_gqa::Mqa
    } else {
        &kvlab_gqa::Gqa
    }
}

/// The names that a config may use.
pub fn with_known<T>(f: impl FnOnce(&Known<'_>) -> T) -> T {
    static REST: OnceLock<(Vec<LayoutInfo>, Vec<CodecInfo>)> = OnceLock::new();
    let (layouts, codecs) = REST.get_or_init(|| {
        let layouts = [
            LayoutInfo::new("contiguous", &[]),
            LayoutInfo::new("ring", &[]),
            LayoutInfo::new("paged", &["page_size", "prefix_sharing"]),
        ];
        let codecs = codec::ALL
            .iter()
            .map(|family| CodecInfo::new(family.name, family.options));
        (layouts.to_vec(), codecs.collect())
    });
    let variants = variants().into_iter().map(|v| match v.layouts() {
        ["none"] => VariantInfo::without_rows(v.name()),
        _ => VariantInfo::new(v.name(), v.options()),
    });
    f(&Known {
        variants: &variants.collect::<Vec<_>>(),
        layouts,
        codecs,
    })
}
