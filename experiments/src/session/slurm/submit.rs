//! Handing the scripts to Slurm.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use heedful_host::command::quoted;

use super::script::Written;
use crate::session::error::ExperimentError;

/// Numbers of the jobs that were submitted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(crate) array: String,
    pub(crate) merge: String,
}

/// Submits the array job, and the merge behind it.
///
/// # Errors
/// A failure if `sbatch` is not there or refuses a job; it says what was submitted before.
pub(crate) fn submit(scripts: &Written) -> Result<Submitted, ExperimentError> {
    let array = sbatch(&scripts.array, None).map_err(|problem| ExperimentError::failure(format!("{problem}; nothing was submitted")))?;
    let merge = sbatch(&scripts.merge, Some(&array)).map_err(|problem| {
        let again = merge_command(&scripts.merge, &array);
        ExperimentError::failure(format!(
            "{problem}; the array is job {array}: submit its merge by `{again}`, or cancel it by `scancel {array}`"
        ))
    })?;
    Ok(Submitted { array, merge })
}

/// The command that submits the merge behind an array job.
pub(crate) fn merge_command(script: &Path, array: &str) -> String {
    format!("sbatch --dependency=afterany:{array} {}", quoted([script.to_string_lossy().into_owned()]))
}

fn sbatch(script: &Path, after: Option<&str>) -> Result<String, String> {
    let mut command = Command::new("sbatch");
    command.arg("--parsable").args(after.map(|job| format!("--dependency=afterany:{job}"))).arg(script);
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => "there is no `sbatch` here: submit on a machine of the cluster, or leave --submit out".to_owned(),
        _ => format!("cannot run `sbatch`: {error}"),
    })?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    if !output.status.success() {
        let remedy = if said.contains("array") { " (slurm.tasks deals the runs among fewer tasks)" } else { "" };
        return Err(format!("`sbatch {}` failed ({}): {said}{remedy}", script.display(), output.status));
    }
    // The number, and after a semicolon the cluster where there are several.
    let answer = String::from_utf8_lossy(&output.stdout);
    let job = answer.trim().split(';').next().unwrap_or_default();
    match !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(job.to_owned()),
        false => Err(format!("`sbatch --parsable {}` gave no number of a job but {:?}", script.display(), answer.trim())),
    }
}
