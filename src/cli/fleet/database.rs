//! `crawlgate fleet found`, `migrate`, `status`, `forget` and `owner`: what the database of a fleet says, and changes to
//! it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crawlgate_fleet::node::Incarnation;
use tokio::runtime::Builder;

use crate::config::settings::{FleetConfig, Settings};
use crate::fleet::store::{
    self, ForgetOutcome, FoundOutcome, Founding, MemberReport, PostgresConfig, StoreError,
    StoreSession,
};
use crate::model::units::format_duration;
use crate::urls::target::canonical_host;

use crate::cli::args::{FleetForgetArgs, FleetOwnerArgs};
use crate::cli::console::{self, note, report_cannot_run, report_invalid};
use crate::cli::{Exit, inputs};

/// A command for the database.
pub(super) enum StoreAction<'a> {
    Found { restored: bool },
    Migrate,
    Status,
    Forget(&'a FleetForgetArgs),
    Owner(&'a FleetOwnerArgs),
}

/// Runs the command. Exits with 1 if there is no such node or fleet member to change, with 3 if the database cannot be
/// used.
pub(super) fn run(config: Option<&Path>, action: &StoreAction<'_>) -> Result<Exit, Exit> {
    let settings = inputs::load_config(config)?;
    let (fleet, postgres) = fleet_settings(&settings)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| report_cannot_run(&error))?;
    let done = runtime.block_on(async {
        match action {
            StoreAction::Found { restored } => run_found(fleet, &postgres, *restored).await,
            StoreAction::Migrate => run_migrate(&postgres).await,
            StoreAction::Status => run_status(&postgres).await,
            StoreAction::Forget(forget) => run_forget(&postgres, forget).await,
            StoreAction::Owner(owner) => run_owner(&postgres, owner).await,
        }
    });
    done.map_err(|error| report_cannot_run(&error))
}

fn fleet_settings(settings: &Settings) -> Result<(&FleetConfig, PostgresConfig), Exit> {
    let Some(fleet) = &settings.fleet else {
        let text = "the configuration has no `fleet`: this proxy is the only one";
        return Err(report_invalid(&text));
    };
    match settings.store.postgres() {
        Some(postgres) => Ok((fleet, postgres)),
        None => {
            let text = "a fleet needs a database: set store.kind to postgres, and store.url";
            Err(report_invalid(&text))
        }
    }
}

async fn run_found(
    fleet: &FleetConfig,
    postgres: &PostgresConfig,
    restored: bool,
) -> Result<Exit, StoreError> {
    let founding = Founding {
        name: fleet.name.clone(),
        lease: fleet.lease,
        restored,
    };
    let place = &postgres.url;
    Ok(match store::found(postgres, &founding).await? {
        FoundOutcome::Founded => {
            let text = format!("the fleet `{}` is founded in {place}\n", fleet.name);
            console::print(&text, Exit::Success)
        }
        FoundOutcome::Restored => {
            let wait = format_duration(fleet.lease * 5 / 2);
            let text = format!("{place} ends every earlier lease: hosts wait for {wait}\n");
            console::print(&text, Exit::Success)
        }
        FoundOutcome::Exists(name) => {
            let text = format!("{place} has the fleet `{name}` already: nothing is changed\n");
            console::print(&text, Exit::Success)
        }
    })
}

async fn run_migrate(postgres: &PostgresConfig) -> Result<Exit, StoreError> {
    let (before, after) = store::migrate(postgres).await?;
    let text = match before == after {
        true => format!("the tables have version {after} already\n"),
        false => format!("the tables have version {after}, before {before}\n"),
    };
    Ok(console::print(&text, Exit::Success))
}

async fn run_status(postgres: &PostgresConfig) -> Result<Exit, StoreError> {
    let (session, record) = StoreSession::open(postgres).await?;
    let before = session.members().await?;
    note(&format!(
        "watching the members for {}",
        format_duration(watch_time(record.lease))
    ));
    tokio::time::sleep(watch_time(record.lease)).await;
    let members = session.members().await?;
    let mut text = format!(
        "fleet {}, lease {}, {}\n",
        record.name,
        format_duration(record.lease),
        postgres.url
    );
    let counters: BTreeMap<Incarnation, u64> = before
        .iter()
        .map(|member| (member.incarnation, member.counter))
        .collect();
    let width = members.iter().map(|m| m.node.len()).max().unwrap_or(0);
    let mut owned = 0;
    for member in &members {
        owned += member.partitions;
        let is_renewing = counters.get(&member.incarnation) != Some(&member.counter);
        let _ = writeln!(
            text,
            "{:<width$}  {:<9}  {:>4} partitions  {}  {} (protocol {})  {}",
            member.node,
            shown_state(member, is_renewing),
            member.partitions,
            member.address,
            member.version,
            member.protocol,
            member.policy
        );
    }
    let unowned = u64::from(record.partitioner.count()).saturating_sub(owned);
    let _ = writeln!(text, "{unowned} partitions without an owner");
    Ok(console::print(&text, Exit::Success))
}

/// Two renewals, so that a node that renews is seen to do so.
fn watch_time(lease: Duration) -> Duration {
    lease * 2 / 5
}

fn shown_state(member: &MemberReport, is_renewing: bool) -> &str {
    match member.state.as_str() {
        "active" | "draining" if !is_renewing => "silent",
        state => state,
    }
}

async fn run_forget(postgres: &PostgresConfig, args: &FleetForgetArgs) -> Result<Exit, StoreError> {
    let (session, record) = StoreSession::open(postgres).await?;
    let node = &args.node;
    note(&format!(
        "watching {node} for {}",
        format_duration(record.lease)
    ));
    Ok(match session.forget(node, record.lease).await? {
        ForgetOutcome::Forgotten => {
            let text = format!("{node} is forgotten: others take its partitions\n");
            console::print(&text, Exit::Success)
        }
        ForgetOutcome::Unknown => {
            report_invalid(&format!("no member is named {node}"));
            Exit::Negative
        }
        ForgetOutcome::Running => {
            report_invalid(&format!("{node} renews its lease: end its process first"));
            Exit::Negative
        }
    })
}

async fn run_owner(postgres: &PostgresConfig, args: &FleetOwnerArgs) -> Result<Exit, StoreError> {
    let Ok(host) = canonical_host(&args.host) else {
        return Ok(report_invalid(&format!("{:?} is not a host", args.host)));
    };
    let (session, record) = StoreSession::open(postgres).await?;
    let partition = record.partitioner.partition(&host);
    let (owner, epoch) = session.owner(partition).await?;
    let members = session.members().await?;
    let member = owner.and_then(|owner| members.iter().find(|m| m.incarnation == owner));
    let number = partition.0;
    Ok(match member {
        Some(member) => {
            let text = format!(
                "{host}: {} ({}, {}), partition {number}, epoch {epoch}\n",
                member.node, member.address, member.state
            );
            console::print(&text, Exit::Success)
        }
        None => {
            let text = format!("{host}: no owner, partition {number}, epoch {epoch}\n");
            console::print(&text, Exit::Negative)
        }
    })
}
