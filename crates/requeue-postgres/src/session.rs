//! One connection, set up for calls.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::poll_fn;

use requeue_store::Error;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::address::Address;
use crate::failure;
use crate::pool::Terms;

/// What each connection is told first. `read committed` is what the statements are written
/// for. Their plans are known: the settings keep the planner from others, which it would
/// take while its statistics lag behind a queue that fills and empties.
const SETTINGS: &str = include_str!("../sql/session.sql");

/// What a call is given.
pub(crate) type Param = Box<dyn ToSql + Sync + Send>;

/// A connection. It closes when this is dropped.
pub(crate) struct Session {
    client: Client,
    statements: HashMap<&'static str, Statement>,
    driver: JoinHandle<()>,
}

impl Session {
    /// Connects, and sets up what holds for all calls; `more` comes on top.
    pub(crate) async fn open(address: &Address, more: &str) -> Result<Self, Error> {
        let connected = address.connect().await;
        let (client, mut messages) =
            connected.map_err(|error| failure::of_connecting(error, address))?;
        let driver = tokio::spawn(async move {
            // What ends a connection is told to the call that waits for it.
            while let Some(Ok(_)) = poll_fn(|cx| messages(cx)).await {}
        });
        let session = Self { client, statements: HashMap::new(), driver };
        session.set(address, &format!("{SETTINGS}{more}")).await?;
        Ok(session)
    }

    /// Sets up what holds from now on.
    pub(crate) async fn set(
        &self,
        address: &Address,
        settings: &str,
    ) -> Result<(), Error> {
        let set = self.client.batch_execute(settings).await;
        set.map_err(|error| failure::of_connecting(error, address))
    }

    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Whether it can be used no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }

    /// Calls a function of the schema; its statement is prepared the first time.
    pub(crate) async fn call(
        &mut self,
        terms: &Terms,
        name: &'static str,
        params: &[Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        if !self.statements.contains_key(name) {
            let text = terms.statement(name, params.len());
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

/// What is called as a procedure, since it commits in between, and what stands for its
/// answers there.
const PROCEDURE: (&str, &str) = ("add_and_wake", ", null, null, null, null, null");

/// `select * from schema.name($1, $2)`, or `call schema.name($1, $2)`.
pub(crate) fn call_text(schema: &str, name: &str, params: usize) -> String {
    let is_procedure = name == PROCEDURE.0;
    let (verb, answers) =
        if is_procedure { ("call", PROCEDURE.1) } else { ("select * from", "") };
    let mut text = format!("{verb} {schema}.{name}(");
    for number in 1..=params {
        let comma = if number == 1 { "" } else { ", " };
        write!(text, "{comma}${number}").expect("a string takes any text");
    }
    text + answers + ")"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_each_of_its_parameters() {
        assert_eq!(call_text("\"r\"", "stats", 2), "select * from \"r\".stats($1, $2)");
    }
}
