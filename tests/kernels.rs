//! Every kernel over the small catalogue: lengths on both sides of what kernels cut at, which the laws do not reach.

use kvlab_testkit::Size;
use kvlab_testkit::catalogue::small;
use kvlab_testkit::driver::{Driver, tokens};

#[test]
fn the_small_catalogue() {
    for case in small() {
        for mut subject in crate::laws::subjects::of_shape(&case.shape) {
            subject.name = format!("{}: {}", case.name, subject.name);
            let size = Size {
                capacity: case.depth + case.chunk + 1,
                sequences: 1,
            };
            let mut driver = Driver::new(&subject, size);
            let mut seq = driver.open();
            if case.depth > 0 {
                driver.feed(&mut seq, &tokens(1, case.depth));
            }
            driver.feed(&mut seq, &tokens(2, case.chunk));
            driver.feed(&mut seq, &tokens(3, 1));
        }
    }
}
