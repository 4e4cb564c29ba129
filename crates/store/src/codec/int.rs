//! int8, int4, int2: evenly spaced numbers, a scale for each group.
//!
//! Symmetric: `x^ = (code - 2^(bits-1)) * scale`, with `scale = max|x| / (2^(bits-1) - 1)`: zero stays zero, and the
//! lowest code is never used. Asymmetric: `x^ = code * scale + zero`, with `zero = min x` and
//! `scale = (max x - zero) / (2^bits - 1)` (KIVI, Liu et al. 2024). Rounded to the nearest code.
//!
//! **Bound**: `|x - x^| <= scale / 2`, with the scale as it is stored, for every number up to the format's limit. It
//! holds to the rounding of f32, because the stored scale is rounded up and the stored zero point down. In f16 that
//! makes a scale larger by up to 1 part in 1,024 (of the zero point too, where there is one), or by 2^-24 if it is
//! tiny. The limit is that of f16, 65,504 (times 127 or 7 without zero points); what is beyond it saturates.
//!
//! `clip = true` looks for the scale (and zero point) with the least squared error over the group, and lets the few
//! numbers beyond it saturate. The symmetric scheme then uses the lowest code too, on the side that the sign of its scale
//! says, as llama.cpp's Q4_0 does. It costs time when rows are written and none when they are read.
//! **Bound**: the squared error of a group is never larger than without `clip`; so no number is off by more than
//! `sqrt(group) * scale / 2`, with the scale that it would have had.

use super::blocks::{Blocks, Quantiser};
use super::channels::Channels;
use super::scale::Scale;
use super::{Code, Codec, Family, Settings};

/// Values that share a scale unless a config says otherwise.
const GROUP: usize = 32;

const OPTIONS: &[&str] = &["group", "axis", "rotate", "scheme", "scale", "clip"];

/// 8.5 bits a value: 255 levels, symmetric.
pub(super) const INT8: Family = Family {
    name: "int8",
    options: OPTIONS,
    make: |settings| make(8, settings),
};

/// 4.5 bits a value: 15 levels, symmetric.
pub(super) const INT4: Family = Family {
    name: "int4",
    options: OPTIONS,
    make: |settings| make(4, settings),
};

/// 3 bits a value: 4 levels, asymmetric, because without zero points there would be 3.
pub(super) const INT2: Family = Family {
    name: "int2",
    options: OPTIONS,
    make: |settings| make(2, settings),
};

fn make(bits: u32, settings: &mut Settings<'_>) -> Result<Box<dyn Codec>, String> {
    let per_channel = settings.per_channel()?;
    let group = settings.count("group", GROUP)?;
    let default = if bits == 2 { "asymmetric" } else { "symmetric" };
    let quantiser = Int {
        bits,
        zero_points: settings.word("scheme", default, &["symmetric", "asymmetric"])? == "asymmetric",
        scale: match settings.word("scale", "f16", &["f16", "f32"])? {
            "f32" => Scale::F32,
            _ => Scale::F16,
        },
        clip: settings.flag("clip")?.then_some(group),
    };
    let rotate = settings.flag("rotate")?;
    let name = settings.label();
    if per_channel {
        return Ok(Box::new(Channels {
            name,
            quantiser,
            group,
            rotate,
        }));
    }
    Ok(Box::new(Blocks {
        name,
        quantiser,
        group: Some(group),
        rotate,
    }))
}

struct Int {
    bits: u32,
    zero_points: bool,
    scale: Scale,
    /// Numbers of a group, if its scale is searched for.
    clip: Option<usize>,
}

/// Shares of the full range that a search tries.
const SHARES: [f32; 12] = [0.98, 0.95, 0.92, 0.89, 0.86, 0.83, 0.8, 0.77, 0.74, 0.7, 0.65, 0.6];

/// Added and taken away again, it rounds f32 numbers below 2^22 to the nearest integer, ties to even. Unlike
/// `round_ties_even`, this needs no call on processors without SSE4.1.
pub(super) const ROUND: f32 = 12_582_912.0;

impl Int {
    /// Levels from one end of a group's range to the other.
    fn levels(&self) -> f32 {
        match self.zero_points {
            true => ((1 << self.bits) - 1) as f32,
            false => ((1 << self.bits) - 2) as f32,
        }
    }

    /// The code of zero in the symmetric scheme; twice that is the number of codes.
    fn middle(&self) -> f32 {
        (1 << (self.bits - 1)) as f32
    }

    /// The largest number that does not saturate.
    fn limit(&self) -> f32 {
        match self.zero_points {
            true => self.scale.limit(),
            false => (self.scale.limit() * (self.levels() / 2.0)).min(Scale::F32.limit()),
        }
    }

    /// A stored scale with which so many levels span `range`.
    fn scale_for(&self, range: f32) -> f32 {
        let scale = self.scale.above(range / self.levels());
        // The division was rounded, for tiny numbers by much.
        match scale * self.levels() < range && scale < self.scale.limit() {
            true => self.scale.above(scale.next_up()),
            false => scale,
        }
    }
}

impl Int {
    /// The nearest code of each number.
    fn assign(&self, group: &[f32], scale: f32, zero: f32, codes: &mut [u8]) {
        let (limit, middle) = (self.limit(), self.middle());
        let first = if self.zero_points { 0.0 } else { middle };
        if scale == 0.0 {
            codes.fill(first as u8);
            return;
        }
        let (least, most) = (-first, 2.0 * middle - 1.0 - first);
        // Like `clamp`, in a form that is computed for several numbers at once.
        let inside = |x: f32, [low, high]: [f32; 2]| {
            let x = if x > high { high } else { x };
            if x < low { low } else { x }
        };
        for (code, &x) in codes.iter_mut().zip(group) {
            let level = inside((inside(x, [-limit, limit]) - zero) / scale, [least, most]);
            // The nearest integer is in the lowest byte of the sum.
            *code = ((level + ROUND).to_bits() as u8).wrapping_add(first as u8);
        }
    }

    /// The scale and zero point with the least squared error among some, and its codes. What there is comes first.
    fn search(&self, group: &[f32], ends: (f32, f32), plain: (f32, f32), codes: &mut [u8]) -> (f32, f32) {
        let mut numbers = vec![0.0; group.len()];
        let mut error = |codes: &[u8], (scale, zero): (f32, f32)| -> f64 {
            self.decode(codes, scale, zero, &mut numbers);
            let pairs = numbers.iter().zip(group);
            pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum()
        };
        let mut best = (error(codes, plain), plain);
        let mut tried = codes.to_vec();
        for (scale, zero) in self.candidates(ends) {
            self.assign(group, scale, zero, &mut tried);
            let error = error(&tried, (scale, zero));
            if error < best.0 {
                best = (error, (scale, zero));
                codes.copy_from_slice(&tried);
            }
        }
        best.1
    }

    /// Scales and zero points worth trying for numbers between two ends, as they would be stored.
    fn candidates(&self, (low, high): (f32, f32)) -> Vec<(f32, f32)> {
        let stored = |scale: f32| self.scale.above(scale.abs()).copysign(scale);
        if self.zero_points {
            let shares = SHARES.iter().map(|share| {
                let zero = self.scale.below(low * share);
                (stored((high - low) * share / self.levels()), zero)
            });
            return shares.filter(|(scale, _)| *scale != 0.0).collect();
        }
        // The lowest code is -middle: the larger end may have it, by the sign of the scale.
        let (largest, sign) = if high > -low { (high, -1.0) } else { (-low, 1.0) };
        let whole = largest / self.middle();
        let shares = std::iter::once(1.0).chain(SHARES);
        let signs = shares.flat_map(|share| [sign, -sign].map(|sign| (stored(whole * share * sign), 0.0)));
        signs.filter(|(scale, _)| *scale != 0.0).collect()
    }
}

/// The least and the greatest of some finite numbers, eight at once.
fn ends(group: &[f32]) -> (f32, f32) {
    let (eights, rest) = group.as_chunks::<8>();
    let (mut low, mut high) = ([f32::MAX; 8], [f32::MIN; 8]);
    for eight in eights {
        for (i, &x) in eight.iter().enumerate() {
            low[i] = if x < low[i] { x } else { low[i] };
            high[i] = if x > high[i] { x } else { high[i] };
        }
    }
    let low = low.iter().chain(rest).copied().fold(f32::MAX, f32::min);
    (low, high.iter().chain(rest).copied().fold(f32::MIN, f32::max))
}

impl Quantiser for Int {
    fn code(&self) -> Code {
        Code::Int {
            bits: self.bits,
            zero_points: self.zero_points,
        }
    }

    fn scale(&self) -> Option<Scale> {
        Some(self.scale)
    }

    fn zero_points(&self) -> bool {
        self.zero_points
    }

    fn encode(&self, group: &[f32], codes: &mut [u8]) -> (f32, f32) {
        // To the end in any case, several numbers at once.
        if group.iter().fold(false, |found, x| found | !x.is_finite()) {
            codes.fill(0);
            return (f32::NAN, 0.0);
        }
        let inside = |x: f32| x.clamp(-self.limit(), self.limit());
        let (low, high) = ends(group);
        let (low, high) = (inside(low), inside(high));
        let (zero, scale) = match self.zero_points {
            true => {
                let zero = self.scale.below(low);
                (zero, self.scale_for(high - zero))
            }
            false => (0.0, self.scale_for(2.0 * high.max(-low))),
        };
        self.assign(group, scale, zero, codes);
        match self.clip {
            Some(_) if scale != 0.0 => self.search(group, (low, high), (scale, zero), codes),
            _ => (scale, zero),
        }
    }

    fn decode(&self, codes: &[u8], scale: f32, zero: f32, out: &mut [f32]) {
        match self.zero_points {
            true => out
                .iter_mut()
                .zip(codes)
                .for_each(|(x, &code)| *x = f32::from(code) * scale + zero),
            false => {
                let middle = self.middle();
                out.iter_mut()
                    .zip(codes)
                    .for_each(|(x, &code)| *x = (f32::from(code) - middle) * scale);
            }
        }
    }

    fn max_error(&self, max_abs: f32) -> f32 {
        if max_abs > self.limit() {
            return f32::INFINITY;
        }
        let range = match self.zero_points {
            true => 2.0 * max_abs + self.scale.slack(max_abs),
            false => 2.0 * max_abs,
        };
        let scale = range / self.levels();
        let clipped = (self.clip.unwrap_or(1) as f32).sqrt();
        clipped * (scale + self.scale.slack(scale)) / 2.0 + max_abs * 2.0 * f32::EPSILON
    }
}
