//! Folders that cannot be used, and one from an earlier boot.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tenure::blocking::block_on;
use tenure::engine::LocalEngine;
use tenure::{Error, Tenure};

use crate::{LONG, connect, pass, store};

#[test]
fn a_folder_that_is_accessible_to_other_users_is_refused() {
    let (_around, folder) = store();
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o750)).unwrap();
    let refused = LocalEngine::open(&folder).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert!(refused.to_string().contains("accessible to other users (mode 750)"), "{refused}");
}

#[test]
fn a_path_that_is_not_a_folder_is_refused() {
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
fn a_folder_is_created_for_its_user_alone() {
    let (_around, folder) = store();
    let deep = folder.join("a/b");
    let _tenure = connect(&deep);
    for created in [folder.clone(), folder.join("a"), deep] {
        let mode = fs::metadata(&created).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{}", created.display());
    }
}

#[test]
fn another_boot_frees_everything() {
    let (_around, folder) = store();
    let before = connect(&folder);
    let guard = block_on(before.lock("x").acquire()).unwrap();
    let fence = guard.fence();
    block_on(guard.detach()).unwrap();
    drop(before);
    until_closed(&folder);
    let again = connect(&folder);
    assert!(block_on(again.lock("x").try_acquire()).unwrap().is_none(), "the same boot");
    drop(again);
    until_closed(&folder);
    fs::write(folder.join("boot"), "another").unwrap();
    let after = connect(&folder);
    let guard = block_on(after.lock("x").try_acquire()).unwrap().unwrap();
    assert!(guard.fence() > fence, "fences keep growing");
}

/// Waits until the last client of this process has ended, which its thread does.
fn until_closed(folder: &Path) {
    while fs::read_dir(folder.join("clients")).unwrap().count() > 0 {
        std::thread::yield_now();
    }
    // The store is closed right after the files are removed.
    pass(Duration::from_millis(20));
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let (_around, folder) = store();
    let is_root = rustix::process::geteuid().is_root();
    let of_another = if is_root { folder.as_path() } else { Path::new("/") };
    if is_root {
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(1234), None).unwrap();
    }
    let refused = LocalEngine::open(of_another).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert!(refused.to_string().contains("belongs to another user"), "{refused}");
}

/// A user who can redirect the link could read every wake-up, and end every client.
#[test]
fn clients_behind_a_link_or_accessible_to_other_users_are_refused() {
    let (around, folder) = store();
    let clients = folder.join("clients");
    drop(LocalEngine::open(&folder).unwrap());
    fs::set_permissions(&clients, Permissions::from_mode(0o777)).unwrap();
    let refused = LocalEngine::open(&folder).unwrap_err().to_string();
    assert!(refused.contains("accessible to other users (mode 777)"), "{refused}");
    fs::remove_dir(&clients).unwrap();
    std::os::unix::fs::symlink(around.path(), &clients).unwrap();
    let refused = LocalEngine::open(&folder).unwrap_err().to_string();
    assert!(refused.contains("is not a folder"), "{refused}");
}

#[test]
fn a_relative_path_is_refused() {
    for path in ["", "locks", "./locks"] {
        let refused = LocalEngine::open(path).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        assert!(refused.to_string().contains("absolute path"), "{refused}");
    }
}

/// The machine crashed while the first client after a boot was opening the store.
#[test]
fn a_partially_written_boot_id_is_another_boot() {
    let (_around, folder) = store();
    for length in [0, 20] {
        let tenure = connect(&folder);
        let guard = block_on(tenure.lock("x").try_acquire()).unwrap().unwrap();
        block_on(guard.detach()).unwrap();
        drop(tenure);
        until_closed(&folder);
        File::options().write(true).open(folder.join("boot")).unwrap().set_len(length).unwrap();
    }
    drop(block_on(connect(&folder).lock("x").try_acquire()).unwrap().unwrap());
}

#[test]
fn a_file_of_another_program_is_reported_and_kept() {
    let (_around, folder) = store();
    drop(LocalEngine::open(&folder).unwrap());
    let garbage = [7; 200_000];
    fs::write(folder.join("data.mdb"), garbage).unwrap();
    let refused = LocalEngine::open(&folder).unwrap_err();
    assert!(matches!(refused, Error::Connect { .. }), "{refused:?}");
    assert!(refused.to_string().contains(&folder.display().to_string()), "{refused}");
    assert_eq!(fs::read(folder.join("data.mdb")).unwrap(), garbage);
}

/// Opening a pipe for reading would block until there is a writer.
#[test]
fn a_pipe_in_place_of_a_file_blocks_no_process() {
    for name in ["boot", "mutex", "data.mdb", "lock.mdb"] {
        let (_around, folder) = store();
        drop(LocalEngine::open(&folder).unwrap());
        fs::remove_file(folder.join(name)).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, folder.join(name), FileType::Fifo, mode, 0).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let opened = folder.clone();
        std::thread::spawn(move || sender.send(LocalEngine::open(opened).map(drop)));
        if let Err(refused) = receiver.recv_timeout(LONG).expect(name) {
            assert!(matches!(refused, Error::Connect { .. }), "{name}: {refused:?}");
            assert!(refused.to_string().contains(&folder.display().to_string()), "{refused}");
        }
    }
}

/// The disk was full, or the process was killed, while the store was created.
#[test]
fn an_incomplete_file_is_created_again() {
    let (_around, folder) = store();
    drop(LocalEngine::open(&folder).unwrap());
    let whole = fs::read(folder.join("data.mdb")).unwrap();
    for length in [0, 1, 4096, 8191] {
        fs::write(folder.join("data.mdb"), &whole[..length]).unwrap();
        drop(LocalEngine::open(&folder).unwrap());
    }
}

/// LMDB would extend the file, but without blocks.
#[test]
fn the_lock_file_has_its_blocks() {
    let (_around, folder) = store();
    let _engine = LocalEngine::open(&folder).unwrap();
    let found = fs::metadata(folder.join("lock.mdb")).unwrap();
    assert_eq!(found.len(), 8192);
    assert!(found.blocks() >= 16, "{} blocks are allocated", found.blocks());
}
