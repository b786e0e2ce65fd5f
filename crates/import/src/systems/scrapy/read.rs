//! Finds settings and spiders among the statements of files.

use std::collections::{BTreeMap, BTreeSet};

use crate::draft::to_slug;
use crate::input::{ImportError, ImportInput, Place};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::systems::scrapy::modules::{
    BaseClass, PythonClass, PythonClasses, PythonModules, SCOPE, is_scrapy, is_scrapy_spider,
};
use crate::systems::scrapy::python::{
    Argument, AttributeChange, Call, FunctionCode, PythonImport, PythonValue, Statement,
    StatementKind,
};
use crate::systems::scrapy::{
    LinkExpression, ScrapySetting, ScrapySource, Spider, SpiderRequest, SpiderRule,
};

pub(super) fn read(
    input: &ImportInput<'_>,
    report: &mut Report,
) -> Result<ScrapySource, ImportError> {
    let modules = PythonModules::read(input)?;
    let classes = PythonClasses::new(&modules);
    let mut reader = ScrapyReader {
        report,
        modules: &modules,
        classes: &classes,
        file: Place::start(""),
        inherited: None,
        inherited_left: MAX_INHERITED,
    };
    let mut source = ScrapySource::default();
    let mut settings = vec![Vec::new(); modules.modules.len()];
    for (index, module) in modules.modules.iter().enumerate() {
        reader.file = Place::start(&module.path);
        let own = reader.read_module(index, &mut source);
        if let Some(slot) = settings.get_mut(index) {
            *slot = own;
        }
    }
    source.settings = reader.effective_settings(settings);
    reader.check_names(&mut source);
    Ok(source)
}

/// A setting of a module, or the settings of a module that it imports.
#[derive(Clone)]
enum ModuleSetting {
    Own(ScrapySetting),
    All(usize),
    /// The setting with this name.
    One(usize, String),
}

struct ScrapyReader<'r> {
    report: &'r mut Report,
    modules: &'r PythonModules,
    classes: &'r PythonClasses<'r>,
    file: Place,
    /// Attributes are read for a class that inherits them.
    inherited: Option<Heir>,
    inherited_left: usize,
}

/// A class that inherits what is read.
#[derive(Clone)]
struct Heir {
    place: Place,
    /// The class that has the attributes.
    from: String,
}

/// The most members that are read again for classes that inherit them.
const MAX_INHERITED: usize = 100_000;

/// Attributes of a spider that are settings, with the settings.
const SETTING_ATTRIBUTES: [(&str, &str); 3] = [
    ("download_delay", "DOWNLOAD_DELAY"),
    ("max_concurrent_requests", "CONCURRENT_REQUESTS_PER_DOMAIN"),
    ("download_maxsize", "DOWNLOAD_MAXSIZE"),
];

/// Returns `true` for attributes that a policy depends on.
fn decides(attribute: &str) -> bool {
    SCOPE.contains(&attribute)
        || attribute == "custom_settings"
        || SETTING_ATTRIBUTES
            .iter()
            .any(|(name, _)| *name == attribute)
}

/// Returns the way in which a policy fails without the value of an attribute.
fn failure_without(attribute: &str) -> MissingPart {
    match attribute {
        "start_urls" | "rules" => MissingPart::KeepsOut,
        "download_delay" | "max_concurrent_requests" => MissingPart::OtherSetting,
        _ => MissingPart::LetsThrough,
    }
}

impl ScrapyReader<'_> {
    /// Adds a part; values are shown only where they cannot be secrets.
    fn add(&mut self, line: u32, column: u32, text: impl Into<String>) -> PartId {
        if let Some(heir) = &self.inherited {
            let place = heir.place.clone();
            let origin = format!("inherited from {}, {}:{line}", heir.from, self.file.file);
            self.inherited_left = self.inherited_left.saturating_sub(1);
            return self
                .report
                .add(place, format!("{} ({origin})", text.into()));
        }
        let place = Place {
            line,
            column,
            ..self.file.clone()
        };
        self.report.add(place, text)
    }

    /// Reads a file; returns its settings, if it is a file of settings.
    fn read_module(&mut self, index: usize, source: &mut ScrapySource) -> Vec<ModuleSetting> {
        let Some(module) = self.modules.modules.get(index) else {
            return Vec::new();
        };
        let is_settings = self.is_settings(index);
        source.has_settings |= is_settings;
        let mut settings = Vec::new();
        let mut class = self
            .classes
            .classes
            .iter()
            .position(|class| class.module == index);
        for statement in &module.statements {
            let (line, column) = (statement.line, statement.column);
            match &statement.kind {
                StatementKind::Assign(name, value) if is_settings => {
                    let part = self.add(line, column, shown(name, &value.value));
                    settings.push(ModuleSetting::Own(ScrapySetting {
                        part,
                        name: name.clone(),
                        value: value.value.clone(),
                    }));
                }
                StatementKind::Import(import) => {
                    settings.extend(self.read_import(index, statement, import, is_settings));
                }
                StatementKind::Class { .. } => {
                    if let Some(index) = class {
                        self.read_class(index, source);
                        // The classes of a file follow each other in its order.
                        class = Some(index + 1);
                    }
                }
                kind @ (StatementKind::Assign(..)
                | StatementKind::Function(_)
                | StatementKind::Text
                | StatementKind::Other { .. }) => self.other(line, column, kind, is_settings),
            }
        }
        settings
    }

    /// Returns `true` for a file that has settings of Scrapy, or imports those of a file.
    fn is_settings(&self, index: usize) -> bool {
        let Some(module) = self.modules.modules.get(index) else {
            return false;
        };
        let mut is_settings = false;
        for statement in &module.statements {
            is_settings |= match &statement.kind {
                StatementKind::Assign(name, _) => is_setting_of_scrapy(name),
                StatementKind::Import(PythonImport::All { module }) => {
                    let imported = self.modules.resolve(index, module);
                    imported
                        .is_some_and(|imported| imported != index && self.has_settings(imported))
                }
                StatementKind::Import(PythonImport::Modules(_) | PythonImport::Names { .. })
                | StatementKind::Class { .. }
                | StatementKind::Function(_)
                | StatementKind::Text
                | StatementKind::Other { .. } => false,
            };
        }
        let mut classes = self.classes.classes.iter().enumerate();
        is_settings && !classes.any(|(class, it)| it.module == index && self.is_spider(class))
    }

    /// Returns `true` for a file that assigns settings of Scrapy itself.
    fn has_settings(&self, index: usize) -> bool {
        let module = self.modules.modules.get(index);
        let mut statements = module.into_iter().flat_map(|module| &module.statements);
        statements.any(|statement| matches!(&statement.kind, StatementKind::Assign(name, _) if is_setting_of_scrapy(name)))
    }

    /// Reads an import; returns the settings that it brings.
    fn read_import(
        &mut self,
        index: usize,
        statement: &Statement,
        import: &PythonImport,
        is_settings: bool,
    ) -> Vec<ModuleSetting> {
        let text = match import {
            PythonImport::Modules(_) => "import",
            PythonImport::Names { .. } => "import of names",
            PythonImport::All { .. } => "import of all names",
        };
        let part = self.add(statement.line, statement.column, text);
        match import {
            PythonImport::All { module } => match self.modules.resolve(index, module) {
                Some(index) if is_settings => {
                    self.report
                        .unrelated(part, "its settings have an effect from here on");
                    return vec![ModuleSetting::All(index)];
                }
                Some(_) => self
                    .report
                    .unrelated(part, "the values of its names are used"),
                None if is_scrapy(module) => self.report.unrelated(part, "a module of Scrapy"),
                None => self.report.not_converted(
                    part,
                    format!("any name may come from {module}, which is not among the files"),
                    MissingPart::LetsThrough,
                    Some("name its file, too"),
                ),
            },
            PythonImport::Names { module, names } if is_settings => {
                let deciding: Vec<&str> = names
                    .iter()
                    .map(|(local, _)| local.as_str())
                    .filter(|name| crate::systems::scrapy::settings::is_converted(name))
                    .collect();
                if deciding.is_empty() {
                    self.report
                        .unrelated(part, "imports no setting that is policy");
                    return Vec::new();
                }
                match self.modules.resolve(index, module) {
                    Some(index) => {
                        self.report
                            .unrelated(part, "its settings have an effect from here on");
                        let names = deciding.into_iter();
                        return names
                            .map(|name| ModuleSetting::One(index, name.to_owned()))
                            .collect();
                    }
                    None => self.report.not_converted(
                        part,
                        format!(
                            "{} from {module}, which is not among the files",
                            deciding.join(", ")
                        ),
                        MissingPart::LetsThrough,
                        Some("name its file, too"),
                    ),
                }
            }
            PythonImport::Names { .. } | PythonImport::Modules(_) => self.report.unrelated(
                part,
                "where a name of another file is used, its value counts if the file is given",
            ),
        }
        Vec::new()
    }

    /// Returns the settings in the order in which they have an effect. Those that a later one replaces are dead.
    fn effective_settings(&mut self, modules: Vec<Vec<ModuleSetting>>) -> Vec<ScrapySetting> {
        let mut is_imported = vec![false; modules.len()];
        for setting in modules.iter().flatten() {
            let (ModuleSetting::All(index) | ModuleSetting::One(index, _)) = setting else {
                continue;
            };
            if let Some(imported) = is_imported.get_mut(*index) {
                *imported = true;
            }
        }
        let mut found: Vec<ScrapySetting> = Vec::new();
        let mut of_earlier = 0;
        let mut roots = 0;
        let mut steps = MAX_SETTINGS;
        let mut visited = BTreeSet::new();
        // Files that import each other in a circle are imported by no other: they come last.
        let (imported, others): (Vec<usize>, Vec<usize>) =
            (0..modules.len()).partition(|index| is_imported.get(*index) == Some(&true));
        for index in others.into_iter().chain(imported) {
            if visited.contains(&index) {
                continue;
            }
            let before = found.len();
            let mut collector = SettingsCollector {
                modules: &modules,
                steps: &mut steps,
                visited: &mut visited,
            };
            collector.collect(index, &mut found, 0);
            roots += usize::from(found.len() > before);
            if roots < 2 {
                of_earlier = found.len();
            }
        }
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, setting) in found.iter().enumerate() {
            last.insert(&setting.name, index);
        }
        let mut effective: Vec<ScrapySetting> = Vec::new();
        let mut parts = BTreeSet::new();
        for (index, setting) in found.iter().enumerate() {
            parts.insert(setting.part);
            let last = last.get(setting.name.as_str()).copied().unwrap_or(index);
            let Some(later) = found.get(last).filter(|_| last != index) else {
                effective.push(setting.clone());
                continue;
            };
            let place = self.report.part(later.part).map(|part| part.place.clone());
            let place = place.map(|place| place.to_string()).unwrap_or_default();
            let is_order_of_files = index < of_earlier && last >= of_earlier;
            if is_order_of_files && later.value != setting.value {
                self.report.not_converted(
                    setting.part,
                    format!("{place} is taken instead, and the two files do not import each other"),
                    MissingPart::LetsThrough,
                    Some("name the files of settings of one run only"),
                );
            } else if later.part != setting.part {
                self.report
                    .dead(setting.part, format!("{place} replaces it"));
            }
        }
        for setting in modules.into_iter().flatten() {
            if let ModuleSetting::Own(setting) = setting
                && !parts.contains(&setting.part)
            {
                self.report.unrelated(
                    setting.part,
                    "the file that imports from this one does not import it",
                );
            }
        }
        effective
    }

    fn other(&mut self, line: u32, column: u32, kind: &StatementKind, is_settings: bool) {
        match kind {
            StatementKind::Assign(name, _) => {
                let part = self.add(line, column, format!("{name} = …"));
                self.report
                    .unrelated(part, "a constant; where it is used, its value is");
            }
            StatementKind::Import(_) => {
                let part = self.add(line, column, "import");
                self.report.unrelated(part, "of code");
            }
            StatementKind::Text => {
                let part = self.add(line, column, "a text");
                self.report.unrelated(part, "documentation");
            }
            StatementKind::Function(function) => {
                let part = self.add(line, column, format!("def {}", function.name));
                self.report.unrelated(part, "code, which is not run");
                self.changes_elsewhere(function);
            }
            StatementKind::Class { name, .. } => {
                let part = self.add(line, column, format!("class {name}"));
                self.report.unrelated(part, "no spider");
            }
            StatementKind::Other { word, names } => {
                let part = self.add(line, column, format!("{word} …"));
                let name = names.iter().find(|name| {
                    decides(name) || is_settings && (is_setting(name) || *name == "*")
                });
                match name.map(String::as_str) {
                    Some("*") => self.report.not_converted(
                        part,
                        "code that is not run may set any name",
                        MissingPart::LetsThrough,
                        Some("write the values as literals"),
                    ),
                    Some(name) => self.report.not_converted(
                        part,
                        format!("{name} depends on code that is not run"),
                        MissingPart::LetsThrough,
                        Some("write the value as a literal"),
                    ),
                    None => self.report.unrelated(part, "code, which is not run"),
                }
            }
        }
    }

    /// Reports the attributes of spiders that a function sets from outside of them.
    fn changes_elsewhere(&mut self, function: &FunctionCode) {
        for change in function
            .sets
            .iter()
            .filter(|change| decides(&change.attribute))
        {
            let AttributeChange {
                owner, attribute, ..
            } = change;
            let part = self.add(change.line, change.column, format!("{owner}.{attribute} …"));
            self.report.not_converted(
                part,
                format!("{attribute} is set by {}, which is not run", function.name),
                MissingPart::LetsThrough,
                Some("write the value as a literal in the class"),
            );
        }
    }

    /// Returns `true` for a class that is a spider, or that may be one.
    fn is_spider(&self, index: usize) -> bool {
        let own = [index];
        let ancestors = self.classes.ancestors(index).unwrap_or(&own);
        let foreign = self.classes.foreign_bases(ancestors);
        let is_known = |base: &&BaseClass| match base {
            BaseClass::Scrapy(name) => is_scrapy_spider(name),
            BaseClass::Own(_) | BaseClass::Unknown(_) => false,
        };
        if foreign.iter().any(is_known) {
            return true;
        }
        let may_be = |base: &&BaseClass| match base {
            BaseClass::Unknown(name) => name.ends_with("Spider") || name == "…",
            BaseClass::Own(_) | BaseClass::Scrapy(_) => false,
        };
        foreign.iter().any(may_be) || self.has(ancestors, |class| class.has_scope)
    }

    /// Returns `true` if one of the classes has a property.
    fn has(&self, classes: &[usize], property: fn(&PythonClass<'_>) -> bool) -> bool {
        let found = classes
            .iter()
            .filter_map(|index| self.classes.classes.get(*index));
        found.into_iter().any(property)
    }

    fn read_class(&mut self, index: usize, source: &mut ScrapySource) {
        let classes = self.classes;
        let Some(class) = classes.classes.get(index) else {
            return;
        };
        let text = format!("class {}", class.name);
        let part = self.add(class.line, class.column, text);
        if !self.is_spider(index) {
            self.report.unrelated(part, "no spider");
            for statement in class.body {
                if let StatementKind::Function(function) = &statement.kind {
                    self.changes_elsewhere(function);
                }
            }
            return;
        }
        let own = [index];
        let ancestors = classes.ancestors(index);
        let is_resolved = ancestors.is_some();
        let ancestors = ancestors.unwrap_or(&own);
        if class.has_heirs && !self.has(ancestors, |class| class.has_name) {
            self.report.unrelated(
                part,
                "no spider of its own, since it has no name: spiders inherit from it",
            );
            for statement in class.body {
                self.list_inherited(statement);
            }
            return;
        }
        self.report
            .unrelated(part, "a spider; its attributes follow");
        if !is_resolved {
            self.report.not_converted(
                part,
                "Python finds no order of its base classes, or they are too many",
                MissingPart::LetsThrough,
                None,
            );
        }
        let foreign = classes.foreign_bases(ancestors);
        let unknown: Vec<&str> = foreign
            .iter()
            .filter_map(|base| match base {
                BaseClass::Unknown(name) => Some(name.as_str()),
                BaseClass::Own(_) | BaseClass::Scrapy(_) => None,
            })
            .collect();
        if !unknown.is_empty() {
            self.report_unknown_bases(class, &unknown);
        }
        let may_have_rules = !unknown.is_empty()
            || foreign.is_empty()
            || foreign.contains(&&BaseClass::Scrapy("CrawlSpider".to_owned()));
        let mut spider = Spider {
            name: class.name.to_owned(),
            ..Spider::default()
        };
        let file = self.file.clone();
        let mut known = BTreeSet::new();
        for ancestor in ancestors {
            let Some(from) = classes.classes.get(*ancestor) else {
                continue;
            };
            if *ancestor != index {
                self.inherited_left = self.inherited_left.saturating_sub(from.body.len());
                if self.inherited_left == 0 {
                    self.too_much_inherited(class.line, class.column, &file);
                    break;
                }
                let place = Place {
                    line: class.line,
                    column: class.column,
                    ..file.clone()
                };
                let from_file = self.modules.modules.get(from.module);
                let path = from_file.map_or("", |module| module.path.as_str());
                self.file = Place::start(path);
                self.inherited = Some(Heir {
                    place,
                    from: from.name.to_owned(),
                });
            }
            self.read_members(from.body, may_have_rules, &mut known, &mut spider);
        }
        self.inherited = None;
        self.file = file;
        self.settings_of_attributes(&mut spider);
        source.spiders.push(spider);
    }

    fn report_unknown_bases(&mut self, class: &PythonClass<'_>, unknown: &[&str]) {
        let names = unknown.join(", ");
        let part = self.add(
            class.line,
            class.column,
            format!("base classes of {}: {names}", class.name),
        );
        self.report.not_converted(
            part,
            format!(
                "{names} is not among the files: what {} inherits from it is unknown",
                class.name
            ),
            MissingPart::LetsThrough,
            Some("name its file, too, or write the attributes into the spider"),
        );
    }

    fn too_much_inherited(&mut self, line: u32, column: u32, file: &Place) {
        self.inherited = None;
        self.file = file.clone();
        let part = self.add(line, column, "what the class inherits");
        self.report.not_converted(
            part,
            "the classes inherit too much",
            MissingPart::LetsThrough,
            Some("import fewer spiders at once"),
        );
    }

    /// Lists a member of a class that is no spider of its own.
    fn list_inherited(&mut self, statement: &Statement) {
        let (line, column) = (statement.line, statement.column);
        match &statement.kind {
            StatementKind::Assign(name, value) => {
                let part = self.add(line, column, shown(name, &value.value));
                self.report
                    .unrelated(part, "listed again with each spider that inherits it");
            }
            StatementKind::Function(function) => {
                let part = self.add(line, column, format!("def {}", function.name));
                self.report
                    .unrelated(part, "listed again with each spider that inherits it");
            }
            kind @ (StatementKind::Class { .. }
            | StatementKind::Import(_)
            | StatementKind::Text
            | StatementKind::Other { .. }) => self.other(line, column, kind, false),
        }
    }

    /// Reads the members of a class that no class before it has.
    fn read_members(
        &mut self,
        body: &[Statement],
        may_have_rules: bool,
        known: &mut BTreeSet<String>,
        spider: &mut Spider,
    ) {
        let is_inherited = self.inherited.is_some();
        let mut own = BTreeSet::new();
        let mut last_lines = BTreeMap::new();
        for statement in body {
            if let StatementKind::Assign(name, _) = &statement.kind {
                last_lines.insert(name.as_str(), (statement.line, statement.column));
            }
        }
        for statement in body {
            let (line, column) = (statement.line, statement.column);
            match &statement.kind {
                StatementKind::Assign(name, value) => {
                    if known.contains(name) || is_inherited && name != "name" && !decides(name) {
                        continue;
                    }
                    let last = last_lines.get(name.as_str());
                    if let Some((later, _)) = last.filter(|last| **last != (line, column)) {
                        let part = self.add(line, column, shown(name, &value.value));
                        self.report.dead(part, format!("line {later} replaces it"));
                        continue;
                    }
                    own.insert(name.clone());
                    if name == "rules" && !may_have_rules {
                        let part = self.add(line, column, "rules = …");
                        self.report
                            .unrelated(part, "without effect, since it is no CrawlSpider");
                        continue;
                    }
                    self.read_attribute(line, column, name, value.clone(), spider);
                }
                StatementKind::Function(function) => {
                    if known.contains(&function.name) {
                        continue;
                    }
                    own.insert(function.name.clone());
                    self.read_function(line, column, function, spider);
                }
                kind @ (StatementKind::Class { .. }
                | StatementKind::Import(_)
                | StatementKind::Text
                | StatementKind::Other { .. }) => {
                    if !is_inherited {
                        self.other(line, column, kind, false);
                    }
                }
            }
        }
        known.extend(own);
    }

    /// Reads a function of a spider: the pages that it requests, and the attributes that it sets.
    fn read_function(
        &mut self,
        line: u32,
        column: u32,
        function: &FunctionCode,
        spider: &mut Spider,
    ) {
        let name = function.name.as_str();
        let is_property = decides(name);
        let settings = matches!(name, "update_settings" | "_requests_to_follow");
        let changes: Vec<&AttributeChange> = function
            .sets
            .iter()
            .filter(|change| decides(&change.attribute))
            .collect();
        let matters = is_property || settings || !changes.is_empty();
        if self.inherited.is_none() || matters || !function.requests.is_empty() {
            let part = self.add(line, column, format!("def {name}"));
            if is_property {
                self.computed(part, name, failure_without(name));
                if name == "rules" && spider.rules.is_none() {
                    spider.rules = Some(Vec::new());
                }
            } else if settings {
                self.report.not_converted(
                    part,
                    match name {
                        "update_settings" => "its code sets settings, and is not run",
                        _ => "its code decides which links are followed, and is not run",
                    },
                    MissingPart::LetsThrough,
                    Some("custom_settings and rules with literals"),
                );
            } else {
                self.report.unrelated(part, "code, which is not run");
            }
        }
        for change in changes {
            self.read_change(name, change, spider);
        }
        for line in &function.requests {
            let part = self.add(*line, 1, format!("a request in {name}"));
            spider.requests.push(SpiderRequest {
                part,
                bypasses_filters: function.bypasses_filters,
            });
        }
    }

    fn read_change(&mut self, function: &str, change: &AttributeChange, spider: &mut Spider) {
        let AttributeChange {
            owner, attribute, ..
        } = change;
        let part = self.add(change.line, change.column, format!("{owner}.{attribute} …"));
        if attribute == "custom_settings" && owner == "self" {
            let why = "without effect: Scrapy reads custom_settings before it makes the spider";
            self.report.unrelated(part, why);
            return;
        }
        // A value that is replaced may allow less than the one written; an added value is missing.
        let failure = match attribute.as_str() {
            "allowed_domains" | "rules" if change.adds => MissingPart::KeepsOut,
            "rules" if spider.rules.is_some() => MissingPart::LetsThrough,
            attribute => failure_without(attribute),
        };
        if attribute == "rules" && spider.rules.is_none() {
            spider.rules = Some(Vec::new());
        }
        self.report.not_converted(
            part,
            format!("{attribute} is set in {function}, which is not run"),
            failure,
            Some("write the value as a literal in the class"),
        );
    }

    /// Turns attributes into the settings that they are. `custom_settings` has precedence since Scrapy 2.14.
    fn settings_of_attributes(&mut self, spider: &mut Spider) {
        for setting in std::mem::take(&mut spider.attributes) {
            let custom = spider.settings.iter().find(|it| it.name == setting.name);
            match custom {
                Some(custom) if custom.value != setting.value => {
                    let target = PartTarget {
                        name: format!("custom_settings, {}", setting.name),
                        need: PartNeed::Host,
                    };
                    let assumption =
                        "it is Scrapy 2.14 or later, where custom_settings has precedence";
                    self.report
                        .assumed(setting.part, target, assumption, AssumptionEffect::Either);
                }
                Some(_) => self
                    .report
                    .unrelated(setting.part, "custom_settings has the same value"),
                None => spider.settings.push(setting),
            }
        }
    }

    /// Keeps the first of several spiders with one name.
    fn check_names(&mut self, source: &mut ScrapySource) {
        let mut names = BTreeSet::new();
        let mut spiders = Vec::new();
        for spider in std::mem::take(&mut source.spiders) {
            if names.insert(to_slug(&spider.name)) {
                spiders.push(spider);
                continue;
            }
            let why = format!(
                "another spider is called {}, of which Scrapy runs one",
                spider.name
            );
            for part in spider.parts() {
                self.report
                    .not_converted(part, why.as_str(), MissingPart::KeepsOut, None);
            }
        }
        source.spiders = spiders;
    }

    fn read_attribute(
        &mut self,
        line: u32,
        column: u32,
        name: &str,
        value: Argument,
        spider: &mut Spider,
    ) {
        let part = self.add(line, column, shown(name, &value.value));
        match (name, value.value) {
            ("name", PythonValue::Text(text)) => {
                spider.name = text;
                self.report
                    .unrelated(part, "the name of the crawler in configuration.yaml");
            }
            ("allowed_domains", value) => match texts(&value) {
                Some(domains) => spider.allowed_domains = Some((part, domains)),
                None => self.computed(part, name, MissingPart::LetsThrough),
            },
            ("start_urls", value) => match texts(&value) {
                Some(urls) => spider.start_urls = Some((part, urls)),
                None => self.computed(part, name, MissingPart::KeepsOut),
            },
            ("custom_settings", PythonValue::None) => {
                self.report.unrelated(part, "no settings");
            }
            ("custom_settings", PythonValue::Dict(entries)) => {
                self.report.unrelated(part, "its settings follow");
                for (key, value) in entries {
                    let Some(key) = key.as_text().map(str::to_owned) else {
                        let part = self.add(value.line, value.column, "a setting");
                        self.computed(part, "its name", MissingPart::LetsThrough);
                        continue;
                    };
                    let part = self.add(value.line, value.column, shown(&key, &value.value));
                    if let Some(earlier) = spider.settings.iter().position(|it| it.name == key) {
                        let earlier = spider.settings.remove(earlier);
                        self.report
                            .dead(earlier.part, format!("line {} replaces it", value.line));
                    }
                    spider.settings.push(ScrapySetting {
                        part,
                        name: key,
                        value: value.value,
                    });
                }
            }
            ("custom_settings", _) => self.computed(part, name, MissingPart::OtherSetting),
            ("rules", PythonValue::List(values)) => {
                self.report.unrelated(part, "its rules follow");
                let rules = values
                    .into_iter()
                    .map(|value| self.read_rule(value, line, column));
                spider.rules = Some(rules.collect());
            }
            ("rules", value @ PythonValue::Call(_)) => {
                self.report.unrelated(part, "its rule follows");
                spider.rules = Some(vec![self.read_rule(value, line, column)]);
            }
            ("rules", _) => {
                self.computed(part, name, MissingPart::KeepsOut);
                spider.rules = Some(Vec::new());
            }
            ("sitemap_rules" | "sitemap_follow" | "sitemap_filter", _) => {
                self.report.not_converted(
                    part,
                    "which URLs of sitemaps are fetched depends on the sitemap",
                    MissingPart::LetsThrough,
                    Some("rules with the same expressions on `url`"),
                )
            }
            (name, value) if setting_of(name).is_some() => {
                spider.attributes.push(ScrapySetting {
                    part,
                    name: setting_of(name).unwrap_or_default().to_owned(),
                    value,
                });
            }
            (name, _) if is_setting(name) => {
                self.report
                    .unrelated(part, "an attribute that Scrapy does not read as a setting");
            }
            _ => self
                .report
                .unrelated(part, "an attribute of the spider's own code"),
        }
    }

    fn computed(&mut self, part: PartId, name: &str, failure: MissingPart) {
        self.report.not_converted(
            part,
            format!("{name} is computed when the spider runs"),
            failure,
            Some("write the value as a literal"),
        );
    }

    fn read_rule(&mut self, value: PythonValue, line: u32, column: u32) -> SpiderRule {
        let call = match value {
            PythonValue::Call(call) if call.name == "Rule" || is_extractor(&call.name) => call,
            PythonValue::Call(_)
            | PythonValue::Text(_)
            | PythonValue::Number(_)
            | PythonValue::Bool(_)
            | PythonValue::None
            | PythonValue::List(_)
            | PythonValue::Dict(_)
            | PythonValue::Computed => {
                let part = self.add(line, column, "a rule");
                return SpiderRule {
                    part: Some(part),
                    line,
                    problem: Some("it is computed when the spider runs".to_owned()),
                    ..SpiderRule::default()
                };
            }
        };
        let part = self.add(call.line, call.column, format!("{}(…)", call.name));
        let mut rule = SpiderRule {
            part: Some(part),
            line: call.line,
            ..SpiderRule::default()
        };
        for (index, (key, argument)) in call.arguments.into_iter().enumerate() {
            let key = key.unwrap_or_else(|| {
                let names = [
                    "link_extractor",
                    "callback",
                    "cb_kwargs",
                    "follow",
                    "process_links",
                    "process_request",
                    "errback",
                ];
                names.get(index).copied().unwrap_or("…").to_owned()
            });
            match (key.as_str(), argument.value) {
                ("link_extractor", PythonValue::Call(call)) if is_extractor(&call.name) => {
                    self.read_extractor(call, &mut rule);
                }
                ("link_extractor", _) => {
                    let part = self.add(argument.line, argument.column, "a link extractor");
                    let why = "its link extractor is computed or of another class";
                    self.report
                        .not_converted(part, why, MissingPart::KeepsOut, None);
                    rule.problem = Some(why.to_owned());
                }
                (key @ ("process_links" | "process_request"), value)
                    if value != PythonValue::None =>
                {
                    let part = self.add(argument.line, argument.column, format!("{key} = …"));
                    let why = "a function of the spider can drop links";
                    self.report
                        .not_converted(part, why, MissingPart::LetsThrough, None);
                }
                (key, value) => {
                    let part = self.add(argument.line, argument.column, shown(key, &value));
                    self.report
                        .unrelated(part, "what the spider does with the pages");
                    if let ("callback", PythonValue::Text(text)) = (key, value) {
                        rule.callback = Some(text);
                    }
                }
            }
        }
        rule
    }

    fn read_extractor(&mut self, call: Call, rule: &mut SpiderRule) {
        let names = [
            "allow",
            "deny",
            "allow_domains",
            "deny_domains",
            "restrict_xpaths",
            "tags",
            "attrs",
            "canonicalize",
            "unique",
            "process_value",
            "deny_extensions",
            "restrict_css",
            "strip",
            "restrict_text",
            "deny_tags",
            "deny_attrs",
        ];
        for (index, (key, argument)) in call.arguments.into_iter().enumerate() {
            let key = key.unwrap_or_else(|| names.get(index).copied().unwrap_or("…").to_owned());
            let part = self.add(argument.line, argument.column, shown(&key, &argument.value));
            self.read_link_argument(&key, &argument.value, part, rule);
        }
    }

    fn read_link_argument(
        &mut self,
        key: &str,
        value: &PythonValue,
        part: PartId,
        rule: &mut SpiderRule,
    ) {
        let is_empty = matches!(value, PythonValue::None)
            || matches!(value, PythonValue::List(list) if list.is_empty());
        match key {
            "deny_extensions" if *value == PythonValue::None => {
                self.report.unrelated(part, "the default");
            }
            "deny_extensions" => match texts(value) {
                Some(found) => rule.deny_extensions = Some((part, found)),
                None => {
                    self.computed(part, key, MissingPart::LetsThrough);
                    rule.deny_extensions = Some((part, Vec::new()));
                }
            },
            _ if is_empty => self.report.unrelated(part, "empty: it has no effect"),
            "allow" => match expressions(value) {
                Some(found) => rule.allow = Some((part, found)),
                None => {
                    self.computed(part, key, MissingPart::KeepsOut);
                    rule.problem = Some("its allow is computed".to_owned());
                }
            },
            "allow_domains" => match texts(value) {
                Some(found) => rule.allow_domains = Some((part, found)),
                None => {
                    self.computed(part, key, MissingPart::KeepsOut);
                    rule.problem = Some("its allow_domains are computed".to_owned());
                }
            },
            "deny" => match expressions(value) {
                Some(found) => rule.deny = Some((part, found)),
                None => self.computed(part, key, MissingPart::LetsThrough),
            },
            "deny_domains" => match texts(value) {
                Some(found) => rule.deny_domains = Some((part, found)),
                None => self.computed(part, key, MissingPart::LetsThrough),
            },
            "restrict_xpaths" | "restrict_css" | "restrict_text" | "tags" | "attrs"
            | "deny_tags" | "deny_attrs" | "process_value" => {
                self.report.not_converted(
                    part,
                    "which links of a page are followed depends on the page",
                    MissingPart::LetsThrough,
                    Some("an expression in `allow` that fits the links"),
                );
            }
            "canonicalize" | "unique" | "strip" => {
                self.report.unrelated(part, "how the spider collects links");
            }
            _ => self.report.not_converted(
                part,
                "an argument that is not known",
                MissingPart::LetsThrough,
                None,
            ),
        }
    }
}

struct SettingsCollector<'m> {
    modules: &'m [Vec<ModuleSetting>],
    /// The settings that may still be collected.
    steps: &'m mut usize,
    visited: &'m mut BTreeSet<usize>,
}

impl SettingsCollector<'_> {
    /// Adds the settings of a file, with those that it imports where it does.
    fn collect(&mut self, index: usize, found: &mut Vec<ScrapySetting>, depth: usize) {
        self.visited.insert(index);
        if depth > MAX_IMPORTS {
            return;
        }
        let modules = self.modules;
        for setting in modules.get(index).into_iter().flatten() {
            if *self.steps == 0 {
                return;
            }
            *self.steps -= 1;
            match setting {
                ModuleSetting::Own(setting) => found.push(setting.clone()),
                ModuleSetting::All(index) => self.collect(*index, found, depth + 1),
                ModuleSetting::One(index, name) => {
                    let mut imported = Vec::new();
                    self.collect(*index, &mut imported, depth + 1);
                    found.extend(imported.into_iter().rfind(|setting| setting.name == *name));
                }
            }
        }
    }
}

/// The longest chain of files of settings that import each other.
const MAX_IMPORTS: usize = 20;
/// The most settings that are collected.
const MAX_SETTINGS: usize = 100_000;

/// Returns the setting that an attribute of a spider is.
fn setting_of(attribute: &str) -> Option<&'static str> {
    let found = SETTING_ATTRIBUTES
        .iter()
        .find(|(name, _)| *name == attribute);
    found.map(|(_, setting)| *setting)
}

/// Returns `true` for settings by which a file of settings is recognized.
fn is_setting_of_scrapy(name: &str) -> bool {
    matches!(
        name,
        "BOT_NAME"
            | "SPIDER_MODULES"
            | "NEWSPIDER_MODULE"
            | "DOWNLOADER_MIDDLEWARES"
            | "SPIDER_MIDDLEWARES"
            | "ITEM_PIPELINES"
            | "USER_AGENT"
            | "CONCURRENT_REQUESTS"
    ) || crate::systems::scrapy::settings::is_converted(name)
}

fn is_extractor(name: &str) -> bool {
    name.ends_with("LinkExtractor")
}

fn is_setting(name: &str) -> bool {
    name.len() > 2
        && name
            .chars()
            .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
}

/// Returns a text, or the texts of a list.
fn texts(value: &PythonValue) -> Option<Vec<String>> {
    match value {
        PythonValue::Text(text) => Some(vec![text.clone()]),
        PythonValue::List(values) => values
            .iter()
            .map(|value| value.as_text().map(str::to_owned))
            .collect(),
        PythonValue::Number(_)
        | PythonValue::Bool(_)
        | PythonValue::None
        | PythonValue::Dict(_)
        | PythonValue::Call(_)
        | PythonValue::Computed => None,
    }
}

/// Returns the expressions of a text, of `re.compile`, or of a list of them.
fn expressions(value: &PythonValue) -> Option<Vec<LinkExpression>> {
    match value {
        PythonValue::Text(text) => Some(vec![LinkExpression {
            text: text.clone(),
            ignore_case: false,
        }]),
        PythonValue::Call(call) if call.name == "compile" => Some(vec![compiled(call)?]),
        PythonValue::List(values) => {
            let found: Option<Vec<Vec<LinkExpression>>> = values.iter().map(expressions).collect();
            found.map(|found| found.concat())
        }
        PythonValue::Number(_)
        | PythonValue::Bool(_)
        | PythonValue::None
        | PythonValue::Dict(_)
        | PythonValue::Call(_)
        | PythonValue::Computed => None,
    }
}

fn compiled(call: &Call) -> Option<LinkExpression> {
    let mut arguments = call.arguments.iter();
    let (_, pattern) = arguments.next()?;
    let PythonValue::Text(text) = &pattern.value else {
        return None;
    };
    let ignore_case = match arguments.next() {
        None => false,
        Some((_, flags)) if flags.value == PythonValue::Text("re.I".to_owned()) => true,
        Some(_) => return None,
    };
    Some(LinkExpression {
        text: text.clone(),
        ignore_case,
    })
}

/// Shows an assignment. Values are shown for names that say which pages are fetched, and how fast.
fn shown(name: &str, value: &PythonValue) -> String {
    let is_known = SCOPE.contains(&name)
        || matches!(
            name,
            "name"
                | "allow"
                | "deny"
                | "allow_domains"
                | "deny_domains"
                | "deny_extensions"
                | "callback"
                | "follow"
                | "restrict_xpaths"
                | "restrict_css"
        )
        || crate::systems::scrapy::settings::is_converted(name);
    match show(value).filter(|_| is_known) {
        Some(value) => format!("{name} = {value}"),
        None => format!("{name} = …"),
    }
}

fn show(value: &PythonValue) -> Option<String> {
    match value {
        PythonValue::Text(text) => Some(format!("{text:?}")),
        PythonValue::Number(number) => Some(number.to_string()),
        PythonValue::Bool(true) => Some("True".to_owned()),
        PythonValue::Bool(false) => Some("False".to_owned()),
        PythonValue::None => Some("None".to_owned()),
        PythonValue::List(values) => {
            let values: Option<Vec<String>> = values.iter().map(show).collect();
            Some(format!("[{}]", values?.join(", ")))
        }
        PythonValue::Call(call) if call.name == "compile" => Some("re.compile(…)".to_owned()),
        PythonValue::Dict(_) | PythonValue::Call(_) | PythonValue::Computed => None,
    }
}
