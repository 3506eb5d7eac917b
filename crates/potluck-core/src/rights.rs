//! Rights in a space, and to whom they are granted.

use crate::ids::MemberId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The group that every user and admin is in, without being put there.
pub const EVERYONE: &str = "everyone";

/// Returns true for a text of digits only. It means the member with that number, and no member may have it as a name.
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Something that a member may do in a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// The member may see names, sizes, times, permissions, what symbolic links lead to, and how safe files are.
    /// Digests say what is in a file, and are not shown.
    List,
    /// The member may read files.
    Read,
    /// The member may make, replace, move and remove files and directories.
    Write,
    /// The member may change policies, grant rights, and remove the space.
    Manage,
}

impl Right {
    /// All rights, the least first.
    pub const ALL: [Self; 4] = [Self::List, Self::Read, Self::Write, Self::Manage];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Write => "write",
            Self::Manage => "manage",
        })
    }
}

impl FromStr for Right {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let right = Self::ALL.into_iter().find(|right| right.to_string() == text);
        right.ok_or_else(|| format!("unknown right “{text}”: use list, read, write or manage"))
    }
}

/// A set of rights, as it was granted. Read and write bring list with them, and manage brings all.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rights(u8);

impl Rights {
    /// No rights at all.
    pub const NONE: Self = Self(0);
    /// The set of all rights there are.
    pub const ALL: Self = Self(0b1111);

    /// Returns these rights and those of `other`.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these rights but for those of `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns what both these rights and `most` allow: writing alone where these are all rights and `most` is to write.
    pub fn within(self, most: Self) -> Self {
        Right::ALL.into_iter().filter(|right| self.allow(*right) && most.allow(*right)).collect()
    }

    /// Returns whether nothing was granted.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Returns whether a member with these rights may do what `right` says.
    pub fn allow(self, right: Right) -> bool {
        let enough = match right {
            Right::List => Self::ALL.0,
            Right::Read => Right::Read.bit() | Right::Manage.bit(),
            Right::Write => Right::Write.bit() | Right::Manage.bit(),
            Right::Manage => Right::Manage.bit(),
        };
        self.0 & enough != 0
    }

    /// Returns the rights that were granted, the least first.
    pub fn granted(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.0 & right.bit() != 0)
    }

    /// Returns the rights as one number, for a column.
    pub fn to_number(self) -> u8 {
        self.0
    }

    /// Returns the rights that a number stands for; `None` for a number that no release wrote.
    pub fn from_number(number: u8) -> Option<Self> {
        (number & !Self::ALL.0 == 0).then_some(Self(number))
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.granted().map(|right| right.to_string()).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(" "))
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rights({self})")
    }
}

impl Serialize for Rights {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.granted())
    }
}

impl<'de> Deserialize<'de> for Rights {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<Right>::deserialize(from)?.into_iter().collect())
    }
}

/// The member or group that rights in a space are granted to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grantee {
    /// A single member.
    Member(MemberId),
    /// All members of a group.
    Group(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greater_rights_bring_the_lesser_ones_that_they_need() {
        let may = |granted: &[Right]| -> Vec<Right> {
            let rights: Rights = granted.iter().copied().collect();
            Right::ALL.into_iter().filter(|right| rights.allow(*right)).collect()
        };
        assert_eq!(may(&[]), []);
        assert_eq!(may(&[Right::List]), [Right::List]);
        assert_eq!(may(&[Right::Read]), [Right::List, Right::Read]);
        assert_eq!(may(&[Right::Write]), [Right::List, Right::Write]);
        assert_eq!(may(&[Right::Manage]), Right::ALL);
    }

    #[test]
    fn rights_within_others_allow_what_both_allow() {
        let sets: Vec<Rights> = (0..16).filter_map(Rights::from_number).collect();
        for (own, most) in sets.iter().flat_map(|own| sets.iter().map(move |most| (*own, *most))) {
            let within = own.within(most);
            for right in Right::ALL {
                assert_eq!(within.allow(right), own.allow(right) && most.allow(right));
            }
        }
    }

    #[test]
    fn rights_are_words_outside_and_a_number_in_a_column() {
        for right in Right::ALL {
            assert_eq!(right.to_string().parse(), Ok(right));
        }
        assert!("everything".parse::<Right>().is_err());
        let rights: Rights = [Right::Write, Right::List].into_iter().collect();
        assert_eq!(rights.to_string(), "list write");
        assert_eq!(Rights::NONE.to_string(), "nothing");
        assert_eq!(Rights::from_number(rights.to_number()), Some(rights));
        assert_eq!(Rights::from_number(0b1_0000), None);
        assert_eq!(rights.without(rights), Rights::NONE);
    }
}
