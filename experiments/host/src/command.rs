//! The command of this process.

/// The command of this process, quoted so that it can be pasted into a POSIX shell, with the number of threads if it was limited.
pub fn command_line() -> String {
    let command = quoted(std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()));
    match std::env::var(THREADS) {
        Ok(threads) => format!("{THREADS}={} {command}", quoted([threads])),
        Err(_) => command,
    }
}

/// The environment variable that limits the threads of the CPU backends.
const THREADS: &str = "RAYON_NUM_THREADS";

/// Arguments as a POSIX shell reads them.
pub fn quoted(arguments: impl IntoIterator<Item = String>) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=,:+@%".contains(&byte);
    let quote = |argument: String| match argument.is_empty() || !argument.bytes().all(plain) {
        true => format!("'{}'", argument.replace('\'', r"'\''")),
        false => argument,
    };
    arguments.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_command_means_the_same_arguments_to_a_shell() {
        let arguments = ["target/mt", "--set", "a.b=\"c d\"", "it's", "", "$HOME", "*", "a\nb", "--lr=3e-4"].map(String::from);
        let command = quoted(arguments.clone());
        assert!(command.starts_with("target/mt --set 'a.b=\"c d\"'") && command.ends_with("--lr=3e-4"), "{command}");
        let output = std::process::Command::new("sh").arg("-c").arg(format!("printf '%s|' {command}")).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), arguments.map(|argument| argument + "|").concat());
    }
}
