//! What diglot, the guard and the exec stage say to each other, and how they hand over the agent's stdio.
//!
//! Every one of them is started with one end of a Unix socket as its stdin and finds the agent's three descriptors as the
//! first message on it. That way descriptors reach exactly the process that is meant, close-on-exec everywhere else, without
//! unsafe code.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// What diglot asks of the guard: one byte on the lifeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// SIGINT to the agent alone.
    Interrupt,
    /// SIGTERM to the agent's group, and after a grace SIGKILL to all that is left.
    Terminate,
    /// SIGKILL to everything now.
    Kill,
}

impl Command {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Interrupt => b'i',
            Self::Terminate => b't',
            Self::Kill => b'k',
        }
    }

    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Interrupt, Self::Terminate, Self::Kill].into_iter().find(|command| command.byte() == byte)
    }
}

/// What the guard tells diglot, in this order: `Started`, then `Exited` or `Killed`; or `Failed` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// The agent runs, with this process id, which is also its group's.
    Started(i32),
    /// The agent could not be executed: errno.
    Failed(i32),
    /// The agent ended with this code.
    Exited(i32),
    /// The agent was ended by this signal.
    Killed(i32),
}

impl Record {
    /// Length of every record in bytes.
    pub(crate) const LEN: usize = 5;

    pub(crate) fn bytes(self) -> [u8; Self::LEN] {
        let (tag, value) = match self {
            Self::Started(value) => (b'S', value),
            Self::Failed(value) => (b'F', value),
            Self::Exited(value) => (b'X', value),
            Self::Killed(value) => (b'K', value),
        };
        let [a, b, c, d] = value.to_ne_bytes();
        [tag, a, b, c, d]
    }

    pub(crate) fn from_bytes([tag, value @ ..]: [u8; Self::LEN]) -> Option<Self> {
        let value = i32::from_ne_bytes(value);
        match tag {
            b'S' => Some(Self::Started(value)),
            b'F' => Some(Self::Failed(value)),
            b'X' => Some(Self::Exited(value)),
            b'K' => Some(Self::Killed(value)),
            _ => None,
        }
    }
}

/// Hands stdin, stdout and stderr of the agent to whoever reads the other end of `socket`.
pub(crate) fn send_fds(socket: impl AsFd, fds: [BorrowedFd<'_>; 3]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("three descriptors do not fit into the message made for three"));
    }
    sendmsg(socket, &[IoSlice::new(b"f")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes over what [`send_fds`] sent. Fails when the other end is gone.
pub(super) fn receive_fds(socket: impl AsFd) -> io::Result<[OwnedFd; 3]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // One byte, so that no command behind it is swallowed.
    let mut byte = [0];
    let mut iov = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(&socket, &mut iov, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let fds: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    fds.try_into().map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))
}
