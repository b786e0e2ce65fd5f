//! The `process_*` metrics that every Prometheus client library exports, read from `/proc` at each scrape.
//!
//! On systems without `/proc` they are absent. They are written here because the crate's collector depends on a second
//! version of libc.

use std::fmt::Write;
use std::fs;

/// Ticks per second in `/proc/PID/stat`: `USER_HZ`, 100 on every architecture of Rust's tier 1.
const TICKS_PER_SECOND: f64 = 100.0;

/// Appends the metrics of this process in the Prometheus text format.
pub(super) fn render(out: &mut String) {
    let stat = ProcessStat::parse(&read_or_empty("/proc/self/stat"));
    let limits = read_or_empty("/proc/self/limits");
    let memory = status_kib(&read_or_empty("/proc/self/status"), "VmRSS:").map(|kib| kib * 1024.0);
    let boot = boot_time(&read_or_empty("/proc/stat"));
    let started = boot
        .zip(stat.as_ref())
        .map(|(boot, stat)| boot + stat.started);
    let rows = [
        (
            "cpu_seconds_total",
            "counter",
            "Processor time used, in seconds.",
            stat.as_ref().map(|s| s.cpu),
        ),
        (
            "open_fds",
            "gauge",
            "Open file descriptors.",
            open_file_count(),
        ),
        (
            "max_fds",
            "gauge",
            "Limit of open file descriptors.",
            soft_limit(&limits, "Max open files"),
        ),
        (
            "virtual_memory_bytes",
            "gauge",
            "Virtual memory.",
            stat.as_ref().map(|s| s.virtual_bytes),
        ),
        (
            "virtual_memory_max_bytes",
            "gauge",
            "Limit of virtual memory.",
            soft_limit(&limits, "Max address space"),
        ),
        ("resident_memory_bytes", "gauge", "Resident memory.", memory),
        (
            "start_time_seconds",
            "gauge",
            "Unix time at which the process started.",
            started,
        ),
    ];
    for (name, kind, help, value) in rows {
        let Some(value) = value else { continue };
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}\n"
        );
    }
}

fn read_or_empty(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The fields of `/proc/PID/stat` that are used (proc(5)).
#[derive(Debug, PartialEq)]
struct ProcessStat {
    cpu: f64,
    started: f64,
    virtual_bytes: f64,
}

impl ProcessStat {
    /// Parses the fields after the command's name, which may itself contain spaces and parentheses.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<f64> = rest
            .split_ascii_whitespace()
            .map(|f| f.parse().unwrap_or(0.0))
            .collect();
        Some(Self {
            cpu: (fields.get(11)? + fields.get(12)?) / TICKS_PER_SECOND,
            started: fields.get(19)? / TICKS_PER_SECOND,
            virtual_bytes: *fields.get(20)?,
        })
    }
}

fn status_kib(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns a soft limit; "unlimited" is the largest 64-bit number, as in other client libraries.
fn soft_limit(text: &str, key: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

fn boot_time(text: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()
}

/// Counts the entries, except the one that the count itself opens.
fn open_file_count() -> Option<f64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(entries.saturating_sub(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_after_a_hostile_command_name() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 3 0 4200 8192000 500 184467";
        assert_eq!(
            ProcessStat::parse(text),
            Some(ProcessStat {
                cpu: 2.0,
                started: 42.0,
                virtual_bytes: 8_192_000.0
            })
        );
        assert_eq!(ProcessStat::parse("7 (short) S 1"), None);
        assert_eq!(ProcessStat::parse(""), None);
    }

    #[test]
    fn limits_and_status_are_read() {
        let limits = "Max open files            1024                 524288               files\n\
                      Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(soft_limit(limits, "Max open files"), Some(1024.0));
        assert_eq!(
            soft_limit(limits, "Max address space"),
            Some(u64::MAX as f64)
        );
        assert_eq!(soft_limit(limits, "Max nothing"), None);
        assert_eq!(
            status_kib("VmSize: 9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"),
            Some(12.0)
        );
        assert_eq!(
            boot_time("cpu 1\nbtime 1700000000\n"),
            Some(1_700_000_000.0)
        );
    }
}
