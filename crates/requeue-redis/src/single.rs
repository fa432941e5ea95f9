//! Calls for a single key, by scripts that do only what happens most.
//!
//! Each gives nothing if it takes more than that, and has then changed nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use requeue::Finish;
use requeue_store::{
    Add, Error, FinishRequest, Finished, Grant, Key, LeaseRequest, Leased, Receipt,
    Token, When, micros_of,
};

use crate::fault::senseless;
use crate::link::Call;
use crate::name::{key_of, name_of};
use crate::partition::partition_of;
use crate::reply::{Answer, parse};
use crate::script::{self, Script};
use crate::store::RedisStore;
use crate::wait::UNWATCHED;
use crate::wish;
use crate::work::{added, read_visit};

impl RedisStore {
    pub(crate) async fn add_one(&self, adds: &[Add]) -> Result<Option<Receipt>, Error> {
        let [Add { key, when: When::Now, priority: 0, .. }] = adds else {
            return Ok(None);
        };
        let letter = self.letter(&script::ADD_ONE, key, &[name_of(key)]).await?;
        let receipt = |added| Receipt { added, delay: Duration::ZERO };
        Ok(letter.and_then(added).map(receipt))
    }

    /// What is left is not looked at. So it is not for one that has waited, which must pass
    /// on the mark, nor if the end of this very lease is what others must know of.
    pub(crate) async fn lease_one(
        &self,
        request: &LeaseRequest,
    ) -> Result<Option<Leased>, Error> {
        let many = request.max != 1 || self.partitions() > 1;
        if many || request.lease < UNWATCHED || self.watch.has_waited() {
            return Ok(None);
        }
        let holder = format!(":{}", request.owner.as_str());
        let longer = longer_than_usual(request.lease).to_string();
        let args = [holder.as_bytes(), longer.as_bytes()];
        let most_usual = longer == "0" && self.told_time().is_none();
        let value = self.plain_lease(if most_usual { &args[..1] } else { &args }).await?;
        let Some(grant) = read_grant(value)? else { return Ok(None) };
        let more_in = Some(Duration::ZERO);
        Ok(Some(Leased { grants: vec![grant], more_in, paused: false }))
    }

    async fn plain_lease(&self, args: &[&[u8]]) -> Result<Value, Error> {
        if !self.one_of_many.load(Ordering::Relaxed) {
            let value = self.single(&script::LEASE_ONE, 0, args).await?;
            if value != Value::Int(1) {
                return Ok(value);
            }
            self.one_of_many.store(true, Ordering::Relaxed);
        }
        self.single(&script::LEASE_ONE_OF_MANY, 0, args).await
    }

    pub(crate) async fn finish_one(
        &self,
        requests: &[FinishRequest],
    ) -> Result<Option<Finished>, Error> {
        let [FinishRequest { hold, finish, .. }] = requests else { return Ok(None) };
        if !matches!(finish, Finish::Done | Finish::Succeed) {
            return Ok(None);
        }
        let state = format!("P{}1:", wish::token(hold.token));
        let args = [name_of(&hold.key), state.as_bytes()];
        let letter = self.letter(&script::FINISH_ONE, &hold.key, &args).await?;
        Ok(letter.filter(|letter| *letter == b'd').map(|_| Finished::Done))
    }

    /// Calls a script that answers with a letter or with nothing.
    async fn letter(
        &self,
        script: &'static Script,
        key: &Key,
        args: &[&[u8]],
    ) -> Result<Option<u8>, Error> {
        let partition = partition_of(key, self.partitions());
        let value = self.single(script, partition, args).await?;
        if value == Value::Nil {
            return Ok(None);
        }
        let letters = Answer::new(value, "a key").bytes()?;
        letters.first().copied().map(Some).ok_or_else(|| senseless("a key"))
    }

    async fn single(
        &self,
        script: &'static Script,
        partition: usize,
        args: &[&[u8]],
    ) -> Result<Value, Error> {
        let mut command = self.bare(script, partition);
        command.arg(args);
        if let Some(now) = self.told_time() {
            command.arg(format!("{now:016}"));
        }
        let call = Call { script, partition, command };
        let answers = self.servers.call(vec![call]).await?;
        Ok(answers.into_iter().next().unwrap_or(Value::Nil))
    }
}

/// In microseconds; the usual is that of `words.lua`.
fn longer_than_usual(lease: Duration) -> i64 {
    const USUAL: i64 = 30_000_000;
    i64::try_from(micros_of(lease)).unwrap_or(i64::MAX) - USUAL
}

/// See `lease_one.lua`.
fn read_grant(value: Value) -> Result<Option<Grant>, Error> {
    if value == Value::Nil {
        return Ok(None);
    }
    let Value::BulkString(bytes) = value else {
        let mut grants = Vec::new();
        read_visit(value, &mut grants)?;
        return Ok(grants.pop());
    };
    let (now, since, key) = read_times(&bytes).ok_or_else(|| senseless("a lease"))?;
    let key = key_of(key.to_vec())?;
    let waited = Duration::from_micros(now.saturating_sub(since));
    let token = Token(now);
    Ok(Some(Grant { key, token, deliveries: 1, failures: 0, priority: 0, waited }))
}

/// Two times and what comes after them.
fn read_times(bytes: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (now, rest) = bytes.split_at_checked(16)?;
    let (since, rest) = rest.split_at_checked(16)?;
    Some((parse(now)?, parse(since)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_the_token_since_when_the_key_was_ready_and_the_key() {
        let value = Value::BulkString(b"17000000000000001699999999999990a/b".to_vec());
        let grant = read_grant(value).unwrap().unwrap();
        assert_eq!(
            (grant.token, &grant.key[..]),
            (Token(1_700_000_000_000_000), &b"a/b"[..])
        );
        assert_eq!((grant.deliveries, grant.failures), (1, 0));
        assert_eq!(grant.waited, Duration::from_micros(10));
        assert!(read_grant(Value::BulkString(b"17".to_vec())).is_err());
        assert!(read_grant(Value::Nil).unwrap().is_none());
    }
}
