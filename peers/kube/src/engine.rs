//! The same controller for both engines: only the imports differ.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::bench::Watched;
use crate::document::Document;

pub const WORKERS: u16 = 8;

macro_rules! engine {
    ($name:ident, $controller:path, $action:path, $config:path) => {
        pub async fn $name(
            api: Api<Document>,
            work: Duration,
            again: UnboundedReceiver<()>,
            watched: Arc<Watched>,
        ) {
            use $action as Action;
            use $config as Config;
            use $controller as Controller;
            Controller::new(api, watcher::Config::default())
                .with_config(Config::default().concurrency(WORKERS))
                .reconcile_all_on(UnboundedReceiverStream::new(again))
                .run(
                    move |object: Arc<Document>, watched: Arc<Watched>| async move {
                        watched.see(&object);
                        if !work.is_zero() {
                            tokio::time::sleep(work).await;
                        }
                        Ok::<_, kube::Error>(Action::await_change())
                    },
                    |_, _, _| Action::await_change(),
                    watched,
                )
                .for_each(|_| std::future::ready(()))
                .await;
        }
    };
}

engine!(
    kube_runtime,
    kube::runtime::Controller,
    kube::runtime::controller::Action,
    kube::runtime::controller::Config
);
engine!(
    requeue_kube,
    requeue_kube::Controller,
    requeue_kube::Action,
    requeue_kube::Config
);
