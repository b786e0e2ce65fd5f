//! When each rule runs, and which responses it judges (policy.md section 4).

use crate::policy::condition::Condition;
use crate::policy::field::Field;
use crate::policy::rule::{ByHeaders, HeaderFields, Mode, PolicyStage};
use crate::policy::source::tree::{SourceBody, SourceFilter};
use crate::vocab::problem::{Place, Problem};
use crate::vocab::problems::Problems;

use super::drafts::{Draft, Drafts, Home};

/// The place of a rule in the order of the stages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placing {
    /// The first stage at which it may run.
    pub(super) floor: PolicyStage,
    /// The stage at which every fact that it and the groups around it name is known.
    pub(super) stage: PolicyStage,
    /// The same two if headers give what they can.
    pub(super) early: Early,
    /// What headers would have to give for that: for the stage, and for the floor.
    headed: HeaderFields,
    headed_floor: HeaderFields,
    /// The first stage at which its condition and the guards around it could be decided.
    pub(super) earliest: PolicyStage,
    /// It judges 2xx with content only.
    pub(super) content_only: bool,
    /// It, or a group around it, names `status` or a header.
    lifts: bool,
    /// It, the groups around it, what chooses between it and others and what stops before it name scheme, host, port
    /// and crawler only.
    pub(super) connects: bool,
    /// It stands in a `match: first` list.
    pub(super) chosen: bool,
    /// What its direct children share, if it is `match: first`.
    pub(super) first: Option<FirstList>,
}

/// When a rule runs if headers give what they can.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    floor: PolicyStage,
    pub(super) stage: PolicyStage,
}

impl Placing {
    /// When it runs if headers give what else the document says; none if that changes nothing.
    pub(super) fn by_headers(&self) -> Option<ByHeaders> {
        let Early { floor, stage } = self.early;
        let earlier = stage < self.stage || floor < self.floor;
        earlier.then_some(ByHeaders {
            floor: (self.headed_floor, floor),
            stage: (self.headed, stage),
        })
    }
}

/// What the direct children of a `match: first` group name together.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstList {
    /// The stage at which all of them run.
    pub(super) stage: PolicyStage,
    /// The same if headers give what they can.
    early: PolicyStage,
    headed: HeaderFields,
    content: bool,
    lifts: bool,
}

/// Places every rule.
pub(super) fn place(drafts: &Drafts<'_>, problems: &mut Problems) -> Vec<Placing> {
    let mut placings: Vec<Placing> = Vec::with_capacity(drafts.all.len());
    let mut veiled = false;
    let mut home = Home::Document;
    for (at, draft) in drafts.all.iter().enumerate() {
        let before = problems.enter(Some(draft.source.name().clone()));
        // A stop never reaches over the end of its list.
        veiled &= home == draft.home;
        home = draft.home;
        let outermost = if home == Home::Global {
            GLOBAL
        } else {
            OUTERMOST
        };
        let above = draft
            .parent
            .and_then(|parent| placings.get(parent))
            .copied()
            .unwrap_or(outermost);
        let placing = one(draft, &above, problems);
        let first =
            first_place(draft).map(|place| first_list(drafts, at, &placing, place, problems));
        let connects = placing.connects && !veiled && !follows_other_facts(drafts, draft, at);
        veiled |= !connects && stops(draft) && placing.stage == PolicyStage::Request;
        placings.push(Placing {
            first,
            connects,
            ..placing
        });
        problems.enter(before);
    }
    placings
}

/// What stands around the outermost rules.
const OUTERMOST: Placing = Placing {
    floor: PolicyStage::Request,
    stage: PolicyStage::Request,
    early: Early {
        floor: PolicyStage::Request,
        stage: PolicyStage::Request,
    },
    headed: HeaderFields {
        meta_robots: false,
        canonical: false,
    },
    headed_floor: HeaderFields {
        meta_robots: false,
        canonical: false,
    },
    earliest: PolicyStage::Request,
    content_only: false,
    lifts: false,
    connects: true,
    chosen: false,
    first: None,
};

/// What stands around the outermost rules of the global space: they are `match: first`, and ask nothing but the host.
const GLOBAL: Placing = Placing {
    first: Some(FirstList {
        stage: PolicyStage::Request,
        early: PolicyStage::Request,
        headed: HeaderFields {
            meta_robots: false,
            canonical: false,
        },
        content: false,
        lifts: false,
    }),
    ..OUTERMOST
};

fn one(draft: &Draft<'_>, above: &Placing, problems: &mut Problems) -> Placing {
    let names = Names::of(&draft.condition);
    let own = draft.condition.stage();
    let explicit = draft.source.stage.as_ref();
    let facts = above.stage.max(own.unwrap_or(PolicyStage::Request));
    let early = above
        .early
        .stage
        .max(names.early.unwrap_or(PolicyStage::Request));
    if let Some(stage) = explicit.filter(|stage| stage.value < early) {
        let word = stage.value.as_str();
        let message =
            format!("`stage: {word}` is before the facts that the rule, or one around it, names");
        let problem = Problem::error(&stage.place, message).found(word);
        problems.push(problem.help(format!(
            "write `stage: {}`, or leave it out",
            early.as_str()
        )));
    }
    soft_error_waits(draft, facts, problems);
    let explicit = draft.waits_for().unwrap_or(PolicyStage::Request);
    let list = above.first;
    let in_list = list.map_or(PolicyStage::Request, |list| list.stage);
    let floor = above.floor.max(explicit).max(in_list);
    let early_in_list = list.map_or(PolicyStage::Request, |list| list.early);
    let early_floor = above.early.floor.max(explicit).max(early_in_list);
    let in_headed_list = list.map_or(HeaderFields::default(), |list| list.headed);
    // A condition that names no fact counts as naming those of its siblings.
    let siblings = list.filter(|_| own.is_none());
    let content = names.content || siblings.is_some_and(|list| list.content);
    let lifts = above.lifts || names.lifts || siblings.is_some_and(|list| list.lifts);
    Placing {
        floor,
        stage: facts.max(floor),
        early: Early {
            floor: early_floor,
            stage: early.max(early_floor),
        },
        headed: in_headed_list.union(above.headed).union(names.headed),
        headed_floor: in_headed_list.union(above.headed_floor),
        earliest: above
            .earliest
            .max(earliest(&draft.condition))
            .max(early_floor),
        content_only: content && !lifts,
        lifts,
        connects: above.connects && names.connects,
        chosen: list.is_some(),
        first: None,
    }
}

/// `as` is for the document stage, and only a rule that says so, or names what a document says, is one of that stage.
fn soft_error_waits(draft: &Draft<'_>, facts: PolicyStage, problems: &mut Problems) {
    let SourceBody::Filter(SourceFilter {
        soft_error: Some(soft),
        ..
    }) = &draft.source.body
    else {
        return;
    };
    let said = draft
        .source
        .stage
        .as_ref()
        .map(|stage| stage.value)
        .max(Some(facts));
    if said != Some(PolicyStage::Document) {
        let message = "`as` is for rules of the document stage, and this one names nothing that a document says";
        problems
            .push(Problem::error(&soft.place, message).help("write `stage: document` beside it"));
    }
}

/// Whether a rule ends its stage for those behind it: at a CONNECT nobody could say whether they run.
fn stops(draft: &Draft<'_>) -> bool {
    match &draft.source.body {
        SourceBody::Group(group) => group.stop && draft.mode == Mode::Enforce,
        SourceBody::Filter(_) => false,
    }
}

fn first_place<'s>(draft: &Draft<'s>) -> Option<&'s Place> {
    match &draft.source.body {
        SourceBody::Group(group) => group.first.as_ref(),
        SourceBody::Filter(_) => None,
    }
}

/// All direct children must run at one stage.
fn first_list(
    drafts: &Drafts<'_>,
    at: usize,
    group: &Placing,
    place: &Place,
    problems: &mut Problems,
) -> FirstList {
    let mut list = FirstList {
        stage: group.stage,
        early: group.early.stage,
        headed: group.headed,
        content: false,
        lifts: false,
    };
    let mut stages: Vec<(&str, PolicyStage)> = Vec::new();
    let mode = drafts.all.get(at).map_or(Mode::Enforce, |group| group.mode);
    // One that does not take part counts as absent; so does one in shadow, unless all of the list is.
    for (_, child) in drafts.children(at).filter(|(_, child)| child.mode == mode) {
        let names = Names::of(&child.condition);
        list.content |= names.content;
        list.lifts |= names.lifts;
        list.headed = list.headed.union(names.headed);
        let explicit = child.waits_for();
        if let Some(stage) = child.condition.stage().max(explicit) {
            stages.push((
                child.source.name().as_str(),
                stage.max(group.stage).max(group.floor),
            ));
            list.early = list
                .early
                .max(names.early.max(explicit).unwrap_or(group.early.stage));
        }
    }
    let latest = stages
        .iter()
        .map(|(_, stage)| *stage)
        .max()
        .unwrap_or(group.stage);
    if let Some((early, stage)) = stages.iter().find(|(_, stage)| *stage != latest) {
        let late = stages
            .iter()
            .find(|(_, stage)| *stage == latest)
            .map_or("", |(id, _)| id);
        let message = format!(
            "the rules of `match: first` must run at one stage; `{early}` runs at {}, `{late}` at {}",
            stage.as_str(),
            latest.as_str()
        );
        let instead = format!("write `stage: {}` beside `match`", latest.as_str());
        problems.push(Problem::error(place, message).help(instead));
    }
    let list = FirstList {
        stage: latest.max(group.stage),
        ..list
    };
    if mode == Mode::Enforce {
        check_shadows(drafts, at, &list, problems);
    }
    list
}

/// A rule in shadow that would move the rules beside it, if it were live: to another stage, or to other responses.
fn check_shadows(drafts: &Drafts<'_>, at: usize, list: &FirstList, problems: &mut Problems) {
    let live = || {
        drafts
            .children(at)
            .map(|(_, child)| child)
            .filter(|child| child.mode == Mode::Enforce)
    };
    let moved = live().any(|child| child.condition.stage().is_none());
    for (_, child) in drafts
        .children(at)
        .filter(|(_, child)| child.mode == Mode::Shadow)
    {
        let names = Names::of(&child.condition);
        let explicit = child.source.stage.as_ref().map(|stage| stage.value);
        let stage = child.condition.stage().max(explicit);
        let elsewhere = stage.is_some_and(|stage| {
            stage > list.stage || stage < list.stage && live().next().is_some()
        });
        let others = moved && (names.content && !list.content || names.lifts && !list.lifts);
        if elsewhere || others {
            let message = "in this `match: first` list the rule would move the rules beside it to another stage or \
                           to other responses, so it cannot be tried in shadow";
            let problem =
                Problem::error(&child.source.place, message).in_rule(Some(child.source.name()));
            problems.push(problem.help("write the list a second time, in shadow as a whole"));
        }
    }
}

/// Whether a rule before it in its `match: first` list names more than scheme, host, port and crawler.
fn follows_other_facts(drafts: &Drafts<'_>, draft: &Draft<'_>, at: usize) -> bool {
    let Some(parent) = draft.parent else {
        return false;
    };
    drafts.all.get(parent).is_some_and(Draft::is_first_list)
        && drafts
            .children(parent)
            .take_while(|(place, _)| *place < at)
            .filter(|(_, sibling)| sibling.mode == draft.mode)
            .any(|(_, sibling)| !Names::of(&sibling.condition).connects)
}

/// Which groups of fields a condition names.
struct Names {
    content: bool,
    lifts: bool,
    connects: bool,
    headed: HeaderFields,
    /// The stage at which all of them are known if headers give what they can; none if it names none.
    early: Option<PolicyStage>,
}

impl Names {
    fn of(condition: &Condition) -> Self {
        let mut names = Self {
            content: false,
            lifts: false,
            connects: true,
            headed: HeaderFields::default(),
            early: None,
        };
        condition.each_field(&mut |field| {
            names.early = names.early.max(Some(field.earliest()));
            names.headed.meta_robots |= *field == Field::MetaRobots;
            names.headed.canonical |= *field == Field::Canonical;
            names.content |= field.needs_content();
            names.lifts |= field.lifts_content_clause();
            names.connects &= matches!(
                field,
                Field::Scheme | Field::Host | Field::Port | Field::Authority | Field::Crawler
            );
        });
        names
    }
}

/// The first stage at which a condition could be decided: as soon as one part can decide the whole.
fn earliest(condition: &Condition) -> PolicyStage {
    match condition {
        Condition::Always => PolicyStage::Request,
        Condition::All(parts) | Condition::Any(parts) => parts
            .iter()
            .map(earliest)
            .min()
            .unwrap_or(PolicyStage::Request),
        Condition::Not(part) => earliest(part),
        Condition::Atom(atom) => atom.field.earliest(),
    }
}
