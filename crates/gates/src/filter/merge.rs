//! A container's own seccomp profile with the gates in it.
//!
//! A runtime loads one profile, and libseccomp keeps no two actions for one call and the same arguments. So the gates'
//! rules are not put beside the profile's but in the place of those that allow the same call:
//!
//! | the profile | merged |
//! | --- | --- |
//! | allows a gated call | notified as the gates want it; allowed with other arguments, by conditions |
//! | allows it on conditions | notified on both conditions, allowed on the profile's alone; refused as before |
//! | refuses it, by a rule or by default | as it was |
//! | logs or traces it, or refuses it on conditions | as it was, and [named](Merged::not_notified): it is not held |
//!
//! Everything else stays: default action, architectures, flags, other calls.

use super::profile::NOT_NOTIFIED;
use super::table::REFUSED;
use super::{Filter, GatedCall};
use crate::error::GateError;
use serde_json::{Map, Value, json};
use std::path::Path;

const ALLOW: &str = "SCMP_ACT_ALLOW";
const NOTIFY: &str = "SCMP_ACT_NOTIFY";
/// What ends in no call.
const REFUSING: [&str; 5] =
    ["SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP"];
/// Conditions of a rule: the runtime specification's, and the two of Docker's and Podman's profiles.
const CONDITIONS: [&str; 3] = ["args", "includes", "excludes"];

/// A profile with the gates in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// For `linux.seccomp`, or for whatever the profile was for.
    pub profile: Value,
    /// Gated calls that are not notified, because the profile neither allows nor refuses them.
    pub not_notified: Vec<&'static str>,
}

type Object = Map<String, Value>;

fn refused(problem: impl Into<String>) -> GateError {
    GateError::Profile { problem: problem.into() }
}

impl Filter {
    /// Puts the gates into a profile that a container has already; see the [module's text](self). `listener_path` and
    /// `metadata` as of [`oci_profile`](Self::oci_profile).
    ///
    /// # Errors
    /// It is no profile, or it notifies another program: a container has one listener.
    pub fn merged_profile(self, profile: Value, listener_path: &Path, metadata: &str) -> Result<Merged, GateError> {
        let Value::Object(mut profile) = profile else { return Err(refused("is no object")) };
        let rules = match profile.remove("syscalls") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(rules)) => rules.into_iter().map(rule).collect::<Result<_, _>>()?,
            Some(_) => return Err(refused("has a syscalls key that is no list")),
        };
        let default = match profile.get("defaultAction") {
            Some(Value::String(action)) => action.clone(),
            _ => return Err(refused("has no defaultAction")),
        };
        let is_listened_to = profile.get("listenerPath").is_some_and(|path| !is_empty(path));
        if is_listened_to || default == NOTIFY || rules.iter().any(|rule| action(rule) == NOTIFY) {
            return Err(refused(format!("has {NOTIFY} or a listenerPath already; a container has one listener")));
        }
        let mut merging = Merging { default, rules, not_notified: Vec::new() };
        for call in self.calls().filter(|call| call.name != NOT_NOTIFIED) {
            merging.gate(call.name, |conditions, is_allowed_otherwise| {
                self.rules_within(call, conditions, is_allowed_otherwise)
            });
        }
        for (_, name) in REFUSED {
            let errno = json!({ "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS });
            merging.gate(name, |conditions, _| vec![with(conditions, &errno)]);
        }
        profile.insert("syscalls".to_owned(), merging.rules.into_iter().map(Value::Object).collect());
        profile.insert("listenerPath".to_owned(), json!(listener_path));
        profile.insert("listenerMetadata".to_owned(), json!(metadata));
        Ok(Merged { profile: Value::Object(profile), not_notified: merging.not_notified })
    }

    /// The rules for a call that was allowed on these conditions. libseccomp compares an argument once in a rule. If
    /// the profile compares the gates' own argument, all that it allows is notified: more than needed, without holding
    /// a call longer.
    fn rules_within(self, call: &GatedCall, conditions: &Object, is_allowed_otherwise: bool) -> Vec<Object> {
        let notified = |compared: &[Value]| with(&and(conditions, compared), &json!({ "action": NOTIFY }));
        let Some((alternatives, otherwise)) = self.comparisons_of(call) else { return vec![notified(&[])] };
        let compared_index = |comparison: &Value| comparison["index"].clone();
        let indices: Vec<_> = arguments(conditions).iter().map(compared_index).collect();
        if indices.contains(&otherwise["index"]) {
            return vec![notified(&[])];
        }
        let mut rules: Vec<_> = alternatives.into_iter().map(|comparison| notified(&[comparison])).collect();
        if is_allowed_otherwise {
            rules.push(with(&and(conditions, &[otherwise]), &json!({ "action": ALLOW })));
        }
        rules
    }
}

struct Merging {
    default: String,
    rules: Vec<Object>,
    not_notified: Vec<&'static str>,
}

impl Merging {
    /// Replaces each set of conditions on which a call was allowed by the result of `rules_within`. It is asked for
    /// rules that allow the rest, too, unless the default does.
    fn gate(&mut self, name: &'static str, rules_within: impl Fn(&Object, bool) -> Vec<Object>) {
        let allows_by_default = self.default == ALLOW;
        let (of_call, others): (Vec<_>, Vec<_>) =
            self.rules.iter().cloned().partition(|rule| names(rule).contains(&name));
        let is_refused = |rule: &Object| is_unconditional(rule) && REFUSING.contains(&action(rule));
        let conditions: Vec<Object> = if of_call.is_empty() {
            if REFUSING.contains(&&*self.default) {
                return;
            }
            if !allows_by_default {
                return self.not_notified.push(name);
            }
            vec![Object::new()]
        } else if of_call.iter().all(is_refused) {
            return;
        } else if of_call.iter().any(|rule| action(rule) != ALLOW) {
            return self.not_notified.push(name);
        } else if allows_by_default || of_call.iter().any(is_unconditional) {
            vec![Object::new()]
        } else {
            of_call.iter().map(conditions_of).collect()
        };
        let without = of_call.into_iter().filter_map(|rule| without_name(rule, name));
        self.rules = others.into_iter().chain(without).collect();
        for conditions in conditions {
            let of_call = rules_within(&conditions, !allows_by_default);
            self.rules.extend(of_call.into_iter().map(|rule| with(&rule, &json!({ "names": [name] }))));
        }
    }
}

/// A rule of a profile, with `names` also where it has the older `name`.
fn rule(value: Value) -> Result<Object, GateError> {
    let Value::Object(mut rule) = value else { return Err(refused("has a syscall rule that is no object")) };
    if let Some(name) = rule.remove("name").filter(|name| !is_empty(name)) {
        rule.insert("names".to_owned(), json!([name]));
    }
    let is_list = rule.get("names").and_then(Value::as_array).is_some_and(|names| names.iter().all(Value::is_string));
    let is_rule = is_list && rule.get("action").is_some_and(Value::is_string);
    if is_rule { Ok(rule) } else { Err(refused("has a syscall rule without names and action")) }
}

fn action(rule: &Object) -> &str {
    rule["action"].as_str().unwrap_or_default()
}

fn names(rule: &Object) -> Vec<&str> {
    rule["names"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn arguments(rule: &Object) -> &[Value] {
    rule.get("args").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_unconditional(rule: &Object) -> bool {
    CONDITIONS.iter().all(|key| rule.get(*key).is_none_or(is_empty))
}

fn conditions_of(rule: &Object) -> Object {
    rule.iter()
        .filter(|(key, _)| CONDITIONS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The same with more fields.
fn with(rule: &Object, fields: &Value) -> Object {
    let mut rule = rule.clone();
    rule.extend(fields.as_object().cloned().unwrap_or_default());
    rule
}

/// The same on one more condition.
fn and(conditions: &Object, compared: &[Value]) -> Object {
    let all: Vec<_> = arguments(conditions).iter().chain(compared).cloned().collect();
    if all.is_empty() { conditions.clone() } else { with(conditions, &json!({ "args": all })) }
}

/// The rule for its other calls; `None` if there are none.
fn without_name(mut rule: Object, name: &str) -> Option<Object> {
    let others: Vec<_> = names(&rule).into_iter().filter(|other| *other != name).map(str::to_owned).collect();
    let is_left = !others.is_empty();
    rule.insert("names".to_owned(), json!(others));
    is_left.then_some(rule)
}
