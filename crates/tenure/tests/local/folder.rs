//! Folders that are not as they should be, and one that an earlier boot has left.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::engine::LocalEngine;
use tenure::{Error, Tenure};

use super::{connect, pass, store};

#[test]
fn a_folder_that_is_open_to_others_is_refused() {
    let (_around, folder) = store();
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o750)).unwrap();
    let refused = LocalEngine::open(&folder).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert!(refused.to_string().contains("open to others (mode 750)"), "{refused}");
}

#[test]
fn what_is_no_folder_is_refused() {
    let (around, folder) = store();
    fs::write(&folder, "").unwrap();
    let refused = LocalEngine::open(&folder).unwrap_err().to_string();
    assert!(refused.contains("is not a folder"), "{refused}");
    let long = around.path().join("x".repeat(100));
    let refused = LocalEngine::open(long).unwrap_err().to_string();
    assert!(refused.contains("at most 80 bytes"), "{refused}");
    for url in ["local:relative", "local://host/path"] {
        let refused = block_on(Tenure::connect(url)).unwrap_err().to_string();
        assert!(refused.contains("local:///folder"), "{refused}");
    }
}

#[test]
fn a_folder_is_made_for_its_user_alone() {
    let (_around, folder) = store();
    let deep = folder.join("a/b");
    let _tenure = connect(&deep);
    for made in [folder.clone(), folder.join("a"), deep] {
        let mode = fs::metadata(&made).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{}", made.display());
    }
}

#[test]
fn another_boot_frees_everything() {
    let (_around, folder) = store();
    let before = connect(&folder);
    let guard = block_on(before.lock("x").acquire()).unwrap();
    let fence = guard.fence();
    guard.detach().unwrap();
    drop(before);
    until_closed(&folder);
    let again = connect(&folder);
    assert!(block_on(again.lock("x").try_acquire()).unwrap().is_none(), "the same boot");
    drop(again);
    until_closed(&folder);
    fs::write(folder.join("boot"), "another").unwrap();
    let after = connect(&folder);
    let guard = block_on(after.lock("x").try_acquire()).unwrap().unwrap();
    assert!(guard.fence() > fence, "fences go on");
}

/// Waits until the last client of this process is gone: its thread lets go of it.
fn until_closed(folder: &Path) {
    while fs::read_dir(folder.join("clients")).unwrap().count() > 0 {
        std::thread::yield_now();
    }
    // The store is closed right after the files are removed.
    pass(Duration::from_millis(20));
}
