//! No cache: every step sees its own rows only, and must be fed the whole prefix. The baseline of every comparison.

use crate::cache::{Parts, StoredCache};
use crate::layout::Forgetful;
use crate::{BuildError, Fit, Options, Plan, Variant};
use kvlab_core::{Adaptation, AttentionShape, CacheSpec, Exactness, KvCache, Retention};

/// The variant `none`.
pub struct None;

impl Variant for None {
    fn name(&self) -> &'static str {
        "none"
    }

    fn summary(&self) -> &'static str {
        "no cache: each token recomputes the whole prefix"
    }

    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    fn layouts(&self) -> &'static [&'static str] {
        &["none"]
    }

    fn fit(&self, shape: &AttentionShape, _: &Options) -> Result<Fit, String> {
        Ok(Fit {
            row: shape.native_row(),
            retention: Retention::All,
            adaptation: Adaptation::Keep,
            exactness: Exactness::Exact,
        })
    }

    fn spec(&self, plan: &Plan) -> Result<CacheSpec, BuildError> {
        Ok(plan.spec_with(self.name(), "none", 0))
    }

    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        let spec = self.spec(plan)?;
        Ok(Box::new(StoredCache::new(Parts {
            codecs: plan.layers.iter().map(|l| l.codecs).collect(),
            spec,
            layout: Box::new(Forgetful),
            kernels: plan.kernels,
            adopt: |_, rows| rows,
            remembers: false,
            device: plan.device.clone(),
        })))
    }
}
