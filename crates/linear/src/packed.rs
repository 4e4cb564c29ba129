//! A weight in panels.

use crate::layout::{self, BLOCK, Layout, Line, PANEL};
use crate::{Format, LinearError};
use bytemuck::Zeroable;
use std::fmt;
use std::ops::Range;

/// How closely many rows are multiplied ([`apply`](crate::apply()); up to 15 rows, and on processors without AVX2, always as
/// closely as f32). The names are torch's (`set_float32_matmul_precision`).
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Precision {
    /// Numbers of 8 bits: bf16 with AMX, as torch multiplies bf16; otherwise, times quantised weights, whole numbers in blocks of 32,
    /// as llama.cpp multiplies. Other weights, and with AVX2 all but those of 4 bits, are multiplied as in [`High`](Self::High).
    Medium,
    /// Numbers of 16 bits: with AMX as sums of two bf16, otherwise as whole numbers in blocks of 32.
    #[default]
    High,
    /// f32.
    Highest,
}

/// A weight `[rows, cols]`, outputs by inputs, packed.
#[derive(Clone)]
pub struct Packed {
    format: Format,
    rows: usize,
    cols: usize,
    codes: Vec<Line>,
    scales: Vec<Line>,
    precision: Precision,
}

/// Calls a function that is generic over a layout with the one of a format.
macro_rules! with_layout {
    ($format:expr, $function:ident($($argument:expr),*)) => {
        match $format {
            $crate::Format::F32 => $function::<$crate::layout::F32>($($argument),*),
            format => $crate::packed::with_codes!(format, $function($($argument),*)),
        }
    };
}
pub(crate) use with_layout;

/// The same for a format that is not F32: that is multiplied as floats.
macro_rules! with_codes {
    ($format:expr, $function:ident($($argument:expr),*)) => {
        match $format {
            $crate::Format::F16 => $function::<$crate::layout::F16>($($argument),*),
            $crate::Format::BF16 => $function::<$crate::layout::BF16>($($argument),*),
            format => $crate::packed::with_quantised!(format, $function($($argument),*)),
        }
    };
}
pub(crate) use with_codes;

/// The same for a format that is quantised: floats have a kernel of their own.
macro_rules! with_quantised {
    ($format:expr, $function:ident($($argument:expr),*)) => {
        match $format {
            $crate::Format::Q4_0 => $function::<$crate::layout::Q4_0>($($argument),*),
            $crate::Format::Q4_1 => $function::<$crate::layout::Q4_1>($($argument),*),
            $crate::Format::Q5_0 => $function::<$crate::layout::Q5_0>($($argument),*),
            $crate::Format::Q5_1 => $function::<$crate::layout::Q5_1>($($argument),*),
            $crate::Format::Q8_0 => $function::<$crate::layout::Q8_0>($($argument),*),
            $crate::Format::Q4_K => $function::<$crate::layout::Q4K>($($argument),*),
            $crate::Format::Q5_K => $function::<$crate::layout::Q5K>($($argument),*),
            $crate::Format::Q6_K => $function::<$crate::layout::Q6K>($($argument),*),
            $crate::Format::F32 | $crate::Format::F16 | $crate::Format::BF16 => unreachable!("multiplied as floats"),
        }
    };
}
pub(crate) use with_quantised;

impl Packed {
    /// Repacks the rows of a file: `rows` times `cols` numbers in whole blocks of `format`, back to back.
    ///
    /// # Errors
    /// [`LinearError::Bytes`].
    pub fn new(format: Format, rows: usize, cols: usize, bytes: &[u8]) -> Result<Self, LinearError> {
        let fits = format
            .row_bytes(cols)
            .is_some_and(|row| row.checked_mul(rows) == Some(bytes.len()));
        if !fits {
            return Err(LinearError::Bytes {
                format,
                rows,
                cols,
                got: bytes.len(),
            });
        }
        let (panels, blocks) = (rows.div_ceil(PANEL), cols.div_ceil(BLOCK));
        let zeros = |lines: usize| vec![Line::zeroed(); panels * lines];
        let (code_lines, scale_lines) = with_layout!(format, lines(blocks));
        let mut packed = Self {
            format,
            rows,
            cols,
            codes: zeros(code_lines),
            scales: zeros(scale_lines),
            precision: Precision::default(),
        };
        with_layout!(format, fill(&mut packed, bytes));
        Ok(packed)
    }

    /// The same weight, multiplied like this.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// How it is multiplied.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The format of the numbers.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes in memory, with what fills the last panel and block.
    pub fn bytes(&self) -> usize {
        size_of_val(self.codes.as_slice()) + size_of_val(self.scales.as_slice())
    }

    /// Unpacks one row, as an embedding is looked up.
    ///
    /// # Errors
    /// [`LinearError::Row`], [`LinearError::Outputs`] unless `out` has room for exactly one row.
    pub fn row(&self, row: usize, out: &mut [f32]) -> Result<(), LinearError> {
        if row >= self.rows {
            return Err(LinearError::Row { row, rows: self.rows });
        }
        if out.len() != self.cols {
            return Err(LinearError::Outputs {
                expected: self.cols,
                got: out.len(),
            });
        }
        let panel = self.panel(row / PANEL);
        with_layout!(self.format, unpack_row(panel, row % PANEL, out));
        Ok(())
    }

    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL)
    }

    /// Codes and scales of a panel.
    pub(crate) fn panel(&self, panel: usize) -> Panel<'_> {
        let part = |lines: usize| -> Range<usize> {
            let each = lines / self.panels().max(1);
            panel * each..(panel + 1) * each
        };
        Panel {
            codes: &self.codes[part(self.codes.len())],
            scales: &self.scales[part(self.scales.len())],
        }
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} x {} {})", self.rows, self.cols, self.format)
    }
}

/// Lines of codes and of scales of a panel.
fn lines<L: Layout>(blocks: usize) -> (usize, usize) {
    (blocks * L::CODES, L::scale_lines(blocks))
}

/// A panel's lines.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    pub(crate) codes: &'a [Line],
    pub(crate) scales: &'a [Line],
}

fn unpack_row<L: Layout>(panel: Panel<'_>, lane: usize, out: &mut [f32]) {
    layout::unpack_row::<L>(panel.codes, panel.scales, lane, out);
}

/// Packs panel by panel, on all threads.
fn fill<L: Layout>(packed: &mut Packed, bytes: &[u8]) {
    let (panels, rows) = (packed.panels(), packed.rows);
    if panels == 0 || packed.cols == 0 {
        return;
    }
    let row_bytes = bytes.len() / rows;
    let code_lines = packed.codes.len() / panels;
    let scale_lines = packed.scales.len() / panels;
    let mut scales = packed.scales.chunks_mut(scale_lines.max(1));
    let panels = packed.codes.chunks_mut(code_lines).enumerate();
    let parts = panels.map(|(panel, codes)| (panel, codes, scales.next().unwrap_or_default()));
    kvlab_cpu::for_each(parts, |(panel, codes, scales)| {
        let (codes, scales) = (bytemuck::cast_slice_mut(codes), bytemuck::cast_slice_mut(scales));
        for row in panel * PANEL..rows.min((panel + 1) * PANEL) {
            L::pack(&bytes[row * row_bytes..][..row_bytes], row % PANEL, codes, scales);
        }
    });
}
