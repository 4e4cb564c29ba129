//! The models that lie in the workspace open: the tiny goldens and the byte models.

use kvlab_weights::Checkpoint;

use crate::made::{everything, root};

#[test]
fn every_model_of_the_workspace_opens_and_unpacks() {
    let mut opened = 0;
    for kind in ["tests/golden", "assets/bytes"] {
        let folder = root().join(kind);
        let Ok(entries) = std::fs::read_dir(&folder) else {
            println!("skipped {}: not there", folder.display());
            continue;
        };
        for entry in entries.flatten() {
            if !entry.path().join("config.json").is_file() {
                continue;
            }
            let model = Checkpoint::open(&entry.path()).unwrap();
            assert!(model.config().contains_key("model_type"));
            let numbers: usize = everything(&model).iter().map(|(.., data)| data.len()).sum();
            assert!(numbers > 10_000, "{}", entry.path().display());
            assert_eq!(model.fingerprint().len(), 64);
            opened += 1;
        }
    }
    println!("opened {opened} models");
}
