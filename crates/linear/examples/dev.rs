//! dev only
#![allow(clippy::unwrap_used, unsafe_code)]
use kvlab_linear::{Format, Packed, apply};
#[repr(C)]
struct Ts {
    s: i64,
    n: i64,
}
unsafe extern "C" {
    fn clock_gettime(c: i32, t: *mut Ts) -> i32;
}
fn cpu() -> f64 {
    let mut t = Ts { s: 0, n: 0 };
    unsafe { clock_gettime(3, &mut t) };
    t.s as f64 + t.n as f64 * 1e-9
}
fn main() {
    kvlab_cpu::set_threads(1);
    let formats: Vec<String> = std::env::args().skip(2).collect();
    let rows: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    for format in Format::ALL {
        if !formats.contains(&format.to_string()) {
            continue;
        }
        for (o, i) in [(576, 576), (1536, 576), (576, 1536), (1024, 2048), (512, 5632)] {
            if format.row_bytes(i).is_none() {
                continue;
            }
            let mut bytes = vec![0; o * format.row_bytes(i).unwrap()];
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = (i as u32).wrapping_mul(2654435761).to_le_bytes()[3] & 0x2f;
            }
            if matches!(format, Format::F32 | Format::BF16) {
                let size = format.block().1;
                bytes.chunks_exact_mut(size).for_each(|n| n[size - 1] = 0x3d);
            }
            let w = Packed::new(format, o, i, &bytes).unwrap();
            let x: Vec<f32> = (0..rows * i).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
            let mut out = vec![0.0; rows * o];
            let mut best = f64::MAX;
            let work = (2 * rows * o * i) as f64;
            let n = ((3e8 / work) as usize).clamp(1, 100);
            for _ in 0..30 {
                let t = cpu();
                for _ in 0..n {
                    apply(&[&w], &x, &mut [&mut out]).unwrap();
                }
                best = best.min((cpu() - t) / n as f64);
            }
            println!(
                "{format} {o} x {i} rows {rows}: {:.1} us {:.0} GFLOP/s  {:.1} GB/s",
                best * 1e6,
                work / best / 1e9,
                w.bytes() as f64 / best / 1e9
            );
        }
    }
}
