use requeue::rate::{Hierarchy, Limit, Share};

#[test]
fn limit_is_a_number_of_events_per_second() {
    for limit in [Limit::ZERO, Limit::per_second(2.5), Limit::INF] {
        let json = serde_json::to_string(&limit).unwrap();
        assert_eq!(serde_json::from_str::<Limit>(&json).unwrap(), limit, "{json}");
    }
    assert_eq!(serde_json::to_string(&Limit::per_second(2.5)).unwrap(), "2.5");
}

#[test]
fn negative_limit_is_refused() {
    let error = serde_json::from_str::<Limit>("-1").unwrap_err().to_string();
    assert_eq!(error, "a limit must be 0 or more events per second, not -1");
}

#[test]
fn share_is_read_with_and_without_a_ceiling() {
    let share: Share = serde_json::from_str(r#"{"limit": 2.5, "burst": 3}"#).unwrap();
    assert_eq!(share, Share::new(Limit::per_second(2.5), 3));
    let json = r#"{"limit":1.0,"burst":2,"ceil":{"limit":4.0,"burst":5}}"#;
    let share: Share = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&share).unwrap(), json);
    let root = Hierarchy::new(Limit::per_second(10.0), 10);
    assert!(root.child(share).is_ok());
}
