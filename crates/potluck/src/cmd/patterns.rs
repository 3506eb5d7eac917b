//! Patterns in paths of the pool. Shells expand patterns of local files alone, so commands do it for the pool, in the
//! last name of a path. What is there under the very name that was written is meant alone.

use potluck_client::Pool;
use potluck_core::path::PoolPath;
use potluck_wire::error::{ErrorKind, Failure, code};

/// Returns the paths, with each whose last name has `*` or `?` in it replaced by what it matches, in order, unless
/// something is there under that name.
///
/// Errors: a pattern matches nothing, or its directory cannot be listed.
pub async fn expand(paths: &[PoolPath], client: &Pool) -> Result<Vec<PoolPath>, Failure> {
    let mut found = Vec::new();
    for path in paths {
        let Some((pattern, dir)) =
            path.file_name().filter(|name| is_pattern(name)).zip(path.parent())
        else {
            found.push(path.clone());
            continue;
        };
        if client.kind(path).await?.is_some() {
            found.push(path.clone());
            continue;
        }
        let before = found.len();
        for entry in client.list(&dir, false).await? {
            if matches(pattern.as_bytes(), entry.path.as_bytes())
                && let Ok(path) = dir.join(&entry.path)
            {
                found.push(path);
            }
        }
        if found.len() == before {
            let what = format!("nothing matches {path}");
            return Err(Failure::new(ErrorKind::NotFound, code::NO_ENTRY, what)
                .hint(format!("`potluck ls {dir}` shows what is there")));
        }
    }
    Ok(found)
}

/// Returns whether a name has signs in it that stand for others in a pattern.
pub fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

/// Returns whether a name fits a pattern, in which `*` stands for any text and `?` for one character. As in shells, a
/// name that begins with a dot fits only a pattern that does.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.starts_with(b".") && !pattern.starts_with(b".") {
        return false;
    }
    // The place to go back to is after the last star, which then stands for one byte more.
    let (mut at, mut from, mut back) = (0, 0, None);
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                back = Some((at + 1, from));
                at += 1;
            }
            Some(b'?') => {
                at += 1;
                from += 1;
                while name.get(from).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    from += 1; // the rest of one character
                }
            }
            Some(byte) if *byte == name[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((after, tried)) = back else { return false };
                back = Some((after, tried + 1));
                (at, from) = (after, tried + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns_as_in_a_shell() {
        for (pattern, fit, others) in [
            ("*.h5", &["a.h5", ".5.h5x.h5", "x.h5.h5"][..1], &["a.h6", ".h5", "h5"][..]),
            ("run-?", &["run-1", "run-ä"], &["run-", "run-12"]),
            ("*a*b*", &["ab", "xaxbx", "aab"], &["ba", ""]),
            ("*", &["a", "*"], &[".a"]),
            (".*", &[".a"], &["a"]),
        ] {
            for name in fit {
                assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
            for name in others {
                assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
            }
        }
    }
}
