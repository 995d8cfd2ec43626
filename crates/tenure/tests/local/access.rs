//! A process that does not reach its folder any more, though it is there: it is told why.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{chroot, geteuid};
use rustix::thread::{Uid, set_thread_res_uid};
use tenure::blocking::block_on;

use super::namespace;
use crate::{connect_impatiently, store};

/// I1: what others do in the folder is not seen any more, so a renewal is refused; but the folder was
/// neither removed nor moved.
#[test]
fn a_process_without_its_privileges_is_told_so() {
    let (around, folder) = store();
    let tenure = connect_impatiently(&folder).unwrap();
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    fs::set_permissions(around.path(), Permissions::from_mode(0o0)).unwrap();
    let refused = std::thread::scope(|scope| {
        let renewing = scope.spawn(|| {
            if geteuid().is_root() {
                let nobody = Uid::from_raw(65534);
                set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            block_on(guard.renew()).unwrap_err().to_string()
        });
        renewing.join().unwrap()
    });
    fs::set_permissions(around.path(), Permissions::from_mode(0o700)).unwrap();
    assert!(refused.contains("is not allowed to look into the folder"), "{refused}");
    assert!(!refused.contains("removed"), "{refused}");
    block_on(guard.renew()).unwrap();
}

#[test]
fn a_process_with_another_root_is_told_so() {
    namespace::run("mkdir \"$1/cell\"", "change the root");
}

pub(crate) fn change_the_root(folder: &Path) {
    let tenure = connect_impatiently(folder).unwrap();
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    chroot(folder.with_file_name("cell")).unwrap();
    let refused = block_on(guard.renew()).unwrap_err().to_string();
    assert!(refused.contains("it has another root directory since"), "{refused}");
    assert!(!refused.contains("removed"), "{refused}");
}
