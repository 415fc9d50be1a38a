//! Progress bars beside those of training.

use std::io::IsTerminal;

use heedful_host::progress::progress;
use indicatif::{ProgressBar, ProgressStyle};

/// A sign that something is computed of which nobody knows how far it is; nothing if standard error is no terminal.
pub(super) fn waiting_bar(what: String) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = progress().add(ProgressBar::new_spinner()).with_message(what);
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

/// A bar for work after training; nothing if standard error is no terminal.
pub(crate) fn scoring_bar(label: &'static str, total: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len}  ETA {eta}").expect("the template is constant");
    progress().add(ProgressBar::new(total as u64)).with_style(style).with_prefix(label)
}
