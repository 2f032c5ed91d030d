//! CEL rules (`x-kubernetes-validations`).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use cel::extractors::This;
use cel::objects::Key;
use cel::{Context, Env, ExecutionError, Program};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, ValidationRule};
use serde_json::Value;

use crate::walk::{children, walk};
use crate::{Fault, InvalidSchema};

/// The rules of a schema by their text, compiled.
pub(crate) struct Rules {
    programs: BTreeMap<String, Program>,
    env: Arc<Env>,
}

impl Rules {
    pub(crate) fn of(root: &JSONSchemaProps) -> Result<Self, InvalidSchema> {
        let env = Arc::new(Env::stdlib());
        let mut programs = BTreeMap::new();
        for ValidationRule { rule, .. } in all_rules(root) {
            let program = env.compile(rule).map_err(|source| InvalidSchema::Rule { rule: rule.clone(), source })?;
            programs.insert(rule.clone(), program);
        }
        Ok(Self { programs, env })
    }

    /// Adds a fault for every rule that `object` breaks.
    ///
    /// A rule that cannot be evaluated is a fault too, unless `faults` says already that the object is not what the
    /// rule expects.
    pub(crate) fn check(&self, root: &JSONSchemaProps, object: &Value, faults: &mut Vec<Fault>) {
        let well_formed = faults.is_empty();
        walk(root, object, &mut |schema, value, path| {
            for rule in schema.x_kubernetes_validations.iter().flatten() {
                let message = match self.holds(&rule.rule, value) {
                    Ok(true) => continue,
                    Ok(false) => rule.message.clone().unwrap_or_else(|| format!("breaks the rule '{}'", rule.rule)),
                    Err(_) if !well_formed => continue,
                    Err(error) => format!("the schema's rule '{}' cannot be evaluated: {error}", rule.rule),
                };
                faults.push(Fault { path: path.clone(), message, hint: None });
            }
        });
    }

    fn holds(&self, rule: &str, value: &Value) -> Result<bool, String> {
        let Some(program) = self.programs.get(rule) else { return Ok(true) };
        if program.references().has_variable("oldSelf") {
            return Ok(true);
        }
        let mut context = Context::with_env(Arc::clone(&self.env));
        context.add_function("sum", sum).map_err(|error| error.to_string())?;
        context.add_variable_from_value("self", to_cel(value));
        match program.execute(&context) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!("it gives {other:?} instead of true or false")),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.programs.keys()).finish()
    }
}

/// Every rule of a schema.
fn all_rules(schema: &JSONSchemaProps) -> Vec<&ValidationRule> {
    let own = schema.x_kubernetes_validations.iter().flatten();
    own.chain(children(schema).flat_map(all_rules)).collect()
}

/// `sum` of Kubernetes' list library: the sum of a list of whole numbers, 0 for none.
fn sum(This(list): This<cel::Value>) -> Result<cel::Value, ExecutionError> {
    let cel::Value::List(items) = list else {
        return Err(ExecutionError::function_error("sum", "is for lists"));
    };
    let add = |total: i64, item: &cel::Value| match item {
        cel::Value::Int(number) => total.checked_add(*number).ok_or("exceeds 64 bits"),
        _ => Err("is for lists of whole numbers"),
    };
    let total = items.iter().try_fold(0, add).map_err(|why| ExecutionError::function_error("sum", why))?;
    Ok(cel::Value::Int(total))
}

/// Kubernetes types whole numbers as `int`, never as `uint`.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(list) => list.iter().map(to_cel).collect::<Vec<_>>().into(),
        Value::Object(fields) => {
            let entries: HashMap<Key, cel::Value> =
                fields.iter().map(|(name, value)| (name.as_str().into(), to_cel(value))).collect();
            entries.into()
        }
    }
}
