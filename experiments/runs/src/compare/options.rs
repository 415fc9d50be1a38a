//! Options of the comparison.

use std::path::PathBuf;

use clap::ValueEnum;

/// What is compared, and how it is shown.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct CompareOptions {
    /// Folders that `mt`, `lm`, `glue` and the other experiments left behind (their --out)
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,

    /// Metrics to show, by their names in results.json [default: those of the experiment's own report]
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    pub metric: Vec<String>,

    /// Row that the others are tested against: an attention or model, with or without its folder [default: dot-product or transformer, else the first
    /// row]
    #[arg(long, value_name = "NAME")]
    pub baseline: Option<String>,

    /// Significance test of differences from the baseline
    #[arg(long, value_enum, value_name = "NAME", default_value_t = CompareOptions::default().test)]
    pub test: Test,

    /// Seed of resampling
    #[arg(long, value_name = "S", default_value_t = CompareOptions::default().seed)]
    pub seed: u64,

    /// Random resamples of a test [default: 1000 for bootstrap, 10000 for randomisation]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub resamples: Option<u64>,

    /// Confidence of intervals; differences with p below 1 - SHARE are marked
    #[arg(long, value_name = "SHARE", default_value_t = CompareOptions::default().confidence, value_parser = share)]
    pub confidence: f64,

    /// Leave out the trivial baselines that the folders hold
    #[arg(long)]
    pub no_trivial_baseline: bool,

    /// Folder for compare.md, compare.html, compare.tex, compare.csv, the learning curves, and steps.csv with one line for each run, step and metric
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Check that the runs of a second folder have the same scores as those of the first, digit for digit; exit with 1 if not
    #[arg(long, conflicts_with_all = ["metric", "baseline", "test", "seed", "resamples", "confidence", "no_trivial_baseline", "out", "format"])]
    pub exactly: bool,

    /// Format of the output
    #[arg(long, value_enum, value_name = "NAME", default_value_t = CompareOptions::default().format)]
    pub format: Format,
}

impl Default for CompareOptions {
    /// What a command has that names nothing but folders.
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            metric: Vec::new(),
            baseline: None,
            test: Test::Auto,
            seed: 1,
            resamples: None,
            confidence: 0.95,
            no_trivial_baseline: false,
            out: None,
            exactly: false,
            format: Format::Terminal,
        }
    }
}

impl CompareOptions {
    /// Number of resamples of a bootstrap.
    pub fn bootstrap_resamples(&self) -> usize {
        self.resamples.unwrap_or(1000) as usize
    }

    /// Number of resamples of a randomisation test.
    pub fn randomisation_resamples(&self) -> usize {
        self.resamples.unwrap_or(10_000) as usize
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if 0.0 < share && share < 1.0 => Ok(share),
        _ => Err("it must be a number more than 0 and less than 1, such as 0.95".to_owned()),
    }
}

/// Tests of a difference; see [`heedful_metrics::significance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// Welch's t-test if both rows have several seeds, else bootstrap if the run folders hold the items of the test set, else none
    Auto,
    /// Welch's t-test over seeds
    Welch,
    /// Randomisation of seeds, exact if there are few
    Randomisation,
    /// Paired bootstrap resampling of items: sentences, examples, questions
    Bootstrap,
    /// Paired randomisation of items
    #[value(alias = "sentence-randomisation")]
    ItemRandomisation,
    /// McNemar's exact test of items that are answered right or wrong, for one seed each
    Mcnemar,
}

/// Formats of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned text
    Terminal,
    /// Markdown
    Markdown,
    /// LaTeX with the package booktabs
    Latex,
    /// Comma-separated values, one line for each row and metric, in the units of results.json
    Csv,
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: CompareOptions,
    }

    /// The options of a command line without the name of the binary.
    pub(crate) fn options(arguments: &[&str]) -> CompareOptions {
        Command::try_parse_from(["compare"].iter().chain(arguments)).unwrap_or_else(|error| panic!("{error}")).options
    }

    #[test]
    fn the_number_of_resamples_is_that_of_the_test_unless_given() {
        let by_default = options(&["a"]);
        assert_eq!((by_default.bootstrap_resamples(), by_default.randomisation_resamples()), (1000, 10_000));
        let given = options(&["a", "b", "--resamples", "7", "--metric", "BLEU,chrF2"]);
        assert_eq!((given.bootstrap_resamples(), given.randomisation_resamples()), (7, 7));
        assert_eq!((given.runs.len(), given.metric), (2, vec!["BLEU".to_owned(), "chrF2".to_owned()]));
    }

    #[test]
    fn what_is_no_share_is_no_confidence() {
        assert_eq!(share("0.9"), Ok(0.9));
        for text in ["0", "1", "95", "-0.5", "NaN", "much"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
