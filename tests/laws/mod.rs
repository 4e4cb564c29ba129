//! The laws of testkit for every variant of the registry, in every layout and codec.

pub mod subjects;

use kvlab_testkit::check;
use subjects::{cpu, wgpu};

/// One test a law, over all subjects of the processor.
macro_rules! laws {
    ($($test:ident: $law:literal,)*) => {
        $(#[test]
        fn $test() {
            let subjects = cpu();
            assert!(subjects.len() > 20);
            for subject in &subjects {
                check($law, subject);
            }
        })*

        #[test]
        fn every_law_is_run() {
            let run = [$($law),*];
            let all: Vec<_> = kvlab_testkit::laws::names().collect();
            assert_eq!(run.as_slice(), all.as_slice());
        }
    };
}

laws! {
    chunking: "chunking does not matter",
    warm_chunk: "a warm cache takes a chunk of any length",
    batch: "a batch is its sequences alone",
    causal: "later tokens change nothing before them",
    abandon: "an abandoned step leaves no trace",
    partial: "partly accepted is as if never seen",
    fork: "a fork goes its own way",
    truncate: "truncation is as if never seen",
    close: "a closed sequence leaves nothing behind",
    full: "a full cache refuses and changes nothing",
    bytes: "bytes are predicted to the byte",
    parts: "a part and the rest merge to the whole",
    inspect: "what is stored reads back",
    prefix: "a found prefix changes nothing",
    save: "a saved sequence goes on elsewhere",
    misuse: "misuse is refused",
}

/// Every variant of the registry is among the subjects, so that a new one cannot be forgotten.
#[test]
fn every_variant_is_a_subject() {
    let subjects = cpu();
    for variant in kvlab_engine::registry::built_in() {
        let prefix = format!("{} ", variant.name());
        assert!(
            subjects.iter().any(|s| s.name.starts_with(&prefix)),
            "{}",
            variant.name()
        );
    }
}

/// A few laws on a graphics device, which is software in CI: small, and only some of the combinations.
#[test]
fn laws_on_wgpu() {
    crate::on_wgpu("laws::laws_on_wgpu", || {
        let Some(subjects) = wgpu() else { return false };
        let variants: std::collections::BTreeSet<_> =
            subjects.iter().filter_map(|s| s.name.split(' ').next()).collect();
        assert!(variants.len() > 4, "{variants:?}");
        for subject in &subjects {
            for law in [
                "a warm cache takes a chunk of any length",
                "a part and the rest merge to the whole",
            ] {
                let start = std::time::Instant::now();
                check(law, subject);
                println!("{:.1?} {law}: {}", start.elapsed(), subject.name);
            }
        }
        true
    });
}

/// An append goes into the buffer itself: nobody else holds it, also after attention has read it.
#[test]
fn appends_are_in_place() {
    for (name, mut cache) in subjects::stored() {
        let seq = kvlab_core::KvCache::open(&mut cache, &[]).unwrap().seq;
        for round in 0..6 {
            assert!(cache.can_mut(), "{name}, round {round}");
            subjects::feed(&mut cache, seq, 2);
        }
        assert!(cache.can_mut(), "{name}");
    }
}
