//! The watches of a controller beyond its root objects.

use std::sync::Arc;
use std::sync::Weak;

use futures::{Stream, StreamExt};
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{Predicate, watcher};

use super::Controller;
use super::core::{Core, Watched};
use crate::feed::{
    Change, Guard, Links, Mapped, Monitor, Property, follow, guarded_in, reopening,
};
use crate::informer::{Informer, warn_if_invalid};
use crate::object::Object;
use crate::reasons::Reasons;

impl<K: Object> Controller<K> {
    /// Reconciles the owners of the objects of an `Api` when these change.
    ///
    /// Only metadata is watched. An owner is found by group and kind, in any version.
    pub fn owns<C>(self, api: Api<C>, config: watcher::Config) -> Self
    where
        C: Object,
        C::DynamicType: Default,
    {
        self.owns_with(api, C::DynamicType::default(), config)
    }

    /// As [`owns`](Self::owns), for kinds that are known at run time only.
    #[expect(clippy::needless_pass_by_value, reason = "kube-runtime's signature")]
    pub fn owns_with<C: Object>(
        self,
        api: Api<C>,
        dynamic: C::DynamicType,
        config: watcher::Config,
    ) -> Self {
        let namespace = api.namespace().map(str::to_owned);
        let api = guarded_in(api.into_client(), namespace.as_deref(), &dynamic);
        self.follow_owned::<PartialObjectMeta<C>>(api, &dynamic, config, None)
    }

    /// As [`owns`](Self::owns), but ignores changes that leave a property unchanged.
    ///
    /// Deletes always pass. Whole objects are watched, but not stored.
    pub fn owns_if<C>(
        self,
        api: Api<C>,
        config: watcher::Config,
        predicate: impl Predicate<C> + Send + 'static,
    ) -> Self
    where
        C: Object,
        C::DynamicType: Default,
    {
        let dynamic = C::DynamicType::default();
        let namespace = api.namespace().map(str::to_owned);
        let api = guarded_in(api.into_client(), namespace.as_deref(), &dynamic);
        self.follow_owned(api, &dynamic, config, Some(Property::new(predicate)))
    }

    fn follow_owned<C: Object>(
        self,
        api: Api<Guard<C>>,
        dynamic: &C::DynamicType,
        config: watcher::Config,
        property: Option<Property<C>>,
    ) -> Self {
        let map = move |core: &Core<K>, object: C| {
            let property = property.as_ref().and_then(|property| property.of(&object));
            Mapped { keys: core.owners(object.meta()), property }
        };
        let add = |core: &Core<K>, key, change| core.inbox.add_owner(key, change);
        self.follow(api, dynamic, config, map, add)
    }

    /// Reconciles the objects that `mapper` returns when an object of an `Api` changes.
    ///
    /// An object that mapped to other keys before its change affects both. The mapper runs in
    /// the task of the watch: it must not block.
    pub fn watches<O, I>(
        self,
        api: Api<O>,
        config: watcher::Config,
        mapper: impl Fn(O) -> I + Send + Sync + 'static,
    ) -> Self
    where
        O: Object,
        O::DynamicType: Default,
        I: IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.watches_with(api, O::DynamicType::default(), config, mapper)
    }

    /// As [`watches`](Self::watches), for kinds that are known at run time only.
    #[expect(clippy::needless_pass_by_value, reason = "kube-runtime's signature")]
    pub fn watches_with<O, I>(
        self,
        api: Api<O>,
        dynamic: O::DynamicType,
        config: watcher::Config,
        mapper: impl Fn(O) -> I + Send + Sync + 'static,
    ) -> Self
    where
        O: Object,
        I: IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        self.follow_mapped(api, &dynamic, config, None, mapper)
    }

    /// As [`watches`](Self::watches), but ignores changes that leave a property unchanged.
    ///
    /// Deletes always pass.
    pub fn watches_if<O, I>(
        self,
        api: Api<O>,
        config: watcher::Config,
        predicate: impl Predicate<O> + Send + 'static,
        mapper: impl Fn(O) -> I + Send + Sync + 'static,
    ) -> Self
    where
        O: Object,
        O::DynamicType: Default,
        I: IntoIterator<Item = ObjectRef<K>>,
        I::IntoIter: Send,
    {
        let property = Some(Property::new(predicate));
        self.follow_mapped(api, &O::DynamicType::default(), config, property, mapper)
    }

    fn follow_mapped<O, I>(
        self,
        api: Api<O>,
        dynamic: &O::DynamicType,
        config: watcher::Config,
        property: Option<Property<O>>,
        mapper: impl Fn(O) -> I + Send + Sync + 'static,
    ) -> Self
    where
        O: Object,
        I: IntoIterator<Item = ObjectRef<K>>,
    {
        let namespace = api.namespace().map(str::to_owned);
        let api = guarded_in(api.into_client(), namespace.as_deref(), dynamic);
        let map = move |_: &Core<K>, object: O| {
            let property = property.as_ref().and_then(|property| property.of(&object));
            Mapped { keys: mapper(object).into_iter().collect(), property }
        };
        let add = |core: &Core<K>, key, change: Change| {
            core.inbox.add(key, Reasons::MAPPED, change.priority());
        };
        self.follow(api, dynamic, config, map, add)
    }

    /// Adds a watch that keeps links, not objects.
    fn follow<T: Object>(
        mut self,
        api: Api<Guard<T>>,
        dynamic: &T::DynamicType,
        config: watcher::Config,
        mut map: impl FnMut(&Core<K>, T) -> Mapped<ObjectRef<K>> + Send + 'static,
        add: impl Fn(&Core<K>, ObjectRef<K>, Change) + Send + 'static,
    ) -> Self {
        let monitor = self.watch_kind::<T>(dynamic, Monitor::new(T::kind(dynamic)));
        self.feeds.push(Box::new(move |core| {
            let (core, clock) = (Arc::clone(core), Arc::clone(&core.clock));
            let open = move || watcher(api.clone(), config.clone());
            let events = reopening(open, Arc::clone(&clock));
            let mut links = Links::default();
            let observed = Arc::clone(&monitor);
            let apply = move |event: Event<Guard<T>>| {
                warn_if_invalid(&event, &observed);
                links.apply(
                    event,
                    |object| map(&core, object),
                    |key, change| add(&core, key, change),
                );
            };
            Some(tokio::spawn(follow(events, monitor, clock, apply)).abort_handle())
        }));
        self
    }

    fn watch_kind<T: Object>(
        &mut self,
        dynamic: &T::DynamicType,
        monitor: Arc<Monitor>,
    ) -> Arc<Monitor> {
        let (group, kind) =
            (T::group(dynamic).into_owned(), T::kind(dynamic).into_owned());
        self.watched.push(Watched { group, kind, monitor: Arc::clone(&monitor) });
        monitor
    }

    /// Reconciles the owners of the objects of a shared store when these change.
    #[doc(alias = "owns_shared_stream")]
    pub fn owns_informer<C: Object>(self, informer: &Informer<C>) -> Self {
        self.subscribe(informer, |core: &Core<K>, change, object: &C| {
            for key in core.owners(object.meta()) {
                core.inbox.add_owner(key, change);
            }
        })
    }

    /// Reconciles the objects that `mapper` returns when an object of a shared store changes.
    #[doc(alias = "watches_shared_stream")]
    pub fn watches_informer<O, I>(
        self,
        informer: &Informer<O>,
        mapper: impl Fn(&O) -> I + Send + Sync + 'static,
    ) -> Self
    where
        O: Object,
        I: IntoIterator<Item = ObjectRef<K>>,
    {
        self.subscribe(informer, move |core: &Core<K>, change, object: &O| {
            for key in mapper(object) {
                core.inbox.add(key, Reasons::MAPPED, change.priority());
            }
        })
    }

    /// Calls `add` with each changed object of a shared store, and with its state before.
    fn subscribe<T: Object>(
        mut self,
        informer: &Informer<T>,
        add: impl Fn(&Core<K>, Change, &T) + Send + 'static,
    ) -> Self {
        self.watch_kind::<T>(informer.dynamic(), Arc::clone(informer.monitor()));
        let informer = informer.clone();
        self.keep.push(Box::new(informer.clone()));
        self.feeds.push(Box::new(move |core| {
            let core: Weak<Core<K>> = Arc::downgrade(core);
            informer.subscribe(Box::new(move |seen| {
                let Some(core) = core.upgrade() else { return false };
                if let Some(previous) = seen.previous {
                    add(&core, seen.change, previous);
                }
                add(&core, seen.change, seen.object);
                true
            }));
            informer.start();
            None
        }));
        self
    }

    /// Fills a store of other objects, without reconciling because of them.
    ///
    /// Workers start when it is filled. The store follows its objects until the controller
    /// stops.
    pub fn store_of<O>(&mut self, api: Api<O>, config: watcher::Config) -> Store<O>
    where
        O: Object,
        O::DynamicType: Default,
    {
        let informer = Informer::new(api, config);
        let store = informer.store();
        self.watch_kind::<O>(informer.dynamic(), Arc::clone(informer.monitor()));
        self.keep.push(Box::new(informer.clone()));
        self.feeds.push(Box::new(move |core| {
            informer.set_clock(Arc::clone(&core.clock));
            informer.start();
            None
        }));
        store
    }

    /// Reconciles the objects that a stream names.
    pub fn reconcile_on(
        mut self,
        keys: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    ) -> Self {
        self.feeds.push(Box::new(move |core| {
            let core = Arc::clone(core);
            let add = async move {
                let mut keys = std::pin::pin!(keys);
                while let Some(key) = keys.next().await {
                    core.inbox.add(key, Reasons::REQUESTED, 0);
                }
            };
            Some(tokio::spawn(add).abort_handle())
        }));
        self
    }

    /// Reconciles all objects, with low priority, each time a stream yields.
    pub fn reconcile_all_on(
        mut self,
        ticks: impl Stream<Item = ()> + Send + 'static,
    ) -> Self {
        self.feeds.push(Box::new(move |core| {
            let core = Arc::clone(core);
            let add = async move {
                let mut ticks = std::pin::pin!(ticks);
                while let Some(()) = ticks.next().await {
                    core.inbox.add_all(Reasons::RESYNC, std::time::Duration::ZERO);
                }
            };
            Some(tokio::spawn(add).abort_handle())
        }));
        self
    }
}
