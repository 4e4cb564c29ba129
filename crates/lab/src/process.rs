//! Memory of the whole process, as the operating system counts it.

use crate::ProcessMemory;

/// Now; `None` where there is no `/proc/self/status`.
pub(crate) fn memory() -> Option<ProcessMemory> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// From the lines of proc_pid_status(5), whose kB are 1024 bytes.
fn parse(status: &str) -> Option<ProcessMemory> {
    let bytes = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some(ProcessMemory {
        resident_bytes: bytes("VmRSS")?,
        peak_resident_bytes: bytes("VmHWM")?,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_what_the_system_writes() {
        let status = "Name:\tkvlab\nVmPeak:\t  999999 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let memory = ProcessMemory {
            resident_bytes: 1 << 20,
            peak_resident_bytes: 2 << 20,
        };
        assert_eq!(parse(status), Some(memory));
        assert_eq!(parse("VmRSS: 1 kB\n"), None);
        assert_eq!(parse("VmRSS: x kB\nVmHWM: 1 kB\n"), None);
    }

    /// 64 MiB that were written are resident.
    #[cfg(target_os = "linux")]
    #[test]
    fn grows_with_what_is_held() {
        let before = memory().unwrap();
        let held = vec![1_u8; 64 << 20];
        let after = memory().unwrap();
        assert!(std::hint::black_box(&held).iter().all(|&byte| byte == 1));
        assert!(
            after.resident_bytes > before.resident_bytes + (32 << 20),
            "{before:?} {after:?}"
        );
        assert!(after.peak_resident_bytes >= after.resident_bytes);
    }
}
