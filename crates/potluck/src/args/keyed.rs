//! Options of daemons that are settings. They are made from the table of keys, so that every setting can be
//! given when the daemon starts, under the same name and with the same checks.

use crate::keys::{self, Daemon, Key};
use crate::settings_file::SettingsFile;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use std::marker::PhantomData;
use std::path::PathBuf;

/// A set of keys that a command offers as options.
pub trait OfferedKeys {
    /// Returns the keys that are offered.
    fn keys() -> impl Iterator<Item = &'static Key>;
}

/// All keys of the manager.
#[derive(Debug)]
pub struct OfManager;

impl OfferedKeys for OfManager {
    fn keys() -> impl Iterator<Item = &'static Key> {
        keys::of(Daemon::Manager)
    }
}

/// All keys of the donor.
#[derive(Debug)]
pub struct OfDonor;

impl OfferedKeys for OfDonor {
    fn keys() -> impl Iterator<Item = &'static Key> {
        keys::of(Daemon::Donor)
    }
}

/// The keys of the donor whose names no key of the manager has, for `potluck up`, which runs both.
#[derive(Debug)]
pub struct OfDonorAlone;

impl OfferedKeys for OfDonorAlone {
    fn keys() -> impl Iterator<Item = &'static Key> {
        let of_manager =
            |key: &Key| keys::of(Daemon::Manager).any(|other| other.name() == key.name());
        keys::of(Daemon::Donor).filter(move |key| !of_manager(key))
    }
}

/// The settings that a command line gives, without those that it leaves out.
#[derive(Debug)]
pub struct Given<O> {
    /// The keys that were given, each with its value.
    pub settings: Vec<(&'static Key, String)>,
    offered: PhantomData<O>,
}

impl<O> Given<O> {
    /// Puts what was given into a settings file. Settings that each lent directory has for itself are set for
    /// all of `dirs`.
    pub fn put_into_of(&self, file: &mut SettingsFile, dirs: &[PathBuf]) {
        for (key, text) in &self.settings {
            match key.per_dir {
                true => dirs.iter().for_each(|dir| file.set_lent(dir, key, Some(text))),
                false => file.set(key, text),
            }
        }
    }

    /// Puts what was given into a settings file, without settings that each lent directory has for itself.
    pub fn put_into(&self, file: &mut SettingsFile) {
        self.put_into_of(file, &[]);
    }
}

impl<O: OfferedKeys> FromArgMatches for Given<O> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |key: &'static Key| Some((key, matches.get_one::<String>(key.full)?.clone()));
        Ok(Self { settings: O::keys().filter_map(given).collect(), offered: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<O: OfferedKeys> Args for Given<O> {
    fn augment_args(command: Command) -> Command {
        let option = |key: &'static Key| {
            let kind = key.kind;
            Arg::new(key.full)
                .long(key.name())
                .value_name(kind.placeholder())
                .value_parser(move |text: &str| kind.check_typed(text))
                .help(format!("{} [default: {}]", key.meaning, key.default()))
        };
        command.args(O::keys().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
