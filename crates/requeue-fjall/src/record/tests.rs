use super::*;

fn key(text: &str) -> Key {
    Key::new(text.as_bytes()).unwrap()
}

fn at(micros: u64) -> Moment {
    Moment::from_micros(micros)
}

/// A key that has everything at once, which no machine makes.
fn full() -> Lasting {
    Lasting {
        ready: Some((at(0x0102_0304), 5)),
        held_by: Some(Owner::new("w1")),
        wake_at: Some((at(0x0a0b), 6)),
        failures: 7,
        deliveries: 8,
        error: "no".into(),
        buried: Some(("why".to_owned(), at(9), Owner::new("é"))),
        priority: -2,
    }
}

/// Files are read by later programs: these bytes never change for version 2.
const FULL: &[u8] = b"\x02\x7f\
    \0\0\0\0\x01\x02\x03\x04\0\0\0\0\0\0\0\x05\
    \0\0\0\x02w1\
    \0\0\0\0\0\0\x0a\x0b\0\0\0\0\0\0\0\x06\
    \0\0\0\x07\0\0\0\x02no\
    \0\0\0\x08\
    \0\0\0\x03why\0\0\0\0\0\0\0\x09\0\0\0\x02\xc3\xa9\
    \xfe";

const READY_ONLY: &[u8] = b"\x02\x01\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x02";

const PAUSED: &[u8] = b"\x02\x01\
    \0\0\0\0\0\0\x01\x02\
    \0\0\0\0\0\0\x03\x04\
    \0\0\0\0\0\0\x05\x06";

fn paused() -> State {
    let debt = Duration::from_micros(0x0506);
    State { paused: true, mark: 0x0102, at: at(0x0304), debt }
}

#[test]
fn the_bytes_of_version_2_are_these() {
    let mut encoder = Encoder::default();
    assert_eq!(encoder.key(&full()), FULL);
    let ready = Lasting { ready: Some((at(256), 2)), ..Lasting::default() };
    assert_eq!(encoder.key(&ready), READY_ONLY);
    assert_eq!(encoder.key(&Lasting::default()), [2, 0]);
    assert_eq!(encoder.state(&paused()), PAUSED);
    assert_eq!(encoder.key_name(&key("ab")), b"\x01ab");
    assert_eq!(encoder.key_name(&key("")), b"\x01");
    assert_eq!(encoder.state_name(), b"\0");
}

#[test]
fn the_bytes_of_version_2_are_read_as_what_they_were() {
    let read = |name: &[u8], value: &[u8]| decode(name, value).unwrap();
    assert_eq!(read(b"\x01ab", FULL), Record::Key(key("ab"), full()));
    assert_eq!(read(b"\x01", &[2, 0]), Record::Key(key(""), Lasting::default()));
    assert_eq!(read(b"\0", PAUSED), Record::State(paused()));
}

#[test]
fn the_bytes_of_version_1_are_those_without_a_priority() {
    let (_, rest) = FULL.split_at(2);
    let before = [b"\x01\x3f", &rest[..rest.len() - 1]].concat();
    let kept = Lasting { priority: 0, ..full() };
    assert_eq!(decode(b"\x01ab", &before).unwrap(), Record::Key(key("ab"), kept));
    let state = [b"\x01", &PAUSED[1..]].concat();
    assert_eq!(decode(b"\0", &state).unwrap(), Record::State(paused()));
}

#[test]
fn every_field_alone_comes_back() {
    let Lasting { ready, held_by, wake_at, failures, deliveries, .. } = full();
    let Lasting { error, buried, priority, .. } = full();
    let none = Lasting::default;
    let alone = [
        Lasting { ready, ..none() },
        Lasting { ready, held_by, ..none() },
        Lasting { wake_at, ..none() },
        Lasting { failures, ..none() },
        Lasting { error, ..none() },
        Lasting { deliveries, ..none() },
        Lasting { buried, ..none() },
        Lasting { priority, ..none() },
    ];
    for kept in alone {
        let read = decode(b"\x01k", &Encoder::default().key(&kept)).unwrap();
        assert_eq!(read, Record::Key(key("k"), kept));
    }
}

#[test]
fn a_record_that_is_cut_short_or_too_long_is_corrupt() {
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
fn what_no_program_wrote_is_corrupt_and_the_text_names_the_key() {
    let text = |name: &[u8], value: &[u8]| {
        let error = decode(name, value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        error.to_string()
    };
    let damaged = "the record of the key \"mail/7\" cannot be read: it is damaged";
    assert_eq!(text(b"\x01mail/7", b"\x01\x80"), damaged);
    assert_eq!(text(b"\x01mail/7", b"\x01\x02\0\0\0\0"), damaged, "held, but not ready");
    assert_eq!(
        text(b"\x01mail/7", b"\x01\x08\0\0\0\x01\0\0\0\x01\xff"),
        damaged,
        "no UTF-8"
    );
    assert_eq!(text(b"\x01mail/7", b"\x01\x08\0\0\0\x01\xff\xff\xff\xff"), damaged);
    let state = "the record of the queue's state cannot be read: it is damaged";
    assert_eq!(text(b"\0", b"\x01\x02"), state);
    let strange = "the record named \"zoo\" cannot be read: it is damaged";
    assert_eq!(text(b"zoo", &[1, 0]), strange);
    assert_eq!(decode(&[1; 2000], &[1, 0]).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn another_version_is_refused_by_name() {
    let error = decode(b"\x01mail/7", b"\x03whatever").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version);
    assert_eq!(
        error.to_string(),
        "the record of the key \"mail/7\" is of version 3; this program knows versions up to 2"
    );
}
