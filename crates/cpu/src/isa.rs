//! Instruction sets, found out at run time.

use std::fmt;
use std::sync::OnceLock;

/// What a kernel may use. Later ones include what earlier ones have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Nothing that every processor does not have.
    Portable,
    /// 128-bit NEON, on AArch64.
    Neon,
    /// 256-bit vectors with FMA and f16 conversion.
    Avx2,
    /// 512-bit vectors (F, BW, VL, DQ) with VNNI.
    Avx512,
    /// The same with bf16 dot products.
    Avx512Bf16,
    /// The same with tile registers for products of matrices in bf16 (AMX), if the system lets a process have them.
    Amx,
}

impl Isa {
    /// The best that this machine has, or the one that the environment variable `KVLAB_TEST_ISA` names (`portable`,
    /// `neon`, `avx2`, `avx512`, `avx512bf16`, `amx`), if the machine has it.
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let asked = std::env::var("KVLAB_TEST_ISA").ok();
            let asked = asked.and_then(|name| Self::ALL.into_iter().find(|isa| isa.to_string() == name));
            let available = Self::available();
            asked
                .filter(|isa| available.contains(isa))
                .or(available.last().copied())
                .unwrap_or(Self::Portable)
        })
    }

    /// All that this machine has, the best one last.
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_here()).collect()
    }

    const ALL: [Self; 6] = [
        Self::Portable,
        Self::Neon,
        Self::Avx2,
        Self::Avx512,
        Self::Avx512Bf16,
        Self::Amx,
    ];

    #[cfg(target_arch = "x86_64")]
    fn is_here(self) -> bool {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = || has!("avx2") && has!("fma") && has!("f16c");
        let avx512 = || {
            avx2() && has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512dq") && has!("avx512vnni")
        };
        match self {
            Self::Portable => true,
            Self::Neon => false,
            Self::Avx2 => avx2(),
            Self::Avx512 => avx512(),
            Self::Avx512Bf16 => avx512() && has!("avx512bf16"),
            Self::Amx => Self::Avx512Bf16.is_here() && crate::amx::is_here(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_here(self) -> bool {
        match self {
            Self::Portable => true,
            Self::Neon => cfg!(target_arch = "aarch64"),
            Self::Avx2 | Self::Avx512 | Self::Avx512Bf16 | Self::Amx => false,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512bf16",
            Self::Amx => "amx",
        })
    }
}
