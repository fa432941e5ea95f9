//! Keys may consist of any bytes, and errors may have any content and length.

use requeue::Finish;

use super::trial::{Trial, adds_now, finish_request, secs, sorted};
use crate::{RepliesExt, FinishRequest, Finished, Key, Look, Stats, Which};

/// Returns keys that a store might misinterpret.
fn awkward() -> Vec<Key> {
    let texts =
        ["", " ", "a", "a:b", "{a}", "}{", "'", "\"", "\\", "a\nb", "$1", "%s", "é"];
    let mut keys: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    let long = [[0xff; Key::MAX_LEN], [0; Key::MAX_LEN], [b'a'; Key::MAX_LEN]];
    keys.extend(long.iter().map(|key| &key[..]));
    keys.push(&long[0][1..]);
    keys.extend([
        &b"\0"[..],
        b"\0\0",
        b"a\0",
        b"\0a",
        b"\xff",
        b"\xff\0\xff",
        b"\x80\xc3",
    ]);
    keys.extend([&b"\\x00"[..], b"\\000", b"NULL", b"null", b"0", b"-1", b"a\r\n"]);
    let mut keys: Vec<_> =
        keys.into_iter().map(|key| Key::new(key).expect("short enough")).collect();
    keys.sort();
    keys
}

pub(super) async fn any_bytes_make_a_distinct_key(t: Trial) {
    let keys = awkward();
    let added = t.adds(&adds_now(&keys)).await;
    assert!(added.iter().all(|added| *added == requeue::Added::Ready), "{added:?}");
    let grants = t.lease(keys.len() + 1).await;
    assert_eq!(sorted(&grants), keys);
    let done = |grant| finish_request(grant, Finish::Done);
    let requests: Vec<_> = grants.iter().map(done).collect();
    assert!(
        t.finish_all(&requests).await.iter().all(|finished| *finished == Finished::Done)
    );
    assert_eq!(t.stats().await, Stats::default());
}

pub(super) async fn key_of_any_bytes_can_fail_die_and_be_revived(t: Trial) {
    let keys = awkward();
    t.receipts(&adds_now(&keys)).await;
    let grants = t.lease(keys.len()).await;
    t.finish_all(
        &grants
            .iter()
            .map(|grant| finish_request(grant, Finish::Retry))
            .collect::<Vec<_>>(),
    )
    .await;
    let failing = t.store.failing(99).await.expect("failing succeeds");
    let mut listed: Vec<_> = failing.into_iter().map(|failing| failing.key).collect();
    listed.sort();
    assert_eq!(listed, keys);

    t.clock.advance(secs(1));
    let grants = t.lease(keys.len()).await;
    let give_up = |grant| finish_request(grant, Finish::GiveUp);
    t.finish_all(&grants.iter().map(give_up).collect::<Vec<_>>()).await;
    let dead = t.store.dead(99).await.expect("dead succeeds");
    let mut listed: Vec<_> = dead.into_iter().map(|dead| dead.key).collect();
    listed.sort();
    assert_eq!(listed, keys);

    let revived = t.store.revive(&Which::Keys(keys.clone())).await;
    assert_eq!(revived.expect("revive succeeds"), keys.len() as u64);
    let removed = t.store.remove(&keys).all().await.expect("remove succeeds");
    assert_eq!(removed, vec![true; keys.len()]);
    let looks = t.store.look(&keys).all().await.expect("look succeeds");
    assert_eq!(looks, vec![Look::default(); keys.len()]);
}

/// Returns the error of a failing key and the reason of a dead one.
async fn stored_texts(t: &Trial, text: &str) -> [String; 2] {
    let grant = t.lease_new("a").await;
    t.finish_with_error(&grant, Finish::Retry, text).await;
    let error = t.store.failing(9).await.expect("failing succeeds").remove(0).error;
    t.clock.advance(secs(1));
    let grant = t.lease_one().await;
    let finished = t.finish_with_error(&grant, Finish::GiveUp, text).await;
    assert_eq!(finished, Finished::Dead);
    let reason = t.store.dead(9).await.expect("dead succeeds").remove(0).reason;
    t.store.drop_dead(&Which::All).await.expect("drop_dead succeeds");
    [error, reason]
}

pub(super) async fn errors_are_kept_verbatim(t: Trial) {
    for text in ["", "exit status: 1", "größer 😀", "a\nb\t\"c\" 'd' \\ {e}: $1"] {
        assert_eq!(stored_texts(&t, text).await, [text, text]);
    }
}

pub(super) async fn long_errors_are_cut_between_characters(t: Trial) {
    let whole = "x".repeat(FinishRequest::MAX_ERROR_LEN);
    assert_eq!(stored_texts(&t, &whole).await, [whole.clone(), whole.clone()]);
    let longer = format!("{whole}y");
    assert_eq!(stored_texts(&t, &longer).await, [whole.clone(), whole]);
    let wide = format!("x{}", "é".repeat(FinishRequest::MAX_ERROR_LEN));
    let cut = &wide[..FinishRequest::MAX_ERROR_LEN - 1];
    assert_eq!(stored_texts(&t, &wide).await, [cut, cut]);
    let wider = "😀".repeat(100_000);
    let cut = &wider[..FinishRequest::MAX_ERROR_LEN];
    assert_eq!(stored_texts(&t, &wider).await, [cut, cut]);
}

/// The output of a crashed program may contain anything. An engine whose texts cannot have a
/// NUL must still end the lease.
pub(super) async fn nul_in_an_error_does_not_fail_the_finish(t: Trial) {
    for text in stored_texts(&t, "core\0dumped").await {
        assert!(text.starts_with("core") && text.ends_with("dumped"), "{text:?}");
    }
}
