//! Asks the user before something is done that cannot be undone.

use crate::output::{ask, can_ask};
use potluck_wire::error::{ErrorKind, Failure, code};
use std::io::{self, BufRead};

/// Asks `question` at the terminal, and succeeds if the answer is yes. `advice` says how to go on without
/// being asked.
///
/// Errors: the answer is not yes, or no terminal is there.
pub async fn confirm(question: &str, advice: &str) -> Result<(), Failure> {
    if !can_ask() {
        let what = format!("nobody is here to be asked: {question}");
        return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(advice));
    }
    let prompt = format!("{question} [y/N] ");
    // The answer is read on another thread, so that Ctrl-C works meanwhile.
    let answer = tokio::task::spawn_blocking(move || {
        let mut answer = String::new();
        ask(&prompt)?;
        io::stdin().lock().read_line(&mut answer).map(|_| answer)
    });
    let answer = answer.await.map_err(io::Error::other).and_then(|answer| answer);
    let answer = answer.map_err(|error| {
        let what = format!("the terminal cannot be read: {error}");
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what).hint(advice)
    })?;
    decided(&answer, advice)
}

fn decided(answer: &str, advice: &str) -> Result<(), Failure> {
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => {
            let what = "nothing was done, for the answer was not yes";
            Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what).hint(advice))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declining_a_prompt_interrupts_nothing() {
        assert!(["y\n", " Yes \n"].iter().all(|answer| decided(answer, "").is_ok()));
        for answer in ["", "\n", "n\n", "yesterday\n"] {
            let why = decided(answer, "add -y").expect_err("declined");
            assert_eq!((why.kind, why.hint.as_str()), (ErrorKind::Usage, "add -y"), "{answer:?}");
        }
    }
}
