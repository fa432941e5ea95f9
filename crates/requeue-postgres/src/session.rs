//! One connection, set up for calls.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::poll_fn;

use requeue_store::Error;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use crate::address::Address;
use crate::error;
use crate::pool::PoolOptions;

/// Settings of every connection. The statements are written for `read committed`. The other
/// settings fix their plans: the statistics of a queue that fills and empties are always
/// out of date.
const SETTINGS: &str = include_str!("../sql/session.sql");

/// A parameter of a call.
pub(crate) type Param = Box<dyn ToSql + Sync + Send>;

/// A connection with its prepared statements. Dropping it closes the connection.
pub(crate) struct Session {
    client: tokio_postgres::Client,
    statements: HashMap<&'static str, Statement>,
    driver: JoinHandle<()>,
}

impl Session {
    /// Connects and applies the settings, then `more` of them.
    pub(crate) async fn open(address: &Address, more: &str) -> Result<Self, Error> {
        let (client, mut messages) = address.connect().await?;
        let driver = tokio::spawn(async move {
            // The waiting call reports why a connection ends.
            while let Some(Ok(_)) = poll_fn(|cx| messages(cx)).await {}
        });
        let session = Self { client, statements: HashMap::new(), driver };
        session.set(address, &format!("{SETTINGS}{more}")).await?;
        Ok(session)
    }

    /// Applies settings.
    pub(crate) async fn set(
        &self,
        address: &Address,
        settings: &str,
    ) -> Result<(), Error> {
        let set = self.client.batch_execute(settings).await;
        set.map_err(|error| error::of_connecting(error, address))
    }

    pub(crate) fn client(&mut self) -> &mut tokio_postgres::Client {
        &mut self.client
    }

    /// Returns whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }

    /// Calls an SQL function. Prepares its statement the first time.
    pub(crate) async fn call(
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
        let params: Vec<_> = params.iter().map(param_ref).collect();
        self.client.query(&self.statements[name], &params).await
    }
}

pub(crate) fn param_ref(param: &Param) -> &(dyn ToSql + Sync) {
    &**param
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
