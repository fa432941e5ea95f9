//! The rules, against the three sets in which client-go keeps them.

mod check;
mod driver;
mod due;
mod exhaustive;
mod machine;
mod model;
