//! `crawlgate import`: translates the rules of another system into a policy.

mod comparison;
mod source_files;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crawlgate_import::{Import, ImportError, ImportInput, System, import};

use super::Exit;
use super::args::{EscapeMode, ImportArgs, OutputFormat};
use super::console::{self, note, report_cannot_run, report_invalid};
use crate::diagnostics::nearest::nearest;
use source_files::SourceFiles;

/// Runs the command. Exits with 1 if parts of the source are not converted, or the policy differs from the source.
pub(super) fn run(args: &ImportArgs) -> Exit {
    if let Err(exit) = refuse_outputs_that_are_inputs(args) {
        return exit;
    }
    with_input(args, |system, input| {
        if args.dump {
            return dump(system, input);
        }
        match import(system, input) {
            Ok(imported) => finish(args, &imported, system),
            Err(error) => report_error(&error),
        }
    })
    .unwrap_or_else(|exit| exit)
}

/// Refuses to write over a file that is read, even with `--force`.
fn refuse_outputs_that_are_inputs(args: &ImportArgs) -> Result<(), Exit> {
    let words = args.words.iter().map(|word| source_files::file_of(word));
    let options = [&args.global, &args.seeds, &args.check];
    let inputs: Vec<PathBuf> = words
        .map(Path::new)
        .chain(options.into_iter().flatten().map(PathBuf::as_path))
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    let is_input = |path: &Path| path.canonicalize().is_ok_and(|path| inputs.contains(&path));
    let written = args.output.iter().flat_map(|directory| {
        // The lists of a policy are in this directory.
        let lists = fs::read_dir(directory.join("lists")).into_iter().flatten();
        let lists = lists.flatten().map(|entry| entry.path());
        let files = ["policy.yaml", "report.json", "configuration.yaml"];
        let files = files.map(|name| directory.join(name));
        files.into_iter().chain(lists)
    });
    let mut written = written.chain(args.report.clone());
    match written.find(|path| is_input(path)) {
        Some(path) => {
            let message = format!("{} is read, and is not written over", path.display());
            Err(report_invalid(&message))
        }
        None => Ok(()),
    }
}

/// Calls a function with the source and its system.
fn with_input(
    args: &ImportArgs,
    run: impl FnOnce(System, &ImportInput<'_>) -> Exit,
) -> Result<Exit, Exit> {
    let (named, words) = split_system(&args.words)?;
    let (mut files, paths) = SourceFiles::new(words);
    let global = args.global.as_deref().map(|path| files.add(path));
    let seeds = args.seeds.as_deref().map(read_text).transpose()?;
    let input = ImportInput {
        files: &files,
        paths,
        name: args.name.clone(),
        seeds,
        variables: args.variables.clone(),
        escape: args.escape.map(|mode| mode == EscapeMode::On),
        global,
    };
    let system = match named {
        Some(system) => system,
        None => recognize(&input)?,
    };
    Ok(run(system, &input))
}

/// Prints the tree of a source.
fn dump(system: System, input: &ImportInput<'_>) -> Exit {
    match system.dump(input) {
        Some(Ok(tree)) => console::print(&tree, Exit::Success),
        Some(Err(error)) => report_error(&error),
        None => report_invalid(&format!(
            "--dump prints the tree of a WebCopy project; the files of {} are text",
            system.name()
        )),
    }
}

/// Splits the words into the system, if the first one names it, and the files.
fn split_system(words: &[String]) -> Result<(Option<System>, &[String]), Exit> {
    let Some((first, rest)) = words.split_first() else {
        return Ok((None, words));
    };
    if let Some(system) = System::from_name(first) {
        if rest.is_empty() {
            return Err(report_invalid(&format!(
                "name the files of {first}, such as `{}`",
                system.example()
            )));
        }
        return Ok((Some(system), rest));
    }
    let is_file = first == "-" || first.contains(['/', '.', '=']) || Path::new(first).exists();
    if is_file {
        return Ok((None, words));
    }
    let names: Vec<&str> = System::all().map(System::name).collect();
    let suggestion = nearest(first, names.iter().copied());
    let suggestion =
        suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    Err(report_invalid(&format!(
        "no file and no system has the name `{first}`; systems: {}{suggestion}",
        names.join(", ")
    )))
}

fn recognize(input: &ImportInput<'_>) -> Result<System, Exit> {
    let found = System::recognize(input).map_err(|error| report_error(&error))?;
    let names = |systems: &mut dyn Iterator<Item = System>| {
        systems.map(System::name).collect::<Vec<_>>().join(", ")
    };
    match found.as_slice() {
        [system] => {
            note(&format!("read as a file of {}", system.name()));
            Ok(*system)
        }
        [] => Err(report_invalid(&format!(
            "the file does not tell which system it is from; write `crawlgate import SYSTEM FILE` with one of {}",
            names(&mut System::all())
        ))),
        several => Err(report_invalid(&format!(
            "the file may be from several systems; write `crawlgate import SYSTEM FILE` with one of {}",
            names(&mut several.iter().copied())
        ))),
    }
}

fn report_error(error: &ImportError) -> Exit {
    match error {
        ImportError::Defect(_) => report_cannot_run(error),
        ImportError::File { .. } | ImportError::Outside { .. } | ImportError::Invalid { .. } => {
            report_invalid(error)
        }
    }
}

fn read_text(path: &Path) -> Result<String, Exit> {
    let bytes = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin().lock())
    } else {
        fs::read_to_string(path)
    };
    bytes.map_err(|error| report_invalid(&format!("{}: {error}", path.display())))
}

/// Writes the policy and the report, and compares the policy with the source.
fn finish(args: &ImportArgs, imported: &Import, system: System) -> Exit {
    if let Err(exit) = write_report(args, imported) {
        return exit;
    }
    let mut exit = Exit::Success;
    if !imported.divergences.is_empty() {
        note(&comparison::defect_message(&imported.divergences, system));
        exit = Exit::Negative;
    }
    if !imported.report.is_complete() {
        exit = Exit::Negative;
    }
    if exit == Exit::Negative && !args.lenient {
        note(&"nothing was written; --lenient writes the policy without what is not converted");
    } else if let Err(exit) = write_policy(args, imported) {
        return exit;
    }
    if let Some(path) = &args.check {
        let checked = read_text(path).map(|urls| comparison::compare(imported, system, &urls));
        return checked.map_or_else(|exit| exit, |checked| checked.max(exit));
    }
    exit
}

fn write_report(args: &ImportArgs, imported: &Import) -> Result<(), Exit> {
    let text = match args.format {
        OutputFormat::Text => imported.report.to_text(),
        OutputFormat::Json => format!("{:#}\n", imported.report.to_json()),
    };
    match &args.report {
        Some(path) if path.exists() && !args.force => {
            let message = format!("{} exists; --force replaces it", path.display());
            Err(report_invalid(&message))
        }
        Some(path) => write_file(path, &text, args.force),
        None => {
            eprint!("{text}");
            Ok(())
        }
    }
}

/// Writes the policy into the directory, or to standard output.
fn write_policy(args: &ImportArgs, imported: &Import) -> Result<(), Exit> {
    let Some(directory) = &args.output else {
        return match console::print(&imported.text, Exit::Success) {
            Exit::Success => Ok(()),
            failed @ (Exit::Negative | Exit::Invalid | Exit::CannotRun) => Err(failed),
        };
    };
    let mut files: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, text) in &imported.files {
        files.insert(path, text);
    }
    let report = format!("{:#}\n", imported.report.to_json());
    files.insert("report.json", &report);
    files.insert("configuration.yaml", &imported.settings);
    let existing = files.keys().find(|path| directory.join(path).exists());
    if let Some(path) = existing.filter(|_| !args.force) {
        let path = directory.join(path);
        let message = format!("{} exists; --force replaces it", path.display());
        return Err(report_invalid(&message));
    }
    for (path, text) in files {
        let path = directory.join(path);
        write_file(&path, text, args.force)?;
        note(&format!("wrote {}", path.display()));
    }
    let policy = directory.join("policy.yaml");
    note(&format!("next: crawlgate test {}", policy.display()));
    Ok(())
}

fn write_file(path: &Path, text: &str, replace: bool) -> Result<(), Exit> {
    let write = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(replace);
        let mut file = options.create_new(!replace).open(path)?;
        std::io::Write::write_all(&mut file, text.as_bytes())
    };
    write().map_err(|error| report_cannot_run(&format!("{}: {error}", path.display())))
}
