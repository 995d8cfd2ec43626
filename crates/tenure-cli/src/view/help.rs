//! The sections behind the options in `--help`, which are sections of the manual pages, too.

/// A line that is not indented begins a section.
macro_rules! sections {
    ($examples:expr, $exit:expr, $environment:expr) => {
        concat!(
            "Examples:\n",
            $examples,
            "\n\nExit status:\n",
            $exit,
            "\n\nEnvironment:\n",
            $environment
        )
    };
}

macro_rules! failures {
    () => {
        "  64        the command line is wrong, or the name is in use as another kind of lock
  69        the store cannot be reached, or refuses
  71        the operating system refuses open files, threads or signals
  74        the data cannot be written to standard output"
    };
}

macro_rules! running {
    () => {
        concat!(
            "  STATUS    the command's own
  128 + N   signal N ended the command, or the wait
",
            failures!(),
            "
  75        the lock was not acquired (or the number of -E)
  76        the lock was lost before the command ended
  126, 127  the command cannot be run, or is not found"
        )
    };
}

macro_rules! store {
    () => {
        "  TENURE_URL  the store, if --url is not given; a password belongs here, not on the command line
  REDIS_URL   the store, if neither of these is given; else `local:`
  NO_COLOR    no colours in help"
    };
}

macro_rules! given {
    () => {
        concat!(
            store!(),
            "
The command gets:
  TENURE_NAME, TENURE_OWNER, TENURE_FENCE, TENURE_DEADLINE
  TENURE_URL, if the store was named, without user and password"
        )
    };
}

pub(crate) const ALL: &str = sections!(
    "  tenure run backup -- ./backup.sh              # one at a time, on all machines of the store
  tenure run -n deploy -- ./deploy.sh           # or does not wait: exit status 75
  eval \"$(tenure hold deploy)\" || exit          # for the rest of a script
  tenure ls                                     # who holds what
  tenure doctor                                 # is the store fit for locks?",
    concat!(
        "  0         success
  1         `tenure doctor` has found a problem
",
        running!()
    ),
    store!()
);

pub(crate) const RUN: &str = sections!(
    "  tenure run backup -- ./backup.sh              # waits for its turn
  tenure run -n deploy -- ./deploy.sh           # does not wait: exit status 75
  tenure run -w 10s -c 'pg_dump app | gzip > app.gz' dump
  tenure run --once-per 1h --jitter 30s report -- ./report.sh    # for cron on several machines
  tenure run --limit 4 encode -- ./encode.sh    # four at a time
  tenure run -s data -- ./read.sh               # readers share it; -x writes alone",
    running!(),
    given!()
);

pub(crate) const ELECT: &str = sections!(
    "  tenure elect scheduler -- ./scheduler         # one leader; the next candidate takes over
  tenure elect --stand-again --candidate node-1 scheduler -- ./scheduler
  tenure elect -n scheduler -- ./scheduler      # exit status 75 if another candidate leads",
    running!(),
    given!()
);

pub(crate) const HOLD: &str = sections!(
    "  eval \"$(tenure hold deploy)\" || exit          # until the script ends
  code=$(tenure hold -w 1m deploy) || exit; eval \"$code\"    # fails also where tenure is missing
  tenure release \"$TENURE_HANDLE\"               # before the script ends",
    concat!(
        "  0         the lock is held
",
        failures!(),
        "
  75        the lock was not acquired (or the number of -E)
  128 + N   signal N ended the wait"
    ),
    concat!(
        store!(),
        "
The code exports:
  TENURE_NAME, TENURE_OWNER, TENURE_FENCE, TENURE_HANDLE
  TENURE_URL, if --url is given, without user and password"
    )
);

pub(crate) const DETACHED: &str = sections!(
    "  handle=$(tenure acquire --lease 10m deploy) || exit
  tenure renew \"$handle\" || exit
  tenure release \"$handle\"
  tenure release --force deploy --reason 'the host was removed'",
    concat!(
        "  0         success
",
        failures!(),
        "
  75        the lock was not acquired (or the number of -E), or there is none to release by force
  76        the lock is no longer held"
    ),
    store!()
);

pub(crate) const VIEW: &str = sections!(
    "  tenure ls orders/                             # names that begin with this
  tenure show deploy                            # holders and waiters, in order
  tenure watch --json | jq .name                # every change
  tenure doctor                                 # is the store fit for locks?",
    concat!(
        "  0         success
  1         `tenure doctor` has found a problem
",
        failures!(),
        "
  141       the reader of the data has ended, as in `tenure ls | head -1`"
    ),
    store!()
);

pub(crate) const LAB: &str = sections!(
    "  tenure lab                                    # the stages
  tenure lab --stage 3                          # a plain DEL deletes another client's lock
  tenure lab --all --svg history.svg            # all of them, with a picture",
    concat!(
        "  0         Tenure held in all stages that were run
  1         Tenure was broken
",
        failures!()
    ),
    "  PATH      where redis-server or valkey-server is
  NO_COLOR  no colours"
);

pub(crate) const SERVE: &str = sections!(
    "  tenure serve                                  # http://127.0.0.1:7878/
  curl -X POST http://127.0.0.1:7878/v1/locks/deploy/acquire
  tenure serve --listen 0.0.0.0:7878 --token-file token --tls-cert cert.pem --tls-key key.pem",
    concat!(
        "  128 + N   signal N has ended it
",
        failures!()
    ),
    concat!(
        store!(),
        "
  TENURE_SERVE_TOKEN, TENURE_SERVE_READ_TOKEN  the tokens, if no file is named"
    )
);

pub(crate) const EXPORTER: &str = sections!(
    "  tenure exporter                               # http://127.0.0.1:9868/metrics
  tenure exporter --prefix orders/ --prefix reports/ --listen 127.0.0.1:9000",
    concat!(
        "  128 + N   signal N has ended it
",
        failures!()
    ),
    store!()
);
