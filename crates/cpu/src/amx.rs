//! Tile registers: whether the processor has them, and whether the system lets this process use them.

/// Asks the system for the tile registers. They are 8 KiB for each thread that has touched them, and so Linux hands them out
/// to who asks; the answer is for all threads of the process.
#[cfg(target_os = "linux")]
pub(crate) fn is_here() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    has_tiles() && {
        // SAFETY: the call takes numbers, and changes what this process may do, nothing in its memory.
        #[allow(unsafe_code)]
        let answer = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
        answer == 0
    }
}

/// How other systems hand them out is not known here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_here() -> bool {
    false
}

/// AMX-TILE and AMX-BF16, as `cpuid` says it: the standard library's names for them are not stable.
#[cfg(target_os = "linux")]
fn has_tiles() -> bool {
    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    let leaves = std::arch::x86_64::__cpuid(0).eax;
    leaves >= 7 && std::arch::x86_64::__cpuid_count(7, 0).edx & (BF16 | TILE) == BF16 | TILE
}
