//! What we sell: an own cache variant in fewer than a hundred lines, registered by one line. It passes the laws and
//! appears in `compare`. (`own_cache.rs` does without any of our storage, and is longer.)

use kvlab_core::{Adaptation, AttentionShape, Exactness, KvCache, Retention};
use kvlab_engine::registry;
use kvlab_store::{BuildError, Fit, Options, Plan, Variant};
use kvlab_testkit::check;
use std::num::NonZeroUsize;

/// Keeps the first `ends` rows and the last `ends`: a text is remembered by its two ends.
struct Ends;

impl Variant for Ends {
    fn name(&self) -> &'static str {
        "ends"
    }

    fn summary(&self) -> &'static str {
        "the first rows and the last"
    }

    fn options(&self) -> &'static [&'static str] {
        &["ends"]
    }

    fn layouts(&self) -> &'static [&'static str] {
        &["ring", "contiguous", "paged"]
    }

    fn fit(&self, shape: &AttentionShape, options: &Options) -> Result<Fit, String> {
        let ends = options
            .positive("ends")?
            .ok_or("say how many rows each end has with cache.ends")?;
        let window = NonZeroUsize::new(ends).ok_or("cache.ends must be at least 1")?;
        Ok(Fit {
            row: shape.native_row(),
            retention: Retention::Window { window, sinks: ends },
            adaptation: Adaptation::Keep,
            exactness: Exactness::Lossy(vec![format!("only the first and the last {ends} rows are kept")]),
        })
    }

    fn build(&self, plan: &Plan) -> Result<Box<dyn KvCache>, BuildError> {
        Ok(Box::new(plan.store(self.name(), |_, rows| rows)?))
    }
}

#[test]
fn it_passes_the_laws() {
    for subject in crate::laws::subjects::of(&Ends, serde_json::json!({"ends": 3})) {
        for law in kvlab_testkit::laws::names() {
            check(law, &subject);
        }
    }
}

#[test]
fn it_appears_in_compare() {
    registry::register(&Ends);
    let table = compare("[[variant]]\nname = \"mine\"\nset = { \"cache.variant\" = \"ends\", \"cache.ends\" = 4 }");
    assert!(
        table.contains("ends") && table.contains("only the first and the last 4 rows"),
        "{table}"
    );
}

/// The table of an experiment with these cells.
pub fn compare(cells: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    let text = format!(
        "schema = 1\nname = \"own\"\nbase = \"{root}/configs/models/bytes-gqa.toml\"\nrepeats = 1\n\
         [workload]\ntext = \"{root}/assets/text/alice_95k.txt\"\nwindows = 1\nwindow = 24\nprompts = [8]\nnew_tokens = 4\n{cells}"
    );
    let file = folder.path().join("own.toml");
    std::fs::write(&file, text).unwrap();
    let experiment = registry::with_known(|known| kvlab_config::Experiment::load(&file, &[], known)).unwrap();
    let options = kvlab_lab::CompareOptions {
        runs: folder.path().join("runs"),
        ..Default::default()
    };
    let comparison = kvlab_lab::compare(&experiment, &options, &mut |_| {}).unwrap();
    assert_eq!(comparison.failed(), []);
    comparison.table(None)
}
