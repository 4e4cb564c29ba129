//! Which caches a page shows beside that of the file, and where their weights are from.
//!
//! A model file `x-mha.toml` with files `x-gqa.toml`, `x-swa.toml` ... beside it is one of several models that were
//! trained alike: those are its siblings, and each shows its own attention. Otherwise, and where it is asked for, the
//! other caches take the weights of the file and change them as the variant says (`kvlab-gqa`, `kvlab-mla`): one set of
//! weights, but untrained in its new form.

use crate::trace::Source;
use kvlab_config::{CacheConfig, Capacity, ModelConfig};
use kvlab_core::AttentionShape;
use kvlab_engine::{Origin, registry};
use std::path::{Path, PathBuf};

/// The variants that every page shows, if the model can have them.
const SHOWN: [&str; 4] = ["mha", "gqa", "swa", "mla"];

/// A cache to show.
pub(crate) struct Choice {
    pub(crate) name: String,
    pub(crate) source: Source,
    /// What to load, or why there is nothing to.
    pub(crate) config: Result<ModelConfig, String>,
}

/// What decides about the others.
pub(crate) struct Wish<'a> {
    /// The model file.
    pub(crate) file: &'a Path,
    pub(crate) config: &'a ModelConfig,
    /// The variant that it is.
    pub(crate) own: &'a str,
    /// Convert, even if there are siblings.
    pub(crate) convert: bool,
    pub(crate) window: Option<usize>,
    /// Tokens that will be fed.
    pub(crate) fed: usize,
}

/// The other caches, in a fixed order.
pub(crate) fn others(wish: &Wish<'_>) -> Vec<Choice> {
    let names = SHOWN.into_iter().filter(|name| *name != wish.own);
    names.map(|name| wish.other(name)).collect()
}

/// Gives a cache with a window one that hides something of `fed` tokens, so that there is something to see: the one that
/// was asked for; else that of the file or the model (`own`), if it is short enough; else a third of the tokens, 8 at most.
pub(crate) fn narrow(cache: &mut CacheConfig, own: Option<usize>, asked: Option<usize>, fed: usize) {
    let theirs = cache.window.or(own).filter(|window| *window < fed);
    if let Some(window) = asked {
        cache.window = Some(window);
    } else if theirs.is_none() {
        cache.window = Some((fed / 3).clamp(2, 8));
    }
}

impl Wish<'_> {
    fn other(&self, name: &str) -> Choice {
        let sibling = if self.convert { None } else { self.sibling(name) };
        let (source, config) = match sibling {
            Some(file) => (Source::Sibling, self.load(&file, name)),
            None => (Source::Converted, self.converted(name)),
        };
        Choice {
            name: name.to_owned(),
            source,
            config,
        }
    }

    /// The file beside ours whose name ends with `name` where ours ends with our variant's.
    fn sibling(&self, name: &str) -> Option<PathBuf> {
        let stem = self.file.file_stem()?.to_str()?;
        let family = stem.strip_suffix(self.own)?;
        let mut file = self.file.with_file_name(format!("{family}{name}"));
        file.set_extension(self.file.extension()?);
        file.is_file().then_some(file)
    }

    /// A sibling as its file says, on our device.
    fn load(&self, file: &Path, name: &str) -> Result<ModelConfig, String> {
        let loaded = registry::with_known(|known| ModelConfig::load(file, &[], known));
        let mut config = loaded.map_err(|errors| errors.to_string())?;
        config.backend = self.config.backend.clone();
        if name == "swa" {
            let origin = Origin::open(&config.model).map_err(|error| error.to_string())?;
            narrow(
                &mut config.cache,
                first(&origin).visibility.window(),
                self.window,
                self.fed,
            );
        }
        Ok(config)
    }

    /// Our weights in another variant.
    fn converted(&self, name: &str) -> Result<ModelConfig, String> {
        let origin = Origin::open(&self.config.model).map_err(|error| error.to_string())?;
        let shape = first(&origin);
        let mut cache = CacheConfig {
            variant: Some(name.to_owned()),
            capacity: Some(Capacity::Tokens(self.fed)),
            ..CacheConfig::default()
        };
        match name {
            "gqa" if shape.kv_heads == 1 => return Err("the model has one KV head, and nothing to group".to_owned()),
            // Heads are pooled in the smallest groups there are.
            "gqa" if shape.kv_heads == shape.query_heads && shape.latent.is_none() => {
                let group = (2..=shape.kv_heads).find(|group| shape.kv_heads.is_multiple_of(*group));
                cache.num_key_value_heads = group.map(|group| shape.kv_heads / group);
            }
            "swa" => narrow(&mut cache, shape.visibility.window(), self.window, self.fed),
            // Half of the rank that would be exact: so that something is saved.
            "mla" if shape.latent.is_none() => {
                let values = shape.kv_heads * (shape.key - shape.rotary + shape.value);
                cache.kv_lora_rank = Some((shape.hidden.min(values) / 2).max(1));
            }
            _ => {}
        }
        Ok(ModelConfig {
            cache,
            ..self.config.clone()
        })
    }
}

/// The attention of the first layer.
fn first(origin: &Origin) -> AttentionShape {
    origin.spec.attention(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_hides_something() {
        let window = |file: Option<usize>, own, asked, fed| {
            let mut cache = CacheConfig {
                window: file,
                ..CacheConfig::default()
            };
            narrow(&mut cache, own, asked, fed);
            cache.window
        };
        assert_eq!(
            window(None, Some(32), None, 30),
            Some(8),
            "the model's own would show nothing"
        );
        assert_eq!(window(None, Some(32), None, 40), None, "the model's own shows");
        assert_eq!(window(Some(5), Some(32), None, 30), Some(5), "the file's shows");
        assert_eq!(window(Some(5), Some(32), Some(3), 30), Some(3), "what was asked for");
        assert_eq!(window(None, None, None, 9), Some(3));
        assert_eq!(window(None, None, None, 1), Some(2));
    }
}
