//! A process that can no longer reach its folder, although it exists: the error says why.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{chroot, geteuid};
use rustix::thread::{Uid, set_thread_res_uid};
use tenure::blocking::block_on;

use super::namespace;
use crate::{connect_once, store};

/// I1: the process no longer sees what others do in the folder, so that a renewal is refused; but the error does not
/// claim that the folder was removed or moved.
#[test]
fn a_process_that_dropped_its_privileges_is_refused() {
    let (around, folder) = store();
    let tenure = connect_once(&folder).unwrap();
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    fs::set_permissions(around.path(), Permissions::from_mode(0o0)).unwrap();
    let refused = std::thread::scope(|scope| {
        let renewing = scope.spawn(|| {
            if geteuid().is_root() {
                let uid = Uid::from_raw(65534);
                set_thread_res_uid(uid, uid, uid).unwrap();
            }
            block_on(guard.renew()).unwrap_err().to_string()
        });
        renewing.join().unwrap()
    });
    fs::set_permissions(around.path(), Permissions::from_mode(0o700)).unwrap();
    assert!(refused.contains("may no longer access the folder"), "{refused}");
    assert!(!refused.contains("removed"), "{refused}");
    block_on(guard.renew()).unwrap();
}

#[test]
fn a_process_with_another_root_is_refused() {
    namespace::run("mkdir \"$1/cell\"", "change the root");
}

pub(crate) fn change_the_root(folder: &Path) {
    let tenure = connect_once(folder).unwrap();
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    chroot(folder.with_file_name("cell")).unwrap();
    let refused = block_on(guard.renew()).unwrap_err().to_string();
    assert!(refused.contains("its root directory has changed"), "{refused}");
    assert!(!refused.contains("removed"), "{refused}");
}
