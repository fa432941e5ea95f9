//! One task per watch: store first, queue second.
