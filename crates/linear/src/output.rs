//! Where threads put what they computed: each its own panels, into the same rows.

use crate::layout::PANEL;
use std::marker::PhantomData;

/// `[rows, cols]` f32 that several threads write.
pub(crate) struct Output<'a> {
    data: *mut f32,
    rows: usize,
    cols: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer is that of a slice which is borrowed exclusively for `'a`. Only `store` uses it, and its callers
// promise that no two threads write the same panel.
#[allow(unsafe_code)]
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    /// `data` is `[rows, cols]`.
    pub(crate) fn new(data: &'a mut [f32], cols: usize) -> Self {
        Self {
            rows: data.len() / cols.max(1),
            cols,
            data: data.as_mut_ptr(),
            lifetime: PhantomData,
        }
    }

    /// Writes a panel's outputs of one row; lanes beyond the last output are dropped.
    ///
    /// # Safety
    /// No other thread writes this panel at the same time.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub(crate) unsafe fn store(&self, row: usize, panel: usize, lanes: &[f32; PANEL]) {
        let (to, count) = self.lanes(row, panel);
        // SAFETY: as said there, and the caller promises that nobody else writes there.
        unsafe { std::ptr::copy_nonoverlapping(lanes.as_ptr(), to, count) };
    }

    /// Where the outputs of two panels begin in a row.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn place(&self, row: usize, panel: usize) -> kvlab_cpu::tiles::Place {
        kvlab_cpu::tiles::Place {
            first: self.lanes(row, panel).0,
            stride: self.cols * size_of::<f32>(),
        }
    }

    /// Where a panel's outputs of one row are, and how many there are, at most 16.
    #[inline(always)]
    pub(crate) fn lanes(&self, row: usize, panel: usize) -> (*mut f32, usize) {
        let first = panel * PANEL;
        assert!(row < self.rows && first < self.cols);
        // The assertion puts `first` into a row of the slice, and so many numbers end within that row.
        (
            self.data.wrapping_add(row * self.cols + first),
            PANEL.min(self.cols - first),
        )
    }
}
