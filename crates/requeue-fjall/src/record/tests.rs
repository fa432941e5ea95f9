use super::*;

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

fn at(micros: u64) -> EngineTime {
    EngineTime::from_micros(micros)
}

/// Has every field at once, which no real key has.
fn full() -> PersistedKey {
    PersistedKey {
        dirty: true,
        ready: Some((at(0x0102_0304), 5)),
        held_by: Some(Owner::new("w1")),
        wake_at: Some((at(0x0a0b), 6)),
        failures: 7,
        deliveries: 8,
        error: "no".into(),
        death: Some(("why".to_owned(), at(9), Owner::new("é"))),
        priority: -2,
    }
}

/// The bytes of version 3 never change, because later versions read these files.
const FULL: &[u8] = b"\x03\xff\
    \0\0\0\0\x01\x02\x03\x04\0\0\0\0\0\0\0\x05\
    \0\0\0\x02w1\
    \0\0\0\0\0\0\x0a\x0b\0\0\0\0\0\0\0\x06\
    \0\0\0\x07\0\0\0\x02no\
    \0\0\0\x08\
    \0\0\0\x03why\0\0\0\0\0\0\0\x09\0\0\0\x02\xc3\xa9\
    \xfe";

const READY_ONLY: &[u8] = b"\x03\x01\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x02";

const PAUSED: &[u8] = b"\x03\x01\
    \0\0\0\0\0\0\x01\x02\
    \0\0\0\0\0\0\x03\x04\
    \0\0\0\0\0\0\x05\x06\
    \0\0\0\x01\0\0\0\x03api\0\0\0\0\0\0\0\x07";

/// Length of the state of a queue without limiters, as of version 2.
const WITHOUT_LIMITERS: usize = 26;

fn paused() -> QueueState {
    let debt = Duration::from_micros(0x0506);
    let limiters = vec![("api".to_owned(), Duration::from_micros(7))];
    QueueState { paused: true, watermark: 0x0102, at: at(0x0304), debt, limiters }
}

#[test]
fn version_3_is_encoded_as_these_bytes() {
    let mut encoder = Encoder::default();
    assert_eq!(encoder.key(&full()), FULL);
    let ready = PersistedKey { ready: Some((at(256), 2)), ..PersistedKey::default() };
    assert_eq!(encoder.key(&ready), READY_ONLY);
    assert_eq!(encoder.key(&PersistedKey::default()), [3, 0]);
    assert_eq!(encoder.queue_state(&paused()), PAUSED);
    assert_eq!(encoder.key_name(&key("ab")), b"\x01ab");
    assert_eq!(encoder.key_name(&key("")), b"\x01");
    assert_eq!(encoder.queue_state_name(), b"\0");
}

#[test]
fn version_3_can_be_decoded() {
    let read = |name: &[u8], value: &[u8]| decode(name, value).unwrap().0;
    assert_eq!(read(b"\x01ab", FULL), Record::Key(key("ab"), full()));
    assert_eq!(read(b"\x01", &[3, 0]), Record::Key(key(""), PersistedKey::default()));
    assert_eq!(read(b"\0", PAUSED), Record::QueueState(paused()));
}

#[test]
fn older_versions_are_decoded_without_the_fields_they_lack() {
    let (_, rest) = FULL.split_at(2);
    let without_limiters = &PAUSED[1..WITHOUT_LIMITERS];
    let clean = PersistedKey { dirty: false, ..full() };
    let state = QueueState { limiters: Vec::new(), ..paused() };
    let second = [b"\x02\x7f", rest].concat();
    assert_eq!(decode(b"\x01ab", &second).unwrap(), (Record::Key(key("ab"), clean), 2));
    let second = [b"\x02", without_limiters].concat();
    assert_eq!(decode(b"\0", &second).unwrap(), (Record::QueueState(state.clone()), 2));

    let low = PersistedKey { priority: 0, dirty: false, ..full() };
    let first = [b"\x01\x3f", &rest[..rest.len() - 1]].concat();
    assert_eq!(decode(b"\x01ab", &first).unwrap(), (Record::Key(key("ab"), low), 1));
    let first = [b"\x01", without_limiters].concat();
    assert_eq!(decode(b"\0", &first).unwrap(), (Record::QueueState(state), 1));
}

#[test]
fn every_single_field_survives_a_round_trip() {
    let PersistedKey { ready, held_by, wake_at, failures, deliveries, .. } = full();
    let PersistedKey { error, death, priority, .. } = full();
    let none = PersistedKey::default;
    let alone = [
        PersistedKey { ready, ..none() },
        PersistedKey { ready, held_by, ..none() },
        PersistedKey { wake_at, ..none() },
        PersistedKey { failures, ..none() },
        PersistedKey { error, ..none() },
        PersistedKey { deliveries, ..none() },
        PersistedKey { death, ..none() },
        PersistedKey { priority, ..none() },
    ];
    for record in alone {
        let (read, _) = decode(b"\x01k", &Encoder::default().key(&record)).unwrap();
        assert_eq!(read, Record::Key(key("k"), record));
    }
}

#[test]
fn truncated_or_too_long_record_is_corrupt() {
    for (name, whole) in [(&b"\x01k"[..], FULL), (b"\0", PAUSED)] {
        for len in 0..whole.len() {
            let error = decode(name, &whole[..len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{len} bytes");
        }
        let long = [whole, b"x"].concat();
        assert_eq!(decode(name, &long).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn invalid_record_is_corrupt_and_the_message_names_the_key() {
    let text = |name: &[u8], value: &[u8]| {
        let error = decode(name, value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        error.to_string()
    };
    let damaged = "the record of the key \"mail/7\" is damaged";
    assert_eq!(text(b"\x01mail/7", b"\x01\x80"), damaged, "dirty, but not leased");
    assert_eq!(
        text(b"\x01mail/7", b"\x01\x02\0\0\0\0"),
        damaged,
        "an owner, but neither ready nor leased"
    );
    assert_eq!(
        text(b"\x01mail/7", b"\x01\x08\0\0\0\x01\0\0\0\x01\xff"),
        damaged,
        "invalid UTF-8"
    );
    assert_eq!(text(b"\x01mail/7", b"\x01\x08\0\0\0\x01\xff\xff\xff\xff"), damaged);
    let state = "the state of the queue is damaged";
    assert_eq!(text(b"\0", b"\x01\x02"), state);
    let unknown = "the record named \"zoo\" is damaged";
    assert_eq!(text(b"zoo", &[1, 0]), unknown);
    assert_eq!(decode(&[1; 2000], &[1, 0]).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn unknown_version_is_refused_and_the_message_names_the_key() {
    let error = decode(b"\x01mail/7", b"\x04whatever").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version);
    assert_eq!(
        error.to_string(),
        "the record of the key \"mail/7\" has format version 4; this program supports versions \
         up to 3, use a newer one"
    );
}
