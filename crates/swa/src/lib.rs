//! Sliding-window attention: a window of rows, and the first few ("attention sinks") where asked for.
//!
//! On a layer whose own attention is windowed this keeps exactly what the model can see, in a ring. On a layer
//! that sees everything it drops the older rows: lossy beyond `window + sinks` tokens (StreamingLLM, Xiao et
//! al. 2023). Rows keep the positions that they had in the text; that paper moves the sinks up to the window instead,
//! so that distances stay within what the model was trained on.
//!
//! What it does not do: latent rows are kept as they are (a window over MLA works the same way).

use kvlab_core::{Adaptation, AttentionShape, Exactness, KvCache, Retention};
use kvlab_store::{BuildError, Fit, Options, Plan, Variant};
use std::num::NonZeroUsize;

/// The variant `swa`, with the options `window` (tokens) and `sinks` (rows).
pub struct Swa;

impl Variant for Swa {
    fn name(&self) -> &'static str {
        "swa"
    }

    fn summary(&self) -> &'static str {
        "the newest rows, and the first few"
    }

    fn options(&self) -> &'static [&'static str] {
        &["window", "sinks"]
    }

    fn layouts(&self) -> &'static [&'static str] {
        &["ring", "contiguous", "paged"]
    }

    fn fit(&self, shape: &AttentionShape, options: &Options) -> Result<Fit, String> {
        let window = options.positive("window")?.and_then(NonZeroUsize::new);
        let sinks = options.count("sinks")?.unwrap_or(0);
        let own = shape.visibility.window();
        let (retention, exactness) = match (window, own) {
            (None, Some(_)) if sinks > 0 => {
                return Err("cache.sinks needs cache.window: the model's own window has no sinks".into());
            }
            (None, Some(_)) => (Retention::All, Exactness::Exact),
            (None, None) => {
                return Err("the model sees every row; say how many the cache keeps with cache.window".into());
            }
            (Some(window), Some(own)) if window.get() >= own && sinks > 0 => {
                return Err(format!(
                    "cache.sinks has no effect: the model's own window of {own} tokens hides them"
                ));
            }
            (Some(window), Some(own)) if window.get() >= own => (Retention::All, Exactness::Exact),
            (Some(window), _) => {
                let what = Retention::Window { window, sinks };
                let reason = format!("rows beyond the {what} are dropped");
                (what, Exactness::Lossy(vec![reason]))
            }
        };
        Ok(Fit {
            row: shape.native_row(),
            retention,
            adaptation: Adaptation::Keep,
            exactness,
        })
    }

    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        Ok(Box::new(plan.store(self.name(), |_, rows| rows)?))
    }
}
