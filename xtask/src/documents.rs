//! The documents: every chapter of the book exists, every relative link leads to a file and a heading, and a translation has the
//! sections and the code of its original.
//!
//! Code in the book runs in tests. Rust blocks are documentation tests of the library, so a chapter that has one must be named in
//! `crates/tenure/src/book.rs`; shell blocks are run by the tests of the command, which find the chapters by themselves.

mod markdown;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::sh::{self, Failure, Outcome};
use crate::sources;
use markdown::Document;

const SUMMARY: &str = "docs/SUMMARY.md";
const BOOK: &str = "crates/tenure/src/book.rs";
/// The chapter on fences needs the crate that checks them.
const FENCED: &str = "crates/tenure-fenced/src/lib.rs";

/// The documents by their paths, relative to the workspace.
type Documents = BTreeMap<PathBuf, Document>;

pub(crate) fn check() -> Outcome {
    let documents = read_all()?;
    let exists = |path: &Path| sh::root().join(path).exists();
    let mut mistakes = broken_links(&documents, &exists);
    mistakes.extend(chapters(&documents));
    let including = sources::read(BOOK)? + &sources::read(FENCED)?;
    mistakes.extend(untested(&documents, &including));
    mistakes.extend(translations(&documents));
    if !mistakes.is_empty() {
        return Err(Failure::new(format!(
            "the documents have {} mistakes:\n  {}",
            mistakes.len(),
            mistakes.join("\n  ")
        )));
    }
    let links: usize = documents.values().map(|document| document.links.len()).sum();
    sh::say(format!("{} documents, {links} links", documents.len()));
    Ok(())
}

/// The documents of the workspace's folder and of `docs/`.
fn read_all() -> Outcome<Documents> {
    let mut paths = markdown_files(Path::new(""))?;
    paths.extend(markdown_files(Path::new("docs"))?);
    paths.extend(markdown_files(Path::new("docs/adr"))?);
    let read = |path: PathBuf| {
        let text = sources::read(&path.to_string_lossy())?;
        Ok((path, Document::parse(&text)))
    };
    paths.into_iter().map(read).collect()
}

fn markdown_files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let unreadable = |error| Failure::new(format!("could not read {}: {error}.", folder.display()));
    let entries = fs::read_dir(sh::root().join(folder)).map_err(unreadable)?;
    let names = entries.map(|entry| Ok(entry.map_err(unreadable)?.file_name()));
    let paths: Outcome<Vec<_>> = names.map(|name| Ok(folder.join(name?))).collect();
    Ok(paths?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "md")).collect())
}

/// Links that lead nowhere, and links of the book to files that are not part of it.
fn broken_links(documents: &Documents, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (path, document) in documents {
        for link in &document.links {
            if let Err(why) = follow(documents, exists, path, &link.target) {
                mistakes.push(format!("{}:{}: `{}` {why}", path.display(), link.line, link.target));
            }
        }
    }
    mistakes
}

fn follow(
    documents: &Documents,
    exists: &dyn Fn(&Path) -> bool,
    from: &Path,
    target: &str,
) -> Result<(), &'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(());
    }
    let (file, heading) = match target.split_once('#') {
        Some((file, heading)) => (file, Some(heading)),
        None => (target, None),
    };
    let path = if file.is_empty() { from.to_path_buf() } else { resolve(from, file) };
    if !exists(&path) {
        return Err("does not exist");
    }
    if from.starts_with("docs") && !path.starts_with("docs") {
        return Err("is not part of the book: name its address");
    }
    match (heading, documents.get(&path)) {
        (Some(heading), Some(document)) if !document.has_heading(heading) => {
            Err("names a heading that does not exist")
        }
        _ => Ok(()),
    }
}

/// The path that a link in `from` names.
fn resolve(from: &Path, file: &str) -> PathBuf {
    let mut path = from.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// Chapters that the summary names twice, and documents of the book that it does not name. (That those it names exist is a
/// question of links.)
fn chapters(documents: &Documents) -> Vec<String> {
    let Some(summary) = documents.get(Path::new(SUMMARY)) else {
        return vec![format!("{SUMMARY} does not exist")];
    };
    let mut named = BTreeSet::new();
    let mut mistakes = Vec::new();
    for link in &summary.links {
        let path = resolve(Path::new(SUMMARY), &link.target);
        if !named.insert(path) {
            mistakes.push(format!("{SUMMARY}:{}: `{}` is named twice", link.line, link.target));
        }
    }
    let of_book =
        documents.keys().filter(|path| path.starts_with("docs") && *path != Path::new(SUMMARY));
    let missing = of_book.filter(|path| !named.contains(*path));
    mistakes.extend(missing.map(|path| format!("{SUMMARY} does not name {}", path.display())));
    mistakes
}

/// Chapters whose Rust blocks are not tested. A translation has the blocks of its original.
fn untested(documents: &Documents, book: &str) -> Vec<String> {
    let has_rust = |document: &Document| document.blocks.iter().any(|block| block.is_rust());
    let chapters = documents.iter().filter(|(path, document)| {
        path.starts_with("docs") && !is_translation(path) && has_rust(document)
    });
    let is_included = |path: &Path| book.contains(&format!("/{}\"", path.display()));
    chapters
        .filter(|(path, _)| !is_included(path))
        .map(|(path, _)| {
            format!("{BOOK} does not include {}, which has Rust blocks", path.display())
        })
        .collect()
}

/// Whether it is a Chinese translation: `name.zh.md`.
fn is_translation(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".zh.md")
}

/// Translations whose sections or code differ from their originals', or that are not linked with them.
fn translations(documents: &Documents) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (path, translation) in documents.iter().filter(|(path, _)| is_translation(path)) {
        let name = path.to_string_lossy().replace(".zh.md", ".md");
        let Some(original) = documents.get(Path::new(&name)) else {
            mistakes.push(format!("{} has no original {name}", path.display()));
            continue;
        };
        let differences = differences(original, translation);
        mistakes.extend(differences.map(|what| format!("{}: {what}", path.display())));
        let (own, other) = (file_name(path), file_name(Path::new(&name)));
        if !translation.links_to(&other) {
            mistakes.push(format!("{} has no link to {other}", path.display()));
        }
        if !original.links_to(&own) {
            mistakes.push(format!("{name} has no link to {own}"));
        }
    }
    mistakes
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn differences<'a>(
    original: &'a Document,
    translation: &'a Document,
) -> impl Iterator<Item = String> + 'a {
    let (ours, theirs) = (translation.levels(), original.levels());
    let sections = (ours != theirs).then(|| {
        let at = ours.iter().zip(&theirs).take_while(|(our, their)| our == their).count();
        let title = original.headings.get(at).map_or("the end", |heading| &heading.text);
        format!(
            "{} headings instead of {}, or other levels, from “{title}” on",
            ours.len(),
            theirs.len()
        )
    });
    let count = (original.blocks.len() != translation.blocks.len()).then(|| {
        format!("{} blocks of code instead of {}", translation.blocks.len(), original.blocks.len())
    });
    let pairs = original.blocks.iter().zip(&translation.blocks);
    let changed = pairs.filter(|(original, translation)| !original.is_same(translation));
    let blocks = changed.map(|(original, translation)| {
        format!(
            "the block in line {} differs from that in line {}",
            translation.line, original.line
        )
    });
    sections.into_iter().chain(count).chain(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(texts: &[(&str, &str)]) -> Documents {
        texts.iter().map(|(path, text)| (path.into(), Document::parse(text))).collect()
    }

    fn links(texts: &[(&str, &str)]) -> Vec<String> {
        let documents = documents(texts);
        broken_links(&documents, &|path| {
            documents.contains_key(path) || path == Path::new("docs/a.svg")
        })
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let guide = "# Guide\n## One more\n[here](#one-more) [there](../README.md)\n![a](a.svg)";
        let readme =
            "# Tenure\n[guide](docs/guide.md#one-more) [web](https://x.example/#y) `[no](link)`";
        assert_eq!(
            links(&[("docs/guide.md", guide), ("README.md", readme)]),
            ["docs/guide.md:3: `../README.md` is not part of the book: name its address"]
        );
        let wrong = "[a](docs/guide.md#two) [b](docs/none.md)\n\n```text\n[c](none)\n```\n[d](#e)";
        assert_eq!(
            links(&[("docs/guide.md", "# Guide"), ("README.md", wrong)]),
            [
                "README.md:1: `docs/guide.md#two` names a heading that does not exist",
                "README.md:1: `docs/none.md` does not exist",
                "README.md:6: `#e` names a heading that does not exist",
            ]
        );
    }

    #[test]
    fn the_summary_names_every_chapter_once() {
        let summary = "- [A](a.md)\n- [A again](a.md)\n";
        let documents = documents(&[(SUMMARY, summary), ("docs/a.md", ""), ("docs/adr/b.md", "")]);
        assert_eq!(
            chapters(&documents),
            [
                "docs/SUMMARY.md:2: `a.md` is named twice",
                "docs/SUMMARY.md does not name docs/adr/b.md"
            ]
        );
        assert_eq!(chapters(&Documents::new()), ["docs/SUMMARY.md does not exist"]);
    }

    #[test]
    fn a_chapter_with_rust_is_tested() {
        let block = "```rust\nfn main() {}\n```\n";
        let documents = documents(&[
            ("docs/a.md", block),
            ("docs/a.zh.md", block),
            ("docs/b.md", block),
            ("docs/c.md", "```sh\n:\n```\n"),
        ]);
        let book = "#[doc = include_str!(\"../../../docs/b.md\")]";
        assert_eq!(
            untested(&documents, book),
            ["crates/tenure/src/book.rs does not include docs/a.md, which has Rust blocks"]
        );
    }

    #[test]
    fn a_translation_has_the_sections_and_the_code_of_its_original() {
        let original = "# One\n[中文](a.zh.md)\n## Two\n```sh\ntrue\n```\n### Three\n";
        let same = "# 一\n[English](a.md)\n## 二\n```sh\ntrue\n```\n### 三\n";
        assert!(translations(&documents(&[("a.md", original), ("a.zh.md", same)])).is_empty());
        let other = "# 一\n## 二\n```sh\nfalse\n```\n## 三\n";
        assert_eq!(
            translations(&documents(&[("a.md", original), ("a.zh.md", other)])),
            [
                "a.zh.md: 3 headings instead of 3, or other levels, from “Three” on",
                "a.zh.md: the block in line 3 differs from that in line 4",
                "a.zh.md has no link to a.md"
            ]
        );
        let without = translations(&documents(&[("a.md", "# One"), ("a.zh.md", same)]));
        assert_eq!(
            without,
            [
                "a.zh.md: 3 headings instead of 1, or other levels, from “the end” on",
                "a.zh.md: 1 blocks of code instead of 0",
                "a.md has no link to a.zh.md"
            ]
        );
        assert_eq!(translations(&documents(&[("b.zh.md", "")])), ["b.zh.md has no original b.md"]);
    }
}
