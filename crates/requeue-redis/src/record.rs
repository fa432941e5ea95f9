//! What the queue knows about one key.
//!
//! A record is text of this form:
//!
//! | characters | content |
//! |---|---|
//! | 1 | phase: `A` absent, `R` ready, `P` processing, `D` processing and dirty, `X` dead |
//! | 2 | `*` if the key is delayed, otherwise `.` |
//! | 3 to 18 | the time since which the key is ready or dead, or the token of its lease |
//! | 19 to 22 | priority, such as `+005`, if the key is pending: ready, dirty or delayed; otherwise `----` |
//! | from 23 | failures, a colon, deliveries, a colon |
//! | then | for a processing key: the priority of the lease, in four characters, and its owner; for a dead key: `----` and the last owner |

use std::str::FromStr;

use requeue_store::{Owner, Phase, Token};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) phase: Phase,
    /// The time at which the key became ready or dead.
    pub(crate) since: u64,
    /// The priority of a pending key.
    pub(crate) priority: Option<i8>,
    pub(crate) failures: u32,
    pub(crate) deliveries: u32,
    /// The current or last holder of the lease.
    pub(crate) owner: Owner,
}

impl Record {
    /// Parses a record; without any text, the key is absent.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.is_empty() {
            return Self::parse(b"A.0000000000000000----0:0:");
        }
        let (head, counts) = std::str::from_utf8(text).ok()?.split_at_checked(22)?;
        let (failures, rest) = counts.split_once(':')?;
        let (deliveries, owner) = rest.split_once(':')?;
        let time = parse(head.get(2..18)?)?;
        let owner = Owner::new(owner.get(4..).unwrap_or_default());
        let lease =
            |dirty| Phase::Processing { owner: owner.clone(), token: Token(time), dirty };
        let phase = match head.as_bytes()[0] {
            b'A' => Phase::Absent,
            b'R' => Phase::Ready,
            b'P' => lease(false),
            b'D' => lease(true),
            b'X' => Phase::Dead,
            _ => return None,
        };
        let priority = head.get(18..22)?;
        Some(Self {
            phase,
            since: time,
            priority: if priority == "----" { None } else { Some(parse(priority)?) },
            failures: parse(failures)?,
            deliveries: parse(deliveries)?,
            owner,
        })
    }
}

fn parse<T: FromStr>(digits: &str) -> Option<T> {
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_each_phase_are_parsed() {
        let ready = Record::parse(b"R.1700000000000000+0053:2:").unwrap();
        assert_eq!((ready.phase, ready.since), (Phase::Ready, 1_700_000_000_000_000));
        assert_eq!((ready.priority, ready.failures, ready.deliveries), (Some(5), 3, 2));
        let delayed = Record::parse(b"A*0000000000000000-1280:0:").unwrap();
        assert_eq!((delayed.phase, delayed.priority), (Phase::Absent, Some(-128)));
        let dead = Record::parse(b"X.1700000000000000----0:1:----host:7").unwrap();
        assert_eq!((dead.phase, dead.owner.as_str()), (Phase::Dead, "host:7"));
        assert_eq!(Record::parse(b"").unwrap().phase, Phase::Absent);
    }

    #[test]
    fn a_leased_key_has_an_owner_and_a_token() {
        let owner = Owner::new("host:7");
        let token = Token(1_700_000_000_000_000);
        for (letter, dirty) in [('P', false), ('D', true)] {
            let text = format!("{letter}.1700000000000000----0:12:+000host:7");
            let record = Record::parse(text.as_bytes()).unwrap();
            let owner = owner.clone();
            assert_eq!(record.phase, Phase::Processing { owner, token, dirty });
            assert_eq!((record.priority, record.deliveries), (None, 12));
        }
    }

    #[test]
    fn other_text_is_not_a_record() {
        for text in ["Z.1700000000000000----0:0:", "R.17", "R.1700000000000000+0053"] {
            assert_eq!(Record::parse(text.as_bytes()), None, "{text}");
        }
    }
}
