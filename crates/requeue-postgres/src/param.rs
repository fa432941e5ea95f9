//! Parameters of calls, with their types.
//!
//! A statement that is not prepared needs the types: a pooler keeps no prepared statements.

use std::fmt;

use tokio_postgres::types::{ToSql, Type};

/// A parameter of a call.
pub(crate) struct Param {
    value: Box<dyn ToSql + Sync + Send>,
    kind: Type,
}

impl Param {
    pub(crate) fn new<T: SqlType + Send + 'static>(value: T) -> Self {
        Self { value: Box::new(value), kind: T::TYPE }
    }

    pub(crate) fn value(&self) -> &(dyn ToSql + Sync) {
        &*self.value
    }
}

impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// Returns the parameters with their types, as the driver takes them.
pub(crate) fn typed(params: &[Param]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    params.iter().map(|param| (param.value(), param.kind.clone())).collect()
}

/// A Rust type with one SQL type.
pub(crate) trait SqlType: ToSql + Sync {
    const TYPE: Type;
}

impl SqlType for bool {
    const TYPE: Type = Type::BOOL;
}

impl SqlType for i32 {
    const TYPE: Type = Type::INT4;
}

impl SqlType for i64 {
    const TYPE: Type = Type::INT8;
}

impl SqlType for String {
    const TYPE: Type = Type::TEXT;
}

impl SqlType for Vec<i32> {
    const TYPE: Type = Type::INT4_ARRAY;
}

impl SqlType for Vec<i64> {
    const TYPE: Type = Type::INT8_ARRAY;
}

impl SqlType for Vec<String> {
    const TYPE: Type = Type::TEXT_ARRAY;
}

impl SqlType for Vec<&'static str> {
    const TYPE: Type = Type::TEXT_ARRAY;
}

impl SqlType for Vec<Vec<u8>> {
    const TYPE: Type = Type::BYTEA_ARRAY;
}

impl<T: SqlType> SqlType for Option<T> {
    const TYPE: Type = T::TYPE;
}
