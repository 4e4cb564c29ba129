//! What the caller's registry knows: names of variants, layouts and codecs, and the option keys each one takes.

/// The names a config may use. The engine builds one from its registry.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Values of `cache.variant`.
    pub variants: &'a [VariantInfo],
    /// Values of `cache.layout`.
    pub layouts: &'a [LayoutInfo],
    /// Values of `cache.key` and `cache.value`.
    pub codecs: &'a [CodecInfo],
}

/// A cache variant, as the config sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariantInfo {
    /// The value of `cache.variant`.
    pub name: &'static str,
    /// Keys of `[cache]` that have an effect with this variant only, such as `window`. `window`, `sinks`, `kv_lora_rank` and
    /// `num_key_value_heads` are checked here and get a field of [`CacheConfig`](crate::CacheConfig); any other goes
    /// unchecked into [`CacheConfig::options`](crate::CacheConfig::options).
    pub options: &'static [&'static str],
    /// False when the variant keeps no rows (`none`): then `layout`, `capacity`, `key`, `value` and `[[cache.layer]]` are
    /// refused, because they would have no effect.
    pub stores_rows: bool,
}

impl VariantInfo {
    /// A variant that stores rows.
    #[must_use]
    pub const fn new(name: &'static str, options: &'static [&'static str]) -> Self {
        Self {
            name,
            options,
            stores_rows: true,
        }
    }

    /// A variant that keeps no rows and so takes no storage keys.
    #[must_use]
    pub const fn without_rows(name: &'static str) -> Self {
        Self {
            name,
            options: &[],
            stores_rows: false,
        }
    }
}

/// A layout, as the config sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutInfo {
    /// The value of `cache.layout`.
    pub name: &'static str,
    /// Keys of `[cache]` that have an effect with this layout only, such as `page_size`. They go into
    /// [`CacheConfig::options`](crate::CacheConfig::options).
    pub options: &'static [&'static str],
}

impl LayoutInfo {
    /// A layout with its option keys.
    #[must_use]
    pub const fn new(name: &'static str, options: &'static [&'static str]) -> Self {
        Self { name, options }
    }
}

/// A codec, as the config sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodecInfo {
    /// The value of `cache.key` and `cache.value`.
    pub name: &'static str,
    /// Keys of the codec table that have an effect with this codec. `group`, `axis` and `rotate` are checked here; any
    /// other goes unchecked into [`CodecSpec::options`](crate::CodecSpec::options).
    pub options: &'static [&'static str],
}

impl CodecInfo {
    /// A codec with its option keys.
    #[must_use]
    pub const fn new(name: &'static str, options: &'static [&'static str]) -> Self {
        Self { name, options }
    }
}

/// The registry that the tests of this crate use.
#[cfg(test)]
pub(crate) const TEST: Known<'static> = Known {
    variants: &[
        VariantInfo::without_rows("none"),
        VariantInfo::new("mha", &[]),
        VariantInfo::new("gqa", &["num_key_value_heads"]),
        VariantInfo::new("mqa", &[]),
        VariantInfo::new("swa", &["window", "sinks"]),
        VariantInfo::new("mla", &["kv_lora_rank"]),
        VariantInfo::new("odd", &["parity"]),
    ],
    layouts: &[LayoutInfo::new("contiguous", &[]), LayoutInfo::new("ring", &[])],
    codecs: &[
        CodecInfo::new("f32", &[]),
        CodecInfo::new("f16", &[]),
        CodecInfo::new("bf16", &[]),
        CodecInfo::new("int8", &["group", "axis", "rotate"]),
        CodecInfo::new("int4", &["group", "axis", "rotate", "clip"]),
    ],
};
