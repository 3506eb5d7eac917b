//! `potluck reserve`: reserves space for files that are going to be written.

use super::Ending;
use crate::args::{ReserveArgs, ReserveLsArgs, ReserveReleaseArgs, ReserveVerb};
use crate::output::{Output, name, stated_time, table};
use potluck_client::Pool;
use potluck_core::reserved_room::USUAL_RESERVATION;
use potluck_core::size::format_size;
use potluck_wire::control::{
    RoomRelease, RoomReservation, RoomReservationList, RoomReservations, RoomReserve,
};
use potluck_wire::error::{ErrorKind, Failure, code};

pub async fn run(args: ReserveArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args.verb {
        Some(ReserveVerb::Ls(ReserveLsArgs { path })) => {
            let found = client.call(&RoomReservationList { path }).await?;
            output.result(&found, |RoomReservations { reservations }| text(reservations));
        }
        Some(ReserveVerb::Release(ReserveReleaseArgs { id })) => {
            let call = RoomRelease { id };
            client.call(&call).await?;
            output.result(&call, |_| String::new());
        }
        None => {
            let (Some(bytes), Some(path)) = (args.size, args.path) else {
                let what = "a size and a path are missing";
                return Err(Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
                    .hint("such as: potluck reserve 40GiB pot://lab/run-7 --for 4h"));
            };
            let time = args.time.unwrap_or(USUAL_RESERVATION);
            let for_ms = time.as_millis().try_into().unwrap_or(u64::MAX);
            let reserved = client.call(&RoomReserve { path, bytes, for_ms }).await?;
            output.result(&reserved, |reserved| text(std::slice::from_ref(reserved)));
        }
    }
    Ok(Ending::Done)
}

fn text(reservations: &[RoomReservation]) -> String {
    let row = |it: &RoomReservation| {
        let left = format!("{} of {}", format_size(it.left), format_size(it.bytes));
        let until = stated_time(it.until_wall_ms);
        vec![name(&it.path.to_string()).into(), left, until, it.by.clone(), it.id.to_string()]
    };
    let rows: Vec<_> = reservations.iter().map(row).collect();
    table(&["for", "left", "until", "by", "identifier"], &[1], &rows)
}
