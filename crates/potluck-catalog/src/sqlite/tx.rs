//! Statements in a transaction.

use crate::Error;
use crate::leases::Leases;
use crate::sql::{Column, Param, Value, damaged};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, ToSql, params_from_iter};
use std::cell::RefCell;
use std::sync::Arc;

/// The catalog as an operation sees it in a transaction: all of its changes are committed or none, and all its reads
/// see one moment. An operation may run again from its start, so it must have no other effects.
pub struct Tx {
    pub(super) connection: Connection,
    pub(super) leases: Arc<Leases>,
    noted: RefCell<NotedChanges>,
}

/// The changes that a transaction has written for the log so far.
#[derive(Default)]
pub(super) struct NotedChanges {
    /// The number of the last of them, if there is any.
    pub last: Option<i64>,
    /// The texts of the changes; `None` if nobody is to be told of them, or they are too many. They are no types of the
    /// log, whose files use this one.
    pub texts: Option<Vec<String>>,
}

/// The most changes of a transaction that are noted. Of more a listener is only told that anything may have changed.
const NOTED: usize = 10_000;

impl Tx {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, leases: Arc::default(), noted: RefCell::default() }
    }

    /// Notes a change that was written for the log, under its number. The writer tells of it once it is committed, without
    /// reading it back.
    pub fn note(&self, number: i64, change: String) {
        let mut noted = self.noted.borrow_mut();
        noted.last = Some(number);
        match &mut noted.texts {
            Some(texts) if texts.len() < NOTED => texts.push(change),
            texts => *texts = None,
        }
    }

    /// Forgets the changes that were noted, and keeps the texts of further ones if `keeps`.
    pub(super) fn begin_notes(&self, keeps: bool) {
        let texts = keeps.then(Vec::new);
        *self.noted.borrow_mut() = NotedChanges { last: None, texts };
    }

    /// Returns the changes that were noted in the transaction.
    pub(super) fn take_notes(&self) -> NotedChanges {
        self.noted.take()
    }

    /// Returns a statement, which is prepared at its first use and cached.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'_>, Error> {
        Ok(Statement(self.connection.prepare_cached(sql)?))
    }

    /// Runs a statement that gives no rows, and returns how many rows it changed.
    pub fn execute(&self, sql: &str, params: &[&dyn Param]) -> Result<usize, Error> {
        self.prepare(sql)?.execute(params)
    }

    /// Returns the one row of a statement that always has one.
    pub fn query_row<T>(
        &self,
        sql: &str,
        params: &[&dyn Param],
        read: impl FnOnce(&Row<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.prepare(sql)?.query_row(params, read)
    }

    /// Runs statements without parameters.
    pub fn execute_batch(&self, sql: &str) -> Result<(), Error> {
        Ok(self.connection.execute_batch(sql)?)
    }

    /// Does `work`, or none of it if it fails. The transaction's earlier changes stay, unless the failure rolled back
    /// the whole transaction, as a full disk does.
    pub fn savepoint<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let run = |sql| self.connection.prepare_cached(sql)?.execute([]).map_err(Error::from);
        run("SAVEPOINT part")?;
        let (last, texts) = {
            let noted = self.noted.borrow();
            (noted.last, noted.texts.as_ref().map(Vec::len))
        };
        let done = work();
        if done.is_err() {
            if self.is_over() {
                return done; // a full disk has all rolled back, the others' work too
            }
            run("ROLLBACK TO part")?;
            let mut noted = self.noted.borrow_mut();
            noted.last = last;
            if let (Some(all), Some(texts)) = (&mut noted.texts, texts) {
                all.truncate(texts);
            }
        }
        run("RELEASE part")?;
        done
    }

    /// Returns the last number that a table gave to a row, also if that row is gone; 0 if it gave none.
    pub fn last_number(&self, table: &str) -> Result<i64, Error> {
        let mut select = self.prepare("SELECT seq FROM sqlite_sequence WHERE name = ?1")?;
        Ok(select.query_one(&[&table], |row| row.get(0))?.unwrap_or(0))
    }

    /// Has a table leave out the next `spare` numbers. The table must have given a number before.
    pub fn skip_numbers(&self, table: &str, spare: u32) -> Result<(), Error> {
        let skip = "UPDATE sqlite_sequence SET seq = seq + ?2 WHERE name = ?1";
        self.execute(skip, &[&table, &spare]).map(|_| ())
    }

    /// Returns the leases of the versions that readers have open.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Returns whether no transaction is open: it was committed, or it ended by itself, as it does when the disk is
    /// full.
    pub(super) fn is_over(&self) -> bool {
        self.connection.is_autocommit()
    }
}

/// A statement that was prepared in a transaction.
pub struct Statement<'tx>(CachedStatement<'tx>);

struct Bound<'a>(Value<'a>);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Number(number) => ValueRef::Integer(number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn bound<'a>(params: &'a [&dyn Param]) -> impl rusqlite::Params + 'a {
    params_from_iter(params.iter().map(|param| Bound(param.value())))
}

impl Statement<'_> {
    /// Runs the statement, and returns how many rows it changed.
    pub fn execute(&mut self, params: &[&dyn Param]) -> Result<usize, Error> {
        Ok(self.0.execute(bound(params))?)
    }

    /// Runs a statement that inserts a row, and returns the number that the row was given.
    pub fn insert(&mut self, params: &[&dyn Param]) -> Result<i64, Error> {
        Ok(self.0.insert(bound(params))?)
    }

    /// Returns whether the statement gives a row.
    pub fn exists(&mut self, params: &[&dyn Param]) -> Result<bool, Error> {
        Ok(self.0.exists(bound(params))?)
    }

    /// Reads the statement's first row, if it has any.
    pub fn query_one<T>(
        &mut self,
        params: &[&dyn Param],
        read: impl FnOnce(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.query(params)?.next()?.map(|row| read(&row)).transpose()
    }

    /// Reads the statement's first row, which must be there.
    pub fn query_row<T>(
        &mut self,
        params: &[&dyn Param],
        read: impl FnOnce(&Row<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let found = self.query_one(params, read)?;
        found.ok_or_else(|| Error::Damaged("a row that must be there is missing".into()))
    }

    /// Reads the statement's rows with `read`.
    pub fn query_map<'s, T, R: FnMut(&Row<'_>) -> Result<T, Error>>(
        &'s mut self,
        params: &[&dyn Param],
        mut read: R,
    ) -> Result<impl Iterator<Item = Result<T, Error>> + use<'s, T, R>, Error> {
        let mut rows = self.query(params)?;
        Ok(std::iter::from_fn(move || match rows.next() {
            Ok(row) => row.map(|row| read(&row)),
            Err(why) => Some(Err(why)),
        }))
    }

    /// Runs the statement and returns its rows.
    pub fn query(&mut self, params: &[&dyn Param]) -> Result<Rows<'_>, Error> {
        Ok(Rows(self.0.query(bound(params))?))
    }
}

/// Rows, one after the other.
pub struct Rows<'s>(rusqlite::Rows<'s>);

impl Rows<'_> {
    /// Returns the next row, if there is one.
    pub fn next(&mut self) -> Result<Option<Row<'_>>, Error> {
        Ok(self.0.next()?.map(Row))
    }
}

/// A row of a result.
pub struct Row<'s>(&'s rusqlite::Row<'s>);

impl Row<'_> {
    /// Returns the column with this number, counted from 0.
    pub fn get<T: Column>(&self, column: usize) -> Result<T, Error> {
        let value = match self.0.get_ref(column)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Number(number),
            ValueRef::Text(text) => {
                std::str::from_utf8(text).map_or(Value::Blob(text), Value::Text)
            }
            ValueRef::Blob(bytes) => Value::Blob(bytes),
            ValueRef::Real(_) => {
                return Err(Error::Damaged(format!("column {column} is no integer")));
            }
        };
        T::of(value).ok_or_else(|| damaged(column, value))
    }
}

impl From<rusqlite::Error> for Error {
    fn from(why: rusqlite::Error) -> Self {
        match why.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Contended,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(why.to_string())
            }
            Some(ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                Self::Disk(why.to_string())
            }
            _ => Self::Sql(why.to_string()),
        }
    }
}
