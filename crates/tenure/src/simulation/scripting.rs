//! The real scripts, run by the real language: Lua 5.1, which Redis has, too.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::database::Database;
use super::reply::Reply;
use crate::sync::lock;

/// A language with the functions that Redis adds, and the scripts that it has compiled.
struct Interpreter {
    lua: Lua,
    compiled: HashMap<String, Function>,
}

thread_local! {
    /// One for all simulations of a thread: a script keeps nothing.
    static INTERPRETER: RefCell<Interpreter> = RefCell::new(Interpreter::new());
}

/// Runs a script on a database.
pub(super) fn run(
    database: &Arc<Mutex<Database>>,
    hash: &str,
    text: Option<&str>,
    keys: &[Vec<u8>],
    arguments: &[Vec<u8>],
) -> Reply {
    INTERPRETER.with_borrow_mut(|interpreter| {
        if let Some(text) = text {
            interpreter.compile(hash, text);
        }
        let result = interpreter.run(database, hash, keys, arguments);
        result.unwrap_or_else(|error| Reply::Error(format!("ERR {error}")))
    })
}

/// Compiles a script, unless it was.
pub(super) fn load(hash: &str, text: &str) {
    INTERPRETER.with_borrow_mut(|interpreter| interpreter.compile(hash, text));
}

impl Interpreter {
    fn new() -> Self {
        let lua = Lua::new();
        let redis = lua.create_table().expect("a table");
        for (name, raises) in [("call", true), ("pcall", false)] {
            let call = move |lua: &Lua, words: MultiValue| call(lua, &words, raises);
            redis.set(name, lua.create_function(call).expect("a function")).expect("a table");
        }
        lua.globals().set("redis", redis).expect("a global");
        Self { lua, compiled: HashMap::new() }
    }

    fn compile(&mut self, hash: &str, text: &str) {
        if !self.compiled.contains_key(hash) {
            let function = self.lua.load(text).into_function().expect("the scripts compile");
            self.compiled.insert(hash.to_owned(), function);
        }
    }

    fn run(
        &self,
        database: &Arc<Mutex<Database>>,
        hash: &str,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
    ) -> mlua::Result<Reply> {
        let lua = &self.lua;
        lua.set_app_data(database.clone());
        for (name, words) in [("KEYS", keys), ("ARGV", arguments)] {
            let words: Vec<_> =
                words.iter().map(|word| lua.create_string(word)).collect::<mlua::Result<_>>()?;
            lua.globals().set(name, words)?;
        }
        let result: Value = self.compiled[hash].call(())?;
        Ok(reply(&result))
    }
}

/// `redis.call` and `redis.pcall`.
fn call(lua: &Lua, words: &MultiValue, raises: bool) -> mlua::Result<Value> {
    let words: Vec<_> = words.iter().map(word).collect();
    let database = lua.app_data_ref::<Arc<Mutex<Database>>>().expect("a script runs");
    match lock(&database).perform(&words) {
        Reply::Error(error) if raises => Err(mlua::Error::RuntimeError(error)),
        reply => value(lua, &reply),
    }
}

/// An argument of a command. Redis writes numbers with 17 digits.
fn word(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into(),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e17 => {
            format!("{number:.0}").into()
        }
        other => panic!("a script passes {other:?} to a command"),
    }
}

fn value(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    let table = |name: &str, text: &str| -> mlua::Result<Value> {
        let table = lua.create_table()?;
        table.set(name, text)?;
        Ok(Value::Table(table))
    };
    match reply {
        Reply::Status(text) => table("ok", text),
        Reply::Error(text) => table("err", text),
        Reply::Integer(number) => Ok(Value::Number(*number as f64)),
        Reply::Text(text) => Ok(Value::String(lua.create_string(text)?)),
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Array(replies) => {
            let values: mlua::Result<Vec<_>> = replies.iter().map(|it| value(lua, it)).collect();
            Ok(Value::Table(lua.create_sequence_from(values?)?))
        }
    }
}

/// The reply to a script that returns this.
fn reply(value: &Value) -> Reply {
    match value {
        Value::String(text) => Reply::Text(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Integer(*number),
        Value::Number(number) => Reply::Integer(*number as i64),
        Value::Boolean(true) => Reply::Integer(1),
        Value::Table(table) => of_table(table),
        _ => Reply::Nil,
    }
}

/// As in Redis, an array ends before its first nil.
fn of_table(table: &Table) -> Reply {
    if let Ok(error) = table.get::<mlua::LuaString>("err") {
        return Reply::Error(error.to_string_lossy());
    }
    let values = table.sequence_values::<Value>().map_while(Result::ok);
    Reply::Array(values.map(|value| reply(&value)).collect())
}
