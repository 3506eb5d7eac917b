//! The four types of values that statements take and give, whatever engine runs them.
//!
//! Statements are written in the SQL that SQLite and PostgreSQL share, with parameters `?1`, `?2`, ….
//! Features that only one engine has are in its own folder, behind [`Tx`](crate::Tx).

pub(crate) use crate::engine::{Row, Tx};
use crate::error::Error;
use potluck_core::ids::ChunkId;

/// A value of a column or a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// The absence of a value (NULL).
    Null,
    /// A number; 0 and 1 stand for false and true.
    Number(i64),
    /// A text in UTF-8.
    Text(&'a str),
    /// A string of bytes.
    Blob(&'a [u8]),
}

/// A value that can be a parameter of a statement.
pub trait Param {
    /// Returns the value that the engine is given for the parameter.
    fn value(&self) -> Value<'_>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Param for $number {
            fn value(&self) -> Value<'_> {
                Value::Number((*self).into())
            }
        }

        impl Column for $number {
            fn of(value: Value<'_>) -> Option<Self> {
                match value {
                    Value::Number(number) => number.try_into().ok(),
                    _ => None,
                }
            }
        }
    )*};
}

impl Param for ChunkId {
    fn value(&self) -> Value<'_> {
        Value::Number(self.catalog_number())
    }
}

impl Column for ChunkId {
    fn of(value: Value<'_>) -> Option<Self> {
        i64::of(value).map(Self::from_catalog)
    }
}

impl Param for bool {
    fn value(&self) -> Value<'_> {
        Value::Number((*self).into())
    }
}

impl Param for str {
    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl Param for String {
    fn value(&self) -> Value<'_> {
        Value::Text(self)
    }
}

impl Param for [u8] {
    fn value(&self) -> Value<'_> {
        Value::Blob(self)
    }
}

impl Param for Vec<u8> {
    fn value(&self) -> Value<'_> {
        Value::Blob(self)
    }
}

impl<const N: usize> Param for [u8; N] {
    fn value(&self) -> Value<'_> {
        Value::Blob(self)
    }
}

impl<T: Param + ?Sized> Param for &T {
    fn value(&self) -> Value<'_> {
        (**self).value()
    }
}

impl<T: Param> Param for Option<T> {
    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, Param::value)
    }
}

/// A value that can be read from a column.
pub trait Column: Sized {
    /// Returns the value as this type, or `None` if it is of another type or out of range.
    fn of(value: Value<'_>) -> Option<Self>;
}

numbers!(i64, u32, u8);

impl Column for bool {
    fn of(value: Value<'_>) -> Option<Self> {
        i64::of(value).map(|number| number != 0)
    }
}

impl Column for String {
    fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.into()),
            _ => None,
        }
    }
}

impl Column for Vec<u8> {
    fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Some(bytes.into()),
            _ => None,
        }
    }
}

impl<const N: usize> Column for [u8; N] {
    fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Blob(bytes) => bytes.try_into().ok(),
            _ => None,
        }
    }
}

impl<T: Column> Column for Option<T> {
    fn of(value: Value<'_>) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::of(value).map(Some),
        }
    }
}

/// Returns the error for a value in a column that no release wrote.
pub fn damaged(column: usize, value: Value<'_>) -> Error {
    Error::Damaged(format!("column {column} of a row holds {value:?}"))
}

/// Makes the list of a statement's parameters.
macro_rules! params {
    ($($param:expr),* $(,)?) => { &[$(&$param as &dyn $crate::sql::Param),*] };
}
pub(crate) use params;
