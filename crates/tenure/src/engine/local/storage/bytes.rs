//! Values as bytes: numbers in little-endian order, text with a length prefix.

use std::sync::Arc;
use std::time::Duration;

use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::shape::Shape;
use crate::info::About;
use crate::owner::{Entry, Owner};

/// Why bytes cannot be read, as a clause that follows "because".
pub(crate) type Unreadable = &'static str;

#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// Starts with a tag for what follows: a version, or a kind of message.
    pub(crate) fn with_tag(tag: u8) -> Self {
        let mut bytes = Vec::with_capacity(192);
        bytes.push(tag);
        Self(bytes)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn byte(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn short(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn long(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn length(&mut self, value: usize) {
        // More than four billion of anything would not fit in the map.
        self.short(u32::try_from(value).unwrap_or(u32::MAX));
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn moment(&mut self, moment: Moment) {
        self.long(moment.as_micros());
    }

    pub(crate) fn duration(&mut self, duration: Duration) {
        self.long(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn owner(&mut self, owner: Owner) {
        self.0.extend_from_slice(&owner.value().to_le_bytes());
    }

    pub(crate) fn entry(&mut self, entry: Entry) {
        self.owner(entry.owner);
        self.long(entry.number);
    }

    pub(crate) fn about(&mut self, about: &About) {
        self.text(&about.host);
        self.short(about.pid);
        self.text(&about.program);
        self.byte(about.note.is_some().into());
        if let Some(note) = &about.note {
            self.text(note);
        }
    }
}

pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Fails unless all bytes were read.
    pub(crate) fn finish(self) -> Result<(), Unreadable> {
        if self.0.is_empty() { Ok(()) } else { Err("it is longer than its content") }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Unreadable> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn short(&mut self) -> Result<u32, Unreadable> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn long(&mut self) -> Result<u64, Unreadable> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The number of items that follow. Each has at least one byte, so that a wrong length allocates nothing.
    pub(crate) fn length(&mut self) -> Result<usize, Unreadable> {
        let length = self.short()? as usize;
        if length > self.0.len() { Err("it ends too early") } else { Ok(length) }
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Unreadable> {
        let length = self.length()?;
        std::str::from_utf8(self.take(length)?).map_err(|_| "a text in it is not UTF-8")
    }

    pub(crate) fn moment(&mut self) -> Result<Moment, Unreadable> {
        Ok(Moment::from_micros(self.long()?))
    }

    pub(crate) fn duration(&mut self) -> Result<Duration, Unreadable> {
        Ok(Duration::from_micros(self.long()?))
    }

    pub(crate) fn fence(&mut self) -> Result<Fence, Unreadable> {
        let fence = Fence::from_value(self.long()?);
        if fence > Fence::MAX { Err("a fence in it is out of range") } else { Ok(fence) }
    }

    pub(crate) fn permits(&mut self) -> Result<u32, Unreadable> {
        let permits = self.short()?;
        if permits > Shape::MAX_LIMIT {
            Err("it has more permits than are allowed")
        } else {
            Ok(permits)
        }
    }

    pub(crate) fn lease(&mut self) -> Result<Lease, Unreadable> {
        Lease::new(self.duration()?).map_err(|_| "a lease in it is out of range")
    }

    pub(crate) fn owner(&mut self) -> Result<Owner, Unreadable> {
        Ok(Owner::from_value(u128::from_le_bytes(self.array()?)))
    }

    pub(crate) fn entry(&mut self) -> Result<Entry, Unreadable> {
        Ok(Entry { owner: self.owner()?, number: self.long()? })
    }

    pub(crate) fn name(&mut self) -> Result<LockName, Unreadable> {
        LockName::new(self.text()?).map_err(|_| "a name in it is not a valid lock name")
    }

    pub(crate) fn about(&mut self) -> Result<Arc<About>, Unreadable> {
        let (host, pid, program) = (self.text()?.into(), self.short()?, self.text()?.into());
        let note = if self.byte()? == 0 { None } else { Some(self.text()?.into()) };
        Ok(Arc::new(About { host, pid, program, note }))
    }
}
