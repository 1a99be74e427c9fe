//! What diglot and the guard say to each other, and how the agent's stdio is handed over.
//!
//! The guard is started with one end of a Unix socket as its stdin. First come the agent's three descriptors on it, which
//! that way reach exactly the process that is meant and are close-on-exec everywhere else; then the [`Order`], which so is
//! seen in no list of processes; then [`Command`]s one way and [`Record`]s the other.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

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

/// What the guard tells diglot, in this order: `Started`, then `Exited` or `Killed`; or `Failed` or `NotEntered` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// The agent runs, with this process id, which is also its group's.
    Started(i32),
    /// The agent could not be executed: errno.
    Failed(i32),
    /// The agent's working directory could not be entered: errno.
    NotEntered(i32),
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
            Self::NotEntered(value) => (b'D', value),
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
            b'D' => Some(Self::NotEntered(value)),
            b'X' => Some(Self::Exited(value)),
            b'K' => Some(Self::Killed(value)),
            _ => None,
        }
    }
}

/// What the guard is to start. The environment is diglot's own with these changes, the removals first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) cwd: OsString,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) env_remove: Vec<OsString>,
}

impl Order {
    /// For the lifeline: the length as four bytes, then text after text, each with its kind before it and a NUL behind it.
    ///
    /// # Errors
    /// `InvalidInput` for a NUL in a text, with which no process can be started.
    pub(crate) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 4];
        let one = |text| std::slice::from_ref(text);
        let kinds: [(u8, &[OsString]); 4] =
            [(b'd', one(&self.cwd)), (b'p', one(&self.program)), (b'a', &self.args), (b'u', &self.env_remove)];
        for (kind, texts) in kinds {
            for text in texts {
                push(&mut bytes, kind, text)?;
            }
        }
        for (name, value) in &self.env {
            push(&mut bytes, b'n', name)?;
            push(&mut bytes, b'v', value)?;
        }
        let length = u32::try_from(bytes.len() - 4).map_err(|_| io::Error::from(io::ErrorKind::ArgumentListTooLong))?;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        Ok(bytes)
    }

    /// Reads what [`Order::bytes`] wrote, and no byte more. Fails when the other end goes meanwhile.
    pub(super) fn receive(from: &mut impl Read) -> io::Result<Self> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_ne_bytes(length).into();
        let mut bytes = Vec::new();
        if from.take(length).read_to_end(&mut bytes)? as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut order = Self::default();
        let mut name = None;
        for text in bytes.split(|byte| *byte == 0) {
            let Some((kind, text)) = text.split_first() else { continue };
            let text = OsString::from_vec(text.to_vec());
            match kind {
                b'd' => order.cwd = text,
                b'p' => order.program = text,
                b'a' => order.args.push(text),
                b'u' => order.env_remove.push(text),
                b'n' => name = Some(text),
                b'v' => order.env.extend(name.take().map(|name| (name, text))),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(order)
    }
}

fn push(bytes: &mut Vec<u8>, kind: u8, text: &OsStr) -> io::Result<()> {
    if text.as_bytes().contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a NUL byte stands in an argument, a variable or a path",
        ));
    }
    bytes.push(kind);
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_arrives_as_it_was_sent_and_takes_nothing_of_what_follows() {
        let order = Order {
            cwd: "/a b".into(),
            program: "./p".into(),
            args: vec!["".into(), "--x=\n".into(), OsString::from_vec(vec![0xff, b'n'])],
            env: vec![("A".into(), "".into()), ("B".into(), "b=c".into())],
            env_remove: vec!["C".into(), "D".into()],
        };
        let mut bytes = order.bytes().expect("there is no NUL in it");
        bytes.push(b't');
        let mut rest = &bytes[..];
        assert_eq!(Order::receive(&mut rest).expect("it is whole"), order);
        assert_eq!(rest, b"t");
        for cut in 0..bytes.len() - 1 {
            assert!(Order::receive(&mut &bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_nul_is_refused_wherever_it_stands() {
        let nul = || OsString::from("a\0b");
        let orders = [
            Order { cwd: nul(), ..Order::default() },
            Order { program: nul(), ..Order::default() },
            Order { args: vec![nul()], ..Order::default() },
            Order { env: vec![(nul(), "".into())], ..Order::default() },
            Order { env: vec![("A".into(), nul())], ..Order::default() },
            Order { env_remove: vec![nul()], ..Order::default() },
        ];
        for order in orders {
            assert_eq!(order.bytes().expect_err("it has a NUL").kind(), io::ErrorKind::InvalidInput, "{order:?}");
        }
    }
}
