//! The modules of a project, and the classes in them with their bases.

use std::collections::BTreeMap;

use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, Place};
use crate::systems::scrapy::python::{self, PythonImport, PythonNames, Statement, StatementKind};
use crate::systems::scrapy::token::{Token, tokenize};

/// Attributes of a spider that decide which pages it may fetch.
pub(super) const SCOPE: [&str; 6] = [
    "allowed_domains",
    "start_urls",
    "rules",
    "sitemap_rules",
    "sitemap_follow",
    "sitemap_filter",
];

/// The longest chain of imports that is followed.
const MAX_CHAIN: usize = 100;

/// The most ancestors of a class.
const MAX_ANCESTORS: usize = 32;

/// The spiders of Scrapy that others inherit from.
const SPIDERS: [&str; 6] = [
    "Spider",
    "CrawlSpider",
    "XMLFeedSpider",
    "CSVFeedSpider",
    "SitemapSpider",
    "InitSpider",
];

/// A file of Python.
pub(super) struct PythonModule {
    pub path: String,
    pub statements: Vec<Statement>,
    names: PythonNames,
}

/// The files that were given.
pub(super) struct PythonModules {
    pub modules: Vec<PythonModule>,
    /// The modules, each after those that it imports.
    order: Vec<usize>,
}

impl PythonModules {
    /// Reads and parses the files. Names that one imports from another have their values.
    pub(super) fn read(input: &ImportInput<'_>) -> Result<Self, ImportError> {
        let mut paths = Vec::new();
        let mut tokens = Vec::new();
        for path in &input.paths {
            let text = input.read_text(&path.path, MAX_DOCUMENT)?;
            let found = tokenize(&text.text).map_err(|(line, why)| {
                let place = Place {
                    line,
                    ..Place::start(&path.path)
                };
                ImportError::invalid(&place, why)
            })?;
            paths.push(path.path.clone());
            tokens.push(found);
        }
        let order = import_order(&paths, &tokens);
        let mut parsed: BTreeMap<usize, PythonModule> = BTreeMap::new();
        for index in &order {
            let (Some(path), Some(tokens)) = (paths.get(*index), tokens.get(*index)) else {
                continue;
            };
            let mut names = PythonNames::new();
            let statements = {
                let values_of = |module: &str| {
                    let found = resolve(&paths, path, module)?;
                    parsed.get(&found).map(|module| &module.names)
                };
                python::parse(tokens, &mut names, &values_of)
            };
            let module = PythonModule {
                path: path.clone(),
                statements,
                names,
            };
            parsed.insert(*index, module);
        }
        Ok(Self {
            modules: parsed.into_values().collect(),
            order,
        })
    }

    /// Returns the index of the file of a module that another file imports.
    pub(super) fn resolve(&self, from: usize, module: &str) -> Option<usize> {
        let paths: Vec<&str> = self.modules.iter().map(|it| it.path.as_str()).collect();
        let from = paths.get(from).copied().unwrap_or_default();
        resolve(&paths, from, module)
    }
}

/// Returns the files in an order in which each comes after those that it imports.
fn import_order(paths: &[String], tokens: &[Vec<Token>]) -> Vec<usize> {
    let files = paths.iter().zip(tokens);
    let imports = files.map(|(path, tokens)| {
        let modules = python::imported_modules(tokens).into_iter();
        let found = modules.filter_map(|module| resolve(paths, path, &module));
        found.collect()
    });
    let imports: Vec<Vec<usize>> = imports.collect();
    let mut order = Vec::new();
    let mut visited = vec![false; paths.len()];
    for index in 0..paths.len() {
        visit(index, &imports, &mut visited, &mut order, 0);
    }
    order
}

fn visit(
    index: usize,
    imports: &[Vec<usize>],
    visited: &mut [bool],
    order: &mut Vec<usize>,
    depth: usize,
) {
    match visited.get_mut(index) {
        Some(visited) if !*visited && depth < MAX_CHAIN => *visited = true,
        Some(_) | None => return,
    }
    for next in imports.get(index).into_iter().flatten() {
        visit(*next, imports, visited, order, depth + 1);
    }
    order.push(index);
}

/// Returns `true` for Scrapy and its modules.
pub(super) fn is_scrapy(module: &str) -> bool {
    module == "scrapy" || module.starts_with("scrapy.")
}

/// Returns the path of a module without its end: `spiders/base`.
fn module_path(path: &str) -> &str {
    let path = path.strip_suffix(".py").unwrap_or(path);
    path.strip_suffix("/__init__").unwrap_or(path)
}

/// Returns the file of a module that another file imports: for a name with leading dots the one in the same package, else
/// the only file whose path ends like the name, or the other way round.
fn resolve<S: AsRef<str>>(paths: &[S], from: &str, module: &str) -> Option<usize> {
    if is_scrapy(module) {
        return None;
    }
    let dots = module.len() - module.trim_start_matches('.').len();
    let module: Vec<&str> = module.split('.').filter(|part| !part.is_empty()).collect();
    if dots > 0 {
        let mut package: Vec<&str> = from.split('/').collect();
        package.truncate(package.len().saturating_sub(dots));
        package.extend(&module);
        let path = package.join("/");
        let found = paths.iter().position(|it| module_path(it.as_ref()) == path);
        if found.is_some() {
            return found;
        }
    }
    let mut best: Option<(usize, usize)> = None;
    let mut is_unique = false;
    for (index, path) in paths.iter().enumerate() {
        // A module of another package may have the name of this file.
        if path.as_ref() == from {
            continue;
        }
        let parts = module_path(path.as_ref()).split('/');
        let parts: Vec<&str> = parts.filter(|part| *part != ".").collect();
        let fits = parts.iter().rev().zip(module.iter().rev());
        let equal = fits.take_while(|(one, other)| one == other).count();
        if equal == 0 || equal < parts.len().min(module.len()) {
            continue;
        }
        match best {
            Some((_, most)) if most > equal => {}
            Some((_, most)) if most == equal => is_unique = false,
            Some(_) | None => {
                best = Some((index, equal));
                is_unique = true;
            }
        }
    }
    best.filter(|_| is_unique).map(|(index, _)| index)
}

/// A class of a file.
pub(super) struct PythonClass<'m> {
    pub module: usize,
    pub name: &'m str,
    pub line: u32,
    pub column: u32,
    pub body: &'m [Statement],
    pub bases: Vec<BaseClass>,
    /// It has attributes or functions that a spider has.
    pub has_scope: bool,
    /// It has a name: Scrapy runs no spider without one.
    pub has_name: bool,
    /// Another class inherits from it.
    pub has_heirs: bool,
}

/// A class that another one inherits from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum BaseClass {
    /// The index of a class of the files.
    Own(usize),
    /// A class of Scrapy, by its name.
    Scrapy(String),
    /// A class that is not among the files.
    Unknown(String),
}

/// The classes of all files.
pub(super) struct PythonClasses<'m> {
    pub classes: Vec<PythonClass<'m>>,
    orders: Vec<Option<Vec<usize>>>,
}

/// The meaning of a name in a module.
#[derive(Clone)]
enum Binding {
    Class(usize),
    Module(usize),
    /// It comes from this module, which is not among the files.
    External(String),
}

type Bindings<'m> = BTreeMap<&'m str, Binding>;

impl<'m> PythonClasses<'m> {
    pub(super) fn new(modules: &'m PythonModules) -> Self {
        let mut classes = Vec::new();
        let mut bindings: BTreeMap<usize, Bindings<'m>> = BTreeMap::new();
        for index in &modules.order {
            let Some(module) = modules.modules.get(*index) else {
                continue;
            };
            let mut own = Bindings::new();
            for statement in &module.statements {
                match &statement.kind {
                    StatementKind::Class { name, bases, body } => {
                        let bases = bases
                            .iter()
                            .filter_map(|base| base_class(base, &own, &bindings));
                        let class = PythonClass {
                            module: *index,
                            name,
                            line: statement.line,
                            column: statement.column,
                            body,
                            bases: bases.collect(),
                            has_scope: body.iter().any(is_scope),
                            has_name: body.iter().any(is_name),
                            has_heirs: false,
                        };
                        own.insert(name, Binding::Class(classes.len()));
                        classes.push(class);
                    }
                    StatementKind::Import(import) => {
                        bind(import, (modules, *index), &bindings, &mut own);
                    }
                    StatementKind::Assign(..)
                    | StatementKind::Function(_)
                    | StatementKind::Text
                    | StatementKind::Other { .. } => {}
                }
            }
            bindings.insert(*index, own);
        }
        let bases: Vec<usize> = classes
            .iter()
            .flat_map(|class: &PythonClass<'_>| &class.bases)
            .filter_map(BaseClass::own)
            .collect();
        for base in bases {
            if let Some(class) = classes.get_mut(base) {
                class.has_heirs = true;
            }
        }
        let orders = linearize(&classes);
        Self { classes, orders }
    }

    /// Returns a class and its ancestors in the order in which Python looks for attributes; `None` if Python
    /// refuses the class, or if there are too many.
    pub(super) fn ancestors(&self, class: usize) -> Option<&[usize]> {
        self.orders.get(class)?.as_deref()
    }

    /// Returns the bases of a class and of its ancestors that are not among the files.
    pub(super) fn foreign_bases(&self, ancestors: &[usize]) -> Vec<&BaseClass> {
        let classes = ancestors
            .iter()
            .filter_map(|index| self.classes.get(*index));
        let bases = classes.flat_map(|class| &class.bases);
        bases.filter(|base| base.own().is_none()).collect()
    }
}

impl BaseClass {
    /// Returns the index of a class of the files.
    fn own(&self) -> Option<usize> {
        match self {
            Self::Own(index) => Some(*index),
            Self::Scrapy(_) | Self::Unknown(_) => None,
        }
    }
}

/// Returns `true` for a member that a spider has.
fn is_scope(statement: &Statement) -> bool {
    match &statement.kind {
        StatementKind::Assign(name, _) => {
            SCOPE.contains(&name.as_str()) || name == "custom_settings"
        }
        StatementKind::Function(function) => {
            matches!(function.name.as_str(), "start_requests" | "parse")
        }
        StatementKind::Class { .. }
        | StatementKind::Import(_)
        | StatementKind::Text
        | StatementKind::Other { .. } => false,
    }
}

/// Returns `true` for a member that sets the name of a spider.
fn is_name(statement: &Statement) -> bool {
    match &statement.kind {
        StatementKind::Assign(name, _) => name == "name",
        StatementKind::Function(function) => function.name == "name",
        StatementKind::Other { names, .. } => names.iter().any(|name| name == "name"),
        StatementKind::Class { .. } | StatementKind::Import(_) | StatementKind::Text => false,
    }
}

/// Returns the order of ancestors of each class by C3: a class comes before its bases, and these in their order.
/// The bases of a class come before it, as it was read.
fn linearize(classes: &[PythonClass<'_>]) -> Vec<Option<Vec<usize>>> {
    let mut orders: Vec<Option<Vec<usize>>> = Vec::with_capacity(classes.len());
    for (index, class) in classes.iter().enumerate() {
        let bases: Vec<usize> = class.bases.iter().filter_map(BaseClass::own).collect();
        let of_base = |base: &usize| orders.get(*base).cloned().flatten();
        let known: Option<Vec<Vec<usize>>> = bases.iter().map(of_base).collect();
        let order = known.and_then(|mut sequences| {
            sequences.push(bases);
            merge(index, sequences)
        });
        orders.push(order);
    }
    orders
}

/// Merges the orders of the bases of a class, and the bases themselves.
fn merge(class: usize, mut sequences: Vec<Vec<usize>>) -> Option<Vec<usize>> {
    let mut order = vec![class];
    loop {
        sequences.retain(|sequence| !sequence.is_empty());
        if sequences.is_empty() {
            return Some(order);
        }
        if sequences.len() > MAX_ANCESTORS || order.len() > MAX_ANCESTORS {
            return None;
        }
        let is_later = |class: usize| {
            let mut rests = sequences
                .iter()
                .flat_map(|sequence| sequence.iter().skip(1));
            rests.any(|other| *other == class)
        };
        let mut heads = sequences.iter().filter_map(|sequence| sequence.first());
        let next = *heads.find(|head| !is_later(**head))?;
        order.push(next);
        for sequence in &mut sequences {
            sequence.retain(|other| *other != next);
        }
    }
}

/// Returns `true` for the name of a spider of Scrapy.
pub(super) fn is_scrapy_spider(name: &str) -> bool {
    SPIDERS.contains(&name)
}

/// Returns the class that a name means; `None` for what has no attributes of a spider.
fn base_class(
    base: &str,
    own: &Bindings<'_>,
    bindings: &BTreeMap<usize, Bindings<'_>>,
) -> Option<BaseClass> {
    let (prefix, name) = base.rsplit_once('.').unwrap_or(("", base));
    let external = |module: &str| {
        if is_scrapy(module) {
            return Some(BaseClass::Scrapy(name.to_owned()));
        }
        let is_harmless = matches!(module, "abc" | "typing" | "typing_extensions" | "enum");
        (!is_harmless).then(|| BaseClass::Unknown(base.to_owned()))
    };
    let of_binding = |binding: &Binding| match binding {
        Binding::Class(index) => Some(BaseClass::Own(*index)),
        Binding::Module(_) => Some(BaseClass::Unknown(base.to_owned())),
        Binding::External(module) => external(module),
    };
    if prefix.is_empty() {
        return match own.get(name) {
            Some(binding) => of_binding(binding),
            None if name == "object" => None,
            // A fragment without its imports.
            None if is_scrapy_spider(name) => Some(BaseClass::Scrapy(name.to_owned())),
            None => Some(BaseClass::Unknown(base.to_owned())),
        };
    }
    match own.get(prefix) {
        Some(Binding::Module(index)) => {
            match bindings.get(index).and_then(|names| names.get(name)) {
                Some(binding) => of_binding(binding),
                None => Some(BaseClass::Unknown(base.to_owned())),
            }
        }
        Some(Binding::External(module)) => external(module),
        Some(Binding::Class(_)) => Some(BaseClass::Unknown(base.to_owned())),
        None => external(prefix),
    }
}

/// Gives names their meaning by an import in a file.
fn bind<'m>(
    import: &'m PythonImport,
    (modules, from): (&PythonModules, usize),
    bindings: &BTreeMap<usize, Bindings<'m>>,
    own: &mut Bindings<'m>,
) {
    let resolve = |module: &str| modules.resolve(from, module);
    let names_of = |module: &str| bindings.get(&resolve(module)?);
    match import {
        PythonImport::Modules(imported) => {
            for (local, module) in imported {
                let found = resolve(module).map(Binding::Module);
                let binding = found.unwrap_or_else(|| Binding::External(module.clone()));
                own.insert(local, binding);
            }
        }
        PythonImport::Names { module, names } => {
            for (local, name) in names {
                let found = names_of(module).and_then(|names| names.get(name.as_str()).cloned());
                let dot = if module.ends_with('.') { "" } else { "." };
                let is_module = || resolve(&format!("{module}{dot}{name}"));
                let binding = found
                    .or_else(|| is_module().map(Binding::Module))
                    .unwrap_or_else(|| Binding::External(module.clone()));
                own.insert(local, binding);
            }
        }
        PythonImport::All { module } => {
            let public = names_of(module).into_iter().flatten();
            let public = public.filter(|(name, _)| !name.starts_with('_'));
            own.extend(public.map(|(name, binding)| (*name, binding.clone())));
        }
    }
}
