//! The runs of a command as an array job of Slurm.

use heedful_host::command::quoted;

use super::runs::Runs;
use crate::session::error::{Completion, ExperimentError, print_line};
use crate::session::experiment::definition::Experiment;
use crate::session::jobs::Shard;
use crate::session::slurm::{Scripts, Submitted, submit};

impl<E: Experiment> Runs<'_, E> {
    /// Writes the scripts that do what is left of the runs, and submits them or shows how.
    pub(super) fn write_scripts(&self, is_submitted: bool) -> Result<Completion, ExperimentError> {
        let runs = self.all()?;
        let settings = &self.config.slurm;
        let wanted = settings.tasks.and_then(|tasks| usize::try_from(tasks).ok()).unwrap_or(usize::MAX);
        let tasks = wanted.min(runs.len());
        let (mut left, mut open) = (Vec::new(), 0);
        for (index, run) in runs.iter().enumerate() {
            if !self.is_finished(run)? {
                open += 1;
                left.push(Shard::of_index(index, tasks));
            }
        }
        if left.is_empty() {
            print_line(format!("All {} runs are finished. --merge in place of --slurm makes their report.", runs.len()))?;
            return Ok(Completion::Finished);
        }
        left.sort_unstable();
        left.dedup();
        let count = left.len();
        let arguments = std::env::args_os().skip(1).map(|argument| {
            argument.into_string().map_err(|argument| {
                ExperimentError::usage(format!("--slurm: the argument `{}` is not UTF-8, which scripts have to be", argument.display()))
            })
        });
        let scripts = Scripts {
            settings,
            name: E::NAME,
            program: std::env::current_exe().map_err(ExperimentError::failure)?,
            arguments: arguments.collect::<Result<_, _>>()?,
            working_folder: std::env::current_dir().map_err(ExperimentError::failure)?,
            tasks: (tasks, left),
        };
        let written = scripts.write(&self.folder)?;
        let out = quoted([self.folder.root().to_string_lossy().into_owned()]);
        if is_submitted {
            let Submitted { array, merge } = submit(&written)?;
            print_line(format!(
                "{open} of {} runs are in {count} tasks of job {array}, and the merge of their results is job {merge}.",
                runs.len()
            ))?;
        } else {
            let [array, merge] = [&written.array, &written.merge].map(|path| quoted([path.to_string_lossy().into_owned()]));
            print_line(format!(
                "{open} of {} runs are in {count} tasks of an array job. These commands submit it, and the merge behind it:",
                runs.len()
            ))?;
            print_line(format!("  array=$(sbatch --parsable {array})"))?;
            print_line(format!("  sbatch --dependency=afterany:${{array%%;*}} {merge}"))?;
        }
        print_line(format!("`heedful status {out}` shows how far they are."))?;
        Ok(Completion::Finished)
    }
}
