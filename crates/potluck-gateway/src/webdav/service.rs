//! WebDAV: who asks, and what of the pool answers.

use super::file_system::PoolFiles;
use crate::users::{User, Users};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dav_server::DavHandler;
use dav_server::body::Body;
use dav_server::memls::MemLs;
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use potluck_wire::error::{ErrorKind, Failure};
use std::sync::Arc;

/// What a client is asked when it shows no access key.
const CHALLENGE: &str = "Basic realm=\"potluck: user name is the identifier of an access key, password its secret\", \
                         charset=\"UTF-8\"";

/// The answers to WebDAV requests. Locks are those of this gateway: another one does not know them.
pub struct DavService {
    users: Arc<Users>,
    handler: DavHandler<User>,
}

impl DavService {
    /// Makes the service for these users.
    pub fn new(users: Arc<Users>) -> Self {
        let handler = DavHandler::builder()
            .filesystem(Box::new(PoolFiles))
            .locksystem(MemLs::new())
            .build_handler();
        Self { users, handler }
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let shown = shown_key(request.headers());
        let Some((id, secret)) = shown else { return refused(StatusCode::UNAUTHORIZED, "") };
        match self.users.of_key(&id).await {
            Ok(user) if is_same(&user.secret, &secret) => {
                // The principal tells whose lock is whose.
                self.handler.handle_guarded(request, id, user).await
            }
            Ok(_) => refused(StatusCode::UNAUTHORIZED, "the secret is not that of the access key"),
            Err(failure) => unanswered(&failure),
        }
    }
}

/// Returns the identifier and the secret of the access key that a request shows as user name and password.
fn shown_key(headers: &HeaderMap) -> Option<(String, String)> {
    let shown = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, shown) = shown.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(shown.trim()).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((id.into(), secret.into()))
}

/// Returns whether two secrets are the same, in a time that does not tell how much of them is.
fn is_same(one: &str, other: &str) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

fn unanswered(failure: &Failure) -> Response<Body> {
    match failure.kind {
        ErrorKind::Auth => refused(StatusCode::UNAUTHORIZED, &failure.message),
        kind => refused(kind.http_status(), &failure.message),
    }
}

fn refused(status: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{why}\n")));
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        let challenge = header::HeaderValue::from_static(CHALLENGE);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_read_from_a_basic_authorization() {
        let shown = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().expect("a value"));
            shown_key(&headers)
        };
        let basic = format!("Basic {}", STANDARD.encode("POTA:se:cret"));
        assert_eq!(shown(&basic), Some(("POTA".into(), "se:cret".into())));
        assert_eq!(shown(&basic.to_lowercase().replace("basic", "Bearer")), None);
        assert_eq!(shown("Basic !!"), None);
        assert_eq!(shown_key(&HeaderMap::new()), None);
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(is_same("abc", "abc"));
        assert!(!is_same("abc", "abd") && !is_same("abc", "ab") && !is_same("", "a"));
    }
}
