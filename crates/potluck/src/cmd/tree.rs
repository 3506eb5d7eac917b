//! `potluck tree`: draws everything below a path as a tree.

use super::Ending;
use crate::args::TreeArgs;
use crate::output::{self, Output};
use potluck_client::Pool;
use potluck_core::size::{count, format_size};
use potluck_wire::control::{EntryKind, ListedEntry};
use potluck_wire::error::Failure;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Drawn {
    path: String,
    entries: Vec<ListedEntry>,
}

/// An entry of the tree with its children by name.
#[derive(Default)]
struct Node<'a> {
    entry: Option<&'a ListedEntry>,
    children: BTreeMap<&'a str, Node<'a>>,
}

pub async fn run(args: TreeArgs, client: &Pool, output: &Output) -> Result<Ending, Failure> {
    let mut entries = client.list(&args.path, true).await?;
    if let Some(depth) = args.depth {
        entries.retain(|entry| entry.path.split('/').count() <= depth);
    }
    let drawn = Drawn { path: args.path.to_string(), entries };
    output.result(&drawn, |drawn| {
        let mut root = Node::default();
        for entry in &drawn.entries {
            let names = entry.path.split('/').filter(|name| !name.is_empty());
            names.fold(&mut root, |node, name| node.children.entry(name).or_default()).entry =
                Some(entry);
        }
        let mut text = format!("{}\n", output::name(&drawn.path));
        root.draw("", &mut text);
        let of = |kind, one| {
            count(drawn.entries.iter().filter(|entry| entry.kind == kind).count() as u64, one)
        };
        let (dirs, files) = (of(EntryKind::Dir, "directory"), of(EntryKind::File, "file"));
        let links = match of(EntryKind::Link, "link") {
            none if none.starts_with("0 ") => String::new(),
            links => format!(", {links}"),
        };
        text + &format!("\n{dirs}, {files}{links}\n")
    });
    Ok(Ending::Done)
}

impl Node<'_> {
    fn draw(&self, indent: &str, text: &mut String) {
        let last = self.children.len().saturating_sub(1);
        for (index, (name, child)) in self.children.iter().enumerate() {
            let (branch, below) =
                if index == last { ("└── ", "    ") } else { ("├── ", "│   ") };
            let note = match child.entry {
                Some(entry) if entry.kind == EntryKind::File => {
                    format!("  ({})", format_size(entry.size))
                }
                Some(ListedEntry { target: Some(target), .. }) => {
                    format!(" -> {}", output::name(target.as_str()))
                }
                _ => "/".into(),
            };
            text.push_str(&format!("{indent}{branch}{}{note}\n", output::name(name)));
            child.draw(&format!("{indent}{below}"), text);
        }
    }
}
