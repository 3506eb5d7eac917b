//! Calls to the manager, and the rules by which a call that failed is made again.

use crate::pool::Pool;
use crate::retry_limits::{Asked, Pauses, RetryLimits, STRANGERS};
use bytes::Bytes;
use potluck_wire::call::{EncodedCall, Unanswered};
use potluck_wire::control::Call;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::net::BoxFuture;
use std::time::Duration;

impl Pool {
    /// Calls the manager. A manager that is away, such as one that restarts, is waited for as long as
    /// [`RetryLimits::at_first`] says.
    ///
    /// Errors: the manager's refusal; [`code::NO_MANAGER`] where no manager answers, which for a request that may not
    /// be repeated leaves open whether it was done; [`ErrorKind::Auth`] where the caller is not a member of this pool,
    /// or not any more.
    pub async fn call<C: Call>(&self, request: &C) -> Result<C::Reply, Failure> {
        let at_first = self.retry_limits.at_first;
        self.repeat(request, |failure| match failure.code.as_str() {
            code::NO_MANAGER => at_first,
            _ => Duration::ZERO,
        })
        .await
    }

    /// Calls the manager to begin a write. If it refuses because donors are silent, a client that has reached any donor
    /// before, in any work, asks again for as long as [`RetryLimits::donors`] says, as in the middle of a write: a
    /// mount begins a write for each file that is closed, and its programs know nothing of that. A client that has
    /// reached no donor asks for [`STRANGERS`] at most: those of a pool that was just made or started are about to
    /// report.
    pub(crate) async fn call_to_begin<C: Call>(&self, request: &C) -> Result<C::Reply, Failure> {
        let RetryLimits { at_first, donors, .. } = self.retry_limits;
        let donors = if self.reached().is_empty() { donors.min(STRANGERS) } else { donors };
        self.repeat(request, |failure| match failure.code.as_str() {
            code::NO_MANAGER => at_first,
            code::DONORS_SILENT => donors,
            _ => Duration::ZERO,
        })
        .await
    }

    /// Calls the manager for work that is under way. It is asked again while it is away, for as long as
    /// [`RetryLimits::under_way`] says, and for a few seconds after another failure of kind [`ErrorKind::Retry`], such
    /// as donors that have not reported yet.
    ///
    /// Errors: those of [`Pool::call`]; [`code::NO_SESSION`] comes back at once.
    pub async fn call_retrying<C: Call>(&self, request: &C) -> Result<C::Reply, Failure> {
        self.call_under_way(request, STRANGERS).await
    }

    /// Calls the manager for work under way that waits for donors itself, or not at all: only a manager that is away is
    /// waited for here.
    ///
    /// Errors: those of [`Pool::call`]; one of kind [`ErrorKind::Retry`] from the manager comes back at once.
    pub(crate) async fn call_for_manager<C: Call>(&self, request: &C) -> Result<C::Reply, Failure> {
        self.call_under_way(request, Duration::ZERO).await
    }

    async fn call_under_way<C: Call>(
        &self,
        request: &C,
        donors: Duration,
    ) -> Result<C::Reply, Failure> {
        let under_way = self.retry_limits.under_way;
        self.repeat(request, |failure| match failure.code.as_str() {
            code::NO_MANAGER => under_way,
            // A session that has ended does not come back.
            code::NO_SESSION => Duration::ZERO,
            _ if failure.kind == ErrorKind::Retry => donors,
            _ => Duration::ZERO,
        })
        .await
    }

    /// Makes a call, and makes it again for as long as `limit` allows for the failure. The wait for a manager that is
    /// away counts from the first try, any other wait from the moment at which the manager was last found to answer
    /// again.
    async fn repeat<C: Call>(
        &self,
        request: &C,
        limit: impl Fn(&Failure) -> Duration + Send + Sync,
    ) -> Result<C::Reply, Failure> {
        let reply = self.repeat_encoded(&EncodedCall::of(request)?, &limit).await?;
        self.caller.decode(&reply)
    }

    fn repeat_encoded<'a>(
        &'a self,
        request: &'a EncodedCall,
        limit: &'a (dyn Fn(&Failure) -> Duration + Send + Sync),
    ) -> BoxFuture<'a, Result<Bytes, Failure>> {
        Box::pin(async move {
            let began = self.env.clock.now();
            let mut pauses = Pauses::new(self, began);
            let mut asked = Asked { began, answers_since: None };
            loop {
                let tried = self.env.clock.now();
                let answered = self.caller.attempt_encoded(request).await;
                let Unanswered { failure, sent } = match answered {
                    Ok(reply) => return Ok(reply),
                    Err(unanswered) => unanswered,
                };
                if sent && !request.is_repeatable() {
                    return Err(perhaps_done(failure));
                }
                let is_away = failure.code == code::NO_MANAGER;
                pauses.count_from(asked.waits_since(tried, is_away));
                let why = match is_away {
                    true => self.caller.silence(),
                    false => failure.message.clone(),
                };
                if !pauses.pause(&why, limit(&failure)).await {
                    return Err(failure);
                }
            }
        })
    }
}

/// Adds advice to the failure of a request that must not be repeated unseen, where it may have been done.
fn perhaps_done(failure: Failure) -> Failure {
    match failure.code.as_str() {
        code::NO_MANAGER => failure.hint(
            "the connection was lost after the request had left: look whether it was done, before you repeat it",
        ),
        _ => failure,
    }
}
