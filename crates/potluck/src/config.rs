//! Configuration files as they are written. Flags and environment are read by `clap` (args.rs);
//! settings.rs puts all of it together.

use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// One configuration file; every field may be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// The pool to use: a name, or the directory of an identity.
    pub pool: Option<String>,
    /// Whether to draw progress bars.
    pub progress: Option<bool>,
    /// How long to wait for those who do not answer, such as `10m`.
    pub patience: Option<String>,
}

impl ConfigFile {
    /// Reads the files in the order of their precedence, lowest first, and lets later ones win.
    pub fn load(config_dir: &Path) -> Result<Self, Failure> {
        let places = [
            PathBuf::from("/etc/potluck/config.toml"),
            config_dir.join("config.toml"),
            PathBuf::from(".potluck.toml"),
        ];
        places.iter().try_fold(Self::default(), |lower, place| Ok(Self::read(place)?.over(lower)))
    }

    fn read(place: &Path) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(place) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(bad(place, &error.to_string())),
        };
        toml::from_str(&text).map_err(|why| bad(place, why.message()))
    }

    fn over(self, lower: Self) -> Self {
        Self {
            pool: self.pool.or(lower.pool),
            progress: self.progress.or(lower.progress),
            patience: self.patience.or(lower.patience),
        }
    }
}

fn bad(place: &Path, why: &str) -> Failure {
    let what = format!("cannot use the configuration in {}: {why}", place.display());
    Failure::new(ErrorKind::Usage, code::BAD_REQUEST, what)
        .hint("correct the file; it may hold `pool = \"NAME\"`, `progress = false` and `patience = \"10m\"`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_files_win_and_unknown_keys_are_refused() {
        let low: ConfigFile = toml::from_str("pool = 'a'\nprogress = false").expect("low");
        let high: ConfigFile = toml::from_str("pool = 'b'").expect("high");
        let both = high.over(low);
        assert_eq!((both.pool.as_deref(), both.progress), (Some("b"), Some(false)));
        assert!(toml::from_str::<ConfigFile>("poool = 'a'").is_err());
    }
}
