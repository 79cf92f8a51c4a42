//! The little language of rows and figures: an expression over the results of all runs.
//!
//! ```text
//!   run("scheduler=cfq").rate("a", "read", 10, 60) / MB
//!   standard_deviation(runs("scheduler=cfq").rate("a", "read") / MB)
//! ```
//!
//! It is Rhai with expressions only: numbers, texts, arrays, operators, `if`, and the functions of [`functions`]. `run`
//! finds the one variant with these labels, `runs` all of them in the order of the scenario. A figure of several
//! variants or sources (`["a", "b"]`) is an array.
//!
//! **Rehearsal.** When a scenario is read, each expression is evaluated once on variants that know their names and no
//! figures: each figure is 1. So a name that does not exist, a wrong kind or too many arguments are found before
//! anything runs.

mod answers;
mod cached;
mod functions;
mod runs;

pub use runs::{NOT_RUN, Outcome, RunOf, Runs, Window};

use rhai::{AST, Dynamic, Engine, EvalAltResult, Scope};
use std::rc::Rc;

/// Most steps of one evaluation. An expression has no loops, so none reaches this bound in earnest.
const OPERATIONS_MAX: u64 = 10_000_000;
/// Nesting of one expression at the most.
const DEPTH_MAX: usize = 64;

/// An expression that was read.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
}

/// What an expression sees.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Every variant with the results of one seed.
    pub runs: Rc<Vec<Rc<RunOf>>>,
    /// `paper`: the paper's value.
    pub paper: Option<f64>,
    /// `x`: where on a figure's axis.
    pub x: Option<String>,
}

impl Expression {
    /// Keeps `text`; [`rehearse`](Self::rehearse) says whether it is one.
    pub fn new(text: &str) -> Expression {
        Expression { text: text.to_owned() }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn value(&self, context: &Context) -> Result<Dynamic, String> {
        let engine = engine(context);
        let ast: AST = engine.compile_expression(&self.text).map_err(|error| error.to_string())?;
        let mut scope = Scope::new();
        if let Some(paper) = context.paper {
            scope.push_constant("paper", paper);
        }
        if let Some(x) = &context.x {
            scope.push_constant("x", x.clone());
        }
        for &(name, value) in functions::CONSTANTS {
            scope.push_constant(name, value);
        }
        engine.eval_ast_with_scope(&mut scope, &ast).map_err(|error| explain(&error))
    }

    /// The number that it is.
    ///
    /// # Errors
    /// Why it is none.
    pub fn number(&self, context: &Context) -> Result<f64, String> {
        let value = self.value(context)?;
        let kind = value.type_name();
        answers::number(&value).ok_or_else(|| format!("{} instead of a number", spoken(kind)))
    }

    /// The points that it is: a curve, or an array of numbers, which stand at 0, 1, 2 and so on.
    ///
    /// # Errors
    /// Why it is none.
    pub fn points(&self, context: &Context) -> Result<Vec<(f64, f64)>, String> {
        let value = self.value(context)?;
        if let Some(points) = value.read_lock::<functions::Points>() {
            return Ok(points.0.clone());
        }
        let kind = value.type_name();
        let items = value.into_array().map_err(|_| format!("{} instead of points", spoken(kind)))?;
        let numbers = items.iter().enumerate().map(|(index, item)| Some((index as f64, answers::number(item)?)));
        numbers.collect::<Option<_>>().ok_or_else(|| "an array with other things than numbers instead of points".into())
    }
}

fn engine(context: &Context) -> Engine {
    let mut engine = Engine::new();
    engine.set_max_operations(OPERATIONS_MAX);
    engine.set_max_expr_depths(DEPTH_MAX, DEPTH_MAX);
    functions::register(&mut engine, context.runs.clone());
    engine
}

fn spoken(type_name: &str) -> String {
    match type_name {
        "()" => "nothing".to_owned(),
        "string" => "a text".to_owned(),
        "array" => "an array".to_owned(),
        "f64" | "i64" => "a number".to_owned(),
        "Points" => "a curve".to_owned(),
        name if name.ends_with("Runs") => "a run without a figure of it, such as .rate(\"a\", \"read\"),".to_owned(),
        name => format!("a value of type {name}"),
    }
}

/// The error in one line, in this language's own words.
fn explain(error: &EvalAltResult) -> String {
    match error {
        EvalAltResult::ErrorRuntime(message, _) => message.to_string(),
        EvalAltResult::ErrorFunctionNotFound(signature, _) => {
            let name = signature.split([' ', '(']).next().unwrap_or_default();
            match functions::usage(name) {
                Some(usage) => format!("{name} with other arguments than {usage}"),
                None => format!("{signature}, which does not exist; functions are {}", functions::names()),
            }
        }
        EvalAltResult::ErrorVariableNotFound(name, _) => {
            format!("{name}, which is not defined; constants are {}", functions::constants())
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
