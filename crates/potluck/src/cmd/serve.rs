//! `potluck serve`: runs a gateway of a pool for S3 tools and WebDAV clients.

use super::Ending;
use crate::args::{ServeArgs, ServeOptions};
use crate::command_settings::CommandSettings;
use crate::output::Output;
use crate::{ready, signals};
use potluck_client::Pool;
use potluck_config::own_pools::load_identity;
use potluck_gateway::{Gateway, GatewayOptions, OwnCertificate, Protocols, TlsError, from_files};
use potluck_wire::env::Env;
use potluck_wire::error::{ErrorKind, Failure, code};
use potluck_wire::identity::{Identity, write_private};
use potluck_wire::token::Role;
use std::net::ToSocketAddrs;
use std::path::Path;

pub async fn run(
    args: ServeArgs,
    settings: &CommandSettings,
    output: &Output,
) -> Result<Ending, Failure> {
    let (protocols, options) = match args {
        ServeArgs::S3(options) => (Protocols::S3, options),
        ServeArgs::Webdav(options) => (Protocols::WebDav, options),
        ServeArgs::All(options) => (Protocols::All, options),
    };
    let dir = options.state.clone().unwrap_or_else(|| settings.gateway_dir());
    check_identity(&dir)?;
    let tls = match &options {
        ServeOptions { tls_cert: Some(cert), tls_key: Some(key), .. } => {
            Some(from_files(cert, key).map_err(unusable)?)
        }
        _ if options.plain || is_local(&options.listen) => None,
        _ => Some(own_certificate(&dir, &options, output)?),
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let pool = Pool::of_member(&dir, settings.retry_limits)?;
    let (stop, _hangups) = signals::daemon_signals();
    let gateway = Gateway::listen(
        &Env::system().net,
        pool,
        &options.listen,
        GatewayOptions { protocols, tls },
    )
    .await;
    let listening = gateway.and_then(|gateway| Ok((gateway.address()?, gateway)));
    let (address, gateway) = listening.map_err(|why| {
        let what = format!("cannot listen at {}: {why}", options.listen);
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what).hint("choose another by --listen")
    })?;
    ready::announce(options.ready_file.as_deref(), address)?;
    let served = match protocols {
        Protocols::S3 => "S3",
        Protocols::WebDav => "WebDAV",
        Protocols::All => "S3 and WebDAV",
    };
    output.note(&format!(
        "{served} at {scheme}://{address}; users let it in with: potluck key create --space SPACE --read"
    ));
    gateway.run(stop).await;
    Ok(Ending::Done)
}

/// Refuses to serve under another identity than that of a gateway: what a gateway can do is what the keys of its users
/// allow, and nothing else.
fn check_identity(dir: &Path) -> Result<(), Failure> {
    let hint =
        "ask an admin for a token (`potluck invite --role gateway`), then run `potluck join -`";
    if !Identity::exists(dir) {
        let what = format!(
            "this machine has not joined a pool as a gateway: nothing in {}",
            dir.display()
        );
        return Err(Failure::new(ErrorKind::Auth, code::NOT_A_MEMBER, what).hint(hint));
    }
    let role = load_identity(dir)?.about.role;
    if role != Role::Gateway {
        let what = format!("{} holds the identity of a {role}, not of a gateway", dir.display());
        return Err(Failure::new(ErrorKind::Auth, code::NOT_ALLOWED, what).hint(hint));
    }
    Ok(())
}

/// Returns whether only programs of this machine reach an address.
fn is_local(listen: &str) -> bool {
    let addresses = listen.to_socket_addrs();
    addresses.is_ok_and(|mut addresses| addresses.all(|address| address.ip().is_loopback()))
}

fn own_certificate(
    dir: &Path,
    options: &ServeOptions,
    output: &Output,
) -> Result<std::sync::Arc<rustls::ServerConfig>, Failure> {
    let mut names = options.names.clone();
    let host = options.listen.rsplit_once(':').map_or(&*options.listen, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    names.extend([host.to_owned(), "localhost".to_owned()]);
    let own = OwnCertificate::keep(dir, names, write_private).map_err(unusable)?;
    output.note(&format!(
        "clients are to trust {}, which this gateway made for itself; --tls-cert shows them another",
        own.certificate.display()
    ));
    from_files(&own.certificate, &own.key).map_err(unusable)
}

fn unusable(why: TlsError) -> Failure {
    Failure::new(ErrorKind::Usage, code::BAD_SETTINGS, format!("no certificate to show: {why}"))
        .hint("name one by --tls-cert and --tls-key, or choose a host name by --name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_served_without_tls() {
        assert!(is_local("127.0.0.1:7702") && is_local("[::1]:7702"));
        assert!(!is_local("0.0.0.0:7702") && !is_local("[::]:7702") && !is_local("192.0.2.1:80"));
        assert!(!is_local("nonsense"));
    }
}
