//! Trusting a donor again: an admin asks for it, and other donors fetch a sample of what it holds
//! first. Until all of it proved right the donor stays in quarantine.

use crate::audit;
use crate::service::Service;
use potluck_catalog::Error;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_pool::ProbationResult;
use potluck_wire::control::TaskOutcome;

/// Chunks fetched, spread over all it holds. A donor that lost or changed a quarter of its chunks
/// passes once in a hundred probations.
const SAMPLE: usize = 16;

/// Begins to test a donor; one that holds nothing, or that nobody else is there to test, is
/// trusted on the admin's word.
pub async fn begin(service: &Service, donor: DonorId) -> Result<(), Error> {
    let kept = service.catalog.donors().await?;
    let why = kept.into_iter().find(|known| known.donor == donor).and_then(|at| at.quarantined);
    let Some(why) = why else { return Ok(()) };
    let offset = service.env.entropy.u64();
    let sample = service.catalog.sample(donor, SAMPLE, offset).await?;
    let alone = service.pool().donor_count() < 2;
    if sample.is_empty() || alone {
        return release(service, donor).await;
    }
    let sample = sample.into_iter().map(|drawn| (drawn.name, drawn.len)).collect();
    service.pool().try_again(donor, why, sample);
    go_on(service);
    Ok(())
}

/// Asks for the tests that are due.
pub fn go_on(service: &Service) {
    let now = service.time.tick();
    let due = service.pool().due_tests(now);
    for (suspect, chunk, len) in due {
        let testers = service.pool().testers(suspect, now);
        audit::probe(service, chunk, len, suspect, &testers);
    }
}

/// A donor has fetched a chunk from `suspect`, or not.
pub async fn heard(
    service: &Service,
    suspect: DonorId,
    chunk: ChunkName,
    outcome: &TaskOutcome,
) -> Result<(), Error> {
    let verdict = service.pool().tested(suspect, &chunk, outcome);
    match verdict {
        None => Ok(()),
        Some(ProbationResult::Right) => release(service, suspect).await,
        Some(ProbationResult::Wrong(why)) => audit::quarantine(service, suspect, why).await,
    }
}

async fn release(service: &Service, donor: DonorId) -> Result<(), Error> {
    service.catalog.quarantine(donor, None).await?;
    service.pool().forgive(donor);
    service.scan_state.hurry(service.time.tick());
    Ok(())
}
