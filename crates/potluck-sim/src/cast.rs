//! The machines that take part in a scenario: a manager, donors, clients and an admin.

use std::fmt;

/// The number of donors in the pool.
pub const DONORS: u8 = 4;
/// The number of clients of the pool.
pub const CLIENTS: u8 = 3;

/// A machine of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The machine of the manager.
    Manager,
    /// The machine of the donor with this number.
    Donor(u8),
    /// The machine of the client with this number.
    Client(u8),
    /// The machine of the admin, which sets the pool up and watches its status. No fault concerns it.
    Admin,
}

impl Who {
    /// Lists the machines of all donors.
    pub fn donors() -> impl Iterator<Item = Self> + Clone {
        (0..DONORS).map(Self::Donor)
    }

    /// Lists the machines of all clients.
    pub fn clients() -> impl Iterator<Item = Self> + Clone {
        (0..CLIENTS).map(Self::Client)
    }

    /// Lists the machines that faults may concern: all but the admin's.
    pub fn mortals() -> impl Iterator<Item = Self> + Clone {
        std::iter::once(Self::Manager).chain(Self::donors()).chain(Self::clients())
    }

    /// Returns the machine's address as `host:port`.
    pub fn address(self) -> String {
        let port = if self == Self::Manager { 7700 } else { 7701 };
        format!("{self}:{port}")
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The caller pads the name if it aligns a column.
        let name = match self {
            Self::Manager => "manager".to_owned(),
            Self::Donor(number) => format!("donor-{number}"),
            Self::Client(number) => format!("client-{number}"),
            Self::Admin => "admin".to_owned(),
        };
        f.pad(&name)
    }
}
