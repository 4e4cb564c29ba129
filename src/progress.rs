//! Progress bars: on stderr, only on a terminal, only where something takes long.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that appears when it is first moved.
pub struct Bar(ProgressBar);

impl Bar {
    /// A hidden bar.
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) = ProgressStyle::with_template("{msg:40} {wide_bar} {pos}/{len}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Prints a line above it, on stderr, terminal or not.
    pub fn say(&self, line: &str) {
        self.0.suspend(|| eprintln!("{line}"));
    }

    /// Moves it.
    pub fn at(&self, what: &str, done: usize, total: usize) {
        if self.0.message() != what {
            self.0.set_message(what.to_owned());
        }
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
