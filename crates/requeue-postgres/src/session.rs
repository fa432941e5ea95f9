//! One connection, set up for calls.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::time::Instant;

use requeue::{Clock, SystemClock};
use requeue_store::Error;
use tokio::task::JoinHandle;
use tokio_postgres::{Row, Statement};

use crate::address::Address;
use crate::error;
use crate::param::{Param, typed};
use crate::pool::PoolOptions;

/// Settings of every connection, or of every transaction behind a pooler. They fix the plans
/// of the statements: the statistics of a queue that fills and empties are always out of
/// date.
const SETTINGS: [&str; 6] = [
    "plan_cache_mode = force_generic_plan",
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "jit = off",
];

/// A connection with its prepared statements. Dropping it closes the connection.
pub(crate) struct Session {
    client: tokio_postgres::Client,
    statements: HashMap<&'static str, Statement>,
    driver: JoinHandle<()>,
    /// Begins a transaction with all settings, behind a pooler. The connection of the server
    /// may be another one for each transaction, so it keeps neither settings nor prepared
    /// statements.
    begin: Option<String>,
    /// When the server last answered.
    answered: Instant,
}

impl Session {
    /// Connects and applies the settings, then `more` of them.
    pub(crate) async fn open(address: &Address, more: &[String]) -> Result<Self, Error> {
        let (client, mut messages) = address.connect().await?;
        let driver = tokio::spawn(async move {
            // The waiting call reports why a connection ends.
            while let Some(Ok(_)) = poll_fn(|cx| messages(cx)).await {}
        });
        let (statements, answered) = (HashMap::new(), SystemClock.now());
        let mut session = Self { client, statements, driver, begin: None, answered };
        session.set(address, more).await?;
        Ok(session)
    }

    /// Applies the settings, and `more` of them. Statements are written for `read committed`.
    pub(crate) async fn set(
        &mut self,
        address: &Address,
        more: &[String],
    ) -> Result<(), Error> {
        let all: Vec<_> =
            SETTINGS.into_iter().chain(more.iter().map(|setting| &**setting)).collect();
        if address.is_pooler() {
            let settings = all.join(";set local ");
            let begin = "begin isolation level read committed;set local ";
            self.begin = Some(format!("{begin}{settings}"));
            return Ok(());
        }
        let settings = all.join(";set ");
        let text = format!(
            "set default_transaction_isolation = 'read committed';set {settings}"
        );
        let set = self.client.batch_execute(&text).await;
        set.map_err(|error| error::of_connecting(error, address))
    }

    pub(crate) fn client(&mut self) -> &mut tokio_postgres::Client {
        &mut self.client
    }

    /// Returns whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }

    /// Returns when the server last answered.
    pub(crate) fn answered(&self) -> Instant {
        self.answered
    }

    /// Calls an SQL function.
    pub(crate) async fn call(
        &mut self,
        options: &PoolOptions,
        name: &'static str,
        params: &[Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let rows = match &self.begin {
            Some(begin) => self.call_in_transaction(begin, options, name, params).await,
            None => self.call_prepared(options, name, params).await,
        };
        self.answered = SystemClock.now();
        rows
    }

    /// Calls a function by a prepared statement. Prepares it the first time.
    async fn call_prepared(
        &mut self,
        options: &PoolOptions,
        name: &'static str,
        params: &[Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if !self.statements.contains_key(name) {
            let text = options.statement(name, params.len());
            let statement = self.client.prepare(&text).await?;
            self.statements.insert(name, statement);
        }
        let params: Vec<_> = params.iter().map(Param::value).collect();
        self.client.query(&self.statements[name], &params).await
    }

    /// Calls a function in a separate transaction. All three statements are sent at once,
    /// in this order. If the function fails, the commit is a rollback.
    async fn call_in_transaction(
        &self,
        begin: &str,
        options: &PoolOptions,
        name: &str,
        params: &[Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let text = options.statement(name, params.len());
        let params = typed(params);
        let (started, rows, committed) = tokio::join!(
            self.client.batch_execute(begin),
            self.client.query_typed(&text, &params),
            self.client.batch_execute("commit"),
        );
        started?;
        let rows = rows?;
        committed?;
        Ok(rows)
    }
}

/// The procedure, which commits in between, and the placeholders of its results.
const PROCEDURE: (&str, &str) = ("add_and_wake", ", null, null, null, null, null");

/// Returns `select * from schema.name($1, $2)`, or `call schema.name($1, $2, null)`.
pub(crate) fn call_text(schema: &str, name: &str, params: usize) -> String {
    let is_procedure = name == PROCEDURE.0;
    let (verb, answers) =
        if is_procedure { ("call", PROCEDURE.1) } else { ("select * from", "") };
    let mut text = format!("{verb} {schema}.{name}(");
    for number in 1..=params {
        let comma = if number == 1 { "" } else { ", " };
        write!(text, "{comma}${number}").expect("writing to a string never fails");
    }
    text + answers + ")"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_numbers_its_parameters() {
        assert_eq!(call_text("\"r\"", "stats", 2), "select * from \"r\".stats($1, $2)");
    }
}
