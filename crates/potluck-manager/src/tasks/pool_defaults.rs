//! Keeps spaces that were told no policy at the pool's defaults: when a second machine lends, their files get a second
//! copy.

use crate::file_goals::FileGoals;
use crate::followed_defaults::{DefaultNews, FollowedDefaults};
use crate::handles::handles;
use crate::outcomes::Outcomes;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::series_uses::SeriesUses;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::stats_cache::StatsCache;
use crate::wakeup::Wakeup;
use potluck_catalog::{Catalog, Error, Space};
use potluck_core::clock::Tick;
use potluck_core::path::PoolPath;
use potluck_core::policy::{DefaultRedundancy, Follows, Policy, PoolDefaults, Redundancy};
use potluck_core::size::{count, format_size};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

handles! {
    /// The handles for following the pool's defaults.
    pub struct DefaultsFollower {
        settings: Arc<Settings>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        goals: FileGoals,
        followed: Arc<FollowedDefaults>,
        uses: Arc<SeriesUses>,
        scan_state: Arc<ScanState>,
        stats: Arc<StatsCache>,
        background: Wakeup,
    }
}

/// The time between two looks at the settings and the donors.
const EVERY: Duration = Duration::from_secs(1);
/// The time after which spaces are looked at though neither changed: one may have been made just then, or there is room
/// now.
const AGAIN: Duration = Duration::from_secs(30);

/// What the defaults come to at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    defaults: PoolDefaults,
    /// The number of machines that take copies.
    machines: usize,
    /// The number of donors that take copies, now or when they are back.
    donors: usize,
}

impl DefaultsFollower {
    /// Follows the defaults until it is dropped.
    pub async fn run(self) {
        let mut interval = tokio::time::interval(EVERY);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut outcomes, mut followed) = (Outcomes::default(), None);
        loop {
            interval.tick().await;
            let (now, moment) = (self.time.tick(), self.moment());
            let is_due = |(then, at): (Moment, Tick)| then != moment || now - at >= AGAIN;
            if followed.is_none_or(is_due) {
                let done = self.follow(&moment).await;
                followed = done.is_ok().then_some((moment, now));
                outcomes.note("following the pool's defaults", done);
            }
        }
    }

    fn moment(&self) -> Moment {
        let (defaults, now) = (self.settings.get().defaults, self.time.tick());
        let pool = self.pool.lock();
        Moment { defaults, machines: pool.machines(now), donors: pool.expected_donors(0, now) }
    }

    async fn follow(&self, moment: &Moment) -> Result<(), Error> {
        let spaces = self.catalog.spaces().await?.into_iter();
        for space in spaces.filter(|space| !space.policy.follows.is_nothing()) {
            match self.follow_in(&space, moment).await {
                Err(Error::NoSpaceNamed(_) | Error::NoEntry(_)) => {} // it was removed meanwhile
                done => done?,
            }
        }
        Ok(())
    }

    async fn follow_in(&self, space: &Space, moment: &Moment) -> Result<(), Error> {
        let before = &space.policy;
        let mut policy = moment.defaults.applied(before, moment.machines);
        let redundancy = policy.redundancy();
        if redundancy == before.redundancy() {
            self.followed.not_held_back(&space.name);
        } else if let Some(why) = self.blocker(space, &policy, moment) {
            self.followed.note(&space.name, DefaultNews::HeldBack(why));
            let stays = DefaultRedundancy::Always(before.redundancy());
            let trash_alone = PoolDefaults { redundancy: stays, ..moment.defaults };
            policy = trash_alone.applied(before, moment.machines);
        } else {
            policy.follows.files_lag = true;
        }
        if policy != *before {
            // Where it is false somebody changed the policy, and the next look sees to what came of that.
            if !self.catalog.follow_defaults(space.id, before.clone(), policy.clone()).await? {
                return Ok(());
            }
            self.uses.may_be_others();
        }
        // Files may lag behind since an earlier term of the manager, which ended in the middle.
        if policy.follows.files_lag {
            self.change_files(space, policy, moment).await?;
        }
        Ok(())
    }

    /// Has the files of a space follow a change of its redundancy.
    async fn change_files(
        &self,
        space: &Space,
        policy: Policy,
        moment: &Moment,
    ) -> Result<(), Error> {
        let root = PoolPath::space_root(&space.name).map_err(|why| Error::Bug(why.to_string()))?;
        // A scan looks even if a later page fails, because the goals of the pages before it stay set.
        self.scan_state.changed_anywhere(self.time.tick());
        let changing = self.goals.set(&root, &policy, Some(self.time.now_ms())).await?;
        let follows = Follows { files_lag: false, ..policy.follows };
        let done = Policy { follows, ..policy.clone() };
        let (to, why, at) = (policy.redundancy(), reason(moment), self.time.tick());
        self.catalog.follow_defaults(space.id, policy, done).await?;
        tracing::info!(
            "space {}: {to} now, {why}; {}, {}, change in the background",
            space.name,
            count(changing.files, "file"),
            format_size(changing.bytes)
        );
        let news = DefaultNews::Changed { to, why, files: changing.files, at };
        self.followed.note(&space.name, news);
        self.stats.forget();
        self.scan_state.changed_anywhere(at);
        self.scan_state.hurry(at);
        self.background.wake();
        Ok(())
    }

    /// Returns why a space cannot have the policy that the defaults ask for, if so.
    fn blocker(&self, space: &Space, policy: &Policy, moment: &Moment) -> Option<String> {
        let (now, redundancy) = (self.time.tick(), policy.redundancy());
        let default = format!("{redundancy} would be the pool's default");
        if let Err(why) = policy.check() {
            return Some(format!("{default}, but {why}"));
        }
        if redundancy.donors() as usize > moment.donors {
            let needs = count(redundancy.donors().into(), "donor");
            return Some(format!("{default}, and needs {needs}: {} are there", moment.donors));
        }
        let bytes = space.sums.bytes.max(0) as u64;
        let is_auto = moment.defaults.redundancy == DefaultRedundancy::Auto;
        (is_auto && !self.pool.lock().has_room_for_second_copies(bytes, now)).then(|| {
            format!(
                "still {}: other machines lack room for a second one of {}; lend more there, or \
                 `potluck policy set pot://{} --copies 2`",
                Redundancy::Copies(1),
                format_size(bytes),
                space.name
            )
        })
    }
}

/// Says why spaces have another redundancy.
fn reason(moment: &Moment) -> String {
    match (moment.defaults.redundancy, moment.machines) {
        (DefaultRedundancy::Auto, 2) => "since a second machine lends".into(),
        (DefaultRedundancy::Auto, machines) => format!("since {machines} machines lend"),
        (DefaultRedundancy::Always(_), _) => "the pool's default".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::repair::tests::still;
    use potluck_catalog::fixture::new_space;
    use potluck_core::policy::KeptTime;

    fn moment(redundancy: DefaultRedundancy, machines: usize) -> Moment {
        let defaults = PoolDefaults { redundancy, ..PoolDefaults::default() };
        Moment { defaults, machines, donors: machines }
    }

    #[tokio::test]
    async fn unset_spaces_follow_defaults_but_are_never_lowered() {
        let (_dir, manager) = still().await;
        let follower = DefaultsFollower::from(&manager);
        let untold = Policy { follows: Follows::ALL, ..Policy::default() };
        for (name, policy) in [("lab", untold), ("told", Policy::default())] {
            let made = manager.catalog.create_space(new_space(name, policy, None), None, 0).await;
            made.expect("a space");
        }
        let followed = async |redundancy, machines| {
            follower.follow(&moment(redundancy, machines)).await.expect("written");
            let spaces = manager.catalog.spaces().await.expect("read");
            let of = |name: &str| spaces.iter().find(|it| it.name == name).expect("there");
            assert_eq!(of("told").policy, Policy::default());
            of("lab").policy.clone()
        };
        let news = || manager.followed.of("lab", None, 0, manager.time.tick());
        let auto = DefaultRedundancy::Auto;
        let three = DefaultRedundancy::Always(Redundancy::Copies(3));
        let one = followed(auto, 1).await;
        assert_eq!((one.copies, one.trash), (1, Some(KeptTime(7 * 86_400))));
        assert_eq!(news(), None);
        assert_eq!(followed(auto, 2).await.copies, 2);
        assert_eq!(news().as_deref(), Some("2 copies now, since a second machine lends"));
        assert_eq!(followed(auto, 1).await.copies, 2);
        assert_eq!(followed(three, 2).await.copies, 2);
        assert!(news().expect("news").contains("needs 3 donors: 2 are there"));
        assert_eq!(followed(three, 3).await.copies, 3);
        assert_eq!(news().as_deref(), Some("3 copies now, the pool's default"));

        // The manager was killed when the policy was set and the files had no goals yet.
        let now = followed(auto, 3).await;
        let lag = Policy { follows: Follows { files_lag: true, ..Follows::ALL }, ..now.clone() };
        let space = manager.catalog.spaces().await.expect("read").remove(0);
        assert!(manager.catalog.follow_defaults(space.id, now.clone(), lag).await.expect("set"));
        assert!(
            !manager
                .catalog
                .follow_defaults(space.id, now.clone(), now.clone())
                .await
                .expect("not")
        );
        assert_eq!(followed(auto, 3).await, now);
    }
}
