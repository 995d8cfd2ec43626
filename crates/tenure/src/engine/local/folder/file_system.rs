//! Kinds of file systems: on a local disk, all processes see the same map and the same file locks.

use rustix::fs::StatFs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// On a disk of this machine.
    Local(&'static str),
    /// Shared by several machines: one may not see what another maps or locks there.
    Shared(&'static str),
    /// Provided by a program (a FUSE daemon, a hypervisor) that need not follow the rules of a disk.
    Virtual(&'static str),
    /// The number that `statfs` reports.
    Unknown(u32),
}

/// As in `statfs(2)`.
const LOCAL: [(u32, &str); 8] = [
    (0xEF53, "ext"),
    (0x0102_1994, "tmpfs"),
    (0x5846_5342, "XFS"),
    (0x9123_683E, "btrfs"),
    (0x2FC1_2FC1, "ZFS"),
    (0xF2F5_2010, "F2FS"),
    (0x794C_7630, "overlay"),
    (0xCA45_1A4E, "bcachefs"),
];
const SHARED: [(u32, &str); 11] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "SMB (cifs)"),
    (0xFE53_4D42, "SMB 2"),
    (0x0102_1997, "9P"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
];
const VIRTUAL: [(u32, &str); 2] =
    [(0x6573_5546, "FUSE"), (0x786F_4256, "a VirtualBox shared folder")];

pub(crate) fn kind_of(found: &StatFs) -> FileSystem {
    // The type of this field depends on the platform; all numbers have 32 bits.
    known(found.f_type as u32)
}

fn known(number: u32) -> FileSystem {
    let among = |kinds: &[(u32, &'static str)]| {
        kinds.iter().find(|(known, _)| *known == number).map(|(_, kind)| *kind)
    };
    let local = among(&LOCAL).map(FileSystem::Local);
    let other = || {
        among(&SHARED).map(FileSystem::Shared).or_else(|| among(&VIRTUAL).map(FileSystem::Virtual))
    };
    local.or_else(other).unwrap_or(FileSystem::Unknown(number))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{NFS_SUPER_MAGIC, PROC_SUPER_MAGIC, statfs};

    use super::*;

    #[test]
    fn a_network_file_system_is_not_local() {
        assert_eq!(known(NFS_SUPER_MAGIC as u32), FileSystem::Shared("NFS"));
        assert_eq!(known(0x6573_5546), FileSystem::Virtual("FUSE"));
        assert_eq!(
            kind_of(&statfs("/proc").unwrap()),
            FileSystem::Unknown(PROC_SUPER_MAGIC as u32)
        );
        assert_eq!(kind_of(&statfs("/dev/shm").unwrap()), FileSystem::Local("tmpfs"));
    }
}
