//! `potluck quota`: limits how much may be stored, and shows how much is.

use super::Ending;
use crate::args::{self, QuotaSetArgs};
use crate::output::{Output, table};
use potluck_client::Pool;
use potluck_core::quota::{Quota, QuotaChange, QuotaOf};
use potluck_core::size::format_size;
use potluck_wire::control::{self, QuotaList, QuotaUse, Quotas};
use potluck_wire::error::{ErrorKind, Failure, code};

pub async fn run(args: args::QuotaArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    match args {
        args::QuotaArgs::Set(QuotaSetArgs { of, bytes, files, none }) => {
            let change = match none {
                true => Quota::NONE.into(),
                false => QuotaChange {
                    bytes: bytes.unwrap_or_default(),
                    files: files.unwrap_or_default(),
                },
            };
            let call = control::QuotaSet { of, change };
            client.call(&call).await?;
            output.result(&call, |_| String::new());
        }
        args::QuotaArgs::Get(args) => {
            let mut quotas = client.call(&QuotaList {}).await?.quotas;
            quotas.retain(|quota| is_of(quota, &args.of));
            let Some(quota) = quotas.pop() else {
                let what = format!("{} has no quota, as far as you may see", args.of);
                return Err(Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
                    .hint("`potluck quota ls` lists quotas"));
            };
            output.result(&quota, |quota| text(std::slice::from_ref(quota)));
        }
        args::QuotaArgs::Ls => {
            let quotas = client.call(&QuotaList {}).await?;
            output.result(&quotas, |Quotas { quotas }| text(quotas));
        }
    }
    Ok(Ending::Done)
}

/// Returns whether the user means this quota by `of`.
fn is_of(quota: &QuotaUse, of: &str) -> bool {
    match &quota.of {
        QuotaOf::Space(space) => {
            of.strip_prefix("pot://").is_some_and(|of| of.trim_end_matches('/') == space)
        }
        QuotaOf::Member(member) => quota.name.as_deref() == Some(of) || member.to_string() == of,
    }
}

/// Formats what is used of a limit, such as `3 of 10`.
fn used_of(used: String, most: Option<String>) -> String {
    match most {
        Some(most) => format!("{used} of {most}"),
        None => used,
    }
}

/// Says how much of a quota is used, bytes before files.
pub fn used(QuotaUse { quota, files, bytes, .. }: &QuotaUse) -> [String; 2] {
    [
        used_of(format_size(*bytes), quota.bytes.map(format_size)),
        used_of(files.to_string(), quota.files.map(|files| files.to_string())),
    ]
}

fn text(quotas: &[QuotaUse]) -> String {
    let row = |quota: &QuotaUse| {
        let of = match &quota.of {
            QuotaOf::Space(space) => format!("pot://{space}"),
            QuotaOf::Member(member) => {
                format!("spaces of {} ({member})", quota.name.as_deref().unwrap_or_default())
            }
        };
        let [bytes, files] = used(quota);
        let whose = if quota.files_by_default { "every user's" } else { "" };
        vec![of, bytes, files, whose.into()]
    };
    table(&["of", "size", "files", ""], &[1, 2], &quotas.iter().map(row).collect::<Vec<_>>())
}
