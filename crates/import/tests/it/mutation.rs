//! Mutations of the sources in `tests/import`: no rule of a source can be taken away unnoticed, and the cases of a policy
//! notice a pattern that is changed.
//!
//! A sample of the rules of each source is taken; `CRAWLGATE_MUTATIONS=all` takes all of them, and that of a source, such
//! as `CRAWLGATE_MUTATIONS=squid/reply`, all of its rules.

mod split;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZero;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use crawlgate_import::{
    FileSystem, Import, ImportError, PartOutcome, Report, ReportList, System, import,
};
use crawlgate_policy::FileError;
use crawlgate_policy::internal::policy::cases::{Case, CaseRefusal};
use crawlgate_policy::internal::policy::compile::CompiledPolicy;
use serde_json::{Value as Json, json};

use super::support::{Directory, compile_import, processor_time, read_command, sources};

/// The rules of a source that are taken away, and the patterns that are changed, unless all are.
const SAMPLE: usize = 2;

/// A source with the text of one file replaced.
struct ChangedFile<'d> {
    directory: &'d Directory,
    path: &'d str,
    text: &'d str,
}

impl FileSystem for ChangedFile<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        if path == self.path {
            return Ok(self.text.as_bytes().to_vec());
        }
        self.directory.read(path)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        self.directory.list(directory)
    }
}

/// The files of a source, with the names of those that were read.
struct ReadFiles<'d> {
    directory: &'d Directory,
    names: RefCell<BTreeSet<String>>,
}

impl FileSystem for ReadFiles<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, FileError> {
        let bytes = self.directory.read(path)?;
        self.names.borrow_mut().insert(path.to_owned());
        Ok(bytes)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        self.directory.list(directory)
    }
}

/// A source of `tests/import`.
struct MutatedSource {
    name: String,
    system: System,
    directory: Directory,
    words: String,
    report: Report,
    compiled: CompiledPolicy,
    /// The meaning of the policy: without cases, descriptions and comments.
    meaning: Json,
    /// The texts of the files that were read, by their names.
    texts: BTreeMap<String, String>,
}

impl MutatedSource {
    fn read(system: System, path: &Path) -> Self {
        let name = path.file_name().unwrap().to_str().unwrap();
        let name = format!("{}/{name}", system.name());
        let words = fs::read_to_string(path.join("command")).unwrap();
        let directory = Directory(path.to_owned());
        let files = ReadFiles {
            directory: &directory,
            names: RefCell::default(),
        };
        let mut input = read_command(&directory, &words);
        input.files = &files;
        let original = import(system, &input).unwrap();
        let names = files.names.into_inner().into_iter();
        let texts = names.filter_map(|name| {
            let text = fs::read_to_string(path.join(&name)).ok()?;
            Some((name, text))
        });
        Self {
            name,
            system,
            words,
            compiled: compile_import(&original),
            meaning: meaning_of(&original),
            texts: texts.collect(),
            report: original.report,
            directory,
        }
    }

    /// Imports the source with the text of one file replaced.
    fn import_changed(&self, path: &str, text: &str) -> Result<Import, ImportError> {
        let files = ChangedFile {
            directory: &self.directory,
            path,
            text,
        };
        let mut input = read_command(&self.directory, &self.words);
        input.files = &files;
        import(self.system, &input)
    }

    /// Returns the rules of the source: the name of the file, and the place of the rule in its text.
    fn rules(&self) -> Vec<(&str, Range<usize>)> {
        let files = self.texts.iter();
        let rules = files.flat_map(|(path, text)| {
            let places = split::rules(path, text).into_iter();
            places.map(move |place| (path.as_str(), place))
        });
        rules.collect()
    }

    fn describe(&self, what: &str, file: &str, place: &Range<usize>) -> String {
        let line = self.line_of(file, place);
        let text = self.texts[file][place.clone()].trim();
        format!("{} {what} {file}:{line}: {text}", self.name)
    }

    fn line_of(&self, file: &str, place: &Range<usize>) -> u32 {
        let before = &self.texts[file][..place.start];
        u32::try_from(before.matches('\n').count()).unwrap() + 1
    }
}

/// Returns the meaning of a policy: without cases and descriptions, as its text without comments.
fn meaning_of(imported: &Import) -> Json {
    let mut policy: Json = serde_saphyr::from_str(&imported.files["policy.yaml"]).unwrap();
    policy.as_object_mut().unwrap().remove("cases");
    policy.as_object_mut().unwrap().remove("name");
    remove_keys(&mut policy, &["about"]);
    let files = imported.files.iter();
    let lists = files.filter(|(name, _)| *name != "policy.yaml");
    json!({ "policy": policy, "lists": lists.collect::<BTreeMap<_, _>>(), "settings": imported.settings })
}

fn remove_keys(json: &mut Json, keys: &[&str]) {
    match json {
        Json::Object(entries) => {
            entries.retain(|key, _| !keys.contains(&key.as_str()));
            entries
                .values_mut()
                .for_each(|value| remove_keys(value, keys));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| remove_keys(item, keys)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Takes a sample of items of a source, the same in each run.
fn sample<T>(source: &str, mut items: Vec<T>) -> Vec<T> {
    let takes_all = |value: String| value == "all" || value == source;
    if std::env::var("CRAWLGATE_MUTATIONS").is_ok_and(takes_all) {
        return items;
    }
    fastrand::Rng::with_seed(31).shuffle(&mut items);
    items.truncate(SAMPLE);
    items
}

/// Returns the parts of a report as text, without their places.
fn parts(report: &Report) -> Vec<String> {
    let parts = report.parts().iter();
    let texts = parts.map(|part| format!("{} {} {:?}", part.text, part.lines, part.outcome()));
    texts.collect()
}

/// Replaces a text by its line ends, so that other rules stay on their lines.
fn without(text: &str, place: &Range<usize>) -> String {
    let lines = text[place.clone()].matches('\n').count();
    let (before, after) = (&text[..place.start], &text[place.end..]);
    format!("{before}{}{after}", "\n".repeat(lines))
}

/// Returns `true` if all cases of a policy pass with another one.
fn all_cases_pass(cases: &[Case], changed: &CompiledPolicy) -> bool {
    cases.iter().all(|case| {
        let facts = case.facts.facts();
        let (trail, decision) = changed.policy.decide_every_rule(&facts);
        let refusal = CaseRefusal::default();
        case.mismatches(&changed.policy, &trail, &decision, &refusal)
            .is_empty()
    })
}

/// Changes the words of a rule that its policy has, in patterns or names. Returns `None` if there are none.
fn with_changed_words(text: &str, place: &Range<usize>, meaning: &str) -> Option<String> {
    let mut changed = String::new();
    let mut is_changed = false;
    let is_other = |c: char| !c.is_ascii_alphanumeric();
    for piece in text[place.clone()].split_inclusive(is_other) {
        let word = piece.trim_end_matches(is_other);
        if word.len() >= 2 && meaning.contains(word) {
            changed.push_str(&changed_word(word));
            changed.push_str(&piece[word.len()..]);
            is_changed = true;
        } else {
            changed.push_str(piece);
        }
    }
    let (before, after) = (&text[..place.start], &text[place.end..]);
    is_changed.then(|| format!("{before}{changed}{after}"))
}

/// Changes a word: a number becomes another one, any other word gets letters that no source has.
fn changed_word(word: &str) -> String {
    match word.parse::<u32>() {
        Ok(number) => (u64::from(number) + 1).to_string(),
        Err(_) => format!("qz{word}"),
    }
}

/// Returns the rules that no other rules are in.
fn innermost<'f>(rules: &[(&'f str, Range<usize>)]) -> Vec<(&'f str, Range<usize>)> {
    let has_none = |(file, place): &&(&str, Range<usize>)| {
        !rules.iter().any(|(other, inner)| {
            other == file && inner != place && inner.start >= place.start && inner.end <= place.end
        })
    };
    rules.iter().filter(has_none).cloned().collect()
}

/// A way to change a rule of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    TakenAway,
    OtherWords,
}

/// A change of one rule.
struct SourceChange<'s> {
    source: &'s MutatedSource,
    kind: ChangeKind,
    file: &'s str,
    place: Range<usize>,
}

/// The consequence of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeResult {
    /// The changed source cannot be imported, or means the same.
    NoChange,
    Noticed(NoticedBy),
    Unnoticed,
}

/// The check that notices a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NoticedBy {
    /// The policy or the report, for a rule that is taken away.
    RuleTakenAway,
    Case,
    Report,
    /// Nothing needs to: an item of a list, or one of several values of a test, of which cases show a few.
    OneOfSeveral,
}

impl MutatedSource {
    /// Returns the changes to be made.
    fn changes(&self) -> Vec<SourceChange<'_>> {
        let rules = self.rules();
        let changes_of = |kind, rules| {
            let rules: Vec<(&str, Range<usize>)> = sample(&self.name, rules);
            rules.into_iter().map(move |(file, place)| SourceChange {
                source: self,
                kind,
                file,
                place,
            })
        };
        let other_words = changes_of(ChangeKind::OtherWords, innermost(&rules));
        changes_of(ChangeKind::TakenAway, rules)
            .chain(other_words)
            .collect()
    }
}

impl SourceChange<'_> {
    fn describe(&self) -> String {
        let what = match self.kind {
            ChangeKind::TakenAway => "without",
            ChangeKind::OtherWords => "changed",
        };
        self.source.describe(what, self.file, &self.place)
    }

    fn make(&self) -> ChangeResult {
        match self.kind {
            ChangeKind::TakenAway => self.take_away(),
            ChangeKind::OtherWords => self.change_words(),
        }
    }

    /// Takes the rule away: that changes the policy or the report.
    fn take_away(&self) -> ChangeResult {
        let source = self.source;
        let text = without(&source.texts[self.file], &self.place);
        if self.belongs_to_unrelated_part() {
            return ChangeResult::NoChange;
        }
        let is_unnoticed = source
            .import_changed(self.file, &text)
            .is_ok_and(|changed| {
                meaning_of(&changed) == source.meaning
                    && parts(&changed.report) == parts(&source.report)
            });
        if is_unnoticed {
            ChangeResult::Unnoticed
        } else {
            ChangeResult::Noticed(NoticedBy::RuleTakenAway)
        }
    }

    /// Returns `true` if the rule is a later line of a part that is unrelated to policies: a statement of a function, an
    /// entry of a setting.
    fn belongs_to_unrelated_part(&self) -> bool {
        let line = self.source.line_of(self.file, &self.place);
        let parts = self.source.report.parts().iter();
        let of_file = parts.filter(|part| *part.place.file == *self.file);
        let before = of_file.filter(|part| part.place.line <= line);
        before
            .max_by_key(|part| part.place.line)
            .is_some_and(|part| {
                part.place.line < line
                    && matches!(part.outcome(), Some(PartOutcome::Unrelated { .. }))
            })
    }

    /// Returns `true` if the policy has no pattern of the rule: without the rule, its patterns are the same.
    fn has_no_pattern(&self, patterns: &Json) -> bool {
        let text = without(&self.source.texts[self.file], &self.place);
        let imported = self.source.import_changed(self.file, &text);
        imported.is_ok_and(|imported| patterns_of(&meaning_of(&imported)) == *patterns)
    }

    /// Changes the pattern of the rule: a case of the original policy fails, or the report differs.
    fn change_words(&self) -> ChangeResult {
        let source = self.source;
        let words = source.meaning["policy"].to_string();
        let text = with_changed_words(&source.texts[self.file], &self.place, &words);
        let Some(Ok(changed)) = text.map(|text| source.import_changed(self.file, &text)) else {
            return ChangeResult::NoChange;
        };
        let (before, after) = (
            patterns_of(&source.meaning),
            patterns_of(&meaning_of(&changed)),
        );
        if before == after {
            return ChangeResult::NoChange;
        }
        if !all_cases_pass(&source.compiled.cases, &compile_import(&changed)) {
            ChangeResult::Noticed(NoticedBy::Case)
        } else if outcomes(&changed.report) != outcomes(&source.report) {
            ChangeResult::Noticed(NoticedBy::Report)
        } else if differ_among_others(&before, &after) {
            ChangeResult::Noticed(NoticedBy::OneOfSeveral)
        } else if self.has_no_pattern(&before) {
            ChangeResult::NoChange
        } else {
            ChangeResult::Unnoticed
        }
    }
}

/// Calls a function with each item, on all processors, and returns the results in the order of the items.
fn in_parallel<T: Sync, R: Send>(items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let results = Mutex::new(BTreeMap::new());
    let next = AtomicUsize::new(0);
    let threads = available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let result = run(item);
                    results.lock().unwrap().insert(at, result);
                }
            });
        }
    });
    results.into_inner().unwrap().into_values().collect()
}

#[test]
fn what_is_changed_in_a_source_is_noticed() {
    let sources = in_parallel(&sources(), |(system, path)| {
        MutatedSource::read(*system, path)
    });
    let changes: Vec<SourceChange<'_>> = sources.iter().flat_map(MutatedSource::changes).collect();
    let results = in_parallel(&changes, |change| {
        let begin = processor_time();
        let result = change.make();
        (result, processor_time() - begin)
    });
    let mut counts: BTreeMap<&str, BTreeMap<NoticedBy, usize>> = BTreeMap::new();
    let mut times: BTreeMap<&str, Duration> = BTreeMap::new();
    let mut unnoticed = Vec::new();
    for (change, (result, time)) in changes.iter().zip(&results) {
        *times.entry(&change.source.name).or_default() += *time;
        match result {
            ChangeResult::NoChange => {}
            ChangeResult::Noticed(by) => {
                let counts = counts.entry(change.source.system.name()).or_default();
                *counts.entry(*by).or_default() += 1;
            }
            ChangeResult::Unnoticed => unnoticed.push(change.describe()),
        }
    }
    println!("{} changes: {counts:#?}\n{times:.1?}", changes.len());
    assert!(
        unnoticed.is_empty(),
        "{} not noticed:\n{}",
        unnoticed.len(),
        unnoticed.join("\n")
    );
    for system in System::all() {
        let counts = counts.get(system.name());
        let has_rules = counts.is_some_and(|it| it.contains_key(&NoticedBy::RuleTakenAway));
        assert!(has_rules, "{}", system.name());
    }
}

/// Returns the rules and lists of a policy without the options that they set.
fn patterns_of(meaning: &Json) -> Json {
    let policy = &meaning["policy"];
    let mut patterns = json!([
        policy["rules"],
        policy["spaces"],
        policy["global_space"],
        policy["lists"],
        meaning["lists"]
    ]);
    remove_keys(&mut patterns, &["set", "options", "id"]);
    patterns
}

/// Returns `true` if two values differ only by items of arrays of several items, or by texts of several lines.
fn differ_among_others(before: &Json, after: &Json) -> bool {
    match (before, after) {
        (Json::Object(before), Json::Object(after)) => {
            before.keys().eq(after.keys())
                && before
                    .iter()
                    .all(|(key, value)| differ_among_others(value, &after[key]))
        }
        (Json::Array(before), Json::Array(after)) => {
            let is_text = |item: &Json| item.is_string();
            if before.len() > 1 && before.iter().chain(after).all(is_text) {
                return true;
            }
            let mut pairs = before.iter().zip(after);
            before.len() == after.len() && pairs.all(|(one, other)| differ_among_others(one, other))
        }
        (Json::String(one), Json::String(other)) => {
            one == other || one.lines().count() > 1 && other.lines().count() > 1
        }
        (one, other) => one == other,
    }
}

/// Returns the numbers of parts in each list and what they became, without their texts.
fn outcomes(report: &Report) -> Vec<String> {
    let parts = report.parts().iter();
    let outcomes = parts.map(|part| format!("{:?}", part.outcome()));
    let lists = ReportList::ALL.map(|list| report.list(list).count());
    outcomes.chain([format!("{lists:?}")]).collect()
}
