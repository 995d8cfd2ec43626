//! As much of Markdown as the checks need: headings, blocks of code and links.

/// One document.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) headings: Vec<Heading>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) links: Vec<Link>,
}

#[derive(Debug)]
pub(crate) struct Heading {
    level: usize,
    pub(crate) text: String,
    /// What a link to it names.
    anchor: String,
}

/// A block of code between two fences.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) line: usize,
    language: String,
    text: String,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) line: usize,
    pub(crate) target: String,
}

impl Document {
    pub(crate) fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut block: Option<Block> = None;
        for (line, number) in text.lines().zip(1..) {
            let fence = line.trim_start().strip_prefix("```");
            match (&mut block, fence) {
                (None, Some(language)) => {
                    let language = language.trim().to_owned();
                    block = Some(Block { line: number, language, text: String::new() });
                }
                (None, None) => document.prose(line, number),
                (Some(_), Some("")) => document.blocks.extend(block.take()),
                (Some(block), _) => block.text += &format!("{}\n", line.trim_end()),
            }
        }
        document.blocks.extend(block);
        document
    }

    fn prose(&mut self, line: &str, number: usize) {
        let level = line.chars().take_while(|c| *c == '#').count();
        if (1..=6).contains(&level) && line[level..].starts_with(' ') {
            let text = line[level..].trim().to_owned();
            let plain = anchor(&text);
            let same =
                self.headings.iter().filter(|heading| anchor(&heading.text) == plain).count();
            let anchor = if same == 0 { plain } else { format!("{plain}-{same}") };
            self.headings.push(Heading { level, text, anchor });
        }
        let targets = targets(&without_code(line));
        self.links.extend(targets.into_iter().map(|target| Link { line: number, target }));
    }

    pub(crate) fn has_heading(&self, anchor: &str) -> bool {
        self.headings.iter().any(|heading| heading.anchor == anchor)
    }

    /// The levels of the headings, in order.
    pub(crate) fn levels(&self) -> Vec<usize> {
        self.headings.iter().map(|heading| heading.level).collect()
    }

    pub(crate) fn links_to(&self, target: &str) -> bool {
        self.links.iter().any(|link| link.target == target)
    }
}

impl Block {
    pub(crate) fn is_rust(&self) -> bool {
        self.language == "rust" || self.language.starts_with("rust,")
    }

    /// Whether it has the same language and text.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.language, &self.text) == (&other.language, &other.text)
    }
}

/// What a link to a heading names: its letters and digits in lower case, with a hyphen for each space. Links in a heading count
/// by their text.
fn anchor(heading: &str) -> String {
    let mut text = heading.to_owned();
    while let Some((before, rest)) = text.split_once("](") {
        let after = rest.split_once(')').map_or("", |(_, after)| after);
        text = format!("{before}{after}");
    }
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The line with its code replaced by nothing.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The targets of the links in a line, also of pictures.
fn targets(line: &str) -> Vec<String> {
    let after = line.split("](").skip(1);
    let targets = after.filter_map(|rest| rest.split_once(')'));
    targets
        .map(|(target, _)| target.trim().to_owned())
        .filter(|target| !target.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_anchors_of_their_words() {
        let cases = [
            ("The store", "the-store"),
            ("`tenure run [OPTIONS] NAME -- COMMAND…`", "tenure-run-options-name----command"),
            ("From flock(1)", "from-flock1"),
            ("1. SETNX, then EXPIRE", "1-setnx-then-expire"),
            ("A [link](to.md#x) in it", "a-link-in-it"),
            ("两分钟学会 Rust", "两分钟学会-rust"),
        ];
        for (heading, expected) in cases {
            assert_eq!(anchor(heading), expected);
        }
    }

    #[test]
    fn a_second_heading_of_the_same_words_is_numbered() {
        let document = Document::parse("# A\n## B\n## B\n#no heading\n####### seven\n");
        assert_eq!(document.levels(), [1, 2, 2]);
        assert!(document.has_heading("b") && document.has_heading("b-1"));
        assert!(!document.has_heading("b-2"));
    }

    #[test]
    fn code_has_no_headings_and_no_links() {
        let text = "```sh\n# comment [a](b)\n```\n   ```rust,ignore\n   x\n   ```\n`[c](d)` [e](f) ![g `h`](i)\n";
        let document = Document::parse(text);
        assert!(document.headings.is_empty());
        let links: Vec<_> = document.links.iter().map(|link| &*link.target).collect();
        assert_eq!(links, ["f", "i"]);
        assert_eq!(document.blocks.len(), 2);
        assert!(!document.blocks[0].is_rust() && document.blocks[1].is_rust());
        assert_eq!(document.blocks[0].text, "# comment [a](b)\n");
    }
}
