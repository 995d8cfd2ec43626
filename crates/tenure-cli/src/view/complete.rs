//! `tenure complete-names`: the names of locks, for the completion of a shell.
//!
//! It never keeps a prompt waiting: after [`LIMIT`] it ends, and whatever fails, it prints nothing.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, Args, Command};
use tenure::Tenure;

use crate::args::store::Store;
use crate::view::output::print;

/// How long a prompt may wait: after half a second a person types on.
const LIMIT: Duration = Duration::from_millis(300);

/// How many names are of use to a person.
const MOST: usize = 200;

/// Print names of locks that complete a command line
#[derive(Args)]
pub(crate) struct Arguments {
    /// The words behind `tenure`, up to the one that is being typed
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

pub(crate) async fn names(arguments: Arguments, command: Command) -> Result<(), ExitCode> {
    let Some(prefix) = prefix(&arguments.words, command) else { return Ok(()) };
    let names = tokio::time::timeout(LIMIT, list(&arguments.words, prefix)).await;
    let names = names.ok().flatten().unwrap_or_default();
    print(names.iter().map(|name| format!("{name}\n")).collect::<String>())
}

async fn list(words: &[String], prefix: &str) -> Option<Vec<String>> {
    let behind = words.iter().position(|word| word == "--url").and_then(|at| words.get(at + 1));
    let within = || words.iter().find_map(|word| word.strip_prefix("--url="));
    let url = behind.map(String::as_str).or_else(within).map(str::to_owned);
    let builder = || Tenure::builder().patience(LIMIT);
    let tenure = Store::new(url).connect_with(builder).await.ok()?;
    let locks = tenure.list(prefix, MOST).await.ok()?;
    let names = locks.into_iter().map(|lock| lock.name.as_str().to_owned());
    // A shell reads one name per line.
    Some(names.filter(|name| !name.contains(char::is_control)).collect())
}

/// The beginning of a name, if the last word is in the place of one.
fn prefix(words: &[String], mut command: Command) -> Option<&str> {
    command.build();
    let (subcommand, words) = words.split_first()?;
    let (last, before) = words.split_last()?;
    let subcommand = command.find_subcommand(subcommand)?;
    let (mut is_name, mut before) = (takes_name(subcommand), before.iter());
    while let Some(word) = before.next() {
        match option(subcommand, word) {
            // Behind the dashes is a command.
            _ if word == "--" => return None,
            Some(option) if takes_value(option) && !word.contains('=') => {
                if before.next().is_none() {
                    return (option.get_id() == "force").then_some(last);
                }
            }
            Some(_) => {}
            None if word.starts_with('-') => {}
            // The name is there already.
            None => is_name = false,
        }
    }
    (is_name && !last.starts_with('-')).then_some(last)
}

fn takes_name(subcommand: &Command) -> bool {
    subcommand.get_positionals().any(|it| matches!(it.get_id().as_str(), "name" | "prefix"))
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

fn option<'a>(subcommand: &'a Command, word: &str) -> Option<&'a Arg> {
    let long = word.strip_prefix("--").map(|it| it.split('=').next().unwrap_or(it));
    let short = word.strip_prefix('-').and_then(|it| it.chars().next_back());
    subcommand.get_arguments().find(|it| match long {
        Some(long) => it.get_long() == Some(long),
        None => short.is_some() && it.get_short() == short,
    })
}

/// Behind the script that clap makes: names, and commands behind `--`. The words are taken from the line, because
/// bash splits words at colons, which names have.
pub(crate) const BASH: &str = r#"
_tenure_with_names() {
    local i cur name words
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            elif ((COMP_CWORD == i + 1)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$2")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$2")
            fi
            return
        fi
    done
    _tenure "$@"
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
    cur=${words[-1]}
    local names=()
    mapfile -t names < <("$1" complete-names -- "${words[@]:1}" 2>/dev/null)
    ((${#names[@]})) || return 0
    COMPREPLY=()
    for name in "${names[@]}"; do
        name=${name#"${cur%"${cur##*:}"}"}
        printf -v name %q "$name"
        COMPREPLY+=("$name")
    done
}
complete -F _tenure_with_names -o bashdefault -o default tenure
"#;

pub(crate) const FISH: &str = r#"
function __fish_tenure_names
    set -l words (commandline -opc) (commandline -ct)
    tenure complete-names -- $words[2..-1] 2>/dev/null
end

complete -c tenure -n "not contains -- -- (commandline -opc)" -a "(__fish_tenure_names)"
complete -c tenure -n "contains -- -- (commandline -opc)" -a "(__fish_complete_subcommand --fcs-skip=(contains -i -- -- (commandline -opc)))"
"#;

/// In front of the script that clap makes, which calls it.
pub(crate) const ZSH: &str = r#"
_tenure_names() {
    local -a names
    names=(${(f)"$(tenure complete-names -- show "$PREFIX" 2>/dev/null)"})
    compadd -a names
}
"#;

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn names_complete_in_the_place_of_a_name() {
        for (line, expected) in [
            ("run ", Some("")),
            ("run or", Some("or")),
            ("run -n or", Some("or")),
            ("run -nw 5s or", Some("or")),
            ("run --wait 5s or", Some("or")),
            ("run --wait=5s or", Some("or")),
            ("release --force or", Some("or")),
            ("ls or", Some("or")),
            ("run --wait ", None),
            ("run x ", None),
            ("run x -- ", None),
            ("run -", None),
            ("release ", None),
            ("doctor ", None),
            ("nothing ", None),
            ("", None),
        ] {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(prefix(&words, crate::Arguments::command()), expected, "{line}");
        }
    }
}
