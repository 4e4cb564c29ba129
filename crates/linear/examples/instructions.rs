//! What a core can do at most in the loops of many rows: products of 16 bits alone, and beside loads of a whole register.
//!
//! `cargo run --release -p kvlab-linear --example instructions` prints the time of a product (`vpdpwssd` on 64 bytes) with so many
//! loads (`vpbroadcastd` from memory) for twelve of them: 5 is what six rows and four vectors of weights take, 7 what twelve rows
//! and two vectors do, 12 a product with a word from memory each. The best of several rounds, on one thread.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::asm;
    use std::time::Instant;

    const LOOPS: u64 = 1_000_000;
    const PRODUCTS: u64 = 12;
    const ROUNDS: usize = 15;

    macro_rules! pace {
        ($($register:literal)*) => {{
            let numbers = [0_i32; 16];
            let mut best = f64::MAX;
            for _ in 0..ROUNDS {
                let start = Instant::now();
                // SAFETY: the processor has the instructions; what they write is named.
                unsafe {
                    asm!(
                        // Without a load, nobody names the address.
                        "/* {x} */",
                        "2:",
                        $(concat!("vpbroadcastd zmm", $register, ", dword ptr [{x}]"),)*
                        "vpdpwssd zmm0, zmm30, zmm31", "vpdpwssd zmm1, zmm30, zmm31", "vpdpwssd zmm2, zmm30, zmm31",
                        "vpdpwssd zmm3, zmm30, zmm31", "vpdpwssd zmm4, zmm30, zmm31", "vpdpwssd zmm5, zmm30, zmm31",
                        "vpdpwssd zmm6, zmm30, zmm31", "vpdpwssd zmm7, zmm30, zmm31", "vpdpwssd zmm8, zmm30, zmm31",
                        "vpdpwssd zmm9, zmm30, zmm31", "vpdpwssd zmm10, zmm30, zmm31", "vpdpwssd zmm11, zmm30, zmm31",
                        "dec {n}",
                        "jnz 2b",
                        x = in(reg) numbers.as_ptr(), n = inout(reg) LOOPS => _,
                        out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _,
                        out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                        out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _, out("zmm16") _, out("zmm17") _,
                        out("zmm18") _, out("zmm19") _, out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
                        options(readonly, nostack),
                    );
                }
                best = best.min(start.elapsed().as_secs_f64());
            }
            let loads = [$($register),*] as [i32; _];
            let time = best / (LOOPS * PRODUCTS) as f64;
            println!("| {} | {:.3} | {:.0} |", loads.len(), time * 1e9, 64.0 / time / 1e9);
        }};
    }

    pub fn table() {
        println!("| loads for 12 products | ns a product | GFLOP/s |");
        println!("|---|---|---|");
        pace!();
        pace!(12 13 14 15 16);
        pace!(12 13 14 15 16 17);
        pace!(12 13 14 15 16 17 18);
        pace!(12 13 14 15 16 17 18 19);
        pace!(12 13 14 15 16 17 18 19 20 21 22 23);
    }
}

fn main() {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512vnni") {
        return vnni::table();
    }
    println!("this processor has no AVX-512 VNNI");
}
