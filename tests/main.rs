//! The integration tests, in one binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod cases;
mod command_line;
mod configs;
mod goldens;
mod kernels;
mod laws;
mod layering;
mod own_cache;
mod own_variant;
mod real;
mod reports;

use kvlab_config::{ConfigErrors, ModelConfig};
use kvlab_engine::{Engine, registry};
use std::path::Path;

/// A model file from its text.
fn config(text: &str) -> Result<ModelConfig, ConfigErrors> {
    registry::with_known(|known| ModelConfig::parse(text, "test.toml", Path::new("."), &[], known))
}

/// An engine from the rest of a model file.
fn engine(rest: &str) -> Engine {
    let config = config(&format!("schema = 1\nname = \"test\"\n{rest}")).unwrap();
    Engine::load(&config, &mut |_, _| {}).unwrap_or_else(|error| panic!("{rest}: {error}"))
}

/// Runs a test that needs a graphics device in a process of its own, because a driver that fails takes its process
/// with it. `body` says false where there is no such device; the test then says so.
fn on_wgpu(test: &str, body: fn() -> bool) {
    const CHILD: &str = "KVLAB_TEST_WGPU_CHILD";
    if std::env::var_os(CHILD).is_some() {
        if !body() {
            println!("SKIPPED: no wgpu device");
        }
        return;
    }
    let own = std::env::current_exe().unwrap();
    let run = std::process::Command::new(own)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{text}\n{}", String::from_utf8_lossy(&run.stderr));
    assert!(text.contains("1 passed"), "the test {test} did not run: {text}");
    println!("{text}");
    if text.contains("SKIPPED") {
        println!("this machine has no wgpu device (Debian: apt-get install mesa-vulkan-drivers)");
    }
}
