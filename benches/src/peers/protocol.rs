//! Requests to the two sides and their replies: one JSON object in each line.
//!
//! | request | reply |
//! | --- | --- |
//! | `{"do": "about"}` | `{"versions": {"torch": "2.15.0"}}` |
//! | `{"do": "prepare", "id": 0, "work": {..}}` with a [`Work`] | `{}` |
//! | `{"do": "run", "id": 0}` | `{"seconds": 0.01}` |
//! | `{"do": "forget", "id": 0}` | `{}` |
//!
//! The reply to anything that fails is `{"error": ".."}`.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use burn::tensor::Device;
use heedful_attention::contract::unit_variant::without_options;
use heedful_host::allocator::return_freed_memory;
use heedful_host::threads::among_workers;
use serde::{Deserialize, Serialize};

use super::cores::bind_workers;
use super::work::{Run, Work};

/// A request to a side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Versions of what is measured.
    #[serde(deserialize_with = "without_options")]
    About,
    /// Builds a piece of work.
    Prepare {
        /// The number by which it is known from now on.
        id: usize,
        /// The work.
        work: Work,
    },
    /// Runs a piece of work once.
    Run {
        /// Its number.
        id: usize,
    },
    /// Frees a piece of work, and returns its memory to the system.
    Forget {
        /// Its number.
        id: usize,
    },
}

/// The reply of a side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// Why it could not be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Seconds of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Versions by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
}

/// Our side: answers the requests of `input` on flex until it ends.
///
/// # Errors
/// If a stream fails.
pub fn serve(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut runs = BTreeMap::new();
    for line in input.lines() {
        let reply = answer(&line?, &mut runs).unwrap_or_else(|error| Reply { error: Some(error.to_string()), ..Reply::default() });
        writeln!(output, "{}", serde_json::to_string(&reply)?)?;
        output.flush()?;
    }
    Ok(())
}

/// [`serve`] on standard input and output, with [bound](bind_workers) threads.
///
/// # Errors
/// If a stream fails.
pub fn serve_standard_input() -> io::Result<()> {
    bind_workers();
    among_workers(|| serve(io::stdin().lock(), io::stdout().lock()))
}

fn answer(line: &str, runs: &mut BTreeMap<usize, Run>) -> Result<Reply, Box<dyn std::error::Error>> {
    let unprepared = |id| format!("nothing is prepared as {id}");
    match serde_json::from_str(line)? {
        Request::About => {
            Ok(Reply { versions: BTreeMap::from([("heedful".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]), ..Reply::default() })
        }
        Request::Prepare { id, work } => {
            runs.insert(id, work.prepare(&Device::flex())?);
            Ok(Reply::default())
        }
        Request::Run { id } => {
            let run = runs.get_mut(&id).ok_or_else(|| unprepared(id))?;
            Ok(Reply { seconds: Some(run()), ..Reply::default() })
        }
        Request::Forget { id } => {
            drop(runs.remove(&id).ok_or_else(|| unprepared(id))?);
            // Otherwise what comes next would grow into it unseen.
            return_freed_memory();
            Ok(Reply::default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(requests: &[&str]) -> Vec<Reply> {
        let mut output = Vec::new();
        serve(requests.join("\n").as_bytes(), &mut output).unwrap();
        String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn every_request_and_every_work_refuses_an_unknown_field() {
        for request in ["about", "prepare", "run", "forget"] {
            let error = serde_json::from_str::<Request>(&format!(r#"{{"do":"{request}","colour":1}}"#)).unwrap_err().to_string();
            assert!(error.contains("unknown field `colour`"), "{request}: {error}");
        }
        for kind in ["attention", "projections", "training-step", "classifier-step", "translation-step", "depth", "decoding"] {
            let error = serde_json::from_str::<Work>(&format!(r#"{{"kind":"{kind}","colour":1}}"#)).unwrap_err().to_string();
            assert!(error.contains("unknown field `colour`"), "{kind}: {error}");
        }
    }

    #[test]
    fn every_kind_of_work_is_prepared_run_and_forgotten() {
        let sizes = r#""sizes":{"batch":1,"length":8,"d_model":8,"heads":2}"#;
        let model = r#""model":{"vocabulary":11,"layers":1,"d_model":8,"heads":2,"d_ff":16}"#;
        let method = r#""method":{"name":"local-1d","query_block":4}"#;
        let works = [
            format!(r#"{{"kind":"attention","engine":"reference","training":true,{method},{sizes}}}"#),
            format!(r#"{{"kind":"projections","count":4,"training":false,{sizes}}}"#),
            format!(r#"{{"kind":"training-step","batch":2,"length":4,{method},{model}}}"#),
            format!(r#"{{"kind":"classifier-step","classes":3,"lengths":[4,2],{method},{model}}}"#),
            format!(r#"{{"kind":"classifier-step","classes":3,"lengths":[4,2],"unpadded":true,{method},{model}}}"#),
            format!(r#"{{"kind":"translation-step","source":[4,2],"target":[3,4],{method},{model}}}"#),
            format!(r#"{{"kind":"translation-step","source":[4,2],"target":[3,4],"unpadded":true,{method},{model}}}"#),
            format!(r#"{{"kind":"decoding","batch":2,"tokens":4,"recomputed_at":null,{method},{model}}}"#),
            format!(r#"{{"kind":"decoding","batch":2,"tokens":4,"recomputed_at":2,{method},{model}}}"#),
        ];
        for work in works {
            let prepare = format!(r#"{{"do":"prepare","id":3,"work":{work}}}"#);
            let replies = replies(&[&prepare, r#"{"do":"run","id":3}"#, r#"{"do":"forget","id":3}"#, r#"{"do":"run","id":3}"#]);
            assert_eq!([&replies[0], &replies[2]], [&Reply::default(), &Reply::default()], "{work}");
            assert!(replies[1].seconds.unwrap() > 0.0, "{work}");
            assert_eq!(replies[3].error.as_deref(), Some("nothing is prepared as 3"));
            let tiny = serde_json::from_str::<Work>(&work).unwrap().tiny();
            assert!(tiny.prepare(&Device::flex()).unwrap()() > 0.0, "{tiny:?}");
        }
    }

    #[test]
    fn what_fails_is_answered_by_the_reason() {
        let impossible =
            r#"{"do":"prepare","id":0,"work":{"kind":"attention","method":{"name":"dot-product"},"engine":"fused","training":true,
            "sizes":{"batch":1,"length":8,"d_model":8,"heads":3}}}"#
                .replace('\n', " ");
        let replies = replies(&["{", &impossible, r#"{"do":"about"}"#]);
        assert!(replies[0].error.is_some());
        assert!(replies[1].error.as_ref().unwrap().contains("heads"), "{replies:?}");
        assert!(replies[2].versions.contains_key("heedful"));
    }
}
