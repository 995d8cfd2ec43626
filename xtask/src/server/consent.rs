//! Whether a system package may be installed on the developer's machine.
//!
//! | `TENURE_INSTALL` | `--yes` | terminal | decision |
//! |---|---|---|---|
//! | `no` | any | any | refused |
//! | `yes` | any | any | given |
//! | unset | yes | any | given |
//! | unset | no | yes | asked for |
//! | unset | no | no | assumed, as in CI; never by sudo |

use std::io::{BufRead, IsTerminal, Write};

use crate::sh::{Failure, Outcome};

/// The setting in the environment.
pub(super) const VARIABLE: &str = "TENURE_INSTALL";

/// Whether a system package may be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    /// By `--yes` or by the setting.
    Given,
    /// No terminal to ask at.
    Assumed,
    /// The developer is at a terminal and must be asked.
    Required,
    /// By the setting.
    Refused,
}

impl Consent {
    /// As the environment, the terminal and the command line's `--yes` are.
    pub(super) fn now(yes: bool) -> Self {
        let setting = std::env::var(VARIABLE).unwrap_or_default();
        let has_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Self::decide(&setting, yes, has_terminal)
    }

    fn decide(setting: &str, yes: bool, has_terminal: bool) -> Self {
        match setting {
            "no" => Self::Refused,
            "yes" => Self::Given,
            _ if yes => Self::Given,
            _ if has_terminal => Self::Required,
            _ => Self::Assumed,
        }
    }

    /// Whether sudo may be used: only by a developer who agreed, or can be asked.
    pub(super) fn allows_sudo(self) -> bool {
        matches!(self, Self::Given | Self::Required)
    }

    /// Fails unless the installation may go on. `plan` says what would be installed, and how.
    pub(super) fn confirm(self, plan: &str) -> Outcome {
        self.confirm_with(plan, &mut std::io::stdin().lock(), &mut std::io::stderr())
    }

    fn confirm_with(
        self,
        plan: &str,
        answers: &mut impl BufRead,
        screen: &mut impl Write,
    ) -> Outcome {
        // A broken terminal reads as no answer, which refuses.
        let _ = writeln!(screen, "xtask: {plan}");
        match self {
            Self::Given | Self::Assumed => Ok(()),
            Self::Refused => {
                Err(Failure::new(format!("{VARIABLE}=no forbids installing a package.")))
            }
            Self::Required => {
                let _ = write!(screen, "xtask: install it? [y/N] ");
                let _ = screen.flush();
                let mut answer = String::new();
                let _ = answers.read_line(&mut answer);
                match answer.trim().to_ascii_lowercase().as_str() {
                    "y" | "yes" => Ok(()),
                    _ => Err(Failure::new("the package was not installed: the answer was no.")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(consent: Consent, answer: &str) -> (bool, String) {
        let mut screen = Vec::new();
        let outcome = consent.confirm_with("would install x", &mut answer.as_bytes(), &mut screen);
        (outcome.is_ok(), String::from_utf8(screen).unwrap())
    }

    #[test]
    fn a_setting_outranks_the_option_and_the_option_outranks_the_terminal() {
        for has_terminal in [false, true] {
            for yes in [false, true] {
                assert_eq!(Consent::decide("no", yes, has_terminal), Consent::Refused);
                assert_eq!(Consent::decide("yes", yes, has_terminal), Consent::Given);
            }
            assert_eq!(Consent::decide("", true, has_terminal), Consent::Given);
        }
    }

    #[test]
    fn without_an_answer_in_advance_a_terminal_is_asked_and_ci_goes_on() {
        assert_eq!(Consent::decide("", false, true), Consent::Required);
        assert_eq!(Consent::decide("", false, false), Consent::Assumed);
    }

    #[test]
    fn sudo_needs_a_developer_who_agrees() {
        assert!(Consent::Given.allows_sudo() && Consent::Required.allows_sudo());
        assert!(!Consent::Assumed.allows_sudo() && !Consent::Refused.allows_sudo());
    }

    #[test]
    fn the_plan_is_always_printed_and_only_the_required_answer_is_read() {
        for consent in [Consent::Given, Consent::Assumed] {
            assert_eq!(answered(consent, "n\n"), (true, "xtask: would install x\n".into()));
        }
        let (goes_on, screen) = answered(Consent::Required, "Yes\n");
        assert!(goes_on && screen.ends_with("install it? [y/N] "), "{screen}");
        assert!(!answered(Consent::Refused, "y\n").0);
    }

    #[test]
    fn no_answer_or_another_one_refuses() {
        for answer in ["", "\n", "n\n", "yep\n"] {
            assert!(!answered(Consent::Required, answer).0, "{answer:?}");
        }
    }
}
