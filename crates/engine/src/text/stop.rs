//! Which token ids end an answer.

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::TextError;

/// A set of end ids. It grows by union: what the vocabulary, the generation config and the user name all stop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StopSet {
    ids: BTreeSet<u32>,
    ignore_eos: bool,
}

impl StopSet {
    /// Stops on any of these ids.
    pub fn new(ids: impl IntoIterator<Item = u32>) -> Self {
        StopSet {
            ids: ids.into_iter().collect(),
            ignore_eos: false,
        }
    }

    /// Adds end ids.
    pub fn extend(&mut self, ids: impl IntoIterator<Item = u32>) {
        self.ids.extend(ids);
    }

    /// Adds the `eos_token_id` of a `generation_config.json` or `config.json`: an id, a list of ids, null or nothing.
    ///
    /// # Errors
    /// [`TextError::BadEndId`] for anything else, and then nothing is added.
    pub fn extend_from_config(&mut self, config: &Value) -> Result<(), TextError> {
        let value = &config["eos_token_id"];
        let ids = match value {
            Value::Null => &[],
            Value::Array(ids) => ids.as_slice(),
            id => std::slice::from_ref(id),
        };
        let ids: Option<Vec<u32>> = ids.iter().map(|id| id.as_u64()?.try_into().ok()).collect();
        self.ids.extend(ids.ok_or_else(|| TextError::BadEndId {
            value: value.to_string(),
        })?);
        Ok(())
    }

    /// With true, nothing stops and every run reaches its limit: benchmarks need equal lengths.
    pub fn ignore_eos(mut self, ignore: bool) -> Self {
        self.ignore_eos = ignore;
        self
    }

    /// Whether this id ends the answer. It is not part of the text.
    pub fn is_stop(&self, id: u32) -> bool {
        !self.ignore_eos && self.ids.contains(&id)
    }

    /// The end ids in order, also while they are ignored.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// T91.
    #[test]
    fn stops_on_any_id_of_the_union() {
        let mut stop = StopSet::new([2]);
        stop.extend([7, 2]);
        stop.extend_from_config(&json!({"eos_token_id": [128_001, 128_009]}))
            .unwrap();
        stop.extend_from_config(&json!({"eos_token_id": 5})).unwrap();
        stop.extend_from_config(&json!({"eos_token_id": null})).unwrap();
        stop.extend_from_config(&json!({})).unwrap();
        assert_eq!(stop.ids().collect::<Vec<_>>(), [2, 5, 7, 128_001, 128_009]);
        assert!(stop.is_stop(128_009) && stop.is_stop(2) && !stop.is_stop(3));
        let ignoring = stop.ignore_eos(true);
        assert!((0..200_000).all(|id| !ignoring.is_stop(id)));
        assert!(ignoring.ignore_eos(false).is_stop(2));
    }

    #[test]
    fn what_is_no_id_is_refused_and_adds_nothing() {
        for bad in [json!(-1), json!("2"), json!([2, 4_294_967_296_u64]), json!(1.5)] {
            let mut stop = StopSet::default();
            let error = stop.extend_from_config(&json!({"eos_token_id": bad})).unwrap_err();
            assert!(error.to_string().contains(&bad.to_string()), "{error}");
            assert_eq!(stop, StopSet::default());
        }
    }
}
