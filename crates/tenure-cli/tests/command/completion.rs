//! Completion of names and commands, by a real bash.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::fixture::{Fixture, now, tenure};

on_every_store! {
    names_and_commands_are_completed,
}

/// The replies of bash for a command line with the cursor at its end.
fn complete(fixture: &Fixture, line: &str) -> Vec<String> {
    let script = r#"source <(tenure completions bash)
        COMP_LINE=$1; COMP_POINT=${#1}
        read -ra COMP_WORDS <<<"${1//:/ : }"; [[ $1 == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _tenure_with_names tenure "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = Command::new("bash");
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    bash.env("PATH", format!("{}:{}", folder.display(), std::env::var("PATH").unwrap()));
    bash.env("TENURE_URL", &fixture.url).env_remove("REDIS_URL").stdin(Stdio::null());
    let output = bash.args(["-c", script, "bash", line]).output().unwrap();
    assert!(output.stderr.is_empty(), "{line}: {output:?}");
    let replies = String::from_utf8(output.stdout).unwrap();
    replies.lines().filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

fn names_and_commands_are_completed(fixture: &Fixture) {
    for name in ["orders/1", "orders/two words", "queue:a", "queue:b", "un\nsafe"] {
        fixture.said(&["acquire", name]);
    }
    assert_eq!(complete(fixture, "tenure show ord"), ["orders/1", r"orders/two\ words"]);
    assert_eq!(complete(fixture, "tenure run -w 5s orders/1"), ["orders/1"]);
    assert_eq!(complete(fixture, "tenure ls queue:"), ["a", "b"]);
    assert_eq!(complete(fixture, "tenure show un"), [""; 0]);
    assert!(complete(fixture, "tenure run --no").contains(&"--nonblock".to_owned()));
    assert!(complete(fixture, "tenure ru").contains(&"run".to_owned()));
    assert!(complete(fixture, "tenure run x -- slee").contains(&"sleep".to_owned()));
    assert!(complete(fixture, "tenure run x -- sleep /et").contains(&"/etc".to_owned()));
}

/// A prompt does not wait for a store that does not answer, and shows no error.
#[test]
fn a_store_that_does_not_answer_completes_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("redis://{}", silent.local_addr().unwrap());
    for url in [&*silent, "redis://127.0.0.1:1", "no url", "", "local:///proc/no/folder"] {
        let started = now();
        let words = ["complete-names", "--", "show", "x"];
        let output = tenure(&words).env("TENURE_URL", url).output().unwrap();
        assert!(output.status.success(), "{url}: {output:?}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{url}: {output:?}");
        assert!(started.elapsed() < Duration::from_secs(2), "{url}: {:?}", started.elapsed());
    }
}
