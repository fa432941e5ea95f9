//! Keys of any bytes, and texts of any length.

use requeue::Finish;

use super::tools::{Trial, all_now, finish_request, secs, sorted};
use crate::{FinishRequest, Finished, Key, Look, Stats, Which};

/// Keys that something on the way might take for something else.
fn awkward() -> Vec<Key> {
    let texts = ["", " ", "a", "a:b", "{a}", "}{", "'", "\"", "\\", "a\nb", "$1", "%s", "é"];
    let mut keys: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    let long = [[0xff; Key::MAX_LEN], [0; Key::MAX_LEN], [b'a'; Key::MAX_LEN]];
    keys.extend(long.iter().map(|key| &key[..]));
    keys.push(&long[0][1..]);
    keys.extend([&b"\0"[..], b"\0\0", b"a\0", b"\0a", b"\xff", b"\xff\0\xff", b"\x80\xc3"]);
    keys.extend([&b"\\x00"[..], b"\\000", b"NULL", b"null", b"0", b"-1", b"a\r\n"]);
    let mut keys: Vec<_> =
        keys.into_iter().map(|key| Key::new(key).expect("short enough")).collect();
    keys.sort();
    keys
}

pub(super) async fn keys_of_any_bytes_stay_apart_and_as_they_are(t: Trial) {
    let keys = awkward();
    let added = t.adds(&all_now(&keys)).await;
    assert!(added.iter().all(|added| *added == requeue::Added::Ready), "{added:?}");
    let grants = t.lease(keys.len() + 1).await;
    assert_eq!(sorted(&grants), keys);
    let ends: Vec<_> = grants.iter().map(|grant| finish_request(grant, Finish::Done)).collect();
    assert!(t.finish_all(&ends).await.iter().all(|finished| *finished == Finished::Done));
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn keys_of_any_bytes_fail_die_and_come_back(t: Trial) {
    let keys = awkward();
    t.receipts(&all_now(&keys)).await;
    let grants = t.lease(keys.len()).await;
    t.finish_all(&grants.iter().map(|grant| finish_request(grant, Finish::Retry)).collect::<Vec<_>>()).await;
    let failing = t.store.failing(99).await.expect("failing keys are listed");
    let mut listed: Vec<_> = failing.into_iter().map(|failing| failing.key).collect();
    listed.sort();
    assert_eq!(listed, keys);

    t.clock.advance(secs(1));
    let grants = t.lease(keys.len()).await;
    let bury = |grant| finish_request(grant, Finish::GiveUp);
    t.finish_all(&grants.iter().map(bury).collect::<Vec<_>>()).await;
    let dead = t.store.dead(99).await.expect("dead keys are listed");
    let mut listed: Vec<_> = dead.into_iter().map(|dead| dead.key).collect();
    listed.sort();
    assert_eq!(listed, keys);

    let revived = t.store.revive(&Which::Keys(keys.clone())).await;
    assert_eq!(revived.expect("dead keys are revived"), keys.len() as u64);
    let removed = t.store.remove(&keys).await.expect("keys are removed");
    assert_eq!(removed, vec![true; keys.len()]);
    let looks = t.store.look(&keys).await.expect("keys are looked up");
    assert_eq!(looks, vec![Look::default(); keys.len()]);
}

/// What is kept of an error and of a reason.
async fn kept(t: &Trial, text: &str) -> [String; 2] {
    let grant = t.take("a").await;
    t.finish_with_error(&grant, Finish::Retry, text).await;
    let error = t.store.failing(9).await.expect("failing keys are listed").remove(0).error;
    t.clock.advance(secs(1));
    let grant = t.lease_one().await;
    let finished = t.finish_with_error(&grant, Finish::GiveUp, text).await;
    assert_eq!(finished, Finished::Buried);
    let reason = t.store.dead(9).await.expect("dead keys are listed").remove(0).reason;
    t.store.drop_dead(&Which::All).await.expect("dead keys are dropped");
    [error, reason]
}

pub(super) async fn texts_are_kept_as_they_are(t: Trial) {
    for text in ["", "exit status: 1", "größer 😀", "a\nb\t\"c\" 'd' \\ {e}: $1"] {
        assert_eq!(kept(&t, text).await, [text, text]);
    }
}

pub(super) async fn long_texts_are_cut_between_two_characters(t: Trial) {
    let whole = "x".repeat(FinishRequest::MAX_ERROR_LEN);
    assert_eq!(kept(&t, &whole).await, [whole.clone(), whole.clone()]);
    let longer = format!("{whole}y");
    assert_eq!(kept(&t, &longer).await, [whole.clone(), whole]);
    let wide = format!("x{}", "é".repeat(FinishRequest::MAX_ERROR_LEN));
    let cut = &wide[..FinishRequest::MAX_ERROR_LEN - 1];
    assert_eq!(kept(&t, &wide).await, [cut, cut]);
    let wider = "😀".repeat(100_000);
    let cut = &wider[..FinishRequest::MAX_ERROR_LEN];
    assert_eq!(kept(&t, &wider).await, [cut, cut]);
}

/// What a program wrote before it died may hold anything, and an engine whose texts cannot
/// have a NUL must not keep the lease from finish.
pub(super) async fn a_nul_in_a_text_does_not_keep_a_lease_from_ending(t: Trial) {
    for text in kept(&t, "core\0dumped").await {
        assert!(text.starts_with("core") && text.ends_with("dumped"), "{text:?}");
    }
}
