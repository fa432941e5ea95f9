//! Namespaces take turns, and edits overtake listed objects.

use std::collections::HashSet;

use kube::runtime::reflector::ObjectRef;
use requeue::order::{Fair, Order, Ticket};

use crate::object::Object;

/// After how many urgent keys a key of low priority has its turn, so that none starves.
const MAX_PASSES: u32 = 32;

/// Two fair orders: keys with a priority of at least 0, and the others.
pub(super) struct FairNamespaces<K: Object> {
    urgent: Fair<ObjectRef<K>, Option<String>>,
    low: Fair<ObjectRef<K>, Option<String>>,
    /// The tickets in `low`.
    is_low: HashSet<Ticket>,
    /// Urgent keys that were delivered while others waited.
    passes: u32,
}

impl<K: Object> FairNamespaces<K> {
    pub(super) fn new() -> Self {
        let by_namespace = || Fair::by(|key: &ObjectRef<K>| key.namespace.clone());
        Self {
            urgent: by_namespace(),
            low: by_namespace(),
            is_low: HashSet::new(),
            passes: 0,
        }
    }

    fn pop_low(&mut self) -> Option<Ticket> {
        let ticket = self.low.pop()?;
        self.is_low.remove(&ticket);
        self.passes = 0;
        Some(ticket)
    }
}

impl<K: Object> Order<ObjectRef<K>> for FairNamespaces<K> {
    fn push(&mut self, ticket: Ticket, key: &ObjectRef<K>, priority: i32) {
        if priority < 0 {
            self.low.push(ticket, key, priority);
            self.is_low.insert(ticket);
        } else {
            self.urgent.push(ticket, key, priority);
        }
    }

    fn touch(&mut self, ticket: Ticket, key: &ObjectRef<K>, priority: i32) {
        if priority >= 0 && self.is_low.remove(&ticket) {
            self.low.remove(ticket, key);
            self.urgent.push(ticket, key, priority);
        }
    }

    fn pop(&mut self) -> Option<Ticket> {
        if self.passes >= MAX_PASSES
            && let Some(ticket) = self.pop_low()
        {
            return Some(ticket);
        }
        match self.urgent.pop() {
            Some(ticket) => {
                self.passes = if self.is_low.is_empty() { 0 } else { self.passes + 1 };
                Some(ticket)
            }
            None => self.pop_low(),
        }
    }

    fn remove(&mut self, ticket: Ticket, key: &ObjectRef<K>) {
        if self.is_low.remove(&ticket) {
            self.low.remove(ticket, key);
        } else {
            self.urgent.remove(ticket, key);
        }
    }

    fn shrink(&mut self) {
        self.urgent.shrink();
        self.low.shrink();
        self.is_low.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn key(namespace: &str, name: &str) -> ObjectRef<ConfigMap> {
        ObjectRef::new(name).within(namespace)
    }

    #[test]
    fn namespaces_take_turns_and_edits_come_first() {
        let keys = [
            (key("busy", "1"), -100),
            (key("busy", "2"), 0),
            (key("busy", "3"), 0),
            (key("calm", "4"), 0),
            (key("calm", "5"), -100),
        ];
        let mut order = FairNamespaces::new();
        for (index, (key, priority)) in keys.iter().enumerate() {
            order.push(Ticket::new(index), key, *priority);
        }
        order.touch(Ticket::new(4), &keys[4].0, 0);
        let popped = std::iter::from_fn(|| order.pop()).map(Ticket::index);
        assert_eq!(popped.collect::<Vec<_>>(), [1, 3, 2, 4, 0]);
    }

    #[test]
    fn listed_objects_do_not_starve() {
        let mut order = FairNamespaces::new();
        order.push(Ticket::new(0), &key("a", "low"), -100);
        for index in 1..100 {
            order.push(Ticket::new(index), &key("a", "high"), 0);
        }
        let popped: Vec<_> =
            std::iter::from_fn(|| order.pop()).map(Ticket::index).collect();
        assert_eq!(popped.iter().position(|index| *index == 0), Some(32));
        assert_eq!(popped.len(), 100);
    }
}
