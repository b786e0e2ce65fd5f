//! Measures loads and reloads of a policy: time, processor time and memory (Linux).
//!
//! `cargo run --release -p crawlgate-policy --example load_time -- mixed.yaml [RELOADS]` loads the policy, and then
//! reloads it with one rule changed each time, and compares it with the one before, as the proxy does.

use std::error::Error;
use std::fs;

use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::compare::PolicyDiff;
use crawlgate_policy::internal::policy::compile::{self, CompiledPolicy};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the path of a policy is missing")?;
    let reloads: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let text = fs::read_to_string(path)?;
    let mut policy = measure("load", || load(&text, None))?.policy;
    for number in 0..reloads {
        let changed = change_line(&text, number);
        let next = measure("reload", || load(&changed, Some(&policy)))?.policy;
        let diff = measure("diff", || Ok(PolicyDiff::between(&policy, &next)))?;
        if diff.rules.is_empty() {
            return Err("the change is not found".into());
        }
        policy = next;
    }
    measure("end", || Ok(()))
}

/// Calls a function, and reports the time and memory that it takes.
fn measure<T>(
    step: &str,
    call: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let (start, before) = (uptime_seconds()?, processor_seconds()?);
    let result = call()?;
    report(
        step,
        uptime_seconds()? - start,
        processor_seconds()? - before,
    )?;
    Ok(result)
}

fn load(
    text: &str,
    previous: Option<&crawlgate_policy::Policy>,
) -> Result<CompiledPolicy, Box<dyn Error>> {
    let files = MemoryFileSystem::new().with_file("policy.yaml", text);
    compile::load_again(&files, "policy.yaml", previous)
        .map_err(|problems| format!("{} problems", problems.len()).into())
}

/// Replaces a line in the middle of the text by another one of the same kind.
fn change_line(text: &str, number: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.len() / 2;
    let changed = format!("  - {{ id: changed, forbid: {{ domain: changed{number}.example }} }}");
    let lines = lines.iter().enumerate();
    lines
        .map(|(index, line)| if index == at { &changed } else { *line })
        .flat_map(|line| [line, "\n"])
        .collect()
}

fn report(step: &str, elapsed: f64, processor: f64) -> Result<(), Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kibibytes = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    println!(
        "{step:8} {elapsed:6.2} s, {processor:6.2} s of processor time  peak {} MiB, now {} MiB",
        kibibytes("VmHWM").unwrap_or(0) / 1024,
        kibibytes("VmRSS").unwrap_or(0) / 1024
    );
    // The next peak is that of the next step.
    fs::write("/proc/self/clear_refs", "5")?;
    Ok(())
}

/// The processor time of the process.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    // In user mode and in the kernel, in hundredths.
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
    Ok((ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0)
}

/// The time since the machine was started.
fn uptime_seconds() -> Result<f64, Box<dyn Error>> {
    let uptime = fs::read_to_string("/proc/uptime")?;
    let seconds = uptime
        .split_whitespace()
        .next()
        .ok_or("no time in /proc/uptime")?;
    Ok(seconds.parse()?)
}
