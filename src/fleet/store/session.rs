//! One connection to the store, and the statements of a node.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use crawlgate_fleet::node::{Epoch, Incarnation, Member, NodeName};
use crawlgate_fleet::ownership::table::{
    Claim, Generation, MemberRow, MemberState, PartitionRow, StoreAnswer, StoreCommand, Table,
};
use crawlgate_fleet::partition::{FleetKey, Partition, Partitioner};
use tokio::task::AbortHandle;
use tokio_postgres::row::RowIndex;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, IsolationLevel, Row};

use crate::fleet::protocol::FleetProtocol;

use super::error::is_conflict;
use super::schema::VERSION;
use super::tls::StoreTls;
use super::{FleetRecord, PostgresConfig, StoreError};

/// The oldest server; CockroachDB reports a version, too.
const OLDEST_SERVER: u32 = 13;
/// The number of times that a transaction which met another is tried.
const ATTEMPTS: u32 = 5;

/// The facts that a node records about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The identity of the state directory, to which the name of the node belongs.
    pub home: String,
    /// The revision of the node's policy.
    pub policy: String,
    /// The URL of the node's admin listener, unless that is on loopback.
    pub admin: Option<String>,
}

/// The facts that a member has recorded about itself, which do not matter for the ownership of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFacts {
    /// The release that it runs.
    pub version: String,
    pub protocol: FleetProtocol,
    /// The revision of its policy.
    pub policy: String,
    /// The URL of its admin listener, if it can be reached from other machines.
    pub admin: Option<String>,
}

/// A member, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    pub node: String,
    pub incarnation: Incarnation,
    pub counter: u64,
    /// `active`, `draining`, `left`, `replaced`, `forgotten`, or `unknown` for the owner in a restored store.
    pub state: String,
    pub address: String,
    pub version: String,
    pub protocol: FleetProtocol,
    pub policy: String,
    pub partitions: u64,
}

/// The result of forgetting a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForgetOutcome {
    Forgotten,
    /// No member has this name.
    Unknown,
    /// The node renews its lease: it is running.
    Running,
}

/// A connection that was checked. It must be dropped after an error: a statement that timed out may still be carried
/// out.
pub struct StoreSession {
    pub(super) client: Client,
    task: AbortHandle,
    timeout: Duration,
    user: String,
    /// The process of the server that serves this connection.
    backend: i32,
    /// Those that the last renewal has read, until they are taken.
    member_facts: Option<BTreeMap<Incarnation, MemberFacts>>,
}

impl Drop for StoreSession {
    fn drop(&mut self) {
        // A connection that hangs would otherwise stay open.
        self.task.abort();
    }
}

impl StoreSession {
    /// Connects to the server that accepts writes, and checks its version.
    ///
    /// # Errors
    /// If there is no such server, or it refuses the connection.
    pub async fn connect(config: &PostgresConfig) -> Result<Self, StoreError> {
        let user = config.url.user().to_owned();
        let tls = StoreTls::new(&config.url)?;
        let parameters = config.url.config(config.timeout);
        let hosts = u32::try_from(parameters.get_hosts().len()).unwrap_or(1);
        let (client, connection) =
            tokio::time::timeout(config.timeout * hosts.max(1), parameters.connect(tls))
                .await
                .map_err(|_| StoreError::Timeout(config.timeout))?
                .map_err(|error| StoreError::explain(&error, &user))?;
        let version = connection.parameter("server_version").unwrap_or_default();
        let major: String = version.chars().take_while(char::is_ascii_digit).collect();
        if major
            .parse::<u32>()
            .is_ok_and(|major| major < OLDEST_SERVER)
        {
            return Err(StoreError::ServerTooOld(version.to_owned()));
        }
        let task = tokio::spawn(async move {
            // The error of a closed connection is that of the statement that finds it closed.
            let _ = connection.await;
        });
        let mut session = Self {
            client,
            task: task.abort_handle(),
            timeout: config.timeout,
            user,
            backend: 0,
            member_facts: None,
        };
        let limit = format!("set statement_timeout = {}", config.timeout.as_millis());
        session.within(session.client.batch_execute(&limit)).await?;
        session.backend = session.read_backend().await?;
        Ok(session)
    }

    async fn read_backend(&self) -> Result<i32, StoreError> {
        let rows = self.query("select pg_backend_pid()", &[]).await?;
        first(&rows).and_then(|row| get(row, 0))
    }

    /// Checks that a statement was carried out by the process that serves this connection. A pooler may give each
    /// transaction another one, which hides that a server has failed and another has taken over: what this node has seen
    /// over one connection would then be what two servers say.
    pub(super) fn check_backend(&self, found: i32) -> Result<(), StoreError> {
        match found == self.backend {
            true => Ok(()),
            false => Err(StoreError::PooledTransactions),
        }
    }

    /// Checks that another connection has a process of its own.
    ///
    /// # Errors
    /// If a pooler shares one between the two, or the store fails.
    pub async fn check_pooling(&self, config: &PostgresConfig) -> Result<(), StoreError> {
        let other = Self::connect(config).await?;
        // Servers that have no such processes report a number that is not positive.
        if other.backend == self.backend && self.backend > 0 {
            return Err(StoreError::PooledTransactions);
        }
        Ok(())
    }

    /// Connects, and reads the row of the fleet.
    ///
    /// # Errors
    /// If the store cannot be used by this release.
    pub async fn open(config: &PostgresConfig) -> Result<(Self, FleetRecord), StoreError> {
        let session = Self::connect(config).await?;
        let version = session.schema_version().await?;
        session.check_version(version).await?;
        let record = session.fleet_record().await?;
        Ok((session, record))
    }

    pub(super) async fn schema_version(&self) -> Result<i64, StoreError> {
        let rows = self
            .query(
                "select coalesce(max(version), 0) from crawlgate_schema",
                &[],
            )
            .await?;
        first(&rows).and_then(|row| get(row, 0))
    }

    /// Checks that this release can read and write the tables. It goes on with newer ones of a release that speaks its
    /// protocol.
    pub(super) async fn check_version(&self, found: i64) -> Result<(), StoreError> {
        let expected = VERSION;
        if found < expected {
            return Err(StoreError::OldSchema { found, expected });
        }
        if found == expected {
            return Ok(());
        }
        let rows = self
            .query("select max(oldest_protocol) from crawlgate_schema", &[])
            .await?;
        let oldest = protocol(get(first(&rows)?, 0)?)?;
        match oldest <= FleetProtocol::CURRENT {
            true => Ok(()),
            false => Err(StoreError::NewSchema { found, oldest }),
        }
    }

    /// Checks that all members can go on with the tables of this release, if those in the database are older.
    pub(super) async fn check_migration(&self) -> Result<(), StoreError> {
        let members = async {
            if self.schema_version().await? >= VERSION {
                return Ok(vec![]);
            }
            // Older tables have no protocols.
            let listed = "select * from crawlgate_member where state in ('active', 'draining')";
            self.query(listed, &[]).await
        };
        let members = match members.await {
            Err(StoreError::NotFounded) => return Ok(()),
            members => members?,
        };
        members.iter().try_for_each(check_protocol)
    }

    async fn fleet_record(&self) -> Result<FleetRecord, StoreError> {
        let rows = self
            .query(
                "select name, partitions, hash_key, generation, lease_ms from crawlgate_fleet",
                &[],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Err(StoreError::NotFounded);
        };
        let name: String = get(row, 0)?;
        let partitions: i64 = get(row, 1)?;
        let key: Vec<u8> = get(row, 2)?;
        let lease: i64 = get(row, 4)?;
        let count = u16::try_from(partitions)
            .ok()
            .and_then(NonZeroU16::new)
            .ok_or_else(|| StoreError::Damaged(format!("{partitions} partitions")))?;
        let key: [u8; 16] = key
            .try_into()
            .map_err(|_| StoreError::Damaged("the key has not 16 bytes".to_owned()))?;
        Ok(FleetRecord {
            name: name.into(),
            generation: Generation(get::<i64>(row, 3)?.cast_unsigned()),
            partitioner: Partitioner::new(FleetKey::new(key), count),
            lease: Duration::from_millis(lease.unsigned_abs()),
        })
    }

    /// Carries out a statement of a node.
    ///
    /// # Errors
    /// If it failed, or its result is unknown.
    pub async fn carry_out(
        &mut self,
        this: &Member,
        generation: Generation,
        facts: &NodeFacts,
        command: &StoreCommand,
    ) -> Result<StoreAnswer, StoreError> {
        match command {
            StoreCommand::Join => self.join(this, generation, facts).await,
            StoreCommand::Renew { draining } => {
                self.renew(this.incarnation, generation, facts, *draining)
                    .await
            }
            StoreCommand::Take(claims) => self.take(this.incarnation, generation, claims).await,
            StoreCommand::Release(rows) => self.release(this.incarnation, generation, rows).await,
            StoreCommand::Leave => {
                self.query(
                    "update crawlgate_member set state = 'left' where incarnation = $1",
                    &[(&number(this.incarnation), Type::INT8)],
                )
                .await?;
                Ok(StoreAnswer::Left)
            }
        }
    }

    async fn join(
        &mut self,
        this: &Member,
        generation: Generation,
        facts: &NodeFacts,
    ) -> Result<StoreAnswer, StoreError> {
        let timeout = self.timeout;
        let user = self.user.clone();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let joined = tokio::time::timeout(timeout, self.try_join(this, generation, facts));
            match joined.await.map_err(|_| StoreError::Timeout(timeout))? {
                Ok(result) => return result,
                Err(error) if is_conflict(&error) && attempts < ATTEMPTS => {}
                Err(error) => return Err(StoreError::explain(&error, &user)),
            }
        }
    }

    async fn try_join(
        &mut self,
        this: &Member,
        generation: Generation,
        facts: &NodeFacts,
    ) -> Result<Result<StoreAnswer, StoreError>, tokio_postgres::Error> {
        let transaction = self
            .client
            .build_transaction()
            .isolation_level(IsolationLevel::Serializable)
            .start()
            .await?;
        let fleet = transaction
            .query_typed("select generation from crawlgate_fleet", &[])
            .await?;
        if first_number(&fleet)? != Some(generation.0.cast_signed()) {
            return Ok(Ok(StoreAnswer::OtherGeneration));
        }
        let members = transaction.query_typed(LISTED_MEMBERS, &[]).await?;
        if let Err(error) = check_joining(&members, &this.node, &facts.home) {
            return Ok(Err(error));
        }
        transaction
            .query_typed(
                "update crawlgate_member set state = 'replaced'
                 where node = $1 and state in ('active', 'draining')",
                &[(&this.node.as_str(), Type::TEXT)],
            )
            .await?;
        // A row that a partition names is watched by the others.
        transaction
            .query_typed(
                "delete from crawlgate_member m where state not in ('active', 'draining')
                 and not exists (select 1 from crawlgate_partition p where p.incarnation = m.incarnation)",
                &[],
            )
            .await?;
        transaction
            .query_typed(
                "insert into crawlgate_member
                     (incarnation, node, home, counter, state, address, version, policy, protocol, admin)
                 values ($1, $2, $3, 0, 'active', $4, $5, $6, $7, $8)",
                &[
                    (&number(this.incarnation), Type::INT8),
                    (&this.node.as_str(), Type::TEXT),
                    (&facts.home, Type::TEXT),
                    (&this.address.to_string(), Type::TEXT),
                    (&env!("CARGO_PKG_VERSION"), Type::TEXT),
                    (&facts.policy, Type::TEXT),
                    (&i64::from(FleetProtocol::CURRENT.0), Type::INT8),
                    (&facts.admin, Type::TEXT),
                ],
            )
            .await?;
        transaction.commit().await?;
        Ok(Ok(StoreAnswer::Joined))
    }

    /// Raises the counter, and then reads the tables: in this order, so that a take that was possible before is seen.
    async fn renew(
        &mut self,
        incarnation: Incarnation,
        generation: Generation,
        facts: &NodeFacts,
        draining: bool,
    ) -> Result<StoreAnswer, StoreError> {
        let state = if draining { "draining" } else { "active" };
        let raised = self
            .query(
                "update crawlgate_member m set counter = m.counter + 1, state = $3, policy = $4
                 where m.incarnation = $1 and m.state in ('active', 'draining')
                 and exists (select 1 from crawlgate_fleet f where f.generation = $2)
                 returning m.counter, pg_backend_pid()",
                &[
                    (&number(incarnation), Type::INT8),
                    (&generation.0.cast_signed(), Type::INT8),
                    (&state, Type::TEXT),
                    (&facts.policy, Type::TEXT),
                ],
            )
            .await?;
        let Some(counter) = raised.first() else {
            return self.refusal(incarnation, generation).await;
        };
        self.check_backend(get(counter, 1)?)?;
        let counter: i64 = get(counter, 0)?;
        let members = self
            .query(
                "select incarnation, node, counter, state, address, version, policy, protocol, admin
                 from crawlgate_member",
                &[],
            )
            .await?;
        let partitions = self
            .query(
                "select incarnation, epoch from crawlgate_partition order by number",
                &[],
            )
            .await?;
        let facts = members.iter().map(member_facts);
        self.member_facts = Some(facts.collect::<Result<_, _>>()?);
        Ok(StoreAnswer::Renewed(Table {
            generation,
            counter: counter.cast_unsigned(),
            members: members.iter().map(member_row).collect::<Result<_, _>>()?,
            partitions: partitions
                .iter()
                .map(partition_row)
                .collect::<Result<_, _>>()?,
        }))
    }

    /// Takes the facts about the members that a renewal has read since the last call.
    pub fn take_member_facts(&mut self) -> Option<BTreeMap<Incarnation, MemberFacts>> {
        self.member_facts.take()
    }

    /// Returns the reason why a statement of a member changed nothing.
    async fn refusal(
        &self,
        incarnation: Incarnation,
        generation: Generation,
    ) -> Result<StoreAnswer, StoreError> {
        let fleet = self
            .query("select generation from crawlgate_fleet", &[])
            .await?;
        let found = fleet.first().map(|row| get::<i64>(row, 0)).transpose()?;
        if found != Some(generation.0.cast_signed()) {
            return Ok(StoreAnswer::OtherGeneration);
        }
        let member = self
            .query(
                "select state from crawlgate_member where incarnation = $1",
                &[(&number(incarnation), Type::INT8)],
            )
            .await?;
        let state: Option<String> = member.first().map(|row| get(row, 0)).transpose()?;
        Ok(match state.as_deref() {
            Some("replaced") => StoreAnswer::Replaced,
            Some(_) | None => StoreAnswer::NotMember,
        })
    }

    async fn take(
        &mut self,
        incarnation: Incarnation,
        generation: Generation,
        claims: &[Claim],
    ) -> Result<StoreAnswer, StoreError> {
        let timeout = self.timeout;
        let user = self.user.clone();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let taken =
                tokio::time::timeout(timeout, self.try_take(incarnation, generation, claims));
            match taken.await.map_err(|_| StoreError::Timeout(timeout))? {
                Ok(answer) => return Ok(answer),
                Err(error) if is_conflict(&error) && attempts < ATTEMPTS => {}
                Err(error) => return Err(StoreError::explain(&error, &user)),
            }
        }
    }

    async fn try_take(
        &mut self,
        incarnation: Incarnation,
        generation: Generation,
        claims: &[Claim],
    ) -> Result<StoreAnswer, tokio_postgres::Error> {
        let transaction = self
            .client
            .build_transaction()
            .isolation_level(IsolationLevel::Serializable)
            .start()
            .await?;
        let fleet = transaction
            .query_typed("select generation from crawlgate_fleet", &[])
            .await?;
        if first_number(&fleet)? != Some(generation.0.cast_signed()) {
            return Ok(StoreAnswer::OtherGeneration);
        }
        // Locked, so that no counter is raised between this check and the end of the transaction.
        let owners = claims.iter().filter_map(|claim| claim.from);
        let mut named: Vec<i64> = owners.map(|(owner, _)| number(owner)).collect();
        named.push(number(incarnation));
        let locked = transaction
            .query_typed(
                "select incarnation, counter, state from crawlgate_member
                 where incarnation = any($1) order by incarnation for update",
                &[(&named, Type::INT8_ARRAY)],
            )
            .await?;
        let mut counters = BTreeMap::new();
        let mut is_active = false;
        for row in &locked {
            let member: i64 = row.try_get(0)?;
            let counter: i64 = row.try_get(1)?;
            let state: &str = row.try_get(2)?;
            counters.insert(member, counter.cast_unsigned());
            is_active |= member == number(incarnation) && state == "active";
        }
        if !is_active {
            return Ok(StoreAnswer::NotMember);
        }
        let is_as_seen = |claim: &&Claim| match claim.from {
            Some((owner, counter)) => counters.get(&number(owner)) == Some(&counter),
            None => true,
        };
        let claims: Vec<&Claim> = claims.iter().filter(is_as_seen).collect();
        let numbers: Vec<i64> = claims.iter().map(|c| i64::from(c.partition.0)).collect();
        let epochs: Vec<i64> = claims.iter().map(|c| c.epoch.0.cast_signed()).collect();
        let owners: Vec<Option<i64>> = claims
            .iter()
            .map(|claim| claim.from.map(|(owner, _)| number(owner)))
            .collect();
        let taken = transaction
            .query_typed(
                "update crawlgate_partition p set incarnation = $1, epoch = p.epoch + 1
                 from unnest($2, $3, $4) as c (number, epoch, incarnation)
                 where p.number = c.number and p.epoch = c.epoch
                 and p.incarnation is not distinct from c.incarnation
                 returning p.number, p.epoch",
                &[
                    (&number(incarnation), Type::INT8),
                    (&numbers, Type::INT8_ARRAY),
                    (&epochs, Type::INT8_ARRAY),
                    (&owners, Type::INT8_ARRAY),
                ],
            )
            .await?;
        let mut partitions = Vec::with_capacity(taken.len());
        for row in &taken {
            let partition: i64 = row.try_get(0)?;
            let epoch: i64 = row.try_get(1)?;
            if let Ok(partition) = u16::try_from(partition) {
                partitions.push((Partition(partition), Epoch(epoch.cast_unsigned())));
            }
        }
        transaction.commit().await?;
        Ok(StoreAnswer::Taken(partitions))
    }

    async fn release(
        &self,
        incarnation: Incarnation,
        generation: Generation,
        rows: &[(Partition, Epoch)],
    ) -> Result<StoreAnswer, StoreError> {
        let numbers: Vec<i64> = rows.iter().map(|(p, _)| i64::from(p.0)).collect();
        let epochs: Vec<i64> = rows.iter().map(|(_, e)| e.0.cast_signed()).collect();
        self.query(
            "update crawlgate_partition p set incarnation = null, epoch = p.epoch + 1
             from unnest($2, $3) as c (number, epoch)
             where p.number = c.number and p.epoch = c.epoch and p.incarnation = $1
             and exists (select 1 from crawlgate_fleet f where f.generation = $4)",
            &[
                (&number(incarnation), Type::INT8),
                (&numbers, Type::INT8_ARRAY),
                (&epochs, Type::INT8_ARRAY),
                (&generation.0.cast_signed(), Type::INT8),
            ],
        )
        .await?;
        Ok(StoreAnswer::Released)
    }

    /// Checks that a node may join: its name belongs to its state directory, and its release works with those of the
    /// members.
    ///
    /// # Errors
    /// If it may not, or the store fails.
    pub async fn check_joining(&self, node: &NodeName, home: &str) -> Result<(), StoreError> {
        let members = self.query(LISTED_MEMBERS, &[]).await?;
        check_joining(&members, node, home)
    }

    /// Returns all members by name.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn members(&self) -> Result<Vec<MemberReport>, StoreError> {
        let rows = self
            .query(
                "select m.node, m.incarnation, m.counter, m.state, m.address, m.version, m.policy, count(p.number),
                 m.protocol
                 from crawlgate_member m left join crawlgate_partition p on p.incarnation = m.incarnation
                 group by m.node, m.incarnation, m.counter, m.state, m.address, m.version, m.policy, m.protocol
                 order by m.node, m.incarnation",
                &[],
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(MemberReport {
                    node: get(row, 0)?,
                    incarnation: incarnation(get(row, 1)?),
                    counter: get::<i64>(row, 2)?.cast_unsigned(),
                    state: get(row, 3)?,
                    address: get(row, 4)?,
                    version: get(row, 5)?,
                    protocol: protocol(get(row, 8)?)?,
                    policy: get(row, 6)?,
                    partitions: get::<i64>(row, 7)?.cast_unsigned(),
                })
            })
            .collect()
    }

    /// Returns the owner of a partition, if it has one, and its epoch.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn owner(
        &self,
        partition: Partition,
    ) -> Result<(Option<Incarnation>, Epoch), StoreError> {
        let rows = self
            .query(
                "select incarnation, epoch from crawlgate_partition where number = $1",
                &[(&i64::from(partition.0), Type::INT8)],
            )
            .await?;
        let row = partition_row(first(&rows)?)?;
        Ok((row.owner, row.epoch))
    }

    /// Ends the membership of a node whose process is dead: its counter must not change for the length of a lease.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn forget(
        &self,
        node: &NodeName,
        lease: Duration,
    ) -> Result<ForgetOutcome, StoreError> {
        let rows = self
            .query(
                "select incarnation, counter from crawlgate_member
                 where node = $1 and state in ('active', 'draining')",
                &[(&node.as_str(), Type::TEXT)],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Ok(ForgetOutcome::Unknown);
        };
        let incarnation: i64 = get(row, 0)?;
        let counter: i64 = get(row, 1)?;
        tokio::time::sleep(lease).await;
        let forgotten = self
            .query(
                "update crawlgate_member set state = 'forgotten'
                 where incarnation = $1 and counter = $2 and state in ('active', 'draining')
                 returning node",
                &[(&incarnation, Type::INT8), (&counter, Type::INT8)],
            )
            .await?;
        Ok(match forgotten.is_empty() {
            true => ForgetOutcome::Running,
            false => ForgetOutcome::Forgotten,
        })
    }

    pub(super) async fn query(
        &self,
        sql: &str,
        parameters: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, StoreError> {
        self.within(self.client.query_typed(sql, parameters)).await
    }

    async fn within<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, StoreError> {
        tokio::time::timeout(self.timeout, statement)
            .await
            .map_err(|_| StoreError::Timeout(self.timeout))?
            .map_err(|error| StoreError::explain(&error, &self.user))
    }
}

/// The members that have neither left nor been replaced or forgotten.
const LISTED_MEMBERS: &str = "select node, home, version, protocol from crawlgate_member
     where state in ('active', 'draining')";

/// Checks that a node may join these members. An earlier process of the node ends when it joins.
fn check_joining(members: &[Row], node: &NodeName, home: &str) -> Result<(), StoreError> {
    for member in members {
        if get::<&str>(member, 0)? != node.as_str() {
            check_protocol(member)?;
        } else if get::<&str>(member, 1)? != home {
            return Err(StoreError::NameTaken(node.clone()));
        }
    }
    Ok(())
}

/// Checks that a member's release works with this one.
fn check_protocol(member: &Row) -> Result<(), StoreError> {
    let has_protocol = member.columns().iter().any(|c| c.name() == "protocol");
    let found = match has_protocol {
        true => protocol(get(member, "protocol")?)?,
        false => FleetProtocol::FIRST,
    };
    match FleetProtocol::CURRENT.works_with(found) {
        true => Ok(()),
        false => Err(StoreError::OtherProtocol {
            node: get(member, "node")?,
            version: get(member, "version")?,
            found,
        }),
    }
}

fn protocol(number: i64) -> Result<FleetProtocol, StoreError> {
    let number = u32::try_from(number);
    number
        .map(FleetProtocol)
        .map_err(|_| StoreError::Damaged("a protocol is not a number from 0".to_owned()))
}

fn member_row(row: &Row) -> Result<MemberRow, StoreError> {
    let name: String = get(row, 1)?;
    let state: String = get(row, 3)?;
    let address: String = get(row, 4)?;
    let node = NodeName::new(&name)
        .map_err(|error| StoreError::Damaged(format!("the member {name:?}: {error}")))?;
    let address = address
        .parse()
        .map_err(|_| StoreError::Damaged(format!("the address {address:?} of {node}")))?;
    Ok(MemberRow {
        member: Member {
            node,
            incarnation: incarnation(get(row, 0)?),
            address,
        },
        counter: get::<i64>(row, 2)?.cast_unsigned(),
        state: match state.as_str() {
            "active" => MemberState::Active,
            "draining" => MemberState::Draining,
            _ => MemberState::Ended,
        },
    })
}

fn member_facts(row: &Row) -> Result<(Incarnation, MemberFacts), StoreError> {
    let facts = MemberFacts {
        version: get(row, 5)?,
        protocol: protocol(get(row, 7)?)?,
        policy: get(row, 6)?,
        admin: get(row, 8)?,
    };
    Ok((incarnation(get(row, 0)?), facts))
}

fn partition_row(row: &Row) -> Result<PartitionRow, StoreError> {
    Ok(PartitionRow {
        owner: get::<Option<i64>>(row, 0)?.map(incarnation),
        epoch: Epoch(get::<i64>(row, 1)?.cast_unsigned()),
    })
}

pub(super) fn first(rows: &[Row]) -> Result<&Row, StoreError> {
    let missing = || StoreError::Damaged("a row is missing".to_owned());
    rows.first().ok_or_else(missing)
}

fn first_number(rows: &[Row]) -> Result<Option<i64>, tokio_postgres::Error> {
    rows.first().map(|row| row.try_get(0)).transpose()
}

pub(super) fn get<'r, T: tokio_postgres::types::FromSql<'r>>(
    row: &'r Row,
    column: impl RowIndex + std::fmt::Display,
) -> Result<T, StoreError> {
    row.try_get(column)
        .map_err(|error| StoreError::Damaged(error.to_string()))
}

/// The store has no unsigned numbers.
fn number(incarnation: Incarnation) -> i64 {
    incarnation.0.cast_signed()
}

fn incarnation(number: i64) -> Incarnation {
    Incarnation(number.cast_unsigned())
}

/// Returns a random number for an incarnation or a generation: positive, so that people can read it.
pub(in crate::fleet) fn random_number() -> Result<i64, StoreError> {
    Ok(i64::from_ne_bytes(random_bytes()?) & i64::MAX)
}

pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| StoreError::Failed(format!("no random numbers: {error}")))?;
    Ok(bytes)
}
